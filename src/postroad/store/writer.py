"""The thread that commits: it takes all waiting batches and makes them durable together.

Knows no queues and no event loop: each batch comes with a function that hears how it ended.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from queue import Empty, SimpleQueue
from threading import Lock, Thread

from postroad.errors import StorageError
from postroad.store.interface import Batch, Store

log = logging.getLogger(__name__)

IDLE_S = 1.0  # after so long without a batch, the thread tidies the store
STEP_S = 0.02  # between two steps of that

Done = Callable[[Exception | None], object]


class Writer:
    """Commits batches in the order they were submitted, in as few transactions as the disk allows.

    Batches that wait together are committed together and fail together. A failure does not affect later batches.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._inbox: SimpleQueue[tuple[Batch, Done] | None] = SimpleQueue()  # None only wakes the thread
        self._group: list[tuple[Batch, Done]] = []  # what is being committed
        self._lock = Lock()  # nothing is submitted behind the end
        self._closing = False
        self._urgent = False
        self._pause: float | None = IDLE_S  # until the next step; None where there is nothing to tidy up
        self._thread = Thread(target=self._run, name="postroad-writer", daemon=True)
        self._thread.start()

    def submit(self, batch: Batch, done: Done) -> None:
        """Calls `done` when the batch is durable, with None, or with the StorageError. Usually on another thread."""
        with self._lock:
            if not self._closing:
                self._inbox.put((batch, done))
                return
        done(StorageError("the store is closed"))

    def close(self) -> None:
        """Commits what waits, then ends the thread. The store stays open."""
        with self._lock:
            self._closing = True
            self._inbox.put(None)
        self._thread.join()

    def tidy(self) -> None:
        """A step now: the disk is full."""
        self._urgent = True
        self._inbox.put(None)

    def _run(self) -> None:
        """Reports every failure to the submitters and goes on: without this thread nothing can be stored."""
        while True:
            try:
                self._commit_all()
                return
            except BaseException as error:
                log.exception("store writer failed")
                self._end_group(StorageError(f"the store's writer failed: {error!r}"))

    def _commit_all(self) -> None:
        while not (self._closing and self._inbox.empty()):
            self._gather()
            urgent, self._urgent = self._urgent, False
            if urgent or not (self._group or self._closing):
                self._pause = STEP_S if self._store.tidy() else None
            if not self._group:
                continue
            self._pause = IDLE_S
            try:
                self._store.commit([batch for batch, _ in self._group])
            except Exception as error:
                self._end_group(error)
            else:
                self._end_group(None)
                self._store.tidy(busy=True)

    def _gather(self) -> None:
        """Waits for a batch, or for something else to do, and takes all batches that are there."""
        try:
            first = self._inbox.get(timeout=self._pause)
        except Empty:
            return
        if first is not None:
            self._group.append(first)
        while not self._inbox.empty():
            item = self._inbox.get()
            if item is not None:
                self._group.append(item)

    def _end_group(self, error: Exception | None) -> None:
        group, self._group = self._group, []
        for _, done in group:
            try:
                done(error)
            except Exception:  # the others have to hear it too
                log.exception("a store writer's listener failed")
