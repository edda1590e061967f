"""Opening and closing a queue from another computer: [MS-MQMP] 3.1.4.2 to 3.1.4.4, [MS-MQQP] 3.1.4.3 to 3.1.4.5."""

from __future__ import annotations

import pytest

from postroad.errors import PostroadError, Status
from postroad.names.grammar import QueueFormatType
from postroad.remote_read.mqqp import Mqqp, RemoteReadState
from postroad.remote_read.values import Ack, Action, DesiredAccess, DesiredShare
from postroad.reports.operations import QueueAccess, ShareMode
from postroad.security.users import User, Users, derive_sid
from tests.unit.queues.harness import ORDERS, OTHER, refused
from tests.unit.remote_read.harness import CLIENT, FIRST_HANDLE, NOBODY, OK, SOMEBODY, Harness, Reader, parts

RANDOM = 0x7A7A7A7A


# R_QMOpenRemoteQueue


def test_a_queue_opens_for_receiving_or_for_peeking(harness: Harness) -> None:
    assert harness.open(ORDERS, DesiredAccess.RECEIVE).remote.descriptor.access is QueueAccess.RECEIVE
    assert harness.open(ORDERS, DesiredAccess.PEEK).remote.descriptor.access is QueueAccess.PEEK


@pytest.mark.parametrize("access", [0, 2, 0x21, 8, 0xFFFFFFFF])
def test_any_other_access_is_refused_before_the_name_is_looked_at(harness: Harness, access: int) -> None:
    assert harness.try_open(r"private$\nowhere", access)[0] == Status.UNSUPPORTED_ACCESS_MODE


@pytest.mark.spec("MQ-2.2.6-03")
@pytest.mark.parametrize(
    ("name", "status"),
    [
        (r"private$\nowhere", Status.QUEUE_NOT_FOUND),
        ("CONNECTOR=11223344-5566-7788-99aa-bbccddeeff00", Status.QUEUE_NOT_FOUND),
        (r"DIRECT=OS:beta\private$\orders", Status.QUEUE_NOT_FOUND),
        ("MULTICAST=234.1.1.1:8001", Status.UNSUPPORTED_FORMATNAME_OPERATION),
        ("DL=11223344-5566-7788-99aa-bbccddeeff00", Status.UNSUPPORTED_FORMATNAME_OPERATION),
        (r"DIRECT=HTTP://alpha/msmq/private$/orders", Status.UNSUPPORTED_FORMATNAME_OPERATION),
        (r"private$\order_queue$", Status.ACCESS_DENIED),
    ],
)
def test_a_name_that_cannot_be_read_from_is_refused(harness: Harness, name: str, status: int) -> None:
    assert harness.try_open(name) == (status, None)


def test_a_queue_format_that_names_nothing_is_refused(harness: Harness) -> None:
    assert harness.try_open(None)[0] == Status.INVALID_PARAMETER
    assert harness.try_open((99, 0, None))[0] == Status.ILLEGAL_FORMATNAME
    assert harness.try_open((QueueFormatType.DIRECT, 0, "not a name"))[0] == Status.ILLEGAL_FORMATNAME
    assert harness.try_open(parts(ORDERS), share=2)[0] == Status.INVALID_PARAMETER


@pytest.mark.parametrize("name", [r"DIRECT=OS:ALPHA\PRIVATE$\ORDERS", r"DIRECT=OS:.\private$\orders", "private number"])
def test_every_name_of_a_local_queue_opens_it(harness: Harness, name: str) -> None:
    if name == "private number":
        name = str(harness.queues.manager.queues.format_name(harness.queues.queue(ORDERS)))
    harness.send("one")
    assert harness.reader(name).peek().label == "one"


def test_the_managers_own_queues_and_journals_open(harness: Harness) -> None:
    machine = f"MACHINE={harness.queues.manager.identifier}"
    for suffix in ("DEADLETTER", "JOURNAL"):  # they may hold anyone's messages
        assert harness.try_open(f"{machine};{suffix}")[0] == Status.ACCESS_DENIED
    sid = derive_sid(harness.queues.manager.identifier, "reader")
    harness.queues.use(users=Users([User("reader", sid, administrator=True)]))
    assert harness.open(f"{machine};DEADLETTER").remote.path.lower() == "system$;deadletter"
    assert harness.open(f"{machine};JOURNAL").remote.path.lower() == "system$;journal"
    assert harness.open(rf"DIRECT=OS:alpha\{ORDERS};JOURNAL").remote.path == f"{ORDERS};journal"


def test_an_exclusive_reader_keeps_others_out_until_it_closes(harness: Harness) -> None:
    reader = harness.reader(share=DesiredShare.DENY_RECEIVE)
    assert harness.try_open()[0] == Status.STATUS_SHARING_VIOLATION
    assert harness.try_open(OTHER)[0] == OK
    with refused(Status.SHARING_VIOLATION):
        harness.queues.open(ORDERS, QueueAccess.RECEIVE, ShareMode.DENY_NONE)
    assert reader.close() == OK
    assert harness.try_open()[0] == OK


def test_who_reads_already_keeps_an_exclusive_reader_out(harness: Harness) -> None:
    harness.reader()
    assert harness.try_open(share=DesiredShare.DENY_RECEIVE)[0] == Status.STATUS_SHARING_VIOLATION


@pytest.mark.spec("QP-5-04")
def test_who_may_not_open_the_queue_gets_no_handle_to_read_with(harness: Harness) -> None:
    """The open decides what a handle may do: no method of qm2qm asks again who calls."""
    status, remote = harness.try_open(r"private$\order_queue$")
    assert (status, remote) == (Status.ACCESS_DENIED, None)
    assert harness.mqqp.remote_queues == {}
    harness.send("one")
    peeker = harness.reader(access=DesiredAccess.PEEK)
    assert peeker.peek().label == "one"
    assert peeker.receive().status == Status.ACCESS_DENIED
    assert peeker.lookup(Action.LOOKUP_RECEIVE_NEXT, 0).status == Status.ACCESS_DENIED
    assert peeker.purge() == Status.ACCESS_DENIED
    assert harness.labels() == ["one"]


@pytest.mark.spec("QP-5-02")
def test_a_hardened_server_opens_queues_for_known_callers_only() -> None:
    harness = Harness(authenticate=True)
    assert harness.try_open(caller=NOBODY) == (Status.ACCESS_DENIED, None)
    assert harness.try_open(caller=SOMEBODY)[0] == OK


def test_handles_are_not_those_of_local_readers(harness: Harness) -> None:
    """Somebody who guesses small numbers cannot reach what a program on this computer has open."""
    local = harness.queues.open(ORDERS)
    assert harness.mqqp.open_queue(CLIENT, local.handle, local.handle, SOMEBODY)[0] == Status.INVALID_PARAMETER


def test_a_handle_in_use_is_not_given_twice(harness: Harness) -> None:
    numbers = iter([0, 5, 5, 0, 6])
    mqqp = Mqqp(harness.service, numbers.__next__)
    opened = [mqqp.open_remote_queue(parts(ORDERS), DesiredAccess.PEEK, 0, 0.0, SOMEBODY)[1] for _ in range(2)]
    assert [remote.handle for remote in opened if remote is not None] == [5, 6]


# RemoteQMOpenQueue


def ready(harness: Harness) -> set[int]:
    """The queues that somebody has opened by qm2qm."""
    return {handle for handle, opened in harness.mqqp.remote_queues.items() if opened.entries}


@pytest.mark.spec("QP-3.1.4.3-05", "QP-3.1.4.3-12", "QP-3.1.4.3-19", "QP-3.1.1.5-01")
def test_an_opened_queue_is_in_the_collection_until_it_is_closed(harness: Harness) -> None:
    first, second = harness.reader(), harness.reader(OTHER)
    assert ready(harness) == {first.handle, second.handle}
    harness.send("one")
    for _ in range(20):
        assert first.peek().label == "one"
    assert first.close() == OK
    assert ready(harness) == {second.handle}


@pytest.mark.spec("QP-3.1.1.4-01", "QP-3.1.4.3-18")
def test_an_entry_holds_the_open_context_and_the_client(harness: Harness) -> None:
    session = harness.reader().session
    assert session.queue_handle == FIRST_HANDLE
    assert session.client_id == CLIENT


@pytest.mark.parametrize(
    ("client", "queue", "context"),
    [
        pytest.param(None, FIRST_HANDLE, FIRST_HANDLE, marks=pytest.mark.spec("QP-3.1.4.3-13")),
        pytest.param(CLIENT, 0, FIRST_HANDLE, marks=pytest.mark.spec("QP-3.1.4.3-14")),
        pytest.param(CLIENT, FIRST_HANDLE, 0, marks=pytest.mark.spec("QP-3.1.4.3-15")),
        pytest.param(CLIENT, FIRST_HANDLE + 1, FIRST_HANDLE, marks=pytest.mark.spec("QP-3.1.4.3-16")),
        pytest.param(CLIENT, RANDOM, RANDOM, marks=pytest.mark.spec("QP-3.1.4.3-21")),
    ],
)
def test_an_open_that_fits_nothing_is_an_invalid_parameter(
    harness: Harness, client: object, queue: int, context: int
) -> None:
    """By the letter, the last of them would be MQ_OK. Here a number that was never given out is refused."""
    assert harness.open().handle == FIRST_HANDLE
    assert harness.mqqp.open_queue(client, queue, context, SOMEBODY) == (Status.INVALID_PARAMETER, None)  # type: ignore[arg-type]
    assert ready(harness) == set()


@pytest.mark.spec("QP-3.1.4.3-20")
def test_closing_the_qmcomm_context_leaves_an_opened_queue_open(harness: Harness) -> None:
    harness.send("one")
    remote = harness.open()
    assert remote.state is RemoteReadState.OPENED
    reader = Reader(harness, remote)
    harness.mqqp.close_remote_queue_context(remote, harness.queues.now)
    assert reader.peek().label == "one"


def test_closing_the_qmcomm_context_of_a_queue_that_nobody_reads_closes_it(harness: Harness) -> None:
    remote = harness.open(share=DesiredShare.DENY_RECEIVE)
    harness.mqqp.close_remote_queue_context(remote, harness.queues.now)
    assert remote.remote.descriptor.closed
    assert harness.try_open()[0] == OK
    harness.mqqp.close_remote_queue_context(remote, harness.queues.now)  # once more does nothing
    harness.mqqp.close_remote_queue_context(None, harness.queues.now)
    assert harness.mqqp.open_queue(CLIENT, remote.handle, remote.handle, SOMEBODY)[0] == Status.INVALID_PARAMETER


# RemoteQMCloseQueue


@pytest.mark.spec("QP-3.1.4.4-03", "QP-3.1.4.4-04")
def test_closing_nothing_is_an_invalid_handle(harness: Harness) -> None:
    assert harness.mqqp.close_queue(None, harness.queues.now) == Status.INVALID_HANDLE


@pytest.mark.spec("QP-3.1.4.4-05", "QP-3.1.4.4-10")
def test_closing_twice_is_not_a_fault(harness: Harness) -> None:
    reader = harness.reader()
    assert reader.close() == OK
    assert reader.close() == OK


@pytest.mark.spec("QP-3.1.4.4-07", "QP-3.1.6.1-02")
def test_a_close_ends_the_waiting_reads_of_its_handle_and_no_others(harness: Harness) -> None:
    reader, other = harness.reader(), harness.reader()
    reads = [reader.wait(), reader.wait()]
    stays = other.wait()
    assert reader.close() == OK
    assert [read.status for read in reads] == [Status.INFORMATION_REMOTE_CANCELED_BY_CLIENT] * 2
    assert stays.waits
    harness.send("one")
    assert stays.label == "one"


@pytest.mark.spec("QP-3.1.4.4-06", "QP-3.1.1.3-03")
def test_a_read_that_starts_while_its_queue_closes_is_refused(harness: Harness) -> None:
    reader = harness.reader()
    late: list[int] = []
    read = reader.wait()
    _, waiting = harness.waiting(read)
    told = waiting.failed

    def failed(error: PostroadError) -> None:
        told(error)
        late.append(reader.ask(timeout_ms=1000).status)

    waiting.failed = failed
    reader.close()
    assert late == [Status.INVALID_PARAMETER]
    assert harness.pending() == 0


@pytest.mark.spec("QP-3.1.4.4-10")
def test_a_close_ends_a_waiting_peek_too(harness: Harness) -> None:
    reader = harness.reader()
    peek = reader.wait(Action.PEEK_CURRENT)
    assert reader.close() == OK
    assert peek.status == Status.INFORMATION_REMOTE_CANCELED_BY_CLIENT
    assert harness.pending() == 0


@pytest.mark.spec("QP-3.1.4.4-08", "QP-3.1.6.1-01")
def test_a_close_gives_everything_back(harness: Harness) -> None:
    reader = harness.reader(share=DesiredShare.DENY_RECEIVE)
    cursor = reader.cursor()
    reader.close()
    assert harness.queues.queue(ORDERS).descriptors == []
    assert reader.remote.descriptor.cursors == {}
    assert harness.mqqp.close_cursor(reader.handle, cursor, SOMEBODY) == Status.INVALID_HANDLE
    assert harness.try_open(share=DesiredShare.DENY_RECEIVE)[0] == OK


def test_a_close_puts_back_what_was_not_acknowledged(harness: Harness) -> None:
    harness.send("one", "two", "three")
    reader, other = harness.reader(), harness.reader()
    reads = [reader.receive(), reader.receive()]
    assert harness.labels() == ["three"]
    reader.close()
    assert harness.labels() == ["one", "two", "three"]
    assert other.receive().label == "one"
    assert reader.end(reads[0], Ack.RR_ACK) == Status.TRANSACTION_SEQUENCE  # it is the other reader's now
    assert harness.labels() == ["two", "three"]


def test_a_queue_that_is_deleted_ends_its_readers(harness: Harness) -> None:
    harness.send("one", "two")
    reader = harness.reader()
    read = reader.receive()
    second = reader.receive()
    waits = reader.wait()
    harness.queues.delete(ORDERS)
    assert waits.status == Status.OPERATION_CANCELLED
    assert reader.receive().status == Status.QUEUE_NOT_AVAILABLE
    assert reader.purge() == Status.QUEUE_NOT_AVAILABLE
    assert reader.end(read, Ack.RR_ACK) == Status.QUEUE_NOT_AVAILABLE
    assert harness.mqqp.create_remote_cursor(reader.handle, SOMEBODY)[0] == Status.QUEUE_NOT_AVAILABLE
    assert reader.close() == OK
    assert second.entry is not None
    assert second.entry.settled


# Cursors


@pytest.mark.spec("QP-1.3.4-01")
def test_a_handle_has_as_many_cursors_as_it_asks_for(harness: Harness) -> None:
    harness.send("one", "two")
    reader = harness.reader()
    cursors = [reader.cursor() for _ in range(300)]
    assert len(set(cursors)) == 300
    assert {reader.peek(cursor).label for cursor in cursors} == {"one"}


def test_a_cursor_of_no_queue_is_refused(harness: Harness) -> None:
    assert harness.mqqp.create_remote_cursor(RANDOM, SOMEBODY) == (Status.INVALID_HANDLE, 0)


@pytest.mark.spec("QP-3.1.4.5-05", "QP-3.1.4.5-06")
def test_a_closed_cursor_is_gone(harness: Harness) -> None:
    harness.send("one")
    reader = harness.reader()
    cursor = reader.cursor()
    assert reader.peek(cursor).label == "one"
    assert harness.mqqp.close_cursor(reader.handle, cursor, SOMEBODY) == OK
    assert reader.peek(cursor).status == Status.STATUS_INVALID_PARAMETER
    assert harness.mqqp.close_cursor(reader.handle, cursor, SOMEBODY) == Status.INVALID_HANDLE


@pytest.mark.spec("QP-3.1.4.5-03")
def test_closing_a_cursor_of_an_unknown_queue_is_an_invalid_handle(harness: Harness) -> None:
    cursor = harness.reader().cursor()
    assert harness.mqqp.close_cursor(RANDOM, cursor, SOMEBODY) == Status.INVALID_HANDLE


@pytest.mark.spec("QP-3.1.4.5-04")
def test_closing_somebody_elses_cursor_is_an_invalid_handle(harness: Harness) -> None:
    harness.send("one")
    reader, other = harness.reader(), harness.reader()
    cursor = other.cursor()
    assert harness.mqqp.close_cursor(reader.handle, cursor, SOMEBODY) == Status.INVALID_HANDLE
    assert other.peek(cursor).label == "one"


@pytest.mark.spec("QP-3.1.4.5-07")
def test_a_cursor_closes_on_a_queue_that_only_qmcomm_has_opened(harness: Harness) -> None:
    remote = harness.open()
    _, cursor = harness.mqqp.create_remote_cursor(remote.handle, SOMEBODY)
    assert harness.mqqp.close_cursor(remote.handle, cursor, SOMEBODY) == OK


# Who reads


def test_readers_are_shown(harness: Harness) -> None:
    harness.send("one", "two")
    reader = harness.reader(share=DesiredShare.DENY_RECEIVE)
    reader.receive()
    reader.cursor()
    peeker = harness.reader(OTHER, DesiredAccess.PEEK)
    peeker.wait(Action.PEEK_CURRENT)
    shown = list(harness.service.readers())
    assert [(each.queue, each.access, each.exclusive) for each in shown] == [
        (ORDERS, "receive", True),
        (OTHER, "peek", False),
    ]
    assert [(each.cursors, each.waiting, each.unacknowledged) for each in shown] == [(1, 0, 1), (0, 1, 0)]
    assert {each.user for each in shown} == {"reader"}
