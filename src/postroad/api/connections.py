"""Calls about connections: sessions with other managers, remote readers, listeners, and traces of messages."""

from __future__ import annotations

from starlette.responses import Response

from postroad.api.calls import Answer, Call, Needs, Operations, json_answer
from postroad.api.formats import JSON

OPERATIONS = Operations()


@OPERATIONS.add(
    "GET /sessions",
    "List the sessions with other queue managers",
    Answer(description="the sessions, in the order they were made", content={JSON: "Sessions"}),
    needs=Needs.MONITOR,
)
async def list_sessions(call: Call) -> Response:
    return json_answer({"sessions": call.manager.outlook().sessions()})


@OPERATIONS.add(
    "GET /readers",
    "List the remote readers",
    Answer(description="the queues that remote readers have open", content={JSON: "Readers"}),
    needs=Needs.MONITOR,
)
async def list_readers(call: Call) -> Response:
    return json_answer({"readers": call.manager.remote_read.readers()})


@OPERATIONS.add(
    "GET /exposure",
    "List the listeners: who can reach each one, what callers may do, and the encryption",
    Answer(description="the listeners that are on", content={JSON: "Exposure"}),
    needs=Needs.MONITOR,
)
async def list_exposure(call: Call) -> Response:
    return json_answer({"exposure": call.manager.exposure})


@OPERATIONS.add(
    "GET /trace/{message_id}",
    "Show where a message went, as far as this manager knows",
    Answer(description="the events found, in order of time; possibly none", content={JSON: "Trace"}),
    needs=Needs.MONITOR,
)
async def trace_message(call: Call) -> Response:
    return json_answer(await call.manager.trace(call.segment("message_id")))
