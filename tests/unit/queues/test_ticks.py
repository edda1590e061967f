"""Lost ticks: what was promised in one, and what others had built on it meanwhile."""

from __future__ import annotations

from uuid import UUID

import pytest

from postroad.errors import QueueNotFound
from postroad.message import Composer, Message
from postroad.names import parse_format_name
from postroad.queues.delivery import new_records
from postroad.reports.operations import QueueAccess
from postroad.store.interface import NEVER, PRIORITY_SHIFT, Record
from tests.unit.queues.harness import DISK_FULL, ELSEWHERE, LEDGER, ORDERS, Harness

NEW = r"private$\new"


def test_nothing_to_write_is_not_a_tick(harness: Harness) -> None:
    assert harness.manager.ticks.seal() is None
    harness.manager.send(ORDERS, [Message(label="express")], harness.now)
    assert harness.manager.ticks.seal() is None


def test_messages_appear_when_their_tick_has_landed(harness: Harness) -> None:
    harness.promise(ORDERS, "a")
    tick = harness.seal()
    assert (harness.labels(ORDERS), harness.queue(ORDERS).used_bytes > 0) == ([], True)
    harness.land(tick)
    assert harness.labels(ORDERS) == ["a"]
    assert harness.queue(ORDERS).reserved_bytes == 0


def test_what_was_promised_in_a_lost_tick_never_was(harness: Harness) -> None:
    answer = harness.ask(harness.open(ORDERS))
    harness.promise(ORDERS, "a")
    harness.fail()
    queue = harness.queue(ORDERS)
    assert (harness.labels(ORDERS), queue.count, queue.used_bytes, answer.waits) == ([], 0, 0, True)
    harness.send(ORDERS, "b")
    assert answer.labels == ["b"]


def test_what_was_taken_in_a_lost_tick_is_there_again_and_serves_who_waits(harness: Harness) -> None:
    harness.send(ORDERS, "a")
    (record,) = harness.lock(ORDERS)
    harness.manager.reading.end(harness.queue(ORDERS), record, harness.now, delete=True)
    lost = harness.seal()
    answer = harness.ask(harness.open(ORDERS))
    assert answer.waits
    harness.lose(lost)
    assert answer.labels == ["a"]


@pytest.mark.parametrize("recoverable", [False, True])
def test_records_that_come_together_are_as_good_as_one_after_the_other(harness: Harness, recoverable: bool) -> None:
    manager, queue = harness.manager, harness.queue(ORDERS)
    packets = composed("abc", recoverable=recoverable)
    manager.delivery.put_all(queue, records_of(harness, packets), harness.now)
    harness.tick()
    assert harness.labels(ORDERS) == ["a", "b", "c"]
    assert (queue.count, queue.used_bytes, queue.reserved_bytes) == (3, sum(map(len, packets)), 0)
    assert manager.delivery.tally.added == 3
    assert queue.last_added_at == harness.now


@pytest.mark.parametrize("recoverable", [False, True])
def test_they_are_taken_back_together(harness: Harness, recoverable: bool) -> None:
    manager, queue = harness.manager, harness.queue(ORDERS)
    records = records_of(harness, composed("abc", recoverable=recoverable))

    def put_and_fail() -> None:
        with manager.delivery.atomic:
            manager.delivery.put_all(queue, records, harness.now)
            raise KeyError

    with pytest.raises(KeyError):
        put_and_fail()
    assert (queue.count, queue.used_bytes, manager.tick.batch.puts) == (0, 0, {})
    harness.send(ORDERS, "later")
    assert harness.labels(ORDERS) == ["later"]
    assert queue.count == 1


def composed(labels: str, *, recoverable: bool) -> list[bytes]:
    composer = Composer(UUID(int=7), parse_format_name(r"DIRECT=OS:.\private$\orders"))
    return [
        composer.compose(Message(label=label, recoverable=recoverable), number, 5)
        for number, label in enumerate(labels)
    ]


def records_of(harness: Harness, packets: list[bytes]) -> list[Record]:
    first = 4 << PRIORITY_SHIFT | harness.manager.counters.take_arrivals(len(packets))
    ids = range(first, first + len(packets))
    return new_records(harness.queue(ORDERS).number, ids, 5, [NEVER] * len(packets), packets)


def test_callers_hear_how_their_tick_ended(harness: Harness) -> None:
    heard: list[object] = []
    for end in (harness.fail, harness.tick):
        harness.promise(ORDERS, "a")
        harness.manager.tick.on_commit.append(lambda: heard.append("committed"))
        harness.manager.tick.on_failure.append(heard.append)
        end()
    assert heard == [DISK_FULL, "committed"]


# Queues


def test_a_queue_of_a_lost_tick_never_was(harness: Harness) -> None:
    harness.manager.create_queue(NEW, harness.now)
    harness.fail()
    harness.tick()
    with pytest.raises(QueueNotFound):
        harness.queue(NEW)
    assert harness.create(NEW).journal is harness.queue(rf"{NEW};journal")


@pytest.mark.parametrize("message", [Message(label="a", recoverable=True), Message(label="a")])
def test_an_outgoing_queue_of_a_lost_tick_stays_for_those_who_have_sent_since(
    harness: Harness, message: Message
) -> None:
    harness.promise(ELSEWHERE, "lost")
    lost = harness.seal()
    harness.promise(ELSEWHERE, message)
    harness.lose(lost)
    harness.tick()
    assert harness.labels(ELSEWHERE) == ["a"]
    harness.restart()
    assert harness.labels(ELSEWHERE) == (["a"] if message.recoverable else [])


def test_an_outgoing_queue_of_a_lost_tick_stays_for_an_open_transaction(harness: Harness) -> None:
    harness.promise(ELSEWHERE, "lost")
    lost = harness.seal()
    transaction = harness.manager.begin()
    harness.promise(ELSEWHERE, "a", transaction=transaction)
    harness.lose(lost)
    harness.manager.commit(transaction, harness.now)
    harness.tick()
    harness.restart()
    assert harness.labels(ELSEWHERE) == ["a"]


def test_a_queue_of_a_lost_tick_stays_with_its_journal_for_those_who_have_opened_it(harness: Harness) -> None:
    harness.manager.create_queue(NEW, harness.now, journal=True)
    lost = harness.seal()
    descriptor = harness.open(NEW)
    harness.lose(lost)
    harness.tick()
    assert descriptor.queue is harness.queue(NEW)
    harness.send(NEW, "a")
    harness.receive(NEW)
    harness.restart()
    assert harness.labels(rf"{NEW};journal") == ["a"]


def test_a_queue_stays_through_two_lost_ticks(harness: Harness) -> None:
    descriptor = harness.open(ELSEWHERE, QueueAccess.SEND)
    harness.fail()
    harness.fail()
    harness.tick()
    assert descriptor.queue is harness.queue(ELSEWHERE)
    harness.manager.close(descriptor)
    harness.restart()
    harness.queue(ELSEWHERE)


def test_a_change_of_a_lost_tick_never_was(harness: Harness) -> None:
    queue = harness.queue(ORDERS)
    before = queue.properties.encode()
    harness.manager.queues.change(harness.manager.tick, queue, 1, label="new", quota_kb=1, journal_quota_kb=5)
    harness.fail()
    assert queue.properties.encode() == before
    assert queue.journal is not None
    assert queue.journal.quota_bytes == 1 << 30


def test_a_later_change_does_not_bring_a_lost_one_back(harness: Harness) -> None:
    queue = harness.queue(ORDERS)
    harness.manager.queues.change(harness.manager.tick, queue, 1, label="lost")
    lost = harness.seal()
    harness.manager.queues.change(harness.manager.tick, queue, 2, quota_kb=5)
    harness.lose(lost)
    harness.tick()
    harness.restart()
    properties = harness.queue(ORDERS).properties
    assert (properties.label, properties.quota_kb) == ("", 5)


def test_a_poisoned_message_of_a_lost_tick_is_back_in_its_queue(harness: Harness) -> None:
    queue = harness.create(NEW, transactional=True, abort_limit=1)
    harness.send_transactional(NEW, "a")
    transaction = harness.manager.begin()
    harness.read(NEW, transaction=transaction)
    harness.manager.abort(transaction, harness.now)
    harness.fail()
    harness.tick()
    assert (harness.labels(NEW), queue.subqueues) == (["a"], {})


def test_an_abort_that_is_lost_is_not_counted(harness: Harness) -> None:
    harness.send_transactional(LEDGER, "a")
    transaction = harness.manager.begin()
    harness.read(LEDGER, transaction=transaction)
    harness.manager.abort(transaction, harness.now)
    harness.fail()
    assert [record.aborts for record in harness.queue(LEDGER).available(1)] == [0]
