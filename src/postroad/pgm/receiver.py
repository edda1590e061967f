"""A PGM receiver of one group, [RFC 3208] 6: a session for each source, and the NAKs that they want sent.

Without I/O or clock; chance comes from the caller. The driver passes packets with the address that they came from.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from postroad.bounded import BoundedTable, owner_of
from postroad.deadlines import earliest
from postroad.pgm.packet import MAX_NAK_LIST, Data, Kind, Nak, Packet, Spm, Tsi, encode
from postroad.pgm.session import Event, ReceiverCounts, Session
from postroad.pgm.settings import PgmSettings

SILENT_HEARTBEATS = 4  # a source that misses so many of its longest heartbeats makes room for another


class OutgoingNak(NamedTuple):
    """A NAK, to the source's address by unicast and to the group with a TTL of 1."""

    nla: str
    data: bytes


class Receiver:
    """`counts` are of all sources since the start."""

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
        """A packet of the group that came from this address. Those for other ports are ignored."""
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
        """Where there are too many sources, one that never brought a message makes room, or one that is silent."""
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
        """The source that holds the most gives up gaps until there is room; first those that may be forged."""
        while self._held_bytes > self.settings.all_bytes:
            largest = max(
                self.sessions.values(), key=lambda each: (each.held_bytes > 0, not each.confirmed, each.held_bytes)
            )
            before = largest.held_bytes
            largest.give_up_gaps()
            self._held_bytes += largest.held_bytes - before

    def take_events(self) -> list[Event]:
        """What happened since the last call, in order."""
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
        """The NAKs that have to be sent now."""
        out: list[OutgoingNak] = []
        for key, session in list(self.sessions.items()):
            if now >= session.heard_at + self.settings.source_silence_s:  # as `deadline` has it, to the bit
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
        """Its source NLA is the source itself, which may be another than the one that takes NAKs."""
        assert session.nla is not None
        self.counts.naks += 1
        nak = Nak(Kind.NAK, session.tsi, self.port, sequences, session.address, self.group)
        return OutgoingNak(session.nla, encode(nak))
