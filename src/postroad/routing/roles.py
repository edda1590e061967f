"""The roles in routing, [MS-MQBR] 3.1.5.4 to 3.1.5.8: questions to a snapshot of the directory.

The specification's questions return one gate if any will do. Ours return all of them, in the order to try.
"""

from __future__ import annotations

from uuid import UUID

from postroad.directory.objects import QueueManager
from postroad.directory.snapshot import Directory


def get_queue_manager(directory: Directory, machine_id: UUID) -> QueueManager | None:
    """3.1.5.4"""
    return directory.manager(machine_id)


def get_routing_server(directory: Directory, machine_id: UUID) -> QueueManager | None:
    """3.1.5.5: the first routing server that has a site in common with the machine."""
    machine = get_queue_manager(directory, machine_id)
    return None if machine is None else directory.routing_server_of(machine.site_identifier_list)


def get_site_gates(directory: Directory, machine_id: UUID) -> tuple[QueueManager, ...]:
    """GetSiteGate, 3.1.5.6: the gates of the machine's first site, in the directory's order of sites.

    The search ends there, even if that site has none and another site of the machine has one.
    """
    machine = get_queue_manager(directory, machine_id)
    sites = () if machine is None else directory.site_collection(machine)
    if not sites:
        return ()
    first = min(sites, key=lambda site: directory.site_number(site.identifier))
    return get_site_gates_for_site(directory, first.identifier)


def get_site_gates_for_site(directory: Directory, site_id: UUID) -> tuple[QueueManager, ...]:
    """GetSiteGateForSite, 3.1.5.7"""
    return directory.site_gate_collection(site_id)


def is_site_gate(directory: Directory, machine_id: UUID) -> bool:
    """3.1.5.8: a routing server that is a gate of a site it belongs to."""
    machine = get_queue_manager(directory, machine_id)
    if machine is None or not machine.routing_server:
        return False
    return any(machine in directory.site_gate_collection(site) for site in machine.site_identifier_list)
