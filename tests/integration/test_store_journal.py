"""The journal of a store: what it spares the database, what readers see of it, and what happens when it is damaged."""

from __future__ import annotations

import shutil
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from struct import iter_unpack

import apsw
import pytest

from postroad.errors import CorruptRecord, StorageError
from postroad.store import Batch, Key, LayeredStore, Record
from postroad.store.database import DATABASE_NAME
from postroad.store.frames import Frame, decode
from postroad.store.journal import CHUNKS, NAMES, SEGMENT_BYTES
from postroad.store.layered import BULK, SHORT_BYTES
from tests.torture.vfs import Fault, TortureFiles, fast_directory, torture_vfs

SMALL = 16_384  # of a segment
QUEUE = 1


def record(number: int, packet: bytes = b"packet") -> Record:
    return Record(QUEUE, number, 1_700_000_000_000, 0, 0, packet)


def put(*records: Record) -> Batch:
    return Batch({Key(each.queue, each.lookup_id): each for each in records})


def numbers(store: LayeredStore) -> list[int]:
    return [each.lookup_id for each in store.scan(QUEUE, limit=10_000)]


@pytest.fixture
def directory() -> Iterator[Path]:
    with fast_directory() as name:
        yield name / "data"


def killed(directory: Path) -> Path:
    """What a killed process leaves: a copy of the files."""
    left = directory.with_name(f"{directory.name} left")
    shutil.copytree(directory, left)
    return left


def frames(file: Path) -> list[Frame]:
    return decode(file.read_bytes(), lambda generation: True).frames


def flip(file: Path, place: int) -> None:
    content = bytearray(file.read_bytes())
    content[place] ^= 1
    file.write_bytes(content)


# What it is for


def test_a_message_that_soon_leaves_never_reaches_the_database(directory: Path) -> None:
    store = LayeredStore(directory, segment_bytes=SMALL)
    store.commit([put(record(0))])
    while store.tidy():
        pass
    for number in range(1, 1000):
        batch = put(record(number, bytes(1000)))
        batch.deletes = {Key(QUEUE, max(number - 3, 1))}
        store.commit([batch])
    assert numbers(store) == [0, 997, 998, 999]
    with sqlite3.connect(killed(directory) / DATABASE_NAME) as database:
        assert database.execute("SELECT count(*) FROM message").fetchone() == (1,)
    database.close()
    store.close()


def test_what_was_just_stored_is_read_from_memory(directory: Path) -> None:
    store = LayeredStore(directory)
    batch = put(record(1), record(2))
    store.commit([batch])
    assert all(found is kept for found, kept in zip(store.scan(QUEUE), batch.puts.values(), strict=True))
    store.close()


def test_the_journal_does_not_grow(directory: Path) -> None:
    store = LayeredStore(directory, segment_bytes=SMALL)
    sizes = []
    for number in range(200):
        store.commit([put(record(number, bytes(5 * SMALL if number == 20 else 1000)))])
        sizes.append(max(file.stat().st_size for file in directory.glob("journal-*")))
    assert max(sizes) > 5 * SMALL  # one commit is never divided
    assert sizes[-1] == SMALL
    assert {file.name for file in directory.glob("journal-*")} == set(NAMES)
    assert numbers(store) == list(range(200))
    store.close()
    assert list(directory.glob("journal-*")) == []


def test_readers_see_whole_batches_while_generations_move(directory: Path) -> None:
    """Every commit takes the first message and adds one: every reader finds ten in a row."""
    store = LayeredStore(directory, segment_bytes=2000)
    store.commit([put(*(record(number) for number in range(10)))])
    stopping = threading.Event()
    seen: list[list[int]] = []
    faults: list[object] = []

    def look(read: str) -> None:
        while not stopping.is_set() and not faults:
            if read == "scan":
                found = numbers(store)
            elif read == "columns":
                columns = store.columns(QUEUE, -1, 1 << 60, 1000, 1 << 20)
                assert columns is not None
                found = [row[0] for row in iter_unpack(">8q", columns.numbers)]
            else:
                found = store.lookup_ids(QUEUE, -1, 1 << 60, 1000) or []
            seen.append(found[:1])
            if found != list(range(found[0], found[0] + 10)):
                faults.append((read, found))

    threads = [threading.Thread(target=look, args=(read,)) for read in ("scan", "columns", "columns", "lookup_ids")]
    for thread in threads:
        thread.start()
    for number in range(1500):
        batch = put(record(number + 10))
        batch.deletes = {Key(QUEUE, number)}
        store.commit([batch])
        store.tidy(busy=number % 100 != 0)
    stopping.set()
    for thread in threads:
        thread.join()
    assert faults == []
    assert len(seen) > 20
    store.close()


def test_a_backlog_goes_straight_to_the_database_until_messages_leave_soon(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("postroad.store.layered.WINDOW", 500)
    store = LayeredStore(directory, segment_bytes=200_000)

    def writes_journal(batch: Batch) -> bool:
        before = [(directory / name).read_bytes() for name in NAMES if (directory / name).exists()]
        store.commit([batch])
        store.tidy(busy=True)
        return before != [(directory / name).read_bytes() for name in NAMES if (directory / name).exists()]

    def hundred(first: int) -> Batch:
        return put(*(record(number, bytes(200)) for number in range(first, first + 100)))

    grown = [writes_journal(hundred(first)) for first in range(0, 3000, 100)]
    assert grown[0]
    assert not any(grown[-10:])
    assert writes_journal(put(record(3000)))  # it is small
    assert numbers(store) == list(range(3001))
    taken = []
    for first in range(3100, 9000, 100):
        batch = hundred(first)
        batch.deletes = {Key(QUEUE, number) for number in range(first - 200, first - 100)}
        taken.append(writes_journal(batch))
    assert all(taken[-10:])
    assert numbers(store) == [*range(2900), *range(8800, 9000)]
    left = LayeredStore(killed(directory))
    assert numbers(left) == numbers(store)
    left.close()
    store.close()


def test_a_backlog_is_deleted_in_the_database_at_once(directory: Path) -> None:
    store = LayeredStore(directory)
    store.commit([put(*(record(number) for number in range(300)))])
    while store.tidy():
        pass
    store.commit([put(record(300))])  # a little in the journal does not matter: it goes first
    before = [file.read_bytes() for file in directory.glob("journal-*")]
    store.commit([Batch(deletes={Key(QUEUE, number) for number in range(200)})])
    assert [file.read_bytes() for file in directory.glob("journal-*")] == before
    left = LayeredStore(killed(directory))
    assert numbers(left) == numbers(store) == list(range(200, 301))
    left.close()
    store.close()


def test_what_the_journal_says_is_never_read_on_top_of_a_later_commit_to_the_database(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("postroad.store.layered.BULK", 2)
    store = LayeredStore(directory)
    store.commit([put(*(record(number) for number in range(1, 9)))])
    while store.tidy():
        pass
    store.commit([put(record(9))])
    store.commit([Batch(deletes={Key(QUEUE, 9)})])  # memory has nothing now, but the journal has both
    batch = put(record(9, b"again"))
    batch.deletes = {Key(QUEUE, number) for number in range(1, 9)}
    store.commit([batch])  # mostly of what the database has
    left = LayeredStore(killed(directory))
    assert left.scan(QUEUE) == store.scan(QUEUE) == [record(9, b"again")]
    left.close()
    store.close()


@pytest.mark.parametrize("then", ["tidy", "bulk"])
def test_a_commit_whose_sync_failed_does_not_come_back_after_later_ones(
    directory: Path, monkeypatch: pytest.MonkeyPatch, then: str
) -> None:
    with torture_vfs() as vfs:
        store = LayeredStore(directory, vfs=vfs.vfs_name, files=TortureFiles(directory, vfs))
        store.commit([put(record(1))])
        if then == "bulk":
            monkeypatch.setattr("postroad.store.layered.BULK", 1)
            monkeypatch.setattr("postroad.store.layered.MOST", -1.0)
            monkeypatch.setattr("postroad.store.layered.HALF", 0.0)
            while store.tidy():
                pass
            monkeypatch.setattr("postroad.store.layered.BULK", 2)
        vfs.fault = Fault(vfs.count + 1, apsw.IOError)
        with pytest.raises(StorageError, match="the disk reported an error"):
            store.commit([put(record(2))])
        assert vfs.count == vfs.fault.at + 1  # the write was done, and its sync was not
        if then == "tidy":
            monkeypatch.setattr("postroad.store.layered.IDLE_ROWS", 0)  # it is frozen, and stays in the journal
            store.tidy()
        store.commit([put(record(3), record(4))])
        left = LayeredStore(killed(directory))
        assert (numbers(left), left.damaged) == ([1, 3, 4], {})
        left.close()
        store.close()


def test_a_commit_is_short_if_it_is_one_small_write_to_blocks_that_are_there(directory: Path) -> None:
    store = LayeredStore(directory)
    small = put(record(1))
    assert not store.is_short(small)  # the segment has no blocks yet
    store.commit([put(record(0))])
    assert store.is_short(small)
    assert store.is_short(Batch(deletes={Key(QUEUE, 0)}, state={"name": b"value", "other": None}))
    assert store.is_short(put(*(record(number) for number in range(BULK - 1))))
    assert not store.is_short(put(*(record(number) for number in range(BULK))))
    assert not store.is_short(put(record(1, bytes(SHORT_BYTES + 1))))
    assert not store.is_short(Batch(state={"name": bytes(SHORT_BYTES)}))
    store.commit([put(record(2, bytes(SEGMENT_BYTES // CHUNKS - 2 * SHORT_BYTES)))])
    assert not store.is_short(small)  # the next write adds blocks
    store.commit([put(record(3, bytes(SHORT_BYTES * 2)))])
    assert store.is_short(small)
    store.close()


def test_a_commit_is_not_short_while_a_generation_has_to_move(directory: Path) -> None:
    store = LayeredStore(directory, segment_bytes=16 * SHORT_BYTES)
    large = bytes(SHORT_BYTES)
    for number in range(30):  # two generations of 15
        store.commit([put(record(number, large))])
    short = []
    for number in range(30, 40):
        store.commit([put(record(number, large))])
        short.append(store.is_short(put(record(99))))
    assert short == [True] * 7 + [False] * 3  # from the half on, the frozen one has to move
    store.tidy(busy=True)
    assert store.is_short(put(record(99)))
    store.close()


def test_after_a_write_that_failed_no_commit_is_short_until_one_works(directory: Path) -> None:
    with torture_vfs() as vfs:
        store = LayeredStore(directory, vfs=vfs.vfs_name, files=TortureFiles(directory, vfs))
        store.commit([put(record(1))])
        assert store.is_short(put(record(2)))
        vfs.fault = Fault(vfs.count, apsw.IOError)
        with pytest.raises(StorageError):
            store.commit([put(record(2))])
        assert not store.is_short(put(record(3)))
        store.commit([put(record(3))])
        assert store.is_short(put(record(4)))
        assert numbers(store) == [1, 3]
        store.close()


# When it is damaged


def three_commits(directory: Path) -> tuple[Path, list[Frame]]:
    store = LayeredStore(directory)
    store.commit([put(record(1, b"first"))])
    while store.tidy():
        pass
    store.commit([Batch({Key(1, 2): record(2, b"second"), Key(1, 3): record(3, b"third")}, state={"a": b"1"})])
    store.commit([Batch({Key(1, 4): record(4, b"fourth")}, {Key(1, 1)}, {"b": b"2"})])
    store.commit([Batch({Key(1, 5): record(5, b"fifth")}, state={"b": b"3"})])
    left = killed(directory)
    store.close()
    return left, frames(left / NAMES[1])


def test_a_damaged_packet_costs_one_message_and_it_is_named(directory: Path) -> None:
    left, _ = three_commits(directory)
    file = left / NAMES[1]
    flip(file, file.read_bytes().index(b"second"))
    store = LayeredStore(left)
    assert numbers(store) == [3, 4, 5]
    reason = f"{file}: queue 1, lookup id 0x2: the checksum is wrong"
    assert store.damaged == {Key(1, 2): reason}
    with pytest.raises(CorruptRecord, match="queue 1, lookup id 0x2: the checksum is wrong"):
        store.get(1, 2)
    store.commit([Batch(deletes={Key(1, 2)})])
    assert store.damaged == {}
    store.close()


def test_a_damaged_commit_is_named_with_the_state_that_it_may_have_set(directory: Path) -> None:
    left, (_, second, third) = three_commits(directory)
    flip(left / NAMES[1], second.start + 20)
    store = LayeredStore(left)
    assert numbers(store) == [1, 2, 3, 5]  # what it deleted is back, and what it put is lost
    place = f"{NAMES[1]}, bytes {second.start} to {third.start}"
    assert set(store.damaged) == {place, "a"}  # the commit behind it has set b anew
    assert "changes of one or more commits are lost" in store.damaged[place]
    assert "may be out of date" in store.damaged["a"]
    assert store.state() == {"a": b"1", "b": b"3"}
    store.commit([Batch(state={"a": b"sure"})])
    assert set(store.damaged) == {place}
    store.close()


def test_a_last_commit_that_is_not_whole_is_left_out_and_its_place_is_used_again(directory: Path) -> None:
    left, (*_, third) = three_commits(directory)
    file = left / NAMES[1]
    content = file.read_bytes()
    file.write_bytes(content[: third.end - 3] + bytes(len(content) - third.end + 3))
    store = LayeredStore(left)
    assert (numbers(store), store.state(), store.damaged) == ([2, 3, 4], {"a": b"1", "b": b"2"}, {})
    store.commit([put(record(6))])
    again = LayeredStore(killed(left))
    assert (numbers(again), again.damaged) == ([2, 3, 4, 6], {})
    again.close()
    store.close()


@pytest.mark.parametrize("statement", ["DELETE FROM journal", "UPDATE journal SET spilled = spilled + 1"])
def test_a_database_that_lost_its_mark_reads_the_whole_journal(directory: Path, statement: str) -> None:
    left, _ = three_commits(directory)
    with sqlite3.connect(left / DATABASE_NAME) as database:
        database.execute(statement)
    database.close()
    (left / f"{DATABASE_NAME}-wal").touch()  # the tool has put it into the database
    for _ in range(2):
        store = LayeredStore(left)
        assert (numbers(store), store.state(), store.damaged) == ([2, 3, 4, 5], {"a": b"1", "b": b"3"}, {})
        store.close()


def test_a_segment_that_is_empty_is_named(directory: Path) -> None:
    store = LayeredStore(directory, segment_bytes=2000)
    for number in range(8):
        store.commit([put(record(number, bytes(200)))])
    left = killed(directory)
    store.close()
    by_age = sorted((left / name for name in NAMES), key=lambda file: frames(file)[0].generation)
    kept = [key[1] for frame in frames(by_age[1]) for key in frame.puts]
    by_age[0].write_bytes(b"")
    store = LayeredStore(left)
    assert numbers(store) == kept
    (reason,) = store.damaged.values()
    assert reason == f"{left}: a segment of the journal is missing"
    store.close()


@pytest.mark.parametrize("part", ["head", "packet"])
def test_damage_at_the_end_of_a_full_segment_is_not_taken_for_a_power_cut(directory: Path, part: str) -> None:
    """A newer segment says where it ended: what stood there was durable."""
    store = LayeredStore(directory, segment_bytes=2000)
    for number in range(8):
        store.commit([put(record(number, bytes(200)))])
    left = killed(directory)
    store.close()
    full = min((left / name for name in NAMES), key=lambda file: frames(file)[0].generation)
    last = frames(full)[-1]
    (key,) = last.puts
    flip(full, last.start + 20 if part == "head" else last.end - 1)
    store = LayeredStore(left)
    assert numbers(store) == [number for number in range(8) if number != key[1]]
    assert set(store.damaged) == {f"{full.name}, bytes {last.start} to {last.end}" if part == "head" else key}
    store.close()
