"""A message to send: a test message, or an old one edited and sent again."""

from __future__ import annotations

from http import HTTPStatus

from starlette.responses import Response

from postroad.console.rendering import plural
from postroad.console.visit import BadRequest, Form, Visit
from postroad.errors import PostroadError
from postroad.message import ACK_WORDS, Message
from postroad.values.reading import SeekAction
from postroad.wire.bodies import body_text

DELIVERIES = ("auto", "express", "recoverable", "transactional")
MAX_COUNT = 10_000
HEX = "hex"


async def show(visit: Visit) -> Response:
    """With `from` and `id`, the form has what that message has."""
    query = visit.query
    source, lookup_id = query.text("from"), query.number("id", 0)
    fields = {"to": [query.text("name")], "priority": ["3"], "delivery": ["auto"], "count": ["1"]}
    client = await visit.client()
    if source:
        message = await client.lookup(source, lookup_id, SeekAction.CURRENT, False, None)
        body = message.text
        fields |= {
            "to": [message.destination_queue or query.text("name")],
            "label": [message.label],
            "body": [body if body is not None else message.body.hex(" ")],
            "encoding": ["text" if body is not None else HEX],
            "body_type": [str(message.body_type)],
            "priority": [str(message.priority)],
            "delivery": [message.delivery],
            "app_tag": [str(message.app_tag)],
            "response_queue": [message.response_queue or ""],
            "admin_queue": [message.admin_queue or ""],
        }
        if message.correlation_id is not None:
            fields["correlation_id"] = [message.correlation_id]
    return await _page(visit, Form(fields))


async def _page(visit: Visit, form: Form, fault: str = "") -> Response:
    names = [each.path for each in await visit.queues() if each.type in ("private", "public", "outgoing")][:500]
    status = HTTPStatus.BAD_REQUEST if fault else HTTPStatus.OK
    return visit.show(
        "send.html", status, form=form, fault=fault, names=names, deliveries=DELIVERIES, acks=list(ACK_WORDS)
    )


async def send(visit: Visit, form: Form) -> Response:
    client = await visit.client()
    to, count = form.text("to"), form.number("count", 1, 1, MAX_COUNT)
    try:
        message = _message(form)
        transactional = form.text("delivery") == "transactional" or (
            form.text("delivery") == "auto" and await _is_transactional(visit, to)
        )
        messages = [message] * count
        if transactional:
            ids = await client.send_transactional(to, messages)
        else:
            ids = await client.send(to, messages, None)
    except PostroadError as error:
        return await _page(visit, form, str(error))
    return visit.done(f"Sent {plural(len(ids), 'message')} to {to}: {ids[0]}", visit.url("send", name=to))


async def _is_transactional(visit: Visit, name: str) -> bool:
    """Of a local queue; a remote one is sent to without a transaction."""
    try:
        info = await (await visit.client()).queue(name)
    except PostroadError:
        return False
    return info.type != "outgoing" and info.transactional


def _message(form: Form) -> Message:
    body_type = form.number("body_type", 0, 0, 0xFFFF)
    text = form.raw("body").replace("\r\n", "\n")  # browsers write line ends of text areas as CR LF
    body: str | bytes = text
    if form.text("encoding") == HEX:
        try:
            body = bytes.fromhex(text)
        except ValueError:
            raise BadRequest("body: must be hexadecimal digits") from None
    elif body_text(text.encode(), body_type) is None:
        body = text.encode()
    return Message(
        body,
        body_type=body_type,
        label=form.text("label"),
        priority=form.number("priority", 3, 0, 7),
        recoverable=form.text("delivery") == "recoverable",
        app_tag=form.number("app_tag", 0, 0, 0xFFFFFFFF),
        correlation_id=form.text("correlation_id") or None,
        response_queue=form.text("response_queue") or None,
        admin_queue=form.text("admin_queue") or None,
        ack=",".join(form.several("ack")) or 0,
        time_to_reach_queue=form.number("time_to_reach_queue", 0) if form.text("time_to_reach_queue") else None,
        time_to_be_received=form.number("time_to_be_received", 0) if form.text("time_to_be_received") else None,
        journal=form.on("journal"),
        dead_letter=form.on("dead_letter"),
    )
