"""Every single bit of a stored row is flipped in the file itself. The damage is found, or does no harm."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from struct import iter_unpack

import pytest

from postroad.errors import StorageError
from postroad.store import PRIORITY_SHIFT, Batch, Key, LayeredStore, Record
from postroad.store.database import DATABASE_NAME, PAGE_SIZE
from tests.torture.vfs import fast_directory

LONG = bool(os.environ.get("POSTROAD_LONG"))
QUEUES = (1, 2, 3)
SCHEMA_HEADER = 100  # the bytes of the file's own header, on its first page
LEAF_KINDS = (0x0D, 0x0A)  # a page of table rows, a page of index rows


@dataclass(slots=True)
class Reading:
    """What a store gives, read in every way there is."""

    queues: dict[int, list[Record]] = field(default_factory=dict)
    backwards: dict[int, list[Record]] = field(default_factory=dict)
    by_key: dict[Key, Record] = field(default_factory=dict)
    expired: list[Record] = field(default_factory=list)
    state: dict[str, bytes] = field(default_factory=dict)
    found: bool = False  # that something is damaged


def read(directory: Path, keys: list[Key]) -> Reading:
    """Reads everything; a StorageError counts as damage found, and what it kept from being read is missing."""
    reading = Reading()
    store = LayeredStore(directory)
    try:
        for queue in QUEUES:
            after = -1
            reading.queues[queue] = []
            while records := store.scan(queue, after, 2):
                reading.queues[queue] += records
                after = records[-1].lookup_id
            before = 1 << 62
            reading.backwards[queue] = []
            while records := store.scan_back(queue, before, 2):
                reading.backwards[queue] += records
                before = records[-1].lookup_id
            check_columns(store, queue, reading.queues[queue])
        reading.expired = store.expired(1 << 40)
        reading.state = dict(store.state())
        reading.found = bool(store.damaged)
        for key in keys:
            try:
                record = store.get(*key)
            except StorageError:
                reading.found = True
            else:
                if record is not None:
                    reading.by_key[key] = record
    finally:
        store.close()
    return reading


def check_columns(store: LayeredStore, queue: int, sound: list[Record]) -> None:
    """Read as columns, a queue is what it is record by record; or there is something to look at more closely."""
    columns = store.columns(queue, -1, (1 << 62) - 1, 100, 1 << 20)
    if columns is not None:
        assert [row[:6] for row in iter_unpack(">8q", columns.numbers)] == [
            (each.lookup_id, len(each.packet), each.arrived_ms, each.expires_s, each.aborts, each.reason)
            for each in sound
        ]
        assert columns.packets == b"".join(each.packet for each in sound)
    lookup_ids = store.lookup_ids(queue, -1, (1 << 62) - 1, 100)
    if lookup_ids is not None:
        assert {each.lookup_id for each in sound} <= set(lookup_ids)


@dataclass(frozen=True, slots=True)
class Sample:
    """A closed store with rows around the one that is hit, all in one page."""

    directory: Path
    keys: list[Key]
    sound: Reading
    content: bytes

    def flipped(self, bits: Iterable[int]) -> Iterator[tuple[int, Reading | None]]:
        """Each bit flipped in turn, and what is read then; None where the store raised a StorageError."""
        file = self.directory / DATABASE_NAME
        for bit in bits:
            content = bytearray(self.content)
            content[bit // 8] ^= 1 << bit % 8
            file.write_bytes(content)
            try:
                yield bit, read(self.directory, self.keys)
            except StorageError:
                yield bit, None


HIT = Key(2, 3 << PRIORITY_SHIFT | 40)


def make_sample(directory: Path, packet: bytes, expires_s: int) -> Sample:
    records = []
    for queue in QUEUES:
        for number, lookup_id in enumerate(
            (9, 3 << PRIORITY_SHIFT | 40, 3 << PRIORITY_SHIFT | 41, 7 << PRIORITY_SHIFT | 5)
        ):
            is_hit = (queue, lookup_id) == HIT
            body = packet if is_hit else b"neighbour %d %d" % (queue, number)
            records.append(
                Record(queue, lookup_id, 1_700_000_000_000 + number, expires_s if is_hit else 900, 1, body, 9)
            )
    store = LayeredStore(directory)
    state: dict[str, bytes | None] = {"a": b"first", "hit": b"the state that is hit", "z": b"last"}
    store.commit([Batch({Key(record.queue, record.lookup_id): record for record in records}, state=state)])
    store.close()
    keys = [Key(record.queue, record.lookup_id) for record in records]
    sound = read(directory, keys)
    assert sound.queues == {queue: [record for record in records if record.queue == queue] for queue in QUEUES}
    assert not sound.found
    return Sample(directory, keys, sound, (directory / DATABASE_NAME).read_bytes())


@pytest.fixture
def directory() -> Iterator[Path]:
    with fast_directory() as directory:
        yield directory


def cell_bits(content: bytes, inside: bytes) -> range:
    """The bits of the b-tree cell that holds these bytes: its length, its key, its header, its columns."""
    assert content.count(inside) == 1
    place = content.index(inside)
    page = place // PAGE_SIZE * PAGE_SIZE
    header = page + (SCHEMA_HEADER if page == 0 else 0)
    assert content[header] in LEAF_KINDS
    count = int.from_bytes(content[header + 3 : header + 5], "big")
    pointers = [int.from_bytes(content[header + 8 + 2 * n : header + 10 + 2 * n], "big") for n in range(count)]
    starts = sorted(page + pointer for pointer in pointers)
    start = max(start for start in starts if start <= place)
    end = min((other for other in starts if other > start), default=page + PAGE_SIZE)
    return range(start * 8, end * 8)


def check(sample: Sample, bits: range) -> tuple[int, int]:
    """Nothing wrong is ever given out, and nothing is missing in silence. Returns how often the damage was found, and
    how often with an error for the whole page."""
    found = page_errors = 0
    sound = sample.sound
    for bit, reading in sample.flipped(bits):
        where = f"bit {bit}, {bit - bits.start} of the row"
        if reading is None:
            page_errors += 1
            continue
        found += reading.found
        for queue in QUEUES:
            rest = [record for record in sound.queues[queue] if (record.queue, record.lookup_id) != HIT]
            allowed = [sound.queues[queue], rest] if reading.found else [sound.queues[queue]]
            assert reading.queues[queue] in allowed, where
            assert reading.backwards[queue][::-1] in allowed, where
        assert all(sound.by_key[key] == record for key, record in reading.by_key.items()), where
        assert all(record in sound.expired for record in reading.expired), where
        assert all(sound.state[name] == value for name, value in reading.state.items()), where
        if not reading.found:
            assert reading == sound, where
    return found, page_errors


def test_every_bit_of_a_message_row(directory: Path) -> None:
    sample = make_sample(directory, b"the packet that is hit" * (40 if LONG else 1), 1000)
    bits = cell_bits(sample.content, b"the packet that is hit" * (40 if LONG else 1))
    assert len(bits) > 300
    found, page_errors = check(sample, bits)
    assert page_errors == 0
    assert found > len(bits) * 0.99  # the rest is harmless: the same columns, written another way


def test_every_bit_of_a_state_row(directory: Path) -> None:
    sample = make_sample(directory, b"", 0)
    bits = cell_bits(sample.content, b"the state that is hit")
    found, page_errors = check(sample, bits)
    assert page_errors == 0
    assert found > len(bits) * 0.99


def test_bits_of_a_message_that_spans_pages(directory: Path) -> None:
    packet = b"".join(b"%08d" % number for number in range(3000))
    sample = make_sample(directory, packet, 0)
    step = 8 if LONG else 997
    for piece in (packet[:40], packet[12_000:12_040]):  # in the b-tree page, and in a page of the overflow chain
        places = [match.start() * 8 for match in re.finditer(re.escape(piece), sample.content)]
        alive = [place for place in places if check(sample, range(place, place + 1)) == (1, 0)]
        assert len(alive) == 1  # SQLite leaves stale copies behind where it has moved a row
        bits = range(alive[0], alive[0] + 2000 * 8, step)
        assert check(sample, bits) == (len(bits), 0)


def used_bytes(content: bytes) -> list[int]:
    """Where there is something, and the zeros near it; the rest of a page is unused."""
    near = 8
    return [place for place in range(len(content)) if any(content[max(place - near, 0) : place + near])]


@pytest.mark.skipif(not LONG, reason="takes a minute; POSTROAD_LONG=1 runs it")
@pytest.mark.timeout(0)
def test_every_bit_of_the_file(directory: Path) -> None:
    """Beyond rows: headers, pointers, the schema, the index. Nothing wrong is ever given out. SQLite keeps no checksum
    of a page, and so one thing can hide records: a smaller number in a page's count of its rows."""
    sample = make_sample(directory, b"the packet that is hit", 1000)
    bits = [place * 8 + bit for place in used_bytes(sample.content) for bit in range(8)]
    silent = []
    for bit, reading in sample.flipped(bits):
        if reading is None:
            continue
        for queue in QUEUES:
            assert all(record in sample.sound.queues[queue] for record in reading.queues[queue]), bit
        if not reading.found and (reading.queues, reading.state) != (sample.sound.queues, sample.sound.state):
            silent.append(bit)
    print(f"{len(silent)} of {len(bits)} bits hide something in silence")
    counts = {page + byte for page in range(0, len(sample.content), PAGE_SIZE) for byte in (3, 4)}
    assert {bit // 8 for bit in silent} <= counts
