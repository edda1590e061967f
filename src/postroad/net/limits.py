"""Limits on what strangers can make the manager hold: connections of all listeners, and incomplete input.

Only the accounting is here: listening.py has the sockets, and each protocol says when its connection is idle.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto

from postroad.runtime.bounded import owner_of
from postroad.runtime.logs import RateLimitedLog

if sys.platform != "win32":
    import resource

log = logging.getLogger(__name__)

RESERVE = 64  # descriptors for the store's files, the listeners, and connections not yet counted
OUTGOING_SHARE = 8  # one in this many of the rest is for outgoing connections
MAX_CLOSING = 16  # aborted connections that still have a descriptor; accepting waits at this number
REQUEST_S = 60.0  # for the whole of one request
UNREAD_S = 60.0  # within which a peer must read some of our output


@dataclass(slots=True, eq=False)
class Limit:
    """One limit: how much is used, and how often it was reached. It logs at most one line every 30 seconds."""

    name: str
    maximum: int
    counted: bool = True  # whether `current` is kept
    current: int = 0
    reached: int = 0
    _log: RateLimitedLog = field(default_factory=lambda: RateLimitedLog(log, "limit reached", burst=1))

    @property
    def figures(self) -> dict[str, int]:
        """The figures for `status` and the metrics."""
        current = {"current": self.current} if self.counted else {}
        return {**current, "maximum": self.maximum, "reached": self.reached}

    def hit(self, **facts: object) -> None:
        self.reached += 1
        self._log.warn(time.monotonic(), {"limit": self.name, "maximum": self.maximum, **facts})


class Standing(Enum):
    """Which connections to close first when there are too many."""

    FRESH = auto()  # no handshake, bind or whole request yet
    IDLE = auto()  # between two requests
    BUSY = auto()  # never closed in favour of another


@dataclass(slots=True, eq=False)
class _Address:
    """The connections of one address, or of one IPv6 subnet."""

    members: dict[Admission, None] = field(default_factory=dict)  # the oldest first
    held: int = 0

    def first_to_go(self) -> Admission | None:
        for standing in (Standing.FRESH, Standing.IDLE):
            for member in self.members:
                if member.standing is standing:
                    return member
        return None


@dataclass(slots=True, eq=False)
class Admission:
    """One accepted connection. Its protocol reports when it is busy, how much it holds, and when it is closed."""

    _limits: Limits
    address: str
    key: str
    _abort: Callable[[], object]
    incoming: bool
    standing: Standing
    held: int = 0
    closed: bool = False  # no longer counted
    dropped: bool = False  # closed to make room, but its descriptor is not free yet

    def attach(self, abort: Callable[[], object]) -> None:
        """The protocol has a transport: from now on `abort` closes the connection at once."""
        self._abort = abort
        if self.dropped:
            abort()

    def drop(self) -> None:
        """Closes the connection to make room for another."""
        self._limits.closing += 1
        self.dropped = True
        self._abort()

    def busy(self) -> None:
        self._limits.set_standing(self, Standing.BUSY)

    def idle(self) -> None:
        self._limits.set_standing(self, Standing.IDLE)

    def hold(self, size: int) -> None:
        """Notes that `size` bytes of an incomplete packet or request are here. May close this very connection."""
        if size != self.held:
            self._limits.hold(self, size)

    def close(self) -> None:
        """Notes that the connection is gone. A second call does nothing."""
        self._limits.release(self)


class Limits:
    """The limits of a manager, shared by its listeners. `descriptors` is how many connections the process can have."""

    def __init__(
        self,
        connections: int = 4096,
        connections_per_address: int = 256,
        unfinished_input_mb: int = 256,
        descriptors: int | None = None,
    ) -> None:
        incoming, outgoing = connections, connections
        if descriptors is not None:
            incoming = max(1, min(connections, descriptors - descriptors // OUTGOING_SHARE))
            outgoing = max(1, descriptors - incoming)
        self.connections = Limit("connections", incoming)
        self.connections_per_address = Limit("connections_per_address", connections_per_address)
        self.outgoing_connections = Limit("outgoing_connections", outgoing)
        self.unfinished_input = Limit("unfinished_input_bytes", unfinished_input_mb << 20)
        self.descriptors = Limit("descriptors", 0 if descriptors is None else descriptors + RESERVE, counted=False)
        self.requests = Limit("request_seconds", int(REQUEST_S), counted=False)
        self.unread_output = Limit("unread_output_seconds", int(UNREAD_S), counted=False)
        self.closing = 0  # aborted, and not yet closed
        self._addresses: dict[str, _Address] = {}
        self._waiting: dict[Standing, dict[Admission, None]] = {Standing.FRESH: {}, Standing.IDLE: {}}

    def use(self, connections_per_address: int, unfinished_input_mb: int) -> None:
        """Sets the limits that can change while connections are open."""
        self.connections_per_address.maximum = connections_per_address
        self.unfinished_input.maximum = unfinished_input_mb << 20

    @property
    def all(self) -> list[Limit]:
        members = [len(each.members) for key, each in self._addresses.items() if not key.startswith(">")]
        self.connections_per_address.current = max(members, default=0)
        return [each for each in vars(self).values() if isinstance(each, Limit)]

    def admit(self, address: str, abort: Callable[[], object]) -> Admission | None:
        """Counts a connection from `address`. None if there is no room for it, and no other connection to close."""
        key = owner_of(address)
        group = self._addresses.get(key)
        if group is not None and len(group.members) >= self.connections_per_address.maximum:
            self.connections_per_address.hit(address=key)
            if not self._drop(group.first_to_go()):
                return None
        if self.connections.current >= self.connections.maximum:
            self.connections.hit(address=address)
            waiting = self._waiting[Standing.FRESH] or self._waiting[Standing.IDLE]
            if not self._drop(next(iter(waiting), None)):
                return None
        admission = Admission(self, address, key, abort, True, Standing.FRESH)
        self._waiting[Standing.FRESH][admission] = None
        self.connections.current += 1
        self._addresses.setdefault(key, _Address()).members[admission] = None
        return admission

    def dial(self, host: str) -> Admission | None:
        """Counts a connection that we open. None if there are too many."""
        if self.outgoing_connections.current >= self.outgoing_connections.maximum:
            self.outgoing_connections.hit(address=host)
            return None
        key = f">{host}"
        admission = Admission(self, host, key, lambda: None, False, Standing.BUSY)
        self.outgoing_connections.current += 1
        self._addresses.setdefault(key, _Address()).members[admission] = None
        return admission

    # What an admission reports

    def set_standing(self, admission: Admission, standing: Standing) -> None:
        if admission.closed or not admission.incoming or admission.standing is standing:
            return
        self._leave_waiting(admission)
        admission.standing = standing
        if standing is not Standing.BUSY:
            self._waiting[standing][admission] = None

    def hold(self, admission: Admission, size: int) -> None:
        if admission.closed:
            return
        self._addresses[admission.key].held += size - admission.held
        self.unfinished_input.current += size - admission.held
        admission.held = size
        # Close the largest connection of the address that holds most, so that a stranger with many connections cannot
        # make us close another's.
        while self.unfinished_input.current > self.unfinished_input.maximum:
            greedy = max(self._addresses.values(), key=lambda each: each.held)
            largest = max(greedy.members, key=lambda each: each.held)
            self.unfinished_input.hit(address=largest.address, bytes=largest.held)
            self._drop(largest)

    def release(self, admission: Admission) -> None:
        if admission.dropped:
            admission.dropped = False
            self.closing -= 1
        elif not admission.closed:
            self._forget(admission)

    def _drop(self, admission: Admission | None) -> bool:
        if admission is None:
            return False
        self._forget(admission)
        admission.drop()
        return True

    def _forget(self, admission: Admission) -> None:
        self._leave_waiting(admission)
        admission.closed = True
        group = self._addresses[admission.key]
        del group.members[admission]
        group.held -= admission.held
        self.unfinished_input.current -= admission.held
        if not group.members:
            del self._addresses[admission.key]
        (self.connections if admission.incoming else self.outgoing_connections).current -= 1

    def _leave_waiting(self, admission: Admission) -> None:
        if admission.standing is not Standing.BUSY:
            del self._waiting[admission.standing][admission]


def usable_descriptors(connections: int) -> int | None:
    """How many connections the process can have, after the reserve. None if the system sets no limit.

    Raises the soft limit as far as the hard one allows, up to twice `connections`: as many out as in.
    """
    if sys.platform == "win32":
        return None
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return None
    wanted = 2 * connections + RESERVE
    if soft < wanted:
        raised = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with contextlib.suppress(OSError, ValueError):  # some systems allow less than they report
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, raised), hard))
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(1, soft - RESERVE)
