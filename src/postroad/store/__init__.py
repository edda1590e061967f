"""Durable state behind one small interface. Other rooms import from here, and from nowhere deeper."""

from __future__ import annotations

from pathlib import Path

from postroad.store.interface import (
    MAX_ARRIVAL,
    MAX_QUEUE,
    NEVER,
    PRIORITY_SHIFT,
    Batch,
    Key,
    Record,
    Store,
)
from postroad.store.memory import MemoryStore
from postroad.store.sqlite import SqliteStore
from postroad.store.writer import Writer

__all__ = [
    "MAX_ARRIVAL",
    "MAX_QUEUE",
    "NEVER",
    "PRIORITY_SHIFT",
    "Batch",
    "Key",
    "MemoryStore",
    "Record",
    "SqliteStore",
    "Store",
    "Writer",
    "open_store",
]


def open_store(path: str | Path, *, reserve: bool = False) -> Store:
    """The store in a data directory, which is made if need be, or ":memory:". Raises StorageError with the reason.

    With `reserve` it keeps room on the disk, so that messages can be taken out of a full one.
    """
    return MemoryStore() if str(path) == ":memory:" else SqliteStore(Path(path), reserve=reserve)
