"""Copies that are kept: journals of queues, of the manager, its dead letters ([MS-MQDMPR] 3.1.1.2 and 3.1.1.12)."""

from __future__ import annotations

from uuid import UUID

import pytest

from postroad.message import Message
from postroad.values.reading import ReadCall
from postroad.wire.view import MessageView
from tests.packets import patched
from tests.unit.queues.office import DEADLETTER, DEADXACT, ELSEWHERE, JOURNAL, LEDGER, ORDERS, OTHER, Office

KEEPING = r"private$\keeping"
FOREIGN = UUID("a0a1a2a3-a4a5-a6a7-a8a9-aaabacadaeaf")


def of_another_manager(office: Office, message: Message) -> MessageView:
    """A message as it comes from elsewhere."""
    office.send(ELSEWHERE, message)
    record = next(office.queue(ELSEWHERE).everything())
    office.manager.delivery.discard(office.queue(ELSEWHERE), record)
    office.tick()
    return MessageView(patched(record.packet, 16, FOREIGN.bytes_le))


# The journal of a queue


@pytest.mark.spec("DM-3.1.1.2-13", "MQ-2.3.1.4-01")
@pytest.mark.parametrize("recoverable", [True, False])
def test_a_queue_that_keeps_a_journal_keeps_what_is_received(office: Office, recoverable: bool) -> None:
    office.create(KEEPING, journal=True)
    office.send(KEEPING, Message(b"body", label="a", recoverable=recoverable))
    packet = next(office.queue(KEEPING).everything()).packet
    assert office.labels(rf"{KEEPING};journal") == []
    office.receive(KEEPING)
    assert [record.packet for record in office.queue(rf"{KEEPING};journal").everything()] == [packet]


@pytest.mark.spec("MQ-2.3.1.4-01")
def test_a_queue_keeps_no_journal_unless_it_is_told_to(office: Office) -> None:
    office.send(ORDERS, "a")
    office.receive(ORDERS)
    assert office.labels(rf"{ORDERS};journal") == []


@pytest.mark.spec("DM-3.1.1.2-13")
def test_only_what_an_application_receives_is_journaled(office: Office) -> None:
    office.create(KEEPING, journal=True)
    office.send(KEEPING, "moved", "purged", Message(label="too late", recoverable=True, time_to_be_received=1))
    queue = office.queue(KEEPING)
    office.manager.move(queue, office.queue(OTHER), queue.available(1), office.now)
    office.tick()
    office.wait(5)
    office.purge(KEEPING)
    assert office.labels(rf"{KEEPING};journal") == []


@pytest.mark.spec("MQ-2.3.1.7-01")
def test_a_journal_stops_growing_at_its_quota(office: Office) -> None:
    office.create(KEEPING, journal=True, journal_quota_kb=1)
    for label in "ab":
        office.send(KEEPING, Message(bytes(600), label=label, recoverable=True))
    assert office.receive(KEEPING, 2) == ["a", "b"]
    assert office.labels(rf"{KEEPING};journal") == ["a"]
    assert office.manager.delivery.overflows == {rf"{KEEPING};journal": 1}


def test_the_journal_is_written_with_the_receive_or_not_at_all(office: Office) -> None:
    queue = office.create(KEEPING, journal=True)
    office.send(KEEPING, "a")
    (record,) = office.lock(KEEPING)
    office.manager.reading.end(queue, record, office.now, delete=True)
    office.fail()
    assert (office.labels(KEEPING), office.labels(rf"{KEEPING};journal")) == (["a"], [])
    assert queue.journal is not None
    assert queue.journal.reserved_bytes == 0


def test_a_journal_is_read_without_a_trace(office: Office) -> None:
    office.create(KEEPING, journal=True)
    office.send(KEEPING, Message(label="a", recoverable=True, dead_letter=True, journal=True))
    office.receive(KEEPING)
    office.receive(rf"{KEEPING};journal")
    assert [office.queue(name).count for name in (rf"{KEEPING};journal", DEADLETTER, JOURNAL)] == [0, 0, 1]


# The journal of the manager


@pytest.mark.spec("DM-3.1.1.12-14", "MQ-2.2.19.2-19")
def test_a_sender_who_asks_for_it_has_a_copy_of_what_was_delivered(office: Office) -> None:
    office.send(ORDERS, Message(b"body", label="a", recoverable=True, journal=True))
    (copy,) = office.queue(JOURNAL).everything()
    (original,) = office.queue(ORDERS).everything()
    assert copy.packet == original.packet


@pytest.mark.spec("DM-3.1.1.12-14")
def test_a_message_is_not_delivered_while_it_is_on_its_way(office: Office) -> None:
    office.send(ELSEWHERE, Message(label="a", recoverable=True, journal=True))
    assert office.labels(JOURNAL) == []


@pytest.mark.spec("DM-3.1.1.12-14")
def test_a_transactional_message_is_delivered_once_it_is_received(office: Office) -> None:
    office.send_transactional(LEDGER, Message(label="a", journal=True))
    assert office.labels(JOURNAL) == []
    office.receive(LEDGER)
    assert office.labels(JOURNAL) == ["a"]


@pytest.mark.parametrize("call", ["journal of the manager", "journal of the queue", "dead letters"])
def test_reading_a_copy_makes_no_further_copy(office: Office, call: str) -> None:
    office.create(KEEPING, transactional=True, journal=True)
    office.send_transactional(KEEPING, Message(label="a", journal=True, dead_letter=True))
    if call == "dead letters":
        office.purge(KEEPING)
    else:
        office.receive(KEEPING)
    name = {"journal of the manager": JOURNAL, "dead letters": DEADXACT}.get(call, rf"{KEEPING};journal")
    before = office.queue(JOURNAL).count
    assert office.receive(name) == ["a"]
    assert (office.queue(name).count, office.queue(JOURNAL).count) == (0, before - (name == JOURNAL))


@pytest.mark.spec("DM-3.1.1.12-14", "DM-3.1.1.12-15")
@pytest.mark.parametrize("name", [JOURNAL, DEADLETTER])
def test_a_full_journal_lets_the_copy_go_and_nothing_else(office: Office, name: str) -> None:
    office.manager.queues.change(office.manager.tick, office.queue(name), int(office.now), quota_kb=1)
    for label in "ab":
        office.send(ORDERS, Message(bytes(600), label=label, recoverable=True, journal=True, dead_letter=True))
    assert office.labels(ORDERS) == ["a", "b"]
    office.purge(ORDERS)
    assert office.labels(name) == ["a"]


# Dead letters


@pytest.mark.spec("DM-3.1.1.12-15", "MQ-2.2.19.2-17")
def test_a_sender_who_asks_for_it_has_a_copy_of_what_was_not_delivered(office: Office) -> None:
    office.send(ELSEWHERE, Message(b"body", label="a", recoverable=True, dead_letter=True, time_to_reach_queue=5))
    packet = next(office.queue(ELSEWHERE).everything()).packet
    office.wait(6)
    (copy,) = office.queue(DEADLETTER).everything()
    assert (copy.packet, copy.reason) == (packet, 0x8002)


@pytest.mark.spec("MQ-2.2.19.2-17")
def test_a_transactional_message_has_a_dead_letter_queue_of_its_own(office: Office) -> None:
    office.send_transactional(ELSEWHERE, Message(label="a", dead_letter=True, time_to_reach_queue=5))
    office.wait(6)
    assert (office.labels(DEADXACT), office.labels(DEADLETTER)) == (["a"], [])


def test_a_message_that_was_received_is_no_dead_letter(office: Office) -> None:
    office.send(ORDERS, Message(label="a", recoverable=True, dead_letter=True))
    office.receive(ORDERS)
    assert office.labels(DEADLETTER) == []


def test_dead_letters_survive_a_restart_with_their_reason(office: Office) -> None:
    office.send(ORDERS, Message(label="a", recoverable=True, dead_letter=True))
    office.purge(ORDERS)
    office.restart()
    assert office.classes(DEADLETTER) == [0xC001]


# Neither


@pytest.mark.spec("DM-3.1.1.12-16", "QB-1.3.4-01")
def test_nobody_who_did_not_ask_has_a_copy(office: Office) -> None:
    office.send(ORDERS, "received", "purged")
    office.send(ELSEWHERE, "too late")
    office.send_transactional(LEDGER, "received too")
    views = [view for name in (ORDERS, ELSEWHERE, LEDGER) for view in office.messages(name)]
    assert not any(view.positive_journaling or view.negative_journaling for view in views)
    office.receive(ORDERS)
    office.receive(LEDGER)
    office.purge(ORDERS)
    office.wait(10 * 86400)
    assert [office.queue(name).count for name in (ELSEWHERE, JOURNAL, DEADLETTER, DEADXACT)] == [0, 0, 0, 0]


@pytest.mark.spec("DM-3.1.1.12-14", "DM-3.1.1.12-15")
@pytest.mark.parametrize("call", [ReadCall.RECEIVE, None])
def test_copies_are_kept_where_the_message_came_from_and_not_here(office: Office, call: ReadCall | None) -> None:
    view = of_another_manager(office, Message(label="a", recoverable=True, journal=True, dead_letter=True))
    office.manager.delivery.arrive(office.queue(ORDERS), view.data, view, office.now)
    office.tick()
    if call is None:
        office.purge(ORDERS)
    else:
        office.read(ORDERS, call)
    assert [office.queue(name).count for name in (ORDERS, JOURNAL, DEADLETTER)] == [0, 0, 0]
