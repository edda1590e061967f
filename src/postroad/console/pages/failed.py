"""What NServiceBus gave up: its error queue in groups, a dry run, and sending messages back to where they failed."""

from __future__ import annotations

import asyncio
from array import array
from dataclasses import dataclass, field, replace
from datetime import datetime

from postroad.console.jobs import DONE, Job
from postroad.console.manager_client import LoginNeeded
from postroad.console.pages.dead_letters import MAX_ERRORS, MOST_GROUPS, MOST_OF_NAME, PATIENCE_S, send_again
from postroad.console.rendering import plural, when
from postroad.console.search import Reader, Row, row, scan
from postroad.console.visit import BadRequest, Form, Visit
from postroad.describe.failed import ERROR_QUEUE, FailedGroup, FailedMessage, failed_message, joined
from postroad.describe.received import ReceivedMessage
from postroad.errors import AccessDenied, MessageAlreadyReceived, MessageNotFound, PostroadError, QueueNotFound
from postroad.net.exchange import Response
from postroad.reports.operations import SeekAction

PAGE = 50
MOST_OF_TEXT = 500  # characters of what an exception says
COUNT, DRY_RUN, RETRY = "failed", "retry-dry-run", "retry"


@dataclass(slots=True)
class Group:
    """Messages that failed alike, by their lookup ids."""

    number: int
    facts: FailedGroup
    ids: array[int]

    @property
    def first(self) -> str:
        return _when(self.facts.first_failed_at)

    @property
    def last(self) -> str:
        return _when(self.facts.last_failed_at)


def _when(time: datetime | None) -> str:
    return when(time.isoformat() if time else None)  # no timestamp: the last one there is would round to the year 10000


@dataclass(slots=True)
class Census:
    """The groups of an error queue. `unnamed` messages do not say where they failed; `left_out` ones would be in more
    groups than a page shows."""

    groups: list[Group] = field(default_factory=list)
    unnamed: int = 0
    left_out: int = 0


async def count(reader: Reader, job: Job, census: Census) -> None:
    """Adds to the census while it reads; the census can be shown meanwhile."""
    known: dict[tuple[str | None, str | None, str], Group] = {}

    def look(message: ReceivedMessage) -> tuple[int, FailedMessage | None]:
        return message.lookup_id, _failed(message)

    def add(found: tuple[int, FailedMessage | None]) -> None:
        lookup_id, failed = found
        if failed is None:
            census.unnamed += 1
        elif (group := known.get(failed.key)) is not None:
            group.facts = joined(group.facts, failed)
            group.ids.append(lookup_id)
        elif len(known) >= MOST_GROUPS:
            census.left_out += 1
        else:
            known[failed.key] = Group(len(known), joined(None, failed), array("Q", [lookup_id]))
            census.groups.append(known[failed.key])

    await scan(reader, job, look, add)


def _failed(message: ReceivedMessage) -> FailedMessage | None:
    """None if the message does not say where it failed. Names and texts have no more characters than a page shows."""
    try:
        failed = failed_message(message)
    except PostroadError:
        return None
    return replace(
        failed,
        exception=failed.exception and failed.exception[:MOST_OF_NAME],
        message_type=failed.message_type and failed.message_type[:MOST_OF_NAME],
        text=failed.text and failed.text[:MOST_OF_TEXT],
    )


async def try_out(reader: Reader, job: Job, chosen: frozenset[int]) -> None:
    """Finds those of the messages that are still there, and where each would go."""

    def look(message: ReceivedMessage) -> tuple[Row, str] | None:
        """The row, and why the message cannot be sent again."""
        if message.lookup_id not in chosen:
            return None
        try:
            return replace(row(message), to=failed_message(message).destination), ""
        except PostroadError as error:
            return row(message), str(error)

    def add(found: tuple[Row, str]) -> None:
        one, why = found
        if not why:
            job.ids.append(one.lookup_id)
            job.destinations[one.to] += 1
            job.add(one)
        elif len(job.errors) < MAX_ERRORS:
            job.errors.append(f"{one.lookup_id}: {why}")

    await scan(reader, job, look, add)


# Pages


async def show(visit: Visit) -> Response:
    """Each load starts a new count. A refresh of the live part shows the count under way."""
    names = [each.path for each in await visit.queues() if each.type in ("private", "public")]
    names = [each for each in names if visit.may("peek", each)]
    name = visit.query.text("name")
    try:
        queue = await (await visit.client()).queue(name or ERROR_QUEUE)
    except (QueueNotFound, AccessDenied) as error:
        if name or isinstance(error, LoginNeeded):
            raise
        return visit.show("failed.html", name="", names=names[:500], queue=None)
    name = queue.path
    job = visit.job(visit.query.text("job"), COUNT)
    if job is None or job.queue != name:
        reader, census = await visit.reader(), Census()
        job = Job(COUNT, "Failed messages", visit.index, name, rows=[census])

        async def work(job: Job) -> None:
            await count(reader, job, census)

        visit.session.jobs.start(job, work)
        assert job.task is not None
        await asyncio.wait({job.task}, timeout=PATIENCE_S)
    found = _census(job)
    return visit.show(
        "failed_live.html" if visit.is_fragment else "failed.html",
        name=name,
        names=names[:500],
        queue=queue,
        job=job,
        census=found,
        groups=sorted(found.groups, key=lambda group: -group.facts.messages),
    )


async def show_group(visit: Visit) -> Response:
    query = visit.query
    name, start = query.text("name"), query.number("start", 0)
    client = await visit.client()
    queue = await client.queue(name)
    job, group = _group(visit, query, query.text("group"))
    rows: list[Row] = []
    for lookup_id in group.ids[start : start + PAGE]:
        try:
            message = await client.lookup(name, lookup_id, SeekAction.CURRENT, False, None)
        except (MessageNotFound, MessageAlreadyReceived):
            continue
        rows.append(await asyncio.to_thread(row, message))

    def link(start: int) -> str:
        return visit.url("failed/group", name=name, job=job.id, group=group.number, start=start)

    return visit.show(
        "failed_group.html",
        name=name,
        queue=queue,
        job=job,
        group=group,
        rows=rows,
        here_again=link(start),
        previous=link(max(0, start - PAGE)) if start else None,
        following=link(start + PAGE) if start + PAGE < len(group.ids) else None,
    )


def _census(job: Job) -> Census:
    found = job.rows[0]
    assert isinstance(found, Census)
    return found


def _group(visit: Visit, form: Form, number: str) -> tuple[Job, Group]:
    """The group that a page has shown. Its numbers are those of its job."""
    job = visit.job(form.text("job"), COUNT)
    groups = _census(job).groups if job is not None and job.queue == form.text("name") else []
    if job is None or not number.isdecimal() or len(number) > 4 or int(number) >= len(groups):
        raise BadRequest("the console no longer has this group: open the failed messages again")
    return job, groups[int(number)]


async def resend(visit: Visit, form: Form) -> Response:
    """A dry run of groups or of single messages; then, with `how` = `send`, what the dry run has found."""
    name = form.text("name")
    reader = await visit.reader()
    if form.text("how") == "send":
        tried = visit.job(form.text("job"), DRY_RUN)
        if tried is None or tried.state != DONE or tried.queue != name:
            raise BadRequest("the console no longer has this dry run: repeat it")
        ids = tried.ids
        job = Job(RETRY, f"Send failed messages of {name} again", visit.index, name, total=len(ids))

        async def send(job: Job) -> None:
            await send_again(reader, job, ids, failed=True)
            visit.changed()

        visit.session.jobs.start(job, send)
        return visit.go(visit.url("job", id=job.id))
    groups = [_group(visit, form, number)[1] for number in set(form.several("group"))]
    chosen = {each for group in groups for each in group.ids}
    chosen = chosen or set(form.numbers("id"))
    if not chosen:
        visit.session.notify("Choose at least one group or message.", is_error=True)
        return visit.go(visit.url("failed", name=name))
    title = f"Dry run: where {plural(len(chosen), 'failed message')} of {name} would go"
    job = Job(DRY_RUN, title, visit.index, name)

    async def work(job: Job) -> None:
        await try_out(reader, job, frozenset(chosen))

    visit.session.jobs.start(job, work)
    return visit.go(visit.url("job", id=job.id))
