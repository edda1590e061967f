"""A database under two processes of one manager: commits that are lost, late, answered twice or never, a primary that
fails over, and a lease that runs out while its holder is stopped.

The lease is decided by the real store/lease.py. What a process asks takes effect at once or not at all, as transactions
do; the rest of this module is what can go wrong on the way there and back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any
from uuid import UUID, uuid5

from postroad.errors import LeaseLost, StorageError
from postroad.simulation.ledger import Stage
from postroad.simulation.loop import Loop, Timer
from postroad.simulation.node import Node
from postroad.simulation.scenario import Failover, FailoverKind
from postroad.store.interface import Batch
from postroad.store.lease import Action, Lease, Role, Row
from postroad.store.memory import MemoryStore

ANSWER_S = 5.0  # for which a process waits for an answer, before it takes its connection for broken
PAUSE_S = 0.3  # before the next try
RESTART_S = 2.0  # until a process that has ended runs again
LATE_SHARE, LATE_S = 0.02, 1.5
TWICE_SHARE = 0.05
LOSSY_SHARE = 0.3  # of requests and of answers that are lost while the network is bad

Answer = Callable[[Any], object]


@dataclass(eq=False)
class Database:
    """The rows that both processes see: their store, the lease, and which commits took place."""

    loop: Loop
    chance: Random
    store: MemoryStore = field(default_factory=MemoryStore)
    row: Row = field(default_factory=lambda: Row(0, 0, None, "", True))
    fence: int = 0
    commits: set[int] = field(default_factory=set)
    lost: set[int] = field(default_factory=set)  # those that died with their process, on the way
    away: bool = False
    lossy: float = 0.0  # the share of requests and of answers that are lost
    _incarnation: int = 0  # of the server; what was on its way to an earlier one is lost
    _confirmed: Row = field(default_factory=lambda: Row(0, 0, None, "", True))  # what the replica has

    def ask(self, work: Callable[[], Any], answer: Answer, reached: Callable[[], bool]) -> None:
        """Runs `work` in the database, later. `answer` gets its result, or may never be called."""
        incarnation = self._incarnation

        def arrive() -> None:
            if self.away or incarnation != self._incarnation or not reached() or self._lose():
                return
            result = work()
            if self._lose():
                return
            for _ in range(2 if self.chance.random() < TWICE_SHARE else 1):
                self.loop.after(self._travel(), lambda: answer(result) if incarnation == self._incarnation else None)

        self.loop.after(self._travel(), arrive)

    def _travel(self) -> float:
        late = LATE_S if self.chance.random() < LATE_SHARE else 0.0
        return self.chance.uniform(0.0005, 0.01) + self.chance.random() * late

    def _lose(self) -> bool:
        return self.chance.random() < self.lossy

    # Transactions

    def look(self) -> Row:
        return self.row

    def renew(self, epoch: int, instance: UUID) -> Row:
        """It does not wait for the replica."""
        if (self.row.epoch, self.row.instance, self.row.free) == (epoch, instance, False):
            self.row = replace(self.row, beat=self.row.beat + 1)
        return self.row

    def take(self, seen: Row, instance: UUID, holder: str) -> Row:
        if (self.row.epoch, self.row.beat) == (seen.epoch, seen.beat):
            self.fence += 1
            self._change(Row(self.row.epoch + 1, self.row.beat + 1, instance, holder))
        return self.row

    def release(self, epoch: int, instance: UUID) -> Row:
        if (self.row.epoch, self.row.instance, self.row.free) == (epoch, instance, False):
            self.fence += 1
            self._change(replace(self.row, beat=self.row.beat + 1, free=True))
        return self.row

    def refence(self, epoch: int, instance: UUID) -> int | None:
        """A new connection of the holder: nothing that it sent by an earlier one can take place any more."""
        if (self.row.epoch, self.row.instance, self.row.free) != (epoch, instance, False):
            return None
        self.fence += 1
        return self.fence

    def commit(self, batch: Batch, number: int, fence: int) -> bool:
        if number in self.lost or not self.allows(fence):
            return False
        self.store.commit([batch])
        self.commits.add(number)
        return True

    def allows(self, fence: int) -> bool:
        return fence == self.fence

    def _change(self, row: Row) -> None:
        self.row = self._confirmed = row

    # Faults

    def stop(self) -> None:
        self.away = True
        self._incarnation += 1

    def start(self, *, promoted: bool) -> None:
        """A replica has every commit, because they wait for it; a renewal may be missing."""
        self.away = False
        if promoted:
            self.row = self._confirmed


@dataclass(eq=False)
class Process:
    """One of two processes of a manager: a Node that runs while it has the lease, and the Disk of that Node."""

    name: str
    database: Database
    stage: Stage
    lease_s: float

    def __post_init__(self) -> None:
        self.node: Node
        self.lease: Lease
        self.alive = False
        self.frozen = False
        self.cut_off = False
        self.failing = 0.0
        self._started = 0
        self._held: list[Callable[[], object]] = []
        self._fence: int | None = None
        self._writing: tuple[Batch, int] | None = None
        self._kept = True  # whether the last commit took place
        self._finishing = False

    @property
    def store(self) -> MemoryStore:
        return self.database.store

    def holds(self) -> bool:
        return self.lease.holds(self.stage.loop.now)

    @property
    def valid(self) -> bool:
        return self.database.row.instance == self.lease.instance

    @property
    def serves(self) -> bool:
        return self.alive and not self.frozen and self.node.up

    # Life

    def adopt(self, node: Node) -> None:
        self.node = node

    def start(self) -> None:
        if self.alive:
            return
        self.alive = True
        self._started += 1
        self.lease = Lease(uuid5(UUID(int=0), f"{self.name} {self._started}"), self.lease_s)
        self._fence, self._writing, self._finishing = None, None, False
        self._look()

    def end(self, *, silently: bool = False, restart_s: float = RESTART_S) -> None:
        """The process is gone, whatever it was doing."""
        if not self.alive:
            return
        self.alive = self.frozen = False
        self._held.clear()
        self._started += 1
        if self.node.up:
            self.node.crash(silently=silently)
        self.stage.loop.after(restart_s, self.start)

    def freeze(self, seconds: float) -> None:
        self.frozen = True
        self.stage.log.note(self.name, f"stopped for {seconds:.3f} s")
        started = self._started
        self.stage.loop.after(seconds, lambda: self._wake() if self._started == started else None)

    def _wake(self) -> None:
        self.stage.log.note(self.name, "goes on")
        self.frozen = False
        held, self._held = self._held, []
        started = self._started
        for callback in held:
            if self._started == started:
                callback()

    def input(self, callback: Callable[[], object]) -> None:
        """Whatever reaches the process waits while it is stopped."""
        if self.frozen:
            self._held.append(callback)
            return
        try:
            callback()
        except Exception:
            if self.valid:
                raise
            self._deposed()  # what it had read and what is stored now need not fit together any more

    def _after(self, seconds: float, callback: Callable[[], object]) -> Timer:
        started = self._started
        return self.stage.loop.after(
            seconds, lambda: self.input(lambda: callback() if self._started == started else None)
        )

    def _ask(self, work: Callable[[], Any], answer: Answer, failed: Callable[[], object]) -> None:
        """Asks the database. Exactly one of `answer` and `failed` is called, unless the process ends before."""
        started, open_ = self._started, [True]

        def once(callback: Callable[[], object]) -> None:
            if open_[0] and self._started == started:
                open_[0] = False
                callback()

        self.database.ask(
            work, lambda result: self.input(lambda: once(lambda: answer(result))), lambda: not self.cut_off
        )
        self._after(ANSWER_S, lambda: once(failed))

    # The lease

    def hand_over(self) -> None:
        if self.lease.hand_over() is Action.FINISH:
            self.stage.log.note(self.name, "hands over")
            self._finishing = True
            if self.node.up:
                self.node.crash(silently=False)
            self.lease.finished()

    def _look(self) -> None:
        lease, asked_at = self.lease, self.stage.loop.now

        def work() -> Row:
            if lease.role in (Role.ACTIVE, Role.HANDING_OVER):
                return self.database.renew(lease.epoch, lease.instance)
            if lease.role is Role.RELEASING:
                return self.database.release(lease.epoch, lease.instance)
            return self.database.look()

        def saw(row: Row) -> None:
            if self._saw(row, asked_at) is Action.TAKE:
                at = self.stage.loop.now
                take = self.database.take
                self._ask(lambda: take(row, lease.instance, self.name), lambda taken: taking(taken, at), failed)
            else:
                again()

        def taking(taken: Row, at: float) -> None:
            self._saw(taken, at)
            again()

        def failed() -> None:
            lease.unreachable()
            again()

        def again() -> None:
            self._after(lease.pause_s(), self._look)

        self._ask(work, saw, failed)

    def _saw(self, row: Row, asked_at: float) -> Action:
        before = self.lease.role
        action = self.lease.saw(row, asked_at, self.stage.loop.now)
        if action is Action.STOP:
            self._deposed()
        elif self.lease.role is Role.ACTIVE and before is not Role.ACTIVE:
            self._serve()
        return action

    def _serve(self) -> None:
        epoch = self.lease.epoch

        def fenced(fence: int | None) -> None:
            if fence is None:
                self._deposed()
            elif not self.node.up:
                self._fence = fence
                self.node.start()

        self._ask(lambda: self.database.refence(epoch, self.lease.instance), fenced, self._serve)

    def _deposed(self) -> None:
        self.stage.log.note(self.name, f"{self.database.row.holder} has taken over")
        self.end()

    # The Disk of the node

    def put(self, batch: Batch) -> None:
        """The commit of a start. Nothing else can have changed the store since this process read it."""
        assert self._fence is not None
        if not self.database.commit(batch, self.stage.chance.getrandbits(64), self._fence):
            raise StorageError("another process has taken over")

    def commit(self, batch: Batch, done: Callable[[StorageError | None], None]) -> None:
        number = self.stage.chance.getrandbits(64)
        self._writing = batch, number
        lease, database = self.lease, self.database

        def attempt(*, doubtful: bool) -> None:
            if self._fence is None:
                self._ask(lambda: database.refence(lease.epoch, lease.instance), fenced, again)
            elif doubtful:
                self._ask(lambda: number in database.commits, found, again)
            else:
                fence = self._fence
                self._ask(lambda: database.commit(batch, number, fence), committed, again)

        def fenced(fence: int | None) -> None:
            if fence is None:
                done_with(LeaseLost("another process has taken over"))
            else:
                self._fence = fence
                attempt(doubtful=True)

        def found(there: bool) -> None:
            if there:
                done_with(None)
            else:
                attempt(doubtful=False)

        def committed(took_place: bool) -> None:
            done_with(None if took_place else LeaseLost("another process has taken over"))

        def again() -> None:
            self._fence = None  # a new connection
            self._after(PAUSE_S, lambda: attempt(doubtful=True))

        def done_with(error: StorageError | None) -> None:
            if self._writing is None or self._writing[1] != number:
                return  # the node has ended meanwhile
            self._kept = number in database.commits
            if error is not None:
                self._deposed()
                return
            self._writing = None
            done(None)

        attempt(doubtful=False)

    def crash(self) -> bool:
        """The process ends. Returns whether its last commit took place, or will: it may be on its way."""
        writing, self._writing = self._writing, None
        if writing is None:
            return self._kept
        batch, number = writing
        if number in self.database.commits:
            return True
        fence, self._fence = self._fence, None
        if fence is None or self.database.away or self.stage.chance.random() < 0.5:
            self.database.lost.add(number)
            return False
        return self.database.commit(batch, number, fence)


class Pair:
    """Two processes of one manager, on two machines, as applications and operators see them: the one that serves."""

    def __init__(self, database: Database, processes: tuple[Process, Process]) -> None:
        self.database = database
        self.processes = processes
        self._last = processes[0]

    @property
    def process(self) -> Process:
        """The one that serves, or served last. One that does not know yet that it is deposed comes second."""
        serving = sorted((each for each in self.processes if each.serves), key=lambda each: not each.valid)
        self._last = next(iter(serving), self._last)
        return self._last

    @property
    def current(self) -> Node:
        return self.process.node

    @property
    def up(self) -> bool:
        return self.process.serves

    @property
    def crashes(self) -> int:
        return sum(each.node.crashes for each in self.processes)

    def start(self) -> None:
        for each in self.processes:
            each.start()

    def each_start(self, callback: Callable[[], None]) -> None:
        for each in self.processes:
            each.node.each_start(callback)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.current, name)

    def fail(self, failover: Failover, loop: Loop) -> None:
        process, database = self.process, self.database
        match failover.kind:
            case FailoverKind.KILL | FailoverKind.POWER:
                process.end(silently=failover.kind is FailoverKind.POWER, restart_s=max(RESTART_S, failover.for_s))
            case FailoverKind.FREEZE if process.serves:
                process.freeze(failover.for_s)
            case FailoverKind.HAND_OVER if process.serves:
                process.hand_over()
            case FailoverKind.CUT_OFF:
                process.cut_off = True
                loop.after(failover.for_s, lambda: _join(process))
            case FailoverKind.RESTART | FailoverKind.PROMOTE:
                database.stop()
                promoted = failover.kind is FailoverKind.PROMOTE
                loop.after(failover.for_s, lambda: database.start(promoted=promoted))
            case FailoverKind.LOSSY:
                database.lossy = LOSSY_SHARE
                loop.after(failover.for_s, lambda: _mend(database))


def _join(process: Process) -> None:
    process.cut_off = False


def _mend(database: Database) -> None:
    database.lossy = 0.0
