"""The HTTP API as a server of requests: each goes through the gate to its endpoint, and gets one answer.

calls.py has what a call is, and app.py lists them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from http import HTTPStatus
from urllib.parse import parse_qsl, quote, unquote

from postroad.api.calls import API, KNOWN_PATHS, Call, Operation, query_reader
from postroad.api.formats import ARROW, load_arrow
from postroad.api.gate import Caller, Gate
from postroad.api.problems import HttpFault, bug, problem
from postroad.api.waits import Waits
from postroad.errors import AccessDenied, CorruptRecord, PostroadError, StorageError
from postroad.manager import Manager
from postroad.manager.standing import Standing
from postroad.net.exchange import Request, Response
from postroad.net.http import TaskApp
from postroad.net.routes import Route, Routes
from postroad.security.audit import ACCESS_REFUSED, DONE

log = logging.getLogger(__name__)

QUEUES = f"{API}/queues/"
_PRIVATE = "private$"
_COMPLETE = "\\=;"  # a first segment with one of these is a whole name, not a computer

MAX_PATIENCE_S = 300.0
PATIENCE_S = 30.0  # for which a call without a time-out waits for the database
SWEEP_S = 0.5  # between two looks at calls that wait
LOOK_S = 0.1  # between two looks at a database that is away
RETRY_AFTER_S = "2"
# What a process that stands by answers, and what is answered while the database is away.
ALWAYS = frozenset({"/healthz", "/readyz", "/metrics", f"{API}/manager", f"{API}/status", f"{API}/openapi.json"})

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

    def __init__(self, gate: Gate, routes: list[Route[Endpoint]], waits: Waits, standing: Standing) -> None:
        super().__init__()
        self._standing = standing
        self._pending: dict[Request, float] = {}  # served without a task, and not answered yet
        self._sweeping: asyncio.TimerHandle | None = None
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
        shared = self._standing.can_fail_over
        if shared and (self._standing.refusal() is not None or self._standing.stalled() is not None):
            return False
        caller = self.gate.known(request)
        if caller is None:
            return False
        answer: Answer = partial(request.connection.answer, request)
        if shared:
            answer = self._awaited(request, answer)
        try:
            if found.endpoint.at_once(request, caller, found.parameters, answer):
                return True
            self._pending.pop(request, None)
            return False
        except PostroadError as error:
            answer(problem(error))
        except HttpFault as fault:
            answer(problem(fault.error, fault.status, fault.headers))
        except Exception:
            log.exception("request failed", extra={"path": request.path})
            answer(bug())
        return True

    def _awaited(self, request: Request, answer: Answer) -> Answer:
        """An answer that is given at most once, and that is a 503 if the database does not answer in time."""

        def once(response: Response) -> None:
            if self._pending.pop(request, None) is not None:
                answer(response)

        loop = asyncio.get_running_loop()
        self._pending[request] = loop.time()
        if self._sweeping is None:
            self._sweeping = loop.call_later(SWEEP_S, self._sweep)
        return once

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        since, now = self._standing.waits_since(), loop.time()
        if since is not None and now - since >= PATIENCE_S:
            for request, began in list(self._pending.items()):
                if now - began >= PATIENCE_S:
                    del self._pending[request]
                    request.connection.answer(request, self._unavailable())
        self._sweeping = loop.call_later(SWEEP_S, self._sweep) if self._pending else None

    def _unavailable(self) -> Response:
        reason = self._standing.stalled() or "the database did not confirm the change in time: it may take place later"
        return problem(StorageError(reason), headers={"retry-after": RETRY_AFTER_S})

    async def respond(self, request: Request) -> Response:
        try:
            if self._standing.can_fail_over:
                return await self._respond_in_time(request)
            return await self._respond(request)
        except StorageError as error:
            again = self._standing.can_fail_over and not isinstance(error, CorruptRecord)
            return problem(error, headers={"retry-after": RETRY_AFTER_S} if again else None)
        except PostroadError as error:
            return problem(error)
        except HttpFault as fault:
            return problem(fault.error, fault.status, fault.headers)

    async def _respond_in_time(self, request: Request) -> Response:
        """The answer of a manager whose database can be away, or belong to another process."""
        if request.path in ALWAYS:
            return await self._respond(request)
        if (refusal := self._standing.refusal()) is not None:
            caller = await self.gate.admit(request)
            if isinstance(caller, Response):
                return caller
            active = self._standing.report().get("active")
            return problem(StorageError(refusal), headers={"retry-after": RETRY_AFTER_S}, active=active)
        loop = asyncio.get_running_loop()
        began, most_s = loop.time(), patience_s(request)
        while self._standing.stalled() is not None:
            if loop.time() - began >= most_s:
                return self._unavailable()
            await asyncio.sleep(min(LOOK_S, most_s))
        serving = asyncio.ensure_future(self._respond(request))
        try:
            while True:
                done, _ = await asyncio.wait({serving}, timeout=SWEEP_S)
                if done and not self._should_repeat(request, serving):
                    return serving.result()
                if done:
                    await asyncio.sleep(LOOK_S)
                    serving = asyncio.ensure_future(self._respond(request))
                since = self._standing.waits_since() if self._standing.stalled() is None else began
                if since is not None and loop.time() - max(since, began) >= most_s:
                    return self._unavailable()
        finally:
            serving.cancel()

    def _should_repeat(self, request: Request, serving: asyncio.Future[Response]) -> bool:
        """Whether a call that changes nothing failed because the database is away."""
        failed = isinstance(serving.exception(), StorageError) and not isinstance(serving.exception(), CorruptRecord)
        return failed and request.method == "GET" and self._standing.stalled() is not None

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


def patience_s(request: Request) -> float:
    """For how long a call waits for the database: as long as it would wait for a message."""
    for name, value in parse_qsl(request.query):
        if name == b"timeout":
            with suppress(ValueError):
                return min(max(float(value), 0.0), MAX_PATIENCE_S)
    return PATIENCE_S


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
