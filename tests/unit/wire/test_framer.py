"""Packets out of a byte stream: where one ends and the next begins, and what a hostile stream can cost."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from struct import pack, pack_into

import pytest

from postroad.errors import LocalProtocolError, RemoteProtocolError
from postroad.wire import Framer, MessageView, SessionAck, UserMessage, decode_packet
from postroad.wire.constants import MAX_PACKET_SIZE, FormatType
from postroad.wire.framer import MAX_BUFFERED
from postroad.wire.headers import (
    MAX_ELEMENTS,
    AddressHeader,
    FormatNameElement,
    MultiQueueFormatHeader,
)
from tests.frames import EVERY_HEADER, FINAL_ACK, FRAME_3, FRAME_5, ORDER_ACK, SESSION_PACKETS
from tests.vectors import FRAME_7, FRAME_8, V1, V2

STREAM = b"".join(SESSION_PACKETS)


def base_header(size: int, flags: int = 0, *, version: int = 0x10, signature: bytes = b"LIOR") -> bytes:
    return pack("<BBH4sII", version, 0, flags, signature, size, 0xFFFFFFFF)


def largest_packet() -> bytes:
    """A UserMessage of exactly 4 MiB."""
    message = UserMessage.decode(V1)
    room = MAX_PACKET_SIZE - len(message.encode()) + len(b"abc\0")
    data = bytearray(V1[:-4] + bytes(room))
    pack_into("<I", data, 8, MAX_PACKET_SIZE)
    properties = len(V1) - 4 - 4 - 56
    pack_into("<II", data, properties + 32, room, room)
    return bytes(data)


def test_a_stream_of_all_kinds() -> None:
    framer = Framer()
    assert framer.feed(STREAM) == list(SESSION_PACKETS)
    assert framer.error is None
    assert framer.position == len(STREAM)
    assert framer.buffered == 0


@pytest.mark.parametrize("size", [1, 7, 16, 17, 64, 1000])
def test_chunks_of_any_size(size: int) -> None:
    framer = Framer()
    packets = []
    for start in range(0, len(STREAM), size):
        packets += framer.feed(STREAM[start : start + size])
    assert packets == list(SESSION_PACKETS)


@pytest.mark.spec("QB-2.2.6-04")
@pytest.mark.parametrize("following", [V1, FRAME_8, V2, FRAME_7, EVERY_HEADER])
def test_a_session_header_behind_a_user_message_belongs_to_it(following: bytes) -> None:
    size = int.from_bytes(V2[8:12], "little")
    assert (size, len(V2)) == (156, 172)
    packets = Framer().feed(V2 + following)
    assert packets == [V2, following]
    view = decode_packet(packets[0])
    assert isinstance(view, MessageView)
    assert view.packet_size == 156
    assert view.session_header is not None
    assert view.session_header.encode() == V2[156:]
    # The first 156 bytes alone are not the whole packet.
    framer = Framer()
    assert framer.feed(V2[:156]) == []
    assert framer.feed(V2[156:]) == [V2]


@pytest.mark.spec("QB-2.2.6-01", "QB-2.2.6-04")
def test_the_session_header_of_a_session_ack_is_counted() -> None:
    packets = Framer().feed(FRAME_8 + V1 + FRAME_8)
    assert packets == [FRAME_8, V1, FRAME_8]
    assert isinstance(decode_packet(packets[0]), SessionAck)


@pytest.mark.spec("QB-1.6-01")
def test_four_mebibytes_are_the_limit() -> None:
    packet = largest_packet()
    framer = Framer()
    assert framer.feed(packet + FRAME_8) == [packet, FRAME_8]
    view = decode_packet(packet)
    assert isinstance(view, MessageView)
    assert view.packet_size == 0x00400000
    assert UserMessage.of(view).encode() == packet

    above = base_header(0x00400001)
    assert framer.feed(above) == []
    assert framer.error is not None
    assert framer.error.offset == 8
    with pytest.raises(RemoteProtocolError, match="PacketSize must be between 16 and 4194304, got 4194305"):
        decode_packet(above + bytes(0x00400001 - 16))


@pytest.mark.parametrize(
    ("header", "offset", "fault"),
    [
        (base_header(32, signature=b"ROIL"), 4, "this is not an MSMQ packet"),
        (base_header(32, version=0x11), 0, "version must be 0x10, got 0x11"),
        (base_header(15), 8, "PacketSize must be between 16 and 4194304, got 15"),
        (base_header(0), 8, "PacketSize must be between 16 and 4194304, got 0"),
        (base_header(0xFFFFFFFF), 8, "PacketSize must be between 16 and 4194304, got 4294967295"),
        (b"GET / HTTP/1.1\r\n", 4, "this is not an MSMQ packet"),
    ],
)
def test_a_bad_header_ends_the_stream(header: bytes, offset: int, fault: str) -> None:
    framer = Framer()
    assert framer.feed(V1 + FRAME_8 + header + V1) == [V1, FRAME_8]
    assert framer.error is not None
    assert framer.error.offset == offset
    assert fault in framer.error.fault
    assert framer.position == len(V1) + len(FRAME_8)
    assert framer.buffered == 0
    assert framer.feed(V1) == []
    assert framer.buffered == 0


def test_a_header_is_judged_when_its_last_byte_is_there() -> None:
    framer = Framer()
    bad = base_header(15)
    assert framer.feed(bad[:15]) == []
    assert framer.error is None
    assert framer.feed(bad[15:]) == []
    assert framer.error is not None


def test_a_fault_inside_a_packet_does_not_concern_the_framer() -> None:
    damaged = bytearray(FRAME_5)
    damaged[18] = 0
    framer = Framer()
    assert framer.feed(bytes(damaged) + V1) == [bytes(damaged), V1]
    assert framer.error is None


def test_what_is_not_whole_stays() -> None:
    framer = Framer()
    assert framer.feed(V1 + FRAME_3[:100]) == [V1]
    assert framer.buffered == 100
    assert framer.position == len(V1)
    assert framer.feed(FRAME_3[100:] + ORDER_ACK + FINAL_ACK[:3]) == [FRAME_3, ORDER_ACK]
    assert framer.buffered == 3
    assert framer.feed(b"") == []
    assert framer.buffered == 3


def test_the_buffer_never_holds_more_than_one_packet() -> None:
    framer = Framer()
    packet = base_header(MAX_PACKET_SIZE, 0x0010) + bytes(MAX_PACKET_SIZE)
    stream = (packet + base_header(0))[: MAX_BUFFERED + 15]
    chunk = 60_000
    for start in range(0, len(stream), chunk):
        framer.feed(stream[start : start + chunk])
        assert framer.buffered < MAX_BUFFERED
    assert framer.position == MAX_BUFFERED
    assert framer.buffered == 15


def test_a_large_claim_takes_no_memory() -> None:
    claims = [base_header(MAX_PACKET_SIZE, 0x0010) for _ in range(100)]
    framers = [Framer() for _ in claims]
    tracemalloc.start()
    try:
        for framer, claim in zip(framers, claims, strict=True):
            assert framer.feed(claim) == []
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [framer.buffered for framer in framers] == [16] * 100
    assert peak < 100 * 1024  # a header each, and what an object costs: far from the 400 MiB that they claim


def test_a_claim_within_a_packet_takes_no_memory() -> None:
    """Sizes inside a packet are compared with its end before anything is read."""
    packet = bytearray(V1)
    pack_into("<I", packet, len(V1) - 4 - 4 - 56 + 52, 0x7FFFFFFF)  # ExtensionSize
    data = bytes(packet)
    tracemalloc.start()
    try:
        with pytest.raises(RemoteProtocolError, match="longer than the packet"):
            decode_packet(data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 64 * 1024


def test_a_long_list_of_queues_is_refused_before_it_is_read() -> None:
    """A packet of 4 MiB has room for a million empty names."""
    message = UserMessage.decode(V1)
    names = tuple(FormatNameElement(FormatType.DIRECT, direct_name="") for _ in range(MAX_ELEMENTS))
    longest = replace(message, multi_queue=MultiQueueFormatHeader(AddressHeader(names))).encode()
    assert UserMessage.decode(longest).encode() == longest

    one_more = MultiQueueFormatHeader(AddressHeader((*names, names[0])))
    with pytest.raises(LocalProtocolError, match="a list of 4097 queues"):
        replace(message, multi_queue=one_more).encode()
    count_at = len(V1) + 8
    assert int.from_bytes(longest[count_at : count_at + 4], "little") == MAX_ELEMENTS
    lying = longest[:count_at] + (MAX_ELEMENTS + 1).to_bytes(4, "little") + longest[count_at + 4 :]
    with pytest.raises(RemoteProtocolError, match="a list of 4097 queues") as caught:
        decode_packet(lying)
    assert caught.value.offset == count_at


@pytest.mark.parametrize("split", range(1, len(V1) + 40, 7))
def test_what_a_limit_held_up_comes_when_it_is_lifted(split: int) -> None:
    """However the bytes are cut. The session lifts the limit directly after the packet that opens it."""
    large = base_header(5000) + bytes(4984)
    stream = V1 + large + V1 + V1[:10]
    framer = Framer(4096)
    assert len(V1) < 4096
    found = framer.feed(stream[:split])
    if framer.error is None:
        found += framer.feed(stream[split:])
        rest = b""
    else:
        rest = stream[split:]
    found += framer.lift_limit()
    found += framer.feed(rest)
    assert framer.error is None
    assert found == [V1, large, V1]
    assert (framer.buffered, framer.position) == (10, len(stream) - 10)
