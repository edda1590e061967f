"""A disk that fails or loses power. It reports every change of a file to a model of what is durable."""

from __future__ import annotations

import errno
import os
import random
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

import apsw

from postroad.store.journal import DirectoryFiles

SECTOR = 512  # what a disk writes whole; a write of more can be torn at its edges


class Kind(Enum):
    CREATE = "create"
    WRITE = "write"
    TRUNCATE = "truncate"
    SYNC = "sync"
    DELETE = "delete"
    SYNC_DIRECTORY = "sync directory"
    MARK = "mark"  # not the disk's: the workload notes what it was promised


COUNTED = (Kind.WRITE, Kind.TRUNCATE, Kind.SYNC, Kind.DELETE)  # the operations that a sweep fails one by one


class Operation(NamedTuple):
    kind: Kind
    name: str = ""
    offset: int = 0  # of a write; the size of a truncate; the number of a mark
    data: bytes = b""


class Loss(Enum):
    """What a power cut does with all that was not synced."""

    ALL = "dropped"
    NONE = "kept"  # the process dies, the system lives on
    SOME = "reordered and torn"  # each change by itself: kept, dropped, or kept in some of its sectors


@dataclass(slots=True)
class _File:
    durable: bytearray = field(default_factory=bytearray)
    unsynced: list[Operation] = field(default_factory=list)
    syncs_directory: bool = False  # SQLite's Unix VFS syncs the directory with the first sync of a new log or journal


@dataclass(slots=True)
class Disk:
    """One directory: which names and bytes would survive a power cut now, and which might."""

    names: dict[str, _File] = field(default_factory=dict)  # as the process sees them
    durable_names: dict[str, _File] = field(default_factory=dict)
    unsynced_names: list[tuple[str, _File | None]] = field(default_factory=list)  # created, or None: deleted
    log: list[Operation] = field(default_factory=list)

    @classmethod
    def holding(cls, files: dict[str, bytes]) -> Disk:
        """A disk with these files, durable."""
        names = {name: _File(bytearray(content)) for name, content in files.items()}
        return cls(names, dict(names))

    def apply(self, operation: Operation) -> None:
        self.log.append(operation)
        kind, name, _, _ = operation
        if kind is Kind.CREATE:
            file = _File(syncs_directory=name.endswith(("-wal", "-journal")))
            self.names[name] = file
            self.unsynced_names.append((name, file))
        elif kind is Kind.DELETE:
            del self.names[name]
            self.unsynced_names.append((name, None))
        elif kind in (Kind.WRITE, Kind.TRUNCATE):
            self.names[name].unsynced.append(operation)
        elif kind is Kind.SYNC:
            file = self.names[name]
            for change in file.unsynced:
                _change(file.durable, change)
            file.unsynced.clear()
            if file.syncs_directory:
                self._sync_directory()
                file.syncs_directory = False
        elif kind is Kind.SYNC_DIRECTORY:
            self._sync_directory()

    def after_power_cut(self, loss: Loss, seed: int = 0) -> dict[str, bytes]:
        """The files that the next start finds."""
        chance = random.Random(seed)
        names = dict(self.durable_names)
        for name, file in self.unsynced_names:
            if loss is Loss.NONE or (loss is Loss.SOME and chance.random() < 0.5):
                if file is None:
                    names.pop(name, None)
                else:
                    names[name] = file
        return {name: bytes(_survivor(file, loss, chance)) for name, file in names.items()}

    def _sync_directory(self) -> None:
        self.durable_names = dict(self.names)
        self.unsynced_names.clear()


def _survivor(file: _File, loss: Loss, chance: random.Random) -> bytearray:
    content = bytearray(file.durable)
    for change in file.unsynced:
        fate = {Loss.ALL: "drop", Loss.NONE: "keep"}.get(loss) or chance.choice(("keep", "drop", "tear"))
        if fate == "keep" or (fate == "tear" and change.kind is Kind.TRUNCATE):
            _change(content, change)
        elif fate == "tear":
            for sector in _sectors(change):
                if chance.random() < 0.5:
                    _change(content, sector)
    return content


def _sectors(write: Operation) -> Iterator[Operation]:
    place = write.offset
    end = write.offset + len(write.data)
    while place < end:
        edge = min(end, (place // SECTOR + 1) * SECTOR)
        yield write._replace(offset=place, data=write.data[place - write.offset : edge - write.offset])
        place = edge


def _change(content: bytearray, change: Operation) -> None:
    if change.kind is Kind.TRUNCATE:
        del content[change.offset :]
        return
    if len(content) < change.offset:
        content.extend(bytes(change.offset - len(content)))
    content[change.offset : change.offset + len(change.data)] = change.data


@dataclass(slots=True)
class Fault:
    """The `at`-th counted operation (from 0) raises `error`. With `lasting`, so does every later one."""

    at: int
    error: type[apsw.Error] = apsw.IOError
    lasting: bool = False


class TortureVFS(apsw.VFS):
    """SQLite's own VFS, with a Disk that watches and a Fault. The files really are written."""

    def __init__(self, name: str = "torture") -> None:
        super().__init__(name, "")
        self.vfs_name = name
        self.disk = Disk()
        self.fault: Fault | None = None
        self.count = 0
        self.read_bytes = 0

    def strike(self, kind: Kind) -> bool:
        """Counts an operation. Returns whether it fails."""
        assert kind in COUNTED
        number = self.count
        self.count += 1
        fault = self.fault
        return fault is not None and (number == fault.at or (fault.lasting and number > fault.at))

    def error(self) -> apsw.Error:
        assert self.fault is not None
        return self.fault.error("the torture disk says no")

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        if name is None:
            return apsw.VFSFile("", name, flags)
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        is_new = not os.path.exists(path)
        file = TortureFile(self, path, name, flags)
        if is_new and os.path.exists(path):
            self.disk.apply(Operation(Kind.CREATE, os.path.basename(path)))
        return file

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802
        if self.strike(Kind.DELETE):
            raise self.error()
        super().xDelete(filename, syncdir)
        self.disk.apply(Operation(Kind.DELETE, os.path.basename(filename)))
        if syncdir:
            self.disk.apply(Operation(Kind.SYNC_DIRECTORY))

    def excepthook(
        self, etype: type[BaseException] | None, evalue: BaseException | None, etraceback: TracebackType | None
    ) -> bool:
        return isinstance(evalue, apsw.Error)  # a failure of ours that SQLite ignores, as it should, is not news


class TortureFile(apsw.VFSFile):
    def __init__(self, vfs: TortureVFS, path: str, name: str | apsw.URIFilename, flags: list[int]) -> None:
        super().__init__("", name, flags)
        self._vfs = vfs
        self._name = os.path.basename(path)

    def xRead(self, amount: int, offset: int) -> bytes:  # noqa: N802
        self._vfs.read_bytes += amount
        return super().xRead(amount, offset)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        data = bytes(data)
        fails = self._vfs.strike(Kind.WRITE)
        if fails:
            data = data[: len(data) // 2]  # a full disk takes what still fits
        if data:
            super().xWrite(data, offset)
            self._vfs.disk.apply(Operation(Kind.WRITE, self._name, offset, data))
        if fails:
            raise self._vfs.error()

    def xTruncate(self, newsize: int) -> None:  # noqa: N802
        if self._vfs.strike(Kind.TRUNCATE):
            raise self._vfs.error()
        super().xTruncate(newsize)
        self._vfs.disk.apply(Operation(Kind.TRUNCATE, self._name, newsize))

    def xSync(self, flags: int) -> None:  # noqa: N802
        if self._vfs.strike(Kind.SYNC):
            raise self._vfs.error()
        self._vfs.disk.apply(Operation(Kind.SYNC, self._name))  # the model alone: the real disk keeps its power

    def excepthook(
        self, etype: type[BaseException] | None, evalue: BaseException | None, etraceback: TracebackType | None
    ) -> bool:
        return isinstance(evalue, apsw.Error)


_ERRNO: dict[type[apsw.Error], int] = {apsw.FullError: errno.ENOSPC, apsw.ReadOnlyError: errno.EROFS}


class TortureFiles(DirectoryFiles):
    """The files of the journal on the same disk, with the same faults."""

    def __init__(self, directory: Path, vfs: TortureVFS) -> None:
        super().__init__(directory)
        self._vfs = vfs

    def error(self) -> OSError:
        return OSError(_ERRNO.get(type(self._vfs.error()), errno.EIO), "the torture disk says no")

    def open(self, name: str) -> int:
        is_new = not (self.directory / name).exists()
        descriptor = super().open(name)
        if is_new:
            self._vfs.disk.apply(Operation(Kind.CREATE, name))
        return descriptor

    def put(self, name: str, descriptor: int, offset: int, data: bytes) -> None:
        fails = self._vfs.strike(Kind.WRITE)
        if fails:
            data = data[: len(data) // 2]
        super().put(name, descriptor, offset, data)
        self._vfs.disk.apply(Operation(Kind.WRITE, name, offset, data))
        if fails:
            raise self.error()

    def sync(self, name: str, descriptor: int) -> None:
        if self._vfs.strike(Kind.SYNC):
            raise self.error()
        self._vfs.disk.apply(Operation(Kind.SYNC, name))

    def sync_names(self) -> None:
        self._vfs.disk.apply(Operation(Kind.SYNC_DIRECTORY))

    def truncate(self, name: str, size: int) -> None:
        if self._vfs.strike(Kind.TRUNCATE):
            raise self.error()
        super().truncate(name, size)
        self._vfs.disk.apply(Operation(Kind.TRUNCATE, name, size))

    def remove(self, name: str) -> None:
        if self._vfs.strike(Kind.DELETE):
            raise self.error()
        if (self.directory / name).exists():
            self._vfs.disk.apply(Operation(Kind.DELETE, name))
        super().remove(name)


@contextmanager
def torture_vfs(name: str = "torture") -> Iterator[TortureVFS]:
    vfs = TortureVFS(name)
    try:
        yield vfs
    finally:
        vfs.unregister()


@contextmanager
def fast_directory() -> Iterator[Path]:
    """In memory if the system has such a place: a sweep writes thousands of stores, and its disk is only a model."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as name:
        yield Path(name)


def write_files(directory: Path, files: dict[str, bytes]) -> None:
    """The directory as a power cut left it."""
    directory.mkdir(parents=True)
    for name, content in files.items():
        (directory / name).write_bytes(content)
