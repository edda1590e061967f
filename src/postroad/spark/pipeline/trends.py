"""Gold: the last period compared with the one before it, for all messages and by queue, route and message type. And
unusual hours."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import reduce
from math import sqrt
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from postroad.spark.pipeline.passes import Summary, bins, count, nullable, numbered, ones, percentiles, with_columns
from postroad.spark.pipeline.service_levels import few_types, route

NOW, BEFORE = "now", "before"
_MINUTE = 60_000_000
# The possible lengths of a period in microseconds. The first one that fits twice into the data is used.
PERIODS = tuple(minutes * _MINUTE for minutes in (7 * 1440, 1440, 360, 60, 10, 1))
_EVENTS = ("sent_at", "reached_at", "received_at", "dead_at")
_TOOK = {
    "reach_s": "reached_at",
    "reach_least_s": "reached_at",
    "receive_s": "received_at",
    "receive_least_s": "received_at",
}
_OF = ("source", "destination", "queue", "message_type")
_COUNTS = ("sent", "received", "died")
_PERCENTILES = tuple(
    f"{each}_p{share}_{bound}" for each in ("reach", "receive") for bound in ("s", "least_s") for share in (50, 90)
)


def period_of(first: int, last: int) -> int | None:
    """The length of the period in microseconds. None if the data is too short for two periods."""
    return next((each for each in PERIODS if last - first >= 2 * each), None)


@dataclass(frozen=True, slots=True)
class Periods:
    """Two periods of the same length, in microseconds. `until` is just after the last event."""

    until: int
    length: int

    @classmethod
    def of(cls, states: pa.Table) -> Periods | None:
        """From the first and the last events in gold/states. None if the data is shorter than two periods."""
        ends = [pc.min_max(states[f"{end}_{name}"].cast(pa.int64())) for name in _EVENTS for end in ("first", "last")]
        known = [each.as_py() for pair in ends for each in pair.values() if each.is_valid]
        length = period_of(min(known), max(known)) if known else None
        return None if length is None else cls(max(known) + 1, length)

    @property
    def spans(self) -> dict[str, tuple[int, int]]:
        middle = self.until - self.length
        return {NOW: (middle, self.until), BEFORE: (middle - self.length, middle)}

    def days(self, states: pa.Table) -> list[str]:
        """The days of messages with an event in one of the periods, or more days."""
        since = self.until - 2 * self.length
        last = (states[f"last_{name}"].cast(pa.int64()) for name in _EVENTS)
        recent = (pc.fill_null(pc.greater_equal(each, since), False) for each in last)
        found = states["day"].filter(reduce(pc.or_, recent))
        return sorted(str(day) for day in pc.unique(found).to_pylist() if day is not None)


def trend(periods: Periods | None) -> Summary:
    """For each period and group: how many messages were sent, received and died in it, and how long those took that
    reached their queue, or were received, in it. Each event counts in the period in which it happened.

    `by` is all, queue, route or type. Only the MOST_TYPES types with the most messages are there. A group without
    messages in the two periods has no row. The table is empty without periods.
    """
    spans = {} if periods is None else periods.spans

    def shape(rows: pa.Table) -> pa.Table:
        return pa.concat_tables([_none(rows), *(_in_period(rows, name, *span) for name, span in spans.items())])

    return Summary(
        columns=(*_OF, "state", *_EVENTS, *_TOOK),
        shape=shape,
        keys=("period", *_OF, "took", "bin"),
        sums=("messages", *_COUNTS),
        least=("min_s",),
        greatest=("max_s",),
        finish=lambda joined: _grouped(joined, spans),
    )


def _none(rows: pa.Table) -> pa.Table:
    """No rows, with the columns and types of those that are counted."""
    return _counted(rows.slice(0, 0), NOW, dict.fromkeys(_COUNTS, pa.array([], pa.int64())))


def _counted(rows: pa.Table, period: str, counts: Mapping[str, Any], took: str | None = None) -> pa.Table:
    seconds = pa.nulls(len(rows), pa.float64()) if took is None else rows[took].cast(pa.float64())
    more = {"period": period, "took": pa.scalar(took, pa.string()), "bin": bins(seconds)}
    return with_columns(rows.select(list(_OF)), **more, messages=ones(rows), min_s=seconds, max_s=seconds, **counts)


def _in_period(rows: pa.Table, name: str, since: int, until: int) -> pa.Table:
    def inside(time: str) -> Any:
        at = rows[time].cast(pa.int64())
        return pc.fill_null(pc.and_(pc.greater_equal(at, since), pc.less(at, until)), False)

    events = {time: inside(time) for time in _EVENTS}
    # a message that was received has not died, whatever an acknowledgment says
    counts = {"sent": events["sent_at"], "received": events["received_at"]}
    counts["died"] = pc.and_(events["dead_at"], pc.equal(rows["state"], "dead"))
    whole = with_columns(rows, **{f"is_{each}": flags for each, flags in counts.items()})
    some = whole.filter(reduce(pc.or_, events.values()))
    found = [_counted(some, name, {each: count(some[f"is_{each}"]) for each in _COUNTS})]
    for took, time in _TOOK.items():
        timed = rows.filter(pc.and_(events[time], pc.is_valid(rows[took])))
        found.append(_counted(timed, name, dict.fromkeys(_COUNTS, pa.repeat(0, len(timed))), took))
    return pa.concat_tables(found)


def _grouped(joined: pa.Table, spans: Mapping[str, tuple[int, int]]) -> pa.Table:
    groups = {"all": pa.repeat("all", len(joined)), "queue": joined["queue"], "route": route(joined)}
    groups["type"] = joined["message_type"]
    parts = [with_columns(joined, by=by, value=value) for by, value in groups.items()]
    rows = pa.concat_tables(part.filter(pc.is_valid(part["value"])) for part in parts)
    pairs, pair_of = numbered(rows, ("by", "value"))
    found = []
    for name in (NOW, BEFORE) if spans else ():
        of = pc.equal(rows["period"], name).to_numpy()
        sums = {each: np.bincount(pair_of[of], rows[each].to_numpy()[of], len(pairs)) for each in _COUNTS}
        times: dict[str, Any] = {}
        for took in _TOOK:
            its = of & pc.fill_null(pc.equal(rows["took"], took), False).to_numpy()
            edge = rows["min_s" if "least" in took else "max_s"].to_numpy()[its]
            shares = percentiles(pair_of[its], edge, rows["messages"].to_numpy()[its], len(pairs), (0.5, 0.9))
            event, _, bound = took.partition("_")
            times |= {f"{event}_p50_{bound}": nullable(shares[:, 0]), f"{event}_p90_{bound}": nullable(shares[:, 1])}
        since, until = (pa.scalar(each, pa.timestamp("us", "UTC")) for each in spans[name])
        counts = {each: pa.array(summed.astype(np.int64)) for each, summed in sums.items()}
        found.append(with_columns(pairs, period=name, since=since, until=until, **counts, **times))
    made = pa.concat_tables(found) if found else _EMPTY.empty_table()
    both = made.group_by(["by", "value"]).aggregate([("sent", "sum")])
    made = few_types(made.join(both, ["by", "value"]), "period", "sent_sum")
    return made.select(["period", "since", "until", "by", "value", *_COUNTS, *_PERCENTILES])


_EMPTY = pa.schema(
    [
        ("period", pa.string()),
        ("since", pa.timestamp("us", "UTC")),
        ("until", pa.timestamp("us", "UTC")),
        ("by", pa.string()),
        ("value", pa.string()),
        *((name, pa.int64()) for name in _COUNTS),
        *((name, pa.float64()) for name in _PERCENTILES),
    ]
)


# Hours that differ from the others of their queue: in the number of messages, in latency, or in the messages that died.
#
# The method uses the median and the median absolute deviation (MAD), which a few odd hours do not change. An hour is
# unusual if it is more than LIMIT deviations away from the median of its queue. A deviation is 1.4826 MAD, which is the
# standard deviation of normally distributed values. It has two lower bounds: the square root of the median, because
# counts vary that much by chance; and a twentieth of the median, because a thousand more messages mean nothing to a
# queue with millions. A queue that is empty in most hours has no usual number of messages.


LIMIT = 6.0
FEWEST_HOURS = 8  # that a queue needs; fewer show no habit
NORMAL = 1.4826
SHARE = 0.05  # a deviation is at least this share of the median
LEAST = 1.0  # a deviation is at least one message, or one second
HOUR = timedelta(hours=1)
SILENT = timedelta(days=1)  # a queue that was silent for longer has a new habit


@dataclass(frozen=True, slots=True)
class Anomaly:
    """An unusual hour of a queue.

    `kind` is volume, latency, or the reason that messages died of. `usual` is the median of all hours. `times` is how
    many deviations the hour is away from it. `messages` is how many the hour has.
    """

    hour: datetime
    queue: str
    kind: str
    value: float
    usual: float
    deviation: float
    messages: int

    @property
    def times(self) -> float:
        return (self.value - self.usual) / self.deviation


def anomalies(rows: Iterable[Mapping[str, Any]], as_of: datetime) -> list[Anomaly]:
    """The unusual hours in rows of gold/hours, the newest first.

    The hour of `as_of` is not over, so few messages in it are not unusual.
    """
    by_queue: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        if row["queue"] is not None and row["hour"] is not None:
            by_queue.setdefault(row["queue"], []).append(row)
    found = [each for queue, some in by_queue.items() for each in _of_queue(queue, some, as_of)]
    return sorted(found, key=lambda each: (each.hour, abs(each.times)), reverse=True)


def _of_queue(queue: str, rows: list[Mapping[str, Any]], as_of: datetime) -> Iterator[Anomaly]:
    volume = {row["hour"]: row["messages"] for row in rows if row["reason"] is None}
    if not volume:
        return
    first, busy = min(volume), max(row["hour"] for row in rows)
    last = max(busy, min(as_of - HOUR, busy + SILENT))
    every = [first + number * HOUR for number in range((last - first) // HOUR + 1)]
    counts = {hour: float(volume.get(hour, 0)) for hour in every}
    for hour, usual, deviation in _unusual(counts):
        if usual and (counts[hour] > usual or hour + HOUR <= as_of):
            yield Anomaly(hour, queue, "volume", counts[hour], usual, deviation, int(counts[hour]))
    took = {row["hour"]: row["receive_p50_s"] for row in rows if row["receive_p50_s"] is not None}
    for hour, usual, deviation in _unusual(took, chance=False):
        if took[hour] > usual:
            yield Anomaly(hour, queue, "latency", took[hour], usual, deviation, volume.get(hour, 0))
    for reason in sorted({row["reason"] for row in rows if row["reason"] is not None}):
        died = dict.fromkeys(every, 0.0)
        for row in rows:  # one row for each day of the send
            if row["reason"] == reason:
                died[row["hour"]] = died.get(row["hour"], 0.0) + row["messages"]
        for hour, usual, deviation in _unusual(died):
            if died[hour] > usual:
                yield Anomaly(hour, queue, reason, died[hour], usual, deviation, int(died[hour]))


def _unusual(values: Mapping[datetime, float], *, chance: bool = True) -> Iterator[tuple[datetime, float, float]]:
    """The unusual hours, with the median and the deviation."""
    if len(values) < FEWEST_HOURS:
        return
    usual = median(values.values())
    spread = median(abs(value - usual) for value in values.values())
    deviation = max(NORMAL * spread, sqrt(usual) if chance else 0.0, SHARE * usual, LEAST)
    for hour, value in values.items():
        if abs(value - usual) > LIMIT * deviation:
            yield hour, usual, deviation
