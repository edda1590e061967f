"""Cursors and exclusive handles through the Python API."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import postroad
from postroad import errors
from tests.faces import FACES, opened


@pytest.fixture(params=FACES)
def qm(request: pytest.FixtureRequest) -> Iterator[postroad.QueueManager]:
    with opened(request.param) as manager:
        yield manager


@pytest.fixture
def queue(qm: postroad.QueueManager) -> postroad.Queue:
    queue = qm.create_queue(r"private$\orders")
    queue.send(["a", "b", "c"])
    return queue


def test_a_cursor_walks_through_the_queue(queue: postroad.Queue) -> None:
    with queue.cursor() as cursor:
        assert [cursor.peek(0).text, cursor.peek(0).text] == ["a", "a"]
        assert cursor.peek_next(0).text == "b"
        assert cursor.receive(0).text == "b"
        assert cursor.peek(0).text == "c"
        with pytest.raises(errors.NoMessage):
            cursor.peek_next(0)
    assert [message.text for message in queue.messages()] == ["a", "c"]


def test_a_cursor_waits_for_what_comes(qm: postroad.QueueManager) -> None:
    queue = qm.create_queue(r"private$\empty")
    with queue.cursor() as cursor:
        for read in (cursor.peek, cursor.receive):
            for timeout in (0, 0.01):
                with pytest.raises(errors.NoMessage):
                    read(timeout)
        queue.send("late")
        assert cursor.peek(5).text == "late"


def test_a_cursor_notices_that_others_read_too(queue: postroad.Queue) -> None:
    with queue.cursor() as cursor:
        with pytest.raises(errors.IllegalCursorAction):
            cursor.peek_next(0)
        assert cursor.peek(0).text == "a"
        queue.receive(0)
        with pytest.raises(errors.MessageAlreadyReceived):
            cursor.receive(0)
        assert cursor.peek_next(0).text == "b"


def test_two_cursors_stand_in_different_places(queue: postroad.Queue) -> None:
    with queue.open() as handle, handle.cursor() as one, handle.cursor() as other:
        one.peek(0)
        assert (one.peek_next(0).text, other.peek(0).text) == ("b", "a")


def test_cursors_and_handles_are_closed_with_their_block(queue: postroad.Queue) -> None:
    with queue.open() as handle:
        with handle.cursor() as cursor:
            assert queue.info().readers == 1
        with pytest.raises(errors.PostroadError):
            cursor.peek(0)
    assert queue.info().readers == 0
    handle.close()
    with pytest.raises(errors.InvalidHandle), handle.cursor():
        pytest.fail("the handle is closed")


def test_an_exclusive_handle_keeps_other_readers_out(queue: postroad.Queue) -> None:
    with queue.open(exclusive=True) as mine:
        for denied in (lambda: queue.receive(0), queue.open, lambda: queue.open(exclusive=True)):
            with pytest.raises(errors.SharingViolation):
                denied()
        queue.send(postroad.Message("urgent", priority=7))
        assert mine.peek(0).text == "urgent"
        assert [mine.receive(0).text for _ in range(4)] == ["urgent", "a", "b", "c"]
        with pytest.raises(errors.NoMessage):
            mine.receive(0)
    queue.send("for all")
    assert queue.receive(0).text == "for all"


def test_a_handle_for_peeking_takes_nothing(queue: postroad.Queue) -> None:
    with queue.open(access="peek") as handle:
        assert handle.peek(0).text == "a"
        with pytest.raises(errors.AccessDenied):
            handle.receive(0)


def test_a_deleted_queue_is_not_available_to_its_readers(queue: postroad.Queue) -> None:
    with queue.cursor() as cursor:
        queue.delete()
        with pytest.raises(errors.QueueNotAvailable):
            cursor.peek(0)
