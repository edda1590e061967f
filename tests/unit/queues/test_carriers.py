"""Carriers and the queues that they carry: who gets which queue, and which calls it gets."""

from __future__ import annotations

import pytest

from postroad.queues.outgoing_queues import TRANSITIONS, OutgoingEvent, OutgoingState
from tests.unit.queues.carrier import RecordingCarrier
from tests.unit.queues.harness import Harness

TCP = r"DIRECT=TCP:10.0.0.9\private$\orders"
HTTP = "DIRECT=HTTP://beta/msmq/private$/orders"


def test_a_queue_without_a_carrier_waits_and_leaves_by_one_that_comes_later(harness: Harness) -> None:
    harness.send(TCP, "a")
    assert harness.queue(TCP).carrier is None
    carrier = RecordingCarrier()
    harness.manager.attach(carrier)
    assert harness.queue(TCP).carrier is carrier
    harness.send(TCP, "b")
    assert carrier.called == [("ready", TCP)]


@pytest.mark.parametrize("first", ["by TCP", "by HTTP"])
def test_the_order_in_which_carriers_come_makes_no_difference(harness: Harness, first: str) -> None:
    by_tcp = RecordingCarrier(lambda name: not name.is_send_only)
    by_http = RecordingCarrier(lambda name: name.is_send_only)
    for carrier in (by_tcp, by_http) if first == "by TCP" else (by_http, by_tcp):
        harness.manager.attach(carrier)
    harness.send(TCP, "a")
    harness.send(HTTP, "b")
    assert (by_tcp.called, by_http.called) == ([("ready", TCP)], [("ready", HTTP)])


def test_of_two_carriers_for_one_name_the_first_has_the_queue(harness: Harness) -> None:
    carriers = [RecordingCarrier(), RecordingCarrier()]
    for carrier in carriers:
        harness.manager.attach(carrier)
    harness.send(TCP, "a")
    assert [each.called for each in carriers] == [[("ready", TCP)], []]


def test_a_pause_is_the_queues_and_its_carrier_hears_of_it(harness: Harness) -> None:
    carrier = RecordingCarrier()
    harness.manager.attach(carrier)
    harness.send(TCP, "a")
    queue = harness.queue(TCP)
    harness.manager.pause(queue)
    assert harness.manager.queues.outgoing_info[queue].state is OutgoingState.ON_HOLD
    harness.manager.resume(queue, harness.now)
    assert harness.manager.queues.outgoing_info[queue].state is OutgoingState.INACTIVE
    assert carrier.called == [("ready", TCP), ("pause", TCP), ("resume", TCP)]


def test_a_queue_that_was_deleted_has_no_carrier_any_more(harness: Harness) -> None:
    carrier = RecordingCarrier()
    harness.manager.attach(carrier)
    harness.send(TCP, "a")
    queue = harness.queue(TCP)
    harness.delete(TCP)
    queue.ready(harness.now)
    assert carrier.called == [("ready", TCP), ("forget", TCP)]
    assert carrier.removals == [0x8001]


def test_connections_change_nothing_of_a_queue_that_is_paused_or_locked() -> None:
    for state in (OutgoingState.ON_HOLD, OutgoingState.LOCKED):
        changes = {event for each, event in TRANSITIONS if each is state}
        assert changes <= {OutgoingEvent.PAUSE, OutgoingEvent.RESUME, OutgoingEvent.UNLOCK}
    for state in OutgoingState:
        assert TRANSITIONS[state, OutgoingEvent.PAUSE] is OutgoingState.ON_HOLD


def test_a_carrier_forgets_a_deleted_queue_once_that_is_durable(harness: Harness) -> None:
    carrier = RecordingCarrier()
    harness.manager.attach(carrier)
    harness.send(TCP, "a")
    queue = harness.queue(TCP)
    harness.manager.delete_queue(queue, harness.now)
    harness.fail()
    assert ("forget", TCP) not in carrier.called
    harness.manager.delete_queue(harness.queue(TCP), harness.now)
    harness.tick()
    assert carrier.called[-1] == ("forget", TCP)
