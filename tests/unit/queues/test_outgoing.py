"""Outgoing queues, [MS-MQDMPR] 3.1.1.3: how they come to be, their states, and what a restart leaves of them."""

from __future__ import annotations

import pytest

from postroad.errors import PostroadError
from postroad.message import Message
from postroad.names import DirectName, FormatName, parse_format_name
from postroad.queues.carriers import Watcher
from postroad.queues.descriptor import QueueAccess
from postroad.queues.info import describe_queue
from postroad.queues.outgoing import ConnectionAttempt, ConnectionStatus, OutgoingEvent, OutgoingInfo, OutgoingState
from postroad.queues.properties import QueueType
from tests.unit.queues.carrier import RecordingCarrier
from tests.unit.queues.office import ELSEWHERE, ORDERS, Office

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


def info(office: Office, name: str) -> OutgoingInfo:
    return office.manager.queues.outgoing_info[office.queue(name)]


def is_tcp(name: FormatName) -> bool:
    return not name.is_send_only


def is_url(name: FormatName) -> bool:
    return isinstance(name, DirectName) and name.is_send_only


@pytest.mark.spec("DM-3.1.7.1.5-11")
def test_a_destination_elsewhere_gets_a_queue_of_its_own(office: Office) -> None:
    descriptor = office.open(ELSEWHERE, QueueAccess.SEND)
    office.tick()
    queue = office.queue(ELSEWHERE)
    assert descriptor.queue is queue
    assert queue.properties.queue_type is QueueType.OUTGOING
    assert (queue.properties.label, queue.properties.path) == (ELSEWHERE, ELSEWHERE)
    identifiers = [each.properties.identifier for each in office.manager.queues]
    assert identifiers.count(queue.properties.identifier) == 1
    outgoing = info(office, ELSEWHERE)
    assert (outgoing.destination, outgoing.next_hops) == (parse_format_name(ELSEWHERE), ())
    assert outgoing.state is OutgoingState.INACTIVE


def test_one_destination_has_one_queue_whatever_its_case(office: Office) -> None:
    office.send(ELSEWHERE, "a")
    office.send(r"direct=os:BETA\PRIVATE$\Orders", "b")
    office.send(r"beta\private$\orders", "c")
    assert len(office.manager.queues.outgoing) == 1
    assert office.labels(ELSEWHERE) == ["a", "b", "c"]


@pytest.mark.spec("DM-3.1.7.1.5-13")
@pytest.mark.parametrize(("name", "multicast"), [(MULTICAST, True), (ELSEWHERE, False), (HTTP, False)])
def test_a_queue_to_a_group_address_says_so(office: Office, name: str, multicast: bool) -> None:
    office.open(name, QueueAccess.SEND)
    assert info(office, name).multicast is multicast


@pytest.mark.spec("DM-3.1.1.3-03", "DM-3.1.7.1.5-13")
@pytest.mark.parametrize(
    ("name", "state"),
    [(ELSEWHERE, OutgoingState.LOCKED), (MULTICAST, OutgoingState.LOCKED), (HTTP, OutgoingState.INACTIVE)],
)
def test_a_hardened_manager_sends_by_http_alone(name: str, state: OutgoingState) -> None:
    office = Office(hardened_security=True)
    office.carriers = [RecordingCarrier(is_tcp), RecordingCarrier(is_url, hardened=True)]
    office.restart()
    office.open(name, QueueAccess.SEND)
    office.tick()
    assert info(office, name).state is state
    office.restart()
    assert info(office, name).state is state


def test_a_manager_is_not_hardened_unless_it_is_told_to_be(office: Office) -> None:
    office.open(ELSEWHERE, QueueAccess.SEND)
    assert info(office, ELSEWHERE).state is OutgoingState.INACTIVE


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
def test_a_pause_holds_and_a_resume_starts_afresh_whatever_was_before(office: Office, before: OutgoingState) -> None:
    office.send(ELSEWHERE, "a")
    outgoing = info(office, ELSEWHERE)
    outgoing.state = before
    states = []
    for event in (OutgoingEvent.PAUSE, OutgoingEvent.RESUME):
        outgoing.on(event)
        states.append(outgoing.state)
    assert states == [OutgoingState.ON_HOLD, OutgoingState.INACTIVE]
    assert office.labels(ELSEWHERE) == ["a"]


@pytest.mark.spec("DM-3.1.1.2-08")
def test_an_outgoing_queue_is_active_while_it_has_messages(office: Office) -> None:
    office.manager.close(office.open(ELSEWHERE, QueueAccess.SEND))
    queue = office.queue(ELSEWHERE)
    assert not queue.active
    office.send(ELSEWHERE, "a")
    assert queue.active
    office.purge(ELSEWHERE)
    assert not queue.active


# What is known of the way


@pytest.mark.spec("DM-3.1.1.3-05")
@pytest.mark.parametrize(("name", "code"), STATUSES)
def test_each_outcome_of_a_connection_has_its_code(name: str, code: int) -> None:
    status = ConnectionStatus(code)
    assert status.name.replace("_", "").lower() == name.lower()
    assert len(ConnectionStatus) == len(STATUSES)


@pytest.mark.spec("DM-3.1.1.3-04")
def test_the_history_of_a_queue_is_what_was_tried(office: Office) -> None:
    office.send(ELSEWHERE, "a")
    attempts = [
        ConnectionAttempt(ConnectionStatus.CONNECT_SOCKET_FAILURE, int(office.now), 0xC00E0069, ("10.0.0.5",)),
        ConnectionAttempt(ConnectionStatus.ESTABLISHED, int(office.now) + 30),
    ]
    info(office, ELSEWHERE).history.extend(attempts)
    shown = describe_queue(office.manager.queues, office.queue(ELSEWHERE), 0).history
    assert [(each["time_s"], each["error"]) for each in shown] == [
        (int(office.now), 0xC00E0069),
        (int(office.now) + 30, 0),
    ]
    assert [each.addresses for each in info(office, ELSEWHERE).history] == [("10.0.0.5",), ()]


# After a restart


@pytest.mark.spec("DM-3.1.1.3-02")
def test_a_restart_keeps_destination_and_messages_and_forgets_the_way(office: Office) -> None:
    office.send(ELSEWHERE, "a", "b")
    office.open(MULTICAST, QueueAccess.SEND)
    office.tick()
    outgoing = info(office, ELSEWHERE)
    outgoing.next_hops = ("10.0.0.5",)
    outgoing.state = OutgoingState.CONNECTED
    office.restart()
    after = info(office, ELSEWHERE)
    assert (after.destination, after.next_hops) == (parse_format_name(ELSEWHERE), ())
    assert after.state is OutgoingState.INACTIVE
    assert info(office, MULTICAST).multicast
    assert office.labels(ELSEWHERE) == ["a", "b"]
    office.send(ELSEWHERE, "c")
    assert office.labels(ELSEWHERE) == ["a", "b", "c"]


def test_hardening_counts_from_the_start_after_it(office: Office) -> None:
    office.carriers = [RecordingCarrier(is_tcp), RecordingCarrier(is_url, hardened=True)]
    office.send(ELSEWHERE, "a")
    office.open(HTTP, QueueAccess.SEND)
    office.tick()
    for hardened, expected in ((True, True), (False, False)):
        office.hardened_security = hardened
        office.restart()
        assert (info(office, ELSEWHERE).state is OutgoingState.LOCKED) is expected
        assert info(office, HTTP).state is OutgoingState.INACTIVE


# Who reads them


def test_a_message_that_an_administrator_takes_was_deleted_before_it_arrived(office: Office) -> None:
    office.send(ELSEWHERE, "a")
    reasons: list[int] = []
    office.manager.watch(Watcher(removed=lambda queue, record, reason, now: reasons.append(reason)))
    office.read(office.open(ELSEWHERE, QueueAccess.RECEIVE_ADMIN))
    assert reasons == [0x8001]
    assert office.queue(ELSEWHERE).count == 0


def test_local_queues_are_no_outgoing_ones(office: Office) -> None:
    office.send(ORDERS, "a")
    assert office.manager.queues.outgoing == {}
    assert not office.queue(ORDERS).is_outgoing


@pytest.mark.parametrize(
    "name", [MULTICAST, ELSEWHERE, f"{ELSEWHERE},{HTTP}", f"{HTTP},DIRECT=OS:alpha\\private$\\none"]
)
def test_a_send_that_is_refused_leaves_no_queue_behind(office: Office, name: str) -> None:
    kept = r"DIRECT=OS:gamma\private$\orders"
    office.send(kept, "a")
    with pytest.raises(PostroadError):
        office.manager.send(name, [Message(label="x" * 250)], office.now)
    office.tick()
    assert [queue.name for queue in office.manager.queues.outgoing.values()] == [kept]
    office.send(ELSEWHERE, "b")
    office.restart()
    assert {queue.name for queue in office.manager.queues.outgoing.values()} == {kept, ELSEWHERE}
