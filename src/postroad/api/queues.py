"""Calls for queues and the manager: list, create, show, change, delete, purge, pause, resume, status."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus

from postroad.api.calls import Answer, Body, Call, Needs, Operations, json_answer, no_content
from postroad.api.formats import JSON
from postroad.api.json_values import NEW_QUEUE
from postroad.errors import InvalidArgument
from postroad.names import public_path
from postroad.net.exchange import Response
from postroad.queues.delivery import OFF
from postroad.queues.permissions import Action
from postroad.reports.info import attention
from postroad.validation.kinds import read_object
from postroad.validation.queue_properties import QUEUE_CHANGES

_NOT_FOUND = (HTTPStatus.NOT_FOUND,)
_QUEUE = Answer(description="the queue", content={JSON: "Queue"})

OPERATIONS = Operations()


@OPERATIONS.add(
    "GET /manager",
    "Show the manager's name, id and usage",
    Answer(content={JSON: "Manager"}),
    needs=Needs.MANAGER,
)
async def show_manager(call: Call) -> Response:
    return json_answer(call.manager.info())


@OPERATIONS.add(
    "POST /manager/failover",
    "Let another process that shares the store become active; this one then stands by",
    Answer(HTTPStatus.ACCEPTED, "the handover has begun", {JSON: "Manager"}),
    errors=(HTTPStatus.BAD_REQUEST, HTTPStatus.CONFLICT),
    needs=Needs.ADMINISTRATOR,
    audited="fail over",
)
async def fail_over(call: Call) -> Response:
    call.manager.standing.hand_over()
    return json_answer(call.manager.info(), HTTPStatus.ACCEPTED)


@OPERATIONS.add(
    "GET /status",
    "Show the manager, queues, sessions, remote readers, locks, transactions, and what needs attention",
    Answer(content={JSON: "ManagerStatus"}),
    needs=Needs.MONITOR,
)
async def show_status(call: Call) -> Response:
    info, queues = call.manager.info(), await call.manager.all_queues()
    return json_answer(
        {
            "manager": info,
            "queues": queues,
            "sessions": call.manager.sessions(),
            "readers": call.manager.doors.remote_read.readers(),
            "exposure": call.manager.doors.exposure,
            "locks": call.manager.leases.locks(),
            "transactions": call.manager.leases.transactions(),
            "multicast": info.multicast,
            "amqp": info.amqp,
            "attention": list(attention(info, queues)),
        }
    )


@OPERATIONS.add(
    "GET /queues",
    "List all queues",
    Answer(content={JSON: "Queues"}),
    needs=Needs.NOTHING,
)
async def list_queues(call: Call) -> Response:
    queues = await call.manager.all_queues()
    if not call.token.everything:
        queues = [each for each in queues if call.may(Action.GET_PROPERTIES, each.format_name)]
    return json_answer({"queues": list(map(call.shown, queues))})


@OPERATIONS.add(
    "POST /queues",
    "Create a queue",
    Answer(HTTPStatus.CREATED, "the new queue", {JSON: "Queue"}),
    body=Body({JSON: "NewQueue"}),
    errors=(HTTPStatus.CONFLICT,),
    audited="create queue",
    needs=Needs.CREATE,
)
async def create_queue(call: Call) -> Response:
    values = read_object(await call.json_object(), NEW_QUEUE)
    if values.pop("public", False):
        values["path"] = public_path(values["path"])
    call.facts["queue"] = values["path"]
    _refuse_unheard(call, values)
    owner = None if call.token.everything else call.token.user
    return json_answer(await call.manager.create_queue(**values, owner=owner), HTTPStatus.CREATED)


@OPERATIONS.add(
    "GET /queues/{queue}",
    "Show one queue",
    _QUEUE,
    errors=_NOT_FOUND,
    needs=Action.GET_PROPERTIES,
)
async def show_queue(call: Call) -> Response:
    return json_answer(call.shown(call.manager.queue(call.queue)))


@OPERATIONS.add(
    "PATCH /queues/{queue}",
    "Change a queue's properties",
    _QUEUE,
    body=Body({JSON: "QueueChanges"}),
    errors=_NOT_FOUND,
    audited="change queue",
    needs=Action.SET_PROPERTIES,
)
async def change_queue(call: Call) -> Response:
    values = read_object(await call.json_object(), QUEUE_CHANGES)
    _refuse_unheard(call, values)
    call.facts["properties"] = ",".join(values)
    return json_answer(call.shown(await call.manager.set_queue(call.queue, **values)))


@OPERATIONS.add(
    "DELETE /queues/{queue}",
    "Delete a queue and everything in it",
    Answer(HTTPStatus.NO_CONTENT, "the queue is deleted"),
    errors=_NOT_FOUND,
    audited="delete queue",
    needs=Action.DELETE,
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
    needs=Action.RECEIVE,
)
async def purge_queue(call: Call) -> Response:
    call.facts["messages"] = purged = await call.manager.purge_queue(call.queue)
    return json_answer({"purged": purged, "locked": call.manager.leases.locked(call.queue)})


@OPERATIONS.add(
    "POST /queues/{queue}/pause",
    "Pause an outgoing queue",
    _QUEUE,
    errors=_NOT_FOUND,
    audited="pause queue",
    needs=Action.SET_PROPERTIES,
)
async def pause_queue(call: Call) -> Response:
    return json_answer(call.manager.pause_queue(call.queue))


@OPERATIONS.add(
    "POST /queues/{queue}/resume",
    "Resume an outgoing queue",
    _QUEUE,
    errors=_NOT_FOUND,
    audited="resume queue",
    needs=Action.SET_PROPERTIES,
)
async def resume_queue(call: Call) -> Response:
    return json_answer(call.manager.resume_queue(call.queue))


SCHEMAS = {"NewQueue": NEW_QUEUE, "QueueChanges": QUEUE_CHANGES}


def _refuse_unheard(call: Call, values: Mapping[str, object]) -> None:
    """Refuses a multicast address while multicast is off: such a queue would stay empty, and nobody would learn why."""
    if values.get("multicast_address") is not None and call.manager.doors.multicast is None:
        raise InvalidArgument(f"multicast_address: {OFF}")
