"""One queue manager of the simulation: the real core and the real binary service, with a disk and a life of its own.

Virtual time replaces asyncio, threads and sockets. After a crash, only the disk is left.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from random import Random
from typing import Any, Protocol
from uuid import UUID, uuid5

from postroad.binary.next_hops import KnownManagers, resolver
from postroad.binary.service import BinaryService, Peer
from postroad.binary.session import BinarySettings, Session
from postroad.carriers.flights import TransferWatcher
from postroad.config import Configuration
from postroad.directory.snapshot import Directory
from postroad.errors import StorageError
from postroad.manager.composition import build_core
from postroad.net.endpoints import is_address
from postroad.queues.core_settings import Chance
from postroad.queues.durability import Done, Durability
from postroad.queues.local import LocalQueueManager, QueueManagerState
from postroad.queues.outgoing_queues import ConnectionStatus, Watcher
from postroad.routing import Router
from postroad.security.guard import Verdict
from postroad.simulation.keys import Vault
from postroad.simulation.ledger import Stage
from postroad.simulation.lines import End, Network
from postroad.simulation.loop import Timer, packet_lines
from postroad.simulation.web import Web
from postroad.soap.settings import SoapSettings
from postroad.store.interface import Batch
from postroad.store.memory import MemoryStore

TIMER_INTERVAL_S = 0.5
START_RETRY_S = 1.0  # after a start that failed because of the disk
OPENING_S = 0.02  # what the thread for signatures and keys takes at most

NEXT_ADDRESS_S = 0.25  # as net/reaching.py has it

POWER_FAILED = StorageError("the queue manager crashed before this was stored")


class NodeDisk(Protocol):
    """Where a node keeps its messages: a disk, or a database that another process uses too."""

    failing: float

    @property
    def valid(self) -> bool:
        """Whether no other process has taken over the store."""

    @property
    def store(self) -> MemoryStore: ...

    def holds(self) -> bool:
        """Whether no other process can have taken over, as far as this one knows."""

    def put(self, batch: Batch) -> None:
        """Commits at once, at a start."""

    def commit(self, batch: Batch, done: Callable[[StorageError | None], None]) -> None: ...

    def crash(self) -> bool:
        """Returns whether the last commit is kept."""


@dataclass(eq=False, repr=False)
class Node:
    """`provide` makes the queues of a core that starts. Every function in `started` is called after each start. What
    reaches the process passes through `gate`, which may let it wait."""

    config: Configuration
    address: str
    identifier: UUID
    settings: BinarySettings
    soap_settings: SoapSettings | None
    disk: NodeDisk
    directory: Directory
    network: Network
    stage: Stage
    provide: Callable[[LocalQueueManager, float], None]
    watcher: TransferWatcher
    vault: Vault
    gate: Callable[[Callable[[], object]], object] = lambda callback: callback()

    def __post_init__(self) -> None:
        self.name = self.config.manager.name
        self.up = False
        self.clock_error_s = 0.0
        self.crashes = 0
        self.started: list[Callable[[], None]] = []
        self.core: LocalQueueManager
        self.durability: Durability
        self.service: BinaryService
        self.web: Web | None = None
        self._loop = self.stage.loop
        self._log = self.stage.log
        self._life = 0
        self._ids = count(1)
        self._chance = Chance(self._new_id, Random(self.identifier.int).randrange)
        self._clear()

    def _clear(self) -> None:
        self._ends: dict[Session, End] = {}
        self._sessions: dict[End, Session] = {}
        self._surviving: set[Done] = set()
        self._held: dict[Session, bytearray] = {}  # what arrived after packets that are being opened

    @property
    def current(self) -> Node:
        """The process that serves now: of a manager with one process, this one."""
        return self

    def each_start(self, callback: Callable[[], None]) -> None:
        self.started.append(callback)

    @property
    def now(self) -> float:
        """What the wall clock of this manager shows."""
        return self._loop.now + self.clock_error_s

    @property
    def busy(self) -> bool:
        """Whether something is on its way to the disk, or waits for a peer."""
        if self._held or not self.durability.idle:
            return True
        if self.web is not None and self.web.busy:
            return True
        return any(session.sent.awaiting_ack for session in self.service.sessions)

    def after(self, seconds: float, callback: Callable[[], object]) -> Timer:
        """Calls back later in this life. A crash drops the callback."""
        life = self._life

        def due() -> None:
            if self._life == life and timer.callback is not None:  # cancelled while the process was stopped
                callback()

        timer = self._loop.after(seconds, lambda: self.gate(due))
        return timer

    # The event loop

    def call_soon(self, callback: Callable[..., object], *arguments: Any) -> Timer:
        return self.after(0.0, lambda: callback(*arguments))

    def call_later(self, delay: float, callback: Callable[..., object], *arguments: Any) -> Timer:
        return self.after(delay, lambda: callback(*arguments))

    def _new_id(self) -> UUID:
        """Ids of queues and transactions. A seed gives the same ids in every run."""
        return uuid5(self.identifier, str(next(self._ids)))

    # Life and death

    def start(self) -> None:
        """Starts as Manager.start does: queues, one commit, then the network. If the disk fails, tries again later."""
        self._clear()
        router = Router(self.identifier, self.directory, self.now)
        self.core = core = build_core(
            self.config,
            self.identifier,
            self.disk.store,
            self._chance,
            router,
            hosts=(self.address,),
            protection=self.vault.protection(self.identifier),
            public_keys=self.vault.public_keys,
        )
        self.durability = Durability(core, lambda: self.now)
        self.durability.drive(self, self, holds=self.disk.holds)
        core.watch(Watcher(follow_up_failed=_raise))  # what a manager would log and count is an error in the simulation
        core.start(self.now)
        self.provide(core, self.now)
        if self.disk.failing:
            self._log.note(self.name, "cannot start: the disk fails")
            self.after(START_RETRY_S, self.start)
            return
        while (tick := core.ticks.seal()) is not None:
            self.disk.put(tick.batch)
            core.ticks.committed(tick, self.now)
        core.enter(QueueManagerState.READY)
        self.up = True
        self._log.note(self.name, "started")
        known = KnownManagers(lambda: router, self.identifier)
        self.service = BinaryService(core, self.settings, resolver(lambda: router), self, known, self.watcher)
        self.web = None
        if self.soap_settings is not None:
            self.web = Web(self, self.soap_settings)
        self.network.join(self)
        self.service.start(self.now)
        for callback in self.started:
            callback()
        if self.web is not None:
            self.web.service.start(self.now)
        self.after(TIMER_INTERVAL_S, self._run_timers)
        core.deadlines.drive(self, lambda: self.now, self.changed)
        self.changed()

    def crash(self, *, silently: bool) -> None:
        """Memory is gone. A commit under way may have succeeded; the ledgers learn which."""
        self.crashes += 1
        self.up = False
        self._life += 1
        stored = self.disk.crash()
        kept = "" if not self.durability.writing else ", its last commit " + ("kept" if stored else "lost")
        self._log.note(self.name, f"crashed{' with its machine' if silently else ''}{kept}")
        outcome = None if stored else POWER_FAILED
        promises = [(done, outcome) for done in self.durability.under_way if done in self._surviving]
        promises += [(done, POWER_FAILED) for done in self.durability.gathered if done in self._surviving]
        self.network.leave(self, silently=silently)
        self.web = None
        self._clear()
        for done, error in promises:
            done(error)

    # What operators do

    def throttle(self, *, on: bool) -> None:
        """Flow control: accepts nothing from any peer."""
        if self.up:
            self.core.throttle(on=on)

    def pause(self) -> None:
        if self.up:
            for queue in list(self.core.queues.outgoing.values()):
                self.core.pause(queue)
            self.changed()

    def resume(self) -> None:
        if self.up:
            for queue in list(self.core.queues.outgoing.values()):
                self.core.resume(queue, self.now)
            self.changed()

    # The tick, as in Manager

    def when_durable(self, done: Done, *, survives: bool = False, repeats: bool = True) -> None:
        """Calls back after the next commit. A promise that survives a crash gets the disk's answer; a promise of the
        service dies with it."""
        if survives:
            self._surviving.add(done)
        self.durability.when_durable(done, repeats=repeats and not survives)

    def submit(self, batch: Batch, done: Callable[[Exception | None], object]) -> None:
        def written(error: StorageError | None) -> None:
            if error is not None:
                self._log.note(self.name, f"commit failed: {error}")
            self._surviving.difference_update(self.durability.under_way)
            done(error)
            self.changed()

        self.disk.commit(batch, written)

    def tidy(self) -> None:
        """A store in memory has nothing to give back."""

    def close(self) -> None:
        """The disk stays."""

    def _run_timers(self) -> None:
        self.core.run_timers(self.now)
        self.changed()
        self.after(TIMER_INTERVAL_S, self._run_timers)

    # Driver of the binary service

    def connect(self, peer: Peer) -> None:
        life = self._life
        self._log.note(self.name, f"connects to {peer.hop.host}")

        def connected(end: End | None, fault: str) -> None:
            if self._life != life:
                if end is not None:
                    end.close()
                return
            if end is None:
                self._log.note(self.name, fault)
                self.service.connect_failed(peer, ConnectionStatus.CONNECT_SOCKET_FAILURE, fault, self.now)
            else:
                session = self.service.connected(peer, end.other.host.address, self.now)
                self._join(end, session)
            self.changed()

        hosts = sorted(peer.hop.hosts, key=self.service.order.place)
        self.reach(hosts, lambda end, fault: self.gate(lambda: connected(end, fault)))

    @property
    def moves(self) -> bool:
        """Whether it may be at several addresses."""
        manager = self.directory.manager(self.identifier)
        return manager is not None and len(manager.hosts) > 1

    def places(self, host: str) -> list[str]:
        """The addresses at which the manager of this host may be, in the order to try them."""
        manager = None if is_address(host) else self.directory.manager_named(host)
        return sorted([host] if manager is None else manager.hosts, key=self.service.order.place)

    def reach(self, hosts: Sequence[str], done: Callable[[End | None, str], object], *, http: bool = False) -> None:
        """Connects to the first of these that takes the connection, and does not wait long for one of them."""
        over = False
        left = len(hosts)

        def ended(end: End | None, fault: str) -> None:
            nonlocal over, left
            left -= 1
            if over:
                if end is not None:
                    end.close()
            elif end is not None or not left:
                over = True
                done(end, fault)

        def attempt(host: str) -> None:
            if over:
                ended(None, "another address has answered")
            else:
                self.network.connect(self, host, ended, http=http)

        for number, host in enumerate(hosts):
            if number:
                self._loop.after(number * NEXT_ADDRESS_S, partial(attempt, host))
            else:
                attempt(host)

    def _join(self, end: End, session: Session) -> None:
        self._ends[session] = end
        self._sessions[end] = session
        self.flush(session)

    def open(self, session: Session, packets: list[bytes], done: Callable[[list[Verdict] | None], None]) -> None:
        """Opens packets as another thread would: other sessions go on meanwhile, this one is not read."""
        verdicts = [self.core.protection.opener.open(packet, self.now) for packet in packets]
        self._held[session] = bytearray()

        def opened() -> None:
            done(verdicts)
            held = self._held.pop(session)
            if held:
                self.service.received(session, bytes(held), self.now)
            self.changed()

        self.after(OPENING_S * self.stage.chance.random(), opened)

    def flush(self, session: Session) -> None:
        end = self._ends.get(session)
        if end is None:
            return
        data = session.data_to_send()
        if data:
            if self._log.wanted:
                for line in packet_lines(data):
                    self._log.note(self.name, f"to {end.other.host.name}: {line}")
            end.write(data)
        if session.closed:
            end.close()

    # Host

    def accept(self, end: End) -> bool:
        accepted = True

        def accept() -> None:
            nonlocal accepted
            accepted = self._accept(end)

        self.gate(accept)
        return accepted  # a process that is stopped accepts, too

    def _accept(self, end: End) -> bool:
        if end.http:
            return self.web is not None and self.web.accept(end)
        session = self.service.accepted(end.other.host.address, self.now)
        if session is None:
            return False
        self._join(end, session)
        self.changed()
        return True

    def data_arrived(self, end: End, data: bytes) -> None:
        self.gate(lambda: self._data_arrived(end, data))

    def connection_lost(self, end: End) -> None:
        self.gate(lambda: self._connection_lost(end))

    def _data_arrived(self, end: End, data: bytes) -> None:
        if end.http and self.web is not None:
            self.web.data_arrived(end, data)
            self.changed()
            return
        session = self._sessions.get(end)
        if session in self._held:
            self._held[session] += data
        elif session is not None:
            self.service.received(session, data, self.now)
            self.changed()

    def _connection_lost(self, end: End) -> None:
        if end.http and self.web is not None:
            self.web.connection_lost(end)
            self.changed()
            return
        session = self._sessions.pop(end, None)
        if session is None:
            return
        peer = self.service.sessions.get(session)
        self.service.disconnected(session, self.now)
        self._ends.pop(session, None)
        why = f": {peer.last_error}" if peer is not None else ""
        self._log.note(self.name, f"connection with {end.other.host.name} closed{why}")
        self.changed()

    def changed(self) -> None:
        """Something changed: there may be something to commit."""
        if self.up:
            self.durability.soon()


def _raise(message_id: str | None, error: Exception) -> None:
    raise error
