"""The enterprise as a TOML file: sites, routing links, queue managers and public queues, checked as a whole.

Here, objects refer to each other by name. `read_directory` makes a directory, where they refer by identifier.
"""

# ruff: noqa: RUF009  (a setting is a dataclass field, made by a function)

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TypeVar
from uuid import UUID, uuid5

from postroad.directory import objects
from postroad.directory.objects import MAX_COST, MIN_COST, ObjectSource
from postroad.directory.snapshot import Directory
from postroad.errors import RemoteProtocolError
from postroad.names import PathName, QueueKind
from postroad.security.descriptors import SecurityDescriptor
from postroad.security.rights import QUEUE_MAPPING
from postroad.security.sddl import SDDL, format_sddl
from postroad.validation.fields import required, setting, tables
from postroad.validation.kinds import (
    GUID,
    HOST,
    MANAGER_NAME,
    SWITCH,
    FieldFault,
    items,
    line,
    one_or_several,
    parsed,
    quoted,
    suggestion,
    whole,
)
from postroad.validation.queue_properties import BASE_PRIORITY
from postroad.validation.toml import Place, load, refuse_duplicates
from postroad.wire.records import decode_public_keys

T = TypeVar("T")

# the namespace for ids of sites without one, which are made from their names
SITE_NAMESPACE = UUID("6f1b7c0e-3a52-4f0b-8a53-0d5f6c1f8b1d")


def derived_site_id(name: str) -> UUID:
    """The id of a site without one. It is the same on every machine, and case in the name does not matter."""
    return uuid5(SITE_NAMESPACE, name.lower())


def public_path(text: str) -> PathName:
    r"""Checks a path `computer\queue`. Every queue of the directory is public."""
    name = PathName.parse(text)
    if name.tail.kind is not QueueKind.PUBLIC or name.tail.journal or name.tail.subqueue is not None or name.is_local:
        raise FieldFault(rf"must be a public queue with its queue manager, as in alpha\orders, got {quoted(text)}")
    return name


def _public_keys(text: str) -> bytes:
    """Reads MQDSPUBLICKEYS in hexadecimal digits, as `postroad keys show` prints it."""
    try:
        data = bytes.fromhex(text)
        decode_public_keys(data)
    except RemoteProtocolError as fault:
        raise FieldFault(f"must be the public_keys that `postroad keys show` prints: {fault}") from None
    except ValueError:
        raise FieldFault("must be hexadecimal digits, as `postroad keys show` prints them") from None
    return data


_names = items(MANAGER_NAME)
_site_name = line(64)
MAX_MANAGER_ADDRESSES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """[MS-MQDMPR] 3.1.1.7. Traffic with other sites goes through the queue managers in `gates`."""

    name: str
    id: UUID
    gates: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _SiteTable:
    name: str = required(_site_name)
    id: UUID | None = setting(GUID, None)
    gates: tuple[str, ...] = setting(_names, ())


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """RoutingLink, [MS-MQDMPR] 3.1.1.8: two neighbouring sites, by name."""

    sites: tuple[str, ...] = required(items(_site_name, least=2, most=2))
    cost: int = setting(whole(MIN_COST, MAX_COST), 1)
    gates: tuple[str, ...] = setting(_names, ())


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagerEntry:
    """A QueueManager of the directory. Without an address, its name is resolved. A manager that moves has several."""

    name: str = required(MANAGER_NAME)
    id: UUID = required(GUID)
    address: tuple[str, ...] = setting(one_or_several(HOST, MAX_MANAGER_ADDRESSES), ())
    sites: tuple[str, ...] = required(items(_site_name, least=1))
    routing_server: bool = setting(SWITCH, False)
    in_routing_servers: tuple[str, ...] = setting(_names, ())
    out_routing_servers: tuple[str, ...] = setting(_names, ())
    public_keys: bytes = setting(parsed("text", _public_keys, 65_536), b"")


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicQueue:
    """A queue that others can find by its identifier."""

    path: PathName = required(parsed("text", public_path))
    id: UUID = required(GUID)
    base_priority: int = setting(BASE_PRIORITY, 0)
    acl: SecurityDescriptor | None = setting(SDDL, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    sites: tuple[_SiteTable, ...] = setting(tables(_SiteTable), (), key="site")
    links: tuple[Link, ...] = setting(tables(Link), (), key="link")
    managers: tuple[ManagerEntry, ...] = setting(tables(ManagerEntry), (), key="manager")
    queues: tuple[PublicQueue, ...] = setting(tables(PublicQueue), (), key="queue")


@dataclass(frozen=True, slots=True, kw_only=True)
class Enterprise:
    """The whole file, in its order. References are spelled as in the definitions."""

    sites: tuple[Site, ...] = ()
    links: tuple[Link, ...] = ()
    managers: tuple[ManagerEntry, ...] = ()
    queues: tuple[PublicQueue, ...] = ()

    def manager(self, name: str) -> ManagerEntry | None:
        return next((each for each in self.managers if each.name.lower() == name.lower()), None)


def load_enterprise(file: Path, data: bytes | None = None) -> Enterprise:
    """Reads and checks the whole file. Raises ConfigurationError on the first fault.

    `data` is the content of the file, if the caller has already read it.
    """
    tables = load(file, _File, data)
    place = Place(str(file))
    for section, found in (("site", tables.sites), ("manager", tables.managers)):
        refuse_duplicates(found, place.inside(section), "name")
    site_names = _Names("site", (each.name for each in tables.sites))
    manager_names = _Names("queue manager", (each.name for each in tables.managers))
    sites = tuple(
        Site(
            name=each.name,
            id=each.id or derived_site_id(each.name),
            gates=manager_names.resolve(each.gates, at.inside("gates")),
        )
        for each, at in _placed(tables.sites, place.inside("site"))
    )
    links = tuple(
        replace(
            each,
            sites=site_names.resolve(each.sites, at.inside("sites")),
            gates=manager_names.resolve(each.gates, at.inside("gates")),
        )
        for each, at in _placed(tables.links, place.inside("link"))
    )
    managers = tuple(
        replace(
            each,
            sites=site_names.resolve(each.sites, at.inside("sites")),
            in_routing_servers=manager_names.resolve(each.in_routing_servers, at.inside("in_routing_servers")),
            out_routing_servers=manager_names.resolve(each.out_routing_servers, at.inside("out_routing_servers")),
        )
        for each, at in _placed(tables.managers, place.inside("manager"))
    )
    for each, at in _placed(tables.queues, place.inside("queue")):
        manager_names.known(each.path.computer, at.inside("path"))
    refuse_duplicates(sites, place.inside("site"), "id")
    refuse_duplicates(managers, place.inside("manager"), "id")
    refuse_duplicates(tables.queues, place.inside("queue"), "path")
    refuse_duplicates(tables.queues, place.inside("queue"), "id")
    return Enterprise(sites=sites, links=links, managers=managers, queues=tables.queues)


def read_directory(enterprise: Enterprise) -> Directory:
    """The directory of an enterprise whose references are valid, as `load_enterprise` returns it."""
    sites = {each.name: each.id for each in enterprise.sites}
    managers = {each.name: each.id for each in enterprise.managers}
    by_lower = {name.lower(): identifier for name, identifier in managers.items()}

    def identifiers(names: Iterable[str], of: Mapping[str, UUID]) -> tuple[UUID, ...]:
        return tuple(of[name] for name in names)

    found: list[objects.DirectoryObject] = [
        objects.Site(identifier=each.id, name=each.name, site_gate_identifier_list=identifiers(each.gates, managers))
        for each in enterprise.sites
    ]
    for number, link in enumerate(enterprise.links, 1):
        site1, site2 = identifiers(link.sites, sites)
        found.append(
            objects.RoutingLink(
                # links have no names, so they get identifiers from their numbers
                identifier=uuid5(site1, f"{site2} {number}"),
                site1_identifier=site1,
                site2_identifier=site2,
                actual_cost=link.cost,
                site_gate_identifier_list=identifiers(link.gates, managers),
            )
        )
    found += [
        objects.QueueManager(
            identifier=each.id,
            computer_name=each.name,
            address=each.address[0] if each.address else None,
            other_addresses=each.address[1:],
            site_identifier_list=identifiers(each.sites, sites),
            routing_server=each.routing_server,
            in_routing_server_identifier_list=identifiers(each.in_routing_servers, managers),
            out_routing_server_identifier_list=identifiers(each.out_routing_servers, managers),
            public_encryption_keys=each.public_keys,
        )
        for each in enterprise.managers
    ]
    found += [
        objects.Queue(
            identifier=each.id,
            pathname=each.path,
            queue_manager_identifier=by_lower[each.path.computer.lower()],
            base_priority=each.base_priority,
            security=b"" if each.acl is None else each.acl.mapped(QUEUE_MAPPING).encode(),
        )
        for each in enterprise.queues
    ]
    return Directory.read(ObjectSource(found))


def format_enterprise(directory: Directory, access_lists: Mapping[UUID, bytes] | None = None) -> str:
    """The directory as such a file: `read_directory` of it gives the same sites, links, managers and queues, and the
    queues' `access_lists`.

    The host name of a manager becomes its address. References to what is not in the directory are left out; so is a
    manager without a site, with its queues, because a file cannot have one: a comment names it.
    """
    tables: list[tuple[str, dict[str, object]]] = []

    kept = {each.identifier for each in directory.managers if directory.site_collection(each)}

    def managers(identifiers: Iterable[UUID]) -> list[str]:
        found = (directory.manager(each) for each in identifiers if each in kept)
        return [each.computer_name for each in found if each is not None]

    for site in directory.sites:
        gates = managers(site.site_gate_identifier_list)
        tables.append(("site", {"name": site.name, "id": str(site.identifier), "gates": gates}))
    for link in directory.links:
        sites = [site.name for site in directory.link_sites(link)]
        gates = managers(link.site_gate_identifier_list)
        tables.append(("link", {"sites": sites, "cost": link.actual_cost, "gates": gates}))
    for each in directory.managers:
        if each.identifier not in kept:
            continue
        found: dict[str, object] = {
            "name": each.computer_name,
            "id": str(each.identifier),
            "address": list(each.addresses) if each.other_addresses else each.address or each.qualified_computer_name,
            "sites": [site.name for site in directory.site_collection(each)],
            "routing_server": each.routing_server,
            "in_routing_servers": managers(each.in_routing_server_identifier_list),
            "out_routing_servers": managers(each.out_routing_server_identifier_list),
            "public_keys": each.public_encryption_keys.hex(),
        }
        tables.append(("manager", found))
    for queue in directory.queues:
        if queue.queue_manager_identifier in kept:
            held: dict[str, object] = {
                "path": str(queue.pathname),
                "id": str(queue.identifier),
                "base_priority": queue.base_priority,
            }
            if access_lists is not None and (security := access_lists.get(queue.identifier)) is not None:
                held["acl"] = _sddl(security)
            tables.append(("queue", held))
    lines = [
        f"# {each.computer_name} ({each.identifier}) is left out: it has no site"
        for each in directory.managers
        if each.identifier not in kept
    ]
    for name, settings in tables:
        # strings, numbers, switches and lists of strings are written alike in TOML and JSON
        lines += [f"[[{name}]]", *(f"{key} = {json.dumps(value)}" for key, value in settings.items() if value), ""]
    return "\n".join(lines)


@lru_cache(maxsize=1024)  # most queues of a domain have the same list
def _sddl(security: bytes) -> str:
    return format_sddl(SecurityDescriptor.decode(security))


def _placed(entries: Iterable[T], place: Place) -> Iterator[tuple[T, Place]]:
    for index, each in enumerate(entries, 1):
        yield each, place.item(index)


class _Names:
    """The names that references may use, spelled as in the definitions."""

    def __init__(self, what: str, names: Iterable[str]) -> None:
        self._what = what
        self._names = {name.lower(): name for name in names}

    def known(self, name: str, place: Place) -> str:
        if name.lower() not in self._names:
            place.fail(f"there is no {self._what} {name}{suggestion(name, self._names.values())}")
        return self._names[name.lower()]

    def resolve(self, names: Sequence[str], place: Place) -> tuple[str, ...]:
        """The names, spelled as in the definitions. Refuses unknown and repeated names."""
        found: list[str] = []
        for index, name in enumerate(names, 1):
            known = self.known(name, place.item(index))
            if known in found:
                place.item(index).fail(f"must not repeat {name}")
            found.append(known)
        return tuple(found)
