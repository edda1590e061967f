"""TCP streams are reassembled from late, repeated, overlapping and lost segments."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroad.describe.capture import files
from postroad.describe.capture.files import Streams
from postroad.describe.capture.items import (
    DamagedPacket,
    DecodedPacket,
    Item,
    Origin,
    Skipped,
)
from postroad.describe.capture.pcap import Endpoints, Segment
from tests.vectors import FRAME_7, FRAME_8, V1, V2

PACKETS = [FRAME_8, V1, V2, FRAME_7, FRAME_8, V1]
STREAM = b"".join(PACKETS)
THERE = Endpoints(bytes([10, 0, 0, 1]), 49759, bytes([10, 0, 0, 2]), 1801)
BACK = Endpoints(bytes([10, 0, 0, 2]), 1801, bytes([10, 0, 0, 1]), 49759)
FIRST = 1000  # the sequence number of the stream's first byte

Part = tuple[int, int]  # from, to


def parts(size: int) -> list[Part]:
    return [(start, min(start + size, len(STREAM))) for start in range(0, len(STREAM), size)]


def played(
    segments: list[Part], *, first: int = FIRST, syn: bool = True, key: Endpoints = THERE, data: bytes = STREAM
) -> list[Item]:
    """The items of a stream whose parts were captured in this order, as frames 1, 2, ..."""
    followed = Streams()
    items: list[Item] = []
    if syn:
        items += followed.feed(Segment(key, (first - 1) % 2**32, True, b""), Origin(frame=0))
    for number, (start, end) in enumerate(segments, 1):
        part = Segment(key, (first + start) % 2**32, False, data[start:end])
        items += followed.feed(part, Origin(frame=number, time_ns=number))
    items += followed.finish()
    assert followed.held == 0
    return items


def whole(items: list[Item]) -> list[bytes]:
    return [item.data for item in items if isinstance(item, DecodedPacket)]


def kinds(items: list[Item]) -> list[str]:
    return [type(item).__name__ for item in items]


def test_segments_in_order() -> None:
    items = played(parts(700))
    assert whole(items) == PACKETS
    assert len(items) == len(PACKETS)


def test_a_packet_is_of_the_frame_that_it_starts_in() -> None:
    items = played(parts(100))
    origins = [item.origin for item in items]
    assert [(origin.offset, origin.frame) for origin in origins] == [
        (0, 1),
        (36, 1),
        (188, 2),
        (360, 4),
        (2584, 26),
        (2620, 27),
    ]
    assert {(origin.source, origin.destination) for origin in origins} == {("10.0.0.1:49759", "10.0.0.2:1801")}
    assert [origin.time_ns for origin in origins] == [origin.frame for origin in origins]


@pytest.mark.parametrize("seed", range(20))
def test_segments_in_any_order(seed: int) -> None:
    shuffled = parts(97)
    random.Random(seed).shuffle(shuffled)
    assert whole(played(shuffled)) == PACKETS


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("first", [0, 2**32 - 1, 2**32 - 500, 2**31 - 100])
def test_sequence_numbers_wrap(seed: int, first: int) -> None:
    shuffled = parts(97)
    random.Random(seed).shuffle(shuffled)
    assert whole(played(shuffled, first=first)) == PACKETS


def test_segments_that_come_twice() -> None:
    items = played([part for part in parts(300) for _ in range(3)])
    assert whole(items) == PACKETS
    assert len(items) == len(PACKETS)


@given(st.lists(st.tuples(st.integers(0, len(STREAM)), st.integers(1, 900)), max_size=30), st.randoms())
def test_segments_that_overlap_in_any_way(extra: list[tuple[int, int]], chance: random.Random) -> None:
    pieces = parts(333) + [(start, min(start + size, len(STREAM))) for start, size in extra]
    chance.shuffle(pieces)
    items = played(pieces)
    assert whole(items) == PACKETS
    assert len(items) == len(PACKETS)


def test_a_keep_alive_says_nothing() -> None:
    followed = Streams()
    followed.feed(Segment(THERE, FIRST - 1, True, b""), Origin())
    followed.feed(Segment(THERE, FIRST, False, V1[:50]), Origin())
    assert followed.feed(Segment(THERE, FIRST + 49, False, b"\0"), Origin()) == []
    assert whole(followed.feed(Segment(THERE, FIRST + 50, False, V1[50:]), Origin())) == [V1]


def test_the_request_for_a_connection_may_be_repeated_or_late() -> None:
    followed = Streams()
    syn = Segment(THERE, FIRST - 1, True, b"")
    items = followed.feed(syn, Origin()) + followed.feed(syn, Origin())
    items += followed.feed(Segment(THERE, FIRST, False, V1[:50]), Origin()) + followed.feed(syn, Origin())
    items += followed.feed(Segment(THERE, FIRST + 50, False, V1[50:]), Origin())
    assert whole(items) == [V1]
    assert len(items) == 1


def test_data_in_the_request_for_a_connection() -> None:
    followed = Streams()
    items = followed.feed(Segment(THERE, FIRST - 1, True, V1[:50]), Origin())
    items += followed.feed(Segment(THERE, FIRST + 50, False, V1[50:]), Origin())
    assert whole(items) == [V1]


def test_a_capture_that_starts_at_a_packet() -> None:
    items = played(parts(700), syn=False)
    assert whole(items) == PACKETS
    assert len(items) == len(PACKETS)


def test_a_capture_that_starts_inside_a_packet() -> None:
    inside = len(FRAME_8) + 40
    items = played([(inside, inside + 500), (inside + 500, len(STREAM))], syn=False)
    assert isinstance(items[0], Skipped)
    assert (items[0].size, items[0].reason) == (len(V1) - 40, "the capture begins inside this stream")
    assert whole(items) == PACKETS[2:]


def test_a_lost_segment_between_two_packets() -> None:
    first, second = len(FRAME_8), len(FRAME_8) + len(V1)
    items = played([(0, first), (second, len(STREAM))])
    assert kinds(items[:3]) == ["DecodedPacket", "Skipped", "DecodedPacket"]
    assert isinstance(items[1], Skipped)
    assert (items[1].size, items[1].origin.offset) == (len(V1), first)
    assert items[1].reason == f"the capture lacks {len(V1)} bytes of the stream here"
    assert whole(items) == [PACKETS[0], *PACKETS[2:]]


def test_a_lost_segment_inside_a_packet() -> None:
    inside = len(FRAME_8) + len(V1) + len(V2) + 1000
    items = played([(0, inside), (inside + 500, len(STREAM))])
    assert whole(items) == [FRAME_8, V1, V2, FRAME_8, V1]
    assert kinds(items[3:6]) == ["DamagedPacket", "Skipped", "Skipped"]
    damaged, gap, rest = items[3:6]
    assert isinstance(damaged, DamagedPacket)
    assert damaged.fault.fault == "the packet must have 2224 bytes, got 1000"
    assert isinstance(gap, Skipped)
    assert gap.size == 500
    assert isinstance(rest, Skipped)
    assert rest.size == 724


def test_several_lost_segments() -> None:
    pieces = parts(100)
    items = played([part for number, part in enumerate(pieces) if number not in (10, 15, 16)])
    gaps = [item.size for item in items if isinstance(item, Skipped) and item.reason.startswith("the capture lacks")]
    assert gaps == [100, 200]
    assert whole(items) == [FRAME_8, V1, V2, FRAME_8, V1]


def test_a_gap_is_given_up_when_too_much_waits_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_WAITING", 1000)
    followed = Streams()
    followed.feed(Segment(THERE, FIRST - 1, True, b""), Origin())
    items: list[Item] = []
    for start, end in parts(100)[1:]:
        items += followed.feed(Segment(THERE, FIRST + start, False, STREAM[start:end]), Origin())
        assert followed.held <= 1100 + len(FRAME_7)
    assert isinstance(items[0], Skipped)
    assert items[0].size == 100
    assert whole(items) == PACKETS[2:]


def test_so_it_is_when_too_many_segments_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_WAITING_SEGMENTS", 5)
    followed = Streams()
    followed.feed(Segment(THERE, FIRST - 1, True, b""), Origin())
    items = [
        item
        for start, end in parts(100)[1:7]
        for item in followed.feed(Segment(THERE, FIRST + start, False, STREAM[start:end]), Origin())
    ]
    assert isinstance(items[0], Skipped)


def test_two_directions_do_not_mix() -> None:
    followed = Streams()
    items = followed.feed(Segment(THERE, 5, False, V1[:70]), Origin())
    items += followed.feed(Segment(BACK, 70, False, FRAME_8[:20]), Origin())
    items += followed.feed(Segment(THERE, 75, False, V1[70:]), Origin())
    items += followed.feed(Segment(BACK, 90, False, FRAME_8[20:]), Origin())
    assert whole(items) == [V1, FRAME_8]
    assert [item.origin.source for item in items] == ["10.0.0.1:49759", "10.0.0.2:1801"]
    assert followed.finish() == []


def test_a_new_connection_on_the_same_ports() -> None:
    followed = Streams()
    items = followed.feed(Segment(THERE, FIRST, False, V1 + V2[:50]), Origin())
    items += followed.feed(Segment(THERE, 77, True, b""), Origin())
    items += followed.feed(Segment(THERE, 78, False, FRAME_8), Origin())
    assert kinds(items) == ["DecodedPacket", "DamagedPacket", "DecodedPacket"]
    assert [item.origin.offset for item in items] == [0, 152, 0]


def test_a_new_connection_whose_start_was_not_captured() -> None:
    followed = Streams()
    items = followed.feed(Segment(THERE, 2**31 + 5, False, V1), Origin())
    items += followed.feed(Segment(THERE, 1000, False, V2), Origin())
    assert whole(items) == [V1, V2]


def test_the_direction_silent_for_longest_is_closed_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_DIRECTIONS", 2)
    followed = Streams()
    ends = [Endpoints(bytes([10, 0, 0, number]), 1, bytes(4), 1801) for number in range(3)]
    assert followed.feed(Segment(ends[0], 0, False, V1[:50]), Origin()) == []
    assert followed.feed(Segment(ends[1], 0, False, V1[:50]), Origin()) == []
    followed.feed(Segment(ends[0], 50, False, V1[50:60]), Origin())
    (closed,) = followed.feed(Segment(ends[2], 0, True, b""), Origin())
    assert isinstance(closed, DamagedPacket)
    assert closed.origin.source == "10.0.0.1:1"
    assert followed.held == 60


def test_so_it_is_when_they_hold_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_HELD", 1000)
    followed = Streams()
    for number in range(100):
        ends = Endpoints(bytes([10, 0, 0, number]), 1, bytes(4), 1801)
        followed.feed(Segment(ends, 0, False, FRAME_7[:300]), Origin())
        assert followed.held <= 1000
    assert len(followed.finish()) == 3
