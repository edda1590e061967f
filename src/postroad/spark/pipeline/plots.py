"""Plots as SVG: bars, columns over time, percentiles. All text is escaped here.

Colours are classes of the page's style sheet, so they follow light and dark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from html import escape
from math import ceil, floor, log10

WIDTH = 960
_LEFT = 250  # for the names of rows
_ROW = 30
_FEET = 26
_PLOT_HEIGHT = 170
_MOST_COLUMNS = 120  # over time: more are joined


@dataclass(frozen=True, slots=True)
class Bar:
    """A row of bars: its name, and the parts of its bar by their class."""

    name: str
    parts: Mapping[str, float]
    note: str = ""


def bars(rows: Sequence[Bar], unit: str) -> str:
    """Horizontal bars, with their parts side by side, all on one scale."""
    most = max((sum(row.parts.values()) for row in rows), default=0) or 1
    room = WIDTH - _LEFT - 210
    lines = []
    for number, row in enumerate(rows):
        top = number * _ROW
        lines.append(_text(_LEFT - 10, top + 19, _short(row.name, 34), "end name", row.name))
        left = float(_LEFT)
        for kind, value in row.parts.items():
            width = value / most * room
            if value:
                lines.append(
                    _rectangle(
                        left, top + 6, max(width, 1.5), _ROW - 12, kind, f"{row.name}: {kind} {_number(value)} {unit}"
                    )
                )
            left += max(width, 1.5) if value else 0
        note = row.note or _number(sum(row.parts.values()))
        lines.append(_text(left + 8, top + 19, note, "note"))
    return _svg(len(rows) * _ROW, lines, f"bars: {unit}")


def columns(series: Mapping[datetime, Mapping[str, float]], kinds: Sequence[str], unit: str) -> str:
    """Columns over time, by the minute or by as many minutes as fit, with the kinds on top of each other."""
    if not series:
        return ""
    step, buckets = _buckets(series)
    most = nice(max(sum(each.values()) for each in buckets.values()) or 1)
    first = min(buckets)
    slots = int((max(buckets) - first) / step) + 1
    width = (WIDTH - 60) / max(slots, 12)
    lines = _grid(most, unit)
    for at, parts in sorted(buckets.items()):
        left = 50 + int((at - first) / step) * width
        bottom = float(_PLOT_HEIGHT)
        title = f"{at:%Y-%m-%d %H:%M}: " + ", ".join(
            f"{kind} {_number(parts[kind])}" for kind in kinds if kind in parts
        )
        for kind in kinds:
            height = parts.get(kind, 0) / most * (_PLOT_HEIGHT - 20)
            if height:
                bottom -= height
                lines.append(_rectangle(left + 1, bottom, max(width - 2, 1), height, kind, f"{title} {unit}"))
    marks = sorted({0, slots // 4, slots // 2, slots * 3 // 4, slots - 1})
    form = "%H:%M" if step * slots < timedelta(days=1) else "%d %b %H:%M"
    taken = -100.0
    for slot in marks:
        left = min(50 + slot * width + width / 2, WIDTH - 40)
        if left - taken > 70:
            lines.append(_text(left, _PLOT_HEIGHT + 17, f"{first + slot * step:{form}}", "middle note"))
            taken = left
    return _svg(_PLOT_HEIGHT + _FEET, lines, f"{unit} over time")


def histogram(names: Sequence[str], counts: Sequence[float], kind: str, unit: str) -> str:
    """Columns with a name below each."""
    most = nice(max(counts, default=0) or 1)
    width = (WIDTH - 60) / max(len(names), 1)
    lines = _grid(most, unit)
    for place, (name, count) in enumerate(zip(names, counts, strict=True)):
        left = 50 + place * width
        height = count / most * (_PLOT_HEIGHT - 20)
        lines.append(_text(left + width / 2, _PLOT_HEIGHT + 17, name, "middle note"))
        if count:
            title = f"{name}: {_number(count)} {unit}"
            lines.append(_rectangle(left + 4, _PLOT_HEIGHT - height, width - 8, height, kind, title))
            lines.append(_text(left + width / 2, _PLOT_HEIGHT - height - 5, _number(count), "middle note"))
    return _svg(_PLOT_HEIGHT + _FEET, lines, unit)


def spans(rows: Sequence[tuple[str, Sequence[float], str]], marks: Sequence[str]) -> str:
    """A line from the first to the last of a row's values, and a dot at each; the scale is logarithmic from 0.1 s."""
    low, high = 0.1, max((max(values) for _, values, _ in rows), default=1.0) * 1.3 + 0.1
    room = WIDTH - _LEFT - 210

    def place(value: float) -> float:
        return _LEFT + (log10(max(value, low)) - log10(low)) / (log10(high) - log10(low)) * room

    lines = []
    height = len(rows) * _ROW
    for power in range(floor(log10(low)), ceil(log10(high)) + 1):
        value = 10.0**power
        if low <= value <= high:
            lines.append(_line(place(value), 0, place(value), height, "grid"))
            lines.append(_text(place(value), height + 17, f"{value:g} s", "middle note"))
    for number, (name, values, note) in enumerate(rows):
        middle = number * _ROW + _ROW / 2
        lines.append(_text(_LEFT - 10, middle + 5, _short(name, 34), "end name", name))
        lines.append(_line(place(min(values)), middle, place(max(values)), middle, "span"))
        for mark, value in zip(marks, values, strict=True):
            dot = f'<circle cx="{place(value):.1f}" cy="{middle:.1f}" r="5" class="dot {escape(mark)}">'
            lines.append(f"{dot}<title>{escape(f'{name}: {mark} {seconds(value)}')}</title></circle>")
        lines.append(_text(place(max(values)) + 12, middle + 5, note, "note"))
    return _svg(height + _FEET, lines, "percentiles of seconds")


def seconds(value: float | None) -> str:
    """`0.4 s`, `12 s`, `3 min`, `2.5 h`"""
    if value is None:
        return "-"
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.2g} s" if value < 10 else f"{value:.0f} s"


def nice(value: float) -> float:
    """A round number that is at least as large."""
    power = 10.0 ** floor(log10(value))
    return next(step * power for step in (1, 2, 2.5, 5, 10) if step * power >= value)


def _buckets(series: Mapping[datetime, Mapping[str, float]]) -> tuple[timedelta, dict[datetime, dict[str, float]]]:
    minutes = (max(series) - min(series)) // timedelta(minutes=1) + 1
    size = next((each for each in (1, 5, 15, 60, 360, 1440) if minutes / each <= _MOST_COLUMNS), ceil(minutes / 100))
    found: dict[datetime, dict[str, float]] = {}
    for at, parts in series.items():
        start = datetime.fromtimestamp(at.timestamp() // (size * 60) * size * 60, UTC)
        bucket = found.setdefault(start, {})
        for kind, value in parts.items():
            bucket[kind] = bucket.get(kind, 0) + value
    return timedelta(minutes=size), found


def _grid(most: float, unit: str) -> list[str]:
    lines = []
    for part in (0, 0.5, 1):
        height = _PLOT_HEIGHT - part * (_PLOT_HEIGHT - 20)
        lines.append(_line(50, height, WIDTH - 10, height, "grid"))
        if part * most == int(part * most) or most >= 10:
            lines.append(_text(44, height + 4, _number(part * most), "end note"))
    lines.append(_text(50, 12, unit, "note"))
    return lines


def _number(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else f"{value:,.1f}"


def _short(text: str, most: int) -> str:
    """Keeps the end, which says more than the beginning: it is the queue's name."""
    return text if len(text) <= most else "…" + text[-(most - 1) :]


def _text(x: float, y: float, text: str, kind: str, title: str = "") -> str:
    more = f"<title>{escape(title)}</title>" if title and title != text else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}">{escape(text)}{more}</text>'


def _rectangle(x: float, y: float, width: float, height: float, kind: str, title: str) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
    return f'<rect {place} rx="2" class="{escape(kind)}"><title>{escape(title)}</title></rect>'


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>'


def _svg(height: float, lines: Sequence[str], label: str) -> str:
    start = f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{escape(label)}">'
    return start + "".join(lines) + "</svg>"
