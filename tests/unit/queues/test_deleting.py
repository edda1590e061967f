"""Delete Queue, [MS-MQDMPR] 3.1.7.1.4: nothing of the queue is left, wherever its messages are at that moment."""

from __future__ import annotations

import pytest

from postroad.errors import AccessDenied, QueueNotFound
from postroad.message import Message
from postroad.queues.queue import Queue
from postroad.reports.operations import ReadCall
from tests.unit.queues.harness import (
    ACKS,
    DEADLETTER,
    DEADXACT,
    ELSEWHERE,
    IDENTIFIER,
    JOURNAL,
    LEDGER,
    ORDERS,
    OTHER,
    Harness,
    refused,
)


def reported(label: str, *, recoverable: bool = True) -> Message:
    return Message(label=label, recoverable=recoverable, admin_queue=ACKS, ack="nack-receive,nack-reach-queue")


def nothing_is_left(harness: Harness, queue: Queue) -> bool:
    state = harness.store.state()
    family = harness.manager.queues.family(queue)
    return all(
        harness.store.scan(each.number) == []
        and harness.manager.express.scan(each.number) == []
        and f"queue/{each.number}" not in state
        and f"count/{each.number}" not in state
        and (each.count, each.total_bytes, each.reserved_bytes, each.positions) == (0, 0, 0, {})
        for each in family
    )


@pytest.mark.spec("DM-3.1.7.1.4-01")
def test_every_message_is_reported_whatever_its_state(harness: Harness) -> None:
    queue = harness.queue(ORDERS)
    harness.send(ORDERS, reported("purge pending"))
    harness.lock(ORDERS)
    harness.purge(ORDERS)
    harness.send(ORDERS, reported("locked"), reported("locked", recoverable=False))
    harness.lock(ORDERS, 2)
    harness.send(ORDERS, reported("available"), reported("available", recoverable=False))
    harness.delete(ORDERS)
    assert harness.classes(ACKS) == [0xC000] * 5
    assert nothing_is_left(harness, queue)


@pytest.mark.spec("DM-3.1.7.1.4-02")
def test_the_queue_is_gone_for_those_who_have_it_open_and_for_all_others(harness: Harness) -> None:
    descriptor = harness.open(ORDERS)
    harness.delete(ORDERS)
    assert descriptor.queue is None
    for call in (ReadCall.PEEK, ReadCall.RECEIVE):
        with refused(0xC00E004B):
            harness.read(descriptor, call)
    with pytest.raises(QueueNotFound):
        harness.queue(ORDERS)
    with pytest.raises(QueueNotFound):
        harness.send(ORDERS, "a")


def test_journal_and_subqueues_go_with_their_queue(harness: Harness) -> None:
    queue = harness.create(r"private$\kept", journal=True)
    harness.manager.queues.subqueue(harness.manager.tick, queue, "aside", int(harness.now))
    harness.send(r"private$\kept", "a", "b")
    harness.receive(r"private$\kept")
    harness.manager.move(queue, queue.subqueues["aside"], queue.available(1), harness.now)
    harness.tick()
    assert [each.count for each in harness.manager.queues.family(queue)] == [0, 1, 1]
    harness.delete(r"private$\kept")
    assert nothing_is_left(harness, queue)
    harness.restart()
    with pytest.raises(QueueNotFound):
        harness.queue(r"private$\kept;journal")


def test_a_subqueue_can_go_alone(harness: Harness) -> None:
    queue = harness.queue(ORDERS)
    harness.manager.queues.subqueue(harness.manager.tick, queue, "aside", int(harness.now))
    harness.tick()
    harness.delete(rf"{ORDERS};aside")
    assert queue.subqueues == {}
    harness.restart()
    assert harness.queue(ORDERS).subqueues == {}


def test_messages_that_were_to_be_kept_are_dead_letters(harness: Harness) -> None:
    harness.send(ORDERS, Message(label="a", recoverable=True, dead_letter=True))
    harness.send_transactional(LEDGER, Message(label="b", dead_letter=True))
    harness.delete(ORDERS)
    harness.delete(LEDGER)
    assert (harness.labels(DEADLETTER), harness.labels(DEADXACT)) == (["a"], ["b"])


def test_a_message_on_its_way_was_deleted_before_it_arrived(harness: Harness) -> None:
    harness.send(ELSEWHERE, reported("a"))
    harness.delete(ELSEWHERE)
    assert harness.classes(ACKS) == [0x8001]
    assert (harness.manager.queues.outgoing, harness.manager.queues.outgoing_info) == ({}, {})


@pytest.mark.parametrize("path", [JOURNAL, DEADLETTER, DEADXACT, rf"{ORDERS};journal", r"private$\order_queue$"])
def test_what_belongs_to_the_manager_or_to_a_queue_is_not_deleted(harness: Harness, path: str) -> None:
    with pytest.raises(AccessDenied):
        harness.delete(path)


def test_an_acknowledgment_does_not_come_back_to_the_queue_that_is_deleted(harness: Harness) -> None:
    queue = harness.queue(ACKS)
    harness.send(ACKS, reported("a"), reported("b", recoverable=False))
    harness.delete(ACKS)
    assert nothing_is_left(harness, queue)


# Between a promise and its commit


def test_a_message_that_is_promised_goes_with_the_queue(harness: Harness) -> None:
    queue = harness.queue(ORDERS)
    harness.promise(ORDERS, reported("a"))
    harness.delete(ORDERS)
    assert nothing_is_left(harness, queue)
    assert harness.classes(ACKS) == [0xC000]


def test_a_message_whose_tick_is_on_its_way_goes_when_that_lands(harness: Harness) -> None:
    queue = harness.queue(ORDERS)
    harness.promise(ORDERS, reported("a"))
    tick = harness.seal()
    harness.manager.delete_queue(queue, harness.now)
    harness.land(tick)
    harness.tick()
    assert nothing_is_left(harness, queue)
    assert harness.classes(ACKS) == [0xC000]


def test_a_message_whose_receive_cannot_be_written_goes_with_the_queue(harness: Harness) -> None:
    queue = harness.queue(ORDERS)
    harness.send(ORDERS, reported("a"))
    (record,) = harness.lock(ORDERS)
    harness.manager.reading.end(queue, record, harness.now, delete=True)
    tick = harness.seal()
    harness.manager.delete_queue(queue, harness.now)
    harness.lose(tick)
    harness.tick()
    assert nothing_is_left(harness, queue)
    assert harness.classes(ACKS) == [0xC000]


def test_a_new_queue_has_no_messages_of_an_old_one(harness: Harness) -> None:
    harness.promise(ORDERS, "old")
    harness.manager.delete_queue(harness.queue(ORDERS), harness.now)
    harness.create(ORDERS)
    harness.restart()
    assert harness.create(r"private$\new").available(9) == harness.queue(ORDERS).available(9) == []


def test_a_deletion_that_cannot_be_written_has_not_been(harness: Harness) -> None:
    queue = harness.queue(ORDERS)
    harness.manager.queues.subqueue(harness.manager.tick, queue, "aside", int(harness.now))
    harness.send(ORDERS, "a")
    harness.manager.delete_queue(queue, harness.now)
    harness.fail()
    harness.tick()
    assert harness.queue(ORDERS) is queue is harness.queue(f"PRIVATE={IDENTIFIER}\\8")
    assert harness.queue(rf"{ORDERS};aside").properties.owner == queue.number
    assert (harness.labels(ORDERS), queue.total_bytes > 0, queue.deleted) == (["a"], True, False)
    harness.restart()
    assert harness.labels(ORDERS) == ["a"]


def test_a_queue_that_was_made_and_deleted_in_a_lost_tick_never_was(harness: Harness) -> None:
    queue = harness.manager.create_queue(r"private$\short", harness.now)
    harness.manager.delete_queue(queue, harness.now)
    harness.manager.create_queue(r"private$\short", harness.now)
    harness.fail()
    harness.tick()
    with pytest.raises(QueueNotFound):
        harness.queue(r"private$\short")
    harness.restart()
    with pytest.raises(QueueNotFound):
        harness.queue(r"private$\short")


def test_a_queue_that_comes_back_leaves_its_path_to_the_one_that_has_it(harness: Harness) -> None:
    old = harness.queue(ORDERS)
    harness.send(ORDERS, "old")
    harness.manager.delete_queue(old, harness.now)
    tick = harness.seal()
    new = harness.manager.create_queue(ORDERS, harness.now)
    harness.lose(tick)
    harness.tick()
    assert harness.queue(ORDERS) is new
    assert harness.manager.queues.by_number[old.number] is old
    assert [record.packet for record in old.available(9)] != []
    harness.restart()
    assert harness.queue(ORDERS).number == new.number


def test_a_queue_that_comes_back_has_its_path_again_when_its_successor_is_lost_too(harness: Harness) -> None:
    for name in (ORDERS, ELSEWHERE):
        harness.send(name, "old")
        old = harness.queue(name)
        harness.manager.delete_queue(old, harness.now)
        first = harness.seal()
        if name == ORDERS:
            harness.manager.create_queue(ORDERS, harness.now)
        harness.promise(name, "new")
        harness.lose(first)
        harness.fail()
        harness.tick()
        assert (harness.queue(name), harness.labels(name)) == (old, ["old"])


def test_the_journal_of_another_queue_is_not_touched(harness: Harness) -> None:
    harness.manager.queues.change(harness.manager.tick, harness.queue(OTHER), 0, journal=True)
    harness.send(OTHER, "a")
    harness.receive(OTHER)
    harness.delete(ORDERS)
    assert harness.labels(rf"{OTHER};journal") == ["a"]
