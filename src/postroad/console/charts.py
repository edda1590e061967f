"""Line charts as SVG, made here: no script and no style in the page, so the console's policy forbids both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import ceil, floor, log10

from markupsafe import Markup

from postroad.console.rendering import age, count, rate
from postroad.console.watch import Rates, Sample, rates

WIDTH, HEIGHT = 420, 150
LEFT, RIGHT, TOP, BOTTOM = 52, 8, 10, 22
BANDS = 60  # places that show their values under the pointer
MIN_SPAN_S = 60.0

Point = tuple[float, float]
Text = Callable[[float], str]


@dataclass(frozen=True, slots=True)
class Line:
    """`style` is the name of its colour in the style sheet: a, b or c. `latest` is its last value in words."""

    name: str
    style: str
    points: Sequence[Point]
    latest: str = ""


@dataclass(frozen=True, slots=True)
class Chart:
    """A title, lines for its legend, and the picture."""

    title: str
    lines: Sequence[Line]
    picture: Markup


def depth_charts(samples: Sequence[Sample]) -> list[Chart]:
    """Depth, rates and latency over time. Empty if there are fewer than two samples."""
    found: list[Rates] = rates(samples)
    if not found:
        return []
    last = found[-1]
    depth = [Line("", "a", [(each.at_s, float(each.messages)) for each in samples], count(samples[-1].messages))]
    flow = [
        Line("in", "a", [(each.at_s, each.into) for each in found], rate(last.into)),
        Line("out", "b", [(each.at_s, each.out) for each in found], rate(last.out)),
    ]
    times = samples[0].at_s, samples[-1].at_s  # the charts have the same axis
    charts = [
        Chart("Messages", depth, line_chart(depth, count)),
        Chart("Messages a second", flow, line_chart(flow, rate, times)),
    ]
    if stay := [(each.at_s, each.latency_s) for each in found if each.latency_s is not None]:
        wait = [Line("", "c", stay, age(stay[-1][1]))]
        charts.append(Chart("Mean time in the queue", wait, line_chart(wait, age, times)))
    return charts


def line_chart(lines: Sequence[Line], text: Text, times: tuple[float, float] | None = None) -> Markup:
    """Times are seconds since 1970; `text` writes a value. `times` are the ends of the axis; else the lines'."""
    points = [point for line in lines for point in line.points]
    if not points:
        return Markup("")
    first, end = times or (min(at for at, _ in points), max(at for at, _ in points))
    start = min(first, end - MIN_SPAN_S)
    top = _round_up(max(value for _, value in points))

    def x(at: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (at - start) / (end - start)

    def y(value: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * value / top

    parts = [Markup('<svg class="chart" viewBox="0 0 {} {}" role="img">').format(WIDTH, HEIGHT)]
    for step in range(3):
        value = top * step / 2
        parts.append(
            Markup('<line class="grid" x1="{}" x2="{}" y1="{:.1f}" y2="{:.1f}"/>').format(
                LEFT, WIDTH - RIGHT, y(value), y(value)
            )
        )
        parts.append(
            Markup('<text class="tick end" x="{}" y="{:.1f}">{}</text>').format(LEFT - 6, y(value) + 4, text(value))
        )
    for at, style in ((start, "start"), ((start + end) / 2, "middle"), (end, "end")):
        label = datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S")
        parts.append(
            Markup('<text class="tick {}" x="{:.1f}" y="{}">{}</text>').format(style, x(at), HEIGHT - 6, label)
        )
    for line in lines:
        path = " ".join(f"{x(at):.1f},{y(value):.1f}" for at, value in (*line.points, *line.points[-1:]))
        parts.append(Markup('<polyline class="line {}" points="{}"/>').format(line.style, path))
    parts += _bands(lines, x, text)
    parts.append(Markup("</svg>"))
    return Markup("").join(parts)


def _bands(lines: Sequence[Line], x: Callable[[float], float], text: Text) -> list[Markup]:
    """Invisible columns with the values of their time, for the pointer and for screen readers."""
    points = lines[0].points
    step = max(1, ceil(len(points) / BANDS))
    found = []
    for place in range(0, len(points), step):
        at = points[place][0]
        values = ", ".join(
            f"{line.name} {text(line.points[min(place, len(line.points) - 1)][1])}".strip() for line in lines
        )
        following = points[min(place + step, len(points) - 1)][0]
        label = f"{datetime.fromtimestamp(at, UTC):%H:%M:%S} {values}"
        found.append(
            Markup('<rect class="band" x="{:.1f}" width="{:.1f}" y="{}" height="{}"><title>{}</title></rect>').format(
                x(at), max(1.0, x(following) - x(at)), TOP, HEIGHT - TOP - BOTTOM, label
            )
        )
    return found


def sparkline(values: Sequence[float]) -> Markup:
    """A small line without axes."""
    if len(values) < 2:
        return Markup("")
    top = max(values) or 1.0
    step = 100 / (len(values) - 1)
    path = " ".join(f"{place * step:.1f},{22 - 20 * value / top:.1f}" for place, value in enumerate(values))
    return Markup(
        '<svg class="spark" viewBox="0 0 100 24" preserveAspectRatio="none"><polyline points="{}"/></svg>'
    ).format(path)


def _round_up(value: float) -> float:
    """The next 1, 2 or 5 times a power of ten."""
    if value <= 0:
        return 1.0
    power = 10.0 ** floor(log10(value))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= value)
