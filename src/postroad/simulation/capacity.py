"""The capacity of an enterprise: a day's traffic through its simulated managers, and how deep their queues get.

Traffic is given by the minute. If there are more messages than can be simulated, one stands for several: the number of
messages and the readers' speed are divided by the same factor, and depths are multiplied by it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field

from postroad.directory.file import Enterprise
from postroad.errors import InvalidArgument
from postroad.names import PathName
from postroad.simulation.disk import DiskSpeed
from postroad.simulation.ledger import Promise
from postroad.simulation.lines import Line
from postroad.simulation.loop import STARTED
from postroad.simulation.node import Node
from postroad.simulation.scenario import (
    ACKS,
    Consumer,
    Fault,
    FaultKind,
    Flow,
    Kind,
    Naming,
    QueuePlan,
    Scenario,
    queue_at,
    with_addresses,
)
from postroad.simulation.world import World

MINUTE_S = 60
OVERHEAD = 200  # bytes of a packet besides its body, roughly
LARGEST = 4_000_000  # bytes of a body, at most
SETTLE_S = 3600.0
READS = 10  # reads by each reader in a second
SAMPLES = 1440  # depths kept for each queue, spread evenly over time


@dataclass(frozen=True, slots=True, kw_only=True)
class MinuteTraffic:
    """One minute's messages from a manager to a queue of another. `minute` counts from the start of the day. `size` is
    the size of one packet."""

    minute: int
    source: str
    destination: str
    queue: str
    kind: Kind
    messages: int
    size: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityPlan:
    """`read_rate` is the number of messages that the reader of each queue takes in a second. `outages` are (manager,
    minute, minutes)."""

    read_rate: float = 1000.0
    delay_ms: float = 10.0
    most_messages: int = 20_000
    outages: tuple[tuple[str, float, float], ...] = ()
    seed: int = 0


@dataclass(slots=True, kw_only=True)
class QueueDepth:
    """How many messages a queue had. `highest_at` is a minute of the day. `depths` are (minute, messages): the greatest
    number since the entry before. Entries for an empty queue are left out."""

    manager: str
    queue: str
    outgoing: bool
    highest: int = 0
    highest_at: float = 0.0
    at_end: int = 0
    depths: list[tuple[float, int]] = field(default_factory=list)

    def json(self) -> dict[str, object]:
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """`simulated` messages stand for `messages`, each for `factor` of them. `skipped` messages stay on one manager, or
    name a manager that the enterprise does not have. `drained_at` is the minute from which nothing moved; None if there
    was none."""

    messages: int
    skipped: int
    simulated: int
    factor: int
    arrived: int
    drained_at: float | None
    queues: tuple[QueueDepth, ...]


def capacity(enterprise: Enterprise, traffic: Iterable[MinuteTraffic], plan: CapacityPlan) -> Capacity:
    """Simulates the plan. The queues of the result are sorted by highest depth. Raises InvalidArgument if there is
    nothing to simulate, or if an outage names an unknown manager."""
    rows = list(traffic)
    names = {each.name.lower(): each.name for each in enterprise.managers}
    usable = [each for each in rows if _is_usable(each, names)]
    if not usable:
        raise InvalidArgument("there is no traffic between two managers of the enterprise in this time")
    messages = sum(each.messages for each in usable)
    factor = max(1, -(-messages // plan.most_messages))
    first = min(each.minute for each in usable)
    queues = {key: number for number, key in enumerate(sorted({_queue_key(each, names) for each in usable}), 1)}
    scenario = _scenario(enterprise, usable, names, queues, first, factor, plan)
    world = World(scenario)
    called = {f"{name}\\private$\\q{number}".lower(): queue for (name, queue, _), number in queues.items()}
    depths = _Depths(world, called, first, factor, (scenario.workload_s + SETTLE_S) / SAMPLES)
    world.run()
    depths.sample()
    sent = [each for each in world.stage.ledger if each.promise is Promise.KEPT]
    return Capacity(
        messages=messages,
        skipped=sum(each.messages for each in rows) - messages,
        simulated=len(sent),
        factor=factor,
        arrived=sum(bool(each.arrivals) for each in sent),
        drained_at=None if world.settled_at is None else round(first + world.settled_at / MINUTE_S, 1),
        queues=depths.highest_first(),
    )


def _is_usable(row: MinuteTraffic, names: dict[str, str]) -> bool:
    source, destination = row.source.lower(), row.destination.lower()
    return row.messages > 0 and source != destination and source in names and destination in names


def _queue_key(row: MinuteTraffic, names: dict[str, str]) -> tuple[str, str, bool]:
    return names[row.destination.lower()], row.queue, row.kind is Kind.TRANSACTIONAL


def _scenario(
    enterprise: Enterprise,
    rows: Sequence[MinuteTraffic],
    names: dict[str, str],
    queues: dict[tuple[str, str, bool], int],
    first: int,
    factor: int,
    plan: CapacityPlan,
) -> Scenario:
    paths = {key: queue_at(key[0], f"private$\\q{number}") for key, number in queues.items()}
    managers = [each.name for each in enterprise.managers]
    line = Line(delay_s=plan.delay_ms / 1000)
    last = max(each.minute for each in rows)
    return Scenario(
        seed=plan.seed,
        enterprise=with_addresses(enterprise),
        lines={frozenset((one, other)): line for one in managers for other in managers if one < other},
        queues=tuple(QueuePlan(path=paths[key], transactional=key[2]) for key in queues),
        flows=tuple(_flows(rows, names, paths, first, factor)),
        consumers=tuple(_reader(path, plan.read_rate / factor) for path in paths.values()),
        faults=tuple(_outage(each, names, first) for each in plan.outages),
        disk=DiskSpeed(),
        workload_s=float((last - first + 1) * MINUTE_S),
        settle_s=SETTLE_S,
    )


def _flows(
    rows: Sequence[MinuteTraffic],
    names: dict[str, str],
    paths: dict[tuple[str, str, bool], PathName],
    first: int,
    factor: int,
) -> Iterable[Flow]:
    """The remainder of a division goes to the next minute of the same flow, so no message is lost or doubled."""
    left: dict[tuple[object, ...], int] = defaultdict(int)
    for row in sorted(rows, key=lambda each: each.minute):
        key = _queue_key(row, names)
        flow = (row.source.lower(), key, row.kind)
        count, left[flow] = divmod(left[flow] + row.messages, factor)
        if count:
            yield Flow(
                source=names[row.source.lower()],
                to=paths[key],
                kind=row.kind,
                naming=Naming.PRIVATE,
                count=count,
                start_s=float((row.minute - first) * MINUTE_S),
                every_ms=MINUTE_S * 1000 / count,
                size=min(LARGEST, max(0, row.size - OVERHEAD)),
            )


def _reader(queue: PathName, rate: float) -> Consumer:
    """A reader that takes so many messages in a second. It takes several at a time, because each read waits for the
    disk. The size of a batch is random, up to its limit."""
    batch = max(1, round(rate / READS))
    return Consumer(queue=queue, batch=batch, think_ms=1000 * (batch + 1) / 2 / rate)


def _outage(outage: tuple[str, float, float], names: dict[str, str], first: int) -> Fault:
    name, minute, minutes = outage
    if name.lower() not in names:
        raise InvalidArgument(f"outage: there is no queue manager {name} in the enterprise")
    at_s = max(0.0, (minute - first) * MINUTE_S)
    return Fault(kind=FaultKind.CRASH, managers=(names[name.lower()],), at_s=at_s, for_s=minutes * MINUTE_S)


class _Depths:
    """Samples the depth of all queues at even steps of virtual time."""

    def __init__(self, world: World, called: dict[str, str], first: int, factor: int, every_s: float) -> None:
        self._world = world
        self._called = called
        self._first = first
        self._factor = factor
        self._every_s = every_s
        self._found: dict[tuple[str, str], QueueDepth] = {}
        self._next()

    def _next(self) -> None:
        self._world.stage.loop.after(self._every_s, self._look)

    def _look(self) -> None:
        self.sample()
        self._next()

    def sample(self) -> None:
        minute = round(self._first + (self._world.stage.loop.now - STARTED) / MINUTE_S, 1)
        for node in self._world.nodes.values():
            if node.up:
                self._sample(node, minute)

    def _sample(self, node: Node, minute: float) -> None:
        for queue in node.core.queues:
            path = queue.properties.path
            called = self._called.get(f"{node.name}\\{path}".lower())
            if path.lower() == ACKS or (called is None and not queue.is_outgoing):
                continue
            key = node.name, path
            found = self._found.setdefault(
                key, QueueDepth(manager=node.name, queue=called or path, outgoing=queue.is_outgoing)
            )
            found.at_end = queue.count * self._factor
            if found.at_end > found.highest:
                found.highest, found.highest_at = found.at_end, minute
            if found.at_end or (found.depths and found.depths[-1][1]):
                found.depths.append((minute, found.at_end))

    def highest_first(self) -> tuple[QueueDepth, ...]:
        return tuple(sorted(self._found.values(), key=lambda each: (-each.highest, each.manager, each.queue)))
