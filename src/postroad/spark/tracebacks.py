"""Removes tracebacks through our files from Spark's errors.

Our errors say what is wrong and what to do. A traceback would only hide that.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from typing import ParamSpec, TypeVar

from postroad.errors import PostroadError

P = ParamSpec("P")
T = TypeVar("T")


def without_traceback(method: Callable[P, T]) -> Callable[P, T]:
    """Removes the traceback from our own errors. Other exceptions keep theirs."""

    @functools.wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return method(*args, **kwargs)
        except PostroadError as fault:
            _hide_traceback()
            raise fault.with_traceback(None) from None

    return call


def iterator_without_traceback(method: Callable[P, Iterator[T]]) -> Callable[P, Iterator[T]]:
    """Does the same for a method that returns an iterator. If Spark stops reading early, its process ends silently."""

    @functools.wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        try:
            yield from method(*args, **kwargs)
        except PostroadError as fault:
            _hide_traceback()
            raise fault.with_traceback(None) from None
        except GeneratorExit as stopped:
            if isinstance(stopped.__context__, BrokenPipeError | ConnectionResetError):
                _end_in_silence()
            raise

    return call


def _in_a_process_of_spark() -> bool:
    """Whether Spark's daemon started this process, for one task or one stream."""
    return any(name.startswith("PYTHON_WORKER_FACTORY_") for name in os.environ)


def _hide_traceback() -> None:
    """Sets the variable that makes Spark's process omit the traceback. The process ends after this error."""
    if _in_a_process_of_spark():
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"


def _end_in_silence() -> None:
    """Closes standard error.

    For a query with a limit, Spark closes the connection once it has enough rows. Its process then fails to write the
    rest and would print a traceback, although nothing is wrong.
    """
    if _in_a_process_of_spark():
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 2)
        os.close(nowhere)
