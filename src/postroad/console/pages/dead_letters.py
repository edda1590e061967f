"""Dead letters in groups by reason, destination, message type and exception: a dry run, and sending them again."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from postroad.bodies import failure_of, read_headers
from postroad.console.history import DEAD_LETTERS
from postroad.console.jobs import Job
from postroad.console.search import Reader, Row, row, scan
from postroad.console.visit import BadRequest, Form, Visit
from postroad.describe.received import ReceivedMessage, is_short, lifetime_s
from postroad.errors import PostroadError
from postroad.net.exchange import Response
from postroad.reports.trace import class_words
from postroad.wire.constants import INFINITE

# The manager removes a letter in the commit that has its new message. If the console stops in between, the rest stays.


SAMPLES = 3
MOST_GROUPS = 500  # of one page
MOST_OF_NAME = 200  # characters of a type by which groups differ
MAX_ERRORS = 20
AT_ONCE = 100  # messages in one call


class Key(NamedTuple):
    """What the letters of one group have in common. `exception` is what a framework gave the message up for, by its
    headers."""

    reason: str
    destination: str
    type: str = ""
    exception: str = ""


DAMAGED = Key("damaged", "")


@dataclass(slots=True)
class Group:
    """Letters of one queue with one key."""

    queue: str
    key: Key
    words: str
    count: int = 0
    bytes: int = 0
    oldest_ms: int = 0
    newest_ms: int = 0
    samples: list[Row] = field(default_factory=list)


Groups = dict[tuple[str, Key], Group]


def group_key(message: ReceivedMessage) -> Key:
    try:
        failure = failure_of(read_headers(message.extension, message.app_tag).names)
        return Key(
            message.class_name,
            message.destination_queue or "",
            _one_line(message.message_type),
            _one_line(failure.exception if failure else None),
        )
    except PostroadError:
        return DAMAGED


def _one_line(name: str | None) -> str:
    """As it comes back from a form of a page."""
    printable = "".join(each if each.isprintable() else "\ufffd" for each in (name or "")[:MOST_OF_NAME])
    return printable.strip()


async def count_groups(reader: Reader, job: Job, queue: str, groups: Groups) -> None:
    """Adds the groups of one dead-letter queue while it reads; `groups` can be shown meanwhile. The job has found those
    letters that are in no group, because there are too many groups."""
    inner = Job("count", "", job.manager, queue)

    def look(message: ReceivedMessage) -> tuple[ReceivedMessage, Key]:
        return message, group_key(message)

    def count(found: tuple[ReceivedMessage, Key]) -> None:
        job.done += 1
        message, key = found
        if (queue, key) not in groups and len(groups) >= MOST_GROUPS:
            job.found += 1
            return
        words = "it cannot be decoded" if key == DAMAGED else class_words(message.message_class)
        group = groups.setdefault((queue, key), Group(queue, key, words))
        group.count += 1
        group.bytes += len(message.packet)
        group.oldest_ms = min(group.oldest_ms or message.arrived_ms, message.arrived_ms)
        group.newest_ms = max(group.newest_ms, message.arrived_ms)
        if len(group.samples) < SAMPLES:
            group.samples.append(row(message))

    try:
        await scan(reader, inner, look, count)
    finally:
        job.total = (job.total or 0) + inner.done


async def resend_group(reader: Reader, job: Job, key: Key, to: str, ttbr: int | None, dry_run: bool) -> None:
    """Only letters that are there at the start: those that die again are not sent in circles. `ttbr` is the new time to
    be received; without it, each has its own."""
    chosen: list[int] = []
    counted = Job("count", "", job.manager, job.queue)

    def choose(message: ReceivedMessage) -> None:
        chosen.append(message.lookup_id)
        if dry_run:
            job.add(row(message))
            # Only the manager knows whether the destination is local. The time to be received counts in any case.
            _note_lifetime(job, lifetime_s(message, ttbr, here=True))
        job.done = counted.done

    await scan(reader, counted, lambda message: message if group_key(message) == key else None, choose)
    job.total = len(chosen)
    job.done = len(chosen) if dry_run else 0
    if dry_run:
        return
    await send_again(reader, job, chosen, to, ttbr)


async def send_again(
    reader: Reader, job: Job, chosen: Sequence[int], to: str = "", ttbr: int | None = None, failed: bool = False
) -> None:
    """Has the manager send these messages of the job's queue again. The job has found those that it sent."""
    for start in range(0, len(chosen), AT_ONCE):
        batch = chosen[start : start + AT_ONCE]
        for outcome in await reader.client.resend(job.queue, batch, to or None, ttbr, failed):
            if outcome.id is not None:
                job.found += 1
                _note_lifetime(job, outcome.lifetime_s)
            elif len(job.errors) < MAX_ERRORS:
                job.errors.append(f"{outcome.lookup_id}: {outcome.why}")
        job.done += len(batch)


def _note_lifetime(job: Job, seconds: int | None) -> None:
    if seconds is not None and is_short(seconds):
        job.lifetimes.append(seconds)


def sorted_groups(groups: Groups) -> list[Group]:
    return sorted(groups.values(), key=lambda group: -group.count)


PATIENCE_S = 0.6  # how long a page waits for a count; after that it shows the progress


async def show(visit: Visit) -> Response:
    """Each load starts a new count. A refresh of the live part shows the count under way."""
    job = visit.job(visit.query.text("job"), "groups")
    is_fragment = visit.is_fragment
    reader = await visit.reader()
    if job is None:
        queues = {each.path: each for each in await visit.queues() if each.path in DEAD_LETTERS}
        groups: Groups = {}
        job = Job("groups", "Dead letters", visit.index, DEAD_LETTERS[0], rows=[groups])

        async def work(job: Job) -> None:
            for name in queues:
                await count_groups(reader, job, name, groups)

        visit.session.jobs.start(job, work)
        assert job.task is not None
        await asyncio.wait({job.task}, timeout=PATIENCE_S)
    found = job.rows[0]
    assert isinstance(found, dict)
    template = "dead_live.html" if is_fragment else "dead.html"
    return visit.show(template, job=job, groups=sorted_groups(found))


async def resend(visit: Visit, form: Form) -> Response:
    queue = form.raw("queue")
    key = Key(form.text("reason"), form.raw("destination"), form.text("type"), form.text("exception"))
    if queue not in DEAD_LETTERS:
        raise BadRequest(f"queue: must be {' or '.join(DEAD_LETTERS)}, got {queue!r}")
    to, dry_run = form.text("to"), form.text("how") != "send"
    seconds = form.text("time_to_be_received")
    ttbr = form.number("time_to_be_received", 0, most=INFINITE) if seconds else None
    reader = await visit.reader()
    what = "Dry run: what would be sent again" if dry_run else "Send again"
    job = Job("dry-run" if dry_run else "resend", f"{what} from {queue.removeprefix('system$')}", visit.index, queue)
    job.facts = key._asdict() | {"to": to or key.destination, "ttbr": seconds}

    async def work(job: Job) -> None:
        await resend_group(reader, job, key, to, ttbr, dry_run)
        visit.changed()

    visit.session.jobs.start(job, work)
    return visit.go(visit.url("job", id=job.id))
