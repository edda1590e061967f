"""The committing thread: takes all waiting batches and makes them durable together.

Passing a batch to the thread and its result back costs more than a short write to a fast disk. So the caller's own
thread commits a batch if three things hold: no other batch is under way, the commit is one short write
(`Store.is_short`), and the last commits took less than QUICK_S on average. The thread does all other batches and all
postponed work (`Store.tidy`). One lock makes both take turns, and no batch overtakes another.

No queues and no event loop here: each batch comes with a function that gets the result, on the submitting thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from time import perf_counter

from postroad.errors import StorageError
from postroad.store.interface import Batch, Post, Store

log = logging.getLogger(__name__)

IDLE_S = 1.0  # without a batch, after which the thread tidies the store
STEP_S = 0.02  # between two steps of tidying
QUICK_S = 0.001  # that a caller may wait for the disk, while its other work waits too
WEIGHT = 1 / 8  # weight of the last commit in the average

Done = Callable[[Exception | None], object]


class Writer:
    """Commits batches in the order they were submitted, in as few transactions as the disk allows.

    Batches that wait together are committed together and fail together. Later batches are not affected.
    """

    def __init__(self, store: Store, post: Post) -> None:
        self._store = store
        self._post = post
        self._inbox: SimpleQueue[tuple[Batch, Done] | None] = SimpleQueue()  # None only wakes the thread
        self._group: list[tuple[Batch, Done]] = []  # what the thread is committing
        self._lock = Lock()  # nothing is submitted after `close`
        self._turn = Lock()  # held by the thread that writes to the store
        self._handed_over = 0  # batches that the thread has not finished
        self._average_s = 0.0  # duration of the last commits
        self._closing = False
        self._urgent = False
        self._busy = False  # whether there was a commit since the thread's last look
        self._pause: float | None = IDLE_S  # until the next step; None if there is nothing to tidy
        self._thread = Thread(target=self._run, name="postroad-writer", daemon=True)
        self._thread.start()

    def submit(self, batch: Batch, done: Done) -> None:
        """Calls `done` with None once the batch is durable, or with the StorageError: before this returns, or later by
        `post`."""
        with self._lock:
            mine = not self._closing and self._is_mine(batch)
            if not (mine or self._closing):
                self._handed_over += 1
                self._inbox.put((batch, done))
                return
        if mine:
            self._commit_here(batch, done)
        else:
            done(StorageError("the store is closed"))

    def _is_mine(self, batch: Batch) -> bool:
        """Whether the caller commits the batch itself. If so, it holds the turn."""
        if self._handed_over or self._average_s > QUICK_S or not self._turn.acquire(blocking=False):
            return False
        if self._store.is_short(batch):
            return True
        self._turn.release()
        return False

    def _commit_here(self, batch: Batch, done: Done) -> None:
        error: Exception | None = None
        try:
            self._commit([batch])
        except Exception as fault:
            error = fault
        finally:
            if self._pause is None:  # the idle thread has something to tidy now, once this caller pauses
                self._pause = IDLE_S
                self._inbox.put(None)
            self._turn.release()
        _end([(batch, done)], error)

    def close(self) -> None:
        """Commits what waits and ends the thread. The store stays open."""
        with self._lock:
            self._closing = True
            self._inbox.put(None)
        self._thread.join()
        with self._turn:
            pass  # lets another caller's commit end first

    def tidy(self) -> None:
        """Does a step of tidying now, because the disk is full."""
        self._urgent = True
        self._inbox.put(None)

    def _run(self) -> None:
        """Reports every failure to the submitters and goes on, because without this thread nothing can be stored."""
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
            with self._turn:
                self._take_turn()

    def _take_turn(self) -> None:
        urgent, self._urgent = self._urgent, False
        busy, self._busy = self._busy, False
        if urgent or not (self._group or self._closing or busy):
            self._pause = STEP_S if self._store.tidy() else None
        elif busy:
            self._pause = IDLE_S
        if not self._group:
            return
        self._pause = IDLE_S
        try:
            self._commit([batch for batch, _ in self._group])
        except Exception as error:
            self._end_group(error)
        else:
            self._end_group(None)
            self._store.tidy(busy=True)

    def _commit(self, batches: list[Batch]) -> None:
        self._busy = True
        began = perf_counter()
        try:
            self._store.commit(batches)
        finally:
            self._average_s += (perf_counter() - began - self._average_s) * WEIGHT

    def _gather(self) -> None:
        """Waits for a batch or for tidying, and takes all waiting batches."""
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
        with self._lock:
            self._handed_over -= len(group)
        if group:
            try:
                self._post(partial(_end, group, error))
            except Exception:  # the event loop is closed
                log.exception("a store writer's listener failed")


def _end(group: list[tuple[Batch, Done]], error: Exception | None) -> None:
    for _, done in group:
        try:
            done(error)
        except Exception:  # the other callbacks must still run
            log.exception("a store writer's listener failed")
