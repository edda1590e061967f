"""Spark's filters as far as a manager applies them: a range of arrival numbers, and one class, priority or label."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual

END = 1 << 63  # no arrival number is as high
_MOST = {"class": 0xFFFF, "priority": 7}


@dataclass(frozen=True, slots=True)
class Pushed:
    """What a manager is asked for: begin <= arrival < end, and what else stands in the query."""

    begin: int = 0
    end: int = END
    query: Mapping[str, object] = field(default_factory=dict)


def push(filters: Iterable[Filter]) -> tuple[Pushed, list[Filter]]:
    """What the manager does, and the filters that are left to Spark."""
    pushed, left = Pushed(), []
    for each in filters:
        more = _pushed(pushed, each)
        if more is None:
            left.append(each)
        else:
            pushed = more
    return pushed, left


def _pushed(pushed: Pushed, given: Filter) -> Pushed | None:
    match given:
        case EqualTo(attribute=("arrival",), value=int(value)):
            return _between(pushed, value, value + 1)
        case GreaterThanOrEqual(attribute=("arrival",), value=int(value)):
            return _between(pushed, value, END)
        case GreaterThan(attribute=("arrival",), value=int(value)):
            return _between(pushed, value + 1, END)
        case LessThan(attribute=("arrival",), value=int(value)):
            return _between(pushed, 0, value)
        case LessThanOrEqual(attribute=("arrival",), value=int(value)):
            return _between(pushed, 0, value + 1)
        case EqualTo(attribute=(("class" | "priority") as name,), value=int(value)) if 0 <= value <= _MOST[name]:
            return _equal(pushed, name, value)
        case EqualTo(attribute=("label",), value=str(value)):
            return _equal(pushed, "label", value)
        case _:
            return None


def _equal(pushed: Pushed, name: str, value: object) -> Pushed | None:
    if name in pushed.query:
        return None
    return replace(pushed, query={**pushed.query, name: value})


def _between(pushed: Pushed, begin: int, end: int) -> Pushed:
    return replace(pushed, begin=max(pushed.begin, begin), end=min(pushed.end, end))
