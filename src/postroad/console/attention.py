"""What needs an operator, the most urgent first, each with the page that shows more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from postroad.console.rendering import plural, size
from postroad.values.attention import attention
from postroad.values.info import ManagerInfo, QueueInfo

DEAD_LETTERS = ("system$;deadletter", "system$;deadxact")
MOST_NAMED = 20


@dataclass(frozen=True, slots=True)
class Item:
    """`level` is bad or warn."""

    level: str
    manager: str
    sentence: str
    url: str


def items(index: int, name: str, info: ManagerInfo | None, queues: Sequence[QueueInfo]) -> Iterator[Item]:
    """Of one manager that answers."""
    if info is not None:
        for sentence in attention(info, ()):
            yield Item("bad", name, sentence[0].upper() + sentence[1:], f"/{index}/security")
    stuck = sorted((queue for queue in queues if queue.stuck), key=lambda queue: queue.oldest_arrived_ms or 0)
    for queue in stuck[:MOST_NAMED]:
        waits = f"{plural(queue.messages, 'message')} {'waits' if queue.messages == 1 else 'wait'}"
        yield Item("bad", name, f"Stuck: {waits} for {queue.path}: {queue.why}", _page(index, queue))
    if rest := stuck[MOST_NAMED:]:
        yield Item("bad", name, f"{len(rest)} more outgoing queues are stuck", f"/{index}/network")
    for queue in queues:
        if queue.damaged:
            yield Item("bad", name, f"{plural(queue.damaged, 'damaged message')} in {queue.path}", _page(index, queue))
        if queue.nearly_full:
            quota = size((queue.quota_kb or 0) * 1024)
            yield Item(
                "warn", name, f"{queue.path} is nearly full: {size(queue.bytes)} of {quota}", _page(index, queue)
            )
    for queue in queues:
        if queue.path in DEAD_LETTERS and queue.messages:
            yield Item(
                "warn", name, f"{plural(queue.messages, 'dead letter')} in {short_path(queue)}", f"/{index}/dead"
            )
        elif queue.path.lower().endswith(";poison") and queue.messages:
            yield Item("warn", name, f"{plural(queue.messages, 'poison message')} in {queue.path}", _page(index, queue))


def _page(index: int, queue: QueueInfo) -> str:
    return f"/{index}/queue?{urlencode({'name': queue_name(queue)})}"


def is_own(queue: QueueInfo) -> bool:
    """A queue that nobody made: a journal, a subqueue, or one that the manager needs for itself."""
    return queue.type in ("journal", "system", "subqueue") or queue.is_internal


def short_path(queue: QueueInfo) -> str:
    """The manager's own queues without their prefix, as commands take them."""
    return queue.path.removeprefix("system$")


def queue_name(queue: QueueInfo) -> str:
    """What the API calls it."""
    return queue.format_name if queue.type == "outgoing" else queue.path
