"""A scenario from a TOML file: a network, its messages and its faults, checked as a whole."""

# ruff: noqa: RUF009  (a setting is a dataclass field, made by a function)

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import TypeVar

from postroad.binary.settings import BinarySettings
from postroad.config import BinarySettings as BinaryTable
from postroad.config import SrmpSettings as SrmpTable
from postroad.directory.file import Enterprise, ManagerEntry, Site, derived_site_id, load_enterprise
from postroad.fields.kinds import (
    MANAGER_NAME,
    PATH,
    SWITCH,
    UINT32,
    FieldFault,
    choice,
    items,
    number,
    parsed,
    quoted,
    suggestion,
    whole,
)
from postroad.fields.queue import QUEUE_PROPERTIES
from postroad.fields.tables import required, setting, table, tables
from postroad.fields.toml import Place, load, refuse_duplicates
from postroad.names import PathName, QueueKind
from postroad.simulation.network import Line
from postroad.simulation.scenario import (
    LASTING,
    TWO_MANAGERS,
    Consumer,
    Fault,
    FaultKind,
    Flow,
    Kind,
    Naming,
    QueuePlan,
    Scenario,
    derived_manager_id,
)
from postroad.soap.settings import SoapSettings

T = TypeVar("T")

YEAR_S = 365 * 86400.0
MAX_MESSAGES = 1_000_000  # of one flow
SITE = "simulation"  # the site of all managers outside a directory
_SHARE = number(0.0, 1.0)
_SECONDS = number(0.0, YEAR_S)
_PAIR = items(MANAGER_NAME, least=2, most=2)


def _queue_of_manager(text: str) -> PathName:
    r"""`beta\private$\orders`: a manager's name, and a private queue there."""
    name = PathName.parse(text)
    if name.is_local or name.tail.kind is not QueueKind.PRIVATE or name.tail.journal or name.tail.subqueue is not None:
        raise FieldFault(rf"must be a private queue of a queue manager, as in beta\private$\orders, got {quoted(text)}")
    return name


QUEUE_OF_MANAGER = parsed("text", _queue_of_manager)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Manager:
    name: str = required(MANAGER_NAME)
    quota_kb: int | None = setting(UINT32, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    between: tuple[str, ...] = required(_PAIR)
    delay_ms: float = setting(number(0.0, 60_000.0), 10.0)
    jitter_ms: float = setting(number(0.0, 60_000.0), 0.0)
    loss: float = setting(number(0.0, 0.9), 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Queue:
    path: PathName = required(QUEUE_OF_MANAGER)
    transactional: bool = setting(SWITCH, False)
    quota_kb: int | None = setting(UINT32, None)
    abort_limit: int | None = setting(QUEUE_PROPERTIES["abort_limit"].kind, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Flow:
    source: str = required(MANAGER_NAME, key="from")
    to: PathName = required(QUEUE_OF_MANAGER)
    kind: Kind = setting(choice(Kind), Kind.RECOVERABLE)
    naming: Naming = setting(choice(Naming), Naming.DIRECT)
    count: int = setting(whole(1, MAX_MESSAGES), 100)
    batch: int = setting(whole(1, 10_000), 1)
    start_s: float = setting(_SECONDS, 0.0)
    every_ms: float = setting(number(0.0, YEAR_S * 1000), 100.0)
    size: int = setting(whole(0, 4_000_000), 100)
    time_to_reach_queue_s: int | None = setting(UINT32, None)
    dead_letter: bool = setting(SWITCH, False)
    journal: bool = setting(SWITCH, False)
    ack: bool = setting(SWITCH, False)
    aborts: float = setting(_SHARE, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reader:
    queue: PathName = required(QUEUE_OF_MANAGER)
    start_s: float = setting(_SECONDS, 0.0)
    think_ms: float = setting(number(0.0, YEAR_S * 1000), 10.0)
    batch: int = setting(whole(1, 10_000), 1)
    aborts: float = setting(number(0.0, 0.99), 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fault:
    kind: FaultKind = required(choice(FaultKind))
    manager: str | None = setting(MANAGER_NAME, None)
    between: tuple[str, ...] | None = setting(_PAIR, None)
    at_s: float = required(_SECONDS)
    for_s: float | None = setting(_SECONDS, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    seed: int = setting(whole(0, 2**63 - 1), 0)
    workload_s: float = setting(_SECONDS, 60.0)
    settle_s: float = setting(_SECONDS, 3600.0)
    enterprise: Path | None = setting(PATH, None)
    binary: BinaryTable = setting(table(BinaryTable), BinaryTable())
    srmp: SrmpTable = setting(table(SrmpTable), SrmpTable())
    managers: tuple[_Manager, ...] = setting(tables(_Manager), (), key="manager")
    lines: tuple[_Line, ...] = setting(tables(_Line), (), key="line")
    queues: tuple[_Queue, ...] = setting(tables(_Queue), (), key="queue")
    flows: tuple[_Flow, ...] = setting(tables(_Flow), (), key="flow")
    readers: tuple[_Reader, ...] = setting(tables(_Reader), (), key="reader")
    faults: tuple[_Fault, ...] = setting(tables(_Fault), (), key="fault")


def load_scenario(file: Path) -> Scenario:
    """Reads and checks the whole file; raises ConfigurationError on the first fault."""
    return _Reading(file, load(file, _File)).scenario()


class _Reading:
    """The tables of one file, and the names that they may use."""

    def __init__(self, file: Path, tables: _File) -> None:
        self._tables = tables
        self._place = Place(str(file))
        self._enterprise = self._read_enterprise()
        self._names = {each.name.lower(): each.name for each in self._enterprise.managers}
        self._queues = {each.path.key: each for each in tables.queues}

    def scenario(self) -> Scenario:
        tables = self._tables
        refuse_duplicates(tables.queues, self._place.inside("queue"), "path")
        return Scenario(
            seed=tables.seed,
            enterprise=self._enterprise,
            lines=self._lines(),
            queues=tuple(self._queue(each, at) for each, at in self._placed("queue", tables.queues)),
            flows=tuple(self._flow(each, at) for each, at in self._placed("flow", tables.flows)),
            consumers=tuple(self._consumer(each, at) for each, at in self._placed("reader", tables.readers)),
            faults=tuple(self._fault(each, at) for each, at in self._placed("fault", tables.faults)),
            settings=BinarySettings(
                window_size=tables.binary.window_size,
                ack_timeout_ms=tables.binary.ack_timeout_ms,
                retry_connect_s=tables.binary.retry_connect_s,
                resend_s=tables.binary.resend_s,
            ),
            soap=SoapSettings(
                retransmission_ms=tables.srmp.retransmission_ms,
                resend_s=tables.srmp.resend_s,
                cleanup_ms=tables.srmp.cleanup_ms,
            )
            if any(each.naming is Naming.HTTP for each in tables.flows)
            else None,
            quotas_kb={each.name: each.quota_kb for each in tables.managers if each.quota_kb is not None},
            workload_s=tables.workload_s,
            settle_s=tables.settle_s,
        )

    def _read_enterprise(self) -> Enterprise:
        """A directory's file, or all managers in one site. Addresses are new, because the network is simulated."""
        tables = self._tables
        if tables.enterprise is None:
            refuse_duplicates(tables.managers, self._place.inside("manager"), "name")
            found = Enterprise(
                sites=(Site(name=SITE, id=derived_site_id(SITE)),),
                managers=tuple(
                    ManagerEntry(name=each.name, id=derived_manager_id(each.name), sites=(SITE,))
                    for each in tables.managers
                ),
            )
        else:
            if tables.managers:
                self._place.inside("manager").item(1).fail("must not be set together with enterprise")
            found = load_enterprise(tables.enterprise)
        if not found.managers:
            self._place.inside("manager").fail("is missing: add at least one [[manager]]")
        managers = (
            replace(each, address=f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}")
            for number, each in enumerate(found.managers, 1)
        )
        return replace(found, managers=tuple(managers))

    def _placed(self, key: str, entries: tuple[T, ...]) -> Iterator[tuple[T, Place]]:
        for index, each in enumerate(entries, 1):
            yield each, self._place.inside(key).item(index)

    def _manager(self, name: str, place: Place) -> str:
        if name.lower() not in self._names:
            place.fail(f"there is no queue manager {name}{suggestion(name, self._names.values())}")
        return self._names[name.lower()]

    def _pair(self, names: tuple[str, ...], place: Place) -> tuple[str, ...]:
        found = tuple(self._manager(name, place.item(index)) for index, name in enumerate(names, 1))
        if found[0] == found[1]:
            place.fail(f"must name two queue managers, got {found[0]} twice")
        return found

    def _queue_at(self, path: PathName, place: Place) -> _Queue:
        found = self._queues.get(path.key)
        if found is None:
            place.fail(f"there is no [[queue]] {path}{suggestion(str(path), map(str, self._paths()))}")
        return found

    def _paths(self) -> Iterator[PathName]:
        return (each.path for each in self._tables.queues)

    def _lines(self) -> dict[frozenset[str], Line]:
        lines: dict[frozenset[str], Line] = {}
        for each, at in self._placed("line", self._tables.lines):
            pair = frozenset(self._pair(each.between, at.inside("between")))
            if pair in lines:
                at.inside("between").fail(f"must not repeat the line between {' and '.join(sorted(pair))}")
            lines[pair] = Line(delay_s=each.delay_ms / 1000, jitter_s=each.jitter_ms / 1000, loss=each.loss)
        return lines

    def _queue(self, queue: _Queue, place: Place) -> QueuePlan:
        return QueuePlan(
            manager=self._manager(queue.path.computer, place.inside("path")),
            path=str(queue.path.tail)[1:],
            transactional=queue.transactional,
            quota_kb=queue.quota_kb,
            abort_limit=queue.abort_limit,
        )

    def _flow(self, flow: _Flow, place: Place) -> Flow:
        queue = self._queue_at(flow.to, place.inside("to"))
        if queue.transactional != (flow.kind is Kind.TRANSACTIONAL):
            kind = "transactional" if queue.transactional else "not transactional"
            place.inside("kind").fail(f"must fit the queue {flow.to}, which is {kind}, got {flow.kind.value}")
        source = self._manager(flow.source, place.inside("from"))
        plan = self._queue(queue, place)
        if source == plan.manager:
            place.inside("to").fail(f"must be a queue of another queue manager than {source}, got {flow.to}")
        return Flow(
            source=source,
            manager=plan.manager,
            path=plan.path,
            kind=flow.kind,
            naming=flow.naming,
            count=flow.count,
            batch=flow.batch,
            start_s=flow.start_s,
            every_s=flow.every_ms / 1000,
            size=flow.size,
            time_to_reach_queue_s=flow.time_to_reach_queue_s or 0,
            perishable=0.0 if flow.time_to_reach_queue_s is None else 1.0,
            dead_letter=flow.dead_letter,
            journal=flow.journal,
            ack=flow.ack,
            aborts=flow.aborts,
        )

    def _consumer(self, reader: _Reader, place: Place) -> Consumer:
        plan = self._queue(self._queue_at(reader.queue, place.inside("queue")), place)
        return Consumer(
            manager=plan.manager,
            path=plan.path,
            start_s=reader.start_s,
            think_s=reader.think_ms / 1000,
            batch=reader.batch,
            aborts=reader.aborts,
        )

    def _fault(self, fault: _Fault, place: Place) -> Fault:
        """Affects one manager or the line between two, depending on the kind; a lasting one without an end stays."""
        kind = fault.kind.value
        if fault.kind not in TWO_MANAGERS:
            if fault.manager is None or fault.between is not None:
                place.inside("manager").fail(f"a {kind} must have the key `manager`, and no `between`")
            managers: tuple[str, ...] = (self._manager(fault.manager, place.inside("manager")),)
        else:
            if fault.between is None or fault.manager is not None:
                place.inside("between").fail(f"a {kind} must have the key `between`, and no `manager`")
            managers = self._pair(fault.between, place.inside("between"))
        if fault.kind not in LASTING:
            if fault.for_s is not None:
                place.inside("for_s").fail(f"must not be set: a {kind} has no duration")
            return Fault(kind=fault.kind, managers=managers, at_s=fault.at_s)
        return Fault(
            kind=fault.kind, managers=managers, at_s=fault.at_s, for_s=inf if fault.for_s is None else fault.for_s
        )
