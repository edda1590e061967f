"""Pictures as SVG: a map of sites and links with the route of a message, a message's hops, and line charts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from math import ceil, cos, floor, hypot, log10, pi, sin

from markupsafe import Markup

from postroad.console.history import Rates, Sample, rates
from postroad.console.rendering import age, count, rate, short, when
from postroad.reports.enterprise import DirectoryInfo
from postroad.reports.trace import Trace, TraceHop, TraceState, reason_words

WIDTH, HEIGHT = 640, 420
STEPS = 200  # of the layout; more make no visible difference
MAX_SITES = 150  # with more, a picture is useless
NAME = 16  # characters of a site's name


def site_map(directory: DirectoryInfo, way: Sequence[str], closed: Iterable[frozenset[str]]) -> Markup:
    """A map of sites and links. `way` are the names of managers, from first to last. `closed` are pairs of sites whose
    links are closed."""
    involved = {name for manager in directory.managers for name in manager.sites}
    involved.update(name for link in directory.links for name in link.sites)
    # A domain has sites of its own, without MSMQ.
    sites = [site.name for site in directory.sites if directory.kind != "ldap" or site.name in involved][:MAX_SITES]
    if not sites:
        return Markup("")
    links = {frozenset(link.sites): link.cost for link in directory.links if set(link.sites) <= set(sites)}
    places = _layout(sites, [tuple(pair) for pair in links if len(pair) == 2])
    used = _used(directory, way)
    gone = set(closed)
    parts = [
        Markup('<svg class="map" viewBox="0 0 {} {}" role="img"><title>Sites and routing links</title>').format(
            WIDTH, HEIGHT
        )
    ]
    for pair, cost in links.items():
        if len(pair) != 2:
            continue
        (x1, y1), (x2, y2) = (places[name] for name in sorted(pair))
        style = "closed" if pair in gone else "used" if pair in used else ""
        parts.append(
            Markup(
                '<line class="link {}" x1="{:.0f}" y1="{:.0f}" x2="{:.0f}" y2="{:.0f}"><title>{}</title></line>'
            ).format(style, x1, y1, x2, y2, f"{' - '.join(sorted(pair))}, cost {cost}")
        )
        parts.append(
            Markup('<text class="cost" x="{:.0f}" y="{:.0f}">{}</text>').format((x1 + x2) / 2, (y1 + y2) / 2 - 5, cost)
        )
    on_way = {name for pair in used for name in pair}
    own = _site_of(directory).get(directory.manager.lower(), ())
    for name in sites:
        style = ("used" if name in on_way else "") + (" own" if name in own else "")
        members = [manager.name for manager in directory.managers if name in manager.sites]
        parts.append(_site(name, *places[name], style, f"{name}: {', '.join(members[:20]) or 'no managers'}"))
    parts.append(Markup("</svg>"))
    return Markup("").join(parts)


_SITE = Markup(
    '<g class="site {}"><title>{}</title><circle cx="{:.0f}" cy="{:.0f}" r="9"/>'
    '<text x="{:.0f}" y="{:.0f}">{}</text></g>'
)


def _site(name: str, x: float, y: float, style: str, title: str) -> Markup:
    return _SITE.format(style, title, x, y, x, y + 24, short(name, NAME))


def _site_of(directory: DirectoryInfo) -> dict[str, tuple[str, ...]]:
    return {manager.name.lower(): manager.sites for manager in directory.managers}


def _used(directory: DirectoryInfo, way: Sequence[str]) -> set[frozenset[str]]:
    """The links that the way uses, between the sites of consecutive managers."""
    sites = _site_of(directory)
    links = {frozenset(link.sites) for link in directory.links}
    found: set[frozenset[str]] = set()
    for one, other in pairwise(way):
        for a in sites.get(one.lower(), ()):
            found |= {frozenset((a, b)) for b in sites.get(other.lower(), ()) if a != b} & links
    return found


def _layout(names: Sequence[str], links: Sequence[tuple[str, ...]]) -> dict[str, tuple[float, float]]:
    """Places for the sites: links act as springs, and sites repel each other. It starts from a circle, so the result is
    always the same."""
    count = len(names)
    at = {name: [cos(2 * pi * place / count), sin(2 * pi * place / count)] for place, name in enumerate(names)}
    ideal = 1.6 / count**0.5
    for step in range(STEPS if count > 2 else 0):
        moves = {name: [0.0, 0.0] for name in names}
        for place, one in enumerate(names):
            for other in names[place + 1 :]:
                dx, dy = at[one][0] - at[other][0], at[one][1] - at[other][1]
                far = hypot(dx, dy) or 0.01
                push = ideal * ideal / far / far
                for name, sign in ((one, 1), (other, -1)):
                    moves[name][0] += sign * dx * push
                    moves[name][1] += sign * dy * push
        for one, other in links:
            dx, dy = at[one][0] - at[other][0], at[one][1] - at[other][1]
            pull = hypot(dx, dy) / ideal
            for name, sign in ((one, -1), (other, 1)):
                moves[name][0] += sign * dx * pull
                moves[name][1] += sign * dy * pull
        heat = 0.1 * (1 - step / STEPS) + 0.001
        for name, (mx, my) in moves.items():
            length = hypot(mx, my) or 1.0
            at[name][0] += mx / length * min(length, heat)
            at[name][1] += my / length * min(length, heat)
    return _fitted(at)


def _fitted(at: dict[str, list[float]]) -> dict[str, tuple[float, float]]:
    xs, ys = [x for x, _ in at.values()], [y for _, y in at.values()]
    width, height = max(xs) - min(xs) or 1.0, max(ys) - min(ys) or 1.0
    return {
        name: (60 + (WIDTH - 120) * (x - min(xs)) / width, 30 + (HEIGHT - 80) * (y - min(ys)) / height)
        for name, (x, y) in at.items()
    }


# A sign and a style for each state of a message at a manager. Later ones tell more.
SIGNS = {
    TraceState.UNKNOWN: ("?", "unknown"),
    TraceState.WAITING: ("…", "warn"),
    TraceState.HANDED_OVER: ("→", "plain"),
    TraceState.ARRIVED: ("✓", "ok"),
    TraceState.DIED: ("✕", "bad"),
    TraceState.RECEIVED: ("✓✓", "ok"),
}
_RANKS = [state.value for state in SIGNS]


def sign(state: str) -> tuple[str, str]:
    return SIGNS.get(TraceState(state) if state in _RANKS else TraceState.UNKNOWN, SIGNS[TraceState.UNKNOWN])


def joined_hops(traces: Iterable[Trace]) -> list[TraceHop]:
    """The way of a message, joined from the traces of several managers. For each hop, the trace that tells most
    counts."""
    found: list[TraceHop] = []
    for trace in traces:
        for hop in trace.hops:
            for place, other in enumerate(found):
                if (hop.manager is not None and hop.manager == other.manager) or hop.name.lower() == other.name.lower():
                    if _RANKS.index(hop.state) > _RANKS.index(other.state):
                        found[place] = hop
                    break
            else:
                found.append(hop)
    return found


def hop_sentence(hop: TraceHop) -> str:
    return f"{hop.sentence}: {reason_words(hop.reason)}" if hop.reason else hop.sentence


_HOPS = '<svg class="hops" viewBox="0 0 {0} 120" width="{0}" role="img"><title>The hops of the message</title>'
_ARROW = '<line class="link {}" x1="{}" x2="{}" y1="46" y2="46"/><path class="arrow" d="M{} 40 l10 6 l-10 6 z"/>'
_HOP = (
    '<g class="hop {style}"><title>{detail}</title><circle cx="{x}" cy="46" r="14"/>'
    '<text class="sign" x="{x}" y="51">{sign}</text><text class="what" x="{x}" y="20">{name}</text>'
    '<text x="{x}" y="80">{state}</text><text class="at" x="{x}" y="98">{at}</text></g>'
)


def hop_picture(found: Sequence[TraceHop]) -> Markup:
    """A row of managers from left to right."""
    step = 150
    parts = [Markup(_HOPS).format(max(1, len(found)) * step)]
    for number, hop in enumerate(found):
        x = number * step + step // 2
        mark, style = sign(hop.state)
        if number:
            known = "unknown" if style == "unknown" else "used"
            parts.append(Markup(_ARROW).format(known, x - step + 16, x - 26, x - 28))
        values = {"style": style, "sign": mark, "detail": f"{hop.name}: {hop_sentence(hop)}", "state": hop.state}
        parts.append(Markup(_HOP).format(x=x, name=short(hop.name, 20), at=when(hop.at)[11:], **values))
    parts.append(Markup("</svg>"))
    return Markup("").join(parts)


# Line charts as SVG, made on the server. Pages then need no inline script or style, and the console's policy forbids
# both.


CHART_WIDTH, CHART_HEIGHT = 420, 150
LEFT, RIGHT, TOP, BOTTOM = 52, 8, 10, 22
BANDS = 60  # columns that show their values under the pointer
MIN_SPAN_S = 60.0

Point = tuple[float, float]
Text = Callable[[float], str]


@dataclass(frozen=True, slots=True)
class Line:
    """`style` is its colour in the style sheet: a, b or c. `latest` is its last value in words."""

    name: str
    style: str
    points: Sequence[Point]
    latest: str = ""


@dataclass(frozen=True, slots=True)
class Chart:
    """A title, the lines of the legend, and the picture."""

    title: str
    lines: Sequence[Line]
    picture: Markup


def depth_charts(samples: Sequence[Sample]) -> list[Chart]:
    """Charts of depth, rates and latency. Empty if there are fewer than two samples."""
    found: list[Rates] = rates(samples)
    if not found:
        return []
    last = found[-1]
    depth = [Line("", "a", [(each.at_s, float(each.messages)) for each in samples], count(samples[-1].messages))]
    flow = [
        Line("in", "a", [(each.at_s, each.into) for each in found], rate(last.into)),
        Line("out", "b", [(each.at_s, each.out) for each in found], rate(last.out)),
    ]
    times = samples[0].at_s, samples[-1].at_s  # the same axis for all charts
    charts = [
        Chart("Messages", depth, line_chart(depth, count)),
        Chart("Messages a second", flow, line_chart(flow, rate, times)),
    ]
    if stay := [(each.at_s, each.latency_s) for each in found if each.latency_s is not None]:
        wait = [Line("", "c", stay, age(stay[-1][1]))]
        charts.append(Chart("Mean time in the queue", wait, line_chart(wait, age, times)))
    return charts


def line_chart(lines: Sequence[Line], text: Text, times: tuple[float, float] | None = None) -> Markup:
    """A line chart. Points have seconds since 1970. `text` writes a value. `times` are the ends of the axis, by default
    those of the lines."""
    points = [point for line in lines for point in line.points]
    if not points:
        return Markup("")
    first, end = times or (min(at for at, _ in points), max(at for at, _ in points))
    start = min(first, end - MIN_SPAN_S)
    top = _round_up(max(value for _, value in points))

    def x(at: float) -> float:
        return LEFT + (CHART_WIDTH - LEFT - RIGHT) * (at - start) / (end - start)

    def y(value: float) -> float:
        return CHART_HEIGHT - BOTTOM - (CHART_HEIGHT - TOP - BOTTOM) * value / top

    parts = [Markup('<svg class="chart" viewBox="0 0 {} {}" role="img">').format(CHART_WIDTH, CHART_HEIGHT)]
    for step in range(3):
        value = top * step / 2
        parts.append(
            Markup('<line class="grid" x1="{}" x2="{}" y1="{:.1f}" y2="{:.1f}"/>').format(
                LEFT, CHART_WIDTH - RIGHT, y(value), y(value)
            )
        )
        parts.append(
            Markup('<text class="tick end" x="{}" y="{:.1f}">{}</text>').format(LEFT - 6, y(value) + 4, text(value))
        )
    for at, style in ((start, "start"), ((start + end) / 2, "middle"), (end, "end")):
        label = datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S")
        parts.append(
            Markup('<text class="tick {}" x="{:.1f}" y="{}">{}</text>').format(style, x(at), CHART_HEIGHT - 6, label)
        )
    for line in lines:
        path = " ".join(f"{x(at):.1f},{y(value):.1f}" for at, value in (*line.points, *line.points[-1:]))
        parts.append(Markup('<polyline class="line {}" points="{}"/>').format(line.style, path))
    parts += _bands(lines, x, text)
    parts.append(Markup("</svg>"))
    return Markup("").join(parts)


def _bands(lines: Sequence[Line], x: Callable[[float], float], text: Text) -> list[Markup]:
    """Invisible columns that name the values at their times, for the pointer and for screen readers."""
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
                x(at), max(1.0, x(following) - x(at)), TOP, CHART_HEIGHT - TOP - BOTTOM, label
            )
        )
    return found


def sparkline(values: Sequence[float]) -> Markup:
    """A small line chart without axes."""
    if len(values) < 2:
        return Markup("")
    top = max(values) or 1.0
    step = 100 / (len(values) - 1)
    path = " ".join(f"{place * step:.1f},{22 - 20 * value / top:.1f}" for place, value in enumerate(values))
    return Markup(
        '<svg class="spark" viewBox="0 0 100 24" preserveAspectRatio="none"><polyline points="{}"/></svg>'
    ).format(path)


def _round_up(value: float) -> float:
    """The next greater 1, 2 or 5 times a power of ten."""
    if value <= 0:
        return 1.0
    power = 10.0 ** floor(log10(value))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= value)
