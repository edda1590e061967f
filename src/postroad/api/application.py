"""The HTTP API as it serves requests: each one goes from the gate to its endpoint, and becomes one answer.

It knows no calls: app.py has them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache

from postroad.api.gate import Caller, Gate
from postroad.api.paths import KNOWN_PATHS
from postroad.api.problems import HttpFault, bug, other_methods, problem, unknown_path
from postroad.api.waits import Waits
from postroad.errors import PostroadError
from postroad.net.http import TaskApp
from postroad.net.request import Request
from postroad.net.response import Response
from postroad.net.routes import Route, Routes

# The parameters are the parts of the path that its template names, as they were sent.
Endpoint = Callable[[Request, Caller, Mapping[str, str]], Awaitable[Response]]


class Application(TaskApp):
    """`waits` ends waiting reads."""

    def __init__(self, gate: Gate, routes: list[Route[Endpoint]], waits: Waits) -> None:
        super().__init__()
        self.waits = waits
        self.routes = routes
        self.gate = gate
        self._find = lru_cache(KNOWN_PATHS)(Routes(routes).find)

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
        return await found.endpoint(request, caller, found.parameters)
