"""Security for a scenario from a seed: some flows sign or encrypt, managers change keys, a guarded queue refuses."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from postroad.fields.queue import QueuePrivacy
from postroad.simulation.keys import SENDER_SID
from postroad.simulation.scenario import Consumer, Flow, Kind, Naming, QueuePlan, Rotation, Scenario, queue_at
from postroad.wire.constants import MessageClass

SHARE = 1 / 3  # of the seeds
GUARDED = r"private$\guarded"
REFUSED = 15  # messages of a flow that is refused, at the most


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """A rule of a queue, the class with which it refuses a plain message, and what a message needs to be let in."""

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
    """A third of the seeds get some, the others stay as they are. The same for the same seed, for ever."""
    chance = Random(f"security {scenario.seed}")
    if chance.random() >= SHARE:
        return scenario
    names = [each.name for each in scenario.enterprise.managers]
    flows = [_secured(chance, flow) for flow in scenario.flows]
    if chance.random() < 0.3:  # beside the honest messages to the same queue
        impostor = replace(chance.choice(scenario.flows), refusal=MessageClass.NACK_BAD_SIGNATURE)
        flows.append(replace(_few(chance, impostor), signed=True, impostor=True))
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
    unwelcome = _few(chance, replace(model, source=chance.choice(sources), refusal=guard.refusal))
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
    """Encryption needs the name of a manager, which a direct name does not tell."""
    signed, encrypted = chance.choice(((False, False), (True, False), (False, True), (True, True)))
    return replace(flow, signed=signed, encrypted=encrypted, naming=Naming.PRIVATE if encrypted else flow.naming)


def _few(chance: Random, flow: Flow) -> Flow:
    return replace(
        flow,
        count=chance.randint(3, REFUSED),
        start_s=chance.uniform(0.0, 15.0),
        ack=chance.random() < 0.6,
        dead_letter=chance.random() < 0.5,
    )
