"""The rows of a store's database: keys, columns and checksums, the same in SQLite and in PostgreSQL. No I/O here."""

from __future__ import annotations

import struct
from struct import Struct
from typing import Any, NamedTuple
from zlib import crc32

from postroad.errors import CorruptRecord
from postroad.store.interface import (
    ARRIVAL_MASK,
    MAX_ARRIVAL,
    MAX_QUEUE,
    PRIORITY_MASK,
    PRIORITY_SHIFT,
    Key,
    Record,
    check_key,
)

# A row: key, key_checksum, arrived_ms, expires_s, aborts, reason, checksum, packet. The checksums detect every flipped
# bit. In a damaged row, any column can have any type.
Row = tuple[Any, ...]
ROW_WIDTH = 8

QUEUE_SHIFT = 47
PACKED_PRIORITY_SHIFT = 44
MAX_KEY = (1 << 63) - 1
MIN_KEY = -(1 << 63)  # never made here, but a flipped bit can

PACKED_KEY = Struct(">q")
_HEAD = Struct(">qqqq")
_MARK = Struct(">qq")


def pack_key(queue: int, lookup_id: int) -> int:
    """The integer that orders records by queue, then by lookup id. Raises ValueError if one of them is out of range."""
    check_key(queue, lookup_id)
    return queue << QUEUE_SHIFT | lookup_id >> PRIORITY_SHIFT << PACKED_PRIORITY_SHIFT | lookup_id & MAX_ARRIVAL


def unpack_key(key: int) -> Key:
    """The inverse of `pack_key`. For a damaged key, returns some key that `pack_key` accepts."""
    priority = key >> PACKED_PRIORITY_SHIFT & PRIORITY_MASK
    return Key(key >> QUEUE_SHIFT & MAX_QUEUE, priority << PRIORITY_SHIFT | key & MAX_ARRIVAL)


def to_row(record: Record) -> Row:
    """The row of a record, with its checksums."""
    queue, lookup_id, arrived_ms, expires_s, aborts, packet, reason = record
    key = pack_key(queue, lookup_id)
    key_checksum = crc32(PACKED_KEY.pack(key))
    checksum = crc32(packet, crc32(_HEAD.pack(arrived_ms, expires_s, aborts, reason), key_checksum))
    return key, key_checksum, arrived_ms, expires_s, aborts, reason, checksum, packet


def key_is_sound(row: Row) -> bool:
    """Whether the key is as it was written. A damaged key does not tell where its queue ends."""
    return bool(row[1] == crc32(PACKED_KEY.pack(row[0])))


def from_row(row: Row) -> Record:
    """The record of a row with a sound key. Raises CorruptRecord if the checksum is wrong."""
    key, key_checksum, arrived_ms, expires_s, aborts, reason, checksum, packet = row
    queue, lookup_id = unpack_key(key)
    try:
        actual = crc32(packet, crc32(_HEAD.pack(arrived_ms, expires_s, aborts, reason), key_checksum))
    except (struct.error, TypeError):  # a flipped bit in the row's header can change the types of columns
        actual = None
    if checksum != actual:
        raise CorruptRecord(f"queue {queue}, lookup id {lookup_id:#x}: the checksum is wrong")
    return Record(queue, lookup_id, arrived_ms, expires_s, aborts, packet, reason)


def state_checksum(name: bytes, value: bytes) -> int:
    """The checksum of a state value, bound to its name."""
    return crc32(value, crc32(name))


def last_key(queue: int, lookup_id: int) -> int:
    """The greatest key of the queue with a lookup id of at most `lookup_id`, or one below the queue's first key.
    Accepts any lookup id, even one that no record can have."""
    if not 0 <= queue <= MAX_QUEUE:
        raise ValueError(f"queue {queue}: the number is out of range")
    if lookup_id < 0:
        return (queue << QUEUE_SHIFT) - 1
    priority = lookup_id >> PRIORITY_SHIFT
    if priority > PRIORITY_MASK:
        return (queue + 1 << QUEUE_SHIFT) - 1
    return queue << QUEUE_SHIFT | priority << PACKED_PRIORITY_SHIFT | min(lookup_id & ARRIVAL_MASK, MAX_ARRIVAL)


class Mark(NamedTuple):
    """How much of the journal is in the database: the last generation there, and the greatest arrival number there."""

    spilled: int
    newest: int

    @property
    def checksum(self) -> int:
        return crc32(_MARK.pack(*self))
