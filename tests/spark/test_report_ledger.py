"""Every number in a report against the ledger of what was sent, for a generated history that runs through Spark."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html.parser import HTMLParser
from math import ceil, log
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from postroad.spark.pipeline.advice import Advice, advice, reason_words
from postroad.spark.pipeline.facts import Facts, gather
from postroad.spark.pipeline.lake import CONVERSATIONS, HOURS, Lake
from postroad.spark.pipeline.passes import WIDTH
from postroad.spark.pipeline.report import render
from postroad.spark.pipeline.service_levels import PERCENTILES, service_level
from postroad.spark.pipeline.summaries import BINS_S
from postroad.spark.pipeline.words import between, moment, seconds, size
from tests.spark.generated import BURST_HOUR, END_S, NUMBERS, START_S, TYPES, Sent, called, depth, history, made_lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COUNT = 2000
LIMIT_S = 60
PERIOD_S = 6 * 3600  # the longest period that fits twice into less than two days


class Tables(HTMLParser):
    """The content of a page: tables by section in order, tiles, findings, and the data of charts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.section = ""
        self.found: dict[str, list[list[list[str]]]] = {}
        self.tiles: dict[str, str] = {}
        self.texts: dict[str, str] = {}
        self.charts: list[dict[str, Any]] = []
        self._into: list[str] = []
        self._words: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        kind = dict(attributes).get("class")
        self._into.append(f"{tag}.{kind}" if kind else tag)
        if tag == "table":
            self.found.setdefault(self.section, []).append([])
        elif tag == "tr":
            self.found[self.section][-1].append([])
        elif tag in ("td", "th"):
            self.found[self.section][-1][-1].append("")
        elif tag == "meta":
            self._into.pop()

    def handle_endtag(self, tag: str) -> None:
        self._into.pop()

    def handle_data(self, data: str) -> None:
        into = self._into[-1] if self._into else ""
        if into == "h2":
            self.section = data
        elif into.startswith(("td", "th")):
            self.found[self.section][-1][-1][-1] += data
        elif into == "b" and "tile" in self._into[-2]:
            self._words = [data]
        elif into == "span" and "tile" in self._into[-2]:
            self.tiles[data] = self._words[0]
        elif into == "script" and data.startswith("["):
            self.charts = json.loads(data)
        elif into.split(".")[0] == "p":
            self.texts[self.section] = self.texts.get(self.section, "") + data


@dataclass(frozen=True, slots=True)
class Reported:
    sent: list[Sent]
    facts: Facts
    found: list[Advice]
    page: Tables
    lake: Lake


@pytest.fixture(scope="module")
def reported(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Reported:
    sent = history(COUNT)
    lake = made_lake(spark, tmp_path_factory.mktemp("ledger"), sent)
    facts = gather(Lake(None, lake.path), [service_level(rf"private$\orders={LIMIT_S}s")])
    page = Tables(render(facts, datetime.fromtimestamp(END_S, UTC)))
    return Reported(sent, facts, advice(facts), page, lake)


def rows(reported: Reported, section: str, place: int = 0) -> list[list[str]]:
    """The body of a table."""
    return reported.page.found[section][place][1:]


def number(value: int) -> str:
    return f"{value:,}"


def least(spans: Iterable[int]) -> list[int]:
    """The lower bounds of times: the send is known to the second."""
    return [max(0, span - 1) for span in spans]


def counted(sent: Iterable[Sent], share: float) -> str:
    """Values as gold/latency has them: it counts seconds by bins, and gives the largest value of a bin for the upper
    bounds, the smallest for the lower ones."""
    found = []
    spans = [each.after_s for each in sent]
    for some, edge in ((least(spans), min), (spans, max)):
        bins = [ceil(log(span) / log(WIDTH)) if span else None for span in some]
        edges = {of: edge(span for span, its in zip(some, bins, strict=True) if its == of) for of in set(bins)}
        found.append(round(float(np.percentile([edges[of] for of in bins], share * 100)), 3))
    return between(*found)


def longest(sent: Iterable[Sent]) -> str:
    most = max(each.after_s for each in sent)
    return between(float(max(0, most - 1)), float(most))


def received(sent: Iterable[Sent]) -> list[Sent]:
    return [each for each in sent if each.fate == "received"]


def test_the_tiles(reported: Reported) -> None:
    sent = reported.sent
    fates = Counter(each.fate for each in sent)
    assert min(fates.values()) > 10  # the history has all of them
    assert reported.page.tiles == {
        "messages known": number(len(sent)),
        f"received, {fates['received'] / len(sent):.1%}": number(fates["received"]),
        "wait in queues": number(fates["waiting"]),
        "died": number(fates["dead"]),
        "unexplained": number(fates["unexplained"]),
        "half received within": counted(received(sent), 0.5),
        "99 % received within": counted(received(sent), 0.99),
        "duplicates": "0",
        "out of order": "0",
        "packets not decoded": "0",
    }


def test_what_waits(reported: Reported) -> None:
    expected = []
    for queue in ("unread", "invoices"):
        waiting, before = depth(reported.sent, queue, END_S), depth(reported.sent, queue, END_S - 3600)
        first = min(each.sent_s + each.after_s for each in waiting)
        seen = [each.sent_s + each.after_s for each in received(reported.sent) if each.queue == queue]
        last = moment(datetime.fromtimestamp(max(seen), UTC)) if seen else "-"
        grown = f"{len(waiting) - len(before):+,} in 1 h"
        expected.append([called(queue), "queue", number(len(waiting)), seconds(END_S - first), grown, "0", last])
    assert rows(reported, "What waits in queues") == expected


def test_service_levels(reported: Reported) -> None:
    orders = [each for each in reported.sent if each.queue == "orders"]
    fates = Counter(each.fate for each in orders)
    in_time = sum(each.after_s <= LIMIT_S for each in received(orders))
    late = sum(each.after_s - 1 > LIMIT_S for each in received(orders))
    unclear = fates["received"] - in_time - late
    waits = [each for each in orders if each.fate in ("outgoing", "unexplained")]
    overdue = sum(END_S - each.sent_s - 1 > LIMIT_S for each in waits)
    decided = fates["received"] + overdue + fates["dead"]
    share = " to ".join(dict.fromkeys(f"{each / decided:.2%}" for each in (in_time, in_time + unclear)))
    counts = (in_time, unclear, late, overdue, fates["dead"], len(waits) - overdue, fates["left"])
    assert rows(reported, "Service levels") == [[called("orders"), "1 min", share, *(number(each) for each in counts)]]
    first = reported.found[0]
    assert (first.where, first.messages) == (called("orders"), late + overdue + fates["dead"])


def test_the_periods(reported: Reported) -> None:
    last = max(each.sent_s + (each.after_s if each.fate != "outgoing" else 0) for each in reported.sent)

    def figures(chosen: Sequence[Sent]) -> list[str]:
        found: list[str] = []
        for ends in (0, 1), (1, 2):
            since, until = last - PERIOD_S * ends[1], last - PERIOD_S * ends[0]

            def inside(at: int, since: int = since, until: int = until) -> bool:
                return since < at <= until

            ended = [each for each in chosen if inside(each.sent_s + each.after_s)]
            there = received(ended)
            counts = (sum(inside(each.sent_s) for each in chosen), len(there), sum(e.fate == "dead" for e in ended))
            found += [*(number(each) for each in counts), counted(there, 0.9) if there else "-"]
        return [found[place + 4 * before] for place in range(4) for before in (0, 1)]

    section = "Against the period before"
    assert rows(reported, section) == [["all messages", *figures(reported.sent)]]
    shown = {row[0]: row[1:] for row in rows(reported, section, 1)}
    assert shown == {called(queue): figures([e for e in reported.sent if e.queue == queue]) for queue in NUMBERS}
    assert rows(reported, section, 2) == [["london -> rome", *figures(reported.sent)]]
    shown = {row[0]: row[1:] for row in rows(reported, section, 3)}
    assert shown == {name: figures([e for e in reported.sent if e.queue == queue]) for queue, name in TYPES.items()}


def test_day_by_day(reported: Reported) -> None:
    expected = []
    for start in sorted({each.sent_s // 86_400 * 86_400 for each in reported.sent}, reverse=True):
        some = [each for each in reported.sent if start <= each.sent_s < start + 86_400]
        there = received(some)
        counts = (len(some), len(there), sum(each.fate == "dead" for each in some))
        day = f"{datetime.fromtimestamp(start, UTC):%Y-%m-%d}"
        expected.append([day, *(number(each) for each in counts), counted(there, 0.5), counted(there, 0.9)])
    assert rows(reported, "Day by day") == expected


def test_message_types(reported: Reported) -> None:
    expected = {}
    for name in (*TYPES.values(), ""):
        some = [each for each in reported.sent if each.message_type == name]
        there = received(some)
        died = sum(each.fate == "dead" for each in some)
        times = [counted(there, share) for share in PERCENTILES] if name else ["-"] * 3
        whole = size(sum(len(each.packet()) for each in some))
        expected[name or "no type"] = [number(len(some)), whole, number(len(there)), number(died), *times]
    assert {row[0]: row[1:] for row in rows(reported, "Which message types")} == expected


def test_what_was_delivered(reported: Reported) -> None:
    states = ("received", "dead", "reached", "outgoing", "sent")
    expected = {}
    for queue in NUMBERS:
        counted = Counter(each.state for each in reported.sent if each.queue == queue)
        expected[called(queue)] = [*(number(counted[state]) for state in states), number(counted.total())]
    assert {row[0]: row[1:] for row in rows(reported, "What was delivered")} == expected
    left = sum(each.fate == "left" for each in reported.sent)
    assert f"{left:,} are no longer in it" in reported.page.texts["What was delivered"]
    drawn = values(reported, lambda value: "kind" in value)
    counts = Counter({(value["queue"], value["kind"]): value["messages"] for value in drawn})
    assert counts == Counter((each.called, each.state) for each in reported.sent)


def values(reported: Reported, wanted: Callable[[dict[str, Any]], bool], place: int = 0) -> list[dict[str, Any]]:
    """The data of the charts with values of this kind."""
    data = [next(iter(chart["datasets"].values())) for chart in reported.page.charts]
    return list([each for each in data if each and wanted(each[0])][place])


def test_how_fast(reported: Reported) -> None:
    reached = [each for each in reported.sent if each.state == "reached"]
    tables = reported.page.found["How fast"]
    assert len(tables) == 8
    for place, chosen in enumerate((reached, received(reported.sent))):
        groups: tuple[Callable[[Sent], str], ...] = (
            lambda each: each.called,
            lambda each: "london -> rome",
            lambda each: each.message_type,
            lambda each: str(each.priority),
        )
        for number_of, name in enumerate(groups):
            expected = {}
            for key in {name(each) for each in chosen} - {""}:
                some = [each for each in chosen if name(each) == key]
                spans = [*(counted(some, share) for share in PERCENTILES), longest(some)]
                expected[key] = [number(len(some)), *spans]
            assert {row[0]: row[1:] for row in tables[4 * place + number_of][1:]} == expected
        drawn = values(reported, lambda value: "bin" in value, place)
        assert sum(each["messages"] for each in drawn) == len(chosen)
        within = sum(each["messages"] for each in drawn if each["bin"] == f"0 s – {seconds(BINS_S[0])}")
        assert within == sum(each.after_s <= BINS_S[0] for each in chosen)


def test_routes_and_traffic(reported: Reported) -> None:
    total = sum(len(each.packet()) for each in reported.sent)
    fates = Counter(each.fate for each in reported.sent)
    assert rows(reported, "Which routes") == [
        ["london", "rome", number(len(reported.sent)), number(fates["received"]), "0", "-"]
    ]
    assert f"{size(total)} in total" in reported.page.texts["How much, and when"]
    drawn: Counter[tuple[str, str]] = Counter()
    for each in values(reported, lambda value: "start" in value and value["queue"] is not None):
        drawn[each["queue"], each["start"]] += each["messages"]
    hours = [(each.called, datetime.fromtimestamp(each.sent_s // 3600 * 3600, UTC)) for each in reported.sent]
    assert drawn == Counter((queue, f"{hour:%Y-%m-%dT%H:%M:%SZ}") for queue, hour in hours)


def test_what_was_lost(reported: Reported) -> None:
    dead = [each for each in reported.sent if each.fate == "dead"]
    reasons = Counter(each.why for each in dead)
    section = "What was lost, and why"
    assert sorted(rows(reported, section)) == sorted(
        [f"{reason_words(reason)} ({reason})", number(count)] for reason, count in reasons.items()
    )
    whose = Counter((each.called, str(each.why)) for each in dead)
    expected = sorted(["london", queue, reason, number(count), "0"] for (queue, reason), count in whose.items())
    assert sorted(rows(reported, section, 1)) == expected
    for reason, count in reasons.items():
        (found,) = [each for each in reported.found if each.what == f"Dead: {reason_words(reason)}."]
        first = min(each.sent_s + each.after_s for each in dead if each.why == reason)
        assert (found.messages, found.age_s) == (count, END_S - first)


def test_what_is_unexplained(reported: Reported) -> None:
    lost = sorted((e for e in reported.sent if e.fate == "unexplained"), key=lambda each: (each.sent_s, each.id))
    shown = rows(reported, "The oldest messages without a report")
    assert [row[5] for row in shown] == [each.id for each in lost[: len(shown)]]
    assert f"and {len(lost) - len(shown):,} more" in reported.page.texts["The oldest messages without a report"]


def test_requests_and_answers(reported: Reported) -> None:
    questions = {each.number: each for each in reported.sent if each.queue == "questions"}
    answers = {each.answer_to: each for each in reported.sent if each.answer_to is not None}
    died = sum(each.fate == "dead" for each in questions.values())
    spans = [each.sent_s - questions[about].sent_s for about, each in answers.items() if about is not None]
    unanswered = len(questions) - len(answers) - died
    assert min(len(answers), died, unanswered) > 0
    counts = (len(questions), len(answers), unanswered, 0, died)
    bounds = ([max(0, span - 1) for span in spans], [span + 1 for span in spans])
    times = [between(*(round(float(np.percentile(some, share)), 3) for some in bounds)) for share in (50, 90, 100)]
    assert rows(reported, "Who asks whom, and who answers") == [
        ["london", called("questions"), *(number(each) for each in counts), *times, "london"]
    ]
    (found,) = [each for each in reported.found if "without an answer" in each.what]
    open_ones = [e for n, e in questions.items() if n not in answers and e.fate != "dead"]
    assert (found.messages, found.age_s) == (unanswered, END_S - min(each.sent_s for each in open_ones))
    told = reported.lake.rows(CONVERSATIONS)
    assert {row["id"]: row["answer_id"] for row in told} == {
        each.id: answers[number].id if number in answers else None for number, each in questions.items()
    }


def test_unusual_hours(reported: Reported) -> None:
    burst = datetime.fromtimestamp(START_S + BURST_HOUR * 3600, UTC)
    counts = Counter(each.sent_s // 3600 for each in reported.sent if each.queue == "audit")
    audit = [row for row in rows(reported, "Unusual hours") if row[1] == called("audit") and "messages" in row[2]]
    assert [row[0] for row in audit] == [moment(burst)]
    usual = np.median([counts[START_S // 3600 + hour] for hour in range(48)])
    assert audit[0][2] == f"{counts[int(burst.timestamp()) // 3600]:,} messages, usually {usual:,.0f}"
    hours = [row for row in reported.lake.rows(HOURS) if row["reason"] is None]
    assert sum(row["messages"] for row in hours) == len(reported.sent)


def test_labels_and_senders(reported: Reported) -> None:
    def figures(some: Sequence[Sent]) -> list[str]:
        counts = (len(some), len(received(some)), sum(each.fate == "dead" for each in some))
        return [*(number(each) for each in counts), size(sum(len(each.packet()) for each in some))]

    expected = {f"{queue} #": figures([each for each in reported.sent if each.queue == queue]) for queue in NUMBERS}
    assert {row[0]: row[1:] for row in rows(reported, "The most frequent")} == expected
    assert rows(reported, "The most frequent", 1) == [["london", *figures(reported.sent)]]


def test_every_table_of_the_page_was_compared(reported: Reported) -> None:
    compared = {"What waits in queues": 1, "Service levels": 1, "Against the period before": 4, "What was delivered": 1}
    compared |= {
        "Which message types": 1,
        "How fast": 8,
        "Which routes": 1,
        "What was lost, and why": 2,
        "Unusual hours": 1,
    }
    compared |= {"Day by day": 1}
    compared |= {"The oldest messages without a report": 1, "Who asks whom, and who answers": 1, "The most frequent": 2}
    assert {section: len(tables) for section, tables in reported.page.found.items()} == compared
    assert not re.search(r"\d", reported.page.texts.get("Packets that did not decode", ""))
