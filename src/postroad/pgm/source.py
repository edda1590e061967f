"""A PGM source, [RFC 3208] 5 and 16 with [MC-MQSRM] 2.1.3.1: APDUs in packets, and repairs of what receivers miss.

No I/O, no clock, no chance. The driver passes the time, sends what `poll` returns, and calls again at `deadline`.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from postroad.errors import LocalProtocolError
from postroad.pgm.packet import (
    DATA_HEADER,
    FRAGMENT_OPTIONS,
    MAX_NAK_LIST,
    Data,
    Fragment,
    Kind,
    Nak,
    Spm,
    Tsi,
    after,
    distance,
    encode,
)
from postroad.pgm.settings import PgmSettings
from postroad.runtime.deadlines import Deadlines, earliest

# The rate regulator of a source, [RFC 3208] 5.1.1 and [MC-MQSRM] 2.1.3.1: a token bucket.


CLOCK_S = 1e-6  # times are no finer than this, so a packet is not held back for less


class TokenBucket:
    """Holds at most what comes in during `depth_s` seconds, and never less than one packet of the largest size."""

    def __init__(self, bytes_per_s: float, depth_s: float, largest: int, now: float) -> None:
        self._rate = bytes_per_s
        self._depth = max(bytes_per_s * depth_s, float(largest))
        self._tokens = self._depth
        self._at = now

    def _fill(self, now: float) -> None:
        if now > self._at:
            self._tokens = min(self._depth, self._tokens + (now - self._at) * self._rate)
            self._at = now

    def take(self, size: int, now: float) -> bool:
        """Takes so many bytes from the bucket if they may leave now; else returns False."""
        self._fill(now)
        if self._tokens + self._rate * CLOCK_S < size:
            return False
        self._tokens -= size
        return True

    def when(self, size: int, now: float) -> float:
        """The time at which so many bytes may leave."""
        self._fill(now)
        return now + max(0.0, size - self._tokens) / self._rate


IP_HEADER = 20
FIRST_SPMS = 3  # before the first data; a receiver that loses them all begins with the first data packet it gets
FAREWELL_SPMS = 3


class Outgoing(NamedTuple):
    """A packet to the group."""

    kind: Kind
    data: bytes


class _Waiting(NamedTuple):
    """A packet that was not sent yet. `key` names the APDU that the packet completes."""

    payload: bytes
    fragment: tuple[int, int, int] | None  # how many packets ago the APDU began, offset, length
    key: object


class _Sent(NamedTuple):
    payload: bytes
    fragment: Fragment | None
    at: float


@dataclass(slots=True)
class SourceCounts:
    packets: int = 0  # ODATA
    repairs: int = 0  # RDATA
    naks: int = 0
    forced: int = 0  # packets that left the window early because it was full


@dataclass(slots=True, eq=False)
class Source:
    """One transport session to one group. `backlog` is the number of bytes that wait for the rate limit."""

    tsi: Tsi
    nla: str
    group: str
    port: int
    settings: PgmSettings
    first_sequence: int
    now: float
    counts: SourceCounts = field(default_factory=SourceCounts)
    backlog: int = 0
    closed: bool = False
    trail: int = field(init=False)  # TXW_TRAIL
    lead: int = field(init=False)  # TXW_LEAD
    window_bytes: int = 0
    _bucket: TokenBucket = field(init=False)
    _window: dict[int, _Sent] = field(default_factory=dict)
    _waiting: deque[_Waiting] = field(default_factory=deque)
    _sent: list[object] = field(default_factory=list)
    _repairs: Deadlines[int] = field(default_factory=Deadlines)  # NAKs whose RDATA is delayed
    _pending: dict[int, None] = field(default_factory=dict)  # all NAKs that got no RDATA yet
    _ready: deque[int] = field(default_factory=deque)  # the pending NAKs whose delay is over
    _confirmations: list[Outgoing] = field(default_factory=list)
    _repaired_last: bool = False
    _spm_sequence: int = 0
    _opening: deque[float] = field(init=False)  # when the first SPMs are due; data waits for them
    _since_ambient: int = 0
    _ambient_at: float = field(init=False)  # when the last ambient SPM was sent
    _heartbeat_at: float = field(init=False)
    _heartbeat_s: float = field(init=False)
    _advance_at: float = field(init=False)
    _closing: bool = False
    _aborted: bool = False
    _ends_at: float | None = None

    def __post_init__(self) -> None:
        self.trail, self.lead = self.first_sequence, after(self.first_sequence, -1)
        rate, depth = self.settings.txw_max_rte, self.settings.token_bucket_s
        self._bucket = TokenBucket(rate, depth, self.settings.max_tpdu, self.now)
        step = self.settings.opening_s / (FIRST_SPMS - 1)
        self._opening = deque(self.now + step * place for place in range(FIRST_SPMS))
        self._ambient_at = self.now
        self._heartbeat_s = self.settings.ihb_min_s
        self._heartbeat_at = self.now + self._heartbeat_s
        self._advance_at = self.now + self.settings.txw_adv_ivl

    # What the application does

    def send(self, apdu: bytes, key: object) -> None:
        """Queues one APDU. `take_sent` returns `key` after the last packet of the APDU has left."""
        if not 0 < len(apdu) <= self.settings.max_apdu:
            raise LocalProtocolError(f"an APDU must have 1 to {self.settings.max_apdu} bytes, got {len(apdu)}")
        if self._closing or self._aborted:
            raise LocalProtocolError("the source was closed")
        room = self.settings.max_tpdu - IP_HEADER - DATA_HEADER
        self.backlog += len(apdu)
        if len(apdu) <= room:
            self._waiting.append(_Waiting(apdu, None, key))
            return
        room -= FRAGMENT_OPTIONS
        offsets = range(0, len(apdu), room)
        for place, offset in enumerate(offsets):
            last = key if place == len(offsets) - 1 else None
            self._waiting.append(_Waiting(apdu[offset : offset + room], (place, offset, len(apdu)), last))

    def take_sent(self) -> list[object]:
        """Returns the keys of the APDUs that have left since the last call, in order."""
        sent, self._sent = self._sent, []
        return sent

    def close(self) -> None:
        """Sends everything that waits, then OPT_FIN. Receivers can ask for repairs for some time afterwards."""
        self._closing = True

    def abort(self) -> None:
        """9.8.2: drops what waits, ends the session with OPT_RST, and answers no more NAKs."""
        self._aborted = True
        self._waiting.clear()
        self._ready.clear()
        self._pending.clear()
        self._repairs = Deadlines()
        self.backlog = 0

    def farewell(self, now: float) -> list[Outgoing]:
        """Returns OPT_FIN three times, for a source that ends now: nobody can ask it for repairs any more."""
        self._closing = True
        self._waiting.clear()
        self.backlog = 0
        self.closed = True
        return [self._spm() for _ in range(FAREWELL_SPMS)]

    @property
    def idle(self) -> bool:
        """Whether nothing waits to be sent."""
        return not self._waiting and not self._pending

    # What receivers do

    def receive(self, nak: Nak, now: float) -> None:
        """5.2 and 5.3: each NAK inside the window gets an NCF at once, and RDATA after a delay. [MC-MQSRM] note 3: only
        the rate limit, which counts repairs too, protects against storms of NAKs."""
        if self._aborted or self.closed or nak.tsi != self.tsi or (nak.group, nak.port) != (self.group, self.port):
            return
        wanted = tuple(each for each in nak.sequences if each in self._window)[: MAX_NAK_LIST + 1]
        if not wanted:
            return
        self.counts.naks += 1
        self._confirmations.append(
            Outgoing(Kind.NCF, encode(Nak(Kind.NCF, self.tsi, self.port, wanted, self.nla, self.group)))
        )
        for sequence in wanted:
            if sequence not in self._pending and len(self._pending) < self.settings.pending_repairs:
                self._pending[sequence] = None
                self._repairs.set(sequence, now + self.repair_delay_s(sequence))

    def repair_delay_s(self, sequence: int) -> float:
        """2.1.3.1: the nearer to the trailing edge, the sooner."""
        span = distance(self.trail, self.lead) + 1
        return distance(self.trail, sequence) * self.settings.rdata_delay_s / span

    # Time

    @property
    def deadline(self) -> float | None:
        """When `poll` has something to do next. None for a source that is closed."""
        if self.closed:
            return None
        ends_now = self._closing and self._ends_at is None and not self._waiting
        if self._confirmations or self._aborted or ends_now:
            return self.now
        if self._opening:
            return self._opening[0]
        return earliest(
            (
                self._heartbeat_at,
                self._ambient_at + self.settings.ambient_s if self._since_ambient else None,
                self._advance_at if self._window else None,
                self._repairs.first,
                self._data_at(),
                self._ends_at,
            )
        )

    def _data_at(self) -> float | None:
        size = self._next_size()
        return None if size is None else self._bucket.when(size, self.now)

    def poll(self, now: float) -> list[Outgoing]:
        """Returns what has to be sent now, in order."""
        self.now = now
        if self.closed:
            return []
        out, self._confirmations = self._confirmations, []
        if self._aborted:
            self.closed = True
            return [self._spm()]
        while self._opening and now >= self._opening[0]:
            self._opening.popleft()
            out.append(self._spm())
        if self._opening and not self._closing:
            return out
        if now >= self._advance_at:
            self._advance(now)
        self._ready.extend(self._repairs.take_due(now))
        self._send_data(now, out)
        if self._since_ambient and now >= self._ambient_at + self.settings.ambient_s:
            self._ambient(now, out)
        if now >= self._heartbeat_at:
            self._heartbeat(now, out)
        if self._closing and not self._waiting:
            self._finish(now, out)
        return out

    def _finish(self, now: float, out: list[Outgoing]) -> None:
        """Puts OPT_FIN into every SPM from now on. Heartbeats repeat it until the end."""
        if self._ends_at is None:
            self._ends_at = now + self.settings.linger_s
            self._heartbeat_s = self.settings.ihb_min_s
            self._heartbeat_at = now + self._heartbeat_s
            out.append(self._spm())
        elif now >= self._ends_at:
            self.closed = True

    # Data

    def _next_size(self) -> int | None:
        """The size of the next data packet with its IP header. Repairs and new data take turns: neither blocks the
        other."""
        while self._ready and self._ready[0] not in self._window:
            self._pending.pop(self._ready.popleft(), None)
        if self._ready and not (self._repaired_last and self._waiting):
            sent = self._window[self._ready[0]]
            return _size(sent.payload, sent.fragment)
        if self._waiting:
            return _size(self._waiting[0].payload, self._waiting[0].fragment)
        return None

    def _send_data(self, now: float, out: list[Outgoing]) -> None:
        while (size := self._next_size()) is not None and self._bucket.take(size, now):
            if self._ready and not (self._repaired_last and self._waiting):
                self._repaired_last = True
                out.append(self._repair(self._ready.popleft()))
            else:
                self._repaired_last = False
                out.append(self._send_next(self._waiting.popleft(), now))
            self._since_ambient += 1
            self._heartbeat_s = self.settings.ihb_min_s
            self._heartbeat_at = now + self._heartbeat_s
            if self._since_ambient >= self.settings.ambient_packets:
                self._ambient(now, out)

    def _send_next(self, waiting: _Waiting, now: float) -> Outgoing:
        self.lead = sequence = after(self.lead)
        fragment = None
        if waiting.fragment is not None:
            before, offset, length = waiting.fragment
            fragment = Fragment(after(sequence, -before), offset, length)
        self._window[sequence] = _Sent(waiting.payload, fragment, now)
        self.window_bytes += len(waiting.payload)
        self.backlog -= len(waiting.payload)
        while self.window_bytes > self.settings.txw_bytes and self.trail != sequence:
            self.counts.forced += 1
            self._release()
        if waiting.key is not None:
            self._sent.append(waiting.key)
        self.counts.packets += 1
        packet = Data(Kind.ODATA, self.tsi, self.port, sequence, self.trail, waiting.payload, fragment)
        return Outgoing(Kind.ODATA, encode(packet))

    def _repair(self, sequence: int) -> Outgoing:
        del self._pending[sequence]
        sent = self._window[sequence]
        self.counts.repairs += 1
        packet = Data(Kind.RDATA, self.tsi, self.port, sequence, self.trail, sent.payload, sent.fragment)
        return Outgoing(Kind.RDATA, encode(packet))

    # The transmit window

    def _advance(self, now: float) -> None:
        """16.1 and [MC-MQSRM] 2.1.3.1: only time moves the window, not NAKs. It never passes a pending repair."""
        while self._advance_at <= now:
            self._advance_at += self.settings.txw_adv_ivl
        while self.trail in self._window and self.trail not in self._pending:
            if now - self._window[self.trail].at <= self.settings.txw_secs:
                break
            self._release()

    def _release(self) -> None:
        self.window_bytes -= len(self._window.pop(self.trail).payload)
        self.trail = after(self.trail)

    # Source path messages

    def _spm(self) -> Outgoing:
        sequence = self._spm_sequence
        self._spm_sequence = after(sequence)
        fin = self._closing and not self._waiting and not self._aborted
        spm = Spm(self.tsi, self.port, sequence, self.trail, self.lead, self.nla, fin=fin, rst=self._aborted)
        return Outgoing(Kind.SPM, encode(spm))

    def _ambient(self, now: float, out: list[Outgoing]) -> None:
        self._since_ambient = 0
        self._ambient_at = now
        out.append(self._spm())

    def _heartbeat(self, now: float, out: list[Outgoing]) -> None:
        """5.1.5: SPMs while there is no data, at longer and longer intervals."""
        self._heartbeat_s = min(self._heartbeat_s * 2, self.settings.ihb_max_s)
        self._heartbeat_at = now + self._heartbeat_s
        out.append(self._spm())


def _size(payload: bytes, fragment: object) -> int:
    return IP_HEADER + DATA_HEADER + (0 if fragment is None else FRAGMENT_OPTIONS) + len(payload)
