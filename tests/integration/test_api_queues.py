"""The HTTP API's calls about queues and the manager, over a real socket."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from postroad.reports.info import ManagerInfo, QueueInfo
from tests.served import API, ORDERS, Served, served


@pytest.fixture
def api() -> Iterator[Served]:
    with served() as running:
        yield running


def test_a_queue_is_made_with_every_property(api: Served) -> None:
    properties = {
        "transactional": True,
        "journal": True,
        "quota_kb": 10,
        "journal_quota_kb": 5,
        "authenticate": True,
        "privacy": "body",
        "label": "orders",
        "abort_limit": 3,
    }
    made = api.call("POST", f"{API}/queues", {"path": "private$\\orders", **properties})
    assert made.status == 201
    assert made.json == made.json | properties | {"path": "private$\\orders", "type": "private", "messages": 0}
    assert set(made.json) == set(QueueInfo.__dataclass_fields__)
    assert api.call("GET", ORDERS).json == made.json


def test_a_queue_is_changed_and_deleted(api: Served) -> None:
    api.create()
    changes = {"label": "new", "journal": True, "quota_kb": None, "privacy": "none"}
    changed = api.call("PATCH", ORDERS, changes)
    assert changed.status == 200
    assert api.call("GET", ORDERS).json == changed.json
    assert changed.json == changed.json | changes
    assert api.call("DELETE", ORDERS).status == 204
    assert api.call("GET", ORDERS).status == 404


@pytest.mark.parametrize(
    "written",
    ["private$/orders", "private$%5Corders", "alpha/private$/orders", ".%5Cprivate$%5Corders", "private%24%2Forders"],
)
def test_a_queue_has_many_names(api: Served, written: str) -> None:
    api.create()
    assert api.call("GET", f"{API}/queues/{written}").json["path"] == "private$\\orders"


def test_a_queue_answers_to_its_format_name(api: Served) -> None:
    api.create()
    name = api.call("GET", ORDERS).json["format_name"].replace("\\", "%5C")
    assert api.call("GET", f"{API}/queues/{name}").json["path"] == "private$\\orders"


def test_the_list_has_every_queue_that_can_be_named(api: Served) -> None:
    api.create()
    listed = api.call("GET", f"{API}/queues").json["queues"]
    paths = [each["path"] for each in listed]
    assert {"private$\\orders", "private$\\orders;journal", "system$;deadletter"} <= set(paths)
    assert len(paths) == len(set(paths))
    for each in listed:
        name = each["format_name"].replace("\\", "%5C")
        assert api.call("GET", f"{API}/queues/{name}").json["path"].lower() == each["path"].lower()


def test_the_manager_tells_of_itself(api: Served) -> None:
    told = api.call("GET", f"{API}/manager").json
    assert set(told) == set(ManagerInfo.__dataclass_fields__)
    assert (told["name"], told["id"]) == ("alpha", str(api.manager.identifier))


def test_the_status_says_what_needs_attention(api: Served) -> None:
    api.create(quota_kb=1)
    assert api.call("GET", f"{API}/status").json["attention"] == []
    api.send("x" * 800)
    told = api.call("GET", f"{API}/status").json
    assert [each for each in told["attention"] if "private$\\orders is nearly full" in each]
    assert told["manager"]["messages"] == 1
    assert len(told["queues"]) == len(api.call("GET", f"{API}/queues").json["queues"])


def test_a_purge_says_how_many_went(api: Served) -> None:
    api.create()
    api.send("a", "b", "c")
    assert api.call("POST", f"{ORDERS}/purge").json == {"purged": 3, "locked": 0}
    assert api.bodies() == []


def test_an_outgoing_queue_pauses_and_resumes(api: Served) -> None:
    away = f"{API}/queues/DIRECT=HTTP:%2F%2Fbeta%2Fmsmq%2Fprivate$%2Fmessages"
    assert api.call("POST", f"{away}/messages", {"body": "x"}).status == 201
    assert api.call("POST", f"{away}/pause").json["state"] == "ONHOLD"
    assert api.call("POST", f"{away}/resume").json["state"] == "INACTIVE"
    assert api.call("GET", away).json["type"] == "outgoing"
