"""A scenario: queue managers and lines, the messages, the readers, and what goes wrong when.

Only values. seeds.py makes one from a seed, topology.py from a file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from uuid import UUID, uuid5

from postroad.binary.settings import BinarySettings
from postroad.directory.file import Enterprise
from postroad.simulation.disk import DiskSpeed
from postroad.simulation.network import Line
from postroad.soap.settings import SoapSettings

MANAGER_NAMESPACE = UUID("b7d1f3e2-6f0a-4f57-9a3c-5b0f5f2f1c11")  # managers without an id get one from their name
ACKS = r"private$\acks"  # receives the acknowledgments of each queue manager's own messages


def derived_manager_id(name: str) -> UUID:
    return uuid5(MANAGER_NAMESPACE, name.lower())


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
    r"""A queue of a manager; `path` as in `private$\orders`."""

    manager: str
    path: str
    transactional: bool = False
    quota_kb: int | None = None
    abort_limit: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """Messages from one manager to one queue. `aborts` is the share of aborted transactions, `perishable` that of
    messages with a time limit to reach their queue."""

    source: str
    manager: str
    path: str
    kind: Kind = Kind.RECOVERABLE
    naming: Naming = Naming.DIRECT
    count: int = 100
    batch: int = 1
    start_s: float = 0.0
    every_s: float = 0.1
    size: int = 100
    time_to_reach_queue_s: int = 0
    perishable: float = 0.0
    dead_letter: bool = False
    journal: bool = False
    ack: bool = False
    aborts: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumer:
    """A reader of a queue: in transactions if the queue is transactional. Some are aborted."""

    manager: str
    path: str
    start_s: float = 0.0
    think_s: float = 0.01  # between getting messages and finishing them
    batch: int = 1
    aborts: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """`managers` are one or two, depending on the kind; after a restart the clock may be wrong by `clock_error_s`."""

    kind: FaultKind
    managers: tuple[str, ...]
    at_s: float
    for_s: float = 0.0
    clock_error_s: float = 0.0


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
    settings: BinarySettings = field(default_factory=BinarySettings)
    soap: SoapSettings | None = None  # None: no SOAP
    forwarder: str | None = None  # all messages by SOAP go through this manager, except receipts of streams
    quotas_kb: Mapping[str, int] = field(default_factory=dict)  # of whole managers, by name
    disk: DiskSpeed = field(default_factory=DiskSpeed)
    workload_s: float = 60.0
    settle_s: float = 600.0
