"""All managers at a glance: what needs attention first, then numbers and charts, updated live."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from postroad.console.history import DEAD_LETTERS, Item, Rates, is_own, items, rates
from postroad.console.manager_client import LoginNeeded
from postroad.console.pictures import Chart, depth_charts
from postroad.console.visit import Visit
from postroad.errors import AccessDenied, ManagerUnavailable, StorageError
from postroad.net.exchange import Response
from postroad.reports.info import ManagerInfo, QueueInfo

LARGEST = 10


@dataclass(slots=True)
class Card:
    """One manager. `state` is `up`, `down`, `standby`, `limited` (no right to see the manager) or `login`."""

    index: int
    title: str
    url: str
    state: str = "up"
    why: str = ""
    info: ManagerInfo | None = None
    queues: int = 0
    messages: int = 0
    dead: int = 0
    rates: Rates | None = None
    charts: list[Chart] = field(default_factory=list)
    since: float | None = None  # the start of the charts
    attention: list[Item] = field(default_factory=list)
    largest: list[QueueInfo] = field(default_factory=list)
    acts: bool = False  # whether the person may change anything


async def show(visit: Visit) -> Response:
    cards = [await _card(visit, index) for index in range(len(visit.watches))]
    visit.manager = 0
    if all(card.state == "login" for card in cards):
        raise LoginNeeded(cards[0].why)
    if len(cards) > 1:
        visit.manager = None
    found = [item for card in cards for item in card.attention]
    found.sort(key=lambda item: item.level != "bad")
    template = "overview_live.html" if visit.is_fragment else "overview.html"
    return visit.show(template, cards=cards, attention=found)


async def _card(visit: Visit, index: int) -> Card:
    watch = visit.watches[index]
    card = Card(index, watch.title, watch.url)
    visit.manager = index
    try:
        access = await visit.access()
        await visit.ask_rights()
        queues = await visit.queues()
    except LoginNeeded as error:
        card.state, card.why = "login", str(error)
        return card
    except ManagerUnavailable as error:
        card.state, card.why = "down", error.fault
        card.attention = [Item("bad", watch.title, f"The manager does not answer: {error.fault}", "/")]
        return card
    except StorageError as error:
        card.why = str(error)
        if watch.store.get("role") == "standby":
            card.state = "standby"
        else:
            card.state = "down"
            card.attention = [Item("bad", watch.title, f"The manager does not serve: {error}", "/")]
        return card
    try:
        card.info = await access.client.info()
        card.title = watch.name = card.info.name
    except AccessDenied as error:
        card.state, card.why = "limited", str(error)
    card.acts = visit.may("act")
    card.queues = sum(queue.type in ("private", "public") and not is_own(queue) for queue in queues)
    card.messages = sum(queue.messages for queue in queues if not is_own(queue))
    card.dead = sum(queue.messages for queue in queues if queue.path in DEAD_LETTERS)
    card.attention = list(items(index, card.title, card.info, queues))
    card.largest = sorted((queue for queue in queues if queue.messages), key=lambda queue: -queue.messages)[:LARGEST]
    if visit.may("look"):
        samples = list(watch.totals)
        flow = rates(samples[-13:])
        card.rates = flow[-1] if flow and time.time() - flow[-1].at_s < 60 else None
        card.charts, card.since = depth_charts(samples), samples[0].at_s if samples else None
    return card
