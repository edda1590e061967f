"""Work that takes too long for a page, such as a search or sending many dead letters again. It has progress and can be
cancelled."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from array import array
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from postroad.errors import PostroadError

log = logging.getLogger(__name__)

MAX_JOBS = 16  # of one session; the oldest one that has ended is dropped first
MAX_ROWS = 500  # results that a job keeps for its page
RUNNING, DONE, CANCELLED, FAILED = "running", "done", "cancelled", "failed"


@dataclass(slots=True)
class Job:
    """One job. `done` of `total` messages have been read, and `found` of them matched or were changed. Its page shows
    `facts`."""

    kind: str
    title: str
    manager: int
    queue: str
    total: int | None = None
    done: int = 0
    found: int = 0
    rows: list[object] = field(default_factory=list)
    ids: array[int] = field(default_factory=lambda: array("Q"))  # lookup ids of everything found
    errors: list[str] = field(default_factory=list)
    destinations: Counter[str] = field(default_factory=Counter)  # of messages that a dry run found
    lifetimes: list[int] = field(default_factory=list)  # in seconds, of new messages that will soon expire again
    facts: dict[str, str] = field(default_factory=dict)
    state: str = RUNNING
    error: str = ""
    id: str = field(default_factory=lambda: secrets.token_hex(8))
    started_at: float = field(default_factory=time.monotonic)
    ended_at: float | None = None
    task: asyncio.Task[None] | None = None

    @property
    def running(self) -> bool:
        return self.state == RUNNING

    @property
    def seconds(self) -> float:
        return (self.ended_at or time.monotonic()) - self.started_at

    @property
    def percent(self) -> int:
        if not self.total:
            return 0 if self.running else 100
        return min(100, 100 * self.done // self.total)

    def add(self, row: object) -> None:
        self.found += 1
        if len(self.rows) < MAX_ROWS:
            self.rows.append(row)

    def cancel(self) -> None:
        if self.task is not None:
            self.task.cancel()


class Jobs:
    """The jobs of one session."""

    def __init__(self) -> None:
        self._jobs: dict[str, Job] = {}

    def get(self, identifier: str) -> Job | None:
        return self._jobs.get(identifier)

    def start(self, job: Job, work: Callable[[Job], Awaitable[None]]) -> Job:
        for each in [each for each in self._jobs.values() if not each.running][: len(self._jobs) - MAX_JOBS + 1]:
            del self._jobs[each.id]
        if len(self._jobs) >= MAX_JOBS:
            next(iter(self._jobs.values())).cancel()
        self._jobs[job.id] = job
        job.task = asyncio.create_task(self._run(job, work))
        return job

    async def _run(self, job: Job, work: Callable[[Job], Awaitable[None]]) -> None:
        try:
            await work(job)
            job.state = DONE
        except asyncio.CancelledError:
            job.state = CANCELLED
        except PostroadError as error:
            job.state, job.error = FAILED, str(error)
        except Exception:
            log.exception("a job of the console failed")
            job.state, job.error = FAILED, "the console failed; see its log"
        finally:
            job.ended_at = time.monotonic()

    @property
    def running(self) -> bool:
        """Whether any job is running."""
        return any(job.running for job in self._jobs.values())

    def stop(self) -> None:
        for job in self._jobs.values():
            job.cancel()
