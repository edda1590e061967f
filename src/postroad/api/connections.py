"""Calls about ways in and out: sessions with other managers, who reads remotely, listeners, where a message went."""

from __future__ import annotations

from urllib.parse import unquote

from starlette.responses import Response

from postroad.api.calls import Answer, Call, Operation, json_answer
from postroad.api.formats import JSON
from postroad.api.schema import info_json


async def list_sessions(call: Call) -> Response:
    return json_answer({"sessions": [info_json(each) for each in call.manager.outlook().sessions()]})


async def list_readers(call: Call) -> Response:
    return json_answer({"readers": [info_json(each) for each in call.manager.remote_read.readers()]})


async def list_exposure(call: Call) -> Response:
    return json_answer({"exposure": [info_json(each) for each in call.manager.exposure]})


async def trace_message(call: Call) -> Response:
    trace = await call.manager.trace(unquote(call.request.path_params["message_id"]))
    return json_answer(trace.json())


OPERATIONS = (
    Operation(
        "GET",
        "/sessions",
        list_sessions,
        "The sessions with other queue managers",
        (Answer(description="the sessions, in the order they were made", content={JSON: "Sessions"}),),
    ),
    Operation(
        "GET",
        "/readers",
        list_readers,
        "Who reads from another computer",
        (Answer(description="the queues that remote readers have open", content={JSON: "Readers"}),),
    ),
    Operation(
        "GET",
        "/exposure",
        list_exposure,
        "The listeners: who reaches each, who may do what there, and whether it is encrypted",
        (Answer(description="the listeners that are on", content={JSON: "Exposure"}),),
    ),
    Operation(
        "GET",
        "/trace/{message_id}",
        trace_message,
        "Where a message went, as far as is known here",
        (Answer(description="what was found, in the order of time; it may be nothing", content={JSON: "Trace"}),),
    ),
)
