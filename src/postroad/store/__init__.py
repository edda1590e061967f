"""Durable state behind one small interface. Other packages import from here only."""

from __future__ import annotations

from pathlib import Path

from postroad.store.directory_store import LayeredStore
from postroad.store.interface import MAX_ARRIVAL, MAX_QUEUE, NEVER, PRIORITY_SHIFT, Batch, Committer, Key, Record, Store
from postroad.store.memory import MemoryStore

__all__ = ["MAX_ARRIVAL", "MAX_QUEUE", "NEVER", "PRIORITY_SHIFT", "Batch", "Committer", "Key", "Record", "Store"]
__all__ += ["LayeredStore", "MemoryStore", "open_store"]


def open_store(path: str | Path, *, reserve: bool = False) -> Store:
    """Opens the store in a data directory, and creates the directory if necessary. ":memory:" is a store in memory.
    Raises StorageError.

    With `reserve`, it reserves disk space, so that messages can be received even when the disk is full.
    """
    return MemoryStore() if str(path) == ":memory:" else LayeredStore(Path(path), reserve=reserve)
