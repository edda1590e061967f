"""Ranges by order of arrival over HTTP: as Arrow, as JSON, and invalid requests."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from postroad.api.formats import ARROW
from postroad.columns import ranges
from postroad.describe.received import decode_records
from postroad.message import Message
from postroad.reports.operations import RECORDS_TYPE as RECORDS
from postroad.store import LayeredStore, open_store
from tests.served import ORDERS, Served, served

ACCEPT = {"Accept": ARROW}
NAME = r"private$\orders"


@pytest.fixture(params=["memory", "disk"])
def api(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Served]:
    store = open_store(tmp_path) if request.param == "disk" else None
    with served(store) as running:
        running.create()
        yield running


def table(api: Served, query: str) -> Any:
    answer = api.call("GET", f"{ORDERS}/messages?{query}", headers=ACCEPT)
    assert answer.status == 200, answer.body
    with pa.ipc.open_stream(answer.body) as reader:
        return reader.read_all()


def send(api: Served, *messages: Message) -> None:
    api.run(api.manager.send(NAME, list(messages)))


def mark(api: Served) -> int:
    return int(api.call("GET", f"{ORDERS}/mark").json["arrival"])


def test_messages_of_all_priorities_and_kinds_come_in_the_order_they_came(
    api: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranges, "BATCH_BYTES", 4000)
    monkeypatch.setattr(ranges, "FIRST_ROWS", 3)
    random = Random(7)
    labels = []
    for number in range(300):
        labels.append(f"{number}")
        body = bytes(random.randrange(300))
        message = Message(body, label=labels[-1], priority=random.randrange(8), recoverable=random.random() < 0.7)
        send(api, message)
    found = table(api, "from=0&columns=label,lookup_id,packet")
    assert found["label"].to_pylist() == labels
    arrivals = [each & ((1 << 56) - 1) for each in found["lookup_id"].to_pylist()]
    assert arrivals == sorted(arrivals)
    part = table(api, f"from={arrivals[10]}&to={arrivals[200]}&columns=label&limit=150")
    assert part["label"].to_pylist() == labels[10:160]
    assert max(len(batch) for batch in found.to_batches()) < 300
    limited = int(api.call("GET", f"{ORDERS}/mark?from={arrivals[10]}&limit=25").json["arrival"])
    assert limited == arrivals[35]


def test_all_formats_say_the_same(api: Served) -> None:
    for number in range(5):
        send(api, Message(f"{number}", label="x", priority=number))
    query = f"{ORDERS}/messages?from=0&limit=3"
    described = api.call("GET", query).json["messages"]
    records = decode_records(api.call("GET", query, headers={"Accept": RECORDS}).body)
    rows = table(api, "from=0&limit=3").to_pylist()
    assert [each["body"] for each in described] == ["0", "1", "2"]
    assert [each.lookup_id for each in records] == [each["lookup_id"] for each in described]
    assert [row["body_text"] for row in rows] == ["0", "1", "2"]
    assert [row["id"] for row in rows] == [each["id"] for each in described]


def test_filters(api: Served) -> None:
    send(api, *(Message(b"", label=label, priority=priority) for label in ("a", "b") for priority in (1, 5)))
    assert table(api, "from=0&priority=5&columns=label")["label"].to_pylist() == ["a", "b"]
    assert table(api, "label=b&columns=priority")["priority"].to_pylist() == [1, 5]
    assert table(api, "label=b&priority=1&class=0").num_rows == 1
    assert table(api, "class=2").num_rows == 0
    assert len(api.call("GET", f"{ORDERS}/messages?label=b").json["messages"]) == 2


def test_columns_that_were_asked_for_and_no_others(api: Served) -> None:
    send(api, Message(b"x", recoverable=True))
    assert table(api, "columns=packet,aborts,reason,arrived_at").column_names == [
        *("packet", "aborts", "reason", "arrived_at")
    ]
    assert table(api, "from=0&packet=true").column_names[-1] == "packet"


def test_locked_and_expired_messages_are_not_shown(api: Served) -> None:
    send(api, *(Message(f"{number}", recoverable=True) for number in range(3)))
    send(api, Message("stale", recoverable=True, time_to_be_received=0))
    api.call("POST", f"{ORDERS}/lock")
    assert table(api, "from=0&columns=body_text")["body_text"].to_pylist() == ["1", "2"]


def test_a_range_ends_at_what_has_arrived(api: Served) -> None:
    send(api, Message("a"))
    assert table(api, f"from=0&to={1 << 50}").num_rows == 1
    assert table(api, f"from={mark(api)}").num_rows == 0
    api.call("PUT", f"{ORDERS}/holds/a", {"from": 0})
    assert table(api, "from=0").num_rows == 0
    assert table(api, "from=0&hold=a").num_rows == 1
    assert table(api, "from=0&hold=b").num_rows == 0


@pytest.mark.parametrize(
    ("query", "status", "detail"),
    [
        ("from=5&to=4", 400, "to: must be at least 5"),
        ("from=0&after=3", 400, "after: "),
        ("columns=label,colour", 400, "columns: there is no column 'colour'"),
        ("columns=lable", 400, "did you mean label?"),
        ("columns=label,label", 400, "columns: "),
        ("from=-1", 400, "from: "),
        ("priority=8", 400, "priority: "),
    ],
)
def test_what_cannot_be_asked_for(api: Served, query: str, status: int, detail: str) -> None:
    answer = api.call("GET", f"{ORDERS}/messages?{query}", headers=ACCEPT)
    assert (answer.status, detail in answer.json["detail"]) == (status, True)


def test_columns_are_of_arrow_alone(api: Served) -> None:
    answer = api.call("GET", f"{ORDERS}/messages?columns=label")
    assert (answer.status, answer.json["detail"].startswith("columns: ")) == (400, True)


def test_a_queue_that_is_not_there(api: Served) -> None:
    for path in ("messages?from=0", "mark", "holds"):
        answer = api.call("GET", f"/api/v1/queues/private$/none/{path}", headers=ACCEPT if "?" in path else None)
        assert (answer.status, answer.json["error"]) == (404, "QueueNotFound")


def test_others_are_served_while_a_range_is_read(api: Served) -> None:
    """Between two batches the event loop is free: a reader that never takes the second batch blocks nobody."""
    send(api, *(Message(bytes(1000), recoverable=True) for _ in range(5000)))
    connection = api.connect()
    connection.request("GET", f"{ORDERS}/messages?from=0&columns=packet", headers=ACCEPT)
    assert connection.getresponse().read(10)
    assert api.call("GET", f"{ORDERS}/mark").status == 200
    send(api, Message("meanwhile"))
    connection.close()


def test_damage_is_left_out_as_everywhere(tmp_path: Path) -> None:
    store = LayeredStore(tmp_path)
    with served(store) as running:
        running.create()
        send(running, *(Message(f"{number}", recoverable=True) for number in range(5)))

        async def damage() -> None:
            lookup_id = store.scan(running.manager.core.queues.get(NAME).number)[2].lookup_id
            while store.tidy():
                pass
            store._database._writer.execute(
                "UPDATE message SET packet = zeroblob(length(packet)) WHERE key & ? = ?",
                ((1 << 44) - 1, lookup_id & (1 << 44) - 1),
            )

        running.run(damage())
        found = table(running, "from=0&columns=body_text")
        assert found["body_text"].to_pylist() == ["0", "1", "3", "4"]
        assert len(store.damaged) == 1


# Plans


def plan(api: Served, query: str = "") -> dict[str, Any]:
    answer = api.call("GET", f"{ORDERS}/plan?{query}")
    assert answer.status == 200, answer.body
    found: dict[str, Any] = answer.json
    return found


def test_a_plan_divides_by_the_number_of_messages(api: Served) -> None:
    api.create("private$/others")
    random = Random(3)
    for number in range(60):
        send(api, Message(b"x", priority=random.randrange(8), recoverable=random.random() < 0.5))
        if number == 20:  # a long gap in the arrival numbers of this queue
            api.run(api.manager.send(r"private$\others", [Message(b"other")] * 5000))
    found = plan(api, "parts=7")
    assert (found["messages"], found["to"]) == (60, mark(api))
    assert 0 < found["express"] < 60
    assert [part["messages"] for part in found["parts"]] == [8, 9, 8, 9, 8, 9, 9]
    for part in found["parts"]:
        assert table(api, f"from={part['from']}&to={part['to']}").num_rows == part["messages"]
    assert found["next_arrived_ms"] is None


def test_a_plan_ends_behind_so_many_messages_or_bytes(api: Served) -> None:
    for number in range(10):
        send(api, Message(bytes(1000), label=str(number), priority=number % 3, recoverable=number % 2 == 0))
    labels = [str(number) for number in range(10)]
    for query, count in (
        ("limit=4", 4),
        ("limit=10", 10),
        ("bytes=1", 1),
        ("bytes=5000&limit=9", 4),
        ("bytes=100000", 10),
    ):
        found = plan(api, query)
        assert found["messages"] == count, query
        assert table(api, f"from=0&to={found['to']}")["label"].to_pylist() == labels[:count]
        assert (found["next_arrived_ms"] is None) == (count == 10)


def test_a_plan_leaves_out_what_the_reader_does_not_see(api: Served) -> None:
    send(api, *(Message(b"x") for _ in range(6)))
    arrivals = [each & ranges.ARRIVAL_MASK for each in table(api, "from=0")["lookup_id"].to_pylist()]
    api.call("POST", f"{ORDERS}/lock?timeout=0")
    api.call("PUT", f"{ORDERS}/holds/me", {"from": arrivals[1], "to": arrivals[3]})
    end = mark(api)
    assert end == arrivals[0], "the locked message may come back"
    assert plan(api)["messages"] == 0
    assert plan(api, f"to={arrivals[-1] + 1}")["messages"] == 3
    assert plan(api, f"to={arrivals[-1] + 1}&hold=me")["messages"] == 5


def test_a_plan_begins_at_a_time(api: Served) -> None:
    times = [(1000 + number) * 1000 for number in range(20)]

    async def arrive() -> None:
        for number, time_ms in enumerate(times):
            api.manager.core.send(NAME, [Message(b"x", priority=number % 8)], time_ms / 1000)

    api.run(arrive())
    arrivals = [each & ranges.ARRIVAL_MASK for each in table(api, "from=0")["lookup_id"].to_pylist()]
    for place, since in enumerate(times):
        assert plan(api, f"since={since}")["from"] == arrivals[place]
        assert plan(api, f"since={since - 500}&limit=1")["from"] == arrivals[place]
    late = plan(api, f"since={times[-1] + 1}")
    assert (late["from"], late["messages"], late["parts"]) == (late["to"], 0, [])


def test_a_mark_counts_messages_of_every_kind(api: Served) -> None:
    api.send("a", "b")
    api.send("c", recoverable=True)
    api.call("POST", f"{ORDERS}/purge")
    found = api.call("GET", f"{ORDERS}/mark").json
    assert (found["added"], found["express"], found["messages"], found["settled"]) == (1, 2, 0, True)
    identity = found["queue"]
    api.call("DELETE", ORDERS)
    api.create()
    again = api.call("GET", f"{ORDERS}/mark").json
    assert (again["added"], again["express"]) == (0, 0)
    assert again["run"] == found["run"]
    assert again["queue"] != identity


def test_submissions_of_one_part_wait_for_each_other(api: Served) -> None:
    async def submit_twice() -> list[Any]:
        messages = [Message(f"{number}", recoverable=True) for number in range(4)]
        offsets = api.manager.offsets
        return await asyncio.gather(*(offsets.submit(NAME, "q", 0, 0, 0, messages) for _ in range(3)))

    found = api.run(submit_twice())
    assert sorted((each.sent, each.dropped) for each in found) == [(0, 4), (0, 4), (4, 0)]
    assert api.bodies() == ["0", "1", "2", "3"]
