"""Calls about open queues: a handle can exclude other readers, and holds cursors."""

from __future__ import annotations

from http import HTTPStatus

from starlette.responses import Response

from postroad.api.calls import Answer, Body, Call, Handler, Needs, Operations, json_answer, no_content
from postroad.api.formats import ARROW, JSON, RECORDS, choose, whole_answer
from postroad.api.messages import PACKET, TIMEOUT
from postroad.api.schema import QUEUE
from postroad.errors import InvalidHandle, MessageNotFound
from postroad.fields.kinds import LOOKUP_ID, FieldFault, choice
from postroad.fields.tables import Property, read_object
from postroad.queues.access import Action
from postroad.queues.queue import Queue
from postroad.values.reading import QueueAccess, ReadCall, ShareMode

ACCESSES = {"receive": QueueAccess.RECEIVE, "peek": QueueAccess.PEEK}
SHARES = {"deny-none": ShareMode.DENY_NONE, "deny-receive": ShareMode.DENY_RECEIVE}
CALLS = {
    "peek": (ReadCall.PEEK, "Peek at the message at a cursor"),
    "peek-next": (ReadCall.PEEK_NEXT, "Move a cursor to the next message, and peek at it"),
    "receive": (ReadCall.RECEIVE, "Receive the message at a cursor"),
}
_OPENING = {
    "queue": Property("queue", "name", QUEUE, "the queue to open", required=True),
    "access": Property("access", "access", choice(ACCESSES), "what the handle may do", required=True),
    "share": Property("share", "share", choice(SHARES), "whether others may read meanwhile; deny-none if absent"),
}
_NOT_FOUND = (HTTPStatus.NOT_FOUND,)

OPERATIONS = Operations()


def _number(call: Call, name: str) -> int:
    """A handle from the path. Text that is no number names no open queue."""
    text = call.segment(name)
    try:
        return LOOKUP_ID.from_text(text)
    except FieldFault:
        raise InvalidHandle(f"there is no open {name} {text}") from None


def _own(call: Call, action: Action | None = None) -> int:
    """A handle that the caller has opened. The right on its queue is asked again for each read, because the access
    list may have changed."""
    handle = _number(call, "handle")
    if not call.owns(call.manager.leases.core.handle_holder(handle)):
        raise InvalidHandle(f"there is no open queue {handle}")
    if action is not None and (queue := _queue(call, handle)) is not None:
        call.manager.core.access.require(queue, call.token, action)
    return handle


def _queue(call: Call, handle: int) -> Queue | None:
    descriptor = call.manager.core.descriptors.get(handle)
    return None if descriptor is None else descriptor.queue


def _permitted(call: Call, handle: int, action: Action) -> bool:
    queue = _queue(call, handle)
    return queue is None or call.manager.core.access.allows(queue, call.token, action)


@OPERATIONS.add(
    "POST /handles",
    "Open a queue",
    Answer(HTTPStatus.CREATED, "its handle", {JSON: "Handle"}),
    body=Body({JSON: "Opening"}),
    errors=(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT),
    needs=Needs.NAMED,
)
async def open_queue(call: Call) -> Response:
    values = read_object(await call.json_object(), _OPENING)
    call.require(Action.PEEK if values["access"] is QueueAccess.PEEK else Action.RECEIVE, values["name"])
    return json_answer({"handle": call.manager.open_queue(**values, holder=call.holder)}, HTTPStatus.CREATED)


@OPERATIONS.add(
    "DELETE /handles/{handle}",
    "Close an open queue, and end its waiting reads",
    Answer(HTTPStatus.NO_CONTENT, "the queue is closed"),
    errors=_NOT_FOUND,
    needs=Needs.OWN,
)
async def close_queue(call: Call) -> Response:
    call.manager.close_queue(_own(call))
    return no_content()


@OPERATIONS.add(
    "POST /handles/{handle}/cursors",
    "Create a cursor",
    Answer(HTTPStatus.CREATED, "the cursor", {JSON: "Cursor"}),
    errors=(HTTPStatus.NOT_FOUND, HTTPStatus.GONE),
    needs=Needs.OWN,
)
async def open_cursor(call: Call) -> Response:
    return json_answer({"cursor": call.manager.open_cursor(_own(call, Action.PEEK))}, HTTPStatus.CREATED)


@OPERATIONS.add(
    "DELETE /handles/{handle}/cursors/{cursor}",
    "Close a cursor",
    Answer(HTTPStatus.NO_CONTENT, "the cursor is closed"),
    errors=_NOT_FOUND,
    needs=Needs.OWN,
)
async def close_cursor(call: Call) -> Response:
    call.manager.close_cursor(_own(call), _number(call, "cursor"))
    return no_content()


def _reader(read_call: ReadCall) -> Handler:
    async def read(call: Call) -> Response:
        form = choose(call.header(b"accept"), one=True, packet=bool(call.query["packet"]))
        timeout = call.query["timeout"]
        action = Action.RECEIVE if read_call is ReadCall.RECEIVE else Action.PEEK
        handle = _own(call, action)
        reading = call.manager.read_cursor(
            handle, _number(call, "cursor"), read_call, timeout, lambda: _permitted(call, handle, action)
        )
        try:
            message = await (reading if timeout == 0 else call.wait(reading))
        except MessageNotFound:
            return no_content()  # the answer to a receive that timed out, [MS-MQDMPR] 3.1.7.1.10
        return whole_answer(form, [message])

    return read


for word, (read_call, summary) in CALLS.items():
    OPERATIONS.add(
        f"POST /handles/{{handle}}/cursors/{{cursor}}/{word}",
        summary,
        Answer(description="the message", content={JSON: "Message", RECORDS: None, ARROW: None}),
        Answer(HTTPStatus.NO_CONTENT, "no message came in time"),
        needs=Needs.OWN,
        parameters=(TIMEOUT, PACKET),
        errors=(HTTPStatus.NOT_FOUND, HTTPStatus.NOT_ACCEPTABLE, HTTPStatus.CONFLICT, HTTPStatus.GONE),
    )(_reader(read_call))
SCHEMAS = {"Opening": _OPENING}
