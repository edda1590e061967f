"""A scenario: queue managers and lines, the messages, the readers, and what goes wrong when.

Only values. seeds.py makes one from a seed, topology.py from a file, some of whose tables are these very values.
"""

# ruff: noqa: RUF009  (a setting is a dataclass field, made by a function)

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from uuid import UUID, uuid5

from postroad.binary.settings import BinarySettings
from postroad.directory.file import Enterprise
from postroad.fields.kinds import MANAGER_NAME, SWITCH, UINT32, FieldFault, choice, number, parsed, quoted, whole
from postroad.fields.queue import QUEUE_PROPERTIES, QueuePrivacy
from postroad.fields.tables import required, setting
from postroad.names import PathName, QueueKind
from postroad.simulation.disk import DiskSpeed
from postroad.simulation.network import Line
from postroad.soap.settings import SoapSettings
from postroad.wire.constants import MessageClass

MANAGER_NAMESPACE = UUID("b7d1f3e2-6f0a-4f57-9a3c-5b0f5f2f1c11")  # managers without an id get one from their name
ACKS = r"private$\acks"  # receives the acknowledgments of each queue manager's own messages


def derived_manager_id(name: str) -> UUID:
    return uuid5(MANAGER_NAMESPACE, name.lower())


def queue_at(manager: str, path: str) -> PathName:
    r"""The queue of this manager; `path` as in `private$\orders`."""
    return PathName.parse(f"{manager}\\{path}")


def local_path(queue: PathName) -> str:
    r"""`private$\orders`"""
    return str(queue.tail)[1:]


def _queue_of_manager(text: str) -> PathName:
    r"""`beta\private$\orders`: a manager's name, and a private queue there."""
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
    """How a sender names a queue: by its address, by its manager's GUID over the routes of the directory, or by URL."""

    DIRECT = "direct"
    PRIVATE = "private"
    HTTP = "http"


class FaultKind(Enum):
    """A crash ends the process, a power failure the machine: peers see no end, and get no answer."""

    CRASH = "crash"
    POWER_FAILURE = "power-failure"
    DISK_FULL = "disk-full"
    DISK_ERRORS = "disk-errors"  # every other commit fails
    PARTITION = "partition"
    CUT = "cut"
    HALF_OPEN = "half-open"  # the first sees its connections end, the second does not
    STALL = "stall"  # of data from the first to the second
    REFUSE = "refuse"
    NO_ROOM = "no-room"  # the manager accepts no message
    PAUSE = "pause"  # an operator pauses its outgoing queues


TWO_MANAGERS = frozenset({FaultKind.PARTITION, FaultKind.CUT, FaultKind.HALF_OPEN, FaultKind.STALL})
LASTING = frozenset(FaultKind) - {FaultKind.CUT, FaultKind.HALF_OPEN}


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePlan:
    """A queue of a manager, and a table `[[queue]]` of a file."""

    path: PathName = required(QUEUE_OF_MANAGER)
    transactional: bool = setting(SWITCH, False)
    quota_kb: int | None = setting(UINT32, None)
    abort_limit: int | None = setting(QUEUE_PROPERTIES["abort_limit"].kind, None)
    authenticate: bool = False
    privacy: QueuePrivacy = QueuePrivacy.OPTIONAL
    acl: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """Messages from one manager to one queue, and a table `[[flow]]` of a file. `aborts` is the share of aborted
    transactions, `perishable` that of messages with the time limit to reach their queue. Where there is a `refusal`,
    the destination refuses every message of the flow with this class."""

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
    """A reader of a queue, and a table `[[reader]]` of a file: in transactions if the queue is transactional. Some are
    aborted."""

    queue: PathName = required(QUEUE_OF_MANAGER)
    start_s: float = setting(SECONDS, 0.0)
    think_ms: float = setting(number(0.0, YEAR_S * 1000), 10.0)  # between getting messages and finishing them
    batch: int = setting(whole(1, 10_000), 1)
    aborts: float = setting(number(0.0, 0.99), 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """`managers` are one or two, depending on the kind; after a restart the clock may be wrong by `clock_error_s`."""

    kind: FaultKind
    managers: tuple[str, ...]
    at_s: float
    for_s: float = 0.0
    clock_error_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotation:
    """A manager gets new keys. The others read them in the directory `published_s` later."""

    manager: str
    at_s: float
    published_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """After `workload_s` all faults end; if nothing moves for `settle_s`, the network is stuck."""

    seed: int
    enterprise: Enterprise
    lines: Mapping[frozenset[str], Line] = field(default_factory=dict)  # by names of managers
    queues: tuple[QueuePlan, ...] = ()
    flows: tuple[Flow, ...] = ()
    consumers: tuple[Consumer, ...] = ()
    faults: tuple[Fault, ...] = ()
    rotations: tuple[Rotation, ...] = ()
    insecure_nacks: bool = False  # senders hear of refusals for reasons of security
    settings: BinarySettings = field(default_factory=BinarySettings)
    soap: SoapSettings | None = None  # None: no SOAP
    forwarder: str | None = None  # all messages by SOAP go through this manager, except receipts of streams
    quotas_kb: Mapping[str, int] = field(default_factory=dict)  # of whole managers, by name
    disk: DiskSpeed = field(default_factory=DiskSpeed)
    workload_s: float = 60.0
    settle_s: float = 600.0
