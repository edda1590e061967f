"""The next hops of an outgoing queue, [MS-MQQB] 3.1.5.2.1, 3.1.7.4 and 3.1.7.5.

Also what else the binary protocol asks the directory: where managers are, and which of them route messages.
"""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from postroad.binary.neighbours import Hop, Resolve
from postroad.directory.objects import QueueManager
from postroad.directory.snapshot import Directory
from postroad.errors import NoRoute
from postroad.names import DirectName, FormatName
from postroad.names.format import ORDER_QUEUE, Protocol
from postroad.routing import Router
from postroad.wire.octets import NULL_GUID


def resolver(router: Callable[[], Router]) -> Resolve:
    """A Resolve that asks the current router each time, because the directory can change. NoRoute has the router's
    reason."""

    def resolve(name: FormatName) -> list[Hop]:
        current = router()
        if isinstance(name, DirectName):
            known = current.directory.manager_named(name.host) if name.protocol is Protocol.OS else None
            if known is None and str(name.tail).lower().endswith(ORDER_QUEUE):
                # Acknowledgments for the manager that sent from this address, and may have moved since.
                at = current.directory.manager_at(name.host)
                if at is not None and at.other_addresses:
                    return [Hop(name.host, NULL_GUID, tuple(each for each in at.hosts if each != name.host))]
            return [_hop(known, NULL_GUID) if known is not None else Hop(name.host)]
        found = current.next_hops_to(name)
        if found is None:
            return []
        return [_hop(each, each.identifier) for each in (*found.hops, *found.fallback)]

    return resolve


def _hop(manager: QueueManager, identifier: UUID) -> Hop:
    return Hop(manager.hosts[0], identifier, manager.hosts[1:])


class KnownManagers:
    """The DirectoryView of the manager `identifier`, by the current router."""

    def __init__(self, router: Callable[[], Router], identifier: UUID) -> None:
        self._router = router
        self._identifier = identifier
        self._directory: Directory | None = None
        self._servers: frozenset[UUID] = frozenset()

    def hosts_of(self, manager: UUID) -> tuple[str, ...]:
        found = self._router().directory.manager(manager)
        return () if found is None else found.hosts

    def knows(self, host: str) -> bool:
        """Whether the directory has a manager with this name or address."""
        return self._manager(host) is not None

    def routes(self, host: str) -> bool:
        found = self._manager(host)
        return found is not None and (found.routing_server or found.identifier in self._routing_servers)

    def forwards(self, source: UUID, name: FormatName, listed: Callable[[str], bool], *, trusted: bool) -> bool:
        """[MS-MQBR] 1.3: routing servers forward, and in- and out-routing servers forward for the managers they
        serve."""
        directory = self._router().directory
        own, sender = directory.manager(self._identifier), directory.manager(source)
        destination = self._destination(name)
        if destination is not None and any(listed(host) for host in destination.hosts):
            return True
        if own is None or not (
            own.routing_server
            or (sender is not None and own.identifier in sender.out_routing_server_identifier_list)
            or (destination is not None and own.identifier in destination.in_routing_server_identifier_list)
        ):
            return False
        return trusted or (destination is not None and self._has_route(destination))

    def _manager(self, host: str) -> QueueManager | None:
        directory = self._router().directory
        return directory.manager_at(host) or directory.manager_named(host)

    def _destination(self, name: FormatName) -> QueueManager | None:
        router = self._router()
        try:
            identifier = router.destination(name)
        except NoRoute:
            return None
        return None if identifier is None else router.directory.manager(identifier)

    def _has_route(self, destination: QueueManager) -> bool:
        try:
            return bool(self._router().next_hops(destination.identifier).hops)
        except NoRoute:
            return False

    @property
    def _routing_servers(self) -> frozenset[UUID]:
        """The in- and out-routing servers of all managers."""
        directory = self._router().directory
        if directory is not self._directory:
            self._directory = directory
            self._servers = frozenset(
                server
                for each in directory.managers
                for server in (*each.in_routing_server_identifier_list, *each.out_routing_server_identifier_list)
            )
        return self._servers
