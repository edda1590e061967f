"""Receiving in two phases, [MS-MQDMPR] 3.1.7.1.11 and 3.1.7.1.12: begin locks, end deletes or puts back."""

from __future__ import annotations

import pytest

from postroad.message import Message
from postroad.queues.queue import PositionState
from tests.unit.queues.office import ACKS, LEDGER, ORDERS, Office, labels, refused


def reported(label: str) -> Message:
    return Message(b"body", label=label, recoverable=True, admin_queue=ACKS, ack=("receive", "nack-receive"))


@pytest.mark.spec("DM-3.1.7.1.11-01", "DM-3.1.1.11-02")
@pytest.mark.parametrize("recoverable", [True, False])
def test_begin_locks_the_message(office: Office, recoverable: bool) -> None:
    office.send(ORDERS, Message(label="a", recoverable=recoverable))
    (record,) = office.lock(ORDERS)
    assert labels([record]) == ["a"]
    assert office.queue(ORDERS).positions == {record.lookup_id: PositionState.LOCKED}
    assert (office.labels(ORDERS), office.queue(ORDERS).count) == ([], 1)
    with refused(0xC00E001B):
        office.lock(ORDERS)


@pytest.mark.spec("DM-3.1.7.1.12-04")
def test_end_deletes_it_and_it_was_received(office: Office) -> None:
    office.send(ORDERS, reported("a"))
    (record,) = office.lock(ORDERS)
    assert office.classes(ACKS) == []
    office.end(ORDERS, record, delete=True)
    assert office.queue(ORDERS).count == 0
    assert office.classes(ACKS) == [0x4000]


@pytest.mark.spec("DM-3.1.7.1.12-05")
@pytest.mark.parametrize("recoverable", [True, False])
def test_end_puts_it_back_in_its_old_place(office: Office, recoverable: bool) -> None:
    office.send(ORDERS, *(Message(label=label, recoverable=recoverable) for label in "abc"))
    first, second = office.lock(ORDERS, 2)
    office.end(ORDERS, second, delete=False)
    assert office.peek(ORDERS, 9) == ["b", "c"]
    office.end(ORDERS, first, delete=False)
    assert office.receive(ORDERS, 9) == ["a", "b", "c"]


@pytest.mark.spec("DM-3.1.7.1.12-04")
@pytest.mark.parametrize("delete", [True, False])
def test_a_purge_in_between_wins(office: Office, delete: bool) -> None:
    office.send(ORDERS, reported("a"))
    (record,) = office.lock(ORDERS)
    office.purge(ORDERS)
    assert office.queue(ORDERS).positions == {record.lookup_id: PositionState.PURGE_PENDING}
    office.end(ORDERS, record, delete=delete)
    assert office.queue(ORDERS).count == 0
    assert office.classes(ACKS) == [0xC001]


@pytest.mark.spec("DM-3.1.7.1.12-02")
@pytest.mark.parametrize("before", ["no begin", "end with reject", "end with delete"])
def test_end_without_begin_is_out_of_sequence(office: Office, before: str) -> None:
    office.send(ORDERS, "a")
    (record,) = office.queue(ORDERS).available(1)
    if before != "no begin":
        office.lock(ORDERS)
        office.end(ORDERS, record, delete=before == "end with delete")
    with refused(0xC00E0051):
        office.end(ORDERS, record, delete=True)


@pytest.mark.spec("DM-3.1.7.1.12-01")
def test_end_finds_no_queue_where_it_was_deleted(office: Office) -> None:
    office.send(ORDERS, "a")
    queue = office.queue(ORDERS)
    (record,) = office.lock(ORDERS)
    office.delete(ORDERS)
    with refused(0xC00E004B):
        office.manager.reading.end(queue, record, office.now, delete=True)


@pytest.mark.spec("DM-3.1.7.1.12-03")
@pytest.mark.parametrize("delete", [True, False])
def test_end_leaves_a_message_to_its_transaction(office: Office, delete: bool) -> None:
    office.send_transactional(LEDGER, "a")
    transaction = office.manager.begin()
    (record,) = office.read(LEDGER, transaction=transaction)
    queue = office.queue(LEDGER)
    office.manager.reading.end(queue, record, office.now, delete=delete, transactional=True)
    assert queue.positions == {record.lookup_id: PositionState.LOCKED}
    office.manager.commit(transaction, office.now)
    office.tick()
    assert queue.count == 0


@pytest.mark.spec("DM-3.1.7.2.2-02")
def test_rejecting_again_and_again_changes_no_size(office: Office) -> None:
    office.send(ORDERS, "a", Message(label="express"))
    queue = office.queue(ORDERS)
    size = queue.total_bytes
    for _ in range(10):
        for record in office.lock(ORDERS, 2):
            office.end(ORDERS, record, delete=False)
    assert (queue.total_bytes, queue.count, queue.used_bytes) == (size, 2, size)


def test_a_restart_unlocks_what_was_locked(office: Office) -> None:
    office.send(ORDERS, "a")
    office.lock(ORDERS)
    office.restart()
    assert office.labels(ORDERS) == ["a"]
