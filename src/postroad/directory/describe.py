"""Describes a directory for people and programs: everything by name."""

from __future__ import annotations

from postroad.directory.snapshot import Directory
from postroad.values.directory import DirectoryInfo, DirectoryManager, LinkInfo, SiteInfo


def describe_directory(directory: Directory, manager: str) -> DirectoryInfo:
    """`manager` is the name of the queue manager that answers."""
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
            address=each.address,
            sites=tuple(site.name for site in directory.site_collection(each)),
            routing_server=each.routing_server,
        )
        for each in directory.managers
    )
    return DirectoryInfo(manager=manager, sites=sites, links=links, managers=managers)
