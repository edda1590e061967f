"""Purge Queue, [MS-MQDMPR] 3.1.7.1.7: Available messages go at once, messages that somebody reads go when that ends."""

from __future__ import annotations

import pytest

from postroad.message import Message
from postroad.queues.queue import PositionState
from tests.unit.queues.harness import ACKS, DEADLETTER, ELSEWHERE, LEDGER, ORDERS, Harness


def reported(label: str, *, recoverable: bool = True) -> Message:
    return Message(label=label, recoverable=recoverable, admin_queue=ACKS, ack="nack-receive,nack-reach-queue")


@pytest.mark.spec("DM-3.1.7.1.7-01")
def test_every_available_message_goes_and_is_reported(harness: Harness) -> None:
    harness.send(ORDERS, reported("a"), reported("b", recoverable=False))
    assert harness.purge(ORDERS) == 2
    assert (harness.queue(ORDERS).count, harness.queue(ORDERS).total_bytes) == (0, 0)
    assert harness.classes(ACKS) == [0xC001, 0xC001]


@pytest.mark.spec("DM-3.1.7.1.7-02", "DM-3.1.1.11-03")
def test_a_locked_message_stays_until_its_read_ends(harness: Harness) -> None:
    harness.send(ORDERS, reported("a"), reported("b"))
    (record,) = harness.lock(ORDERS)
    assert harness.purge(ORDERS) == 1
    assert harness.queue(ORDERS).positions == {record.lookup_id: PositionState.PURGE_PENDING}
    assert harness.queue(ORDERS).count == 1
    harness.end(ORDERS, record, delete=False)
    assert harness.queue(ORDERS).count == 0
    assert harness.classes(ACKS) == [0xC001, 0xC001]


def test_a_message_that_comes_after_a_purge_is_none_of_its_business(harness: Harness) -> None:
    harness.send(ORDERS, "a")
    (record,) = harness.lock(ORDERS)
    harness.purge(ORDERS)
    harness.send(ORDERS, "b")
    harness.end(ORDERS, record, delete=False)
    assert harness.receive(ORDERS) == ["b"]


def test_a_purge_goes_on_in_steps(harness: Harness) -> None:
    harness.send(ORDERS, *(str(number) for number in range(25)))
    queue = harness.queue(ORDERS)
    steps = []
    while step := harness.manager.purge(queue, harness.now, limit=10):
        harness.tick()
        steps.append(step)
    assert (steps, queue.count) == ([10, 10, 5], 0)


def test_a_purge_before_the_last_one_is_written_takes_nothing_twice(harness: Harness) -> None:
    harness.send(ORDERS, "a", "b")
    queue = harness.queue(ORDERS)
    assert [harness.manager.purge(queue, harness.now) for _ in range(2)] == [2, 0]
    harness.tick()
    assert (queue.count, queue.total_bytes) == (0, 0)


def test_a_purge_that_cannot_be_written_has_not_been(harness: Harness) -> None:
    harness.send(ORDERS, "a", "b")
    harness.manager.purge(harness.queue(ORDERS), harness.now)
    assert harness.labels(ORDERS) == []
    harness.fail()
    assert harness.labels(ORDERS) == ["a", "b"]


def test_a_message_on_its_way_was_deleted_before_it_arrived(harness: Harness) -> None:
    harness.send(ELSEWHERE, reported("a"), Message(label="kept", dead_letter=True))
    harness.purge(ELSEWHERE)
    assert harness.classes(ACKS) == [0x8001]
    assert (harness.labels(DEADLETTER), harness.classes(DEADLETTER)) == (["kept"], [0x8001])


def test_purging_dead_letters_reports_nothing(harness: Harness) -> None:
    harness.send(ORDERS, Message(label="a", dead_letter=True, admin_queue=ACKS, ack="nack-receive"))
    harness.purge(ORDERS)
    acknowledged = harness.classes(ACKS)
    harness.purge(DEADLETTER)
    assert (harness.queue(DEADLETTER).count, harness.classes(ACKS)) == (0, acknowledged)


def test_a_message_that_a_transaction_will_send_is_not_there_to_be_purged(harness: Harness) -> None:
    transaction = harness.manager.begin()
    harness.send(LEDGER, "a", transaction=transaction)
    assert harness.purge(LEDGER) == 0
    harness.manager.commit(transaction, harness.now)
    harness.tick()
    assert harness.labels(LEDGER) == ["a"]
