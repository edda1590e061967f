"""Renews the leases of what a client of the HTTP API has locked, as long as its process lives.

It uses a thread of its own, because the caller's event loop or thread may be busy for a long time.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Collection, Sequence
from time import monotonic
from uuid import UUID

from postroad.client.exchange import Address, Exchange
from postroad.client.sync.backend import CallerThread
from postroad.client.sync.transport import Transport

log = logging.getLogger(__name__)

STEPS = 3  # renewals during the time of a lease; two of them may fail
LINGER = 2  # idle steps before the thread ends, because the next message usually comes soon
MAX_RENEWAL = 10_000  # leases in one request


class LeaseKeeper:
    """The leases of one client: those of its transactions, and those of the messages that it has locked.

    Any thread may call it. Renewals have connections of their own.
    """

    def __init__(self, address: Address) -> None:
        self._address = address
        self._messages: dict[tuple[str, int], UUID] = {}  # the leases of locked messages, by queue and lookup id
        self._locked_messages: Counter[UUID] = Counter()  # how many messages each lease still locks
        self._held: dict[UUID, float] = {}  # how long each lease lasts, in seconds
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._step_s = 0.0  # between two renewals

    def hold(self, lease: UUID, lease_s: float) -> None:
        """Renews a lease from now on."""
        with self._changed:
            self._hold(lease, lease_s)

    def hold_messages(self, lease: UUID, lease_s: float, queue: str, lookup_ids: Collection[int]) -> None:
        """Renews a lease until `drop_messages` has been called for all its messages."""
        with self._changed:
            self._messages.update(((queue, lookup_id), lease) for lookup_id in lookup_ids)
            self._locked_messages[lease] = len(lookup_ids)
            self._hold(lease, lease_s)

    def leases_of(self, queue: str, lookup_ids: Sequence[int]) -> set[UUID] | None:
        """The leases of messages. None if this client has not locked all of them."""
        with self._changed:
            leases = {self._messages.get((queue, lookup_id)) for lookup_id in lookup_ids}
        found = {lease for lease in leases if lease is not None}
        return found if len(found) == len(leases) else None

    def drop_messages(self, queue: str, lookup_ids: Sequence[int]) -> None:
        """Stops renewing for messages that were settled. Messages that are not held are ignored."""
        with self._changed:
            for lookup_id in lookup_ids:
                lease = self._messages.pop((queue, lookup_id), None)
                if lease is None:
                    continue
                self._locked_messages[lease] -= 1
                if not self._locked_messages[lease]:
                    del self._locked_messages[lease]
                    self._held.pop(lease, None)

    def _hold(self, lease: UUID, lease_s: float) -> None:
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
        """Stops renewing a lease, if it is held."""
        with self._changed:
            self._held.pop(lease, None)

    def close(self) -> None:
        """Stops renewing everything, so that all leases run out."""
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
        run = CallerThread().run
        exchange = Exchange(self._address, Transport(self._address, max(1.0, self._step_s)))
        try:
            for first in range(0, len(held), MAX_RENEWAL):
                renewal = {"leases": [str(lease) for lease in held[first : first + MAX_RENEWAL]]}
                for lease in run(exchange.json("POST", "/leases/renew", renewal, member="gone")):
                    self.drop(UUID(lease))
        except Exception as fault:  # the next step tries again, and a client that settles too late gets an error
            log.warning("leases could not be renewed", extra={"leases": len(held), "reason": str(fault) or repr(fault)})
        finally:
            run(exchange.close())
