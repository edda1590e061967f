"""A scenario from a seed: three or four managers, a few hundred messages, and faults of every kind."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from random import Random

from postroad.binary.settings import BinarySettings
from postroad.directory.file import Enterprise, Link, ManagerEntry, Site, derived_site_id
from postroad.simulation.disk import DiskSpeed
from postroad.simulation.network import Line
from postroad.simulation.scenario import (
    LASTING,
    TWO_MANAGERS,
    Consumer,
    Fault,
    FaultKind,
    Flow,
    Kind,
    Naming,
    QueuePlan,
    Scenario,
    derived_manager_id,
    queue_at,
)
from postroad.simulation.seeds_security import with_security
from postroad.soap.settings import SoapSettings

PLAIN, TRANSACTIONAL = r"private$\plain", r"private$\ledger"
WORKLOAD_S = 45.0
LAST_FAULT_S = 35.0
LONGEST_FAULT_S = 15.0
# The id history is far larger than a run and lives longer than one: so no recoverable message may come twice.
HISTORY, HISTORY_S = 10_000, 7200

WEST, EAST = ("west",), ("east",)
BOTH = WEST + EAST
# All managers one hop away; a gate in the middle for two hops; two gates for two routes.
TOPOLOGIES: tuple[dict[str, tuple[str, ...]], ...] = (
    {"alpha": WEST, "beta": WEST, "gamma": WEST},
    {"alpha": WEST, "gate": BOTH, "beta": EAST},
    {"alpha": WEST, "gate": BOTH, "other": BOTH, "beta": EAST},
)


def random_scenario(seed: int) -> Scenario:
    """The same for the same seed, for ever."""
    chance = Random(f"scenario {seed}")
    homes = chance.choice(TOPOLOGIES)
    names = tuple(homes)
    queues = tuple(
        QueuePlan(
            path=queue_at(name, path),
            transactional=path == TRANSACTIONAL,
            quota_kb=chance.choice((None, None, None, 5)),
        )
        for name in names
        for path in (PLAIN, TRANSACTIONAL)
    )
    plain = Scenario(
        seed=seed,
        enterprise=_enterprise(homes),
        lines={frozenset(pair): _line(chance) for pair in combinations(names, 2)},
        queues=queues,
        flows=tuple(_flow(chance, names) for _ in range(chance.randint(4, 7))),
        consumers=tuple(_consumer(chance, plan) for plan in queues),
        faults=tuple(_fault(chance, names) for _ in range(chance.randint(3, 10))),
        settings=_settings(chance),
        disk=DiskSpeed(slow_share=chance.choice((0.0, 0.05, 0.3)), slow_s=chance.choice((0.05, 0.5, 2.0))),
        workload_s=WORKLOAD_S,
    )
    return with_security(plain)


def http_scenario(seed: int) -> Scenario:
    """The same network with most of its messages by SOAP; the same for the same seed, for ever."""
    scenario = random_scenario(seed)
    chance = Random(f"http {seed}")
    flows = tuple(
        # Some go beside it by the binary protocol: SOAP carries no signature of a packet, and no encrypted body.
        replace(flow, naming=Naming.HTTP) if chance.random() < 0.8 and not (flow.signed or flow.encrypted) else flow
        for flow in scenario.flows
    )
    names = [each.name for each in scenario.enterprise.managers]
    forwarder = chance.choice(names) if chance.random() < 0.3 else None
    return replace(scenario, flows=flows, soap=_soap_settings(chance), forwarder=forwarder)


def _soap_settings(chance: Random) -> SoapSettings:
    return SoapSettings(
        retransmission_ms=chance.choice((200, 1_000, 5_000)),
        resend_s=chance.choice(((1.0, 2.0, 5.0), (5.0, 10.0), (30.0,))),
        receipt_ms=chance.choice((50, 500)),
        max_receipt_delay_s=chance.choice((1.0, 10.0)),
        cleanup_ms=chance.choice((2_000, 300_000)),
        duplicates=HISTORY,
        duplicates_s=HISTORY_S,
        posts_per_host=chance.choice((1, 2, 8)),
        unacknowledged=chance.choice((1, 5, 10_000)),
    )


def _enterprise(homes: dict[str, tuple[str, ...]]) -> Enterprise:
    gates = tuple(name for name, sites in homes.items() if sites == BOTH)
    return Enterprise(
        sites=tuple(Site(name=name, id=derived_site_id(name), gates=gates) for name in BOTH),
        links=(Link(sites=BOTH, cost=1, gates=gates),) if gates else (),
        managers=tuple(
            ManagerEntry(
                name=name,
                id=derived_manager_id(name),
                address=f"10.0.0.{number}",
                sites=sites,
                routing_server=name in gates,
            )
            for number, (name, sites) in enumerate(homes.items(), 1)
        ),
    )


def _line(chance: Random) -> Line:
    return Line(
        delay_s=chance.choice((0.0005, 0.01, 0.1)),
        jitter_s=chance.choice((0.0, 0.01, 0.3)),
        loss=chance.choice((0.0, 0.0, 0.02, 0.2)),
        segment=chance.choice((150, 536, 1460)),
    )


def _settings(chance: Random) -> BinarySettings:
    ack_timeout_ms = chance.choice((20_000, 30_000, 120_000))
    return BinarySettings(
        window_size=chance.choice((1, 2, 8, 64, 1024)),
        ack_timeout_ms=ack_timeout_ms,
        initialization_ms=chance.choice((5_000, 20_000)),
        cleanup_ms=ack_timeout_ms * chance.choice((2, 20)),  # a session that is idle must have acknowledged before
        retry_connect_s=chance.choice((0.2, 1.0)),
        order_ack_ms=chance.choice((50, 500)),
        max_order_ack_delay_s=chance.choice((1.0, 10.0)),
        resend_s=chance.choice(((1.0, 2.0, 5.0), (5.0, 10.0), (30.0,))),
        duplicates=HISTORY,
        duplicates_s=HISTORY_S,
    )


def _flow(chance: Random, names: tuple[str, ...]) -> Flow:
    source, target = chance.sample(names, 2)
    kind = chance.choice((Kind.EXPRESS, Kind.RECOVERABLE, Kind.TRANSACTIONAL, Kind.TRANSACTIONAL))
    return Flow(
        source=source,
        to=queue_at(target, TRANSACTIONAL if kind is Kind.TRANSACTIONAL else PLAIN),
        kind=kind,
        naming=chance.choice((Naming.DIRECT, Naming.PRIVATE)),
        count=chance.randint(10, 60),
        batch=chance.choice((1, 1, 3, 10)),
        start_s=chance.uniform(0.0, 15.0),
        every_ms=chance.choice((20.0, 200.0, 1000.0)),
        size=chance.choice((0, 50, 2000)),
        time_to_reach_queue_s=chance.randint(0, 10),
        perishable=chance.choice((0.0, 0.0, 0.3, 1.0)),
        dead_letter=chance.random() < 0.4,
        journal=chance.random() < 0.3,
        ack=chance.random() < 0.3,
        aborts=chance.choice((0.0, 0.0, 0.2)),
    )


def _consumer(chance: Random, plan: QueuePlan) -> Consumer:
    return Consumer(
        queue=plan.path,
        start_s=chance.choice((0.0, 0.0, 30.0)),
        think_ms=chance.choice((0.0, 10.0, 200.0)),
        batch=chance.choice((1, 4)),
        aborts=chance.choice((0.0, 0.1, 0.3)),
    )


def _fault(chance: Random, names: tuple[str, ...]) -> Fault:
    kind = chance.choice((*FaultKind, FaultKind.CRASH, FaultKind.DISK_ERRORS))
    at_s = chance.uniform(0.5, LAST_FAULT_S)
    longest = min(LONGEST_FAULT_S, WORKLOAD_S - at_s)
    return Fault(
        kind=kind,
        managers=tuple(chance.sample(names, 2 if kind in TWO_MANAGERS else 1)),
        at_s=at_s,
        for_s=chance.uniform(0.0, chance.choice((1.0, longest))) if kind in LASTING else 0.0,
        clock_error_s=chance.choice((0.0, 0.0, 0.0, 1.5, -1.5, 3600.0, -3600.0)),
    )
