"""Transactions, [MS-MQDMPR] 3.1.4.3 to 3.1.4.5, and the TransactionHeader of their messages, [MS-MQMQ] 2.2.20.5."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID, uuid4

import pytest

from postroad.errors import InvalidArgument, TransactionSequence
from postroad.message import Message
from postroad.queues.carriers import Watcher
from postroad.queues.queue import PositionState, Queue
from postroad.queues.transaction import OperationType, Transaction
from postroad.store.interface import Record
from postroad.wire.transaction_header import TransactionHeader
from tests.unit.queues.office import ACKS, DEADXACT, ELSEWHERE, LEDGER, ORDERS, Office, labels, refused

BOOKS = r"private$\books"

End = Callable[[Office, Transaction], None]


@pytest.fixture
def transaction(office: Office) -> Transaction:
    office.create(BOOKS, transactional=True, abort_limit=3)
    return office.manager.begin()


def commit(office: Office, transaction: Transaction) -> None:
    office.manager.commit(transaction, office.now)
    office.tick()


def abort(office: Office, transaction: Transaction) -> None:
    office.manager.abort(transaction, office.now)
    office.tick()


def headers(office: Office, name: str) -> list[TransactionHeader]:
    found = [view.transaction_header for view in office.messages(name)]
    return [header for header in found if header is not None]


# Begin


@pytest.mark.spec("DM-3.1.7.1.8-01")
def test_a_transaction_is_known_by_its_identifier(office: Office) -> None:
    identifier = uuid4()
    transaction = office.manager.begin(identifier)
    assert office.manager.transactions == {identifier: transaction}
    assert office.manager.transaction(identifier) is transaction
    commit(office, transaction)


def test_an_identifier_is_for_one_transaction_at_a_time(office: Office) -> None:
    transaction = office.manager.begin(UUID(int=1))
    with pytest.raises(InvalidArgument):
        office.manager.begin(UUID(int=1))
    commit(office, transaction)
    office.manager.begin(UUID(int=1))


# What happens in it


@pytest.mark.spec("DM-3.1.7.1.9-08", "DM-3.1.4.4-02", "DM-3.1.1.11-02")
def test_what_is_sent_is_seen_after_the_commit(office: Office, transaction: Transaction) -> None:
    answer = office.ask(office.open(LEDGER))
    office.send(LEDGER, "a", transaction=transaction)
    assert (office.labels(LEDGER), office.queue(LEDGER).count) == ([], 0)
    (operation,) = transaction.operations
    assert (operation.operation, operation.queue) == (OperationType.ENQUEUE, office.queue(LEDGER))
    assert answer.waits
    commit(office, transaction)
    assert answer.labels == ["a"]


@pytest.mark.spec("DM-3.1.1.13-01", "DM-3.1.7.1.16-04")
def test_a_transaction_holds_one_operation_for_each_call(office: Office, transaction: Transaction) -> None:
    office.send_transactional(LEDGER, "a", "b")
    ledger, books = office.queue(LEDGER), office.queue(BOOKS)
    office.send(BOOKS, "c", transaction=transaction)
    (received,) = office.read(LEDGER, transaction=transaction)
    (moved,) = ledger.available(1)
    office.manager.move_in(ledger, books, moved, transaction)
    assert [(each.operation, each.queue, each.target) for each in transaction.operations] == [
        (OperationType.ENQUEUE, books, None),
        (OperationType.DEQUEUE, ledger, None),
        (OperationType.MOVE, ledger, books),
    ]
    assert [each.record for each in transaction.operations][1:] == [received, moved]
    assert set(ledger.positions.values()) == {PositionState.LOCKED}


def test_a_transactional_queue_takes_messages_of_transactions_only(office: Office, transaction: Transaction) -> None:
    with refused(0xC00E0050):
        office.send(LEDGER, "a")
    with refused(0xC00E0050):
        office.send(ORDERS, "a", transaction=transaction)
    assert transaction.operations == []


@pytest.mark.parametrize("end", [commit, abort])
def test_nothing_happens_in_a_transaction_that_has_ended(office: Office, transaction: Transaction, end: End) -> None:
    office.send_transactional(LEDGER, "a")
    end(office, transaction)
    (record,) = office.queue(LEDGER).available(1)
    with refused(0xC00E0051):
        office.send(LEDGER, "b", transaction=transaction)
    with refused(0xC00E0051):
        office.read(LEDGER, transaction=transaction)
    with refused(0xC00E0051):
        office.manager.move_in(office.queue(LEDGER), office.queue(BOOKS), record, transaction)
    assert office.labels(LEDGER) == ["a"]


# Commit


@pytest.mark.spec("DM-3.1.4.4-03")
def test_what_is_received_is_gone_after_the_commit(office: Office, transaction: Transaction) -> None:
    office.send_transactional(LEDGER, Message(label="a", admin_queue=ACKS, ack="receive"))
    reasons: list[int] = []
    office.manager.watch(Watcher(removed=lambda queue, record, reason, now: reasons.append(reason)))
    office.read(LEDGER, transaction=transaction)
    assert (reasons, office.classes(ACKS), office.queue(LEDGER).count) == ([], [], 1)
    commit(office, transaction)
    assert (reasons, office.classes(ACKS), office.queue(LEDGER).count) == ([0x4000], [0x4000], 0)


@pytest.mark.spec("DM-3.1.4.4-03")
def test_what_is_received_and_committed_was_received_though_it_was_purged_meanwhile(
    office: Office, transaction: Transaction
) -> None:
    office.send_transactional(LEDGER, Message(label="a", admin_queue=ACKS, ack=("receive", "nack-receive")))
    office.read(LEDGER, transaction=transaction)
    office.purge(LEDGER)
    commit(office, transaction)
    assert (office.classes(ACKS), office.queue(LEDGER).count) == ([0x4000], 0)


@pytest.mark.spec("DM-3.1.4.4-04")
def test_what_is_moved_is_in_the_other_queue_after_the_commit(office: Office, transaction: Transaction) -> None:
    office.send_transactional(LEDGER, "a")
    office.send_transactional(BOOKS, "b")
    answer = office.ask(office.open(BOOKS), count=5)
    assert answer.labels == ["b"]
    waiting = office.ask(office.open(BOOKS))
    (record,) = office.queue(LEDGER).available(1)
    office.manager.move_in(office.queue(LEDGER), office.queue(BOOKS), record, transaction)
    assert waiting.waits
    commit(office, transaction)
    assert waiting.labels == ["a"]
    assert office.queue(LEDGER).count == 0


@pytest.mark.spec("DM-3.1.4.4-05", "DM-3.1.1.14-01")
def test_everything_happens_in_the_order_of_the_calls(office: Office, transaction: Transaction) -> None:
    office.send_transactional(LEDGER, "x", "y")
    taken: list[str] = []
    office.manager.watch(Watcher(removed=lambda queue, record, reason, now: taken.extend(labels([record]))))
    office.send(BOOKS, "1", transaction=transaction)
    office.read(LEDGER, transaction=transaction)
    office.send(BOOKS, "2", "3", transaction=transaction)
    office.read(LEDGER, transaction=transaction)
    office.send(BOOKS, "4", transaction=transaction)
    commit(office, transaction)
    assert (taken, office.labels(BOOKS)) == (["x", "y"], ["1", "2", "3", "4"])
    assert (transaction.operations, office.manager.transactions) == ([], {})


@pytest.mark.spec("DM-3.1.4.4-01", "DM-3.1.4.5-01")
@pytest.mark.parametrize("first", [commit, abort])
@pytest.mark.parametrize("second", [commit, abort])
def test_a_transaction_ends_once(office: Office, transaction: Transaction, first: End, second: End) -> None:
    office.send(LEDGER, "a", transaction=transaction)
    first(office, transaction)
    before = office.labels(LEDGER)
    with refused(0xC00E0051):
        second(office, transaction)
    assert office.labels(LEDGER) == before


@pytest.mark.spec("DM-3.1.4.4-01", "DM-3.1.4.5-01")
def test_an_identifier_that_nobody_began_is_out_of_sequence(office: Office) -> None:
    with refused(0xC00E0051):
        office.manager.transaction(uuid4())
    for end in (commit, abort):
        with refused(0xC00E0051):
            end(office, Transaction(uuid4(), 1))


# Abort


@pytest.mark.spec("DM-3.1.4.5-02", "DM-3.1.4.5-04", "DM-3.1.7.1.16-04")
def test_what_was_read_is_back_in_its_old_place_after_an_abort(office: Office, transaction: Transaction) -> None:
    office.send_transactional(LEDGER, "a", "b", "c")
    office.read(LEDGER, count=2, transaction=transaction)
    (record,) = office.queue(LEDGER).available(1)
    office.manager.move_in(office.queue(LEDGER), office.queue(BOOKS), record, transaction)
    assert office.labels(LEDGER) == []
    abort(office, transaction)
    assert (office.labels(LEDGER), office.labels(BOOKS)) == (["a", "b", "c"], [])
    assert (transaction.operations, office.manager.transactions) == ([], {})


@pytest.mark.spec("DM-3.1.4.5-02")
def test_what_was_purged_while_it_was_read_is_gone_after_an_abort(office: Office, transaction: Transaction) -> None:
    office.send_transactional(LEDGER, Message(label="a", admin_queue=ACKS, ack="nack-receive"))
    office.read(LEDGER, transaction=transaction)
    office.purge(LEDGER)
    abort(office, transaction)
    assert (office.queue(LEDGER).count, office.classes(ACKS)) == (0, [0xC001])


@pytest.mark.spec("DM-3.1.4.5-03")
def test_what_was_sent_never_was_after_an_abort(office: Office, transaction: Transaction) -> None:
    answer = office.ask(office.open(LEDGER))
    office.send(LEDGER, Message(admin_queue=ACKS, ack="full", dead_letter=True), transaction=transaction)
    abort(office, transaction)
    assert (office.labels(LEDGER), office.labels(ACKS), office.labels(DEADXACT)) == ([], [], [])
    assert (answer.waits, office.queue(LEDGER).count) == (True, 0)


def aborted(office: Office, queue: Queue) -> list[Record]:
    """The messages after one more read and abort."""
    transaction = office.manager.begin()
    office.read(queue.properties.path, count=9, transaction=transaction)
    abort(office, transaction)
    return queue.available(9)


def test_each_abort_is_counted_and_the_last_one_that_is_allowed_puts_the_message_aside(
    office: Office, transaction: Transaction
) -> None:
    office.send_transactional(BOOKS, "poison")
    books = office.queue(BOOKS)
    assert [[record.aborts for record in aborted(office, books)] for _ in range(3)] == [[1], [2], []]
    (record,) = office.queue(rf"{BOOKS};poison").available(9)
    assert (record.aborts, labels([record])) == (3, ["poison"])
    assert books.count == 0
    office.restart()
    assert office.labels(rf"{BOOKS};poison") == ["poison"]


def test_aborts_are_counted_across_a_restart(office: Office, transaction: Transaction) -> None:
    office.send_transactional(BOOKS, "a")
    aborted(office, office.queue(BOOKS))
    office.restart()
    assert [record.aborts for record in aborted(office, office.queue(BOOKS))] == [2]


# Queues that are deleted meanwhile


@pytest.mark.parametrize("end", [commit, abort])
def test_a_read_of_a_deleted_queue_ends_without_a_trace(office: Office, transaction: Transaction, end: End) -> None:
    office.create(r"private$\kept", transactional=True)
    queue = office.create(r"private$\short", transactional=True, journaling=True, abort_limit=1)
    office.send_transactional(
        r"private$\short", Message(label="a", admin_queue=ACKS, ack=("receive", "nack-receive")), "b"
    )
    office.read(r"private$\short", transaction=transaction)
    (moved,) = queue.available(1)
    office.manager.move_in(queue, office.queue(r"private$\kept"), moved, transaction)
    office.delete(r"private$\short")
    assert office.classes(ACKS) == [0xC000]
    end(office, transaction)
    assert office.classes(ACKS) == [0xC000]
    assert queue.journal is not None
    assert [queue.count, queue.journal.count, queue.stored_bytes, queue.reserved_bytes] == [0, 0, 0, 0]
    kept = office.queue(r"private$\kept")
    assert (kept.count, kept.reserved_bytes) == (0, 0)
    assert office.store.scan(queue.number) == office.store.scan(queue.journal.number) == []


def test_what_is_sent_to_a_queue_that_is_deleted_before_the_commit_is_a_dead_letter(
    office: Office, transaction: Transaction
) -> None:
    queue = office.queue(LEDGER)
    message = Message(label="a", dead_letter=True, admin_queue=ACKS, ack="nack-receive")
    office.send(LEDGER, message, "b", transaction=transaction)
    office.delete(LEDGER)
    commit(office, transaction)
    assert (office.labels(DEADXACT), office.classes(DEADXACT), office.classes(ACKS)) == (["a"], [0xC000], [0xC000])
    assert (queue.reserved_bytes, office.store.scan(queue.number)) == (0, [])


def test_a_move_to_a_queue_that_is_deleted_before_the_commit_leaves_the_message(
    office: Office, transaction: Transaction
) -> None:
    office.send_transactional(LEDGER, "a")
    (record,) = office.queue(LEDGER).available(1)
    office.manager.move_in(office.queue(LEDGER), office.queue(BOOKS), record, transaction)
    office.delete(BOOKS)
    commit(office, transaction)
    assert office.labels(LEDGER) == ["a"]


# The TransactionHeader


@pytest.mark.spec("MQ-2.2.20.5-07", "DM-3.1.4.3-02")
def test_the_first_and_the_last_message_of_a_transaction_say_so(office: Office) -> None:
    office.send_transactional(LEDGER, "a", "b", "c")
    office.send_transactional(LEDGER, "alone")
    flags = [(header.first_in_transaction, header.last_in_transaction) for header in headers(office, LEDGER)]
    assert flags == [(True, False), (False, False), (False, True), (True, True)]


@pytest.mark.spec("MQ-2.2.20.5-09")
def test_the_messages_of_a_transaction_share_its_id(office: Office, transaction: Transaction) -> None:
    office.send(LEDGER, "a", transaction=transaction)
    office.send(ELSEWHERE, "b", transaction=transaction)
    office.send_transactional(LEDGER, "another")
    commit(office, transaction)
    another, mine = (header.transaction_id for header in headers(office, LEDGER))
    (elsewhere,) = (header.transaction_id for header in headers(office, ELSEWHERE))
    assert mine == elsewhere != another


@pytest.mark.spec("MQ-2.2.20.5-13", "MQ-2.2.20.5-14")
def test_messages_to_one_destination_are_numbered_from_1_on(office: Office) -> None:
    office.send_transactional(ELSEWHERE, "a", "b")
    office.send_transactional(LEDGER, "not in this sequence")
    office.send_transactional(ELSEWHERE, "c")
    numbers = [(header.sequence_number, header.previous_sequence_number) for header in headers(office, ELSEWHERE)]
    assert numbers == [(1, 0), (2, 1), (3, 2)]


@pytest.mark.spec("MQ-2.2.20.5-12", "DM-3.1.1.12-33", "MQ-2.2.18.1.2-03", "QB-3.1.1.3.1-08", "QB-3.1.1.3.1-10")
@pytest.mark.parametrize("seconds", [0, 5, -5])
def test_a_start_begins_a_later_sequence_whatever_the_clock_says(office: Office, seconds: float) -> None:
    office.send_transactional(ELSEWHERE, "a", "b")
    before, _ = headers(office, ELSEWHERE)
    office.purge(ELSEWHERE)
    office.now += seconds
    office.restart()
    office.send_transactional(ELSEWHERE, "c")
    (after,) = headers(office, ELSEWHERE)
    assert after.sequence_id > before.sequence_id
    assert (after.sequence_number, after.previous_sequence_number) == (1, 0)


@pytest.mark.spec("QB-3.1.1.3.1-11", "QB-3.1.1.3.1-14")
@pytest.mark.parametrize("seconds", [0, 5, -5])
def test_a_sequence_goes_on_after_a_start_while_messages_of_it_wait(office: Office, seconds: float) -> None:
    office.send_transactional(ELSEWHERE, "a", "b")
    office.now += seconds
    office.restart()
    office.send_transactional(ELSEWHERE, "c")
    places = headers(office, ELSEWHERE)
    assert [(each.sequence_number, each.previous_sequence_number) for each in places] == [(1, 0), (2, 1), (3, 2)]
    assert len({each.sequence_id for each in places}) == 1


def test_numbers_go_on_after_a_start_where_a_tick_was_lost(office: Office) -> None:
    office.send_transactional(ELSEWHERE, "a")
    transaction = office.manager.begin()
    office.promise(ELSEWHERE, "lost", transaction=transaction)
    office.manager.commit(transaction, office.now)
    tick = office.seal()
    transaction = office.manager.begin()
    office.promise(ELSEWHERE, "b", transaction=transaction)
    office.manager.commit(transaction, office.now)
    office.lose(tick)
    office.tick()
    office.restart()
    office.send_transactional(ELSEWHERE, "c")
    assert [each.sequence_number for each in headers(office, ELSEWHERE)] == [1, 2, 3]


def test_numbers_go_on_where_an_outgoing_queue_is_deleted_and_made_again(office: Office) -> None:
    office.send_transactional(ELSEWHERE, "a")
    office.delete(ELSEWHERE)
    office.send_transactional(ELSEWHERE, "b")
    (header,) = headers(office, ELSEWHERE)
    assert header.sequence_number == 2


@pytest.mark.spec("MQ-2.2.19.1-07", "MQ-2.2.19.2-34", "DM-3.1.7.1.32-01")
def test_a_transactional_message_has_no_priority_and_is_recoverable(office: Office) -> None:
    office.send_transactional(LEDGER, Message(priority=6, recoverable=False))
    office.restart()
    (view,) = office.messages(LEDGER)
    assert (view.priority, view.recoverable, view.transactional) == (0, True, True)


@pytest.mark.spec("MQ-2.2.20.5-17", "MQ-2.3.1.13-01")
def test_the_header_makes_a_message_transactional_and_decides_which_queue_takes_it(office: Office) -> None:
    office.send_transactional(ELSEWHERE, "transactional")
    office.send(ELSEWHERE, "plain")
    plain, transactional = office.messages(ELSEWHERE)
    with refused(0xC00E0050):
        office.manager.insert(office.queue(ORDERS), [transactional], office.now)
    with refused(0xC00E0050):
        office.manager.insert(office.queue(LEDGER), [plain], office.now)
    office.manager.insert(office.queue(ORDERS), [plain], office.now)
    office.manager.insert(office.queue(LEDGER), [transactional], office.now)
    office.tick()
    assert (office.labels(ORDERS), office.labels(LEDGER)) == (["plain"], ["transactional"])


@pytest.mark.spec("DM-3.1.1.12-33")
def test_a_message_outside_of_a_transaction_has_no_sequence(office: Office) -> None:
    office.send(ORDERS, "a")
    (view,) = office.messages(ORDERS)
    assert (view.transactional, view.transaction_header) == (False, None)


# The tick that carries a transaction


def test_a_commit_that_cannot_be_written_is_an_abort(office: Office, transaction: Transaction) -> None:
    office.send_transactional(LEDGER, "a")
    office.read(LEDGER, transaction=transaction)
    office.send(BOOKS, "b", transaction=transaction)
    office.manager.commit(transaction, office.now)
    office.fail()
    assert (office.labels(LEDGER), office.labels(BOOKS)) == (["a"], [])
    assert office.queue(BOOKS).reserved_bytes == 0
    with pytest.raises(TransactionSequence):
        abort(office, transaction)


def test_the_numbers_of_a_lost_commit_are_given_to_the_messages_behind_it(office: Office) -> None:
    office.send_transactional(ELSEWHERE, "a")
    for label in "bc":
        transaction = office.manager.begin()
        office.promise(ELSEWHERE, label, f"{label}2", transaction=transaction)
        office.manager.commit(transaction, office.now)
        if label == "b":
            lost = office.seal()
    office.lose(lost)
    office.tick()
    office.send_transactional(ELSEWHERE, "d")
    assert office.labels(ELSEWHERE) == ["a", "c", "c2", "d"]
    numbers = [(header.sequence_number, header.previous_sequence_number) for header in headers(office, ELSEWHERE)]
    assert numbers == [(1, 0), (2, 1), (3, 2), (4, 3)]


def test_sequences_are_apart_by_chance_and_only_grow(office: Office) -> None:
    """What is told as the next one is the next one; an ordinal that runs over takes the time stamp along."""
    steps = iter([5, 1 << 24, (1 << 32) - 10, 7])
    transacting = office.manager.transacting
    office.apart = steps
    found = []
    for number in range(4):
        told = [transacting.next_place(f"somewhere {number}")[0] for _ in range(2)]
        found.append(transacting.new_sequence())
        assert told == [found[-1]] * 2
    assert found == sorted(set(found))
    ordinals, stamps = [each.ordinal for each in found], [each.time_stamp - found[0].time_stamp for each in found]
    assert ordinals[1] - ordinals[0] == 1 << 24
    assert stamps == [0, 0, 1, 1]
    assert all(0 < each <= 0xFFFFFFFF for each in ordinals)
