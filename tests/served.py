"""A real HTTP API on a free port, its manager on an event loop in its own thread, and a plain client for tests."""

from __future__ import annotations

import asyncio
import http.client
import json
import threading
from base64 import b64encode
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from postroad.api import ApiServer, TlsFiles
from postroad.config import default_configuration
from postroad.errors import StorageError
from postroad.manager import Manager, build_manager
from postroad.security.audit import AuditLog
from postroad.security.users import User, Users
from postroad.store import Batch, MemoryStore, Store

T = TypeVar("T")
API = "/api/v1"
ORDERS = f"{API}/queues/private$/orders"
PATIENCE_S = 20
PASSWORD = "a secret"


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class FailingStore(MemoryStore):
    """A store whose disk is full while `full` is set."""

    full = False

    def commit(self, batches: Iterable[Batch]) -> None:
        if self.full:
            raise StorageError("the disk is full")
        super().commit(batches)


class Served:
    """A served manager. `call` makes one request on its own connection. `run` runs a coroutine on the manager's
    loop."""

    def __init__(self, manager: Manager, server: ApiServer, loop: asyncio.AbstractEventLoop) -> None:
        self.manager = manager
        self.server = server
        self.loop = loop

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(PATIENCE_S)

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self.server.host, self.server.port, timeout=PATIENCE_S)

    def call(
        self,
        method: str,
        path: str,
        value: object = None,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        """Makes a request. `value` is sent as JSON, and `body` as it is."""
        sent = dict(headers or {})
        if value is not None:
            body = json.dumps(value).encode()
            sent.setdefault("Content-Type", "application/json")
        connection = self.connect()
        try:
            connection.request(method, path, body, sent)
            answer = connection.getresponse()
            return Reply(answer.status, {name.lower(): text for name, text in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    def create(self, path: str = "private$/orders", **properties: object) -> None:
        assert self.call("POST", f"{API}/queues", {"path": path, **properties}).status == 201

    def send(self, *bodies: str, **properties: object) -> None:
        messages = [{"body": body, **properties} for body in bodies]
        assert self.call("POST", f"{ORDERS}/messages", {"messages": messages}).status == 201

    def bodies(self, queue: str = ORDERS) -> list[str]:
        """The bodies of the messages in the queue that can be received."""
        return [each["body"] for each in self.call("GET", f"{queue}/messages").json["messages"]]


def basic(name: str, password: str = PASSWORD) -> dict[str, str]:
    """The header of a user who logs in."""
    return {"Authorization": f"Basic {b64encode(f'{name}:{password}'.encode()).decode()}"}


@contextmanager
def served(
    store: Store | None = None,
    *,
    token: str | None = None,
    host: str = "127.0.0.1",
    users: Sequence[User] = (),
    password: str = PASSWORD,
    tls: TlsFiles | None = None,
    audit: Path | None = None,
) -> Iterator[Served]:
    """Serves a manager. `users` all have the same password."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="served")
    thread.start()

    async def start() -> Served:
        manager = build_manager(default_configuration("alpha"), store or MemoryStore(), audit=AuditLog(audit))
        manager.core.use(replace(manager.core.settings, users=Users(users)), manager.clock())
        await manager.start()
        server = ApiServer(manager, host, 0, token, tls, {user.name: password for user in users})
        await server.start()
        return Served(manager, server, loop)

    try:
        running = asyncio.run_coroutine_threadsafe(start(), loop).result(PATIENCE_S)
        try:
            yield running
        finally:
            running.run(running.server.stop())
            running.run(running.manager.stop())
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(PATIENCE_S)
        loop.close()
