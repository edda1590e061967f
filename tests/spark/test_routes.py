"""Routes of whole enterprises on Spark: they equal those of `postroad.routing`, and change with the links."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import TYPE_CHECKING

import pytest

from postroad.directory.what_if import Change, changed, parse_cost, parse_down
from postroad.errors import InvalidArgument
from postroad.spark.pipeline.routes import CHUNK, first_links, link_loads, moved, routes, unserved
from postroad.spark.pipeline.traffic import pair_links
from tests.enterprises import Graph, directory, gated, link, server, site, table_of
from tests.spark.test_network import by_tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from postroad.directory.snapshot import Directory

SQUARE = gated("a b c d", [("a", "b", 1), ("b", "c", 1), ("c", "d", 1), ("d", "a", 5)])


def chance_made(sites: int, links: int, seed: int) -> Directory:
    """A random enterprise: few different costs, so that many routes cost the same, parallel links, and unreachable
    sites."""
    chance = Random(seed)
    ends = [(chance.randrange(sites), chance.randrange(sites)) for _ in range(links)]
    made = tuple((one, other, chance.randint(1, 4)) for one, other in ends if one != other)
    return Graph(sites, made).directory()


def test_every_pair_of_sites_has_the_route_of_the_gates_own_table(spark: SparkSession) -> None:
    enterprise = chance_made(2 * CHUNK + 7, 300, 1)
    found = {(row[0], row[1]): (row[2], row[3], row[4]) for row in routes(spark, enterprise).collect()}
    assert found == by_tables(enterprise)
    assert len(found) > 1000


def test_a_change_moves_what_differs_between_the_tables(spark: SparkSession) -> None:
    enterprise = chance_made(40, 60, 2)
    one, other = enterprise.link_sites(enterprise.links[0])
    after = changed(enterprise, [Change((one.name, other.name), factor=3)])
    rows = moved(spark, enterprise, after).collect()
    before_tables, after_tables = by_tables(enterprise), by_tables(after)
    none = (None, None, None)
    expected = {
        (*pair, *before_tables.get(pair, none)[:2], *after_tables.get(pair, none)[:2])
        for pair in before_tables.keys() | after_tables.keys()
        if before_tables.get(pair, none)[:2] != after_tables.get(pair, none)[:2]
    }
    assert {tuple(row) for row in rows} == expected
    assert expected


def test_links_carry_their_routes_and_unserved_demand_is_reported(spark: SparkSession) -> None:
    demand = spark.createDataFrame(
        [("a", "c", 10, 1000), ("c", "a", 1, 50), ("a", "d", 2, 20), ("a", "a", 7, 7), ("a", "mars", 1, 1)],
        "from_site string, to_site string, messages bigint, bytes bigint",
    )
    carried = {(row[0], row[1]): (row[2], row[3]) for row in link_loads(spark, SQUARE, demand).collect()}
    assert carried == {("a", "b"): (13, 1070), ("b", "c"): (13, 1070), ("c", "d"): (2, 20)}
    down = changed(SQUARE, [Change(("a", "b"))])
    detour = {(row[0], row[1]): row[2] for row in link_loads(spark, down, demand).collect()}
    assert detour == {("a", "d"): 13, ("c", "d"): 11}
    cut = changed(SQUARE, [Change(("a", "b")), Change(("a", "d"))])
    lost = {(row[0], row[1]): row[2] for row in unserved(spark, cut, demand).collect()}
    assert lost == {("a", "c"): 10, ("c", "a"): 1, ("a", "d"): 2}


def test_the_gates_of_a_link_are_in_the_order_to_try(spark: SparkSession) -> None:
    enterprise = directory(
        site("a", "a1"),
        site("b", "b1 b2"),
        link("a", "b", 3, "a1 b2"),
        server("a1", "a"),
        server("b1", "b"),
        server("b2", "b"),
    )
    rows = {(row[0], row[1]): (row[2], row[3]) for row in first_links(spark, enterprise).collect()}
    (expected,) = table_of(enterprise, "a1").rows
    assert rows["a", "b"] == (3, [gate.computer_name for gate in expected.gates])
    assert rows["b", "a"] == (3, ["a1"])


# What if


def test_the_links_on_the_route_of_a_pair() -> None:
    found = Counter((one, other) for _, _, one, other in pair_links(SQUARE, [("a", "d"), ("c", "b"), ("a", "mars")]))
    assert found == {("a", "b"): 1, ("b", "c"): 2, ("c", "d"): 1}


def test_a_change_is_read_from_the_names_of_two_sites() -> None:
    enterprise = gated("new-york san-jose san", [("new-york", "san-jose", 10), ("san", "new-york", 4)])
    assert parse_down("new-york-san-jose", enterprise) == Change(("new-york", "san-jose"))
    assert parse_cost("SAN-New-York=7", enterprise) == Change(("san", "new-york"), cost=7)
    assert parse_cost("new-york-san-jose=x2.5", enterprise) == Change(("new-york", "san-jose"), factor=2.5)
    after = changed(
        enterprise, [parse_cost("new-york-san-jose=x2.5", enterprise), parse_down("san-new-york", enterprise)]
    )
    assert [link.actual_cost for link in after.links] == [25]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("a-b", "must have the form A-B=N"),
        ("a-b=much", "must have the form A-B=N"),
        ("a-b=2.5", "must have the form A-B=N"),
        ("a-b=0", "must be between 1 and 999999"),
        ("ab=2", "must name two sites"),
        ("a-e=2", "there is no site e"),
    ],
)
def test_a_cost_out_of_range_is_reported(text: str, fault: str) -> None:
    with pytest.raises(InvalidArgument, match=fault):
        parse_cost(text, SQUARE)


def test_sites_without_a_link_between_them_cannot_be_changed() -> None:
    with pytest.raises(InvalidArgument, match="no routing link joins a and c"):
        changed(SQUARE, [Change(("a", "c"))])


def test_managers_that_a_lost_link_has_named_stay_gates() -> None:
    enterprise = directory(site("a"), site("b"), link("a", "b", 1, "a1 b1"), server("a1", "a"), server("b1", "b"))
    after = changed(enterprise, [Change(("a", "b"))])
    gates = {
        site.name: [gate.computer_name for gate in after.site_gate_collection(site.identifier)] for site in after.sites
    }
    assert gates == {"a": ["a1"], "b": ["b1"]}
