"""Marks, holds and submissions through the Python API, in each of its forms."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import postroad
from postroad.client.arrow import batches
from postroad.errors import (
    AccessDenied,
    InvalidArgument,
    InvalidMessage,
    NoMessage,
    SharingViolation,
    TransactionSequence,
    TransactionUsage,
)
from postroad.message import Message
from postroad.reports.offsets import Submission
from tests.faces import FACES, opened

QUEUE = r"private$\orders"


@pytest.fixture(params=FACES)
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[postroad.QueueManager]:
    with opened(request.param, tmp_path) as running:
        running.create_queue(QUEUE)
        yield running


def send(manager: postroad.QueueManager, *bodies: str, priority: int = 3) -> None:
    manager.send(QUEUE, [Message(body, recoverable=True, priority=priority) for body in bodies])


def bodies(manager: postroad.QueueManager, start: int = 0, end: int | None = None, **options: object) -> list[str]:
    pytest.importorskip("pyarrow")
    pieces = manager.queue(QUEUE).arrow(start, end, columns=("body", "lookup_id"), **options)  # type: ignore[arg-type]
    return [body.decode() for batch in batches(pieces) for body in batch["body"].to_pylist()]


def test_a_range_is_read_in_the_order_of_arrival(manager: postroad.QueueManager) -> None:
    send(manager, "a")
    send(manager, "b", priority=7)
    send(manager, "c", priority=0)
    mark = manager.queue(QUEUE).mark()
    send(manager, "d")
    assert (mark.added + mark.express, mark.messages) == (3, 3)
    assert mark.oldest is not None
    assert bodies(manager, 0, mark.arrival) == ["a", "b", "c"]
    assert bodies(manager, mark.oldest + 1, mark.arrival) == ["b", "c"]
    assert bodies(manager, mark.arrival) == ["d"]
    assert bodies(manager, priority=7) == ["b"]
    assert bodies(manager, limit=2) == ["a", "b"]
    behind_two = manager.queue(QUEUE).mark(0, 2).arrival
    assert bodies(manager, 0, behind_two) == ["a", "b"]


def test_what_is_held_is_nobody_elses_until_it_is_committed(manager: postroad.QueueManager) -> None:
    queue = manager.queue(QUEUE)
    send(manager, "a", "b")
    hold = queue.hold("stream", 0)
    send(manager, "c")
    assert hold.messages == 2
    assert [message.text for message in queue.messages()] == ["c"]
    assert bodies(manager) == ["c"]
    assert bodies(manager, hold="stream") == ["a", "b", "c"]
    assert queue.info().holds == ({"name": "stream", "from": 0, "to": hold.end, "since_s": hold.since_s},)
    assert [(each.name, each.messages) for each in queue.holds()] == [("stream", 2)]
    with pytest.raises(SharingViolation, match="held by stream"):
        queue.hold("other", 0, hold.end)
    assert queue.commit_hold("stream", hold.end) == 2
    assert queue.commit_hold("stream", hold.end) == 0
    assert queue.holds() == []
    assert bodies(manager) == ["c"]


def test_a_hold_is_released(manager: postroad.QueueManager) -> None:
    queue = manager.queue(QUEUE)
    send(manager, "a")
    queue.hold("stream/1", 0)
    assert queue.purge() == 0
    with pytest.raises(NoMessage):
        queue.receive(timeout=0)
    queue.release("stream/1")
    queue.release("stream/1")
    assert queue.receive(timeout=0).text == "a"


def test_a_submission_is_sent_once(manager: postroad.QueueManager) -> None:
    queue = manager.queue(QUEUE)
    rows = [Message(str(row), recoverable=True) for row in range(4)]
    assert queue.submit(rows[:2], "query", 7, 0) == Submission(2, 0)
    assert queue.submit(rows, "query", 7, 0).dropped == 2
    assert queue.submit(rows[:1], "query", 7, 1).sent == 1
    with pytest.raises(TransactionSequence, match="next one of query, epoch 8, partition 0 is 0"):
        queue.submit(rows, "query", 8, 0, 1)
    queue.commit_submission("query", 7)
    assert queue.submit(rows, "query", 6, 9).dropped == 4
    assert [message.text for message in queue.messages()] == ["0", "1", "2", "3", "0"]
    queue.forget_submission("query")
    assert queue.submit(rows[:1], "query", 6, 9).sent == 1


def test_rows_of_arrow_are_sent_once(manager: postroad.QueueManager) -> None:
    pa = pytest.importorskip("pyarrow")
    rows = pa.table({"body": [b"a", b"b"], "label": ["x", None], "delivery": ["recoverable", "express"]})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    stream = bytes(sink.getvalue())
    queue = manager.queue(QUEUE)
    assert queue.submit_arrow(stream, "query", 0, 3) == Submission(2, 0)
    assert queue.submit_arrow(stream, "query", 0, 3) == Submission(0, 2)
    assert [(each.text, each.label, each.delivery) for each in queue.messages()] == [
        ("a", "x", "recoverable"),
        ("b", "", "express"),
    ]
    with pytest.raises(InvalidMessage, match="must be an Arrow stream"):
        queue.submit_arrow(b"nonsense", "query", 0, 4)


def test_a_transactional_queue_gets_transactions(manager: postroad.QueueManager) -> None:
    queue = manager.create_queue(r"private$\ledger", transactional=True)
    assert queue.submit(["a", "b"], "query", 0, 0).sent == 2
    assert [message.delivery for message in queue.messages()] == ["transactional"] * 2
    with pytest.raises(TransactionUsage):
        queue.submit(["c"], "query", 0, 0, 2, transactional=False)
    assert queue.submit(["c"], "query", 0, 0, 2).sent == 1


def test_what_cannot_be_is_refused(manager: postroad.QueueManager) -> None:
    queue = manager.queue(QUEUE)
    with pytest.raises(InvalidArgument, match="must be at most"):
        queue.hold("stream", 0, 1 << 40)
    with pytest.raises(InvalidArgument, match="name: "):
        queue.hold("x" * 300, 0)


def test_queues_that_pipelines_cannot_have(manager: postroad.QueueManager) -> None:
    own = manager.queue(r"private$\order_queue$")
    with pytest.raises(AccessDenied):
        own.mark()
    with pytest.raises(AccessDenied):
        own.hold("stream", 0)
    send(manager, "a")
    queue = manager.queue(QUEUE)
    with queue.open(exclusive=True), pytest.raises(SharingViolation):
        queue.hold("stream", 0)
    assert queue.hold("stream", 0).messages == 1
