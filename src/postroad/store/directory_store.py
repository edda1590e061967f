"""The durable store in a data directory: a journal in files, and an SQLite database."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path

from postroad.errors import StorageError
from postroad.store.data_directory import incomplete
from postroad.store.database import CHECKPOINT_PAGES
from postroad.store.frames import Body
from postroad.store.interface import MAX_ARRIVAL, Batch, Pair, Post, Record
from postroad.store.journal import SEGMENT_BYTES, DirectoryFiles, Files, Journal, explain, explained
from postroad.store.journal_replay import replay
from postroad.store.layered import BULK, HALF, SHORT_BYTES, Layers, is_cold
from postroad.store.rows import Mark
from postroad.store.snapshot import StoreSnapshot
from postroad.store.space import disk_use
from postroad.store.sqlite import KEPT_FREE_PAGES, SqliteStore
from postroad.store.writer import Writer

SHARE = 16  # on a small disk, a segment is at most 1/16 of it
MIN_SEGMENT_BYTES = 1 << 16


class LayeredStore(Layers[Journal, SqliteStore]):
    """A Store in `directory`, which it creates if needed and locks for this process until `close`.

    A commit that raises StorageError has changed nothing, and the next one works once the cause is gone. There is one
    exception: if the disk fails during the sync of a commit, and the power fails before the next commit, the whole
    batch may be there after the restart.

    With `reserve`, it reserves disk space, and frees it for a commit that finds no space. The other arguments are for
    tests: those of SqliteStore, the journal's files and their size.
    """

    def __init__(
        self,
        directory: Path,
        *,
        reserve: bool = False,
        vfs: str | None = None,
        checkpoint_pages: int = CHECKPOINT_PAGES,
        kept_free_pages: int = KEPT_FREE_PAGES,
        files: Files | None = None,
        segment_bytes: int = SEGMENT_BYTES,
    ) -> None:
        database = SqliteStore(
            directory, reserve=reserve, vfs=vfs, checkpoint_pages=checkpoint_pages, kept_free_pages=kept_free_pages
        )
        self._space = database.space
        self.no_room = self._space.look
        try:
            journal = Journal(files or DirectoryFiles(directory), directory, _fitting(segment_bytes, directory))
            if database.was_open() and (missing := journal.missing()):
                database.keep_log()  # otherwise the next start would miss that damage
                raise incomplete(directory / missing[0])
            replayed = replay(journal, database, directory)
            with suppress(StorageError, OSError):  # on a full disk, the store must still open
                self._space.with_room(journal.create)
                database.set_open(True)
        except BaseException:
            database.close()
            raise
        super().__init__(journal, database, replayed)

    def committer(self, post: Post) -> Writer:
        return Writer(self, post)

    def is_short(self, batch: Batch) -> bool:
        """Whether the commit is a write to the journal that fits into the active segment, while no part of the frozen
        layer is due to move."""
        if len(batch.deletes) + len(batch.puts) >= BULK:
            return False
        size = sum(len(record.packet) for record in batch.puts.values())
        size += sum(len(name) + len(value or b"") for name, value in batch.state.items())
        return (
            size <= SHORT_BYTES
            and self._journal.has_blocks(2 * SHORT_BYTES)  # numbers and keys take less than packets do
            and self._fill() < (1.0 if self._overlay.frozen is None else HALF)
        )

    def _write(self, deletes: Collection[Pair], puts: Mapping[Pair, Record], state: Mapping[str, bytes | None]) -> None:
        if self._bulk.takes(deletes, puts) or is_cold(deletes, puts, self._overlay):
            self._write_through(deletes, puts, state)
        else:
            super()._write(deletes, puts, state)

    def _append(self, body: Body) -> None:
        try:
            try:
                super()._append(body)
            except OSError as error:
                if not self._space.make(error, body.packet_bytes):
                    raise
                super()._append(body)
        except OSError as error:
            raise explain(self._journal.file, "writing", error) from error

    def _write_through(
        self, deletes: Collection[Pair], puts: Mapping[Pair, Record], state: Mapping[str, bytes | None]
    ) -> None:
        """Commits to the database, after emptying the journal, which is read on top of the database."""
        self._empty_journal()
        newest = max(self._overlay.newest, max((key[1] & MAX_ARRIVAL for key in puts), default=0))
        with self._lock:
            self._gaps.clear()
            self._keeps_gaps = False
        try:
            self._database.write(deletes, puts, state, Mark(self._spilled, newest))
            self._overlay.newest = newest
        finally:
            self._keeps_gaps = True

    def _empty_journal(self) -> None:
        """Moves everything into the database."""
        self._heal()
        if self._journal.position:  # even if all its records are deleted: it must not be read again
            self._rotate()
        if self._overlay.frozen is not None:
            self._move_all()

    def _rotate(self) -> None:
        self._heal()
        super()._rotate()

    def _heal(self) -> None:
        with explained(self._journal.file, "writing"):
            self._space.with_room(self._journal.heal)

    def _move_all(self) -> None:
        try:
            super()._move_all()
        except StorageError as error:
            if not self._space.make(error.__cause__):
                raise
            super()._move_all()

    def disk_use(self) -> Mapping[str, int]:
        return disk_use(self._database.file)

    def tidy(self, *, busy: bool = False) -> bool:
        try:
            if super().tidy(busy=busy) or busy:
                return True
        except StorageError as error:
            return self._space.make(error.__cause__)  # nothing is lost, and the next try comes soon
        return self._database.tidy()

    def close(self) -> None:
        """Moves everything into the database, closes it and frees the directory. A second call does nothing."""
        if self._closed:
            return
        self._closed = True
        try:
            with suppress(StorageError):  # the next start reads what stays in the journal
                self._empty_journal()
                self._database.set_open(False)
                self._journal.remove()
            self._journal.close()
        finally:
            self._database.close()

    def snapshot(self) -> StoreSnapshot:
        with self._lock:
            hot, state = self._hot()
            source = self._database.snapshot()
        return StoreSnapshot(source, hot, state, len(self._damaged))


def _fitting(segment_bytes: int, directory: Path) -> int:
    """The size of a segment on this disk."""
    return min(segment_bytes, max(shutil.disk_usage(directory).total // SHARE, MIN_SEGMENT_BYTES))
