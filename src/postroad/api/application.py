"""The HTTP API as a server of requests: each goes through the gate to its endpoint, and gets one answer.

The calls themselves are listed in app.py.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial

from postroad.api.gate import Caller, Gate
from postroad.api.paths import KNOWN_PATHS, canonical_path
from postroad.api.problems import HttpFault, bug, other_methods, problem, unknown_path
from postroad.api.waits import Waits
from postroad.errors import PostroadError
from postroad.net.http import TaskApp
from postroad.net.request import Request
from postroad.net.response import Response
from postroad.net.routes import Route, Routes

log = logging.getLogger(__name__)

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
        return await found.endpoint.serve(request, caller, found.parameters)
