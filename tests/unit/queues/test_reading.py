"""Peek, receive and lookup ids, [MS-MQDMPR] 3.1.7.1.10, 3.1.7.1.13 and 3.1.7.1.15, without waiting."""

from __future__ import annotations

import pytest

from postroad.errors import InvalidArgument
from postroad.message import Message
from postroad.queues.open_queue import OperationType
from postroad.queues.queue import PositionState
from postroad.reports.operations import QueueAccess, ReadCall, SeekAction
from postroad.store.interface import Record
from postroad.wire.view import MessageView
from tests.unit.queues.harness import LEDGER, ORDERS, Harness, labels, refused

HUGE = (1 << 64) - 1


def lookup(harness: Harness, name: str, lookup_id: int, action: SeekAction, *, peek: bool = True) -> str:
    descriptor = harness.open(name)
    try:
        record = harness.manager.reading.read_by_lookup_id(descriptor, lookup_id, action, harness.now, peek=peek)
    finally:
        harness.manager.close(descriptor)
    harness.tick()
    return MessageView(record.packet).label


def stored(harness: Harness, name: str) -> list[Record]:
    return list(harness.queue(name).everything())


# Receive and peek


@pytest.mark.spec("DM-3.1.7.1.10-07", "DM-3.1.7.1.10-09")
def test_the_only_message_is_received_and_gone(harness: Harness) -> None:
    harness.send(ORDERS, "a")
    assert harness.receive(ORDERS) == ["a"]
    assert stored(harness, ORDERS) == []
    with refused(0xC00E001B):
        harness.receive(ORDERS)


@pytest.mark.spec("DM-3.1.7.1.15-02")
def test_a_peek_leaves_the_message_as_it_is(harness: Harness) -> None:
    harness.send(ORDERS, "a", "b")
    assert harness.peek(ORDERS) == harness.peek(ORDERS) == ["a"]
    assert harness.queue(ORDERS).positions == {}
    assert harness.receive(ORDERS, 5) == ["a", "b"]


@pytest.mark.spec("DM-3.1.7.1.10-06", "DM-3.1.7.1.15-02")
def test_the_first_available_message_is_read_and_locked_ones_are_passed_over(harness: Harness) -> None:
    harness.send(ORDERS, "a", "b", "c")
    harness.lock(ORDERS)
    assert harness.peek(ORDERS) == ["b"]
    assert harness.receive(ORDERS, 9) == ["b", "c"]


def test_a_read_of_many_gets_what_there_is(harness: Harness) -> None:
    harness.send(ORDERS, *(str(number) for number in range(2500)))
    assert harness.peek(ORDERS, 3000) == [str(number) for number in range(2500)]
    assert harness.receive(ORDERS, 3) == ["0", "1", "2"]


@pytest.mark.parametrize("count", [0, -1])
def test_a_read_is_of_at_least_one(harness: Harness, count: int) -> None:
    with pytest.raises(InvalidArgument, match="count"):
        harness.receive(ORDERS, count)


@pytest.mark.spec("DM-3.1.7.1.10-01", "MQ-2.4-25")
@pytest.mark.parametrize("call", [ReadCall.RECEIVE, ReadCall.PEEK])
def test_a_deleted_queue_is_not_available(harness: Harness, call: ReadCall) -> None:
    descriptor = harness.open(ORDERS)
    harness.delete(ORDERS)
    with refused(0xC00E004B):
        harness.read(descriptor, call)


@pytest.mark.spec("DM-3.1.7.1.10-08", "DM-3.1.1.11-02")
def test_a_receive_in_a_transaction_locks_the_message(harness: Harness) -> None:
    harness.send_transactional(LEDGER, "a")
    transaction = harness.manager.begin()
    (record,) = harness.read(LEDGER, transaction=transaction)
    queue = harness.queue(LEDGER)
    assert queue.positions == {record.lookup_id: PositionState.LOCKED}
    (operation,) = transaction.operations
    assert (operation.operation, operation.queue, operation.record) == (OperationType.DEQUEUE, queue, record)
    harness.manager.abort(transaction, harness.now)
    assert harness.labels(LEDGER) == ["a"]


@pytest.mark.spec("DM-3.1.7.1.10-09", "DM-3.1.1.11-02")
def test_a_two_phase_receive_locks_the_message(harness: Harness) -> None:
    harness.send(ORDERS, "a")
    (record,) = harness.lock(ORDERS)
    assert harness.queue(ORDERS).positions == {record.lookup_id: PositionState.LOCKED}
    assert harness.labels(ORDERS) == []


@pytest.mark.spec("DM-3.1.7.1.10-03")
def test_a_read_is_two_phase_or_in_a_transaction_but_not_both(harness: Harness) -> None:
    harness.send_transactional(LEDGER, "a")
    with pytest.raises(InvalidArgument):
        harness.read(LEDGER, transaction=harness.manager.begin(), two_phase=True)
    assert harness.labels(LEDGER) == ["a"]


def test_a_queue_that_is_not_transactional_is_not_read_in_a_transaction(harness: Harness) -> None:
    harness.send(ORDERS, "a")
    with refused(0xC00E0050):
        harness.read(ORDERS, transaction=harness.manager.begin())


# Every position between Start and End


@pytest.mark.spec("DM-3.1.1.2-12")
def test_an_empty_queue_has_no_head_and_no_tail(harness: Harness) -> None:
    queue = harness.queue(ORDERS)
    assert queue.available(1) == queue.available_before(1) == []
    for action in (SeekAction.FIRST, SeekAction.LAST):
        with refused(0xC00E0088):
            lookup(harness, ORDERS, 0, action)


@pytest.mark.spec("DM-3.1.7.3.2-01", "DM-3.1.7.3.2-03")
def test_a_seek_goes_from_a_position_to_its_neighbours_and_not_to_itself(harness: Harness) -> None:
    harness.send(ORDERS, "a", "b", "c", "d")
    queue = harness.queue(ORDERS)
    a, b, c, d = (record.lookup_id for record in queue.available(9))
    harness.lock(ORDERS)
    assert labels(queue.available(9, a)) == ["b", "c", "d"]
    assert labels(queue.available(9, b)) == ["c", "d"]
    assert queue.available(9, d) == []
    assert labels(queue.available_before(9, d)) == ["c", "b"]
    assert labels(queue.available_before(9, c)) == ["b"]
    assert queue.available_before(9, b) == []


def test_a_seek_looks_past_many_locked_messages(harness: Harness) -> None:
    harness.send(ORDERS, *(str(number) for number in range(2200)))
    harness.lock(ORDERS, 2100)
    assert harness.receive(ORDERS, 2) == ["2100", "2101"]
    last = harness.queue(ORDERS).available_before(1)
    assert labels(last) == ["2199"]


# Lookup ids


@pytest.mark.spec("DM-3.1.7.3.3-02", "DM-3.1.1.17-02")
@pytest.mark.parametrize(
    ("action", "found"),
    [
        (SeekAction.FIRST, "a"),
        (SeekAction.PREVIOUS, "a"),
        (SeekAction.CURRENT, "b"),
        (SeekAction.NEXT, "c"),
        (SeekAction.LAST, "d"),
    ],
)
def test_a_seek_action_says_which_message_is_meant(harness: Harness, action: SeekAction, found: str) -> None:
    harness.send(ORDERS, "a", "b", "c", "d")
    lookup_id = stored(harness, ORDERS)[1].lookup_id
    assert lookup(harness, ORDERS, lookup_id, action) == found


@pytest.mark.parametrize("action", [SeekAction.FIRST, SeekAction.LAST])
def test_first_and_last_need_no_lookup_id(harness: Harness, action: SeekAction) -> None:
    harness.send(ORDERS, "only")
    assert lookup(harness, ORDERS, 0, action) == "only"


@pytest.mark.spec("DM-3.1.7.3.3-01", "DM-3.1.7.1.13-01")
@pytest.mark.parametrize("action", SeekAction)
@pytest.mark.parametrize("lookup_id", [1, 1 << 63, HUGE, 1 << 70])
def test_a_lookup_id_that_nobody_has_finds_nothing(harness: Harness, action: SeekAction, lookup_id: int) -> None:
    harness.send(ORDERS, "a")
    for peek in (True, False):
        with refused(0xC00E0088):
            lookup(harness, ORDERS, lookup_id, action, peek=peek)
    assert harness.labels(ORDERS) == ["a"]


@pytest.mark.parametrize("action", [SeekAction.PREVIOUS, SeekAction.NEXT])
def test_there_is_nothing_beyond_the_ends(harness: Harness, action: SeekAction) -> None:
    harness.send(ORDERS, "only")
    with refused(0xC00E0088):
        lookup(harness, ORDERS, stored(harness, ORDERS)[0].lookup_id, action)


@pytest.mark.spec("DM-3.1.7.3.3-03")
@pytest.mark.parametrize(
    ("state", "peek", "status"),
    [
        (PositionState.LOCKED, True, 0xC00E0050),
        (PositionState.LOCKED, False, 0xC00E0088),
        (PositionState.PURGE_PENDING, True, 0xC00E0088),
        (PositionState.PURGE_PENDING, False, 0xC00E0088),
        (PositionState.DELETED, True, 0xC00E001D),
        (PositionState.DELETED, False, 0xC00E001D),
    ],
)
def test_the_current_message_must_be_available(harness: Harness, state: PositionState, peek: bool, status: int) -> None:
    harness.send(ORDERS, "a")
    (record,) = harness.lock(ORDERS)
    if state is PositionState.PURGE_PENDING:
        harness.purge(ORDERS)
    elif state is PositionState.DELETED:
        harness.manager.reading.end(harness.queue(ORDERS), record, harness.now, delete=True)
    assert harness.queue(ORDERS).positions == {record.lookup_id: state}
    with refused(status):
        lookup(harness, ORDERS, record.lookup_id, SeekAction.CURRENT, peek=peek)


@pytest.mark.spec("DM-3.1.7.1.13-03", "DM-3.1.7.3.3-03")
def test_a_lookup_takes_locks_or_looks_as_it_was_asked_to(harness: Harness) -> None:
    harness.send_transactional(LEDGER, "a", "b", "c")
    queue, descriptor, reading = harness.queue(LEDGER), harness.open(LEDGER), harness.manager.reading
    a, b, c = (record.lookup_id for record in stored(harness, LEDGER))
    current = SeekAction.CURRENT
    reading.read_by_lookup_id(descriptor, a, current, harness.now, peek=True)
    assert queue.positions == {}
    transaction = harness.manager.begin()
    reading.read_by_lookup_id(descriptor, a, current, harness.now, peek=False, transaction=transaction)
    reading.read_by_lookup_id(descriptor, b, current, harness.now, peek=False, two_phase=True)
    assert queue.positions == {a: PositionState.LOCKED, b: PositionState.LOCKED}
    assert [operation.record.lookup_id for operation in transaction.operations] == [a]
    reading.read_by_lookup_id(descriptor, c, current, harness.now, peek=False)
    harness.tick()
    assert [record.lookup_id for record in stored(harness, LEDGER)] == [a, b]


@pytest.mark.spec("DM-3.1.7.1.13-02")
def test_a_peek_takes_no_part_in_a_transaction(harness: Harness) -> None:
    harness.send_transactional(LEDGER, "a")
    transaction = harness.manager.begin()
    descriptor = harness.open(LEDGER)
    with pytest.raises(InvalidArgument, match="transaction"):
        harness.manager.reading.read_by_lookup_id(
            descriptor, 0, SeekAction.FIRST, harness.now, peek=True, transaction=transaction
        )
    with pytest.raises(InvalidArgument, match="transaction"):
        harness.read(descriptor, ReadCall.PEEK, transaction=transaction)
    assert transaction.operations == []


@pytest.mark.spec("DM-3.1.7.1.13-01")
def test_a_lookup_in_a_deleted_queue_finds_no_queue(harness: Harness) -> None:
    descriptor = harness.open(ORDERS)
    harness.delete(ORDERS)
    with refused(0xC00E004B):
        harness.manager.reading.read_by_lookup_id(descriptor, 0, SeekAction.FIRST, harness.now, peek=True)


def test_a_lookup_takes_the_access_that_a_read_takes(harness: Harness) -> None:
    harness.send(ORDERS, "a")
    descriptor = harness.open(ORDERS, QueueAccess.PEEK)
    with refused(0xC00E0025):
        harness.manager.reading.read_by_lookup_id(descriptor, 0, SeekAction.FIRST, harness.now, peek=False)


def test_an_express_message_is_looked_up_too(harness: Harness) -> None:
    harness.send(ORDERS, Message(label="express"), "recoverable")
    express, recoverable = (record.lookup_id for record in stored(harness, ORDERS))
    assert lookup(harness, ORDERS, express, SeekAction.NEXT) == "recoverable"
    assert lookup(harness, ORDERS, recoverable, SeekAction.PREVIOUS, peek=False) == "express"
    assert harness.labels(ORDERS) == ["recoverable"]


@pytest.mark.spec("DM-3.1.1.11-05", "DM-3.1.1.11-01")
def test_a_position_is_deleted_until_the_commit_and_then_forgotten(harness: Harness) -> None:
    harness.send(ORDERS, "a")
    queue = harness.queue(ORDERS)
    (record,) = harness.lock(ORDERS)
    harness.manager.reading.end(queue, record, harness.now, delete=True)
    assert queue.positions == {record.lookup_id: PositionState.DELETED}
    assert {state.name for state in PositionState} == {"LOCKED", "PURGE_PENDING", "DELETED"}  # or Available: not noted
    harness.tick()
    assert (queue.positions, stored(harness, ORDERS)) == ({}, [])
