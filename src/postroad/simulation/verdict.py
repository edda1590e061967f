"""What must hold at the end, after all faults. Each violation gets a sentence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass

from postroad.manager.outlook import Outlook
from postroad.names.format import AWAITING_FINAL_ACK
from postroad.queues.collection import DEADLETTER, DEADXACT, JOURNAL
from postroad.queues.properties import QueueType
from postroad.queues.queue import Queue
from postroad.reports.info import counted
from postroad.simulation.apps import SendingApp
from postroad.simulation.ledger import Ledger, Promise, TrackedMessage
from postroad.simulation.loop import STARTED
from postroad.simulation.node import Node
from postroad.simulation.scenario import FaultKind, Kind, Naming, Scenario
from postroad.simulation.world import World
from postroad.wire.constants import MessageClass, class_name
from postroad.wire.view import MessageView

SECURITY_CLASSES = frozenset(
    {MessageClass.NACK_ACCESS_DENIED, MessageClass.NACK_BAD_SIGNATURE, MessageClass.NACK_BAD_ENCRYPTION}
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Sentences, each about one message or one queue. Empty if all is well."""

    lost: tuple[str, ...]
    duplicated: tuple[str, ...]
    reordered: tuple[str, ...]
    stuck: tuple[str, ...]
    broken: tuple[str, ...]  # contradictions between counts, copies and acknowledgments

    @property
    def good(self) -> bool:
        return not self.sentences

    @property
    def sentences(self) -> list[str]:
        return [*self.lost, *self.duplicated, *self.reordered, *self.stuck, *self.broken]


def judge(world: World) -> Verdict:
    """Judges a run. Call it after `World.run`."""
    ledger = world.stage.ledger
    for node in world.nodes.values():
        _take_stock(ledger, node)
    return Verdict(
        lost=tuple(_lost(ledger)),
        duplicated=tuple(_duplicated(ledger, world)),
        reordered=tuple(_reordered(ledger)),
        stuck=tuple(each for node in world.nodes.values() for each in _stuck(node, all_read=world.all_read)),
        broken=(
            *_contradictions(ledger, world),
            *(each for node in world.nodes.values() for each in _miscounted(node)),
        ),
    )


def _without_room(scenario: Scenario) -> set[str]:
    return {fault.managers[0] for fault in scenario.faults if fault.kind is FaultKind.NO_ROOM}


def _take_stock(ledger: Ledger, node: Node) -> None:
    """Records in the ledger every message that is anywhere at the end."""
    for queue in node.core.queues:
        path = queue.properties.path.lower()
        for record in queue.everything():
            letter = ledger.find(MessageView(record.packet))
            match queue.properties.queue_type:
                case QueueType.PRIVATE if path == AWAITING_FINAL_ACK:
                    pass
                case QueueType.PRIVATE | QueueType.SUBQUEUE:
                    ledger.arrived(record, node.clock_error_s, consumed=False)
                case QueueType.OUTGOING if letter is not None:
                    letter.waiting.append(f"{node.name}: {queue.properties.path}")
                case QueueType.SYSTEM if letter is not None:
                    if path in (DEADLETTER, DEADXACT):
                        letter.dead.append((node.name, record.reason))
                    elif path == JOURNAL:
                        letter.journaled += 1


def _lost(ledger: Ledger) -> Iterator[str]:
    """Every accepted reliable message is in its queue, on the way, dead, or has ended for a reason."""
    for letter in ledger:
        if letter.reliable and letter.promise is Promise.KEPT:
            if not (letter.arrivals or letter.waiting or letter.dead or letter.ends):
                yield f"{letter} is lost"
            elif letter.flow.dead_letter and not (letter.arrivals or letter.waiting or letter.dead):
                yield f"{letter} asked for a dead letter but left none: {_reasons(letter.ends)}"


def _duplicated(ledger: Ledger, world: World) -> Iterator[str]:
    """Transactional and recoverable messages never arrive twice. Express messages may, if they were forgotten."""
    for letter in ledger:
        if len(letter.arrivals) > 1 and not _is_forgotten(letter, world):
            yield f"{letter} has arrived {len(letter.arrivals)} times"


def _reordered(ledger: Ledger) -> Iterator[str]:
    """Transactional messages of one sender to one name are in the queue in the order of sending."""
    last: dict[tuple[str, str, str], TrackedMessage] = {}
    for letter in ledger:
        flow = letter.flow
        if flow.kind is not Kind.TRANSACTIONAL or not letter.arrivals:
            continue
        key = (flow.source, flow.to.key, flow.naming.value)
        before = last.get(key)
        if before is not None and letter.arrivals[0].place < before.arrivals[0].place:
            yield f"{letter} came before {before}"
        last[key] = letter


def _stuck(node: Node, *, all_read: bool) -> Iterator[str]:
    """Nothing stays locked, no outgoing queue keeps what could be sent, and no acknowledgment is missing.

    A message that nobody reads is never finally acknowledged.
    """
    if not node.up:
        yield f"{node.name} is not running"
        return
    for queue in node.core.queues:
        path = queue.properties.path
        if queue.positions:
            states = Counter(state.value for state in queue.positions.values())
            yield f"{node.name}: {path} has messages that are {_counted(states)}"
        if queue.reserved_bytes:
            yield f"{node.name}: {path} has {queue.reserved_bytes} reserved bytes without an owner"
        if queue.is_outgoing and queue.count:
            staying = counted(queue.count, "message is", "messages are")
            yield f"{node.name}: {staying} still in {path}: {_reason_to_wait(node, queue)}"
        if path.lower() == AWAITING_FINAL_ACK and queue.count and all_read:
            waiting = counted(queue.count, "message still waits", "messages still wait")
            yield f"{node.name}: {waiting} for a final acknowledgment"
    for session in node.service.sessions:
        if owed := session.sent.in_flight:
            sent = counted(len(owed), "message of a session is", "messages of a session are")
            yield f"{node.name}: {sent} not acknowledged"


def _reason_to_wait(node: Node, queue: Queue) -> str:
    info = node.core.queues.outgoing_info[queue]
    return f"{info.state.value.lower()}, {info.last_error or 'no error'}"


def _miscounted(node: Node) -> Iterator[str]:
    if not node.up:
        return
    for queue in node.core.queues:
        records = list(queue.everything())
        found = len(records), sum(len(record.packet) for record in records)
        if found != (queue.count, queue.total_bytes):
            count = f"{counted(queue.count, 'message')} of {queue.total_bytes} bytes"
            yield f"{node.name}: {queue.properties.path} counts {count} and has {found[0]} of {found[1]}"


def _contradictions(ledger: Ledger, world: World) -> Iterator[str]:
    full = _without_room(world.scenario)
    for letter in ledger:
        yield from _copies(letter, forgotten=_is_forgotten(letter, world))
        yield from _security(letter, world, droppable=letter.flow.to.computer in full)
        if letter.reliable and letter.flow.ack and letter.promise is Promise.KEPT and letter.arrivals:
            yield from _acknowledgments(letter, droppable=letter.flow.to.computer in full)


def _is_forgotten(letter: TrackedMessage, world: World) -> bool:
    """An express message whose destination has crashed and forgotten the messages that it had seen."""
    return not letter.reliable and world.nodes[letter.flow.to.computer].crashes > 0


def _copies(letter: TrackedMessage, *, forgotten: bool) -> Iterator[str]:
    if letter.promise is not Promise.KEPT:
        if letter.arrivals or letter.dead or letter.journaled or letter.waiting:
            yield f"{letter} was never sent, but exists"
        return
    reasons = _reasons([reason for _, reason in letter.dead])
    # A message that a receiver refused because of its age may also expire at its sender, before the sender learns of
    # it.
    if len({name for name, _ in letter.dead}) < len(letter.dead):
        yield f"{letter} has {len(letter.dead)} dead letters: {reasons}"
    if letter.dead and letter.arrivals and not (letter.perishable or forgotten):
        yield f"{letter} arrived, but is also a dead letter: {reasons}"
    if not letter.reliable or not letter.flow.journal or letter.perishable:
        return
    if letter.flow.naming is Naming.HTTP and not letter.flow.dead_letter:  # only after the destination has it
        wanted = {1} if letter.arrivals else {0, 1}
    elif letter.flow.kind is Kind.TRANSACTIONAL:
        wanted = {int(any(arrival.consumed for arrival in letter.arrivals))}
    else:  # it is journaled once the next hop has it, even if the destination then refuses it
        wanted = {1} if letter.arrivals else {0, 1}
    if letter.journaled not in wanted:
        yield f"{letter} has {letter.journaled} copies in the journal"


def _security(letter: TrackedMessage, world: World, *, droppable: bool) -> Iterator[str]:
    """What must be refused is refused, its sender learns of it if it asked to, and what arrives is what was sent."""
    refusal = letter.flow.refusal
    if refusal is not None and letter.arrivals:
        yield f"{letter} must be refused ({class_name(refusal)}), but arrived"
    if not all(arrival.intact for arrival in letter.arrivals):
        yield f"{letter} arrived with another body, or without a checked signature"
    others = SECURITY_CLASSES - {refusal}
    if found := others.intersection((*letter.ends, *letter.acknowledged, *(reason for _, reason in letter.dead))):
        yield f"{letter} was refused for a wrong reason: {_reasons(sorted(found))}"
    if refusal is None or not letter.reliable or refusal not in letter.ends or letter.perishable:
        return
    by_soap = letter.flow.naming is Naming.HTTP  # SOAP knows no such acknowledgment
    wanted = int(letter.flow.ack and world.scenario.insecure_nacks and not by_soap)
    received = letter.acknowledged.count(refusal)
    if received < wanted and droppable:
        return
    # Before a sequence has begun, nothing is remembered of refused messages: what is sent again is refused again.
    if received != wanted and not (received > wanted > 0 and letter.flow.kind is Kind.TRANSACTIONAL):
        yield f"{letter} has {received} acknowledgments {class_name(refusal)}, not {wanted}"


def _acknowledgments(letter: TrackedMessage, *, droppable: bool) -> Iterator[str]:
    """Each requested acknowledgment came, once. A manager without room drops those that it has to send, 3.1.7.15."""
    found = Counter(letter.acknowledged)
    consumed = any(arrival.consumed for arrival in letter.arrivals)
    wanted = {MessageClass.ACK_REACH_QUEUE: 1, MessageClass.ACK_RECEIVE: int(consumed)}
    for message_class, times in wanted.items():
        if found[message_class] == times or letter.perishable or (droppable and found[message_class] < times):
            continue
        yield f"{letter} has {found[message_class]} acknowledgments {message_class.name.lower()}, not {times}"


def _counted(counter: Counter[str]) -> str:
    return ", ".join(f"{word} ({number})" for word, number in sorted(counter.items()))


def _reasons(reasons: list[int]) -> str:
    return ", ".join(map(class_name, reasons)) or "no reason"


# The result of a run, for people and programs: what arrived and how fast, what died and why, what is stuck and why.


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """The time from the send to the arrival in the destination queue, in milliseconds of virtual time."""

    p50_ms: float
    p90_ms: float
    p99_ms: float
    max_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowReport:
    """`sent` messages were accepted. Of these, `arrived` are or were in their queue, `waiting` are on the way."""

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
    gone: dict[str, int]  # left without a dead letter, by reason; `unknown` for express messages lost in a crash
    latency: Latency | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StuckQueue:
    """An outgoing queue that still has messages, and the reason."""

    manager: str
    queue: str
    messages: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """`settled_s` is the time from which nothing moved; None if there was none. `faults` are broken guarantees."""

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
    """Sums up a run. Call it after `World.run`."""
    verdict = judge(world)
    loop = world.stage.loop
    return Report(
        seed=world.scenario.seed,
        duration_s=loop.now - STARTED,
        settled_s=world.settled_at,
        events=loop.steps,
        flows=tuple(_flow(sender, world.stage.ledger) for sender in world.senders),
        stuck=tuple(each for node in world.nodes.values() if node.up for each in _stuck_queues(node)),
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
        dead_letters=_count_of(class_name(each.dead[0][1]) for each in sent if each.dead),
        gone=_count_of(class_name(each.ends[0]) if each.ends else "unknown" for each in gone),
        latency=_latency(arrived),
    )


def _latency(arrived: Sequence[TrackedMessage]) -> Latency | None:
    times = sorted((each.arrivals[0].at - each.sent_at) * 1000 for each in arrived)
    if not times:
        return None

    def at(share: float) -> float:
        return round(max(0.0, times[min(len(times) - 1, int(share * len(times)))]), 1)

    return Latency(p50_ms=at(0.5), p90_ms=at(0.9), p99_ms=at(0.99), max_ms=at(1.0))


def _stuck_queues(node: Node) -> list[StuckQueue]:
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


def _count_of(words: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(words).items()))
