"""Calls about queues and the manager: list, create, show, change, delete, purge, pause, resume, status."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from http import HTTPStatus

from starlette.responses import Response

from postroad.api.calls import Answer, Body, Call, Operations, json_answer, no_content
from postroad.api.formats import JSON
from postroad.api.schema import NEW_QUEUE
from postroad.fields.queue import QUEUE_CHANGES
from postroad.fields.tables import read_object
from postroad.values.info import ManagerInfo, QueueInfo

MOST_NAMED = 20  # stuck queues in the list: those whose messages wait longest
_NOT_FOUND = (HTTPStatus.NOT_FOUND,)
_QUEUE = Answer(description="the queue", content={JSON: "Queue"})

OPERATIONS = Operations()


@OPERATIONS.add("GET /manager", "Show the manager's name, id and usage", Answer(content={JSON: "Manager"}))
async def show_manager(call: Call) -> Response:
    return json_answer(call.manager.info())


@OPERATIONS.add(
    "GET /status",
    "Show the manager, queues, sessions, remote readers, locks, transactions, and what needs attention",
    Answer(content={JSON: "ManagerStatus"}),
)
async def show_status(call: Call) -> Response:
    info, queues = call.manager.info(), await call.manager.all_queues()
    return json_answer(
        {
            "manager": info,
            "queues": queues,
            "sessions": call.manager.outlook().sessions(),
            "readers": call.manager.remote_read.readers(),
            "exposure": call.manager.exposure,
            "locks": call.manager.leases.locks(),
            "transactions": call.manager.leases.transactions(),
            "attention": list(attention(info, queues)),
        }
    )


def attention(info: ManagerInfo, queues: Sequence[QueueInfo]) -> Iterator[str]:
    """What needs an operator's attention, one sentence each, the most urgent first."""
    if info.storage_error is not None:
        yield f"the store cannot be written: {info.storage_error}"
    for task in info.down:
        yield f"the background task {task}"
    if info.directory_error is not None:
        yield f"the directory's file cannot be loaded, and an earlier copy is used: {info.directory_error}"
    if info.damaged:
        yield f"{info.damaged} stored records have a wrong checksum; see the log"
    for name, limit in info.limits.items():
        if limit["reached"]:
            yield f"the limit {name} of {limit['maximum']} was reached {limit['reached']} times"
    stuck = sorted((queue for queue in queues if queue.stuck), key=lambda queue: queue.oldest_arrived_ms or 0)
    for queue in stuck[:MOST_NAMED]:
        count = "1 message waits" if queue.messages == 1 else f"{queue.messages} messages wait"
        yield f"{count} for {queue.path}: {queue.why}"
    if rest := stuck[MOST_NAMED:]:
        yield f"{len(rest)} more outgoing queues are stuck, with {sum(queue.messages for queue in rest)} messages"
    for queue in queues:
        if queue.nearly_full:
            yield f"{queue.path} is nearly full: {queue.bytes} of {(queue.quota_kb or 0) * 1024} bytes"
    if info.journal_overflows:
        copies = "1 copy" if info.journal_overflows == 1 else f"{info.journal_overflows} copies"
        yield f"{copies} dropped, because a journal or dead-letter queue is full: {', '.join(info.overflowed)}"
    if info.follow_up_errors:
        yield f"{info.follow_up_errors} acknowledgments or copies could not be made; see the log"


@OPERATIONS.add("GET /queues", "List all queues", Answer(content={JSON: "Queues"}))
async def list_queues(call: Call) -> Response:
    return json_answer({"queues": await call.manager.all_queues()})


@OPERATIONS.add(
    "POST /queues",
    "Create a queue",
    Answer(HTTPStatus.CREATED, "the new queue", {JSON: "Queue"}),
    body=Body({JSON: "NewQueue"}),
    errors=(HTTPStatus.CONFLICT,),
    audited="create queue",
)
async def create_queue(call: Call) -> Response:
    values = read_object(await call.json_object(), NEW_QUEUE, required=("path",))
    call.facts["queue"] = values["path"]
    return json_answer(await call.manager.create_queue(**values), HTTPStatus.CREATED)


@OPERATIONS.add("GET /queues/{queue}", "Show one queue", _QUEUE, errors=_NOT_FOUND)
async def show_queue(call: Call) -> Response:
    return json_answer(call.manager.queue(call.queue))


@OPERATIONS.add(
    "PATCH /queues/{queue}",
    "Change a queue's properties",
    _QUEUE,
    body=Body({JSON: "QueueChanges"}),
    errors=_NOT_FOUND,
    audited="change queue",
)
async def change_queue(call: Call) -> Response:
    values = read_object(await call.json_object(), QUEUE_CHANGES)
    call.facts["properties"] = ",".join(values)
    return json_answer(await call.manager.set_queue(call.queue, **values))


@OPERATIONS.add(
    "DELETE /queues/{queue}",
    "Delete a queue and everything in it",
    Answer(HTTPStatus.NO_CONTENT, "the queue is deleted"),
    errors=_NOT_FOUND,
    audited="delete queue",
)
async def delete_queue(call: Call) -> Response:
    await call.manager.delete_queue(call.queue)
    return no_content()


@OPERATIONS.add(
    "POST /queues/{queue}/purge",
    "Delete every message of a queue; locked ones follow when their readers release them",
    Answer(description="how many were deleted, and how many are locked", content={JSON: "Purged"}),
    errors=_NOT_FOUND,
    audited="purge",
)
async def purge_queue(call: Call) -> Response:
    call.facts["messages"] = purged = await call.manager.purge_queue(call.queue)
    return json_answer({"purged": purged, "locked": call.manager.leases.locked(call.queue)})


@OPERATIONS.add(
    "POST /queues/{queue}/pause", "Pause an outgoing queue", _QUEUE, errors=_NOT_FOUND, audited="pause queue"
)
async def pause_queue(call: Call) -> Response:
    return json_answer(call.manager.pause_queue(call.queue))


@OPERATIONS.add(
    "POST /queues/{queue}/resume", "Resume an outgoing queue", _QUEUE, errors=_NOT_FOUND, audited="resume queue"
)
async def resume_queue(call: Call) -> Response:
    return json_answer(call.manager.resume_queue(call.queue))


SCHEMAS = {"NewQueue": NEW_QUEUE, "QueueChanges": QUEUE_CHANGES}
