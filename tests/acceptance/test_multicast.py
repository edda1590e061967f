"""Multicast between real processes on loopback, over UDP, with packets that are lost on the way."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

import postroad as client
from tests.commands import ServerProcess, postroad
from tests.multicast_relay import MulticastRelay

GROUP = "239.50.1.1"
NAME = f"MULTICAST={GROUP}:8001"
SENDER_PORT, RECEIVER_PORT = 13055, 13056
NEWS = r"private$\news"
ANSWERS = r"private$\answers"
CONFIGURATION = """
[manager]
name = "{name}"
data = "data/{name}"
[listen]
host = "{address}"
binary = false
ping = false
http = {http}
rpc = false
api = 0
[multicast]
enabled = true
interfaces = ["{address}"]
encapsulation = "{encapsulation}"
port_udp = {port}
rate_kb_s = 2000
receipts = {receipts}
"""
PATIENCE_S = 60


def wait_until(true: Callable[[], object]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < until
        time.sleep(0.05)


class Place:
    """Managers on loopback addresses of their own."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self.directory = directory
        self.stack = stack

    def configuration(
        self,
        name: str,
        number: int,
        port: int,
        encapsulation: str = "udp",
        http: int | None = None,
        receipts: bool = False,
    ) -> Path:
        file = self.directory / f"{name}.toml"
        values = {"name": name, "address": f"127.0.60.{number}", "port": port, "encapsulation": encapsulation}
        switches = {"http": "false" if http is None else http, "receipts": str(receipts).lower()}
        file.write_text(CONFIGURATION.format(**values, **switches))
        return file

    def serve(
        self, name: str, number: int, port: int, *, http: int | None = None, receipts: bool = False
    ) -> ServerProcess:
        server = ServerProcess(self.configuration(name, number, port, http=http, receipts=receipts))
        self.stack.callback(server.close)
        return server

    def relay(self, loss: float) -> MulticastRelay:
        relay = MulticastRelay(GROUP, "127.0.60.1", SENDER_PORT, RECEIVER_PORT, loss)
        self.stack.callback(relay.close)
        return relay


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with ExitStack() as stack:
        yield Place(tmp_path, stack)


def listen(server: ServerProcess) -> None:
    done = postroad("queue", "create", NEWS, "--multicast-address", f"{GROUP}:8001", api=server.api)
    assert done.code == 0, done.errors


def multicast(server: ServerProcess) -> dict[str, Any]:
    found: dict[str, Any] = postroad("status", "--json", api=server.api).objects[0]["multicast"]
    return found


@contextmanager
def connected(server: ServerProcess) -> Iterator[client.QueueManager]:
    with client.connect(server.api) as manager:
        yield manager


def labels(server: ServerProcess) -> list[str]:
    with connected(server) as manager:
        return [message.label for message in manager.queue(NEWS).messages()]


@pytest.mark.parametrize("loss", [0.0, 0.05])
@pytest.mark.spec("SRM-2.1.2-01", "SRM-2.1.2-02", "SRM-6-02")
def test_one_sender_three_receivers(place: Place, loss: float) -> None:
    """No manager has a listener for HTTP."""
    alpha = place.serve("alpha", 1, SENDER_PORT)
    receivers = [place.serve(name, number, RECEIVER_PORT) for number, name in enumerate(("beta", "gamma", "delta"), 2)]
    relay = place.relay(loss)
    for server in receivers:
        listen(server)
    small = [client.Message(bytes(1024), label=f"small {number}") for number in range(300)]
    large = [client.Message(os.urandom(60_000), label=f"large {number}") for number in range(10)]
    with connected(alpha) as manager:
        news = manager.queue(NAME)
        for start in range(0, len(small), 100):
            news.send(small[start : start + 100])
        news.send(large)
    wanted = [message.label for message in (*small, *large)]
    for server in receivers:
        wait_until(lambda server=server: len(labels(server)) >= len(wanted))  # type: ignore[misc]
        assert labels(server) == wanted
        found = multicast(server)
        assert (found["lost"], found["received"], found["sources"]) == (0, len(wanted), 1)
        assert bool(found["repaired"]) == bool(loss)
        assert found["groups"][0]["address"] == f"{GROUP}:8001"
        assert found["groups"][0]["queues"] == [NEWS]
    assert bool(relay.dropped) == bool(loss)
    assert multicast(alpha)["sent"] == len(wanted)


def test_a_receiver_that_is_killed_comes_back(place: Place) -> None:
    alpha = place.serve("alpha", 1, SENDER_PORT)
    beta = place.serve("beta", 2, SENDER_PORT)
    listen(beta)
    with connected(alpha) as manager:
        manager.queue(NAME).send(client.Message(b"", label="before", recoverable=True))
        wait_until(lambda: labels(beta) == ["before"])
        beta.end(signal.SIGKILL)
        manager.queue(NAME).send(client.Message(b"", label="meanwhile", recoverable=True))
        beta = place.serve("beta", 2, SENDER_PORT)
        wait_until(lambda: multicast(beta)["sources"] == 1)  # the next heartbeat
        manager.queue(NAME).send(client.Message(b"", label="after", recoverable=True))
        wait_until(lambda: labels(beta) == ["before", "after"])


def test_receipts_go_by_http_and_only_where_they_are_on(place: Place) -> None:
    alpha = place.serve("alpha", 1, SENDER_PORT, http=8080)
    beta = place.serve("beta", 2, SENDER_PORT, http=8080, receipts=True)
    gamma = place.serve("gamma", 3, SENDER_PORT, http=8080)
    delta = place.serve("delta", 4, SENDER_PORT, receipts=True)  # without HTTP
    for server in (beta, gamma, delta):
        listen(server)
    assert postroad("queue", "create", ANSWERS, api=alpha.api).code == 0
    admin = r"DIRECT=HTTP://127.0.60.1:8080/msmq/private$/answers"
    with connected(alpha) as manager:
        manager.queue(NAME).send(client.Message(b"", label="news", admin_queue=admin, ack="reach-queue,receive"))
    for server in (beta, gamma, delta):
        wait_until(lambda server=server: labels(server) == ["news"])  # type: ignore[misc]
    with connected(alpha) as manager:
        arrived = manager.queue(ANSWERS).receive(timeout=PATIENCE_S)
        assert (arrived.class_name, arrived.label) == ("ack-reach-queue", "news")
        for server in (beta, gamma, delta):
            with connected(server) as other:
                other.queue(NEWS).receive()
        received = manager.queue(ANSWERS).receive(timeout=PATIENCE_S)
        assert received.class_name == "ack-receive"
        assert manager.queue(ANSWERS).info().messages == 0
    for server in (gamma, delta):
        assert not [each for each in postroad("queue", "list", "--json", api=server.api).objects if each.get("state")]


def test_two_sources_and_one_that_dies(place: Place) -> None:
    servers = [place.serve(name, number, SENDER_PORT) for number, name in enumerate(("alpha", "beta", "gamma"), 1)]
    listen(servers[2])
    for server in servers[:2]:
        with connected(server) as manager:
            manager.queue(NAME).send([client.Message(b"", label=f"{server.pid} {number}") for number in range(50)])
    wait_until(lambda: len(labels(servers[2])) == 100)
    servers[0].end(signal.SIGKILL)
    with connected(servers[1]) as manager:
        manager.queue(NAME).send(client.Message(b"", label="last"))
    wait_until(lambda: labels(servers[2])[-1] == "last")
    assert multicast(servers[2])["lost"] == 0


@pytest.mark.skipif(shutil.which("setpriv") is None or os.geteuid() != 0, reason="only root can give up capabilities")
def test_without_the_capability_the_manager_starts_and_says_what_to_set(place: Place) -> None:
    config = place.configuration("alpha", 1, SENDER_PORT, "raw")
    alpha = UnprivilegedServer(config)
    place.stack.callback(alpha.close)
    assert "AmbientCapabilities=CAP_NET_RAW" in multicast(alpha)["error"]
    assert "multicast is not available" in alpha.log
    done = postroad("send", NAME, "--body", "x", api=alpha.api)
    assert done.code == 0
    (queue,) = [each for each in postroad("queue", "list", "--json", api=alpha.api).objects if each["path"] == NAME]
    assert queue["stuck"]
    assert "CAP_NET_RAW" in queue["why"]


class UnprivilegedServer(ServerProcess):
    """A server that may not open raw sockets."""

    command_prefix = ("setpriv", "--bounding-set", "-net_raw", "--inh-caps", "-net_raw")


def test_refusals_and_what_a_command_shows(place: Place) -> None:
    alpha = place.serve("alpha", 1, SENDER_PORT)
    assert postroad("send", NAME, "--body", "x", "--transactional", api=alpha.api).code == 1
    assert postroad("send", NAME, "--body", "x" * 61_441, api=alpha.api).code == 1
    refused = postroad("queue", "create", NEWS, "--transactional", "--multicast-address", f"{GROUP}:1", api=alpha.api)
    assert (refused.code, "transactional queue" in refused.errors) == (2, True)
    assert postroad("queue", "create", NEWS, "--multicast-address", "10.0.0.1:1", api=alpha.api).code == 2
    listen(alpha)
    assert postroad("queue", "show", NEWS, "--json", api=alpha.api).objects[0]["multicast_address"] == f"{GROUP}:8001"
    assert f"groups {GROUP}:8001" in postroad("status", api=alpha.api).text
    assert postroad("queue", "set", NEWS, "--multicast-address", "none", api=alpha.api).code == 0
    assert multicast(alpha)["groups"] == []
