"""A multicast link in virtual time that loses, delays and repeats packets, with PGM sources and receivers on it."""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from math import inf
from random import Random

from postroad.pgm.packet import Kind, Nak, Tsi, decode
from postroad.pgm.receiver import Apdu, Lost, Receiver
from postroad.pgm.settings import PgmSettings
from postroad.pgm.source import Source

GROUP, PORT = "239.1.1.1", 8001
GSI = bytes.fromhex("0a0b0c0d0e0f")
FAST = PgmSettings(txw_max_rte=2_000_000, opening_s=0.0)


def source(settings: PgmSettings = FAST, *, address: str = "10.9.0.1", first: int = 100, now: float = 0.0) -> Source:
    port = 0x1234 + int(address.rpartition(".")[2]) - 1
    return Source(Tsi(GSI, port), address, GROUP, PORT, settings, first, now)


@dataclass(eq=False)
class Listener:
    """A receiver on the link, and what it got."""

    address: str
    receiver: Receiver
    apdus: list[bytes] = field(default_factory=list)
    lost: int = 0
    largest_held: int = 0

    def collect(self) -> None:
        for event in self.receiver.take_events():
            if isinstance(event, Apdu):
                self.apdus.append(event.data)
                event.source.confirm()
            elif isinstance(event, Lost):
                self.lost += event.packets
        self.largest_held = max(self.largest_held, sum(each.held_bytes for each in self.receiver.sessions.values()))


class Link:
    """Every packet reaches every other host independently: late by up to `jitter_s`, twice, or not at all."""

    def __init__(self, seed: int = 1, *, loss: float = 0.0, duplicate: float = 0.0, jitter_s: float = 0.0) -> None:
        self.random = Random(seed)
        self.loss, self.duplicate, self.jitter_s = loss, duplicate, jitter_s
        self.now = 0.0
        self.sources: list[Source] = []
        self.listeners: list[Listener] = []
        self.sent: list[object] = []
        self.naks: list[tuple[float, Nak]] = []
        self.dropped = 0
        self._order = count()
        self._transit: list[tuple[float, int, Source | Listener, bytes, str]] = []

    def listen(self, settings: PgmSettings = FAST, *, address: str = "10.9.0.9") -> Listener:
        listener = Listener(address, Receiver(GROUP, PORT, settings, self.random.random))
        self.listeners.append(listener)
        return listener

    def run(self, until: float) -> None:
        while True:
            for each in self.sources:
                deadline = each.deadline
                if deadline is not None and deadline <= self.now:
                    for out in each.poll(self.now):
                        self.multicast(out.data, each.nla)
                    self.sent += each.take_sent()
            for listener in self.listeners:
                deadline = listener.receiver.deadline
                if deadline is not None and deadline <= self.now:
                    for nak in listener.receiver.poll(self.now):
                        self._nak(nak.data, listener)
                listener.collect()
            deadlines = [each.deadline for each in self.sources] + [each.receiver.deadline for each in self.listeners]
            deadlines += [self._transit[0][0] if self._transit else None]
            following = min((each for each in deadlines if each is not None), default=inf)
            if following > until:
                self.now = until
                return
            self.now = max(self.now, following)
            while self._transit and self._transit[0][0] <= self.now:
                _, _, host, data, address = heappop(self._transit)
                self._arrive(host, data, address)

    def multicast(self, data: bytes, address: str, sender: Listener | None = None) -> None:
        for listener in self.listeners:
            if listener is not sender:
                self._put(listener, data, address)

    def _nak(self, data: bytes, listener: Listener) -> None:
        packet = decode(data)
        assert isinstance(packet, Nak)
        self.naks.append((self.now, packet))
        for each in self.sources:
            self._put(each, data, listener.address)
        self.multicast(data, listener.address, listener)

    def _put(self, host: Source | Listener, data: bytes, address: str) -> None:
        if self.random.random() < self.loss:
            self.dropped += 1
            return
        copies = 2 if self.random.random() < self.duplicate else 1
        for _ in range(copies):
            at = self.now + 0.001 + self.jitter_s * self.random.random()
            heappush(self._transit, (at, next(self._order), host, data, address))

    def _arrive(self, host: Source | Listener, data: bytes, address: str) -> None:
        packet = decode(data)
        assert packet is not None
        if isinstance(host, Listener):
            host.receiver.receive(packet, address, self.now)
            host.collect()
        elif isinstance(packet, Nak) and packet.kind is Kind.NAK:
            host.receive(packet, self.now)
