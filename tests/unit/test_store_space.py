"""Room on the disk: what a purge frees is given back, and a full disk gives up a reserve for receives."""

from __future__ import annotations

import os
import resource
import shutil
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import apsw
import pytest

from postroad.errors import StorageError
from postroad.store import Batch, Key, LayeredStore, Record
from postroad.store.database import MIGRATIONS, PAGE_SIZE, PRAGMAS
from postroad.store.journal import SEGMENT_BYTES
from postroad.store.space import RESERVE_BYTES, RESERVE_NAME, SHARE, DiskSpace
from postroad.store.sqlite import KEPT_FREE_PAGES
from tests.torture.vfs import Fault, TortureFiles, TortureVFS, torture_vfs

_arrivals = count(1)
MEBIBYTE = 1 << 20


@pytest.fixture
def vfs() -> Iterator[TortureVFS]:
    with torture_vfs() as made:
        yield made


def open_reserved(directory: Path, vfs: TortureVFS, segment_bytes: int = SEGMENT_BYTES) -> LayeredStore:
    files = TortureFiles(directory, vfs)
    return LayeredStore(directory, vfs=vfs.vfs_name, reserve=True, files=files, segment_bytes=segment_bytes)


def puts(messages: int, size: int) -> Batch:
    numbers = [next(_arrivals) for _ in range(messages)]
    return Batch({Key(1, each): Record(1, each, 0, 0, 0, bytes(size)) for each in numbers})


def purge(store: LayeredStore) -> None:
    while records := store.scan(1, limit=1000):
        store.commit([Batch(deletes={Key(1, record.lookup_id) for record in records})])


def size_of(directory: Path) -> int:
    """Of the database: the journal keeps its segments."""
    return sum(file.stat().st_size for file in directory.glob("store.sqlite*"))


def test_the_files_shrink_after_a_purge(tmp_path: Path) -> None:
    store = LayeredStore(tmp_path)
    for _ in range(40):
        store.commit([puts(100, 10_000)])
    store.commit([kept := puts(3, 10_000)])
    while store.tidy():
        pass
    assert size_of(tmp_path) > 40 * MEBIBYTE
    while records := store.scan(1, limit=1000)[:-3]:
        store.commit([Batch(deletes={Key(1, record.lookup_id) for record in records})])
    while store.tidy():
        pass
    assert size_of(tmp_path) < KEPT_FREE_PAGES * PAGE_SIZE + 2 * MEBIBYTE
    assert store.scan(1) == list(kept.puts.values())
    store.close()
    store = LayeredStore(tmp_path)
    assert store.scan(1) == list(kept.puts.values())
    store.close()


def test_a_little_that_is_free_is_kept_for_the_next_messages(tmp_path: Path) -> None:
    store = LayeredStore(tmp_path)
    store.commit([puts(100, 10_000)])
    while store.tidy():
        pass
    purge(store)
    while store.tidy():
        pass
    assert size_of(tmp_path) > MEBIBYTE
    store.close()


def test_a_store_from_before_is_written_anew_where_most_of_it_is_free(tmp_path: Path) -> None:
    """Its database has no auto_vacuum, which only a new file can have."""
    connection = apsw.Connection(str(tmp_path / "store.sqlite"))
    for pragma in PRAGMAS:
        if "auto_vacuum" not in pragma:
            connection.execute(pragma).fetchall()
    connection.execute(MIGRATIONS[0])
    connection.execute(f"PRAGMA application_id = {0x506F7374}")
    connection.execute("PRAGMA user_version = 1")
    connection.close()
    store = LayeredStore(tmp_path)
    store.commit([puts(2000, 10_000)])
    while store.tidy():
        pass
    while records := store.scan(1, limit=1000)[:-3]:
        store.commit([Batch(deletes={Key(1, record.lookup_id) for record in records})])
    while store.tidy():
        pass
    kept = store.scan(1)
    store.close()
    assert size_of(tmp_path) > 19 * MEBIBYTE
    store = LayeredStore(tmp_path)
    assert store.scan(1) == kept
    store.close()
    assert size_of(tmp_path) < MEBIBYTE


@pytest.mark.parametrize("at", [0, 1])
def test_a_commit_that_finds_no_room_is_tried_again_without_the_reserve(
    tmp_path: Path, vfs: TortureVFS, at: int
) -> None:
    store = open_reserved(tmp_path, vfs)
    assert ((tmp_path / RESERVE_NAME).exists(), store.no_room()) == (True, None)
    batch = puts(20, 5000)
    vfs.count, vfs.fault = 0, Fault(at, apsw.FullError)
    store.commit([batch])
    assert vfs.count > at
    assert store.scan(1) == list(batch.puts.values())
    vfs.fault = None
    store.close()


@pytest.mark.parametrize("at", range(0, 40, 3))
def test_a_move_into_the_database_that_finds_no_room_is_tried_again_too(
    tmp_path: Path, vfs: TortureVFS, at: int
) -> None:
    store = open_reserved(tmp_path, vfs, segment_bytes=16_384)
    first, second = puts(3, 5000), puts(3, 5000)
    store.commit([first])
    store.commit([second])
    vfs.count, vfs.fault = 0, Fault(at, apsw.FullError)
    store.commit([third := puts(3, 5000)])  # the segment of the first is needed again
    assert store.scan(1) == [*first.puts.values(), *second.puts.values(), *third.puts.values()]
    vfs.fault = None
    store.close()


def test_while_it_is_full_it_says_so_and_it_has_room_again_by_itself(tmp_path: Path, vfs: TortureVFS) -> None:
    store = open_reserved(tmp_path, vfs)
    vfs.count, vfs.fault = 0, Fault(0, apsw.FullError, lasting=True)
    with pytest.raises(StorageError, match="the disk is full"):
        store.commit([puts(1, 10)])
    assert not (tmp_path / RESERVE_NAME).exists()
    vfs.fault = None
    assert store.no_room() is None  # the real disk has room: the reserve is made anew
    assert (tmp_path / RESERVE_NAME).exists()
    store.commit([batch := puts(1, 10)])
    assert store.scan(1) == list(batch.puts.values())
    store.close()


def test_a_batch_that_would_use_the_reserve_up_is_not_tried_again(tmp_path: Path, vfs: TortureVFS) -> None:
    store = open_reserved(tmp_path, vfs)
    vfs.count, vfs.fault = 0, Fault(0, apsw.FullError)
    with pytest.raises(StorageError, match="the disk is full"):
        store.commit([puts(5, MEBIBYTE)])
    assert store.scan(1) == []
    store.close()


def test_another_error_leaves_the_reserve_where_it_is(tmp_path: Path, vfs: TortureVFS) -> None:
    store = open_reserved(tmp_path, vfs)
    vfs.count, vfs.fault = 0, Fault(0, apsw.IOError)
    with pytest.raises(StorageError, match="the disk reported an error"):
        store.commit([puts(1, 10)])
    assert ((tmp_path / RESERVE_NAME).exists(), store.no_room()) == (True, None)
    store.close()


def test_the_reserve_has_real_blocks_and_only_its_owner_may_read_it(tmp_path: Path) -> None:
    space = DiskSpace(tmp_path)
    status = (tmp_path / RESERVE_NAME).stat()
    assert (status.st_size, status.st_mode & 0o777) == (space.reserve_bytes, 0o600)
    assert status.st_blocks * 512 >= space.reserve_bytes
    assert space.release()
    assert not space.release()


class Disk:
    """A disk of a size of our choice: it replaces what the system says about the real one."""

    def __init__(self, total: int, free: int) -> None:
        self.total = total
        self.free = free

    def usage(self, path: Path) -> SimpleNamespace:
        return SimpleNamespace(total=self.total, free=self.free)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    disk = Disk(total=100 * RESERVE_BYTES, free=50 * RESERVE_BYTES)
    monkeypatch.setattr(shutil, "disk_usage", disk.usage)
    return disk


def test_on_a_small_disk_the_reserve_is_small(tmp_path: Path, disk: Disk) -> None:
    disk.total = 2 * RESERVE_BYTES
    assert DiskSpace(tmp_path).reserve_bytes == disk.total // SHARE
    assert (tmp_path / RESERVE_NAME).stat().st_size == disk.total // SHARE


def test_a_disk_is_full_below_the_reserve_and_free_again_at_twice_as_much(tmp_path: Path, disk: Disk) -> None:
    space = DiskSpace(tmp_path)
    assert (space.look(), space.is_low()) == (None, False)
    disk.free = RESERVE_BYTES - 1
    assert space.is_low()
    assert f"{tmp_path}: the disk is full: {disk.free >> 10} KiB are free" in (space.look() or "")
    disk.free = 2 * RESERVE_BYTES - 1
    assert not space.is_low()
    assert space.look() is not None
    disk.free = 2 * RESERVE_BYTES
    assert space.look() is None


def test_a_released_reserve_is_made_again_before_the_disk_counts_as_free(tmp_path: Path, disk: Disk) -> None:
    space = DiskSpace(tmp_path)
    assert space.release()
    disk.free = 3 * RESERVE_BYTES - 1  # twice the reserve would be free, but not after the reserve is made
    assert space.look() is not None
    assert not (tmp_path / RESERVE_NAME).exists()
    disk.free = 3 * RESERVE_BYTES
    assert space.look() is None
    assert (tmp_path / RESERVE_NAME).exists()


def test_a_disk_that_was_nearly_full_at_the_start_gets_its_reserve_later(tmp_path: Path, disk: Disk) -> None:
    disk.free = 2 * RESERVE_BYTES - 1
    space = DiskSpace(tmp_path)
    assert space.look() is None
    assert not (tmp_path / RESERVE_NAME).exists()
    disk.free = 3 * RESERVE_BYTES
    assert space.look() is None
    assert (tmp_path / RESERVE_NAME).exists()


@pytest.mark.parametrize("allocates", [True, False], ids=["posix_fallocate", "writing"])
def test_a_reserve_that_cannot_be_made_leaves_no_file_and_the_disk_full(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch, allocates: bool
) -> None:
    if not allocates:
        monkeypatch.delattr(os, "posix_fallocate")  # as on Windows and macOS
    space = DiskSpace(tmp_path)
    assert space.release()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (RESERVE_BYTES // 2, hard))
    try:
        assert space.look() is not None
        assert not (tmp_path / RESERVE_NAME).exists()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert space.look() is None
    assert (tmp_path / RESERVE_NAME).stat().st_size == RESERVE_BYTES
