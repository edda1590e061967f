"""Runs coroutines for callers without an event loop, on a loop in its own thread. Any number of threads can use it.

This module does not know the verbs of the client.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable, Coroutine
from threading import RLock, Thread
from typing import Any, Generic, TypeVar

from postroad.errors import InvalidHandle, OperationCancelled

T = TypeVar("T")


class _Call(Generic[T]):
    """One coroutine on the loop. `start` and `cancel` run there, in this order. Any thread can wait for `ended`."""

    def __init__(self, coroutine: Coroutine[Any, Any, T]) -> None:
        self.ended: concurrent.futures.Future[T] = concurrent.futures.Future()
        self._coroutine = coroutine
        self._task: asyncio.Task[T] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._coroutine)
        self._task.add_done_callback(self._finish)

    def cancel(self) -> None:
        if self._task is None:
            self.abandon()
        else:
            self._task.cancel()

    def abandon(self) -> None:
        self._coroutine.close()
        self.ended.cancel()

    def _finish(self, task: asyncio.Task[T]) -> None:
        if task.cancelled():
            self.ended.set_exception(OperationCancelled("the queue manager was closed in the meantime"))
        elif (fault := task.exception()) is not None:
            self.ended.set_exception(fault)
        else:
            self.ended.set_result(task.result())


class LoopThread:
    """An event loop that runs until `stop`. Its thread is a daemon, so it does not keep a program from ending."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        # no call may reach a stopped loop; reentrant, because a garbage collection may hand over another call
        self._lock = RLock()
        self._stopped = False
        self._thread = Thread(target=self._run, name="postroad-loop", daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine to its end. An interrupt (Ctrl-C) cancels the coroutine, and is raised after it has
        ended."""
        call = _Call(coroutine)
        try:
            self._hand_over(call.start)
            return call.ended.result()
        except BaseException:
            if not call.ended.done():
                self._cancel(call)
            raise

    def finish(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Runs the end of an iteration without waiting for it.

        Python may collect an abandoned iterator on any thread, even on that of an event loop, which must not block.
        """
        call = _Call(coroutine)
        try:
            self._hand_over(call.start)
        except InvalidHandle:
            call.abandon()

    def _cancel(self, call: _Call[T]) -> None:
        try:
            self._hand_over(call.cancel)
        except InvalidHandle:
            call.abandon()  # the loop stopped before it saw the call
        concurrent.futures.wait([call.ended])

    def _hand_over(self, function: Callable[[], None]) -> None:
        with self._lock:
            if self._stopped:
                raise InvalidHandle("this queue manager is closed: open it or connect to it again")
            self._loop.call_soon_threadsafe(function)

    def stop(self) -> None:
        """Cancels what still runs and ends the thread. A second call does nothing."""
        with self._lock:
            if self._stopped:
                return
            self._stopped = True
            self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            tasks = asyncio.all_tasks(self._loop)
            for task in tasks:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            self._loop.close()
