"""Packets cut from a stream, and the way back to them after a fault."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroad.describe.capture import cutter as cutter_module
from postroad.describe.capture.cutter import Cutter
from postroad.describe.capture.items import (
    DamagedPacket,
    DecodedPacket,
    Item,
    Origin,
    Skipped,
)
from postroad.wire import MessageView, Ping, SessionAck
from postroad.wire.constants import MAX_PACKET_SIZE
from tests.frames import FRAME_1, FRAME_3, FRAME_5, ORDER_ACK
from tests.packets import patched, u32
from tests.vectors import FRAME_7, FRAME_8, V1, V2

SESSION = FRAME_3 + FRAME_5 + FRAME_7 + FRAME_8 + V1 + V2 + ORDER_ACK
PACKETS = [FRAME_3, FRAME_5, FRAME_7, FRAME_8, V1, V2, ORDER_ACK]
# LabelLength of V1 above the limit: a fault inside a packet whose size is right.
BAD_LABEL = patched(V1, 89, b"\xfb")


def cut(data: bytes, step: int = 0, *, pings: bool = False) -> list[Item]:
    cutter = Cutter(pings=pings)
    items = []
    for start in range(0, len(data), step or len(data) or 1):
        items += cutter.feed(data[start : start + (step or len(data))], Origin(line=start))
    return items + cutter.finish()


def kinds(items: list[Item]) -> list[tuple[str, int]]:
    """What was found, and at which offset."""
    return [(type(item).__name__, item.origin.offset) for item in items]


def whole(items: list[Item]) -> list[bytes]:
    return [item.data for item in items if isinstance(item, DecodedPacket)]


def test_packets_one_behind_the_other() -> None:
    items = cut(SESSION)
    assert whole(items) == PACKETS
    assert [item.origin.offset for item in items] == [sum(map(len, PACKETS[:count])) for count in range(len(PACKETS))]


@given(st.integers(1, 700))
def test_pieces_of_any_size_give_the_same(step: int) -> None:
    damaged = FRAME_8 + BAD_LABEL + V2 + b"noise" + V1 + FRAME_7[:500] + FRAME_8
    assert kinds(cut(damaged, step)) == kinds(cut(damaged))
    assert whole(cut(damaged, step)) == [FRAME_8, V2, V1, FRAME_8]


def test_a_packet_is_given_out_with_its_last_byte() -> None:
    cutter = Cutter()
    assert cutter.feed(V1[:-1], Origin()) == []
    (item,) = cutter.feed(V1[-1:], Origin())
    assert isinstance(item, DecodedPacket)
    assert cutter.buffered == 0


def test_the_origin_is_where_a_packet_starts() -> None:
    cutter = Cutter()
    cutter.feed(FRAME_8 + V1[:20], Origin(line=1))
    items = cutter.feed(V1[20:] + V2[:2], Origin(line=2)) + cutter.feed(V2[2:], Origin(line=3))
    assert [(item.origin.line, item.origin.offset) for item in items] == [(1, 36), (2, 188)]


def test_a_fault_inside_a_packet_leaves_its_neighbours_alone() -> None:
    items = cut(FRAME_8 + BAD_LABEL + V2)
    assert kinds(items) == [("DecodedPacket", 0), ("DamagedPacket", 36), ("DecodedPacket", 188)]
    assert isinstance(items[1], DamagedPacket)
    assert (items[1].data, items[1].fault.offset) == (BAD_LABEL, 89)
    assert items[1].fault.fault == "LabelLength must be at most 250, got 251"


def test_a_size_that_is_too_large_does_not_swallow_what_follows() -> None:
    liar = patched(V1, 8, u32(len(V1) + 40))
    items = cut(liar + V2 + FRAME_8)
    assert kinds(items) == [("DamagedPacket", 0), ("DecodedPacket", 152), ("DecodedPacket", 324)]
    assert isinstance(items[0], DamagedPacket)
    assert items[0].data == liar


def test_a_size_is_believed_once_too_much_was_looked_at_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    liar = patched(V1, 8, u32(len(V1) + 40))
    monkeypatch.setattr(cutter_module, "SECOND_LOOK", len(liar) + 39)
    assert kinds(cut(liar + V2)) == [("DamagedPacket", 0), ("Skipped", 192)]
    monkeypatch.setattr(cutter_module, "SECOND_LOOK", len(liar) + 40)
    assert kinds(cut(liar + V2)) == [("DamagedPacket", 0), ("DecodedPacket", 152)]


def test_a_fault_keeps_no_copy_of_the_packet() -> None:
    (item,) = cut(BAD_LABEL)
    assert isinstance(item, DamagedPacket)
    assert item.fault.__traceback__ is None


def test_a_size_beyond_the_end_does_not_either() -> None:
    liar = patched(V1, 8, u32(MAX_PACKET_SIZE))
    items = cut(liar + V2 + FRAME_8)
    assert kinds(items) == [("DamagedPacket", 0), ("DecodedPacket", 152), ("DecodedPacket", 324)]
    assert isinstance(items[0], DamagedPacket)
    assert items[0].fault.fault == f"the packet must have {MAX_PACKET_SIZE} bytes, but another one starts after 152"


def test_a_size_that_is_too_small() -> None:
    liar = patched(V1, 8, u32(120))
    items = cut(liar + V2)
    assert kinds(items) == [("DamagedPacket", 0), ("Skipped", 120), ("DecodedPacket", 152)]


def test_a_bad_signature_is_skipped_with_its_packet() -> None:
    items = cut(FRAME_8 + patched(V1, 4, b"XXXX") + V2)
    assert kinds(items) == [("DecodedPacket", 0), ("Skipped", 36), ("DecodedPacket", 188)]
    assert isinstance(items[1], Skipped)
    assert items[1].size == len(V1)
    assert "must be 0x524f494c, got 0x58585858" in items[1].reason


def test_a_bad_version_is_skipped_too() -> None:
    assert kinds(cut(b"\x11" + V1[1:] + V2)) == [("Skipped", 0), ("DecodedPacket", 152)]


def test_a_signature_that_is_only_data_is_no_header() -> None:
    # SentTime of frame 7 spells "LIOR", and the bytes after it could be a size.
    assert FRAME_7[52:56] == b"LIOR"
    items = cut(b"\0" + FRAME_7[1:] + FRAME_8)
    assert kinds(items) == [("Skipped", 0), ("DecodedPacket", len(FRAME_7))]


def test_bytes_before_and_after() -> None:
    items = cut(b"\x01\x02" + V1 + b"\x03" * 15)
    assert kinds(items) == [("Skipped", 0), ("DecodedPacket", 2), ("Skipped", 154)]
    assert [item.size for item in items if isinstance(item, Skipped)] == [2, 15]


def test_a_packet_cut_short_at_the_end() -> None:
    (_, item) = cut(FRAME_8 + FRAME_7[:1000])
    assert isinstance(item, DamagedPacket)
    assert item.data == FRAME_7[:1000]
    assert (item.fault.fault, item.fault.offset) == ("the packet must have 2224 bytes, got 1000", 1000)


def test_bytes_that_are_lost() -> None:
    cutter = Cutter()
    items = cutter.feed(FRAME_8 + FRAME_7[:100], Origin())
    items += cutter.lose(1400, "1400 bytes are missing")
    items += cutter.feed(FRAME_7[1500:] + V1, Origin()) + cutter.finish()
    assert kinds(items) == [
        ("DecodedPacket", 0),
        ("DamagedPacket", 36),
        ("Skipped", 136),
        ("Skipped", 1536),
        ("DecodedPacket", 36 + 2224),
    ]
    assert [item.size for item in items if isinstance(item, Skipped)] == [1400, 724]


def test_a_loss_between_two_packets_hurts_neither() -> None:
    cutter = Cutter()
    items = cutter.feed(FRAME_8, Origin()) + cutter.lose(len(V1), "gone") + cutter.feed(V2, Origin())
    assert kinds(items) == [("DecodedPacket", 0), ("Skipped", 36), ("DecodedPacket", 188)]


def test_bytes_before_the_first_packet_can_have_a_reason() -> None:
    cutter = Cutter(opening="the capture begins inside this stream")
    items = cutter.feed(V1[50:] + V2, Origin())
    assert isinstance(items[0], Skipped)
    assert (items[0].reason, items[0].size) == ("the capture begins inside this stream", 102)
    assert whole(items) == [V2]


def test_pings_stand_among_packets_only_where_they_may() -> None:
    items = cut(FRAME_1 + V1 + FRAME_1, pings=True)
    assert [type(item.packet) for item in items if isinstance(item, DecodedPacket)] == [Ping, MessageView, Ping]
    assert kinds(cut(FRAME_1 + V1)) == [("Skipped", 0), ("DecodedPacket", 24)]
    assert kinds(cut(V1 + FRAME_1[:20], pings=True)) == [("DecodedPacket", 0), ("Skipped", 152)]


def test_noise_is_not_kept() -> None:
    cutter = Cutter()
    for _ in range(100):
        assert cutter.feed(b"\x10LIO" * 10_000, Origin()) == []
        assert cutter.buffered < 16
    (noise, packet) = cutter.feed(FRAME_8, Origin())
    assert isinstance(noise, Skipped)
    assert noise.size == 4_000_000
    assert isinstance(packet, DecodedPacket)
    assert isinstance(packet.packet, SessionAck)


@given(st.binary(max_size=400), st.integers(1, 50))
def test_every_byte_is_accounted_for(noise: bytes, step: int) -> None:
    items = cut(V1 + noise + V2, step)
    assert sum(item.size if isinstance(item, Skipped) else len(item.data) for item in items) == 324 + len(noise)


@given(st.lists(st.sampled_from([V1, V2, FRAME_8, b"\x10\0\0\0LIOR\x20\0\0\0", b"LIOR", b"\x10"]), max_size=12))
def test_headers_within_headers_lose_no_byte(pieces: list[bytes]) -> None:
    data = b"".join(pieces)
    items = cut(data)
    position = 0
    for item in items:
        assert item.origin.offset == position
        position += item.size if isinstance(item, Skipped) else len(item.data)
    assert position == len(data)
