"""Move Message, [MS-MQDMPR] 3.1.7.1.16, and whole packets put into a queue."""

from __future__ import annotations

import pytest

from postroad.errors import AccessDenied, QuotaExceeded
from postroad.message import Message
from postroad.queues.outgoing_queues import Watcher
from postroad.queues.queue import PositionState
from postroad.wire.view import moves
from tests.unit.queues.harness import (
    ACKS,
    DEADLETTER,
    DEADXACT,
    LEDGER,
    ORDERS,
    OTHER,
    Harness,
    refused,
)


def move(harness: Harness, name: str, target: str, count: int = 9) -> None:
    queue = harness.queue(name)
    harness.manager.move(queue, harness.queue(target), queue.available(count), harness.now)


@pytest.mark.spec("DM-3.1.7.1.16-02")
@pytest.mark.parametrize("recoverable", [True, False])
def test_a_moved_message_stands_in_the_other_queue_by_its_order(harness: Harness, recoverable: bool) -> None:
    harness.send(ORDERS, *(Message(label=label, priority=int(label), recoverable=recoverable) for label in "352"))
    harness.send(OTHER, Message(label="4", priority=4, recoverable=recoverable))
    queue, records = harness.queue(ORDERS), harness.queue(ORDERS).available(9)
    move(harness, ORDERS, OTHER)
    if recoverable:
        assert set(queue.positions.values()) == {PositionState.DELETED}
    harness.tick()
    assert (harness.labels(ORDERS), harness.labels(OTHER)) == ([], ["5", "4", "3", "2"])
    packets = {record.packet for record in harness.queue(OTHER).available(9)}
    assert {record.packet for record in records} <= packets


@pytest.mark.spec("DM-3.1.7.1.16-05")
def test_a_move_is_reported_to_nobody(harness: Harness) -> None:
    harness.send(ORDERS, Message(label="a", recoverable=True, admin_queue=ACKS, ack="full", dead_letter=True))
    acknowledged = harness.classes(ACKS)
    deleted: list[int] = []
    harness.manager.watch(Watcher(removed=lambda queue, records, reason, now: deleted.append(reason)))
    move(harness, ORDERS, OTHER)
    harness.tick()
    assert (harness.classes(ACKS), harness.labels(DEADLETTER), deleted) == (acknowledged, [], [])


def test_a_move_takes_the_bytes_along(harness: Harness) -> None:
    harness.send(ORDERS, "a", Message(label="express"))
    size = harness.queue(ORDERS).total_bytes
    move(harness, ORDERS, OTHER)
    harness.tick()
    for queue, expected in ((harness.queue(ORDERS), 0), (harness.queue(OTHER), size)):
        assert (queue.total_bytes, queue.used_bytes) == (expected, expected)


def test_a_move_serves_who_waits(harness: Harness) -> None:
    answer = harness.ask(harness.open(OTHER))
    harness.send(ORDERS, "a")
    move(harness, ORDERS, OTHER)
    harness.tick()
    assert answer.labels == ["a"]


def test_a_move_that_cannot_be_written_has_not_been(harness: Harness) -> None:
    harness.send(ORDERS, "a")
    move(harness, ORDERS, OTHER)
    harness.fail()
    assert (harness.labels(ORDERS), harness.labels(OTHER)) == (["a"], [])
    assert harness.queue(OTHER).reserved_bytes == 0


@pytest.mark.spec("DM-3.1.7.1.16-01")
def test_a_move_to_the_managers_own_queues_is_in_no_transaction(harness: Harness) -> None:
    harness.send_transactional(LEDGER, "a")
    transaction = harness.manager.begin()
    (record,) = harness.queue(LEDGER).available(1)
    with refused(0xC00E0050):
        harness.manager.transacting.move(harness.queue(LEDGER), harness.queue(DEADXACT), record, transaction)
    assert (transaction.operations, harness.labels(LEDGER)) == ([], ["a"])
    move(harness, LEDGER, DEADXACT)
    harness.tick()
    assert harness.labels(DEADXACT) == ["a"]


def test_a_dead_letter_does_not_run_out_of_time(harness: Harness) -> None:
    harness.send(ORDERS, Message(label="a", recoverable=True, time_to_be_received=5))
    move(harness, ORDERS, DEADLETTER)
    harness.tick()
    harness.wait(60)
    assert harness.labels(DEADLETTER) == ["a"]


def test_time_goes_on_for_a_moved_message(harness: Harness) -> None:
    harness.send(ORDERS, Message(label="a", recoverable=True, time_to_be_received=5))
    harness.wait(4)
    move(harness, ORDERS, OTHER)
    harness.tick()
    harness.wait(2)
    assert harness.labels(OTHER) == []


def test_aborts_are_counted_from_0_in_the_new_place(harness: Harness) -> None:
    harness.create(r"private$\books", transactional=True)
    harness.send_transactional(LEDGER, "a")
    for _ in range(2):
        transaction = harness.manager.begin()
        harness.read(LEDGER, transaction=transaction)
        harness.manager.abort(transaction, harness.now)
        harness.tick()
    assert harness.queue(LEDGER).available(1)[0].aborts == 2
    move(harness, LEDGER, r"private$\books")
    harness.tick()
    assert harness.queue(r"private$\books").available(1)[0].aborts == 0


def test_a_queue_takes_the_kind_of_message_that_it_is_for(harness: Harness) -> None:
    harness.send(ORDERS, "plain")
    harness.send_transactional(LEDGER, "transactional")
    harness.manager.queues.subqueue(harness.manager.tick, harness.queue(ORDERS), "aside", int(harness.now))
    for name, target in ((ORDERS, LEDGER), (LEDGER, ORDERS), (LEDGER, rf"{ORDERS};aside")):
        with refused(0xC00E0050):
            move(harness, name, target)
    move(harness, ORDERS, rf"{ORDERS};aside")
    harness.tick()
    assert harness.labels(rf"{ORDERS};aside") == ["plain"]


@pytest.mark.parametrize("target", [rf"{ORDERS};journal", r"private$\order_queue$"])
def test_nothing_is_moved_into_a_journal_or_an_inner_queue(harness: Harness, target: str) -> None:
    harness.send(OTHER, "a")
    with pytest.raises(AccessDenied):
        move(harness, OTHER, target)
    assert harness.labels(OTHER) == ["a"]


def test_a_full_queue_takes_nothing(harness: Harness) -> None:
    harness.create(r"private$\small", quota_kb=1)
    harness.send(ORDERS, "a", Message(bytes(1024), label="b", recoverable=True))
    with pytest.raises(QuotaExceeded):
        move(harness, ORDERS, r"private$\small")
    assert harness.labels(ORDERS) == ["a", "b"]


def test_a_move_in_a_transaction_has_its_room_reserved(harness: Harness) -> None:
    target = harness.create(r"private$\small", transactional=True, quota_kb=1)
    harness.send_transactional(LEDGER, Message(bytes(600), label="a"), Message(bytes(600), label="b"))
    a, b = harness.queue(LEDGER).available(2)
    transaction = harness.manager.begin()
    harness.manager.transacting.move(harness.queue(LEDGER), target, a, transaction)
    assert target.reserved_bytes == len(a.packet)
    with pytest.raises(QuotaExceeded):
        harness.manager.transacting.move(harness.queue(LEDGER), target, b, transaction)
    harness.manager.abort(transaction, harness.now)
    assert target.reserved_bytes == 0
    transaction = harness.manager.begin()
    harness.manager.transacting.move(harness.queue(LEDGER), target, b, transaction)
    harness.manager.commit(transaction, harness.now)
    harness.tick()
    assert (harness.labels(r"private$\small"), target.reserved_bytes) == (["b"], 0)


# Between a queue and its subqueues, as remote readers move


@pytest.mark.parametrize("recoverable", [True, False])
def test_a_relocated_message_keeps_its_lookup_id_and_its_life(recoverable: bool) -> None:
    harness = Harness()
    queue = harness.create(ORDERS)
    message = Message(b"one", label="one", recoverable=recoverable, time_to_be_received=600)
    harness.send(ORDERS, message, Message(b"two", label="two", recoverable=recoverable))
    before = queue.available(1)[0]
    core = harness.manager
    with core.delivery.atomic:
        target = core.queues.subqueue(core.tick, queue, "later", int(harness.now))
    harness.tick()
    mark = core.ticks.arrived(target)
    harness.now += 5
    core.relocate(queue, target, before, harness.now)
    assert core.ticks.arrived(target) == mark  # no new arrival: a stream's mark does not go back
    harness.tick()
    (moved,) = target.available(10)
    assert (moved.lookup_id, moved.expires_s) == (before.lookup_id, before.expires_s)
    assert moved.arrived_ms > before.arrived_ms
    assert (queue.count, target.count) == (1, 1)
    core.relocate(target, queue, moved, harness.now)
    harness.tick()
    assert harness.labels(ORDERS) == ["one", "two"]
    assert target.count == 0
    assert moves(queue.available(1)[0].packet[packet_size(before.packet) :])[0] == 2


def packet_size(packet: bytes) -> int:
    return int.from_bytes(packet[8:12], "little")
