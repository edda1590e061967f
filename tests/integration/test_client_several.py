"""Clients of several processes of which one serves at a time: they find it, and wait while there is none."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import postroad
from postroad.errors import ManagerUnavailable
from tests.commands import ServerProcess
from tests.commands import postroad as command

ORDERS = r"private$\orders"
CONFIGURATION = """
[manager]
name = "alpha"
[listen]
binary = false
ping = false
http = false
rpc = false
api = {port}
[[queue]]
path = 'private$\\orders'
"""


class _StandsBy(BaseHTTPRequestHandler):
    """Answers as a process that stands by."""

    protocol_version = "HTTP/1.1"

    def _refuse(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        problem = {"status": 503, "detail": "another process is active", "active": "alpha:1"}
        content = json.dumps(problem).encode()
        self.send_response(503)
        self.send_header("Content-Type", "application/problem+json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_DELETE = _refuse  # noqa: N815  (names of the library)

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@contextmanager
def standing_by() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _StandsBy) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def start(directory: Path, port: int = 0) -> ServerProcess:
    config = directory / "alpha.toml"
    config.write_text(CONFIGURATION.format(port=port))
    return ServerProcess(config)


@pytest.fixture
def alpha(tmp_path: Path) -> Iterator[ServerProcess]:
    with closing(start(tmp_path)) as server:
        yield server


@pytest.fixture
def nobody() -> str:
    with ThreadingHTTPServer(("127.0.0.1", 0), _StandsBy) as server:
        return f"http://127.0.0.1:{server.server_port}"


def test_who_stands_by_or_refuses_is_passed_over(alpha: ServerProcess, nobody: str) -> None:
    with standing_by() as standby:
        urls = f"{nobody},{standby}, {alpha.api}"
        with postroad.connect(urls) as manager:
            orders = manager.queue(ORDERS)
            orders.send("a")
            orders.send("b")
            with orders.receiving(timeout=5) as message:
                assert message.text == "a"
            assert orders.receive(timeout=5).text == "b"

        async def program() -> None:
            async with postroad.aio.connect(urls) as other:
                await other.queue(ORDERS).send("c")

        asyncio.run(program())
        received = command("receive", ORDERS, "--json", api=urls)
        assert [each["body"] for each in received.objects] == ["c"]


def test_a_program_goes_on_while_the_manager_moves(tmp_path: Path) -> None:
    with standing_by() as standby, ExitStack() as stack:
        alpha = stack.enter_context(closing(start(tmp_path)))
        port = int(alpha.api.rpartition(":")[2])
        with postroad.connect(f"{alpha.api},{standby}") as manager:
            orders = manager.queue(ORDERS)
            orders.send(postroad.Message(b"a", recoverable=True))
            consumer = iter(orders.consume(prefetch=1))
            assert next(consumer).text == "a"
            alpha.end()
            again: list[ServerProcess] = []

            def later() -> None:
                time.sleep(1.0)  # for the requests below to meet nobody
                again.append(stack.enter_context(closing(start(tmp_path, port))))

            thread = threading.Thread(target=later)
            thread.start()
            orders.send(postroad.Message(b"b", recoverable=True))
            assert next(consumer).text in ("a", "b")  # it may not have acknowledged the first one in time
            thread.join()
            consumer.close()


def test_a_received_message_is_handed_over_even_if_its_manager_fails_then(alpha: ServerProcess) -> None:
    with standing_by() as standby, postroad.connect(f"{alpha.api},{standby}") as manager:
        manager.queue(ORDERS).send("a")
        assert manager.queue(ORDERS).receive(timeout=5).text == "a"
        assert manager.queue(ORDERS).info().messages == 0


def test_nobody_waits_for_managers_that_never_answered(nobody: str) -> None:
    with postroad.connect(f"{nobody},{nobody}") as manager, pytest.raises(ManagerUnavailable):
        manager.queue(ORDERS).info()
