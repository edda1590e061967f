"""`postroad decode`: shows what is inside captured bytes, for people or as JSON lines."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, BinaryIO, Protocol, TextIO

import typer

from postroad.cli.context import AsJson, OptionalValues
from postroad.cli.other_packets import Described, OtherPackets, decoded_fields
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
from postroad.describe.capture import DamagedPacket, DecodedPacket, Kind, Origin, OtherPacket, Skipped
from postroad.errors import RemoteProtocolError
from postroad.names import MessageId
from postroad.net import ports
from postroad.reports.info import counted
from postroad.wire import FinalAck, MessageView, OrderAck, Ping

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from postroad.describe.capture import CaptureFile
    from postroad.describe.packets import Verifier


# Packets as text for people: a title, the headers field by field, and the body.


MAX_BODY_LINES = 12  # enough to recognise a message; --json shows all of it
BODY_WIDTH = 96
_INDENT = "   "
_OF_BODY = frozenset({"body", "body_base64", "body_text", "stub_base64", "envelope", "extension_base64"})
_OF_ANY_MESSAGE = (0, "normal")  # also False
_NAME_WIDTH = 32  # the longest field name and two spaces


@dataclass(frozen=True, slots=True)
class Other:
    """An OtherPacket with what is in it."""

    origin: Origin
    data: bytes
    described: Described
    is_file: bool  # whether the whole file is this


Shown = DecodedPacket | DamagedPacket | Skipped | Other


class TextPrinter:
    """Prints a block for each item. Packets, including damaged ones, are numbered from 1."""

    def __init__(self, output: TextIO, verifier: Verifier | None = None) -> None:
        self._write = block_writer(output)
        self._verifier = verifier
        self._number = 0

    def print(self, item: Shown) -> None:
        if not isinstance(item, Skipped):
            self._number += 1
        self._write(_other(item, self._number) if isinstance(item, Other) else self._block(item))

    def _block(self, item: DecodedPacket | DamagedPacket | Skipped) -> Iterator[Line]:
        yield from _block(item, self._number)
        if self._verifier is not None and isinstance(item, DecodedPacket) and isinstance(item.packet, MessageView):
            verdict = self._verifier.check(item.packet)
            yield [(f"{_INDENT}Verification", HEADING)]
            for name, text in {"not verified": verdict}.items() if isinstance(verdict, str) else verdict.items():
                yield _field(name, str(text))


def _block(item: DecodedPacket | DamagedPacket | Skipped, number: int) -> Iterator[Line]:
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
    column = f"{printable(name):<{_NAME_WIDTH}}"
    return [(f"{_INDENT}  {column if column.endswith(' ') else f'{column}  '}", FAINT), (printable(text), PLAIN)]


def _ordering(ack: OrderAck | FinalAck) -> Iterator[tuple[str, str]]:
    yield "sequence_id", f"ordinal {ack.sequence_id.ordinal}, time stamp {ack.sequence_id.time_stamp}"
    yield "sequence_number", str(ack.sequence_number)
    yield "previous_sequence_number", str(ack.previous_sequence_number)
    if isinstance(ack, FinalAck):
        yield "acknowledged_message", str(MessageId(ack.source_guid, ack.acknowledged_message_id))


def _other(item: Other, number: int) -> Iterator[Line]:
    found = item.described
    yield [(f"{number}  ", FAINT), (found.kind, TITLE), *_facts(item.origin, len(item.data))]
    is_message = found.kind.startswith("Soap")
    for name, value in found.facts.items():
        if value != "" and not (is_message and value in _OF_ANY_MESSAGE):
            yield from _values(name, value)
    if not found.body:
        return
    yield [(f"{_INDENT}Body", HEADING), (f"  {len(found.body)} bytes", FAINT)]
    if found.text is not None and item.is_file:
        for line in found.text.splitlines():
            yield [(f"{_INDENT}  {printable(line)}", PLAIN)]
    else:
        yield from _cut_body(found.body, found.text)


def _values(name: str, value: object) -> Iterator[Line]:
    """A fact on a line; of an object or a list, each part. Left out is what says nothing, or what comes as the body."""
    if name in _OF_BODY or value in (None, [], {}):
        return
    if isinstance(value, dict):
        for inner, each in value.items():
            yield from _values(inner, each)
    elif isinstance(value, list):
        for each in value:
            if isinstance(each, dict):
                yield from _values(name, ", ".join(f"{inner} {_word(one)}" for inner, one in each.items()))
            else:
                yield from _values(name, each)
    else:
        yield _field(name, _word(value))


def _word(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _body(view: MessageView) -> Iterator[Line]:
    found = decoded_fields(view)
    if found is not None and (found["headers"] or "message_type" in found):
        yield [(f"{_INDENT}Content", HEADING)]
        for name in ("system", "message_type"):
            yield from _values(name, found.get(name))
        yield from _values("headers", found["headers"])
    body = view.body
    if not body:
        return
    kind = "encrypted" if found is None else found["body_kind"]
    yield [(f"{_INDENT}Body", HEADING), (f"  {len(body)} bytes, {kind}", FAINT)]
    yield from _cut_body(body, found["body_text"] if found else None)


def _cut_body(body: bytes, text: str | None) -> Iterator[Line]:
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

    def print(self, item: Shown) -> None:
        self._output.write(json.dumps(self.described(item)) + "\n")

    def described(self, item: Shown) -> dict[str, object]:
        place = origin_json(item.origin)
        if isinstance(item, Other):
            self._number += 1
            return {
                "number": self._number,
                "size": len(item.data),
                **place,
                "packet": item.described.kind,
                **item.described.facts,
            }
        if isinstance(item, DecodedPacket):
            self._number += 1
            described = {"number": self._number, "size": len(item.data), **place}
            described |= packet_json(item.data, item.packet)
            if isinstance(item.packet, MessageView):
                described["decoded"] = decoded_fields(item.packet)
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
OTHER_PORTS = {ports.HTTP, ports.RPC_HANDSHAKE, ports.RPC_READ}


class _Printer(Protocol):
    def print(self, item: Shown) -> None: ...


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
            metavar="N",
            min=1,
            max=65535,
            help="In a capture, TCP streams on this port too, not only "
            f"{ports.BINARY}, {ports.HTTP}, {ports.RPC_HANDSHAKE} and {ports.RPC_READ}.",
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
    """Show the packets in a file, field by field, and what the bodies of messages say.

    FILE is a capture (pcap or pcapng), hex text (plain, or a dump by xxd, hexdump -C or Wireshark), the raw bytes of
    packets, HTTP messages or RPC fragments one after the other, or the body of a message; its content tells which.
    Damaged packets are shown up to the damage, and the rest of the file is still decoded.

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

    chosen = Ports(STANDARD_PORTS.sessions | OTHER_PORTS | set(port or ()), STANDARD_PORTS.pings | set(ping_port or ()))
    with _open(file) as stream:
        try:
            _decode(file, CaptureFile(stream, chosen), _printer(as_json, verifier))
        except BrokenPipeError:
            raise  # whoever read our output has stopped
        except OSError as fault:
            fail(f"{file}: {fault.strerror}", ExitCode.FAILED)
    if verifier is not None and verifier.refused:
        fail(f"{file}: {counted(verifier.refused, 'signed message')} not verified", ExitCode.FAILED)
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
    others = OtherPackets()
    whole = faults = 0
    item: Shown
    alone: Skipped | None = None  # keep the first error back: if there is nothing else, one sentence says it
    for found in capture.items():
        item = described(others, found) if isinstance(found, OtherPacket) else found
        if isinstance(item, Skipped) and not whole and not faults:
            alone, faults = item, 1
            continue
        if alone is not None:
            printer.print(alone)
            alone = None
        printer.print(item)
        if isinstance(item, DecodedPacket | Other):
            whole += 1
        else:
            faults += 1
    if not whole and (alone is not None or not faults):
        fail(f"{file}: {_no_packet(capture, alone)}", ExitCode.FAILED)
    if faults:
        fail(f"{file}: {counted(faults, 'fault')}, {counted(whole, 'packet')} decoded", ExitCode.FAILED)


def described(others: OtherPackets, item: OtherPacket) -> Other | Skipped:
    try:
        return Other(item.origin, item.data, others.describe(item), item.kind is Kind.BODY)
    except RemoteProtocolError as fault:
        return Skipped(item.origin, len(item.data), fault.fault)


def _no_packet(capture: CaptureFile, fault: Skipped | None) -> str:
    if capture.empty:
        return "the file is empty"
    if fault is not None:
        return f"no packet in this file: {fault.reason}"
    if capture.frames:
        return f"no packet in this file: {counted(capture.frames, 'frame')}, none of them on the ports of MSMQ"
    return "no packet in this file"
