"""Pictures as SVG, made here: the sites and links of an enterprise with the way of a message, and a message's hops."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from math import cos, hypot, pi, sin

from markupsafe import Markup

from postroad.console.rendering import short, when
from postroad.values.directory import DirectoryInfo
from postroad.values.trace import Trace, TraceHop, TraceState, reason_words

WIDTH, HEIGHT = 640, 420
STEPS = 200  # of the layout: more change nothing that an eye sees
MAX_SITES = 150  # beyond that a picture says nothing
NAME = 16  # characters of a site's name


def site_map(directory: DirectoryInfo, way: Sequence[str], closed: Iterable[frozenset[str]]) -> Markup:
    """`way` are managers by name, from the first to the last; `closed` are pairs of sites whose links are closed."""
    sites = [site.name for site in directory.sites][:MAX_SITES]
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
    """The links between the sites of two managers that follow each other."""
    sites = _site_of(directory)
    links = {frozenset(link.sites) for link in directory.links}
    found: set[frozenset[str]] = set()
    for one, other in pairwise(way):
        for a in sites.get(one.lower(), ()):
            found |= {frozenset((a, b)) for b in sites.get(other.lower(), ()) if a != b} & links
    return found


def _layout(names: Sequence[str], links: Sequence[tuple[str, ...]]) -> dict[str, tuple[float, float]]:
    """Springs along links, and sites that push each other away: from a circle, so the same picture each time."""
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


# What is known of a message at a manager: a sign, and a style. The better known comes last.
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
    """The way of a message as several managers know it: of each manager what is known best."""
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
