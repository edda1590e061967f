"""Queue managers on a multicast link, in virtual time under one seed. Packets are lost, late or duplicated.

Every host is a real LocalQueueManager with a real MulticastService. Nothing happens outside `run`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from math import inf
from random import Random
from uuid import UUID

from postroad.carriers.flights import TransferWatcher
from postroad.message import Message
from postroad.pgm.packet import Data, Kind, MalformedPgm, Spm, Tsi, after, decode, encode
from postroad.pgm.receiver import OutgoingNak
from postroad.pgm.settings import PgmSettings
from postroad.pgm.source import Outgoing
from postroad.queues.core_settings import Chance
from postroad.queues.local import LocalQueueManager
from postroad.queues.queue import Queue
from postroad.reports.info import counted
from postroad.soap.addresses import Redirections
from postroad.soap.multicast import MulticastService, MulticastSettings
from postroad.soap.requests import Outgoing as Written
from postroad.store.memory import MemoryStore
from postroad.wire.view import MessageView

STARTED = 1_700_000_000.0
FAST = MulticastSettings(PgmSettings(txw_max_rte=2_000_000))


class Host:
    """A queue manager on the link. It is also the Driver of its service."""

    def __init__(self, lan: Lan, number: int, settings: MulticastSettings) -> None:
        self.lan = lan
        self.name = f"host{number}"
        self._number = number
        self.identifier = UUID(int=number << 96 | 0xAA)
        self.settings = settings
        self.store = MemoryStore()
        self.groups: set[str] = set()
        self.cut_until = 0.0  # no packet reaches or leaves it before this time
        self.address: str | None = f"10.9.0.{number}"
        self.error: str | None = None
        self.malformed = self.overflowed = 0
        self.notices: list[tuple[str, Mapping[str, object]]] = []
        self.lost_before = self.unconfirmed_before = 0  # packets lost before its last start
        self.restarts = 0
        self.up = True
        self._start()

    def _start(self) -> None:
        self.core = LocalQueueManager(
            self.name, self.identifier, self.store, Chance(self._new_id, self.lan.random.randrange)
        )
        self.core.start(self.lan.now)
        self.commit()
        watcher = TransferWatcher(suspicious=lambda event, facts: self.notices.append((event, facts)))
        written = Written(self.core, Redirections())
        chance = self.lan.random.random
        hashes = frozenset({"sha1"})
        self.service = MulticastService(self.core, self.settings, self, written, chance, watcher, hashes)
        self.core.queues.watch_definitions(self.lan.soon(self.service.rebind))
        self.service.start(self.lan.now)
        self.commit()

    def _new_id(self) -> UUID:
        return UUID(int=self.lan.random.getrandbits(128))

    def restart(self) -> None:
        """The process dies with its express messages. Another one starts."""
        self.lost_before, self.unconfirmed_before = self.lost, self.unconfirmed
        self.restarts += 1
        self.groups.clear()
        self._start()

    def stop(self) -> None:
        self.service.stop(self.lan.now)
        self.groups.clear()
        self.up = False

    @property
    def lost(self) -> int:
        return self.lost_before + self.service.info().lost

    @property
    def unconfirmed(self) -> int:
        return self.unconfirmed_before + self.service.info().unconfirmed

    def commit(self) -> None:
        tick = self.core.ticks.seal()
        if tick:
            self.store.commit([tick.batch])
            self.core.ticks.committed(tick, self.lan.now)

    # Driver

    def send(self, group: str, out: Outgoing) -> None:
        assert self.address is not None
        self.lan.multicast(self, group, out.data)

    def send_nak(self, group: str, nak: OutgoingNak) -> None:
        self.lan.unicast(self, nak.nla, nak.data)
        self.lan.multicast(self, group, nak.data)

    def join(self, group: str) -> str | None:
        self.groups.add(group)
        return self.error

    def leave(self, group: str) -> None:
        self.groups.discard(group)

    def wake(self) -> None:
        """Does nothing: the link asks for deadlines by itself."""

    def arrived(self, data: bytes, address: str, group: str | None) -> None:
        if not self.up or (group is not None and group not in self.groups):
            return
        try:
            packet = decode(data)
        except MalformedPgm:
            return
        if packet is not None:
            self.service.received(packet, address, group, self.lan.now)

    # Queues

    def create(self, path: str, **attributes: object) -> Queue:
        queue = self.core.create_queue(path, self.lan.now, **attributes)
        self.lan.run(self.lan.now)
        return queue

    def send_to(self, name: str, *messages: Message) -> None:
        self.core.send(name, messages, self.lan.now)

    def labels(self, path: str) -> list[str]:
        return [view.label for view in self.views(path)]

    def views(self, path: str) -> list[MessageView]:
        return [MessageView(record.packet) for record in self.core.queues.get(path).available(100_000)]


class Lan:
    """One link. `loss` and `duplicate` are chances for each packet at each host, and `jitter_s` the longest delay."""

    def __init__(self, seed: int = 1, *, loss: float = 0.0, duplicate: float = 0.0, jitter_s: float = 0.0) -> None:
        self.random = Random(seed)
        self.loss, self.duplicate, self.jitter_s = loss, duplicate, jitter_s
        self.now = STARTED
        self.hosts: list[Host] = []
        self.packets: list[tuple[str, str, bytes]] = []  # all packets that were sent: from, to, data
        self._order = count()
        self._events: list[tuple[float, int, Callable[[], None]]] = []

    def host(self, settings: MulticastSettings = FAST) -> Host:
        host = Host(self, len(self.hosts) + 1, settings)
        self.hosts.append(host)
        return host

    def at(self, time: float, event: Callable[[], None]) -> None:
        heappush(self._events, (time, next(self._order), event))

    def soon(self, event: Callable[[], None]) -> Callable[[], None]:
        return lambda: self.at(self.now, event)

    def multicast(self, sender: Host, group: str, data: bytes) -> None:
        """Sends a packet to every host, the sender included."""
        assert sender.address is not None
        self.inject(sender.address, group, data, sender)

    def inject(self, address: str, group: str, data: bytes, sender: Host | None = None) -> None:
        """Sends a packet from any address; no host needs to have it."""
        self.packets.append((address, group, data))
        for host in self.hosts:
            self._put(sender, host, data, address, group)

    def unicast(self, sender: Host, address: str, data: bytes) -> None:
        assert sender.address is not None
        self.packets.append((sender.address, address, data))
        for host in self.hosts:
            if host.address == address:
                self._put(sender, host, data, sender.address, None)

    def _put(self, sender: Host | None, host: Host, data: bytes, address: str, group: str | None) -> None:
        cut = self.now < host.cut_until or (sender is not None and self.now < sender.cut_until)
        if host is not sender and (cut or self.random.random() < self.loss):
            return
        for _ in range(2 if self.random.random() < self.duplicate else 1):
            delay = 0.0005 + self.jitter_s * self.random.random()
            self.at(self.now + delay, lambda: host.arrived(data, address, group))

    def run(self, until: float) -> None:
        while True:
            for host in self.hosts:
                deadline = host.service.deadline
                if host.up and deadline is not None and deadline <= self.now:
                    host.service.on_timer(self.now)
                host.commit()
            deadlines = [host.service.deadline for host in self.hosts if host.up]
            following = min((each for each in deadlines if each is not None), default=inf)
            if self._events:
                following = min(following, self._events[0][0])
            if following > until:
                self.now = max(self.now, until)
                return
            self.now = max(self.now, following)
            while self._events and self._events[0][0] <= self.now:
                heappop(self._events)[2]()


# Scenarios under seeds

GROUP = "239.1.1.1:8001"
QUEUE = "private$\\news"
QUIET_S = 200.0  # without losses, at the end, so that everything that still can arrive does
FORGER = "10.9.0.250"  # an address that no host has
_LABEL = re.compile(rb"<action>MSMQ:(host\d+ \d+)</action>")


@dataclass(slots=True)
class MulticastOutcome:
    """The result of one seed. `lost` are packets that receivers gave up and reported."""

    seed: int
    sent: int = 0
    received: int = 0
    lost: int = 0
    repaired: int = 0
    sentences: list[str] = field(default_factory=list)


def run_multicast_seed(seed: int) -> MulticastOutcome:
    """Runs one to three sources and one to four receivers, with everything that can go wrong between them."""
    random = Random(seed)
    lan = Lan(seed)
    pgm = PgmSettings(
        txw_max_rte=random.choice([70_000, 500_000, 2_000_000]), txw_secs=random.choice([8.0, 30.0, 300.0])
    )
    settings = MulticastSettings(pgm, idle_s=random.choice([5.0, 900.0]))
    sources = [lan.host(settings) for _ in range(random.randint(1, 3))]
    receivers = [lan.host(settings) for _ in range(random.randint(1, 4))]
    for host in receivers:
        if random.random() < 0.8:
            host.create(QUEUE, multicast_address=GROUP)
        else:
            lan.at(lan.now + random.uniform(0, 20), lambda host=host: host.create(QUEUE, multicast_address=GROUP))  # type: ignore[misc]
    lan.loss = random.choice([0.0, 0.01, 0.05, 0.2])
    lan.duplicate, lan.jitter_s = random.choice([0.0, 0.05]), random.choice([0.0, 0.005, 0.05])
    sent: dict[str, list[str]] = {host.name: [] for host in sources}
    for host in sources:
        _plan_messages(lan, random, host, sent[host.name])
    for host in lan.hosts:
        if random.random() < 0.15:
            lan.at(lan.now + random.uniform(1, 25), host.restart)
        if random.random() < 0.2:
            lan.at(lan.now + random.uniform(1, 25), lambda host=host: _cut(lan, host, random.uniform(0.5, 40)))  # type: ignore[misc]
    if random.random() < 0.3:
        _plan_garbage(lan, random)
    lan.run(lan.now + 60)
    lan.loss = 0.0
    lan.run(lan.now + QUIET_S)
    return _judge(seed, lan, sources, receivers, sent)


def _plan_messages(lan: Lan, random: Random, host: Host, sent: list[str]) -> None:
    at = lan.now + random.uniform(0, 5)
    for number in range(random.randint(1, 40)):
        at += random.choice([0.0, 0.0, random.uniform(0, 1.5)])
        label = f"{host.name} {number}"
        body = random.randbytes(random.choice([10, 1000, 20_000]))

        def send(label: str = label, body: bytes = body) -> None:
            host.send_to(f"MULTICAST={GROUP}", Message(body, label=label, recoverable=True))
            sent.append(label)

        lan.at(at, send)


def _cut(lan: Lan, host: Host, seconds: float) -> None:
    host.cut_until = lan.now + seconds


def _plan_garbage(lan: Lan, random: Random) -> None:
    """Damaged packets of others, and well-formed forged ones: data scattered over a large window, and a window that
    jumps ahead of data in sequence."""

    def disturb() -> None:
        data = bytearray(random.choice(lan.packets)[2] if lan.packets else random.randbytes(40))
        for place in random.sample(range(len(data)), random.randint(1, 4)):
            data[place] ^= random.randrange(1, 256)
        lan.inject(FORGER, "239.1.1.1", bytes(data))
        start, tsi = random.getrandbits(32), Tsi(random.randbytes(6), random.getrandbits(16))
        lead, jump = after(start, 60_000), after(start, random.randrange(1, 1 << 30))
        lan.inject(FORGER, "239.1.1.1", encode(Spm(tsi, 8001, 0, start, lead, FORGER)))
        for sequence in (after(lead), *(after(start, random.randrange(70_000)) for _ in range(5))):
            lan.inject(FORGER, "239.1.1.1", encode(Data(Kind.ODATA, tsi, 8001, sequence, start, b"POST x")))
        if random.random() < 0.5:
            lan.inject(FORGER, "239.1.1.1", encode(Spm(tsi, 8001, 1, jump, jump, FORGER)))

    for _ in range(30):
        lan.at(lan.now + random.uniform(0, 40), disturb)


def _judge(
    seed: int, lan: Lan, sources: list[Host], receivers: list[Host], sent: dict[str, list[str]]
) -> MulticastOutcome:
    sessions, packets = _sessions(lan)
    outcome = MulticastOutcome(seed, sum(map(len, sent.values())))
    for host in sources:
        waiting = sum(queue.count for queue in host.core.queues.outgoing.values())
        if waiting:
            outcome.sentences.append(f"{host.name} has {counted(waiting, 'message')} that never left")
    for host in receivers:
        labels = host.labels(QUEUE)
        outcome.received += len(labels)
        outcome.lost += host.lost
        outcome.repaired += host.service.info().repaired
        if host.lost and not any(event == "multicast packets lost" for event, _ in host.notices):
            outcome.sentences.append(f"{host.name} lost {host.lost} packets and reported none")
        if host.lost > packets:
            outcome.sentences.append(f"{host.name} counts {host.lost} packets as lost, of {packets}")
        restarted = any(each.restarts for each in (host, *sources))
        for session in sessions:
            wanted = [label for label in session if label in labels]
            if wanted != sorted(wanted, key=labels.index):
                outcome.sentences.append(f"{host.name} has {wanted[0]} and others of its session out of order")
        for name, wanted in sent.items():
            found = [label for label in labels if label.startswith(f"{name} ")]
            if len(set(found)) < len(found):
                outcome.sentences.append(f"{host.name} has messages of {name} twice")
            whole = not found or found == wanted[-len(found) :]
            if not whole and not host.lost and not host.unconfirmed and not restarted and not _was_cut(host, sources):
                outcome.sentences.append(f"{host.name} misses messages of {name} and counts no loss")
    return outcome


def _sessions(lan: Lan) -> tuple[list[list[str]], int]:
    """The messages of each PGM session in the order of sending, and the number of packets in all sessions. The order
    between two sessions of one source is random, so messages that were sent in two sessions are left out."""
    sessions: dict[tuple[str, Tsi], list[str]] = {}
    packets = 0
    for address, _, data in lan.packets:
        if address == FORGER or data[4] != Kind.ODATA:
            continue
        packet = decode(data)
        assert isinstance(packet, Data)
        packets += 1
        label = _LABEL.search(packet.payload)
        if label is not None:
            sessions.setdefault((address, packet.tsi), []).append(label[1].decode())
    often = Counter(label for labels in sessions.values() for label in labels)
    return [[label for label in labels if often[label] == 1] for labels in sessions.values()], packets


def _was_cut(host: Host, sources: list[Host]) -> bool:
    """Whether the link was cut for longer than a source lives. Such a cut hides a whole session."""
    return any(each.cut_until for each in (host, *sources))
