"""Dead letters in groups by reason and destination: what would be sent again, and sending it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from postroad.console.history import DEAD_LETTERS
from postroad.console.jobs import Job
from postroad.console.search import Reader, Row, row, scan
from postroad.console.visit import BadRequest, Form, Visit
from postroad.describe.received import ReceivedMessage, is_short, lifetime_s
from postroad.errors import PostroadError
from postroad.net.response import Response
from postroad.reports.trace import class_words
from postroad.wire.constants import INFINITE

# Dead letters: in groups by reason and destination, and sent again.
#
# The manager removes a letter in the commit that has its new message. If the console stops in between, the rest stays.


SAMPLES = 3
MAX_ERRORS = 20
AT_ONCE = 100  # messages of one call


@dataclass(slots=True)
class Group:
    """Letters of one queue that died for one reason on their way to one destination."""

    queue: str
    reason: str
    words: str
    destination: str
    count: int = 0
    bytes: int = 0
    oldest_ms: int = 0
    newest_ms: int = 0
    samples: list[Row] = field(default_factory=list)


def group_key(message: ReceivedMessage) -> tuple[str, str]:
    """The reason and the destination."""
    return message.class_name, message.destination_queue or ""


async def count_groups(reader: Reader, job: Job, queue: str, groups: dict[tuple[str, str, str], Group]) -> None:
    """Adds the groups of one dead-letter queue while it reads; `groups` can be shown meanwhile."""
    inner = Job("count", "", job.manager, queue)
    try:
        await scan(reader, inner, lambda message: True, lambda message: _count(groups, queue, message, job))
    finally:
        job.total = (job.total or 0) + inner.done


def _count(groups: dict[tuple[str, str, str], Group], queue: str, message: ReceivedMessage, job: Job) -> None:
    job.done += 1
    try:
        reason, destination = group_key(message)
        words = class_words(message.message_class)
    except PostroadError:
        reason, destination, words = "damaged", "", "it cannot be decoded"
    group = groups.setdefault((queue, reason, destination), Group(queue, reason, words, destination))
    group.count += 1
    group.bytes += len(message.packet)
    group.oldest_ms = min(group.oldest_ms or message.arrived_ms, message.arrived_ms)
    group.newest_ms = max(group.newest_ms, message.arrived_ms)
    if len(group.samples) < SAMPLES:
        group.samples.append(row(message))


async def resend_group(
    reader: Reader, job: Job, reason: str, destination: str, to: str, ttbr: int | None, dry_run: bool
) -> None:
    """Only letters that are there at the start: those that die again are not sent in circles. `ttbr` is the new time to
    be received; without it, each has its own."""
    chosen: list[int] = []
    counted = Job("count", "", job.manager, job.queue)

    def choose(message: ReceivedMessage) -> None:
        chosen.append(message.lookup_id)
        if dry_run:
            job.add(row(message))
            # Whether the destination is here is the manager's to say: the time to be received counts in any case.
            _note_lifetime(job, lifetime_s(message, ttbr, here=True))
        job.done = counted.done

    await scan(reader, counted, lambda message: group_key(message) == (reason, destination), choose)
    job.total = len(chosen)
    job.done = len(chosen) if dry_run else 0
    if dry_run:
        return
    for start in range(0, len(chosen), AT_ONCE):
        batch = chosen[start : start + AT_ONCE]
        for outcome in await reader.client.resend(job.queue, batch, to or None, ttbr):
            if outcome.id is not None:
                job.found += 1
                _note_lifetime(job, outcome.lifetime_s)
            elif len(job.errors) < MAX_ERRORS:
                job.errors.append(f"{outcome.lookup_id}: {outcome.why}")
        job.done += len(batch)


def _note_lifetime(job: Job, seconds: int | None) -> None:
    if seconds is not None and is_short(seconds):
        job.lifetimes.append(seconds)


def sorted_groups(groups: dict[tuple[str, str, str], Group]) -> list[Group]:
    return sorted(groups.values(), key=lambda group: -group.count)


PATIENCE_S = 0.6  # a page waits so long for a count, and shows its progress if it takes longer


async def show(visit: Visit) -> Response:
    """Each load counts anew; a refresh of the page shows the count that runs."""
    job = visit.session.jobs.get(visit.query.text("job"))
    is_fragment = visit.is_fragment
    reader = await visit.reader()
    if job is None or job.kind != "groups":
        queues = {each.path: each for each in await visit.queues() if each.path in DEAD_LETTERS}
        groups: dict[tuple[str, str, str], Group] = {}
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
    queue, reason, destination = form.text("queue"), form.text("reason"), form.raw("destination")
    if queue not in DEAD_LETTERS:
        raise BadRequest(f"queue: must be {' or '.join(DEAD_LETTERS)}, got {queue!r}")
    to, dry_run = form.text("to"), form.text("how") != "send"
    seconds = form.text("time_to_be_received")
    ttbr = form.number("time_to_be_received", 0, most=INFINITE) if seconds else None
    reader = await visit.reader()
    what = "Dry run: what would be sent again" if dry_run else "Send again"
    job = Job("dry-run" if dry_run else "resend", f"{what} from {queue.removeprefix('system$')}", visit.index, queue)
    job.facts = {"reason": reason, "destination": destination, "to": to or destination, "ttbr": seconds}

    async def work(job: Job) -> None:
        await resend_group(reader, job, reason, destination, to, ttbr, dry_run)
        visit.changed()

    visit.session.jobs.start(job, work)
    return visit.go(visit.url("job", id=job.id))
