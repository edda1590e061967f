"""`Directory`: the whole directory at one moment, indexed and immutable, with the gates and servers of each manager.

It does no I/O: file.py and watch.py read the objects, and routing chooses the routes.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TypeVar
from uuid import UUID

from postroad.directory.objects import (
    DirectorySource,
    Enterprise,
    Queue,
    QueueManager,
    RoutingLink,
    Site,
    get_directory_data,
)
from postroad.errors import DirectoryError
from postroad.names import PathName

K = TypeVar("K")
V = TypeVar("V")


class PublicQueues:
    """Public queues in the order of their source, by identifier and by manager. Immutable."""

    __slots__ = ("_by_identifier", "_by_manager", "in_order")

    def __init__(self, queues: Iterable[Queue] = ()) -> None:
        self.in_order = tuple(queues)
        self._by_identifier = _first((each.identifier, each) for each in self.in_order)
        by_manager: dict[UUID, list[Queue]] = {}
        for queue in self.in_order:
            by_manager.setdefault(queue.queue_manager_identifier, []).append(queue)
        self._by_manager: dict[UUID, Sequence[Queue]] = {manager: tuple(each) for manager, each in by_manager.items()}

    def get(self, identifier: UUID) -> Queue | None:
        return self._by_identifier.get(identifier)

    def of(self, manager: UUID) -> Sequence[Queue]:
        return self._by_manager.get(manager, ())

    def are_unique(self, names: Iterable[str]) -> bool:
        """Whether each of these names is that of one queue at most, as `PathName.key` has them."""
        places = ((name, bisect_left(self.in_order, name, key=_name)) for name in names)
        return not any(_name(each) == name for name, place in places for each in self.in_order[place + 1 : place + 2])

    def changed(self, put: Iterable[Queue], gone: Collection[UUID]) -> PublicQueues:
        """With other queues in place of those with the same ids, and without those that are gone. Only for queues in
        the order of their names. It takes time for the changes, and hardly any for the queues that stay."""
        new = {each.identifier: each for each in put}
        in_order, by_identifier = list(self.in_order), self._by_identifier.copy()
        by_manager = self._by_manager.copy()
        touched = {each.queue_manager_identifier for each in new.values()}
        for identifier in {*gone, *new}:
            old = by_identifier.pop(identifier, None)
            if old is not None:
                touched.add(old.queue_manager_identifier)
                del in_order[bisect_left(in_order, _name(old), key=_name)]
        for queue in new.values():
            insort(in_order, queue, key=_name)
        for manager in touched:
            stay = [each for each in self.of(manager) if each.identifier in by_identifier]
            added = (each for each in new.values() if each.queue_manager_identifier == manager)
            by_manager[manager] = tuple(sorted((*stay, *added), key=_name))
        made = PublicQueues()
        made.in_order, made._by_identifier, made._by_manager = tuple(in_order), by_identifier | new, by_manager
        return made


def _name(queue: Queue) -> str:
    return queue.pathname.key


class Directory:
    """An immutable snapshot. Sequences are in the order of the source, and "first" means first in that order.

    Raises DirectoryError if objects contradict each other, such as two sites with one name, or a link to an unknown
    site.
    """

    __slots__ = (
        "_by_address",
        "_by_identifier",
        "_by_name",
        "_gates",
        "_routing_servers",
        "_site_by_identifier",
        "_site_by_name",
        "_site_numbers",
        "enterprise",
        "links",
        "managers",
        "public_queues",
        "sites",
    )

    def __init__(
        self,
        *,
        sites: Iterable[Site] = (),
        links: Iterable[RoutingLink] = (),
        managers: Iterable[QueueManager] = (),
        queues: Iterable[Queue] | PublicQueues = (),
        enterprise: Enterprise | None = None,
    ) -> None:
        self.enterprise = enterprise
        self.sites = tuple(sites)
        self.links = tuple(links)
        self.managers = tuple(managers)
        self.public_queues = queues if isinstance(queues, PublicQueues) else PublicQueues(queues)
        self._by_identifier = _first((each.identifier, each) for each in self.managers)
        self._by_name = _first((each.computer_name.lower(), each) for each in self.managers)
        self._by_address = _first((host.lower(), each) for each in self.managers for host in each.addresses)
        self._site_by_identifier = _first((each.identifier, each) for each in self.sites)
        self._site_by_name = _first((each.name.lower(), each) for each in self.sites)
        self._site_numbers = {each.identifier: place for place, each in enumerate(self.sites)}
        self._check()
        self._gates = {site: tuple(gates) for site, gates in self._collect_gates().items()}
        self._routing_servers = self._first_routing_servers()

    @classmethod
    def read(cls, source: DirectorySource) -> Directory:
        """Reads the whole source, as in [MS-MQBR] 3.1.3.1. Raises DirectoryError if any part cannot be read."""
        return cls(
            sites=get_directory_data(source, Site),
            links=get_directory_data(source, RoutingLink),
            managers=get_directory_data(source, QueueManager),
            queues=get_directory_data(source, Queue),
            enterprise=next(iter(get_directory_data(source, Enterprise)), None),
        )

    def _check(self) -> None:
        if len(self._site_by_name) != len(self.sites):  # [MS-MQDMPR] 3.1.1.7 Name
            raise DirectoryError("site names must be unique, but two sites of the directory have the same name")
        for link in self.links:
            for site in (link.site1_identifier, link.site2_identifier):
                if site not in self._site_by_identifier:  # [MS-MQDMPR] 3.1.1.8 Site1Reference, Site2Reference
                    raise DirectoryError(
                        f"the routing link {link.identifier} must join sites, but {site} is not a site of the directory"
                    )

    # Objects by their names and identifiers

    def manager(self, identifier: UUID) -> QueueManager | None:
        return self._by_identifier.get(identifier)

    def manager_named(self, name: str) -> QueueManager | None:
        return self._by_name.get(name.lower())

    def manager_at(self, address: str) -> QueueManager | None:
        return self._by_address.get(address.lower())

    def first_address(self, address: str) -> str:
        """The first address of the manager with this one, so that it is the same manager wherever it runs now."""
        manager = self.manager_at(address)
        return address if manager is None else manager.hosts[0]

    def site(self, identifier: UUID) -> Site | None:
        return self._site_by_identifier.get(identifier)

    def site_named(self, name: str) -> Site | None:
        return self._site_by_name.get(name.lower())

    def site_number(self, identifier: UUID) -> int:
        """The number of the site in the directory's order. Raises KeyError for an unknown site."""
        return self._site_numbers[identifier]

    @property
    def queues(self) -> tuple[Queue, ...]:
        return self.public_queues.in_order

    def queue(self, identifier: UUID) -> Queue | None:
        return self.public_queues.get(identifier)

    def qualified_pathname(self, queue: Queue) -> PathName | None:
        """[MS-MQDMPR] 3.1.1.2 QualifiedPathname. None if the host name of the queue's manager is not known."""
        manager = self.manager(queue.queue_manager_identifier)
        host = None if manager is None else manager.qualified_computer_name
        return None if host is None else PathName(host, queue.pathname.tail)

    def queues_of(self, manager: UUID) -> Sequence[Queue]:
        """The public queues of a manager."""
        return self.public_queues.of(manager)

    # Collections, [MS-MQDMPR] 3.1.1.1, 3.1.1.7 and 3.1.1.8: the objects with given identifiers, if they exist

    def site_collection(self, manager: QueueManager) -> tuple[Site, ...]:
        return _known(manager.site_identifier_list, self._site_by_identifier)

    def in_routing_server_collection(self, manager: QueueManager) -> tuple[QueueManager, ...]:
        return _known(manager.in_routing_server_identifier_list, self._by_identifier)

    def out_routing_server_collection(self, manager: QueueManager) -> tuple[QueueManager, ...]:
        return _known(manager.out_routing_server_identifier_list, self._by_identifier)

    def link_sites(self, link: RoutingLink) -> tuple[Site, Site]:
        """Site1Reference and Site2Reference."""
        return self._site_by_identifier[link.site1_identifier], self._site_by_identifier[link.site2_identifier]

    def link_gate_collection(self, link: RoutingLink) -> tuple[QueueManager, ...]:
        """RoutingLink.SiteGateCollection"""
        return _known(link.site_gate_identifier_list, self._by_identifier)

    def site_gate_collection(self, site: UUID) -> tuple[QueueManager, ...]:
        """Site.SiteGateCollection: first the gates that routing links name, in the order of the links, then the site's
        own list.

        Only routing servers that belong to the site count: [MS-MQBR] 1.5, and 1.1 for what a site gate is.
        """
        return self._gates.get(site, ())

    def routing_server_of(self, sites: Iterable[UUID]) -> QueueManager | None:
        """The first routing server that belongs to one of the sites."""
        found = [self._routing_servers[site] for site in sites if site in self._routing_servers]
        return self.managers[min(found)] if found else None

    def _collect_gates(self) -> dict[UUID, list[QueueManager]]:
        gates: dict[UUID, list[QueueManager]] = {}
        for site, identifier in self._gate_claims():
            manager = self._by_identifier.get(identifier)
            if manager is None or not manager.routing_server or site not in manager.site_identifier_list:
                continue
            found = gates.setdefault(site, [])
            if manager not in found:
                found.append(manager)
        return gates

    def _gate_claims(self) -> Iterator[tuple[UUID, UUID]]:
        """Every pair (site, gate) in the directory."""
        for link in self.links:
            for identifier in link.site_gate_identifier_list:
                yield link.site1_identifier, identifier
                yield link.site2_identifier, identifier
        for site in self.sites:
            for identifier in site.site_gate_identifier_list:
                yield site.identifier, identifier

    def _first_routing_servers(self) -> dict[UUID, int]:
        """The position in `managers` of each site's first routing server."""
        return _first(
            (site, place)
            for place, manager in enumerate(self.managers)
            if manager.routing_server
            for site in manager.site_identifier_list
        )


def _first(pairs: Iterable[tuple[K, V]]) -> dict[K, V]:
    """The first value of each key."""
    found: dict[K, V] = {}
    for key, value in pairs:
        found.setdefault(key, value)
    return found


def _known(identifiers: Iterable[UUID], objects: dict[UUID, V]) -> tuple[V, ...]:
    return tuple(objects[each] for each in identifiers if each in objects)
