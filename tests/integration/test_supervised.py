"""Background work of a server fails from within. Its name shows up where people look, and it runs again."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from postroad.binary.transport import BinaryTransport
from postroad.config import load_configuration
from postroad.queues.outgoing_queues import Watcher
from postroad.runtime import supervision
from postroad.server.server import Server
from postroad.soap.transport import SoapTransport
from tests.served import API, ORDERS, served

PATIENCE_S = 30
CONFIGURATION = """
[manager]
name = "alpha"
[listen]
host = "127.0.30.1"
binary = 0
ping = false
http = 0
rpc = 0
api = 0
[directory]
file = "enterprise.toml"
poll_s = 0.1
"""


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervision, "RETRY_S", 0.05)


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_the_timer_task_is_named_while_it_is_down_and_expires_messages_after() -> None:
    with served() as alpha:
        alpha.create()
        assert alpha.call("GET", "/readyz").status == 200
        run_timers = alpha.manager.core.run_timers

        def broken(now: float) -> None:
            raise ValueError("a message that nobody thought of")

        alpha.manager.core.run_timers = broken  # type: ignore[method-assign]
        until(lambda: alpha.call("GET", "/readyz").status == 503)
        reply = alpha.call("GET", "/readyz")
        assert reply.body == b"the background task timers is down: ValueError: a message that nobody thought of\n"
        status = alpha.call("GET", f"{API}/manager").json
        assert status["down"] == ["timers is down: ValueError: a message that nobody thought of"]
        assert any("timers" in sentence for sentence in alpha.call("GET", f"{API}/status").json["attention"])
        assert b"postroad_background_tasks_down 1" in alpha.call("GET", "/metrics").body
        alpha.send("late", time_to_be_received=0, recoverable=True)
        alpha.manager.core.run_timers = run_timers  # type: ignore[method-assign]
        until(lambda: alpha.call("GET", "/readyz").status == 200)
        until(lambda: alpha.call("GET", ORDERS).json["messages"] == 0)


def test_a_listener_that_ends_accepts_again() -> None:
    with served() as alpha:
        name = f"api {alpha.server.address}"
        ended = alpha.manager.supervisor._tasks[name]
        alpha.loop.call_soon_threadsafe(ended.cancel)
        until(lambda: ended.done())
        until(lambda: alpha.call("GET", "/readyz").status == 200)
        assert alpha.manager.supervisor.failures == 1


def test_timers_of_protocols_and_the_directory_watch_go_on_after_a_fault(tmp_path: Path) -> None:
    (tmp_path / "enterprise.toml").write_text('[[site]]\nname = "london"\n')
    (tmp_path / "alpha.toml").write_text(CONFIGURATION)

    async def main() -> None:
        server = Server(load_configuration(tmp_path / "alpha.toml"))
        await server.start()
        try:
            manager = server.manager
            assert manager.doors.binary is not None
            binary = manager.doors.binary.driver
            assert isinstance(binary, BinaryTransport)
            assert manager.doors.soap is not None
            soap = manager.doors.soap.driver
            assert isinstance(soap, SoapTransport)
            url = f"http://{server.ready['listen']['api']}"  # type: ignore[index]
            broken = {
                "binary timers": (binary.service, "_waiting"),
                "soap timers": (soap.service.receiver.incoming, "forget_old"),
                "directory": (manager.watch, "reload"),
            }
            for owner, name in broken.values():
                setattr(owner, name, _raise)
            binary.service._sweeps.set(None, manager.clock())  # something is due
            soap.service._retransmission.set(None, manager.clock())
            await _until(lambda: set(manager.supervisor.down) == set(broken))
            code, text = await asyncio.to_thread(_readiness, url)
            assert code == 503
            for name in broken:
                assert name in text
            for owner, name in broken.values():
                delattr(owner, name)
            await _until(lambda: not manager.supervisor.down)
            assert (await asyncio.to_thread(_readiness, url))[0] == 200
        finally:
            await server.stop()

    asyncio.run(main())


def _raise(*arguments: object) -> None:
    raise ValueError("broken")


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110  # what is waited for is plain state
            await asyncio.sleep(0.02)


def _readiness(url: str) -> tuple[int, str]:
    try:
        with urlopen(f"{url}/readyz", timeout=PATIENCE_S) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_what_follows_and_fails_is_counted_where_people_look() -> None:
    with served() as alpha:
        alpha.create(journal=True)
        alpha.send("a", "b", "c")

        def hook(*arguments: object) -> None:
            raise ValueError("a bug in a hook")

        alpha.manager.core.watch(Watcher(removed=hook))
        reply = alpha.call("POST", f"{ORDERS}/receive?count=3")
        assert reply.status == 200, reply.body
        assert [each["body"] for each in json.loads(reply.body)["messages"]] == ["a", "b", "c"]
        assert alpha.call("GET", f"{API}/manager").json["follow_up_errors"] == 1
        assert b"postroad_follow_up_errors_total 1" in alpha.call("GET", "/metrics").body
        assert alpha.bodies() == []
        assert len(alpha.call("GET", f"{API}/queues/private$/orders;journal/messages").json["messages"]) == 3
