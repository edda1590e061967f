"""Changes of the links of an enterprise, and the links on a route."""

from __future__ import annotations

from collections import Counter

import pytest

from postroad.directory.what_if import Change, changed, parse_cost, parse_down
from postroad.errors import InvalidArgument
from postroad.spark.pipeline.traffic import pair_links
from tests.enterprises import directory, gated, link, server, site

SQUARE = gated("a b c d", [("a", "b", 1), ("b", "c", 1), ("c", "d", 1), ("d", "a", 5)])


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
