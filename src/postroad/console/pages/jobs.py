"""The progress and the result of a job."""

from __future__ import annotations

from postroad.console.jobs import MAX_ROWS, Job
from postroad.console.visit import Form, PageNotFound, Visit
from postroad.net.exchange import Response

# Others are counts, whose pages show what they count.
KINDS = ("search", "move", "dry-run", "resend", "retry-dry-run", "retry")


def _job(visit: Visit, form: Form) -> Job:
    job = visit.job(form.text("id"), *KINDS)
    if job is None:
        raise PageNotFound("there is no such search or job in this session")
    return job


async def show(visit: Visit) -> Response:
    job = _job(visit, visit.query)
    await visit.access()
    template = "job_live.html" if visit.is_fragment else "job.html"
    return visit.show(template, job=job, most=MAX_ROWS, name=job.queue, rows=job.rows)


async def cancel(visit: Visit, form: Form) -> Response:
    job = _job(visit, form)
    job.cancel()
    if job.task is not None:
        await job.task
    return visit.go(visit.url("job", id=job.id))
