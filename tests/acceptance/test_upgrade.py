"""This version opens stores that earlier versions wrote. Everything is there, and work continues where it stopped."""

from __future__ import annotations

import json
import signal
import tarfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from postroad.store import open_store
from scripts import store_fixture
from scripts.store_fixture import CARRIED, DELIVERIES, HOLDER, LEDGER, ORDERS, Served, batch_labels, describe, in_url

VERSIONS = sorted(path.stem for path in store_fixture.STORES.glob("*.json"))
# What a manager keeps besides its messages. A useful store for this test has all of these.
STATES = {
    *("manager", "counters", "sequence", "queue/", "count/", "hold/", "submission/", "sequence/DIRECT=TCP"),
    *("sequence/DIRECT=HTTP", "address/", "history/", "incoming/", "soap-history/", "soap-incoming/"),
}
Start = Callable[[str], Served]


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def directory(tmp_path: Path, version: str) -> Path:
    with tarfile.open(store_fixture.STORES / f"{version}.tar.xz") as tar:
        tar.extractall(tmp_path, filter="data")
    store_fixture.configure(tmp_path)
    return tmp_path


@pytest.fixture
def expected(version: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((store_fixture.STORES / f"{version}.json").read_text(encoding="utf-8"))
    return found


@pytest.fixture
def start(directory: Path) -> Iterator[Start]:
    with ExitStack() as stack:

        def start(name: str) -> Served:
            served = Served(directory, name)
            stack.callback(served.end, signal.SIGKILL)
            return served

        yield start


def assert_holds(found: dict[str, Any], expected: dict[str, Any]) -> None:
    """All of it, with every property. A later version may show more."""
    for name, queue in expected["queues"].items():
        assert {key: found["queues"][name][key] for key in queue} == queue
    for name, messages in [*expected["messages"].items(), ("held", expected["held"])]:
        there = found["held"] if name == "held" else found["messages"][name]
        assert [{key: each.get(key) for key in old} for each, old in zip(there, messages, strict=True)] == messages
    assert found["holds"] == expected["holds"]


def test_the_store_has_something_of_everything(directory: Path, expected: dict[str, Any]) -> None:
    store = open_store(directory / "alpha")
    states = store.state()
    store.close()
    assert {each for each in STATES if not any(name.startswith(each) for name in states)} == set()
    queues = expected["alpha"]["queues"].values()
    filled = {each["type"] for each in queues if each["messages"]}
    assert filled >= {"private", "public", "journal", "system", "outgoing"}
    for path in ("system$;journal", "system$;deadletter", "system$;deadxact"):
        assert any(each["path"] == path and each["messages"] for each in queues), path


@pytest.mark.parametrize("name", ["alpha", "beta"])
def test_every_queue_and_message_is_there_also_after_a_restart(
    start: Start, expected: dict[str, Any], name: str
) -> None:
    for _ in range(2):
        served = start(name)
        assert_holds(describe(served), expected[name])
        served.end()


def test_sends_and_receives_go_on(start: Start, expected: dict[str, Any]) -> None:
    alpha = start("alpha")
    known = {each["id"] for messages in expected["alpha"]["messages"].values() for each in messages}
    arrivals = [each["lookup_id"] & (1 << 56) - 1 for each in expected["alpha"]["messages"][_name(expected, ORDERS)]]
    take_clear_bodies(alpha)
    assert not known & set(alpha.send(ORDERS, store_fixture.message("new", priority=0)))
    assert alpha.messages(ORDERS)[-1]["lookup_id"] & (1 << 56) - 1 > max(arrivals)
    assert not known & set(alpha.send(LEDGER, store_fixture.message("new"), transactional=True))
    for queue in (ORDERS, LEDGER, r"private$\plain", r"alpha\billing"):
        waiting = alpha.labels(queue)
        taken = alpha.call("POST", f"queues/{in_url(queue)}/receive?count=1000&timeout=0")["messages"]
        assert [each["label"] for each in taken] == waiting
        assert alpha.labels(queue) == []
    alpha.end()
    alpha = start("alpha")
    assert alpha.labels(ORDERS) == []
    journal = alpha.labels(rf"{ORDERS};journal")
    assert {"taken 0", "taken 1", "new"} <= set(journal)
    alpha.end()


def test_a_hold_and_a_submission_go_on(start: Start, expected: dict[str, Any]) -> None:
    alpha = start("alpha")
    held = [each["label"] for each in expected["alpha"]["held"]]
    (hold,) = expected["alpha"]["holds"]
    path = f"queues/{in_url(ORDERS)}/holds/{HOLDER}/commit"
    assert alpha.call("POST", path, {"to": hold["to"]}) == {"removed": len(held)}
    assert sorted(alpha.labels(rf"{ORDERS};journal")) == sorted([*held, "taken 0", "taken 1"])
    before = alpha.labels(ORDERS)
    take_clear_bodies(alpha)
    assert store_fixture.submit(alpha, 1, 0, "epoch 1, row 0") == {"sent": 0, "dropped": 1}
    rows = ["epoch 2, row 0", "epoch 2, row 1", "epoch 2, row 2"]
    assert store_fixture.submit(alpha, 2, 0, *rows) == {"sent": 1, "dropped": 2}
    assert alpha.labels(ORDERS) == [*before, rows[2]]
    alpha.end()


def test_what_waits_to_leave_arrives_once_and_in_order(start: Start) -> None:
    """Alpha has not learned yet that beta has the first half, and sends it again."""
    alpha, beta = start("alpha"), start("beta")
    store_fixture.send_batch(alpha, "beta", "third")
    store_fixture.wait_until(lambda: store_fixture.arrived(beta, "third"), "the newest messages have arrived")
    for queue in DELIVERIES:
        labels = beta.labels(rf"private$\{queue}")
        for protocol in CARRIED:
            wanted = [
                label
                for batch in ("greeting", "first", "second", "third")
                for label in batch_labels(batch, protocol, queue)
            ]
            found = [each for each in labels if f" {protocol} " in each]
            if protocol == "HTTP" and not DELIVERIES[queue]:  # requests on several connections overtake each other
                found, wanted = sorted(found), sorted(wanted)
            assert found == wanted
    alpha.end()
    beta.end()


def take_clear_bodies(alpha: Served) -> None:
    """The store is older than encryption: its queue demands encrypted bodies, but nobody enforced that then."""
    alpha.call("PATCH", f"queues/{in_url(ORDERS)}", {"privacy": "optional"})


def _name(expected: dict[str, Any], path: str) -> str:
    """The format name of a queue of alpha."""
    return str(next(name for name, queue in expected["alpha"]["queues"].items() if queue["path"] == path))
