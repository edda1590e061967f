"""Which timers run when, [MS-MQQB] 3.1.2. Each of them is a deadline that some object names."""

from __future__ import annotations

import pytest

from postroad.binary.ping import Pinger
from postroad.binary.service import MAX_REFUSALS
from postroad.binary.session import BinarySettings, Session
from postroad.queues.outgoing_queues import ConnectionStatus
from tests.unit.binary.network import LEDGER, ORDERS, Network, Station
from tests.unit.binary.stranger import Stranger


@pytest.mark.spec("QB-3.1.2-01")
def test_every_timer_of_the_protocol_names_its_time(
    network: Network, alpha: Station, beta: Station, stranger: Stranger
) -> None:
    """One after the other is the next to fire, in the order of 3.1.2."""
    now = network.now
    silent = Session.initiate(stranger.identifier, beta.identifier, stranger.settings, now)
    silent.data_to_send()
    network.join(stranger, silent, beta)
    assert beta.core.deadlines.first == now + 60  # Session Initialization
    network.cut(stranger, beta)

    network.refused.add(beta.address)
    alpha.send(beta.direct(ORDERS), "a")
    assert alpha.core.deadlines.first == now + 1  # Session Retry Connect
    network.refused.clear()
    network.wait(1)
    now = network.now
    assert beta.core.deadlines.first == now + 0.5  # Session Ack Send
    (session,) = alpha.service.sessions
    assert session.deadline == now + 240  # Session Ack Wait
    network.wait(300)
    assert session.deadline == now + 600  # Session Cleanup
    now = network.now

    alpha.send_transactional(beta.direct(LEDGER), "a")
    assert alpha.service.sender._resends.get(alpha.queue(beta.direct(LEDGER))) == now + 30  # Transactional Ack Wait
    receiver = beta.service.receiver
    (sequence,) = receiver._due
    assert receiver._timers.get(sequence) == now + 0.5  # Order Ack Send
    network.wait(1)
    assert receiver._timers.get(sequence) is None
    assert receiver.history.deadline is not None
    assert receiver._cleaning.get(None) == receiver.history.deadline  # MessageIDHistory Cleanup

    pinger = Pinger(alpha.identifier)
    pinger.request(now)
    assert pinger.deadline == now + 1  # Ping Response


@pytest.mark.spec("QB-2.2.1-10", "QB-6-07", "QB-3.1.5.3.1-02")
def test_there_are_no_more_sessions_than_allowed(network: Network, stranger: Stranger) -> None:
    beta = network.station("beta", 2, BinarySettings(max_sessions=1))
    other = network.station("other", 8)
    session = stranger.call(beta)
    other.send(beta.direct(ORDERS), "a")
    refused = other.outgoing(beta.direct(ORDERS))
    assert refused.history[-1].status is ConnectionStatus.CONNECTION_REFUSED  # which only a packet can say
    assert refused.last_error == "the peer refused the session"
    assert len(beta.service.sessions) == 1
    assert not session.closed
    network.cut(stranger, beta)
    network.wait(1)
    assert beta.labels(ORDERS) == ["a"]


def test_not_everybody_is_told_that_there_is_no_room(network: Network, stranger: Stranger) -> None:
    """Callers that say nothing and wait for a refusal take up only their own limited room."""
    beta = network.station("beta", 2, BinarySettings(max_sessions=1))
    session = stranger.call(beta)
    silent = [beta.service.accepted("10.0.0.66", network.now) for _ in range(MAX_REFUSALS + 1)]
    assert [each is None for each in silent] == [False] * MAX_REFUSALS + [True]
    assert beta.service.full
    network.cut(stranger, beta)
    assert session.closed
    assert not beta.service.full  # whoever is being refused keeps nobody out
