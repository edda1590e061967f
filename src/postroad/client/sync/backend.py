"""The verbs of a backend as blocking calls, whatever its coroutines wait for."""

from __future__ import annotations

import atexit
import inspect
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from threading import Lock
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from postroad.client.aio.backend import Backend as AsyncBackend

T = TypeVar("T")


class Runner(Protocol):
    """Runs the coroutines of a backend. `client.blocking.LoopThread` runs those that need an event loop."""

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T: ...

    def finish(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Runs the end of an iteration. It need not wait for it."""

    def stop(self) -> None: ...


class CallerThread:
    """Runs coroutines that never wait for an event loop, because they block the caller's thread instead."""

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        try:
            coroutine.send(None)
        except StopIteration as end:
            result: T = end.value
            return result
        coroutine.close()
        raise RuntimeError(f"{coroutine!r} waits for an event loop")

    def finish(self, coroutine: Coroutine[Any, Any, None]) -> None:
        self.run(coroutine)

    def stop(self) -> None:
        """Does nothing: nothing runs between two calls."""


def iterate(runner: Runner, items: AsyncGenerator[T, None]) -> Iterator[T]:
    """The items of an asynchronous generator, each fetched on demand."""

    async def following() -> list[T]:
        try:
            return [await anext(items)]
        except StopAsyncIteration:  # a coroutine may not raise StopIteration
            return []

    try:
        while found := runner.run(following()):
            yield from found
    finally:
        runner.finish(items.aclose())


class Backend:
    """The verbs of `client.aio.backend.Backend`. Each waits for its answer.

    With `at_exit`, a backend that is still open is closed when the program ends, so that its connections end cleanly.
    """

    def __init__(self, runner: Runner, backend: AsyncBackend, *, at_exit: bool = False) -> None:
        self._runner = runner
        self._backend = backend
        self._lock = Lock()
        self._closed = False
        if at_exit:
            atexit.register(self.close)

    def __getattr__(self, verb: str) -> Callable[..., Any]:
        coroutine_function = getattr(self._backend, verb)
        if inspect.isasyncgenfunction(coroutine_function):
            return lambda *arguments, **options: iterate(self._runner, coroutine_function(*arguments, **options))

        def call(*arguments: Any, **options: Any) -> Any:
            return self._runner.run(coroutine_function(*arguments, **options))

        setattr(self, verb, call)  # the next call finds the verb without `__getattr__`
        return call

    def close(self) -> None:
        """Closes the backend and ends its runner. A second call does nothing."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        atexit.unregister(self.close)
        try:
            self._runner.run(self._backend.close())
        finally:
            self._runner.stop()
