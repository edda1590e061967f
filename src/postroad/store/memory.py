"""A store in memory with the same interface, for express messages and for users' tests.

Nothing here survives the process or uses a disk.
"""

from __future__ import annotations

from threading import Lock

from postroad.store.express import ExpressStore
from postroad.store.interface import Post
from postroad.store.writer import Writer


class MemoryStore(ExpressStore):
    """A Store in memory that a Writer's thread and others may use."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = Lock()  # readers in other threads see only whole batches

    def committer(self, post: Post) -> Writer:
        return Writer(self, post)
