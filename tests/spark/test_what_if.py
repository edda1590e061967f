"""`postroad pipeline what-if`: whole routes and links before and after a change, and a day's traffic in the simulator.
Spark is not started: a local lake is read without it."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given

from postroad.cli import main
from postroad.cli.pipeline_routes import parse_outage
from postroad.directory.snapshot import Directory
from postroad.directory.what_if import Change, changed
from postroad.errors import InvalidArgument
from postroad.spark.pipeline.routes import CHUNK, Demand, Load, Route, compare
from tests.commands import Outcome
from tests.enterprises import Graph, directory, gated, graphs, link, server, site
from tests.spark.test_network import by_tables

Command = Callable[..., Outcome]
SQUARE = gated("a b c d", [("a", "b", 1), ("b", "c", 1), ("c", "d", 1), ("d", "a", 5)])


def demand(**loads: int) -> Demand:
    """a_c=10 stands for ten messages of 100 bytes from the gate of `a` to that of `c`."""
    pairs = {name: name.split("_") for name in loads}
    return Demand({(f"gate-{pairs[n][0]}", f"gate-{pairs[n][1]}"): Load(m, 100 * m) for n, m in loads.items()})


def test_a_removed_link_moves_its_traffic() -> None:
    after = changed(SQUARE, [Change(("b", "c"))])
    found = compare(SQUARE, after, demand(a_c=10, c_a=1, a_b=5, a_d=2))
    assert found.pairs == 4
    assert [(each.source, each.before, each.after) for each in found.changed] == [
        ("gate-a", Route(("a", "b", "c"), 2), Route(("a", "d", "c"), 6)),
        ("gate-a", Route(("a", "b", "c", "d"), 3), Route(("a", "d"), 5)),
        ("gate-c", Route(("c", "b", "a"), 2), Route(("c", "d", "a"), 6)),
    ]
    assert found.links["b", "c"] == (Load(13, 1300), Load())
    assert found.links["a", "d"] == (Load(), Load(13, 1300))
    assert found.links["a", "b"] == (Load(18, 1800), Load(5, 500))
    assert found.count("rerouted") == (3, Load(13, 1300))
    assert found.count("dearer") == (3, Load(13, 1300))
    assert found.count("shorter") == (1, Load(2, 200))
    assert found.count("cut_off") == (0, Load())


def test_pairs_lose_and_get_a_route() -> None:
    island = gated("a b c d", [("a", "b", 1), ("b", "c", 1)])
    gone = compare(SQUARE, island, demand(a_d=7, a_c=1))
    assert [(each.destination, each.after) for each in gone.changed] == [("gate-d", None)]
    assert gone.count("cut_off") == (1, Load(7, 700))
    back = compare(island, SQUARE, demand(a_d=7, a_c=1))
    assert back.count("joined") == (1, Load(7, 700))


def test_a_manager_that_moves_to_another_site_has_another_route() -> None:
    def made(home: str) -> Directory:
        sites = [site(name, f"gate-{name}") for name in "ab"]
        return directory(*sites, link("a", "b"), *(server(f"gate-{name}", name) for name in "ab"), server("till", home))

    before, after = made("a"), made("b")
    found = compare(before, after, Demand({("till", "GATE-A"): Load(3, 0), ("till", "mars"): Load(2, 0)}))
    assert [(each.before, each.after) for each in found.changed] == [(Route(("a",), 0), Route(("b", "a"), 1))]
    assert found.unknown == Load(2, 0)


@given(graphs())
def test_whole_routes_are_those_of_the_gates_tables(graph: Graph) -> None:
    """Every step of a route is the next hop in the table there, and the costs agree."""
    enterprise = graph.directory()
    tables = by_tables(enterprise)
    empty = directory(*enterprise.sites, *enterprise.managers)
    found = compare(enterprise, empty, Demand.of_all_sites(enterprise))
    routes = {(each.source, each.destination): each.before for each in found.changed}
    assert {pair for pair in tables if not pair[0].startswith("gate ")} == routes.keys()
    for (origin, destination), route in routes.items():
        assert route is not None
        assert (route.sites[0], route.sites[-1]) == (origin, destination)
        assert route.cost == tables[origin, destination][1]
        assert all(tables[here, destination][0] == there for here, there in pairwise(route.sites))


def test_more_destinations_than_one_chunk() -> None:
    names = [f"s{number:03}" for number in range(2 * CHUNK + 3)]
    line = gated(" ".join(names), [(one, other, 1) for one, other in pairwise(names)])
    cut = changed(line, [Change((names[CHUNK], names[CHUNK + 1]))])
    found = compare(line, cut, Demand.of_all_sites(line))
    left = CHUNK + 1
    assert found.count("cut_off")[0] == 2 * left * (len(names) - left)
    assert found.links[names[0], names[1]] == (Load(2 * (len(names) - 1)), Load(2 * (left - 1)))


@pytest.mark.parametrize("text", ["rome", "rome=25:00+10", "rome=12:60+10", "=12:00+10", "rome=12:00"])
def test_an_outage_has_a_manager_a_time_and_minutes(text: str) -> None:
    assert parse_outage("rome=14:30+45") == parse_outage("rome=14:30+45m") == ("rome", 870.0, 45.0)
    with pytest.raises(InvalidArgument, match=r"^outage: must have the form MANAGER=HH:MM"):
        parse_outage(text)


# The command

BEFORE = """
[[site]]
name = "north"
gates = ["oslo"]
[[site]]
name = "middle"
gates = ["bonn"]
[[site]]
name = "south"
gates = ["rome"]
[[link]]
sites = ["north", "middle"]
cost = 1
[[link]]
sites = ["middle", "south"]
cost = 1
[[manager]]
name = "oslo"
id = "11111111-1111-4111-8111-111111111111"
sites = ["north"]
routing_server = true
[[manager]]
name = "bonn"
id = "22222222-2222-4222-8222-222222222222"
sites = ["middle"]
routing_server = true
[[manager]]
name = "rome"
id = "33333333-3333-4333-8333-333333333333"
sites = ["south"]
routing_server = true
"""
LINK = '\n[[link]]\nsites = ["north", "south"]\ncost = 1\n'
KINDS = {"minute": "timestamp", "source": "string", "destination": "string", "queue": "string", "delivery": "string"}
KINDS |= {"messages": "long", "bytes": "long"}
FIELDS = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in KINDS.items()]
SCHEMA = {"type": "struct", "fields": FIELDS}


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    before, after = tmp_path / "before.toml", tmp_path / "after.toml"
    before.write_text(BEFORE)
    after.write_text(BEFORE + LINK)
    return str(before), str(after)


@pytest.fixture
def lake(tmp_path: Path) -> str:
    """Two days of traffic, as a run writes it: 240 messages in two minutes, and a few the day before."""
    root = tmp_path / "lake"
    part = root / "gold" / "traffic" / "part=00000000-00000001"
    for day, minutes, messages in (("2026-05-16", (1,), 5), ("2026-05-17", (600, 601), 120)):
        rows = [
            {
                "minute": datetime.fromisoformat(f"{day}T{minute // 60:02}:{minute % 60:02}:00"),
                "source": "oslo",
                "destination": "rome",
                "queue": "rome: orders",
                "delivery": "recoverable",
                "messages": messages,
                "bytes": 500 * messages,
            }
            for minute in minutes
        ]
        (part / f"day={day}").mkdir(parents=True)
        pq.write_table(pa.Table.from_pylist(rows), part / f"day={day}" / "rows.parquet")
    (part / "_commit.json").write_text(json.dumps({"batch": 1, "facts": {}, "schema": SCHEMA, "dropped": {}}))
    (root / "format").write_text("parquet")
    return str(root)


@pytest.fixture
def what_if(capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs the command in this process. Spark and Java do not start."""

    def call(*arguments: str) -> Outcome:
        capsys.readouterr()
        code = main(["pipeline", "what-if", *arguments])
        printed = capsys.readouterr()
        return Outcome(code, printed.out.encode(), printed.err)

    return call


def objects(outcome: Outcome) -> list[dict[str, Any]]:
    assert outcome.code == 0, outcome.errors
    return [json.loads(line) for line in outcome.text.splitlines()]


def test_the_traffic_of_a_lake_over_another_enterprise(files: tuple[str, str], lake: str, what_if: Command) -> None:
    found = objects(what_if(*files, "--lake", lake, "--json"))
    assert (found[0]["pairs"], found[0]["changed"]) == (1, 1)
    assert found[0]["shorter"] == {"pairs": 1, "messages": 245, "bytes": 122_500}
    assert found[1]["before"] == {"sites": ["north", "middle", "south"], "hops": 2, "cost": 2}
    assert found[1]["after"] == {"sites": ["north", "south"], "hops": 1, "cost": 1}
    links = {" ".join(each["sites"]): each for each in found[2:]}
    assert links["north south"]["messages_after"] == 245
    assert links["middle north"] == {
        "kind": "link",
        "sites": ["middle", "north"],
        "messages_before": 245,
        "bytes_before": 122_500,
        "messages_after": 0,
        "bytes_after": 0,
    }
    printed = what_if(files[0], "--down", "middle-south", "--lake", lake, "--day", "2026-05-16").text
    assert "1 have no route any more: 5 messages" in printed
    assert "north > middle > south" in printed


def test_a_day_in_the_simulator(files: tuple[str, str], lake: str, what_if: Command) -> None:
    found = objects(what_if(files[0], "--lake", lake, "--capacity", "--read-rate", "1", "--json"))
    assert (found[0]["day"], found[0]["messages"], found[0]["arrived"]) == ("2026-05-17", 240, 240)
    queue = next(each for each in found if each.get("queue") == "rome: orders")
    assert 80 <= queue["highest"] <= 160
    assert str(queue["highest_at"]).startswith("10:0")
    assert queue["depths"]
    printed = what_if(*files, "--lake", lake, "--capacity", "--outage", "rome=10:00+1").text
    assert "2026-05-17: 240 messages; 240 simulated" in printed
    assert "rome: orders" in printed


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ([], "say what changes: a file CHANGED, --down, --cost, or --capacity"),
        (["--capacity"], "--lake: is needed for --capacity and --day"),
        (["--down", "north-middle", "--outage", "rome=10:00+1"], "--outage: needs --capacity"),
        (["--down", "north-south"], "no routing link joins north and south"),
    ],
)
def test_wrong_arguments(files: tuple[str, str], options: list[str], sentence: str, what_if: Command) -> None:
    outcome = what_if(files[0], *options)
    assert outcome.code != 0
    assert sentence in outcome.errors


def test_a_day_without_traffic_is_named(files: tuple[str, str], lake: str, what_if: Command) -> None:
    outcome = what_if(*files, "--lake", lake, "--day", "2026-05-18")
    assert outcome.code == 1
    assert "has no traffic of 2026-05-18; it has traffic from 2026-05-16 to 2026-05-17" in outcome.errors
