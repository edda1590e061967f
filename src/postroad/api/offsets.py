"""Calls for pipelines: marks, holds on ranges of a queue, and submissions that are sent exactly once."""

from __future__ import annotations

from dataclasses import replace
from http import HTTPStatus

from postroad.api.calls import Answer, Body, Call, Operations, Parameter, json_answer, no_content
from postroad.api.formats import ARROW, JSON, sending_room
from postroad.api.json_values import MAX_BATCH_MESSAGES, TRANSACTIONAL, read_sending
from postroad.api.messages import MAX_BATCH_BYTES, MAX_LIMIT
from postroad.errors import InvalidArgument
from postroad.net.exchange import Response
from postroad.queues.permissions import Action
from postroad.queues.submissions import MAX_EPOCH
from postroad.store.interface import ARRIVAL_MASK
from postroad.validation.kinds import (
    SWITCH,
    TEXT,
    FieldFault,
    Property,
    nullable,
    parsed,
    quoted,
    read_object,
    read_text,
    whole,
)


def _word(text: str) -> str:
    if not text.isascii() or not text.replace("-", "").isalnum():
        raise FieldFault(f"must be letters, digits and hyphens, got {quoted(text)}")
    return text


ARRIVAL = whole(0, ARRIVAL_MASK)
EPOCH = whole(0, MAX_EPOCH)
EPOCH_MS = 1 << 53  # JSON numbers are exact up to here
MAX_PARTS = 100_000
_FROM = Parameter("from", ARRIVAL, "the arrival number that `limit` counts from", 0)
_LIMIT = Parameter("limit", whole(1, MAX_LIMIT), "the largest number of messages before the mark")
_WORD = parsed("text", _word, longest=64)
_RUN = Parameter("run", _WORD, "the name of this run of the sender's job", "")
_DIGEST = Parameter("digest", _WORD, "a digest of all rows of the partition up to the last of these", "")
_TAKE_OVER = {
    "run": Property("run", "run", _WORD, "the name of the new run", required=True),
    "rows": Property("rows", "rows", EPOCH, "how many rows were sent before", required=True),
    "digest": Property("digest", "digest", _WORD, "the digest of as many first rows of the new run", required=True),
}
_KEEP = Parameter("keep", SWITCH, "whether to keep the digests of this epoch, to compare a repeat with them", False)
_ROW = Parameter("row", EPOCH, "the number of the first message within its partition", 0)
_HOLD = {
    "from": Property("from", "start", ARRIVAL, "the first arrival number", required=True),
    "to": Property("to", "end", nullable(ARRIVAL), "the arrival number after the last; the mark if absent"),
}
_COMMIT = {"to": Property("to", "end", ARRIVAL, "the arrival number after the last message to receive", required=True)}
_NOT_FOUND = (HTTPStatus.NOT_FOUND,)
_CONFLICT = (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT)

OPERATIONS = Operations()


def _number(call: Call, name: str) -> int:
    return read_text(EPOCH, call.segment(name), name)


@OPERATIONS.add(
    "GET /queues/{queue}/mark",
    "Show the arrival number below which no new message can appear",
    Answer(description="the mark", content={JSON: "Mark"}),
    parameters=(_FROM, _LIMIT),
    errors=_NOT_FOUND,
    needs=Action.PEEK,
)
async def show_mark(call: Call) -> Response:
    return json_answer(await call.manager.offsets.mark(call.queue, call.query["from"], call.query["limit"]))


@OPERATIONS.add(
    "GET /queues/{queue}/plan",
    "Count the messages of a range, and divide it into parts with equal numbers of messages",
    Answer(description="the range and its parts", content={JSON: "Plan"}),
    parameters=(
        Parameter("from", ARRIVAL, "the first arrival number", 0),
        Parameter("to", ARRIVAL, "the arrival number after the last; the mark if absent"),
        Parameter("hold", TEXT, "the name of a hold; the answer then includes the messages it holds"),
        Parameter("limit", whole(1, MAX_LIMIT), "end the range behind so many messages"),
        Parameter("bytes", whole(1, MAX_LIMIT), "end the range before more than so many bytes of packets"),
        Parameter("parts", whole(1, MAX_PARTS), "the largest number of parts", 1),
        Parameter("all", SWITCH, "whether to count also what others have locked or hold", False),
        Parameter("since", whole(0, EPOCH_MS), "begin with the first message that arrived then, in ms since 1970"),
    ),
    errors=_NOT_FOUND,
    needs=Action.PEEK,
)
async def show_plan(call: Call) -> Response:
    query = call.query
    plan = await call.manager.offsets.plan(
        call.queue,
        query["from"],
        query["to"],
        hold=None if query["hold"] is None else call.owned(query["hold"]),
        limit=query["limit"],
        most_bytes=query["bytes"],
        parts=query["parts"],
        since_ms=query["since"],
        everything=query["all"],
    )
    return json_answer(plan)


# Holds


@OPERATIONS.add(
    "GET /queues/{queue}/holds",
    "List the ranges of the queue that readers hold",
    Answer(description="the holds", content={JSON: "Holds"}),
    errors=_NOT_FOUND,
    needs=Action.PEEK,
)
async def list_holds(call: Call) -> Response:
    holds = await call.manager.offsets.holds(call.queue)
    return json_answer({"holds": [replace(each, name=call.shown_name(each.name)) for each in holds]})


@OPERATIONS.add(
    "PUT /queues/{queue}/holds/{name}",
    "Hold a range of messages, which hides it from every other reader, or extend the range",
    Answer(description="the whole hold", content={JSON: "Hold"}),
    body=Body({JSON: "NewHold"}),
    errors=_CONFLICT,
    needs=Action.RECEIVE,
)
async def put_hold(call: Call) -> Response:
    values = read_object(await call.json_object(), _HOLD)
    hold = await call.manager.offsets.hold(call.queue, call.owned(call.segment("name")), **values)
    return json_answer(replace(hold, name=call.shown_name(hold.name)))


@OPERATIONS.add(
    "POST /queues/{queue}/holds/{name}/commit",
    "Receive the held messages up to an arrival number",
    Answer(description="how many messages were received", content={JSON: "Removed"}),
    body=Body({JSON: "HoldCommit"}),
    errors=_NOT_FOUND,
    needs=Action.RECEIVE,
)
async def commit_hold(call: Call) -> Response:
    values = read_object(await call.json_object(), _COMMIT)
    removed = await call.manager.offsets.commit_hold(call.queue, call.owned(call.segment("name")), values["end"])
    return json_answer({"removed": removed})


@OPERATIONS.add(
    "DELETE /queues/{queue}/holds/{name}",
    "Release a hold",
    Answer(HTTPStatus.NO_CONTENT, "no hold has this name now"),
    errors=_NOT_FOUND,
    needs=Action.RECEIVE,
)
async def release_hold(call: Call) -> Response:
    await call.manager.offsets.release(call.queue, call.owned(call.segment("name")))
    return no_content()


# Submissions


# Add this before `submit`, whose path would match too.
@OPERATIONS.add(
    "POST /queues/{queue}/submissions/{name}/{epoch}/commit",
    "Complete an epoch: later messages of it count as sent",
    Answer(HTTPStatus.NO_CONTENT, "the epoch is complete"),
    parameters=(_RUN, _KEEP),
    errors=(HTTPStatus.CONFLICT,),
    needs=Action.SEND,
)
async def commit_submission(call: Call) -> Response:
    run, keep = call.query["run"], call.query["keep"]
    name, epoch = call.owned(call.segment("name")), _number(call, "epoch")
    await call.manager.offsets.commit_submission(call.queue, name, epoch, run=run, keep=keep)
    return no_content()


@OPERATIONS.add(
    "GET /queues/{queue}/submissions/{name}/{epoch}",
    "Show what was sent of an epoch",
    Answer(description="the rows of each partition", content={JSON: "SubmissionState"}),
    needs=Action.SEND,
)
async def show_submission(call: Call) -> Response:
    return json_answer(
        call.manager.offsets.submission(call.queue, call.owned(call.segment("name")), _number(call, "epoch"))
    )


@OPERATIONS.add(
    "POST /queues/{queue}/submissions/{name}/{epoch}/{partition}/take-over",
    "Go on with a partition in a new run of the sender's job, whose first rows must be those that were sent",
    Answer(HTTPStatus.NO_CONTENT, "the rows are the same, and the new run may send the rest"),
    body=Body({JSON: "TakeOver"}),
    errors=_CONFLICT,
    needs=Action.SEND,
)
async def take_over_submission(call: Call) -> Response:
    values = read_object(await call.json_object(), _TAKE_OVER)
    await call.manager.offsets.take_over_submission(
        call.queue,
        call.owned(call.segment("name")),
        _number(call, "epoch"),
        _number(call, "partition"),
        **values,
    )
    return no_content()


@OPERATIONS.add(
    "POST /queues/{queue}/submissions/{name}/{epoch}/{partition}",
    "Send the messages that this sender has not sent yet",
    Answer(description="how many were sent now, and how many before", content={JSON: "Submission"}),
    parameters=(
        _ROW,
        Parameter(TRANSACTIONAL, SWITCH, "whether to send in a transaction; if absent, as the local queue requires"),
        _RUN,
        _DIGEST,
    ),
    body=Body({JSON: "Sending", ARROW: None}),
    errors=(*_CONFLICT, HTTPStatus.INSUFFICIENT_STORAGE),
    needs=Action.SEND,
)
async def submit(call: Call) -> Response:
    transactional: bool | None = call.query[TRANSACTIONAL]
    if _is_arrow(call.header(b"content-type")):
        rows = sending_room().read_messages(await call.body(MAX_BATCH_BYTES), MAX_BATCH_MESSAGES)
        messages, asked = rows.messages, rows.transactional
    else:
        sending = read_sending(await call.json())
        messages, asked = sending.messages, sending.transactional or None
    if asked and transactional is False:
        raise InvalidArgument("transactional: must not be false, because the messages ask for a transaction")
    if transactional is None:
        transactional = asked
    submission = await call.manager.offsets.submit(
        call.queue,
        call.owned(call.segment("name")),
        _number(call, "epoch"),
        _number(call, "partition"),
        call.query["row"],
        messages,
        transactional,
        call.token,
        run=call.query["run"],
        digest=call.query["digest"],
    )
    return json_answer(submission)


def _is_arrow(content_type: str) -> bool:
    return content_type.partition(";")[0].strip().lower() == ARROW


@OPERATIONS.add(
    "DELETE /queues/{queue}/submissions/{name}",
    "Delete the record of a sender that no longer sends",
    Answer(HTTPStatus.NO_CONTENT, "the record is deleted"),
    needs=Action.SEND,
)
async def forget_submission(call: Call) -> Response:
    await call.manager.offsets.forget_submission(call.queue, call.owned(call.segment("name")))
    return no_content()


SCHEMAS = {"NewHold": _HOLD, "HoldCommit": _COMMIT, "TakeOver": _TAKE_OVER}
