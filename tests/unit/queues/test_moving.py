"""Move Message, [MS-MQDMPR] 3.1.7.1.16, and whole packets put into a queue."""

from __future__ import annotations

import pytest

from postroad.errors import AccessDenied, QuotaExceeded
from postroad.message import Message
from postroad.queues.carriers import Watcher
from postroad.queues.queue import PositionState
from tests.unit.queues.office import (
    ACKS,
    DEADLETTER,
    DEADXACT,
    LEDGER,
    ORDERS,
    OTHER,
    Office,
    refused,
)


def move(office: Office, name: str, target: str, count: int = 9) -> None:
    queue = office.queue(name)
    office.manager.move(queue, office.queue(target), queue.available(count), office.now)


@pytest.mark.spec("DM-3.1.7.1.16-02")
@pytest.mark.parametrize("recoverable", [True, False])
def test_a_moved_message_stands_in_the_other_queue_by_its_order(office: Office, recoverable: bool) -> None:
    office.send(ORDERS, *(Message(label=label, priority=int(label), recoverable=recoverable) for label in "352"))
    office.send(OTHER, Message(label="4", priority=4, recoverable=recoverable))
    queue, records = office.queue(ORDERS), office.queue(ORDERS).available(9)
    move(office, ORDERS, OTHER)
    if recoverable:
        assert set(queue.positions.values()) == {PositionState.DELETED}
    office.tick()
    assert (office.labels(ORDERS), office.labels(OTHER)) == ([], ["5", "4", "3", "2"])
    packets = {record.packet for record in office.queue(OTHER).available(9)}
    assert {record.packet for record in records} <= packets


@pytest.mark.spec("DM-3.1.7.1.16-05")
def test_a_move_is_reported_to_nobody(office: Office) -> None:
    office.send(ORDERS, Message(label="a", recoverable=True, admin_queue=ACKS, ack="full", dead_letter=True))
    acknowledged = office.classes(ACKS)
    deleted: list[int] = []
    office.manager.watch(Watcher(removed=lambda queue, record, reason, now: deleted.append(reason)))
    move(office, ORDERS, OTHER)
    office.tick()
    assert (office.classes(ACKS), office.labels(DEADLETTER), deleted) == (acknowledged, [], [])


def test_a_move_takes_the_bytes_along(office: Office) -> None:
    office.send(ORDERS, "a", Message(label="express"))
    size = office.queue(ORDERS).total_bytes
    move(office, ORDERS, OTHER)
    office.tick()
    for queue, expected in ((office.queue(ORDERS), 0), (office.queue(OTHER), size)):
        assert (queue.total_bytes, queue.used_bytes) == (expected, expected)


def test_a_move_serves_who_waits(office: Office) -> None:
    answer = office.ask(office.open(OTHER))
    office.send(ORDERS, "a")
    move(office, ORDERS, OTHER)
    office.tick()
    assert answer.labels == ["a"]


def test_a_move_that_cannot_be_written_has_not_been(office: Office) -> None:
    office.send(ORDERS, "a")
    move(office, ORDERS, OTHER)
    office.fail()
    assert (office.labels(ORDERS), office.labels(OTHER)) == (["a"], [])
    assert office.queue(OTHER).reserved_bytes == 0


@pytest.mark.spec("DM-3.1.7.1.16-01")
def test_a_move_to_the_managers_own_queues_is_in_no_transaction(office: Office) -> None:
    office.send_transactional(LEDGER, "a")
    transaction = office.manager.begin()
    (record,) = office.queue(LEDGER).available(1)
    with refused(0xC00E0050):
        office.manager.move_in(office.queue(LEDGER), office.queue(DEADXACT), record, transaction)
    assert (transaction.operations, office.labels(LEDGER)) == ([], ["a"])
    move(office, LEDGER, DEADXACT)
    office.tick()
    assert office.labels(DEADXACT) == ["a"]


def test_a_dead_letter_does_not_run_out_of_time(office: Office) -> None:
    office.send(ORDERS, Message(label="a", recoverable=True, time_to_be_received=5))
    move(office, ORDERS, DEADLETTER)
    office.tick()
    office.wait(60)
    assert office.labels(DEADLETTER) == ["a"]


def test_time_goes_on_for_a_moved_message(office: Office) -> None:
    office.send(ORDERS, Message(label="a", recoverable=True, time_to_be_received=5))
    office.wait(4)
    move(office, ORDERS, OTHER)
    office.tick()
    office.wait(2)
    assert office.labels(OTHER) == []


def test_aborts_are_counted_from_0_in_the_new_place(office: Office) -> None:
    office.create(r"private$\books", transactional=True)
    office.send_transactional(LEDGER, "a")
    for _ in range(2):
        transaction = office.manager.begin()
        office.read(LEDGER, transaction=transaction)
        office.manager.abort(transaction, office.now)
        office.tick()
    assert office.queue(LEDGER).available(1)[0].aborts == 2
    move(office, LEDGER, r"private$\books")
    office.tick()
    assert office.queue(r"private$\books").available(1)[0].aborts == 0


def test_a_queue_takes_the_kind_of_message_that_it_is_for(office: Office) -> None:
    office.send(ORDERS, "plain")
    office.send_transactional(LEDGER, "transactional")
    office.manager.queues.subqueue(office.manager.tick, office.queue(ORDERS), "aside", int(office.now))
    for name, target in ((ORDERS, LEDGER), (LEDGER, ORDERS), (LEDGER, rf"{ORDERS};aside")):
        with refused(0xC00E0050):
            move(office, name, target)
    move(office, ORDERS, rf"{ORDERS};aside")
    office.tick()
    assert office.labels(rf"{ORDERS};aside") == ["plain"]


@pytest.mark.parametrize("target", [rf"{ORDERS};journal", r"private$\order_queue$"])
def test_nothing_is_moved_into_a_journal_or_an_inner_queue(office: Office, target: str) -> None:
    office.send(OTHER, "a")
    with pytest.raises(AccessDenied):
        move(office, OTHER, target)
    assert office.labels(OTHER) == ["a"]


def test_a_full_queue_takes_nothing(office: Office) -> None:
    office.create(r"private$\small", quota_kb=1)
    office.send(ORDERS, "a", Message(bytes(1024), label="b", recoverable=True))
    with pytest.raises(QuotaExceeded):
        move(office, ORDERS, r"private$\small")
    assert office.labels(ORDERS) == ["a", "b"]


def test_a_move_in_a_transaction_has_its_room_reserved(office: Office) -> None:
    target = office.create(r"private$\small", transactional=True, quota_kb=1)
    office.send_transactional(LEDGER, Message(bytes(600), label="a"), Message(bytes(600), label="b"))
    a, b = office.queue(LEDGER).available(2)
    transaction = office.manager.begin()
    office.manager.move_in(office.queue(LEDGER), target, a, transaction)
    assert target.reserved_bytes == len(a.packet)
    with pytest.raises(QuotaExceeded):
        office.manager.move_in(office.queue(LEDGER), target, b, transaction)
    office.manager.abort(transaction, office.now)
    assert target.reserved_bytes == 0
    transaction = office.manager.begin()
    office.manager.move_in(office.queue(LEDGER), target, b, transaction)
    office.manager.commit(transaction, office.now)
    office.tick()
    assert (office.labels(r"private$\small"), target.reserved_bytes) == (["b"], 0)
