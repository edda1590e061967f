"""The arithmetic of `make bench-peers`, and what it says when it cannot measure the peers."""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
import time
from pathlib import Path

import pytest

from benchmarks.peers import main
from benchmarks.peers_brokers import missing
from benchmarks.peers_figures import (
    Figures,
    Row,
    Sample,
    best,
    compared,
    count_syncs,
    figures,
    percentiles,
    sides,
    slice_rates,
    table,
)
from benchmarks.peers_managers import Load
from benchmarks.peers_pace import SIZE, due, latency_ms, stamped
from benchmarks.peers_plan import MUST_SHOW, all_else, must_show
from benchmarks.peers_processes import cpu_s, family, rss_mb

OURS, PEER = Figures("ours", 100, 300.0, {"producer": 20.0, "consumer": 17.4}), Figures("peer", 100, 200.0, {"all": 50})


def test_a_run_gives_its_rate_and_the_cpu_of_each_side_a_message() -> None:
    found = figures("run", 1000, 10.0, 12.0, {"producer": 0.02, "consumer": 0.03})
    assert found.rate == 500.0
    assert found.cpu_us == pytest.approx({"producer": 20.0, "consumer": 30.0})
    assert found.total_cpu_us == pytest.approx(50.0)


def test_the_order_of_sides_is_the_one_asked_for() -> None:
    found = figures("run", 1, 0.0, 1.0, {"consumer": 1e-6, "producer": 2e-6}, sides=("producer", "consumer"))
    assert sides(found) == "2 + 1 = 3"


def test_the_best_round_has_the_highest_rate_and_the_lowest_cpu_whichever_rounds_those_are() -> None:
    slow_and_cheap, fast_and_dear = Figures("x", 10, 1.0, {"all": 5.0}), Figures("x", 10, 2.0, {"all": 9.0})
    for rounds in ([slow_and_cheap, fast_and_dear], [fast_and_dear, slow_and_cheap]):
        assert best(rounds) == Figures("x", 10, 2.0, {"all": 5.0})


def test_percentiles_are_the_smallest_values_that_so_many_do_not_exceed() -> None:
    assert percentiles(range(200, 0, -1)) == (100, 190, 198)
    assert percentiles([7.0]) == (7.0, 7.0, 7.0)
    assert percentiles([1.0, 2.0, 3.0]) == (2.0, 3.0, 3.0)


def test_rates_of_the_first_and_the_last_tenth() -> None:
    slowing_down = [Sample(t, 100 * min(t, 50) + 10 * max(0, t - 50), 60.0) for t in range(101)]
    assert slice_rates(slowing_down) == (100.0, 10.0)


def test_the_time_before_the_first_message_is_no_part_of_the_first_tenth() -> None:
    late = [Sample(t, 100 * max(0, t - 20), 60.0) for t in range(121)]
    assert slice_rates(late) == (100.0, 100.0)


def test_two_samples_are_enough() -> None:
    assert slice_rates([Sample(0.0, 0, 1.0), Sample(2.0, 10, 1.0)]) == (5.0, 5.0)


def test_syncs_are_counted_once_and_only_within_the_run() -> None:
    trace = [
        "77 99.0 fsync(3) = 0",
        "77    100.000001 fdatasync(7 <unfinished ...>",
        "78 100.1 fsync(9) = 0",
        "77 100.2 <... fdatasync resumed>) = 0",
        "77 100.3 --- SIGCHLD {si_signo=SIGCHLD} ---",
        "77 100.4 +++ exited with 0 +++",
        "78 101.5 fsync(9) = 0",
    ]
    assert count_syncs(trace, 100.0, 101.0) == 2


def test_a_write_to_a_file_that_was_opened_for_it_is_a_sync() -> None:
    trace = [
        '77 99.0 openat(AT_FDCWD</tmp>, "/tmp/data/journal-1", O_RDWR|O_DSYNC|O_CLOEXEC) = 7</tmp/data/journal-1>',
        '77 99.1 openat(AT_FDCWD</tmp>, "/tmp/data/database", O_RDWR|O_CLOEXEC, 0600 <unfinished ...>',
        '77 100.1 pwrite64(7</tmp/data/journal-1>, ""..., 1300, 0) = 1300',
        '77 100.2 pwrite64(8</tmp/data/database>, ""..., 4096, 0) = 4096',
        '77 101.1 pwrite64(7</tmp/data/journal-1>, ""..., 1300, 1300) = 1300',
    ]
    assert count_syncs(trace, 100.0, 101.0) == 1


def test_a_row_shows_the_ratio_beside_its_aim_and_floor() -> None:
    (line,) = compared([Row("row", "ours", "peer", 3.0, 2.0)], {"ours": OURS, "peer": PEER})
    assert line == ("row", "300", "200", "1.50", "3.0", "2.0", "20 + 17 = 37", "50 = 50")


def test_a_row_without_a_peer_shows_cpu() -> None:
    (line,) = compared([Row("row", "ours", None, 20, 32)], {"ours": OURS})
    assert line == ("row", "37 us", "", "", "20 us", "32 us", "20 + 17 = 37", "")


def test_a_row_whose_peer_did_not_run_has_no_ratio_and_one_without_ours_is_left_out() -> None:
    rows = [Row("row", "ours", "peer", 3.0, 2.0), Row("other", "absent", "peer", 3.0, 2.0)]
    assert compared(rows, {"ours": OURS}) == [("row", "300", "", "", "3.0", "2.0", "20 + 17 = 37", "")]


def test_a_table_is_aligned_markdown() -> None:
    assert table("Title", ("", "rate"), [("a", "5"), ("bcd", "1,000")], "note") == (
        "\nTitle\n\n|     |  rate |\n| --- | ----: |\n| a   |     5 |\n| bcd | 1,000 |\n\nnote\n"
    )


def test_every_producer_sends_whole_batches() -> None:
    assert [Load(messages=30_000, producers=each).each for each in (1, 8)] == [30_000, 3_700]
    assert Load(messages=50).each == 100


def test_a_pace_plans_every_message_once_at_equal_distances() -> None:
    async def planned() -> list[float]:
        return [each async for some in due(50, 1000.0) for each in some]

    found = asyncio.run(planned())
    assert len(found) == 50
    assert [late - early for early, late in itertools.pairwise(found)] == pytest.approx([0.001] * 49)


def test_a_latency_counts_from_the_planned_time() -> None:
    body = stamped(time.monotonic() - 2.0)
    assert len(body) == SIZE
    assert latency_ms(body) >= 2000.0


def test_processes_of_others_are_measured_with_their_children() -> None:
    assert family([os.getpid()])[0] == os.getpid()
    assert os.getpid() in family([os.getppid()])
    assert cpu_s([os.getpid()]) > 0
    assert rss_mb([os.getpid()]) > 1
    assert cpu_s([2**22 + 1]) == 0  # no such process


def test_every_row_names_contenders_that_run() -> None:
    names = {each.name for each in must_show(None, 100)}
    assert {row.ours for row in MUST_SHOW} == names
    assert not names & {each.name for each in all_else(None, 100)}


def test_without_the_peers_it_says_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--peers", str(tmp_path / "absent")]) == 2
    assert "make bench-peers PEERS=DIR" in capsys.readouterr().err
    assert main(["--peers", str(tmp_path), "--peers-python", str(tmp_path / "python")]) == 2
    assert "benchmarks/peers.txt" in capsys.readouterr().err
    assert main(["--peers", str(tmp_path), "--peers-python", sys.executable]) == 2
    assert "has no brokers.py" in capsys.readouterr().err
    assert missing(tmp_path) == f"{tmp_path} must hold the scripts that measure other brokers, but has no brokers.py"
