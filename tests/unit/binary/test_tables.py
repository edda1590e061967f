"""Tables by remote manager. They are limited, and entries that have brought nothing make room first."""

from __future__ import annotations

from uuid import UUID

import pytest

from postroad.binary.neighbours import ADDRESS_STATE
from postroad.binary.sequences import INCOMING_STATE
from postroad.binary.session import BinarySettings
from postroad.message import Message
from postroad.wire.constants import MessageClass
from postroad.wire.headers import TxSequenceId
from tests.unit.binary.network import JOURNAL, LEDGER, ORDERS, Network, Station
from tests.unit.binary.stranger import Stranger

LIMIT = 32
SEQUENCE = TxSequenceId(3, 7)


@pytest.fixture
def beta(network: Network) -> Station:
    network.listed = False
    return network.station("beta", 2, BinarySettings(remote_managers=LIMIT))


def crowd(network: Network, count: int) -> list[Stranger]:
    return [Stranger(network, f"s{number}", number + 1000, f"10.9.0.{number}") for number in range(count)]


def test_a_crowd_that_brings_nothing_does_not_push_out_who_has(network: Network, alpha: Station, beta: Station) -> None:
    alpha.send_transactional(beta.direct(LEDGER), Message(b"body", label="a", journal=True))
    network.wait(60)
    for each in crowd(network, 4 * LIMIT):
        session = each.call(beta)
        gap = each.compose(beta.direct(LEDGER), "x", (SEQUENCE, 5, 4))
        nowhere = each.compose(beta.direct(r"private$\nowhere"), "x", (SEQUENCE, 1, 0))
        each.send(session, gap, nowhere, each.compose(beta.direct(r"private$\nowhere"), "x"))
        network.cut(beta, each)
        network.wait(1)
    assert len(beta.service.neighbours._origins) <= LIMIT
    assert len(list(beta.service.receiver.incoming)) <= LIMIT
    assert len(beta.store.state(ADDRESS_STATE)) <= LIMIT
    assert len(beta.store.state(INCOMING_STATE)) == 1
    beta.receive(LEDGER)
    network.wait(2)
    assert alpha.labels(JOURNAL) == ["a"]


def test_of_those_that_have_brought_something_the_longest_silent_goes(network: Network, beta: Station) -> None:
    everybody = crowd(network, LIMIT + 1)
    for each in everybody:
        each.send(each.call(beta), each.compose(beta.direct(LEDGER), each.name, (SEQUENCE, 1, 0)))
        network.wait(1)
    senders = {each.sender for each in beta.service.receiver.incoming}
    assert everybody[0].identifier not in senders
    assert everybody[-1].identifier in senders
    assert len(senders) <= LIMIT
    assert {name.split("/")[1] for name in beta.store.state(INCOMING_STATE)} == {
        sender.bytes_le.hex() for sender in senders
    }
    assert len(beta.service.receiver._order_acks) <= LIMIT


def test_many_names_of_one_queue_make_no_other_sequence_forgotten(
    network: Network, beta: Station, stranger: Stranger
) -> None:
    """Any host in a direct name has led here, so each is another destination, with a sequence of its own."""
    partner = Stranger(network, "partner", 999, "10.9.9.9")
    packet = partner.compose(beta.direct(LEDGER), "once", (SEQUENCE, 1, 0))
    partner.send(partner.call(beta), packet)
    network.wait(10)
    session = stranger.call(beta)
    for number in range(5 * LIMIT):
        stranger.send(session, stranger.compose(rf"DIRECT=OS:h{number}\{LEDGER}", "x", (SEQUENCE, 1, 0)))
        network.wait(1)
    assert len(list(beta.service.receiver.incoming)) <= LIMIT
    assert len(beta.store.state(INCOMING_STATE)) <= LIMIT
    partner.send(partner.sessions[0], packet)
    partner.send(partner.sessions[0], partner.compose(beta.direct(LEDGER), "next", (SEQUENCE, 2, 1)))
    assert [label for label in beta.labels(LEDGER) if label != "x"] == ["once", "next"]


@pytest.mark.parametrize("restarted", [False, True])
def test_sessions_under_many_names_do_not_make_a_partners_address_forgotten(
    network: Network, beta: Station, restarted: bool
) -> None:
    partner = Stranger(network, "partner", 999, "10.9.9.9")
    partner.send(partner.call(beta), partner.compose(beta.direct(ORDERS), "mine"))
    network.cut(beta, partner)
    network.wait(1)
    if restarted:
        beta.restart()
    for number in range(3 * LIMIT):
        each = Stranger(network, f"s{number}", number + 1000, "10.9.0.1")
        each.send(each.call(beta), each.compose(beta.direct(ORDERS), "x"))
        network.cut(beta, each)
        network.wait(1)
    thief = Stranger(network, "thief", 999, "10.9.0.1")
    thief.send(thief.call(beta), thief.compose(beta.direct(ORDERS), "stolen"))
    assert beta.service.neighbours.address_of(partner.identifier.bytes_le) == partner.address
    assert "stolen" not in beta.labels(ORDERS)
    assert len(beta.service.neighbours._origins) <= LIMIT
    honest = Stranger(network, "honest", 998, "10.9.8.8")  # and somebody new is welcome
    honest.send(honest.call(beta), honest.compose(beta.direct(ORDERS), "hello"))
    assert "hello" in beta.labels(ORDERS)


def test_what_is_refused_is_answered_and_not_remembered(network: Network, beta: Station, stranger: Stranger) -> None:
    session = stranger.call(beta)
    for number in range(3 * LIMIT):
        stranger.send(session, stranger.compose(beta.direct(rf"private$\no{number}"), "x", (SEQUENCE, 1, 0)))
    network.wait(1)
    assert [ack.final_class for ack in stranger.final_acks] == [MessageClass.NACK_BAD_DST_Q] * 3 * LIMIT
    assert list(beta.service.receiver.incoming) == []
    assert beta.store.state(INCOMING_STATE) == {}


def test_names_that_we_called_are_capped_too(network: Network, beta: Station) -> None:
    for number in range(2 * LIMIT):
        beta.service.neighbours.reached(f"host{number}", f"10.8.0.{number}", UUID(int=7))
    network.run()
    assert len(beta.service.neighbours._reached) == LIMIT
    assert len(beta.service.neighbours._hosts) == LIMIT
    assert len(beta.store.state("reached/")) == LIMIT


def test_nothing_is_left_of_a_queue_that_is_forgotten(network: Network, alpha: Station, beta: Station) -> None:
    there = beta.direct(LEDGER)
    alpha.send_transactional(there, "a")
    network.wait(1)
    network.refused.add(beta.address)
    network.cut(alpha, beta)
    queue = alpha.queue(there)
    assert not queue.count
    alpha.core.delete_queue(queue, network.now)
    alpha.service.forget(queue)
    network.wait(10)
    service, sender = alpha.service, alpha.service.sender
    assert (service.peers, service._peers_at, service._hops, service.unresolved) == ({}, {}, {}, {})
    assert (service._active, service._unreachable, sender.sequences, sender._by_sequence) == ({}, set(), {}, {})


def test_a_peer_that_nobody_needs_is_forgotten(network: Network, alpha: Station, beta: Station) -> None:
    alpha.send(beta.direct(ORDERS), "a")
    network.wait(60)
    network.cut(alpha, beta)
    network.wait(10)
    assert (alpha.service.peers, alpha.service._open_at, beta.service._open_at) == ({}, {}, {})


def test_a_peer_is_kept_while_its_messages_wait(network: Network, alpha: Station, beta: Station) -> None:
    network.refused.add(beta.address)
    alpha.send(beta.direct(ORDERS), "a")
    network.wait(10)
    assert len(alpha.service.peers) == 1
    network.refused.clear()
    network.wait(2)
    assert beta.labels(ORDERS) == ["a"]
