"""A network of TCP connections. Bytes arrive late, in pieces, or not at all, but never out of order.

Bytes of a lost segment arrive later. Bytes that stay lost end the connection; one end may not learn of it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from random import Random
from typing import Protocol

from postroad.simulation.loop import Loop, Timer

CONNECT_TIMEOUT_S = 20.0
SYN_RETRIES_S = (0.0, 1.0, 3.0, 7.0, 15.0)  # when an unanswered attempt is repeated
GIVE_UP_S = 60.0  # how long TCP repeats unacknowledged bytes
RETRANSMISSION_S = 0.2  # the first wait; each further one is twice as long
MAX_RETRANSMISSIONS = 7


class Machine(Protocol):
    """Anything that has an address."""

    name: str
    address: str

    def accept(self, end: End) -> bool:
        """Called when somebody connects. Returns False to refuse."""

    def data_arrived(self, end: End, data: bytes) -> None: ...

    def connection_lost(self, end: End) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """The line between two hosts. `loss` is the chance that a segment is lost and has to be sent again."""

    delay_s: float = 0.01
    jitter_s: float = 0.0
    loss: float = 0.0
    segment: int = 1460


@dataclass(eq=False, repr=False)
class End:
    """One end of a connection, and the bytes on their way from it to the other end."""

    _network: Network
    host: Machine
    _line: Line
    http: bool = False  # whether the connection leads to a port for HTTP
    other: End = field(init=False)
    open: bool = True
    silent: bool = False  # nothing gets through any more, and this end does not know it
    _transit: deque[tuple[float, bytes]] = field(default_factory=deque)  # arrival time and bytes; b"" ends the stream
    _stalled_until: float = 0.0
    _timer: Timer | None = None
    _giving_up: Timer | None = None
    _repeating: bool = False

    def write(self, data: bytes) -> None:
        if not self.open or not data:
            return
        if self.silent:
            if not self._repeating:
                self._repeating = True
                self._repeat(RETRANSMISSION_S)
            return
        for piece in self._network.pieces(data, self._line):
            self._put(piece)
        if self._stalled_until > self._network.loop.now:
            self._expect_progress()

    def close(self) -> None:
        """Closes the connection. What was written before still arrives, then the end of the stream."""
        if not self.open:
            return
        self.open = False
        if not self.silent:
            self._put(b"")
        self._network.loop.after(0.0, lambda: self.host.connection_lost(self))

    def lost(self) -> None:
        """Called when this end learns that the connection is gone."""
        if self.open:
            self.open = False
            self.host.connection_lost(self)

    def leave(self, *, silently: bool, orderly: bool) -> None:
        """The process at this end is gone. A system that still works sends what is on its way, and then the end."""
        was_open, self.open = self.open, False
        if silently:
            self.drop()
            self.other.drop()
            self.other.silent = True
        elif was_open and orderly and not self.silent:
            self._put(b"")
        else:
            self.drop()
            self._network.loop.after(self._line.delay_s, self.other.lost)

    def stall(self, until: float) -> None:
        """Nothing leaves this end before `until`."""
        self._stalled_until = until
        if self._transit:
            self._schedule()
            self._expect_progress()

    def drop(self) -> None:
        """Drops what is on its way."""
        self._transit.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _put(self, piece: bytes) -> None:
        now = self._network.loop.now
        wait = self._network.travel(self._line)
        if wait == inf:
            self._network.cut(self)
            return
        earliest = self._transit[-1][0] if self._transit else now
        self._transit.append((max(earliest, now + wait), piece))
        if self._timer is None:
            self._schedule()

    def _schedule(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._stalled_until < inf:
            time = max(self._transit[0][0], self._stalled_until)
            self._timer = self._network.loop.at(time, self._arrive)

    def _arrive(self) -> None:
        self._timer = None
        _, piece = self._transit.popleft()
        if self._transit:
            self._schedule()
        if self._giving_up is not None:
            self._giving_up.cancel()
            self._giving_up = None
        if not self.other.open:
            return
        if piece:
            self.other.host.data_arrived(self.other, piece)
        else:
            self.other.lost()

    def _expect_progress(self) -> None:
        if self._giving_up is None:
            self._giving_up = self._network.loop.after(GIVE_UP_S, self._give_up)

    def _give_up(self) -> None:
        self._giving_up = None
        self.other.silent = True
        self.drop()
        self.lost()

    def _repeat(self, wait: float) -> None:
        """Repeats unacknowledged bytes. A host that does not know the connection resets it."""
        loop = self._network.loop
        if self._network.reachable(self.host.address, self.other.host.address):
            loop.after(2 * self._line.delay_s, self.lost)
        elif wait > GIVE_UP_S:
            self.lost()
        else:
            loop.after(wait, lambda: self._repeat(2 * wait))


@dataclass(eq=False, repr=False)
class Network:
    """`log` records the events of connections."""

    loop: Loop
    _chance: Random
    _log: Callable[[str, str], None]

    def __post_init__(self) -> None:
        self.lines: dict[frozenset[str], Line] = {}
        self._hosts: dict[str, Machine] = {}
        self._names: dict[str, str] = {}
        self._absent: set[str] = set()  # hosts whose machine is gone too
        self._parted: set[frozenset[str]] = set()
        self._refusing: set[str] = set()
        self._ends: list[tuple[End, End]] = []

    def join(self, host: Machine) -> None:
        """The host is there and listens from now on."""
        self._hosts[host.address] = host
        self._names[host.name.lower()] = host.address
        self._absent.discard(host.address)

    def leave(self, host: Machine, *, silently: bool) -> None:
        """The host's process is gone. With `silently`, the machine is gone too, so peers notice nothing."""
        self._hosts.pop(host.address, None)
        if silently:
            self._absent.add(host.address)
        for end in self.ends_of(host.address):
            end.leave(silently=silently, orderly=self._chance.random() < 0.5)
        self._forget_closed()

    # Faults

    def part(self, one: str, other: str) -> None:
        """Separates two addresses. Open connections stall and do not end."""
        self._parted.add(frozenset((one, other)))
        for end in self._between(one, other):
            end.stall(inf)

    def rejoin(self, one: str, other: str) -> None:
        self._parted.discard(frozenset((one, other)))
        for end in self._between(one, other):
            end.stall(self.loop.now)

    def stall(self, one: str, other: str, *, seconds: float) -> None:
        """Delays data from the first to the second host. The other direction stays open."""
        for end in self._between(one, other):
            if end.host.address == one:
                end.stall(self.loop.now + seconds)

    def refuse(self, address: str, *, refusing: bool) -> None:
        """Sets whether new connections to the address are refused."""
        if refusing:
            self._refusing.add(address)
        else:
            self._refusing.discard(address)

    def cut(self, end: End, *, notify: bool = True, notify_other: bool = True) -> None:
        """Breaks one connection, perhaps in the middle of data. A side that is not notified finds out when it
        writes."""
        for each, notified in ((end, notify), (end.other, notify_other)):
            each.drop()
            each.silent = True
            if notified:
                self.loop.after(0.0, each.lost)
        self._log(end.host.name, f"connection with {end.other.host.name} cut")

    def cut_all(self, one: str, other: str, *, notify: bool = True, notify_other: bool = True) -> None:
        for end, _ in [pair for pair in self._ends if pair[0].open or pair[1].open]:
            if {end.host.address, end.other.host.address} == {one, other}:
                end = end if end.host.address == one else end.other
                self.cut(end, notify=notify, notify_other=notify_other)

    def ends_of(self, address: str) -> list[End]:
        self._forget_closed()
        return [end for pair in self._ends for end in pair if end.host.address == address]

    def _between(self, one: str, other: str) -> list[End]:
        wanted = {one, other}
        return [end for end in self.ends_of(one) + self.ends_of(other) if end.other.host.address in wanted]

    def _forget_closed(self) -> None:
        self._ends = [pair for pair in self._ends if pair[0].open or pair[1].open]

    # Connecting

    def reachable(self, one: str, other: str) -> bool:
        """Whether a packet would get an answer. A refusal counts as one."""
        return frozenset((one, other)) not in self._parted and not {one, other} & self._absent

    def connect(
        self, caller: Machine, name: str, done: Callable[[End | None, str], None], *, http: bool = False
    ) -> None:
        """Connects. `done` gets the caller's end, or None and the reason."""
        address = self._names.get(name.lower(), name)
        started = self.loop.now
        line = self._line(caller.address, address)

        def attempt(number: int) -> None:
            if self.reachable(caller.address, address):
                self.loop.after(self.travel(line, patient=True), arrive)
            elif number + 1 < len(SYN_RETRIES_S):
                self.loop.at(started + SYN_RETRIES_S[number + 1], lambda: attempt(number + 1))
            else:
                self.loop.at(started + CONNECT_TIMEOUT_S, lambda: done(None, f"{name} did not answer in time"))

        def arrive() -> None:
            host = self._hosts.get(address)
            if host is None or address in self._refusing:
                done(None, f"{name} refused the connection")
                return
            near, far = End(self, caller, line, http=http), End(self, host, line, http=http)
            near.other, far.other = far, near
            self._ends.append((near, far))
            done(near, "")
            if near.open and not host.accept(far):
                far.close()

        attempt(0)

    def _line(self, one: str, other: str) -> Line:
        return self.lines.get(frozenset((one, other)), _DEFAULT_LINE)

    # Chance

    def travel(self, line: Line, *, patient: bool = False) -> float:
        """How long a segment takes. For ever if it was lost too often."""
        seconds = line.delay_s + line.jitter_s * self._chance.random()
        again = RETRANSMISSION_S
        for _ in range(MAX_RETRANSMISSIONS):
            if not line.loss or self._chance.random() >= line.loss:
                return seconds
            seconds += again
            again *= 2
        return seconds if patient else inf

    def pieces(self, data: bytes, line: Line) -> list[bytes]:
        """Cuts bytes into segments at random places, which need not be the ends of packets."""
        if len(data) <= line.segment and self._chance.random() < 0.5:
            return [data]
        first = self._chance.randrange(1, min(len(data), line.segment) + 1)
        starts = [0, *range(first, len(data), line.segment)]
        return [data[start:stop] for start, stop in zip(starts, [*starts[1:], len(data)], strict=True)]


_DEFAULT_LINE = Line()
