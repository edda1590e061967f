"""A scenario from a seed: three or four managers, a few hundred messages, and faults of every kind."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations
from random import Random

from postroad.binary.session import BinarySettings
from postroad.directory.file import Enterprise, Link, ManagerEntry, Site, derived_site_id
from postroad.simulation.disk import DiskSpeed
from postroad.simulation.keys import SENDER_SID
from postroad.simulation.lines import Line
from postroad.simulation.scenario import (
    LASTING,
    TWO_MANAGERS,
    Consumer,
    Failover,
    FailoverKind,
    Fault,
    FaultKind,
    Flow,
    Kind,
    Naming,
    QueuePlan,
    Rotation,
    Scenario,
    derived_manager_id,
    queue_at,
)
from postroad.soap.settings import SoapSettings
from postroad.validation.queue_properties import QueuePrivacy
from postroad.wire.constants import MessageClass

PLAIN, TRANSACTIONAL = r"private$\plain", r"private$\ledger"
WORKLOAD_S = 45.0
LAST_FAULT_S = 35.0
LONGEST_FAULT_S = 15.0
# The id history is much larger than a run and lives longer, so no recoverable message may arrive twice.
HISTORY, HISTORY_S = 10_000, 7200

WEST, EAST = ("west",), ("east",)
BOTH = WEST + EAST
# For one hop, all managers see each other; for two hops, a gate is in the middle; for two routes, there are two gates.
TOPOLOGIES: tuple[dict[str, tuple[str, ...]], ...] = (
    {"alpha": WEST, "beta": WEST, "gamma": WEST},
    {"alpha": WEST, "gate": BOTH, "beta": EAST},
    {"alpha": WEST, "gate": BOTH, "other": BOTH, "beta": EAST},
)


def random_scenario(seed: int) -> Scenario:
    """Returns the same scenario for the same seed, always."""
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
    """The same network with most messages by SOAP. Returns the same scenario for the same seed, always."""
    scenario = random_scenario(seed)
    chance = Random(f"http {seed}")
    flows = tuple(
        # Some messages go by the binary protocol: SOAP carries neither the signature of a packet nor an encrypted body.
        replace(flow, naming=Naming.HTTP) if chance.random() < 0.8 and not (flow.signed or flow.encrypted) else flow
        for flow in scenario.flows
    )
    names = [each.name for each in scenario.enterprise.managers]
    forwarder = chance.choice(names) if chance.random() < 0.3 else None
    return replace(scenario, flows=flows, soap=_soap_settings(chance), forwarder=forwarder)


def failover_scenario(seed: int, *, soap: bool = False) -> Scenario:
    """The same network, in which some managers have two processes and a database, which fail over. Returns the same
    scenario for the same seed, always."""
    scenario = http_scenario(seed) if soap else random_scenario(seed)
    chance = Random(f"failover {seed}")
    names = [each.name for each in scenario.enterprise.managers]
    pairs = {name: chance.choice((2.0, 5.0)) for name in chance.sample(names, chance.randint(1, len(names)))}
    managers = tuple(
        replace(each, address=(*each.address, f"10.1.0.{number}")) if each.name in pairs else each
        for number, each in enumerate(scenario.enterprise.managers, 1)
    )
    # What happens to the one process of a manager or to its disk is a failover here, or spares those of two.
    faults = [each for each in scenario.faults if each.kind in TWO_MANAGERS or each.managers[0] not in pairs]
    return replace(
        scenario,
        enterprise=replace(scenario.enterprise, managers=managers),
        faults=tuple(faults),
        pairs=pairs,
        failovers=tuple(_failover(chance, sorted(pairs)) for _ in range(chance.randint(2, 8))),
        forwarder=None,
    )


def _failover(chance: Random, names: list[str]) -> Failover:
    return Failover(
        kind=chance.choice((*FailoverKind, FailoverKind.FREEZE)),
        manager=chance.choice(names),
        at_s=chance.uniform(1.0, LAST_FAULT_S),
        for_s=chance.choice((chance.uniform(0.1, 2.0), chance.uniform(0.1, LONGEST_FAULT_S))),
    )


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
                address=(f"10.0.0.{number}",),
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
        cleanup_ms=ack_timeout_ms * chance.choice((2, 20)),  # an idle session must have acknowledged before
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


# Security for a scenario from a seed. Some flows sign or encrypt, managers change keys, a guarded queue refuses.


SHARE = 1 / 3  # of the seeds
GUARDED = r"private$\guarded"
REFUSED = 15  # at most, for a flow that is refused


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """A rule of a queue: the class with which it refuses a plain message, and what a message needs to be accepted."""

    authenticate: bool = False
    privacy: QueuePrivacy = QueuePrivacy.OPTIONAL
    acl: str | None = None
    refusal: MessageClass
    signed: bool = False
    encrypted: bool = False


GUARDS = (
    Guard(authenticate=True, refusal=MessageClass.NACK_BAD_SIGNATURE, signed=True),
    Guard(privacy=QueuePrivacy.BODY, refusal=MessageClass.NACK_BAD_ENCRYPTION, encrypted=True),
    Guard(acl=f"D:(A;;0x4;;;{SENDER_SID})", refusal=MessageClass.NACK_ACCESS_DENIED, signed=True),
)


def with_security(scenario: Scenario) -> Scenario:
    """Adds security to a third of the seeds. Returns the same scenario for the same seed, always."""
    chance = Random(f"security {scenario.seed}")
    if chance.random() >= SHARE:
        return scenario
    names = [each.name for each in scenario.enterprise.managers]
    flows = [_secured(chance, flow) for flow in scenario.flows]
    if chance.random() < 0.3:  # together with the honest messages to the same queue
        impostor = replace(chance.choice(scenario.flows), refusal=MessageClass.NACK_BAD_SIGNATURE)
        flows.append(replace(_refused_flow(chance, impostor), signed=True, impostor=True))
    guard = chance.choice(GUARDS)
    target, *sources = chance.sample(names, len(names))
    kind = chance.choice(tuple(Kind))
    plan = QueuePlan(
        path=queue_at(target, GUARDED),
        transactional=kind is Kind.TRANSACTIONAL,
        authenticate=guard.authenticate,
        privacy=guard.privacy,
        acl=guard.acl,
    )
    model = replace(chance.choice(scenario.flows), to=plan.path, kind=kind, naming=Naming.PRIVATE)
    welcome = replace(model, source=chance.choice(sources), signed=guard.signed, encrypted=guard.encrypted)
    unwelcome = _refused_flow(chance, replace(model, source=chance.choice(sources), refusal=guard.refusal))
    return replace(
        scenario,
        queues=(*scenario.queues, plan),
        flows=(*flows, welcome, unwelcome),
        consumers=(*scenario.consumers, Consumer(queue=plan.path)),
        rotations=tuple(
            Rotation(
                manager=chance.choice(names), at_s=chance.uniform(1.0, 30.0), published_s=chance.uniform(0.0, 10.0)
            )
            for _ in range(chance.randint(1, 3))
        ),
        insecure_nacks=chance.random() < 0.5,
    )


def _secured(chance: Random, flow: Flow) -> Flow:
    """Encryption needs the name of a manager, which a direct name does not give."""
    signed, encrypted = chance.choice(((False, False), (True, False), (False, True), (True, True)))
    return replace(flow, signed=signed, encrypted=encrypted, naming=Naming.PRIVATE if encrypted else flow.naming)


def _refused_flow(chance: Random, flow: Flow) -> Flow:
    return replace(
        flow,
        count=chance.randint(3, REFUSED),
        start_s=chance.uniform(0.0, 15.0),
        ack=chance.random() < 0.6,
        dead_letter=chance.random() < 0.5,
    )
