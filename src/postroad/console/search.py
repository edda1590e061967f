"""A search through a whole queue, a page of messages at a time, and the rows of message lists.

An idle manager is read as fast as it answers. A busy one gets pauses twenty times as long as its answers took, so a
search costs less than a twentieth of its time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from postroad.client.payloads import next_page
from postroad.console.bodies import preview
from postroad.console.history import COST
from postroad.console.jobs import Job
from postroad.console.manager_client import ManagerClient
from postroad.describe.received import ReceivedMessage
from postroad.describe.where import parse_where
from postroad.errors import PostroadError

FIRST_PAGE = 500
SLICE_S = 0.05  # of reading bodies before a search can be cancelled again
MOST_OF_TYPE = 1000  # characters of the name of a type

Match = Callable[[ReceivedMessage], bool]
Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class Row:
    """A message in a list. `fault` is why it cannot be decoded, if so."""

    lookup_id: int
    id: str = ""
    label: str = ""
    type: str = ""
    class_name: str = ""
    priority: int = 0
    delivery: str = ""
    size: int = 0
    arrived_ms: int = 0
    destination: str = ""
    preview: str = ""
    to: str = ""  # where a dry run found that it would go
    is_dead: bool = False
    fault: str = ""


def row(message: ReceivedMessage) -> Row:
    try:
        return Row(
            lookup_id=message.lookup_id,
            id=str(message.id),
            label=message.label,
            type=(message.message_type or "")[:MOST_OF_TYPE],
            class_name=message.class_name,
            priority=message.priority,
            delivery=message.delivery,
            size=len(message.body),
            arrived_ms=message.arrived_ms,
            destination=message.destination_queue or "",
            preview=preview(message),
            is_dead=bool(message.reason),
        )
    except PostroadError as error:
        return Row(lookup_id=message.lookup_id, arrived_ms=message.arrived_ms, fault=str(error))


def matcher(label: str, identifier: str, class_name: str, body: str, where: str) -> Match:
    """A test for messages that meet all conditions. Empty conditions do not count. Texts match anywhere, in any case.

    Raises IllegalExpression if `where` cannot be read. Checks `where` last, because it needs the whole JSON.
    """
    tests: list[Match] = []
    if label:
        wanted_label = label.casefold()
        tests.append(lambda message: wanted_label in message.label.casefold())
    if identifier:
        wanted_id = _without_braces(identifier)
        tests.append(lambda message: wanted_id in _without_braces(str(message.id)))
    if class_name:
        wanted_class = class_name.lower()
        tests.append(lambda message: wanted_class in message.class_name.lower())
    if body:
        tests.append(_content_matcher(body))
    if where:
        tests.append(parse_where(where))

    def match(message: ReceivedMessage) -> bool:
        try:
            return all(test(message) for test in tests)
        except PostroadError:
            return False  # it cannot be decoded

    return match


def _content_matcher(wanted: str) -> Match:
    """Finds the text in the body, raw or as a page shows it, in headers, and in the type of the message."""
    folded, as_bytes = wanted.casefold(), (wanted.encode("utf-8", "replace"), wanted.encode("utf-16-le", "replace"))

    def match(message: ReceivedMessage) -> bool:
        text = message.text_or_none
        if text is not None and folded in text.casefold():
            return True
        found = message.read()
        texts = (found.text or "", found.message_type or "", *found.headers, *found.headers.values())
        return any(folded in each.casefold() for each in texts) or (
            found.text is None and any(each in message.body for each in as_bytes)
        )

    return match


def _without_braces(identifier: str) -> str:
    """Windows programs print ids without braces."""
    return identifier.replace("{", "").replace("}", "").lower()


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads queues of a manager without slowing down its other work."""

    client: ManagerClient
    is_busy: Callable[[], bool]

    async def page(self, name: str, after: int, limit: int) -> Sequence[ReceivedMessage]:
        began = time.monotonic()
        page = await self.client.page(name, after, limit)
        if page and self.is_busy():
            await asyncio.sleep(COST * (time.monotonic() - began))
        return page


async def scan(
    reader: Reader, job: Job, look: Callable[[ReceivedMessage], Found | None], each: Callable[[Found], None]
) -> None:
    """Looks at every message of the job's queue, and calls `each` with what is found. `look` runs in a thread, because
    bodies of strangers take their time. Messages that come meanwhile count too, but not for ever: it ends at twice the
    number that were there."""
    job.total = (await reader.client.queue(job.queue)).messages
    after, limit = -1, FIRST_PAGE
    while page := await reader.page(job.queue, after, limit):
        start = 0
        while start < len(page):
            found: list[Found] = []
            count = await asyncio.to_thread(_look_at_some, page, start, look, found)
            for one in found:
                each(one)
            start += count
            job.done += count
        after, limit = page[-1].lookup_id, next_page(page)
        if job.done > 2 * job.total + FIRST_PAGE:
            break
    job.total = job.done


def _look_at_some(
    page: Sequence[ReceivedMessage], start: int, look: Callable[[ReceivedMessage], Found | None], found: list[Found]
) -> int:
    """Adds what is found among as many messages as SLICE_S allows, at least one, and says how many these were."""
    until = time.monotonic() + SLICE_S
    for count, message in enumerate(page[start:], 1):
        one = look(message)
        if one is not None:
            found.append(one)
        if time.monotonic() >= until:
            return count
    return len(page) - start
