"""The server reads what the client puts into a request, and the client raises the error that the server reports."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from threading import current_thread
from typing import Any
from urllib.parse import unquote
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroad import errors
from postroad.api import problems
from postroad.api.application import canonical_path
from postroad.api.calls import API
from postroad.api.json_values import read_sending
from postroad.client.payloads import message_json, queue_path
from postroad.client.sync.backend import CallerThread
from postroad.message import Message
from postroad.names import MessageId, parse_format_name
from postroad.reports.enterprise import Table, TableRow
from postroad.reports.offsets import HoldInfo
from postroad.reports.plain import from_json, to_json

GUIDS = st.uuids()
NAMES = st.sampled_from([None, r"private$\replies", r"DIRECT=OS:beta\private$\q", "PUBLIC=" + str(UUID(int=7))])
MESSAGES = st.builds(
    Message,
    st.binary(max_size=50) | st.text(max_size=50),
    label=st.text(max_size=50),
    priority=st.integers(0, 7),
    recoverable=st.booleans(),
    body_type=st.integers(0, 2**32 - 1),
    app_tag=st.integers(0, 2**32 - 1),
    correlation_id=st.none() | st.builds(MessageId, GUIDS, st.integers(0, 2**32 - 1)).map(str),
    response_queue=NAMES,
    admin_queue=NAMES,
    ack=st.integers(0, 255),
    time_to_reach_queue=st.none() | st.integers(0, 2**32 - 1),
    time_to_be_received=st.none() | st.integers(0, 2**32 - 1),
    journal=st.booleans(),
    dead_letter=st.booleans(),
    dead_letter_queue=NAMES,
    trace=st.none() | GUIDS.map(lambda guid: f"PUBLIC={guid}"),
    extension=st.binary(max_size=20),
    connector_type=st.none() | GUIDS,
    message_class=st.integers(0, 0x1FF),
)


def received(message: Message) -> Message:
    """The message as the server reads it from the client's request."""
    (found,) = read_sending(json.dumps({"messages": [message_json(message)]}).encode()).messages
    return found


@given(MESSAGES)
def test_every_message_comes_through(message: Message) -> None:
    assert received(message) == message


@pytest.mark.parametrize(
    ("name", "given", "read"),
    [
        ("correlation_id", MessageId(UUID(int=1), 2), str(MessageId(UUID(int=1), 2))),
        ("correlation_id", MessageId(UUID(int=1), 2).to_bytes(), str(MessageId(UUID(int=1), 2))),
        ("response_queue", parse_format_name(r"DIRECT=OS:beta\q"), r"DIRECT=OS:beta\q"),
        ("trace", UUID(int=3), f"PUBLIC={UUID(int=3)}"),
        ("ack", ("reach-queue", "receive"), 3),
        ("ack", "full", 15),
    ],
)
def test_values_have_other_forms_too(name: str, given: object, read: object) -> None:
    message = Message()
    setattr(message, name, given)
    assert getattr(received(message), name) == read


def test_a_plain_message_says_no_more_than_its_body() -> None:
    assert message_json(Message("text")) == {"body": "text"}
    assert message_json(Message(b"\xff")) == {"body_base64": "/w=="}


# Errors


def as_received(error: errors.PostroadError) -> errors.PostroadError:
    """The error as a client gets it from the server's answer."""
    answer = json.loads(bytes(problems.problem(error).body))
    standard = {"title", "status", "detail", "hresult", "code", "error"}
    members = {name: value for name, value in answer.items() if name not in standard}
    return errors.rebuild_error(answer["error"], int(answer["hresult"], 16), answer["detail"], members)


def every_class(base: type[errors.PostroadError] = errors.PostroadError) -> list[type[errors.PostroadError]]:
    own = (each for each in base.__subclasses__() if each.__module__ == errors.__name__)  # other tests define more
    return [base, *(found for each in own for found in every_class(each))]


@pytest.mark.parametrize("kind", [kind for kind in every_class() if kind is not errors.NoMessage])
def test_an_error_arrives_as_the_class_it_was(kind: type[errors.PostroadError]) -> None:
    error = kind.__new__(kind)
    Exception.__init__(error, "a sentence")
    vars(error).update({"limit_bytes": 1, "current_bytes": 2, "setting": "x"})
    found = as_received(error)
    assert (type(found), str(found)) == (kind, "a sentence")


def test_a_quota_arrives_with_its_numbers() -> None:
    found = as_received(errors.QuotaExceeded("the queue q", 1024, 1000, 100, "quota_kb of q"))
    assert isinstance(found, errors.QuotaExceeded)
    assert (found.limit_bytes, found.current_bytes, found.setting) == (1024, 1000, "quota_kb of q")
    assert str(found).startswith("the queue q is full: 1000 of 1024 bytes are used")


@pytest.mark.parametrize(
    ("name", "status", "kind"),
    [
        ("FromTheFuture", 0xC00E0003, errors.QueueNotFound),
        ("Mapping", 0xC00E0005, errors.QueueExists),  # a name of the module, and no error
        ("", 0xE00E0001, errors.StorageError),
        ("", 0xC00E0006, errors.LocalProtocolError),
        ("FromTheFuture", 0xC00E7777, errors.PostroadError),
    ],
)
def test_an_unknown_class_is_told_by_its_status(name: str, status: int, kind: type[Exception]) -> None:
    error = errors.rebuild_error(name, status, "a sentence", {})
    assert (type(error), str(error)) == (kind, "a sentence")


def test_a_coroutine_that_never_waits_runs_in_the_callers_thread() -> None:
    async def answer() -> str:
        return current_thread().name

    async def fault() -> None:
        raise errors.QueueNotFound("orders")

    assert CallerThread().run(answer()) == current_thread().name
    with pytest.raises(errors.QueueNotFound, match="orders"):
        CallerThread().run(fault())


def test_a_coroutine_that_waits_for_an_event_loop_is_refused() -> None:
    with pytest.raises(RuntimeError, match="waits for an event loop"):
        CallerThread().run(asyncio.sleep(0))


def test_a_dataclass_is_a_json_object_and_back_under_its_keys() -> None:
    hold = HoldInfo("a", 1, 5, 3, 1700000000)
    table = Table(manager="gate", is_site_gate=True, rows=(TableRow(site="a", next_site="b", gates=("gate",), cost=7),))
    for value in (hold, table):
        read = json.loads(json.dumps(value, default=to_json))
        assert from_json(type(value), read | {"of another version": 1}) == value
    assert json.loads(json.dumps(hold, default=to_json)).keys() >= {"from", "to"}
    with pytest.raises(TypeError, match="no form in JSON"):
        json.dumps({"x": UUID(int=1)}, default=to_json)


@pytest.mark.parametrize(
    ("name", "path"),
    [
        (r"private$\orders", "private$/orders"),
        (r"PRIVATE$\a-b_1", "PRIVATE$/a-b_1"),
        (r"private$\..", "private%24%5C.."),
        (r"alpha\private$\orders", "alpha%5Cprivate%24%5Corders"),
        (r"DIRECT=OS:.\private$\orders", "DIRECT%3DOS%3A.%5Cprivate%24%5Corders"),
    ],
)
def test_the_path_of_a_queue_has_no_escapes_if_it_needs_none_and_the_server_finds_the_name(
    name: str, path: str
) -> None:
    assert queue_path(name, "messages") == f"/queues/{path}/messages"
    found = canonical_path(f"{API}{queue_path(name, 'messages')}")
    assert unquote(found) == f"{API}/queues/{name}/messages"


def test_a_buffer_that_is_filled_again_is_sent_as_it_is_now() -> None:
    buffer: Any = bytearray(b"one")  # accepted, though typed programs give bytes
    message_json(Message(extension=buffer))
    buffer[:] = b"two"
    assert message_json(Message(extension=buffer))["extension_base64"] == b64encode(b"two").decode()


def test_a_property_of_a_wrong_type_is_refused_after_an_equal_one() -> None:
    message_json(Message(priority=1))
    with pytest.raises(errors.InvalidMessage, match="priority"):
        message_json(Message(priority=True))
