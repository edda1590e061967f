"""A store as it was at one moment, to read while others commit: the database in one transaction, and the journal's
entries that it did not have then.

It reads everything, and not in queue order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

from postroad.errors import CorruptRecord
from postroad.store.interface import Pair, Record
from postroad.store.rows import Row, from_row, key_is_sound, state_checksum, unpack_key

PAGE_ROWS = 1000
PAGE_BYTES = 1 << 20


class Source(Protocol):
    """The database as it was at that moment. Every method may raise StorageError."""

    def rows(self) -> Iterator[Row]: ...

    def states(self) -> Iterator[tuple[bytes, bytes, int]]:
        """Names, values and checksums."""

    def close(self) -> None: ...


class StoreSnapshot:
    """A Snapshot of a store with a journal and a database. One thread at a time may use it."""

    def __init__(
        self, source: Source, hot: Mapping[Pair, Record | None], hot_state: Mapping[str, bytes | None], damaged: int
    ) -> None:
        self.damaged = damaged
        self._source = source
        self._hot = hot
        self._hot_state = hot_state

    def state(self) -> dict[str, bytes]:
        found: dict[str, bytes | None] = {}
        for name, value, checksum in self._source.states():
            if checksum == state_checksum(name, value):
                found[name.decode()] = value
            else:
                self.damaged += 1
        found.update(self._hot_state)
        return {name: value for name, value in found.items() if value is not None}

    def pages(self) -> Iterator[list[Record]]:
        page: list[Record] = []
        size = 0
        for record in self._records():
            page.append(record)
            size += len(record.packet)
            if len(page) == PAGE_ROWS or size >= PAGE_BYTES:
                yield page
                page, size = [], 0
        yield page

    def _records(self) -> Iterator[Record]:
        for row in self._source.rows():
            try:
                if not key_is_sound(row):
                    self.damaged += 1
                elif unpack_key(row[0]) not in self._hot:
                    yield from_row(row)
            except CorruptRecord:
                self.damaged += 1
        yield from (record for record in self._hot.values() if record is not None)

    def close(self) -> None:
        self._source.close()
