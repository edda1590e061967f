"""Outgoing queues, [MS-MQDMPR] 3.1.1.3: how they are created, their states, and what a restart leaves."""

from __future__ import annotations

import pytest

from postroad.errors import PostroadError
from postroad.manager.outlook import describe_queue
from postroad.message import Message
from postroad.names import DirectName, FormatName, parse_format_name
from postroad.queues.outgoing_queues import (
    ConnectionAttempt,
    ConnectionStatus,
    OutgoingEvent,
    OutgoingInfo,
    OutgoingState,
    Watcher,
)
from postroad.queues.properties import QueueType
from postroad.reports.operations import QueueAccess
from tests.unit.queues.carrier import RecordingCarrier
from tests.unit.queues.harness import ELSEWHERE, ORDERS, Harness

HTTP = "DIRECT=HTTP://beta/msmq/private$/orders"
MULTICAST = "MULTICAST=234.1.1.1:8001"
STATUSES = [
    ("InProcess", 0),
    ("EstablishPacketReceived", 1),
    ("Established", 2),
    ("UnknownFailure", 0x80000000),
    ("PingFailure", 0x80000001),
    ("CreateSocketFailure", 0x80000002),
    ("BindSocketFailure", 0x80000003),
    ("ConnectSocketFailure", 0x80000004),
    ("TcpNotEnabled", 0x80000005),
    ("SendFailure", 0x80000006),
    ("NotReady", 0x80000007),
    ("NameResolutionFailure", 0x80000008),
    ("InvalidServerCertificate", 0x80000009),
    ("ConnectionLimitReached", 0x8000000A),
    ("ConnectionRefused", 0x8000000B),
    ("RoutingDataUnavailable", 0x8000000C),
    ("LowResource", 0x8000000D),
]


def info(harness: Harness, name: str) -> OutgoingInfo:
    return harness.manager.queues.outgoing_info[harness.queue(name)]


def is_tcp(name: FormatName) -> bool:
    return not name.is_send_only


def is_url(name: FormatName) -> bool:
    return isinstance(name, DirectName) and name.is_send_only


@pytest.mark.spec("DM-3.1.7.1.5-11")
def test_a_destination_elsewhere_gets_a_queue_of_its_own(harness: Harness) -> None:
    descriptor = harness.open(ELSEWHERE, QueueAccess.SEND)
    harness.tick()
    queue = harness.queue(ELSEWHERE)
    assert descriptor.queue is queue
    assert queue.properties.queue_type is QueueType.OUTGOING
    assert (queue.properties.label, queue.properties.path) == (ELSEWHERE, ELSEWHERE)
    identifiers = [each.properties.identifier for each in harness.manager.queues]
    assert identifiers.count(queue.properties.identifier) == 1
    outgoing = info(harness, ELSEWHERE)
    assert (outgoing.destination, outgoing.next_hops) == (parse_format_name(ELSEWHERE), ())
    assert outgoing.state is OutgoingState.INACTIVE


def test_one_destination_has_one_queue_whatever_its_case(harness: Harness) -> None:
    harness.send(ELSEWHERE, "a")
    harness.send(r"direct=os:BETA\PRIVATE$\Orders", "b")
    harness.send(r"beta\private$\orders", "c")
    assert len(harness.manager.queues.outgoing) == 1
    assert harness.labels(ELSEWHERE) == ["a", "b", "c"]


@pytest.mark.spec("DM-3.1.7.1.5-13")
@pytest.mark.parametrize(("name", "multicast"), [(MULTICAST, True), (ELSEWHERE, False), (HTTP, False)])
def test_a_queue_to_a_group_address_says_so(harness: Harness, name: str, multicast: bool) -> None:
    harness.open(name, QueueAccess.SEND)
    assert info(harness, name).multicast is multicast


@pytest.mark.spec("DM-3.1.1.3-03", "DM-3.1.7.1.5-13")
@pytest.mark.parametrize(
    ("name", "state"),
    [(ELSEWHERE, OutgoingState.LOCKED), (MULTICAST, OutgoingState.LOCKED), (HTTP, OutgoingState.INACTIVE)],
)
def test_a_hardened_manager_sends_by_http_alone(name: str, state: OutgoingState) -> None:
    harness = Harness(hardened_security=True)
    harness.carriers = [RecordingCarrier(is_tcp), RecordingCarrier(is_url, hardened=True)]
    harness.restart()
    harness.open(name, QueueAccess.SEND)
    harness.tick()
    assert info(harness, name).state is state
    harness.restart()
    assert info(harness, name).state is state


def test_a_manager_is_not_hardened_unless_it_is_told_to_be(harness: Harness) -> None:
    harness.open(ELSEWHERE, QueueAccess.SEND)
    assert info(harness, ELSEWHERE).state is OutgoingState.INACTIVE


@pytest.mark.spec("DM-3.1.1.3-01")
def test_there_are_eight_states() -> None:
    assert {state.value for state in OutgoingState} == {
        "CONNECTED",
        "DISCONNECTED",
        "DISCONNECTING",
        "INACTIVE",
        "LOCKED",
        "NEED VALIDATION",
        "WAITING",
        "ONHOLD",
    }


@pytest.mark.spec("DM-3.1.7.2.3-01", "DM-3.1.7.2.4-01")
@pytest.mark.parametrize("before", OutgoingState)
def test_a_pause_holds_and_a_resume_starts_afresh_whatever_was_before(harness: Harness, before: OutgoingState) -> None:
    harness.send(ELSEWHERE, "a")
    outgoing = info(harness, ELSEWHERE)
    outgoing.state = before
    states = []
    for event in (OutgoingEvent.PAUSE, OutgoingEvent.RESUME):
        outgoing.on(event)
        states.append(outgoing.state)
    assert states == [OutgoingState.ON_HOLD, OutgoingState.INACTIVE]
    assert harness.labels(ELSEWHERE) == ["a"]


@pytest.mark.spec("DM-3.1.1.2-08")
def test_an_outgoing_queue_is_active_while_it_has_messages(harness: Harness) -> None:
    harness.manager.close(harness.open(ELSEWHERE, QueueAccess.SEND))
    queue = harness.queue(ELSEWHERE)
    assert not queue.active
    harness.send(ELSEWHERE, "a")
    assert queue.active
    harness.purge(ELSEWHERE)
    assert not queue.active


# What is known of the way


@pytest.mark.spec("DM-3.1.1.3-05")
@pytest.mark.parametrize(("name", "code"), STATUSES)
def test_each_outcome_of_a_connection_has_its_code(name: str, code: int) -> None:
    status = ConnectionStatus(code)
    assert status.name.replace("_", "").lower() == name.lower()
    assert len(ConnectionStatus) == len(STATUSES)


@pytest.mark.spec("DM-3.1.1.3-04")
def test_the_history_of_a_queue_is_what_was_tried(harness: Harness) -> None:
    harness.send(ELSEWHERE, "a")
    attempts = [
        ConnectionAttempt(ConnectionStatus.CONNECT_SOCKET_FAILURE, int(harness.now), 0xC00E0069, ("10.0.0.5",)),
        ConnectionAttempt(ConnectionStatus.ESTABLISHED, int(harness.now) + 30),
    ]
    info(harness, ELSEWHERE).history.extend(attempts)
    shown = describe_queue(harness.manager.queues, harness.queue(ELSEWHERE), 0, 0).history
    assert [(each["time_s"], each["error"]) for each in shown] == [
        (int(harness.now), 0xC00E0069),
        (int(harness.now) + 30, 0),
    ]
    assert [each.addresses for each in info(harness, ELSEWHERE).history] == [("10.0.0.5",), ()]


def test_retries_that_fail_alike_are_one_entry_in_words(harness: Harness) -> None:
    harness.send(ELSEWHERE, "a")
    queue, start = info(harness, ELSEWHERE), int(harness.now)
    refused = "cannot connect to 10.0.0.5:1801: Connection refused"

    def tries(at: int, status: ConnectionStatus, error: int, reason: str | None) -> None:
        queue.note(ConnectionAttempt(ConnectionStatus.IN_PROCESS, at, 0, ("10.0.0.5",)))
        queue.note(ConnectionAttempt(status, at, error, ("10.0.0.5",)), reason)

    for at in range(100):
        tries(start + at, ConnectionStatus.CONNECT_SOCKET_FAILURE, 0xC00E0069, refused)
    tries(start + 100, ConnectionStatus.ESTABLISHED, 0, None)
    tries(start + 101, ConnectionStatus.CONNECT_SOCKET_FAILURE, 0xC00E0069, refused)
    shown = describe_queue(harness.manager.queues, harness.queue(ELSEWHERE), 0, 0).history
    first, *others = (each for each in shown if each["error"])
    assert (first["first_s"], first["time_s"], first["count"]) == (start, start + 99, 100)
    assert (first["status"], first["reason"], first["error"]) == ("connect socket failure", refused, 0xC00E0069)
    assert first["code"] == "REMOTE_MACHINE_NOT_AVAILABLE"
    assert str(first["hint"]).startswith("start the queue manager there")
    assert [each["count"] for each in others] == [1]


# After a restart


@pytest.mark.spec("DM-3.1.1.3-02")
def test_a_restart_keeps_destination_and_messages_and_forgets_the_way(harness: Harness) -> None:
    harness.send(ELSEWHERE, "a", "b")
    harness.open(MULTICAST, QueueAccess.SEND)
    harness.tick()
    outgoing = info(harness, ELSEWHERE)
    outgoing.next_hops = ("10.0.0.5",)
    outgoing.state = OutgoingState.CONNECTED
    harness.restart()
    after = info(harness, ELSEWHERE)
    assert (after.destination, after.next_hops) == (parse_format_name(ELSEWHERE), ())
    assert after.state is OutgoingState.INACTIVE
    assert info(harness, MULTICAST).multicast
    assert harness.labels(ELSEWHERE) == ["a", "b"]
    harness.send(ELSEWHERE, "c")
    assert harness.labels(ELSEWHERE) == ["a", "b", "c"]


def test_hardening_counts_from_the_start_after_it(harness: Harness) -> None:
    harness.carriers = [RecordingCarrier(is_tcp), RecordingCarrier(is_url, hardened=True)]
    harness.send(ELSEWHERE, "a")
    harness.open(HTTP, QueueAccess.SEND)
    harness.tick()
    for hardened, expected in ((True, True), (False, False)):
        harness.hardened_security = hardened
        harness.restart()
        assert (info(harness, ELSEWHERE).state is OutgoingState.LOCKED) is expected
        assert info(harness, HTTP).state is OutgoingState.INACTIVE


# Who reads them


def test_a_message_that_an_administrator_takes_was_deleted_before_it_arrived(harness: Harness) -> None:
    harness.send(ELSEWHERE, "a")
    reasons: list[int] = []
    harness.manager.watch(Watcher(removed=lambda queue, records, reason, now: reasons.extend([reason] * len(records))))
    harness.read(harness.open(ELSEWHERE, QueueAccess.RECEIVE_ADMIN))
    assert reasons == [0x8001]
    assert harness.queue(ELSEWHERE).count == 0


def test_local_queues_are_not_outgoing_ones(harness: Harness) -> None:
    harness.send(ORDERS, "a")
    assert harness.manager.queues.outgoing == {}
    assert not harness.queue(ORDERS).is_outgoing


@pytest.mark.parametrize(
    "name", [MULTICAST, ELSEWHERE, f"{ELSEWHERE},{HTTP}", f"{HTTP},DIRECT=OS:alpha\\private$\\none"]
)
def test_a_send_that_is_refused_leaves_no_queue_behind(harness: Harness, name: str) -> None:
    kept = r"DIRECT=OS:gamma\private$\orders"
    harness.send(kept, "a")
    with pytest.raises(PostroadError):
        harness.manager.send(name, [Message(label="x" * 250)], harness.now)
    harness.tick()
    assert [queue.name for queue in harness.manager.queues.outgoing.values()] == [kept]
    harness.send(ELSEWHERE, "b")
    harness.restart()
    assert {queue.name for queue in harness.manager.queues.outgoing.values()} == {kept, ELSEWHERE}
