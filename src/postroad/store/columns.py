"""Reads many records in one step of SQLite, without the interpreter's lock and without row objects.

A reader that finds damage raises Suspicious. Then sqlite.py reads row by row.
"""

from __future__ import annotations

import json
from itertools import islice
from struct import Struct
from typing import Any
from zlib import crc32

import apsw

from postroad.store.interface import Columns
from postroad.store.row import MAX_KEY, unpack_key

# As in the walks, there is no upper end in SQL: a record with a damaged key must not pass for the end of its range.
_PAGE = "FROM message WHERE key >= ?1 ORDER BY key LIMIT ?3"
# A record as 64 bytes, written as hexadecimal digits, which `unhex` packs. The size of what is behind the range, or is
# no blob, is -1.
NUMBERS = f"""
SELECT unhex(group_concat(printf('%016x%016x%016x%016x%016x%016x%016x%08x%08x',
    ((key >> 44 & 7) << 56) | (key & 17592186044415), size, arrived_ms, expires_s, aborts, reason,
    key, key_checksum, checksum), ''))
FROM (
    SELECT key, key_checksum, arrived_ms, expires_s, aborts, reason, checksum,
        CASE WHEN key <= ?2 AND typeof(packet) = 'blob' THEN length(packet) ELSE -1 END AS size
    {_PAGE}
)"""
PACKETS = "SELECT CAST(group_concat(packet, '') AS BLOB) FROM message WHERE key BETWEEN ?1 AND ?2"
KEYS = f"SELECT json_group_array(key), json_group_array(key_checksum) FROM (SELECT key, key_checksum {_PAGE})"
BEFORE = "SELECT key, key_checksum FROM message WHERE key <= ?1 ORDER BY key DESC LIMIT 1"

# Lookup id, size, what the checksum covers before the packet, the key, its checksum and that of the row.
_RECORD = Struct(">qq32s8sII")
_KEY = Struct(">q")


class Suspicious(Exception):
    """For this package only: some data is damaged."""


def read_columns(connection: apsw.Connection, low: int, high: int, limit: int, most_bytes: int) -> Columns:
    """Up to `limit` records with low <= key <= high, and at most `most_bytes` of packets, but at least one record."""
    # One more than wanted: the first behind the range, or behind this page, shows that the page is whole.
    (numbers,) = _row(connection, NUMBERS, (low, high, limit + 1))
    numbers = numbers or b""
    if len(numbers) % _RECORD.size:
        raise Suspicious
    records = list(_RECORD.iter_unpack(numbers))
    _check_before(connection, low, _KEY.unpack(records[0][3])[0] if records else None)
    count = _fitting(records, low, high, limit, most_bytes)
    if not count:
        return Columns(b"", b"")
    (first,), (last,) = _KEY.unpack(records[0][3]), _KEY.unpack(records[count - 1][3])
    (packets,) = _row(connection, PACKETS, (first, last))
    _check_packets(records, count, packets or b"")
    return Columns(numbers[: count * _RECORD.size], packets or b"")


def read_lookup_ids(connection: apsw.Connection, low: int, high: int, limit: int) -> list[int]:
    """The lookup ids of up to `limit` records with low <= key <= high; their packets are not looked at."""
    keys, checksums = map(json.loads, _row(connection, KEYS, (low, high, limit + 1)))
    _check_before(connection, low, keys[0] if keys else None)
    found: list[int] = []
    last = low - 1
    for key, checksum in zip(keys, checksums, strict=True):
        if key <= last or crc32(_KEY.pack(key)) != checksum:
            raise Suspicious
        if key > high or len(found) == limit:
            break
        found.append(unpack_key(key).lookup_id)
        last = key
    return found


def _row(connection: apsw.Connection, sql: str, parameters: tuple[int, ...]) -> Any:
    return connection.execute(sql, parameters).fetchone()


def _check_before(connection: apsw.Connection, low: int, first: int | None) -> None:
    """Whether a damaged key made the search skip records of the range. If it did not, the record before `first` is
    sound and outside the range."""
    before = _row(connection, BEFORE, (MAX_KEY if first is None else first - 1,))
    if before is not None and (before[0] >= low or crc32(_KEY.pack(before[0])) != before[1]):
        raise Suspicious


def _fitting(records: list[Any], low: int, high: int, limit: int, most_bytes: int) -> int:
    """How many of the first records are in the range and make up about `most_bytes`. Their keys, and that of the one
    behind them, are as they were written."""
    last, total = low - 1, 0
    for count, (_, size, _, packed, key_checksum, _) in enumerate(records):
        (key,) = _KEY.unpack(packed)
        if key <= last or crc32(packed) != key_checksum:
            raise Suspicious
        if key > high or count == limit or (count and total + size > most_bytes):
            return count
        if size < 0:
            raise Suspicious
        last = key
        total += size
    return len(records)


def _check_packets(records: list[Any], count: int, packets: bytes) -> None:
    view = memoryview(packets)
    at = 0
    for _, size, head, _, key_checksum, checksum in islice(records, count):
        stop = at + size
        if crc32(view[at:stop], crc32(head, key_checksum)) != checksum:
            raise Suspicious
        at = stop
    if at != len(packets):
        raise Suspicious
