"""The queues of a manager and their names: which name means which queue here, and which means another manager.

Definitions are kept as state in the store; messages are not touched here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from uuid import UUID, uuid4

from postroad.errors import (
    IllegalPathName,
    InvalidArgument,
    QueueExists,
    QueueNotFound,
    UnsupportedFormatNameOperation,
)
from postroad.names import (
    DirectName,
    FormatName,
    MachineName,
    PathName,
    PrivateName,
    PublicName,
    QueueKind,
    QueueSuffixType,
    QueueTail,
    parse_format_name,
    parse_name,
)
from postroad.queues.outgoing import OutgoingInfo
from postroad.queues.properties import QueueProperties, QueueType
from postroad.queues.queue import Queue
from postroad.queues.tick import Tick
from postroad.store.interface import MAX_QUEUE, Store

QUEUE_STATE = "queue/"
COUNT_STATE = "count/"
MAX_LABEL = 124
CHANGEABLE = frozenset(
    {"label", "journaling", "quota_kb", "journal_quota_kb", "authenticate", "privacy", "abort_limit", "base_priority"}
)
FIRST_PRIVATE_NUMBER = 8  # those before it are the manager's own
POISON = "poison"

# [MS-MQDMPR] 3.1.3: the queues that every manager has. Applications cannot open the last three.
JOURNAL = "system$;journal"
DEADLETTER = "system$;deadletter"
DEADXACT = "system$;deadxact"
INTERNAL_QUEUES = {"private$\\admin_queue$": 2, "private$\\notify_queue$": 3, "private$\\order_queue$": 4}
_SYSTEM_SUFFIXES = {
    QueueSuffixType.JOURNAL: JOURNAL,
    QueueSuffixType.DEADLETTER: DEADLETTER,
    QueueSuffixType.DEADXACT: DEADXACT,
}
_TYPES = {QueueKind.PRIVATE: QueueType.PRIVATE, QueueKind.PUBLIC: QueueType.PUBLIC, QueueKind.SYSTEM: QueueType.SYSTEM}


class QueueCollection:
    """Every queue by its number, its path, its identifier; outgoing queues by where they lead."""

    def __init__(self, name: str, identifier: UUID, durable: Store, express: Store) -> None:
        self.name = name
        self.identifier = identifier
        self.local_hosts = {".", "localhost", name.lower()}
        self.by_number: dict[int, Queue] = {}
        self.outgoing: dict[FormatName, Queue] = {}
        self.outgoing_info: dict[Queue, OutgoingInfo] = {}
        self._by_path: dict[str, Queue] = {}
        self._by_private_number: dict[int, Queue] = {}
        self._by_identifier: dict[UUID, Queue] = {}
        self._durable = durable
        self._express = express
        self._next_number = 1

    def __iter__(self) -> Iterator[Queue]:
        return iter(self.by_number.values())

    # Names

    def is_local(self, name: FormatName | PathName) -> bool:
        """Whether the queue, if there is one, is here."""
        match name:
            case PathName():
                return name.computer.lower() in self.local_hosts
            case DirectName():
                return name.host.lower() in self.local_hosts
            case PrivateName() | MachineName():
                return name.guid == self.identifier
            case PublicName():
                return name.guid in self._by_identifier
        return False

    def find(self, name: FormatName | PathName | str) -> Queue | None:
        """The local or outgoing queue of this name; None where there is none."""
        if isinstance(name, str):
            name = parse_name(name)
        if isinstance(name, FormatName) and name in self.outgoing:
            return self.outgoing[name]
        if not self.is_local(name):
            return None
        match name:
            case PathName() | DirectName():
                return self._by_tail(name.tail)
            case PrivateName():
                return _journal_or_self(self._by_private_number.get(name.number), name.journal)
            case PublicName():
                return _journal_or_self(self._by_identifier.get(name.guid), name.journal)
            case MachineName():
                return self._by_path[_SYSTEM_SUFFIXES[name.suffix]]
        return None

    def get(self, name: FormatName | PathName | str) -> Queue:
        queue = self.find(name)
        if queue is None:
            raise QueueNotFound(f"there is no queue {name} on {self.name}")
        return queue

    def system(self, path: str) -> Queue:
        return self._by_path[path]

    def _by_tail(self, tail: QueueTail) -> Queue | None:
        queue = self._by_path.get(_path(replace(tail, subqueue=None, journal=False)))
        if queue is not None and tail.subqueue is not None:
            queue = queue.subqueues.get(tail.subqueue.lower())
        return _journal_or_self(queue, tail.journal)

    def format_name(self, queue: Queue) -> FormatName:
        """How other managers and `queue show` name it."""
        properties = queue.properties
        match properties.queue_type:
            case QueueType.PRIVATE:
                return PrivateName(self.identifier, properties.private_queue_number)
            case QueueType.PUBLIC | QueueType.CONNECTOR:
                return PublicName(properties.identifier)
            case QueueType.OUTGOING:
                return parse_format_name(properties.path)
            case QueueType.SUBQUEUE:
                return parse_format_name(f"DIRECT=OS:{self.name}\\{properties.path}")
            case QueueType.JOURNAL:
                owner = self.by_number[properties.owner or 0]
                return parse_format_name(f"{self.format_name(owner)};JOURNAL")
            case QueueType.SYSTEM:
                return parse_format_name(f"MACHINE={self.identifier};{properties.path.partition(';')[2]}")

    def direct_name(self, queue: Queue) -> DirectName:
        """The name that a local send writes into its packets."""
        name = parse_format_name(f"DIRECT=OS:{self.name}\\{queue.properties.path}")
        assert isinstance(name, DirectName)
        return name

    # Creation

    def create(self, tick: Tick, path: PathName | str, now_s: int, **attributes: object) -> Queue:
        """Create Queue, [MS-MQDMPR] 3.1.7.1.3: with its journal, and nothing in the directory."""
        if isinstance(path, str):
            path = PathName.parse(path)
        if not self.is_local(path):
            raise IllegalPathName(str(path), 0, f"queues can be created on {self.name} only, not on {path.computer}")
        tail = path.tail
        if tail.subqueue or tail.journal:
            raise IllegalPathName(str(path), 0, "journals and subqueues come with their queue")
        key = _path(tail)
        if key in self._by_path:
            raise QueueExists(f"the queue {path} exists already")
        if len(str(attributes.get("label", ""))) > MAX_LABEL:
            raise InvalidArgument(f"label: a queue's label has at most {MAX_LABEL} characters")
        queue_type = _TYPES[tail.kind]
        number = INTERNAL_QUEUES.get(key)
        if queue_type is QueueType.PRIVATE and number is None:
            number = max((*self._by_private_number, FIRST_PRIVATE_NUMBER - 1)) + 1
        properties = QueueProperties(
            queue_type=queue_type,
            path=str(tail)[1:],
            identifier=attributes.pop("identifier", None) or uuid4(),  # type: ignore[arg-type]
            private_queue_number=number or 0,
            create_time=now_s,
            modify_time=now_s,
            **attributes,  # type: ignore[arg-type]
        )
        queue = self._add(tick, properties)
        self._add(
            tick,
            QueueProperties(
                QueueType.JOURNAL,
                f"{properties.path};journal",
                uuid4(),
                quota_kb=properties.journal_quota_kb,
                owner=queue.number,
                create_time=now_s,
                modify_time=now_s,
            ),
        )
        return queue

    def subqueue(self, tick: Tick, owner: Queue, name: str, now_s: int) -> Queue:
        """The subqueue of this name, made if it is not there. It has no journal."""
        if (existing := owner.subqueues.get(name.lower())) is not None:
            return existing
        return self._add(
            tick,
            QueueProperties(
                QueueType.SUBQUEUE,
                f"{owner.properties.path};{name}",
                uuid4(),
                transactional=owner.properties.transactional,
                owner=owner.number,
                create_time=now_s,
                modify_time=now_s,
            ),
        )

    def outgoing_queue(self, tick: Tick, name: FormatName, now_s: int) -> Queue:
        """The queue of messages that leave for `name`, made if it is not there ([MS-MQDMPR] 3.1.7.1.5)."""
        if (existing := self.outgoing.get(name)) is not None:
            return existing
        if name.is_read_only:
            raise UnsupportedFormatNameOperation(
                f"nobody can send to {name}: journals and dead letters are for reading"
            )
        return self._add(
            tick, QueueProperties(QueueType.OUTGOING, str(name), uuid4(), create_time=now_s, modify_time=now_s)
        )

    def _add(self, tick: Tick, properties: QueueProperties) -> Queue:
        number = self._free_number()
        queue = self._link(number, properties)
        tick.set_state(f"{QUEUE_STATE}{number}", properties.encode())
        tick.on_failure.append(lambda _: self._unlink(queue))
        return queue

    def change(self, tick: Tick, queue: Queue, now_s: int, **attributes: object) -> None:
        """Sets properties that may change while the queue is in use."""
        for name, value in attributes.items():
            if name not in CHANGEABLE:
                raise InvalidArgument(f"{name}: this property of a queue cannot be changed")
            setattr(queue.properties, name, value)
        if queue.journal is not None and "journal_quota_kb" in attributes:
            self.change(tick, queue.journal, now_s, quota_kb=attributes["journal_quota_kb"])
        queue.properties.modify_time = now_s
        tick.set_state(f"{QUEUE_STATE}{queue.number}", queue.properties.encode())

    def remove(self, tick: Tick, queue: Queue) -> None:
        """Forgets a queue, its journal and its subqueues; their messages must be on their way out."""
        for each in self.family(queue):
            tick.set_state(f"{QUEUE_STATE}{each.number}", None)
            tick.set_state(f"{COUNT_STATE}{each.number}", None)
            self._unlink(each)
        tick.on_failure.append(lambda _: self._link_again(queue))

    def _link_again(self, queue: Queue) -> None:
        for each in self.family(queue):
            self._index(each)

    def family(self, queue: Queue) -> list[Queue]:
        return [queue, *([queue.journal] if queue.journal else []), *queue.subqueues.values()]

    def load(self) -> None:
        """Reads every definition and count from the store; not one message."""
        stored = self._durable.state(QUEUE_STATE)
        for name in sorted(stored, key=lambda name: int(name.removeprefix(QUEUE_STATE))):
            number = int(name.removeprefix(QUEUE_STATE))
            self._link(number, QueueProperties.decode(stored[name], f"queue {number}"))
        for name, counts in self._durable.state(COUNT_STATE).items():
            if (queue := self.by_number.get(int(name.removeprefix(COUNT_STATE)))) is not None:
                queue.decode_counts(counts)

    def _free_number(self) -> int:
        for _ in range(MAX_QUEUE):
            number = self._next_number
            self._next_number = number % MAX_QUEUE + 1
            if number not in self.by_number:
                return number
        raise InvalidArgument(f"a queue manager has at most {MAX_QUEUE} queues, journals and outgoing queues included")

    def _link(self, number: int, properties: QueueProperties) -> Queue:
        queue = Queue(number, properties, self._durable, self._express)
        self._next_number = max(self._next_number, number % MAX_QUEUE + 1)
        self._index(queue)
        return queue

    def _index(self, queue: Queue) -> None:
        properties = queue.properties
        self.by_number[queue.number] = queue
        owner = self.by_number.get(properties.owner) if properties.owner is not None else None
        match properties.queue_type:
            case QueueType.JOURNAL:
                assert owner is not None
                owner.journal = queue
            case QueueType.SUBQUEUE:
                assert owner is not None
                owner.subqueues[properties.path.rpartition(";")[2].lower()] = queue
            case QueueType.OUTGOING:
                self.outgoing[parse_format_name(properties.path)] = queue
                self.outgoing_info[queue] = OutgoingInfo()
            case _:
                self._by_path[properties.path.lower()] = queue
                self._by_identifier[properties.identifier] = queue
                if properties.private_queue_number:
                    self._by_private_number[properties.private_queue_number] = queue

    def _unlink(self, queue: Queue) -> None:
        properties = queue.properties
        self.by_number.pop(queue.number, None)
        match properties.queue_type:
            case QueueType.JOURNAL:
                pass
            case QueueType.SUBQUEUE:
                owner = self.by_number.get(properties.owner or 0)
                if owner is not None:
                    owner.subqueues.pop(properties.path.rpartition(";")[2].lower(), None)
            case QueueType.OUTGOING:
                self.outgoing.pop(parse_format_name(properties.path), None)
                self.outgoing_info.pop(queue, None)
            case _:
                self._by_path.pop(properties.path.lower(), None)
                self._by_identifier.pop(properties.identifier, None)
                self._by_private_number.pop(properties.private_queue_number, None)


def _path(tail: QueueTail) -> str:
    return tail.key[1:]


def _journal_or_self(queue: Queue | None, journal: bool) -> Queue | None:
    return queue.journal if queue is not None and journal else queue
