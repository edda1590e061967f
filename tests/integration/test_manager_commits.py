"""Commits of a running manager with a store on disk: which thread makes them, and the effect of a failing disk."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Iterable
from pathlib import Path

import pytest

from postroad.config import default_configuration
from postroad.errors import StorageError
from postroad.manager import build_manager
from postroad.message import Message
from postroad.store import Batch, LayeredStore
from postroad.store.journal import DirectoryFiles
from postroad.store.layered import SHORT_BYTES
from postroad.store.writer import Writer
from tests.torture.vfs import fast_directory

QUEUE = r"private$\orders"
ALL_QUICK_S = 3600.0


class Disk(DirectoryFiles):
    """Fails the next write if it is told to."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.fails = False

    def write(self, name: str, offset: int, data: bytes) -> None:
        if self.fails:
            self.fails = False
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().write(name, offset, data)


class WatchedStore(LayeredStore):
    """Remembers who committed."""

    def __init__(self, directory: Path) -> None:
        self.journal_disk = Disk(directory)
        self.threads: list[threading.Thread] = []
        super().__init__(directory, files=self.journal_disk)

    def commit(self, batches: Iterable[Batch]) -> None:
        self.threads.append(threading.current_thread())
        super().commit(batches)


def message(body: bytes) -> Message:
    return Message(body, recoverable=True)


def test_a_lone_small_commit_needs_no_other_thread_and_a_large_one_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("postroad.store.writer.QUICK_S", ALL_QUICK_S)

    async def run(directory: Path) -> None:
        store = WatchedStore(directory)
        manager = build_manager(default_configuration("alpha"), store)
        await manager.start()
        await manager.create_queue(QUEUE)
        bodies = [b"a", b"b", bytes(SHORT_BYTES), b"c"]
        here = []
        for body in bodies:
            assert isinstance(manager._committer, Writer)
            with manager._committer._turn:  # the thread tidies after a large one
                store.threads.clear()
            await manager.send(QUEUE, [message(body)])
            here += [thread is threading.current_thread() for thread in store.threads]
        assert here == [True, True, False, True]
        assert [each.body for each in await manager.reads.receive(QUEUE, count=9)] == bodies
        await manager.stop()

    with fast_directory() as directory:
        asyncio.run(run(directory / "data"))


def test_a_disk_that_fails_a_commit_of_the_event_loop_fails_that_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("postroad.store.writer.QUICK_S", ALL_QUICK_S)

    async def run(directory: Path) -> None:
        store = WatchedStore(directory)
        manager = build_manager(default_configuration("alpha"), store)
        await manager.start()
        await manager.create_queue(QUEUE)
        await manager.send(QUEUE, [message(b"a")])
        assert isinstance(manager._committer, Writer)
        with manager._committer._turn:  # the thread looks for something to tidy
            store.threads.clear()
        store.journal_disk.fails = True
        with pytest.raises(StorageError, match="the disk reported an error"):
            await manager.send(QUEUE, [message(b"b")])
        assert store.threads == [threading.current_thread()]
        assert manager.storage_error is not None
        await asyncio.gather(*(manager.send(QUEUE, [message(body)]) for body in (b"c", b"d")))
        assert manager.storage_error is None
        assert [each.body for each in await manager.reads.receive(QUEUE, count=9)] == [b"a", b"c", b"d"]
        await manager.stop()
        again = LayeredStore(directory)
        assert again.scan(manager.core.queues.get(QUEUE).number) == []
        again.close()

    with fast_directory() as directory:
        asyncio.run(run(directory / "data"))
