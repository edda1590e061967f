"""RemoteQMStartReceive, RemoteQMEndReceive and RemoteQMCancelReceive: [MS-MQQP] 3.1.4.1, 3.1.4.2 and 3.1.4.6."""

from __future__ import annotations

import pytest

from postroad.errors import Status
from postroad.message import Message
from postroad.queues.queue import PositionState
from postroad.remote_read.service import Answer
from postroad.remote_read.values import INFINITE_MS, Ack, Action, is_failure
from tests.unit.queues.harness import ORDERS, OTHER
from tests.unit.remote_read.harness import OK, SOMEBODY, Harness

FEW = 60_000
UNKNOWN = 0x7A7A7A7A


# What is read


@pytest.mark.spec("QP-3.1.4.1-16", "QP-2.2.2.1-06", "QP-4.1-01")
def test_a_receive_takes_the_first_message_and_its_acknowledgment_removes_it(harness: Harness) -> None:
    harness.send("one", "two", "three")
    reader = harness.reader()
    read = reader.receive()
    assert read.label == "one"
    assert harness.queues.queue(ORDERS).count == 3
    assert reader.end(read, Ack.RR_ACK) == OK
    assert harness.queues.queue(ORDERS).count == 2
    assert harness.labels() == ["two", "three"]


def test_a_receive_that_finds_its_message_at_once_passes_over_what_has_expired(harness: Harness) -> None:
    harness.queues.send(ORDERS, Message(label="short", time_to_be_received=5), "lasting")
    harness.queues.now += 6
    reader = harness.reader()
    assert reader.receive().label == "lasting"
    assert harness.labels() == []
    assert reader.receive().status == Status.IO_TIMEOUT


def test_a_queue_that_was_deleted_has_nothing_to_receive(harness: Harness) -> None:
    harness.send("one")
    reader = harness.reader()
    harness.queues.manager.delete_queue(harness.queues.queue(ORDERS), harness.queues.now)
    harness.queues.tick()
    assert reader.receive().status == Status.QUEUE_NOT_AVAILABLE


@pytest.mark.spec("QP-3.1.4.1-04", "QP-3.1.4.1-18", "QP-2.2.2.1-07")
def test_a_peek_leaves_the_first_message_to_everybody(harness: Harness) -> None:
    harness.send("one", "two")
    reader, other = harness.reader(), harness.reader()
    assert reader.peek().label == "one"
    assert reader.peek().label == "one"
    assert harness.labels() == ["one", "two"]
    assert other.receive().label == "one"


@pytest.mark.spec("QP-3.1.4.1-17", "QP-3.1.4.1-19", "QP-2.2.2.1-08")
def test_a_cursor_moves_with_peek_next_alone(harness: Harness) -> None:
    harness.send("one", "two", "three")
    reader = harness.reader()
    cursor = reader.cursor()
    assert [reader.peek(cursor).label, reader.peek(cursor).label] == ["one", "one"]
    assert [reader.peek_next(cursor).label, reader.peek_next(cursor).label] == ["two", "three"]
    assert reader.peek(cursor).label == "three"


@pytest.mark.spec("QP-3.1.4.1-15")
def test_a_receive_by_cursor_takes_the_message_under_it(harness: Harness) -> None:
    harness.send("one", "two", "three")
    reader = harness.reader()
    cursor = reader.cursor()
    reader.peek(cursor)
    reader.peek_next(cursor)
    read = reader.receive(cursor)
    assert read.label == "two"
    assert reader.end(read, Ack.RR_ACK) == OK
    assert harness.labels() == ["one", "three"]
    assert reader.receive(cursor).label == "three"


@pytest.mark.spec("QP-3.1.4.1-35")
def test_the_first_move_of_a_fresh_cursor_is_an_illegal_one(harness: Harness) -> None:
    harness.send("one")
    reader = harness.reader()
    assert reader.peek_next(reader.cursor()).status == Status.ILLEGAL_CURSOR_ACTION


@pytest.mark.spec("QP-3.1.4.1-29")
def test_each_handle_reaches_its_own_queue(harness: Harness) -> None:
    harness.send("here")
    harness.send("there", queue=OTHER)
    readers = [harness.reader(ORDERS), harness.reader(OTHER), harness.reader(ORDERS)]
    assert [reader.peek().label for reader in readers] == ["here", "there", "here"]


@pytest.mark.spec("QP-3.1.4.1-36")
def test_the_answer_holds_the_packet_as_it_is_stored(harness: Harness) -> None:
    harness.send("one")
    (stored,) = harness.queues.queue(ORDERS).available(1)
    answer = harness.reader().peek().answer
    assert answer.record is not None
    assert answer.record.packet == stored.packet
    assert answer.record.arrived_ms == int(harness.queues.now * 1000)


@pytest.mark.spec("QP-3.1.4.1-11", "QP-3.1.4.1-12", "QP-3.1.4.1-39")
def test_only_a_received_message_waits_for_an_acknowledgment(harness: Harness) -> None:
    reader = harness.reader()
    failed = reader.receive()
    assert is_failure(failed.status)
    assert failed.entry is None
    harness.send("one")
    assert reader.peek().entry is None
    assert not reader.remote.unacknowledged
    received = reader.receive()
    assert received.entry is not None
    assert [*reader.remote.unacknowledged.values()] == [received.entry]


@pytest.mark.spec("QP-3.1.1.2-01")
def test_an_entry_holds_what_the_client_asked_for_and_the_message(harness: Harness) -> None:
    harness.send("one")
    reader = harness.reader()
    entry = reader.ask(Action.RECEIVE, timeout_ms=FEW, request_id=7).entry
    assert entry is not None
    assert (entry.remote, entry.timeout_ms, entry.action, entry.request_id) == (reader.remote, FEW, 0, 7)
    assert entry.record == harness.queues.queue(ORDERS).get(entry.record.lookup_id if entry.record else 0)


# Faults


@pytest.mark.spec("QP-3.1.4.1-22", "QP-3.1.4.10-09", "QP-3.1.4.10-10")
def test_no_descriptor_is_an_invalid_handle(harness: Harness) -> None:
    assert harness.mqqp.start_receive(None, harness.queues.now, SOMEBODY) == Answer(Status.INVALID_HANDLE)


@pytest.mark.spec("QP-3.1.4.1-23", "QP-3.1.4.1-24", "QP-3.1.4.10-11")
def test_two_names_for_the_queue_have_to_agree(harness: Harness) -> None:
    harness.send("one")
    reader = harness.reader()
    assert reader.ask(queue=0).status == Status.INVALID_PARAMETER
    assert reader.ask(queue=reader.handle + 1).status == Status.INVALID_PARAMETER
    assert reader.ask().label == "one"


@pytest.mark.spec("QP-3.1.4.1-25", "QP-2.2.2.1-19", "QP-3.1.4.10-12")
def test_a_request_id_is_used_once_at_a_time_on_a_handle(harness: Harness) -> None:
    reader, other = harness.reader(), harness.reader(OTHER)
    reader.wait(request_id=7)
    assert reader.ask(Action.PEEK_CURRENT, FEW, request_id=7).status == Status.INVALID_PARAMETER
    assert other.wait(request_id=7).waits


@pytest.mark.spec("QP-3.1.4.1-20", "QP-3.1.4.1-27", "QP-3.1.4.10-13")
def test_the_next_message_of_no_cursor_is_an_invalid_parameter_of_its_own_kind(harness: Harness) -> None:
    harness.send("one")
    assert harness.reader().ask(Action.PEEK_NEXT).status == 0xC000000D


@pytest.mark.spec("QP-3.1.4.1-03", "QP-3.1.4.1-28", "QP-3.1.4.10-14")
def test_a_queue_that_only_qmcomm_has_opened_cannot_be_read(harness: Harness) -> None:
    harness.send("one")
    reader, remote = harness.reader(), harness.open()
    for handle in (remote.handle, UNKNOWN):
        assert reader.ask(queue_handle=handle, queue=handle).status == Status.INVALID_PARAMETER


@pytest.mark.spec("QP-3.1.4.1-30", "QP-2.2.2.1-05", "QP-3.1.4.10-15")
def test_a_cursor_belongs_to_the_handle_it_was_made_on(harness: Harness) -> None:
    harness.send("one")
    reader, other = harness.reader(), harness.reader()
    for cursor in (other.cursor(), UNKNOWN):
        assert reader.peek(cursor).status == 0xC000000D
    assert reader.peek(reader.cursor()).label == "one"


@pytest.mark.spec("QP-3.1.4.1-14")
@pytest.mark.parametrize("action", [0x40000010, 0x40000020, 1, 0x80000002, 0xFFFFFFFF])
def test_an_action_of_another_kind_is_refused(harness: Harness, action: int) -> None:
    harness.send("one")
    assert harness.reader().ask(action).status == Status.INVALID_PARAMETER
    assert harness.labels() == ["one"]


@pytest.mark.spec("QP-3.1.4.1-31")
def test_faults_are_found_in_their_order(harness: Harness) -> None:
    reader = harness.reader()
    reader.wait(request_id=7)
    # Both a wrong queue and a repeated id, then a repeated id and a next without a cursor, and so on.
    next_only = Action.PEEK_NEXT
    assert reader.ask(next_only, queue=0).status == Status.INVALID_PARAMETER
    assert reader.ask(next_only, request_id=7).status == Status.INVALID_PARAMETER
    assert reader.ask(next_only, queue_handle=UNKNOWN, queue=UNKNOWN).status == Status.STATUS_INVALID_PARAMETER
    assert reader.ask(cursor=UNKNOWN, queue_handle=UNKNOWN, queue=UNKNOWN).status == Status.INVALID_PARAMETER


@pytest.mark.spec("QP-3.1.4.1-21", "QP-3.1.4.1-40", "QP-3.1.4.1-41")
def test_what_the_queue_says_is_the_answer(harness: Harness) -> None:
    """Codes of the queue itself reach the caller unchanged, and nothing is raised."""
    reader, other = harness.reader(), harness.reader()
    cursor = reader.cursor()
    harness.send("one")
    reader.peek(cursor)
    assert other.take() == "one"
    assert reader.peek(cursor).status == Status.MESSAGE_ALREADY_RECEIVED
    assert reader.receive(reader.cursor()).status == Status.MESSAGE_NOT_FOUND
    harness.send("two")
    assert reader.peek().status == OK
    harness.queues.delete(ORDERS)
    assert reader.peek().status == Status.QUEUE_NOT_AVAILABLE


# Waiting


@pytest.mark.spec("QP-3.1.4.1-07", "QP-3.1.1.3-01", "QP-3.1.4.1-32")
def test_a_read_with_a_time_out_waits_for_a_message(harness: Harness) -> None:
    reader = harness.reader()
    read = reader.wait(timeout_ms=5000)
    assert harness.pending() == 1
    harness.queues.wait(1)
    assert read.waits
    harness.send("one")
    assert read.label == "one"
    assert harness.pending() == 0


@pytest.mark.spec("QP-3.1.4.1-08", "QP-3.1.2-01", "QP-3.1.2-02", "QP-2.2.2.1-11", "QP-3.1.4.10-20", "QP-3.1.5-01")
def test_each_read_has_its_own_time_in_milliseconds(harness: Harness) -> None:
    reader = harness.reader()
    short, long = reader.wait(timeout_ms=1500), reader.wait(Action.PEEK_CURRENT, timeout_ms=3000)
    harness.queues.wait(1.4)
    assert short.waits
    harness.queues.wait(0.2)
    assert short.status == Status.IO_TIMEOUT
    assert short.entry is None
    harness.queues.wait(1.3)
    assert long.waits
    harness.queues.wait(0.2)
    assert long.status == Status.IO_TIMEOUT


def test_the_call_timer_ends_a_read_to_the_moment(harness: Harness) -> None:
    reader = harness.reader()
    read = reader.wait(timeout_ms=1500)
    queue, waiting = harness.waiting(read)
    harness.queues.manager.reading.time_out(queue, waiting)
    assert read.status == Status.IO_TIMEOUT
    harness.queues.manager.reading.time_out(queue, waiting)  # too late: nothing follows
    assert len(read.answers) == 1


@pytest.mark.spec("QP-3.1.4.1-09")
def test_a_read_without_a_time_out_does_not_wait(harness: Harness) -> None:
    assert harness.reader().receive().status == Status.IO_TIMEOUT
    assert harness.reader().peek().status == Status.IO_TIMEOUT


@pytest.mark.spec("QP-3.1.4.1-10")
def test_an_infinite_time_out_never_ends(harness: Harness) -> None:
    read = harness.reader().wait(timeout_ms=INFINITE_MS)
    harness.queues.wait(INFINITE_MS / 1000 * 10)  # more than a year
    assert read.waits
    harness.send("one")
    assert read.label == "one"


@pytest.mark.spec("QP-3.1.4.1-38", "QP-3.1.4.10-19")
def test_a_finished_read_leaves_the_collection(harness: Harness) -> None:
    harness.send("one")
    reader = harness.reader()
    assert reader.ask(request_id=7).status == OK
    assert reader.ask(request_id=7).status == Status.IO_TIMEOUT
    assert reader.ask(Action.PEEK_CURRENT, request_id=7).status == Status.IO_TIMEOUT
    assert harness.pending() == 0
    assert is_failure(reader.cancel(7))


@pytest.mark.spec("QP-3.1.1.3-02", "QP-3.1.1.5-02")
def test_many_readers_come_and_go_and_nothing_is_left_over(harness: Harness) -> None:
    for turn in range(50):
        readers = [harness.reader() for _ in range(4)]
        reads = [reader.wait(request_id=number) for reader in readers for number in range(3)]
        assert harness.pending() == len(reads)
        assert readers[turn % 4].cancel(turn % 3) == OK
        assert readers[turn % 4].cancel(turn % 3) == Status.ERROR
        for reader in readers:
            reader.close()
        assert all(len(read.answers) == 1 for read in reads)
    assert harness.service.opened == {}
    assert harness.mqqp.remote_queues == {}
    assert harness.queues.queue(ORDERS).waiting == []


# Two phases


@pytest.mark.spec("QP-1.3.3-01", "QP-3.1.4.1-33", "QP-3.1.6.2-02")
def test_a_message_is_nobody_elses_until_its_acknowledgment(harness: Harness) -> None:
    harness.send("one")
    reader, other = harness.reader(), harness.reader()
    read = reader.receive()
    assert other.receive().status == Status.IO_TIMEOUT
    assert other.peek().status == Status.IO_TIMEOUT
    harness.queues.wait(365 * 86400)
    assert other.receive().status == Status.IO_TIMEOUT
    assert reader.end(read, Ack.RR_NACK) == OK
    assert other.receive().label == "one"


@pytest.mark.spec("QP-3.1.4.2-06", "QP-3.1.4.2-16")
def test_a_negative_acknowledgment_puts_the_message_back_in_its_place(harness: Harness) -> None:
    harness.send("one", "two")
    reader, other = harness.reader(), harness.reader()
    first, second = reader.receive(), reader.receive()
    waits = other.wait()
    assert reader.end(second, Ack.RR_NACK) == OK
    assert waits.label == "two"
    assert other.end(waits, Ack.RR_NACK) == OK
    assert reader.end(first, Ack.RR_NACK) == OK
    assert harness.labels() == ["one", "two"]
    assert (harness.service.received, harness.service.returned) == (0, 3)


@pytest.mark.spec("QP-3.1.4.2-07")
def test_an_acknowledged_message_is_never_seen_again(harness: Harness) -> None:
    (lookup_id,) = harness.send("one")
    reader = harness.reader()
    assert reader.take() == "one"
    assert reader.peek().status == Status.IO_TIMEOUT
    assert is_failure(reader.lookup(Action.LOOKUP_PEEK_CURRENT, lookup_id).status)


@pytest.mark.spec("QP-3.1.4.2-08", "QP-3.1.4.2-09")
def test_the_end_of_nothing_is_an_invalid_handle(harness: Harness) -> None:
    assert harness.mqqp.end_receive(None, Ack.RR_ACK, harness.queues.now) == Status.INVALID_HANDLE


@pytest.mark.spec("QP-3.1.4.2-10", "QP-3.1.4.10-21")
def test_receives_end_in_any_order(harness: Harness) -> None:
    harness.send("one", "two")
    reader = harness.reader()
    first, second = reader.receive(), reader.receive()
    assert reader.end(second, Ack.RR_ACK) == OK
    assert reader.end(first, Ack.RR_NACK) == OK
    assert harness.labels() == ["one"]


@pytest.mark.spec("QP-3.1.4.2-11")
def test_an_end_does_not_look_for_its_entry_among_the_pending_ones(harness: Harness) -> None:
    harness.send("one")
    reader = harness.reader()
    read = reader.receive()
    assert harness.pending() == 0
    assert reader.end(read, Ack.RR_ACK) == OK


@pytest.mark.spec("QP-3.1.4.2-12", "QP-3.1.4.2-13")
@pytest.mark.parametrize(("ack", "left"), [(Ack.RR_ACK, ["two"]), (Ack.RR_NACK, ["one", "two"])])
def test_the_end_deletes_or_returns_the_message_and_the_entry_is_spent(
    harness: Harness, ack: Ack, left: list[str]
) -> None:
    harness.send("one", "two")
    reader = harness.reader()
    read = reader.receive()
    assert reader.end(read, ack) == OK
    assert harness.labels() == left
    assert not reader.remote.unacknowledged
    assert reader.end(read, Ack.RR_ACK) == Status.TRANSACTION_SEQUENCE
    assert harness.labels() == left


@pytest.mark.spec("QP-3.1.4.2-14")
def test_a_message_that_is_available_again_cannot_be_acknowledged(harness: Harness) -> None:
    harness.send("one")
    reader = harness.reader()
    read = reader.receive()
    assert read.answer.record is not None
    harness.queues.manager.reading.put_back(harness.queues.queue(ORDERS), read.answer.record, harness.queues.now)
    assert reader.end(read, Ack.RR_ACK) == Status.TRANSACTION_SEQUENCE
    assert harness.labels() == ["one"]


@pytest.mark.spec("QP-3.1.6.2-01")
def test_a_reader_that_is_gone_returns_its_message(harness: Harness) -> None:
    """The rundown of a read handle is its end with RR_NACK."""
    harness.send("one", "two")
    reader = harness.reader()
    read = reader.receive()
    assert reader.end(read, Ack.RR_NACK) == OK
    assert harness.labels() == ["one", "two"]


def test_what_the_disk_did_not_take_is_not_received(harness: Harness) -> None:
    harness.send("one")
    reader = harness.reader()
    read = reader.receive()
    assert harness.mqqp.end_receive(read.entry, Ack.RR_ACK, harness.queues.now) == OK
    harness.queues.fail()
    assert harness.labels() == ["one"]


# Purging


@pytest.mark.spec("QP-3.1.4.7-06", "QP-3.1.4.7-03", "QP-4.2-01")
def test_a_purge_throws_every_message_away(harness: Harness) -> None:
    harness.send(*(str(number) for number in range(20)))
    reader = harness.reader()
    assert reader.purge() == OK
    assert harness.queues.queue(ORDERS).count == 0


def test_a_purge_goes_step_by_step(harness: Harness) -> None:
    harness.send(*(str(number) for number in range(1001)))
    reader = harness.reader()
    assert harness.mqqp.purge_queue(reader.handle, harness.queues.now, SOMEBODY) == (OK, True)
    assert harness.mqqp.purge_queue(reader.handle, harness.queues.now, SOMEBODY) == (OK, False)
    harness.queues.tick()
    assert harness.queues.queue(ORDERS).count == 0


@pytest.mark.spec("QP-3.1.4.7-04")
def test_a_purge_of_what_is_not_open_is_an_invalid_handle(harness: Harness) -> None:
    harness.send("one")
    remote = harness.open()
    for handle in (remote.handle, UNKNOWN):
        assert harness.mqqp.purge_queue(handle, harness.queues.now, SOMEBODY) == (Status.INVALID_HANDLE, False)
    assert harness.labels() == ["one"]


@pytest.mark.spec("QP-3.1.4.7-07", "QP-3.1.4.2-15")
@pytest.mark.parametrize("ack", [Ack.RR_ACK, Ack.RR_NACK])
def test_a_message_being_received_goes_when_its_receive_ends(harness: Harness, ack: Ack) -> None:
    harness.send("one", "two")
    reader = harness.reader()
    read = reader.receive()
    harness.reader().purge()
    assert list(harness.queues.queue(ORDERS).positions.values()) == [PositionState.PURGE_PENDING]
    assert reader.end(read, ack) == OK
    assert harness.queues.queue(ORDERS).count == 0
    assert harness.labels() == []


# Cancelling


@pytest.mark.spec("QP-3.1.4.6-09", "QP-3.1.4.6-10", "QP-3.1.4.6-03")
def test_a_cancelled_receive_ends_with_an_information(harness: Harness) -> None:
    reader = harness.reader()
    read = reader.wait(request_id=7)
    assert reader.cancel(7) == OK
    assert read.status == 0x400E03E9
    assert not is_failure(read.status)
    assert read.label is None
    assert read.entry is None
    harness.send("one")
    assert harness.labels() == ["one"]


@pytest.mark.spec("QP-3.1.4.6-11")
def test_a_cancelled_id_is_free_again(harness: Harness) -> None:
    reader = harness.reader()
    reader.wait(request_id=7)
    assert reader.cancel(7) == OK
    assert reader.cancel(7) == Status.INVALID_HANDLE
    assert reader.wait(request_id=7).waits


@pytest.mark.spec("QP-3.1.4.6-04", "QP-3.1.4.6-05")
def test_a_cancel_names_its_queue_twice_too(harness: Harness) -> None:
    reader = harness.reader()
    read = reader.wait(request_id=7)
    assert reader.cancel(7, queue=0) == Status.INVALID_PARAMETER
    assert reader.cancel(7, queue=reader.handle + 1) == Status.INVALID_PARAMETER
    assert read.waits


@pytest.mark.spec("QP-3.1.4.6-07")
def test_a_cancel_where_nothing_is_pending_is_an_invalid_handle(harness: Harness) -> None:
    reader, other = harness.reader(), harness.reader()
    other.wait(request_id=7)
    assert reader.cancel(7) == Status.INVALID_HANDLE


@pytest.mark.spec("QP-3.1.4.6-08", "QP-3.1.4.1-06")
def test_a_cancel_of_another_id_is_an_error(harness: Harness) -> None:
    reader = harness.reader()
    read = reader.wait(request_id=1)
    assert reader.cancel(2) == Status.ERROR
    assert read.waits


@pytest.mark.spec("QP-3.1.4.6-13", "QP-3.1.4.1-34", "QP-3.1.4.1-35")
@pytest.mark.parametrize("action", [Action.PEEK_CURRENT, Action.PEEK_NEXT])
def test_a_peek_that_waits_is_cancelled_like_a_receive(harness: Harness, action: Action) -> None:
    """3.2.4.7 cancels pending peeks, although 3.1.4.1 gives them no tag."""
    reader = harness.reader()
    cursor = 0
    if action is Action.PEEK_NEXT:
        harness.send("one")
        cursor = reader.cursor()
        reader.peek(cursor)
    read = reader.ask(action, FEW, cursor, request_id=7)
    assert read.waits
    assert reader.cancel(7) == OK
    assert (read.status, read.label) == (0x400E03E9, None)
    assert reader.cancel(7) == Status.INVALID_HANDLE
    harness.send("two")
    assert read.label is None


@pytest.mark.spec("QP-3.1.4.6-12")
def test_a_cancel_of_a_read_that_has_stopped_waiting_finds_nothing(harness: Harness) -> None:
    reader = harness.reader()
    reader.wait(request_id=7)
    harness.queues.queue(ORDERS).waiting.clear()
    assert reader.cancel(7) == Status.STATUS_NOT_FOUND


@pytest.mark.spec("QP-3.1.4.6-14")
def test_a_received_message_cannot_be_cancelled(harness: Harness) -> None:
    harness.send("one")
    reader, other = harness.reader(), harness.reader()
    read = reader.ask(request_id=7)
    assert reader.cancel(7) == Status.INVALID_HANDLE
    assert other.receive().status == Status.IO_TIMEOUT
    assert reader.end(read, Ack.RR_ACK) == OK


def test_a_cancel_touches_only_its_own_handle(harness: Harness) -> None:
    reader, other = harness.reader(), harness.reader()
    mine, theirs = reader.wait(request_id=7), other.wait(request_id=7)
    assert reader.cancel(7) == OK
    assert not mine.waits
    assert theirs.waits
