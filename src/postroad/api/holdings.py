"""Calls for what a client holds: transactions, leases of messages, and open queues."""

from __future__ import annotations

from http import HTTPStatus
from uuid import UUID

from postroad.api.calls import Answer, Body, Call, Handler, Needs, Operations, Parameter, json_answer, no_content
from postroad.api.formats import ARROW, JSON, RECORDS, choose, whole_answer
from postroad.api.json_values import MAX_BATCH_MESSAGES, QUEUE
from postroad.api.messages import PACKET, TIMEOUT
from postroad.errors import InvalidHandle, MessageNotFound
from postroad.net.exchange import Response
from postroad.queues.permissions import Action
from postroad.queues.queue import Queue
from postroad.reports.operations import QueueAccess, ReadCall, ShareMode
from postroad.validation.kinds import GUID, LOOKUP_ID, FieldFault, Property, choice, items, read_object, read_text

# Calls for local transactions. A send or receive joins one with `?transaction=ID`.


OPERATIONS = Operations()


def _identifier(call: Call) -> UUID:
    return read_text(GUID, call.segment("id"), "id")


def _own_transaction(call: Call) -> UUID:
    identifier = _identifier(call)
    call.own_transaction(identifier)
    return identifier


@OPERATIONS.add(
    "POST /transactions",
    "Begin a transaction",
    Answer(HTTPStatus.CREATED, "its identifier", {JSON: "Transaction"}),
    needs=Needs.NOTHING,
)
async def begin(call: Call) -> Response:
    identifier = call.manager.begin(call.holder)
    lease_s = call.manager.leases.times.transaction_s
    return json_answer({"id": str(identifier), "lease_s": lease_s}, HTTPStatus.CREATED)


@OPERATIONS.add(
    "POST /transactions/{id}/commit",
    "Commit a transaction",
    Answer(HTTPStatus.NO_CONTENT, "the transaction is committed and durable"),
    errors=(HTTPStatus.CONFLICT,),
    needs=Needs.OWN,
)
async def commit(call: Call) -> Response:
    await call.manager.commit(_own_transaction(call))
    return no_content()


@OPERATIONS.add(
    "POST /transactions/{id}/abort",
    "Abort a transaction",
    Answer(HTTPStatus.NO_CONTENT, "the transaction is aborted, and its messages are back in their queues"),
    errors=(HTTPStatus.CONFLICT,),
    needs=Needs.OWN,
)
async def abort(call: Call) -> Response:
    await call.manager.abort(_own_transaction(call))
    return no_content()


@OPERATIONS.add(
    "GET /transactions",
    "List the open transactions of clients, the oldest first",
    Answer(content={JSON: "Transactions"}),
    needs=Needs.MONITOR,
)
async def list_transactions(call: Call) -> Response:
    return json_answer({"transactions": call.manager.leases.transactions()})


@OPERATIONS.add(
    "DELETE /transactions/{id}",
    "Abort a client's transaction as an operator",
    Answer(HTTPStatus.NO_CONTENT, "the transaction is aborted, and its messages are back in their queues"),
    errors=(HTTPStatus.CONFLICT,),
    audited="abort transaction",
    needs=Needs.ADMINISTRATOR,
)
async def abort_transaction(call: Call) -> Response:
    identifier = _identifier(call)
    call.facts["transaction"] = identifier
    await call.manager.leases.abort(identifier)
    return no_content()


# Calls for locked messages: clients renew their leases, operators list and release locks.


_LEASES = items(GUID, most=MAX_BATCH_MESSAGES, distinct=True, first=0)
_LOOKUP_IDS = items(LOOKUP_ID, most=MAX_BATCH_MESSAGES, distinct=True, first=0)
_RENEWAL = {
    "leases": Property("leases", "leases", _LEASES, "leases of locked messages, and ids of transactions", required=True)
}
_RELEASE = {
    "lookup_ids": Property(
        "lookup_ids", "lookup_ids", _LOOKUP_IDS, "the messages to release; all locked ones if absent"
    )
}


@OPERATIONS.add(
    "POST /leases/renew",
    "Renew the leases of locked messages and transactions",
    Answer(description="the leases that were renewed, and those that have ended", content={JSON: "Renewed"}),
    body=Body({JSON: "Renewal"}),
    needs=Needs.OWN,
)
async def renew(call: Call) -> Response:
    values = read_object(await call.json_object(), _RENEWAL)
    leases = call.manager.leases
    own = [each for each in values["leases"] if call.owns(leases.core.holder(each))]
    gone = {*values["leases"]} - {*own} | {*leases.renew(own)}
    return json_answer(
        {
            "renewed": [str(each) for each in values["leases"] if each not in gone],
            "gone": [str(each) for each in values["leases"] if each in gone],
        }
    )


@OPERATIONS.add(
    "GET /locks",
    "List the messages that clients have locked, the oldest first",
    Answer(content={JSON: "Locks"}),
    parameters=(Parameter("queue", QUEUE, "only messages of this queue"),),
    errors=(HTTPStatus.NOT_FOUND,),
    needs=Needs.NOTHING,
)
async def list_locks(call: Call) -> Response:
    locks = call.manager.leases.locks(call.query["queue"])
    return json_answer({"locks": [each for each in locks if call.token.watches or call.may(Action.PEEK, each.queue)]})


@OPERATIONS.add(
    "POST /queues/{queue}/release",
    "Release locked messages as an operator, even if their client still works",
    Answer(description="the lookup ids released, and how many are still locked", content={JSON: "Released"}),
    body=Body({JSON: "Release"}),
    errors=(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT),
    audited="release locks",
    needs=Needs.ADMINISTRATOR,
)
async def release(call: Call) -> Response:
    values = read_object(await call.json_object(), _RELEASE)
    released = await call.manager.leases.release(call.queue, values.get("lookup_ids"))
    call.facts["messages"] = len(released)
    return json_answer({"released": released, "locked": call.manager.leases.locked(call.queue)})


# Calls for open queues: a handle can exclude other readers, and holds cursors.


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


def _number(call: Call, name: str) -> int:
    """A handle or cursor from the path. Text that is no number names none."""
    text = call.segment(name)
    try:
        return LOOKUP_ID.from_text(text)
    except FieldFault:
        raise InvalidHandle(f"there is no open {name} {text}") from None


def _own_handle(call: Call, action: Action | None = None) -> int:
    """A handle that the caller opened. Each read checks the right on its queue again, because the access list may have
    changed."""
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
    return json_answer({"handle": call.manager.reads.open_queue(**values, holder=call.holder)}, HTTPStatus.CREATED)


@OPERATIONS.add(
    "DELETE /handles/{handle}",
    "Close an open queue, and end its waiting reads",
    Answer(HTTPStatus.NO_CONTENT, "the queue is closed"),
    errors=_NOT_FOUND,
    needs=Needs.OWN,
)
async def close_queue(call: Call) -> Response:
    call.manager.reads.close_queue(_own_handle(call))
    return no_content()


@OPERATIONS.add(
    "POST /handles/{handle}/cursors",
    "Create a cursor",
    Answer(HTTPStatus.CREATED, "the cursor", {JSON: "Cursor"}),
    errors=(HTTPStatus.NOT_FOUND, HTTPStatus.GONE),
    needs=Needs.OWN,
)
async def open_cursor(call: Call) -> Response:
    return json_answer({"cursor": call.manager.reads.open_cursor(_own_handle(call, Action.PEEK))}, HTTPStatus.CREATED)


@OPERATIONS.add(
    "DELETE /handles/{handle}/cursors/{cursor}",
    "Close a cursor",
    Answer(HTTPStatus.NO_CONTENT, "the cursor is closed"),
    errors=_NOT_FOUND,
    needs=Needs.OWN,
)
async def close_cursor(call: Call) -> Response:
    call.manager.reads.close_cursor(_own_handle(call), _number(call, "cursor"))
    return no_content()


def _reader(read_call: ReadCall) -> Handler:
    async def read(call: Call) -> Response:
        form = choose(call.header(b"accept"), one=True, packet=bool(call.query["packet"]))
        timeout = call.query["timeout"]
        action = Action.RECEIVE if read_call is ReadCall.RECEIVE else Action.PEEK
        handle = _own_handle(call, action)
        reading = call.manager.reads.read_cursor(
            handle, _number(call, "cursor"), read_call, timeout, lambda: _permitted(call, handle, action)
        )
        try:
            message = await (reading if timeout == 0 else call.wait(reading))
        except MessageNotFound:
            return no_content()  # a receive that timed out, [MS-MQDMPR] 3.1.7.1.10
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
SCHEMAS = {"Renewal": _RENEWAL, "Release": _RELEASE, "Opening": _OPENING}
