"""Networks of managers with faults, in their short form. `make torture` runs thousands of seeds."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from postroad.binary.sender import Sender
from postroad.binary.session import Session
from postroad.carriers.arrivals import MessageIdHistory
from postroad.queues.durability import Done
from postroad.queues.permissions import Access
from postroad.queues.queue import Queue
from postroad.security.guard import Guard
from postroad.security.keys import KeyRing
from postroad.security.signatures import public_key_of
from postroad.simulation.loop import STARTED
from postroad.simulation.node import Node
from postroad.simulation.scenario import Scenario
from postroad.simulation.seeds import http_scenario, random_scenario
from postroad.simulation.verdict import SECURITY_CLASSES, judge
from postroad.simulation.world import World
from postroad.store.interface import Store
from postroad.store.memory import MemoryStore
from postroad.wire.ordering import OrderAck
from tests.torture.simulation import run, run_seed

SEEDS = 200
SECURED = 60  # seeds that are looked through for those with security
SEARCHED = 150  # seeds that are tried until one finds a fault that was put in
WORKERS = 2


def test_whatever_goes_wrong_no_promise_is_broken() -> None:
    outcomes = list(run(range(SEEDS), WORKERS))
    assert [(each.seed, each.sentences) for each in outcomes if not each.good] == []
    assert sum(each.messages for each in outcomes) > 100 * SEEDS


@pytest.mark.parametrize("seed", [1, 2])
def test_a_seed_replays_to_the_same_log(seed: int) -> None:
    worlds = [World(random_scenario(seed), log=True) for _ in range(2)]
    for world in worlds:
        world.run()
    first, second = (world.stage.log.lines for world in worlds)
    assert len(first) > 100
    assert first == second


def test_another_process_replays_to_the_same_log() -> None:
    command = [sys.executable, "-m", "postroad.simulation", "--seed", "3", "--log"]
    logs = [
        subprocess.run(command, env={**os.environ, "PYTHONHASHSEED": salt}, capture_output=True, check=True).stdout
        for salt in ("1", "2")
    ]
    assert len(logs[0].splitlines()) > 100
    assert logs[0] == logs[1]


def test_seeds_differ() -> None:
    assert random_scenario(1) != random_scenario(2)
    assert random_scenario(1) == random_scenario(1)


def test_seeds_sign_encrypt_rotate_keys_and_are_refused() -> None:
    """Some messages of each kind arrive, and none of those that must be refused: `good` says that for each seed."""
    arrived: Counter[tuple[bool, bool]] = Counter()
    refused: Counter[int] = Counter()
    told: Counter[int] = Counter()
    routed = rotated = 0
    for seed in range(SECURED):
        scenario = random_scenario(seed)
        if not scenario.rotations:
            continue
        world = World(scenario)
        world.run()
        assert judge(world).sentences == []
        gates = {each.name for each in scenario.enterprise.managers if each.routing_server}
        for message in world.stage.ledger:
            flow = message.flow
            if flow.refusal is not None:
                refused[flow.refusal] += flow.refusal in message.ends
                told[flow.refusal] += message.acknowledged.count(flow.refusal)
            elif message.arrivals:
                arrived[flow.signed, flow.encrypted] += 1
                routed += flow.encrypted and bool(gates) and not gates & {flow.source, flow.to.computer}
                rotated += flow.encrypted and any(
                    each.manager == flow.to.computer and message.sent_at - STARTED > each.at_s + each.published_s
                    for each in scenario.rotations
                )
    assert min(arrived[signed, encrypted] for signed in (False, True) for encrypted in (False, True)) > 100
    assert routed > 100
    assert rotated > 50
    assert min(refused[each] for each in SECURITY_CLASSES) > 10
    assert sum(told.values()) > 10


@pytest.mark.parametrize("make", [random_scenario, http_scenario])
def test_a_seed_with_security_replays_to_the_same_log(make: Callable[[int], Scenario]) -> None:
    scenario = make(next(seed for seed in range(SECURED) if random_scenario(seed).rotations))
    worlds = [World(scenario, log=True) for _ in range(2)]
    for world in worlds:
        world.run()
    first, second = worlds
    assert any("has new keys" in line for line in first.stage.log.lines)
    assert first.stage.log.lines == second.stage.log.lines
    assert [*map(_packets, first.nodes.values())] == [*map(_packets, second.nodes.values())]


def _packets(node: Node) -> list[bytes]:
    """Session keys are a part of them."""
    return [record.packet for queue in node.core.queues for record in queue.everything()]


# Faults put in by hand. Each is found, and found soon.


def acknowledge_before_durable(patch: pytest.MonkeyPatch) -> None:
    original = Node.when_durable

    def when_durable(node: Node, done: Done, *, survives: bool = False, repeats: bool = True) -> None:
        if survives:
            original(node, done, survives=True)
        else:
            done(None)

    patch.setattr(Node, "when_durable", when_durable)


def forget_duplicates_at_restart(patch: pytest.MonkeyPatch) -> None:
    original = MessageIdHistory.__init__

    def start(history: MessageIdHistory, store: Store, size: int, lifetime_s: int, prefix: str = "history/") -> None:
        original(history, MemoryStore(), size, lifetime_s, prefix)

    patch.setattr(MessageIdHistory, "__init__", start)


def skip_the_bridge_over_expired_messages(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("postroad.binary.sender.with_previous_number", lambda packet, previous: packet)


def drop_the_resend_timer(patch: pytest.MonkeyPatch) -> None:
    def on_timer(sender: Sender, queues: list[Queue], now: float) -> None:
        for queue in queues:
            sender.sequences[queue].resend_at = None

    patch.setattr(Sender, "on_timer", on_timer)


def release_on_an_order_ack_of_another_sequence(patch: pytest.MonkeyPatch) -> None:
    original = Sender.take_order_ack

    def take_order_ack(sender: Sender, ack: OrderAck, session: Session, now: float) -> None:
        sender._accepts = lambda name, ack, session: True
        for sequence in list(sender.sequences.values()):
            for each in list(dict.fromkeys(flight.sequence for flight in sequence.unacked)):
                assert each is not None
                sent = max(flight.number for flight in sequence.unacked if flight.sequence == each)
                number = min(ack.sequence_number, sent)
                original(sender, replace(ack, sequence_id=each, sequence_number=number), session, now)

    patch.setattr(Sender, "take_order_ack", take_order_ack)


def believe_every_certificate(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Guard, "_look_up", lambda guard, view, header: public_key_of(header.sender_certificate))


def forget_previous_keys(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(KeyRing, "rotated", lambda ring, make_key: KeyRing.make(make_key))


def let_everyone_send(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Access, "may_send", lambda access, queue, token: True)


@pytest.mark.parametrize(
    ("break_it", "first"),  # the search begins where nothing has to be waited for that is stuck for ever
    [
        (acknowledge_before_durable, 0),
        (forget_duplicates_at_restart, 0),
        (skip_the_bridge_over_expired_messages, 3),
        (drop_the_resend_timer, 0),
        (release_on_an_order_ack_of_another_sequence, 49),
        (believe_every_certificate, 14),
        (forget_previous_keys, 9),
        (let_everyone_send, 13),
    ],
)
def test_a_fault_put_in_by_hand_is_found(
    break_it: Callable[[pytest.MonkeyPatch], None], first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_it(monkeypatch)
    assert next(failing_seeds(first), None) is not None


def failing_seeds(first: int) -> Iterator[int]:
    return (seed for seed in range(first, first + SEARCHED) if not run_seed(seed).good)


def test_a_failing_seed_prints_itself() -> None:
    broken = (
        "import runpy, sys\n"
        "from postroad.carriers.arrivals import MessageIdHistory\n"
        "MessageIdHistory.__contains__ = lambda history, identifier: True\n"
        "sys.argv = ['simulation', '--seed', '1']\n"
        "runpy.run_module('postroad.simulation', run_name='__main__')\n"
    )
    outcome = subprocess.run([sys.executable, "-c", broken], capture_output=True, text=True, check=False)
    assert outcome.returncode == 1
    assert all(line.startswith("seed 1: ") for line in outcome.stdout.splitlines())
    assert outcome.stdout
