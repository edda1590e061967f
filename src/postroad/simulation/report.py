"""The result of a run, for people and programs: what arrived and how fast, what died and why, what is stuck and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

from postroad.simulation.apps import SendingApp
from postroad.simulation.ledger import Ledger, Promise, TrackedMessage
from postroad.simulation.loop import STARTED
from postroad.simulation.node import Node
from postroad.simulation.verdict import Verdict, judge
from postroad.simulation.world import World
from postroad.status.report import Outlook
from postroad.wire.constants import class_name


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """From the send to the destination queue, in milliseconds of virtual time."""

    p50_ms: float
    p90_ms: float
    p99_ms: float
    max_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowReport:
    """`sent` were accepted; of those, `arrived` are or were in their queue, and `waiting` are still on the way."""

    source: str
    to: str
    kind: str
    naming: str
    sent: int
    refused: int
    aborted: int
    arrived: int
    received: int
    waiting: int
    dead_letters: dict[str, int]  # by reason
    gone: dict[str, int]  # without a dead letter, by reason; `unknown` for express messages lost in a crash
    latency: Latency | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StuckQueue:
    """An outgoing queue that still has messages, and why."""

    manager: str
    queue: str
    messages: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """`settled_s` is when nothing moved any more, None if that never came; `faults` are broken guarantees."""

    seed: int
    duration_s: float
    settled_s: float | None
    events: int
    flows: tuple[FlowReport, ...]
    stuck: tuple[StuckQueue, ...]
    down: tuple[str, ...]  # managers that do not run at the end
    lost: int
    duplicated: int
    reordered: int
    faults: tuple[str, ...]

    @property
    def good(self) -> bool:
        return not (self.stuck or self.down or self.faults)

    def json(self) -> dict[str, object]:
        return asdict(self)


def report(world: World) -> Report:
    """After `World.run`."""
    verdict = judge(world)
    loop = world.stage.loop
    return Report(
        seed=world.scenario.seed,
        duration_s=loop.now - STARTED,
        settled_s=world.settled_at,
        events=loop.steps,
        flows=tuple(_flow(sender, world.stage.ledger) for sender in world.senders),
        stuck=tuple(each for node in world.nodes.values() if node.up for each in _stuck(node)),
        down=tuple(node.name for node in world.nodes.values() if not node.up),
        lost=len(verdict.lost),
        duplicated=len(verdict.duplicated),
        reordered=len(verdict.reordered),
        faults=_faults(verdict),
    )


def _faults(verdict: Verdict) -> tuple[str, ...]:
    return (*verdict.lost, *verdict.duplicated, *verdict.reordered, *verdict.broken)


def _flow(sender: SendingApp, ledger: Ledger) -> FlowReport:
    flow = sender.flow
    written = [each for each in ledger if each.flow is flow]
    sent = [each for each in written if each.promise is Promise.KEPT]
    arrived = [each for each in sent if each.arrivals]
    gone = [each for each in sent if not (each.arrivals or each.dead or each.waiting)]
    return FlowReport(
        source=flow.source,
        to=str(flow.to),
        kind=flow.kind.value,
        naming=flow.naming.value,
        sent=len(sent),
        refused=sum(each.promise is Promise.BROKEN for each in written) + sender.refused,
        aborted=sum(each.promise is Promise.WITHDRAWN for each in written),
        arrived=len(arrived),
        received=sum(any(copy.consumed for copy in each.arrivals) for each in arrived),
        waiting=sum(bool(each.waiting) and not each.arrivals for each in sent),
        dead_letters=_counted(class_name(each.dead[0][1]) for each in sent if each.dead),
        gone=_counted(class_name(each.ends[0]) if each.ends else "unknown" for each in gone),
        latency=_latency(arrived),
    )


def _latency(arrived: Sequence[TrackedMessage]) -> Latency | None:
    times = sorted((each.arrivals[0].at - each.sent_at) * 1000 for each in arrived)
    if not times:
        return None

    def at(share: float) -> float:
        return round(max(0.0, times[min(len(times) - 1, int(share * len(times)))]), 1)

    return Latency(p50_ms=at(0.5), p90_ms=at(0.9), p99_ms=at(0.99), max_ms=at(1.0))


def _stuck(node: Node) -> list[StuckQueue]:
    outlook = Outlook(node.core, node.now)
    return [
        StuckQueue(
            manager=node.name,
            queue=queue.properties.path,
            messages=queue.count,
            why=outlook.outgoing(queue).why or "unknown",
        )
        for queue in node.core.queues.outgoing.values()
        if queue.count
    ]


def _counted(words: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(words).items()))
