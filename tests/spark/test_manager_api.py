"""The manager as Spark's processes call it: they retry while it is away, and recognise a server that is no manager."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from postroad.errors import AccessDenied, ManagerUnavailable, RemoteProtocolError, SharingViolation
from postroad.security.descriptors import Sid
from postroad.security.users import User
from postroad.spark.manager_api import ManagerApi
from postroad.spark.options import Place
from tests.relay import relayed
from tests.served import PASSWORD, Served, served


def api(manager: Served | str, *, timeout_s: float = 10, token: str | None = None) -> ManagerApi:
    url = manager if isinstance(manager, str) else f"http://127.0.0.1:{manager.server.port}"
    return ManagerApi(Place(url, r"private$\orders", token, timeout_s))


@contextmanager
def stranger(*answers: tuple[int, str, bytes]) -> Iterator[str]:
    """An HTTP server that is not a manager. It gives its answers in order, and repeats the last one."""
    left = list(answers)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, kind, body = left.pop(0) if len(left) > 1 else left[0]
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_user_logs_in() -> None:
    ann = User("ann", Sid.parse("S-1-5-21-1-2-3-1001"))
    with served(token="secret", users=[ann]) as manager:
        manager.run(manager.manager.create_queue(r"private$\orders"))
        url = f"http://127.0.0.1:{manager.server.port}"
        caller = ManagerApi(Place(url, r"private$\orders", None, 10, "ann", PASSWORD))
        with pytest.raises(AccessDenied, match="no right to look at the messages of"):
            caller.mark()
        manager.run(manager.manager.access_lists.edit(r"private$\orders", "grant", "ann", ["peek"]))
        caller.mark()
        caller.close()


def test_a_web_server_that_is_no_manager() -> None:
    with stranger((404, "text/html", b"<html>")) as url, pytest.raises(ManagerUnavailable, match="with the status 404"):
        api(url).mark()
    with (
        stranger((200, "text/html", b"<html>")) as url,
        pytest.raises(RemoteProtocolError, match="must be JSON"),
    ):
        api(url).mark()
    with (
        stranger((200, "application/json", b"{}")) as url,
        pytest.raises(RemoteProtocolError, match="not from a queue manager, or it is from another version"),
    ):
        api(url).mark()


MARK = (
    b'{"arrival": 5, "added": 4, "oldest": null, "messages": 0, "arrived": 5, "express": 0, "run": "1", '
    b'"settled": true, "queue": ""}'
)


def test_a_server_that_is_not_ready_is_asked_again() -> None:
    busy = (503, "text/plain", b"starting")
    with stranger(busy, busy, (200, "application/json", MARK)) as url:
        assert api(url).mark().arrival == 5
    with stranger(busy) as url, pytest.raises(ManagerUnavailable, match="with the status 503"):
        api(url, timeout_s=0.2).mark()


def test_a_connection_that_the_server_closed_is_made_again(alpha: Served) -> None:
    with relayed(f"http://127.0.0.1:{alpha.server.port}") as relay:
        asked = api(relay.url, timeout_s=0)
        before = asked.mark()
        relay.cut = True
        with pytest.raises(ManagerUnavailable):
            asked.mark()
        relay.cut = False
        assert asked.mark() == before


def test_a_call_that_was_done_before_its_answer_was_lost(alpha: Served) -> None:
    alpha.send("a", "b", recoverable=True)
    with relayed(f"http://127.0.0.1:{alpha.server.port}") as relay:
        relay.allowances = [0, 0, 0, 0]
        asked = api(relay.url)
        end = api(alpha).mark().arrival
        assert asked.hold("x", 0, end) == 0
        asked.close()
        relay.allowances = [0, 0]
        asked.commit("x", end)
    assert alpha.bodies() == []
    assert api(alpha).mark().messages == 0


def test_the_managers_own_errors(alpha: Served) -> None:
    alpha.send("a")
    end = api(alpha).mark().arrival
    api(alpha).hold("first", 0, end)
    with pytest.raises(SharingViolation, match="first"):
        api(alpha).hold("second", 0, end)
    assert [each["name"] for each in api(alpha).holds()] == ["first"]
    api(alpha).release("first")
    assert api(alpha).holds() == []


def test_a_token() -> None:
    with served(token="secret") as running:
        running.call("POST", "/api/v1/queues", {"path": r"private$\orders"}, headers={"Authorization": "Bearer secret"})
        assert api(running, token="secret").mark().messages == 0
        with pytest.raises(AccessDenied, match="token"):
            api(running, token="wrong").mark()
