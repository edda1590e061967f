"""A backup has all that a store held at one moment, and a file that is not whole is refused."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from postroad.errors import StorageError
from postroad.store import Batch, Key, LayeredStore, MemoryStore, Record, Store
from postroad.store.backup import BackupReader, failure, write_backup
from postroad.store.database import DATABASE_NAME

STORES: dict[str, Callable[[Path], Store]] = {
    "layered": LayeredStore,
    "tiny segments": lambda path: LayeredStore(path, segment_bytes=1),
    "memory": lambda path: MemoryStore(),
}
HEAD = {"name": "alpha", "id": "an id"}


@pytest.fixture(params=sorted(STORES))
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    made = STORES[request.param](tmp_path / "data")
    yield made
    made.close()


def record(number: int, queue: int = 1, packet: bytes = b"packet") -> Record:
    return Record(queue, number, 1_700_000_000_000 + number, number % 3, number % 2, packet, number % 5)


def put(*records: Record) -> Batch:
    return Batch({Key(each.queue, each.lookup_id): each for each in records})


def written(store: Store, **files: bytes) -> bytes:
    snapshot = store.snapshot()
    try:
        return b"".join(write_backup(snapshot, HEAD, files))
    finally:
        snapshot.close()


def read(data: bytes) -> tuple[list[Record], BackupReader]:
    reader = BackupReader(io.BytesIO(data), "file")
    return [each for page in reader.pages() for each in page], reader


def test_a_backup_has_every_record_and_all_state(store: Store) -> None:
    records = [record(number, queue, bytes([number]) * number * 100) for queue in (1, 2) for number in range(50)]
    store.commit([put(*records)])
    store.commit([Batch(state={"a": b"1", "b": b"", "gone": b"2"})])
    store.commit([Batch(deletes={Key(1, 7)}, state={"gone": None, "a": b"3"})])
    found, reader = read(written(store, keys=b"secret"))
    assert sorted(found) == sorted(each for each in records if each[:2] != (1, 7))
    assert reader.contents.state == {"a": b"3", "b": b""}
    assert (reader.contents.head, reader.contents.files) == (HEAD, {"keys": b"secret"})
    assert (reader.contents.records, reader.contents.damaged) == (99, 0)


def test_a_snapshot_keeps_its_moment_while_others_commit(store: Store) -> None:
    before = [record(number) for number in range(30)]
    store.commit([put(*before), Batch(state={"step": b"1"})])
    snapshot = store.snapshot()
    store.commit([put(record(100)), Batch(deletes={Key(1, 0), Key(1, 29)}, state={"step": b"2"})])
    while store.tidy():
        pass
    assert sorted(each for page in snapshot.pages() for each in page) == before
    assert snapshot.state() == {"step": b"1"}
    snapshot.close()


def test_every_snapshot_under_load_is_one_whole_number_of_commits(tmp_path: Path) -> None:
    """Each commit moves one record on, with the step as state; segments are full all the time."""
    store = LayeredStore(tmp_path, segment_bytes=2000)
    stopping = threading.Event()

    def commit() -> None:
        step = 0
        while not stopping.is_set():
            step += 1
            batch = put(record(step, 1 + step % 3, b"x" * 200))
            batch.deletes = {Key(1 + (step - 5) % 3, max(step - 5, 0))}
            batch.state["step"] = str(step).encode()
            store.commit([batch])
            if not step % 7:
                store.tidy(busy=True)
            if not step % 50:
                while store.tidy():
                    pass

    writer = threading.Thread(target=commit)
    writer.start()
    try:
        taken = step = 0
        while taken < 150 or step < 60:
            taken += 1
            assert writer.is_alive()
            snapshot = store.snapshot()
            step = int(snapshot.state().get("step", b"0"))
            numbers = sorted(each.lookup_id for page in snapshot.pages() for each in page)
            snapshot.close()
            assert numbers == list(range(max(step - 4, 1), step + 1))
    finally:
        stopping.set()
        writer.join()
        store.close()


def test_a_file_that_is_cut_off_anywhere_is_refused(tmp_path: Path) -> None:
    data = written(_filled(tmp_path))
    read(data)
    for size in range(len(data)):
        with pytest.raises(StorageError, match=r"file: (is cut off|must be a file that `postroad backup` wrote)"):
            read(data[:size])


def test_a_flipped_bit_anywhere_is_found(tmp_path: Path) -> None:
    data = written(_filled(tmp_path))
    for place in range(len(data)):
        flipped = bytearray(data)
        flipped[place] ^= 1 << place % 8
        with pytest.raises(StorageError, match="file: "):
            read(bytes(flipped))


def test_a_section_that_is_missing_or_twice_there_is_found(tmp_path: Path) -> None:
    data = written(_filled(tmp_path))
    start = data.index(b"RECS")
    end = data.index(b"END.")
    for changed in (data[:start] + data[end:], data[:end] + data[start:end] + data[end:], data + b"\0"):
        with pytest.raises(StorageError, match="file: is damaged at byte"):
            read(changed)


def test_a_backup_that_failed_says_why(tmp_path: Path) -> None:
    data = written(_filled(tmp_path))
    with pytest.raises(StorageError, match="file: is not complete: the disk is full"):
        read(data[: data.index(b"END.")] + failure("the disk is full"))


def test_a_newer_format_is_named() -> None:
    with pytest.raises(StorageError, match="file: must be a backup of version 1, got another version"):
        read(b"Postroad backup 2\n")


def test_damaged_records_are_counted_and_left_out(tmp_path: Path) -> None:
    _filled(tmp_path).close()
    file = tmp_path / DATABASE_NAME
    content = file.read_bytes()
    assert content.count(b"packet-4") == 1
    file.write_bytes(content.replace(b"packet-4", b"packet-X"))
    store = LayeredStore(tmp_path)
    found, reader = read(written(store))
    store.close()
    assert [each.lookup_id for each in found] == [0, 1, 2, 3, 5]
    assert reader.contents.damaged == 1


def _filled(directory: Path) -> LayeredStore:
    store = LayeredStore(directory)
    store.commit([put(*(record(number, packet=b"packet-%d" % number) for number in range(6)))])
    store.commit([Batch(state={"name": b"value"})])
    return store
