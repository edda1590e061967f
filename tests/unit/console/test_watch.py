"""Depth, rates and latency computed from samples, and how long samples are kept."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from postroad.console.history import Sample, Watch, rates
from postroad.console.manager_client import NO_CREDENTIALS
from postroad.console.pictures import Line, depth_charts, line_chart, sparkline
from postroad.console.rendering import age, count, rate, short, size
from postroad.reports.info import QueueInfo

QUEUE = QueueInfo(
    path=r"private$\orders",
    format_name="",
    id="",
    type="private",
    messages=0,
    bytes=0,
    locked=0,
    readers=0,
    waiting=0,
    nearly_full=False,
    damaged=0,
    created_at_s=0,
    oldest_arrived_ms=None,
)


def test_rates_and_latency() -> None:
    samples = [Sample(0, 10, 100, 0), Sample(10, 30, 200, 0)]
    (found,) = rates(samples)
    assert (found.into, found.out) == (10, 8)
    assert found.latency_s == pytest.approx(20 / 8)


def test_a_restart_is_no_negative_rate() -> None:
    (found,) = rates([Sample(0, 10, 1000, 0), Sample(10, 0, 0, 0)])
    assert (found.into, found.out, found.latency_s) == (0, 0, None)


def test_a_queue_that_stands_still_costs_one_sample() -> None:
    watch = Watch("http://127.0.0.1:1", NO_CREDENTIALS)
    for at in range(100):
        watch.record(float(at), [replace(QUEUE, messages=5, messages_in=5)])
    assert watch.history(QUEUE.path) == [Sample(0, 5, 5, 0), Sample(99, 5, 5, 0)]
    watch.record(100.0, [replace(QUEUE, messages=9, messages_in=9)])
    assert [(each.at_s, each.messages) for each in watch.history(QUEUE.path)] == [(0, 5), (99, 5), (100, 9)]
    watch.record(101.0, [])
    assert watch.history(QUEUE.path) == []


def test_charts_escape_their_texts() -> None:
    line = Line("<b>", "a", [(0.0, 1.0), (60.0, 2.0)])
    picture = line_chart([line], count)
    assert "<b>" not in picture
    assert "&lt;b&gt; 2" in picture
    assert depth_charts([Sample(0, 1, 1, 0)]) == []
    assert sparkline([1.0]) == ""


def test_the_charts_of_a_queue_have_the_same_times_and_show_a_single_value() -> None:
    samples = [Sample(0, 0, 0, 0), Sample(100, 8, 8, 0), Sample(200, 4, 8, 0), Sample(300, 4, 8, 0)]
    pictures = [chart.picture for chart in depth_charts(samples)]
    assert len(pictures) == 3
    assert all(f">{each}<" in picture for picture in pictures for each in ("00:00:00", "00:02:30", "00:05:00"))
    (drawn,) = re.findall(r'<polyline class="line c" points="([^"]*)"', pictures[2])
    assert len(drawn.split()) == 2  # a line without length has round ends, so it is a dot


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (count(1234567), "1,234,567"),
        (size(999), "999 B"),
        (size(123456), "123 kB"),
        (size(1 << 20), "1.0 MB"),
        (age(0.25), "250 ms"),
        (age(90), "90 s"),
        (age(3600), "60 min"),
        (age(86400), "24 h"),
        (age(10 * 86400), "10 d"),
        (rate(0.44), "0.4"),
        (rate(3400), "3,400"),
        (short("a" * 30 + "b" * 30, 11), "aaaaaa…bbbb"),
    ],
)
def test_numbers_for_people(written: str, expected: str) -> None:
    assert written == expected


def test_the_second_sample_follows_soon_and_long_answers_are_asked_for_less_often() -> None:
    watch = Watch("http://127.0.0.1:1", NO_CREDENTIALS)
    watch.record(0.0, [QUEUE])
    assert watch.pause(0.1) == 1
    watch.record(1.0, [QUEUE])
    assert [watch.pause(each) for each in (0.1, 0.5, 9.0)] == [5, 10, 30]


def test_a_manager_is_busy_while_messages_come_or_go_or_if_it_cannot_be_asked() -> None:
    watch = Watch("http://127.0.0.1:1", NO_CREDENTIALS)
    found = [watch.is_busy()]
    for at, messages, added in ((0, 0, 0), (10, 0, 0), (20, 2000, 2000), (30, 0, 2000), (40, 0, 2010)):
        watch.record(float(at), [replace(QUEUE, messages=messages, messages_in=added)])
        found.append(watch.is_busy())
    assert found == [True, False, False, True, True, False]
