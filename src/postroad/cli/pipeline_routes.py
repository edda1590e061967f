"""Prints the results of `postroad pipeline what-if`: routes and links of a changed enterprise, and depths of its
queues."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from postroad.cli.output import print_json, print_line, print_table, size_text
from postroad.errors import InvalidArgument
from postroad.reports.info import counted

if TYPE_CHECKING:
    from postroad.directory.file import Enterprise
    from postroad.directory.snapshot import Directory
    from postroad.simulation.capacity import Capacity, CapacityPlan
    from postroad.spark.pipeline.lake import Lake
    from postroad.spark.pipeline.routes import Comparison, Route


MOST_ROWS = 20


def changed_by(directory: Directory, down: Sequence[str], costs: Sequence[str]) -> Directory | None:
    """The directory as the options would change it. None if they change nothing."""
    from postroad.directory.what_if import changed, parse_cost, parse_down

    changes = [parse_down(each, directory) for each in down] + [parse_cost(each, directory) for each in costs]
    return changed(directory, changes) if changes else None


HOURS = 24
_OUTAGE = re.compile(r"(?P<manager>[^=]+)=(?P<hour>\d{1,2}):(?P<minute>\d\d)\+(?P<minutes>\d+(?:\.\d+)?)m?")
_COUNTED = {
    "cut_off": "have no route any more",
    "joined": "have a route that had none",
    "rerouted": "take another route",
    "longer": "take more hops",
    "shorter": "take fewer hops",
    "dearer": "cost more",
    "cheaper": "cost less",
}


def parse_outage(text: str) -> tuple[str, float, float]:
    """Reads `rome=14:30+45m`: a manager, the time of day in UTC, and the minutes that it is down."""
    found = _OUTAGE.fullmatch(text.strip())
    if found is None or int(found["hour"]) >= HOURS or int(found["minute"]) >= 60:
        raise InvalidArgument(f"outage: must have the form MANAGER=HH:MM+MINUTES, as in rome=14:30+45, got {text!r}")
    return found["manager"].strip(), int(found["hour"]) * 60.0 + int(found["minute"]), float(found["minutes"])


# Routes


def show_comparison(found: Comparison, *, as_json: bool) -> None:
    links = sorted(found.links.items(), key=lambda each: (-abs(each[1][1].messages - each[1][0].messages), each[0]))
    if as_json:
        _print_json(found, links)
        return
    print_line(f"{counted(found.pairs, 'pair')} with traffic: {len(found.changed)} change")
    for kind, words in _COUNTED.items():
        pairs, load = found.count(kind)
        if pairs:
            print_line(f"  {pairs} {words}: {counted(load.messages, 'message')}, {size_text(load.bytes)}")
    if found.unknown.messages:
        print_line(f"! {counted(found.unknown.messages, 'message')} between managers without a site do not count")
    if found.changed:
        print_table(
            ("from", "to", "messages", "route now", "cost now", "route then", "cost then"),
            [
                (each.source, each.destination, each.load.messages, *_cells(each.before), *_cells(each.after))
                for each in found.changed[:MOST_ROWS]
            ],
            numbers=("messages", "cost now", "cost then"),
        )
        _print_rest(len(found.changed))
    if links:
        rows = [
            (" - ".join(link), one.messages, other.messages, size_text(one.bytes), size_text(other.bytes))
            for link, (one, other) in links[:MOST_ROWS]
        ]
        heads = ("link", "messages now", "then", "size now", "size then")
        print_table(heads, rows, numbers=heads[1:])
        _print_rest(len(links))


def _cells(route: Route | None) -> tuple[str, int | None]:
    return ("none", None) if route is None else (" > ".join(route.sites), route.cost)


def _print_rest(rows: int) -> None:
    if rows > MOST_ROWS:
        print_line(f"... and {rows - MOST_ROWS} more; --json has all of them")


def _print_json(found: Comparison, links: list[Any]) -> None:
    totals: dict[str, Any] = {"kind": "summary", "pairs": found.pairs, "changed": len(found.changed)}
    for kind in _COUNTED:
        pairs, load = found.count(kind)
        totals[kind] = {"pairs": pairs, "messages": load.messages, "bytes": load.bytes}
    print_json(totals | {"unknown_messages": found.unknown.messages})
    for each in found.changed:
        print_json(
            {
                "kind": "pair",
                "from": each.source,
                "to": each.destination,
                "messages": each.load.messages,
                "bytes": each.load.bytes,
                "before": _route_json(each.before),
                "after": _route_json(each.after),
            }
        )
    for link, (one, other) in links:
        before = {"messages_before": one.messages, "bytes_before": one.bytes}
        print_json(
            {"kind": "link", "sites": link} | before | {"messages_after": other.messages, "bytes_after": other.bytes}
        )


def _route_json(route: Route | None) -> dict[str, Any] | None:
    return None if route is None else {"sites": route.sites, "hops": route.hops, "cost": route.cost}


# Capacity


def day_capacity(enterprise: Enterprise, lake: Lake, day: str, plan: CapacityPlan) -> Capacity:
    """Simulates the traffic of a day of the lake in the enterprise."""
    from postroad.simulation.capacity import MinuteTraffic, capacity
    from postroad.simulation.scenario import Kind
    from postroad.spark.pipeline.traffic import by_minute

    traffic = [
        MinuteTraffic(
            minute=row["minute"],
            source=row["source"] or "",
            destination=row["destination"] or "",
            queue=row["queue"] or "unknown",
            kind=Kind(row["delivery"] or "recoverable"),
            messages=row["messages"],
            size=row["bytes"] // max(1, row["messages"]),
        )
        for row in by_minute(lake, day)
    ]
    return capacity(enterprise, traffic, plan)


def show_capacity(found: Capacity, day: str, *, as_json: bool) -> None:
    if as_json:
        totals = {"kind": "capacity", "day": day, "messages": found.messages, "skipped": found.skipped}
        totals |= {"simulated": found.simulated, "factor": found.factor, "arrived": found.arrived}
        print_json(totals | {"drained_at": None if found.drained_at is None else clock(found.drained_at)})
        for each in found.queues:
            depths = [[clock(minute), messages] for minute, messages in each.depths]
            print_json({"kind": "queue"} | each.json() | {"highest_at": clock(each.highest_at), "depths": depths})
        return
    each_is = "" if found.factor == 1 else f", each for {found.factor}"
    print_line(f"{day}: {counted(found.messages, 'message')}; {found.simulated} simulated{each_is}")
    if found.skipped:
        print_line(f"! {counted(found.skipped, 'message')} inside one manager, or of unknown managers, are left out")
    if found.drained_at is None:
        print_line("! the queues never got empty")
    else:
        print_line(f"all {found.arrived} arrived; the queues were empty at {clock(found.drained_at)}")
    rows = [
        (
            each.manager,
            each.queue,
            each.highest,
            clock(each.highest_at),
            each.at_end,
            " ".join(map(str, _hourly(each.depths))),
        )
        for each in found.queues[:MOST_ROWS]
        if each.highest
    ]
    heads = ("manager", "queue", "highest", "at", "at the end", "highest by the hour")
    print_table(heads, rows, numbers=("highest", "at the end"))
    _print_rest(sum(1 for each in found.queues if each.highest))


def clock(minute: float) -> str:
    """A time such as `14:30`. `26:10` is ten past two on the next day."""
    return f"{int(minute) // 60:02}:{int(minute) % 60:02}"


def _hourly(depths: list[tuple[float, int]]) -> list[int]:
    if not depths:
        return []
    first, last = int(depths[0][0]) // 60, int(depths[-1][0]) // 60
    hours = [0] * (last - first + 1)
    for minute, messages in depths:
        hours[int(minute) // 60 - first] = max(hours[int(minute) // 60 - first], messages)
    return hours
