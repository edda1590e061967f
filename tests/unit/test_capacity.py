"""A day's traffic through simulated managers: the depth of queues with slow readers, and while a manager is down."""

from __future__ import annotations

from pathlib import Path

import pytest

from postroad.directory.file import Enterprise, load_enterprise
from postroad.errors import InvalidArgument
from postroad.simulation.capacity import Capacity, CapacityPlan, MinuteTraffic, capacity
from postroad.simulation.scenario import Kind

FILE = """
[[site]]
name = "north"
gates = ["oslo"]
[[site]]
name = "south"
gates = ["rome"]
[[link]]
sites = ["north", "south"]
cost = 1
[[manager]]
name = "oslo"
id = "11111111-1111-4111-8111-111111111111"
sites = ["north"]
routing_server = true
[[manager]]
name = "rome"
id = "22222222-2222-4222-8222-222222222222"
sites = ["south"]
routing_server = true
"""
MINUTE = 14 * 60


@pytest.fixture
def enterprise(tmp_path: Path) -> Enterprise:
    file = tmp_path / "enterprise.toml"
    file.write_text(FILE)
    return load_enterprise(file)


def traffic(messages: int = 120, minutes: int = 3, **given: object) -> list[MinuteTraffic]:
    row = {"source": "oslo", "destination": "Rome", "queue": "rome: orders", "kind": Kind.RECOVERABLE, "size": 500}
    return [
        MinuteTraffic(minute=MINUTE + each, messages=messages, **(row | given))  # type: ignore[arg-type]
        for each in range(minutes)
    ]


def depth(found: Capacity, *, outgoing: bool = False) -> tuple[int, float]:
    return max(
        ((each.highest, each.highest_at) for each in found.queues if each.outgoing is outgoing), default=(0, 0.0)
    )


def test_a_reader_that_keeps_up_leaves_nothing(enterprise: Enterprise) -> None:
    found = capacity(enterprise, traffic(), CapacityPlan(read_rate=50))
    assert (found.messages, found.simulated, found.arrived, found.factor) == (360, 360, 360, 1)
    assert depth(found)[0] < 30
    assert found.drained_at is not None


def test_a_slow_reader_leaves_what_it_cannot_take(enterprise: Enterprise) -> None:
    """Two come each second and one is taken, so after three minutes half of them wait."""
    found = capacity(enterprise, traffic(), CapacityPlan(read_rate=1))
    highest, at = depth(found)
    assert 140 <= highest <= 220
    assert MINUTE + 2 <= at <= MINUTE + 4
    assert [each.queue for each in found.queues if not each.outgoing] == ["rome: orders"]
    assert found.queues[0].at_end == 0


def test_an_outage_fills_the_outgoing_queue(enterprise: Enterprise) -> None:
    found = capacity(enterprise, traffic(), CapacityPlan(outages=(("ROME", MINUTE + 1, 1),)))
    highest, at = depth(found, outgoing=True)
    assert 90 <= highest <= 250
    assert at > MINUTE + 1
    assert found.arrived == 360


def test_a_message_stands_for_several(enterprise: Enterprise) -> None:
    one = capacity(enterprise, traffic(messages=1201), CapacityPlan(read_rate=5, most_messages=500))
    assert one.factor == 8
    assert one.simulated == 3 * 1201 // 8
    highest, _ = depth(one)
    assert 2000 <= highest <= 3600  # 15 a second more than the reader takes, for three minutes


def test_traffic_that_takes_no_route_is_left_out(enterprise: Enterprise) -> None:
    rows = [*traffic(), *traffic(source="rome"), *traffic(destination="mars", minutes=1)]
    found = capacity(enterprise, rows, CapacityPlan())
    assert (found.messages, found.skipped) == (360, 480)
    with pytest.raises(InvalidArgument, match="no traffic between two managers"):
        capacity(enterprise, traffic(source="mars"), CapacityPlan())
    with pytest.raises(InvalidArgument, match=r"^outage: there is no queue manager mars"):
        capacity(enterprise, traffic(), CapacityPlan(outages=(("mars", 0, 1),)))
