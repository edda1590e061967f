"""Outgoing queues that strangers cause: how many there can be, and when they are dropped."""

from __future__ import annotations

import pytest

from postroad.errors import LimitReached, QuotaExceeded
from postroad.message import Message
from postroad.names import parse_format_name
from postroad.queues.queue import Queue
from postroad.reports.operations import QueueAccess
from tests.unit.queues.carrier import RecordingCarrier
from tests.unit.queues.harness import ORDERS, Harness

OLD_S = 11 * 60


def far(number: int) -> str:
    return rf"DIRECT=TCP:10.0.0.{number}\private$\far"


def names(harness: Harness) -> list[str]:
    return [str(name) for name in harness.manager.queues.outgoing]


def empty(harness: Harness, name: str) -> None:
    """Its messages leave."""
    queue = harness.queue(name)
    for record in list(queue.everything()):
        harness.manager.delivery.discard(queue, record)
    harness.tick()


def caused(harness: Harness, number: int) -> Queue:
    """The queue that a stranger's message causes, with the message."""
    manager = harness.manager
    queue = manager.queues.outgoing_queue(manager.tick, parse_format_name(far(number)), int(harness.now))
    harness.send(far(number), "a")
    return queue


def test_a_queue_that_was_empty_for_ten_minutes_is_forgotten(harness: Harness) -> None:
    carrier = RecordingCarrier()
    harness.manager.attach(carrier)
    harness.send(far(1), "a")
    harness.send(far(2), "b")
    empty(harness, far(1))
    harness.wait(OLD_S)
    harness.wait(61)
    assert far(1) in names(harness)
    harness.wait(OLD_S)
    assert (names(harness), carrier.called[2:]) == ([far(2)], [("forget", far(1))])
    harness.restart()
    assert (names(harness), harness.labels(far(2))) == ([far(2)], ["b"])


def test_a_queue_that_was_used_meanwhile_is_not_forgotten(harness: Harness) -> None:
    for _ in range(30):
        harness.send(far(1), Message(label="express"))
        empty(harness, far(1))
        harness.wait(61)
    assert names(harness) == [far(1)]


def test_one_that_is_needed_stays_however_old(harness: Harness) -> None:
    open_one = harness.open(far(1), QueueAccess.SEND)
    harness.send(far(2), "a")
    empty(harness, far(2))
    harness.manager.pause(harness.queue(far(2)))
    harness.send_transactional(far(3), "its sequence is not over")
    empty(harness, far(3))
    for _ in range(5):
        harness.wait(OLD_S)
    assert names(harness) == [far(1), far(2), far(3)]
    harness.manager.close(open_one)
    harness.manager.resume(harness.queue(far(2)), harness.now)
    harness.manager.transacting.end_sequence(far(3))
    for _ in range(5):
        harness.wait(OLD_S)
    assert names(harness) == []


def test_a_lost_tick_brings_it_back(harness: Harness) -> None:
    harness.send(far(1), "a")
    empty(harness, far(1))
    for _ in range(2):
        harness.now += OLD_S
        harness.manager.run_timers(harness.now)
    assert names(harness) == []
    harness.fail()
    harness.send(far(1), "b")
    harness.restart()
    assert harness.labels(far(1)) == ["b"]


def test_where_there_are_too_many_those_unused_longest_make_room(harness: Harness) -> None:
    harness.use(outgoing_queues=3)
    for number in (1, 2, 3):
        harness.send(far(number), "a")
        harness.now += 10
    empty(harness, far(1))
    empty(harness, far(2))
    harness.send(far(4), "b")
    assert names(harness) == [far(2), far(3), far(4)]


def test_with_messages_in_all_of_them_a_new_one_is_refused_and_nothing_is_left_of_it(harness: Harness) -> None:
    harness.use(outgoing_queues=2)
    harness.send(far(1), "a")
    harness.send(far(2), "a")
    for _ in range(2):
        with pytest.raises(LimitReached, match=r"raise outgoing_queues in \[limits\]") as caught:
            harness.send(far(3), "a")
    assert isinstance(caught.value, QuotaExceeded)
    assert (names(harness), harness.manager.queues.idle.refused) == ([far(1), far(2)], 2)
    harness.send(far(1), "to one that is there")
    harness.now += 10
    empty(harness, far(2))
    harness.send(far(3), "a")
    assert names(harness) == [far(1), far(3)]


def test_a_list_of_destinations_that_are_too_many_is_refused_as_a_whole(harness: Harness) -> None:
    harness.use(outgoing_queues=2)
    harness.send(far(1), "a")
    harness.now += 60
    empty(harness, far(1))
    with pytest.raises(LimitReached):
        harness.send(",".join(map(far, (2, 3, 4))), "a")
    assert not any(queue.count for queue in harness.manager.queues.outgoing.values())
    assert set(names(harness)) <= {far(1)}


def test_strangers_cannot_use_up_what_local_applications_need(harness: Harness) -> None:
    harness.use(outgoing_queues=20)
    for number in range(18):
        caused(harness, number)
    with pytest.raises(LimitReached):
        caused(harness, 18)
    harness.send(far(18), "ours")
    assert harness.labels(far(18)) == ["ours"]


def test_an_acknowledgment_that_would_need_one_more_is_dropped(harness: Harness) -> None:
    harness.use(outgoing_queues=1)
    harness.send(far(1), "a")
    asking = Message(label="a", recoverable=True, admin_queue=far(2), ack=15)
    harness.send(ORDERS, asking)
    assert (harness.receive(ORDERS), names(harness)) == (["a"], [far(1)])
