"""The network: outgoing queues and why they wait, sessions, the map of sites, routes with or without closed links,
traces."""

from __future__ import annotations

from typing import Any

from postroad.console.pictures import hop_picture, hop_sentence, joined_hops, sign, site_map
from postroad.console.visit import Visit
from postroad.errors import PostroadError
from postroad.net.exchange import Response
from postroad.reports.enterprise import Route
from postroad.reports.trace import Trace

MOST_QUEUES = 100
MOST_CONNECTIONS = 100


async def show(visit: Visit) -> Response:
    client = await visit.client()
    sessions = await client.sessions()
    amqp = (await client.info()).amqp
    outgoing = [queue for queue in await visit.queues() if queue.type == "outgoing"]
    outgoing.sort(key=lambda queue: (not queue.stuck, -queue.messages))
    live: dict[str, Any] = {
        "sessions": sessions,
        "outgoing": outgoing[:MOST_QUEUES],
        "more": len(outgoing) - MOST_QUEUES,
        "amqp": [] if amqp is None else amqp["connections"][:MOST_CONNECTIONS],
        "more_amqp": 0 if amqp is None else amqp["open"] - MOST_CONNECTIONS,
    }
    if visit.is_fragment:
        return visit.show("network_live.html", **live)
    query = visit.query
    to, source, closed = query.text("to"), query.text("from"), query.several("close")
    directory = await client.directory()
    route: Route | None = None
    normal: Route | None = None
    fault = ""
    if to:
        try:
            normal = await client.route(to, source or None)
        except PostroadError as error:
            fault = str(error)
        try:
            route = await client.route_without(to, source or None, closed) if closed else normal
        except PostroadError as error:
            fault = f"With {', '.join(closed)} closed: {error}"
    pairs = [frozenset(link.sites) for link in directory.links if "-".join(link.sites) in closed]
    picture = site_map(directory, route.path if route else (), pairs)
    return visit.show(
        "network.html",
        **live,
        directory=directory,
        picture=picture,
        route=route,
        before=normal if closed else None,
        fault=fault,
        to=to,
        source=source,
        closed=closed,
    )


async def show_trace(visit: Visit) -> Response:
    """What this manager knows of a message, and what the console's other managers know, if they can be asked."""
    identifier = visit.query.text("id")
    client = await visit.client()
    found: list[tuple[str, Trace]] = []
    fault = ""
    if identifier:
        try:
            found.append((visit.watch.title, await client.trace(identifier)))
        except PostroadError as error:
            fault = str(error)
        here = visit.index
        for index, watch in enumerate(visit.watches):
            if index == here or fault:
                continue
            try:
                other = (await visit.session.on(index, visit.connect(index))).client
                found.append((watch.title, await other.trace(identifier)))
            except PostroadError as error:
                visit.session.notify(f"{watch.title} was not asked: {error}", is_error=True)
    hops = joined_hops(trace for _, trace in found)
    return visit.show(
        "trace.html",
        identifier=identifier,
        fault=fault,
        traces=found,
        hops=[(hop, *sign(hop.state), hop_sentence(hop)) for hop in hops],
        picture=hop_picture(hops),
    )
