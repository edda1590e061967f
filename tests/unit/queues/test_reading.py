"""Peek, receive and lookup ids, [MS-MQDMPR] 3.1.7.1.10, 3.1.7.1.13 and 3.1.7.1.15, without waiting."""

from __future__ import annotations

import pytest

from postroad.errors import InvalidArgument
from postroad.message import Message
from postroad.queues.queue import PositionState
from postroad.queues.transaction import OperationType
from postroad.store.interface import Record
from postroad.values.reading import QueueAccess, ReadCall, SeekAction
from postroad.wire.view import MessageView
from tests.unit.queues.office import LEDGER, ORDERS, Office, labels, refused

HUGE = (1 << 64) - 1


def lookup(office: Office, name: str, lookup_id: int, action: SeekAction, *, peek: bool = True) -> str:
    descriptor = office.open(name)
    try:
        record = office.manager.reading.read_by_lookup_id(descriptor, lookup_id, action, office.now, peek=peek)
    finally:
        office.manager.close(descriptor)
    office.tick()
    return MessageView(record.packet).label


def stored(office: Office, name: str) -> list[Record]:
    return list(office.queue(name).everything())


# Receive and peek


@pytest.mark.spec("DM-3.1.7.1.10-07", "DM-3.1.7.1.10-09")
def test_the_only_message_is_received_and_gone(office: Office) -> None:
    office.send(ORDERS, "a")
    assert office.receive(ORDERS) == ["a"]
    assert stored(office, ORDERS) == []
    with refused(0xC00E001B):
        office.receive(ORDERS)


@pytest.mark.spec("DM-3.1.7.1.15-02")
def test_a_peek_leaves_the_message_as_it_is(office: Office) -> None:
    office.send(ORDERS, "a", "b")
    assert office.peek(ORDERS) == office.peek(ORDERS) == ["a"]
    assert office.queue(ORDERS).positions == {}
    assert office.receive(ORDERS, 5) == ["a", "b"]


@pytest.mark.spec("DM-3.1.7.1.10-06", "DM-3.1.7.1.15-02")
def test_the_first_available_message_is_read_and_locked_ones_are_passed_over(office: Office) -> None:
    office.send(ORDERS, "a", "b", "c")
    office.lock(ORDERS)
    assert office.peek(ORDERS) == ["b"]
    assert office.receive(ORDERS, 9) == ["b", "c"]


def test_a_read_of_many_gets_what_there_is(office: Office) -> None:
    office.send(ORDERS, *(str(number) for number in range(2500)))
    assert office.peek(ORDERS, 3000) == [str(number) for number in range(2500)]
    assert office.receive(ORDERS, 3) == ["0", "1", "2"]


@pytest.mark.parametrize("count", [0, -1])
def test_a_read_is_of_at_least_one(office: Office, count: int) -> None:
    with pytest.raises(InvalidArgument, match="count"):
        office.receive(ORDERS, count)


@pytest.mark.spec("DM-3.1.7.1.10-01")
@pytest.mark.parametrize("call", [ReadCall.RECEIVE, ReadCall.PEEK])
def test_a_deleted_queue_is_not_available(office: Office, call: ReadCall) -> None:
    descriptor = office.open(ORDERS)
    office.delete(ORDERS)
    with refused(0xC00E004B):
        office.read(descriptor, call)


@pytest.mark.spec("DM-3.1.7.1.10-08", "DM-3.1.1.11-02")
def test_a_receive_in_a_transaction_locks_the_message(office: Office) -> None:
    office.send_transactional(LEDGER, "a")
    transaction = office.manager.begin()
    (record,) = office.read(LEDGER, transaction=transaction)
    queue = office.queue(LEDGER)
    assert queue.positions == {record.lookup_id: PositionState.LOCKED}
    (operation,) = transaction.operations
    assert (operation.operation, operation.queue, operation.record) == (OperationType.DEQUEUE, queue, record)
    office.manager.abort(transaction, office.now)
    assert office.labels(LEDGER) == ["a"]


@pytest.mark.spec("DM-3.1.7.1.10-09", "DM-3.1.1.11-02")
def test_a_two_phase_receive_locks_the_message(office: Office) -> None:
    office.send(ORDERS, "a")
    (record,) = office.lock(ORDERS)
    assert office.queue(ORDERS).positions == {record.lookup_id: PositionState.LOCKED}
    assert office.labels(ORDERS) == []


@pytest.mark.spec("DM-3.1.7.1.10-03")
def test_a_read_is_two_phase_or_in_a_transaction_but_not_both(office: Office) -> None:
    office.send_transactional(LEDGER, "a")
    with pytest.raises(InvalidArgument):
        office.read(LEDGER, transaction=office.manager.begin(), two_phase=True)
    assert office.labels(LEDGER) == ["a"]


def test_a_queue_that_is_not_transactional_is_not_read_in_a_transaction(office: Office) -> None:
    office.send(ORDERS, "a")
    with refused(0xC00E0050):
        office.read(ORDERS, transaction=office.manager.begin())


# Every position between Start and End


@pytest.mark.spec("DM-3.1.1.2-12")
def test_an_empty_queue_has_no_head_and_no_tail(office: Office) -> None:
    queue = office.queue(ORDERS)
    assert queue.available(1) == queue.available_before(1) == []
    for action in (SeekAction.FIRST, SeekAction.LAST):
        with refused(0xC00E0088):
            lookup(office, ORDERS, 0, action)


@pytest.mark.spec("DM-3.1.7.3.2-01", "DM-3.1.7.3.2-03")
def test_a_seek_goes_from_a_position_to_its_neighbours_and_not_to_itself(office: Office) -> None:
    office.send(ORDERS, "a", "b", "c", "d")
    queue = office.queue(ORDERS)
    a, b, c, d = (record.lookup_id for record in queue.available(9))
    office.lock(ORDERS)
    assert labels(queue.available(9, a)) == ["b", "c", "d"]
    assert labels(queue.available(9, b)) == ["c", "d"]
    assert queue.available(9, d) == []
    assert labels(queue.available_before(9, d)) == ["c", "b"]
    assert labels(queue.available_before(9, c)) == ["b"]
    assert queue.available_before(9, b) == []


def test_a_seek_looks_past_many_locked_messages(office: Office) -> None:
    office.send(ORDERS, *(str(number) for number in range(2200)))
    office.lock(ORDERS, 2100)
    assert office.receive(ORDERS, 2) == ["2100", "2101"]
    last = office.queue(ORDERS).available_before(1)
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
def test_a_seek_action_says_which_message_is_meant(office: Office, action: SeekAction, found: str) -> None:
    office.send(ORDERS, "a", "b", "c", "d")
    lookup_id = stored(office, ORDERS)[1].lookup_id
    assert lookup(office, ORDERS, lookup_id, action) == found


@pytest.mark.parametrize("action", [SeekAction.FIRST, SeekAction.LAST])
def test_first_and_last_need_no_lookup_id(office: Office, action: SeekAction) -> None:
    office.send(ORDERS, "only")
    assert lookup(office, ORDERS, 0, action) == "only"


@pytest.mark.spec("DM-3.1.7.3.3-01", "DM-3.1.7.1.13-01")
@pytest.mark.parametrize("action", SeekAction)
@pytest.mark.parametrize("lookup_id", [1, 1 << 63, HUGE, 1 << 70])
def test_a_lookup_id_that_nobody_has_finds_nothing(office: Office, action: SeekAction, lookup_id: int) -> None:
    office.send(ORDERS, "a")
    for peek in (True, False):
        with refused(0xC00E0088):
            lookup(office, ORDERS, lookup_id, action, peek=peek)
    assert office.labels(ORDERS) == ["a"]


@pytest.mark.parametrize("action", [SeekAction.PREVIOUS, SeekAction.NEXT])
def test_there_is_nothing_beyond_the_ends(office: Office, action: SeekAction) -> None:
    office.send(ORDERS, "only")
    with refused(0xC00E0088):
        lookup(office, ORDERS, stored(office, ORDERS)[0].lookup_id, action)


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
def test_the_current_message_must_be_available(office: Office, state: PositionState, peek: bool, status: int) -> None:
    office.send(ORDERS, "a")
    (record,) = office.lock(ORDERS)
    if state is PositionState.PURGE_PENDING:
        office.purge(ORDERS)
    elif state is PositionState.DELETED:
        office.manager.reading.end(office.queue(ORDERS), record, office.now, delete=True)
    assert office.queue(ORDERS).positions == {record.lookup_id: state}
    with refused(status):
        lookup(office, ORDERS, record.lookup_id, SeekAction.CURRENT, peek=peek)


@pytest.mark.spec("DM-3.1.7.1.13-03", "DM-3.1.7.3.3-03")
def test_a_lookup_takes_locks_or_looks_as_it_was_asked_to(office: Office) -> None:
    office.send_transactional(LEDGER, "a", "b", "c")
    queue, descriptor, reading = office.queue(LEDGER), office.open(LEDGER), office.manager.reading
    a, b, c = (record.lookup_id for record in stored(office, LEDGER))
    current = SeekAction.CURRENT
    reading.read_by_lookup_id(descriptor, a, current, office.now, peek=True)
    assert queue.positions == {}
    transaction = office.manager.begin()
    reading.read_by_lookup_id(descriptor, a, current, office.now, peek=False, transaction=transaction)
    reading.read_by_lookup_id(descriptor, b, current, office.now, peek=False, two_phase=True)
    assert queue.positions == {a: PositionState.LOCKED, b: PositionState.LOCKED}
    assert [operation.record.lookup_id for operation in transaction.operations] == [a]
    reading.read_by_lookup_id(descriptor, c, current, office.now, peek=False)
    office.tick()
    assert [record.lookup_id for record in stored(office, LEDGER)] == [a, b]


@pytest.mark.spec("DM-3.1.7.1.13-02")
def test_a_peek_takes_no_part_in_a_transaction(office: Office) -> None:
    office.send_transactional(LEDGER, "a")
    transaction = office.manager.begin()
    descriptor = office.open(LEDGER)
    with pytest.raises(InvalidArgument, match="transaction"):
        office.manager.reading.read_by_lookup_id(
            descriptor, 0, SeekAction.FIRST, office.now, peek=True, transaction=transaction
        )
    with pytest.raises(InvalidArgument, match="transaction"):
        office.read(descriptor, ReadCall.PEEK, transaction=transaction)
    assert transaction.operations == []


@pytest.mark.spec("DM-3.1.7.1.13-01")
def test_a_lookup_in_a_deleted_queue_finds_no_queue(office: Office) -> None:
    descriptor = office.open(ORDERS)
    office.delete(ORDERS)
    with refused(0xC00E004B):
        office.manager.reading.read_by_lookup_id(descriptor, 0, SeekAction.FIRST, office.now, peek=True)


def test_a_lookup_takes_the_access_that_a_read_takes(office: Office) -> None:
    office.send(ORDERS, "a")
    descriptor = office.open(ORDERS, QueueAccess.PEEK)
    with refused(0xC00E0025):
        office.manager.reading.read_by_lookup_id(descriptor, 0, SeekAction.FIRST, office.now, peek=False)


def test_an_express_message_is_looked_up_too(office: Office) -> None:
    office.send(ORDERS, Message(label="express"), "recoverable")
    express, recoverable = (record.lookup_id for record in stored(office, ORDERS))
    assert lookup(office, ORDERS, express, SeekAction.NEXT) == "recoverable"
    assert lookup(office, ORDERS, recoverable, SeekAction.PREVIOUS, peek=False) == "express"
    assert office.labels(ORDERS) == ["recoverable"]


@pytest.mark.spec("DM-3.1.1.11-05", "DM-3.1.1.11-01")
def test_a_position_is_deleted_until_the_commit_and_then_forgotten(office: Office) -> None:
    office.send(ORDERS, "a")
    queue = office.queue(ORDERS)
    (record,) = office.lock(ORDERS)
    office.manager.reading.end(queue, record, office.now, delete=True)
    assert queue.positions == {record.lookup_id: PositionState.DELETED}
    assert {state.name for state in PositionState} == {"LOCKED", "PURGE_PENDING", "DELETED"}  # or Available: not noted
    office.tick()
    assert (queue.positions, stored(office, ORDERS)) == ({}, [])
