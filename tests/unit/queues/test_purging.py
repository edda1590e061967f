"""Purge Queue, [MS-MQDMPR] 3.1.7.1.7: what is available goes at once, what somebody reads goes when that ends."""

from __future__ import annotations

import pytest

from postroad.message import Message
from postroad.queues.queue import PositionState
from tests.unit.queues.office import ACKS, DEADLETTER, ELSEWHERE, LEDGER, ORDERS, Office


def reported(label: str, *, recoverable: bool = True) -> Message:
    return Message(label=label, recoverable=recoverable, admin_queue=ACKS, ack="nack-receive,nack-reach-queue")


@pytest.mark.spec("DM-3.1.7.1.7-01")
def test_every_available_message_goes_and_is_reported(office: Office) -> None:
    office.send(ORDERS, reported("a"), reported("b", recoverable=False))
    assert office.purge(ORDERS) == 2
    assert (office.queue(ORDERS).count, office.queue(ORDERS).total_bytes) == (0, 0)
    assert office.classes(ACKS) == [0xC001, 0xC001]


@pytest.mark.spec("DM-3.1.7.1.7-02", "DM-3.1.1.11-03")
def test_a_locked_message_stays_until_its_read_ends(office: Office) -> None:
    office.send(ORDERS, reported("a"), reported("b"))
    (record,) = office.lock(ORDERS)
    assert office.purge(ORDERS) == 1
    assert office.queue(ORDERS).positions == {record.lookup_id: PositionState.PURGE_PENDING}
    assert office.queue(ORDERS).count == 1
    office.end(ORDERS, record, delete=False)
    assert office.queue(ORDERS).count == 0
    assert office.classes(ACKS) == [0xC001, 0xC001]


def test_a_message_that_comes_after_a_purge_is_none_of_its_business(office: Office) -> None:
    office.send(ORDERS, "a")
    (record,) = office.lock(ORDERS)
    office.purge(ORDERS)
    office.send(ORDERS, "b")
    office.end(ORDERS, record, delete=False)
    assert office.receive(ORDERS) == ["b"]


def test_a_purge_goes_on_in_steps(office: Office) -> None:
    office.send(ORDERS, *(str(number) for number in range(25)))
    queue = office.queue(ORDERS)
    steps = []
    while step := office.manager.purge(queue, office.now, limit=10):
        office.tick()
        steps.append(step)
    assert (steps, queue.count) == ([10, 10, 5], 0)


def test_a_purge_before_the_last_one_is_written_takes_nothing_twice(office: Office) -> None:
    office.send(ORDERS, "a", "b")
    queue = office.queue(ORDERS)
    assert [office.manager.purge(queue, office.now) for _ in range(2)] == [2, 0]
    office.tick()
    assert (queue.count, queue.total_bytes) == (0, 0)


def test_a_purge_that_cannot_be_written_has_not_been(office: Office) -> None:
    office.send(ORDERS, "a", "b")
    office.manager.purge(office.queue(ORDERS), office.now)
    assert office.labels(ORDERS) == []
    office.fail()
    assert office.labels(ORDERS) == ["a", "b"]


def test_a_message_on_its_way_was_deleted_before_it_arrived(office: Office) -> None:
    office.send(ELSEWHERE, reported("a"), Message(label="kept", dead_letter=True))
    office.purge(ELSEWHERE)
    assert office.classes(ACKS) == [0x8001]
    assert (office.labels(DEADLETTER), office.classes(DEADLETTER)) == (["kept"], [0x8001])


def test_purging_dead_letters_reports_nothing(office: Office) -> None:
    office.send(ORDERS, Message(label="a", dead_letter=True, admin_queue=ACKS, ack="nack-receive"))
    office.purge(ORDERS)
    acknowledged = office.classes(ACKS)
    office.purge(DEADLETTER)
    assert (office.queue(DEADLETTER).count, office.classes(ACKS)) == (0, acknowledged)


def test_a_message_that_a_transaction_will_send_is_not_there_to_be_purged(office: Office) -> None:
    transaction = office.manager.begin()
    office.send(LEDGER, "a", transaction=transaction)
    assert office.purge(LEDGER) == 0
    office.manager.commit(transaction, office.now)
    office.tick()
    assert office.labels(LEDGER) == ["a"]
