"""Charts as Vega-Lite specifications, made with Altair. The scripts that draw them are in a package, so a page needs no
network.

A chart is as wide as its container. The page sets its parameter `queue` to show only one queue. Names stand above their
bars, where they have the full width. The page sets the colours of its theme.

The drawing would cut long names in a legend. So the legend is in `usermeta`, and the page writes it as text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from math import ceil
from typing import Any

import altair as alt

from postroad.spark.pipeline.words import between, seconds

Values = list[dict[str, Any]]
MOST_NAMES = 8  # with colours of their own in a chart; all others share one colour
MOST_SLOTS = 96  # on a time axis; more are merged
OTHERS = "others"
STATE_COLOURS = {
    "received": "#0f8a78",
    "reached": "#2f7fd1",
    "outgoing": "#7a5bd0",
    "sent": "#d9a224",
    "mentioned": "#9aa8b6",
    "dead": "#c8372d",
}
PALETTE = ("#2f7fd1", "#0f9b8a", "#7a5bd0", "#d98324", "#5b8a3a", "#c2528b", "#4a5fc1", "#a8761f", "#8795a5")
ALARMS = ("#c8372d", "#d98324", "#7a5bd0", "#2f7fd1", "#0f9b8a", "#c2528b", "#a8761f", "#5b8a3a", "#8795a5")
_ROW = 46  # the height of a bar and the name above it
_HEIGHT = 200
_PERCENTILES = {"p50_s": "half within", "p90_s": "90 % within", "p99_s": "99 % within"}
_PERCENTILE_COLOURS = ("#0f8a78", "#d98324", "#c8372d")
_TICKS_S = (0, 1, 3, 10, 30, 60, 300, 1800, 3600, 21_600, 86_400, 604_800)
_SPAN = "datum.value >= 86400 ? datum.value / 86400 + ' d' : datum.value >= 3600 ? datum.value / 3600 + ' h'"
_SPAN += " : datum.value >= 60 ? datum.value / 60 + ' min' : datum.value + ' s'"
_SHORT = "datum.value % 1 ? '' : format(datum.value, '~s')"  # writes 20k for 20000, but 0 instead of 0k
_CLOCK = "utchours(datum.value) + utcminutes(datum.value) + utcseconds(datum.value) == 0"
_CLOCK += " ? utcFormat(datum.value, '%d %b') : utcFormat(datum.value, utcseconds(datum.value) ? '%H:%M:%S' : '%H:%M')"


@cache
def scripts() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script, which sets `window.vegaEmbed`."""
    import vl_convert

    made: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return made


def bars(values: Values, kinds: Mapping[str, str], unit: str) -> dict[str, Any]:
    """Horizontal bars. Each value has `queue`, `kind` and `messages`; `kinds` has the words for the kinds, in order."""
    order = list(dict.fromkeys(each["queue"] for each in values))
    labelled = [each | {"words": kinds[each["kind"]], "place": list(kinds).index(each["kind"])} for each in values]
    base = alt.Chart(alt.InlineData(values=labelled)).encode(y=alt.Y("queue:N", sort=order, axis=None))
    legend = {words: STATE_COLOURS.get(kind, PALETTE[0]) for kind, words in kinds.items()}
    drawn = base.mark_bar(height=14, yOffset=8, cursor="pointer").encode(
        x=alt.X("messages:Q", stack="zero", axis=_number_axis(f"number of {unit}")),
        color=_colour("words:N", legend),
        order=alt.Order("place:Q"),
        tooltip=[_tooltip("queue:N", "queue"), _tooltip("words:N", "state"), _tooltip("messages:Q", unit, ",d")],
    )
    names = base.mark_text(align="left", baseline="middle", dy=-10, limit=alt.expr("width - 90"), cursor="pointer")
    named = names.encode(x=alt.value(0), text="queue:N").transform_aggregate(groupby=["queue"])
    totals = base.mark_text(align="right", baseline="middle", dy=-10, fontWeight="bold")
    summed = totals.encode(x=alt.value("width"), text=alt.Text("total:Q", format=",d"))
    summed = summed.transform_aggregate(total="sum(messages)", groupby=["queue"])
    return _finished(alt.layer(drawn, named, summed), legend if len(kinds) > 1 else {}, height=_ROW * len(order))


def over_time(
    rows: Iterable[Mapping[str, Any]], time: str, name: Callable[[Any], str], unit: str
) -> dict[str, Any] | None:
    """Columns over time, with a colour for each name. None if no row has a time."""
    found = [(row[time], name(row), row.get("queue"), row["messages"]) for row in rows if row[time] is not None]
    if not found:
        return None
    step, slot = _slots([each[0] for each in found])
    named = top_names([(each[1], each[3]) for each in found])
    counts: dict[tuple[datetime, str, str | None], int] = {}
    for at, whose, queue, count in found:
        key = (slot(at), named[whose], queue)
        counts[key] = counts.get(key, 0) + count
    values = [
        {"start": _stamp(at), "end": _stamp(at + step), "name": whose, "queue": queue, "messages": count}
        for (at, whose, queue), count in sorted(counts.items(), key=str)
    ]
    legend = _palette(named.values(), ALARMS if unit == "dead messages" else PALETTE)
    chart = (
        alt.Chart(alt.InlineData(values=values))
        .mark_bar()
        .encode(
            x=_time_axis("start", f"by {seconds(step.total_seconds())}"),
            x2="end:T",
            y=alt.Y("sum(messages):Q", axis=_number_axis(f"number of {unit}")),
            color=_colour("name:N", legend),
            tooltip=[
                alt.Tooltip("start:T", title="from", format="%d %b %H:%M", formatType="time"),
                _tooltip("name:N", "name"),
                alt.Tooltip("sum(messages):Q", title=unit, format=",d"),
            ],
        )
    )
    return _finished(chart, legend)


def depths(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Lines of the messages that wait in queues, from the rows of gold/backlog. None if there are no rows."""
    if not rows:
        return None
    named = top_names([(row["called"], row["most"]) for row in rows])
    values = [
        {"at": _stamp(at), "name": row["called"], "queue": row["called"], "messages": messages}
        for row in rows
        if named[row["called"]] != OTHERS
        for at, messages in _looks(row)
    ]
    legend = _palette((each for each in named.values() if each != OTHERS), PALETTE)
    base = alt.Chart(alt.InlineData(values=values)).encode(
        x=_time_axis("at", "time of the look"),
        y=alt.Y("messages:Q", axis=_number_axis("messages in the queue")),
        color=_colour("name:N", legend),
        tooltip=[
            alt.Tooltip("at:T", title="at", format="%d %b %H:%M:%S", formatType="time"),
            _tooltip("name:N", "queue"),
            _tooltip("messages:Q", "messages", ",d"),
        ],
    )
    return _finished(alt.layer(base.mark_line(interpolate="step-after"), base.mark_circle(size=40)), legend)


def spread(values: Values, bins: Sequence[str], unit: str, colour: str) -> dict[str, Any]:
    """A histogram. Each value has `queue`, `bin` and `messages`."""
    base = alt.Chart(alt.InlineData(values=values)).encode(
        y=alt.Y(
            "bin:N",
            scale=alt.Scale(domain=list(bins)),
            title=None,
            axis=alt.Axis(labelLimit=90, ticks=False, domain=False),
        )
    )
    bar = base.mark_bar(color=colour).encode(
        x=alt.X("sum(messages):Q", axis=_number_axis(f"number of {unit}")),
        tooltip=[_tooltip("bin:N", "time"), alt.Tooltip("sum(messages):Q", title=unit, format=",d")],
    )
    text = base.mark_text(align="left", dx=4).encode(
        x=alt.X("sum(messages):Q"), text=alt.Text("sum(messages):Q", format=",d")
    )
    made = _finished(alt.layer(bar, text), {}, height=24 * len(bins))
    return made | {"padding": {"left": 5, "top": 5, "bottom": 5, "right": 50}}  # room for the number at the longest bar


def percentiles(rows: Sequence[Mapping[str, Any]], by: str) -> dict[str, Any]:
    """For each row, a line from the 50th to the 99th percentile, with a dot at each percentile."""
    order = [row["value"] for row in rows]
    values = [
        {"value": row["value"], "queue": row["value"] if by == "queue" else None, "words": words, "seconds": row[name]}
        | {
            "shown": between(row.get(name.replace("_s", "_least_s")), row[name]),
            "low": row["p50_s"],
            "high": row["p99_s"],
        }
        | {"note": f"{seconds(row['p50_s'])} · {seconds(row['p90_s'])} · {seconds(row['p99_s'])}"}
        | {"messages": row["messages"]}
        for row in rows
        for name, words in _PERCENTILES.items()
    ]
    base = alt.Chart(alt.InlineData(values=values)).encode(y=alt.Y("value:N", sort=order, axis=None))
    longest = max(row["p99_s"] for row in rows)
    ticks = [each for each in _TICKS_S if each <= longest * 1.5] or [0, 1]
    axis = alt.Axis(title=None, values=ticks, labelExpr=_SPAN, labelOverlap=True)
    scale = alt.Scale(type="symlog", domain=[0, max(1, longest * 1.05)])
    legend = _palette(_PERCENTILES.values(), _PERCENTILE_COLOURS)
    line = base.mark_rule(strokeWidth=3, opacity=0.35, yOffset=8, y2Offset=8).encode(
        x=alt.X("low:Q", scale=scale, axis=axis), x2="high:Q"
    )
    dots = base.mark_circle(size=110, opacity=1, yOffset=8).encode(
        x=alt.X("seconds:Q", scale=scale, axis=axis),
        color=_colour("words:N", legend),
        tooltip=[
            _tooltip("value:N", by),
            _tooltip("words:N", "share"),
            _tooltip("shown:N", "time"),
            _tooltip("messages:Q", "messages", ",d"),
        ],
    )
    names = base.mark_text(align="left", dy=-10, limit=alt.expr("width - 170")).encode(x=alt.value(0), text="value:N")
    notes = base.mark_text(align="right", dy=-10).encode(x=alt.value("width"), text="note:N")
    texts = [each.transform_aggregate(groupby=["value", "note"]) for each in (names, notes)]
    return _finished(alt.layer(line, dots, *texts), legend, height=_ROW * len(order))


def top_names(counts: Iterable[tuple[str, int]]) -> dict[str, str]:
    """Maps the names with the most messages to themselves, and all others to OTHERS. The most messages come first."""
    totals: dict[str, int] = {}
    for name, count in counts:
        totals[name] = totals.get(name, 0) + count
    ordered = sorted(totals, key=lambda name: (-totals[name], name))
    kept = ordered if len(ordered) <= MOST_NAMES + 1 else ordered[:MOST_NAMES]
    return {name: name if name in kept else OTHERS for name in ordered}


# Helpers


def _finished(chart: Any, legend: Mapping[str, str], height: int = _HEIGHT) -> dict[str, Any]:
    """The finished specification. `legend` has the colours of the names. A null `queue` shows all queues."""
    shown = chart.add_params(alt.param(name="queue", value=None))
    shown = shown.transform_filter("queue == null || datum.queue == null || datum.queue == queue")
    made: dict[str, Any] = shown.properties(width="container", height=height).to_dict()
    return made | {"usermeta": {"legend": dict(legend)}}


def _number_axis(title: str) -> Any:
    """An axis of whole numbers, without fractional ticks and overlapping labels."""
    return alt.Axis(title=title, labelExpr=_SHORT, tickMinStep=1, tickCount=5, labelOverlap=True)


def _time_axis(field: str, title: str) -> Any:
    axis = alt.Axis(title=f"{title}, UTC", labelExpr=_CLOCK, labelOverlap=True, tickCount=6)
    return alt.X(f"{field}:T", scale=alt.Scale(type="utc"), axis=axis)


def _tooltip(field: str, title: str, form: str | None = None) -> Any:
    return alt.Tooltip(field, title=title) if form is None else alt.Tooltip(field, title=title, format=form)


def _colour(field: str, legend: Mapping[str, str]) -> Any:
    return alt.Color(field, scale=alt.Scale(domain=list(legend), range=list(legend.values())), legend=None)


def _palette(names: Iterable[str], colours: Sequence[str]) -> dict[str, str]:
    """A colour for each name. Names beyond the palette share its last colour."""
    return {name: colours[min(place, len(colours) - 1)] for place, name in enumerate(dict.fromkeys(names))}


def _looks(row: Mapping[str, Any]) -> list[tuple[datetime, int]]:
    first, last = (row["first_looked_at"], row["first_messages"]), (row["looked_at"], row["messages"])
    return [first] if first[0] == last[0] else [first, last]


def _stamp(at: datetime) -> str:
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _slots(times: Sequence[datetime]) -> tuple[timedelta, Callable[[datetime], datetime]]:
    """The length of a time slot, and a function that gives the start of the slot of a time."""
    minutes = (max(times) - min(times)) // timedelta(minutes=1) + 1
    sizes = (1, 5, 15, 60, 360, 1440)
    length = (
        next((each for each in sizes if minutes / each <= MOST_SLOTS), ceil(minutes / MOST_SLOTS / 1440) * 1440) * 60
    )

    def start(at: datetime) -> datetime:
        return datetime.fromtimestamp(at.timestamp() // length * length, UTC)

    return timedelta(seconds=length), start
