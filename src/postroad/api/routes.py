"""Calls about routes through the enterprise: the next hop of a message and why, and routing tables."""

from __future__ import annotations

from http import HTTPStatus

from starlette.responses import Response

from postroad.api.calls import Answer, Call, Needs, Operations, Parameter, json_answer
from postroad.api.formats import JSON
from postroad.errors import InvalidArgument
from postroad.fields.kinds import TEXT

_FROM = Parameter("from", TEXT, "the name of the queue manager to start at; this one if absent")

OPERATIONS = Operations()


@OPERATIONS.add(
    "GET /route",
    "Show the next hop of a message for a queue manager, its whole route, and why",
    Answer(description="the route", content={JSON: "Route"}),
    parameters=(Parameter("to", TEXT, "the name of the destination queue manager"), _FROM),
    errors=(HTTPStatus.NOT_FOUND,),
    needs=Needs.MANAGER,
)
async def show_route(call: Call) -> Response:
    if call.query["to"] is None:
        raise InvalidArgument("to: is missing; set it to the name of the destination queue manager")
    source = call.query["from"] or call.manager.name
    return json_answer(call.manager.router.routes.route(source, call.query["to"]))


@OPERATIONS.add(
    "GET /route/table",
    "Show the routing table of a queue manager",
    Answer(description="the table; empty unless the manager is a site gate", content={JSON: "RouteTable"}),
    parameters=(_FROM,),
    errors=(HTTPStatus.NOT_FOUND,),
    needs=Needs.MANAGER,
)
async def show_table(call: Call) -> Response:
    source = call.query["from"] or call.manager.name
    return json_answer(call.manager.router.routes.table(source))
