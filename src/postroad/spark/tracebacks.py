"""Shortens the errors that Spark prints: the text of our own errors, without the traceback through our modules."""

from __future__ import annotations

import functools
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
            raise fault.with_traceback(None) from None

    return call


def iterator_without_traceback(method: Callable[P, Iterator[T]]) -> Callable[P, Iterator[T]]:
    """The same for a method that returns an iterator."""

    @functools.wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        try:
            yield from method(*args, **kwargs)
        except PostroadError as fault:
            raise fault.with_traceback(None) from None

    return call
