"""The HTTP API as a server of requests: each goes through the gate to its endpoint, and gets one answer.

calls.py has what a call is, and app.py lists them.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from http import HTTPStatus
from urllib.parse import quote, unquote

from postroad.api.calls import API, KNOWN_PATHS, Call, Operation, query_reader
from postroad.api.formats import ARROW, load_arrow
from postroad.api.gate import Caller, Gate
from postroad.api.problems import HttpFault, bug, problem
from postroad.api.waits import Waits
from postroad.errors import AccessDenied, PostroadError
from postroad.manager import Manager
from postroad.net.exchange import Request, Response
from postroad.net.http import TaskApp
from postroad.net.routes import Route, Routes
from postroad.security.audit import ACCESS_REFUSED, DONE

log = logging.getLogger(__name__)

QUEUES = f"{API}/queues/"
_PRIVATE = "private$"
_COMPLETE = "\\=;"  # a first segment with one of these is a whole name, not a computer

# The parts of the path that its template names, as they were sent.
Parameters = Mapping[str, str]
Answer = Callable[[Response], None]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """`at_once` serves requests that need no task. It returns True if it calls `Answer`, now or later, and False if it
    has done nothing."""

    serve: Callable[[Request, Caller, Parameters], Awaitable[Response]]
    at_once: Callable[[Request, Caller, Parameters, Answer], bool] | None = None


class Application(TaskApp):
    """The application of the API. `waits` ends waiting reads."""

    def __init__(self, gate: Gate, routes: list[Route[Endpoint]], waits: Waits) -> None:
        super().__init__()
        self.waits = waits
        self.routes = routes
        self.gate = gate
        self._find = lru_cache(KNOWN_PATHS)(Routes(routes).find)

    def begin(self, request: Request) -> None:
        request.path = canonical_path(request.path)
        if not self._served_at_once(request):
            super().begin(request)

    def _served_at_once(self, request: Request) -> bool:
        """Serves a frequent call without a task. Returns False if the call needs one."""
        found = self._find(request.method, request.path)
        if found is None or found.endpoint is None or found.endpoint.at_once is None or not request.complete:
            return False
        caller = self.gate.known(request)
        if caller is None:
            return False
        answer = partial(request.connection.answer, request)
        try:
            return found.endpoint.at_once(request, caller, found.parameters, answer)
        except PostroadError as error:
            answer(problem(error))
        except HttpFault as fault:
            answer(problem(fault.error, fault.status, fault.headers))
        except Exception:
            log.exception("request failed", extra={"path": request.path})
            answer(bug())
        return True

    async def respond(self, request: Request) -> Response:
        try:
            return await self._respond(request)
        except PostroadError as error:
            return problem(error)
        except HttpFault as fault:
            return problem(fault.error, fault.status, fault.headers)

    def failed(self) -> Response:
        return bug()

    async def _respond(self, request: Request) -> Response:
        caller = await self.gate.admit(request)
        if isinstance(caller, Response):
            return caller
        found = self._find(request.method, request.path)
        if found is None:
            return unknown_path(request)
        if found.endpoint is None:
            return other_methods(request, found.methods)
        if caller.answer is None:
            return await found.endpoint.serve(request, caller, found.parameters)
        try:
            response = await found.endpoint.serve(request, caller, found.parameters)
        except PostroadError as error:
            response = problem(error)
        except HttpFault as fault:
            response = problem(fault.error, fault.status, fault.headers)
        response.headers["www-authenticate"] = caller.answer
        return response


def endpoint(operation: Operation, manager: Manager, waits: Waits) -> Endpoint:
    """What serves a call of the API."""
    read_query, speaks_arrow = query_reader(operation.parameters), operation.speaks(ARROW)

    async def serve(request: Request, caller: Caller, segments: Parameters) -> Response:
        call = Call(request, caller, segments, manager, waits, operation, read_query(request.query))
        if operation.audited is not None:
            return await _audited(operation, operation.audited, call)
        try:
            call.authorize()
            if speaks_arrow and call.names(ARROW):
                await load_arrow()
                call.authorize()
            return await operation.handler(call)
        except AccessDenied as error:
            _refused(operation, call, error)
            raise

    def at_once(request: Request, caller: Caller, segments: Parameters, answer: Answer) -> bool:
        assert operation.at_once is not None
        call = Call(request, caller, segments, manager, waits, operation, read_query(request.query))
        try:
            call.authorize()
            return operation.at_once(call, answer)
        except AccessDenied as error:
            _refused(operation, call, error)
            raise

    return Endpoint(serve, None if operation.at_once is None else at_once)


def _refused(operation: Operation, call: Call, error: AccessDenied) -> None:
    queue = call.queue if "queue" in call.segments else None
    who, asked = call.caller, f"{operation.method} {operation.path}"
    call.manager.audit(ACCESS_REFUSED, who=who.who, address=who.address, queue=queue, call=asked, why=str(error))


async def _audited(operation: Operation, event: str, call: Call) -> Response:
    """Runs the operation. The audit log records its outcome, even after a failure."""
    if "queue" in call.segments:
        call.facts["queue"] = call.queue
    outcome = "the server failed"
    try:
        call.authorize()
        answer = await operation.handler(call)
        outcome = DONE
    except (PostroadError, HttpFault) as error:
        outcome = str(error)
        raise
    finally:
        call.manager.audit(event, who=call.caller.who, address=call.caller.address, outcome=outcome, **call.facts)
    return answer


# Queues in URLs: every spelling of a queue's name in a path becomes one segment for the router.
#
# This works on the path as sent: after decoding, nothing tells a slash within a name from one between segments.


@lru_cache(KNOWN_PATHS)
def canonical_path(raw: str) -> str:
    """The path with its queue, if any, as one percent-encoded segment. Other paths stay as they are.

    `private$/orders`, `alpha/private$/orders` and `alpha/orders` are local paths with slashes, and fill two or three
    segments after `/api/v1/queues/`. A single word is no queue name, so it must be a computer.
    """
    if not raw.startswith(QUEUES):
        return raw
    segments = raw[len(QUEUES) :].split("/")
    length = _segments_of_name(segments)
    # Octets that are not UTF-8 become characters that no name can have.
    name = "\\".join(unquote(each, errors="surrogateescape") for each in segments[:length])
    return QUEUES + "/".join([quote(name, safe="", errors="surrogateescape"), *segments[length:]])


def _segments_of_name(segments: list[str]) -> int:
    first = unquote(segments[0])
    if first.lower() == _PRIVATE:
        return 2
    if any(mark in first for mark in _COMPLETE) or "/" in first:
        return 1
    return 3 if len(segments) > 1 and unquote(segments[1]).lower() == _PRIVATE else 2


def unknown_path(request: Request) -> Response:
    where = f"{request.method} {unquote(request.path)}"
    sentence = f"{where}: there is no such call; /api/v1/openapi.json lists all calls"
    return problem(PostroadError(sentence), HTTPStatus.NOT_FOUND)


def other_methods(request: Request, methods: Sequence[str]) -> Response:
    """The answer to a method that the path does not take."""
    allowed, path = ", ".join(methods), unquote(request.path)
    sentence = f"{request.method} {path}: this path takes {allowed}{_taken_for_a_queue(request.path)}"
    return problem(PostroadError(sentence), HTTPStatus.METHOD_NOT_ALLOWED, {"allow": allowed})


def _taken_for_a_queue(path: str) -> str:
    """Explains a misread path: a single word is no queue name, so the router took the next word for a part of it."""
    name = unquote(path.removeprefix(QUEUES))
    if not path.startswith(QUEUES) or "/" in name or "\\" not in name or "$" in name:
        return ""
    first, _, rest = name.partition("\\")
    return rf"; {name} was taken for the queue: write private$/{first}/{rest} for the private queue {first}"
