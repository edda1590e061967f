"""The data directory: whose it is, which version it has, what happens when the disk is full, read-only or damaged."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import resource
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from postroad.errors import CorruptRecord, StorageError
from postroad.runtime.private_files import tighten
from postroad.store import PRIORITY_SHIFT, Batch, Key, LayeredStore, Record
from postroad.store import database as database_module
from postroad.store.database import APPLICATION_ID, DATABASE_NAME, MIGRATIONS, PRAGMAS
from postroad.store.rows import to_row
from tests.torture.vfs import Fault, TortureFiles, torture_vfs

NOBODY = 65534
SMALL = 4096  # of a segment of the journal


def record(lookup_id: int, packet: bytes = b"packet", queue: int = 1, expires_s: int = 0) -> Record:
    return Record(queue, lookup_id, 1_700_000_000_000, expires_s, 0, packet)


def put(*records: Record) -> Batch:
    return Batch({Key(record.queue, record.lookup_id): record for record in records})


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LayeredStore]:
    store = LayeredStore(tmp_path)
    yield store
    store.close()


def settle(store: LayeredStore) -> None:
    """Moves all that is in the journal into the database, as the writer does while it is idle."""
    while store.tidy():
        pass


def sql(tmp_path: Path, statement: str) -> list[tuple[object, ...]]:
    """What another connection to the database sees or does."""
    connection = apsw.Connection(str(tmp_path / DATABASE_NAME))
    try:
        return connection.execute(statement).fetchall()
    finally:
        connection.close()


# Whose it is


def test_a_directory_in_use_is_refused_and_its_process_named(tmp_path: Path) -> None:
    held = (
        "import sys; from postroad.store import open_store as o; s = o(sys.argv[1]); print('up', flush=True); input()"
    )
    command = [sys.executable, "-c", held, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        with pytest.raises(StorageError, match=f"{re.escape(str(tmp_path))}: in use by process {process.pid}"):
            LayeredStore(tmp_path)
        process.send_signal(signal.SIGKILL)
        process.wait()
        LayeredStore(tmp_path).close()


def test_the_same_process_cannot_open_a_directory_twice_until_it_closes_it(tmp_path: Path) -> None:
    store = LayeredStore(tmp_path)
    with pytest.raises(StorageError, match=f"in use by process {os.getpid()}"):
        LayeredStore(tmp_path)
    store.close()
    LayeredStore(tmp_path).close()


def test_a_store_that_would_not_open_leaves_no_lock_behind(tmp_path: Path) -> None:
    (tmp_path / DATABASE_NAME).write_bytes(b"no database at all" * 1000)
    for _ in range(2):
        with pytest.raises(
            StorageError, match=r"store\.sqlite: opening failed: the file is damaged or not a SQLite database"
        ):
            LayeredStore(tmp_path)
    (tmp_path / DATABASE_NAME).unlink()
    LayeredStore(tmp_path).close()


def test_a_file_system_without_locks_is_named_and_nothing_stays_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    descriptors: list[int] = []

    def refuse(descriptor: int, operation: int) -> None:
        descriptors.append(descriptor)
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(
        StorageError, match=r"lock: the file cannot be locked \(No locks available\); choose a directory"
    ):
        LayeredStore(tmp_path)
    (descriptor,) = descriptors
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_a_file_where_the_directory_should_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file")
    with pytest.raises(StorageError, match=r"data: the data directory cannot be created: "):
        LayeredStore(tmp_path / "data")


@pytest.mark.skipif(sys.platform == "win32", reason="Unix permissions")
def test_a_read_only_directory_is_named() -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        locked = directory / "locked"
        locked.mkdir(0o000)
        directory.chmod(0o555)
        is_root = os.geteuid() == 0
        if is_root:
            os.seteuid(NOBODY)  # permissions do not bind root
        try:
            with pytest.raises(StorageError, match=r"lock: this user must be able to write in .*: Permission denied"):
                LayeredStore(directory)
            with pytest.raises(StorageError, match="sub: the data directory cannot be created: Permission denied"):
                LayeredStore(directory / "sub")
            with pytest.raises(StorageError, match="deep: the data directory cannot be created: Permission denied"):
                LayeredStore(locked / "sub" / "deep")
        finally:
            if is_root:
                os.seteuid(0)
            directory.chmod(0o755)


# Whether it is complete


@pytest.mark.parametrize("missing", [f"{DATABASE_NAME}-wal", "journal-0", "journal-1", DATABASE_NAME])
def test_a_copy_of_an_open_store_without_one_of_its_files_is_refused_until_it_is_there(
    tmp_path: Path, missing: str
) -> None:
    store = LayeredStore(tmp_path / "data")
    for number in range(20):
        store.commit([put(record(number))])
    shutil.copytree(tmp_path / "data", tmp_path / "whole")
    store.close()
    copy = tmp_path / "copy"
    shutil.copytree(tmp_path / "whole", copy)
    (copy / missing).unlink()
    if missing.endswith("-wal"):
        (copy / f"{DATABASE_NAME}-shm").unlink()
    for _ in range(2):  # the refusal changes nothing
        with pytest.raises(StorageError, match=f"{re.escape(str(copy / missing))}: is missing.*copy all files"):
            LayeredStore(copy)
    shutil.copy(tmp_path / "whole" / missing, copy)
    store = LayeredStore(copy)
    assert [each.lookup_id for each in store.scan(1)] == list(range(20))
    store.close()


def test_the_database_alone_is_enough_once_the_store_is_closed(tmp_path: Path) -> None:
    store = LayeredStore(tmp_path / "data")
    store.commit([put(record(1))])
    store.close()
    (tmp_path / "copy").mkdir()
    shutil.copy(tmp_path / "data" / DATABASE_NAME, tmp_path / "copy")
    store = LayeredStore(tmp_path / "copy")
    assert [each.lookup_id for each in store.scan(1)] == [1]
    store.close()


def test_an_operator_can_start_without_a_file_that_is_lost(tmp_path: Path) -> None:
    store = LayeredStore(tmp_path / "data")
    store.commit([put(record(1))])
    (tmp_path / "copy").mkdir()
    shutil.copy(tmp_path / "data" / DATABASE_NAME, tmp_path / "copy")
    store.close()
    for name in (f"{DATABASE_NAME}-wal", "journal-0", "journal-1"):
        (tmp_path / "copy" / name).touch()
    LayeredStore(tmp_path / "copy").close()


# Who else may look


def modes(directory: Path) -> dict[str, int]:
    found = {each.name: stat.S_IMODE(each.stat().st_mode) for each in directory.iterdir()}
    return {"": stat.S_IMODE(directory.stat().st_mode), **found}


NAMES = ("lock", "journal-0", "journal-1", DATABASE_NAME, f"{DATABASE_NAME}-wal", f"{DATABASE_NAME}-shm")
PRIVATE = {"": 0o700, **dict.fromkeys(NAMES, 0o600)}
unix = pytest.mark.skipif(sys.platform == "win32", reason="Unix permissions")


@unix
def test_a_new_data_directory_and_its_files_are_their_owners_alone(tmp_path: Path) -> None:
    before = os.umask(0)  # what the most careless shell leaves
    try:
        store = LayeredStore(tmp_path / "data" / "alpha")
        store.commit([put(record(1))])
        assert modes(tmp_path / "data" / "alpha") == PRIVATE
        store.close()
    finally:
        os.umask(before)


@unix
def test_an_old_data_directory_is_tightened_with_all_that_a_kill_left_in_it(tmp_path: Path) -> None:
    left = (
        "import os, sys; from postroad.store import Batch, open_store as o;"
        "s = o(sys.argv[1]); s.commit([Batch(state={'a': b'1'})]); os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", left, str(tmp_path)], check=True)
    for each in tmp_path.iterdir():
        each.chmod(0o644)
    tmp_path.chmod(0o755)
    assert set(modes(tmp_path)) == set(PRIVATE)
    store = LayeredStore(tmp_path)
    assert modes(tmp_path) == PRIVATE
    store.close()


@unix
@pytest.mark.parametrize(("mode", "foreign"), [(0o1777, False), (0o755, True)])
def test_a_directory_that_is_shared_stays_open_and_the_messages_are_private(
    tmp_path: Path, mode: int, foreign: bool
) -> None:
    if foreign:
        (tmp_path / "something-else").touch()
    tmp_path.chmod(mode)
    store = LayeredStore(tmp_path)
    store.commit([put(record(1))])
    found = modes(tmp_path)
    found.pop("something-else", None)
    assert found == {**PRIVATE, "": mode}
    store.close()


@unix
def test_what_is_no_file_keeps_its_rights(tmp_path: Path) -> None:
    """A link in the data directory may lead to a device, which belongs to the whole computer. A pipe stands for it."""
    pipe, link = tmp_path / "pipe", tmp_path / "keys.pem"
    os.mkfifo(pipe)
    pipe.chmod(0o666)
    link.symlink_to(pipe)
    tighten(link)
    assert stat.S_IMODE(pipe.stat().st_mode) == 0o666


# Which version it has


def test_a_fresh_database_says_whose_it_is(store: LayeredStore, tmp_path: Path) -> None:
    assert sql(tmp_path, "PRAGMA application_id") == [(APPLICATION_ID,)]
    assert sql(tmp_path, "PRAGMA user_version") == [(len(MIGRATIONS),)]
    assert sql(tmp_path, "PRAGMA journal_mode") == [("wal",)]


def test_an_older_schema_is_brought_forwards_with_all_its_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LayeredStore(tmp_path)
    store.commit([put(record(1), record(2)), Batch(state={"name": b"value"})])
    store.close()
    later = (*MIGRATIONS, "CREATE TABLE note (text TEXT)", "ALTER TABLE note ADD COLUMN author TEXT")
    monkeypatch.setattr(database_module, "MIGRATIONS", later)
    store = LayeredStore(tmp_path)
    assert store.scan(1) == [record(1), record(2)]
    assert store.state() == {"name": b"value"}
    assert sql(tmp_path, "PRAGMA user_version") == [(len(later),)]
    assert sql(tmp_path, "SELECT text, author FROM note") == []
    store.close()


def test_a_migration_that_fails_leaves_the_older_schema_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    LayeredStore(tmp_path).close()
    with monkeypatch.context() as patch:
        patch.setattr(database_module, "MIGRATIONS", (*MIGRATIONS, "CREATE TABLE note (text TEXT); SELECT nonsense"))
        with pytest.raises(StorageError, match=r"opening failed.*nonsense"):
            LayeredStore(tmp_path)
    store = LayeredStore(tmp_path)
    store.commit([put(record(1))])
    assert store.scan(1) == [record(1)]
    assert sql(tmp_path, "SELECT name FROM sqlite_schema WHERE name = 'note'") == []
    store.close()


def test_a_newer_schema_is_refused_and_not_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(database_module, "MIGRATIONS", (*MIGRATIONS, "CREATE TABLE note (text TEXT)"))
        LayeredStore(tmp_path).close()
    before = (tmp_path / DATABASE_NAME).read_bytes()
    expected = f"schema version must be at most {len(MIGRATIONS)} for this Postroad, got {len(MIGRATIONS) + 1}"
    with pytest.raises(StorageError, match=expected):
        LayeredStore(tmp_path)
    assert (tmp_path / DATABASE_NAME).read_bytes() == before


def test_a_database_of_something_else_is_refused_and_not_touched(tmp_path: Path) -> None:
    sql(tmp_path, "CREATE TABLE contacts (name TEXT)")
    before = (tmp_path / DATABASE_NAME).read_bytes()
    with pytest.raises(StorageError, match="must be a database of Postroad"):
        LayeredStore(tmp_path)
    assert (tmp_path / DATABASE_NAME).read_bytes() == before


def test_a_first_start_that_was_cut_short_is_started_again(tmp_path: Path) -> None:
    connection = apsw.Connection(str(tmp_path / DATABASE_NAME))
    for pragma in PRAGMAS:
        connection.execute(pragma).fetchall()
    connection.close()
    LayeredStore(tmp_path).close()


# What people see with their own tools


def test_any_sqlite_tool_shows_the_messages_in_queue_order(store: LayeredStore, tmp_path: Path) -> None:
    urgent, late = 7 - 6 << PRIORITY_SHIFT | 12, 7 << PRIORITY_SHIFT | 11
    store.commit([put(record(late, b"later"), record(urgent, b"now", expires_s=2_000_000_000), record(3, queue=2))])
    settle(store)
    query = (
        "SELECT queue, priority, arrival, lookup_id, arrived, expires, size, hex(packet) FROM messages WHERE queue = 1"
    )
    # In a process of its own, as a person's tool is: two copies of SQLite in one process undo each other's locks.
    script = (
        "import json, sqlite3, sys; print(json.dumps(sqlite3.connect(sys.argv[1]).execute(sys.argv[2]).fetchall()))"
    )
    command = [sys.executable, "-c", script, str(tmp_path / DATABASE_NAME), query]
    rows = json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout)
    arrived = "2023-11-14T22:13:20.000Z"
    assert rows == [
        [1, 6, 12, urgent, arrived, "2033-05-18T03:33:20Z", 3, b"now".hex().upper()],
        [1, 0, 11, late, arrived, None, 5, b"later".hex().upper()],
    ]
    store.commit([put(record(1, b"the store goes on"))])


# What it costs


def test_opening_and_the_first_read_do_not_read_the_backlog(tmp_path: Path) -> None:
    read = []
    with torture_vfs() as vfs:
        for first in (0, 5_000):
            store = LayeredStore(tmp_path, vfs=vfs.vfs_name)
            for number in range(first, first + 5_000, 500):
                store.commit([put(*(record(lookup_id, bytes(1024)) for lookup_id in range(number, number + 500)))])
            store.close()
            vfs.read_bytes = 0
            store = LayeredStore(tmp_path, vfs=vfs.vfs_name)
            assert store.scan(1, limit=1) == [record(0, bytes(1024))]
            read.append(vfs.read_bytes)
            store.close()
    assert (tmp_path / DATABASE_NAME).stat().st_size > 10 * 1024 * 1024
    assert read[1] < 200_000
    assert read[1] <= read[0] + 2 * 8192  # a b-tree may have grown by a level


def test_memory_does_not_grow_with_the_backlog(tmp_path: Path) -> None:
    store = LayeredStore(tmp_path, segment_bytes=1 << 20)
    used = []
    for first in range(0, 40_000, 1_000):
        store.commit([put(*(record(lookup_id, bytes(1024)) for lookup_id in range(first, first + 1_000)))])
        store.scan(1, after=first - 1)
        used.append(apsw.memory_used())
    assert used[-1] < used[len(used) // 2] + 1024 * 1024  # 20 MB more are stored
    store.close()


# When the disk fails


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (apsw.FullError, "the disk is full; free some space, then the manager continues by itself"),
        (apsw.IOError, "the disk reported an error; check the disk, then try again"),
        (apsw.ReadOnlyError, "the file is read-only; make the file and its directory writable for this user"),
    ],
)
def test_a_failing_disk_is_named_and_writing_resumes_when_it_is_well_again(
    tmp_path: Path, error: type[apsw.Error], cause: str
) -> None:
    with torture_vfs() as vfs:
        store = LayeredStore(tmp_path, vfs=vfs.vfs_name, files=TortureFiles(tmp_path, vfs))
        store.commit([put(record(1))])
        vfs.fault = Fault(vfs.count, error, lasting=True)
        for _ in range(3):
            with pytest.raises(StorageError, match=f"journal-0: writing failed: {re.escape(cause)}"):
                store.commit([put(record(2), record(3)), Batch(deletes={Key(1, 1)})])
            assert store.scan(1) == [record(1)]
        vfs.fault = None
        store.commit([put(record(2))])
        assert store.scan(1) == [record(1), record(2)]
        store.close()


@pytest.mark.skipif(sys.platform == "win32", reason="no limit on the size of files")
def test_a_file_that_cannot_grow_refuses_a_commit_and_takes_the_next(store: LayeredStore, tmp_path: Path) -> None:
    store.commit([put(record(1))])
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    limit = (tmp_path / "journal-0").stat().st_size + 64 * 1024
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        with pytest.raises(StorageError, match=r"journal-0: writing failed: "):
            store.commit([put(record(2, bytes(1024 * 1024)))])
        assert store.scan(1) == [record(1)]
        store.commit([put(record(3))])  # what is small still has room
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    store.commit([put(record(2, bytes(1024 * 1024)))])
    assert [kept.lookup_id for kept in store.scan(1)] == [1, 2, 3]


def fill(store: LayeredStore, refusal: str) -> int:
    """Commits messages until both segments of the journal are full and one is refused; how many were taken."""
    for number in range(1000):
        try:
            store.commit([put(record(number, bytes(100)))])
        except StorageError as error:
            assert refusal in str(error)  # noqa: PT017
            assert number > SMALL // 100 / 2
            return number
    raise AssertionError("the journal took all")


def test_a_move_into_the_database_that_fails_does_not_fail_the_commit(tmp_path: Path) -> None:
    """Until the journal is full: then a commit has to wait for it."""
    with torture_vfs() as vfs:
        store = LayeredStore(tmp_path, vfs=vfs.vfs_name, segment_bytes=SMALL)
        vfs.fault = Fault(vfs.count, apsw.FullError, lasting=True)  # of the database; the journal has its own files
        number = fill(store, f"{DATABASE_NAME}: writing failed: the disk is full")
        assert not store.tidy()
        assert [kept.lookup_id for kept in store.scan(1)] == list(range(number))
        vfs.fault = None
        store.commit([put(record(number, bytes(100)))])
        assert [kept.lookup_id for kept in store.scan(1)] == list(range(number + 1))
        store.close()
        assert {each.name for each in tmp_path.iterdir()} == {DATABASE_NAME, "lock"}


def test_a_program_that_keeps_the_database_locked_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database_module, "BUSY_TIMEOUT_MS", 10)
    store = LayeredStore(tmp_path, segment_bytes=SMALL)
    connection = apsw.Connection(str(tmp_path / DATABASE_NAME))
    connection.execute("BEGIN IMMEDIATE")
    number = fill(store, f"{DATABASE_NAME}: writing failed: another program keeps it locked; close that program")
    connection.execute("COMMIT")
    connection.close()
    store.commit([put(record(number, bytes(100)))])
    assert [kept.lookup_id for kept in store.scan(1)] == list(range(number + 1))
    store.close()


def test_a_closed_store_says_so(tmp_path: Path) -> None:
    store = LayeredStore(tmp_path)
    store.close()
    with pytest.raises(StorageError, match="the store is closed"):
        store.commit([put(record(1))])
    with pytest.raises(StorageError, match="the store is closed"):
        store.scan(1)


# When a record is damaged


def test_a_damaged_record_is_named_and_the_rest_of_the_queue_stays_readable(
    store: LayeredStore, tmp_path: Path
) -> None:
    records = [record(number, b"packet %d" % number, expires_s=number) for number in range(1, 8)]
    store.commit([put(*records)])
    settle(store)
    key = to_row(records[3])[0]
    sql(tmp_path, f"UPDATE message SET packet = CAST('pocket 4' AS BLOB) WHERE key = {key}")
    rest = records[:3] + records[4:]
    assert store.scan(1, limit=3) + store.scan(1, after=3, limit=3) == rest
    assert store.scan_back(1, 100) == rest[::-1]
    assert store.expired(100) == rest
    reason = f"{tmp_path / DATABASE_NAME}: queue 1, lookup id 0x4: the checksum is wrong"
    assert store.damaged == {Key(1, 4): reason}
    with pytest.raises(CorruptRecord, match=re.escape(reason)):
        store.get(1, 4)
    store.commit([Batch(deletes={Key(1, 4)})])  # the one way to be rid of it
    assert store.damaged == {}
    assert store.scan(1) == rest


def test_damaged_state_is_named_and_the_rest_stays_readable(store: LayeredStore, tmp_path: Path) -> None:
    store.commit([Batch(state={"a": b"1", "b": b"2", "c": b"3"})])
    settle(store)
    sql(tmp_path, "UPDATE state SET value = x'ff' WHERE name = 'b'")
    assert store.state() == {"a": b"1", "c": b"3"}
    assert store.damaged == {"b": f"{tmp_path / DATABASE_NAME}: state 'b': the checksum is wrong"}
    store.commit([Batch(state={"b": b"whole again"})])
    assert store.damaged == {}
    assert store.state("b") == {"b": b"whole again"}


def test_a_damaged_page_is_named_and_other_pages_stay_readable(tmp_path: Path) -> None:
    store = LayeredStore(tmp_path)
    store.commit([put(*(record(number, bytes(1000), queue) for queue in (1, 2) for number in range(100)))])
    store.close()
    content = bytearray((tmp_path / DATABASE_NAME).read_bytes())
    connection = apsw.Connection(str(tmp_path / DATABASE_NAME))
    last = connection.execute("SELECT max(pageno) FROM dbstat WHERE name = 'message' AND pagetype = 'leaf'").get
    connection.close()
    start = (last - 1) * 8192
    content[start : start + 8192] = bytes(8192)
    (tmp_path / DATABASE_NAME).write_bytes(content)
    store = LayeredStore(tmp_path)
    assert len(store.scan(1, limit=1000)) == 100
    with pytest.raises(
        StorageError, match=r"store\.sqlite: reading failed: the file is damaged; stop the manager, keep a copy"
    ):
        store.scan(2, limit=1000)
    store.commit([put(record(200, queue=1))])
    assert len(store.scan(1, limit=1000)) == 101
    store.close()
