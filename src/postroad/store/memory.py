"""A store in memory, with the same interface: for express messages and for users' tests.

Nothing here survives the process or uses a disk.
"""

from __future__ import annotations

from threading import Lock

from postroad.store.express import ExpressStore
from postroad.store.interface import Post
from postroad.store.writer import Writer


class MemoryStore(ExpressStore):
    """A Store in memory that the thread of a Writer and others may use."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = Lock()  # a reader in another thread sees whole batches only

    def committer(self, post: Post) -> Writer:
        return Writer(self, post)
