"""Calls for sessions with other managers, remote readers, listeners, and traces of messages."""

from __future__ import annotations

import asyncio
from http import HTTPStatus

from postroad.api.calls import Answer, Call, Needs, Operations, Parameter, json_answer
from postroad.api.formats import JSON
from postroad.directory.review import describe_directory
from postroad.directory.watch import export_enterprise
from postroad.directory.what_if import changed, parse_down
from postroad.errors import InvalidArgument
from postroad.net.exchange import Response
from postroad.routing import Routes
from postroad.validation.kinds import SWITCH, TEXT

OPERATIONS = Operations()
TEXT_TYPE = "text/plain; charset=utf-8"


@OPERATIONS.add(
    "GET /sessions",
    "List the sessions with other queue managers",
    Answer(description="the sessions, in the order they were made", content={JSON: "Sessions"}),
    needs=Needs.MONITOR,
)
async def list_sessions(call: Call) -> Response:
    return json_answer({"sessions": call.manager.sessions()})


@OPERATIONS.add(
    "GET /readers",
    "List the remote readers",
    Answer(description="the queues that remote readers have open", content={JSON: "Readers"}),
    needs=Needs.MONITOR,
)
async def list_readers(call: Call) -> Response:
    return json_answer({"readers": call.manager.doors.remote_read.readers()})


@OPERATIONS.add(
    "GET /exposure",
    "List the listeners: who can reach each one, what callers may do, and the encryption",
    Answer(description="the listeners that are on", content={JSON: "Exposure"}),
    needs=Needs.MONITOR,
)
async def list_exposure(call: Call) -> Response:
    return json_answer({"exposure": call.manager.doors.exposure})


@OPERATIONS.add(
    "GET /trace/{message_id}",
    "Show where a message went, as far as this manager knows",
    Answer(description="the events found, in order of time; possibly none", content={JSON: "Trace"}),
    needs=Needs.MONITOR,
)
async def trace_message(call: Call) -> Response:
    return json_answer(await call.manager.trace(call.segment("message_id")))


# Calls for the enterprise: its directory, the next hop of a message and why, and routing tables.


_FROM = Parameter("from", TEXT, "the name of the queue manager to start at; this one if absent")


@OPERATIONS.add(
    "GET /route",
    "Show the next hop of a message for a queue manager, its whole route, and why",
    Answer(description="the route", content={JSON: "Route"}),
    parameters=(
        Parameter("to", TEXT, "the name of the destination queue manager"),
        _FROM,
        Parameter("without", TEXT, "what if: links that count as closed, each as A-B, separated by commas"),
    ),
    errors=(HTTPStatus.NOT_FOUND,),
    needs=Needs.MANAGER,
)
async def show_route(call: Call) -> Response:
    if call.query["to"] is None:
        raise InvalidArgument("to: is missing; set it to the name of the destination queue manager")
    source = call.query["from"] or call.manager.name
    routes = call.manager.router.routes
    if call.query["without"] is not None:
        closed = [parse_down(each, routes.directory) for each in call.query["without"].split(",")]
        routes = Routes(changed(routes.directory, closed))
    return json_answer(routes.route(source, call.query["to"]))


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


@OPERATIONS.add(
    "GET /directory",
    "Show the sites, routing links and queue managers of the directory",
    Answer(description="the directory, by name; empty without one", content={JSON: "Directory"}),
    parameters=(Parameter("queues", SWITCH, "whether to list the public queues as well", default=False),),
    needs=Needs.MANAGER,
)
async def show_directory(call: Call) -> Response:
    manager = call.manager
    directory, state = manager.router.directory, manager.directory_state()

    def describe() -> Response:  # of many queues, it takes a while
        return json_answer(describe_directory(directory, manager.name, state, queues=call.query["queues"]))

    return await asyncio.to_thread(describe)


@OPERATIONS.add(
    "GET /directory/export",
    "Write the directory as an enterprise.toml",
    Answer(description="the file", content={TEXT_TYPE: None}),
    needs=Needs.MANAGER,
)
async def export_directory(call: Call) -> Response:
    manager, administrator = call.manager, call.token.everything
    directory = manager.router.directory
    text = await asyncio.to_thread(export_enterprise, directory, manager.watch, administrator=administrator)
    return Response(text.encode(), media_type=TEXT_TYPE)


@OPERATIONS.add(
    "GET /directory/check",
    "Check whether a join of the domain would work: what is missing, and what mends it",
    Answer(description="what a join needs, in the order of its steps", content={JSON: "JoinCheck"}),
    needs=Needs.ADMINISTRATOR,
)
async def check_directory(call: Call) -> Response:
    manager = call.manager
    found = None if manager.watch is None else await asyncio.to_thread(manager.watch.join, manager.clock())
    if found is None:
        raise InvalidArgument("the directory is no domain: set ldap in [directory] to the URL of a domain controller")
    return json_answer(found)
