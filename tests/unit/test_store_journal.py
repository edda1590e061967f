"""The format of the journal: what was written comes back, and what is damaged, torn or old is never taken for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from postroad.store import Batch, Key, Record
from postroad.store.frames import Frame, Segment, decode, encode

GENERATION = 0x1234_5678_9ABC
BEFORE = 4711  # where the generation before it ended


def record(number: int, packet: bytes, queue: int = 1) -> Record:
    return Record(queue, 3 << 56 | number, 1_700_000_000_000 + number, number % 3, number, packet, 0x8001)


def puts(*records: Record) -> dict[tuple[int, int], Record]:
    return {Key(each.queue, each.lookup_id): each for each in records}


BATCHES = [
    Batch(puts(record(1, b"first"), record(2, b"")), state={"count/1": b"\x00\x01", "naïve": b""}),
    Batch(puts(record(3, b"a packet of some length"), record(4, b"another", 65535)), {Key(1, 3 << 56 | 1)}),
    Batch(deletes={Key(1, 3 << 56 | 2)}, state={"count/1": None}),
    Batch(puts(record(5, b"the last")), state={"count/1": b"\x00\x02"}),
]


def written(batches: list[Batch], generation: int = GENERATION) -> bytes:
    content = b""
    for batch in batches:
        content += encode(batch.deletes, batch.puts, batch.state).frame(generation, BEFORE, len(content))
    return content


def is_live(generation: int) -> bool:
    return generation == GENERATION


def batches_of(segment: Segment) -> list[Batch]:
    return [Batch(frame.puts, set(frame.deletes), frame.state) for frame in segment.frames]


def plain(batches: list[Batch]) -> list[object]:
    return [(batch.puts, batch.deletes, batch.state) for batch in batches]


SOUND = written(BATCHES)
FRAMES = decode(SOUND, is_live).frames


def test_what_was_written_comes_back() -> None:
    segment = decode(SOUND + bytes(1000), is_live)
    assert plain(batches_of(segment)) == plain(BATCHES)
    assert (segment.generation, segment.before) == (GENERATION, BEFORE)
    assert (segment.end, segment.gaps) == (len(SOUND), [])
    assert decode(b"", is_live).end == decode(bytes(5000), is_live).end == 0


@pytest.mark.parametrize("key", [Key(-1, 0), Key(65536, 0), Key(1, -1), Key(1, 1 << 44), Key(1, 8 << 56)])
def test_a_key_out_of_range_is_refused(key: Key) -> None:
    with pytest.raises(ValueError, match="the key is out of range"):
        encode({key}, {}, {})
    with pytest.raises(ValueError, match="the key is out of range"):
        encode((), {key: Record(*key, 0, 0, 0, b"")}, {})


def test_every_end_that_a_power_cut_can_leave_keeps_the_frames_before_it() -> None:
    for length in range(len(SOUND)):
        whole = [frame for frame in FRAMES if frame.end <= length]
        for behind in (b"", bytes(500)):
            segment = decode(SOUND[:length] + behind, is_live)
            segment.drop_torn()
            assert segment.frames == whole, length
            assert segment.gaps == [], length


def flips() -> Iterator[tuple[int, Segment]]:
    for bit in range(len(SOUND) * 8):
        content = bytearray(SOUND)
        content[bit // 8] ^= 1 << bit % 8
        yield bit, decode(bytes(content), is_live)


def test_every_bit_that_flips_is_found_and_costs_no_more_than_its_commit() -> None:
    for bit, segment in flips():
        hit = next(frame for frame in FRAMES if frame.start * 8 <= bit < frame.end * 8)
        assert [frame for frame in segment.frames if frame.start != hit.start] == [
            frame for frame in FRAMES if frame is not hit
        ], bit
        found = [frame for frame in segment.frames if frame.start == hit.start]
        if hit is FRAMES[-1]:
            segment.drop_torn()  # as if the power had failed while it was written
            assert (segment.frames, segment.gaps) == (FRAMES[:-1], []), bit
        elif found:
            check_packet_is_named(hit, found[0])
            assert segment.gaps == []
        else:
            assert segment.gaps == [(hit.start, hit.end)], bit


def check_packet_is_named(hit: Frame, found: Frame) -> None:
    """One packet is damaged: its key is known, and all else of the commit is as it was."""
    (key,) = found.damaged
    assert found.puts == {other: record for other, record in hit.puts.items() if other != key}
    assert (found.deletes, found.state) == (hit.deletes, hit.state)


def test_frames_of_an_older_use_of_the_segment_are_not_read() -> None:
    old = written(BATCHES, GENERATION - 2)
    new = written(BATCHES[:1])
    for content in (new + old[len(new) :], new[:-1] + old[len(new) - 1 :], old):
        segment = decode(content, is_live)
        segment.drop_torn()
        whole = content.startswith(new)
        assert plain(batches_of(segment)) == plain(BATCHES[:1] if whole else [])
        assert segment.gaps == []


@pytest.mark.parametrize("generation", [GENERATION - 2, GENERATION + 1, 1])
def test_a_message_cannot_pass_for_a_frame(generation: int) -> None:
    """A search behind damage looks into packets too. The sender of a message knows neither generation nor offset."""
    forged = written(BATCHES[:1], generation)
    content = bytearray(written([Batch(puts(record(1, forged))), BATCHES[3]]))
    content[20] ^= 1
    segment = decode(bytes(content), is_live)
    assert plain(batches_of(segment)) == plain([BATCHES[3]])
    copied = bytearray(written([Batch(puts(record(1, written(BATCHES[:1])))), BATCHES[3]]))  # the offset is wrong
    copied[20] ^= 1
    assert plain(batches_of(decode(bytes(copied), is_live))) == plain([BATCHES[3]])
