"""BaseHeader, [MS-MQMQ] 2.2.19.1: the start of every packet."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from postroad.errors import LocalProtocolError, RemoteProtocolError
from postroad.message import Composer, Message
from postroad.names import PublicName
from postroad.wire import (
    BaseHeader,
    FinalAck,
    MessagePropertiesHeader,
    MessageView,
    OrderAck,
    SessionAck,
    SessionHeader,
    UserMessage,
    decode_packet,
)
from postroad.wire.headers import DebugHeader
from tests.messages import FINAL_ACK, FULL, INTERNAL, ORDER_ACK, OURS, PLAIN
from tests.packets import OTHER, SOURCE, base_flags, by_hand, meaning, patched, refusal, spliced, u32, with_bits
from tests.vectors import FRAME_7, FRAME_8, V1, V2

RESERVED_BITS = [6, 7, *range(9, 16)]


@pytest.mark.spec("MQ-2.2.19.1-01", "MQ-2.2.18-01")
def test_the_layout() -> None:
    header = BaseHeader(flags=0x0201, packet_size=0x00040302, time_to_reach_queue=0x08070605, reserved=0xAB)
    wire = bytes.fromhex("10 ab 0102 4c494f52 02030400 05060708")
    assert header.encode() == wire
    assert BaseHeader.decode(wire) == header
    assert BaseHeader.decode(FRAME_7) == BaseHeader(flags=3, packet_size=2224, time_to_reach_queue=345_600)
    view = MessageView(FRAME_7)
    assert (view.base_flags, view.packet_size, view.time_to_reach_queue) == (3, 2224, 345_600)


def test_a_header_that_is_cut_off() -> None:
    with pytest.raises(RemoteProtocolError, match="16 bytes, got 15"):
        BaseHeader.decode(FRAME_7[:15])


@pytest.mark.spec("MQ-2.2.19.1-02")
@pytest.mark.parametrize("version", [0x00, 0x0F, 0x11, 0xFF])
@pytest.mark.parametrize("packet", [V1, FRAME_8])
def test_the_version_is_0x10(packet: bytes, version: int) -> None:
    decode_packet(packet)
    with pytest.raises(RemoteProtocolError) as caught:
        decode_packet(patched(packet, 0, bytes([version])))
    assert caught.value.offset == 0


@pytest.mark.spec("MQ-2.2.19.1-03")
@pytest.mark.parametrize("reserved", [0xC0, 0xCD, 0xFF])
def test_the_reserved_byte_means_nothing(reserved: int) -> None:
    assert meaning(patched(FRAME_7, 1, bytes([reserved]))) == meaning(FRAME_7)
    assert decode_packet(patched(FRAME_8, 1, bytes([reserved]))) == decode_packet(FRAME_8)


@pytest.mark.spec("MQ-2.2.19.1-04")
@pytest.mark.parametrize("signature", [b"ROIL", b"LIOS", b"\0\0\0\0", b"HTTP"])
@pytest.mark.parametrize("packet", [V1, FRAME_8])
def test_the_signature_is_lior(packet: bytes, signature: bytes) -> None:
    assert packet[4:8] == b"LIOR"
    with pytest.raises(RemoteProtocolError) as caught:
        decode_packet(patched(packet, 4, signature))
    assert caught.value.offset == 4


@pytest.mark.spec("MQ-2.2.19.1-05")
@pytest.mark.parametrize("priority", range(8))
def test_priority_is_the_low_three_bits(priority: int) -> None:
    packet = patched(V1, 2, bytes([priority]))
    assert MessageView(packet).priority == BaseHeader.decode(packet).priority == priority
    assert replace(PLAIN, base=BaseHeader(priority)).encode()[2] == priority


@pytest.mark.spec("MQ-2.2.19.1-05")
def test_priority_is_3_unless_the_application_says_otherwise() -> None:
    assert MessageView(Composer(SOURCE, PublicName(OTHER)).compose(Message(), 1, 2)).priority == 3


@pytest.mark.spec("MQ-2.2.19.1-08")
def test_in_is_bit_3() -> None:
    header = BaseHeader.decode(patched(V1, 2, b"\x0b"))
    assert (header.priority, header.flags & 0x0008) == (3, 0x0008)
    assert not BaseHeader.decode(V1).flags & 0x0008


@pytest.mark.spec("MQ-2.2.19.1-09", "MQ-2.2.19.1-26")
@pytest.mark.parametrize("packet", [FRAME_8, *(packet.encode() for packet in INTERNAL)])
def test_an_internal_packet_says_so_and_never_expires(packet: bytes) -> None:
    assert base_flags(packet) & 0x0008
    assert packet[12:16] == b"\xff\xff\xff\xff"


@pytest.mark.spec("MQ-2.2.19.1-10", "MQ-2.2.19.1-26")
@pytest.mark.parametrize("ack", [ORDER_ACK, FINAL_ACK])
def test_an_ordering_acknowledgment_is_no_internal_packet(ack: OrderAck | FinalAck) -> None:
    assert base_flags(ack.encode()) == 0
    assert ack.encode()[12:16] == b"\xff\xff\xff\xff"


@pytest.mark.spec("MQ-2.2.19.1-11")
def test_sh_is_bit_4_and_brings_a_session_header() -> None:
    assert base_flags(FRAME_8) == 0x001B
    ack = decode_packet(FRAME_8)
    assert isinstance(ack, SessionAck)
    assert ack.session.window_size == 64
    assert base_flags(V2) == 0x0010
    assert MessageView(V2).session_header == SessionHeader(3, 1, 5, 2, 2, 64)
    assert refusal(V2[:-16]).offset == 8
    assert refusal(patched(V2, 2, b"\0")).offset == 8


@pytest.mark.spec("MQ-2.2.19.1-12")
def test_dh_is_bit_5_and_brings_a_debug_header() -> None:
    debug = bytes.fromhex("01000000") + OTHER.bytes_le
    assert MessageView(by_hand(base_flags=0x0020, trailers=debug)).debug_header == DebugHeader(OTHER, flags=1)
    assert MessageView(by_hand()).debug_header is None
    assert refusal(by_hand(base_flags=0x0020)).offset == len(by_hand())
    assert refusal(by_hand(trailers=debug)).offset == len(by_hand())


@pytest.mark.spec("MQ-2.2.19.1-13")
@pytest.mark.parametrize("packet", [FRAME_8, *(packet.encode() for packet in INTERNAL)])
def test_dh_belongs_to_user_messages(packet: bytes) -> None:
    assert not base_flags(packet) & 0x0020
    with pytest.raises(RemoteProtocolError) as caught:
        decode_packet(with_bits(packet, 2, 0x0020))
    assert caught.value.offset == 2


@pytest.mark.spec("MQ-2.2.19.1-14", "MQ-2.2.19.1-17", "MQ-2.2.19.1-19")
@pytest.mark.parametrize("bit", RESERVED_BITS)
def test_a_reserved_flag_is_ignored(bit: int) -> None:
    for packet in (FRAME_7, V1, V2):
        assert meaning(with_bits(packet, 2, 1 << bit)) == meaning(packet)
    for packet in (FRAME_8, *(packet.encode() for packet in INTERNAL)):
        assert decode_packet(with_bits(packet, 2, 1 << bit)) == decode_packet(packet)


@pytest.mark.spec("MQ-2.2.19.1-18")
@pytest.mark.parametrize("packet", OURS)
def test_no_reserved_flag_is_sent(packet: bytes) -> None:
    assert base_flags(packet) & 0xFEC0 == 0


@pytest.mark.spec("MQ-2.2.19.1-15")
def test_tr_is_bit_8() -> None:
    assert base_flags(FULL.encode()) & 0x0100
    assert MessageView(FULL.encode()).tracing
    assert BaseHeader.decode(FULL.encode()).flags & 0x0100
    assert not base_flags(replace(FULL, base=BaseHeader()).encode()) & 0x0100
    assert not MessageView(V1).tracing


@pytest.mark.spec("MQ-2.2.19.1-16")
def test_tracing_needs_a_debug_header() -> None:
    assert refusal(with_bits(V1, 2, 0x0100)).offset == 2
    with pytest.raises(LocalProtocolError, match="DebugHeader"):
        replace(FULL, debug=None).encode()


@pytest.mark.spec("MQ-2.2.19.1-20")
@pytest.mark.parametrize("body_size", range(5))
@pytest.mark.parametrize("session", [None, SessionHeader()])
def test_packet_size_counts_padding_but_no_session_header(body_size: int, session: SessionHeader | None) -> None:
    properties = MessagePropertiesHeader(b"x" * body_size)
    packet = replace(PLAIN, properties=properties, session=session).encode()
    size = 16 + 48 + 16 + 56 + (0 if body_size == 0 else 4)
    assert BaseHeader.decode(packet).packet_size == MessageView(packet).packet_size == size
    assert len(packet) == size + (16 if session else 0)


@pytest.mark.spec("MQ-2.2.19.1-20")
@pytest.mark.parametrize("packet", [V1, V2])
def test_a_packet_of_another_size_is_refused(packet: bytes) -> None:
    for wrong in (packet + bytes(4), packet[:-4]):
        assert refusal(wrong).offset == 8


@pytest.mark.spec("MQ-2.2.19.1-21")
def test_packet_size_counts_the_session_header_of_a_session_ack() -> None:
    assert BaseHeader.decode(FRAME_8).packet_size == len(FRAME_8) == 36
    ours = SessionAck(SessionHeader(1)).encode()
    assert BaseHeader.decode(ours).packet_size == len(ours) == 36


@pytest.mark.spec("MQ-2.2.19.1-22")
def test_a_packet_has_at_most_4_mib() -> None:
    room = 0x0040_0000 - len(replace(PLAIN, properties=MessagePropertiesHeader()).encode())
    largest = replace(PLAIN, properties=MessagePropertiesHeader(bytes(room))).encode()
    assert len(largest) == MessageView(largest).packet_size == 0x0040_0000
    assert len(replace(PLAIN, properties=MessagePropertiesHeader(bytes(room)), session=SessionHeader()).encode()) == (
        0x0040_0010
    )
    with pytest.raises(LocalProtocolError, match="must have at most 4194304 bytes"):
        replace(PLAIN, properties=MessagePropertiesHeader(bytes(room + 1))).encode()
    assert refusal(spliced(largest, len(largest), bytes(4))).offset == 8
    assert refusal(patched(V1, 8, u32(0x0040_0001))).offset == 8


@pytest.mark.parametrize("size", [0, 15, 63])
def test_a_packet_size_smaller_than_the_headers_is_refused(size: int) -> None:
    assert refusal(patched(V1, 8, u32(size))).offset == 8


def test_too_few_bytes_for_a_message() -> None:
    assert "at least 64 bytes" in refusal(V1[:63]).fault


@pytest.mark.spec("MQ-2.2.18.1.1-01")
def test_a_guid_has_three_little_endian_parts() -> None:
    view = MessageView(FRAME_7)
    assert view.source_queue_manager_bytes.hex() == "d1587355509195954997b6e611ea26c6"
    assert view.source_queue_manager == UUID("557358d1-9150-9595-4997-b6e611ea26c6")
    assert UserMessage.decode(FRAME_7).encode()[16:32] == FRAME_7[16:32]
