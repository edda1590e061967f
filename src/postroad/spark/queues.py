r"""The queues that a read names: one by one, or by patterns such as `private$\orders*`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from postroad.errors import InvalidArgument
from postroad.names.internal import is_internal
from postroad.spark.manager import ManagerApi

_KINDS = ("private", "public", "journal")


def matching(found: Iterable[str], wanted: Sequence[str]) -> list[str]:
    """The queues of a list that match, and those that are named without a pattern, sorted."""
    patterns = [_expression(each) for each in wanted if "*" in each]
    named = [each for each in wanted if "*" not in each]
    known = {each.lower() for each in named}
    matched = [each for each in found if each.lower() not in known and any(one.fullmatch(each) for one in patterns)]
    return sorted([*named, *matched])


def is_wanted(queue: str, wanted: Sequence[str]) -> bool:
    """Whether a queue is named or matches a pattern."""
    named = [each.lower() for each in wanted if "*" not in each]
    return queue.lower() in named or any(_expression(each).fullmatch(queue) for each in wanted if "*" in each)


def _expression(pattern: str) -> re.Pattern[str]:
    r"""`*` is any text without `;`: journals are matched only by a pattern such as `private$\*;journal`."""
    parts = pattern.removeprefix(".\\").split("*")
    return re.compile("[^;]*".join(map(re.escape, parts)), re.IGNORECASE)


def present(api: ManagerApi, wanted: Sequence[str]) -> list[str]:
    """The queues of a manager that match now; InvalidArgument if a read would have none at all."""
    if not any("*" in each for each in wanted):
        return sorted(wanted)
    kinds = {each["path"]: each["type"] for each in api.queues()}
    paths = [path for path, kind in kinds.items() if kind in _KINDS and not is_internal(path.partition(";")[0])]
    return matching(paths, wanted)


def required(found: list[str], wanted: Sequence[str]) -> list[str]:
    """The same list; InvalidArgument if it is empty."""
    if not found:
        raise InvalidArgument(f"queue: no queue matches {', '.join(wanted)}; create one first, or correct the pattern")
    return found
