"""The HTTP API over one manager: it joins the tables of calls into routes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from postroad.api import (
    administration,
    connections,
    holdings,
    messages,
    offsets,
    queues,
)
from postroad.api.application import Application, Endpoint, Parameters, endpoint
from postroad.api.calls import API, Operation, json_answer
from postroad.api.gate import Caller, Gate
from postroad.api.logins import KerberosLogins, KerberosSettings
from postroad.api.monitoring import MEDIA_TYPE as METRICS
from postroad.api.monitoring import QueueSeries, live, metrics_text, ready
from postroad.api.openapi import document, front_page, reference_page
from postroad.api.waits import Waits
from postroad.errors import AccessDenied
from postroad.manager import Manager
from postroad.net.exchange import Request, Response
from postroad.net.routes import Route

OPERATIONS: tuple[Operation, ...] = (
    *messages.OPERATIONS,  # first: the router searches from the top, and these are called most
    *holdings.OPERATIONS,
    *offsets.OPERATIONS,
    *queues.OPERATIONS,
    *administration.OPERATIONS,
    *connections.OPERATIONS,
)


@dataclass(frozen=True, slots=True)
class Settings:
    """Without a token, every client that reaches the server may call. With `certificates`, TLS admits only clients that
    have one."""

    token: str | None = None
    certificates: bool = False
    credentials: Mapping[str, str] = field(default_factory=dict, repr=False)  # passwords, by user name
    console_key: str | None = field(default=None, repr=False)
    kerberos: KerberosSettings | None = None


def build_app(manager: Manager, settings: Settings | None = None) -> Application:
    """Builds the application that serves a started manager. It runs on the manager's event loop."""
    settings = settings or Settings()
    waits = Waits(manager.reads.committing)
    by_path: dict[str, dict[str, Operation]] = {}
    for operation in OPERATIONS:
        by_path.setdefault(operation.path, {})[operation.method] = operation
    description = document(OPERATIONS)

    async def openapi(request: Request, caller: Caller, _: Parameters) -> Response:
        return json_answer(description)

    series = QueueSeries(manager.metrics_queues)

    async def metrics(request: Request, caller: Caller, _: Parameters) -> Response:
        if not (caller.token.everything or caller.token.watches):
            raise AccessDenied("only monitors and administrators may read the metrics")
        return Response(metrics_text(manager, await manager.all_queues(), series), media_type=METRICS)

    async def healthz(request: Request, caller: Caller, _: Parameters) -> Response:
        return await live(manager)

    async def readyz(request: Request, caller: Caller, _: Parameters) -> Response:
        return await ready(manager)

    async def front(request: Request, caller: Caller, _: Parameters) -> Response:
        console = next((each for each in manager.doors.exposure if each.listener == "console"), None)
        return front_page(None if settings.token is not None else manager.name, console)

    async def reference(request: Request, caller: Caller, _: Parameters) -> Response:
        return reference_page(OPERATIONS)

    gate = Gate(
        token=settings.token,
        names=frozenset({"localhost", manager.name.lower()}),
        logins=manager.logins,
        clock=manager.clock,
        waits=waits,
        certificates=settings.certificates,
        credentials=settings.credentials,
        access=manager.core.access,
        console_key=settings.console_key,
        kerberos=None if settings.kerberos is None else KerberosLogins(settings.kerberos, manager.clock),
    )
    pages = {
        f"{API}/openapi.json": openapi,
        "/metrics": metrics,
        "/healthz": healthz,
        "/readyz": readyz,
        "/docs": reference,
        "/": front,
    }
    routes = [Route(f"{API}{path}", _endpoints(by_method, manager, waits)) for path, by_method in by_path.items()]
    routes += [Route(path, {"GET": Endpoint(page)}) for path, page in pages.items()]
    return Application(gate, routes, waits, manager.standing)


def _endpoints(by_method: Mapping[str, Operation], manager: Manager, waits: Waits) -> dict[str, Endpoint]:
    return {method: endpoint(operation, manager, waits) for method, operation in by_method.items()}
