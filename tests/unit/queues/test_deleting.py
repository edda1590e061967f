"""Delete Queue, [MS-MQDMPR] 3.1.7.1.4: nothing of the queue is left, wherever its messages were at that moment."""

from __future__ import annotations

import pytest

from postroad.errors import AccessDenied, QueueNotFound
from postroad.message import Message
from postroad.queues.queue import Queue
from postroad.values.reading import ReadCall
from tests.unit.queues.office import (
    ACKS,
    DEADLETTER,
    DEADXACT,
    ELSEWHERE,
    IDENTIFIER,
    JOURNAL,
    LEDGER,
    ORDERS,
    OTHER,
    Office,
    refused,
)


def reported(label: str, *, recoverable: bool = True) -> Message:
    return Message(label=label, recoverable=recoverable, admin_queue=ACKS, ack="nack-receive,nack-reach-queue")


def nothing_is_left(office: Office, queue: Queue) -> bool:
    state = office.store.state()
    family = office.manager.queues.family(queue)
    return all(
        office.store.scan(each.number) == []
        and office.manager.express.scan(each.number) == []
        and f"queue/{each.number}" not in state
        and f"count/{each.number}" not in state
        and (each.count, each.total_bytes, each.reserved_bytes, each.positions) == (0, 0, 0, {})
        for each in family
    )


@pytest.mark.spec("DM-3.1.7.1.4-01")
def test_every_message_is_reported_whatever_its_state(office: Office) -> None:
    queue = office.queue(ORDERS)
    office.send(ORDERS, reported("purge pending"))
    office.lock(ORDERS)
    office.purge(ORDERS)
    office.send(ORDERS, reported("locked"), reported("locked", recoverable=False))
    office.lock(ORDERS, 2)
    office.send(ORDERS, reported("available"), reported("available", recoverable=False))
    office.delete(ORDERS)
    assert office.classes(ACKS) == [0xC000] * 5
    assert nothing_is_left(office, queue)


@pytest.mark.spec("DM-3.1.7.1.4-02")
def test_the_queue_is_gone_for_those_who_have_it_open_and_for_all_others(office: Office) -> None:
    descriptor = office.open(ORDERS)
    office.delete(ORDERS)
    assert descriptor.queue is None
    for call in (ReadCall.PEEK, ReadCall.RECEIVE):
        with refused(0xC00E004B):
            office.read(descriptor, call)
    with pytest.raises(QueueNotFound):
        office.queue(ORDERS)
    with pytest.raises(QueueNotFound):
        office.send(ORDERS, "a")


def test_journal_and_subqueues_go_with_their_queue(office: Office) -> None:
    queue = office.create(r"private$\kept", journal=True)
    office.manager.queues.subqueue(office.manager.tick, queue, "aside", int(office.now))
    office.send(r"private$\kept", "a", "b")
    office.receive(r"private$\kept")
    office.manager.move(queue, queue.subqueues["aside"], queue.available(1), office.now)
    office.tick()
    assert [each.count for each in office.manager.queues.family(queue)] == [0, 1, 1]
    office.delete(r"private$\kept")
    assert nothing_is_left(office, queue)
    office.restart()
    with pytest.raises(QueueNotFound):
        office.queue(r"private$\kept;journal")


def test_a_subqueue_can_go_alone(office: Office) -> None:
    queue = office.queue(ORDERS)
    office.manager.queues.subqueue(office.manager.tick, queue, "aside", int(office.now))
    office.tick()
    office.delete(rf"{ORDERS};aside")
    assert queue.subqueues == {}
    office.restart()
    assert office.queue(ORDERS).subqueues == {}


def test_messages_that_were_to_be_kept_are_dead_letters(office: Office) -> None:
    office.send(ORDERS, Message(label="a", recoverable=True, dead_letter=True))
    office.send_transactional(LEDGER, Message(label="b", dead_letter=True))
    office.delete(ORDERS)
    office.delete(LEDGER)
    assert (office.labels(DEADLETTER), office.labels(DEADXACT)) == (["a"], ["b"])


def test_a_message_on_its_way_was_deleted_before_it_arrived(office: Office) -> None:
    office.send(ELSEWHERE, reported("a"))
    office.delete(ELSEWHERE)
    assert office.classes(ACKS) == [0x8001]
    assert (office.manager.queues.outgoing, office.manager.queues.outgoing_info) == ({}, {})


@pytest.mark.parametrize("path", [JOURNAL, DEADLETTER, DEADXACT, rf"{ORDERS};journal", r"private$\order_queue$"])
def test_what_belongs_to_the_manager_or_to_a_queue_is_not_deleted(office: Office, path: str) -> None:
    with pytest.raises(AccessDenied):
        office.delete(path)


def test_an_acknowledgment_does_not_come_back_to_the_queue_that_is_deleted(office: Office) -> None:
    queue = office.queue(ACKS)
    office.send(ACKS, reported("a"), reported("b", recoverable=False))
    office.delete(ACKS)
    assert nothing_is_left(office, queue)


# Between a promise and its commit


def test_a_message_that_is_promised_goes_with_the_queue(office: Office) -> None:
    queue = office.queue(ORDERS)
    office.promise(ORDERS, reported("a"))
    office.delete(ORDERS)
    assert nothing_is_left(office, queue)
    assert office.classes(ACKS) == [0xC000]


def test_a_message_whose_tick_is_on_its_way_goes_when_that_lands(office: Office) -> None:
    queue = office.queue(ORDERS)
    office.promise(ORDERS, reported("a"))
    tick = office.seal()
    office.manager.delete_queue(queue, office.now)
    office.land(tick)
    office.tick()
    assert nothing_is_left(office, queue)
    assert office.classes(ACKS) == [0xC000]


def test_a_message_whose_receive_cannot_be_written_goes_with_the_queue(office: Office) -> None:
    queue = office.queue(ORDERS)
    office.send(ORDERS, reported("a"))
    (record,) = office.lock(ORDERS)
    office.manager.reading.end(queue, record, office.now, delete=True)
    tick = office.seal()
    office.manager.delete_queue(queue, office.now)
    office.lose(tick)
    office.tick()
    assert nothing_is_left(office, queue)
    assert office.classes(ACKS) == [0xC000]


def test_a_new_queue_has_no_messages_of_an_old_one(office: Office) -> None:
    office.promise(ORDERS, "old")
    office.manager.delete_queue(office.queue(ORDERS), office.now)
    office.create(ORDERS)
    office.restart()
    assert office.create(r"private$\new").available(9) == office.queue(ORDERS).available(9) == []


def test_a_deletion_that_cannot_be_written_has_not_been(office: Office) -> None:
    queue = office.queue(ORDERS)
    office.manager.queues.subqueue(office.manager.tick, queue, "aside", int(office.now))
    office.send(ORDERS, "a")
    office.manager.delete_queue(queue, office.now)
    office.fail()
    office.tick()
    assert office.queue(ORDERS) is queue is office.queue(f"PRIVATE={IDENTIFIER}\\8")
    assert office.queue(rf"{ORDERS};aside").properties.owner == queue.number
    assert (office.labels(ORDERS), queue.total_bytes > 0, queue.deleted) == (["a"], True, False)
    office.restart()
    assert office.labels(ORDERS) == ["a"]


def test_a_queue_that_was_made_and_deleted_in_a_lost_tick_never_was(office: Office) -> None:
    queue = office.manager.create_queue(r"private$\short", office.now)
    office.manager.delete_queue(queue, office.now)
    office.manager.create_queue(r"private$\short", office.now)
    office.fail()
    office.tick()
    with pytest.raises(QueueNotFound):
        office.queue(r"private$\short")
    office.restart()
    with pytest.raises(QueueNotFound):
        office.queue(r"private$\short")


def test_a_queue_that_comes_back_leaves_its_path_to_the_one_that_has_it(office: Office) -> None:
    old = office.queue(ORDERS)
    office.send(ORDERS, "old")
    office.manager.delete_queue(old, office.now)
    tick = office.seal()
    new = office.manager.create_queue(ORDERS, office.now)
    office.lose(tick)
    office.tick()
    assert office.queue(ORDERS) is new
    assert office.manager.queues.by_number[old.number] is old
    assert [record.packet for record in old.available(9)] != []
    office.restart()
    assert office.queue(ORDERS).number == new.number


def test_a_queue_that_comes_back_has_its_path_again_when_its_successor_is_lost_too(office: Office) -> None:
    for name in (ORDERS, ELSEWHERE):
        office.send(name, "old")
        old = office.queue(name)
        office.manager.delete_queue(old, office.now)
        first = office.seal()
        if name == ORDERS:
            office.manager.create_queue(ORDERS, office.now)
        office.promise(name, "new")
        office.lose(first)
        office.fail()
        office.tick()
        assert (office.queue(name), office.labels(name)) == (old, ["old"])


def test_the_journal_of_another_queue_is_not_touched(office: Office) -> None:
    office.manager.queues.change(office.manager.tick, office.queue(OTHER), 0, journal=True)
    office.send(OTHER, "a")
    office.receive(OTHER)
    office.delete(ORDERS)
    assert office.labels(rf"{OTHER};journal") == ["a"]
