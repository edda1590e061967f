"""Reads that wait, [MS-MQDMPR] 3.1.7.2.2, 3.1.7.3.1 and 3.1.7.1.17: who is served, in which order, what ends a wait."""

from __future__ import annotations

import pytest

from postroad.errors import OperationCancelled, Status
from postroad.message import Message
from postroad.reports.operations import ReadCall
from postroad.wire.view import MessageView
from tests.unit.queues.harness import ACKS, LEDGER, ORDERS, Answer, Harness, refused

PEEK, RECEIVE = ReadCall.PEEK, ReadCall.RECEIVE


def packets(answer: Answer) -> list[bytes]:
    assert answer.records is not None
    return [record.packet for record in answer.records]


def status(answer: Answer) -> int:
    assert answer.error is not None
    return answer.error.status


@pytest.mark.spec("DM-3.1.7.1.10-06", "DM-3.1.7.3.1-02")
@pytest.mark.parametrize("recoverable", [True, False])
def test_a_receive_waits_for_a_message_and_takes_it(harness: Harness, recoverable: bool) -> None:
    answer = harness.ask(harness.open(ORDERS), seconds=60)
    assert answer.waits
    harness.send(ORDERS, Message(label="a", recoverable=recoverable))
    assert answer.labels == ["a"]
    assert harness.queue(ORDERS).waiting == []
    assert harness.labels(ORDERS) == []
    harness.wait(60)  # its timer was stopped


@pytest.mark.spec("DM-3.1.7.1.15-02", "DM-3.1.7.3.1-02")
def test_a_peek_waits_for_a_message_and_leaves_it(harness: Harness) -> None:
    answer = harness.ask(harness.open(ORDERS), PEEK)
    harness.send(ORDERS, "a")
    assert answer.labels == harness.labels(ORDERS) == ["a"]


@pytest.mark.spec("DM-3.1.1.10-01")
def test_a_waiting_read_says_what_it_waits_for(harness: Harness) -> None:
    descriptor = harness.open(ORDERS)
    cursor = harness.manager.open_cursor(descriptor)
    harness.ask(descriptor, RECEIVE, tag="t")
    harness.ask(descriptor, PEEK, cursor=cursor)
    first, second = harness.queue(ORDERS).waiting
    assert (first.destructive, first.tag, first.cursor) == (True, "t", None)
    assert (second.destructive, second.tag, second.cursor) == (False, None, cursor)


# Who is served


@pytest.mark.spec("DM-3.1.1.16-04", "DM-3.1.7.2.2-03")
def test_the_reader_who_came_first_is_served_first(harness: Harness) -> None:
    one, other = harness.open(ORDERS), harness.open(ORDERS)
    answers = [harness.ask(one), harness.ask(other), harness.ask(one)]
    harness.send(ORDERS, "a")
    assert [answer.waits for answer in answers] == [False, True, True]
    harness.send(ORDERS, "b", "c")
    assert [answer.labels for answer in answers] == [["a"], ["b"], ["c"]]


@pytest.mark.spec("DM-3.1.7.2.2-03", "DM-3.1.7.1.15-03")
@pytest.mark.parametrize("recoverable", [True, False])
def test_peekers_see_the_message_until_a_receiver_takes_it(harness: Harness, recoverable: bool) -> None:
    descriptor = harness.open(ORDERS)
    answers = [harness.ask(descriptor, call) for call in (PEEK, PEEK, RECEIVE, PEEK, RECEIVE)]
    harness.send(ORDERS, Message(label="a", recoverable=recoverable))
    assert [answer.labels for answer in answers[:3]] == [["a"]] * 3
    assert [answer.waits for answer in answers[3:]] == [True, True]


def test_a_reader_of_many_gets_all_that_came_together(harness: Harness) -> None:
    answer = harness.ask(harness.open(ORDERS), count=5)
    harness.send(ORDERS, "a", "b", "c")
    assert answer.labels == ["a", "b", "c"]


@pytest.mark.parametrize("delete", [True, False])
def test_a_message_that_is_put_back_serves_who_waits(harness: Harness, delete: bool) -> None:
    harness.send(ORDERS, "a")
    (record,) = harness.lock(ORDERS)
    answer = harness.ask(harness.open(ORDERS))
    harness.end(ORDERS, record, delete=delete)
    assert answer.waits is delete


def test_a_message_of_an_aborted_transaction_serves_who_waits(harness: Harness) -> None:
    harness.send_transactional(LEDGER, "a")
    transaction = harness.manager.begin()
    harness.read(LEDGER, transaction=transaction)
    answer = harness.ask(harness.open(LEDGER))
    harness.manager.abort(transaction, harness.now)
    assert answer.labels == ["a"]


def test_a_message_whose_time_is_over_serves_nobody(harness: Harness) -> None:
    harness.send(ORDERS, Message(label="old", recoverable=True, time_to_be_received=5))
    (record,) = harness.lock(ORDERS)
    answer = harness.ask(harness.open(ORDERS))
    harness.now += 10
    harness.end(ORDERS, record, delete=False)
    assert answer.waits
    assert harness.queue(ORDERS).count == 0


def test_a_read_in_a_transaction_waits_in_it(harness: Harness) -> None:
    transaction = harness.manager.begin()
    answer = harness.ask(harness.open(LEDGER), transaction=transaction)
    harness.send_transactional(LEDGER, "a")
    assert answer.labels == ["a"]
    assert len(transaction.operations) == 1
    harness.manager.abort(transaction, harness.now)
    harness.tick()
    assert harness.labels(LEDGER) == ["a"]


@pytest.mark.parametrize("end", ["commit", "abort"])
def test_a_read_does_not_outlive_its_transaction(harness: Harness, end: str) -> None:
    transaction = harness.manager.begin()
    answer = harness.ask(harness.open(LEDGER), transaction=transaction)
    getattr(harness.manager, end)(transaction, harness.now)
    assert status(answer) == 0xC00E0051
    harness.send_transactional(LEDGER, "a")
    assert harness.labels(LEDGER) == ["a"]


def test_an_acknowledgment_that_a_read_causes_does_not_serve_that_read(harness: Harness) -> None:
    first, second = harness.ask(harness.open(ACKS)), harness.ask(harness.open(ACKS))
    harness.send(ACKS, Message(label="a", admin_queue=ACKS, ack="receive"))
    assert [MessageView(packet).message_class for packet in packets(first) + packets(second)] == [0x0000, 0x4000]


# What ends a wait


@pytest.mark.spec("DM-3.1.7.3.1-01")
@pytest.mark.parametrize("seconds", [0, -1])
def test_a_read_without_time_does_not_wait(harness: Harness, seconds: float) -> None:
    with refused(0xC00E001B):
        harness.ask(harness.open(ORDERS), seconds=seconds)
    assert harness.queue(ORDERS).waiting == []


@pytest.mark.spec("DM-3.1.7.3.1-01")
def test_a_read_of_a_deleted_queue_does_not_wait(harness: Harness) -> None:
    descriptor = harness.open(ORDERS)
    harness.delete(ORDERS)
    with refused(0xC00E004B):
        harness.ask(descriptor, seconds=60)


@pytest.mark.spec("DM-3.1.2.3-01", "DM-3.1.6.3-01", "DM-3.1.7.3.1-02", "DM-3.1.7.1.10-02")
def test_a_wait_ends_when_its_time_is_over_and_one_without_a_time_never(harness: Harness) -> None:
    descriptor = harness.open(ORDERS)
    answer, patient = harness.ask(descriptor, seconds=2), harness.ask(descriptor)
    harness.wait(1)
    assert answer.waits
    harness.wait(1)
    assert status(answer) == 0xC00E001B
    harness.wait(1e9)
    assert patient.waits
    harness.send(ORDERS, "a")
    assert patient.labels == ["a"]


@pytest.mark.spec("DM-3.1.7.1.17-01", "DM-3.1.7.3.4-01")
def test_a_wait_is_cancelled_by_its_tag_with_the_reason_given(harness: Harness) -> None:
    one, other = harness.open(ORDERS), harness.open(ORDERS)
    untagged, mine, same = harness.ask(one), harness.ask(one, tag=7), harness.ask(other, tag=8)
    reason = OperationCancelled("the caller hung up")
    assert harness.manager.reading.cancel_tagged(harness.queue(ORDERS), 8, reason) is Status.OK
    assert (untagged.waits, mine.waits, same.error) == (True, True, reason)
    assert [request.tag for request in harness.queue(ORDERS).waiting] == [None, 7]


@pytest.mark.spec("DM-3.1.7.1.17-02")
@pytest.mark.parametrize("tag", [9, None])
def test_a_tag_that_nobody_waits_with_cancels_nothing(harness: Harness, tag: object) -> None:
    answer = harness.ask(harness.open(ORDERS))
    found = harness.manager.reading.cancel_tagged(harness.queue(ORDERS), tag, OperationCancelled("never seen"))
    assert found == 0xC0000225
    assert answer.waits


def test_deleting_a_queue_ends_the_waits_at_it_and_at_its_journal(harness: Harness) -> None:
    answers = [harness.ask(harness.open(ORDERS)), harness.ask(harness.open(rf"{ORDERS};journal"))]
    harness.delete(ORDERS)
    assert [status(answer) for answer in answers] == [0xC00E0008, 0xC00E0008]
