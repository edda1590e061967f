"""`make bench-peers` without peers: all its processes, with few messages."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from benchmarks.peers_figures import Figures
from benchmarks.peers_more import latencies, steady
from benchmarks.peers_plan import CONCURRENT, MANAGERS, MUST_SHOW, SINGLE, SOAP_EMPTY, must_show

ROOT = Path(__file__).parents[2]
WINDOW = 64


def test_a_quick_run_writes_a_line_for_each_contender_and_prints_the_table(tmp_path: Path) -> None:
    out = tmp_path / "results.jsonl"
    command = [sys.executable, "-m", "benchmarks.peers", "--no-peers", "--quick", "--rounds", "1", "--messages", "300"]
    done = subprocess.run([*command, "--out", str(out)], cwd=ROOT, capture_output=True, text=True, timeout=280)
    assert (done.returncode, done.stderr) == (0, "")
    found = {line["name"]: line for line in map(json.loads, out.read_text().splitlines())}
    assert {each.name for each in must_show(None, 300)} <= found.keys()
    assert all(line["rate"] > 0 for line in found.values())
    for kind in MANAGERS:
        assert list(found[MANAGERS[kind]]["cpu_us"]) == ["producer", "consumer"]
    for name in (SINGLE, CONCURRENT):
        assert list(found[name]["cpu_us"]) == ["producer", "broker", "consumer"]
    assert list(found[SOAP_EMPTY]["cpu_us"]) == ["broker"]
    assert all(f"| {row.name} " in done.stdout for row in MUST_SHOW)


def test_latency_at_half_of_the_rate_of_each_contender() -> None:
    known = {name: Figures(name, 1, 400.0) for name in (*MANAGERS.values(), CONCURRENT)}
    found = {each.name: each for each in latencies(None, known, WINDOW, seconds=0.5)}
    assert found.keys() == known.keys()
    for each in found.values():
        assert each.per_second == 200.0
        assert 0 < each.percentiles_ms[0] <= each.percentiles_ms[1] <= each.percentiles_ms[2]


def test_steady_load_has_rate_and_memory_at_the_beginning_and_at_the_end() -> None:
    name = MANAGERS["recoverable"]
    (found,) = steady(None, {name: Figures(name, 1, 2000.0)}, WINDOW, 2.0)
    assert min(found.rates) > 0
    assert found.rss_mb.keys() == {"consumer", "producer"}
    assert all(memory > 1 for pair in found.rss_mb.values() for memory in pair)
