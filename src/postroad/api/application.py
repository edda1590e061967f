"""The HTTP API as an ASGI application. Calls of the API go straight from the gate to their endpoints; Starlette serves
everything else, such as pages, other methods and unknown paths.

It knows no calls: app.py has them.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from postroad.api.gate import Gate
from postroad.api.paths import KNOWN_PATHS
from postroad.api.waits import Waits
from postroad.errors import PostroadError
from postroad.net.http import answer_whole

log = logging.getLogger(__name__)

Endpoint = Callable[[Request], Awaitable[Response]]
ErrorHandler = Callable[[Request, Any], Awaitable[Response]]


class Application:
    """`waits` ends waiting reads. `handlers` are by class of error; an error that none of them names is a bug."""

    def __init__(
        self,
        gate: Gate,
        routes: list[BaseRoute],
        handlers: Mapping[type[Exception], ErrorHandler],
        waits: Waits,
    ) -> None:
        self.waits = waits
        self.routes = routes
        self.gate = gate
        self._handlers = handlers
        self._starlette = Starlette(routes=routes, exception_handlers=dict(handlers))
        self._starlette.router.redirect_slashes = False
        self._find = lru_cache(KNOWN_PATHS)(self._search)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive, send)
        bug: Exception | None = None
        try:
            refusal = await self.gate.admit(scope)
            if refusal is not None:
                response = refusal
            else:
                found = self._find(scope["method"], scope["path"])
                if found is None:
                    await self._starlette(scope, receive, send)
                    return
                endpoint, scope["path_params"] = found
                response = await endpoint(request)
        except Exception as error:
            kind = next(each for each in type(error).__mro__ if each in self._handlers)
            response = await self._handlers[kind](request, error)
            if kind is Exception:
                bug = error
        if type(response) is not Response or not await answer_whole(
            scope, response.status_code, response.raw_headers, bytes(response.body)
        ):
            try:
                await response(scope, receive, send)
            except PostroadError as error:  # the answer is under way: the server closes the connection
                log.warning("answer broken off", extra={"path": scope["path"], "reason": str(error)})
        if bug is not None:
            raise bug  # the server logs it

    def _search(self, method: str, path: str) -> tuple[Endpoint, dict[str, str]] | None:
        for route in self.routes:
            if isinstance(route, Route) and method in (route.methods or ()) and method != "HEAD":
                match = route.path_regex.match(path)
                if match is not None:
                    return route.endpoint, match.groupdict()
        return None
