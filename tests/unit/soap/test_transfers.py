"""OutgoingTransferInfo of a queue that leads to a URL, [MC-MQSRM] 3.1.5.1.8.2 and 3.1.7.2.3."""

from __future__ import annotations

from dataclasses import replace

import pytest

from postroad.message import Message
from postroad.soap.elements import CommitmentReceipt, Decision, StreamReceipt
from postroad.wire.constants import MessageClass
from postroad.wire.records import SequenceInfo
from tests.transfers import NOTHING, OutgoingTransferInfo
from tests.unit.soap.figures import outgoing_transfer
from tests.unit.soap.network import LEDGER, Network, Station, stranger_message

ORDER_QUEUE = r"private$\order_queue$"


@pytest.fixture
def network(network: Network) -> Network:
    """The stranger of these tests is in [peers]: tests of others are in test_trust.py."""
    network.peers |= {"stranger", "10.0.0.99"}
    return network


@pytest.fixture
def there(network: Network, beta: Station) -> str:
    """A queue of a host that answers every request with 200 and sends no receipts."""
    network.answers[beta.address] = 200
    return beta.direct(LEDGER)


def info(alpha: Station, there: str) -> OutgoingTransferInfo:
    return outgoing_transfer(alpha.service.sender, alpha.queue(there))


def acknowledge(network: Network, alpha: Station, last_ordinal: int, number: int) -> None:
    envelope = stranger_message(
        alpha.url(ORDER_QUEUE), number, label="QM Ordering Ack", message_class=MessageClass.ORDER_ACK
    )
    stream_id = network.user_posts("alpha")[0].stream.stream_id
    assert alpha.ask(replace(envelope, stream_receipt=StreamReceipt(stream_id, last_ordinal))) == 200


def finish(network: Network, alpha: Station, ordinal: int, number: int) -> None:
    envelope = stranger_message(
        alpha.url(ORDER_QUEUE), number, label="QM Ordering Ack", message_class=MessageClass.ACK_RECEIVE
    )
    stream_id = network.user_posts("alpha")[0].stream.stream_id
    outcome = CommitmentReceipt(int(network.now), Decision.POSITIVE, f"uuid:1@{alpha.identifier}")
    final = replace(envelope, stream_receipt=StreamReceipt(stream_id, ordinal), commitment_receipt=outcome)
    assert alpha.ask(final) == 200


@pytest.mark.spec(
    "SRM-3.1.7.2.3-07",
    "SRM-3.1.7.2.3-08",
    "SRM-3.1.7.2.3-09",
    "SRM-3.1.7.2.3-10",
    "SRM-3.1.7.2.3-11",
    "SRM-3.1.7.2.3-12",
)
def test_what_a_stream_begins_with_and_how_it_grows(network: Network, alpha: Station, there: str) -> None:
    alpha.send_transactional(there, "a")
    stream = network.exchanges[0].stream.stream_id.sequence.value
    first = info(alpha, there)
    assert first.eod_first_non_ack == first.eod_last_non_ack == SequenceInfo(stream, 1, 0)
    assert first.eod_last_ack == SequenceInfo(stream, 0, 0)
    assert first.eod_next_seq == SequenceInfo(stream, 2, 1)
    assert (first.eod_no_ack_count, first.eod_last_ack_count, first.eod_no_read_count) == (1, 0, 0)
    assert (first.eod_resend_interval_s, first.eod_resend_time_s) == (30, int(network.now) + 30)
    alpha.send_transactional(there, "b", "c")
    network.wait(31)  # sent again, and counted once
    more = info(alpha, there)
    assert (more.eod_first_non_ack, more.eod_last_non_ack) == (SequenceInfo(stream, 1, 0), SequenceInfo(stream, 3, 2))
    assert more.eod_next_seq == SequenceInfo(stream, 4, 3)
    assert more.eod_no_ack_count == 3


@pytest.mark.spec(
    "SRM-3.1.5.1.8.2-01",
    "SRM-3.1.5.1.8.2-02",
    "SRM-3.1.5.1.8.2-03",
    "SRM-3.1.5.1.8.2-04",
    "SRM-3.1.5.1.8.2-05",
)
def test_what_a_stream_receipt_changes(network: Network, alpha: Station, there: str) -> None:
    alpha.send_transactional(there, *(Message(label=each, dead_letter=True) for each in "abc"))
    stream = network.exchanges[0].stream.stream_id.sequence.value
    network.wait(5)
    acknowledge(network, alpha, 1, 1)
    some = info(alpha, there)
    assert some.eod_first_non_ack == SequenceInfo(stream, 2, 1)
    assert some.eod_last_ack == SequenceInfo(stream, 1, 0)
    assert (some.eod_last_ack_time_s, some.eod_last_ack_count) == (int(network.now), 1)
    assert (some.eod_no_ack_count, some.eod_no_read_count) == (2, 1)
    acknowledge(network, alpha, 1, 2)  # the same again
    assert (info(alpha, there).eod_no_ack_count, info(alpha, there).eod_no_read_count) == (2, 1)
    acknowledge(network, alpha, 3, 3)
    acknowledge(network, alpha, 2, 4)  # late
    last = info(alpha, there)
    assert last.eod_last_ack == SequenceInfo(stream, 3, 2)
    assert (last.eod_first_non_ack, last.eod_last_non_ack) == (NOTHING, NOTHING)
    assert (last.eod_last_ack_count, last.eod_no_ack_count, last.eod_no_read_count) == (4, 0, 3)


@pytest.mark.spec("SRM-3.1.5.1.9.2-01")
def test_a_final_receipt_is_one_message_less_to_be_read(network: Network, alpha: Station, there: str) -> None:
    alpha.send_transactional(there, *(Message(label=each, dead_letter=True) for each in "ab"))
    acknowledge(network, alpha, 2, 1)
    finish(network, alpha, 2, 2)
    assert info(alpha, there).eod_no_read_count == 1


@pytest.mark.spec("SRM-3.1.6.2-02")
def test_the_next_resend_is_reported(network: Network, alpha: Station, there: str) -> None:
    alpha.send_transactional(there, "a")
    network.wait(90)
    told = info(alpha, there)
    assert (told.eod_resend_count, told.eod_resend_interval_s) == (3, 300)
    assert told.eod_resend_time_s == int(network.now) + 300


def test_a_queue_without_a_stream_has_nothing(network: Network, alpha: Station, there: str) -> None:
    alpha.send(there, "plain")
    told = info(alpha, there)
    assert (told.eod_first_non_ack, told.eod_last_ack, told.eod_no_ack_count) == (NOTHING, NOTHING, 0)
