"""`postroad route`, from a directory's file, and from a running queue manager that follows changes of its file."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.commands import PATIENCE_S, Outcome, postroad, serving

MANAGERS = """
[[manager]]
name = "lon-gate"
id = "00000001-0000-4000-8000-000000000000"
sites = ["london"]
routing_server = true
[[manager]]
name = "par-gate"
id = "00000002-0000-4000-8000-000000000000"
sites = ["paris"]
routing_server = true
[[manager]]
name = "alpha"
id = "00000003-0000-4000-8000-000000000000"
sites = ["london"]
[[manager]]
name = "beta"
id = "00000004-0000-4000-8000-000000000000"
sites = ["paris"]
"""
SITES = """
[[site]]
name = "london"
gates = ["lon-gate"]
[[site]]
name = "paris"
gates = ["par-gate"]
"""
LINK = """
[[link]]
sites = ["london", "paris"]
cost = 3
"""
JOINED = SITES + LINK + MANAGERS
BROKEN = SITES + MANAGERS


def write(directory: Path, text: str, name: str = "enterprise.toml") -> Path:
    file = directory / name
    file.write_text(text, encoding="utf-8")
    return file


@pytest.fixture
def file(tmp_path: Path) -> str:
    return str(write(tmp_path, JOINED))


def refused(outcome: Outcome, code: int) -> str:
    """The one line on stderr."""
    assert (outcome.code, outcome.output) == (code, b"")
    assert outcome.errors.count("\n") == 1
    return outcome.errors.removeprefix("postroad: ").strip()


def test_a_route_from_a_file(file: str) -> None:
    run = postroad("route", "beta", "--from", "alpha", "--enterprise", file, "--json")
    assert run.code == 0
    (found,) = run.objects
    assert (found["next_hops"], found["cost"]) == (["lon-gate"], 3)
    assert found["path"] == ["alpha", "lon-gate", "par-gate", "beta"]
    assert "[MS-MQBR] 3.1.5.1" in found["why"]


def test_a_route_for_people(file: str) -> None:
    assert postroad("route", "par-gate", "--from", "lon-gate", "--enterprise", file).lines == [
        "lon-gate to par-gate, cost 3",
        "next hop  par-gate",
        "route     lon-gate -> par-gate",
        "why       the cheapest route to the site paris costs 3 and goes directly to the gates of paris "
        "([MS-MQBR] 3.1.5.3)",
    ]
    near = '[[manager]]\nname = "near"\nid = "00000005-0000-4000-8000-000000000000"\nsites = ["london"]\n'
    Path(file).write_text(JOINED + near, encoding="utf-8")
    lines = postroad("route", "near", "--from", "alpha", "--enterprise", file).lines
    assert lines[2] == "fallback  lon-gate, if the direct connection fails"


def test_a_table_from_a_file(file: str) -> None:
    run = postroad("route", "table", "--from", "lon-gate", "--enterprise", file, "--json")
    assert run.objects == [{"site": "paris", "next_site": "paris", "gates": ["par-gate"], "cost": 3}]
    header, row = postroad("route", "table", "--from", "lon-gate", "--enterprise", file).lines
    assert header.split("  ")[0] == "site"
    assert row.split() == ["paris", "paris", "par-gate", "3"]
    assert postroad("route", "table", "--from", "alpha", "--enterprise", file).lines == [
        "alpha is not a site gate, so its routing table is empty ([MS-MQBR] 3.1.3.1)"
    ]


def test_what_fails_is_one_line(tmp_path: Path, file: str) -> None:
    unknown = postroad("route", "betta", "--from", "alpha", "--enterprise", file)
    assert refused(unknown, 1) == "there is no queue manager betta in the directory; did you mean beta?"
    broken = str(write(tmp_path, BROKEN, "broken.toml"))
    apart = postroad("route", "beta", "--from", "alpha", "--enterprise", broken, "--json")
    assert refused(apart, 1).startswith("the route alpha -> lon-gate ends there: lon-gate has no route to beta")
    bad = str(write(tmp_path, "[[site]]\n", "bad.toml"))
    assert refused(postroad("route", "beta", "--from", "alpha", "--enterprise", bad), 2) == (
        f"{bad}: site[1].name: is missing"
    )
    assert "--from is missing" in refused(postroad("route", "beta", "--enterprise", file), 2)


def test_a_running_manager_answers_and_follows_its_file(tmp_path: Path) -> None:
    enterprise = write(tmp_path, JOINED)
    config = write(
        tmp_path,
        '[manager]\nname = "alpha"\n[listen]\napi = 0\nbinary = 0\nping = 0\nhttp = false\nrpc = false\n'
        '[directory]\nfile = "enterprise.toml"\npoll_s = 0.05\n',
        "alpha.toml",
    )
    with serving(config) as server:
        (found,) = postroad("route", "beta", "--json", api=server.api).objects
        assert (found["from"], found["path"]) == ("alpha", ["alpha", "lon-gate", "par-gate", "beta"])
        assert postroad("route", "table", "--from", "par-gate", "--json", api=server.api).objects == [
            {"site": "london", "next_site": "london", "gates": ["lon-gate"], "cost": 3}
        ]
        refused(postroad("route", "nobody", api=server.api), 1)
        enterprise.write_text("nonsense", encoding="utf-8")
        until(lambda: "the directory cannot be read" in server.log)
        assert postroad("route", "beta", api=server.api).code == 0
        enterprise.write_text(BROKEN, encoding="utf-8")
        until(lambda: postroad("route", "beta", api=server.api).code == 1)
        assert server.end()[0] == 0


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)
