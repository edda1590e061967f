"""Transactions, [MS-MQDMPR] 3.1.4.3 to 3.1.4.5, and the TransactionHeader of their messages, [MS-MQMQ] 2.2.20.5."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID, uuid4

import pytest

from postroad.errors import InvalidArgument, PostroadError, TransactionSequence
from postroad.message import Message
from postroad.queues.core_settings import Chance
from postroad.queues.open_queue import OperationType, Transaction
from postroad.queues.outgoing_queues import Watcher
from postroad.queues.queue import PositionState, Queue
from postroad.queues.transactions import MOST_APART
from postroad.store.interface import Record
from postroad.wire.headers import TransactionHeader
from tests.unit.queues.harness import ACKS, DEADXACT, ELSEWHERE, LEDGER, ORDERS, Harness, labels, refused

BOOKS = r"private$\books"

End = Callable[[Harness, Transaction], None]


@pytest.fixture
def transaction(harness: Harness) -> Transaction:
    harness.create(BOOKS, transactional=True, abort_limit=3)
    return harness.manager.begin()


def commit(harness: Harness, transaction: Transaction) -> None:
    harness.manager.commit(transaction, harness.now)
    harness.tick()


def abort(harness: Harness, transaction: Transaction) -> None:
    harness.manager.abort(transaction, harness.now)
    harness.tick()


def headers(harness: Harness, name: str) -> list[TransactionHeader]:
    found = [view.transaction_header for view in harness.messages(name)]
    return [header for header in found if header is not None]


# Begin


@pytest.mark.spec("DM-3.1.7.1.8-01")
def test_a_transaction_is_known_by_its_identifier(harness: Harness) -> None:
    identifier = uuid4()
    transaction = harness.manager.begin(identifier)
    assert harness.manager.transactions == {identifier: transaction}
    assert harness.manager.transaction(identifier) is transaction
    commit(harness, transaction)


def test_an_identifier_is_for_one_transaction_at_a_time(harness: Harness) -> None:
    transaction = harness.manager.begin(UUID(int=1))
    with pytest.raises(InvalidArgument):
        harness.manager.begin(UUID(int=1))
    commit(harness, transaction)
    harness.manager.begin(UUID(int=1))


# What happens in it


@pytest.mark.spec("DM-3.1.7.1.9-08", "DM-3.1.4.4-02", "DM-3.1.1.11-02")
def test_what_is_sent_is_seen_after_the_commit(harness: Harness, transaction: Transaction) -> None:
    answer = harness.ask(harness.open(LEDGER))
    harness.send(LEDGER, "a", transaction=transaction)
    assert (harness.labels(LEDGER), harness.queue(LEDGER).count) == ([], 0)
    (operation,) = transaction.operations
    assert (operation.operation, operation.queue) == (OperationType.ENQUEUE, harness.queue(LEDGER))
    assert answer.waits
    commit(harness, transaction)
    assert answer.labels == ["a"]


@pytest.mark.spec("DM-3.1.1.13-01", "DM-3.1.7.1.16-04")
def test_a_transaction_holds_one_operation_for_each_call(harness: Harness, transaction: Transaction) -> None:
    harness.send_transactional(LEDGER, "a", "b")
    ledger, books = harness.queue(LEDGER), harness.queue(BOOKS)
    harness.send(BOOKS, "c", transaction=transaction)
    (received,) = harness.read(LEDGER, transaction=transaction)
    (moved,) = ledger.available(1)
    harness.manager.transacting.move(ledger, books, moved, transaction)
    assert [(each.operation, each.queue, each.target) for each in transaction.operations] == [
        (OperationType.ENQUEUE, books, None),
        (OperationType.DEQUEUE, ledger, None),
        (OperationType.MOVE, ledger, books),
    ]
    assert [each.record for each in transaction.operations][1:] == [received, moved]
    assert set(ledger.positions.values()) == {PositionState.LOCKED}


def test_a_transactional_queue_takes_messages_of_transactions_only(harness: Harness, transaction: Transaction) -> None:
    with refused(0xC00E0050):
        harness.send(LEDGER, "a")
    with refused(0xC00E0050):
        harness.send(ORDERS, "a", transaction=transaction)
    assert transaction.operations == []


@pytest.mark.parametrize("end", [commit, abort])
def test_nothing_happens_in_a_transaction_that_has_ended(harness: Harness, transaction: Transaction, end: End) -> None:
    harness.send_transactional(LEDGER, "a")
    end(harness, transaction)
    (record,) = harness.queue(LEDGER).available(1)
    with refused(0xC00E0051):
        harness.send(LEDGER, "b", transaction=transaction)
    with refused(0xC00E0051):
        harness.read(LEDGER, transaction=transaction)
    with refused(0xC00E0051):
        harness.manager.transacting.move(harness.queue(LEDGER), harness.queue(BOOKS), record, transaction)
    assert harness.labels(LEDGER) == ["a"]


# Commit


@pytest.mark.spec("DM-3.1.4.4-03")
def test_what_is_received_is_gone_after_the_commit(harness: Harness, transaction: Transaction) -> None:
    harness.send_transactional(LEDGER, Message(label="a", admin_queue=ACKS, ack="receive"))
    reasons: list[int] = []
    harness.manager.watch(Watcher(removed=lambda queue, records, reason, now: reasons.extend([reason] * len(records))))
    harness.read(LEDGER, transaction=transaction)
    assert (reasons, harness.classes(ACKS), harness.queue(LEDGER).count) == ([], [], 1)
    commit(harness, transaction)
    assert (reasons, harness.classes(ACKS), harness.queue(LEDGER).count) == ([0x4000], [0x4000], 0)


@pytest.mark.spec("DM-3.1.4.4-03")
def test_what_is_received_and_committed_was_received_though_it_was_purged_meanwhile(
    harness: Harness, transaction: Transaction
) -> None:
    harness.send_transactional(LEDGER, Message(label="a", admin_queue=ACKS, ack=("receive", "nack-receive")))
    harness.read(LEDGER, transaction=transaction)
    harness.purge(LEDGER)
    commit(harness, transaction)
    assert (harness.classes(ACKS), harness.queue(LEDGER).count) == ([0x4000], 0)


@pytest.mark.spec("DM-3.1.4.4-04")
def test_what_is_moved_is_in_the_other_queue_after_the_commit(harness: Harness, transaction: Transaction) -> None:
    harness.send_transactional(LEDGER, "a")
    harness.send_transactional(BOOKS, "b")
    answer = harness.ask(harness.open(BOOKS), count=5)
    assert answer.labels == ["b"]
    waiting = harness.ask(harness.open(BOOKS))
    (record,) = harness.queue(LEDGER).available(1)
    harness.manager.transacting.move(harness.queue(LEDGER), harness.queue(BOOKS), record, transaction)
    assert waiting.waits
    commit(harness, transaction)
    assert waiting.labels == ["a"]
    assert harness.queue(LEDGER).count == 0


@pytest.mark.spec("DM-3.1.4.4-05", "DM-3.1.1.14-01")
def test_everything_happens_in_the_order_of_the_calls(harness: Harness, transaction: Transaction) -> None:
    harness.send_transactional(LEDGER, "x", "y")
    taken: list[str] = []
    harness.manager.watch(Watcher(removed=lambda queue, records, reason, now: taken.extend(labels(records))))
    harness.send(BOOKS, "1", transaction=transaction)
    harness.read(LEDGER, transaction=transaction)
    harness.send(BOOKS, "2", "3", transaction=transaction)
    harness.read(LEDGER, transaction=transaction)
    harness.send(BOOKS, "4", transaction=transaction)
    commit(harness, transaction)
    assert (taken, harness.labels(BOOKS)) == (["x", "y"], ["1", "2", "3", "4"])
    assert (transaction.operations, harness.manager.transactions) == ([], {})


@pytest.mark.spec("DM-3.1.4.4-01", "DM-3.1.4.5-01")
@pytest.mark.parametrize("first", [commit, abort])
@pytest.mark.parametrize("second", [commit, abort])
def test_a_transaction_ends_once(harness: Harness, transaction: Transaction, first: End, second: End) -> None:
    harness.send(LEDGER, "a", transaction=transaction)
    first(harness, transaction)
    before = harness.labels(LEDGER)
    with refused(0xC00E0051):
        second(harness, transaction)
    assert harness.labels(LEDGER) == before


@pytest.mark.spec("DM-3.1.4.4-01", "DM-3.1.4.5-01")
def test_an_identifier_that_nobody_began_is_out_of_sequence(harness: Harness) -> None:
    with refused(0xC00E0051):
        harness.manager.transaction(uuid4())
    for end in (commit, abort):
        with refused(0xC00E0051):
            end(harness, Transaction(uuid4(), 1))


# Abort


@pytest.mark.spec("DM-3.1.4.5-02", "DM-3.1.4.5-04", "DM-3.1.7.1.16-04")
def test_what_was_read_is_back_in_its_old_place_after_an_abort(harness: Harness, transaction: Transaction) -> None:
    harness.send_transactional(LEDGER, "a", "b", "c")
    harness.read(LEDGER, count=2, transaction=transaction)
    (record,) = harness.queue(LEDGER).available(1)
    harness.manager.transacting.move(harness.queue(LEDGER), harness.queue(BOOKS), record, transaction)
    assert harness.labels(LEDGER) == []
    abort(harness, transaction)
    assert (harness.labels(LEDGER), harness.labels(BOOKS)) == (["a", "b", "c"], [])
    assert (transaction.operations, harness.manager.transactions) == ([], {})


@pytest.mark.spec("DM-3.1.4.5-02")
def test_what_was_purged_while_it_was_read_is_gone_after_an_abort(harness: Harness, transaction: Transaction) -> None:
    harness.send_transactional(LEDGER, Message(label="a", admin_queue=ACKS, ack="nack-receive"))
    harness.read(LEDGER, transaction=transaction)
    harness.purge(LEDGER)
    abort(harness, transaction)
    assert (harness.queue(LEDGER).count, harness.classes(ACKS)) == (0, [0xC001])


@pytest.mark.spec("DM-3.1.4.5-03")
def test_what_was_sent_never_was_after_an_abort(harness: Harness, transaction: Transaction) -> None:
    answer = harness.ask(harness.open(LEDGER))
    harness.send(LEDGER, Message(admin_queue=ACKS, ack="full", dead_letter=True), transaction=transaction)
    abort(harness, transaction)
    assert (harness.labels(LEDGER), harness.labels(ACKS), harness.labels(DEADXACT)) == ([], [], [])
    assert (answer.waits, harness.queue(LEDGER).count) == (True, 0)


def aborted(harness: Harness, queue: Queue) -> list[Record]:
    """The messages after one more read and abort."""
    transaction = harness.manager.begin()
    harness.read(queue.properties.path, count=9, transaction=transaction)
    abort(harness, transaction)
    return queue.available(9)


def test_each_abort_is_counted_and_the_last_one_that_is_allowed_puts_the_message_aside(
    harness: Harness, transaction: Transaction
) -> None:
    harness.send_transactional(BOOKS, "poison")
    books = harness.queue(BOOKS)
    assert [[record.aborts for record in aborted(harness, books)] for _ in range(3)] == [[1], [2], []]
    (record,) = harness.queue(rf"{BOOKS};poison").available(9)
    assert (record.aborts, labels([record])) == (3, ["poison"])
    assert books.count == 0
    harness.restart()
    assert harness.labels(rf"{BOOKS};poison") == ["poison"]


def test_aborts_are_counted_across_a_restart(harness: Harness, transaction: Transaction) -> None:
    harness.send_transactional(BOOKS, "a")
    aborted(harness, harness.queue(BOOKS))
    harness.restart()
    assert [record.aborts for record in aborted(harness, harness.queue(BOOKS))] == [2]


# Queues that are deleted meanwhile


@pytest.mark.parametrize("end", [commit, abort])
def test_a_read_of_a_deleted_queue_ends_without_a_trace(harness: Harness, transaction: Transaction, end: End) -> None:
    harness.create(r"private$\kept", transactional=True)
    queue = harness.create(r"private$\short", transactional=True, journal=True, abort_limit=1)
    harness.send_transactional(
        r"private$\short", Message(label="a", admin_queue=ACKS, ack=("receive", "nack-receive")), "b"
    )
    harness.read(r"private$\short", transaction=transaction)
    (moved,) = queue.available(1)
    harness.manager.transacting.move(queue, harness.queue(r"private$\kept"), moved, transaction)
    harness.delete(r"private$\short")
    assert harness.classes(ACKS) == [0xC000]
    end(harness, transaction)
    assert harness.classes(ACKS) == [0xC000]
    assert queue.journal is not None
    assert [queue.count, queue.journal.count, queue.stored_bytes, queue.reserved_bytes] == [0, 0, 0, 0]
    kept = harness.queue(r"private$\kept")
    assert (kept.count, kept.reserved_bytes) == (0, 0)
    assert harness.store.scan(queue.number) == harness.store.scan(queue.journal.number) == []


def test_what_is_sent_to_a_queue_that_is_deleted_before_the_commit_is_a_dead_letter(
    harness: Harness, transaction: Transaction
) -> None:
    queue = harness.queue(LEDGER)
    message = Message(label="a", dead_letter=True, admin_queue=ACKS, ack="nack-receive")
    harness.send(LEDGER, message, "b", transaction=transaction)
    harness.delete(LEDGER)
    commit(harness, transaction)
    assert (harness.labels(DEADXACT), harness.classes(DEADXACT), harness.classes(ACKS)) == (["a"], [0xC000], [0xC000])
    assert (queue.reserved_bytes, harness.store.scan(queue.number)) == (0, [])


def test_a_move_to_a_queue_that_is_deleted_before_the_commit_leaves_the_message(
    harness: Harness, transaction: Transaction
) -> None:
    harness.send_transactional(LEDGER, "a")
    (record,) = harness.queue(LEDGER).available(1)
    harness.manager.transacting.move(harness.queue(LEDGER), harness.queue(BOOKS), record, transaction)
    harness.delete(BOOKS)
    commit(harness, transaction)
    assert harness.labels(LEDGER) == ["a"]


# The TransactionHeader


@pytest.mark.spec("MQ-2.2.20.5-07", "DM-3.1.4.3-02")
def test_the_first_and_the_last_message_of_a_transaction_say_so(harness: Harness) -> None:
    harness.send_transactional(LEDGER, "a", "b", "c")
    harness.send_transactional(LEDGER, "alone")
    flags = [(header.first_in_transaction, header.last_in_transaction) for header in headers(harness, LEDGER)]
    assert flags == [(True, False), (False, False), (False, True), (True, True)]


@pytest.mark.spec("MQ-2.2.20.5-09")
def test_the_messages_of_a_transaction_share_its_id(harness: Harness, transaction: Transaction) -> None:
    harness.send(LEDGER, "a", transaction=transaction)
    harness.send(ELSEWHERE, "b", transaction=transaction)
    harness.send_transactional(LEDGER, "another")
    commit(harness, transaction)
    another, mine = (header.transaction_id for header in headers(harness, LEDGER))
    (elsewhere,) = (header.transaction_id for header in headers(harness, ELSEWHERE))
    assert mine == elsewhere != another


@pytest.mark.spec("MQ-2.2.20.5-13", "MQ-2.2.20.5-14")
def test_messages_to_one_destination_are_numbered_from_1_on(harness: Harness) -> None:
    harness.send_transactional(ELSEWHERE, "a", "b")
    harness.send_transactional(LEDGER, "not in this sequence")
    harness.send_transactional(ELSEWHERE, "c")
    numbers = [(header.sequence_number, header.previous_sequence_number) for header in headers(harness, ELSEWHERE)]
    assert numbers == [(1, 0), (2, 1), (3, 2)]


@pytest.mark.spec("MQ-2.2.20.5-12", "DM-3.1.1.12-33", "MQ-2.2.18.1.2-03", "QB-3.1.1.3.1-08", "QB-3.1.1.3.1-10")
@pytest.mark.spec("QB-3.1.1.3.1-11")
@pytest.mark.parametrize("seconds", [0, 5, -5])
def test_a_start_begins_a_later_sequence_whatever_the_clock_says(harness: Harness, seconds: float) -> None:
    harness.send_transactional(ELSEWHERE, "a", "b")
    before, _ = headers(harness, ELSEWHERE)
    harness.purge(ELSEWHERE)
    harness.now += seconds
    harness.restart()
    harness.send_transactional(ELSEWHERE, "c")
    (after,) = headers(harness, ELSEWHERE)
    assert after.sequence_id > before.sequence_id
    assert (after.sequence_number, after.previous_sequence_number) == (1, 0)


@pytest.mark.spec("QB-3.1.1.3.1-14")
@pytest.mark.parametrize("seconds", [0, 5, -5])
def test_a_sequence_goes_on_after_a_start_while_messages_of_it_wait(harness: Harness, seconds: float) -> None:
    harness.send_transactional(ELSEWHERE, "a", "b")
    harness.now += seconds
    harness.restart()
    harness.send_transactional(ELSEWHERE, "c")
    places = headers(harness, ELSEWHERE)
    assert [(each.sequence_number, each.previous_sequence_number) for each in places] == [(1, 0), (2, 1), (3, 2)]
    assert len({each.sequence_id for each in places}) == 1


def test_numbers_go_on_after_a_start_where_a_tick_was_lost(harness: Harness) -> None:
    harness.send_transactional(ELSEWHERE, "a")
    transaction = harness.manager.begin()
    harness.promise(ELSEWHERE, "lost", transaction=transaction)
    harness.manager.commit(transaction, harness.now)
    tick = harness.seal()
    transaction = harness.manager.begin()
    harness.promise(ELSEWHERE, "b", transaction=transaction)
    harness.manager.commit(transaction, harness.now)
    harness.lose(tick)
    harness.tick()
    harness.restart()
    harness.send_transactional(ELSEWHERE, "c")
    assert [each.sequence_number for each in headers(harness, ELSEWHERE)] == [1, 2, 3]


def test_numbers_go_on_where_an_outgoing_queue_is_deleted_and_made_again(harness: Harness) -> None:
    harness.send_transactional(ELSEWHERE, "a")
    harness.delete(ELSEWHERE)
    harness.send_transactional(ELSEWHERE, "b")
    (header,) = headers(harness, ELSEWHERE)
    assert header.sequence_number == 2


@pytest.mark.spec("MQ-2.2.19.1-07", "MQ-2.2.19.2-34", "DM-3.1.7.1.32-01")
def test_a_transactional_message_has_no_priority_and_is_recoverable(harness: Harness) -> None:
    harness.send_transactional(LEDGER, Message(priority=6, recoverable=False))
    harness.restart()
    (view,) = harness.messages(LEDGER)
    assert (view.priority, view.recoverable, view.transactional) == (0, True, True)


@pytest.mark.spec("MQ-2.2.20.5-17", "MQ-2.3.1.13-01")
def test_the_header_makes_a_message_transactional_and_decides_which_queue_takes_it(harness: Harness) -> None:
    harness.send_transactional(ELSEWHERE, "transactional")
    harness.send(ELSEWHERE, "plain")
    plain, transactional = harness.messages(ELSEWHERE)
    with refused(0xC00E0050):
        harness.manager.insert(harness.queue(ORDERS), [transactional], harness.now)
    with refused(0xC00E0050):
        harness.manager.insert(harness.queue(LEDGER), [plain], harness.now)
    harness.manager.insert(harness.queue(ORDERS), [plain], harness.now)
    harness.manager.insert(harness.queue(LEDGER), [transactional], harness.now)
    harness.tick()
    assert (harness.labels(ORDERS), harness.labels(LEDGER)) == (["plain"], ["transactional"])


@pytest.mark.spec("DM-3.1.1.12-33")
def test_a_message_outside_of_a_transaction_has_no_sequence(harness: Harness) -> None:
    harness.send(ORDERS, "a")
    (view,) = harness.messages(ORDERS)
    assert (view.transactional, view.transaction_header) == (False, None)


# The tick that carries a transaction


def test_a_commit_that_cannot_be_written_is_an_abort(harness: Harness, transaction: Transaction) -> None:
    harness.send_transactional(LEDGER, "a")
    harness.read(LEDGER, transaction=transaction)
    harness.send(BOOKS, "b", transaction=transaction)
    harness.manager.commit(transaction, harness.now)
    harness.fail()
    assert (harness.labels(LEDGER), harness.labels(BOOKS)) == (["a"], [])
    assert harness.queue(BOOKS).reserved_bytes == 0
    with pytest.raises(TransactionSequence):
        abort(harness, transaction)


@pytest.mark.spec("MQ-2.4-23")
@pytest.mark.parametrize("ended", ["committed", "aborted"])
@pytest.mark.parametrize("call", [commit, abort])
def test_the_end_of_a_transaction_that_is_not_open_is_out_of_sequence(
    harness: Harness, transaction: Transaction, ended: str, call: End
) -> None:
    (commit if ended == "committed" else abort)(harness, transaction)
    with pytest.raises(PostroadError) as caught:
        call(harness, transaction)
    assert caught.value.status == 0xC00E0051


def test_the_numbers_of_a_lost_commit_are_given_to_the_messages_behind_it(harness: Harness) -> None:
    harness.send_transactional(ELSEWHERE, "a")
    for label in "bc":
        transaction = harness.manager.begin()
        harness.promise(ELSEWHERE, label, f"{label}2", transaction=transaction)
        harness.manager.commit(transaction, harness.now)
        if label == "b":
            lost = harness.seal()
    harness.lose(lost)
    harness.tick()
    harness.send_transactional(ELSEWHERE, "d")
    assert harness.labels(ELSEWHERE) == ["a", "c", "c2", "d"]
    numbers = [(header.sequence_number, header.previous_sequence_number) for header in headers(harness, ELSEWHERE)]
    assert numbers == [(1, 0), (2, 1), (3, 2), (4, 3)]


def test_sequences_are_apart_by_chance_and_only_grow(harness: Harness) -> None:
    """The announced sequence is the next one. When an ordinal overflows, the time stamp grows with it."""
    steps = iter([5, 1 << 24, (1 << 32) - 10, 7])
    harness.chance = Chance(uuid4, lambda below: next(steps) - 1 if below == MOST_APART else 0)
    harness.restart()
    transacting = harness.manager.transacting
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
