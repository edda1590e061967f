"""A stream from a queue, with calls in Spark's order: nothing is lost or repeated, whatever happens in between."""

from __future__ import annotations

import json
import shlex
import threading
import time
from datetime import datetime
from typing import Any

import pytest

from postroad.errors import (
    AccessDenied,
    InvalidArgument,
    ManagerUnavailable,
    MessagesGone,
    QueueNotFound,
    SharingViolation,
)
from postroad.message import Message
from postroad.security.descriptors import Sid
from postroad.security.users import User
from postroad.spark.data_source import MessageSource
from postroad.spark.streaming import StreamReader
from tests.relay import relayed
from tests.served import ORDERS, PASSWORD, Served, served
from tests.spark.driver import bodies, options, query, stream_reader

ORDERS_PATH = r"private$\orders"


def numbered(count: int, first: int = 0) -> list[str]:
    return [str(number) for number in range(first, first + count)]


def test_messages_are_read_once_and_in_order(alpha: Served) -> None:
    alpha.send("a", "b")
    stream = query(alpha)
    assert stream.batch() == ["a", "b"]
    assert stream.batch() is None
    alpha.send("c", priority=7)
    assert stream.batch() == ["c"]
    assert stream.batch() is None
    assert alpha.bodies() == ["c", "a", "b"], "peek keeps them all"


def test_batches_have_the_given_size(alpha: Served) -> None:
    alpha.send(*numbered(10))
    alpha.create(r"private$\others")
    stream = query(alpha, maxMessagesPerBatch=4)
    assert [stream.batch() for _ in range(4)] == [numbered(4), numbered(4, 4), numbered(2, 8), None]


def test_gaps_of_other_queues_make_no_batch_smaller(alpha: Served) -> None:
    alpha.create(r"private$\others")
    for number in numbered(6):
        alpha.send(number)
        for _ in range(3):
            alpha.call("POST", "/api/v1/queues/private$/others/messages", {"body": "other"})
    stream = query(alpha, maxMessagesPerBatch=3)
    assert [stream.batch() for _ in range(3)] == [numbered(3), numbered(3, 3), None]


def test_available_now_ends_with_the_messages_at_its_start(alpha: Served) -> None:
    alpha.send("a", "b", "c")
    stream = query(alpha, maxMessagesPerBatch=2)
    stream.start(available_now=True)
    assert stream.batch() == ["a", "b"]
    alpha.send("late")
    assert stream.batch() == ["c"]
    assert stream.batch() is None
    stream.start(available_now=True)
    assert stream.batch() == ["late"]


def test_partitions_share_a_batch_without_gap_or_overlap(alpha: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("postroad.spark.streaming.LEAST_MESSAGES", 2)
    alpha.send(*numbered(11))
    stream = query(alpha, partitions=4)
    assert stream.construct()
    parts = stream.parts()
    assert len(parts) == 4
    assert [part.end for part in parts[:-1]] == [part.begin for part in parts[1:]]
    assert sorted(bodies(stream_reader(stream.given), parts), key=int) == numbered(11)
    assert {part.messages for part in parts} == {2, 3}


def test_a_batch_that_is_run_again_is_the_same_batch(alpha: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("postroad.spark.streaming.LEAST_MESSAGES", 1)
    alpha.send("a", "b", "c")
    stream = query(alpha, partitions=3)
    assert stream.construct()
    first = [(part.begin, part.end, part.messages) for part in stream.parts()]
    alpha.send("later")
    stream.given = options(alpha, partitions=1)  # options may change when it is started again
    stream.start()
    assert stream.construct()
    assert [(part.begin, part.end, part.messages) for part in stream.parts()] == first
    assert stream.batch() == ["a", "b", "c"]
    assert stream.batch() == ["later"]


def test_the_first_batch_of_a_stream_from_latest_is_the_same_after_a_crash(alpha: Served) -> None:
    alpha.send("old")
    stream = query(alpha, startingOffsets="latest")
    assert stream.batch() == []
    stream = query(alpha, startingOffsets="latest")
    stream.reader.initialOffset()
    alpha.send("a", "b")
    assert stream.construct()
    alpha.send("c")
    stream.start()  # Spark asks for the initial offset once more
    assert stream.batch() == ["a", "b"]
    assert stream.batch() == ["c"]


def test_each_queue_has_its_own_start_and_end(alpha: Served) -> None:
    alpha.create(r"private$\others")
    alpha.send("a", "b", "c")
    put(alpha, "others", "x", "y", "z")
    found = alpha.call("GET", f"{ORDERS}/messages").json["messages"]
    second = found[1]["lookup_id"] & (1 << 56) - 1
    starts, ends = (
        json.dumps({r"private$\others": -1, r"private$\ORDERS": second}),
        json.dumps({ORDERS_PATH: second + 1}),
    )
    stream = query(alpha, queue=r"private$\o*", startingOffsets=starts, endingOffsets=ends)
    assert stream.batch() == ["b"]
    alpha.send("d")
    put(alpha, "others", "later")
    assert stream.batch() == ["later"]


def test_a_stream_and_a_batch_end_at_a_time(alpha: Served) -> None:
    alpha.send("a", "b")
    queue = alpha.manager.core.queues.get(ORDERS_PATH)
    between_ms = max(record.arrived_ms for record in queue.by_arrival(0, 1 << 55, 10, None)) + 1
    while int(time.time() * 1000) <= between_ms:
        time.sleep(0.001)
    stream = query(alpha, endingTimestamp=between_ms, mode="consume", maxOffsetsPerTrigger=1)
    assert stream.batch() == ["a"]
    alpha.send("late", recoverable=True)
    assert stream.batch() == ["b"]
    assert stream.batch() is None
    assert alpha.bodies() == ["late"]
    source = MessageSource(options(alpha, endingTimestamp=between_ms))
    batch = source.reader(source.schema())
    assert [row for part in batch.partitions() for each in batch.read(part) for row in each.to_pylist()] == []


@pytest.mark.parametrize("name", [r"private$\my orders", r"private$\größe 𝄞", r"private$\it's", r"private$\50%?#/x"])
def test_a_queue_with_any_name(alpha: Served, name: str) -> None:
    alpha.run(alpha.manager.create_queue(name))
    alpha.run(alpha.manager.send(name, [Message("a", recoverable=True)]))
    stream = query(alpha, queue=name, mode="consume", hold="mine", startingOffsets=json.dumps({name: 0}))
    assert stream.batch() == ["a"]
    with pytest.raises(MessagesGone) as caught:
        query(alpha, queue=name, startingOffsets=0).batch()
    assert shlex.split(str(caught.value).rpartition(": ")[2]) == ["postroad", "queue", "release", name, "mine"]
    assert stream.batch() is None
    assert alpha.run(alpha.manager.offsets.mark(name)).messages == 0


def test_rights_that_are_taken_away_end_a_stream_and_lose_nothing() -> None:
    ann = User("ann", Sid.parse("S-1-5-21-1-2-3-1001"))
    with served(users=[ann]) as manager:
        manager.run(manager.manager.create_queue(ORDERS_PATH))
        manager.run(manager.manager.send(ORDERS_PATH, [Message(each, recoverable=True) for each in "ab"]))
        edit = manager.manager.access_lists.edit
        manager.run(edit(ORDERS_PATH, "grant", "ann", ["receive", "peek"]))
        stream = query(manager, user="ann", password=PASSWORD, mode="consume", maxMessagesPerBatch=1)
        assert stream.batch() == ["a"]
        assert stream.construct()
        parts = stream.parts()
        manager.run(edit(ORDERS_PATH, "revoke", "ann", ["receive", "peek"]))
        with pytest.raises(AccessDenied, match="no right to"):
            bodies(stream_reader(stream.given), parts)
        manager.run(edit(ORDERS_PATH, "grant", "ann", ["receive", "peek"]))
        stream.start()
        assert stream.batch() == ["b"]
        assert stream.batch() is None
        assert manager.run(manager.manager.offsets.mark(ORDERS_PATH)).messages == 0


def test_messages_that_another_stream_holds_are_no_loss_but_its_own(alpha: Served) -> None:
    alpha.send("a", "b", recoverable=True)
    other = query(alpha, mode="consume", hold="other")
    assert other.construct()
    other.parts()
    stream = query(alpha, startingOffsets=0)
    with pytest.raises(MessagesGone, match=r"are held by other: .*postroad queue release 'private\$\\orders' other$"):
        stream.batch()
    alpha.call("DELETE", f"{ORDERS}/holds/other")
    assert stream.batch() == ["a", "b"], "that was the cure"


def test_a_stream_from_a_number(alpha: Served) -> None:
    alpha.send("a", "b", "c")
    found = alpha.call("GET", f"{ORDERS}/messages").json["messages"]
    arrival = found[1]["lookup_id"] & (1 << 56) - 1
    assert query(alpha, startingOffsets=arrival).batch() == ["b", "c"]


# Consuming


def test_consumed_messages_go_when_the_batch_is_done(alpha: Served) -> None:
    alpha.send("a", "b")
    stream = query(alpha, mode="consume")
    assert stream.batch() == ["a", "b"]
    assert alpha.call("GET", f"{ORDERS}/holds").json["holds"], "the batch may yet be run again"
    assert stream.batch() is None
    assert alpha.call("GET", ORDERS).json["messages"] == 0, "the tail goes without a further batch"
    assert alpha.call("GET", f"{ORDERS}/holds").json["holds"] == []


def test_consumed_messages_belong_to_the_stream_alone(alpha: Served) -> None:
    alpha.send("a", "b", "c")
    stream = query(alpha, mode="consume", maxMessagesPerBatch=2)
    assert stream.construct()
    parts = stream.parts()
    assert alpha.bodies() == ["c"]
    alpha.call("POST", f"{ORDERS}/purge")
    assert bodies(stream_reader(stream.given), parts) == ["a", "b"]


def test_a_crash_before_the_end_of_a_batch_gives_it_again(alpha: Served) -> None:
    alpha.send("a", "b")
    stream = query(alpha, mode="consume")
    assert stream.construct()
    stream.parts()
    stream.start()
    assert stream.batch() == ["a", "b"]
    assert stream.batch() is None
    assert alpha.call("GET", ORDERS).json["messages"] == 0


def test_a_crash_after_the_end_of_a_batch_removes_it_at_the_next_start(alpha: Served) -> None:
    alpha.send("a", "b")
    stream = query(alpha, mode="consume")
    assert stream.batch() == ["a", "b"]
    alpha.send("c")
    stream.start()
    assert stream.batch() == ["c"]
    stream.start(available_now=True)
    assert stream.batch() is None
    assert alpha.call("GET", ORDERS).json["messages"] == 0


def test_a_checkpoint_older_than_the_queue_yields_what_is_left(alpha: Served) -> None:
    alpha.send("a", "b")
    stream = query(alpha, mode="consume")
    assert stream.batch() == ["a", "b"]
    assert stream.batch() is None
    stream.commit_log -= 1  # a power failure destroyed the last file of the checkpoint
    stream.start()
    assert stream.batch() == []
    alpha.send("c")
    assert stream.batch() == ["c"]


@pytest.mark.parametrize("delete", [True, False])
def test_a_message_that_somebody_gets_hold_of_meanwhile_is_waited_for(alpha: Served, delete: bool) -> None:
    alpha.send("a", "b", "c")
    stream = query(alpha, mode="consume")
    assert stream.construct()
    lookup_id = alpha.call("POST", f"{ORDERS}/lock?timeout=0").json["messages"][0]["lookup_id"]

    def settle() -> None:
        alpha.call("POST", f"{ORDERS}/settle", {"lookup_ids": [lookup_id], "delete": delete})

    timer = threading.Timer(0.5, settle)
    timer.start()
    parts = stream.parts()
    timer.join()
    assert bodies(stream_reader(stream.given), parts) == (["b", "c"] if delete else ["a", "b", "c"])


def test_a_message_that_somebody_keeps_ends_the_stream_with_a_sentence(alpha: Served) -> None:
    alpha.send("a", "b")
    stream = query(alpha, mode="consume", timeout="0.1")
    assert stream.construct()
    alpha.call("POST", f"{ORDERS}/lock?timeout=0")
    with pytest.raises(SharingViolation, match=r"other readers still have 1 message "):
        stream.parts()
    assert alpha.bodies() == ["b"], "nothing is kept from others meanwhile"


def test_two_streams_do_not_share_a_queue_by_accident(alpha: Served) -> None:
    alpha.send("a", "b")
    first = query(alpha, mode="consume", hold="first")
    assert first.construct()
    first.parts()
    with pytest.raises((MessagesGone, SharingViolation), match="first"):
        query(alpha, mode="consume").batch()


# What others do


def test_messages_that_others_took_before_are_reported_with_counts(alpha: Served) -> None:
    stream = query(alpha)
    assert stream.batch() == []
    alpha.send("a", "b", "c", recoverable=True)
    alpha.call("POST", f"{ORDERS}/receive?timeout=0")
    with pytest.raises(MessagesGone, match=r"1 of 3 messages .* is lost.*failOnDataLoss"):
        stream.batch()
    stream.given = options(alpha, failOnDataLoss=False)
    stream.start()
    assert stream.batch() == ["b", "c"]
    alpha.send("d", recoverable=True)
    stream.given = options(alpha)
    stream.start()
    assert stream.batch() == ["d"], "what was allowed once is not told again"


def test_a_busy_queue_does_not_hide_missing_messages(alpha: Served) -> None:
    stream = query(alpha)
    assert stream.batch() == []
    alpha.send("a", "b", recoverable=True)
    alpha.call("POST", f"{ORDERS}/receive?timeout=0")
    stream.start(available_now=True)
    alpha.send("later", recoverable=True)
    with pytest.raises(MessagesGone, match="of 2 messages"):
        stream.batch()


def test_planned_messages_that_others_took_are_reported_with_counts(alpha: Served) -> None:
    alpha.send("a", "b", "c")
    stream = query(alpha)
    assert stream.construct()
    parts = stream.parts()
    alpha.call("POST", f"{ORDERS}/receive?timeout=0")
    with pytest.raises(MessagesGone, match=r"only 2 of 3 messages .* are left"):
        bodies(stream_reader(stream.given), parts)
    stream.start()
    with pytest.raises(MessagesGone, match=r"only 2 of 3 messages .* are left"):
        stream.batch()
    assert bodies(stream_reader(options(alpha, failOnDataLoss=False)), parts) == ["b", "c"]


def test_a_message_that_is_being_received_is_waited_for(alpha: Served) -> None:
    alpha.send("a", "b", "c", recoverable=True)
    lookup_id = alpha.call("POST", f"{ORDERS}/lock?timeout=0").json["messages"][0]["lookup_id"]
    stream = query(alpha)
    assert stream.batch() == []
    alpha.call("POST", f"{ORDERS}/settle", {"lookup_ids": [lookup_id], "delete": False})
    assert stream.batch() == ["a", "b", "c"]


def test_express_messages_are_no_loss_and_no_gain(alpha: Served) -> None:
    stream = query(alpha)
    for number in range(3):
        alpha.send(f"express {number}")
        alpha.send(f"recoverable {number}", recoverable=True)
        assert [text for text in stream.batch() or [] if text.startswith("r")] == [f"recoverable {number}"]


def test_purged_express_messages_are_reported_with_counts(alpha: Served) -> None:
    stream = query(alpha)
    alpha.send("a", "b")
    assert stream.batch() == ["a", "b"]
    alpha.send("c", "d", "e")
    alpha.call("POST", f"{ORDERS}/purge")
    with pytest.raises(MessagesGone, match=r"3 of 3 messages .* are lost.*failOnDataLoss"):
        stream.batch()
    stream.given = options(alpha, failOnDataLoss=False)
    stream.start()
    assert stream.batch() == [], "a batch without messages records the loss"
    assert stream.offset()["lost"] == 3
    assert stream.reader.reportLatestOffset()["lost"] == 3  # type: ignore[index]
    alpha.send("f")
    stream.given = options(alpha)
    stream.start()
    assert stream.batch() == ["f"], "what was allowed once is not told again"


def test_a_purge_between_two_batches_is_reported(alpha: Served) -> None:
    alpha.send(*numbered(10))
    stream = query(alpha, maxMessagesPerBatch=4)
    assert stream.batch() == numbered(4)
    alpha.call("POST", f"{ORDERS}/purge")
    with pytest.raises(MessagesGone, match=r"6 of 6 messages"):
        stream.batch()


def test_express_messages_that_a_restart_dropped_are_reported(alpha: Served) -> None:
    stream = query(alpha, failOnDataLoss=False)
    alpha.send("a")
    alpha.send("kept", recoverable=True)
    assert stream.batch() == ["a", "kept"]
    alpha.send("b", "c")
    assert isinstance(stream.reader, StreamReader)
    stream.reader._current_mark(r"private$\orders", stream.reader._read(stream.offset()).queues[r"private$\orders"])
    alpha.call("POST", f"{ORDERS}/purge")  # as a restart does
    queue = alpha.manager.core.queues.get(r"private$\orders")
    queue.express_added = 0
    alpha.manager.offsets._run = "another"
    alpha.send("d")
    assert stream.batch() == ["d"]
    assert stream.offset()["lost"] == 2


def test_a_queue_that_was_created_again_is_reported(alpha: Served) -> None:
    alpha.send("a")
    stream = query(alpha)
    assert stream.batch() == ["a"]
    alpha.call("DELETE", ORDERS)
    with pytest.raises(MessagesGone, match="the queue was deleted together with its unread messages"):
        stream.batch()
    alpha.create()
    alpha.send("b")
    with pytest.raises(MessagesGone, match="the queue was deleted and created again"):
        stream.batch()
    stream.given = options(alpha, failOnDataLoss=False)
    stream.start()
    assert stream.batch() == ["b"]
    assert stream.batch() is None


def test_a_checkpoint_that_is_ahead_of_the_queue_is_refused(alpha: Served) -> None:
    stream = query(alpha, startingOffsets=1000)
    with pytest.raises(MessagesGone, match="the stream is ahead of the queue: it is at 1000"):
        stream.batch()


def test_an_offset_of_the_first_version_continues(alpha: Served) -> None:
    alpha.send("a", "b", "c", "d")
    found = alpha.call("GET", f"{ORDERS}/messages").json["messages"]
    first, third = (found[place]["lookup_id"] & (1 << 56) - 1 for place in (0, 2))
    stream = query(alpha)
    old = {"arrival": third, "begin": first, "messages": 2, "partitions": 1, "added": -3, "since": 2, "hold": None}
    stream.offset_log.append(json.dumps(old))
    assert stream.batch() == ["a", "b"], "the unfinished batch runs again"
    assert stream.batch() == ["c", "d"]
    assert stream.offset()["version"] == 2
    alpha.send("e")
    alpha.call("POST", f"{ORDERS}/purge")
    with pytest.raises(MessagesGone, match="of 1 message "):
        stream.batch()


# How much, from where, up to where


def test_a_batch_is_bounded_by_bytes(alpha: Served) -> None:
    alpha.send(*("x" * 1000 for _ in range(10)))
    stream = query(alpha, maxBytesPerTrigger=4000)
    assert [len(stream.batch() or []) for _ in range(5)] == [3, 3, 3, 1, 0]
    alpha.send("y" * 9000)
    assert stream.batch() == ["y" * 9000], "one message at least"


def test_a_batch_waits_for_enough_messages(alpha: Served) -> None:
    alpha.send("a")
    waiting = query(alpha, minOffsetsPerTrigger=3)
    assert waiting.batch() == []
    report = waiting.reader.reportLatestOffset()
    assert report is not None
    assert report["backlog"] == 1
    assert report["oldestAgeMs"] > 0
    alpha.send("b")
    stream = query(alpha, minOffsetsPerTrigger=3)
    assert stream.batch() == []
    assert stream.batch() is None
    alpha.send("c")
    assert stream.batch() == ["a", "b", "c"]
    alpha.send("d")
    assert stream.batch() is None
    stream.start(available_now=True)
    assert stream.batch() == ["d"], "a query that ends does not wait"


def test_a_batch_does_not_wait_for_ever(alpha: Served) -> None:
    alpha.send("a")
    stream = query(alpha, minOffsetsPerTrigger=3, maxTriggerDelay=0)
    assert stream.batch() == ["a"]


def test_a_stream_to_a_number(alpha: Served) -> None:
    alpha.send("a", "b", "c")
    found = alpha.call("GET", f"{ORDERS}/messages").json["messages"]
    stream = query(alpha, endingOffsets=found[2]["lookup_id"] & (1 << 56) - 1)
    assert stream.batch() == ["a", "b"]
    assert stream.batch() is None
    alpha.send("d")
    assert stream.batch() is None


def test_a_stream_from_a_time(alpha: Served) -> None:
    alpha.send("a")
    (first,) = alpha.call("GET", f"{ORDERS}/messages").json["messages"]
    arrived = datetime.fromisoformat(first["arrived_at"])
    assert query(alpha, startingTimestamp=arrived.isoformat()).batch() == ["a"]
    later = int(arrived.timestamp() * 1000) + 600_000
    stream = query(alpha, startingTimestamp=later)
    assert stream.batch() == [], "nothing came since"
    alpha.send("b")
    assert stream.batch() == ["b"]


def test_a_stream_that_keeps_the_messages_selects(alpha: Served) -> None:
    alpha.send("a", label="x")
    alpha.send("b", label="y")
    alpha.send("c", label="x")
    stream = query(alpha, label="x")
    assert stream.construct()
    parts = stream.parts()
    assert bodies(stream_reader(stream.given), parts) == ["a", "c"]
    alpha.call("POST", f"{ORDERS}/receive?timeout=0")
    with pytest.raises(MessagesGone, match="only 2 of 3 messages"):
        bodies(stream_reader(stream.given), parts)


def test_progress_says_what_is_left(alpha: Served) -> None:
    alpha.send(*numbered(10))
    stream = query(alpha, maxMessagesPerBatch=4)
    backlogs = []
    while stream.batch():
        report = stream.reader.reportLatestOffset()
        assert report is not None
        backlogs.append(report["backlog"])
        assert (report["oldestAgeMs"] > 0) == (report["backlog"] > 0)
        assert report["lost"] == 0
    assert backlogs == [6, 2, 0]


# Several queues


def put(manager: Served, queue: str, *texts: str) -> None:
    messages = [{"body": text} for text in texts]
    assert manager.call("POST", f"/api/v1/queues/private$/{queue}/messages", {"messages": messages}).status == 201


def test_queues_of_a_list_share_a_checkpoint(alpha: Served) -> None:
    alpha.create(r"private$\others")
    put(alpha, "orders", "a", "b")
    put(alpha, "others", "c")
    given = {"queue": r"private$\others, private$\orders", "mode": "consume"}
    stream = query(alpha, **given)
    assert stream.batch() == ["a", "b", "c"]
    put(alpha, "others", "d")
    assert stream.batch() == ["d"]
    assert stream.batch() is None
    assert alpha.call("GET", ORDERS).json["messages"] == 0
    put(alpha, "orders", "e")
    stream.start()
    assert stream.batch() == ["e"]
    table = [batch for part in stream.planned() for batch in stream_reader(stream.given).read(part)]
    assert table[0].column("queue").to_pylist() == [r"private$\orders"]


def test_a_limit_is_of_all_queues_together(alpha: Served) -> None:
    alpha.create(r"private$\others")
    put(alpha, "orders", *numbered(20))
    put(alpha, "others", *numbered(10))
    stream = query(alpha, queue=r"private$\o*", maxMessagesPerBatch=6)
    assert [len(stream.batch() or []) for _ in range(6)] == [6, 6, 6, 6, 6, 0]


def test_new_queues_that_match_join(alpha: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("postroad.spark.streaming.LIST_S", 0)
    put(alpha, "orders", "a")
    stream = query(alpha, queue=r"private$\o*", startingOffsets="latest")
    assert stream.batch() == []
    alpha.create(r"private$\others")
    assert stream.batch() is None, "a queue without messages makes no batch"
    put(alpha, "others", "b")
    put(alpha, "orders", "c")
    assert stream.batch() == ["c", "b"], "a new queue is read from its first message on"
    put(alpha, "others", "d")
    assert stream.batch() == ["d"]
    assert stream.batch() is None


def test_a_pattern_that_matches_nothing_is_refused(alpha: Served) -> None:
    with pytest.raises(InvalidArgument, match=r"^queue: no queue matches"):
        query(alpha, queue=r"private$\x*").batch()


def test_a_queue_that_is_no_longer_named_keeps_its_place(alpha: Served) -> None:
    alpha.create(r"private$\others")
    put(alpha, "orders", "a")
    put(alpha, "others", "b")
    stream = query(alpha, queue=r"private$\orders,private$\others")
    assert stream.batch() == ["a", "b"]
    put(alpha, "orders", "c")
    put(alpha, "others", "d")
    stream.given = options(alpha, queue=r"private$\ORDERS")
    stream.start()
    assert stream.batch() == ["c"], "the case of a name does not matter"
    stream.given = options(alpha, queue=r"private$\o*")
    stream.start()
    assert stream.batch() == ["d"]
    stream.given = options(alpha, queue=r"private$\elsewhere")
    stream.start()
    with pytest.raises(InvalidArgument, match=r"^queue: the checkpoint is for"):
        stream.batch()


def test_counts_that_the_manager_has_repaired_stop_nothing(alpha: Served) -> None:
    alpha.send("a", "b", recoverable=True)
    stream = query(alpha)
    assert stream.batch() == ["a", "b"]
    alpha.manager.core.queues.get(r"private$\orders").stored_added = 0
    alpha.send("c", recoverable=True)
    assert stream.batch() == ["c"]
    alpha.send("d")
    alpha.call("POST", f"{ORDERS}/purge")
    with pytest.raises(MessagesGone, match="of 1 message "):
        stream.batch()


def test_one_of_several_queues_is_deleted(alpha: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("postroad.spark.streaming.LIST_S", 0)
    alpha.create(r"private$\others")
    put(alpha, "orders", "a")
    put(alpha, "others", "b")
    stream = query(alpha, queue=r"private$\o*")
    assert stream.batch() == ["a", "b"]
    alpha.call("DELETE", "/api/v1/queues/private$/others")
    with pytest.raises(
        MessagesGone,
        match=r"private\$\\others: the queue was deleted together with its unread messages.*failOnDataLoss",
    ):
        stream.batch()
    put(alpha, "orders", "c")
    stream.given = options(alpha, queue=r"private$\o*", failOnDataLoss=False)
    stream.start()
    assert stream.batch() == ["c"]
    assert list(stream.offset()["queues"]) == [r"private$\orders"]
    assert stream.batch() is None
    put(alpha, "orders", "d", "e")
    assert isinstance(stream.reader, StreamReader)
    stream.reader._current_mark(r"private$\orders", None)
    alpha.call("DELETE", ORDERS)
    assert stream.batch() == []
    assert (stream.offset()["queues"], stream.offset()["lost"]) == ({}, 2)


def test_a_message_that_a_reader_locks_and_puts_back_is_not_lost(alpha: Served) -> None:
    stream = query(alpha)
    assert stream.batch() == []
    alpha.send("a", "b")
    assert isinstance(stream.reader, StreamReader)
    api = stream.reader._api(r"private$\orders")
    plain = api.plan
    locked: list[object] = []

    def plan(*args: Any, **given: Any) -> Any:
        """A reader has a message during the first look, and has it again after the next one."""
        reply = alpha.call("POST", f"{ORDERS}/lock?timeout=0") if len(locked) in (0, 2) else None
        found = plain(*args, **given)
        if reply is not None:
            (message,) = reply.json["messages"]
            alpha.call("POST", f"{ORDERS}/settle", {"lookup_ids": [message["lookup_id"]], "delete": False})
        locked.append(reply)
        return found

    api.plan = plan  # type: ignore[method-assign]
    assert stream.batch() == ["a", "b"]


# A manager that is not there


def test_a_broken_connection_loses_and_repeats_nothing(alpha: Served) -> None:
    alpha.send(*numbered(2000))
    with relayed(f"http://127.0.0.1:{alpha.server.port}") as relay:
        stream = query(relay.url, mode="consume")
        assert stream.construct()
        parts = stream.parts()
        before = relay.connections
        relay.allowances = [200_000, 0, 50_000, 300_000]
        assert bodies(stream_reader(stream.given), parts) == numbered(2000)
        assert relay.connections >= before + 5


def test_no_manager_is_one_clear_sentence() -> None:
    reader = stream_reader({"api": "http://127.0.0.1:1", "queue": r"private$\orders", "timeout": "0.1"})
    with pytest.raises(ManagerUnavailable, match=r"http://127\.0\.0\.1:1: Connection refused"):
        reader.initialOffset()


def test_no_queue_is_one_clear_sentence(alpha: Served) -> None:
    with pytest.raises(QueueNotFound, match="nowhere"):
        query(alpha, queue=r"private$\nowhere").batch()


def test_a_checkpoint_of_something_else_is_refused(alpha: Served) -> None:
    reader = query(alpha).reader
    with pytest.raises(InvalidArgument, match="checkpoint"):
        reader.commit({"partition": 1})


@pytest.mark.parametrize("queue", [r"private$\orders;journal", ";journal", ";deadletter"])
def test_journals_and_dead_letters(alpha: Served, queue: str) -> None:
    alpha.create(r"private$\kept", journal=True)
    stream = query(alpha, queue=queue)
    assert stream.batch() == []
