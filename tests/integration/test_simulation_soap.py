"""Networks of managers with faults whose messages go by SOAP, in their short form. `make torture` runs thousands."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from postroad.simulation.scenario import Consumer, Fault, FaultKind, Flow, Kind, Naming, QueuePlan, queue_at
from postroad.simulation.seeds import http_scenario
from postroad.simulation.verdict import judge
from postroad.simulation.web import Web
from postroad.simulation.world import World
from postroad.soap.elements import Stream, StreamReceipt
from postroad.soap.receiver import Receiver
from postroad.soap.sender import Flight, Sender, Taken, Transfer
from postroad.soap.streams import IncomingStream, OutgoingStream, Verdict
from tests.torture.simulation import run, run_seed

SEEDS = 200
SEARCHED = 60  # seeds that are tried until one finds a fault that was put in
WORKERS = 2


@pytest.mark.timeout(1200)
@pytest.mark.spec("SRM-3.1.1.1.1-01", "SRM-2.2.5.3-04", "SRM-2.2.5.3-05")
def test_whatever_goes_wrong_no_stream_loses_doubles_or_reorders() -> None:
    outcomes = list(run(range(SEEDS), WORKERS, soap=True))
    assert [(each.seed, each.sentences) for each in outcomes if not each.good] == []
    assert sum(each.messages for each in outcomes) > 100 * SEEDS


def test_a_seed_replays_to_the_same_log() -> None:
    worlds = [World(http_scenario(1), log=True) for _ in range(2)]
    for world in worlds:
        world.run()
    first, second = (world.stage.log.lines for world in worlds)
    assert sum("posts to" in line for line in first) > 20
    assert first == second


def test_what_waits_for_a_clock_that_was_set_back_is_not_stuck() -> None:
    """The manager on the way regards a message as expired that its sender keeps for another hour."""
    ledger = queue_at("beta", r"private$\ledger")
    flow = Flow(
        source="alpha",
        to=ledger,
        kind=Kind.TRANSACTIONAL,
        naming=Naming.HTTP,
        count=3,
        time_to_reach_queue_s=8,
        perishable=1.0,
        dead_letter=True,
    )
    away = Fault(kind=FaultKind.POWER_FAILURE, managers=("beta",), at_s=0.01, for_s=30)
    set_back = Fault(kind=FaultKind.CRASH, managers=("alpha",), at_s=5, for_s=1, clock_error_s=-3600)
    scenario = replace(
        http_scenario(2792),
        queues=(QueuePlan(path=ledger, transactional=True),),
        flows=(flow,),
        consumers=(Consumer(queue=ledger),),
        faults=(away, set_back),
    )
    assert scenario.forwarder == "gate"
    world = World(scenario)
    world.run()
    assert judge(world).sentences == []
    assert world.settled_at is not None
    assert world.settled_at > 3600 - 60


# Faults put in by hand. Each is found, and found soon.


def answer_before_it_is_durable(patch: pytest.MonkeyPatch) -> None:
    original = Web._answer

    def received(web: Web, end: object, incoming: object) -> None:
        outcome = web.service.received(incoming, web._owner.now)  # type: ignore[arg-type]
        original(web, end, outcome.status)  # type: ignore[arg-type]

    patch.setattr(Web, "_handle", received)


def release_on_200(patch: pytest.MonkeyPatch) -> None:
    original = Sender.delivered

    def delivered(sender: Sender, flight: Flight, now: float) -> None:
        original(sender, flight, now)
        if flight.number:
            sender.core.delivery.discard(flight.queue, flight.record)

    patch.setattr(Sender, "delivered", delivered)


def take_what_comes_again(patch: pytest.MonkeyPatch) -> None:
    def judge(stream: IncomingStream, element: Stream, *, duplicate: bool) -> Verdict:
        return Verdict.ACCEPTED

    patch.setattr(IncomingStream, "judge", judge)


def never_repeat_a_receipt(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(IncomingStream, "repeat_receipt", lambda stream, now, delay_s: None)


def drop_the_bridge_over_expired_messages(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Transfer, "previous", lambda transfer, number: number - 1)


def never_begin_anew(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(OutgoingStream, "may_follow", lambda stream, number: True)


def release_on_any_receipt(patch: pytest.MonkeyPatch) -> None:
    original = Sender.take_stream_receipt

    def take(sender: Sender, receipt: StreamReceipt, address: str, now: float) -> Taken:
        one_more = StreamReceipt(receipt.stream_id, receipt.last_ordinal + 1)
        taken = original(sender, one_more, address, now)
        return taken if taken is Taken.DONE else original(sender, receipt, address, now)

    patch.setattr(Sender, "take_stream_receipt", take)


def forget_final_receipts(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Receiver, "_send_final_receipt", lambda receiver, view, reason, now: None)


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("break_it", "first"),  # the search begins where nothing has to be waited for that is stuck for ever
    [
        (answer_before_it_is_durable, 0),
        (release_on_200, 0),
        (take_what_comes_again, 0),
        (never_repeat_a_receipt, 0),
        (drop_the_bridge_over_expired_messages, 3),
        (never_begin_anew, 0),
        (release_on_any_receipt, 12),
        (forget_final_receipts, 0),
    ],
)
def test_a_fault_put_in_by_hand_is_found(
    break_it: Callable[[pytest.MonkeyPatch], None], first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_it(monkeypatch)
    assert next(failing_seeds(first), None) is not None


def failing_seeds(first: int) -> Iterator[int]:
    return (seed for seed in range(first, first + SEARCHED) if not run_seed(seed, soap=True).good)
