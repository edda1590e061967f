"""The one thread that commits: it takes every batch that waits and makes them durable together.

Knows neither queues nor the event loop: a Future tells how each batch ended.
"""

from __future__ import annotations

from concurrent.futures import Future
from threading import Condition, Thread

from postroad.errors import StorageError
from postroad.store.interface import Batch, Store


class Writer:
    """Commits batches in the order they were submitted, in as few transactions as the disk allows.

    After a commit has failed, every batch that waits or is still submitted fails too, since it may be built on one that
    was lost. The submitter drops what it built (`Pending.failed`) and calls `resume`; what it submits from then on is
    committed again. So the whole rule for a failed future is `if pending.failed(batch): writer.resume()`.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: list[tuple[Batch, Future[None]]] = []
        self._fault: Exception | None = None
        self._closing = False
        self._wake = Condition()
        self._thread = Thread(target=self._run, name="postroad-writer", daemon=True)
        self._thread.start()

    def submit(self, batch: Batch) -> Future[None]:
        """The future is done when the batch is durable, or carries the StorageError. It cannot be cancelled."""
        future: Future[None] = Future()
        future.set_running_or_notify_cancel()
        with self._wake:
            fault = StorageError("the store is closed") if self._closing else self._fault
            if fault is None:
                self._waiting.append((batch, future))
                self._wake.notify()
        if fault is not None:
            future.set_exception(fault)
        return future

    def resume(self) -> None:
        """Takes batches again after a failure; called when nothing built on the failed batch is left."""
        with self._wake:
            self._fault = None

    def close(self) -> None:
        """Commits what waits, then ends the thread. The store stays open."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._wake:
                while not self._waiting and not self._closing:
                    self._wake.wait()
                if not self._waiting:
                    return
                group, self._waiting = self._waiting, []
            try:
                self._store.commit([batch for batch, _ in group])
            except Exception as error:  # whatever it is, the submitters must hear of it and the thread must live
                self._fail(group, error)
            else:
                for _, future in group:
                    future.set_result(None)

    def _fail(self, group: list[tuple[Batch, Future[None]]], error: Exception) -> None:
        with self._wake:
            self._fault = error
            group += self._waiting
            self._waiting = []
        for _, future in group:
            future.set_exception(error)
