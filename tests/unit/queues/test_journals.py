"""Copies that are kept: journals of queues, of the manager, and its dead letters ([MS-MQDMPR] 3.1.1.2 and 3.1.1.12)."""

from __future__ import annotations

from uuid import UUID

import pytest

from postroad.message import Message
from postroad.reports.operations import ReadCall
from postroad.wire.view import MessageView
from tests.packets import patched
from tests.unit.queues.harness import DEADLETTER, DEADXACT, ELSEWHERE, JOURNAL, LEDGER, ORDERS, OTHER, Harness

KEEPING = r"private$\keeping"
FOREIGN = UUID("a0a1a2a3-a4a5-a6a7-a8a9-aaabacadaeaf")


def of_another_manager(harness: Harness, message: Message) -> MessageView:
    """A message from another manager."""
    harness.send(ELSEWHERE, message)
    record = next(harness.queue(ELSEWHERE).everything())
    harness.manager.delivery.discard(harness.queue(ELSEWHERE), record)
    harness.tick()
    return MessageView(patched(record.packet, 16, FOREIGN.bytes_le))


# The journal of a queue


@pytest.mark.spec("DM-3.1.1.2-13", "MQ-2.3.1.4-01")
@pytest.mark.parametrize("recoverable", [True, False])
def test_a_queue_that_keeps_a_journal_keeps_what_is_received(harness: Harness, recoverable: bool) -> None:
    harness.create(KEEPING, journal=True)
    harness.send(KEEPING, Message(b"body", label="a", recoverable=recoverable))
    packet = next(harness.queue(KEEPING).everything()).packet
    assert harness.labels(rf"{KEEPING};journal") == []
    harness.receive(KEEPING)
    assert [record.packet for record in harness.queue(rf"{KEEPING};journal").everything()] == [packet]


@pytest.mark.spec("MQ-2.3.1.4-01")
def test_a_queue_keeps_no_journal_unless_it_is_told_to(harness: Harness) -> None:
    harness.send(ORDERS, "a")
    harness.receive(ORDERS)
    assert harness.labels(rf"{ORDERS};journal") == []


@pytest.mark.spec("DM-3.1.1.2-13")
def test_only_what_an_application_receives_is_journaled(harness: Harness) -> None:
    harness.create(KEEPING, journal=True)
    harness.send(KEEPING, "moved", "purged", Message(label="too late", recoverable=True, time_to_be_received=1))
    queue = harness.queue(KEEPING)
    harness.manager.move(queue, harness.queue(OTHER), queue.available(1), harness.now)
    harness.tick()
    harness.wait(5)
    harness.purge(KEEPING)
    assert harness.labels(rf"{KEEPING};journal") == []


@pytest.mark.spec("MQ-2.3.1.7-01")
def test_a_journal_stops_growing_at_its_quota(harness: Harness) -> None:
    harness.create(KEEPING, journal=True, journal_quota_kb=1)
    for label in "ab":
        harness.send(KEEPING, Message(bytes(600), label=label, recoverable=True))
    assert harness.receive(KEEPING, 2) == ["a", "b"]
    assert harness.labels(rf"{KEEPING};journal") == ["a"]
    assert harness.manager.delivery.overflows == {rf"{KEEPING};journal": 1}


def test_the_journal_is_written_with_the_receive_or_not_at_all(harness: Harness) -> None:
    queue = harness.create(KEEPING, journal=True)
    harness.send(KEEPING, "a")
    (record,) = harness.lock(KEEPING)
    harness.manager.reading.end(queue, record, harness.now, delete=True)
    harness.fail()
    assert (harness.labels(KEEPING), harness.labels(rf"{KEEPING};journal")) == (["a"], [])
    assert queue.journal is not None
    assert queue.journal.reserved_bytes == 0


def test_a_journal_is_read_without_a_trace(harness: Harness) -> None:
    harness.create(KEEPING, journal=True)
    harness.send(KEEPING, Message(label="a", recoverable=True, dead_letter=True, journal=True))
    harness.receive(KEEPING)
    harness.receive(rf"{KEEPING};journal")
    assert [harness.queue(name).count for name in (rf"{KEEPING};journal", DEADLETTER, JOURNAL)] == [0, 0, 1]


# The journal of the manager


@pytest.mark.spec("DM-3.1.1.12-14", "MQ-2.2.19.2-19")
def test_a_sender_who_asks_for_it_has_a_copy_of_what_was_delivered(harness: Harness) -> None:
    harness.send(ORDERS, Message(b"body", label="a", recoverable=True, journal=True))
    (copy,) = harness.queue(JOURNAL).everything()
    (original,) = harness.queue(ORDERS).everything()
    assert copy.packet == original.packet


@pytest.mark.spec("DM-3.1.1.12-14")
def test_a_message_is_not_delivered_while_it_is_on_its_way(harness: Harness) -> None:
    harness.send(ELSEWHERE, Message(label="a", recoverable=True, journal=True))
    assert harness.labels(JOURNAL) == []


@pytest.mark.spec("DM-3.1.1.12-14")
def test_a_transactional_message_is_delivered_once_it_is_received(harness: Harness) -> None:
    harness.send_transactional(LEDGER, Message(label="a", journal=True))
    assert harness.labels(JOURNAL) == []
    harness.receive(LEDGER)
    assert harness.labels(JOURNAL) == ["a"]


@pytest.mark.parametrize("call", ["journal of the manager", "journal of the queue", "dead letters"])
def test_reading_a_copy_makes_no_further_copy(harness: Harness, call: str) -> None:
    harness.create(KEEPING, transactional=True, journal=True)
    harness.send_transactional(KEEPING, Message(label="a", journal=True, dead_letter=True))
    if call == "dead letters":
        harness.purge(KEEPING)
    else:
        harness.receive(KEEPING)
    name = {"journal of the manager": JOURNAL, "dead letters": DEADXACT}.get(call, rf"{KEEPING};journal")
    before = harness.queue(JOURNAL).count
    assert harness.receive(name) == ["a"]
    assert (harness.queue(name).count, harness.queue(JOURNAL).count) == (0, before - (name == JOURNAL))


@pytest.mark.spec("DM-3.1.1.12-14", "DM-3.1.1.12-15")
@pytest.mark.parametrize("name", [JOURNAL, DEADLETTER])
def test_a_full_journal_lets_the_copy_go_and_nothing_else(harness: Harness, name: str) -> None:
    harness.manager.queues.change(harness.manager.tick, harness.queue(name), int(harness.now), quota_kb=1)
    for label in "ab":
        harness.send(ORDERS, Message(bytes(600), label=label, recoverable=True, journal=True, dead_letter=True))
    assert harness.labels(ORDERS) == ["a", "b"]
    harness.purge(ORDERS)
    assert harness.labels(name) == ["a"]


# Dead letters


@pytest.mark.spec("DM-3.1.1.12-15", "MQ-2.2.19.2-17")
def test_a_sender_who_asks_for_it_has_a_copy_of_what_was_not_delivered(harness: Harness) -> None:
    harness.send(ELSEWHERE, Message(b"body", label="a", recoverable=True, dead_letter=True, time_to_reach_queue=5))
    packet = next(harness.queue(ELSEWHERE).everything()).packet
    harness.wait(6)
    (copy,) = harness.queue(DEADLETTER).everything()
    assert (copy.packet, copy.reason) == (packet, 0x8002)


@pytest.mark.spec("MQ-2.2.19.2-17")
def test_a_transactional_message_has_a_dead_letter_queue_of_its_own(harness: Harness) -> None:
    harness.send_transactional(ELSEWHERE, Message(label="a", dead_letter=True, time_to_reach_queue=5))
    harness.wait(6)
    assert (harness.labels(DEADXACT), harness.labels(DEADLETTER)) == (["a"], [])


def test_a_message_that_was_received_is_not_a_dead_letter(harness: Harness) -> None:
    harness.send(ORDERS, Message(label="a", recoverable=True, dead_letter=True))
    harness.receive(ORDERS)
    assert harness.labels(DEADLETTER) == []


def test_dead_letters_survive_a_restart_with_their_reason(harness: Harness) -> None:
    harness.send(ORDERS, Message(label="a", recoverable=True, dead_letter=True))
    harness.purge(ORDERS)
    harness.restart()
    assert harness.classes(DEADLETTER) == [0xC001]


# Neither


@pytest.mark.spec("DM-3.1.1.12-16", "QB-1.3.4-01")
def test_nobody_who_did_not_ask_has_a_copy(harness: Harness) -> None:
    harness.send(ORDERS, "received", "purged")
    harness.send(ELSEWHERE, "too late")
    harness.send_transactional(LEDGER, "received too")
    views = [view for name in (ORDERS, ELSEWHERE, LEDGER) for view in harness.messages(name)]
    assert not any(view.positive_journaling or view.negative_journaling for view in views)
    harness.receive(ORDERS)
    harness.receive(LEDGER)
    harness.purge(ORDERS)
    harness.wait(10 * 86400)
    assert [harness.queue(name).count for name in (ELSEWHERE, JOURNAL, DEADLETTER, DEADXACT)] == [0, 0, 0, 0]


@pytest.mark.spec("DM-3.1.1.12-14", "DM-3.1.1.12-15")
@pytest.mark.parametrize("call", [ReadCall.RECEIVE, None])
def test_copies_are_kept_where_the_message_came_from_and_not_here(harness: Harness, call: ReadCall | None) -> None:
    view = of_another_manager(harness, Message(label="a", recoverable=True, journal=True, dead_letter=True))
    harness.manager.delivery.arrive(harness.queue(ORDERS), view.data, view, harness.now)
    harness.tick()
    if call is None:
        harness.purge(ORDERS)
    else:
        harness.read(ORDERS, call)
    assert [harness.queue(name).count for name in (ORDERS, JOURNAL, DEADLETTER)] == [0, 0, 0]
