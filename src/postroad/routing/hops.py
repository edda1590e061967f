"""GetNextHops, [MS-MQBR] 3.1.5.1 to 3.1.5.3: the queue managers to try next for a message, and the rule that says so.

Each queue manager on the route decides again, with its own table. Nothing here looks further than one hop.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NoReturn
from uuid import UUID

from postroad.directory.objects import QueueManager
from postroad.directory.snapshot import Directory
from postroad.errors import NoRoute
from postroad.routing.table import (
    RoutingTable,
    get_queue_manager,
    get_routing_server,
    get_site_gates,
    is_site_gate,
)


@dataclass(frozen=True, slots=True)
class NextHops:
    """The queue managers to try, in order; at least one. `why` is the rule that decided, with its section.

    `fallback` is for a direct connection that fails, [MS-MQBR] 1.3.2. `link_cost` is the cost of the hop, 0 within a
    site.
    """

    hops: tuple[QueueManager, ...]
    why: str
    fallback: tuple[QueueManager, ...] = ()
    link_cost: int = 0


def get_next_hops(directory: Directory, table: RoutingTable, source_id: UUID, destination_id: UUID) -> NextHops:
    """3.1.5.1. `table` is the source's own routing table. Raises NoRoute if the specification says that the attempt
    fails."""
    source = get_queue_manager(directory, source_id)
    destination = get_queue_manager(directory, destination_id)
    for machine, identifier in ((source, source_id), (destination, destination_id)):
        if machine is None:
            raise NoRoute(f"the queue manager {identifier} is not in the directory ([MS-MQBR] 3.1.5.1)")
    assert source is not None
    assert destination is not None
    if source is destination:
        return NextHops((destination,), f"{source.computer_name} is the destination itself")
    if source.routing_server:  # this comes first, even if the source has out-routing servers
        return get_next_hops_for_router(directory, table, source, destination)
    if source.out_routing_server_identifier_list:
        servers = [each for each in directory.out_routing_server_collection(source) if each is not source]
        why = f"{source.computer_name} sends everything through its out-routing servers"
        return _found(source, destination, servers, why, "3.1.5.1")
    return _within_site(directory, source, destination, "3.1.5.1") or _to_routing_server(directory, source, destination)


def get_next_hops_for_router(
    directory: Directory, table: RoutingTable, source: QueueManager, destination: QueueManager
) -> NextHops:
    """3.1.5.2: the source is a routing server."""
    if is_site_gate(directory, source.identifier):
        return get_next_hops_for_site_gate(directory, table, source, destination)
    if found := _within_site(directory, source, destination, "3.1.5.2"):
        return found
    gates = get_site_gates(directory, source.identifier)
    if not gates:
        site = _first_site(directory, source)
        _fail(source, destination, f"{site} has no site gate ([MS-MQBR] 3.1.5.2, 3.1.5.6)")
    why = f"{destination.computer_name} is in another site, and routing servers send there through site gates"
    return _found(source, destination, gates, why, "3.1.5.2, 3.1.5.6")


def get_next_hops_for_site_gate(
    directory: Directory, table: RoutingTable, source: QueueManager, destination: QueueManager
) -> NextHops:
    """3.1.5.3: the source is a site gate."""
    if found := _within_site(directory, source, destination, "3.1.5.3"):
        return found
    row = table.row_to(destination.site_identifier_list)
    if row is None:
        sites = _names(site.name for site in directory.site_collection(destination)) or "no site"
        _fail(source, destination, f"no routing link leads to its site, {sites} ([MS-MQBR] 3.1.5.3)")
    if not row.gates:
        fault = f"the route goes through the site {row.next_hop_site.name}, which has no site gate"
        _fail(source, destination, f"{fault} ([MS-MQBR] 3.1.5.3, 3.1.5.7)")
    if row.next_hop_site is row.destination_site:
        through = f"directly to the gates of {row.next_hop_site.name}"
    else:
        through = f"through the gates of {row.next_hop_site.name}"
    why = f"the cheapest route to the site {row.destination_site.name} costs {row.cost} and goes {through}"
    return NextHops(row.gates, f"{why} ([MS-MQBR] 3.1.5.3)", link_cost=row.link_cost)


def _within_site(
    directory: Directory, source: QueueManager, destination: QueueManager, section: str
) -> NextHops | None:
    """The part that the three algorithms share: at most one queue manager between source and destination, or None.

    An in-routing server delivers to its managers. The specification says so only for routing servers, but any other
    in-routing server would send to itself.
    """
    name = destination.computer_name
    if source.identifier in destination.in_routing_server_identifier_list:
        why = f"{source.computer_name} is an in-routing server of {name}, so it delivers"
        return NextHops((destination,), f"{why} ([MS-MQBR] {section})")
    site = next((each for each in source.site_identifier_list if each in destination.site_identifier_list), None)
    if site is None:
        return None
    if destination.in_routing_server_identifier_list:
        servers = directory.in_routing_server_collection(destination)
        why = f"{name} is in the same site{_called(directory, site)} and receives through its in-routing servers"
        return _found(source, destination, servers, why, section)
    why = f"{name} is in the same site{_called(directory, site)}, so it is the next hop ([MS-MQBR] {section})"
    return NextHops((destination,), why, _fallback(directory, source, destination))


def _fallback(directory: Directory, source: QueueManager, destination: QueueManager) -> tuple[QueueManager, ...]:
    """1.3.2: within a site, a routing server helps out. Routing servers do not ask each other, because that could
    loop."""
    server = None if source.routing_server else get_routing_server(directory, source.identifier)
    return () if server is None or server is destination else (server,)


def _to_routing_server(directory: Directory, source: QueueManager, destination: QueueManager) -> NextHops:
    server = get_routing_server(directory, source.identifier)
    if server is None:
        sites = _names(site.name for site in directory.site_collection(source)) or "its site"
        fault = f"{destination.computer_name} is in another site, and {sites} has no routing server"
        _fail(source, destination, f"{fault} ([MS-MQBR] 3.1.5.1, 3.1.5.5)")
    why = f"{destination.computer_name} is in another site, and this is the first routing server of this site"
    return NextHops((server,), f"{why} ([MS-MQBR] 3.1.5.1, 3.1.5.5)")


def _found(
    source: QueueManager, destination: QueueManager, hops: Iterable[QueueManager], why: str, section: str
) -> NextHops:
    found = tuple(hops)
    if not found:
        _fail(source, destination, f"{why}, but none of these is in the directory ([MS-MQBR] {section})")
    return NextHops(found, f"{why} ([MS-MQBR] {section})")


def _fail(source: QueueManager, destination: QueueManager, reason: str) -> NoReturn:
    raise NoRoute(f"{source.computer_name} has no route to {destination.computer_name}: {reason}")


def _called(directory: Directory, site_id: UUID) -> str:
    site = directory.site(site_id)
    return "" if site is None else f" ({site.name})"


def _first_site(directory: Directory, machine: QueueManager) -> str:
    sites = sorted(directory.site_collection(machine), key=lambda site: directory.site_number(site.identifier))
    return f"the site {sites[0].name}" if sites else "no site"


def _names(names: Iterable[str]) -> str:
    return " and ".join(names)
