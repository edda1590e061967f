"""How a manager finds the next hop, tries it, and tries again: [MS-MQQB] 3.1.5.2, 3.1.5.9, 3.1.6.1 and 3.1.7.12."""

from __future__ import annotations

import pytest

from postroad.binary.service import Hop
from postroad.binary.session import BinarySettings, Session
from postroad.errors import Status
from postroad.message import Message
from postroad.names import parse_format_name
from postroad.net.endpoints import SILENT_S
from postroad.queues.outgoing_queues import (
    ConnectionAttempt,
    ConnectionStatus,
    OutgoingState,
)
from postroad.wire.internal import EstablishConnection
from postroad.wire.octets import NULL_GUID
from tests.unit.binary.network import ACKS, LEDGER, ORDERS, Network, Station
from tests.unit.binary.stranger import Stranger

RETRY_S = 1.0
IDLE_S = 300.0


def statuses(station: Station, name: str) -> list[ConnectionStatus]:
    return [attempt.status for attempt in station.outgoing(name).history]


# The first try


@pytest.mark.spec("QB-3.1.5.2-01", "QB-3.1.7.12-02", "QB-3.1.5.2.1-10", "QB-3.1.5.2.1-09")
def test_a_message_opens_a_session_to_the_address_of_its_direct_name(
    network: Network, alpha: Station, beta: Station
) -> None:
    assert network.connections == []
    alpha.send(beta.direct(ORDERS), "a")
    assert network.connections == [("alpha", beta.address)]
    (request, *_) = network.packets(alpha, beta)
    assert isinstance(request, EstablishConnection)
    assert request.server_guid.int == 0


@pytest.mark.spec("QB-3.1.5.2.1-02", "QB-3.1.5.2.1-04", "QB-3.1.5.2.1-09")
def test_a_guid_is_looked_up_and_asked_for(network: Network, alpha: Station, beta: Station) -> None:
    there = beta.private(ORDERS)
    alpha.send(there, "a")
    assert alpha.resolved == [parse_format_name(there)]
    (request, *_) = network.packets(alpha, beta)
    assert isinstance(request, EstablishConnection)
    assert request.server_guid == beta.identifier


@pytest.mark.spec("QB-3.1.5.2.3-04", "QB-3.1.5.2.3-05", "QB-3.1.5.3.2-07", "QB-3.1.5.4.2-04", "QB-3.1.5.4.2-05")
def test_each_step_of_opening_is_in_the_history(network: Network, alpha: Station, beta: Station) -> None:
    there = beta.direct(ORDERS)
    network.hold(beta, alpha)
    alpha.send(there, "a")
    assert alpha.outgoing(there).state is OutgoingState.WAITING
    assert list(alpha.outgoing(there).history) == [
        ConnectionAttempt(ConnectionStatus.IN_PROCESS, int(network.now), 0, (beta.address,))
    ]
    network.release()
    assert alpha.outgoing(there).state is OutgoingState.CONNECTED
    assert list(alpha.outgoing(there).history)[1:] == [
        ConnectionAttempt(ConnectionStatus.ESTABLISH_PACKET_RECEIVED, int(network.now), 0, (beta.address,)),
        ConnectionAttempt(ConnectionStatus.ESTABLISHED, int(network.now), 0, (beta.address,)),
    ]


@pytest.mark.spec("QB-6-27")
def test_the_way_is_asked_for_once_for_many_messages(network: Network, alpha: Station, beta: Station) -> None:
    for label in "abcd":
        alpha.send(beta.private(ORDERS), label)
    assert len(alpha.resolved) == 1


# No way


@pytest.mark.spec("QB-3.1.5.2.1-03", "QB-3.1.5.2.1-05")
def test_where_no_way_is_known_the_queue_waits_for_one(network: Network, alpha: Station, beta: Station) -> None:
    there = beta.private(ORDERS)
    network.routes[alpha, beta.identifier] = []
    alpha.send(there, "a")
    assert alpha.outgoing(there).state is OutgoingState.NEED_VALIDATION
    assert statuses(alpha, there) == [ConnectionStatus.ROUTING_DATA_UNAVAILABLE]
    assert alpha.outgoing(there).last_error is not None
    network.wait(3)
    assert network.connections == []
    del network.routes[alpha, beta.identifier]
    network.wait(RETRY_S)
    assert alpha.outgoing(there).state is OutgoingState.CONNECTED
    assert beta.labels(ORDERS) == ["a"]


@pytest.mark.spec("QB-3.1.5.2.1-03")
def test_a_public_queue_that_no_directory_has_waits(network: Network, alpha: Station, beta: Station) -> None:
    queue = beta.create(r".\public")
    there = f"PUBLIC={queue.properties.identifier}"
    alpha.send(there, "a")
    assert alpha.outgoing(there).state is OutgoingState.NEED_VALIDATION
    network.public[queue.properties.identifier] = beta
    network.wait(RETRY_S)
    assert beta.labels(r".\public") == ["a"]


@pytest.mark.spec("QB-3.1.5.2-02", "QB-3.1.5.2-03", "QB-3.1.2.3-01")
@pytest.mark.parametrize("retry_s", [1.0, 5.0])
def test_a_refused_connection_is_noted_and_tried_again(network: Network, beta: Station, retry_s: float) -> None:
    alpha = network.station("alpha", 1, BinarySettings(retry_connect_s=retry_s))
    there = beta.direct(ORDERS)
    network.refused.add(beta.address)
    alpha.send(there, "a")
    failure = ConnectionAttempt(
        ConnectionStatus.CONNECT_SOCKET_FAILURE,
        int(network.now),
        Status.REMOTE_MACHINE_NOT_AVAILABLE.value,
        (beta.address,),
        f"cannot connect to {beta.address}",
    )
    assert list(alpha.outgoing(there).history) == [failure]
    network.wait(retry_s - 0.1)
    assert len(network.connections) == 1
    network.wait(0.1)
    assert len(network.connections) == 2
    network.refused.clear()
    network.wait(retry_s)
    assert beta.labels(ORDERS) == ["a"]


def test_a_peer_out_of_reach_is_reported_once_and_once_when_it_is_back(
    network: Network, alpha: Station, beta: Station
) -> None:
    network.refused.add(beta.address)
    alpha.send(beta.direct(ORDERS), "a")
    alpha.send(beta.private(ACKS), "b")  # another way to the same host
    network.wait(10)
    ((host, fault),) = alpha.reachable
    assert (host, fault) == (beta.address, alpha.outgoing(beta.direct(ORDERS)).last_error)
    assert fault is not None
    network.refused.clear()
    network.wait(2)
    assert beta.labels(ORDERS) == ["a"]
    assert alpha.reachable[1:] == [(beta.address, None)]
    network.wait(1000)  # the idle session closes
    assert len(alpha.reachable) == 2


@pytest.mark.spec("QB-3.1.5.2-02")
def test_a_session_that_breaks_while_it_opens_is_an_unknown_failure(
    network: Network, alpha: Station, beta: Station
) -> None:
    there = beta.direct(ORDERS)
    network.hold(beta, alpha)
    alpha.send(there, "a")
    network.cut(alpha, beta)
    last = alpha.outgoing(there).history[-1]
    assert (last.status, last.error) == (ConnectionStatus.UNKNOWN_FAILURE, Status.ERROR.value)


@pytest.mark.spec("QB-2.2.3.1-04")
def test_a_request_names_the_manager_that_a_name_means_and_none_for_a_direct_name(
    network: Network, alpha: Station, beta: Station, gamma: Station
) -> None:
    alpha.send(beta.private(ORDERS), "a")
    alpha.send(gamma.direct(ORDERS), "b")
    assert (beta.labels(ORDERS), gamma.labels(ORDERS)) == (["a"], ["b"])
    asked = [
        [each.server_guid for each in network.packets(alpha, station) if isinstance(each, EstablishConnection)]
        for station in (beta, gamma)
    ]
    assert asked == [[beta.identifier], [NULL_GUID]]


@pytest.mark.spec("QB-3.1.5.2-02")
def test_somebody_else_who_answers_is_refused(network: Network, alpha: Station, beta: Station) -> None:
    there = f"PRIVATE={beta.identifier}\\8"
    impostor = network.station("impostor", 7)
    network.resolve = lambda station, name: [Hop(impostor.address, beta.identifier)]  # type: ignore[method-assign]
    alpha.send(there, "a")
    assert statuses(alpha, there)[-1] is ConnectionStatus.CONNECTION_REFUSED
    assert alpha.waiting(there) == ["a"]
    assert network.sent(alpha, impostor) == []


# A manager with several addresses


@pytest.fixture
def moved(network: Network, beta: Station, monkeypatch: pytest.MonkeyPatch) -> Station:
    """Beta at another address, where nobody connects yet."""
    moved = network.station("beta", 22)
    moved.identifier = beta.identifier
    moved.restart()
    network.refused.add(moved.address)
    hop = Hop(beta.address, beta.identifier, (moved.address,))
    monkeypatch.setattr(network, "resolve", lambda station, name: [hop])
    return moved


def test_a_session_is_left_once_its_manager_answers_elsewhere(
    network: Network, alpha: Station, beta: Station, moved: Station
) -> None:
    there = f"PRIVATE={beta.identifier}\\8"
    alpha.send(there, "a")
    network.wait(RETRY_S)
    network.hold(alpha, beta)
    alpha.send(there, "b")
    network.wait(3 * SILENT_S)
    assert moved.labels(ORDERS) == []  # nobody knows whether beta is only slow
    network.refused.clear()
    network.wait(SILENT_S)
    assert (beta.labels(ORDERS), moved.labels(ORDERS)) == (["a"], ["b"])
    assert [each.address for each in alpha.service.session_infos()] == [moved.address]
    alpha.send(there, "c")
    assert moved.labels(ORDERS) == ["b", "c"]


def test_a_manager_that_is_only_slow_keeps_its_session(
    network: Network, alpha: Station, beta: Station, moved: Station
) -> None:
    there = f"PRIVATE={beta.identifier}\\8"
    alpha.send(there, "a")
    network.wait(RETRY_S)
    network.hold(alpha, beta)
    alpha.send(there, "b")
    network.wait(3 * SILENT_S)
    assert network.connections.count(("alpha", moved.address)) >= 2
    network.release()
    assert beta.labels(ORDERS) == ["a", "b"]
    assert len(network.history) == 1


def test_an_address_that_accepts_and_says_nothing_is_left_for_the_next(
    network: Network, alpha: Station, beta: Station, moved: Station
) -> None:
    network.refused.clear()
    network.hold(alpha, beta)
    alpha.send(f"PRIVATE={beta.identifier}\\8", "a")
    network.wait(SILENT_S + 2 * RETRY_S)
    assert moved.labels(ORDERS) == ["a"]


# The next hop


@pytest.fixture
def hops(network: Network, alpha: Station, gamma: Station) -> list[Stranger]:
    """Three managers that lead from alpha to gamma, in the order in which they are tried."""
    hops = [Stranger(network, name, number) for number, name in enumerate(("first", "second", "third"), 11)]
    network.routes[alpha, gamma.identifier] = [*hops]
    return hops


@pytest.mark.spec("QB-3.1.6.1-03", "QB-3.1.5.2.1-09", "QB-3.1.6.1-04")
def test_after_a_failure_the_next_hop_is_tried_without_asking_again(
    network: Network, alpha: Station, gamma: Station, hops: list[Stranger]
) -> None:
    first, second, _ = hops
    network.refused.add(first.address)
    alpha.send(gamma.private(ORDERS), "a")
    assert network.connections == [("alpha", first.address)]
    network.wait(RETRY_S)
    assert network.connections == [("alpha", first.address), ("alpha", second.address)]
    assert [view.label for view in second.messages] == ["a"]
    assert len(alpha.resolved) == 1
    request, *_ = network.packets(alpha, second)
    assert isinstance(request, EstablishConnection)
    assert request.server_guid == second.identifier


@pytest.mark.spec("QB-3.1.6.1-02", "QB-3.1.5.2.1-06")
def test_behind_the_last_hop_the_way_is_asked_for_again(
    network: Network, alpha: Station, gamma: Station, hops: list[Stranger]
) -> None:
    network.refused |= {each.address for each in hops}
    alpha.send(gamma.private(ORDERS), "a")
    network.wait(2 * RETRY_S)
    tried = [address for _, address in network.connections]
    assert tried == [each.address for each in hops]
    assert len(alpha.resolved) == 1
    del network.routes[alpha, gamma.identifier]  # the directory has changed
    network.refused.add(gamma.address)
    network.wait(RETRY_S)
    assert len(alpha.resolved) == 2
    assert network.connections[-1] == ("alpha", gamma.address)
    assert alpha.outgoing(gamma.private(ORDERS)).next_hops == (gamma.address,)
    network.refused.clear()
    network.wait(RETRY_S)
    assert gamma.labels(ORDERS) == ["a"]


@pytest.mark.spec("QB-3.1.5.4.2-02")
def test_the_ways_there_are_and_then_the_one_that_is_used(
    network: Network, alpha: Station, gamma: Station, hops: list[Stranger]
) -> None:
    there = gamma.private(ORDERS)
    network.hold(hops[0], alpha)
    alpha.send(there, "a")
    assert alpha.outgoing(there).next_hops == tuple(each.address for each in hops)
    network.release()
    assert alpha.outgoing(there).next_hops == (hops[0].address,)


def test_an_idle_session_that_closed_is_not_a_failure_of_its_hop(
    network: Network, alpha: Station, gamma: Station, hops: list[Stranger]
) -> None:
    alpha.send(gamma.private(ORDERS), "a")
    network.wait(3 * IDLE_S)
    assert network.links == []
    alpha.send(gamma.private(ORDERS), "b")
    assert [view.label for view in hops[0].messages] == ["a", "b"]


# Closing


@pytest.mark.spec("QB-3.1.5.9-05", "QB-3.1.7.3-01", "QB-3.1.1.3.1-29", "QB-3.1.1.1.1.1-02", "QB-3.1.5.2-01")
def test_a_lost_connection_is_made_again_after_a_while_if_messages_wait(
    network: Network, alpha: Station, beta: Station
) -> None:
    there = beta.direct(ORDERS)
    alpha.send(there, "a")
    (session,) = alpha.service.sessions
    network.cut(alpha, beta)
    assert session.closed
    assert alpha.service.sessions == {}
    network.wait(RETRY_S - 0.1)
    assert len(network.connections) == 1
    network.wait(0.1)
    assert len(network.connections) == 2
    assert alpha.outgoing(there).state is OutgoingState.CONNECTED


@pytest.mark.spec("QB-3.1.6.1-01")
def test_nobody_connects_for_nothing(network: Network, alpha: Station, beta: Station) -> None:
    alpha.send(beta.direct(ORDERS), "a")
    network.wait(1)
    network.cut(alpha, beta)
    network.wait(1000)
    assert network.connections == [("alpha", beta.address)]
    alpha.send(beta.direct(ORDERS), "b")
    network.refused.add(beta.address)
    network.cut(alpha, beta)
    alpha.core.purge(alpha.queue(beta.direct(ORDERS)), network.now)
    tries = len(network.connections)
    network.wait(100)
    assert len(network.connections) == tries


@pytest.mark.spec("QB-3.1.7.12-02")
def test_a_message_after_an_idle_close_opens_a_session_again(network: Network, alpha: Station, beta: Station) -> None:
    alpha.send(beta.direct(ORDERS), "a")
    network.wait(3 * IDLE_S)
    assert network.links == []
    alpha.send(beta.direct(ORDERS), "b")
    assert beta.labels(ORDERS) == ["a", "b"]


@pytest.mark.spec("QB-3.1.5.9-01", "QB-3.1.5.9-02", "QB-3.1.5.9-03", "QB-3.1.5.9-04")
def test_closing_is_only_closing(network: Network, alpha: Station, beta: Station) -> None:
    alpha.core.queues.idle.needed.append(lambda queue: True)  # or it would be forgotten meanwhile
    there = beta.direct(ORDERS)
    alpha.send(there, "a")
    network.wait(1)
    before = len(network.packets(alpha, beta))
    (session,) = alpha.service.sessions
    seen: list[OutgoingState] = []
    flush = alpha.flush

    def watching(closing: Session) -> None:
        if closing.closed:
            seen.append(alpha.outgoing(there).state)
        flush(closing)

    alpha.flush = watching  # type: ignore[assignment, method-assign]
    network.wait(3 * IDLE_S)
    assert session.closed
    assert session.deadline is None
    assert seen[0] is OutgoingState.DISCONNECTING
    assert alpha.outgoing(there).state is OutgoingState.DISCONNECTED
    assert len(network.packets(alpha, beta)) == before
    assert network.links == []


@pytest.mark.spec("QB-3.1.4.2-01")
def test_a_manager_that_stops_closes_its_sessions(network: Network, alpha: Station, beta: Station) -> None:
    alpha.send(beta.direct(ORDERS), "a")
    sessions = [*alpha.service.sessions, *beta.service.sessions]
    alpha.service.stop()
    network.run()
    assert network.links == []
    assert all(session.closed for session in sessions)
    assert beta.service.sessions == {}


# Who may be called


@pytest.mark.spec("QB-3.1.7.12-01", "QB-6-04")
@pytest.mark.parametrize(
    "name",
    [
        r"DIRECT=HTTP://10.0.0.2/msmq/private$/orders",
        r"DIRECT=HTTPS://10.0.0.2/msmq/private$/orders",
        r"DIRECT=IPX:00000012:00A0246F4A15\private$\orders",
        "MULTICAST=234.1.1.1:8001",
    ],
)
def test_other_protocols_have_senders_of_their_own(network: Network, alpha: Station, beta: Station, name: str) -> None:
    queue = alpha.core.queues.outgoing_queue(alpha.core.tick, parse_format_name(name), int(network.now))
    queue.ready(network.now)
    network.wait(10)
    assert (network.connections, alpha.resolved) == ([], [])
    assert alpha.outgoing(name).state is OutgoingState.INACTIVE


@pytest.mark.spec("QB-3.1.7.12-01")
@pytest.mark.parametrize("state", [OutgoingState.ON_HOLD, OutgoingState.LOCKED])
def test_a_queue_that_may_not_send_calls_nobody(
    network: Network, alpha: Station, beta: Station, state: OutgoingState
) -> None:
    there = beta.direct(ORDERS)
    alpha.core.queues.outgoing_queue(alpha.core.tick, parse_format_name(there), int(network.now))
    alpha.outgoing(there).state = state
    alpha.send(there, "a", Message(label="b"))
    network.wait(10)
    assert network.connections == []
    assert alpha.outgoing(there).state is state


@pytest.mark.spec("QB-3.1.7.12-01")
def test_a_message_in_a_local_queue_calls_nobody(network: Network, alpha: Station, beta: Station) -> None:
    alpha.send(ORDERS, "a")
    alpha.send_transactional(LEDGER, "b")
    network.wait(10)
    assert network.connections == []


@pytest.mark.spec("QB-3.1.7.12-03", "QB-3.1.1.3.1-20")
def test_a_message_that_waits_has_no_place_on_a_session(network: Network, alpha: Station, beta: Station) -> None:
    there = beta.direct(ORDERS)
    network.refused.add(beta.address)
    alpha.send(there, "a")
    assert alpha.queue(there).positions == {}
    assert alpha.service.sessions == {}
    network.refused.clear()
    network.wait(RETRY_S)
    (session,) = alpha.service.sessions
    assert len(session.sent.in_flight) == 1


def test_who_calls_gets_what_waits_for_him(network: Network, alpha: Station, beta: Station) -> None:
    network.refused.add(alpha.address)
    beta.send(alpha.direct(ORDERS), "waits")
    assert alpha.labels(ORDERS) == []
    alpha.send(beta.direct(ACKS), "calls")
    network.wait(RETRY_S)
    assert alpha.labels(ORDERS) == ["waits"]
    assert len(network.history) == 1


def test_an_outgoing_queue_can_be_deleted_while_its_messages_travel(
    network: Network, alpha: Station, beta: Station
) -> None:
    there = beta.direct(ORDERS)
    alpha.send(there, "a")
    alpha.core.delete_queue(alpha.queue(there), network.now)
    alpha.send(beta.private(ACKS), "b")  # another way to the same host
    network.wait(10)
    alpha.send(there, "c")
    assert (beta.labels(ORDERS), beta.labels(ACKS)) == (["a", "c"], ["b"])


@pytest.mark.spec("QB-3.1.2.3-02")
def test_hundreds_that_are_out_of_reach_are_tried_in_turn_and_one_that_was_lost_at_once(
    network: Network, alpha: Station, beta: Station
) -> None:
    """However many there are, each second has about a hundred tries of those that have failed often."""
    for number in range(1000):
        alpha.send(rf"DIRECT=TCP:10.9.{number >> 8}.{number & 255}\{ORDERS}", "a")
    network.wait(30)
    before = len(network.connections)
    network.wait(10)
    assert 500 < len(network.connections) - before < 2000  # it would be 10,000
    alpha.send(beta.direct(ORDERS), "b")
    network.cut(alpha, beta)
    alpha.send(beta.direct(ORDERS), "c")
    network.wait(3)
    assert beta.labels(ORDERS) == ["b", "c"]
