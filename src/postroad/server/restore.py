"""Restores a backup into an empty data directory.

The store is built in a subdirectory and moved to its place at the very end. So an interrupted restore leaves no store
that a manager would start on.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from itertools import islice
from pathlib import Path
from typing import TypeVar

from postroad.errors import StorageError
from postroad.manager.keys import KEY_FILE
from postroad.manager.manager import IDENTITY_STATE
from postroad.queues.tick import COUNTERS_STATE, Counters
from postroad.runtime.private_files import DIRECTORY_MODE, open_private
from postroad.store import Batch, LayeredStore
from postroad.store.backup import BackupReader, Contents, check_backup, record_checksum
from postroad.store.data_directory import LOCK_NAME, DirectoryLock
from postroad.store.database import DATABASE_NAME, make_directory, sync_directory

UNFINISHED = "restoring"  # the subdirectory's name
_IGNORED = frozenset({UNFINISHED, LOCK_NAME, "lost+found"})
_FILES = frozenset({KEY_FILE})  # files that a backup may contain
PAGES = 8  # in one commit

T = TypeVar("T")


def restore(file: Path, directory: Path, progress: Callable[[int, int], object] = lambda done, total: None) -> Contents:
    """Restores a backup. Raises StorageError or OSError, and then leaves no store. Calls `progress` with the messages
    done and the total."""
    contents = check_restorable(file)
    make_directory(directory)
    refuse_full(directory)
    replace_store(directory, lambda inside: _fill(file, inside, contents, progress), contents.files)
    return contents


def check_restorable(file: Path) -> Contents:
    """Reads the whole file. Raises StorageError or OSError."""
    contents = check_backup(file)
    if len(contents.state.get(IDENTITY_STATE, b"")) != 16:
        raise StorageError(f"{file}: is damaged: the id of its manager is missing; use another copy of it")
    if not contents.files.keys() <= _FILES:
        raise StorageError(f"{file}: must be a backup of this version or an earlier one; use a newer Postroad")
    return contents


def replace_store(directory: Path, write: Callable[[Path], T], files: Mapping[str, bytes]) -> T:
    """Makes a store in an empty directory. `write` makes it in a subdirectory; it and the `files` get their places once
    all is there. Raises what `write` raises, and then leaves no store."""
    make_directory(directory)
    lock = DirectoryLock(directory)
    inside = directory / UNFINISHED
    try:
        refuse_full(directory)
        shutil.rmtree(inside, ignore_errors=True)
        inside.mkdir(DIRECTORY_MODE)
        try:
            made = write(inside)
            for name, content in files.items():
                _write(inside / name, content)
                (inside / name).replace(directory / name)
            (inside / DATABASE_NAME).replace(directory / DATABASE_NAME)
            sync_directory(directory)
        finally:
            shutil.rmtree(inside, ignore_errors=True)
    finally:
        lock.close()
    return made


def refuse_full(directory: Path) -> None:
    """Raises StorageError if the directory has files already."""
    found = sorted(path.name for path in islice(directory.iterdir(), 1000) if path.name not in _IGNORED)
    if found:
        what = "a store" if DATABASE_NAME in found else ", ".join(found[:3])
        raise StorageError(f"{directory}: must be empty, and has {what}; choose another directory, or move it away")


def refuse_unfinished(directory: Path) -> None:
    """Raises StorageError if a restore into the directory was interrupted."""
    if (directory / UNFINISHED).is_dir() and not (directory / DATABASE_NAME).exists():
        raise StorageError(
            f"{directory}: a restore was interrupted here; run `postroad restore` again, or remove "
            f"{directory / UNFINISHED} to start empty"
        )


def _fill(file: Path, inside: Path, contents: Contents, progress: Callable[[int, int], object]) -> None:
    store = LayeredStore(inside)
    try:
        done = 0
        with file.open("rb") as stream:
            pages = BackupReader(stream, str(file)).pages()
            while group := [record for page in islice(pages, PAGES) for record in page]:
                store.commit([Batch({(record.queue, record.lookup_id): record for record in group})])
                done += len(group)
                progress(done, contents.records)
        state: dict[str, bytes | None] = {**contents.state}
        if COUNTERS_STATE in contents.state:
            state[COUNTERS_STATE] = Counters.skipped(contents.state[COUNTERS_STATE])
        store.commit([Batch(state=state)])
        snapshot = store.snapshot()
        try:
            found = [record_checksum(record) for page in snapshot.pages() for record in page]
        finally:
            snapshot.close()
    finally:
        store.close()
    if (len(found), sum(found)) != (contents.records, contents.checksum):
        raise StorageError(f"{inside}: the messages are not there as they were written; check the disk, then try again")


def _write(file: Path, content: bytes) -> None:
    with os.fdopen(open_private(file, os.O_WRONLY | os.O_TRUNC), "wb") as opened:
        opened.write(content)
        opened.flush()
        os.fsync(opened.fileno())
