"""Warns the administrator of a directory about an enterprise that is legal but cannot work as written.

Routing works around these faults where possible. Nothing is refused here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from uuid import UUID

from postroad.directory.objects import QueueManager, RoutingLink, Site
from postroad.directory.snapshot import Directory
from postroad.reports.enterprise import DirectoryInfo, DirectoryManager, DirectoryQueue, LinkInfo, SiteInfo
from postroad.reports.info import DirectoryState


def review(directory: Directory) -> tuple[str, ...]:
    """A sentence for each thing that cannot work, in the order of the directory."""
    return (*_sites(directory), *_links(directory), *_managers(directory))


def _sites(directory: Directory) -> Iterator[str]:
    used = {site for manager in directory.managers for site in manager.site_identifier_list}
    # A domain has sites of its own, without MSMQ.
    sites = [site for site in directory.sites if not site.full_path or site.identifier in used]
    for site in sites:
        for identifier in site.site_gate_identifier_list:
            yield from _gate(directory, identifier, [site])
        # [MS-MQBR] 1.5: if an enterprise has several sites, every site has a gate.
        if len(directory.sites) > 1 and not directory.site_gate_collection(site.identifier):
            yield f"the site {site.name} has no site gate, so it cannot exchange messages with other sites"
    reached = _reached(directory, sites[:1])
    for site in sites:
        if site.identifier not in reached:
            yield f"no routing link, and no gate of two sites, joins the site {site.name} to {sites[0].name}"


def _links(directory: Directory) -> Iterator[str]:
    for link in directory.links:
        for identifier in link.site_gate_identifier_list:
            yield from _gate(directory, identifier, list(directory.link_sites(link)), link)


def _gate(directory: Directory, identifier: UUID, sites: list[Site], link: RoutingLink | None = None) -> Iterator[str]:
    manager = directory.manager(identifier)
    where = " and ".join(site.name for site in sites)
    what = f"the site {where}" if link is None else f"the routing link of {where}"
    if manager is None:
        yield f"the gate {identifier} of {what} is not in the directory, so it is ignored"
        return
    if not any(site.identifier in manager.site_identifier_list for site in sites):
        yield f"the gate {manager.computer_name} of {what} must belong to the site, but does not, so it is ignored"
    if not manager.routing_server:
        yield f"the gate {manager.computer_name} of {what} must be a routing server, but is not, so it is ignored"


def _managers(directory: Directory) -> Iterator[str]:
    addresses: dict[str, QueueManager] = {}
    for manager in directory.managers:
        for address in manager.addresses:
            other = addresses.setdefault(address.lower(), manager)
            if other is not manager:
                yield f"{manager.computer_name} has the address {address} of {other.computer_name}"
        for role, servers in (
            ("in-routing", directory.in_routing_server_collection(manager)),
            ("out-routing", directory.out_routing_server_collection(manager)),
        ):
            for server in servers:
                yield from _server(manager, role, server)


def _server(manager: QueueManager, role: str, server: QueueManager) -> Iterator[str]:
    name = manager.computer_name
    if server is manager:
        yield f"the {role} servers of {name} must be other queue managers, got itself"
        return
    if not server.routing_server:
        yield f"{server.computer_name} must be a routing server, because it is an {role} server of {name}"
    if not set(server.site_identifier_list) & set(manager.site_identifier_list):
        yield f"{server.computer_name} must be in a site of {name}, because it is its {role} server"


def _reached(directory: Directory, first: list[Site]) -> set[UUID]:
    """The sites that messages from the first site can reach."""
    neighbours: dict[UUID, list[UUID]] = {}
    groups: list[tuple[UUID, ...]] = [(link.site1_identifier, link.site2_identifier) for link in directory.links]
    groups += [each.site_identifier_list for each in directory.managers if each.routing_server]
    for group in groups:
        for site in group:
            neighbours.setdefault(site, []).extend(group)
    reached: set[UUID] = set()
    waiting = [site.identifier for site in first]
    while waiting:
        site = waiting.pop()
        if site not in reached:
            reached.add(site)
            waiting.extend(neighbours.get(site, ()))
    return reached


# Describes a directory for people and programs, with names instead of identifiers.


def describe_directory(
    directory: Directory, manager: str, state: DirectoryState | None = None, *, queues: bool = False
) -> DirectoryInfo:
    """Describes the directory. `manager` is the name of the queue manager that answers, and `state` says where the
    directory comes from. There may be very many `queues`."""
    sites = tuple(
        SiteInfo(
            name=site.name,
            gates=tuple(each.computer_name for each in directory.site_gate_collection(site.identifier)),
        )
        for site in directory.sites
    )
    links = tuple(
        LinkInfo(
            sites=tuple(site.name for site in directory.link_sites(link)),
            cost=link.actual_cost,
            gates=tuple(each.computer_name for each in directory.link_gate_collection(link)),
        )
        for link in directory.links
    )
    managers = tuple(
        DirectoryManager(
            name=each.computer_name,
            id=str(each.identifier),
            address=", ".join(each.addresses) or each.qualified_computer_name,
            sites=tuple(site.name for site in directory.site_collection(each)),
            routing_server=each.routing_server,
        )
        for each in directory.managers
    )
    held = directory.queues if queues else ()
    paths = ((each, directory.qualified_pathname(each)) for each in held)
    info = DirectoryInfo(
        manager=manager,
        sites=sites,
        links=links,
        managers=managers,
        queues=tuple(
            DirectoryQueue(
                path=str(each.pathname), id=str(each.identifier), qualified_path=None if path is None else str(path)
            )
            for each, path in paths
        ),
    )
    if state is None:
        return info
    return replace(
        info, kind=state.kind, source=state.source, online=state.online, age_s=state.age_s, error=state.error
    )
