"""Cursors, [MS-MQDMPR] 3.2: what each call does in each state, where the cursor is then, and what the caller gets."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from postroad.errors import OperationCancelled
from postroad.message import Message
from postroad.queues.open_queue import CURSOR_CALLS, TRANSITIONS, Cursor, CursorCall, CursorState, OpenQueueDescriptor
from postroad.queues.queue import START
from postroad.reports.operations import QueueAccess, ReadCall
from tests.unit.queues.harness import ORDERS, Answer, Harness, labels, refused

PEEK, PEEK_NEXT, RECEIVE = ReadCall.PEEK, ReadCall.PEEK_NEXT, ReadCall.RECEIVE
UNREAD, READ = CursorState.UNREAD, CursorState.READ
WAIT_PEEK, WAIT_RECEIVE = CursorState.WAIT_PEEK, CursorState.WAIT_RECEIVE


@dataclass
class Rig:
    """An open queue, and a cursor on it."""

    harness: Harness
    descriptor: OpenQueueDescriptor
    cursor: Cursor

    def read(self, call: ReadCall) -> list[str]:
        return labels(self.harness.read(self.descriptor, call, cursor=self.cursor))

    def ask(self, call: ReadCall, seconds: float | None = None) -> Answer:
        return self.harness.ask(self.descriptor, call, seconds, cursor=self.cursor)

    @property
    def stands_at(self) -> str | None:
        record = self.harness.queue(ORDERS).get(self.cursor.position)
        return None if record is None else labels([record])[0]


@pytest.fixture
def rig(harness: Harness) -> Rig:
    descriptor = harness.open(ORDERS)
    return Rig(harness, descriptor, harness.manager.open_cursor(descriptor))


@pytest.mark.spec("DM-3.2.1.2-01", "DM-3.2.7.1-01", "DM-3.1.7.1.1-01", "DM-3.1.1.2-11")
def test_a_new_cursor_stands_before_the_first_message(rig: Rig) -> None:
    rig.harness.send(ORDERS, "a")
    cursor = rig.cursor
    assert (cursor.state, cursor.position, cursor.queue) == (UNREAD, START, rig.descriptor.queue)
    assert rig.descriptor.cursors == {cursor.handle: cursor}
    others = [rig.harness.manager.open_cursor(rig.harness.open(ORDERS)) for _ in range(3)]
    assert len({each.handle for each in (cursor, *others)}) == 4
    assert rig.read(PEEK) == ["a"]


@pytest.mark.spec("DM-3.1.7.1.1-01", "DM-3.2.7.1-01")
def test_there_is_no_cursor_on_a_deleted_queue(rig: Rig) -> None:
    rig.harness.delete(ORDERS)
    with refused(0xC00E004B):
        rig.harness.manager.open_cursor(rig.descriptor)
    assert rig.descriptor.cursors == {rig.cursor.handle: rig.cursor}


def test_there_is_no_cursor_on_a_queue_that_is_open_for_sending(harness: Harness) -> None:
    with refused(0xC00E0025):
        harness.manager.open_cursor(harness.open(ORDERS, QueueAccess.SEND))


# One test for each transition, 3.2.7.2 to 3.2.7.4


def place(rig: Rig, state: CursorState) -> None:
    """Three messages, with the cursor at none of them or at the first."""
    rig.harness.send(ORDERS, "a", "b", "c")
    if state is READ:
        assert rig.read(PEEK) == ["a"]
    assert rig.cursor.state is state


@pytest.mark.spec("DM-3.2.7.2-01", "DM-3.2.7.2-02", "DM-3.2.7.3-01", "DM-3.2.7.4-01", "DM-3.2.7.4-02")
@pytest.mark.parametrize(
    ("before", "call", "found", "after"),
    [
        (UNREAD, PEEK, "a", READ),
        (UNREAD, RECEIVE, "a", UNREAD),
        (READ, PEEK, "a", READ),
        (READ, PEEK_NEXT, "b", READ),
        (READ, RECEIVE, "a", UNREAD),
    ],
)
def test_a_call_finds_a_message(rig: Rig, before: CursorState, call: ReadCall, found: str, after: CursorState) -> None:
    place(rig, before)
    remaining = [label for label in "abc" if call is not RECEIVE or label != found]
    assert rig.read(call) == [found]
    assert rig.cursor.state is after
    assert rig.harness.labels(ORDERS) == remaining
    if call is not RECEIVE:
        assert rig.stands_at == found


@pytest.mark.spec("DM-3.2.7.3-01", "DM-3.1.7.1.14-01")
def test_a_cursor_that_was_never_used_has_no_next_message(rig: Rig) -> None:
    place(rig, UNREAD)
    with refused(0xC00E001C):
        rig.read(PEEK_NEXT)
    assert (rig.cursor.state, rig.cursor.position) == (UNREAD, START)


@pytest.mark.spec("DM-3.2.7.2-02", "DM-3.2.7.4-02", "DM-3.1.7.1.15-01", "DM-3.1.7.1.10-04")
@pytest.mark.parametrize("call", [PEEK, RECEIVE])
@pytest.mark.parametrize("meanwhile", ["received", "locked"])
def test_the_message_under_the_cursor_may_be_taken_by_another(rig: Rig, call: ReadCall, meanwhile: str) -> None:
    place(rig, READ)
    rig.harness.read(ORDERS, two_phase=meanwhile == "locked")
    with refused(0xC00E001D):
        rig.read(call)
    assert rig.cursor.state is READ
    assert rig.read(PEEK_NEXT) == ["b"]


@pytest.mark.spec("DM-3.2.7.2-01", "DM-3.2.7.3-01", "DM-3.2.7.4-01", "DM-3.2.7.5-01")
@pytest.mark.parametrize(
    ("before", "call", "waiting", "after"),
    [
        (UNREAD, PEEK, WAIT_PEEK, READ),
        (UNREAD, RECEIVE, WAIT_RECEIVE, UNREAD),
        (READ, PEEK_NEXT, WAIT_PEEK, READ),
    ],
)
def test_a_call_that_finds_nothing_waits_for_the_next_arrival(
    rig: Rig, before: CursorState, call: ReadCall, waiting: CursorState, after: CursorState
) -> None:
    if before is READ:
        rig.harness.send(ORDERS, "old")
        rig.read(PEEK)
    answer = rig.ask(call)
    assert (answer.waits, rig.cursor.state) == (True, waiting)
    rig.harness.send(ORDERS, "new")
    assert answer.labels == ["new"]
    assert rig.cursor.state is after
    assert ("new" in rig.harness.labels(ORDERS)) is (call is not RECEIVE)


def test_the_table_of_transitions_is_whole() -> None:
    """Every call in every state that is not a wait. A test above covers each of them."""
    assert set(TRANSITIONS) == {(state, call) for state in (UNREAD, READ) for call in CursorCall}
    assert set(CURSOR_CALLS) == set(ReadCall)


@pytest.mark.parametrize("first", [PEEK, RECEIVE])
@pytest.mark.parametrize("second", ReadCall)
def test_a_cursor_waits_in_one_call_at_a_time(rig: Rig, first: ReadCall, second: ReadCall) -> None:
    answer = rig.ask(first)
    with refused(0xC00E001C):
        rig.ask(second)
    rig.harness.send(ORDERS, "a")
    assert answer.labels == ["a"]


# What a wait brings


@pytest.mark.spec("DM-3.2.7.5-01")
def test_a_waiting_cursor_gets_what_arrives_wherever_it_stands(rig: Rig) -> None:
    rig.harness.send(ORDERS, Message(label="low", priority=1, recoverable=True))
    rig.read(PEEK)
    answer = rig.ask(PEEK_NEXT)
    rig.harness.send(ORDERS, Message(label="urgent", priority=7, recoverable=True))
    assert answer.labels == ["urgent"]
    assert (rig.cursor.state, rig.stands_at) == (READ, "urgent")
    assert rig.read(PEEK_NEXT) == ["low"]


@pytest.mark.parametrize("recoverable", [True, False])
def test_a_waiting_cursor_gets_no_message_that_it_has_passed(rig: Rig, recoverable: bool) -> None:
    """Not even if one that was opened before it is gone again when the cursor looks."""
    rig.harness.send(ORDERS, "seen")
    rig.read(PEEK)
    other = rig.harness.open(ORDERS)
    own = rig.harness.manager.open_cursor(other)
    rig.harness.read(other, PEEK, cursor=own)
    first, answer = rig.harness.ask(other, PEEK_NEXT, cursor=own), rig.ask(PEEK_NEXT)
    rig.harness.send(ORDERS, Message(label="urgent", priority=7, recoverable=recoverable, time_to_be_received=0))
    rig.harness.now += 1
    assert (first.waits, answer.waits) == (True, True)


@pytest.mark.spec("DM-3.2.7.5-01")
def test_a_waiting_cursor_gets_a_message_that_is_put_back(rig: Rig) -> None:
    rig.harness.send(ORDERS, "a", "b")
    (record,) = rig.harness.lock(ORDERS)
    rig.read(PEEK)
    answer = rig.ask(PEEK_NEXT)
    rig.harness.end(ORDERS, record, delete=False)
    assert answer.labels == ["a"]


@pytest.mark.spec("DM-3.1.7.1.14-02")
def test_two_cursors_wait_for_one_message_and_both_see_it(rig: Rig) -> None:
    rig.harness.send(ORDERS, "old")
    rig.read(PEEK)
    other = Rig(rig.harness, rig.descriptor, rig.harness.manager.open_cursor(rig.descriptor))
    other.read(PEEK)
    answers = [rig.ask(PEEK_NEXT), other.ask(PEEK_NEXT)]
    rig.harness.send(ORDERS, "new")
    assert [answer.labels for answer in answers] == [["new"], ["new"]]
    assert rig.stands_at == other.stands_at == "new"


def test_a_cursor_that_finds_nothing_does_not_keep_others_from_being_served(rig: Rig) -> None:
    rig.harness.send(ORDERS, "a")
    (record,) = rig.harness.lock(ORDERS)
    peeker, receiver = rig.harness.ask(rig.harness.open(ORDERS), PEEK), rig.harness.ask(rig.harness.open(ORDERS))
    rig.ask(RECEIVE)
    rig.harness.end(ORDERS, record, delete=False)
    assert (peeker.labels, receiver.labels) == (["a"], ["a"])


# What ends a wait


@pytest.mark.spec("DM-3.1.7.1.10-04", "DM-3.2.7.4-01")
def test_a_receive_without_time_finds_nothing_and_leaves_the_cursor_where_it_is(rig: Rig) -> None:
    rig.harness.send(ORDERS, "a")
    (record,) = rig.harness.lock(ORDERS)
    with refused(0xC00E0088):
        rig.read(RECEIVE)
    assert (rig.cursor.state, rig.cursor.position) == (UNREAD, START)
    rig.harness.end(ORDERS, record, delete=False)
    assert rig.read(RECEIVE) == ["a"]


@pytest.mark.spec("DM-3.1.7.1.10-05", "DM-3.2.7.6-01", "DM-3.1.1.2-11")
def test_after_a_receive_that_timed_out_a_cursor_sees_later_messages_only(rig: Rig) -> None:
    rig.harness.send(ORDERS, "locked")
    (record,) = rig.harness.lock(ORDERS)
    answer = rig.ask(RECEIVE, seconds=5)
    rig.harness.wait(5)
    assert answer.error is not None
    assert answer.error.status == 0xC00E001B
    assert rig.cursor.state is UNREAD
    rig.harness.end(ORDERS, record, delete=False)
    rig.harness.send(ORDERS, "later")
    assert rig.read(RECEIVE) == ["later"]


@pytest.mark.spec("DM-3.1.7.1.14-03", "DM-3.2.7.6-01")
@pytest.mark.parametrize("ending", ["time is over", "cancelled"])
def test_after_a_peek_that_ended_in_vain_a_cursor_is_unread_and_stays_where_it_is(rig: Rig, ending: str) -> None:
    rig.harness.send(ORDERS, "a")
    rig.read(PEEK)
    answer = rig.harness.ask(rig.descriptor, PEEK_NEXT, 5, cursor=rig.cursor, tag="t")
    if ending == "cancelled":
        rig.harness.manager.reading.cancel_tagged(rig.harness.queue(ORDERS), "t", _cancelled())
    else:
        rig.harness.wait(5)
    assert answer.error is not None
    assert answer.error.status == (0xC00E0008 if ending == "cancelled" else 0xC00E001B)
    assert (rig.cursor.state, rig.stands_at) == (UNREAD, "a")
    rig.harness.send(ORDERS, "b")
    assert rig.read(PEEK) == ["b"]


def _cancelled() -> OperationCancelled:
    return OperationCancelled("the caller hung up")


@pytest.mark.spec("DM-3.1.7.1.14-03")
@pytest.mark.parametrize("call", ReadCall)
def test_a_cursor_on_a_deleted_queue_reads_nothing(rig: Rig, call: ReadCall) -> None:
    place(rig, READ)
    rig.harness.delete(ORDERS)
    with refused(0xC00E004B):
        rig.read(call)


@pytest.mark.spec("DM-3.1.7.1.2-01")
def test_closing_a_cursor_ends_its_waits_and_no_others(rig: Rig) -> None:
    other = rig.harness.manager.open_cursor(rig.descriptor)
    mine, without = rig.ask(PEEK), rig.harness.ask(rig.descriptor, PEEK)
    theirs = rig.harness.ask(rig.descriptor, PEEK, cursor=other)
    rig.harness.manager.close_cursor(rig.descriptor, rig.cursor)
    assert (mine.waits, without.waits, theirs.waits) == (False, True, True)
    assert rig.descriptor.cursors == {other.handle: other}


# Walking


def test_a_cursor_drains_a_queue(rig: Rig) -> None:
    place(rig, UNREAD)
    assert [rig.read(RECEIVE) for _ in "abc"] == [["a"], ["b"], ["c"]]
    with refused(0xC00E0088):
        rig.read(RECEIVE)


def test_a_cursor_walks_past_what_others_have(rig: Rig) -> None:
    place(rig, UNREAD)
    rig.harness.lock(ORDERS)
    assert rig.read(PEEK) == ["b"]
    assert rig.read(PEEK_NEXT) == ["c"]


@pytest.mark.parametrize("call", [PEEK, RECEIVE])
def test_a_cursor_does_not_show_a_message_whose_time_is_over(rig: Rig, call: ReadCall) -> None:
    rig.harness.send(ORDERS, Message(label="old", recoverable=True, time_to_be_received=5), "new")
    rig.harness.now += 10
    assert rig.read(call) == ["new"]
    assert "old" not in rig.harness.labels(ORDERS)


def test_the_message_under_a_cursor_may_run_out_of_time(rig: Rig) -> None:
    rig.harness.send(ORDERS, Message(label="old", recoverable=True, time_to_be_received=5))
    rig.read(PEEK)
    rig.harness.now += 10
    with refused(0xC00E001D):
        rig.read(PEEK)
