"""SessionHeader, [MS-MQMQ] 2.2.20.4: only the layout. The session knows what the counters mean."""

from __future__ import annotations

from dataclasses import replace

import pytest

from postroad.wire import MessageView, SessionAck, SessionHeader, decode_packet
from tests.packets import by_hand, patched, u16
from tests.vectors import FRAME_8, V2


@pytest.mark.spec("MQ-2.2.20.4-01")
def test_the_layout() -> None:
    value = SessionHeader(0x0201, 0x0403, 0x08070605, 0x0A09, 0x0C0B, 0x0E0D, 0x100F)
    wire = bytes(range(1, 17))
    assert value.encode() == wire
    assert SessionHeader.decode(wire) == value
    assert value == SessionHeader(
        ack_sequence_number=0x0201,
        recoverable_msg_ack_seq_number=0x0403,
        recoverable_msg_ack_flags=0x08070605,
        user_msg_sequence_number=0x0A09,
        recoverable_msg_seq_number=0x0C0B,
        window_size=0x0E0D,
        reserved=0x100F,
    )


@pytest.mark.spec("MQ-2.2.20.4-01")
def test_the_header_of_frame_8() -> None:
    ack = decode_packet(FRAME_8)
    assert isinstance(ack, SessionAck)
    assert FRAME_8[20:].hex() == "01000000000000000000000040000000"
    assert ack.session == SessionHeader(ack_sequence_number=1, window_size=64)


@pytest.mark.spec("MQ-2.2.20.4-13")
@pytest.mark.parametrize("reserved", [1, 0xFFFF])
def test_the_reserved_field_is_ignored(reserved: int) -> None:
    value = MessageView(patched(V2, 156 + 14, u16(reserved))).session_header
    assert value is not None
    assert replace(value, reserved=0) == MessageView(V2).session_header


def test_nothing_to_acknowledge() -> None:
    assert SessionHeader().encode() == bytes(12) + u16(64) + bytes(2)


def test_a_message_without_one() -> None:
    assert MessageView(by_hand()).session_header is None
