"""Messages on their way, as the API and its clients show them: why they wait, sessions, and where a message went."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

import postroad
from postroad.errors import IllegalIdentifier
from postroad.reports.plain import from_json
from postroad.reports.trace import Trace
from tests.faces import FACES, opened
from tests.served import API, ORDERS, Served, served

FAR = r"DIRECT=TCP:10.0.0.9\private$\far"
OFF = "the binary protocol is off here: nothing is sent until `postroad serve` runs on this data with it on"


@pytest.fixture
def api() -> Iterator[Served]:
    with served() as running:
        running.create()
        yield running


def traced(api: Served, message_id: str) -> Any:
    return api.call("GET", f"{API}/trace/{quote(message_id, safe='')}").json


def sent(api: Served, queue: str, **properties: object) -> str:
    path = f"{API}/queues/{quote(queue, safe='')}/messages"
    (identifier,) = api.call("POST", path, {"body": "x", **properties}).json["ids"]
    return str(identifier)


def test_a_message_that_cannot_leave_needs_attention_and_says_why(api: Served) -> None:
    sent(api, FAR)
    status = api.call("GET", f"{API}/status").json
    assert status["sessions"] == []
    assert status["attention"] == [f"1 message waits for {FAR}: {OFF}"]
    shown = api.call("GET", f"{API}/queues/{quote(FAR, safe='')}").json
    assert (shown["why"], shown["stuck"], shown["unsent"], shown["in_flight"]) == (OFF, True, 1, 0)
    assert (shown["last_error"], shown["next_retry_s"]) == (None, None)
    sent(api, FAR)
    assert api.call("GET", f"{API}/status").json["attention"] == [f"2 messages wait for {FAR}: {OFF}"]


def test_a_local_queue_has_nothing_to_explain(api: Served) -> None:
    api.send("x")
    shown = api.call("GET", ORDERS).json
    assert (shown["why"], shown["stuck"], shown["unsent"]) == (None, False, 0)


def test_sessions(api: Served) -> None:
    assert api.call("GET", f"{API}/sessions").json == {"sessions": []}


def test_outgoing_queues_are_measured_as_long_as_they_exist(api: Served) -> None:
    def samples() -> list[str]:
        lines = api.call("GET", "/metrics").body.decode().splitlines()
        return [line.partition("{")[0] for line in lines if line.startswith("postroad_outgoing_") and "{" in line]

    names = sorted(f"postroad_outgoing_{name}" for name in ("failures_total", "stuck", "unsent_messages"))
    names += ["postroad_outgoing_in_flight_messages", "postroad_outgoing_unacknowledged_messages"]
    assert samples() == []
    sent(api, FAR)
    assert sorted(samples()) == sorted(names)
    api.call("POST", f"{API}/queues/{quote(FAR, safe='')}/purge")
    assert sorted(samples()) == sorted(names)
    api.call("DELETE", f"{API}/queues/{quote(FAR, safe='')}")
    assert samples() == []


def test_a_trace(api: Served) -> None:
    identifier = sent(api, r"private$\orders", label="hello")
    found = traced(api, identifier)
    assert (found["id"], found["looked_at"], found["limit_per_queue"], found["cut_off"]) == (identifier, 1, 10_000, [])
    assert [each["kind"] for each in found["findings"]] == ["sent", "queued"]
    queued = found["findings"][1]
    (message,) = api.call("GET", f"{ORDERS}/messages").json["messages"]
    assert (queued["queue"], queued["lookup_id"]) == (r"private$\orders", message["lookup_id"])
    assert queued["at"] == message["arrived_at"]
    assert traced(api, identifier.replace("{", "").replace("}", "")) == found


def test_an_unknown_message_has_no_findings(api: Served) -> None:
    api.send("x")
    found = traced(api, r"{8f3c6a52-0d1e-4b7a-9c55-2f1f0f6f7a10}\7")
    assert (found["findings"], found["looked_at"]) == ([], 1)


def test_what_is_no_message_id_is_refused(api: Served) -> None:
    for text in ("hello", "%7B%7D", r"{8f3c6a52-0d1e-4b7a-9c55-2f1f0f6f7a10}\x"):
        reply = api.call("GET", f"{API}/trace/{quote(text, safe='')}")
        assert (reply.status, reply.json["error"]) == (400, "IllegalIdentifier")


@pytest.mark.parametrize("face", FACES)
def test_every_face_traces(face: str) -> None:
    with opened(face) as manager:
        queue = manager.create_queue(r"private$\orders")
        identifier = queue.send(postroad.Message(b"x", label="hello"))
        found = manager.trace(identifier)
        assert isinstance(found, Trace)
        assert [each.kind for each in found.findings] == ["sent", "queued"]
        assert found.findings[1].queue == r"private$\orders"
        assert manager.trace(queue.peek().id) == found
        assert manager.sessions() == []
        with pytest.raises(IllegalIdentifier):
            manager.trace("hello")
        manager.send(FAR, postroad.Message(b"x"))
        assert manager.queue(FAR).info().why == OFF


@pytest.mark.parametrize("answer", [{}, [], None, {"id": "x", "findings": [1]}, {"id": "x", "findings": [{}]}])
def test_an_answer_of_something_else_is_not_taken_for_a_trace(answer: Any) -> None:
    with pytest.raises((LookupError, TypeError)):
        from_json(Trace, answer)
