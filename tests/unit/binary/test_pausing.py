"""Pausing and resuming an outgoing queue, [MS-MQQB] 3.1.7.13 and 3.1.7.14."""

from __future__ import annotations

import pytest

from postroad.binary.session import Session
from postroad.message import Message
from postroad.queues.outgoing_queues import OutgoingState
from tests.unit.binary.network import ACKS, ORDERS, Network, Station


def pause(station: Station, name: str) -> None:
    station.core.pause(station.queue(name))
    station.network.run()


def resume(station: Station, name: str) -> None:
    station.core.resume(station.queue(name), station.network.now)
    station.network.run()


def session_of(station: Station) -> Session:
    (session,) = station.service.sessions
    return session


@pytest.mark.spec("QB-3.1.7.13-03")
def test_a_paused_queue_keeps_what_it_has(network: Network, alpha: Station, beta: Station) -> None:
    there = beta.direct(ORDERS)
    alpha.send(there, "a")
    pause(alpha, there)
    alpha.send(there, "b", Message(label="c"))
    network.wait(200)
    assert alpha.outgoing(there).state is OutgoingState.ON_HOLD
    assert (beta.labels(ORDERS), alpha.waiting(there)) == (["a"], ["b", "c"])


@pytest.mark.spec("QB-3.1.7.13-01", "QB-3.1.7.13-02")
def test_the_peer_is_acknowledged_and_asked_for_one_at_a_time(network: Network, alpha: Station, beta: Station) -> None:
    there = beta.direct(ORDERS)
    alpha.send(there, "a")
    beta.send(alpha.direct(ORDERS), "b", Message(label="c"))
    assert network.session_acks(alpha, beta) == []
    pause(alpha, there)
    (ack,) = network.session_acks(alpha, beta)
    assert ack.session.window_size == 1
    assert (ack.session.ack_sequence_number, ack.session.user_msg_sequence_number) == (2, 1)
    assert (ack.session.recoverable_msg_ack_seq_number, ack.session.recoverable_msg_ack_flags) == (1, 0b1)
    session = session_of(alpha)
    assert not session.session_active
    assert session.received.unacked == 0
    assert beta.waiting(alpha.direct(ORDERS)) == []
    network.wait(100)
    assert len(network.session_acks(alpha, beta)) == 1  # its timer has stopped


def test_a_pause_without_a_session_says_nothing(network: Network, alpha: Station, beta: Station) -> None:
    there = beta.direct(ORDERS)
    network.refused.add(beta.address)
    alpha.send(there, "a")
    pause(alpha, there)
    network.refused.clear()
    network.wait(100)
    assert network.history == []
    assert alpha.outgoing(there).state is OutgoingState.ON_HOLD


@pytest.mark.spec("QB-3.1.7.14-01", "QB-3.1.7.14-02")
def test_resuming_connects_and_sends_what_waits_in_order(network: Network, alpha: Station, beta: Station) -> None:
    there = beta.direct(ORDERS)
    alpha.send(there, "a")
    network.wait(1)
    network.cut(alpha, beta)
    assert alpha.outgoing(there).state is OutgoingState.DISCONNECTED
    pause(alpha, there)
    alpha.send(there, "b", "c")
    network.wait(10)
    resume(alpha, there)
    assert beta.labels(ORDERS) == ["a", "b", "c"]
    assert alpha.outgoing(there).state is OutgoingState.CONNECTED
    assert session_of(alpha).session_active


@pytest.mark.spec("QB-3.1.7.14-02")
def test_resuming_on_an_open_session_goes_on_at_once(network: Network, alpha: Station, beta: Station) -> None:
    there = beta.direct(ORDERS)
    alpha.send(there, "a")
    pause(alpha, there)
    alpha.send(there, "b", "c")
    resume(alpha, there)
    assert beta.labels(ORDERS) == ["a", "b", "c"]
    assert alpha.outgoing(there).state is OutgoingState.CONNECTED
    assert len(network.history) == 1
    assert session_of(alpha).session_active


@pytest.mark.spec("QB-3.1.7.14-01")
def test_resuming_an_empty_queue_connects_nobody(network: Network, alpha: Station, beta: Station) -> None:
    alpha.core.queues.idle.needed.append(lambda queue: True)  # or it would be forgotten meanwhile
    there = beta.direct(ORDERS)
    alpha.send(there, "a")
    network.wait(1000)
    pause(alpha, there)
    resume(alpha, there)
    network.wait(10)
    assert len(network.connections) == 1


def test_what_was_sent_before_the_pause_is_not_sent_again_by_it(
    network: Network, alpha: Station, beta: Station
) -> None:
    there = beta.direct(ORDERS)
    alpha.send(there, "a")
    network.hold(beta, alpha)
    pause(alpha, there)
    network.cut(alpha, beta)
    network.release()
    network.wait(100)
    assert alpha.waiting(there) == ["a"]
    assert network.sent(alpha, beta) == ["a"]
    resume(alpha, there)
    network.wait(1)
    assert network.sent(alpha, beta) == ["a", "a"]
    assert (beta.labels(ORDERS), alpha.waiting(there)) == (["a"], [])


def test_other_queues_to_the_same_manager_go_on(network: Network, alpha: Station, beta: Station) -> None:
    alpha.send(beta.direct(ORDERS), "a")
    pause(alpha, beta.direct(ORDERS))
    alpha.send(beta.direct(ACKS), "b")
    network.cut(alpha, beta)
    network.wait(2)
    alpha.send(beta.direct(ACKS), "c")
    assert beta.labels(ACKS) == ["b", "c"]
    assert alpha.outgoing(beta.direct(ORDERS)).state is OutgoingState.ON_HOLD
    assert alpha.outgoing(beta.direct(ACKS)).state is OutgoingState.CONNECTED
