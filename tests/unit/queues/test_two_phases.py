"""Receiving in two phases, [MS-MQDMPR] 3.1.7.1.11 and 3.1.7.1.12: begin locks, end deletes or puts back."""

from __future__ import annotations

import pytest

from postroad.message import Message
from postroad.queues.queue import PositionState
from tests.unit.queues.harness import ACKS, LEDGER, ORDERS, Harness, labels, refused


def reported(label: str) -> Message:
    return Message(b"body", label=label, recoverable=True, admin_queue=ACKS, ack=("receive", "nack-receive"))


@pytest.mark.spec("DM-3.1.7.1.11-01", "DM-3.1.1.11-02")
@pytest.mark.parametrize("recoverable", [True, False])
def test_begin_locks_the_message(harness: Harness, recoverable: bool) -> None:
    harness.send(ORDERS, Message(label="a", recoverable=recoverable))
    (record,) = harness.lock(ORDERS)
    assert labels([record]) == ["a"]
    assert harness.queue(ORDERS).positions == {record.lookup_id: PositionState.LOCKED}
    assert (harness.labels(ORDERS), harness.queue(ORDERS).count) == ([], 1)
    with refused(0xC00E001B):
        harness.lock(ORDERS)


@pytest.mark.spec("DM-3.1.7.1.12-04")
def test_end_deletes_it_and_it_was_received(harness: Harness) -> None:
    harness.send(ORDERS, reported("a"))
    (record,) = harness.lock(ORDERS)
    assert harness.classes(ACKS) == []
    harness.end(ORDERS, record, delete=True)
    assert harness.queue(ORDERS).count == 0
    assert harness.classes(ACKS) == [0x4000]


@pytest.mark.spec("DM-3.1.7.1.12-05")
@pytest.mark.parametrize("recoverable", [True, False])
def test_end_puts_it_back_in_its_old_place(harness: Harness, recoverable: bool) -> None:
    harness.send(ORDERS, *(Message(label=label, recoverable=recoverable) for label in "abc"))
    first, second = harness.lock(ORDERS, 2)
    harness.end(ORDERS, second, delete=False)
    assert harness.peek(ORDERS, 9) == ["b", "c"]
    harness.end(ORDERS, first, delete=False)
    assert harness.receive(ORDERS, 9) == ["a", "b", "c"]


@pytest.mark.spec("DM-3.1.7.1.12-04")
@pytest.mark.parametrize("delete", [True, False])
def test_a_purge_in_between_wins(harness: Harness, delete: bool) -> None:
    harness.send(ORDERS, reported("a"))
    (record,) = harness.lock(ORDERS)
    harness.purge(ORDERS)
    assert harness.queue(ORDERS).positions == {record.lookup_id: PositionState.PURGE_PENDING}
    harness.end(ORDERS, record, delete=delete)
    assert harness.queue(ORDERS).count == 0
    assert harness.classes(ACKS) == [0xC001]


@pytest.mark.spec("DM-3.1.7.1.12-02")
@pytest.mark.parametrize("before", ["no begin", "end with reject", "end with delete"])
def test_end_without_begin_is_out_of_sequence(harness: Harness, before: str) -> None:
    harness.send(ORDERS, "a")
    (record,) = harness.queue(ORDERS).available(1)
    if before != "no begin":
        harness.lock(ORDERS)
        harness.end(ORDERS, record, delete=before == "end with delete")
    with refused(0xC00E0051):
        harness.end(ORDERS, record, delete=True)


@pytest.mark.spec("DM-3.1.7.1.12-01")
def test_end_finds_no_queue_where_it_was_deleted(harness: Harness) -> None:
    harness.send(ORDERS, "a")
    queue = harness.queue(ORDERS)
    (record,) = harness.lock(ORDERS)
    harness.delete(ORDERS)
    with refused(0xC00E004B):
        harness.manager.reading.end(queue, record, harness.now, delete=True)


@pytest.mark.spec("DM-3.1.7.1.12-03")
@pytest.mark.parametrize("delete", [True, False])
def test_end_leaves_a_message_to_its_transaction(harness: Harness, delete: bool) -> None:
    harness.send_transactional(LEDGER, "a")
    transaction = harness.manager.begin()
    (record,) = harness.read(LEDGER, transaction=transaction)
    queue = harness.queue(LEDGER)
    harness.manager.reading.end(queue, record, harness.now, delete=delete, transactional=True)
    assert queue.positions == {record.lookup_id: PositionState.LOCKED}
    harness.manager.commit(transaction, harness.now)
    harness.tick()
    assert queue.count == 0


@pytest.mark.spec("DM-3.1.7.2.2-02")
def test_rejecting_again_and_again_changes_no_size(harness: Harness) -> None:
    harness.send(ORDERS, "a", Message(label="express"))
    queue = harness.queue(ORDERS)
    size = queue.total_bytes
    for _ in range(10):
        for record in harness.lock(ORDERS, 2):
            harness.end(ORDERS, record, delete=False)
    assert (queue.total_bytes, queue.count, queue.used_bytes) == (size, 2, size)


def test_a_restart_unlocks_what_was_locked(harness: Harness) -> None:
    harness.send(ORDERS, "a")
    harness.lock(ORDERS)
    harness.restart()
    assert harness.labels(ORDERS) == ["a"]
