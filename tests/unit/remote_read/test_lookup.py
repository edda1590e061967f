"""RemoteQMStartReceiveByLookupId, [MS-MQQP] 3.1.4.11: one message by its lookup identifier, and its neighbours."""

from __future__ import annotations

from typing import Any

import pytest

from postroad.errors import Status
from postroad.message import Message
from postroad.remote_read.service import Answer, RemoteQueue
from postroad.remote_read.values import INFINITE_MS, LAST_LOOKUP_ID, SEQUENTIAL_MASK, Ack, Action, is_failure
from postroad.store.interface import Record
from tests.unit.queues.harness import ORDERS
from tests.unit.remote_read.harness import OK, SOMEBODY, Harness

PEEKS = (Action.LOOKUP_PEEK_CURRENT, Action.LOOKUP_PEEK_NEXT, Action.LOOKUP_PEEK_PREV)
RECEIVES = (Action.LOOKUP_RECEIVE_CURRENT, Action.LOOKUP_RECEIVE_NEXT, Action.LOOKUP_RECEIVE_PREV)
CURRENT, NEXT, PREV = range(3)
BOTH = pytest.mark.parametrize("actions", [PEEKS, RECEIVES], ids=["peek", "receive"])
Actions = tuple[Action, Action, Action]


@BOTH
@pytest.mark.spec("QP-3.1.4.11-05", "QP-3.1.4.11-22", "QP-3.1.4.11-29")
def test_current_is_the_message_itself(harness: Harness, actions: Actions) -> None:
    _, middle, _ = harness.send("one", "two", "three")
    read = harness.reader().lookup(actions[CURRENT], middle)
    assert read.status == OK
    assert read.label == "two"


@BOTH
@pytest.mark.spec("QP-3.1.4.11-06", "QP-3.1.4.11-20")
def test_next_of_zero_is_the_first_message(harness: Harness, actions: Actions) -> None:
    harness.send("one", "two", "three")
    assert harness.reader().lookup(actions[NEXT], 0).label == "one"


@BOTH
@pytest.mark.spec("QP-3.1.4.11-07", "QP-3.1.4.11-26")
def test_next_is_the_message_behind(harness: Harness, actions: Actions) -> None:
    first, second, third = harness.send("one", "two", "three")
    reader = harness.reader()
    read = reader.lookup(actions[NEXT], first)
    assert read.label == "two"
    assert read.answer.record is not None
    assert read.answer.record.lookup_id == second
    assert reader.lookup(actions[NEXT], third).status == Status.MESSAGE_NOT_FOUND


@BOTH
@pytest.mark.spec("QP-3.1.4.11-08", "QP-3.1.4.11-21")
def test_previous_of_all_ones_is_the_last_message(harness: Harness, actions: Actions) -> None:
    harness.send("one", "two", "three")
    assert harness.reader().lookup(actions[PREV], LAST_LOOKUP_ID).label == "three"


@BOTH
@pytest.mark.spec("QP-3.1.4.11-09")
def test_previous_is_the_message_before(harness: Harness, actions: Actions) -> None:
    first, _, third = harness.send("one", "two", "three")
    reader = harness.reader()
    assert reader.lookup(actions[PREV], first).status == Status.MESSAGE_NOT_FOUND
    assert reader.lookup(actions[PREV], third).label == "two"


@pytest.mark.spec("QP-2.2.2.1-09", "QP-3.1.4.11-19", "QP-3.1.4.11-27", "QP-3.1.4.11-28")
def test_a_peek_leaves_the_message_and_nothing_to_acknowledge(harness: Harness) -> None:
    _, middle, _ = harness.send("one", "two", "three")
    reader = harness.reader()
    for action in PEEKS:
        read = reader.lookup(action, middle)
        assert read.status == OK
        assert read.entry is None
    failed = reader.lookup(Action.LOOKUP_RECEIVE_CURRENT, 12345)
    assert is_failure(failed.status)
    assert failed.entry is None
    assert harness.labels() == ["one", "two", "three"]
    assert harness.pending() == 0


@pytest.mark.spec("QP-3.1.4.11-23", "QP-2.2.2.1-10", "QP-3.1.4.11-27")
def test_a_receive_locks_the_message_until_its_end(harness: Harness) -> None:
    _, middle, _ = harness.send("one", "two", "three")
    reader = harness.reader()
    read = reader.lookup(Action.LOOKUP_RECEIVE_CURRENT, middle)
    assert read.entry is not None
    assert harness.labels() == ["one", "three"]
    assert is_failure(harness.reader().lookup(Action.LOOKUP_RECEIVE_CURRENT, middle).status)
    assert reader.end(read, Ack.RR_NACK) == OK
    assert harness.labels() == ["one", "two", "three"]
    assert reader.end(reader.lookup(Action.LOOKUP_RECEIVE_CURRENT, middle), Ack.RR_ACK) == OK
    assert harness.labels() == ["one", "three"]


@pytest.mark.spec("QP-3.1.4.11-10")
@pytest.mark.parametrize("action", [PEEKS[CURRENT], PEEKS[PREV], RECEIVES[CURRENT], RECEIVES[PREV]])
def test_there_is_no_message_zero(harness: Harness, action: Action) -> None:
    harness.send("one")
    assert harness.reader().lookup(action, 0).status == Status.MESSAGE_NOT_FOUND


@pytest.mark.spec("QP-3.1.4.11-12")
def test_no_descriptor_is_an_invalid_handle(harness: Harness) -> None:
    harness.reader()
    assert harness.mqqp.start_receive_by_lookup_id(0, None, harness.queues.now, SOMEBODY) == Answer(
        Status.INVALID_HANDLE
    )


@pytest.mark.spec("QP-3.1.4.11-14")
@pytest.mark.parametrize("timeout_ms", [1, INFINITE_MS])
def test_a_time_out_is_an_invalid_parameter(harness: Harness, timeout_ms: int) -> None:
    (only,) = harness.send("one")
    assert harness.reader().lookup(PEEKS[CURRENT], only, timeout_ms=timeout_ms).status == Status.INVALID_PARAMETER


@pytest.mark.spec("QP-3.1.4.11-15")
def test_a_cursor_is_an_invalid_parameter(harness: Harness) -> None:
    (only,) = harness.send("one")
    reader = harness.reader()
    assert reader.lookup(PEEKS[CURRENT], only, cursor=reader.cursor()).status == Status.INVALID_PARAMETER


@pytest.mark.spec("QP-3.1.4.11-13", "QP-3.1.4.11-16")
def test_a_queue_that_is_not_open_is_an_invalid_parameter(harness: Harness) -> None:
    (only,) = harness.send("one")
    reader, remote = harness.reader(), harness.open()
    for handle in (0, remote.handle, 0x7A7A7A7A):
        reader.handle = handle
        assert reader.lookup(PEEKS[CURRENT], only).status == Status.INVALID_PARAMETER


@pytest.mark.spec("QP-3.1.4.11-04")
@pytest.mark.parametrize("action", [Action.RECEIVE, Action.PEEK_CURRENT, Action.PEEK_NEXT, 0x40000013, 0x40000030])
def test_an_action_of_another_kind_is_refused(harness: Harness, action: int) -> None:
    (only,) = harness.send("one")
    assert harness.reader().lookup(action, only).status == Status.INVALID_PARAMETER


@pytest.mark.spec("QP-3.1.4.11-17")
def test_the_second_queue_number_and_the_request_id_do_not_matter(harness: Harness) -> None:
    (only,) = harness.send("one")
    reader = harness.reader()
    waits = harness.reader("private$\\other")
    waits.wait(request_id=7)
    assert reader.lookup(PEEKS[CURRENT], only, request_id=7).status == OK  # its dwQueue is 0
    assert reader.lookup(PEEKS[CURRENT], only, request_id=7).status == OK


@pytest.mark.spec("QP-3.1.4.11-18")
def test_a_lookup_is_in_the_collection_while_it_looks(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    (only,) = harness.send("one")
    reader = harness.reader()
    reading = harness.queues.manager.reading
    look = reading.read_by_lookup_id
    seen: list[tuple[RemoteQueue, int, int, int]] = []

    def watched(*arguments: Any, **options: Any) -> Record:
        (entry,) = reader.remote.waiting.values()
        seen.append((entry.remote, entry.timeout_ms, entry.action, entry.request_id))
        return look(*arguments, **options)

    monkeypatch.setattr(reading, "read_by_lookup_id", watched)
    assert reader.lookup(PEEKS[CURRENT], only, request_id=7).status == OK
    assert seen == [(reader.remote, 0, PEEKS[CURRENT], 7)]
    assert harness.pending() == 0


@pytest.mark.spec("QP-3.1.4.11-24")
def test_a_lookup_never_waits(harness: Harness) -> None:
    assert harness.reader().lookup(PEEKS[NEXT], 0).status == Status.MESSAGE_NOT_FOUND
    assert harness.pending() == 0


@pytest.mark.spec("QP-3.1.4.11-30")
def test_a_message_that_is_gone_is_not_found(harness: Harness) -> None:
    (only,) = harness.send("one")
    reader = harness.reader()
    read = reader.receive()
    harness.mqqp.end_receive(read.entry, Ack.RR_ACK, harness.queues.now)
    assert reader.lookup(PEEKS[CURRENT], only).status == Status.MESSAGE_ALREADY_RECEIVED  # not yet on disk
    assert reader.lookup(PEEKS[CURRENT], only).status == Status.MESSAGE_NOT_FOUND


@pytest.mark.spec("QP-3.1.4.11-31")
def test_a_lookup_id_is_compared_as_a_whole(harness: Harness) -> None:
    harness.queues.send(ORDERS, Message(b"", label="low", priority=0))
    (record,) = harness.queues.queue(ORDERS).available(1)
    assert record.lookup_id > SEQUENTIAL_MASK  # the top octet is not empty
    reader = harness.reader()
    assert reader.lookup(PEEKS[CURRENT], record.lookup_id).label == "low"
    assert is_failure(reader.lookup(PEEKS[CURRENT], record.lookup_id & SEQUENTIAL_MASK).status)


@pytest.mark.parametrize("action", [*PEEKS, *RECEIVES])
@pytest.mark.parametrize("lookup_id", [1 << 63, (1 << 63) - 1, 1 << 59, LAST_LOOKUP_ID, LAST_LOOKUP_ID - 1])
def test_no_number_is_too_large_to_be_looked_up(harness: Harness, action: Action, lookup_id: int) -> None:
    harness.send("one")
    expected = OK if action in (PEEKS[PREV], RECEIVES[PREV]) and lookup_id == LAST_LOOKUP_ID else 0xC00E0088
    assert harness.reader().lookup(action, lookup_id).status == expected
