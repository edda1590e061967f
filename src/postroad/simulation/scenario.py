"""A scenario: queue managers and lines, messages, readers, and the faults with their times.

It consists of values only. seeds.py makes one from a seed. Some tables of a file are these very values.
"""

# ruff: noqa: RUF009  (a setting is a dataclass field, made by a function)

# ruff: noqa: RUF009  (a setting is a dataclass field, made by a function)

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from math import inf
from pathlib import Path
from typing import TypeVar
from uuid import UUID, uuid5

from postroad.binary.session import BinarySettings
from postroad.config import BinarySettings as BinaryTable
from postroad.config import SrmpSettings as SrmpTable
from postroad.directory.file import Enterprise, ManagerEntry, Site, derived_site_id, load_enterprise
from postroad.names import PathName, QueueKind
from postroad.simulation.disk import DiskSpeed
from postroad.simulation.lines import Line
from postroad.soap.settings import SoapSettings
from postroad.validation.fields import required, setting, table, tables
from postroad.validation.kinds import (
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
from postroad.validation.queue_properties import QUEUE_PROPERTIES, QueuePrivacy
from postroad.validation.toml import Place, load, refuse_duplicates
from postroad.wire.constants import MessageClass

MANAGER_NAMESPACE = UUID("b7d1f3e2-6f0a-4f57-9a3c-5b0f5f2f1c11")  # a manager without an id gets one from its name
ACKS = r"private$\acks"  # receives the acknowledgments for each queue manager's own messages


def derived_manager_id(name: str) -> UUID:
    return uuid5(MANAGER_NAMESPACE, name.lower())


def queue_at(manager: str, path: str) -> PathName:
    r"""The queue of this manager. `path` looks like `private$\orders`."""
    return PathName.parse(f"{manager}\\{path}")


def local_path(queue: PathName) -> str:
    r"""`private$\orders`"""
    return str(queue.tail)[1:]


def _queue_of_manager(text: str) -> PathName:
    r"""`beta\private$\orders`: the name of a manager, and a private queue there."""
    name = PathName.parse(text)
    if name.is_local or name.tail.kind is not QueueKind.PRIVATE or name.tail.journal or name.tail.subqueue is not None:
        raise FieldFault(rf"must be a private queue of a queue manager, as in beta\private$\orders, got {quoted(text)}")
    return name


QUEUE_OF_MANAGER = parsed("text", _queue_of_manager)
YEAR_S = 365 * 86400.0
SECONDS = number(0.0, YEAR_S)
MAX_MESSAGES = 1_000_000  # of one flow


class Kind(Enum):
    """The guarantee of a message."""

    EXPRESS = "express"
    RECOVERABLE = "recoverable"
    TRANSACTIONAL = "transactional"


class Naming(Enum):
    """How a sender names a queue: by address, by the manager's GUID and the routes of the directory, or by URL."""

    DIRECT = "direct"
    PRIVATE = "private"
    HTTP = "http"


class FaultKind(Enum):
    """A crash ends the process. A power failure ends the machine: peers see no end of connections, and no answers."""

    CRASH = "crash"
    POWER_FAILURE = "power-failure"
    DISK_FULL = "disk-full"
    DISK_ERRORS = "disk-errors"  # every second commit fails
    PARTITION = "partition"
    CUT = "cut"
    HALF_OPEN = "half-open"  # the first end sees its connections end, the second does not
    STALL = "stall"  # data from the first to the second is delayed
    REFUSE = "refuse"
    NO_ROOM = "no-room"  # the manager accepts no messages
    PAUSE = "pause"  # an operator pauses the outgoing queues


TWO_MANAGERS = frozenset({FaultKind.PARTITION, FaultKind.CUT, FaultKind.HALF_OPEN, FaultKind.STALL})
LASTING = frozenset(FaultKind) - {FaultKind.CUT, FaultKind.HALF_OPEN}


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePlan:
    """A queue of a manager; in a file, a table `[[queue]]`."""

    path: PathName = required(QUEUE_OF_MANAGER)
    transactional: bool = setting(SWITCH, False)
    quota_kb: int | None = setting(UINT32, None)
    abort_limit: int | None = setting(QUEUE_PROPERTIES["abort_limit"].kind, None)
    authenticate: bool = False
    privacy: QueuePrivacy = QueuePrivacy.OPTIONAL
    acl: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """Messages from one manager to one queue; in a file, a table `[[flow]]`. `aborts` is the share of aborted
    transactions. `perishable` is the share of messages with a time limit to reach their queue. With `refusal`, the
    destination refuses every message of the flow with this class."""

    source: str = required(MANAGER_NAME, key="from")
    to: PathName = required(QUEUE_OF_MANAGER)
    kind: Kind = setting(choice(Kind), Kind.RECOVERABLE)
    naming: Naming = setting(choice(Naming), Naming.DIRECT)
    count: int = setting(whole(1, MAX_MESSAGES), 100)
    batch: int = setting(whole(1, 10_000), 1)
    start_s: float = setting(SECONDS, 0.0)
    every_ms: float = setting(number(0.0, YEAR_S * 1000), 100.0)
    size: int = setting(whole(0, 4_000_000), 100)
    time_to_reach_queue_s: int | None = setting(UINT32, None)
    perishable: float = 0.0
    dead_letter: bool = setting(SWITCH, False)
    journal: bool = setting(SWITCH, False)
    ack: bool = setting(SWITCH, False)
    aborts: float = setting(number(0.0, 1.0), 0.0)
    signed: bool = False
    encrypted: bool = False
    refusal: MessageClass | None = None
    impostor: bool = False  # signs with a certificate that no manager knows


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumer:
    """A reader of a queue; in a file, a table `[[reader]]`. It uses transactions if the queue is transactional, and
    aborts some of them."""

    queue: PathName = required(QUEUE_OF_MANAGER)
    start_s: float = setting(SECONDS, 0.0)
    think_ms: float = setting(number(0.0, YEAR_S * 1000), 10.0)  # from the receipt of messages to their end
    batch: int = setting(whole(1, 10_000), 1)
    aborts: float = setting(number(0.0, 0.99), 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """`managers` are one or two, depending on the kind. After a restart the clock may be wrong by `clock_error_s`."""

    kind: FaultKind
    managers: tuple[str, ...]
    at_s: float
    for_s: float = 0.0
    clock_error_s: float = 0.0


class FailoverKind(Enum):
    """What happens to the active process of a manager of two, or to the database of both."""

    KILL = "kill"
    POWER = "power"  # its machine is gone too
    FREEZE = "freeze"  # the process is stopped, and goes on later
    HAND_OVER = "hand-over"
    CUT_OFF = "cut-off"  # it does not reach the database
    RESTART = "restart"  # of the database
    PROMOTE = "promote"  # the replica of the database becomes its primary
    LOSSY = "lossy"  # requests and answers of the database are lost


@dataclass(frozen=True, slots=True, kw_only=True)
class Failover:
    kind: FailoverKind
    manager: str
    at_s: float
    for_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotation:
    """A manager gets new keys. The others see them in the directory `published_s` later."""

    manager: str
    at_s: float
    published_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """After `workload_s` all faults end. If nothing moves for `settle_s` after that, the network is stuck."""

    seed: int
    enterprise: Enterprise
    lines: Mapping[frozenset[str], Line] = field(default_factory=dict)  # by names of managers
    queues: tuple[QueuePlan, ...] = ()
    flows: tuple[Flow, ...] = ()
    consumers: tuple[Consumer, ...] = ()
    faults: tuple[Fault, ...] = ()
    rotations: tuple[Rotation, ...] = ()
    insecure_nacks: bool = False  # senders learn of refusals for security reasons
    settings: BinarySettings = field(default_factory=BinarySettings)
    soap: SoapSettings | None = None  # None: no SOAP
    forwarder: str | None = None  # all messages by SOAP go through this manager; receipts of streams do not
    quotas_kb: Mapping[str, int] = field(default_factory=dict)  # of whole managers, by name
    disk: DiskSpeed = field(default_factory=DiskSpeed)
    pairs: Mapping[str, float] = field(default_factory=dict)  # managers of two processes, and the time of their leases
    failovers: tuple[Failover, ...] = ()
    workload_s: float = 60.0
    settle_s: float = 600.0


# A scenario from a TOML file: a network, its messages and its faults. The file is checked as a whole.


T = TypeVar("T")

SITE = "simulation"  # the site of all managers that are not in a directory
_PAIR = items(MANAGER_NAME, least=2, most=2)


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
class _Fault:
    kind: FaultKind = required(choice(FaultKind))
    manager: str | None = setting(MANAGER_NAME, None)
    between: tuple[str, ...] | None = setting(_PAIR, None)
    at_s: float = required(SECONDS)
    for_s: float | None = setting(SECONDS, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    seed: int = setting(whole(0, 2**63 - 1), 0)
    workload_s: float = setting(SECONDS, 60.0)
    settle_s: float = setting(SECONDS, 3600.0)
    enterprise: Path | None = setting(PATH, None)
    binary: BinaryTable = setting(table(BinaryTable), BinaryTable())
    srmp: SrmpTable = setting(table(SrmpTable), SrmpTable())
    managers: tuple[_Manager, ...] = setting(tables(_Manager), (), key="manager")
    lines: tuple[_Line, ...] = setting(tables(_Line), (), key="line")
    queues: tuple[QueuePlan, ...] = setting(tables(QueuePlan), (), key="queue")
    flows: tuple[Flow, ...] = setting(tables(Flow), (), key="flow")
    readers: tuple[Consumer, ...] = setting(tables(Consumer), (), key="reader")
    faults: tuple[_Fault, ...] = setting(tables(_Fault), (), key="fault")


def with_addresses(enterprise: Enterprise) -> Enterprise:
    """The scenario with addresses of the simulated network."""
    managers = (
        replace(each, address=(f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}",))
        for number, each in enumerate(enterprise.managers, 1)
    )
    return replace(enterprise, managers=tuple(managers))


def load_scenario(file: Path) -> Scenario:
    """Reads and checks the whole file. Raises ConfigurationError on the first fault."""
    return _Reading(file, load(file, _File)).scenario()


class _Reading:
    """The tables of one file, and the names that they can use."""

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
        """Reads a directory's file, or puts all managers into one site. Addresses are new: the network is simulated."""
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
        return with_addresses(found)

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

    def _queue_at(self, path: PathName, place: Place) -> QueuePlan:
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

    def _queue(self, plan: QueuePlan, place: Place) -> QueuePlan:
        """The queue, with its manager's name as the directory writes it."""
        manager = self._manager(plan.path.computer, place.inside("path"))
        return replace(plan, path=replace(plan.path, computer=manager))

    def _flow(self, flow: Flow, place: Place) -> Flow:
        plan = self._queue_at(flow.to, place.inside("to"))
        if plan.transactional != (flow.kind is Kind.TRANSACTIONAL):
            kind = "transactional" if plan.transactional else "not transactional"
            place.inside("kind").fail(f"must fit the queue {flow.to}, which is {kind}, got {flow.kind.value}")
        source = self._manager(flow.source, place.inside("from"))
        queue = self._queue(plan, place).path
        if source == queue.computer:
            place.inside("to").fail(f"must be a queue of another queue manager than {source}, got {flow.to}")
        perishable = 0.0 if flow.time_to_reach_queue_s is None else 1.0
        return replace(flow, source=source, to=queue, perishable=perishable)

    def _consumer(self, reader: Consumer, place: Place) -> Consumer:
        plan = self._queue_at(reader.queue, place.inside("queue"))
        return replace(reader, queue=self._queue(plan, place).path)

    def _fault(self, fault: _Fault, place: Place) -> Fault:
        """A fault affects one manager or the line between two, by its kind. A lasting fault without an end stays."""
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
