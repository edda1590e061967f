"""The sources: the queues of the managers, what a copy in each of them means, and how far each was read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

from postroad.client.opening import connect
from postroad.names import parse_format_name
from postroad.names.format import is_internal, leads_to_internal
from postroad.reports.offsets import Part
from postroad.spark.checkpoint import shares
from postroad.spark.manager_api import ManagerApi
from postroad.spark.options import TIMEOUT_S, Place
from postroad.spark.pipeline.locations import KnownManager
from postroad.spark.pipeline.silver import DEAD, OUTGOING, QUEUED, RECEIVED, SENT
from postroad.spark.pipeline.summaries import NOT_LOOKED, Depth

if TYPE_CHECKING:
    from postroad.reports.info import QueueInfo

T = TypeVar("T")

_OWN = "system$"  # the prefix of a manager's own queues, which people omit
_ROLES = {";journal": SENT, ";deadletter": DEAD, ";deadxact": DEAD}
_TASK_MESSAGES = 20_000  # in one task, about
_MOST_TASKS = 1000  # for one queue


@dataclass(frozen=True, slots=True)
class Source:
    """A queue of a manager. `role` says what a copy in it means.

    A source to `consume` is held while it is read, and received once its messages are in the tables. `journal` says
    whether the queue copies what is received to its journal.
    """

    api: str
    token: str | None
    manager: KnownManager
    queue: str
    role: str
    format_name: str
    consume: bool = False
    depth: Depth = NOT_LOOKED
    journal: bool = False

    @property
    def messages(self) -> int:
        """How many messages the queue had when it was found."""
        return self.depth.messages

    @property
    def called(self) -> str:
        """The queue's name for people."""
        return f"{self.manager.name}: {self.queue}"

    @property
    def names(self) -> list[str]:
        """The format names that messages to this queue can have. Empty if no message can be sent to it."""
        if self.role != QUEUED:
            return []
        path = self.queue.removeprefix(f"{self.manager.name}\\")
        direct = [f"DIRECT=OS:{self.manager.name}\\{path}"]
        if self.manager.address is not None:
            direct.append(f"DIRECT=TCP:{self.manager.address}\\{path}")
        return [self.format_name, *direct]

    @property
    def key(self) -> str:
        """The key of the queue's offsets. It has the manager's GUID, which stays when the manager's address changes."""
        return f"{self.manager.id}|{self.queue}"

    @property
    def place(self) -> Place:
        return Place(self.api, self.queue, self.token, TIMEOUT_S)

    def ask(self, question: Callable[[ManagerApi], T]) -> T:
        """Asks the manager a question about this queue."""
        api = ManagerApi(self.place)
        try:
            return question(api)
        finally:
            api.close()


@dataclass(frozen=True, slots=True)
class Range:
    """Messages of a source with start <= arrival number < end. `hold` is the name that they are held under, if any."""

    source: Source
    start: int
    end: int
    hold: str | None = None


def sources(
    api: str, token: str | None = None, patterns: Sequence[str] = (), consume: Sequence[str] = ()
) -> list[Source]:
    r"""Every queue of the manager with visible messages, or those that match a pattern such as `private$\*`.

    The manager's own queues are `;journal`, `;deadletter` and `;deadxact`. Messages in queues that match a pattern in
    `consume` are removed after they were read. Messages in outgoing queues never are.
    """
    with connect(api, token=token) as manager:
        info = manager.info()
        queues = manager.queues()
    known = KnownManager(info.id, info.name, urlsplit(api).hostname, api)
    found = []
    for queue in queues:
        role = role_of(queue)
        name = _display_name(queue.path, info.name)
        if role is not None and (not patterns or _matches(name, patterns)):
            emptied = role != OUTGOING and _matches(name, consume)
            depth = Depth.of(queue)
            found.append(Source(api, token, known, name, role, queue.format_name, emptied, depth, queue.journal))
    return found


def journals(found: Iterable[Source]) -> list[str]:
    """The format names of the queues that copy what is received to a journal, if that is read too."""
    read = {each.key for each in found if each.role == RECEIVED}
    return sorted(name for each in found if each.journal and f"{each.key};journal" in read for name in each.names)


def unmatched(found: Iterable[Source], patterns: Iterable[str]) -> list[str]:
    """The patterns that match no queue."""
    names = [each.queue for each in found]
    return [pattern for pattern in patterns if not any(_matches(name, [pattern]) for name in names)]


def _display_name(path: str, manager: str) -> str:
    r"""The queue's name in commands and URLs. A public queue has its manager's name, as in `rome\orders`."""
    name = path.removeprefix(_OWN)
    return name if any(mark in name for mark in "\\=") or name.startswith(";") else rf"{manager}\{name}"


def role_of(queue: QueueInfo) -> str | None:
    """What a copy in this queue means. None for internal queues between managers, and for outgoing queues to them."""
    if is_internal(queue.path.partition(";")[0]):
        return None
    if queue.type == "outgoing" and leads_to_internal(parse_format_name(queue.format_name)):
        return None
    if queue.type == "system":
        return _ROLES.get(queue.path.removeprefix(_OWN))
    if queue.type == "journal":
        return RECEIVED
    if queue.type == "outgoing":
        return OUTGOING
    return QUEUED


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name.lower(), pattern.lower()) for pattern in patterns)


def new_ranges(found: Iterable[Source], offsets: Mapping[str, int], hold: str) -> Iterator[Range]:
    """The new messages: from the end of the offsets to the mark.

    Messages to consume are held from now on, under the name `hold`, so that no other reader gets them.
    """
    for source in found:
        start = offsets.get(source.key, 0)
        mark = source.ask(lambda api: api.mark())
        begin = max(start, mark.arrival if mark.oldest is None else mark.oldest)
        if begin >= mark.arrival:
            continue
        parts = shares(mark.messages, _MOST_TASKS, _TASK_MESSAGES)
        name = hold if source.consume else None
        for part in source.ask(partial(_plan, begin=begin, end=mark.arrival, hold=name, parts=parts)):
            yield Range(source, part.start, part.end, name)


def _plan(api: ManagerApi, *, begin: int, end: int, hold: str | None, parts: int) -> tuple[Part, ...]:
    """Divides the range into parts with equal numbers of messages. Holds it first if it is to be consumed."""
    if hold is not None:
        api.hold(hold, begin, end)
    return api.plan(begin, end, hold=hold, parts=parts).parts


def remove_consumed(found: Iterable[Source], offsets: Mapping[str, int], hold: str) -> int:
    """Receives what is in the tables: all held messages below the offsets. Returns how many; 0 at a second call."""
    gone = 0
    for source in found:
        if source.consume and source.key in offsets:
            end = offsets[source.key]
            gone += source.ask(lambda api, end=end: api.commit(hold, end))  # type: ignore[misc]
    return gone
