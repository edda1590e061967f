"""The report from plain figures: whole in itself, escaped, and it says what there is to do. No Spark takes part."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from postroad.spark.pipeline.advice import advice
from postroad.spark.pipeline.facts import Facts
from postroad.spark.pipeline.plots import bars, columns, nice, seconds
from postroad.spark.pipeline.report import MOST_ROWS, render, summary
from postroad.spark.pipeline.summaries import BINS_S
from postroad.wire.constants import MessageClass, class_name
from tests.commands import pasted

NOON = datetime(2024, 5, 17, 12, tzinfo=UTC)
NOTHING = Facts((), 0, [], [], [], [], [], [], [])
HOSTILE = '<script>alert("1")</script>\' & \x1b'


def state(name: str, messages: int, queue: str = r"rome: private$\orders", **more: Any) -> dict[str, Any]:
    counts = {"duplicates": 0, "out_of_order": 0, "contradicted": 0, "unexplained": 0}
    ends = {"source": "london", "destination": "rome", "source_site": "uk", "destination_site": "italy"}
    spread = [messages if name == "received" else 0] + [0] * len(BINS_S)
    times = {"first_sent_at": NOON, "last_sent_at": NOON + timedelta(hours=2)}
    rest = {"delivery": "express", "reason": None, "bytes": 100 * messages, "most_hops": 1, "a_way": ["london", "rome"]}
    row = {"state": name, "messages": messages, "queue": queue, "spread": spread}
    return row | counts | ends | times | rest | more


def speed(by: str, value: str, messages: int = 10) -> dict[str, Any]:
    spans = {"p50_s": 0.4, "p90_s": 2.0, "p99_s": 70.0, "max_s": 90.0}
    return {"by": by, "value": value, "until": "receive", "messages": messages} | spans


def minute(number: int, messages: int, **more: Any) -> dict[str, Any]:
    row = {"minute": NOON + timedelta(minutes=number), "messages": messages, "bytes": 100 * messages}
    ends = {"queue": r"rome: private$\orders", "source": "london", "dead_in": "london"}
    return row | ends | {"replayed": 0} | more


FULL = Facts(
    managers=("london", "rome"),
    batch=3,
    states=[
        state("received", 8, duplicates=1, out_of_order=1, contradicted=1),
        state("dead", 2, reason="nack-q-exceed-quota"),
        state("sent", 1, queue=HOSTILE, unexplained=1),
    ],
    latency=[speed("all", "all"), speed("queue", HOSTILE), speed("route", "london -> rome"), speed("priority", "3")],
    traffic=[minute(0, 8), minute(90, 3, queue=HOSTILE)],
    links=[{"minute": NOON, "site_a": "italy", "site_b": "uk", "messages": 11, "bytes": 1100}],
    dead_letters=[minute(5, 2, reason="nack-q-exceed-quota")],
    oldest=[{"sent_at": NOON, "label": HOSTILE, "source": "london", "queue": "q", "asked": "reach", "id": "{guid}\\5"}],
    faults=[
        {"packets": 2, "manager": "rome", "queue": HOSTILE, "error": "at byte 3: no", "lookup_id": 9, "head": "00ff"}
    ],
)


class Reader(HTMLParser):
    """What a browser would take from the page: its text, its tags, and whatever leads elsewhere."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.elsewhere: list[str] = []
        self.text = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in ("meta", "br", "line"):
            self.open.append(tag)
        self.elsewhere += [value or "" for name, value in attributes if name in ("src", "href", "srcset", "action")]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_needs_nothing_from_elsewhere_and_is_well_formed() -> None:
    page = render(FULL, NOON)
    read = Reader(page)
    assert read.open == []
    assert read.elsewhere == []
    assert not re.search(r"https?://|url\(|@import", page)
    assert read.tags.count("svg") >= 6


def test_what_came_in_a_message_stays_text() -> None:
    read = Reader(render(FULL, NOON))
    assert "script" not in read.tags
    assert '<script>alert("1")</script>' in read.text


@pytest.mark.parametrize(
    "words",
    [
        "Of 11 messages, 8 received, 2 died and 1 passed on, no report since.",
        "Half were received within 0.4 s",
        "it found its queue full",
        r"rome: private$\orders",
        "london → rome",
        "italy – uk",
        "postroad trace '{guid}\\5'",
        "2 packets did not decode",
        "at byte 3: no",
    ],
)
def test_the_page_says(words: str) -> None:
    assert words in Reader(render(FULL, NOON)).text


def test_without_messages_the_page_says_so() -> None:
    read = Reader(render(NOTHING, NOON))
    assert read.open == []
    assert "No message is known yet." in read.text
    assert advice(NOTHING) == []


def test_the_figures_are_sums_of_the_tables() -> None:
    told = FULL.json()
    assert told["messages"] == 11
    assert told["states"] == {"received": 8, "dead": 2, "sent": 1}
    assert told["kinds"] == {"express": {"dead": 2, "received": 8, "sent": 1}}
    assert told["reasons"] == {"nack-q-exceed-quota": 2}
    assert (told["unexplained"], told["duplicates"], told["undecodable"]) == (1, 1, 2)
    assert sum(FULL.spread) == 8


@pytest.mark.parametrize("reason", [each for each in MessageClass if each.name.startswith("NACK")])
def test_every_reason_has_words_and_something_to_do(reason: MessageClass) -> None:
    facts = replace(NOTHING, dead_letters=[minute(0, 1, reason=class_name(reason))])
    (found,) = advice(facts)
    assert "died of" not in found.what
    assert class_name(reason) in found.commands[0]


def test_a_replay_is_advised_as_it_can_be_pasted() -> None:
    dead = [minute(0, 2, reason="nack-q-purged"), minute(1, 3, reason="nack-q-purged", dead_in="rome")]
    apis = {"london": "http://127.0.0.1:8180"}
    (found,) = advice(replace(NOTHING, dead_letters=dead, lake="/data/my lake", apis=apis))
    assert found.what.startswith("5 messages: ")
    begin, end = "postroad pipeline replay --lake '/data/my lake'", "--where \"reason = 'nack-q-purged'\""
    assert found.commands == (f"{begin} {end}", f"{begin} --api http://127.0.0.1:8180 {end}")


@pytest.mark.parametrize("name", ["x'; touch harm #", "$(touch harm)", "`touch harm`", 'a" ; touch harm; "', "a b"])
def test_names_that_came_from_outside_do_nothing_when_a_command_is_pasted(tmp_path: Path, name: str) -> None:
    facts = replace(
        NOTHING,
        states=[state("sent", 1, unexplained=1)],
        dead_letters=[minute(0, 1, reason=name)],
        oldest=[{"id": name}],
        faults=[{"queue": name, "packets": 1}],
        lake=name,
    )
    found = advice(facts)
    calls = [call for each in found for command in each.commands for call in pasted(command, tmp_path)]
    assert ["trace", name] in calls
    assert ["export", name, "odd.packets"] in calls
    assert ["pipeline", "replay", "--lake", name, "--where", f"reason = '{name}'"] in calls
    assert list(tmp_path.iterdir()) == []


def test_what_was_sent_again_is_told_and_not_advised_any_more() -> None:
    some = replace(FULL, dead_letters=[minute(5, 2, reason="nack-q-exceed-quota", replayed=1)])
    assert advice(some)[0].what == "1 message: it found its queue full."
    assert "Of those that died, 1 was sent again." in Reader(render(some, NOON)).text
    every = replace(FULL, dead_letters=[minute(5, 2, reason="nack-q-exceed-quota", replayed=2)])
    text = Reader(render(every, NOON)).text
    assert "pipeline replay" not in text
    assert "Of those that died, 2 were sent again." in text
    assert every.json()["replayed"] == 2


def test_where_no_dead_letter_is_kept_there_is_nothing_to_replay() -> None:
    (found,) = advice(replace(NOTHING, dead_letters=[minute(0, 1, reason="nack-q-purged", dead_in=None)]))
    assert found.commands == ()
    assert found.do.endswith("there are no dead letters to send again.")


def test_of_many_queues_the_largest_are_shown_and_the_others_counted() -> None:
    many = replace(FULL, states=[state("received", number, f"queue {number}") for number in range(1, MOST_ROWS + 4)])
    text = Reader(render(many, NOON)).text
    assert f"queue {MOST_ROWS + 3}" in text
    assert "and 3 more queues with fewer messages" in text


def test_summary_of_one_message() -> None:
    assert summary(replace(NOTHING, states=[state("dead", 1)])) == "Of 1 message, 1 died."


def test_a_long_time_is_drawn_in_few_columns() -> None:
    year = {NOON + timedelta(minutes=number * 1000): {"q0": 1.0} for number in range(500)}
    drawn = columns(year, ["q0"], "messages")
    assert 100 < drawn.count("<rect") <= 366
    assert columns({}, ["q0"], "messages") == ""
    assert "<rect" not in bars([], "messages")


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0 s"), (0.42, "0.42 s"), (12.3, "12 s"), (90, "1.5 min"), (7200, "2 h"), (172_800, "2 d"), (None, "-")],
)
def test_seconds_as_people_say_them(value: float | None, text: str) -> None:
    assert seconds(value) == text


@pytest.mark.parametrize(("value", "round_number"), [(1, 1), (1.1, 2), (13, 20), (21, 25), (49, 50), (800, 1000)])
def test_the_top_of_a_scale_is_round(value: float, round_number: float) -> None:
    assert nice(value) == round_number
