"""The queues of a manager and their names: which name means which queue here, and which means another manager.

The store keeps definitions as state. This module does not touch messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, TypeVar
from uuid import UUID

from postroad.errors import (
    IllegalPathName,
    InvalidArgument,
    LimitReached,
    QueueExists,
    QueueNotFound,
    UnsupportedFormatNameOperation,
)
from postroad.names import (
    DirectName,
    FormatName,
    MachineName,
    MulticastName,
    PathName,
    PrivateName,
    PublicName,
    QueueKind,
    QueueSuffixType,
    QueueTail,
    parse_format_name,
    parse_name,
)
from postroad.names.format import INTERNAL_QUEUES, NOTIFY_QUEUE, url_path
from postroad.names.path import outside_printed
from postroad.net import ports
from postroad.queues.outgoing_queues import Carrier, OutgoingEvent, OutgoingInfo, OutgoingState
from postroad.queues.properties import CHANGEABLE, QueueProperties, QueueType, check_attributes
from postroad.queues.queue import Queue, Usage
from postroad.queues.tick import COUNT_STATE, Tick
from postroad.store.interface import MAX_QUEUE, RecordStore

_Key = TypeVar("_Key")

QUEUE_STATE = "queue/"

FIRST_PRIVATE_NUMBER = 8  # smaller numbers are the manager's own
POISON = "poison"
STANDARD_HTTP_PORTS = frozenset({ports.HTTP, ports.HTTPS})  # the ports of a URL that names none

# [MS-MQDMPR] 3.1.3: the queues that every manager has, besides INTERNAL_QUEUES.
JOURNAL = "system$;journal"
DEADLETTER = "system$;deadletter"
DEADXACT = "system$;deadxact"
_SYSTEM_SUFFIXES = {
    QueueSuffixType.JOURNAL: JOURNAL,
    QueueSuffixType.DEADLETTER: DEADLETTER,
    QueueSuffixType.DEADXACT: DEADXACT,
}
_STRICT = "a queue's name must consist of visible ASCII characters, because strict_names in [manager] is true"
_KINDS_IN_PATHS = (QueueKind.PRIVATE.value, QueueKind.SYSTEM.value)
_TYPES = {QueueKind.PRIVATE: QueueType.PRIVATE, QueueKind.PUBLIC: QueueType.PUBLIC, QueueKind.SYSTEM: QueueType.SYSTEM}


@dataclass(eq=False, repr=False)
class QueueCollection:
    """All queues by number, by path and by identifier; outgoing queues by destination."""

    name: str
    identifier: UUID
    _durable: RecordStore
    _express: RecordStore
    _new_id: Callable[[], UUID]
    hardened_security: bool = False
    _base_priority: Callable[[FormatName], int] = lambda name: 0
    _hosts: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        self.local_hosts = {".", "localhost", self.name.lower(), *(each.lower() for each in self._hosts)}
        self.answers = AnswerAddresses()  # how others reach us by address; empty if a directory knows us
        self.http_ports: set[int] = set()  # that we listen on; other ports here are other managers'
        self.usage = Usage()
        self.strict_names = False  # until `use` says otherwise
        self.online = True  # False: no carrier sends or takes anything
        self.by_number: dict[int, Queue] = {}
        self.outgoing: dict[FormatName, Queue] = {}
        self.outgoing_info: dict[Queue, OutgoingInfo] = {}
        self.idle = IdleQueues(self)
        self.carriers: list[Carrier] = []
        self._definition_watchers: list[Callable[[], None]] = []
        self._notified = False
        self._by_path: dict[str, Queue] = {}
        self._namesakes: dict[str, dict[Queue, None]] = {}  # by path: after a lost tick there can be two
        self._by_private_number: dict[int, Queue] = {}
        self._by_identifier: dict[UUID, Queue] = {}
        self._never_stored: set[Queue] = set()  # created in a tick that was lost, and deleted before that was known
        self._next_number = 1
        self._last_private_number = FIRST_PRIVATE_NUMBER - 1

    def __iter__(self) -> Iterator[Queue]:
        return iter(self.by_number.values())

    def use(self, strict_names: bool) -> None:
        """From now on, new queues must have names of the printed alphabet, or need not. Queues that exist stay."""
        self.strict_names = strict_names

    # Names

    def is_local(self, name: FormatName | PathName) -> bool:
        """Whether a queue of this name would be a queue of this manager."""
        match name:
            case PathName():
                return name.computer.lower() in self.local_hosts
            case DirectName():
                return name.host.lower() in self.local_hosts and self._is_own_port(name.port)
            case PrivateName() | MachineName():
                return name.guid == self.identifier
            case PublicName():
                return name.guid in self._by_identifier
        return False

    def _is_own_port(self, port: int | None) -> bool:
        return port is None or not self.http_ports or port in self.http_ports or port in STANDARD_HTTP_PORTS

    def find(self, name: FormatName | PathName | str) -> Queue | None:
        """The local or outgoing queue of this name. None if there is none."""
        if isinstance(name, str):
            name = parse_name(name)
        if isinstance(name, FormatName) and name in self.outgoing:
            return self.outgoing[name]
        if not self.is_local(name):
            return self.outgoing.get(DirectName.from_path(name)) if isinstance(name, PathName) else None
        match name:
            case PathName() | DirectName():
                return self.by_tail(name.tail)
            case PrivateName():
                return _journal_or_self(self._by_private_number.get(name.number), name.journal)
            case PublicName():
                return _journal_or_self(self._by_identifier.get(name.guid), name.journal)
            case MachineName():
                return self._by_path.get(_SYSTEM_SUFFIXES.get(name.suffix, ""))
        return None

    def get(self, name: FormatName | PathName | str) -> Queue:
        queue = self.find(name)
        if queue is None:
            raise QueueNotFound(f"there is no queue {name} on {self.name}")
        return queue

    def system(self, path: str) -> Queue:
        return self._by_path[path]

    def by_tail(self, tail: QueueTail) -> Queue | None:
        """The queue here with this tail in its path or direct name, whatever computer precedes it."""
        if tail.subqueue is None and not tail.journal:
            return self._by_path.get(_path(tail))
        queue = self._by_path.get(_path(replace(tail, subqueue=None, journal=False)))
        if queue is not None and tail.subqueue is not None:
            queue = queue.subqueues.get(tail.subqueue.lower())
        return _journal_or_self(queue, tail.journal)

    def format_name(self, queue: Queue) -> FormatName:
        """The name that other managers and `queue show` use for it."""
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

    def _display_name(self, properties: QueueProperties) -> str:
        """The path in a form that `find` reads. For a public queue, its journal or subqueue, it has the computer."""
        path = properties.path
        own = properties.queue_type is QueueType.OUTGOING or path.lower().startswith(_KINDS_IN_PATHS)
        return path if own else f"{self.name}\\{path}"

    def direct_name(self, queue: Queue) -> DirectName:
        """The name that a local send writes into its packets."""
        name = parse_format_name(f"DIRECT=OS:{self.name}\\{queue.properties.path}")
        assert isinstance(name, DirectName)
        return name

    # Creation

    def planned(self, path: PathName | str, now_s: int, **attributes: object) -> QueueProperties:
        """The properties that a new queue would have. Raises what `create` would raise."""
        if isinstance(path, str):
            path = PathName.parse(path)
        if not self.is_local(path):
            raise IllegalPathName(str(path), 0, f"queues can be created on {self.name} only, not on {path.computer}")
        tail = path.tail
        if tail.subqueue or tail.journal:
            raise IllegalPathName(str(path), 0, "journals and subqueues come with their queue")
        self._check_alphabet(str(path))
        key = _path(tail)
        if key in self._by_path:
            raise QueueExists(f"the queue {path} exists already")
        queue_type = _TYPES[tail.kind]
        if queue_type is QueueType.SYSTEM and key not in _SYSTEM_SUFFIXES.values():
            raise IllegalPathName(str(path), 0, "a queue manager's own queues are ;journal, ;deadletter and ;deadxact")
        identifier = attributes.pop("identifier", None) or self._new_id()
        checked = check_attributes(queue_type, attributes)
        number = INTERNAL_QUEUES.get(key)
        if queue_type is QueueType.PRIVATE and number is None:
            number = self._last_private_number + 1
        properties = QueueProperties(
            queue_type=queue_type,
            path=str(tail)[1:],
            identifier=identifier,  # type: ignore[arg-type]
            private_queue_number=number or 0,
            create_time=now_s,
            modify_time=now_s,
            **checked,
        )
        _check_group(properties)
        return properties

    def create(self, tick: Tick, path: PathName | str, now_s: int, **attributes: object) -> Queue:
        """Create Queue, [MS-MQDMPR] 3.1.7.1.3: creates a queue and its journal. Nothing goes into the directory.

        The manager's own queues have no journal, because its name would be the same as theirs.
        """
        properties = self.planned(path, now_s, **attributes)
        queue = self._add(tick, properties)
        if properties.queue_type is not QueueType.SYSTEM:
            self._add(
                tick,
                QueueProperties(
                    QueueType.JOURNAL,
                    f"{properties.path};journal",
                    self._new_id(),
                    quota_kb=properties.journal_quota_kb,
                    owner=queue.number,
                    create_time=now_s,
                    modify_time=now_s,
                ),
            )
        return queue

    def subqueue(self, tick: Tick, owner: Queue, name: str, now_s: int) -> Queue:
        """The subqueue of this name. Creates it if it does not exist. A subqueue has no journal."""
        if (existing := owner.subqueues.get(name.lower())) is not None:
            return existing
        self._check_alphabet(name)
        return self._add(
            tick,
            QueueProperties(
                QueueType.SUBQUEUE,
                f"{owner.properties.path};{name}",
                self._new_id(),
                transactional=owner.properties.transactional,
                owner=owner.number,
                create_time=now_s,
                modify_time=now_s,
            ),
        )

    def _check_alphabet(self, name: str) -> None:
        place = outside_printed(name) if self.strict_names else None
        if place is not None:
            raise IllegalPathName(name, place, _STRICT)

    # Multicast

    def groups(self) -> dict[MulticastName, list[Queue]]:
        """The queues that listen to multicast addresses, by address."""
        found: dict[MulticastName, list[Queue]] = {}
        for queue in self.by_number.values():
            address = queue.properties.multicast_address
            if address is not None and not queue.deleted:
                name = parse_format_name(f"MULTICAST={address}")
                assert isinstance(name, MulticastName)
                found.setdefault(name, []).append(queue)
        return found

    def watch_definitions(self, changed: Callable[[], None]) -> None:
        """`changed` is called when queues are created, deleted or changed, before that is durable."""
        self._definition_watchers.append(changed)

    def expect_notifications(self) -> None:
        """From now on, somebody reads the notification queue, [MS-MQCN] 3.2.3, so others may send to it."""
        self._notified = True

    def takes_notifications(self, queue: Queue) -> bool:
        return self._notified and queue.properties.path.lower() == NOTIFY_QUEUE

    def _defined(self) -> None:
        for changed in self._definition_watchers:
            changed()

    # Carriers

    def attach(self, carrier: Carrier) -> None:
        self.carriers.append(carrier)
        for queue, info in self.outgoing_info.items():
            if queue.carrier is None:
                self._give_carrier(queue, info)

    def carrier_of(self, name: FormatName) -> Carrier | None:
        return next((each for each in self.carriers if each.carries(name)), None)

    def _give_carrier(self, queue: Queue, info: OutgoingInfo) -> None:
        queue.carrier = self.carrier_of(info.destination)
        self.harden(queue)

    def harden(self, queue: Queue) -> None:
        """[MS-MQDMPR] 3.1.3 and 3.1.7.1.5: a hardened manager sends only by certain carriers."""
        if self.hardened_security:
            hardened = queue.carrier is not None and queue.carrier.hardened
            self.outgoing_info[queue].on(OutgoingEvent.UNLOCK if hardened else OutgoingEvent.LOCK)

    # Outgoing queues

    def outgoing_queue(self, tick: Tick, name: FormatName, now_s: int, *, own: bool = False) -> Queue:
        """The outgoing queue for `name`, [MS-MQDMPR] 3.1.7.1.5. Creates it if it does not exist.

        Raises LimitReached if there are too many. Some places are reserved for what local applications send (`own`).
        """
        if (existing := self.outgoing.get(name)) is not None:
            return existing
        if name.is_read_only:
            raise UnsupportedFormatNameOperation(
                f"nobody can send to {name}: journals and dead letters are for reading"
            )
        path = str(name)
        if self.strict_names and outside_printed(path) is not None:
            raise UnsupportedFormatNameOperation(f"cannot send to {name}: {_STRICT}")
        self.idle.make_room(tick, now_s, own=own)
        properties = QueueProperties(
            QueueType.OUTGOING,
            path,
            self._new_id(),
            label=path,
            base_priority=self._base_priority(name),
            create_time=now_s,
            modify_time=now_s,
        )
        return self._add(tick, properties)

    def _add(self, tick: Tick, properties: QueueProperties) -> Queue:
        number, stored = self._free_number(), properties.encode()
        queue = self._link(number, properties)
        self._define(tick, queue, stored)
        return queue

    def _define(self, tick: Tick, queue: Queue, stored: bytes) -> None:
        tick.set_state(f"{QUEUE_STATE}{queue.number}", stored)
        tick.undo.append(lambda gathering: self._undo_definition(queue, gathering))

    def _undo_definition(self, queue: Queue, gathering: Tick) -> None:
        """The tick that was to create the queue is lost. If somebody relies on the queue, the next tick creates it."""
        owner = queue.properties.owner if queue.properties.queue_type is QueueType.JOURNAL else None
        root = self.by_number.get(owner, queue) if owner is not None else queue
        if queue.deleted:
            self._never_stored.add(queue)
        elif any(each.used_bytes or each.descriptors for each in self.family(root)):
            self._define(gathering, queue, queue.properties.encode())
        else:
            self._unlink(queue)
            gathering.batch.state.pop(f"{QUEUE_STATE}{queue.number}", None)
            for each in list(self._namesakes.get(queue.properties.path.lower(), ())):
                self._index(each)  # it was to be deleted, and is back

    def use_answers(self, answers: AnswerAddresses) -> None:
        """Where others find us by our address, once listeners are open."""
        self.answers = answers

    def planned_change(self, queue: Queue, now_s: int, **attributes: object) -> tuple[QueueProperties, dict[str, Any]]:
        """The properties that the queue would have, and those that change. Raises what `change` would raise."""
        for name in attributes:
            if name not in CHANGEABLE:
                raise InvalidArgument(f"{name}: this property cannot change once the queue exists")
        changes = check_attributes(queue.properties.queue_type, attributes) | {"modify_time": now_s}
        properties = replace(queue.properties, **changes)
        _check_group(properties)
        return properties, changes

    def change(self, tick: Tick, queue: Queue, now_s: int, **attributes: object) -> None:
        """Sets properties that may change while the queue is in use: all that are given, or none."""
        properties, changes = self.planned_change(queue, now_s, **attributes)
        before = {name: getattr(queue.properties, name) for name in changes}
        queue.properties = properties
        self._defined()
        tick.undo.append(lambda gathering: self._undo_change(queue, before, gathering))
        tick.set_state(f"{QUEUE_STATE}{queue.number}", queue.properties.encode())
        if queue.journal is not None and "journal_quota_kb" in changes:
            self.change(tick, queue.journal, now_s, quota_kb=changes["journal_quota_kb"])

    def _undo_change(self, queue: Queue, before: dict[str, Any], gathering: Tick) -> None:
        queue.properties = replace(queue.properties, **before)
        self._defined()
        name = f"{QUEUE_STATE}{queue.number}"
        if gathering.batch.state.get(name) is not None:  # a later change was made on top of the lost one
            gathering.batch.state[name] = queue.properties.encode()

    def remove(self, tick: Tick, queue: Queue) -> None:
        """Drops a queue, its journal and its subqueues. Their messages must already be on their way out."""
        info = self.outgoing_info.get(queue)
        for each in self.family(queue):
            tick.set_state(f"{QUEUE_STATE}{each.number}", None)
            tick.set_state(f"{COUNT_STATE}{each.number}", None)
            each.deleted = True
            self._unlink(each)
        tick.undo.append(lambda gathering: self._undo_removal(queue, info))

    def _undo_removal(self, queue: Queue, info: OutgoingInfo | None) -> None:
        """The tick that was to delete the queue is lost. A newer queue of the same path keeps the path."""
        successors = list(self._namesakes.get(queue.properties.path.lower(), ()))
        if queue not in self._never_stored:
            if info is not None:
                self.outgoing_info[queue] = info
            for each in self.family(queue):
                each.deleted = False
                self._index(each)
        for each in successors:
            self._index(each)

    def family(self, queue: Queue) -> list[Queue]:
        return [queue, *([queue.journal] if queue.journal else []), *queue.subqueues.values()]

    def load(self) -> None:
        """Reads every definition and every count from the store, but no message."""
        definitions: dict[int, QueueProperties] = {}
        for name, stored in self._durable.state(QUEUE_STATE).items():
            number = int(name.removeprefix(QUEUE_STATE))
            definitions[number] = QueueProperties.decode(stored, f"queue {number}")
        for number in sorted(definitions, key=lambda number: (definitions[number].owner is not None, number)):
            if definitions[number].owner is None or definitions[number].owner in self.by_number:
                self._link(number, definitions[number])
        counts = self._durable.state(COUNT_STATE)
        damaged = [name for name in self._durable.damaged if isinstance(name, str)]
        for queue in self:
            if f"{COUNT_STATE}{queue.number}" in counts:
                queue.decode_counts(counts[f"{COUNT_STATE}{queue.number}"])
            elif damaged:
                queue.recount()  # the queue's own counts may be the damaged part
        for number in (*definitions, *_numbers(damaged)):
            self._next_number = max(self._next_number, number % MAX_QUEUE + 1)  # it may have messages

    def _free_number(self) -> int:
        for _ in range(MAX_QUEUE):
            number = self._next_number
            self._next_number = number % MAX_QUEUE + 1
            if number not in self.by_number:
                return number
        raise InvalidArgument(f"a queue manager has at most {MAX_QUEUE} queues, journals and outgoing queues included")

    def _link(self, number: int, properties: QueueProperties) -> Queue:
        queue = Queue(number, self._display_name(properties), properties, self._durable, self._express, self.usage)
        self._next_number = max(self._next_number, number % MAX_QUEUE + 1)
        self._index(queue)
        return queue

    def _index(self, queue: Queue) -> None:
        properties = queue.properties
        self._defined()
        self.by_number[queue.number] = queue
        self._namesakes.setdefault(properties.path.lower(), {})[queue] = None
        owner = self.by_number.get(properties.owner) if properties.owner is not None else None
        match properties.queue_type:
            case QueueType.JOURNAL:
                assert owner is not None
                owner.journal = queue
            case QueueType.SUBQUEUE:
                assert owner is not None
                owner.subqueues[properties.path.rpartition(";")[2].lower()] = queue
            case QueueType.OUTGOING:
                destination = parse_format_name(properties.path)
                self.outgoing[destination] = queue
                info = self.outgoing_info.setdefault(queue, OutgoingInfo(destination))
                self._give_carrier(queue, info)
            case _:
                self._by_path[properties.path.lower()] = queue
                self._by_identifier[properties.identifier] = queue
                if properties.private_queue_number:
                    self._by_private_number[properties.private_queue_number] = queue
                    self._last_private_number = max(self._last_private_number, properties.private_queue_number)

    def _unlink(self, queue: Queue) -> None:
        properties = queue.properties
        self._defined()
        self.by_number.pop(queue.number, None)
        namesakes = self._namesakes.get(properties.path.lower(), {})
        namesakes.pop(queue, None)
        if not namesakes:
            self._namesakes.pop(properties.path.lower(), None)
        match properties.queue_type:
            case QueueType.JOURNAL:
                pass
            case QueueType.SUBQUEUE:
                owner = self.by_number.get(properties.owner or 0)
                if owner is not None:
                    owner.subqueues.pop(properties.path.rpartition(";")[2].lower(), None)
            case QueueType.OUTGOING:
                _forget(self.outgoing, parse_format_name(properties.path), queue)
                self.outgoing_info.pop(queue, None)
                queue.carrier = None
            case _:
                _forget(self._by_path, properties.path.lower(), queue)
                _forget(self._by_identifier, properties.identifier, queue)
                _forget(self._by_private_number, properties.private_queue_number, queue)


def _check_group(properties: QueueProperties) -> None:
    """[MS-MQMQ] 2.3.1.23: nobody acknowledges a multicast, so no stream can arrive by it."""
    if properties.multicast_address is not None and properties.transactional:
        raise InvalidArgument("multicast_address: a transactional queue cannot listen to a multicast address")


def _path(tail: QueueTail) -> str:
    return tail.key[1:]


def _numbers(states: Iterable[str]) -> Iterator[int]:
    """The numbers of the queues in state names such as `queue/7`."""
    for name in states:
        kind, _, number = name.partition("/")
        if f"{kind}/" in (QUEUE_STATE, COUNT_STATE) and number.isdecimal():
            yield int(number)


def _forget(queues: dict[_Key, Queue], key: _Key, queue: Queue) -> None:
    """Removes the entry unless it belongs to a newer queue by now."""
    if queues.get(key) is queue:
        del queues[key]


def _journal_or_self(queue: Queue | None, journal: bool) -> Queue | None:
    return queue.journal if queue is not None and journal else queue


# How a manager that no directory knows names its own queues to others: by its own addresses.


@dataclass(frozen=True, slots=True)
class AnswerAddresses:
    """The beginnings of direct names for queues here, such as `TCP:10.0.0.5` and `HTTP://10.0.0.5:8080/msmq`. None if
    the manager cannot be reached in that way."""

    binary: str | None = None
    http: str | None = None

    def name_for(self, destination: FormatName, path: str) -> DirectName | None:
        """A name of the queue `path` to which the destination can send answers, by the destination's own protocol if
        possible. None if the destination is not named by an address, or if this manager has no known address."""
        if not isinstance(destination, DirectName):
            return None
        http = None if self.http is None else f"{self.http}/{url_path(path)}"
        binary = None if self.binary is None else f"{self.binary}\\{path}"
        text = (http or binary) if destination.is_send_only else (binary or http)
        return None if text is None else DirectName.from_wire(text)


# Outgoing queues that nobody needs any longer. They are dropped once they are old, or sooner if there are too many.
# Strangers can cause outgoing queues, so their number is limited. A queue with messages is never dropped.


OWN_SHARE = 10  # one part in so many of the limit is for local applications only
FORGET_AFTER_S = 600.0
SWEEP_S = 60.0
AT_ONCE = 1000  # queues dropped in one tick
JUST_MADE_S = 2  # a send to several queues creates all of them before it puts a message into one


class IdleQueues:
    """`needed` says whether a queue without messages must stay."""

    def __init__(self, queues: QueueCollection) -> None:
        self.limit = 0  # until `use` says another
        self.refused = 0  # outgoing queues that were refused, since the start
        self.needed: list[Callable[[Queue], bool]] = []
        self._queues = queues
        self._empty_since: dict[Queue, float] = {}
        self._sweep_at = 0.0
        self._full_at = -1  # the second in which none could be dropped: one search per second is enough

    def use(self, limit: int) -> None:
        self.limit = limit

    def sweep(self, tick: Tick, now: float) -> None:
        """Drops the queues that have been empty for long. May be called at any rate."""
        if 0 <= self._sweep_at - now <= SWEEP_S:
            return
        self._sweep_at = now + SWEEP_S
        before, self._empty_since = self._empty_since, {}
        for queue in list(self._queues.outgoing.values()):
            if self._is_idle(queue):
                self._empty_since[queue] = max(before.get(queue, now), queue.last_added_at)
        old = (queue for queue, since in self._empty_since.items() if now - since >= FORGET_AFTER_S)
        for queue in list(islice(old, AT_ONCE)):
            self._forget(tick, queue)

    def make_room(self, tick: Tick, now_s: int, *, own: bool) -> None:
        """Makes room for one more, for a local application if `own`. Drops queues that were unused for longest."""
        limit = self.limit if own else self.limit - self.limit // OWN_SHARE
        if len(self._queues.outgoing) < limit:
            return
        if now_s != self._full_at:
            idle = [
                queue
                for queue in self._queues.outgoing.values()
                if self._last_used(queue) < now_s - JUST_MADE_S and self._is_idle(queue)
            ]
            idle.sort(key=self._last_used)
            for queue in idle[: len(self._queues.outgoing) - limit + max(1, limit // 100)]:
                self._forget(tick, queue)
        if len(self._queues.outgoing) >= limit:
            self._full_at = now_s
            self.refused += 1
            raise LimitReached(
                f"the queue manager has {len(self._queues.outgoing)} outgoing queues and makes no more: wait until "
                "some are empty, delete some, or raise outgoing_queues in [limits]",
                "outgoing_queues in [limits]",
            )

    @staticmethod
    def _last_used(queue: Queue) -> float:
        return max(queue.last_added_at, queue.properties.create_time)

    def _is_idle(self, queue: Queue) -> bool:
        return not (
            queue.count
            or queue.used_bytes
            or queue.positions
            or queue.descriptors
            or queue.waiting
            or queue.holds
            or self._queues.outgoing_info[queue].state is OutgoingState.ON_HOLD
            or any(needs(queue) for needs in self.needed)
        )

    def _forget(self, tick: Tick, queue: Queue) -> None:
        self._empty_since.pop(queue, None)
        carrier = queue.carrier
        self._queues.remove(tick, queue)
        if carrier is not None:
            carrier.forget(queue)
