"""Metrics, health and the pages for people."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

import postroad
from postroad.api.app import OPERATIONS
from tests.served import API, ORDERS, FailingStore, Served, served

SAMPLE = re.compile(r"(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(?P<labels>.*)\})? (?P<value>\+Inf|-?[0-9.e+-]+)")
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(?:,|$)')
PAGE = Path(__file__).parent / "metrics_page.txt"
Samples = dict[tuple[str, str], float]


@pytest.fixture
def api() -> Iterator[Served]:
    with served() as running:
        running.create()
        yield running


def scrape(api: Served) -> Samples:
    """By name and queue, direction of sessions, access of readers, or limit. Fails on any line that Prometheus could
    not read, and on a sample without an explanation."""
    answer = api.call("GET", "/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    text = answer.body.decode()
    assert text.endswith("\n")
    helped: set[str] = set()
    typed: dict[str, str] = {}
    samples: Samples = {}
    for line in text.splitlines():
        if line.startswith("# HELP "):
            helped.add(line.split()[2])
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            assert kind in ("gauge", "counter")
            assert name.endswith("_total") == (kind == "counter")
            typed[name] = kind
        else:
            match = SAMPLE.fullmatch(line)
            assert match, line
            labels = match["labels"] or ""
            assert LABEL.sub("", labels) == ""
            found: dict[str, str] = dict(LABEL.findall(labels))
            assert match["name"] in helped
            assert match["name"] in typed
            assert match["name"].startswith("postroad_")
            label = next((found[each] for each in ("queue", "direction", "access", "limit") if each in found), "")
            key = (match["name"], label.replace("\\\\", "\\"))
            assert key not in samples
            samples[key] = float(match["value"])
    return samples


def of_orders(samples: Samples, name: str) -> float:
    return samples[f"postroad_queue_{name}", "private$\\orders"]


def test_a_client_that_works_on_a_message_is_a_reader(api: Served) -> None:
    def readers() -> float:
        queues = api.call("GET", f"{API}/status").json["queues"]
        (queue,) = (each for each in queues if each["path"] == "private$\\orders")
        assert of_orders(scrape(api), "readers") == queue["readers"]
        return float(queue["readers"])

    api.send("one")
    with postroad.connect(f"http://{api.server.host}:{api.server.port}") as manager:
        with manager.queue("private$\\orders").consume() as messages:
            next(messages)
            assert readers() == 1
        assert readers() == 0


def test_what_came_and_went_is_counted_for_each_queue(api: Served) -> None:
    def counts() -> tuple[float, float]:
        samples = scrape(api)
        return of_orders(samples, "messages_in_total"), of_orders(samples, "messages_out_total")

    api.send("a", "b", "c")
    api.send("d", recoverable=True)
    assert counts() == (4, 0)
    assert api.call("POST", f"{ORDERS}/receive?timeout=0&count=3").status == 200
    assert counts() == (4, 3)
    assert api.call("POST", f"{ORDERS}/purge").status == 200
    assert counts() == (4, 4)
    shown = api.call("GET", ORDERS).json
    assert (shown["messages_in"], shown["messages_out"], shown["messages"]) == (4, 4, 0)


def test_only_so_many_queues_have_series_of_their_own(api: Served) -> None:
    for number in range(110):
        api.create(f"private$/many{number}")
    api.send("kept")
    assert api.call("POST", f"{API}/queues/private$/many109/messages", {"body": "text"}).status == 201
    page = api.call("GET", "/metrics").body.decode()
    families = {each.name: each for each in text_string_to_metric_families(page)}
    messages = {each.labels["queue"]: each.value for each in families["postroad_queue_messages"].samples}
    assert len(messages) == 101
    assert messages[r"private$\orders"] == 1
    assert messages["(others)"] == 1
    assert sum(messages.values()) == families["postroad_messages"].samples[0].value
    arrived = {each.labels["queue"]: each.value for each in families["postroad_queue_messages_in"].samples}
    assert (arrived["(others)"], len(arrived)) == (1, 101)


def test_each_queue_is_measured(api: Served) -> None:
    api.create("private$/small", quota_kb=2)
    api.send("a", "b")
    api.call("POST", f"{ORDERS}/lock?timeout=0")
    samples = scrape(api)
    shown = api.call("GET", ORDERS).json
    assert of_orders(samples, "messages") == 2
    assert of_orders(samples, "bytes") == shown["bytes"]
    assert of_orders(samples, "locked_messages") == 1
    assert of_orders(samples, "waiting_reads") == 0
    assert of_orders(samples, "oldest_message_age_seconds") >= 0
    assert of_orders(samples, "quota_bytes") == float("inf")
    assert samples["postroad_queue_quota_bytes", "private$\\small"] == 2048
    assert samples["postroad_messages", ""] == 2


def test_a_queue_stays_in_the_metrics_while_it_exists(api: Served) -> None:
    def queues() -> set[str]:
        return {queue for name, queue in scrape(api) if name == "postroad_queue_messages"}

    assert "private$\\orders" in queues()  # never used
    api.send("a")
    api.call("POST", f"{ORDERS}/receive?timeout=0")
    assert "private$\\orders" in queues()  # empty again
    assert queues() == {each["path"] for each in api.call("GET", f"{API}/queues").json["queues"]}
    api.call("DELETE", ORDERS)
    assert "private$\\orders" not in queues()


def test_what_happened_is_counted(api: Served) -> None:
    names = ("added", "received", "expired", "purged", "dead_lettered")

    def counted() -> list[float]:
        samples = scrape(api)
        return [samples[f"postroad_messages_{name}_total", ""] for name in names]

    assert counted() == [0, 0, 0, 0, 0]
    api.send("a", "b", "c")
    api.call("POST", f"{ORDERS}/receive?timeout=0")
    assert counted() == [3, 1, 0, 0, 0]
    api.call("POST", f"{ORDERS}/purge")
    assert counted() == [3, 1, 0, 2, 0]
    api.send("late", time_to_be_received=0, dead_letter=True)
    assert api.bodies() == []  # a look takes out what is over
    assert counted() == [5, 1, 1, 2, 1]  # itself, and its copy in the dead-letter queue


def test_the_process_lives_and_the_store_is_ready() -> None:
    store = FailingStore()
    with served(store) as api:
        api.create()
        assert api.call("GET", "/healthz").status == 200
        assert api.call("GET", "/readyz").status == 200
        store.full = True
        api.call("POST", f"{ORDERS}/messages", {"recoverable": True})
        told = api.call("GET", "/readyz")
        assert (told.status, told.body) == (503, b"the disk is full\n")
        assert scrape(api)["postroad_store_up", ""] == 0
        assert api.call("GET", f"{API}/status").json["attention"] == ["the store cannot be written: the disk is full"]
        assert api.call("GET", "/healthz").status == 200
        store.full = False
        assert api.call("GET", "/readyz").status == 200  # asking is enough: nobody has to send first
        assert scrape(api)["postroad_store_up", ""] == 1


def test_the_front_page_leads_to_pages_that_are_there(api: Served) -> None:
    page = api.call("GET", "/")
    assert page.headers["content-type"].startswith("text/html")
    links = re.findall(r'href="([^"]+)"', page.body.decode())
    assert {"/metrics", "/docs", f"{API}/openapi.json"} <= set(links)
    for link in links:
        assert api.call("GET", link).status == 200


def test_the_reference_page_has_every_call(api: Served) -> None:
    page = api.call("GET", "/docs").body.decode()
    for operation in OPERATIONS:
        assert f"{API}{operation.path}" in page


def test_dashboards_find_the_metrics_that_they_know(api: Served) -> None:
    """The page of an earlier version, with the same queues: the same families, samples and labels."""
    api.call("POST", f"{API}/queues/DIRECT=OS:beta%5Cq/messages", {"body": "away"})

    def families(text: str) -> list[tuple[str, str, str, list[tuple[str, list[str]]]]]:
        return [
            (each.name, each.type, each.documentation, [(one.name, _labels(one.labels)) for one in each.samples])
            for each in text_string_to_metric_families(text)
        ]

    known = PAGE.read_text(encoding="utf-8")
    assert families(api.call("GET", "/metrics").body.decode()) == families(known)


def _labels(labels: Mapping[str, str]) -> list[str]:
    return [name if name in ("id", "version") else f"{name}={value}" for name, value in sorted(labels.items())]
