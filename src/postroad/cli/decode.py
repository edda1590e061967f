"""`postroad decode`: shows what is inside captured bytes, for people or as JSON lines."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated, BinaryIO, Protocol, TextIO

import typer

from postroad.cli.context import AsJson, OptionalValues
from postroad.cli.output import (
    FAINT,
    FAULT,
    HEADING,
    HEX_WIDTH,
    PLAIN,
    TITLE,
    ExitCode,
    Line,
    Span,
    block_writer,
    count_text,
    fail,
    hex_lines,
    printable,
)
from postroad.describe import (
    Section,
    describe_headers,
    describe_ping,
    packet_json,
    packet_kind,
    rfc3339_ns,
    sections_json,
)
from postroad.describe.capture import DamagedPacket, DecodedPacket, Item, Origin, Skipped
from postroad.names import MessageId
from postroad.net import ports
from postroad.wire import FinalAck, MessageView, OrderAck, Ping, body_text

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from postroad.describe.capture import CaptureFile
    from postroad.describe.packets import Verifier


# Packets as text for people: a title, the headers field by field, and the body.


MAX_BODY_LINES = 12  # enough to recognise a message; --json shows all of it
BODY_WIDTH = 96
_INDENT = "   "
_NAME_WIDTH = 32  # the longest field name and two spaces


class TextPrinter:
    """Prints a block for each item. Packets, including damaged ones, are numbered from 1."""

    def __init__(self, output: TextIO, verifier: Verifier | None = None) -> None:
        self._write = block_writer(output)
        self._verifier = verifier
        self._number = 0

    def print(self, item: Item) -> None:
        if not isinstance(item, Skipped):
            self._number += 1
        self._write(self._block(item))

    def _block(self, item: Item) -> Iterator[Line]:
        yield from _block(item, self._number)
        if self._verifier is not None and isinstance(item, DecodedPacket) and isinstance(item.packet, MessageView):
            verdict = self._verifier.check(item.packet)
            yield [(f"{_INDENT}Verification", HEADING)]
            for name, text in {"not verified": verdict}.items() if isinstance(verdict, str) else verdict.items():
                yield _field(name, str(text))


def _block(item: Item, number: int) -> Iterator[Line]:
    if isinstance(item, DecodedPacket):
        yield [(f"{number}  ", FAINT), (packet_kind(item.packet), TITLE), *_facts(item.origin, len(item.data))]
        yield from _packet(item)
    elif isinstance(item, DamagedPacket):
        yield [(f"{number}  ", FAINT), ("damaged packet", FAULT), *_facts(item.origin, len(item.data))]
        for section in describe_headers(item.data, item.fault):
            yield from _section(section)
        place = "" if item.fault.offset is None else f"at offset {item.origin.offset + item.fault.offset}: "
        yield [(f"{_INDENT}{place}{item.fault.fault}", FAULT)]
    else:
        size = f"{item.size} bytes skipped" if item.size else "skipped"
        yield [("-  ", FAINT), (size, FAULT), *_facts(item.origin, 0)]
        yield [(f"{_INDENT}{printable(item.reason)}", FAULT)]


def _facts(origin: Origin, size: int) -> Iterator[Span]:
    """The rest of a title line: size, addresses, time, place."""
    if size:
        yield f"  {size} bytes", PLAIN
    if origin.source is not None:
        yield f"  {origin.source} -> {origin.destination}", PLAIN
    if origin.time_ns is not None and (time := rfc3339_ns(origin.time_ns)) is not None:
        yield f"  {time}", PLAIN
    for what, where in (("frame", origin.frame), ("line", origin.line), ("offset", origin.offset)):
        if where is not None:
            yield f"  {what} {where}", FAINT


def _packet(item: DecodedPacket) -> Iterator[Line]:
    packet = item.packet
    for section in describe_ping(packet) if isinstance(packet, Ping) else describe_headers(item.data):
        yield from _section(section)
    if isinstance(packet, MessageView):
        yield from _body(packet)
    elif isinstance(packet, OrderAck | FinalAck):
        yield [(f"{_INDENT}Body", HEADING)]
        for name, text in _ordering(packet):
            yield _field(name, text)


def _section(section: Section) -> Iterator[Line]:
    yield [(f"{_INDENT}{section.name}", HEADING), (f"  at {section.offset}", FAINT)]
    for field in section.fields:
        if not field.quiet:
            yield _field(field.name, field.text)


def _field(name: str, text: str) -> Line:
    return [(f"{_INDENT}  {name:<{_NAME_WIDTH}}", FAINT), (printable(text), PLAIN)]


def _ordering(ack: OrderAck | FinalAck) -> Iterator[tuple[str, str]]:
    yield "sequence_id", f"ordinal {ack.sequence_id.ordinal}, time stamp {ack.sequence_id.time_stamp}"
    yield "sequence_number", str(ack.sequence_number)
    yield "previous_sequence_number", str(ack.previous_sequence_number)
    if isinstance(ack, FinalAck):
        yield "acknowledged_message", str(MessageId(ack.source_guid, ack.acknowledged_message_id))


def _body(view: MessageView) -> Iterator[Line]:
    body = view.body
    if not body:
        return
    text = None if view.encrypted else body_text(body, view.body_type)
    kind = ", encrypted" if view.encrypted else "" if text is None else ", text"
    yield [(f"{_INDENT}Body", HEADING), (f"  {len(body)} bytes{kind}", FAINT)]
    lines, rest = _hex_lines(body) if text is None else _text_lines(text)
    for line in lines:
        yield [(f"{_INDENT}  {line}", PLAIN)]
    if rest:
        yield [(f"{_INDENT}  ... {rest} in all; --json prints them", FAINT)]


def _text_lines(text: str) -> tuple[list[str], str]:
    """The first lines, and how much is left out."""
    head = text[: MAX_BODY_LINES * BODY_WIDTH]
    lines = [
        printable(line[start : start + BODY_WIDTH])
        for line in head.replace("\r\n", "\n").split("\n")
        for start in range(0, max(len(line), 1), BODY_WIDTH)
    ]
    cut = len(head) < len(text) or len(lines) > MAX_BODY_LINES
    return lines[:MAX_BODY_LINES], f"{len(text)} characters" if cut else ""


def _hex_lines(body: bytes) -> tuple[list[str], str]:
    """The first bytes in hex, and how many are left out."""
    lines = hex_lines(body[: MAX_BODY_LINES * HEX_WIDTH])
    return lines, f"{len(body)} bytes" if len(body) > len(lines) * HEX_WIDTH else ""


# Packets as JSON lines: an object for each packet, damaged packet or place without a packet.


class JsonPrinter:
    """Prints JSON objects. Each has `packet` (its kind) or `error`, never both.

    Packets, including damaged ones, are numbered from 1.
    """

    def __init__(self, output: TextIO, verifier: Verifier | None = None) -> None:
        self._output = output
        self._verifier = verifier
        self._number = 0

    def print(self, item: Item) -> None:
        self._output.write(json.dumps(self.described(item)) + "\n")

    def described(self, item: Item) -> dict[str, object]:
        place = origin_json(item.origin)
        if isinstance(item, DecodedPacket):
            self._number += 1
            described = {"number": self._number, "size": len(item.data), **place}
            described |= packet_json(item.data, item.packet)
            if self._verifier is not None and isinstance(item.packet, MessageView):
                verdict = self._verifier.check(item.packet)
                described["verified"] = None if isinstance(verdict, str) else verdict
            return described
        if isinstance(item, DamagedPacket):
            self._number += 1
            return {
                "number": self._number,
                "error": item.fault.fault,
                "size": len(item.data),
                **place,
                "offset": item.origin.offset + (item.fault.offset or 0),
                "packet_offset": item.origin.offset,
                "headers": sections_json(describe_headers(item.data, item.fault)),
            }
        return {"error": item.reason, "size": item.size, **place}


def origin_json(origin: Origin) -> dict[str, object]:
    """Where an item was found. Unknown facts have no key."""
    place = {
        "offset": origin.offset,
        "line": origin.line,
        "frame": origin.frame,
        "time": None if origin.time_ns is None else rfc3339_ns(origin.time_ns),
        "from": origin.source,
        "to": origin.destination,
    }
    return {key: value for key, value in place.items() if value is not None}


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
    packets one after the other; its content tells which. Damaged packets are shown up to the damage, and the rest of
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
    from postroad.describe.capture import STANDARD_PORTS, CaptureFile, Ports

    ports = Ports(STANDARD_PORTS.sessions | set(port or ()), STANDARD_PORTS.pings | set(ping_port or ()))
    with _open(file) as stream:
        try:
            _decode(file, CaptureFile(stream, ports), _printer(as_json, verifier))
        except BrokenPipeError:
            raise  # whoever read our output has stopped
        except OSError as fault:
            fail(f"{file}: {fault.strerror}", ExitCode.FAILED)
    if verifier is not None and verifier.refused:
        fail(f"{file}: {count_text(verifier.refused, 'signed message')} not verified", ExitCode.FAILED)
    if verifier is not None and not verifier.verified:
        fail(f"{file}: no message is signed", ExitCode.FAILED)


def _verifier(certificate: str) -> Verifier:
    from postroad.describe.packets import Verifier, read_certificate
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
        return JsonPrinter(sys.stdout, verifier)

    return TextPrinter(sys.stdout, verifier)


def _decode(file: str, capture: CaptureFile, printer: _Printer) -> None:
    from postroad.describe.capture import DecodedPacket, Skipped

    whole = faults = 0
    alone: Skipped | None = None  # keep the first error back: if there is nothing else, one sentence says it
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
