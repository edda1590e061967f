"""Messages as Arrow over HTTP, read back by pyarrow."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from postroad.api import formats
from postroad.api.formats import ARROW
from postroad.api.messages import PAGE_MESSAGES
from postroad.api.openapi import MESSAGE
from tests.served import API, ORDERS, Served, served

ACCEPT = {"Accept": ARROW}


@pytest.fixture
def api() -> Iterator[Served]:
    with served() as running:
        running.create()
        yield running


def table(body: bytes) -> Any:
    pyarrow = pytest.importorskip("pyarrow")
    with pyarrow.ipc.open_stream(body) as reader:
        return reader.read_all()


def test_columns_are_the_properties_of_a_message(api: Served) -> None:
    api.send("a")
    columns = set(table(api.call("GET", f"{ORDERS}/messages", headers=ACCEPT).body).column_names)
    renamed = {"body_base64": "body_text", "extension_base64": "extension"}
    assert columns == {renamed.get(name, name) for name in MESSAGE}


def test_values_are_those_of_json(api: Served) -> None:
    api.send("text", label="x", priority=6, recoverable=True, extension_base64="AP8=", app_tag=2**32 - 1)
    api.call("POST", f"{ORDERS}/messages", body=b"\x00\xff")
    answer = api.call("GET", f"{ORDERS}/messages", headers=ACCEPT)
    assert answer.headers["content-type"] == ARROW
    rows = table(answer.body).to_pylist()
    described = api.call("GET", f"{ORDERS}/messages").json["messages"]
    for row, message in zip(rows, described, strict=True):
        same = set(row) & set(message) - {"body", "sent_at", "arrived_at"}
        assert {name: row[name] for name in same} == {name: message[name] for name in same}
        assert row["sent_at"] == datetime.fromisoformat(message["sent_at"])
        assert row["arrived_at"] == datetime.fromisoformat(message["arrived_at"])
        assert row["sent_at"].tzinfo is not None
    assert [(row["body"], row["body_text"], row["extension"]) for row in rows] == [
        (b"text", "text", b"\x00\xff"),
        (b"\x00\xff", None, b""),
    ]
    assert rows[0]["arrived_at"] <= datetime.now(UTC)


def test_packets_come_on_demand(api: Served) -> None:
    api.send("a", "b")
    packets = table(api.call("GET", f"{ORDERS}/messages?packet=true", headers=ACCEPT).body)["packet"].to_pylist()
    assert b"".join(packets) == api.call("GET", f"{ORDERS}/packets").body


def test_a_long_list_comes_in_batches(api: Served) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    count = 2 * PAGE_MESSAGES + 1
    api.send(*map(str, range(count)))
    answer = api.call("GET", f"{ORDERS}/messages?limit={count}", headers=ACCEPT)
    with pyarrow.ipc.open_stream(answer.body) as reader:
        batches = list(reader)
    assert len(batches) == 3
    assert [text for batch in batches for text in batch["body_text"].to_pylist()] == list(map(str, range(count)))


def test_an_empty_queue_is_an_empty_table(api: Served) -> None:
    assert table(api.call("GET", f"{ORDERS}/messages", headers=ACCEPT).body).num_rows == 0


def test_locked_messages_come_as_arrow_too(api: Served) -> None:
    api.send("a", "b")
    answer = api.call("POST", f"{ORDERS}/lock?count=2&timeout=0", headers=ACCEPT)
    assert table(answer.body)["body_text"].to_pylist() == ["a", "b"]


def test_other_calls_are_answered_while_pyarrow_is_imported(api: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once, and only if somebody asks for Arrow."""
    answers: list[int] = []
    monkeypatch.setattr(formats, "_import_all", lambda: answers.append(api.call("GET", f"{API}/queues").status))
    formats._loading.cache_clear()
    try:
        api.call("GET", f"{ORDERS}/messages")
        api.call("GET", f"{API}/queues", headers=ACCEPT)
        assert answers == []
        for _ in range(2):
            assert api.call("GET", f"{ORDERS}/messages", headers=ACCEPT).status == 200
            assert answers == [200]
    finally:
        formats._loading.cache_clear()


def test_without_pyarrow_the_answer_says_what_to_install(api: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    api.send("a")
    for method, call in (("GET", "messages"), ("POST", "receive?timeout=0")):
        answer = api.call(method, f"{ORDERS}/{call}", headers=ACCEPT)
        assert answer.status == 406
        assert "pip install postroad[arrow]" in answer.json["detail"]
    assert api.bodies() == ["a"]  # refused before it was taken


@pytest.mark.parametrize("name", ["an offset behind the bytes", "compressed with zstd", "a struct"])
def test_a_hostile_submission_is_refused_and_nothing_is_sent(api: Served, name: str) -> None:
    pytest.importorskip("pyarrow")
    from tests.arrow_samples import HOSTILE, honest

    path, arrow = f"{ORDERS}/submissions/job/1/0?row=0", {"Content-Type": ARROW}
    answer = api.call("POST", path, body=HOSTILE[name](), headers=arrow)
    assert answer.status == 400
    assert answer.json["detail"].startswith("body: must")
    assert api.bodies() == []
    assert api.call("POST", path, body=honest(), headers=arrow).json == {"sent": 3, "dropped": 0}
    assert sorted(api.bodies()) == ["first", "second", "third"]
