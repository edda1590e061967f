"""The thread that commits: it takes all waiting batches and makes them durable together.

Knows no queues and no event loop: a Future has the result of each batch.
"""

from __future__ import annotations

import logging
from concurrent.futures import Future
from threading import Condition, Thread

from postroad.errors import StorageError
from postroad.store.interface import Batch, Store

log = logging.getLogger(__name__)

IDLE_S = 1.0  # after so long without a batch, the thread tidies the store
STEP_S = 0.02  # between two steps of that


class Writer:
    """Commits batches in the order they were submitted, in as few transactions as the disk allows.

    Batches that wait together are committed together and fail together. A failure does not affect later batches.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: list[tuple[Batch, Future[None]]] = []
        self._group: list[tuple[Batch, Future[None]]] = []  # what is being committed
        self._closing = False
        self._pause: float | None = IDLE_S  # until the next step; None where there is nothing to tidy up
        self._urgent = False
        self._wake = Condition()
        self._thread = Thread(target=self._run, name="postroad-writer", daemon=True)
        self._thread.start()

    def submit(self, batch: Batch) -> Future[None]:
        """The future is done when the batch is durable, or carries the StorageError. It cannot be cancelled."""
        future: Future[None] = Future()
        future.set_running_or_notify_cancel()
        with self._wake:
            if not self._closing:
                self._waiting.append((batch, future))
                self._wake.notify()
                return future
        future.set_exception(StorageError("the store is closed"))
        return future

    def close(self) -> None:
        """Commits what waits, then ends the thread. The store stays open."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        self._thread.join()

    def tidy(self) -> None:
        """A step now: the disk is full."""
        with self._wake:
            self._urgent = True
            self._wake.notify()

    def _run(self) -> None:
        """Reports every failure to the submitters and goes on: without this thread nothing can be stored."""
        while True:
            try:
                self._commit_all()
                return
            except BaseException as error:
                log.exception("store writer failed")
                for _, future in self._group:
                    if not future.done():
                        future.set_exception(StorageError(f"the store's writer failed: {error!r}"))

    def _commit_all(self) -> None:
        while True:
            with self._wake:
                while not (self._waiting or self._closing or self._urgent):
                    if not self._wake.wait(self._pause):
                        break
                if not self._waiting and self._closing:
                    return
                self._group, self._waiting = self._waiting, []
                urgent, self._urgent = self._urgent, False
            if urgent or not self._group:
                self._pause = STEP_S if self._store.tidy() else None
            if not self._group:
                continue
            self._pause = IDLE_S
            try:
                self._store.commit([batch for batch, _ in self._group])
            except Exception as error:
                for _, future in self._group:
                    future.set_exception(error)
            else:
                for _, future in self._group:
                    future.set_result(None)
