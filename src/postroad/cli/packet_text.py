"""Packets as text for people: a title, the headers field by field, the body."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, TextIO

from postroad.capture import DamagedPacket, DecodedPacket, Item, Origin, Skipped
from postroad.cli.terminal import (
    FAINT,
    FAULT,
    HEADING,
    HEX_WIDTH,
    PLAIN,
    TITLE,
    Line,
    Span,
    block_writer,
    hex_lines,
    shown,
)
from postroad.describe import Section, describe_headers, describe_ping, packet_kind, rfc3339_ns
from postroad.names import MessageId
from postroad.wire import FinalAck, MessageView, OrderAck, Ping, body_text

if TYPE_CHECKING:
    from postroad.describe.verification import Verifier

MAX_BODY_LINES = 12  # enough to recognise a message; --json has all of it
BODY_WIDTH = 96
_INDENT = "   "
_NAME_WIDTH = 32  # the longest field name and two spaces


class TextPrinter:
    """One block for each item; packets, damaged ones too, are numbered from 1."""

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
        yield [(f"{_INDENT}{shown(item.reason)}", FAULT)]


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
    return [(f"{_INDENT}  {name:<{_NAME_WIDTH}}", FAINT), (shown(text), PLAIN)]


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
    """The first lines, and how much there is if that was not all."""
    head = text[: MAX_BODY_LINES * BODY_WIDTH]
    lines = [
        shown(line[start : start + BODY_WIDTH])
        for line in head.replace("\r\n", "\n").split("\n")
        for start in range(0, max(len(line), 1), BODY_WIDTH)
    ]
    cut = len(head) < len(text) or len(lines) > MAX_BODY_LINES
    return lines[:MAX_BODY_LINES], f"{len(text)} characters" if cut else ""


def _hex_lines(body: bytes) -> tuple[list[str], str]:
    """The same in hex."""
    lines = hex_lines(body[: MAX_BODY_LINES * HEX_WIDTH])
    return lines, f"{len(body)} bytes" if len(body) > len(lines) * HEX_WIDTH else ""
