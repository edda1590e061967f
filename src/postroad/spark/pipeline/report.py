"""The report: one self-contained HTML page. It says what to do, and then shows what was delivered, how fast, on which
route, and what was lost.

All text from messages is escaped. facts.py collects the figures, advice.py says what to do, and charts.py draws.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, time, timedelta
from html import escape
from typing import Any

from postroad.runtime.version import __version__
from postroad.spark.pipeline import charts
from postroad.spark.pipeline.advice import Advice, advice, anomaly_words, reason_words
from postroad.spark.pipeline.alerts import FIGURES, Reported
from postroad.spark.pipeline.facts import Facts, Row, latest, summed
from postroad.spark.pipeline.page import Page, details, faint, heading, table
from postroad.spark.pipeline.service_levels import Attainment
from postroad.spark.pipeline.silver import DEAD, OUTGOING, QUEUED, RECEIVED, SENT
from postroad.spark.pipeline.summaries import BINS_S
from postroad.spark.pipeline.trends import LIMIT, NORMAL
from postroad.spark.pipeline.words import age, between, counted, listed, moment, seconds, size

MOST_ROWS = 20  # in a table or a chart; the page says how many more there are
DAYS, WEEKS = 14, 12  # with a row of their own
MOST_CHOICES = 200  # in the list to choose a queue from
_WORDS = {
    "received": "received",
    "dead": "died",
    "reached": "reached their queue, not known to be received",
    "outgoing": "still on their way",
    "sent": "passed on, no report since",
    "mentioned": "only mentioned by others",
}
_ROLES = {QUEUED: "queue", OUTGOING: "outgoing", RECEIVED: "journal", SENT: "journal", DEAD: "dead letters"}
_BINS = (
    *(f"{seconds(low)} – {seconds(high)}" for low, high in zip((0.0, *BINS_S), BINS_S, strict=False)),
    f"over {seconds(BINS_S[-1])}",
)
_UNTIL = {"reach": "reached their queue", "receive": "were received"}
_NOWHERE = "no destination"
_BY = {"queue": "queue", "route": "route", "type": "message type", "priority": "priority"}


def render(facts: Facts, now: datetime) -> str:
    """Makes the page. `now` is the time of the report."""
    page = Page("Postroad: delivery report")
    found = advice(facts)
    _head(page, facts, now)
    _todo(page, facts, found)
    _since(page, facts, found)
    _choice(page, facts)
    _tiles(page, facts)
    for section in (
        _backlog,
        _levels,
        _trend,
        _days,
        _delivered,
        _types,
        _fast,
        _routes,
        _traffic,
        _lost,
        _unexplained,
    ):
        section(page, facts)
    for section in (_conversations, _unusual, _top, _undecodable):
        section(page, facts)
    _reading(page, facts)
    return page.html()


# Sections, in order


def _head(page: Page, facts: Facts, now: datetime) -> None:
    first, last = facts.period
    period = "no message has a time" if first is None else f"messages sent {moment(first)} to {moment(last)}"
    looked = f"; queues as of {moment(facts.as_of)}" if facts.backlog else ""
    lines = f"{period} UTC; read from {', '.join(facts.managers)}{looked}; made {moment(now)} UTC"
    page.add(f"<h1>Delivery report</h1>{faint(lines)}", f'<p class="lead">{escape(summary(facts))}</p>')


def summary(facts: Facts) -> str:
    """Summarizes the report in two or three sentences."""
    states = facts.by_state
    if not facts.messages:
        return "No message is known yet."
    counts = [f"{states[state]:,} {_WORDS[state]}" for state in states]
    speed = facts.overall("receive")
    fast = (
        ""
        if speed is None
        else f" Half were received within {_within(speed, 'p50')}, all within {_within(speed, 'max')}."
    )
    waiting = f" {counted(facts.waiting, 'message')} in queues wait for a receiver." if facts.waiting else ""
    return f"Of {counted(facts.messages, 'message')}, {listed(counts)}.{_sent_again(facts)}{waiting}{fast}"


def _sent_again(facts: Facts) -> str:
    again = facts.replayed.total()
    if not again:
        return ""
    words = "was sent again, as a new message that" if again == 1 else "were sent again, as new messages that"
    return f" Of those that died, {again:,} {words} count{'s' if again == 1 else ''} too."


def _within(row: Mapping[str, Any], name: str) -> str:
    """The bounds of a percentile of latency."""
    return between(row.get(f"{name}_least_s"), row.get(f"{name}_s"))


def _todo(page: Page, facts: Facts, found: Sequence[Advice]) -> None:
    if not found:
        text = "Nothing: no queue waits for its receiver, and every message that asked for an acknowledgment has one."
        page.section("What to do", f"{text}{_sent_again(facts)}")
        return
    items = "".join(map(_item, found[:MOST_ROWS]))
    more = faint(f"and {counted(len(found) - MOST_ROWS, 'more')}, less urgent") if len(found) > MOST_ROWS else ""
    page.section("What to do", "", f'<ol class="todo">{items}</ol>{more}')


def _item(each: Advice) -> str:
    since = "" if each.age_s is None else f" for <b>{escape(seconds(each.age_s))}</b>"
    word = "message" if each.messages == 1 else "messages"
    figures = f'<span class="figures"><b>{each.messages:,}</b> {word}{since}</span>'
    commands = "".join(f"<code>{escape(command)}</code>" for command in each.commands)
    return (
        f'<li{" class=urgent" if each.urgent else ""}>{figures}<span class="where">{escape(each.where)}</span>'
        f"<p>{escape(each.what)}</p><p>{escape(each.do)}</p>{commands}</li>"
    )


def _since(page: Page, facts: Facts, found: Sequence[Advice]) -> None:
    """What has changed since the last report."""
    if facts.before is None:
        return
    now, before = Reported.of(facts, found), facts.before
    rows = [
        (words, before.figures[name], now.figures[name], f"{now.figures[name] - before.figures[name]:+,}")
        for name, words in FIGURES.items()
        if now.figures[name] != before.figures[name]
    ]
    fresh = [each for each in found if (each.where, each.do) not in before.findings]
    gone = sorted({where for where, do in before.findings - now.findings})
    items = "".join(f"<li><b>{escape(each.where)}</b>: {escape(each.what)}</li>" for each in fresh[:MOST_ROWS])
    made = table(("", "then", "now", "change"), rows, numbers={1, 2, 3}) if rows else ""
    made += f"{heading('New findings')}<ul>{items}</ul>" if items else ""
    made += faint(f"No longer a finding: {', '.join(gone[:MOST_ROWS])}") if gone else ""
    text = f"Against the report as of {moment(datetime.fromisoformat(before.as_of))} UTC."
    page.section("Since the last report", text if made else f"Nothing has changed. {text}", made)


def _choice(page: Page, facts: Facts) -> None:
    """The list to choose the queue that all charts and tables show."""
    totals = summed(facts.states, "queue")
    for row in facts.queues:
        if row["role"] == QUEUED:
            totals[row["called"]] += 0
    names = [queue for queue, _ in totals.most_common(MOST_CHOICES) if queue]
    if len(names) > 1:
        options = "".join(f'<option value="{escape(name)}">{escape(name)}</option>' for name in names)
        select = f'<select id="queue"><option value="">all queues</option>{options}</select>'
        page.add(
            f'<label class="choice">Show {select} in the charts and tables; a click on a bar does the same.</label>'
        )


def _tiles(page: Page, facts: Facts) -> None:
    states = facts.by_state
    speed = facts.overall("receive")
    dead, unexplained, again = states.get("dead", 0), facts.total("unexplained"), facts.replayed.total()
    received = states.get("received", 0)
    tiles = [
        ("", f"{facts.messages:,}", "messages known"),
        ("good", f"{received:,}", f"received{_share(received, facts.messages)}"),
        ("", f"{facts.waiting:,}" if facts.backlog else "-", "wait in queues"),
        ("bad" if dead > again else "good", f"{dead:,}", f"died, {again:,} sent again" if again else "died"),
        ("warn" if unexplained else "good", f"{unexplained:,}", "unexplained"),
        ("", "-" if speed is None else _within(speed, "p50"), "half received within"),
        ("", "-" if speed is None else _within(speed, "p99"), "99 % received within"),
        _fault(facts.total("duplicates"), "duplicates"),
        _fault(facts.total("out_of_order"), "out of order"),
        _fault(facts.undecodable, "packets not decoded"),
    ]
    made = "".join(
        f'<div class="tile {kind}"><b>{escape(value)}</b><span>{escape(name)}</span></div>'
        for kind, value, name in tiles
    )
    page.add(f'<div class="tiles">{made}</div>')


def _fault(count: int, name: str) -> tuple[str, str, str]:
    return ("bad" if count else "good", f"{count:,}", name)


def _backlog(page: Page, facts: Facts) -> None:
    full = [row for row in facts.queues if row["messages"]]
    if not full:
        page.section("What waits in queues", "No queue that was read holds a message.")
        return
    shown = {row["called"] for row in full if row["role"] in (QUEUED, OUTGOING)}
    lines = charts.depths([row for row in facts.backlog if row["called"] in shown])
    rows = [
        (
            *(row["called"], _ROLES[row["role"]], row["messages"]),
            *(seconds(age(row["oldest_at"], row["looked_at"])), _grown(row), row["readers"]),
            moment(latest([each for each in facts.states if each["queue"] == row["called"]], "last_received_at")),
        )
        for row in full[:MOST_ROWS]
    ]
    names = ("queue", "kind", "messages", "first to receive waits", "grown by", "open handles", "last received, UTC")
    made = table(names, rows, numbers={2, 3, 4, 5}, queue=0)
    text = "The queues of the managers when the pipeline last looked. Growth is since the first look in the day before."
    page.section(
        "What waits in queues", text, page.chart(lines, "messages in queues over time"), made + _left_out(full, "queue")
    )


def _grown(row: Row) -> str:
    return "-" if row["grown"] is None else f"{row['grown']:+,} in {seconds(row['grown_s'])}"


def _levels(page: Page, facts: Facts) -> None:
    if not facts.levels:
        return
    rows = [
        (
            *(each.queue, seconds(each.limit_s), shares(each)),
            *(each.in_time, each.unclear, each.late, each.overdue, each.died, each.waiting, each.unknown),
        )
        for each in facts.levels
    ]
    counts = ("received in time", "in time or late", "late", "overdue", "died", "still in time", "unknown")
    text = (
        "The time from the send until a message is received. A packet says the second of its send, not more: a message "
        "is late only if it is late in any case. Unknown are those that left their queue without a copy in a journal "
        "or an acknowledgment."
    )
    names = ("queue", "limit", "in time", *counts)
    page.section("Service levels", text, table(names, rows, numbers=set(range(1, 10)), queue=0))


def _trend(page: Page, facts: Facts) -> None:
    overall = facts.compared("all")
    if not overall:
        page.section("Against the period before", "The messages cover too short a time to compare two periods.")
        return
    now = overall[0][0]
    span = seconds(age(now["since"], now["until"]))
    names = ("", "sent", "before", "received", "before", "died", "before", "90 % received within", "before")
    numbers = set(range(1, 9))
    made = table(names, [_compared("all messages", *overall[0])], numbers=numbers)
    for by, name in _BY.items():
        if not (pairs := facts.compared(by)):
            continue
        rows = [_compared(each["value"], each, before) for each, before in pairs[:MOST_ROWS]]
        made += heading(f"By {name}") + table(names, rows, numbers=numbers, queue=0 if by == "queue" else None)
        made += _left_out(pairs, name)
    text = f"The last {span}, up to {moment(now['until'])} UTC, against the {span} before."
    page.section("Against the period before", text, made)


def _compared(name: str, now: Row, before: Row | None) -> tuple[object, ...]:
    earlier: Mapping[str, Any] = before or {"sent": 0, "received": 0, "died": 0, "receive_p90_s": None}
    pairs = [(now[column], earlier[column]) for column in ("sent", "received", "died")]
    slow = (_within(now, "receive_p90"), _within(earlier, "receive_p90"))
    return (name, *(each for pair in pairs for each in pair), *slow)


def _days(page: Page, facts: Facts) -> None:
    """Trends over days, and over weeks if there are several."""
    days = facts.days
    if len(days) < 2:
        return
    values = []
    for row in days:
        start = datetime.combine(row["day"], time.min, UTC)
        counts = {"received": row["received"], "died": row["dead"]}
        counts["neither"] = row["messages"] - sum(counts.values())
        values += [{"day": start, "state": state, "messages": count} for state, count in counts.items() if count]
    drawn = page.chart(charts.over_time(values, "day", lambda row: row["state"], "messages"), "messages by day")
    names = ("", "messages", "received", "died", "half received within", "90 % within")
    shown = days[-DAYS:]
    made = table(("day", *names[1:]), [_day(str(row["day"]), row) for row in reversed(shown)], numbers=set(range(1, 6)))
    weeks: dict[str, list[Row]] = {}
    for row in days:
        weeks.setdefault(str(row["day"] - timedelta(days=row["day"].weekday())), []).append(row)
    if len(weeks) > 2:
        sums = [
            (f"week of {monday}", *(sum(row[name] for row in some) for name in ("messages", "received", "dead")))
            for monday, some in sorted(weeks.items(), reverse=True)[:WEEKS]
        ]
        made += heading("By week") + table(names[:4], sums, numbers=set(range(1, 4)))
    text = "Messages by the day of their send (UTC), and what became of them since."
    page.section("Day by day", text, drawn + made)


def _day(name: str, row: Row) -> tuple[object, ...]:
    return (name, row["messages"], row["received"], row["dead"], _within(row, "p50"), _within(row, "p90"))


def _delivered(page: Page, facts: Facts) -> None:
    states = list(facts.by_state)
    by_queue = summed(facts.states, "queue", "state")
    totals = summed(facts.states, "queue")
    queues = [queue for queue, _ in totals.most_common(MOST_ROWS)]
    values = [
        {"queue": queue or _NOWHERE, "kind": state, "messages": by_queue[queue, state]}
        for queue in queues
        for state in states
        if by_queue[queue, state]
    ]
    drawn = (
        page.chart(charts.bars(values, {state: _WORDS[state] for state in states}, "messages"), "messages by queue")
        if values
        else ""
    )
    rows = [(queue or _NOWHERE, *(by_queue[queue, state] for state in states), totals[queue]) for queue in queues]
    figures = table(
        ("queue", *(_WORDS[state] for state in states), "all"), rows, numbers=set(range(1, len(states) + 2)), queue=0
    )
    text = "Messages by destination queue and by their last known state."
    if left := sum(row.get("left_queue") or 0 for row in facts.states if row["state"] == "reached"):
        gone = f"{left:,} {'is' if left == 1 else 'are'} no longer in it"
        text += f" Of those that reached their queue, {gone}, and no copy or acknowledgment says why."
    page.section("What was delivered", text, drawn + _left_out(totals, "queue") + details("Figures", figures))


def _types(page: Page, facts: Facts) -> None:
    title = "Which message types"
    found = facts.types
    if not any(row["value"] for row in found):
        page.section(title, "No message says its type.")
        return
    named = [row for row in found if row["value"]]
    shown = named[:MOST_ROWS] + [row for row in found if row["value"] == ""]
    if rest := [row for row in found if row not in shown]:
        sums = {name: sum(row[name] for row in rest) for name in ("messages", "received", "died", "bytes")}
        shown = [*shown, {"value": None} | sums]
    speeds = {row["value"]: row for row in facts.speed("type")}
    rows = []
    for row in shown:
        value = row["value"]
        speed = speeds.get(value, {})
        name = "all others" if value is None else value or "no type"
        times = (_within(speed, each) for each in ("p50", "p90", "p99"))
        rows.append((name, row["messages"], size(row["bytes"]), row["received"], row["died"], *times))
    names = (
        "message type",
        "messages",
        "size",
        "received",
        "died",
        "half received within",
        "90 % within",
        "99 % within",
    )
    text = (
        "What headers and bodies say: the class of an object, the root of XML, or the type that NServiceBus, Rebus, "
        "MassTransit or WCF has written."
    )
    page.section(title, text, table(names, rows, numbers=set(range(1, 8))))


def _fast(page: Page, facts: Facts) -> None:
    text = (
        "A packet says the second of its send, not more, so each time has two bounds; charts show the upper ones. The "
        "difference of the clocks of two managers is in both."
    )
    cards = []
    for until, words in _UNTIL.items():
        overall = facts.overall(until)
        if overall is None:
            continue
        values = [
            {"queue": row["queue"] or _NOWHERE, "bin": name, "messages": count}
            for row in facts.states
            for name, count in zip(_BINS, row[f"{until}_spread"] or (), strict=False)
            if count
        ]
        colour = charts.STATE_COLOURS["reached" if until == "reach" else "received"]
        drawn = page.chart(charts.spread(_joined(values), _BINS, "messages", colour), f"seconds until messages {words}")
        made = heading(f"Time until messages {words}: {counted(overall['messages'], 'message')}") + drawn
        for by, name in _BY.items():
            if not (rows := facts.speed(by, until)):
                continue
            chart = page.chart(charts.percentiles(rows[:MOST_ROWS], by), f"percentiles by {name}")
            figures = [
                (row["value"], row["messages"], *(_within(row, each) for each in ("p50", "p90", "p99", "max")))
                for row in rows[:MOST_ROWS]
            ]
            names = (name, "messages", "half within", "90 % within", "99 % within", "longest")
            listed_rows = table(names, figures, numbers=set(range(1, 6)), queue=0 if by == "queue" else None)
            content = chart + _left_out(rows, name) + details("Figures", listed_rows)
            made += heading("By queue") + content if by == "queue" else details(f"By {name}", content)
        cards.append(made)
    page.section("How fast", text if cards else "No message is known to have arrived.", *cards)


def _joined(values: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Merges the values of each queue and bin."""
    counts = summed(values, "queue", "bin")
    return [{"queue": queue, "bin": name, "messages": count} for (queue, name), count in counts.items()]


def _routes(page: Page, facts: Facts) -> None:
    ends = ("source", "destination", "source_site", "destination_site")
    totals = summed(facts.states, *ends)
    received = summed([row for row in facts.states if row["state"] == "received"], *ends)
    reporters: dict[Any, list[str]] = {}
    hops: dict[Any, int] = {}
    for row in facts.states:
        key = tuple(row[end] for end in ends)
        reporters[key] = max(reporters.get(key, []), row["a_way"] or [])
        hops[key] = max(hops.get(key, 0), row["most_hops"] or 0)
    rows = [
        (
            _placed(key[0], key[2]),
            _placed(key[1], key[3]),
            count,
            received[key],
            hops[key],
            " → ".join(reporters.get(key, ())) or "-",
        )
        for key, count in totals.most_common(MOST_ROWS)
    ]
    made = table(("from", "to", "messages", "received", "most hops seen", "reported by"), rows, numbers={2, 3, 4})
    made += _left_out(totals, "route")
    links = ""
    if facts.links:
        by_link = summed(facts.links, "site_a", "site_b")
        sizes = summed(facts.links, "site_a", "site_b", what="bytes")
        shown = [(" – ".join(link), count, size(sizes[link])) for link, count in by_link.most_common(MOST_ROWS)]
        links = heading("Routing links, by the routes of the directory")
        links += table(("link", "messages", "size"), shown, numbers={1, 2})
    text = "Routes between managers. Traced messages also show the managers that they passed."
    page.section("Which routes", text, made, links)


def _traffic(page: Page, facts: Facts) -> None:
    rows = [row | {"queue": row["queue"] or _NOWHERE} for row in facts.traffic]
    drawn = charts.over_time(rows, "minute", lambda row: str(row["queue"]), "messages")
    total = sum(row["bytes"] for row in facts.traffic)
    text = f"Messages by the time of the send and by destination; {size(total)} in total."
    page.section("How much, and when", text, page.chart(drawn, "messages over time"))


def _lost(page: Page, facts: Facts) -> None:
    if not facts.dead_letters:
        page.section("What was lost, and why", "No message died.")
        return
    words = {reason: f"{reason_words(reason)} ({reason})" for reason in facts.reasons}
    drawn = charts.over_time(facts.dead_letters, "minute", lambda row: words[row["reason"]], "dead messages")
    why = table(
        ("reason", "messages"), [(words[reason], count) for reason, count in facts.reasons.items()], numbers={1}
    )
    senders = summed(facts.dead_letters, "source", "queue", "reason")
    again = summed(facts.dead_letters, "source", "queue", "reason", what="replayed")
    rows = [(*key, count, again[key]) for key, count in senders.most_common(MOST_ROWS)]
    names = ("from", "to", "reason", "messages", "sent again")
    whose = heading("Whose messages died") + table(names, rows, numbers={3, 4}, queue=1) + _left_out(senders, "row")
    text = "Dead letters and negative acknowledgments, by the reason that the manager gave."
    page.section("What was lost, and why", text, page.chart(drawn, "dead messages over time") + why, whose)


def _unexplained(page: Page, facts: Facts) -> None:
    title = "The oldest messages without a report"
    if not facts.oldest:
        text = (
            "None: every transactional message, and every message that asked for an acknowledgment, is accounted for."
        )
        page.section(title, text)
        return
    rows = [
        (moment(row["sent_at"]), row["label"], row["source"], row["queue"], row["asked"], row["id"])
        for row in facts.oldest[:MOST_ROWS]
    ]
    made = table(("sent", "label", "from", "to", "acknowledgment", "id"), rows, queue=3)
    more = facts.total("unexplained") - len(rows)
    text = (
        "They left their sender, and are transactional or asked for an acknowledgment. Nothing has been reported since."
    )
    page.section(title, text, made + (faint(f"and {counted(more, 'more')}") if more > 0 else ""))


def _conversations(page: Page, facts: Facts) -> None:
    title = "Who asks whom, and who answers"
    if not facts.pairs:
        page.section(title, "No message names a response queue.")
        return
    ordered = sorted(facts.pairs, key=lambda row: (-row["unanswered"], -row["messages"]))
    rows = [
        (
            *(row["source"], row["queue"], row["messages"], row["answered"], row["unanswered"]),
            *(row.get("unknown") or 0, row["died"]),
            *(_within(row, f"response_{each}") for each in ("p50", "p90", "max")),
            row["answered_by"],
        )
        for row in ordered[:MOST_ROWS]
    ]
    counts = ("from", "to", "requests", "answered", "unanswered", "unknown", "died")
    times = ("half answered within", "90 % within", "longest", "answered by")
    made = table((*counts, *times), rows, numbers=set(range(2, 10)), queue=1) + _left_out(ordered, "row")
    longest = [
        (
            *(row["label"], row["source"], moment(row["sent_at"]), row["steps"], row["followers"]),
            between(row.get("least_seconds"), row["seconds"]),
        )
        for row in facts.chains[:MOST_ROWS]
        if row["steps"] > 1
    ]
    columns = ("first message", "from", "sent, UTC", "answers in a row", "messages", "took")
    chained = heading("The longest chains of answers") + table(columns, longest, numbers={3, 4, 5}) if longest else ""
    text = (
        "A request names a response queue; its answer has the request's id as correlation id. Unknown are requests "
        "whose answer may have been taken without a trace: the response queue has no journal that the pipeline reads."
    )
    page.section(title, text, made, chained)


def _unusual(page: Page, facts: Facts) -> None:
    rows = [
        (moment(each.hour), each.queue, anomaly_words(each), f"{each.deviation:,.1f}", f"{each.times:+,.0f}")
        for each in facts.unusual[:MOST_ROWS]
    ]
    text = (
        "Each hour of a queue is compared with the median of all its hours. It is unusual if it is more than "
        f"{LIMIT:.0f} deviations away. A deviation is {NORMAL} times the median distance from the median, and at least "
        "the square root of the median."
    )
    names = ("hour, UTC", "queue", "what", "a deviation", "deviations away")
    more = faint(f"and {counted(len(facts.unusual) - MOST_ROWS, 'more')}") if len(facts.unusual) > MOST_ROWS else ""
    made = table(names, rows, numbers={3, 4}, queue=1) + more if rows else ""
    page.section("Unusual hours", text if rows else f"None. {text}", made)


def _top(page: Page, facts: Facts) -> None:
    cards = []
    for kind, title in (("label", "Labels, with # for digits"), ("sender", "Senders")):
        found = sorted((row for row in facts.top if row["kind"] == kind), key=lambda row: -row["messages"])
        rows = [
            (row["value"], row["messages"], row["received"], row["died"], size(row["bytes"]))
            for row in found[:MOST_ROWS]
        ]
        names = (kind, "messages", "received", "died", "size")
        cards.append(heading(title) + table(names, rows, numbers={1, 2, 3, 4}) if rows else "")
    page.section("The most frequent", "", *cards)


def _undecodable(page: Page, facts: Facts) -> None:
    if not facts.faults:
        page.section("Packets that did not decode", "None.")
        return
    rows = [
        (row["packets"], row["manager"], row["queue"], row["error"], row["lookup_id"], row["head"])
        for row in sorted(facts.faults, key=lambda row: -row["packets"])[:MOST_ROWS]
    ]
    names = ("packets", "manager", "queue", "what is wrong", "lookup id of one", "its first bytes")
    text = "Bronze keeps them unchanged. The other sections of this report do not count them."
    page.section("Packets that did not decode", text, table(names, rows, numbers={0}))


def _reading(page: Page, facts: Facts) -> None:
    text = (
        "The report finds a message by its copies in journals, dead-letter and other queues, by acknowledgments and "
        "by trace reports. A message without a copy, an acknowledgment or a report is "
        "not counted. A message that is in a queue when the queue is read counts as having reached it. "
        f"Tables up to batch {facts.batch}; Postroad {__version__}."
    )
    page.section("How to read this", text)


# Helpers


def shares(level: Attainment) -> str:
    """The share of messages in time, in per cent, or its bounds."""
    found = [f"{share:.2%}" for share in level.shares or ()]
    return " to ".join(dict.fromkeys(found)) or "-"


def _left_out(totals: Sequence[Any] | Counter[Any], what: str) -> str:
    more = len(totals) - MOST_ROWS
    return faint(f"and {counted(more, f'more {what}')} with fewer messages") if more > 0 else ""


def _placed(name: str | None, site: str | None) -> str:
    return f"{name or 'unknown'} ({site})" if site else name or "unknown"


def _share(part: int, whole: int) -> str:
    return f", {part / whole:.1%}" if whole else ""
