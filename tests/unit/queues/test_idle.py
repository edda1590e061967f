"""Outgoing queues that strangers cause: how many there can be, and when they are forgotten."""

from __future__ import annotations

import pytest

from postroad.errors import LimitReached, QuotaExceeded
from postroad.message import Message
from postroad.names import parse_format_name
from postroad.queues.descriptor import QueueAccess
from postroad.queues.queue import Queue
from tests.unit.queues.carrier import RecordingCarrier
from tests.unit.queues.office import ORDERS, Office

OLD_S = 11 * 60


def far(number: int) -> str:
    return rf"DIRECT=TCP:10.0.0.{number}\private$\far"


def names(office: Office) -> list[str]:
    return [str(name) for name in office.manager.queues.outgoing]


def empty(office: Office, name: str) -> None:
    """Its messages have left."""
    queue = office.queue(name)
    for record in list(queue.everything()):
        office.manager.delivery.discard(queue, record)
    office.tick()


def caused(office: Office, number: int) -> Queue:
    """What a stranger's message makes, and the message in it."""
    manager = office.manager
    queue = manager.queues.outgoing_queue(manager.tick, parse_format_name(far(number)), int(office.now))
    office.send(far(number), "a")
    return queue


def test_a_queue_that_was_empty_for_ten_minutes_is_forgotten(office: Office) -> None:
    carrier = RecordingCarrier()
    office.manager.attach(carrier)
    office.send(far(1), "a")
    office.send(far(2), "b")
    empty(office, far(1))
    office.wait(OLD_S)
    office.wait(61)
    assert far(1) in names(office)
    office.wait(OLD_S)
    assert (names(office), carrier.called[2:]) == ([far(2)], [("forget", far(1))])
    office.restart()
    assert (names(office), office.labels(far(2))) == ([far(2)], ["b"])


def test_a_queue_that_was_used_meanwhile_is_not_forgotten(office: Office) -> None:
    for _ in range(30):
        office.send(far(1), Message(label="express"))
        empty(office, far(1))
        office.wait(61)
    assert names(office) == [far(1)]


def test_one_that_is_needed_stays_however_old(office: Office) -> None:
    open_one = office.open(far(1), QueueAccess.SEND)
    office.send(far(2), "a")
    empty(office, far(2))
    office.manager.pause(office.queue(far(2)))
    office.send_transactional(far(3), "its sequence is not over")
    empty(office, far(3))
    for _ in range(5):
        office.wait(OLD_S)
    assert names(office) == [far(1), far(2), far(3)]
    office.manager.close(open_one)
    office.manager.resume(office.queue(far(2)), office.now)
    office.manager.transacting.end_sequence(far(3))
    for _ in range(5):
        office.wait(OLD_S)
    assert names(office) == []


def test_a_lost_tick_brings_it_back(office: Office) -> None:
    office.send(far(1), "a")
    empty(office, far(1))
    for _ in range(2):
        office.now += OLD_S
        office.manager.run_timers(office.now)
    assert names(office) == []
    office.fail()
    office.send(far(1), "b")
    office.restart()
    assert office.labels(far(1)) == ["b"]


def test_where_there_are_too_many_those_unused_longest_make_room(office: Office) -> None:
    office.manager.queues.idle.limit = 3
    for number in (1, 2, 3):
        office.send(far(number), "a")
        office.now += 10
    empty(office, far(1))
    empty(office, far(2))
    office.send(far(4), "b")
    assert names(office) == [far(2), far(3), far(4)]


def test_with_messages_in_all_of_them_a_new_one_is_refused_and_nothing_is_left_of_it(office: Office) -> None:
    office.manager.queues.idle.limit = 2
    office.send(far(1), "a")
    office.send(far(2), "a")
    for _ in range(2):
        with pytest.raises(LimitReached, match=r"raise outgoing_queues in \[limits\]") as caught:
            office.send(far(3), "a")
    assert isinstance(caught.value, QuotaExceeded)
    assert (names(office), office.manager.queues.idle.refused) == ([far(1), far(2)], 2)
    office.send(far(1), "to one that is there")
    office.now += 10
    empty(office, far(2))
    office.send(far(3), "a")
    assert names(office) == [far(1), far(3)]


def test_a_list_of_destinations_that_are_too_many_is_refused_as_a_whole(office: Office) -> None:
    office.manager.queues.idle.limit = 2
    office.send(far(1), "a")
    office.now += 60
    empty(office, far(1))
    with pytest.raises(LimitReached):
        office.send(",".join(map(far, (2, 3, 4))), "a")
    assert not any(queue.count for queue in office.manager.queues.outgoing.values())
    assert set(names(office)) <= {far(1)}


def test_strangers_cannot_use_up_what_local_applications_need(office: Office) -> None:
    office.manager.queues.idle.limit = 20
    for number in range(18):
        caused(office, number)
    with pytest.raises(LimitReached):
        caused(office, 18)
    office.send(far(18), "ours")
    assert office.labels(far(18)) == ["ours"]


def test_an_acknowledgment_that_would_need_one_more_is_dropped(office: Office) -> None:
    office.manager.queues.idle.limit = 1
    office.send(far(1), "a")
    asking = Message(label="a", recoverable=True, admin_queue=far(2), ack=15)
    office.send(ORDERS, asking)
    assert (office.receive(ORDERS), names(office)) == (["a"], [far(1)])
