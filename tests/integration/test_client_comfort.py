"""Common mistakes, and what programmers expect without reading: names, JSON, ids, answers, and types that fit."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from threading import Thread
from uuid import UUID

import pytest

import postroad
from postroad import aio, errors
from tests import typed_program
from tests.commands import postroad as command
from tests.faces import FACES, opened, served
from tests.remote.station import HOST, station
from tests.served import API
from tests.served import served as api_served

UNKNOWN = r"{8c0a5a60-1b7e-4f7c-9c55-0d2f8e0d3c11}\5"


@pytest.fixture(params=FACES)
def qm(request: pytest.FixtureRequest) -> Iterator[postroad.QueueManager]:
    with opened(request.param) as manager:
        yield manager


@pytest.fixture
def queue(qm: postroad.QueueManager) -> postroad.Queue:
    return qm.create_queue(r"private$\orders")


# Names


@pytest.mark.parametrize("name", [r"private\orders", r"alpha\private\orders"])
def test_a_forgotten_dollar_sign_is_refused_with_the_right_name(qm: postroad.QueueManager, name: str) -> None:
    right = name.replace("private", "private$")
    for call in (qm.create_queue, lambda name: qm.send(name, "text"), lambda name: qm.queue(name).receive(0)):
        with pytest.raises(errors.IllegalName) as refusal:
            call(name)
        assert f"write {right}" in str(refusal.value)
    assert not [each for each in qm.queues() if each.state is not None]  # nothing waits for a computer called private


def test_the_http_api_and_the_command_line_show_the_right_name_too() -> None:
    with api_served() as running:
        for path in ("private%5Corders", "private/orders"):
            answer = running.call("POST", f"{API}/queues/{path}/messages", {"body": "text"})
            assert (answer.status, answer.json["error"]) == (400, "IllegalPathName")
            assert r"write private$\orders" in answer.json["detail"]
        created = running.call("POST", f"{API}/queues", {"path": r"private\orders"})
        assert created.status == 400
        api = f"http://{running.server.host}:{running.server.port}"
        refused = command("send", r"private\orders", "--body", "text", api=api)
    assert refused.code != 0
    assert r"write private$\orders" in refused.last_error


# JSON


def test_a_dict_is_sent_as_json(queue: postroad.Queue) -> None:
    order = {"order": 7, "lines": [{"item": "Zoë", "price": 1.5}], "paid": None, "odd": "\x85\ud800"}
    assert isinstance(queue.send(order), str)
    assert len(queue.send([{"order": 8}, postroad.Message(json=[1, "two"], body_type=8)])) == 2
    first, second, third = queue.receive_many(3, 5)
    assert first.json() == order
    assert second.text == '{"order":8}'
    assert third.json() == [1, "two"]


def test_text_that_prints_is_not_escaped(queue: postroad.Queue) -> None:
    queue.send({"name": "Zoë"})
    assert queue.receive(0).text == '{"name":"Zoë"}'


@pytest.mark.parametrize("value", [{1, 2}, float("nan"), object()])
def test_what_json_cannot_hold_is_refused(value: object) -> None:
    with pytest.raises(errors.InvalidMessage, match="json: must be a value that JSON can hold"):
        postroad.Message(json=value)


def test_json_is_the_body() -> None:
    assert postroad.Message(json=None).body == "null"
    with pytest.raises(errors.InvalidMessage, match="json: must not be set together with a body"):
        postroad.Message("text", json={})


def test_a_body_that_is_not_json_says_so(queue: postroad.Queue) -> None:
    queue.send(["{", b"\xff\0\1"])
    for message in queue.receive_many(2, 5):
        with pytest.raises(errors.UnreadableBody, match=r"is not JSON: .* bytes of body type 0; use `body`"):
            message.json()


@pytest.mark.parametrize(
    ("body", "found"), [(5, "the number 5"), (True, "type bool"), (["a"], "type list"), (None, "type NoneType")]
)
def test_a_message_says_what_its_body_can_be(body: bytes, found: str) -> None:
    with pytest.raises(errors.InvalidMessage, match=f"body: must be bytes or text, got .*{found}; Message\\(json="):
        postroad.Message(body)


# Bodies and ids


def test_text_is_text_or_an_error(queue: postroad.Queue) -> None:
    queue.send(["text", b"\xff\0\1"])
    text, other = queue.receive_many(2, 5)
    assert (text.text, text.text_or_none, other.text_or_none) == ("text", "text", None)
    with pytest.raises(errors.UnreadableBody, match="is not text: 3 bytes of body type 0; use `body`"):
        _ = other.text


def test_ids_are_text(qm: postroad.QueueManager, queue: postroad.Queue) -> None:
    sent = queue.send("question")
    assert queue.peek(0).id == sent
    assert queue.peek(0).correlation_id is None
    assert queue.peek(0).source_manager == qm.info().id
    queue.send(postroad.Message("answer", correlation_id=sent))
    question, answer = queue.peek_many(2, 0)
    assert answer.correlation_id == sent == answer.describe()["correlation_id"]
    assert qm.trace(question.id).findings
    assert queue.peek_by_id(str(answer.lookup_id)).text == "answer"
    assert queue.receive_by_id(str(question.lookup_id)).text == "question"
    with pytest.raises(errors.InvalidArgument, match="lookup_id: must be a whole number, got 'first'"):
        queue.receive_by_id("first")
    locked = queue.lock(1, 0)
    queue.settle([str(locked[0].lookup_id)], delete=True)
    with qm.transaction() as tx:
        assert str(UUID(tx.id)) == tx.id


def test_no_message_names_its_queue(queue: postroad.Queue) -> None:
    def with_cursor() -> None:
        with queue.cursor() as cursor:
            cursor.receive(0)

    def opened_alone() -> None:
        with queue.open(exclusive=True) as mine:
            mine.peek(0)

    reads = (lambda: queue.receive(0), lambda: queue.peek(0), lambda: queue.receive(0.01), lambda: queue.lock(1, 0))
    for read in (*reads, lambda: queue.receive_by_correlation_id(UNKNOWN, 0), with_cursor, opened_alone):
        with pytest.raises(postroad.NoMessage) as fault:
            read()
        assert str(fault.value) == r"no message came to private$\orders within the time to wait"
        assert fault.value.queue == r"private$\orders"


@pytest.mark.parametrize("face", ["embedded-sync", "remote-sync"])
@pytest.mark.parametrize("timeout", [-1, float("nan"), "soon", timedelta(seconds=1)])
def test_a_timeout_is_a_number_of_seconds(timeout: float, face: str) -> None:
    with opened(face) as qm:
        queue = qm.create_queue(r"private$\orders")
        for read in (queue.receive, queue.peek):
            with pytest.raises(errors.InvalidArgument, match="timeout: must be a number of seconds"):
                read(timeout)


WRONG = {
    "label": 5,
    "priority": "3",
    "recoverable": "no",
    "body_type": 1.5,
    "app_tag": "x",
    "correlation_id": 5,
    "response_queue": 5,
    "admin_queue": 5,
    "ack": 1.5,
    "time_to_reach_queue": "soon",
    "time_to_be_received": b"1",
    "journal": 1,
    "dead_letter": None,
    "dead_letter_queue": 5,
    "trace": 5,
    "extension": "text",
    "connector_type": 5,
    "message_class": "x",
}


@pytest.mark.parametrize("face", FACES)
def test_a_property_of_a_wrong_type_is_named(face: str) -> None:
    with opened(face) as qm:
        queue = qm.create_queue(r"private$\orders")
        for name, value in WRONG.items():
            message = postroad.Message("x")
            setattr(message, name, value)
            for sent in (message, [postroad.Message("y"), message]):
                with pytest.raises(errors.InvalidMessage, match=f"^{name}: must be .*, got (the|a) "):
                    queue.send(sent)
        assert queue.info().messages == 0


@pytest.mark.parametrize("face", FACES)
def test_a_time_of_a_message_can_be_a_timedelta(face: str) -> None:
    with opened(face) as qm:
        queue = qm.create_queue(r"private$\orders")
        queue.send(postroad.Message("x", time_to_be_received=timedelta(hours=1, milliseconds=1)))
        queue.send(postroad.Message("x", time_to_reach_queue=timedelta(minutes=2)))
        first, second = queue.receive_many(2, 0)
        assert (first.view.time_to_be_received, second.view.time_to_reach_queue) == (3601, 120)
        with pytest.raises(errors.InvalidMessage, match="time_to_be_received: must be between 0 and"):
            queue.send(postroad.Message("x", time_to_be_received=timedelta(seconds=-1)))


# Answers


def test_the_answer_is_taken_from_among_others(queue: postroad.Queue) -> None:
    ids = [queue.send(f"question {number}") for number in range(3)]
    queue.send([postroad.Message(f"answer {number}", correlation_id=ids[number]) for number in (2, 0, 1, 1)])
    assert queue.receive_by_correlation_id(ids[1], timeout=5).text == "answer 1"
    assert queue.receive_by_correlation_id(ids[1], 5).text == "answer 1"
    with pytest.raises(postroad.NoMessage):
        queue.receive_by_correlation_id(ids[1], timeout=0.05)
    assert [each.text for each in queue.messages()] == [*(f"question {n}" for n in range(3)), "answer 2", "answer 0"]


def test_the_answer_is_found_behind_many_and_waited_for(qm: postroad.QueueManager, queue: postroad.Queue) -> None:
    queue.send(["another"] * 450)
    asked = queue.send("question")
    found: list[str] = []

    def ask() -> None:
        found.append(queue.receive_by_correlation_id(asked, timeout=30).text)

    thread = Thread(target=ask)
    thread.start()
    while queue.info().waiting == 0:
        time.sleep(0.01)
    queue.send(postroad.Message("not this one", correlation_id=UNKNOWN))
    queue.send(postroad.Message("answer", correlation_id=asked, priority=7))
    thread.join()
    assert found == ["answer"]
    assert queue.info().messages == 452
    assert queue.info().waiting == 0


def test_an_answer_in_a_transaction(qm: postroad.QueueManager) -> None:
    queue = qm.create_queue(r"private$\replies", transactional=True)
    asked = queue.send("question", transactional=True)
    queue.send(postroad.Message("answer", correlation_id=asked), transactional=True)
    tx = qm.begin()
    assert queue.receive_by_correlation_id(asked, 5, tx).text == "answer"
    tx.abort()
    assert queue.receive_by_correlation_id(asked, 5).text == "answer"


def test_what_is_no_id_is_refused(queue: postroad.Queue) -> None:
    with pytest.raises(errors.InvalidArgument, match=r"correlation_id: .*must start with its manager's GUID"):
        queue.receive_by_correlation_id("7", timeout=0)


async def until_waiting(queue: aio.Queue, reads: int) -> None:
    while (await queue.info()).waiting != reads:  # noqa: ASYNC110  (the manager is another process or another task)
        await asyncio.sleep(0.01)


def test_a_cancelled_wait_for_an_answer_takes_nothing() -> None:
    async def main(opening: aio.Opening) -> None:
        async with opening as qm:
            queue = await qm.create_queue(r"private$\replies")
            waiting = asyncio.create_task(queue.receive_by_correlation_id(UNKNOWN))
            await until_waiting(queue, 1)
            waiting.cancel()
            await asyncio.wait([waiting])
            await until_waiting(queue, 0)
            await queue.send(postroad.Message("answer", correlation_id=UNKNOWN))
            assert (await queue.receive_by_correlation_id(UNKNOWN, 5)).text == "answer"

    asyncio.run(main(aio.open(":memory:", name="alpha")))
    with served(":memory:") as url:
        asyncio.run(main(aio.connect(url)))


def test_the_answer_can_be_held_by_another_reader_first(qm: postroad.QueueManager, queue: postroad.Queue) -> None:
    queue.send(postroad.Message("answer", correlation_id=UNKNOWN))
    locked = queue.lock(1, 0)
    found: list[str] = []
    thread = Thread(target=lambda: found.append(queue.receive_by_correlation_id(UNKNOWN, 30).text))
    thread.start()
    while queue.info().waiting == 0:
        time.sleep(0.01)
    queue.settle(locked, delete=False)
    thread.join()
    assert found == ["answer"]


def test_an_answer_that_a_pipeline_held_is_found_when_it_lets_go(qm: postroad.QueueManager) -> None:
    queue = qm.create_queue(r"private$\replies")
    queue.send(postroad.Message("answer", correlation_id=UNKNOWN))
    queue.hold("nightly", 0)
    found: list[str] = []
    thread = Thread(target=lambda: found.append(queue.receive_by_correlation_id(UNKNOWN, 30).text))
    thread.start()
    while queue.info().waiting == 0:
        time.sleep(0.01)
    queue.release("nightly")
    thread.join()
    assert found == ["answer"]


def test_remote_readers_take_answers_too() -> None:
    with station() as running, postroad.remote(HOST, port=running.address[1]) as remote:
        queue = remote.queue(r"private$\orders")
        running.send("another")
        running.send("answer", correlation_id=UNKNOWN)
        assert queue.receive_by_correlation_id(UNKNOWN, timeout=5).label == "answer"
        for read in (lambda: queue.receive_by_correlation_id(UNKNOWN, 0), lambda: queue.receive_many(1, 0)):
            with pytest.raises(postroad.NoMessage, match=r"no message came to DIRECT=.*private\$\\orders within"):
                read()
            queue.purge()


def test_natural_code_runs_and_has_types(tmp_path: Path) -> None:
    """`make check` has mypy check the program strictly. This test runs it."""
    with postroad.open(tmp_path / "blocking", name="alpha") as manager:
        assert typed_program.work(manager) == "ANSWER to 1"

    async def main() -> str:
        async with aio.open(tmp_path / "async", name="alpha") as manager:
            return await typed_program.work_async(manager)

    assert asyncio.run(main()) == "answer"
