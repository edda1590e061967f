"""Keeps what a client of the HTTP API has locked: renews its leases from a thread of its own while the process lives.

A thread, because the caller's event loop or thread may be busy for as long as its work takes.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Collection
from time import monotonic
from uuid import UUID

log = logging.getLogger(__name__)

STEPS = 3  # renewals within the time of a lease: two may fail
LINGER = 2  # steps for which the thread stays when nothing is held: the next message comes soon, as a rule

Renew = Callable[[list[UUID]], Awaitable[Collection[UUID]]]


class LeaseKeeper:
    """`renew` gives back the leases that are gone; it runs on an event loop of the thread, anew for each renewal."""

    def __init__(self, renew: Renew) -> None:
        self._renew = renew
        self._held: dict[UUID, float] = {}  # and the seconds of each
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._step_s = 0.0  # between two renewals

    def hold(self, lease: UUID, lease_s: float) -> None:
        """Renews it from now on."""
        with self._changed:
            self._held[lease] = lease_s
            step_s = lease_s / STEPS
            if self._thread is None:
                self._step_s = step_s
                self._thread = threading.Thread(target=self._run, name="postroad-leases", daemon=True)
                self._thread.start()
            elif step_s < self._step_s:
                self._step_s = step_s
                self._changed.notify()

    def drop(self, lease: UUID) -> None:
        """Renews it no longer; one that is not held, or not any more, may be dropped as well."""
        with self._changed:
            self._held.pop(lease, None)

    def close(self) -> None:
        """What is held runs out."""
        with self._changed:
            self._held.clear()
            self._step_s = 0.0
            self._changed.notify()

    def _run(self) -> None:
        idle = 0
        due = monotonic() + self._step_s
        while True:
            with self._changed:
                due = min(due, monotonic() + self._step_s)
                if (left := due - monotonic()) > 0:
                    self._changed.wait(left)
                    continue
                held = list(self._held)
                idle = 0 if held else idle + 1
                if idle > LINGER or not self._step_s:
                    self._thread = None
                    return
                self._step_s = min((each / STEPS for each in self._held.values()), default=self._step_s)
                due = monotonic() + self._step_s
            if held:
                self._renew_all(held)

    def _renew_all(self, held: list[UUID]) -> None:
        try:
            gone = asyncio.run(asyncio.wait_for(self._renew(held), max(1.0, self._step_s)))
        except Exception as fault:  # whatever it is: the next step tries again, and who settles too late is told
            log.warning("leases not renewed", extra={"leases": len(held), "reason": str(fault) or repr(fault)})
            return
        for lease in gone:
            self.drop(lease)
