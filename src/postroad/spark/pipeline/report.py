"""The report: one self-contained HTML page. It shows what was delivered, how fast, on which route, and what was lost.

All text from messages is escaped. facts.py collects the figures, advice.py says what to do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from importlib.resources import files
from typing import Any

from postroad.spark.pipeline.advice import advice, reason_words
from postroad.spark.pipeline.facts import Facts, Row, summed
from postroad.spark.pipeline.plots import Bar, bars, columns, histogram, seconds, spans
from postroad.spark.pipeline.summaries import BINS_S
from postroad.version import __version__

MOST_ROWS = 20  # of a table or a plot; what is left out is counted
_KINDS = 6  # colours of the style sheet for things without a fixed colour
_WORDS = {
    "received": "received",
    "dead": "died",
    "reached": "reached their queue, not yet received",
    "outgoing": "still on their way",
    "sent": "passed on, no report since",
    "mentioned": "only mentioned by others",
}
_NOWHERE = "no destination"
_PERCENTILES = ("p50", "p90", "p99")


def render(facts: Facts, now: datetime) -> str:
    """The page. `now` is the time of the report."""
    sections = (_tiles, _todo, _delivered, _fast, _routes, _traffic, _lost, _unexplained, _undecodable, _reading)
    parts = [_head(facts, now), *(section(facts) for section in sections)]
    style = files("postroad.spark.pipeline").joinpath("report.css").read_text()
    meta = '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
    title = "<title>Postroad: delivery report</title>"
    head = f"<head>{meta}{title}<style>{style}</style></head>"
    return f'<!doctype html>\n<html lang="en">{head}<body><main>{"".join(parts)}</main></body></html>\n'


# Sections, in order


def _head(facts: Facts, now: datetime) -> str:
    first, last = facts.period
    period = "no message has a time" if first is None else f"messages sent {_time(first)} to {_time(last)}"
    read = ", ".join(facts.managers)
    lines = f"{period} UTC; read from {read}; made {_time(now)} UTC"
    return f'<h1>Delivery report</h1><p class="faint">{escape(lines)}</p><p class="lead">{escape(summary(facts))}</p>'


def summary(facts: Facts) -> str:
    """A summary in two or three sentences."""
    states = facts.by_state
    if not facts.messages:
        return "No message is known yet."
    counts = [f"{states[state]:,} {_WORDS[state]}" for state in states]
    speed = facts.overall("receive")
    fast = (
        ""
        if speed is None
        else f" Half were received within {seconds(speed['p50_s'])}, all within {seconds(speed['max_s'])}."
    )
    return f"Of {_count(facts.messages, 'message')}, {_listed(counts)}.{_sent_again(facts)}{fast}"


def _sent_again(facts: Facts) -> str:
    again = facts.replayed.total()
    return f" Of those that died, {again:,} {'was' if again == 1 else 'were'} sent again." if again else ""


def _tiles(facts: Facts) -> str:
    states = facts.by_state
    speed = facts.overall("receive")
    dead, unexplained, again = states.get("dead", 0), facts.total("unexplained"), facts.replayed.total()
    tiles = [
        ("", f"{facts.messages:,}", "messages known"),
        ("good", f"{states.get('received', 0):,}", f"received{_share(states.get('received', 0), facts.messages)}"),
        ("bad" if dead > again else "good", f"{dead:,}", f"died, {again:,} sent again" if again else "died"),
        ("warn" if unexplained else "good", f"{unexplained:,}", "unexplained"),
        ("", "-" if speed is None else seconds(speed["p50_s"]), "half received within"),
        ("", "-" if speed is None else seconds(speed["p99_s"]), "99 of 100 within"),
        _fault(facts.total("duplicates"), "duplicates"),
        _fault(facts.total("out_of_order"), "out of order"),
        _fault(facts.undecodable, "packets not decoded"),
    ]
    made = "".join(
        f'<div class="tile {kind}"><b>{escape(value)}</b><span>{escape(name)}</span></div>'
        for kind, value, name in tiles
    )
    return f'<div class="tiles">{made}</div>'


def _fault(count: int, name: str) -> tuple[str, str, str]:
    return ("bad" if count else "good", f"{count:,}", name)


def _todo(facts: Facts) -> str:
    found = advice(facts)
    if not found:
        text = f"Nothing: every message that asked for an acknowledgment has one.{_sent_again(facts)}"
        return _section("What to do", text, "")
    items = "".join(
        f'<li><span class="count">{escape(each.what)}</span> {escape(each.do)}'
        + "".join(f"<br><code>{escape(command)}</code>" for command in each.commands)
        + "</li>"
        for each in found
    )
    return _section("What to do", "", f'<ol class="todo">{items}</ol>')


def _delivered(facts: Facts) -> str:
    states = list(facts.by_state)
    by_queue = summed(facts.states, "queue", "state")
    totals = summed(facts.states, "queue")
    rows = [
        Bar(queue or _NOWHERE, {state: by_queue[queue, state] for state in states})
        for queue, _ in totals.most_common(MOST_ROWS)
    ]
    legend = _legend({state: f"{_WORDS[state]} ({facts.by_state[state]:,})" for state in states})
    text = "Messages by destination queue and by their last known state."
    return _section("What was delivered", text, legend + bars(rows, "messages") + _left_out(totals, "queue"))


def _fast(facts: Facts) -> str:
    if not facts.overall("receive") and not facts.overall("reach"):
        return _section("How fast", "No message is known to have arrived.", "")
    names = [f"≤ {seconds(each)}" for each in BINS_S] + [f"> {seconds(BINS_S[-1])}"]
    parts = ["<h3>All messages</h3>", histogram(names, facts.spread, "received", "messages")]
    legend = _legend({each: f"{each[1:]} of 100 within" for each in _PERCENTILES})
    for by in ("queue", "route", "priority"):
        rows = facts.speed(by) or facts.speed(by, "reach")
        drawn = [
            (
                row["value"],
                [row[f"{each}_s"] for each in _PERCENTILES],
                f"{seconds(row['p50_s'])}, {_count(row['messages'], 'message')}",
            )
            for row in rows[:MOST_ROWS]
        ]
        parts += [f"<h3>By {by}</h3>", legend, spans(drawn, _PERCENTILES)]
    text = (
        "The time from the send until a message was received, or reached its queue if no more is known. "
        "Packets have whole seconds, and two clocks take part: these figures are exact to a second."
    )
    return _section("How fast", text, "".join(parts))


def _routes(facts: Facts) -> str:
    ends = ("source", "destination", "source_site", "destination_site")
    totals = summed(facts.states, *ends)
    received = summed([row for row in facts.states if row["state"] == "received"], *ends)
    reporters = {tuple(row[end] for end in ends): row["a_way"] for row in facts.states if row["a_way"]}
    hops: dict[Any, int] = {}
    for row in facts.states:
        key = tuple(row[end] for end in ends)
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
    made = _table(("from", "to", "messages", "received", "most hops seen", "reported by"), rows, numbers={2, 3, 4})
    made += _left_out(totals, "route")
    if facts.links:
        by_link = summed(facts.links, "site_a", "site_b")
        size = summed(facts.links, "site_a", "site_b", what="bytes")
        drawn = [
            Bar(" – ".join(link), {"reached": count}, f"{_count(count, 'message')}, {_size(size[link])}")
            for link, count in by_link.most_common(MOST_ROWS)
        ]
        made += f"<h3>Routing links, by the routes of the directory</h3>{bars(drawn, 'messages')}"
    text = "Routes between managers. Traced messages also show the managers that they passed."
    return _section("Which routes", text, made)


def _traffic(facts: Facts) -> str:
    queues = [queue or _NOWHERE for queue, _ in summed(facts.traffic, "queue").most_common()]
    named = _coloured(queues, "q")
    made = _legend_of(named) + _by_minute(facts.traffic, named, lambda row: row["queue"] or _NOWHERE)
    size = sum(row["bytes"] for row in facts.traffic)
    return _section(
        "How much, and when", f"Messages by the time of the send and by destination; {_size(size)} in total.", made
    )


def _lost(facts: Facts) -> str:
    if not facts.dead_letters:
        return _section("What was lost, and why", "No message died.", "")
    named = _coloured(list(facts.reasons), "k")
    words = {reason: f"{reason_words(reason)} ({reason}): {count:,}" for reason, count in facts.reasons.items()}
    made = _legend_of(named, words) + _by_minute(facts.dead_letters, named, lambda row: row["reason"])
    senders = summed(facts.dead_letters, "source", "queue", "reason")
    again = summed(facts.dead_letters, "source", "queue", "reason", what="replayed")
    rows = [(*key, count, again[key]) for key, count in senders.most_common(MOST_ROWS)]
    names = ("from", "to", "reason", "messages", "sent again")
    made += "<h3>Whose messages died</h3>" + _table(names, rows, numbers={3, 4})
    text = "Dead letters and negative acknowledgments, by the reason that the manager gave."
    return _section("What was lost, and why", text, made + _left_out(senders, "row"))


def _unexplained(facts: Facts) -> str:
    if not facts.oldest:
        text = (
            "None: every transactional message, and every message that asked for an acknowledgment, is accounted for."
        )
        return _section("The oldest messages without a report", text, "")
    rows = [
        (_time(row["sent_at"]), row["label"], row["source"], row["queue"], row["asked"], row["id"])
        for row in facts.oldest[:MOST_ROWS]
    ]
    made = _table(("sent", "label", "from", "to", "acknowledgment", "id"), rows)
    more = facts.total("unexplained") - len(rows)
    made += f'<p class="faint">and {_count(more, "more")}</p>' if more > 0 else ""
    text = (
        "They left their sender, and are transactional or asked for an acknowledgment. Nothing has been reported since."
    )
    return _section("The oldest messages without a report", text, made)


def _undecodable(facts: Facts) -> str:
    if not facts.faults:
        return _section("Packets that did not decode", "None.", "")
    rows = [
        (row["packets"], row["manager"], row["queue"], row["error"], row["lookup_id"], row["head"])
        for row in sorted(facts.faults, key=lambda row: -row["packets"])[:MOST_ROWS]
    ]
    names = ("packets", "manager", "queue", "what is wrong", "lookup id of one", "its first bytes")
    text = "Bronze keeps them unchanged. The other sections of this report do not count them."
    return _section("Packets that did not decode", text, _table(names, rows, numbers={0}))


def _reading(facts: Facts) -> str:
    text = (
        "The report finds a message by its copies in journals, dead-letter and other queues, by acknowledgments and "
        "by trace reports. A message without a copy, an acknowledgment or a report is "
        "not counted. A message that is in a queue when the queue is read counts as having reached it. "
        f"Tables up to batch {facts.batch}; Postroad {__version__}."
    )
    return _section("How to read this", text, "")


# Pieces


def _section(title: str, text: str, content: str) -> str:
    paragraph = f"<p>{escape(text)}</p>" if text else ""
    card = f"<div class=card>{content}</div>" if content else ""
    return f"<section><h2>{escape(title)}</h2>{paragraph}{card}</section>"


def _table(
    names: Sequence[str], rows: Iterable[Sequence[object]], numbers: set[int] | frozenset[int] = frozenset()
) -> str:
    def cells(values: Sequence[object], tag: str) -> str:
        kinds = [' class="number"' if place in numbers else "" for place in range(len(values))]
        return "".join(
            f"<{tag}{kind}>{escape(_cell(value))}</{tag}>" for kind, value in zip(kinds, values, strict=True)
        )

    body = "".join(f"<tr>{cells(row, 'td')}</tr>" for row in rows)
    return f"<table><thead><tr>{cells(names, 'th')}</tr></thead><tbody>{body}</tbody></table>"


def _cell(value: object) -> str:
    if value is None or value == "":
        return "-"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _legend(kinds: Mapping[str, str]) -> str:
    items = "".join(f'<li><i class="{escape(kind)}"></i>{escape(name)}</li>' for kind, name in kinds.items())
    return f'<ul class="legend">{items}</ul>'


def _coloured(names: Sequence[str], scale: str) -> dict[str, str]:
    """A colour for each of the first names; the others share the last. `k` is for bad things, `q` for others."""
    return {name: f"{scale}{min(place, _KINDS - 1)}" for place, name in enumerate(names)}


def _legend_of(named: Mapping[str, str], words: Mapping[str, str] | None = None) -> str:
    shown: dict[str, str] = {}
    for name, kind in named.items():
        text = name if words is None else words[name]
        shown[kind] = text if kind not in shown else f"{len(named) - _KINDS + 1} others"
    return _legend(shown)


def _by_minute(rows: Iterable[Row], named: Mapping[str, str], name: Callable[[Row], str]) -> str:
    """Columns of the messages over time, in the colours of their names."""
    series: dict[datetime, Counter[str]] = {}
    for row in rows:
        if row["minute"] is not None:
            series.setdefault(row["minute"], Counter())[named[name(row)]] += row["messages"]
    return columns(series, list(dict.fromkeys(named.values())), "messages")


def _left_out(totals: Mapping[Any, int], what: str) -> str:
    more = len(totals) - MOST_ROWS
    return f'<p class="faint">and {_count(more, f"more {what}")} with fewer messages</p>' if more > 0 else ""


def _placed(name: str | None, site: str | None) -> str:
    return f"{name or 'unknown'} ({site})" if site else name or "unknown"


def _time(at: datetime | None) -> str:
    return "-" if at is None else f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}"


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 or what == 'more' else 's'}"


def _listed(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _share(part: int, whole: int) -> str:
    return f", {part / whole:.1%}" if whole else ""


def _size(size: int) -> str:
    value = float(size)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "bytes" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"
