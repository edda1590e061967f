"""A PGM receiver of one group, [RFC 3208] 6: a session for each source, and the NAKs that the sessions send.

No I/O and no clock; the caller provides chance. The driver passes each packet with the address that it came from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from enum import Enum, auto
from functools import partial
from typing import NamedTuple

from postroad.pgm.packet import MAX_NAK_LIST, Data, Kind, Nak, Packet, Spm, Tsi, after, distance, encode
from postroad.pgm.settings import PgmSettings
from postroad.runtime.bounded import BoundedTable, owner_of
from postroad.runtime.deadlines import Deadlines, earliest

# What a receiver knows of one PGM source, [RFC 3208] 6: its window, what is missing, and the APDU under way. The
# settings bound all of it, so a forged source costs no more memory than a real one. What a source claims to have sent
# counts as lost only after the source has brought a message.


HELD_OVERHEAD = 600  # memory that a held packet takes besides its payload, in bytes
FARTHEST = 65_536  # packets ahead of the next one that are believed; a window beyond them must show in its trail


class Apdu(NamedTuple):
    """One APDU of a source, in the order of sending."""

    source: Session
    data: bytes


class Lost(NamedTuple):
    """Packets of a source that can no longer be repaired."""

    source: Session
    packets: int


Event = Apdu | Lost


@dataclass(slots=True)
class ReceiverCounts:
    packets: int = 0  # data packets that were new
    duplicates: int = 0
    repaired: int = 0
    lost: int = 0
    unconfirmed: int = 0  # missing packets of sources that have brought no message yet, and may be forged
    naks: int = 0
    apdus: int = 0
    cut_short: int = 0  # APDUs that were incomplete, too large, or inconsistent
    sources_refused: int = 0

    def add(self, other: ReceiverCounts) -> None:
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))


class _Wait(Enum):
    """6.3: what a missing packet waits for."""

    BACK_OFF = auto()
    NCF = auto()
    DATA = auto()


@dataclass(slots=True)
class _Missing:
    wait: _Wait = _Wait.BACK_OFF
    ncf_retries: int = 0
    data_retries: int = 0


@dataclass(slots=True, eq=False)
class Session:
    """One source at one address. `chance` gives numbers from 0 to 1. `events` collects what happens."""

    tsi: Tsi
    address: str
    settings: PgmSettings
    chance: Callable[[], float]
    events: list[Event]
    counts: ReceiverCounts
    heard_at: float
    nla: str | None = None  # where NAKs go, from the last SPM
    ended: bool = False
    confirmed: bool = False  # it has brought a message
    unconfirmed_lost: int = 0  # packets that were lost before `confirmed`
    answered: bool = False  # it has answered a NAK
    held_bytes: int = 0  # memory of the packets that came out of order
    next: int | None = None  # the packet to deliver next
    _lead: int = 0  # the last packet that the source is known to have sent
    _noted: int = 0  # the gaps up to here are in `_missing`
    _spm_sequence: int | None = None
    _fin: bool = False
    _held: dict[int, Data | None] = field(default_factory=dict)  # None for a lost packet
    _missing: dict[int, _Missing] = field(default_factory=dict)
    _timers: Deadlines[int] = field(default_factory=Deadlines)
    _apdu: bytearray = field(default_factory=bytearray)
    _apdu_first: int = 0
    _apdu_length: int = 0  # 0 if no APDU is under way

    def __str__(self) -> str:
        return f"{self.address} ({self.tsi})"

    @property
    def deadline(self) -> float | None:
        """When a NAK or a time-out is due. 6.3: no NAK before the first SPM, which says where NAKs go."""
        return None if self.nla is None else self._timers.first

    # Packets of the source

    def take_data(self, packet: Data, now: float) -> None:
        self.heard_at = now
        sequence = packet.sequence
        if self.ended or distance(packet.trail, sequence) < 0:
            return
        if self.next is None:
            if packet.kind is Kind.RDATA:
                return  # somebody else missed it: it does not say where the source is now
            self._begin(sequence, packet.join, packet.trail)
        assert self.next is not None
        ahead = distance(self.next, sequence)
        if ahead < 0 or self._held.get(sequence) is not None:
            self.counts.duplicates += 1
            return
        if ahead > FARTHEST:
            return
        self.counts.packets += 1
        self._forget_missing(sequence, repaired=packet.kind is Kind.RDATA)
        self._held[sequence] = packet
        self.held_bytes += HELD_OVERHEAD + len(packet.payload)
        self._extend(sequence)
        self._move_trail(packet.trail)
        self._after(packet, now)
        if self.held_bytes > self.settings.source_bytes:
            self.give_up_gaps()

    def take_spm(self, packet: Spm, now: float) -> None:
        self.heard_at = now
        if self.ended or distance(packet.trail, packet.lead) < -1:
            return
        if self._spm_sequence is not None and distance(self._spm_sequence, packet.sequence) <= 0:
            return
        self._spm_sequence = packet.sequence
        if is_host(packet.nla):
            self.nla = packet.nla
        if self.next is None:
            self._begin(after(packet.lead), packet.join, packet.trail)
        assert self.next is not None
        self._move_trail(packet.trail)
        if distance(self.next, packet.lead) <= FARTHEST:
            self._extend(packet.lead)
        self._after(packet, now)

    def _after(self, packet: Data | Spm, now: float) -> None:
        if packet.rst:
            self._reset()
            return
        self._deliver()
        self._note_gaps(now)
        self._fin = self._fin or packet.fin
        self._end_if_finished()

    def _begin(self, sequence: int, join: int | None, trail: int) -> None:
        """6.2: nothing before the first packet is asked for, unless OPT_JOIN offers it (9.4)."""
        if join is not None and distance(trail, join) >= 0 and 0 <= distance(join, sequence) <= self.settings.missing:
            sequence = join
        self.next = sequence
        self._lead = self._noted = after(sequence, -1)

    def _extend(self, lead: int) -> None:
        if distance(self._lead, lead) > 0:
            self._lead = lead

    def _move_trail(self, trail: int) -> None:
        """Nothing before the trailing edge will come any more. Delivers what is here of it, and counts the rest as
        lost."""
        assert self.next is not None
        if distance(self.next, trail) <= 0:
            return
        for sequence in _within(self._held, self.next, distance(self.next, trail)):
            self._skip_to(sequence)
            self._deliver()
        self._skip_to(trail)

    def _skip_to(self, sequence: int) -> None:
        """Counts everything from `next` up to here as lost."""
        assert self.next is not None
        gap = distance(self.next, sequence)
        if gap <= 0:
            return
        self._lose(gap)
        for each in _within(self._missing, self.next, gap):
            self._forget_missing(each)
        self.next = sequence
        self._extend(after(sequence, -1))
        if distance(self._noted, sequence) > 1:
            self._noted = after(sequence, -1)

    def _reset(self) -> None:
        """9.8.1, note 3: ends the session at once and recovers nothing more."""
        if self._missing:
            self._lose(len(self._missing))
        self._end()

    def _end_if_finished(self) -> None:
        """9.7: OPT_FIN ends the session once all data is delivered."""
        if self._fin and self.next is not None and distance(self._lead, self.next) == 1:
            self._end()

    def _end(self) -> None:
        """Ends the session, but keeps it until the source has long been silent: a late repair for others must not look
        like a new session."""
        self.ended = True
        self._held.clear()
        self._missing.clear()
        self._timers = Deadlines()
        self._apdu.clear()
        self._apdu_length = self.held_bytes = 0

    # Repairs, 6.3

    def take_ncf(self, sequences: tuple[int, ...], now: float) -> None:
        """The source has heard a NAK. Sends no other until the source has had time to send the data."""
        for sequence in sequences:
            missing = self._missing.get(sequence)
            if missing is not None:
                self.answered = True
                missing.wait = _Wait.DATA
                self._timers.set(sequence, now + self.settings.nak_rdata_ivl_s)

    def take_nak(self, sequences: tuple[int, ...], now: float) -> None:
        """Another receiver has asked for the packet."""
        for sequence in sequences:
            missing = self._missing.get(sequence)
            if missing is not None and missing.wait is _Wait.BACK_OFF:
                missing.wait = _Wait.NCF
                self._timers.set(sequence, now + self.settings.nak_rpt_ivl_s)

    def due_naks(self, now: float) -> list[int]:
        """Returns the packets to ask for now."""
        if self.nla is None:
            return []
        wanted: list[int] = []
        given_up = False
        again_at = self._back_off(now)
        for sequence in self._timers.take_due(now):
            missing = self._missing[sequence]
            if missing.wait is _Wait.BACK_OFF:
                wanted.append(sequence)
                missing.wait = _Wait.NCF
                self._timers.set(sequence, now + self.settings.nak_rpt_ivl_s)
            elif self._may_repeat(missing):
                missing.wait = _Wait.BACK_OFF
                self._timers.set(sequence, again_at)
            else:
                del self._missing[sequence]
                self._held[sequence] = None
                given_up = True
        self._deliver()
        if given_up and not self.answered:  # stop asking for the other packets that it claims to have sent
            self._move_trail(after(self._lead))
        self._note_gaps(now)
        self._end_if_finished()
        return wanted

    def _may_repeat(self, missing: _Missing) -> bool:
        if missing.wait is _Wait.NCF:
            missing.ncf_retries += 1
            return missing.ncf_retries <= self.settings.nak_ncf_retries
        missing.data_retries += 1
        return missing.data_retries <= self.settings.nak_data_retries

    def _back_off(self, now: float) -> float:
        """Chooses when to ask. Packets that are found missing together get one time, so one NAK asks for all."""
        shortest, longest = self.settings.nak_rb_ivl_s
        return now + shortest + (longest - shortest) * self.chance()

    def _note_gaps(self, now: float) -> None:
        """Notes gaps, but only so many at a time: a lead that is far ahead costs nothing until the packets before it
        are here. A source that has not answered a NAK yet is asked for one packet at a time. It may be forged, and then
        the NAKs would trouble somebody else."""
        assert self.next is not None
        most = self.settings.missing if self.answered else MAX_NAK_LIST + 1
        if distance(self._noted, self.next) > 1:
            self._noted = after(self.next, -1)
        if self._noted == self._lead:
            return
        at = self._back_off(now)
        while self._noted != self._lead and len(self._missing) < most:
            self._noted = after(self._noted)
            if self._noted not in self._held:
                self._missing[self._noted] = _Missing()
                self._timers.set(self._noted, at)

    def _forget_missing(self, sequence: int, *, repaired: bool = False) -> None:
        if self._missing.pop(sequence, None) is not None:
            self._timers.set(sequence, None)
            self.counts.repaired += repaired
            self.answered = self.answered or repaired

    def give_up_gaps(self) -> None:
        """Counts gaps as lost and delivers what is behind them, because too much is held there. It frees a quarter at
        once: the search for gaps takes time, and a forger could make us search for each packet."""
        assert self.next is not None
        most = self.held_bytes * 3 // 4
        for sequence in sorted(self._held, key=partial(distance, self.next)):
            if self.held_bytes <= most:
                break
            self._skip_to(sequence)
            self._deliver()

    def confirm(self) -> None:
        """The source has brought a message, so it is real. What was missing before now counts as lost."""
        if not self.confirmed:
            self.confirmed = True
            self.counts.unconfirmed -= self.unconfirmed_lost
            self.counts.lost += self.unconfirmed_lost

    def _lose(self, packets: int) -> None:
        if self.confirmed:
            self.counts.lost += packets
        else:
            self.counts.unconfirmed += packets
            self.unconfirmed_lost += packets
        self._cut_short()
        last = self.events[-1] if self.events else None
        if isinstance(last, Lost) and last.source is self:
            self.events[-1] = Lost(self, last.packets + packets)
        else:
            self.events.append(Lost(self, packets))

    # Delivery, strictly in the order of sending, note 3

    def _deliver(self) -> None:
        assert self.next is not None
        while self.next in self._held:
            packet = self._held.pop(self.next)
            self.next = after(self.next)
            if packet is None:
                self._lose(1)
            else:
                self.held_bytes -= HELD_OVERHEAD + len(packet.payload)
                self._assemble(packet)

    def _assemble(self, packet: Data) -> None:
        fragment, payload = packet.fragment, packet.payload
        if fragment is None:
            self._cut_short()
            if payload:
                self._complete(payload)
            return
        first, offset, length = fragment
        if offset == 0 and first == packet.sequence:
            self._cut_short()
            if length > self.settings.max_apdu:
                self.counts.cut_short += 1
                return
            self._apdu_first, self._apdu_length = first, length
        elif not self._apdu_length:
            return  # the rest of an APDU whose start is not here
        if (first, offset, length) != (self._apdu_first, len(self._apdu), self._apdu_length):
            self._cut_short()
            return
        self._apdu += payload
        if len(self._apdu) == length:
            data = bytes(self._apdu)
            self._apdu.clear()
            self._apdu_length = 0
            self._complete(data)
        elif len(self._apdu) > length:
            self._cut_short()

    def _complete(self, data: bytes) -> None:
        self.counts.apdus += 1
        self.events.append(Apdu(self, data))

    def _cut_short(self) -> None:
        if self._apdu_length:
            self.counts.cut_short += 1
            self._apdu.clear()
            self._apdu_length = 0


def _within(found: Mapping[int, object], start: int, count: int) -> list[int]:
    """The keys among the `count` numbers from `start` on, in order. Its time depends on the smaller of the two."""
    if count < len(found):
        return [each for each in map(partial(after, start), range(count)) if each in found]
    return sorted((each for each in found if 0 <= distance(start, each) < count), key=partial(distance, start))


def is_host(address: str) -> bool:
    """Whether NAKs can be sent to the address. Not for a group, a broadcast address or none."""
    return 0 < int(address.partition(".")[0]) < 224


SILENT_HEARTBEATS = 4  # a source that has been silent for so many of its longest heartbeats makes room for another


class OutgoingNak(NamedTuple):
    """A NAK. It goes to the source's address by unicast, and to the group with a TTL of 1."""

    nla: str
    data: bytes


class Receiver:
    """Receives the packets of one group. `counts` covers all sources since the start."""

    def __init__(self, group: str, port: int, settings: PgmSettings, chance: Callable[[], float]) -> None:
        self.group = group
        self.port = port
        self.settings = settings
        self.counts = ReceiverCounts()
        self.sessions: BoundedTable[tuple[Tsi, str], Session] = BoundedTable(  # by source and address
            settings.sources, in_use=self._is_live, dropped=self._dropped
        )
        self._now = 0.0
        self._chance = chance
        self._events: list[Event] = []
        self._held_bytes = 0

    def receive(self, packet: Packet, address: str, now: float) -> None:
        """Takes a packet of the group that came from this address. Ignores packets for other ports."""
        if packet.port != self.port:
            return
        if isinstance(packet, Nak):
            self._take_nak(packet, address, now)
            return
        key = (packet.tsi, address)
        self._now = now
        session = self.sessions.get(key)
        if session is not None:
            self.sessions.touch(key)
        else:
            session = self._new_session(key, packet, now)
            if session is None:
                return
        before = session.held_bytes
        if isinstance(packet, Data):
            session.take_data(packet, now)
        else:
            session.take_spm(packet, now)
        self._held_bytes += session.held_bytes - before
        if self._held_bytes > self.settings.all_bytes:
            self._make_space()

    def _take_nak(self, packet: Nak, address: str, now: float) -> None:
        if packet.group != self.group:
            return
        session = self.sessions.get((packet.tsi, address if packet.kind is Kind.NCF else packet.nla))
        if session is None:
            return
        if packet.kind is Kind.NCF:
            session.take_ncf(packet.sequences, now)
        else:
            session.take_nak(packet.sequences, now)

    def _new_session(self, key: tuple[Tsi, str], packet: Data | Spm, now: float) -> Session | None:
        """Makes a session. If there are too many, one whose source never brought a message, or is silent, makes
        room."""
        if isinstance(packet, Data) and packet.kind is Kind.RDATA:
            return None
        tsi, address = key
        session = Session(tsi, address, self.settings, self._chance, self._events, self.counts, now)
        if not self.sessions.put(key, session, owner_of(address)):
            self.counts.sources_refused += 1
            return None
        return session

    def _is_live(self, key: tuple[Tsi, str], session: Session) -> bool:
        return session.confirmed and self._now - session.heard_at < SILENT_HEARTBEATS * self.settings.ihb_max_s

    def _dropped(self, key: tuple[Tsi, str], session: Session) -> None:
        self._held_bytes -= session.held_bytes

    def _make_space(self) -> None:
        """Frees memory. The source that holds the most gives up gaps until there is room; possibly forged ones go
        first."""
        while self._held_bytes > self.settings.all_bytes:
            largest = max(
                self.sessions.values(), key=lambda each: (each.held_bytes > 0, not each.confirmed, each.held_bytes)
            )
            before = largest.held_bytes
            largest.give_up_gaps()
            self._held_bytes += largest.held_bytes - before

    def take_events(self) -> list[Event]:
        """Returns what happened since the last call, in order."""
        events = self._events[:]
        self._events.clear()
        return events

    # Time

    @property
    def deadline(self) -> float | None:
        """When `poll` has something to do next."""
        first = next(iter(self.sessions.values()), None)
        silent = None if first is None else first.heard_at + self.settings.source_silence_s
        return earliest([silent, *(each.deadline for each in self.sessions.values())])

    def poll(self, now: float) -> list[OutgoingNak]:
        """Returns the NAKs that have to be sent now."""
        out: list[OutgoingNak] = []
        for key, session in list(self.sessions.items()):
            if now >= session.heard_at + self.settings.source_silence_s:  # the same sum as in `deadline`
                self.sessions.pop(key)
                self._dropped(key, session)
                continue
            before = session.held_bytes
            wanted = session.due_naks(now)
            self._held_bytes += session.held_bytes - before
            starts = range(0, len(wanted), MAX_NAK_LIST + 1)
            out += [self._nak(session, tuple(wanted[start : start + MAX_NAK_LIST + 1])) for start in starts]
        return out

    def _nak(self, session: Session, sequences: tuple[int, ...]) -> OutgoingNak:
        """Its source NLA is the source's own address, which may differ from the address that accepts NAKs."""
        assert session.nla is not None
        self.counts.naks += 1
        nak = Nak(Kind.NAK, session.tsi, self.port, sequences, session.address, self.group)
        return OutgoingNak(session.nla, encode(nak))
