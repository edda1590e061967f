"""A backup of a running manager: its store at one moment and its private keys, as a stream of bytes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from postroad.errors import SharingViolation, StorageError
from postroad.manager.keys import KEY_FILE, KEYS_STATE
from postroad.runtime.version import __version__
from postroad.store.backup import failure, write_backup
from postroad.store.interface import Snapshot

if TYPE_CHECKING:
    from postroad.manager.manager import Manager

log = logging.getLogger(__name__)


class Backups:
    """Makes one backup at a time, because the store cannot shorten SQLite's log while a backup is read."""

    def __init__(self, manager: Manager) -> None:
        self._manager = manager
        self._running: Backup | None = None

    async def begin(self) -> Backup:
        """A backup of this moment. The caller reads it and closes it."""
        if self._running is not None:
            raise SharingViolation("another backup of this manager is running; wait until it has ended")
        manager = self._manager
        head = {
            "name": manager.name,
            "id": str(manager.identifier),
            "made_at": datetime.fromtimestamp(manager.clock(), UTC).isoformat(timespec="seconds"),
            "version": __version__,
        }
        self._running = backup = Backup(manager.store.no_room, head, self._end)
        try:
            files = await asyncio.to_thread(self._files)
            backup.open(await asyncio.to_thread(manager.store.snapshot), files)
        except BaseException:
            backup.close()
            raise
        return backup

    def _files(self) -> dict[str, bytes]:
        keys = self._manager.keys.backup()
        return {} if keys is None else {KEY_FILE: keys}

    def _end(self) -> None:
        self._running = None


class Backup:
    """One backup under way. A separate thread reads the store and closes the snapshot."""

    def __init__(self, no_room: Callable[[], str | None], head: dict[str, str], ended: Callable[[], None]) -> None:
        self._no_room = no_room
        self._head = head
        self._ended = ended
        self._thread = ThreadPoolExecutor(1, "postroad-backup")
        self._snapshot: Snapshot | None = None
        self._files: dict[str, bytes] = {}

    def open(self, snapshot: Snapshot, files: dict[str, bytes]) -> None:
        self._snapshot, self._files = snapshot, files

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """The content of the file. If the store cannot be read to the end, the last piece says why."""
        assert self._snapshot is not None
        loop = asyncio.get_running_loop()
        found = write_backup(self._snapshot, self._head, self._files, frozenset({KEYS_STATE}))
        try:
            while (piece := await loop.run_in_executor(self._thread, next, found, None)) is not None:
                if (full := self._no_room()) is not None:
                    raise StorageError(f"while a backup runs, the store needs more space: {full}")
                yield piece
        except StorageError as error:
            log.error("backup failed", extra={"reason": error})
            yield failure(str(error))

    def close(self) -> None:
        """Ends the backup. A second call does nothing."""
        snapshot, self._snapshot = self._snapshot, None
        if snapshot is not None:
            self._thread.submit(snapshot.close)
        self._thread.shutdown(wait=False)
        self._ended()
