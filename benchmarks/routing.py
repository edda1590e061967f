"""What routing costs: reading a large enterprise, computing the table of a gate, finding the next hops of a message."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from random import Random
from uuid import UUID

from benchmarks.harness import best_of, microseconds, print_table
from postroad.directory.file import load_enterprise, read_directory
from postroad.directory.objects import MAX_COST, QueueManager, RoutingLink, Site
from postroad.directory.snapshot import Directory
from postroad.routing import Router, RoutingTable, SiteGraph, build_table, get_next_hops

SITES = 2_000
LINKS = 10_000
CLIENTS_IN_SITE = 2
SEED = 1
FILE = Path("enterprise.toml")  # the name in error texts; nothing is written there


def enterprise(sites: int = SITES, links: int = LINKS) -> Directory:
    """A connected enterprise: each site has a gate and a few other managers; links are random. One seed gives all."""
    chance = Random(SEED)
    found = [Site(identifier=UUID(int=chance.getrandbits(128)), name=f"site-{number}") for number in range(sites)]
    gates = [_manager(f"gate-{number}", site, chance, routing_server=True) for number, site in enumerate(found)]
    clients = [
        _manager(f"client-{number}-{which}", site, chance)
        for number, site in enumerate(found)
        for which in range(CLIENTS_IN_SITE)
    ]
    ends = [(chance.randrange(number), number) for number in range(1, sites)]
    while len(ends) < links:
        one, other = chance.randrange(sites), chance.randrange(sites)
        if one != other:
            ends.append((one, other))
    return Directory(
        sites=found,
        links=[
            RoutingLink(
                identifier=UUID(int=chance.getrandbits(128)),
                site1_identifier=found[one].identifier,
                site2_identifier=found[other].identifier,
                actual_cost=chance.randint(1, MAX_COST),
                site_gate_identifier_list=(gates[one].identifier, gates[other].identifier),
            )
            for one, other in ends
        ],
        managers=[*gates, *clients],
    )


def _manager(name: str, site: Site, chance: Random, *, routing_server: bool = False) -> QueueManager:
    return QueueManager(
        identifier=UUID(int=chance.getrandbits(128)),
        computer_name=name,
        site_identifier_list=(site.identifier,),
        routing_server=routing_server,
    )


def copied(directory: Directory) -> Directory:
    return Directory(sites=directory.sites, links=directory.links, managers=directory.managers)


def as_file(directory: Directory) -> bytes:
    """The same enterprise in the form of an enterprise.toml."""
    names = {each.identifier: each.name for each in directory.sites}
    names |= {each.identifier: each.computer_name for each in directory.managers}

    def listed(identifiers: Iterable[UUID]) -> str:
        return json.dumps([names[each] for each in identifiers])

    tables = [f'[[site]]\nname = "{each.name}"\nid = "{each.identifier}"\n' for each in directory.sites]
    tables += [
        f"[[link]]\nsites = {listed([each.site1_identifier, each.site2_identifier])}\ncost = {each.actual_cost}\n"
        f"gates = {listed(each.site_gate_identifier_list)}\n"
        for each in directory.links
    ]
    tables += [
        f'[[manager]]\nname = "{each.computer_name}"\nid = "{each.identifier}"\n'
        f"sites = {listed(each.site_identifier_list)}\nrouting_server = {str(each.routing_server).lower()}\n"
        for each in directory.managers
    ]
    return "".join(tables).encode()


def rate(seconds: float) -> str:
    return f"{1 / seconds:,.1f}" if seconds > 0.1 else f"{1 / seconds:,.0f}"


def main() -> None:
    directory = enterprise()
    text = as_file(directory)
    gate, client = directory.managers[0], directory.managers[-1]
    graph = SiteGraph(directory)
    table = build_table(graph, gate.identifier)
    assert len(table.rows) == SITES - 1
    router = Router(gate.identifier, directory, now=0.0)
    few = {"rounds": 3}
    times = {
        "read its file": best_of(lambda: read_directory(load_enterprise(FILE, text)), rounds=1),
        "index the directory": best_of(lambda: copied(directory), **few),
        "make the graph": best_of(lambda: SiteGraph(directory), **few),
        "make the table of a gate": best_of(lambda: build_table(graph, gate.identifier), **few),
        "both, as at every refresh": best_of(lambda: Router(gate.identifier, directory, now=0.0), **few),
        "next hops at a gate, decided": best_of(
            lambda: get_next_hops(directory, table, gate.identifier, client.identifier)
        ),
        "next hops at a client, decided": best_of(
            lambda: get_next_hops(directory, RoutingTable(), client.identifier, gate.identifier)
        ),
        "next hops, as a queue manager asks": best_of(lambda: router.next_hops(client.identifier)),
    }
    print_table(
        f"Routing: an enterprise of {SITES:,} sites, {LINKS:,} links and {len(directory.managers):,} queue managers",
        ("what", "microseconds", "a second"),
        [(what, microseconds(seconds), rate(seconds)) for what, seconds in times.items()],
        "best round. A queue manager keeps the answers that it has decided until its directory changes.",
    )


if __name__ == "__main__":
    main()
