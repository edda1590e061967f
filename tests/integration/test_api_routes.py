"""Routes and routing tables through the API and the Python client."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import postroad
from postroad.directory.watch import DirectoryWatch
from postroad.errors import ManagerNotFound, NoRoute
from postroad.reports.enterprise import Route, Table, TableRow
from postroad.reports.plain import from_json
from tests.enterprises import client, directory, link, server, site
from tests.faces import FACES, opened
from tests.served import API, Served, served

ENTERPRISE = directory(
    site("london", "lon-gate"),
    site("paris", "par-gate"),
    site("rome"),
    link("london", "paris", 7),
    client("alpha", "london"),
    server("lon-gate", "london"),
    server("par-gate", "paris"),
    client("beta", "paris"),
    client("gamma", "rome"),
)
ALPHA_TO_BETA = {
    "from": "alpha",
    "to": "beta",
    "next_hops": ["lon-gate"],
    "fallback": [],
    "path": ["alpha", "lon-gate", "par-gate", "beta"],
    "cost": 7,
    "why": "beta is in another site, and this is the first routing server of this site ([MS-MQBR] 3.1.5.1, 3.1.5.5)",
}
TABLE = {
    "manager": "lon-gate",
    "is_site_gate": True,
    "rows": [{"site": "paris", "next_site": "paris", "gates": ["par-gate"], "cost": 7}],
}


@pytest.fixture
def api() -> Iterator[Served]:
    """A queue manager called alpha, in that enterprise."""
    with served() as running:
        running.manager.router.initialize(ENTERPRISE, 0.0)
        yield running


def test_a_route(api: Served) -> None:
    assert api.call("GET", f"{API}/route?to=beta").json == ALPHA_TO_BETA
    assert api.call("GET", f"{API}/route?to=BETA&from=Alpha").json == ALPHA_TO_BETA
    back = api.call("GET", f"{API}/route?from=beta&to=alpha").json
    assert (back["next_hops"], back["path"]) == (["par-gate"], ["beta", "par-gate", "lon-gate", "alpha"])


def test_a_route_if_a_link_were_closed(api: Served) -> None:
    closed = api.call("GET", f"{API}/route?to=beta&without=london-paris")
    assert (closed.status, closed.json["error"]) == (404, "NoRoute")
    assert api.call("GET", f"{API}/route?to=beta").json == ALPHA_TO_BETA
    unknown = api.call("GET", f"{API}/route?to=beta&without=london-oslo")
    assert (unknown.status, unknown.json["detail"]) == (400, "'london-oslo': there is no site oslo")


def test_the_directory(api: Served) -> None:
    found = api.call("GET", f"{API}/directory").json
    assert found["manager"] == "alpha"
    assert [site["name"] for site in found["sites"]] == ["london", "paris", "rome"]
    assert [(link["sites"], link["cost"]) for link in found["links"]] == [(["london", "paris"], 7)]
    managers = {each["name"]: each for each in found["managers"]}
    assert managers["lon-gate"]["sites"] == ["london"]
    assert managers["lon-gate"]["routing_server"]


def test_a_table(api: Served) -> None:
    assert api.call("GET", f"{API}/route/table?from=lon-gate").json == TABLE
    assert api.call("GET", f"{API}/route/table").json == {"manager": "alpha", "is_site_gate": False, "rows": []}


@pytest.mark.parametrize(
    ("query", "status", "detail", "error"),
    [
        ("to=betta", 404, "there is no queue manager betta in the directory; did you mean beta?", "ManagerNotFound"),
        ("to=beta&from=omega-9", 404, "there is no queue manager omega-9 in the directory", "ManagerNotFound"),
        ("from=lon-gate&to=gamma", 404, "lon-gate has no route to gamma: no routing link leads to its site", "NoRoute"),
        ("to=gamma", 404, "the route alpha -> lon-gate ends there: lon-gate has no route to gamma", "NoRoute"),
        ("", 400, "to: is missing; set it to the name of the destination queue manager", "InvalidArgument"),
        ("to=beta&by=road", 400, "by: this call has no such parameter; known are to, from", "InvalidArgument"),
    ],
)
def test_what_is_refused(api: Served, query: str, status: int, detail: str, error: str) -> None:
    reply = api.call("GET", f"{API}/route?{query}")
    assert (reply.status, reply.json["error"]) == (status, error)
    assert reply.json["detail"].startswith(detail)


def test_a_manager_without_a_directory_says_so() -> None:
    with served() as running:
        reply = running.call("GET", f"{API}/route?to=beta")
        assert reply.status == 404
        assert "directory.file" in reply.json["detail"]


def test_the_client_asks_the_same(api: Served) -> None:
    with postroad.connect(api.server.url) as manager:
        assert manager.route("beta") == Route(
            source="alpha",
            destination="beta",
            next_hops=("lon-gate",),
            fallback=(),
            path=("alpha", "lon-gate", "par-gate", "beta"),
            cost=7,
            why=str(ALPHA_TO_BETA["why"]),
        )
        assert manager.route("alpha", "beta").next_hops == ("par-gate",)
        row = TableRow(site="paris", next_site="paris", gates=("par-gate",), cost=7)
        assert manager.route_table("lon-gate") == Table(manager="lon-gate", is_site_gate=True, rows=(row,))
        with pytest.raises(ManagerNotFound, match="did you mean beta"):
            manager.route("betta")
        with pytest.raises(NoRoute, match="the route alpha -> lon-gate ends there"):
            manager.route("gamma")


@pytest.mark.parametrize("face", FACES)
def test_without_a_directory_there_is_no_way_on_any_face(face: str) -> None:
    with opened(face) as manager:
        with pytest.raises(ManagerNotFound):
            manager.route("beta")
        with pytest.raises(ManagerNotFound):
            manager.route_table()


@pytest.mark.parametrize("answer", [{}, {"from": "a"}, [], None, {"rows": [{}], "manager": "a"}])
def test_an_answer_of_something_else_is_not_taken_for_a_route(answer: Any) -> None:
    for kind in (Route, Table):
        with pytest.raises((LookupError, TypeError)):
            from_json(kind, answer)


def test_a_directory_file_that_went_bad_needs_attention(api: Served, tmp_path: Path) -> None:
    file = tmp_path / "enterprise.toml"
    file.write_text("", encoding="utf-8")
    watch = api.manager.watch = DirectoryWatch(file, 0.0)
    assert api.call("GET", f"{API}/status").json["attention"] == []
    file.write_text("[[site]]\n", encoding="utf-8")
    watch.reload(1.0)
    status = api.call("GET", f"{API}/status").json
    assert (status["manager"]["directory_failures"], status["manager"]["directory_error"]) == (1, watch.last_error)
    fault = f"{file}: site[1].name: is missing"
    assert status["attention"] == [f"the directory cannot be read, and an earlier copy is used: {fault}"]
    metrics = api.call("GET", "/metrics").body.decode().splitlines()
    assert "postroad_directory_up 0.0" in metrics
    assert "postroad_directory_failures_total 1.0" in metrics
