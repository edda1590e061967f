"""Dead letters in groups by reason and destination: what would be sent again, and sending it."""

from __future__ import annotations

import asyncio

from starlette.responses import Response

from postroad.console.attention import DEAD_LETTERS
from postroad.console.jobs import Job
from postroad.console.resend import Group, count_groups, resend_group, sorted_groups
from postroad.console.visit import BadRequest, Form, Visit
from postroad.wire.constants import INFINITE

PATIENCE_S = 0.6  # a page waits so long for a count, and shows its progress if it takes longer


async def show(visit: Visit) -> Response:
    """Each load counts anew; a refresh of the page shows the count that runs."""
    job = visit.session.jobs.get(visit.query.text("job"))
    is_fragment = bool(visit.request.headers.get("x-fragment"))
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
