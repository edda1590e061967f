"""Messages of a queue: pages by lookup id, one message with its headers and body, search, move, copy, delete."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator
from http import HTTPStatus

from postroad.bodies import BodyKind, Decoded, decode
from postroad.client.payloads import MAX_PAGE_BYTES
from postroad.console.bodies import KINDS, MOST_CHARACTERS, SYSTEMS, Shown, shown_body, shown_headers
from postroad.console.jobs import Job
from postroad.console.manager_client import ManagerClient
from postroad.console.rendering import plural
from postroad.console.search import MOST_OF_TYPE, Row, matcher, row, scan
from postroad.console.visit import BadRequest, Form, Visit
from postroad.describe.received import ReceivedMessage
from postroad.errors import (
    IllegalExpression,
    MessageAlreadyReceived,
    MessageNotFound,
    PostroadError,
    RemoteProtocolError,
)
from postroad.net.exchange import Response
from postroad.reports.operations import SeekAction
from postroad.wire import Framer, MessageView
from postroad.wire.constants import MessageClass, class_name
from postroad.wire.patch import without_local_part

PAGE = 50
_NAMED = ("sender_id", "source_manager")  # properties of a message that a directory may have names for
MOVED_AT_ONCE = 1000
MAX_TRAIL = 40  # pages back that a link remembers
PLACES = {"current": SeekAction.CURRENT, "next": SeekAction.NEXT, "previous": SeekAction.PREVIOUS}
PLACES |= {"first": SeekAction.FIRST, "last": SeekAction.LAST}
HIDDEN = ("body", "body_base64", "extension_base64")


async def show_list(visit: Visit) -> Response:
    query = visit.query
    name, after = query.raw("name"), query.number("after", 0)
    trail = [each for each in query.text("trail").split(".") if each.isdecimal()][-MAX_TRAIL:]
    client = await visit.client()
    info = await client.queue(name)
    found = await client.page(name, after if query.text("after") else -1, PAGE + 1)
    rows = await asyncio.to_thread(lambda: [row(message) for message in found[:PAGE]])
    following = None
    if len(found) > PAGE or sum(len(each.packet) for each in found) >= MAX_PAGE_BYTES:
        following = visit.url(
            "messages", name=name, after=rows[-1].lookup_id, trail=".".join([*trail, query.text("after") or "0"])
        )
    previous = None
    if query.text("after"):
        back = trail[-1] if trail else "0"
        previous = visit.url("messages", name=name, after=back if back != "0" else None, trail=".".join(trail[:-1]))
    return visit.show(
        "messages.html",
        queue=info,
        name=name,
        rows=rows,
        following=following,
        previous=previous,
        number=len(trail) + 1,
        targets=await _targets(visit, info.path),
    )


async def _targets(visit: Visit, path: str) -> list[str]:
    """The queues that messages can move to, as suggestions."""
    queues = await visit.queues()
    return [each.path for each in queues if each.type in ("private", "public") and each.path != path][:500]


async def show_one(visit: Visit) -> Response:
    query = visit.query
    name, lookup_id, place = query.raw("name"), query.number("id", 0), query.text("place", "current")
    if place not in PLACES:
        raise BadRequest("there is no such place in a queue")
    client = await visit.client()
    try:
        message = await client.lookup(name, lookup_id, PLACES[place], False, None)
    except MessageNotFound:
        if place == "current":
            raise
        visit.session.notify("There is no message in that direction.")
        return visit.go(
            visit.url("message", name=name, id=lookup_id) if lookup_id else visit.url("messages", name=name)
        )
    fault = ""
    try:
        fields = await asyncio.to_thread(message.describe)
        body, body_type, extension = message.body, message.body_type, message.extension
    except PostroadError as error:
        fields, body, body_type, extension, fault = {}, message.packet, 0, b"", str(error)

    def read() -> tuple[Decoded, Shown, Shown]:
        found = Decoded(BodyKind.BYTES) if fault else message.read(MOST_CHARACTERS)
        of_extension = shown_body(extension, 0, decode(extension, limit=MOST_CHARACTERS))
        return found, shown_body(body, body_type, found, query.text("view")), of_extension

    found, shown, shown_extension = await asyncio.to_thread(read)
    headers, left_out = shown_headers(found.headers)
    named = await client.names(fields.get(key) for key in _NAMED)
    fields |= {key: f"{named[str(fields[key])]} ({fields[key]})" for key in _NAMED if str(fields.get(key)) in named}
    return visit.show(
        "message.html",
        name=name,
        message=message,
        fields={key: _words(value) for key, value in fields.items() if key not in HIDDEN and value is not None},
        label=fields.get("label", ""),
        identifier=fields.get("id", ""),
        fault=fault,
        found=found,
        kind=KINDS[found.kind],
        system=SYSTEMS.get(found.system or "", ""),
        type=(found.message_type or "")[:MOST_OF_TYPE],
        headers=headers,
        left_out=left_out,
        extension=shown_extension,
        extension_size=len(extension),
        shown=shown,
        size=len(body),
        is_dead=bool(message.reason),
        targets=await _targets(visit, name),
    )


def _words(value: object) -> object:
    return ("no", "yes")[value] if isinstance(value, bool) else value


# Search


async def show_search(visit: Visit) -> Response:
    return await _search_page(visit, visit.query)


async def _search_page(visit: Visit, form: Form, fault: str = "") -> Response:
    name = form.raw("name")
    info = await (await visit.client()).queue(name)
    classes = sorted(class_name(each) for each in MessageClass)
    status = HTTPStatus.BAD_REQUEST if fault else HTTPStatus.OK
    return visit.show("search.html", status, queue=info, name=name, form=form, fault=fault, classes=classes)


async def search(visit: Visit, form: Form) -> Response:
    conditions = {key: form.text(key) for key in ("label", "id", "class", "body", "where")}
    try:
        match = matcher(*conditions.values())
    except IllegalExpression as error:
        return await _search_page(visit, form, str(error))
    reader = await visit.reader()
    name = form.raw("name")
    job = Job("search", f"Search in {name}", visit.index, name)
    job.facts = {key: value for key, value in conditions.items() if value}

    async def work(job: Job) -> None:
        def add(found: Row) -> None:
            job.ids.append(found.lookup_id)
            job.add(found)

        await scan(reader, job, lambda message: row(message) if match(message) else None, add)

    visit.session.jobs.start(job, work)
    return visit.go(visit.url("job", id=job.id))


# Actions on chosen messages


async def act(visit: Visit, form: Form) -> Response:
    name, action, target = form.raw("name"), form.text("action"), form.text("target")
    if action == "move-found":
        return await _move_found(visit, form, target)
    chosen = form.numbers("id")
    back = visit.url("messages", name=name)
    if not chosen:
        visit.session.notify("Choose at least one message.", is_error=True)
        return visit.go(back)
    if action in ("move", "copy") and not target:
        visit.session.notify("Name the queue that the messages go to.", is_error=True)
        return visit.go(back)
    client = await visit.client()
    if action == "move":
        moved = await client.move(name, target, chosen)
        return visit.done(f"Moved {plural(len(moved), 'message')} to {target}.", back)
    if action == "copy":
        packets = [(await _peek(visit, name, each)).packet for each in chosen]
        await client.insert(target, packets)
        return visit.done(f"Copied {plural(len(packets), 'message')} to {target}.", back)
    if action == "export":
        return await export_chosen(visit, name, chosen)
    if action == "delete":
        return visit.done(f"Deleted {plural(await _delete(visit, name, chosen), 'message')}.", back)
    raise BadRequest("there is no such action")


async def _move_found(visit: Visit, form: Form, target: str) -> Response:
    """Moves everything that a search found, as a job."""
    search = visit.job(form.text("job"), "search")
    if search is None:
        raise BadRequest("the search has ended: search again")
    if not target:
        visit.session.notify("Name the queue that the messages go to.", is_error=True)
        return visit.go(visit.url("job", id=search.id))
    client = await visit.client()
    await client.queue(target)  # report a missing target before anything else
    job = Job("move", f"Move from {search.queue} to {target}", visit.index, search.queue, total=len(search.ids))

    async def work(job: Job) -> None:
        for start in range(0, len(search.ids), MOVED_AT_ONCE):
            step = search.ids[start : start + MOVED_AT_ONCE].tolist()
            job.found += await _move(client, search.queue, target, step)
            job.done += len(step)
        visit.changed()

    visit.session.jobs.start(job, work)
    return visit.go(visit.url("job", id=job.id))


async def _move(client: ManagerClient, name: str, target: str, step: list[int]) -> int:
    """How many were moved: all in one call or, if a reader took one of them first, one by one."""
    gone = (MessageNotFound, MessageAlreadyReceived)
    try:
        return len(await client.move(name, target, step))
    except gone:
        moved = 0
        for each in step:
            try:
                moved += len(await client.move(name, target, [each]))
            except gone:
                continue
        return moved


async def _peek(visit: Visit, name: str, lookup_id: int) -> ReceivedMessage:
    return await (await visit.client()).lookup(name, lookup_id, SeekAction.CURRENT, False, None)


async def _delete(visit: Visit, name: str, chosen: list[int]) -> int:
    """How many were deleted. A reader may have taken others first."""
    client, gone = await visit.client(), 0
    for each in chosen:
        try:
            await client.lookup(name, each, SeekAction.CURRENT, True, None)
        except (MessageNotFound, MessageAlreadyReceived):
            continue
        gone += 1
    return gone


# Files: export and import of messages, byte for byte, and the body of one message.


BATCH_MESSAGES = 1000
BATCH_BYTES = 16 << 20
MAX_IMPORT_BYTES = 4 << 30
BYTES = "application/octet-stream"


async def export(visit: Visit) -> Response:
    """All messages, or the one with the lookup id `id`, as `postroad export` writes them."""
    name, chosen = visit.query.raw("name"), visit.query.numbers("id")
    if chosen:
        return await export_chosen(visit, name, chosen)
    client = await visit.client()
    info = await client.queue(name)
    first, last = await client.packets(name, -1)  # find errors before the head of the answer is sent

    async def pieces() -> AsyncGenerator[bytes, None]:
        content, after = first, last
        while after is not None:
            yield content
            content, after = await client.packets(name, after)

    return Response(media_type=BYTES, headers=_attachment(f"{info.path}.msmq"), pieces=pieces())


async def export_chosen(visit: Visit, name: str, chosen: list[int]) -> Response:
    client = await visit.client()
    messages = [await client.lookup(name, each, SeekAction.CURRENT, False, None) for each in chosen]
    content = b"".join(without_local_part(each.packet) for each in messages)
    return Response(content, media_type=BYTES, headers=_attachment(f"{name}.msmq"))


async def body(visit: Visit) -> Response:
    """The body of a message. Always a download, so that no page in a message runs in the console."""
    name, lookup_id = visit.query.raw("name"), visit.query.number("id", 0)
    message = await (await visit.client()).lookup(name, lookup_id, SeekAction.CURRENT, False, None)
    return Response(message.body, media_type=BYTES, headers=_attachment(f"{lookup_id}.bin"))


def _attachment(name: str) -> dict[str, str]:
    plain = re.sub(r"[^A-Za-z0-9._-]+", "_", name).strip("_")
    return {"content-disposition": f'attachment; filename="{plain}"'}


async def import_packets(visit: Visit) -> Response:
    """Imports a file of `export`, the body of the request. Messages before a fault stay, and the answer says how many
    they are."""
    name = visit.query.raw("name")
    client = await visit.client()
    framer, batch = Framer(), list[bytes]()
    size = start = done = waiting = counted = 0
    try:
        async for data in visit.request.stream():
            size += len(data)
            if size > MAX_IMPORT_BYTES:
                raise BadRequest(f"a file must have at most {MAX_IMPORT_BYTES} bytes")
            for packet in framer.feed(data):
                _check(packet, start)
                start += len(packet)
                batch.append(packet)
                waiting += len(packet)
                if len(batch) >= BATCH_MESSAGES or waiting >= BATCH_BYTES:
                    done += len(await client.insert(name, batch))
                    batch, waiting = [], 0
            if framer.error is not None:
                raise framer.error.shifted(framer.position)
            inserted = size - waiting - framer.buffered
            visit.request.connection.used(inserted - counted)
            counted = inserted
        if framer.buffered:
            raise BadRequest(f"at byte {framer.position}: the last packet is cut off")
        if batch:
            done += len(await client.insert(name, batch))
    except PostroadError as error:
        sentence = f"The file was not imported, but for its first {plural(done, 'message')}: {error}"
        visit.session.notify(sentence, is_error=True)
    else:
        visit.session.notify(f"Imported {plural(done, 'message')} into {name}.")
    visit.changed()
    return Response(json.dumps({"next": visit.url("messages", name=name)}).encode(), media_type="application/json")


def _check(packet: bytes, start: int) -> None:
    try:
        MessageView(packet)
    except RemoteProtocolError as fault:
        raise fault.shifted(start) from None
