"""A store as it was at one moment, to read while others commit: the database in one transaction, and the journal's
entries that it did not have then.

It reads everything, and not in queue order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import apsw

from postroad.errors import CorruptRecord
from postroad.store.database import explained
from postroad.store.interface import Pair, Record
from postroad.store.rows import from_row, key_is_sound, state_checksum, unpack_key

PAGE_ROWS = 1000
PAGE_BYTES = 1 << 20
_ROWS = "SELECT key, key_checksum, arrived_ms, expires_s, aborts, reason, checksum, packet FROM message ORDER BY key"
_STATE = "SELECT CAST(name AS BLOB), CAST(value AS BLOB), CAST(checksum AS INTEGER) FROM state"


class StoreSnapshot:
    """A Snapshot of a LayeredStore. One thread at a time may use it."""

    def __init__(
        self,
        file: Path,
        connection: apsw.Connection,
        hot: Mapping[Pair, Record | None],
        hot_state: Mapping[str, bytes | None],
        damaged: int,
    ) -> None:
        self.damaged = damaged
        self._file = file
        self._connection = connection
        self._hot = hot
        self._hot_state = hot_state

    def state(self) -> dict[str, bytes]:
        found: dict[str, bytes | None] = {}
        with explained(self._file, "reading"):
            for name, value, checksum in self._connection.execute(_STATE):
                if checksum == state_checksum(name or b"", value or b""):
                    found[name.decode()] = value or b""
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
        with explained(self._file, "reading"):
            for row in self._connection.execute(_ROWS):
                try:
                    if not key_is_sound(row):
                        self.damaged += 1
                    elif unpack_key(row[0]) not in self._hot:
                        yield from_row(row)
                except CorruptRecord:
                    self.damaged += 1
        yield from (record for record in self._hot.values() if record is not None)

    def close(self) -> None:
        self._connection.close()
