"""One queue: its numbers, properties, access list and charts, and the actions on it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from postroad.console.pictures import depth_charts
from postroad.console.rendering import plural
from postroad.console.visit import BadRequest, Form, Visit
from postroad.errors import PostroadError, Status
from postroad.net.exchange import Response
from postroad.reports.access_list import read_entries
from postroad.reports.info import QueueInfo
from postroad.security.rights import QUEUE_RIGHT_WORDS
from postroad.validation.kinds import FieldFault
from postroad.validation.queue_properties import (
    CHANGEABLE,
    QUEUE_PROPERTIES,
    QueueAttributes,
)

MADE = ("private", "public")
_STATUSES: Mapping[int, str] = {each.value: each.name.replace("_", " ").lower() for each in Status}


@dataclass(slots=True)
class Attempts:
    """Consecutive attempts to connect with the same outcome, in words."""

    status: str
    why: str
    first_s: int
    last_s: int
    count: int = 1


def attempts(history: Iterable[Mapping[str, Any]]) -> list[Attempts]:
    """The attempts of an outgoing queue, the latest first. They are grouped, because a manager that is down is tried
    every second."""
    found: dict[tuple[str, str], Attempts] = {}
    for each in history:
        status, error, at = str(each["status"]).replace("-", " "), int(each.get("error") or 0), int(each["time_s"])
        why = str(each.get("reason") or (_STATUSES.get(error, f"error {error:#x}") if error else ""))
        group = found.setdefault((status, why), Attempts(status, why, at, at, 0))
        group.first_s, group.last_s = min(group.first_s, at), max(group.last_s, at)
        group.count += 1
    return sorted(found.values(), key=lambda group: -group.last_s)


async def show(visit: Visit) -> Response:
    name = visit.query.raw("name")
    client = await visit.client()
    info = await client.queue(name)
    history = visit.watch.history(info.path)
    charts, since = depth_charts(history), history[0].at_s if history else None
    if visit.is_fragment:
        return visit.show(
            "queue_live.html", queue=info, name=name, charts=charts, since=since, attempts=attempts(info.history)
        )
    sddl, entries, no_access = "", [], ""
    if info.type != "outgoing":
        try:
            sddl = await client.acl(name)
            entries = read_entries(sddl, await client.acl_names(name))
        except PostroadError as error:
            no_access = str(error)
    related = [
        each for each in await visit.queues() if each.path != info.path and each.path.startswith(f"{info.path};")
    ]
    return visit.show(
        "queue.html",
        queue=info,
        name=name,
        charts=charts,
        since=since,
        attempts=attempts(info.history),
        properties=QUEUE_PROPERTIES,
        changeable=CHANGEABLE,
        sddl=sddl,
        entries=entries,
        no_access=no_access,
        rights=list(QUEUE_RIGHT_WORDS),
        related=related,
        made=info.type in MADE,
    )


async def change(visit: Visit, form: Form) -> Response:
    """Changes only the properties that differ, so that old values of the others are not written back."""
    name = form.raw("name")
    client = await visit.client()
    info = await client.queue(name)
    changes: dict[str, object] = {}
    for key, each in CHANGEABLE.items():
        old = getattr(info, key)
        if isinstance(old, bool):
            new: object = form.on(key)
        elif key in form.fields:
            text = form.text(key)
            try:
                new = None if each.optional and text in ("", "none") else each.from_text(text)
            except FieldFault as fault:
                raise BadRequest(f"{key}: {fault.fault}") from None
        else:
            continue
        if new != old:
            changes[key] = new
    if not changes:
        return visit.done("Nothing was changed.", visit.url("queue", name=name))
    await client.set_queue(name, cast(QueueAttributes, changes))
    return visit.done(f"Changed {', '.join(changes)} of {info.path}.", visit.url("queue", name=name))


# Actions to confirm: a page first names the number of messages, then its form acts.


async def _confirm(visit: Visit, action: str) -> Response:
    name = visit.query.raw("name")
    info = await (await visit.client()).queue(name)
    copies = [each for each in await visit.queues() if each.path.startswith(f"{info.path};") and each.messages]
    return visit.show("confirm.html", queue=info, name=name, action=action, copies=copies)


async def show_purge(visit: Visit) -> Response:
    return await _confirm(visit, "purge")


async def show_delete(visit: Visit) -> Response:
    return await _confirm(visit, "delete")


async def purge(visit: Visit, form: Form) -> Response:
    name = form.raw("name")
    purged = await (await visit.client()).purge_queue(name)
    return visit.done(f"Purged {plural(purged, 'message')} from {name}.", visit.url("queue", name=name))


async def delete(visit: Visit, form: Form) -> Response:
    name = form.raw("name")
    await (await visit.client()).delete_queue(name)
    return visit.done(f"Deleted {name}.", visit.url("queues"))


async def pause(visit: Visit, form: Form) -> Response:
    info: QueueInfo = await (await visit.client()).pause_queue(form.raw("name"))
    return visit.done(f"{info.path} sends nothing until it is resumed.", visit.url("queue", name=form.raw("name")))


async def resume(visit: Visit, form: Form) -> Response:
    info: QueueInfo = await (await visit.client()).resume_queue(form.raw("name"))
    return visit.done(f"{info.path} sends again.", visit.url("queue", name=form.raw("name")))


async def change_access(visit: Visit, form: Form) -> Response:
    name, edit, who = form.raw("name"), form.text("edit"), form.text("who")
    rights = form.several("right")
    client = await visit.client()
    if edit == "replace":
        await client.set_acl(name, form.text("sddl") or None)
        return visit.done(f"Replaced the access list of {name}.", visit.url("queue", name=name))
    if edit not in ("grant", "deny", "revoke"):
        raise BadRequest("an access list can be changed by grant, deny and revoke")
    if not rights:
        visit.session.notify("Choose at least one right.", is_error=True)
        return visit.go(visit.url("queue", name=name))
    await client.edit_acl(name, edit, who, rights)
    words = {"grant": "granted to", "deny": "denied to", "revoke": "revoked from"}[edit]
    return visit.done(f"{', '.join(rights)}: {words} {who}.", visit.url("queue", name=name))
