"""The report from plain figures, without Spark: it is self-contained and escaped, and says what to do."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from postroad.errors import InvalidArgument
from postroad.spark.pipeline.advice import advice
from postroad.spark.pipeline.alerts import Reported, changes, threshold
from postroad.spark.pipeline.charts import MOST_NAMES, MOST_SLOTS, OTHERS, over_time
from postroad.spark.pipeline.facts import Facts
from postroad.spark.pipeline.report import MOST_ROWS, render, summary
from postroad.spark.pipeline.service_levels import Attainment
from postroad.spark.pipeline.summaries import BINS_S
from postroad.spark.pipeline.trends import Anomaly
from postroad.spark.pipeline.words import seconds
from postroad.wire.constants import MessageClass, class_name
from tests.commands import pasted

NOON = datetime(2024, 5, 17, 12, tzinfo=UTC)
LATER = NOON + timedelta(hours=3)
NOTHING = Facts((), 0, [], [], [], [], [], [], [], as_of=LATER)
HOSTILE = '<script>alert("1")</script>\' & \x1b'


def state(name: str, messages: int, queue: str = r"rome: private$\orders", **more: Any) -> dict[str, Any]:
    counts = {"duplicates": 0, "out_of_order": 0, "contradicted": 0, "unexplained": 0}
    ends = {"source": "london", "destination": "rome", "source_site": "uk", "destination_site": "italy"}
    spread = [messages if name == "received" else 0] + [0] * len(BINS_S)
    times: dict[str, Any] = {"first_sent_at": NOON, "last_sent_at": NOON + timedelta(hours=2)}
    times |= {"first_reached_at": None, "first_received_at": None, "last_received_at": None}
    rest = {"delivery": "express", "reason": None, "bytes": 100 * messages, "most_hops": 1, "a_way": ["london", "rome"]}
    row = {"state": name, "messages": messages, "queue": queue, "receive_spread": spread, "reach_spread": []}
    return row | counts | ends | times | rest | more


def speed(by: str, value: str, messages: int = 10) -> dict[str, Any]:
    spans = {"p50_s": 0.4, "p90_s": 2.0, "p99_s": 70.0, "max_s": 90.0}
    return {"by": by, "value": value, "until": "receive", "messages": messages} | spans


def minute(number: int, messages: int, **more: Any) -> dict[str, Any]:
    row = {"minute": NOON + timedelta(minutes=number), "messages": messages, "bytes": 100 * messages}
    ends = {"queue": r"rome: private$\orders", "source": "london", "dead_in": "london"}
    return row | ends | {"replayed": 0, "first_at": NOON, "last_at": NOON} | more


def depth(messages: int, *, waits_s: float = 0, hours_before: int = 0, **more: Any) -> dict[str, Any]:
    r"""The last look of an hour at rome's private$\orders."""
    at = LATER - timedelta(hours=hours_before)
    oldest = at - timedelta(seconds=waits_s) if messages else None
    row = {"manager": "rome", "queue": r"private$\orders", "called": r"rome: private$\orders", "role": "queued"}
    looks = {"first_looked_at": at, "first_messages": messages, "looked_at": at, "messages": messages, "most": messages}
    return row | looks | {"oldest_at": oldest, "readers": 0, "stuck": False, "why": None} | more


def period(name: str, **more: Any) -> dict[str, Any]:
    since = NOON if name == "now" else NOON - timedelta(hours=1)
    row = {"period": name, "since": since, "until": since + timedelta(hours=1), "by": "queue"}
    figures = {"sent": 30, "received": 20, "died": 0, "receive_p90_s": 1.0, "reach_p90_s": 1.0}
    return row | {"value": r"rome: private$\orders"} | figures | more


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
    as_of=LATER,
    backlog=[depth(7)],
    trend=[period("now"), period("before"), period("now", by="all"), period("before", by="all")],
    levels=[Attainment(r"rome: private$\orders", 30.0, in_time=8)],
)


class Reader(HTMLParser):
    """What a browser would take from the page: its text, its tags, and everything that leads elsewhere."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.elsewhere: list[str] = []
        self.text = ""
        self.scripts: list[str] = []
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
        if self.open and self.open[-1] == "script":
            self.scripts.append(data)
        elif not self.open or self.open[-1] != "style":
            self.text += data


def charts(read: Reader) -> list[dict[str, Any]]:
    return list(json.loads(read.scripts[0]))


def drawn_values(chart: dict[str, Any] | None) -> list[dict[str, Any]]:
    """The only data of a chart."""
    assert chart is not None
    (values,) = chart["datasets"].values()
    return list(values)


def test_the_page_is_self_contained_and_well_formed() -> None:
    page = render(FULL, NOON)
    read = Reader(page)
    assert read.open == []
    assert read.elsewhere == []
    assert "default-src 'none'" in page.replace("&#x27;", "'")
    for script in read.scripts:
        page = page.replace(script, "")
    assert not re.search(r"https?://|url\(|@import", page)
    assert len(charts(read)) >= 6


def test_text_from_a_message_stays_text() -> None:
    read = Reader(render(FULL, NOON))
    assert '<script>alert("1")</script>' in read.text
    assert read.tags.count("script") == 3  # the data, the library and our script
    assert "<" not in read.scripts[0]
    names = {value.get("queue") for chart in charts(read) for value in drawn_values(chart)}
    assert HOSTILE in names


@pytest.mark.parametrize(
    "words",
    [
        "Of 11 messages, 8 received, 2 died and 1 passed on, no report since.",
        "Half were received within 0.4 s",
        "it found its queue full",
        r"rome: private$\orders",
        "london → rome",
        "italy – uk",
        "100.00%",
        "postroad trace '{guid}\\5'",
        "Packets that did not decode.",
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
    assert told["waiting"] == 7


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
    assert (found.where, found.messages, found.age_s) == (r"rome: private$\orders", 5, 3 * 3600)
    begin, end = "postroad pipeline replay --lake '/data/my lake'", "--where \"reason = 'nack-q-purged'\""
    assert found.commands == (f"{begin} {end}", f"{begin} --api http://127.0.0.1:8180 {end}")


@pytest.mark.parametrize("name", ["x'; touch harm #", "$(touch harm)", "`touch harm`", 'a" ; touch harm; "', "a b"])
def test_names_from_outside_do_nothing_in_a_pasted_command(tmp_path: Path, name: str) -> None:
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


def test_replayed_messages_are_reported_and_need_no_advice() -> None:
    some = replace(FULL, dead_letters=[minute(5, 2, reason="nack-q-exceed-quota", replayed=1)])
    dead = next(each for each in advice(some) if "found its queue full" in each.what)
    assert dead.messages == 1
    assert "Of those that died, 1 was sent again, as a new message that counts too." in Reader(render(some, NOON)).text
    every = replace(FULL, dead_letters=[minute(5, 2, reason="nack-q-exceed-quota", replayed=2)])
    text = Reader(render(every, NOON)).text
    assert "pipeline replay" not in text
    assert "Of those that died, 2 were sent again, as new messages that count too." in text
    assert every.json()["replayed"] == 2


def test_without_dead_letters_there_is_nothing_to_replay() -> None:
    (found,) = advice(replace(NOTHING, dead_letters=[minute(0, 1, reason="nack-q-purged", dead_in=None)]))
    assert found.commands == ()
    assert found.do.endswith("there are no dead letters to send again.")


def test_of_many_queues_the_largest_are_shown_and_the_others_counted() -> None:
    many = replace(FULL, states=[state("received", number, f"queue {number}") for number in range(1, MOST_ROWS + 4)])
    text = Reader(render(many, NOON)).text
    assert f"queue {MOST_ROWS + 3}" in text
    assert "and 3 more queues with fewer messages" in text


@pytest.mark.parametrize(("left", "words"), [(1, "1 is no longer in it"), (2, "2 are no longer in it")])
def test_messages_that_left_their_queue_without_a_trace_are_counted(left: int, words: str) -> None:
    facts = replace(NOTHING, states=[state("reached", 3, left_queue=left)])
    assert words in Reader(render(facts, NOON)).text


def test_summary_of_one_message() -> None:
    assert summary(replace(NOTHING, states=[state("dead", 1)])) == "Of 1 message, 1 died."


def test_a_long_time_is_drawn_in_few_columns() -> None:
    year = [minute(number * 1000, 1) for number in range(500)]
    values = drawn_values(over_time(year, "minute", lambda row: "a", "messages"))
    assert 50 < len(values) <= MOST_SLOTS + 1
    assert sum(each["messages"] for each in values) == 500
    assert over_time([], "minute", lambda row: "a", "messages") is None


def test_beyond_the_colours_names_are_joined_and_their_messages_counted() -> None:
    rows = [minute(0, number, queue=f"queue {number}") for number in range(1, 21)]
    drawn = over_time(rows, "minute", lambda row: row["queue"], "messages")
    counted: Counter[str] = Counter()
    for each in drawn_values(drawn):
        counted[each["name"]] += each["messages"]
    assert len(counted) == MOST_NAMES + 1
    assert counted[OTHERS] == sum(range(1, 21 - MOST_NAMES))


def test_times_of_different_meaning_are_never_in_one_histogram() -> None:
    spreads: dict[str, Any] = {
        "reach_spread": [3, *[0] * len(BINS_S)],
        "receive_spread": [0, 5, *[0] * (len(BINS_S) - 1)],
    }
    rows = [speed("all", "all", 3) | {"until": "reach"}, speed("all", "all", 5)]
    facts = replace(NOTHING, states=[state("received", 5, **spreads)], latency=rows)
    found = [chart for chart in charts(Reader(render(facts, NOON))) if "bin" in str(chart)]
    totals = [[value["messages"] for value in drawn_values(chart)] for chart in found]
    assert totals == [[3], [5]]


def test_a_queue_that_nobody_reads_is_on_top() -> None:
    facts = replace(FULL, backlog=[depth(400_000, hours_before=2), depth(500_000, waits_s=7200)])
    first = advice(facts)[0]
    assert (first.where, first.messages, first.age_s) == (r"rome: private$\orders", 500_000, 7200)
    assert first.what == (
        "No program has the queue open, and none is known to have received from it. It has grown by 100,000 in 2 h."
    )
    assert first.commands == (r"postroad queue show 'private$\orders'",)
    assert Reader(render(facts, NOON)).text.index("500,000") < Reader(render(facts, NOON)).text.index("Dead: ")


@pytest.mark.parametrize(
    ("last_received", "readers", "words"),
    [
        (
            LATER - timedelta(hours=1),
            1,
            "The receiver has stopped: the last of 11 messages was received 1 h ago, after",
        ),
        (LATER - timedelta(seconds=5), 1, "Its receiver is too slow: the last message was received 5 s ago."),
        (None, 0, "No program has the queue open"),
        (None, 2, "2 programs with the queue open, but none is known to receive from it."),
    ],
)
def test_whether_a_backlog_has_a_receiver(last_received: datetime | None, readers: int, words: str) -> None:
    first = None if last_received is None else last_received - timedelta(minutes=10)
    received = state("received", 11, first_received_at=first, last_received_at=last_received)
    (found,) = advice(replace(NOTHING, states=[received], backlog=[depth(20, waits_s=1200, readers=readers)]))
    assert found.what.startswith(words)
    assert found.urgent


@pytest.mark.parametrize(("left", "departed"), [(500, 0), (0, 500), (500, 700), (300, 500)])
def test_what_left_a_queue_without_a_trace_was_taken_by_somebody(left: int, departed: int) -> None:
    facts = replace(
        NOTHING, states=[state("reached", 600, left_queue=left)], backlog=[depth(2000, readers=1, departed=departed)]
    )
    (found,) = (each for each in advice(facts) if each.messages == 2000)
    assert found.what.startswith(
        f"1 program has the queue open. {max(left, departed)} messages have left it, but nothing says when"
    )
    assert "none is known" not in found.what


@pytest.mark.parametrize(("messages", "waits_s", "found"), [(999, 599, 0), (1000, 0, 1), (1, 600, 1), (0, 0, 0)])
def test_few_messages_that_wait_shortly_are_no_finding(messages: int, waits_s: int, found: int) -> None:
    assert len(advice(replace(NOTHING, backlog=[depth(messages, waits_s=waits_s)]))) == found


def test_a_broken_service_level_comes_first() -> None:
    levels = [Attainment("a", 30.0, in_time=3, late=1), Attainment("b", 30.0, in_time=9)]
    found = advice(replace(FULL, backlog=[depth(500_000, waits_s=7200)], levels=levels))
    assert (found[0].where, found[0].messages) == ("a", 1)
    assert found[0].what == "Not received within 30 s: 1 received late; 75.0% were in time."
    assert "b" not in {each.where for each in found}


def test_outgoing_queues_that_are_stuck() -> None:
    stuck = depth(3, role="outgoing", stuck=True, why="the next hop refuses connections")
    (found,) = advice(replace(NOTHING, backlog=[stuck]))
    assert found.what == "They wait to leave rome. The next hop refuses connections."


def test_messages_in_queues_that_are_not_read_here() -> None:
    reached = state("reached", 4, first_reached_at=NOON)
    (found,) = advice(replace(NOTHING, states=[reached]))
    assert (found.where, found.messages, found.age_s) == (r"rome: private$\orders", 4, 3 * 3600)
    # they were read, and are not in their queue
    assert advice(replace(NOTHING, states=[reached], backlog=[depth(0)])) == []


def test_slow_routes_and_what_got_worse() -> None:
    slow = speed("route", "london -> rome") | {"until": "reach", "p90_s": 61.0, "p90_least_s": 60.0}
    assert advice(replace(NOTHING, latency=[slow | {"p90_least_s": 59.9}])) == []
    (found,) = advice(replace(NOTHING, latency=[slow], apis={"london": "http://london:8180"}))
    assert (found.where, found.commands) == ("london -> rome", ("postroad status --api http://london:8180",))
    worse = [period("now", receive_p90_s=12.9, receive_p90_least_s=12.0, died=5), period("before")]
    found_worse = [each.what for each in advice(replace(NOTHING, trend=worse))]
    assert found_worse == [
        "Slower than before: one in ten took more than 12 s in the last 1 h, 1 s in the 1 h before.",
        "More messages died than before: 5 in the last 1 h, 0 in the 1 h before.",
    ]
    assert (
        advice(
            replace(
                NOTHING, trend=[period("now", receive_p90_s=9.0, receive_p90_least_s=5.0, died=4), period("before")]
            )
        )
        == []
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0 s"), (0.42, "0.42 s"), (12.3, "12 s"), (90, "1.5 min"), (7200, "2 h"), (172_800, "2 d"), (None, "-")],
)
def test_seconds_as_people_say_them(value: float | None, text: str) -> None:
    assert seconds(value) == text


def test_requests_without_an_answer() -> None:
    pair = {"source": "london", "queue": "rome: q", "messages": 9, "answered": 6, "unanswered": 2, "died": 1}
    pair |= {
        "oldest_unanswered_at": LATER - timedelta(seconds=700),
        "oldest_unanswered": "{guid}\\7",
        "answered_by": "x",
    }
    pair |= {"response_p50_s": 1.0, "response_p90_s": 60.0, "response_p99_s": 61.0, "response_max_s": 62.0}
    (found,) = advice(replace(NOTHING, pairs=[pair]))
    assert (found.where, found.messages, found.age_s) == ("rome: q", 2, 700)
    assert found.commands == ("postroad trace '{guid}\\7'",)
    assert advice(replace(NOTHING, pairs=[pair | {"response_p90_s": 70.1}])) == []  # answers are seldom faster
    open_ones = {"unanswered": 0, "unknown": 3, "oldest_unanswered_at": None}
    assert advice(replace(NOTHING, pairs=[pair | open_ones])) == []
    assert "unknown" in Reader(render(replace(NOTHING, pairs=[pair | open_ones]), NOON)).text


def test_of_many_unusual_hours_of_a_queue_one_is_a_finding() -> None:
    hours = [
        Anomaly(LATER - timedelta(hours=number), "q", "volume", 100.0 * number, 9.0, 3.0, 5) for number in (1, 2, 30)
    ]
    facts = replace(NOTHING, unusual=hours)
    (found,) = advice(facts)
    assert found.what == "Unusual in the hour from 17 May 13:00: 200 messages, usually 9."
    assert not found.urgent
    assert Reader(render(facts, NOON)).text.count("usually 9") == 4


def message_type(value: str, messages: int) -> dict[str, Any]:
    row = {"kind": "type", "value": value, "messages": messages, "bytes": 100 * messages}
    return row | {"received": messages, "died": 0}


def test_message_types_are_shown_with_those_that_say_none_and_all_others() -> None:
    types = [message_type(f"Shop.Type{number}", 100 - number) for number in range(MOST_ROWS + 2)]
    last = sum(row["messages"] for row in types[MOST_ROWS:])
    known = sum(row["messages"] for row in types) + 7
    states = [state("received", known + 3), state("dead", 1)]
    found = replace(NOTHING, states=states, top=[*types, message_type("", 7)], latency=[speed("type", "Shop.Type0")])
    assert found.json()["types"]["Shop.Type0"] == 100
    page = render(found, NOON)
    cells = re.findall(r"<td[^>]*>(.*?)</td>", page.partition("Which message types")[2].partition("</table>")[0])
    rows = [cells[place : place + 8] for place in range(0, len(cells), 8)]
    assert rows[0] == ["Shop.Type0", "100", "9.8 KiB", "100", "0", "0.4 s", "2 s", "1.17 min"]
    assert [row[:2] for row in rows[MOST_ROWS:]] == [["no type", "7"], ["all others", str(last + 4)]]
    assert rows[-1][3:] == [str(last + 3), "1", "-", "-", "-"]
    assert "No message says its type." in render(replace(found, top=[message_type("", 7)]), NOON)


def told(facts: Facts, *thresholds: str) -> Reported:
    return Reported.of(facts, advice(facts), [threshold(each) for each in thresholds])


def test_what_has_changed_since_the_last_report() -> None:
    before = replace(NOTHING, states=[state("received", 5)], backlog=[depth(2000)])
    now = replace(FULL, states=[*FULL.states, state("received", 90)], before=told(before))
    text = Reader(render(now, NOON)).text
    section = text.partition("Since the last report")[2].partition("What waits in queues")[0]
    assert "messages known5101+96" in section
    assert "wait in queues2,0007-1,993" in section
    assert "it found its queue full" in section
    assert r"No longer a finding: rome: private$\orders" in section
    same = Reader(render(replace(FULL, before=told(FULL)), NOON)).text
    assert "Nothing has changed. Against the report as of 2024-05-17 15:00:00 UTC." in same
    assert "Since the last report" not in Reader(render(FULL, NOON)).text


def test_alerts_are_raised_above_a_threshold_and_told_once() -> None:
    now = told(FULL, "dead>1", "dead>2", "unexplained > 0", "waiting>7")
    assert now.alerts == {"dead>1", "unexplained>0"}
    assert changes(now, told(NOTHING, "dead>1")) == {"raised": ["dead>1", "unexplained>0"], "ended": []}
    assert changes(now, now) == {"raised": [], "ended": []}
    assert changes(told(NOTHING, "dead>1"), now) == {"raised": [], "ended": ["dead>1", "unexplained>0"]}
    replayed = replace(FULL, dead_letters=[minute(5, 2, reason="nack-q-exceed-quota", replayed=2)])
    assert told(replayed, "dead>0").alerts == frozenset()


@pytest.mark.parametrize("text", ["dead", "dead>", "deaths>3", "dead>-1", "dead>1.5", "dead<1"])
def test_a_threshold_is_a_figure_and_a_number(text: str) -> None:
    with pytest.raises(InvalidArgument, match="must be FIGURE>NUMBER"):
        threshold(text)


def test_days_and_weeks() -> None:
    days = [
        {
            "day": (NOON + timedelta(days=n)).date(),
            "messages": 10 + n,
            "received": 8,
            "dead": 1,
            "p50_s": 1.5,
            "p90_s": 9.0,
        }
        | {"p50_least_s": 0.5, "p90_least_s": 8.0}
        for n in range(20)
    ]
    page = render(replace(FULL, days=days), NOON)
    section = page.partition("Day by day")[2].partition("What was delivered")[0]
    cells = re.findall(r"<td[^>]*>(.*?)</td>", section)
    assert cells[:6] == ["2024-06-05", "29", "8", "1", "0.5 to 1.5 s", "8 to 9 s"]
    assert cells[6 * 14 :] == [
        *("week of 2024-06-03", "84", "24", "3", "week of 2024-05-27", "161", "56", "7"),
        *("week of 2024-05-20", "112", "56", "7", "week of 2024-05-13", "33", "24", "3"),
    ]
