"""Faults as people see them in Spark: the sentence, without the way through our modules that Spark would print."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import ParamSpec, TypeVar

from postroad.errors import PostroadError

P = ParamSpec("P")
T = TypeVar("T")


def told(method: Callable[P, T]) -> Callable[P, T]:
    """Our own errors leave the method as if they were raised here; a bug keeps all of its traceback."""

    @functools.wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return method(*args, **kwargs)
        except PostroadError as fault:
            raise fault.with_traceback(None) from None

    return call


def told_while_reading(method: Callable[P, Iterator[T]]) -> Callable[P, Iterator[T]]:
    """The same of a method that makes an iterator."""

    @functools.wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        try:
            yield from method(*args, **kwargs)
        except PostroadError as fault:
            raise fault.with_traceback(None) from None

    return call
