"""Failed logins by address. After each failure an address must wait longer before its next try.

Every listener that asks for a password uses this. Nothing here has a clock or waits: callers pass `now`, and wait.
"""

from __future__ import annotations

import logging
from typing import Any, Final, Protocol

from postroad.runtime.bounded import BoundedTable, Standing, owner_of
from postroad.runtime.logs import RateLimitedLog

FREE_FAILURES: Final = 3  # typing errors cost nothing
FIRST_DELAY_S: Final = 0.5
MAX_DELAY_S: Final = 8.0  # shorter than clients wait for an answer
FORGET_S: Final = 900.0  # an address without a failure for this long starts afresh
MAX_ADDRESSES: Final = 10_000
_MAX_WHO: Final = 256  # characters of a name from a stranger, in the log

_log = logging.getLogger(__name__)


class Audit(Protocol):
    """Where security events are recorded."""

    def __call__(self, event: str, **facts: Any) -> None: ...


class FailedLogins:
    """A listener calls `delay` before it checks a password, waits that long, and asks again until the delay is 0. So
    simultaneous tries are checked one at a time. A successful login resets nothing: otherwise a user could try other
    users' passwords at full speed."""

    def __init__(self, audit: Audit | None = None) -> None:
        self.total = 0
        self._audit = audit
        # By address: the number of failures, and the time of the last one. The oldest entry leaves first, but an entry
        # that must wait does not leave for one that need not.
        self._failures: BoundedTable[str, tuple[int, float]] = BoundedTable(MAX_ADDRESSES)
        self._refused = RateLimitedLog(_log, "login refused")

    def __len__(self) -> int:
        return len(self._failures)

    def delay(self, address: str, now: float) -> float:
        """How many seconds a try from this address must wait. 0 means that it may go on."""
        count, last = self._failures.get(owner_of(address)) or (0, 0.0)
        if count <= FREE_FAILURES or now - last >= FORGET_S:
            return 0.0
        wait = min(FIRST_DELAY_S * 2.0 ** min(count - FREE_FAILURES - 1, 16), MAX_DELAY_S)
        return max(last + wait - now, 0.0)

    def failed(self, address: str, now: float, *, door: str, who: str | None) -> None:
        """Records that `door` ("api", "rpc") refused a login. `who` is the name that was given, if one was."""
        network = owner_of(address)
        count, last = self._failures.get(network) or (0, 0.0)
        count = 1 if now - last >= FORGET_S else count + 1
        standing = Standing.PROVEN if count > FREE_FAILURES else Standing.STRANGER
        self._failures.put(network, (count, now), network, standing)
        self.total += 1
        facts = {"door": door, "address": address, "who": None if who is None else who[:_MAX_WHO]}
        self._refused.warn(now, facts)
        if self._audit is not None:
            self._audit("login refused", **facts)
