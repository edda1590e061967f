"""Why a message waits: one sentence for every state that an outgoing queue can have, and figures that add up."""

from __future__ import annotations

import pytest

from postroad.binary.session import BinarySettings
from postroad.binary.session_reports import STUCK_S, SendingFacts
from postroad.errors import NoRoute
from postroad.manager.composition import SECRET
from postroad.manager.outlook import Outlook
from postroad.message import Message
from postroad.names import FormatName
from postroad.queues.local import LocalQueueManager
from postroad.queues.outgoing_queues import OutgoingState
from postroad.reports.info import QueueInfo, SessionInfo, span
from tests.unit.binary.network import LEDGER, ORDERS, Network, Station
from tests.unit.binary.stranger import Stranger

NOWHERE = r"DIRECT=TCP:10.0.0.99\private$\q"
ELSEWHERE = r"PRIVATE=00000000-0000-0000-0000-000000000099\8"


def shown(station: Station, name: str) -> QueueInfo:
    outlook = Outlook(station.core, station.network.now)
    return outlook.describe(station.queue(name))


def sessions(station: Station) -> list[SessionInfo]:
    return Outlook(station.core, station.network.now).sessions()


def traffic(station: Station) -> tuple[int, int]:
    return Outlook(station.core, station.network.now).traffic


def figures(info: QueueInfo) -> tuple[int, int, int, int]:
    """Unsent, in flight, unacknowledged, and the total in the queue, which is the sum of the three."""
    assert info.unsent + info.in_flight + info.unacknowledged == info.messages
    return info.unsent, info.in_flight, info.unacknowledged, info.messages


# Nobody there


def test_a_connection_that_fails_is_told_in_its_own_words_with_the_time_of_the_next_try(
    network: Network, alpha: Station
) -> None:
    alpha.send(NOWHERE, "a", "b")
    info = shown(alpha, NOWHERE)
    assert info.why == "cannot connect to 10.0.0.99; next try in 1.0 s"
    assert (info.last_error, info.next_retry_s, info.failures) == ("cannot connect to 10.0.0.99", 1.0, 1)
    assert (info.stuck, figures(info)) == (True, (2, 0, 0, 2))
    network.wait(0.75)
    assert shown(alpha, NOWHERE).next_retry_s == 0.25
    network.wait(0.25)
    assert shown(alpha, NOWHERE).failures == 2


def test_while_it_tries_again_the_last_error_is_still_there(network: Network, alpha: Station) -> None:
    alpha.core.send(NOWHERE, [Message(b"", recoverable=True)], network.now)
    alpha.commit()
    assert shown(alpha, NOWHERE).why == "connecting to 10.0.0.99"
    assert not shown(alpha, NOWHERE).stuck
    network.run()
    network.now += 1
    alpha.core.deadlines.run(network.now)
    assert shown(alpha, NOWHERE).why == "cannot connect to 10.0.0.99; trying again now"
    assert shown(alpha, NOWHERE).stuck


def test_between_two_hops_the_next_try_is_known_too(network: Network, alpha: Station, beta: Station) -> None:
    gamma, delta = network.station("gamma", 3), network.station("delta", 4)
    network.routes[alpha, beta.identifier] = [gamma, delta]
    network.refused = {gamma.address, delta.address}
    alpha.send(beta.private(ORDERS), "a")
    for host in (gamma.address, delta.address, gamma.address):
        assert shown(alpha, beta.private(ORDERS)).why == f"cannot connect to {host}; next try in 1.0 s"
        network.wait(1)


def test_no_route_is_told_in_the_routers_words(network: Network, alpha: Station) -> None:
    def resolve(name: FormatName) -> list[object]:
        raise NoRoute("no routing link leads to its site")

    alpha.service.neighbours._resolve = resolve  # type: ignore[assignment]
    alpha.send(ELSEWHERE, "a")
    info = shown(alpha, ELSEWHERE)
    assert info.why == f"no route to {ELSEWHERE}: no routing link leads to its site; next try in 1.0 s"
    assert (info.state, info.stuck, figures(info)) == ("NEED VALIDATION", True, (1, 0, 0, 1))


# On hold


def test_a_paused_queue_says_who_paused_it(alpha: Station, beta: Station) -> None:
    there = beta.direct(ORDERS)
    alpha.send(there, "first")
    alpha.core.pause(alpha.queue(there))
    alpha.send(there, "a")
    info = shown(alpha, there)
    assert (info.why, info.paused, info.stuck) == ("paused by an operator", True, True)
    alpha.core.resume(alpha.queue(there), alpha.network.now)
    assert not shown(alpha, there).paused


def test_without_a_binary_service_nothing_is_sent_and_it_says_so(alpha: Station) -> None:
    core = LocalQueueManager(alpha.name, alpha.identifier, alpha.store, SECRET)
    core.start(alpha.network.now)
    core.send(NOWHERE, [Message(b"", recoverable=True)], alpha.network.now)
    while (tick := core.ticks.seal()) is not None:
        alpha.store.commit([tick.batch])
        core.ticks.committed(tick, alpha.network.now)
    info = Outlook(core, alpha.network.now).describe(core.queues.get(NOWHERE))
    assert (
        info.why
        == "the binary protocol is off here: nothing is sent until `postroad serve` runs on this data with it on"
    )
    assert (info.stuck, info.unsent) == (True, 1)
    assert Outlook(core, alpha.network.now).sessions() == []
    assert Outlook(core, alpha.network.now).traffic == (0, 0)


def test_a_protocol_that_nobody_here_speaks_is_named(alpha: Station) -> None:
    name = "DIRECT=HTTP://beta/msmq/private$/orders"
    alpha.send(name, "a")
    assert shown(alpha, name).why == "nothing here sends by HTTP"
    assert shown(alpha, name).stuck


# On a session


def test_a_message_that_was_sent_waits_for_an_acknowledgment(network: Network, alpha: Station, beta: Station) -> None:
    there = beta.direct(ORDERS)
    alpha.send(there, "first")
    network.wait(1)
    assert (shown(alpha, there).why, figures(shown(alpha, there))) == (None, (0, 0, 0, 0))
    network.hold(beta, alpha)
    alpha.send(there, "a", "b")
    network.wait(3)
    info = shown(alpha, there)
    assert info.why == "sent to 10.0.0.2, waiting for the peer's acknowledgment for 3.0 s"
    assert (figures(info), info.stuck, info.state) == ((0, 2, 0, 2), False, "CONNECTED")
    network.wait(60 + STUCK_S)
    assert shown(alpha, there).stuck


def test_a_full_window_is_reported_with_its_size(network: Network, stranger: Stranger) -> None:
    alpha = network.station("alpha", 1, BinarySettings(window_size=2))
    there = rf"DIRECT=TCP:{stranger.address}\private$\q"
    stranger.stores = False
    network.hold(stranger, alpha)
    alpha.send(there, *"abcd")
    assert shown(alpha, there).why == "connected to 10.0.0.9, waiting for the session to open for 0.0 s"
    network.release()
    network.hold(stranger, alpha)
    network.wait(4)
    info = shown(alpha, there)
    assert info.why == "the window is full: 2 messages wait for an acknowledgment from 10.0.0.9, the first for 4.0 s"
    assert figures(info) == (2, 2, 0, 4)


def test_transactional_messages_wait_for_their_order(network: Network, alpha: Station, stranger: Stranger) -> None:
    there = rf"DIRECT=TCP:{stranger.address}\private$\q"
    alpha.send_transactional(there, *"ab")
    network.wait(2)
    info = shown(alpha, there)
    assert info.why == (
        "handed over to 10.0.0.9, waiting for the destination's order acknowledgment for 2.0 s; sent again in 28 s"
    )
    assert (figures(info), info.next_resend_s, info.resend_interval_s) == ((0, 0, 2, 2), 28.0, 30)
    network.wait(STUCK_S)
    assert shown(alpha, there).stuck
    stranger.send(stranger.sessions[0], stranger.order_ack(alpha, 2))
    assert (shown(alpha, there).why, shown(alpha, there).next_resend_s) == (None, None)


def test_behind_a_routing_server_they_still_do_without_a_session(
    network: Network, alpha: Station, beta: Station, gamma: Station
) -> None:
    network.routes[alpha, gamma.identifier] = [beta]
    there = gamma.private(LEDGER)
    network.refused.add(gamma.address)
    alpha.send_transactional(there, "a")
    network.wait(1)
    network.cut(alpha, beta)
    network.refused.add(beta.address)
    info = shown(alpha, there)
    assert info.why is not None
    assert "waiting for the destination's order acknowledgment" in info.why
    assert figures(info) == (0, 0, 1, 1)


def test_messages_that_were_sent_twice_count_once(network: Network, alpha: Station, beta: Station) -> None:
    there = beta.direct(LEDGER)
    alpha.send_transactional(there, "first")
    network.wait(1)
    network.hold(beta, alpha)
    alpha.send_transactional(there, "a")
    network.wait(31)
    assert network.sent(alpha, beta) == ["first", "a", "a"]
    assert figures(shown(alpha, there)) == (0, 1, 0, 1)


def test_what_waits_for_a_final_acknowledgment_is_counted_where_it_went(
    network: Network, alpha: Station, beta: Station
) -> None:
    gamma = network.station("gamma", 3)
    for station, count in ((beta, 2), (gamma, 1)):
        alpha.send_transactional(station.direct(LEDGER), *[Message(b"", journal=True)] * count)
    network.wait(2)
    assert [shown(alpha, each.direct(LEDGER)).awaiting_final_ack for each in (beta, gamma)] == [2, 1]
    assert shown(alpha, beta.direct(LEDGER)).messages == 0
    beta.receive(LEDGER)
    network.wait(1)
    assert shown(alpha, beta.direct(LEDGER)).awaiting_final_ack == 1


# Figures


def test_the_oldest_message_is_that_of_any_priority_and_state(network: Network, alpha: Station) -> None:
    alpha.send(NOWHERE, Message(b"", priority=0))
    arrived = int(network.now * 1000)
    network.wait(5)
    alpha.send(NOWHERE, Message(b"", priority=7))
    assert shown(alpha, NOWHERE).oldest_arrived_ms == arrived
    network.refused.clear()
    assert shown(alpha, ORDERS).oldest_arrived_ms is None


def test_each_end_reports_its_session(network: Network, alpha: Station, beta: Station) -> None:
    opened = network.now
    alpha.send(beta.direct(ORDERS), "a", "b")
    network.wait(1)
    (out,), (into,) = sessions(alpha), sessions(beta)
    assert (out.peer, out.address, out.direction, out.state) == (str(beta.identifier), beta.address, "out", "open")
    assert (into.peer, into.address, into.direction) == (str(alpha.identifier), alpha.address, "in")
    assert (out.opened_at_s, out.window) == (opened, 64)
    assert (out.messages_out, out.messages_in, out.unacknowledged) == (2, 0, 0)
    assert (into.messages_out, into.messages_in) == (0, 2)
    assert (out.queues, into.queues) == ((beta.direct(ORDERS),), ())
    assert out.last_received_at_s is not None
    assert opened < out.last_received_at_s <= network.now  # the acknowledgment


def test_a_session_that_is_not_open_yet_has_no_peer(network: Network, alpha: Station, stranger: Stranger) -> None:
    network.hold(stranger, alpha)
    alpha.send(rf"DIRECT=TCP:{stranger.address}\private$\q", "a")
    (session,) = sessions(alpha)
    assert (session.peer, session.state, session.opened_at_s) == (None, "waiting ecr msg", None)
    assert session.last_received_at_s is None


def test_traffic_only_grows(network: Network, alpha: Station, beta: Station) -> None:
    alpha.send(beta.direct(ORDERS), "a", "b")
    network.wait(1)
    assert (traffic(alpha), traffic(beta)) == ((2, 0), (0, 2))
    network.cut(alpha, beta)
    assert (sessions(alpha), traffic(alpha), traffic(beta)) == ([], (2, 0), (0, 2))
    alpha.send(beta.direct(ORDERS), "c")
    network.wait(2)
    assert traffic(alpha) == (3, 0)


# Sentences that need no network


@pytest.mark.parametrize(
    ("facts", "why", "stuck"),
    [
        (SendingFacts(unsent=1), "not tried yet", False),
        (SendingFacts(unsent=1, oldest_s=60), "not tried yet", True),
        (SendingFacts(unsent=1, last_error="it broke"), "it broke; no further try is planned", True),
        (SendingFacts(unsent=1, session_open=True, host="h"), "about to be sent to h", False),
        (
            SendingFacts(unsent=1, in_flight=1, session_open=True, host="h", window_full=1),
            "the window is full: 1 message waits for an acknowledgment from h",
            False,
        ),
        (
            SendingFacts(session_open=True, host="h"),
            "nothing is left to send: held by a reader, or about to leave the queue",
            False,
        ),
    ],
)
def test_rare_states_have_a_sentence_too(facts: SendingFacts, why: str, stuck: bool) -> None:
    assert (facts.why, facts.stuck) == (why, stuck)


@pytest.mark.parametrize("state", OutgoingState)
def test_a_queue_with_messages_always_has_a_reason_and_one_without_has_none(
    alpha: Station, beta: Station, state: OutgoingState
) -> None:
    alpha.network.refused.add(beta.address)
    alpha.send(beta.direct(ORDERS), "a")
    alpha.outgoing(beta.direct(ORDERS)).state = state
    assert shown(alpha, beta.direct(ORDERS)).why
    alpha.core.purge(alpha.queue(beta.direct(ORDERS)), alpha.network.now)
    alpha.network.run()
    empty = shown(alpha, beta.direct(ORDERS))
    assert (empty.messages, empty.why, empty.stuck) == (0, None, False)


def test_a_queue_that_a_hardened_manager_has_locked_says_so(alpha: Station) -> None:
    alpha.send(NOWHERE, "a")
    alpha.outgoing(NOWHERE).state = OutgoingState.LOCKED
    info = shown(alpha, NOWHERE)
    assert (info.why, info.stuck) == (
        "locked: security.hardened is on, so this queue manager sends by HTTP alone",
        True,
    )


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0.0 s"), (0.84, "0.8 s"), (9.96, "10 s"), (59.6, "60 s"), (180, "3 min"), (7300, "2 h"), (345600, "4 days")],
)
def test_lengths_of_time(seconds: float, text: str) -> None:
    assert span(seconds) == text
