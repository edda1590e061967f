"""Calls for messages: send, list, receive, peek, lock and settle, read by lookup id, move, and raw packets."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from http import HTTPStatus
from typing import Any, TypeVar
from uuid import UUID

from postroad.api.calls import Answer, Body, Call, Needs, Operations, Parameter, json_answer, no_content
from postroad.api.formats import (
    ARROW,
    JSON,
    RANGE,
    RECORDS,
    Format,
    answer_range,
    choose,
    is_range,
    streamed_answer,
    whole_answer,
)
from postroad.api.json_values import (
    MAX_BATCH_MESSAGES,
    MESSAGE_PROPERTIES,
    QUESTION,
    QUEUE,
    SEPARATE,
    SIGNATURE,
    SMALL_JSON,
    TRANSACTIONAL,
    check_batch,
    json_object,
    make_message,
    read_each,
    read_sending,
)
from postroad.api.problems import members, problem
from postroad.describe.failed import FAILED_QUEUE
from postroad.describe.received import ReceivedMessage
from postroad.errors import AccessDenied, InvalidArgument, PostroadError, RemoteProtocolError, StorageError
from postroad.manager.reads import Matches, answering, identified
from postroad.manager.rescue import MOVE_BATCH
from postroad.message import Message
from postroad.net.exchange import Response
from postroad.queues.permissions import Action
from postroad.queues.queue import START
from postroad.reports.operations import SeekAction
from postroad.validation.kinds import (
    GUID,
    LOOKUP_ID,
    MAX_LOOKUP_ID,
    SWITCH,
    TEXT,
    Property,
    choice,
    items,
    number,
    read_object,
    whole,
)
from postroad.wire.constants import INFINITE, MAX_PACKET_SIZE
from postroad.wire.framer import Framer
from postroad.wire.patch import without_local_part

MAX_BATCH_BYTES = 64 << 20  # of a request with several messages or packets, and about that many of an answer
MAX_CHANGED_BYTES = 3 * MAX_PACKET_SIZE  # for the body of one message in JSON
MAX_ANSWER_MESSAGES = 10_000
PAGE_BYTES = 4 << 20  # of a streamed answer, about, that one turn of the event loop reads and writes
PAGE_MESSAGES = 500
DECODED_MESSAGES = 25  # of a page whose bodies are decoded
DEFAULT_LIMIT = 100
MAX_LIMIT = 1_000_000_000
MAX_TIMEOUT_S = 0xFFFFFFFF
LAST_LOOKUP_ID = "Postroad-Last-Lookup-Id"
LOCKED = "Postroad-Locked"
LEASE = "Postroad-Lease"
LEASE_S = "Postroad-Lease-Seconds"
_LEASE, _LEASE_S = LEASE.lower(), LEASE_S.lower()  # as they are on the wire
OCTETS = "application/octet-stream"
T = TypeVar("T")

_AFTER = Parameter("after", whole(START, MAX_LOOKUP_ID), "begin after this lookup id", START)
_LIMIT = Parameter("limit", whole(1, MAX_LIMIT), "the largest number of messages", DEFAULT_LIMIT)
_LISTED_AFTER = Parameter("after", _AFTER.kind, "begin after this lookup id, in queue order")
_LISTED_LIMIT = Parameter("limit", _LIMIT.kind, f"the largest number; if absent, {DEFAULT_LIMIT}, or a whole range")
_LISTED_BYTES = Parameter(
    "max_bytes", whole(1, MAX_LIMIT), "end with the message whose packet brings the answer to this many bytes"
)
_COUNT = Parameter("count", whole(1, MAX_LIMIT), "the largest number of messages", 1)
TIMEOUT = Parameter("timeout", number(0, MAX_TIMEOUT_S), "seconds to wait for the first; if absent, without limit")
_CORRELATION = Parameter("correlation_id", TEXT, r"receive the first message that answers {guid}\ordinal; only one")
_MESSAGE_ID = Parameter("message_id", TEXT, r"only the message with this id, {guid}\ordinal")
_PEEKED = Parameter("correlation_id", TEXT, r"peek at the first message that answers {guid}\ordinal; only one")
_PEEKED_AFTER = Parameter("after", _AFTER.kind, "only messages after this lookup id, in queue order")
_HANDLE = Parameter("handle", LOOKUP_ID, "read with this open queue, which may exclude other readers")
_TRANSACTION = Parameter("transaction", GUID, "the transaction that this call belongs to")
PACKET = Parameter("packet", SWITCH, "whether Arrow has the column `packet`", False)
DECODE = Parameter("decode", SWITCH, "whether JSON has what bodies and extensions say", False)
_ACTION = Parameter(
    "action",
    choice({each.name.lower(): each for each in SeekAction}),
    "which message: this one, or one relative to it",
    SeekAction.CURRENT,
)
_SENDING = (
    _TRANSACTION,
    Parameter(TRANSACTIONAL, SWITCH, "whether to send in a new transaction"),
    Parameter(SEPARATE, SWITCH, "whether each of several messages succeeds or fails by itself", False),
    *(
        Parameter(each.name, each.kind, f"{each.description}; only if the body is not JSON")
        for each in MESSAGE_PROPERTIES.values()
        if each.field != "body"
    ),
)
_LOOKUP_IDS = items(LOOKUP_ID, most=MAX_BATCH_MESSAGES, distinct=True, first=0)
_SETTLEMENT = {
    "lookup_ids": Property("lookup_ids", "lookup_ids", _LOOKUP_IDS, "the messages to settle", required=True),
    "delete": Property("delete", "delete", SWITCH, "true deletes them, false puts them back", required=True),
    "leases": Property(
        "leases",
        "leases",
        items(GUID, most=MAX_BATCH_MESSAGES, distinct=True, first=0),
        "settle only messages of these leases",
    ),
}
_MOVE = {
    "to": Property("to", "target", QUEUE, "the target queue", required=True),
    "lookup_ids": Property("lookup_ids", "lookup_ids", _LOOKUP_IDS, "the messages to move"),
    "after": Property("after", "after", whole(START, MAX_LOOKUP_ID), "begin after this lookup id"),
    "limit": Property("limit", "limit", whole(1, MAX_BATCH_MESSAGES), f"the largest number; {MOVE_BATCH} if absent"),
}
_RESEND = {
    "lookup_ids": Property("lookup_ids", "lookup_ids", _LOOKUP_IDS, "the messages to send again", required=True),
    "to": Property("to", "to", QUEUE, "the new destination; where each was sent before, if absent"),
    "keep": Property("keep", "keep", SWITCH, "whether the old messages stay; those of journals always do"),
    "time_to_be_received": Property(
        "time_to_be_received",
        "ttbr",
        whole(0, INFINITE),
        "seconds; the new messages also have no less time to reach their queue. If absent, as it was",
    ),
    "failed": Property(
        "failed",
        "failed",
        SWITCH,
        "whether they are of NServiceBus' error queue: each goes where it failed, without the headers of its failure",
    ),
}
_CHANGED = {
    "to": Property("to", "to", QUEUE, "the new destination; where it was sent before, if absent"),
    TRANSACTIONAL: Property(TRANSACTIONAL, TRANSACTIONAL, SWITCH, "for a queue elsewhere; as it was, if absent"),
    **{name: each for name, each in MESSAGE_PROPERTIES.items() if each.field not in SIGNATURE},
}
_MANY = {JSON: "Messages", RECORDS: None, ARROW: None}
_ONE = {JSON: "Message", RECORDS: None, ARROW: None}
_FOUND = Answer(description="the messages", content=_MANY)
_LISTED = Answer(
    description="the messages",
    content=_MANY,
    headers={LOCKED: "how many locked messages of the queue are not shown; absent for a range"},
)
_LOCKED = Answer(
    description="the messages",
    content=_MANY,
    headers={
        LEASE: "the lease of these messages, for renewing and settling",
        LEASE_S: "the messages go back if the lease is not renewed within so many seconds",
    },
)
_NONE = Answer(HTTPStatus.NO_CONTENT, "no message came in time")
_CONFLICTS = (HTTPStatus.NOT_FOUND, HTTPStatus.NOT_ACCEPTABLE, HTTPStatus.CONFLICT)

OPERATIONS = Operations()

# Sending


def _send_at_once(call: Call, answer: Callable[[Response], None]) -> bool:
    """Serves a small request with messages in JSON, and without a transaction."""
    request = call.request
    if call.request.query or request.size > SMALL_JSON or not _is_json(call.header(b"content-type")):
        return False
    sending = read_sending(request.so_far())
    if sending.transactional:
        return False

    def sent(ids: list[str], error: StorageError | None) -> None:
        answer(json_answer({"ids": ids}, HTTPStatus.CREATED) if error is None else problem(error))

    return call.manager.send_then(call.queue, sending.messages, call.token, sent)


@OPERATIONS.add(
    "POST /queues/{queue}/messages",
    "Send one message, several, or the body as it is",
    Answer(HTTPStatus.CREATED, "the messages are sent, and the recoverable ones are durable", {JSON: "Ids"}),
    Answer(HTTPStatus.MULTI_STATUS, "with `separate`: some messages were refused", {JSON: "Outcomes"}),
    parameters=_SENDING,
    body=Body({JSON: "Sending", "*/*": None}),
    errors=(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT, HTTPStatus.INSUFFICIENT_STORAGE),
    needs=Action.SEND,
    at_once=_send_at_once,
)
async def send(call: Call) -> Response:
    queue, query = call.queue, call.query
    transaction: UUID | None = call.own_transaction(query.pop("transaction"))
    transactional: bool | None = query.pop(TRANSACTIONAL)
    separate: bool = query.pop(SEPARATE)
    given = {name: value for name, value in query.items() if value is not None}
    if _is_json(call.header(b"content-type")):
        for name in given:
            raise InvalidArgument(f"{name}: must be in the JSON body, not in the URL")
        if separate:
            if transactional or transaction is not None:
                raise InvalidArgument(f"{SEPARATE}: messages of a transaction are sent together")
            return _outcomes(await _send_each(call, read_each(await call.json())))
        sending = read_sending(await call.json())
        messages = sending.messages
        transactional = sending.transactional or bool(transactional)
    else:
        fields: dict[str, Any] = {MESSAGE_PROPERTIES[name].field: value for name, value in given.items()}
        fields["body"] = await call.body(MAX_PACKET_SIZE)
        messages = [make_message(fields)]
    if transactional and transaction is not None:
        raise InvalidArgument("transactional: must not be set together with transaction")
    if transactional:
        ids = await call.manager.send_transactional(queue, messages, call.token)
    else:
        ids = await call.manager.send(queue, messages, transaction, call.token)
    return json_answer({"ids": ids}, HTTPStatus.CREATED)


async def _send_each(call: Call, given: Sequence[Message | PostroadError]) -> list[str | PostroadError]:
    """Sends the messages that could be read, in one commit. Answers the id or the error of each."""
    messages = [each for each in given if isinstance(each, Message)]
    sent = iter(await call.manager.send_each(call.queue, messages, call.token))
    return [next(sent) if isinstance(each, Message) else each for each in given]


def _outcomes(outcomes: Sequence[str | PostroadError]) -> Response:
    if not any(isinstance(each, PostroadError) for each in outcomes):
        return json_answer({"ids": outcomes}, HTTPStatus.CREATED)
    described = [{"problem": members(each)} if isinstance(each, PostroadError) else {"id": each} for each in outcomes]
    return json_answer({"outcomes": described}, HTTPStatus.MULTI_STATUS)


@OPERATIONS.add(
    "POST /resolve",
    "Resolve names, so a client can sign a message with its own key",
    Answer(description="the names as packets have them, and how this manager signs", content={JSON: "Resolution"}),
    body=Body({JSON: "Question"}),
    errors=(HTTPStatus.NOT_FOUND,),
    needs=Needs.NAMED,
)
async def resolve(call: Call) -> Response:
    values = read_object(await call.json_object(), QUESTION)
    call.require(Action.SEND, values["destination"])
    return json_answer(
        await call.manager.resolve(values["destination"], values.get("names", ()), values.get("certificate", b""))
    )


def _is_json(content_type: str) -> bool:
    media_type = content_type.partition(";")[0].strip().lower()
    return media_type == JSON or media_type.endswith("+json")


# Reading


def _format(call: Call, *, one: bool = False) -> Format:
    packet, decode = bool(call.query.get("packet")), bool(call.query.get("decode"))
    return choose(call.header(b"accept"), one=one, packet=packet, decode=decode)


def _fitting(call: Call, queue: str, most_messages: int, most_bytes: int) -> int:
    """How many messages of the queue's mean size fit in about `most_bytes`; at least one."""
    found = call.manager.core.queues.get(queue)
    mean = found.total_bytes // found.count if found.count else 0
    return max(1, min(most_messages, most_bytes // mean if mean else most_messages))


@OPERATIONS.add(
    "GET /queues/{queue}/messages",
    "List messages in queue order, or a range in order of arrival; all stay in the queue",
    _LISTED,
    parameters=(_LISTED_AFTER, _LISTED_LIMIT, _LISTED_BYTES, PACKET, DECODE, *RANGE),
    errors=(HTTPStatus.NOT_FOUND, HTTPStatus.NOT_ACCEPTABLE),
    needs=Action.PEEK,
)
async def list_messages(call: Call) -> Response:
    queue, after, limit = call.queue, call.query["after"], call.query["limit"]
    if is_range(call):
        if after is not None:
            raise InvalidArgument("after: must not be set together with `from`")
        if call.query["max_bytes"] is not None:
            raise InvalidArgument("max_bytes: must not be set together with `from`")
        return await answer_range(call, limit)
    most_bytes = call.query["max_bytes"] or MAX_LIMIT
    after, limit = START if after is None else after, limit or DEFAULT_LIMIT
    form = _format(call)
    page = _fitting(call, queue, DECODED_MESSAGES if form.in_thread else PAGE_MESSAGES, PAGE_BYTES)
    first, ended = await _page(call, queue, min(page, limit), after)
    begun = _beginning(first, most_bytes)
    if not form.in_thread and (ended or len(first) == limit or len(begun) < len(first)):
        answer = whole_answer(form, begun)
    else:
        answer = await streamed_answer(form, _pages(call, queue, first, limit, page, most_bytes))
    answer.headers[LOCKED.lower()] = str(call.manager.leases.locked(queue))
    return answer


def _beginning(messages: Sequence[ReceivedMessage], most_bytes: int) -> Sequence[ReceivedMessage]:
    """The messages up to the one whose packet brings them to this many bytes."""
    for count, message in enumerate(messages, 1):
        most_bytes -= len(message.packet)
        if most_bytes <= 0:
            return messages[:count]
    return messages


async def _pages(
    call: Call, queue: str, first: Sequence[ReceivedMessage], limit: int, page: int, most_bytes: int
) -> AsyncIterator[Sequence[ReceivedMessage]]:
    messages = first
    left = limit
    while messages:
        begun = _beginning(messages, most_bytes)
        yield begun
        left -= len(messages)
        most_bytes -= sum(len(message.packet) for message in begun)
        if left <= 0 or most_bytes <= 0:
            return
        call.authorize()  # another queue may have the name by now
        messages, _ = await _page(call, queue, min(page, left), messages[-1].lookup_id)


async def _page(call: Call, queue: str, count: int, after: int) -> tuple[list[ReceivedMessage], bool]:
    """Up to `count` messages, of a large queue no more once they have PAGE_BYTES; and whether these are the last ones.
    The mean size says little of the next messages."""
    found = await call.manager.reads.peek(queue, count, after=after, most_bytes=PAGE_BYTES)
    return found, len(found) < count and sum(len(message.packet) for message in found) < PAGE_BYTES


async def _wait(call: Call, read: Callable[..., Coroutine[Any, Any, T]], **arguments: object) -> T:
    """Runs a read that may wait. A read that does not wait needs no watch on its client."""
    queue, count, timeout = call.queue, call.query["count"], call.query["timeout"]
    reading = read(
        queue, min(count, MAX_ANSWER_MESSAGES), timeout, permitted=call.permitted, handle=call.handle, **arguments
    )
    return await (reading if timeout == 0 else call.wait(reading))


@OPERATIONS.add(
    "POST /queues/{queue}/receive",
    "Receive messages, waiting for the first",
    _FOUND,
    _NONE,
    parameters=(_COUNT, TIMEOUT, _TRANSACTION, _CORRELATION, _MESSAGE_ID, _HANDLE, PACKET),
    errors=_CONFLICTS,
    needs=Action.RECEIVE,
)
async def receive(call: Call) -> Response:
    form = _format(call)
    transaction = call.own_transaction(call.query["transaction"])
    if (matches := _matches(call)) is not None:
        reading = call.manager.reads.receive_found(
            call.queue, matches, call.query["timeout"], transaction, call.permitted, call.handle
        )
        return whole_answer(form, [await call.wait(reading)])
    return whole_answer(form, await _wait(call, call.manager.reads.receive, transaction=transaction))


@OPERATIONS.add(
    "POST /queues/{queue}/peek",
    "Peek at the first messages, waiting for one",
    _FOUND,
    _NONE,
    parameters=(_COUNT, TIMEOUT, _PEEKED_AFTER, _PEEKED, _MESSAGE_ID, _HANDLE, PACKET),
    errors=_CONFLICTS,
    needs=Action.PEEK,
)
async def peek(call: Call) -> Response:
    form = _format(call)
    after = call.query["after"]
    if (matches := _matches(call)) is not None:
        if after is not None:
            raise InvalidArgument("after: must not be set together with an id")
        reading = call.manager.reads.peek_found(call.queue, matches, call.query["timeout"], call.permitted, call.handle)
        return whole_answer(form, [await call.wait(reading)])
    if after is not None:
        return whole_answer(form, await _wait(call, call.manager.reads.peek_after, after=after))
    return whole_answer(form, await _wait(call, call.manager.reads.peek))


def _matches(call: Call) -> Matches | None:
    """Which message a read with an id wants; None if it takes any."""
    correlation_id, message_id = call.query["correlation_id"], call.query["message_id"]
    if correlation_id is None and message_id is None:
        return None
    if call.query["count"] != 1:
        name = "correlation_id" if message_id is None else "message_id"
        raise InvalidArgument(f"count: must be 1 together with {name}")
    if message_id is None:
        return answering(correlation_id)
    if correlation_id is None:
        return identified(message_id)
    raise InvalidArgument("message_id: must not be set together with correlation_id")


@OPERATIONS.add(
    "POST /queues/{queue}/lock",
    "Lock messages: the first phase of a receive. Messages that were locked before can be settled with it",
    _LOCKED,
    _NONE,
    parameters=(_COUNT, TIMEOUT, _HANDLE, PACKET),
    body=Body({JSON: "Settlement"}, required=False),
    errors=_CONFLICTS,
    needs=Action.RECEIVE,
)
async def lock(call: Call) -> Response:
    """Locks messages. Acknowledging earlier ones in the same call does not wait for the disk: it shares the next
    commit."""
    form = _format(call)
    if call.request.has_body:
        values = _settlement(call, await call.json_object())
        if values.pop("delete"):
            call.manager.reads.acknowledge(call.queue, **values)
        else:
            await call.manager.reads.settle(call.queue, delete=False, **values)
    locked = await _wait(call, call.manager.reads.lock, holder=call.holder)
    if call.request.connection.lost:
        lookup_ids = [message.lookup_id for message in locked.messages]
        await call.manager.reads.settle(call.queue, lookup_ids, delete=False, leases=[locked.lease])
    answer = whole_answer(form, locked.messages)
    answer.headers[_LEASE] = str(locked.lease)
    answer.headers[_LEASE_S] = f"{call.manager.leases.times.receive_s:g}"
    return answer


@OPERATIONS.add(
    "POST /queues/{queue}/settle",
    "Delete locked messages or put them back: the second phase of a receive",
    Answer(HTTPStatus.NO_CONTENT, "the messages are settled"),
    body=Body({JSON: "Settlement"}),
    errors=(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT),
    needs=Action.RECEIVE,
)
async def settle(call: Call) -> Response:
    await call.manager.reads.settle(call.queue, **_settlement(call, await call.json_object()))
    return no_content()


def _settlement(call: Call, given: dict[str, object]) -> dict[str, Any]:
    values = read_object(given, _SETTLEMENT)
    holders = call.manager.leases.core.holders(call.manager.core.queues.get(call.queue), values["lookup_ids"])
    if not all(map(call.owns, holders)):
        raise AccessDenied("another user has locked one of these messages")
    return values


@OPERATIONS.add(
    "GET /queues/{queue}/messages/{lookup_id}",
    "Show one message by its lookup id",
    Answer(description="the message", content=_ONE),
    parameters=(_ACTION, _HANDLE, PACKET),
    errors=(*_CONFLICTS, HTTPStatus.GONE),
    needs=Action.PEEK,
)
async def show(call: Call) -> Response:
    form = _format(call, one=True)
    found = await call.manager.reads.lookup(call.queue, call.lookup_id, call.query["action"], handle=call.handle)
    return whole_answer(form, [found])


@OPERATIONS.add(
    "DELETE /queues/{queue}/messages/{lookup_id}",
    "Receive one message by its lookup id",
    Answer(description="the received message", content=_ONE),
    parameters=(_ACTION, _TRANSACTION, _HANDLE, PACKET),
    errors=(*_CONFLICTS, HTTPStatus.GONE),
    needs=Action.RECEIVE,
)
async def take(call: Call) -> Response:
    form = _format(call, one=True)
    message = await call.manager.reads.lookup(
        call.queue,
        call.lookup_id,
        call.query["action"],
        receive=True,
        transaction=call.own_transaction(call.query["transaction"]),
        handle=call.handle,
    )
    return whole_answer(form, [message])


# Rescue


@OPERATIONS.add(
    "POST /queues/{queue}/resend",
    "Send messages again, to where they were sent before or elsewhere, and remove them in the same commit",
    Answer(description="what became of each message", content={JSON: "Resent"}),
    body=Body({JSON: "Resend"}),
    errors=(HTTPStatus.NOT_FOUND,),
    audited="resend",
    needs=Action.RECEIVE,
)
async def resend(call: Call) -> Response:
    values = read_object(await call.json_object(), _RESEND)
    call.facts["to"] = values.get("to") or (FAILED_QUEUE if values.get("failed") else None)
    outcomes = await call.manager.rescue.resend(call.queue, values.pop("lookup_ids"), **values, token=call.token)
    call.facts["messages"] = sum(each.id is not None for each in outcomes)
    return json_answer({"resent": outcomes, "locked": call.manager.leases.locked(call.queue)})


@OPERATIONS.add(
    "POST /queues/{queue}/messages/{lookup_id}/resend",
    "Send a message again with some of its properties changed and all others as they were; the old one stays",
    Answer(HTTPStatus.CREATED, "the new message is sent, and durable if it is recoverable", {JSON: "Ids"}),
    body=Body({JSON: "Changed"}),
    errors=(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT, HTTPStatus.GONE, HTTPStatus.INSUFFICIENT_STORAGE),
    audited="resend changed",
    needs=Action.PEEK,
)
async def resend_changed(call: Call) -> Response:
    values = read_object(json_object(await call.json(MAX_CHANGED_BYTES)), _CHANGED)
    to, transactional = values.pop("to", None), values.pop(TRANSACTIONAL, None)
    call.facts.update({"to": to, "lookup_id": call.lookup_id, "changed": ", ".join(sorted(values))})
    sent = await call.manager.rescue.resend_changed(
        call.queue, call.lookup_id, to, values, transactional, token=call.token
    )
    call.facts["id"] = sent
    return json_answer({"ids": [sent]}, HTTPStatus.CREATED)


@OPERATIONS.add(
    "POST /queues/{queue}/move",
    "Move messages to another queue",
    Answer(description="the lookup ids they had, and how many messages are locked", content={JSON: "Moved"}),
    body=Body({JSON: "Move"}),
    errors=(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT, HTTPStatus.GONE, HTTPStatus.INSUFFICIENT_STORAGE),
    audited="move",
    needs=Action.RECEIVE,
)
async def move(call: Call) -> Response:
    values = read_object(await call.json_object(), _MOVE)
    if "lookup_ids" in values and ("after" in values or "limit" in values):
        raise InvalidArgument("lookup_ids: must not be set together with `after` or `limit`")
    call.facts["to"] = values["target"]
    call.require(Action.SEND, values["target"])
    moved = await call.manager.rescue.move(call.queue, **values)
    call.facts["messages"] = len(moved)
    return json_answer({"moved": moved, "locked": call.manager.leases.locked(call.queue)})


@OPERATIONS.add(
    "GET /queues/{queue}/packets",
    "Export raw packets, back to back",
    Answer(
        description="the packets",
        content={OCTETS: None},
        headers={
            LAST_LOOKUP_ID: "the lookup id of the last packet; absent if there is none",
            LOCKED: "how many locked messages of the queue are left out",
        },
    ),
    parameters=(_AFTER, _LIMIT),
    errors=(HTTPStatus.NOT_FOUND,),
    needs=Action.PEEK,
)
async def export_packets(call: Call) -> Response:
    queue, after, limit = call.queue, call.query["after"], call.query["limit"]
    page = _fitting(call, queue, PAGE_MESSAGES, PAGE_BYTES)
    packets: list[bytes] = []
    size = 0
    while limit and size < MAX_BATCH_BYTES:
        messages, _ = await _page(call, queue, min(page, limit), after)
        if not messages:
            break
        packets += [without_local_part(message.packet) for message in messages]
        size += sum(len(message.packet) for message in messages)
        limit -= len(messages)
        after = messages[-1].lookup_id
    headers = {LOCKED.lower(): str(call.manager.leases.locked(queue))}
    if packets:
        headers[LAST_LOOKUP_ID.lower()] = str(after)
    return Response(b"".join(packets), media_type=OCTETS, headers=headers)


@OPERATIONS.add(
    "POST /queues/{queue}/packets",
    "Import raw packets into a queue, byte for byte",
    Answer(HTTPStatus.CREATED, "their new lookup ids", {JSON: "LookupIds"}),
    body=Body({OCTETS: None}),
    errors=(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT, HTTPStatus.INSUFFICIENT_STORAGE),
    audited="import",
    needs=Needs.ADMINISTRATOR,
)
async def import_packets(call: Call) -> Response:
    framer = Framer()
    packets = framer.feed(await call.body(MAX_BATCH_BYTES))
    if framer.error is not None:
        raise framer.error.shifted(framer.position)
    if framer.buffered:
        raise RemoteProtocolError(
            f"the last packet is incomplete: the request ends after {framer.buffered} bytes of it", framer.position
        )
    check_batch(len(packets), "packets")
    call.facts["messages"] = len(packets)
    return json_answer({"lookup_ids": await call.manager.rescue.insert(call.queue, packets)}, HTTPStatus.CREATED)


SCHEMAS = {"Settlement": _SETTLEMENT, "Move": _MOVE, "Resend": _RESEND, "Changed": _CHANGED, "Question": QUESTION}
