"""What there is to read: the queues of the managers, what a copy in each of them means, and how far each has come."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from postroad.client.opening import connect
from postroad.spark.manager import ManagerApi, Mark
from postroad.spark.offsets import shares, split_evenly
from postroad.spark.options import TIMEOUT_S, Place
from postroad.spark.pipeline.places import KnownManager
from postroad.spark.pipeline.silver import DEAD, OUTGOING, QUEUED, RECEIVED, SENT

if TYPE_CHECKING:
    from postroad.client.values import QueueInfo

_OWN = "system$"  # before the names of a manager's own queues, which people write without
_ROLES = {";journal": SENT, ";deadletter": DEAD, ";deadxact": DEAD}
# [MS-MQDMPR] 3.1.3: the queues that managers talk to each other by, here and at the other end of an outgoing queue.
_INTERNAL = re.compile(r"private\$\\[^\\;]*\$(;.*)?|PRIVATE=[^\\]*\\[2-5]", re.IGNORECASE)
_TASK_MESSAGES = 20_000  # that one task reads, about
_MOST_TASKS = 1000  # for one queue


@dataclass(frozen=True, slots=True)
class Source:
    """A queue of a manager; `role` says what it means that a message lies there."""

    api: str
    token: str | None
    manager: KnownManager
    queue: str
    role: str
    format_name: str

    @property
    def key(self) -> str:
        """What offsets are kept by. A manager keeps its GUID when it moves to another address."""
        return f"{self.manager.id}|{self.queue}"

    @property
    def place(self) -> Place:
        return Place(self.api, self.queue, self.token, TIMEOUT_S)

    def mark(self) -> Mark:
        api = ManagerApi(self.place)
        try:
            return api.mark()
        finally:
            api.close()


@dataclass(frozen=True, slots=True)
class Range:
    """Messages of a source with arrival numbers from `start` to below `end`."""

    source: Source
    start: int
    end: int


def sources(api: str, token: str | None = None, patterns: Sequence[str] = ()) -> list[Source]:
    r"""Every queue of the manager that messages can be seen in, or those that a pattern such as `private$\*` names.

    The manager's own queues are `;journal`, `;deadletter` and `;deadxact`, as everywhere.
    """
    with connect(api, token=token) as manager:
        info = manager.info()
        queues = manager.queues()
    known = KnownManager(info.id, info.name, urlsplit(api).hostname)
    found = []
    for queue in queues:
        role = role_of(queue)
        name = _called(queue.path, info.name)
        if role is not None and _wanted(name, patterns):
            found.append(Source(api, token, known, name, role, queue.format_name))
    return found


def _called(path: str, manager: str) -> str:
    r"""As commands and URLs take it: a public queue with its manager's name, as in `rome\orders`."""
    name = path.removeprefix(_OWN)
    return name if any(mark in name for mark in "\\=") or name.startswith(";") else rf"{manager}\{name}"


def role_of(queue: QueueInfo) -> str | None:
    """None for the queues that managers talk to each other by."""
    if _INTERNAL.fullmatch(queue.path):
        return None
    if queue.type == "system":
        return _ROLES.get(queue.path.removeprefix(_OWN))
    if queue.type == "journal":
        return RECEIVED
    if queue.type == "outgoing":
        return OUTGOING
    return QUEUED


def _wanted(name: str, patterns: Sequence[str]) -> bool:
    return not patterns or any(fnmatchcase(name.lower(), pattern.lower()) for pattern in patterns)


def new_ranges(found: Iterable[Source], offsets: Mapping[str, int]) -> Iterator[Range]:
    """What has come since: from where the offsets end to what can no longer change."""
    for source in found:
        start = offsets.get(source.key, 0)
        mark = source.mark()
        begin = max(start, mark.arrival if mark.oldest is None else mark.oldest)
        for low, high in split_evenly(begin, mark.arrival, shares(mark.messages, _MOST_TASKS, _TASK_MESSAGES)):
            yield Range(source, low, high)
