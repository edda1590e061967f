"""Ticks that are lost: what was promised in one, and what others had built on it meanwhile."""

from __future__ import annotations

import pytest

from postroad.errors import QueueNotFound
from postroad.message import Message
from postroad.queues.descriptor import QueueAccess
from tests.unit.queues.office import DISK_FULL, ELSEWHERE, LEDGER, ORDERS, Office

NEW = r"private$\new"


def test_nothing_to_write_is_no_tick(office: Office) -> None:
    assert office.manager.ticks.seal() is None
    office.manager.send(ORDERS, [Message(label="express")], office.now)
    assert office.manager.ticks.seal() is None


def test_messages_appear_when_their_tick_has_landed(office: Office) -> None:
    office.promise(ORDERS, "a")
    tick = office.seal()
    assert (office.labels(ORDERS), office.queue(ORDERS).used_bytes > 0) == ([], True)
    office.land(tick)
    assert office.labels(ORDERS) == ["a"]
    assert office.queue(ORDERS).reserved_bytes == 0


def test_what_was_promised_in_a_lost_tick_never_was(office: Office) -> None:
    answer = office.ask(office.open(ORDERS))
    office.promise(ORDERS, "a")
    office.fail()
    queue = office.queue(ORDERS)
    assert (office.labels(ORDERS), queue.count, queue.used_bytes, answer.waits) == ([], 0, 0, True)
    office.send(ORDERS, "b")
    assert answer.labels == ["b"]


def test_what_was_taken_in_a_lost_tick_is_there_again_and_serves_who_waits(office: Office) -> None:
    office.send(ORDERS, "a")
    (record,) = office.lock(ORDERS)
    office.manager.reading.end(office.queue(ORDERS), record, office.now, delete=True)
    lost = office.seal()
    answer = office.ask(office.open(ORDERS))
    assert answer.waits
    office.lose(lost)
    assert answer.labels == ["a"]


def test_callers_hear_how_their_tick_ended(office: Office) -> None:
    heard: list[object] = []
    for end in (office.fail, office.tick):
        office.promise(ORDERS, "a")
        office.manager.tick.on_commit.append(lambda: heard.append("committed"))
        office.manager.tick.on_failure.append(heard.append)
        end()
    assert heard == [DISK_FULL, "committed"]


# Queues


def test_a_queue_of_a_lost_tick_never_was(office: Office) -> None:
    office.manager.create_queue(NEW, office.now)
    office.fail()
    office.tick()
    with pytest.raises(QueueNotFound):
        office.queue(NEW)
    assert office.create(NEW).journal is office.queue(rf"{NEW};journal")


@pytest.mark.parametrize("message", [Message(label="a", recoverable=True), Message(label="a")])
def test_an_outgoing_queue_of_a_lost_tick_stays_for_those_who_have_sent_since(office: Office, message: Message) -> None:
    office.promise(ELSEWHERE, "lost")
    lost = office.seal()
    office.promise(ELSEWHERE, message)
    office.lose(lost)
    office.tick()
    assert office.labels(ELSEWHERE) == ["a"]
    office.restart()
    assert office.labels(ELSEWHERE) == (["a"] if message.recoverable else [])


def test_an_outgoing_queue_of_a_lost_tick_stays_for_an_open_transaction(office: Office) -> None:
    office.promise(ELSEWHERE, "lost")
    lost = office.seal()
    transaction = office.manager.begin()
    office.promise(ELSEWHERE, "a", transaction=transaction)
    office.lose(lost)
    office.manager.commit(transaction, office.now)
    office.tick()
    office.restart()
    assert office.labels(ELSEWHERE) == ["a"]


def test_a_queue_of_a_lost_tick_stays_with_its_journal_for_those_who_have_opened_it(office: Office) -> None:
    office.manager.create_queue(NEW, office.now, journaling=True)
    lost = office.seal()
    descriptor = office.open(NEW)
    office.lose(lost)
    office.tick()
    assert descriptor.queue is office.queue(NEW)
    office.send(NEW, "a")
    office.receive(NEW)
    office.restart()
    assert office.labels(rf"{NEW};journal") == ["a"]


def test_a_queue_stays_through_two_lost_ticks(office: Office) -> None:
    descriptor = office.open(ELSEWHERE, QueueAccess.SEND)
    office.fail()
    office.fail()
    office.tick()
    assert descriptor.queue is office.queue(ELSEWHERE)
    office.manager.close(descriptor)
    office.restart()
    office.queue(ELSEWHERE)


def test_a_change_of_a_lost_tick_never_was(office: Office) -> None:
    queue = office.queue(ORDERS)
    before = queue.properties.encode()
    office.manager.queues.change(office.manager.tick, queue, 1, label="new", quota_kb=1, journal_quota_kb=5)
    office.fail()
    assert queue.properties.encode() == before
    assert queue.journal is not None
    assert queue.journal.quota_bytes == 1 << 30


def test_a_later_change_does_not_bring_a_lost_one_back(office: Office) -> None:
    queue = office.queue(ORDERS)
    office.manager.queues.change(office.manager.tick, queue, 1, label="lost")
    lost = office.seal()
    office.manager.queues.change(office.manager.tick, queue, 2, quota_kb=5)
    office.lose(lost)
    office.tick()
    office.restart()
    properties = office.queue(ORDERS).properties
    assert (properties.label, properties.quota_kb) == ("", 5)


def test_a_poisoned_message_of_a_lost_tick_is_back_in_its_queue(office: Office) -> None:
    queue = office.create(NEW, transactional=True, abort_limit=1)
    office.send_transactional(NEW, "a")
    transaction = office.manager.begin()
    office.read(NEW, transaction=transaction)
    office.manager.abort(transaction, office.now)
    office.fail()
    office.tick()
    assert (office.labels(NEW), queue.subqueues) == (["a"], {})


def test_an_abort_that_is_lost_is_not_counted(office: Office) -> None:
    office.send_transactional(LEDGER, "a")
    transaction = office.manager.begin()
    office.read(LEDGER, transaction=transaction)
    office.manager.abort(transaction, office.now)
    office.fail()
    assert [record.aborts for record in office.queue(LEDGER).available(1)] == [0]
