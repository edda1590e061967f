"""The arithmetic of the comparison with other brokers: figures, the best of several rounds, ratios, percentiles,
tables. It starts nothing and reads no clock."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath

PERCENTILES = (50, 95, 99)
# Calls that wait for the disk, and those that show it: a write waits if its file was opened in that mode.
SYNC_CALLS = ("fsync", "fdatasync", "msync", "sync_file_range", "openat", "pwrite64")
_SYNC = re.compile(r"^\d+ +([\d.]+) (?:fsync|fdatasync|msync|sync_file_range)\(")  # "resumed" ends one counted
_WRITE = re.compile(r"^\d+ +([\d.]+) pwrite64\(\d+<([^>]*)>")
_SYNCED_FILE = re.compile(r'openat\([^"]*"([^"]+)", [^)]*\bO_D?SYNC\b')


@dataclass(frozen=True, slots=True)
class Figures:
    """One run of one contender: messages per second, and microseconds of CPU per message by side."""

    name: str
    messages: int
    rate: float
    cpu_us: Mapping[str, float] = field(default_factory=dict)

    @property
    def total_cpu_us(self) -> float:
        return sum(self.cpu_us.values())


@dataclass(frozen=True, slots=True)
class Sample:
    """One moment of a long run: seconds since its start, messages so far, resident megabytes."""

    elapsed_s: float
    messages: int
    rss_mb: float


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the main table: our rate and the peer's, or our CPU per message if no peer is named."""

    name: str
    ours: str
    peer: str | None
    aim: float
    floor: float


def figures(
    name: str, messages: int, began: float, ended: float, cpu_s: Mapping[str, float], *, sides: Sequence[str] = ()
) -> Figures:
    """`cpu_s` is in seconds, by side. `sides` gives the order of the sides."""
    ordered = {side: cpu_s[side] for side in sides or cpu_s}
    return Figures(name, messages, messages / (ended - began), {k: v / messages * 1e6 for k, v in ordered.items()})


def best(rounds: Iterable[Figures]) -> Figures:
    """The highest rate and the lowest CPU in several rounds of one contender: noise only ever adds time."""
    found = list(rounds)
    cheapest = min(found, key=lambda each: each.total_cpu_us)
    fastest = max(found, key=lambda each: each.rate)
    return Figures(fastest.name, fastest.messages, fastest.rate, cheapest.cpu_us)


def percentiles(values: Iterable[float]) -> tuple[float, ...]:
    """The smallest values that 50, 95 and 99 of a hundred do not exceed."""
    ordered = sorted(values)
    return tuple(ordered[max(0, -(-len(ordered) * percent // 100) - 1)] for percent in PERCENTILES)


def slice_rates(samples: Sequence[Sample], share: float = 0.1) -> tuple[float, float]:
    """Messages per second in the first and in the last part of a long run, which begins with its first message."""
    idle = sum(not each.messages for each in samples)
    samples = samples[max(0, idle - 1) :]
    total = samples[-1].elapsed_s - samples[0].elapsed_s
    early = max(1, sum(each.elapsed_s - samples[0].elapsed_s <= total * share for each in samples) - 1)
    late = min(len(samples) - 2, sum(each.elapsed_s - samples[0].elapsed_s < total * (1 - share) for each in samples))
    return _rate(samples[0], samples[early]), _rate(samples[late], samples[-1])


def _rate(first: Sample, last: Sample) -> float:
    return (last.messages - first.messages) / (last.elapsed_s - first.elapsed_s)


def count_syncs(trace: Iterable[str], began: float, ended: float) -> int:
    """Counts calls that wait for the disk in the output of `strace -f -y -ttt`, between two times of the wall clock."""
    lines = list(trace)
    synced = {PurePath(found[1]).name for line in lines if (found := _SYNCED_FILE.search(line))}
    syncs = [found for line in lines if (found := _SYNC.match(line))]
    writes = [found for line in lines if (found := _WRITE.match(line)) and PurePath(found[2]).name in synced]
    return sum(began <= float(each[1]) <= ended for each in syncs + writes)


def compared(rows: Iterable[Row], results: Mapping[str, Figures]) -> list[tuple[str, ...]]:
    """The cells of each row whose contenders ran: name, ours, the peer's, ratio, aim, floor, CPU of both."""
    lines: list[tuple[str, ...]] = []
    for row in rows:
        ours, peer = results.get(row.ours), results.get(row.peer) if row.peer else None
        if ours is None:
            continue
        if row.peer is None:
            cells = (f"{ours.total_cpu_us:.0f} us", "", "", f"{row.aim:.0f} us", f"{row.floor:.0f} us")
        else:
            ratio = "" if peer is None else f"{ours.rate / peer.rate:.2f}"
            cells = (rate(ours), rate(peer), ratio, f"{row.aim:.1f}", f"{row.floor:.1f}")
        lines.append((row.name, *cells, sides(ours), sides(peer)))
    return lines


def rate(one: Figures | None) -> str:
    return "" if one is None else f"{one.rate:,.0f}"


def sides(one: Figures | None) -> str:
    """CPU per message for each side, and the sum: `20 + 17 = 37`."""
    if one is None or not one.cpu_us:
        return ""
    return " + ".join(f"{each:.0f}" for each in one.cpu_us.values()) + f" = {one.total_cpu_us:.0f}"


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], caption: str = "") -> str:
    """An aligned Markdown table: people read it on terminals of any width, and copy it into documents."""
    lines = [tuple(columns), *map(tuple, rows)]
    widths = [max(len(line[number]) for line in lines) for number in range(len(columns))]
    cells = [[line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])] for line in lines]
    rule = ["-" * widths[0], *(f"{'-' * (width - 1)}:" for width in widths[1:])]
    body = "\n".join(f"| {' | '.join(line)} |" for line in [cells[0], rule, *cells[1:]])
    return f"\n{title}\n\n{body}\n" + (f"\n{caption}\n" if caption else "")
