"""Messages to send, from Arrow columns: each property, and each fault with its column and row."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

from postroad.columns.sending import COLUMNS, Sending, read_messages
from postroad.errors import InvalidMessage
from postroad.message import Message

GUID = "a0a1a2a3-a4a5-a6a7-a8a9-aaabacadaeaf"


def stream(**columns: Any) -> bytes:
    table = pa.table(columns)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def read(**columns: Any) -> Sending:
    return read_messages(stream(**columns), 100)


def test_every_property() -> None:
    given: dict[str, list[Any]] = {
        "body": [b"\0\xff", None],
        "body_type": [17, None],
        "label": ["order", None],
        "priority": [7, None],
        "recoverable": [True, None],
        "app_tag": [0xFFFFFFFF, None],
        "correlation_id": [f"{{{GUID}}}\\7", None],
        "response_queue": ["private$/answers", None],
        "admin_queue": [r"DIRECT=OS:beta\private$\acks", None],
        "ack": ["reach-queue,receive", None],
        "time_to_reach_queue": [5, None],
        "time_to_be_received": [6, None],
        "journal": [True, None],
        "dead_letter": [True, None],
        "dead_letter_queue": ["private$/dead", None],
        "trace": [f"PUBLIC={GUID}", None],
        "extension": [b"x", None],
        "connector_type": [GUID, None],
        "class": [1, None],
    }
    assert set(given) | {"delivery"} == set(COLUMNS)
    sending = read(**given)
    assert sending.transactional is None
    assert sending.messages == [
        Message(
            b"\0\xff",
            body_type=17,
            label="order",
            priority=7,
            recoverable=True,
            app_tag=0xFFFFFFFF,
            correlation_id=f"{{{GUID}}}\\7",
            response_queue=r"private$\answers",
            admin_queue=r"DIRECT=OS:beta\private$\acks",
            ack=3,
            time_to_reach_queue=5,
            time_to_be_received=6,
            journal=True,
            dead_letter=True,
            dead_letter_queue=r"private$\dead",
            trace=f"PUBLIC={GUID}",
            extension=b"x",
            connector_type=UUID(GUID),
            message_class=1,
        ),
        Message(),
    ]


@pytest.mark.parametrize(
    ("deliveries", "recoverable", "transactional"),
    [
        (["express", "recoverable", None], [False, True, False], False),
        (["transactional", "transactional"], [False, False], True),
    ],
)
def test_delivery(deliveries: list[str | None], recoverable: list[bool], transactional: bool) -> None:
    sending = read(body=["x"] * len(deliveries), delivery=deliveries)
    assert [message.recoverable for message in sending.messages] == recoverable
    assert sending.transactional is transactional


def test_other_forms() -> None:
    assert read(body=["text"]).messages == [Message("text")]
    assert read(ack=[["full"]]).messages == [Message(ack=15)]
    assert read(ack=[15]).messages == [Message(ack=15)]
    assert read(correlation_id=[b"x" * 20]).messages == [Message(correlation_id=b"x" * 20)]
    assert read(body=pa.array(["a"], pa.large_string())).messages == [Message("a")]
    assert read(label=pa.nulls(2)).messages == [Message(), Message()]
    assert read(body=pa.array([], pa.binary())).messages == []


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ({"colour": ["red"]}, "column colour: must be one of "),
        ({"priority": ["high"]}, "column priority: must be a whole number, got string"),
        ({"body": [1]}, "column body: must be bytes or text, got int64"),
        ({"priority": [3, 8]}, "column priority, row 1: must be a whole number from 0 to 7, got 8"),
        ({"app_tag": [0, None, -1]}, "column app_tag, row 2: must be a whole number from 0 to 4294967295, got -1"),
        ({"label": ["ok", "x" * 250]}, "column label, row 1: must be text of at most 249 characters"),
        ({"label": ["a\0b"]}, "column label, row 0"),
        ({"delivery": ["express", "by hand"]}, "column delivery, row 1: must be one of express"),
        (
            {"delivery": ["transactional", "express"]},
            "column delivery, row 1: must be transactional in all rows or in none",
        ),
        ({"delivery": ["express"], "recoverable": [True]}, "column delivery: must not be given together"),
        ({"correlation_id": ["7"]}, "column correlation_id, row 0: '7', character 1"),
        ({"correlation_id": [b"short"]}, "column correlation_id, row 0"),
        ({"response_queue": ["", "private$\\a"]}, "column response_queue, row 0"),
        ({"ack": ["full", "maybe"]}, "column ack, row 1: ack: must be one of none, reach-queue"),
        ({"ack": [256]}, "column ack, row 0"),
        ({"ack": [["full"], ["receive"] * 7]}, "column ack, row 1: must have at most 6 words"),
        ({"trace": ["private$\\a"]}, "column trace, row 0: must be PUBLIC=<guid>"),
        ({"connector_type": ["x"]}, "column connector_type, row 0: must be a GUID, got 'x'"),
        ({"class": [0x10000]}, "column class, row 0"),
        ({"body": ["x"] * 101}, "body: must have at most 100 rows in one request, got 101"),
    ],
)
def test_a_fault_has_its_column_and_row(columns: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidMessage) as caught:
        read(**columns)
    assert str(caught.value).startswith(sentence.replace("\\\\\\\\", "\\\\"))


@pytest.mark.parametrize("body", [b"", b"no arrow", stream(body=[b"x" * 100])[:-60]])
def test_bytes_that_are_not_a_stream_are_refused(body: bytes) -> None:
    with pytest.raises(InvalidMessage, match="body: must be an Arrow stream"):
        read_messages(body, 100)
