"""`postroad simulate`: a network from a file, its report for people and programs, and faults in a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands import postroad

EXAMPLE = Path(__file__).parents[2] / "examples" / "network.toml"
TWO = r"""
workload_s = 10
settle_s = 300
[[manager]]
name = "alpha"
[[manager]]
name = "beta"
[[queue]]
path = 'beta\private$\orders'
transactional = true
[[flow]]
from = "alpha"
to = 'beta\private$\orders'
kind = "transactional"
count = 20
"""
READER = "[[reader]]\nqueue = 'beta\\private$\\orders'\n"
FOR_GOOD = '[[fault]]\nkind = "partition"\nbetween = ["alpha", "beta"]\nat_s = 0.5\n'
ROUTED = r"""
enterprise = "enterprise.toml"
workload_s = 10
[[queue]]
path = 'beta\private$\orders'
[[flow]]
from = "alpha"
to = 'beta\private$\orders'
naming = "private"
count = 20
[[reader]]
queue = 'beta\private$\orders'
"""
ENTERPRISE = """
[[site]]
name = "west"
gates = ["gate"]
[[site]]
name = "east"
gates = ["gate"]
[[link]]
sites = ["west", "east"]
[[manager]]
name = "alpha"
id = "00000001-0000-4000-8000-000000000000"
sites = ["west"]
[[manager]]
name = "gate"
id = "00000002-0000-4000-8000-000000000000"
sites = ["west", "east"]
routing_server = true
[[manager]]
name = "beta"
id = "00000003-0000-4000-8000-000000000000"
sites = ["east"]
"""


def write(directory: Path, text: str, name: str = "network.toml") -> str:
    file = directory / name
    file.write_text(text, encoding="utf-8")
    return str(file)


def test_the_example_arrives_whatever_goes_wrong_in_it() -> None:
    outcome = postroad("simulate", str(EXAMPLE), "--json")
    assert outcome.code == 0
    (found,) = outcome.objects
    assert (found["lost"], found["duplicated"], found["reordered"], found["stuck"]) == (0, 0, 0, [])
    assert [flow["arrived"] for flow in found["flows"][:2]] == [500, 500]
    prices = found["flows"][3]
    # A price that arrived just before the power failure and was not acknowledged yet is a dead letter too.
    assert prices["dead_letters"]["nack-reach-queue-timeout"] >= prices["sent"] - prices["arrived"] > 0
    assert prices["latency"]["p50_ms"] > 120


def test_a_report_for_people(tmp_path: Path) -> None:
    outcome = postroad("simulate", write(tmp_path, TWO + READER), "--seed", "5")
    assert outcome.code == 0
    lines = outcome.lines
    assert lines[0].startswith("seed 5: ")
    assert lines[2].split()[:5] == ["from", "to", "kind", "sent", "arrived"]
    assert lines[3].split()[:6] == ["alpha", r"beta\private$\orders", "transactional", "20", "20", "20"]
    assert lines[-1] == "lost 0, duplicated 0, reordered 0"


def test_what_is_stuck_says_why(tmp_path: Path) -> None:
    outcome = postroad("simulate", write(tmp_path, TWO + READER + FOR_GOOD), "--json")
    assert outcome.code == 1
    (found,) = outcome.objects
    (stuck,) = [each for each in found["stuck"] if each["queue"].endswith("orders")]
    assert stuck["manager"] == "alpha"
    assert 0 < found["flows"][0]["waiting"] <= stuck["messages"] <= 20
    assert "10.0.0.2" in stuck["why"]
    assert (found["settled_s"], found["lost"]) == (None, 0)
    text = postroad("simulate", write(tmp_path, TWO + READER + FOR_GOOD)).text
    assert f"! alpha: {stuck['messages']} messages in " in text


def test_a_queue_that_nobody_reads_keeps_its_messages(tmp_path: Path) -> None:
    outcome = postroad("simulate", write(tmp_path, TWO), "--json")
    assert outcome.code == 0
    (flow,) = outcome.objects[0]["flows"]
    assert (flow["arrived"], flow["received"]) == (20, 0)


def test_a_directory_gives_the_routes(tmp_path: Path) -> None:
    write(tmp_path, ENTERPRISE, "enterprise.toml")
    outcome = postroad("simulate", write(tmp_path, ROUTED), "--log")
    assert outcome.code == 0
    assert "alpha     to gate: message" in outcome.text
    assert "gate      to beta: message" in outcome.text
    assert "alpha     to beta: message" not in outcome.text


def test_one_seed_gives_one_log(tmp_path: Path) -> None:
    file = write(tmp_path, TWO + READER)
    first, second, other = (postroad("simulate", file, "--log", "--seed", seed).text for seed in ("1", "1", "2"))
    assert first == second
    assert first.splitlines()[:40] != other.splitlines()[:40]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "manager: is missing: add at least one [[manager]]"),
        (TWO.replace('from = "alpha"', 'from = "alpa"'), "flow[1].from: there is no queue manager alpa; did you mean"),
        (TWO.replace('from = "alpha"\n', ""), "flow[1].from: is missing"),
        (TWO.replace('from = "alpha"', 'from = "beta"'), "must be a queue of another queue manager than beta"),
        (
            TWO.replace("to = 'beta\\private$\\orders'", "to = 'beta\\private$\\order'"),
            "flow[1].to: there is no [[queue]]",
        ),
        (TWO.replace("'beta\\private$\\orders'", "'private$\\orders'"), "must be a private queue of a queue manager"),
        (TWO.replace('kind = "transactional"\n', ""), "flow[1].kind: must fit the queue"),
        (TWO + '[[fault]]\nkind = "crash"\nat_s = 1\n', "fault[1].manager: a crash must have the key `manager`"),
        (TWO + '[[fault]]\nkind = "cut"\nat_s = 1\n', "fault[1].between: a cut must have the key `between`"),
        (
            TWO + '[[fault]]\nkind = "cut"\nbetween = ["alpha", "beta"]\nat_s = 1\nfor_s = 1\n',
            "fault[1].for_s: must not be set: a cut has no duration",
        ),
        (
            TWO + '[[fault]]\nkind = "cut"\nbetween = ["alpha", "alpha"]\nat_s = 1\n',
            "fault[1].between: must name two queue managers, got alpha twice",
        ),
        (
            TWO + 2 * '[[line]]\nbetween = ["alpha", "beta"]\n',
            "line[2].between: must not repeat the line between alpha and beta",
        ),
        (TWO + "nonsense = 1\n", "flow[1].nonsense: there is no such setting"),
    ],
)
def test_a_file_at_fault_is_one_line(tmp_path: Path, text: str, fault: str) -> None:
    outcome = postroad("simulate", write(tmp_path, text))
    assert (outcome.code, outcome.output) == (2, b"")
    assert outcome.errors.count("\n") == 1
    assert fault in outcome.errors
