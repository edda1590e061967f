"""`postroad decode`: what is inside captured bytes, for people or as JSON lines."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated, BinaryIO, Protocol

import typer

from postroad.cli.context import AsJson
from postroad.cli.options import OptionalValues
from postroad.cli.outcome import ExitCode, fail
from postroad.cli.output import count_text
from postroad.net import ports

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from postroad.capture import CaptureFile, Item, Skipped
    from postroad.describe.verification import Verifier

STANDARD_INPUT = "-"


class _Printer(Protocol):
    def print(self, item: Item) -> None: ...


def _is_file(word: str) -> bool:
    return word == STANDARD_INPUT or not word.startswith("-")


@OptionalValues(verify=_is_file)
def decode(
    file: Annotated[
        str | None, typer.Argument(metavar="FILE", help="The file to read; - for standard input.", show_default=False)
    ] = None,
    as_json: AsJson = False,
    port: Annotated[
        list[int] | None,
        typer.Option(
            metavar="N", min=1, max=65535, help=f"In a capture, TCP sessions on this port too, not only {ports.BINARY}."
        ),
    ] = None,
    ping_port: Annotated[
        list[int] | None,
        typer.Option(
            metavar="N", min=1, max=65535, help=f"In a capture, UDP pings on this port too, not only {ports.PING}."
        ),
    ] = None,
    verify: Annotated[
        str | None,
        typer.Option(
            "--verify",
            metavar="[CERT]",
            help="Check signatures, with this certificate (PEM or DER), else with the one in each packet.",
        ),
    ] = None,
) -> None:
    """Show the packets in a file, field by field.

    FILE is a capture (pcap or pcapng), hex text (plain, or a dump by xxd, hexdump -C or Wireshark), or the raw bytes of
    packets one behind the other; its content tells which. What is damaged is shown as far as it goes, and the rest of
    the file is still decoded.

    With --verify, each message says under which profile its signature is right: how names and numbers become bytes is
    open in the specification. Every profile and hash is tried. Nothing says that the certificate is its sender's.

    The exit code is 0 if all of it was decoded, 1 if not or if there was no packet, 2 if FILE cannot be opened. With
    --verify it is also 1 if a signature is not right, or if no message has one.
    """
    if file is None:
        file, verify = verify, ""  # `--verify FILE`
    if not file:
        fail("Missing argument 'FILE'.", ExitCode.USAGE)
    verifier = None if verify is None else _verifier(verify)
    from postroad.capture import STANDARD_PORTS, CaptureFile, Ports

    ports = Ports(STANDARD_PORTS.sessions | set(port or ()), STANDARD_PORTS.pings | set(ping_port or ()))
    with _open(file) as stream:
        try:
            _decode(file, CaptureFile(stream, ports), _printer(as_json, verifier))
        except BrokenPipeError:
            raise  # the reader of our output has stopped
        except OSError as fault:
            fail(f"{file}: {fault.strerror}", ExitCode.FAILED)
    if verifier is not None and verifier.refused:
        fail(f"{file}: {count_text(verifier.refused, 'signed message')} not verified", ExitCode.FAILED)
    if verifier is not None and not verifier.verified:
        fail(f"{file}: no message is signed", ExitCode.FAILED)


def _verifier(certificate: str) -> Verifier:
    from postroad.describe.verification import Verifier, read_certificate
    from postroad.errors import InvalidArgument

    if not certificate:
        return Verifier()
    try:
        with _open(certificate) as stream:
            return Verifier(read_certificate(stream.read()))
    except InvalidArgument as fault:
        fail(f"--verify: {certificate}: {fault}", ExitCode.USAGE)


def _open(file: str) -> AbstractContextManager[BinaryIO]:
    if file == STANDARD_INPUT:
        return nullcontext(sys.stdin.buffer)
    try:
        return open(file, "rb")
    except (OSError, ValueError) as fault:
        why = fault.strerror if isinstance(fault, OSError) else str(fault)
        fail(f"{file}: cannot be opened: {why}", ExitCode.USAGE)


def _printer(as_json: bool, verifier: Verifier | None) -> _Printer:
    if as_json:
        from postroad.cli.packet_lines import JsonPrinter

        return JsonPrinter(sys.stdout, verifier)
    from postroad.cli.packet_text import TextPrinter

    return TextPrinter(sys.stdout, verifier)


def _decode(file: str, capture: CaptureFile, printer: _Printer) -> None:
    from postroad.capture import DecodedPacket, Skipped

    whole = faults = 0
    alone: Skipped | None = None  # the first fault waits: if it is all there is, one sentence says it
    for item in capture.items():
        if isinstance(item, Skipped) and not whole and not faults:
            alone, faults = item, 1
            continue
        if alone is not None:
            printer.print(alone)
            alone = None
        printer.print(item)
        if isinstance(item, DecodedPacket):
            whole += 1
        else:
            faults += 1
    if not whole and (alone is not None or not faults):
        fail(f"{file}: {_no_packet(capture, alone)}", ExitCode.FAILED)
    if faults:
        fail(f"{file}: {count_text(faults, 'fault')}, {count_text(whole, 'packet')} decoded", ExitCode.FAILED)


def _no_packet(capture: CaptureFile, fault: Skipped | None) -> str:
    if capture.empty:
        return "the file is empty"
    if fault is not None:
        return f"no packet in this file: {fault.reason}"
    if capture.frames:
        return f"no packet in this file: {count_text(capture.frames, 'frame')}, none of them on the ports of MSMQ"
    return "no packet in this file"
