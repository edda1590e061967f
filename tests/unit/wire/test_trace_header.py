"""DebugHeader, [MS-MQMQ] 2.2.20.8: the queue that gets the trace reports of a message."""

from __future__ import annotations

from dataclasses import replace

import pytest

from postroad.wire import MessageView, UserMessage
from postroad.wire.headers import DebugHeader
from postroad.wire.octets import Writer
from tests.packets import OTHER, by_hand, meaning, refusal, u16

PRESENT = 0x0020
HEADER_AT = 120  # in a packet made by hand


def traced(data: bytes) -> bytes:
    return by_hand(base_flags=PRESENT, trailers=data)


def decoded(data: bytes) -> DebugHeader:
    value = MessageView(traced(data)).debug_header
    assert value is not None
    assert value == UserMessage.decode(traced(data)).debug
    assert UserMessage.decode(traced(data)).encode() == traced(data)
    return value


def encoded(value: DebugHeader) -> bytes:
    writer = Writer()
    value.encode(writer)
    return writer.getvalue()


@pytest.mark.spec("MQ-2.2.20.8-01", "MQ-2.2.20.8-02", "MQ-2.2.20.8-03")
def test_with_a_queue_it_has_20_bytes() -> None:
    wire = bytes.fromhex("01000000") + OTHER.bytes_le
    assert decoded(wire).queue_identifier == OTHER
    assert encoded(DebugHeader(OTHER)) == wire
    assert refusal(traced(wire[:16]))
    assert refusal(traced(b"\0" + wire[1:]))


@pytest.mark.spec("MQ-2.2.20.8-01", "MQ-2.2.20.8-02", "MQ-2.2.20.8-03")
def test_without_a_queue_it_has_4_bytes() -> None:
    assert decoded(bytes(4)).queue_identifier is None
    assert encoded(DebugHeader()) == bytes(4)
    assert encoded(DebugHeader(flags=1)) == bytes(4)  # QT follows from the queue


@pytest.mark.spec("MQ-2.2.20.8-02")
@pytest.mark.parametrize("queue_type", [2, 3])
def test_no_other_type_of_queue(queue_type: int) -> None:
    assert refusal(traced(u16(queue_type) + u16(0) + OTHER.bytes_le)).offset == HEADER_AT


@pytest.mark.spec("MQ-2.2.20.8-04")
@pytest.mark.parametrize("bit", range(2, 16))
def test_an_unused_flag_is_ignored(bit: int) -> None:
    wire, odd = (u16(flags) + u16(0) + OTHER.bytes_le for flags in (1, 1 | 1 << bit))
    assert replace(decoded(odd), flags=1) == decoded(wire)
    assert meaning(traced(odd), "debug_header") == meaning(traced(wire), "debug_header")


@pytest.mark.spec("MQ-2.2.20.8-05")
@pytest.mark.parametrize("reserved", [1, 0xFFFF])
def test_the_reserved_field_is_ignored(reserved: int) -> None:
    assert replace(decoded(u16(1) + u16(reserved) + OTHER.bytes_le), reserved=0) == DebugHeader(OTHER, flags=1)


@pytest.mark.spec("MQ-2.2.20.8-04", "MQ-2.2.20.8-05")
@pytest.mark.parametrize(("value", "start"), [(DebugHeader(), bytes(4)), (DebugHeader(OTHER), b"\1\0\0\0")])
def test_what_is_unused_or_reserved_is_sent_as_zero(value: DebugHeader, start: bytes) -> None:
    assert encoded(value)[:4] == start
