"""A message to send: a test message, or an old one edited and sent again."""

from __future__ import annotations

import asyncio
import re
from base64 import b64encode
from collections.abc import Iterator
from http import HTTPStatus

from postroad.bodies import BodyKind
from postroad.bodies.decoding import text_of
from postroad.console.bodies import KINDS
from postroad.console.rendering import plural
from postroad.console.visit import BadRequest, Form, Visit
from postroad.describe.received import ReceivedMessage
from postroad.errors import MessageAlreadyReceived, MessageNotFound, PostroadError
from postroad.message import ACK_WORDS, Message
from postroad.net.exchange import Response
from postroad.reports.operations import SeekAction
from postroad.wire.constants import INFINITE
from postroad.wire.octets import body_text, encode_body

DELIVERIES = ("auto", "express", "recoverable", "transactional")
MAX_COUNT = 10_000
HEX = "hex"
MAX_TEXT_BYTES = 1 << 20  # of a body that can be edited as text
MAX_HEX_BYTES = 64 << 10  # of an extension that can be edited as digits
UINT32 = 0xFFFFFFFF
ENCODINGS = ("utf-8", "utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be", "cp1252")
DECLARED = re.compile(
    r"""\s*<\?xml\s[^>]{0,100}?encoding\s*=\s*["'](windows-125[0-8]|iso-8859-\d{1,2}|us-ascii)["']""", re.IGNORECASE
)
NO_TEXTS = frozenset({BodyKind.NRBF, BodyKind.WCF, BodyKind.BYTES})
SWITCHES = {"journal": "positive_journaling", "dead_letter": "negative_journaling"}  # with the view's words
NEW = {"priority": ["3"], "delivery": ["auto"], "count": ["1"]}


async def show(visit: Visit) -> Response:
    """With `from` and `id`, fills the form from that message."""
    query = visit.query
    if not query.text("from"):
        return await _page(visit, Form({"to": [query.raw("name")]} | NEW))
    return await _page(visit, Form(await asyncio.to_thread(_fields, await _old(visit, query))), old=query)


async def _old(visit: Visit, form: Form) -> ReceivedMessage:
    client = await visit.client()
    return await client.lookup(form.text("from"), form.number("id", 0), SeekAction.CURRENT, False, None)


async def _page(visit: Visit, form: Form, fault: str = "", old: Form | None = None) -> Response:
    """The page with the form. `old` identifies the message to send again."""
    names = [each.path for each in await visit.queues() if each.type in ("private", "public", "outgoing")][:500]
    message = None
    if old is not None:
        try:
            message = await _old(visit, old)
        except (MessageNotFound, MessageAlreadyReceived) as error:
            fault = fault or str(error)
    status = HTTPStatus.BAD_REQUEST if fault else HTTPStatus.OK
    return visit.show(
        "send.html",
        status,
        form=form,
        fault=fault,
        names=names,
        deliveries=DELIVERIES,
        acks=list(ACK_WORDS),
        old=old,
        message=message,
        not_edited=""
        if message is None or "body" in form.fields
        else await asyncio.to_thread(_why_not_edited, message),
        proved=message is not None and (message.authenticated or message.encrypted),
    )


async def send(visit: Visit, form: Form) -> Response:
    client = await visit.client()
    to = form.text("to")
    if form.text("from"):
        try:
            old = await _old(visit, form)
            changes = _changes(form, await asyncio.to_thread(_fields, old), old)
            sent = await client.resend_changed(form.text("from"), old.lookup_id, changes)
        except PostroadError as error:
            return await _page(visit, form, str(error), form)
        changed = ", ".join(name.removesuffix("_base64").replace("_", " ") for name in changes) or "nothing"
        return visit.done(
            f"Sent 1 message again to {to}: {sent}. Changed: {changed}.",
            visit.url("message", name=form.text("from"), id=old.lookup_id),
        )
    count = form.number("count", 1, 1, MAX_COUNT)
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


# An old message in the form, and the changes to it. Everything else stays byte for byte, because the manager takes it
# from the old message.


def _fields(message: ReceivedMessage) -> dict[str, list[str]]:
    """What the form shows. A body or an extension that is too long for it is left out, and then stays as it is."""
    view, text = message.view, _text_to_edit(message)
    fields = {
        "to": [message.destination_queue or ""],
        "label": [view.label],
        "body_type": [str(view.body_type)],
        "priority": [str(view.priority)],
        "delivery": [message.delivery],
        "app_tag": [str(view.application_tag)],
        "response_queue": [message.response_queue or ""],
        "admin_queue": [message.admin_queue or ""],
        "correlation_id": [message.correlation_id or ""],
        "dead_letter_queue": [message.dead_letter_queue or ""],
        "time_to_reach_queue": [_seconds(view.time_to_reach_queue)],
        "time_to_be_received": [_seconds(view.time_to_be_received)],
        "ack": [word for word, bits in ACK_WORDS.items() if bits.bit_count() == 1 and view.ack_flags & bits],
    }
    if text is not None:
        fields["body"] = [text]
    if len(view.extension) <= MAX_HEX_BYTES:
        fields["extension"] = [view.extension.hex(" ")]
    fields |= {name: ["on"] for name in SWITCHES if getattr(view, SWITCHES[name])}
    return fields


def _text_to_edit(message: ReceivedMessage) -> str | None:
    """The body as it was written, if it is a text that is short enough."""
    if len(message.body) > MAX_TEXT_BYTES or message.read(0).kind in NO_TEXTS:
        return None
    return text_of(message.body, message.body_type)


def _why_not_edited(message: ReceivedMessage) -> str:
    kind = message.read(0).kind
    if kind in (BodyKind.NRBF, BodyKind.WCF):
        return f"was written by {KINDS[kind]} and is no text"
    if text_of(message.body, message.body_type) is not None and kind != BodyKind.BYTES:
        return "is too long to be edited here"
    return "is a value of ActiveX and no text" if kind == BodyKind.ACTIVEX else "is bytes"


def _seconds(value: int) -> str:
    return "" if value == INFINITE else str(value)


def _changes(form: Form, before: dict[str, list[str]], old: ReceivedMessage) -> dict[str, object]:
    """The properties, in the API's words, that differ from the old message."""
    was = Form(before)

    def differs(name: str) -> bool:
        return (
            name in form.fields and name in before and _as_typed(name, form.raw(name)) != _as_typed(name, was.raw(name))
        )

    changes: dict[str, object] = {
        name: form.text(name) or None
        for name in ("to", "response_queue", "admin_queue", "correlation_id", "dead_letter_queue")
        if differs(name)
    }
    if differs("label"):
        changes["label"] = form.raw("label")
    limits = {"body_type": UINT32, "priority": 7, "app_tag": UINT32}
    changes |= {name: form.number(name, 0, 0, most) for name, most in limits.items() if differs(name)}
    for name in ("time_to_reach_queue", "time_to_be_received"):
        if differs(name):
            changes[name] = form.number(name, INFINITE, 0, INFINITE)
    if set(form.several("ack")) - {"none"} != set(before["ack"]):
        changes["ack"] = form.several("ack") or ["none"]
    changes |= {name: form.on(name) for name in SWITCHES if form.on(name) != was.on(name)}
    if differs("delivery"):
        delivery = form.text("delivery")
        if delivery != "auto":
            changes |= {"recoverable": delivery != "express", "transactional": delivery == "transactional"}
    if differs("extension"):
        changes["extension_base64"] = _base64(_digits(form, "extension"))
    if differs("body"):
        changes["body_base64"] = _base64(_new_body(form.raw("body"), was.raw("body"), old))
    return changes


def _as_typed(name: str, text: str) -> str:
    """The text that a browser sends back if nobody has edited it."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "\ufffd").encode("utf-8", "replace").decode()
    return text if name in ("body", "extension") else text.replace("\n", "").strip()


def _new_body(text: str, before: str, old: ReceivedMessage) -> bytes:
    """Text is written as the old text was: in its encoding, with its mark, line ends and zeros at the end."""
    text = text.replace("\r\n", "\n")
    if before.count("\r\n") == before.count("\n") > 0:
        text = text.replace("\n", "\r\n")
    for encoding, mark in _encodings(before):
        try:
            start = f"{mark}{before}".encode(encoding, "surrogatepass")
        except (UnicodeEncodeError, LookupError):
            continue
        if not old.body.startswith(start) or old.body[len(start) :].strip(b"\0"):
            continue
        try:
            return f"{mark}{text}".encode(encoding, "surrogatepass") + old.body[len(start) :]
        except UnicodeEncodeError as error:
            raise BadRequest(
                f"the body is written in {encoding}, which has no {text[error.start - len(mark)]!r}"
            ) from None
    return encode_body(text, old.body_type)


def _encodings(before: str) -> Iterator[tuple[str, str]]:
    """An encoding and a byte order mark. What XML declares comes first: a text in ASCII fits several."""
    declared = DECLARED.match(before)
    if declared:
        yield declared[1], ""
    for encoding in ENCODINGS:
        for mark in ("", "\ufeff"):
            yield encoding, mark


def _digits(form: Form, name: str) -> bytes:
    try:
        return bytes.fromhex(form.raw(name))
    except ValueError:
        raise BadRequest(f"{name}: must be hexadecimal digits") from None


def _base64(data: bytes) -> str:
    return b64encode(data).decode()


# A new message


async def _is_transactional(visit: Visit, name: str) -> bool:
    """Whether a queue is transactional. For remote queues False: the form sends to them without a transaction."""
    try:
        info = await (await visit.client()).queue(name)
    except PostroadError:
        return False
    return info.type != "outgoing" and info.transactional


def _message(form: Form) -> Message:
    body_type = form.number("body_type", 0, 0, UINT32)
    text = form.raw("body").replace("\r\n", "\n")  # browsers send line ends as CR LF
    body: str | bytes = text
    if form.text("encoding") == HEX:
        body = _digits(form, "body")
    elif body_text(text.encode(), body_type) is None:
        body = text.encode()
    return Message(
        body,
        body_type=body_type,
        label=form.text("label"),
        priority=form.number("priority", 3, 0, 7),
        recoverable=form.text("delivery") == "recoverable",
        app_tag=form.number("app_tag", 0, 0, UINT32),
        correlation_id=form.text("correlation_id") or None,
        response_queue=form.text("response_queue") or None,
        admin_queue=form.text("admin_queue") or None,
        ack=",".join(form.several("ack")) or 0,
        time_to_reach_queue=form.number("time_to_reach_queue", 0) if form.text("time_to_reach_queue") else None,
        time_to_be_received=form.number("time_to_be_received", 0) if form.text("time_to_be_received") else None,
        journal=form.on("journal"),
        dead_letter=form.on("dead_letter"),
        dead_letter_queue=form.text("dead_letter_queue") or None,
        extension=_digits(form, "extension"),
    )
