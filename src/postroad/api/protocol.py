"""HTTP/1.1 of the API: what uvicorn does, except that the most frequent calls have no task of their own.

Such a call starts when its body is complete, in the callback that has read it, and its answer is often written there
too. A call with a large body, or one that must be invited (100-continue), has a task as any other.
"""

from __future__ import annotations

from typing import Any

from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from postroad.api.identity import NamingProtocol
from postroad.api.waits import STEPS
from postroad.net.http import MAX_HEADERS
from postroad.runtime.steps import Steps


class ApiProtocol(NamingProtocol):
    """The app is an Application."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._held: RequestResponseCycle | None = None  # until its body is complete

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        scope = cycle.scope
        if cycle.waiting_for_100_continue or not app.is_direct(scope["method"], scope["raw_path"]):
            super()._start_asgi_task(cycle, app)
        elif cycle.more_body:
            if any(name == b"content-length" and int(value) > HIGH_WATER_LIMIT for name, value in scope["headers"]):
                super()._start_asgi_task(cycle, app)  # it may be refused before its body has come
            else:
                self._held = cycle
        elif not self.transport.is_closing():  # else it stands behind the last request that is answered
            steps = Steps(cycle.run_asgi(app))
            scope[STEPS] = steps  # type: ignore[literal-required]
            steps.go_on()

    def on_header(self, name: bytes, value: bytes) -> None:
        """As its bases do it together: a request has many headers."""
        if len(self.headers) >= MAX_HEADERS:
            raise ValueError("too many headers")
        name = name.lower()
        if name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        self.headers.append((name, value))

    def on_body(self, body: bytes) -> None:
        super().on_body(body)
        held = self._held
        if held is not None and len(held.body) > HIGH_WATER_LIMIT:  # uvicorn reads on when the task has taken that
            self._held = None
            super()._start_asgi_task(held, self.app)

    def on_message_complete(self) -> None:
        super().on_message_complete()
        held, self._held = self._held, None
        if held is not None:
            self._start_asgi_task(held, self.app)
