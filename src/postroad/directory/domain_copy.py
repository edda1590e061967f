"""What a manager knows of a domain: all objects that it has read, by GUID, as of one moment of one domain controller.

It becomes a `Directory`, and lines of text that become the same copy again. Nothing here asks a controller.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from hashlib import sha256
from typing import Any, TypeVar
from uuid import UUID

from postroad.directory.objects import (
    DirectoryObject,
    DirectoryServerType,
    Enterprise,
    Queue,
    QueueManager,
    RoutingLink,
    Site,
)
from postroad.directory.snapshot import Directory, PublicQueues
from postroad.errors import DirectoryError, PostroadError
from postroad.names import PathName
from postroad.validation.queue_properties import QueuePrivacy, QueueSettings

ROWS_OF_A_LINE = 500  # so that a reader can let others work in between
_CHECK_DIGITS = 16
_MOST_TOUCHED = 10_000  # queues; for more than these, a snapshot from nothing is quicker

ObjectT = TypeVar("ObjectT", bound=DirectoryObject)
NamedT = TypeVar("NamedT", Site, QueueManager, Queue)


@dataclass(frozen=True, slots=True)
class Stamp:
    """How far a copy goes: all changes of one controller up to a number. Numbers of two controllers, or of one that was
    restored (its invocation changes), have nothing to do with each other: [MS-ADTS] 3.1.1.1.9."""

    domain: str  # the DN of the domain, or of what is read of it
    service: str  # the DN of the controller's NTDS Settings
    invocation: str
    usn: int
    url: str


@dataclass(slots=True)
class Changes:
    """Objects to put in place of those that a copy has, and to take away. `computers` has the managers of computers,
    both by GUID. `faults` has a sentence for each bad object."""

    enterprise: Enterprise | None = None
    sites: list[Site] = field(default_factory=list)
    links: list[RoutingLink] = field(default_factory=list)
    managers: list[QueueManager] = field(default_factory=list)
    computers: dict[UUID, UUID] = field(default_factory=dict)
    queues: list[Queue] = field(default_factory=list)
    gone: set[UUID] = field(default_factory=set)
    faults: list[str] = field(default_factory=list)

    def add(self, more: Changes) -> None:
        """Takes the changes of another part of the same read."""
        self.enterprise = more.enterprise or self.enterprise
        self.sites += more.sites
        self.links += more.links
        self.managers += more.managers
        self.computers |= more.computers
        self.queues += more.queues
        self.gone |= more.gone
        self.faults += more.faults


@dataclass(frozen=True, slots=True)
class _QueuesOfSnapshot:
    """The public queues of a snapshot, of which managers, and the names of those that it had to leave out. `faults` has
    a sentence for each queue whose name another has."""

    queues: PublicQueues
    holders: frozenset[UUID]
    hidden: frozenset[str | None]
    faults: Sequence[str]


class DomainCopy:
    """Objects by GUID. `faults` has a sentence for each object that is passed over."""

    def __init__(self) -> None:
        self.stamp: Stamp | None = None
        self.read_at_s = 0.0  # when a controller last confirmed that this is all
        self.enterprise: Enterprise | None = None
        self.sites: dict[UUID, Site] = {}
        self.links: dict[UUID, RoutingLink] = {}
        self.managers: dict[UUID, QueueManager] = {}
        self.computers: dict[UUID, UUID] = {}
        self.queues: dict[UUID, Queue] = {}
        self._touched: dict[UUID, str | None] = {}  # queues that differ from the last snapshot, with the names there
        self._last: _QueuesOfSnapshot | None = None

    def confirm(self, stamp: Stamp, now: float) -> None:
        """A controller has said that this is all that it knows."""
        self.stamp, self.read_at_s = stamp, now

    def apply(self, changes: Changes) -> bool:
        """Returns whether anything differs from what the copy had."""
        differs = changes.enterprise is not None and changes.enterprise != self.enterprise
        self.enterprise = changes.enterprise or self.enterprise
        differs |= bool(_put(self.sites, changes.sites)) | bool(_put(self.links, changes.links))
        for manager in {each.identifier: each for each in changes.managers}.values():
            before = self.managers.get(manager.identifier)
            if before is not None and before.full_path != manager.full_path:
                self._rename_queues(manager)
        differs |= bool(_put(self.managers, changes.managers))
        self.computers.update(changes.computers)
        replaced = _put(self.queues, changes.queues)
        for identifier, queue in replaced.items():
            self._touch(identifier, queue)
        for identifier in changes.gone:
            self._touch(identifier, self.queues.get(identifier))
            for kind in (self.sites, self.links, self.managers, self.queues):
                differs |= kind.pop(identifier, None) is not None
        if changes.gone:
            self.computers = {computer: each for computer, each in self.computers.items() if each in self.managers}
        return differs or bool(replaced)

    def _touch(self, identifier: UUID, before: Queue | None) -> None:
        self._touched.setdefault(identifier, None if before is None else before.pathname.key)

    def _rename_queues(self, manager: QueueManager) -> None:
        """A controller does not say that a queue has changed when its computer is renamed or moved."""
        for identifier, queue in self.queues.items():
            if queue.queue_manager_identifier == manager.identifier:
                path = PathName(manager.computer_name, queue.pathname.tail)
                dn = f"{queue.full_path.removesuffix(self.managers[manager.identifier].full_path)}{manager.full_path}"
                self._touch(identifier, queue)
                self.queues[identifier] = replace(queue, pathname=path, full_path=dn)

    def identifiers(self) -> set[UUID]:
        return {*self.sites, *self.links, *self.managers, *self.queues}

    def knows(self, identifier: UUID) -> bool:
        return any(identifier in kind for kind in (self.sites, self.links, self.managers, self.queues))

    def snapshot(self) -> tuple[Directory, list[str]]:
        """The directory of this copy, and a sentence for each object that is not in it.

        All managers must agree on "the first", so everything has an order of its own: by name, links by GUID. Of two
        objects with one name, the one with the lower GUID counts.
        """
        faults: list[str] = []
        sites = _unique("site", self.sites.values(), lambda site: site.name.lower(), faults)
        known = {site.identifier for site in sites}
        links = []
        for link in sorted(self.links.values(), key=lambda link: link.identifier):
            if link.site1_identifier in known and link.site2_identifier in known:
                links.append(link)
            else:
                faults.append(f"{link.full_path}: a routing link must join two sites that exist")
        managers = _unique("queue manager", self.managers.values(), lambda each: each.computer_name.lower(), faults)
        queues = self._queues(frozenset(each.identifier for each in managers))
        self._last, self._touched = queues, {}
        directory = Directory(
            sites=sites, links=links, managers=managers, queues=queues.queues, enterprise=self.enterprise
        )
        return directory, [*faults, *queues.faults]

    def _queues(self, holders: frozenset[UUID]) -> _QueuesOfSnapshot:
        """The public queues of these managers. A few changes must not cost as much as all queues: the event loop would
        have to wait while this has the interpreter."""
        last = self._last
        if last is not None and last.holders == holders:
            found = self._changed_queues(last)
            if found is not None:
                return found
        faults: list[str] = []
        held = (queue for queue in self.queues.values() if queue.queue_manager_identifier in holders)
        unique = _unique("public queue", held, lambda queue: queue.pathname.key, faults)
        queues = PublicQueues(unique)
        hidden = (queue.pathname.key for queue in self.queues.values() if queues.get(queue.identifier) is None)
        return _QueuesOfSnapshot(queues, holders, frozenset(hidden), faults)

    def _changed_queues(self, last: _QueuesOfSnapshot) -> _QueuesOfSnapshot | None:
        """What the last snapshot becomes by the changes since. None if two queues have had one name, or will."""
        touched = {identifier: self.queues.get(identifier) for identifier in self._touched}
        put = [queue for queue in touched.values() if queue is not None]
        names = [queue.pathname.key for queue in put]
        if (
            len(touched) > _MOST_TOUCHED
            or not last.hidden.isdisjoint([*names, *self._touched.values()])
            or not all(queue.queue_manager_identifier in last.holders for queue in put)
        ):
            return None
        queues = last.queues.changed(put, [each for each, queue in touched.items() if queue is None])
        if not queues.are_unique(names):
            return None
        return replace(last, queues=queues)

    # As text. Each line has a checksum of its own, so a file that was cut off is good up to there.

    def lines(self) -> Iterator[bytes]:
        """The whole copy."""
        everything = Changes(
            self.enterprise,
            list(self.sites.values()),
            list(self.links.values()),
            list(self.managers.values()),
            self.computers,
            list(self.queues.values()),
        )
        yield from change_lines(everything)
        if self.stamp is not None:
            yield stamp_line(self.stamp, self.read_at_s)

    def read(self, lines: Iterable[bytes]) -> None:
        """Takes lines, up to the last stamp that a damaged line does not precede. Raises DirectoryError if there is no
        such stamp."""
        waiting: list[Changes] = []
        for line in lines:
            found = parse_line(line)
            if found is None:
                break
            if isinstance(found, Changes):
                waiting.append(found)
                continue
            for changes in waiting:
                self.apply(changes)
            waiting = []
            self.confirm(*found)
        if self.stamp is None:
            raise DirectoryError("has no complete copy of the directory")


def change_lines(changes: Changes) -> Iterator[bytes]:
    if changes.enterprise is not None:
        yield _line(["enterprise", _row(changes.enterprise)])
    for name, objects in (
        ("site", changes.sites),
        ("link", changes.links),
        ("manager", changes.managers),
        ("queue", changes.queues),
    ):
        rows = list(map(_row, objects))
        for place in range(0, len(rows), ROWS_OF_A_LINE):
            yield _line([name, *rows[place : place + ROWS_OF_A_LINE]])
    for kind, pairs in (
        ("computer", [[each.hex, manager.hex] for each, manager in changes.computers.items()]),
        ("gone", [[each.hex] for each in changes.gone]),
        ("fault", [[each] for each in changes.faults]),
    ):
        for place in range(0, len(pairs), ROWS_OF_A_LINE):
            yield _line([kind, *pairs[place : place + ROWS_OF_A_LINE]])


def stamp_line(stamp: Stamp, read_at_s: float) -> bytes:
    return _line(["stamp", [stamp.domain, stamp.service, stamp.invocation, stamp.usn, stamp.url, read_at_s]])


def parse_line(line: bytes) -> Changes | tuple[Stamp, float] | None:
    """What a line says; None if it is damaged."""
    digits, _, text = line.rstrip(b"\n").partition(b" ")
    if digits != _check(text):
        return None
    try:
        kind, *rows = json.loads(text)
        return _READERS[kind](rows)
    except (ValueError, TypeError, KeyError, AttributeError, PostroadError):
        return None


def _line(content: list[Any]) -> bytes:
    text = json.dumps(content, separators=(",", ":")).encode()
    return _check(text) + b" " + text + b"\n"


def _check(text: bytes) -> bytes:
    return sha256(text).hexdigest()[:_CHECK_DIGITS].encode()


def _put(held: dict[UUID, ObjectT], objects: Iterable[ObjectT]) -> dict[UUID, ObjectT | None]:
    """Puts the last object of each id. Returns what it has replaced: only objects that were others before."""
    replaced: dict[UUID, ObjectT | None] = {}
    for identifier, each in {each.identifier: each for each in objects}.items():
        before = held.get(identifier)
        if before != each:
            replaced[identifier] = before
            held[identifier] = each
    return replaced


def _unique(what: str, objects: Iterable[NamedT], key: Callable[[NamedT], str], faults: list[str]) -> list[NamedT]:
    keyed = sorted((key(each), each.identifier, each) for each in objects)
    found: list[NamedT] = []
    last: str | None = None
    for name, _, each in keyed:
        if name == last:
            faults.append(f"{each.full_path}: another {what} has the same name, {found[-1].full_path}")
        else:
            found.append(each)
        last = name
    return found


# Rows: the fields of an object, in the order of its class. The annotation of a field says how it is written.

_Encode = Callable[[Any], Any]


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _number(value: Any) -> int:
    if type(value) is not int:
        raise TypeError
    return value


def _switch(value: Any) -> bool:
    if type(value) is not bool:
        raise TypeError
    return value


def _optional_text(value: Any) -> str | None:
    return None if value is None else _text(value)


def _bytes(value: Any) -> bytes:
    return b64decode(_text(value), validate=True) if value else b""


def _path(value: Any) -> PathName:
    return PathName.parse(_text(value))


_settings: dict[tuple[object, ...], QueueSettings] = {}  # queues mostly have the same ones
_MOST_SETTINGS = 10_000


def _queue_settings(value: Any) -> QueueSettings | None:
    if value is None:
        return None
    key = tuple(value)
    found = _settings.get(key)
    if found is None:
        names = [each.name for each in fields(QueueSettings)]
        given = dict(zip(names, key, strict=True))
        found = QueueSettings(**given | {"privacy": QueuePrivacy(given["privacy"])})
        if len(_settings) < _MOST_SETTINGS:
            _settings[key] = found
    return found


_CODECS: Mapping[str, tuple[_Encode, _Encode]] = {
    "UUID": (lambda value: value.hex, UUID),
    "str": (str, _text),
    "str | None": (lambda value: value, _optional_text),
    "int": (int, _number),
    "bool": (bool, _switch),
    "bytes": (lambda value: b64encode(value).decode(), _bytes),
    "tuple[UUID, ...]": (lambda value: [each.hex for each in value], lambda value: tuple(map(UUID, value))),
    "PathName": (str, _path),
    "DirectoryServerType | None": (
        lambda value: None if value is None else value.value,
        lambda value: None if value is None else DirectoryServerType(value),
    ),
    "QueueSettings | None": (
        lambda value: None if value is None else [getattr(value, each.name) for each in fields(QueueSettings)],
        _queue_settings,
    ),
}
_FILE_ONLY = {"other_addresses"}  # in a domain, a name has them
_FIELDS: dict[type[DirectoryObject], list[tuple[str, _Encode, _Encode]]] = {
    kind: [(each.name, *_CODECS[str(each.type)]) for each in fields(kind) if each.name not in _FILE_ONLY]
    for kind in (Enterprise, Site, RoutingLink, QueueManager, Queue)
}


def _row(each: DirectoryObject) -> list[Any]:
    return [encode(getattr(each, name)) for name, encode, _ in _FIELDS[type(each)]]


def _reader(kind: type[ObjectT]) -> Callable[[list[Any]], ObjectT]:
    columns = _FIELDS[kind]

    def read(row: list[Any]) -> ObjectT:
        return kind(**{name: decode(value) for (name, _, decode), value in zip(columns, row, strict=True)})

    return read


def _read_stamp(rows: list[Any]) -> tuple[Stamp, float]:
    domain, service, invocation, usn, url, read_at_s = rows[0]
    return Stamp(_text(domain), _text(service), _text(invocation), _number(usn), _text(url)), float(read_at_s)


_read_enterprise, _read_site, _read_link = _reader(Enterprise), _reader(Site), _reader(RoutingLink)
_read_manager, _read_queue = _reader(QueueManager), _reader(Queue)
_READERS: Mapping[str, Callable[[list[Any]], Changes | tuple[Stamp, float]]] = {
    "enterprise": lambda rows: Changes(enterprise=_read_enterprise(rows[0])),
    "site": lambda rows: Changes(sites=list(map(_read_site, rows))),
    "link": lambda rows: Changes(links=list(map(_read_link, rows))),
    "manager": lambda rows: Changes(managers=list(map(_read_manager, rows))),
    "queue": lambda rows: Changes(queues=list(map(_read_queue, rows))),
    "computer": lambda rows: Changes(computers={UUID(each): UUID(manager) for each, manager in rows}),
    "gone": lambda rows: Changes(gone={UUID(each) for (each,) in rows}),
    "fault": lambda rows: Changes(faults=[_text(each) for (each,) in rows]),
    "stamp": _read_stamp,
}
