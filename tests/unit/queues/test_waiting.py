"""Reads that wait, [MS-MQDMPR] 3.1.7.2.2, 3.1.7.3.1 and 3.1.7.1.17: who is served, in which order, what ends a wait."""

from __future__ import annotations

import pytest

from postroad.errors import OperationCancelled, Status
from postroad.message import Message
from postroad.values.reading import ReadCall
from postroad.wire.view import MessageView
from tests.unit.queues.office import ACKS, LEDGER, ORDERS, Answer, Office, refused

PEEK, RECEIVE = ReadCall.PEEK, ReadCall.RECEIVE


def packets(answer: Answer) -> list[bytes]:
    assert answer.records is not None
    return [record.packet for record in answer.records]


def status(answer: Answer) -> int:
    assert answer.error is not None
    return answer.error.status


@pytest.mark.spec("DM-3.1.7.1.10-06", "DM-3.1.7.3.1-02")
@pytest.mark.parametrize("recoverable", [True, False])
def test_a_receive_waits_for_a_message_and_takes_it(office: Office, recoverable: bool) -> None:
    answer = office.ask(office.open(ORDERS), seconds=60)
    assert answer.waits
    office.send(ORDERS, Message(label="a", recoverable=recoverable))
    assert answer.labels == ["a"]
    assert office.queue(ORDERS).waiting == []
    assert office.labels(ORDERS) == []
    office.wait(60)  # its timer was stopped


@pytest.mark.spec("DM-3.1.7.1.15-02", "DM-3.1.7.3.1-02")
def test_a_peek_waits_for_a_message_and_leaves_it(office: Office) -> None:
    answer = office.ask(office.open(ORDERS), PEEK)
    office.send(ORDERS, "a")
    assert answer.labels == office.labels(ORDERS) == ["a"]


@pytest.mark.spec("DM-3.1.1.10-01")
def test_a_waiting_read_says_what_it_waits_for(office: Office) -> None:
    descriptor = office.open(ORDERS)
    cursor = office.manager.open_cursor(descriptor)
    office.ask(descriptor, RECEIVE, tag="t")
    office.ask(descriptor, PEEK, cursor=cursor)
    first, second = office.queue(ORDERS).waiting
    assert (first.destructive, first.tag, first.cursor) == (True, "t", None)
    assert (second.destructive, second.tag, second.cursor) == (False, None, cursor)


# Who is served


@pytest.mark.spec("DM-3.1.1.16-04", "DM-3.1.7.2.2-03")
def test_the_reader_who_came_first_is_served_first(office: Office) -> None:
    one, other = office.open(ORDERS), office.open(ORDERS)
    answers = [office.ask(one), office.ask(other), office.ask(one)]
    office.send(ORDERS, "a")
    assert [answer.waits for answer in answers] == [False, True, True]
    office.send(ORDERS, "b", "c")
    assert [answer.labels for answer in answers] == [["a"], ["b"], ["c"]]


@pytest.mark.spec("DM-3.1.7.2.2-03", "DM-3.1.7.1.15-03")
@pytest.mark.parametrize("recoverable", [True, False])
def test_peekers_see_the_message_until_a_receiver_takes_it(office: Office, recoverable: bool) -> None:
    descriptor = office.open(ORDERS)
    answers = [office.ask(descriptor, call) for call in (PEEK, PEEK, RECEIVE, PEEK, RECEIVE)]
    office.send(ORDERS, Message(label="a", recoverable=recoverable))
    assert [answer.labels for answer in answers[:3]] == [["a"]] * 3
    assert [answer.waits for answer in answers[3:]] == [True, True]


def test_a_reader_of_many_gets_all_that_came_together(office: Office) -> None:
    answer = office.ask(office.open(ORDERS), count=5)
    office.send(ORDERS, "a", "b", "c")
    assert answer.labels == ["a", "b", "c"]


@pytest.mark.parametrize("delete", [True, False])
def test_a_message_that_is_put_back_serves_who_waits(office: Office, delete: bool) -> None:
    office.send(ORDERS, "a")
    (record,) = office.lock(ORDERS)
    answer = office.ask(office.open(ORDERS))
    office.end(ORDERS, record, delete=delete)
    assert answer.waits is delete


def test_a_message_of_an_aborted_transaction_serves_who_waits(office: Office) -> None:
    office.send_transactional(LEDGER, "a")
    transaction = office.manager.begin()
    office.read(LEDGER, transaction=transaction)
    answer = office.ask(office.open(LEDGER))
    office.manager.abort(transaction, office.now)
    assert answer.labels == ["a"]


def test_a_message_whose_time_is_over_serves_nobody(office: Office) -> None:
    office.send(ORDERS, Message(label="old", recoverable=True, time_to_be_received=5))
    (record,) = office.lock(ORDERS)
    answer = office.ask(office.open(ORDERS))
    office.now += 10
    office.end(ORDERS, record, delete=False)
    assert answer.waits
    assert office.queue(ORDERS).count == 0


def test_a_read_in_a_transaction_waits_in_it(office: Office) -> None:
    transaction = office.manager.begin()
    answer = office.ask(office.open(LEDGER), transaction=transaction)
    office.send_transactional(LEDGER, "a")
    assert answer.labels == ["a"]
    assert len(transaction.operations) == 1
    office.manager.abort(transaction, office.now)
    office.tick()
    assert office.labels(LEDGER) == ["a"]


@pytest.mark.parametrize("end", ["commit", "abort"])
def test_a_read_does_not_outlive_its_transaction(office: Office, end: str) -> None:
    transaction = office.manager.begin()
    answer = office.ask(office.open(LEDGER), transaction=transaction)
    getattr(office.manager, end)(transaction, office.now)
    assert status(answer) == 0xC00E0051
    office.send_transactional(LEDGER, "a")
    assert office.labels(LEDGER) == ["a"]


def test_an_acknowledgment_that_a_read_causes_does_not_serve_that_read(office: Office) -> None:
    first, second = office.ask(office.open(ACKS)), office.ask(office.open(ACKS))
    office.send(ACKS, Message(label="a", admin_queue=ACKS, ack="receive"))
    assert [MessageView(packet).message_class for packet in packets(first) + packets(second)] == [0x0000, 0x4000]


# What ends a wait


@pytest.mark.spec("DM-3.1.7.3.1-01")
@pytest.mark.parametrize("seconds", [0, -1])
def test_a_read_without_time_does_not_wait(office: Office, seconds: float) -> None:
    with refused(0xC00E001B):
        office.ask(office.open(ORDERS), seconds=seconds)
    assert office.queue(ORDERS).waiting == []


@pytest.mark.spec("DM-3.1.7.3.1-01")
def test_a_read_of_a_deleted_queue_does_not_wait(office: Office) -> None:
    descriptor = office.open(ORDERS)
    office.delete(ORDERS)
    with refused(0xC00E004B):
        office.ask(descriptor, seconds=60)


@pytest.mark.spec("DM-3.1.2.3-01", "DM-3.1.6.3-01", "DM-3.1.7.3.1-02", "DM-3.1.7.1.10-02")
def test_a_wait_ends_when_its_time_is_over_and_one_without_a_time_never(office: Office) -> None:
    descriptor = office.open(ORDERS)
    answer, patient = office.ask(descriptor, seconds=2), office.ask(descriptor)
    office.wait(1)
    assert answer.waits
    office.wait(1)
    assert status(answer) == 0xC00E001B
    office.wait(1e9)
    assert patient.waits
    office.send(ORDERS, "a")
    assert patient.labels == ["a"]


@pytest.mark.spec("DM-3.1.7.1.17-01", "DM-3.1.7.3.4-01")
def test_a_wait_is_cancelled_by_its_tag_with_the_reason_given(office: Office) -> None:
    one, other = office.open(ORDERS), office.open(ORDERS)
    untagged, mine, same = office.ask(one), office.ask(one, tag=7), office.ask(other, tag=8)
    reason = OperationCancelled("the caller hung up")
    assert office.manager.reading.cancel_tagged(office.queue(ORDERS), 8, reason) is Status.OK
    assert (untagged.waits, mine.waits, same.error) == (True, True, reason)
    assert [request.tag for request in office.queue(ORDERS).waiting] == [None, 7]


@pytest.mark.spec("DM-3.1.7.1.17-02")
@pytest.mark.parametrize("tag", [9, None])
def test_a_tag_that_nobody_waits_with_cancels_nothing(office: Office, tag: object) -> None:
    answer = office.ask(office.open(ORDERS))
    found = office.manager.reading.cancel_tagged(office.queue(ORDERS), tag, OperationCancelled("never seen"))
    assert found == 0xC0000225
    assert answer.waits


def test_deleting_a_queue_ends_the_waits_at_it_and_at_its_journal(office: Office) -> None:
    answers = [office.ask(office.open(ORDERS)), office.ask(office.open(rf"{ORDERS};journal"))]
    office.delete(ORDERS)
    assert [status(answer) for answer in answers] == [0xC00E0008, 0xC00E0008]
