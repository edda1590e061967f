"""Files: the messages of a queue byte for byte, out and in, and the body of one message."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

from starlette.responses import JSONResponse, Response, StreamingResponse

from postroad.console.rendering import plural
from postroad.console.visit import BadRequest, Visit
from postroad.errors import PostroadError, RemoteProtocolError
from postroad.net.http import used
from postroad.values.reading import SeekAction
from postroad.wire import Framer, MessageView
from postroad.wire.local_part import without_local_part

BATCH_MESSAGES = 1000
BATCH_BYTES = 16 << 20
MAX_IMPORT_BYTES = 4 << 30
BYTES = "application/octet-stream"


async def export(visit: Visit) -> Response:
    """All messages, or one with the lookup id `id`, as `postroad export` writes them."""
    name, chosen = visit.query.text("name"), visit.query.numbers("id")
    if chosen:
        return await export_chosen(visit, name, chosen)
    client = await visit.client()
    info = await client.queue(name)
    first, last = await client.packets(name, -1)  # errors must come before the head of the answer

    async def pieces() -> AsyncIterator[bytes]:
        content, after = first, last
        while after is not None:
            yield content
            content, after = await client.packets(name, after)

    return StreamingResponse(pieces(), media_type=BYTES, headers=_attachment(f"{info.path}.msmq"))


async def export_chosen(visit: Visit, name: str, chosen: list[int]) -> Response:
    client = await visit.client()
    messages = [await client.lookup(name, each, SeekAction.CURRENT, False, None) for each in chosen]
    content = b"".join(without_local_part(each.packet) for each in messages)
    return Response(content, media_type=BYTES, headers=_attachment(f"{name}.msmq"))


async def body(visit: Visit) -> Response:
    """Always a download: a page of a message's choice must not run in the console."""
    name, lookup_id = visit.query.text("name"), visit.query.number("id", 0)
    message = await (await visit.client()).lookup(name, lookup_id, SeekAction.CURRENT, False, None)
    return Response(message.body, media_type=BYTES, headers=_attachment(f"{lookup_id}.bin"))


def _attachment(name: str) -> dict[str, str]:
    plain = re.sub(r"[^A-Za-z0-9._-]+", "_", name).strip("_")
    return {"Content-Disposition": f'attachment; filename="{plain}"'}


async def import_packets(visit: Visit) -> Response:
    """The body of the request is a file of `export`. What was put in before a fault stays, and the answer says how
    many."""
    name = visit.query.text("name")
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
            used(visit.request.scope, inserted - counted)
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
    return JSONResponse({"next": visit.url("messages", name=name)})


def _check(packet: bytes, start: int) -> None:
    try:
        MessageView(packet)
    except RemoteProtocolError as fault:
        raise fault.shifted(start) from None
