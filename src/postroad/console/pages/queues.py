"""The list of queues, and the form for a new one. The list is filtered, sorted and cut into pages here, so that no
browser gets thousands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from postroad.console.history import is_own, queue_name
from postroad.console.pictures import sparkline
from postroad.console.visit import BadRequest, Form, Visit
from postroad.errors import PostroadError
from postroad.net.exchange import Response
from postroad.reports.info import QueueInfo
from postroad.validation.queue_properties import QueueAttributes

PAGE = 50
IN_USE = "in use"  # leaves out empty journals and empty queues of the manager's own
KINDS = (IN_USE, "all", "private", "public", "outgoing", "journal", "subqueue", "system")
SORTS: dict[str, Callable[[QueueInfo], Any]] = {
    "path": lambda queue: queue.path.lower(),
    "messages": lambda queue: queue.messages,
    "bytes": lambda queue: queue.bytes,
    "oldest": lambda queue: -(queue.oldest_arrived_ms or 1 << 62),
    "readers": lambda queue: queue.readers,
}


async def show(visit: Visit) -> Response:
    query = visit.query
    text, kind = query.text("filter"), query.text("kind", IN_USE)
    sort, down = query.text("sort", "path"), query.text("order") == "down"
    if sort not in SORTS or kind not in KINDS:
        raise BadRequest("there is no such order or kind of queues")
    everything = await visit.queues()
    found = [queue for queue in everything if _matches(queue, text.lower(), kind)]
    found.sort(key=SORTS[sort], reverse=down)
    pages = max(1, -(-len(found) // PAGE))
    page = min(query.number("page", 1, 1), pages)
    shown = found[(page - 1) * PAGE : page * PAGE]
    values: dict[str, Any] = {
        "queues": shown,
        "sparks": {queue.path: _spark(visit, queue) for queue in shown},
        "names": {queue.path: queue_name(queue) for queue in shown},
        "total": len(everything),
        "matching": len(found),
        "page": page,
        "pages": pages,
        "filter": text,
        "kind": kind,
        "kinds": KINDS,
        "sort": sort,
        "down": down,
    }
    return visit.show("queues_live.html" if visit.is_fragment else "queues.html", **values)


def _matches(queue: QueueInfo, text: str, kind: str) -> bool:
    if kind == IN_USE and not queue.messages and is_own(queue):
        return False
    return kind in (IN_USE, "all", queue.type) and (text in queue.path.lower() or text in queue.label.lower())


def _spark(visit: Visit, queue: QueueInfo) -> object:
    return sparkline([float(each.messages) for each in visit.watch.history(queue.path)[-60:]])


async def show_new(visit: Visit) -> Response:
    await visit.access()
    return visit.show("new.html", fault="", values=Form({}))


async def create(visit: Visit, form: Form) -> Response:
    client = await visit.client()
    path = form.text("path")
    if "\\" not in path:
        path = f"private$\\{path}"
    try:
        await client.create_queue(path, attributes(form))
    except PostroadError as error:
        return visit.show("new.html", fault=str(error), values=form)
    return visit.done(f"Created {path}.", visit.url("queue", name=path))


def attributes(form: Form) -> QueueAttributes:
    """The properties of a new queue, from the form."""
    found: QueueAttributes = {"label": form.text("label")}
    found["transactional"], found["journal"] = form.on("transactional"), form.on("journal")
    found["authenticate"] = form.on("authenticate")
    if form.text("quota_kb"):
        found["quota_kb"] = form.number("quota_kb", 0)
    return found
