"""The figures of transactional transfer, [MS-MQDMPR] 3.1.1.4 and 3.1.1.5, as [MS-MQQB] 3.1.5.6 and 3.1.5.8 set them."""

from __future__ import annotations

import pytest

from postroad.message import Message
from postroad.queues.transactions import MOST_APART
from postroad.wire.headers import TxSequenceId
from postroad.wire.records import SequenceInfo
from tests.transfers import NOTHING, IncomingTransferInfo, OutgoingTransferInfo
from tests.unit.binary.figures import incoming_transfers, outgoing_transfer
from tests.unit.binary.network import LEDGER, ORDERS, Network, Station
from tests.unit.binary.stranger import Stranger

SEQUENCE = TxSequenceId(3, 7)


def outgoing(station: Station, name: str) -> OutgoingTransferInfo:
    return outgoing_transfer(station.service.sender, station.queue(name))


def incoming(station: Station, path: str) -> list[IncomingTransferInfo]:
    return incoming_transfers(station.service.receiver, station.queue(path))


def test_before_anything_is_sent(network: Network, alpha: Station, beta: Station) -> None:
    there = beta.direct(LEDGER)
    network.refused.add(beta.address)
    alpha.send_transactional(there, "a")
    info = outgoing(alpha, there)
    assert (info.eod_first_non_ack, info.eod_last_non_ack, info.eod_last_ack) == (NOTHING, NOTHING, NOTHING)
    assert (info.eod_last_ack_count, info.eod_no_ack_count, info.eod_no_read_count) == (0, 0, 0)
    assert (info.eod_resend_count, info.eod_resend_interval_s, info.eod_resend_time_s) == (0, 30, 0)


@pytest.mark.spec("QB-3.1.5.6-14", "QB-3.1.2.6-02", "QB-3.1.5.8.8-08", "DM-3.1.1.4-01", "DM-3.1.1.4-02", "MQ-2.2.5-02")
def test_while_messages_are_on_their_way(network: Network, alpha: Station, stranger: Stranger) -> None:
    there = stranger.direct(LEDGER)
    alpha.send_transactional(there, "a", "b", "c")
    sequence = stranger.place.sequence_id.value
    info = outgoing(alpha, there)
    assert info.eod_first_non_ack == SequenceInfo(sequence, 1, 0)
    assert info.eod_last_non_ack == SequenceInfo(sequence, 3, 2)
    assert info.eod_next_seq == SequenceInfo(sequence, 4, 3)
    assert (info.eod_no_ack_count, info.eod_resend_time_s) == (3, int(network.now) + 30)


@pytest.mark.spec("QB-3.1.5.6-13", "QB-3.1.5.6-02", "QB-3.1.5.6-07", "QB-3.1.5.6-14", "DM-3.1.1.4-01", "DM-3.1.1.4-02")
def test_after_an_order_ack(network: Network, alpha: Station, stranger: Stranger) -> None:
    there = stranger.direct(LEDGER)
    alpha.send_transactional(there, "a", "b", "c")
    sequence = stranger.place.sequence_id.value
    network.wait(35)
    assert (outgoing(alpha, there).eod_resend_count, outgoing(alpha, there).eod_resend_interval_s) == (1, 30)
    stranger.send(stranger.sessions[0], stranger.order_ack(alpha, 1))
    acked_at = int(network.now)
    stranger.send(stranger.sessions[0], stranger.order_ack(alpha, 2))
    info = outgoing(alpha, there)
    assert info.eod_last_ack == SequenceInfo(sequence, 2, 1)
    assert info.eod_first_non_ack == info.eod_last_non_ack == SequenceInfo(sequence, 3, 2)
    assert (info.eod_last_ack_time_s, info.eod_last_ack_count, info.eod_no_ack_count) == (acked_at, 2, 1)
    assert (info.eod_resend_count, info.eod_resend_interval_s) == (0, 30)
    assert info.eod_resend_time_s == acked_at + 30


@pytest.mark.spec("QB-3.1.5.6-15", "DM-3.1.1.4-02")
def test_what_is_not_read_yet(network: Network, alpha: Station, beta: Station) -> None:
    there, other = beta.direct(LEDGER), beta.direct(r"private$\other")
    beta.create(r"private$\other", transactional=True)
    journaled = [Message(label=label, journal=True) for label in "ab"]
    alpha.send_transactional(there, *journaled, "c")
    alpha.send_transactional(other, *journaled[:1])
    assert outgoing(alpha, there).eod_no_read_count == 0
    network.wait(1)
    assert (outgoing(alpha, there).eod_no_read_count, outgoing(alpha, other).eod_no_read_count) == (2, 1)
    beta.receive(LEDGER)
    assert (outgoing(alpha, there).eod_no_read_count, outgoing(alpha, other).eod_no_read_count) == (1, 1)


@pytest.mark.spec("QB-3.1.5.6-12", "QB-3.1.5.8.8-08", "DM-3.1.1.4-01")
def test_the_next_place_after_everything_was_acknowledged(network: Network, alpha: Station, beta: Station) -> None:
    there = beta.direct(LEDGER)
    alpha.send_transactional(there, "a", "b")
    before = outgoing(alpha, there).eod_next_seq
    network.wait(1)
    after = outgoing(alpha, there).eod_next_seq
    assert 1 <= after.sequence_id - before.sequence_id <= MOST_APART
    assert (after.sequence_number, after.previous_number) == (1, 0)
    alpha.send_transactional(there, "c")
    assert outgoing(alpha, there).eod_first_non_ack == after


@pytest.mark.spec("QB-3.1.5.8.8-07")
def test_a_manager_on_the_way_has_no_part_in_it(
    network: Network, alpha: Station, beta: Station, gamma: Station
) -> None:
    network.routes[alpha, gamma.identifier] = [beta]
    network.refused.add(gamma.address)
    alpha.send_transactional(gamma.private(LEDGER), "a", "b")
    info = outgoing(beta, gamma.private(LEDGER))
    assert (info.eod_first_non_ack, info.eod_last_non_ack, info.eod_last_ack) == (NOTHING, NOTHING, NOTHING)
    assert (info.eod_no_ack_count, info.eod_last_ack_count, info.eod_no_read_count) == (0, 0, 0)


@pytest.mark.spec("QB-3.1.5.8.8-05", "QB-3.1.5.8.6-05", "QB-3.1.5.8.6-07", "DM-3.1.1.5-01")
def test_every_sender_to_a_queue_is_listed(network: Network, beta: Station, stranger: Stranger) -> None:
    other = Stranger(network, "other", 8)
    assert incoming(beta, LEDGER) == []
    there = beta.direct(LEDGER)
    stranger.send(stranger.call(beta), *(stranger.compose(there, "a", (SEQUENCE, 1, 0)) for _ in range(3)))
    network.wait(9)
    other.send(other.call(beta), other.compose(beta.private(LEDGER), "b", (SEQUENCE, 2, 0)))
    started = int(network.now) - 9
    assert incoming(beta, LEDGER) == [
        IncomingTransferInfo(there, stranger.identifier, SEQUENCE.value, 1, started, 2),
        IncomingTransferInfo(beta.private(LEDGER), other.identifier, SEQUENCE.value, 2, int(network.now), 0),
    ]
    assert incoming(beta, ORDERS) == []
    beta.restart()
    assert {each.format_name for each in incoming(beta, LEDGER)} == {there, beta.private(LEDGER)}


@pytest.mark.spec("DM-3.1.1.5-01", "QB-3.1.5.8.6-06")
def test_rejections_count_until_a_message_is_accepted(beta: Station, stranger: Stranger) -> None:
    there = beta.direct(LEDGER)
    session = stranger.call(beta)
    for number, previous, count in ((1, 0, 0), (3, 2, 1), (3, 2, 2), (2, 1, 0)):
        stranger.send(session, stranger.compose(there, "a", (SEQUENCE, number, previous)))
        (found,) = incoming(beta, LEDGER)
        assert found.reject_count == count
    assert found.sequence_number == 2
