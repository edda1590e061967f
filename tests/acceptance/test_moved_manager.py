"""A manager with several addresses: its peers call the one that answers, and follow it when it moves."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import postroad as client
from postroad.client.ping import ping
from postroad.net import reaching
from postroad.net.endpoints import AddressOrder
from postroad.rpc import client as rpc
from tests.commands import ServerProcess

ALPHA, FIRST, SECOND = "127.0.60.1", "127.0.60.2", "127.0.60.3"
ALPHA_ID, BETA_ID = "6d6f7665-0000-4000-8000-00000000000a", "6d6f7665-0000-4000-8000-00000000000b"
PORTS = {"binary": 11860, "ping": 13560, "http": 18060, "rpc": 12160}
PEER = f"{{ binary = {PORTS['binary']}, ping = {PORTS['ping']}, http = {PORTS['http']}, rpc = {PORTS['rpc']} }}"
CONFIGURATION = """
[manager]
name = "{name}"
data = "data/{data}"
[listen]
host = "{host}"
binary = {binary}
ping = {ping}
http = {http}
rpc = {rpc}
api = 0
[binary]
retry_connect_s = 0.2
[srmp]
retransmission_ms = 300
[directory]
file = "enterprise.toml"
[peers]
"{alpha}" = {peer}
"{first}" = {peer}
"{second}" = {peer}
"beta" = {peer}
[[queue]]
path = 'private$\\orders'
[[queue]]
path = 'private$\\ledger'
transactional = true
"""
ENTERPRISE = f"""
[[site]]
name = "here"
[[manager]]
name = "alpha"
id = "{ALPHA_ID}"
address = "{ALPHA}"
sites = ["here"]
[[manager]]
name = "beta"
id = "{BETA_ID}"
address = ["{FIRST}", "{SECOND}"]
sites = ["here"]
"""
# by name, by identifier, and by SOAP
NAMES = [
    r"DIRECT=OS:beta\private$\orders",
    rf"PRIVATE={BETA_ID}\9",
    rf"DIRECT=HTTP://beta:{PORTS['http']}/msmq/private$/orders",
]
PATIENCE_S = 60


def start(directory: Path, name: str, host: str) -> ServerProcess:
    """A manager at an address. Beta has other data at each: what it keeps there plays no part here."""
    (directory / "enterprise.toml").write_text(ENTERPRISE)
    config = directory / f"{name}-{host}.toml"
    config.write_text(
        CONFIGURATION.format(
            name=name, data=f"{name}-{host}", host=host, alpha=ALPHA, first=FIRST, second=SECOND, peer=PEER, **PORTS
        )
    )
    return ServerProcess(config)


@contextmanager
def frozen(host: str) -> Iterator[None]:
    """Accepts connections and says nothing, as a stopped process does."""
    with ExitStack() as stack:
        for port in ("binary", "http", "rpc"):
            stack.enter_context(socket.create_server((host, PORTS[port]), backlog=100))
        datagrams = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        datagrams.bind((host, PORTS["ping"]))
        yield


def take(server: ServerProcess, *labels: str, queue: str = r"private$\orders") -> None:
    """Waits until all these messages have arrived. One that is not transactional may come twice."""
    wanted = set(labels)
    with client.connect(server.api) as manager:
        found = manager.queue(queue)
        while wanted:
            wanted.discard(found.receive(timeout=PATIENCE_S).label)


def send(server: ServerProcess, name: str, *labels: str, transactional: bool = False) -> None:
    with client.connect(server.api) as manager:
        queue = manager.queue(name)
        for label in labels:
            message = client.Message(b"", label=label, recoverable=True)
            if transactional:
                with manager.transaction() as transaction:
                    queue.send(message, transaction)
            else:
                queue.send(message)


@pytest.mark.parametrize("first", ["dead", "frozen"])
def test_the_address_that_answers_is_called_whatever_the_first_one_does(tmp_path: Path, first: str) -> None:
    with ExitStack() as stack:
        if first == "frozen":
            stack.enter_context(frozen(FIRST))
        beta = stack.enter_context(closing(start(tmp_path, "beta", SECOND)))
        number = beta.get("/queues/private$/orders")["format_name"].rpartition("\\")[2]
        alpha = stack.enter_context(closing(start(tmp_path, "alpha", ALPHA)))
        for place, name in enumerate(NAMES):
            send(alpha, name.replace("\\9", f"\\{number}"), str(place))
        take(beta, "0", "1", "2")
        assert {each["address"] for each in alpha.get("/sessions")["sessions"] if each["messages_out"]} == {SECOND}


def test_peers_follow_a_manager_that_moves_while_the_process_it_left_still_accepts(tmp_path: Path) -> None:
    with ExitStack() as stack:
        alpha = stack.enter_context(closing(start(tmp_path, "alpha", ALPHA)))
        old = stack.enter_context(closing(start(tmp_path, "beta", FIRST)))
        send(alpha, NAMES[0], "before")
        send(alpha, NAMES[2], "before, by SOAP")
        take(old, "before", "before, by SOAP")
        os.kill(old.pid, signal.SIGSTOP)
        new = stack.enter_context(closing(start(tmp_path, "beta", SECOND)))
        send(alpha, NAMES[0], "after")
        send(alpha, NAMES[2], "after, by SOAP")
        take(new, "after", "after, by SOAP")
        old.end(signal.SIGKILL)
        old = stack.enter_context(closing(start(tmp_path, "beta", FIRST)))  # and it moves back
        new.end()
        send(alpha, NAMES[0], "at last")
        send(alpha, NAMES[2], "at last, by SOAP")
        take(old, "at last", "at last, by SOAP")


class Full(BaseHTTPRequestHandler):
    """Stores nothing, as a process that has lost its database."""

    def do_POST(self) -> None:
        self.send_error(503)

    def log_message(self, format: str, *arguments: object) -> None:
        pass


def test_soap_moves_on_from_an_address_that_can_store_nothing(tmp_path: Path) -> None:
    with ExitStack() as stack:
        full = stack.enter_context(ThreadingHTTPServer((FIRST, PORTS["http"]), Full))
        threading.Thread(target=full.serve_forever, daemon=True).start()
        stack.callback(full.shutdown)
        beta = stack.enter_context(closing(start(tmp_path, "beta", SECOND)))
        alpha = stack.enter_context(closing(start(tmp_path, "alpha", ALPHA)))
        send(alpha, NAMES[2], "a")
        take(beta, "a")


def test_messages_and_acknowledgments_count_from_each_address_of_a_manager(tmp_path: Path) -> None:
    to_beta, to_alpha = r"DIRECT=OS:beta\private$\ledger", rf"DIRECT=TCP:{ALPHA}\private$\orders"
    with ExitStack() as stack:
        alpha = stack.enter_context(closing(start(tmp_path, "alpha", ALPHA)))
        old = stack.enter_context(closing(start(tmp_path, "beta", FIRST)))
        send(old, to_alpha, "from the first")
        take(alpha, "from the first")
        old.end(signal.SIGKILL)
        new = stack.enter_context(closing(start(tmp_path, "beta", SECOND)))
        send(new, to_alpha, "from the second")
        take(alpha, "from the second")
        send(alpha, to_beta, "1", "2", transactional=True)
        take(new, "1", "2", queue=r"private$\ledger")
        while alpha.get("/queues/DIRECT=OS:beta%5Cprivate$%5Cledger")["unacknowledged"]:
            pass
    assert "in the name of another manager" not in alpha.log


# A host's name with several addresses, for who has no enterprise.toml


@pytest.fixture
def twofold(monkeypatch: pytest.MonkeyPatch) -> None:
    found = socket.getaddrinfo

    def both(host: str, *arguments: object, **named: object) -> list[object]:
        hosts = (FIRST, SECOND) if host == "twofold" else (host,)
        return [each for host in hosts for each in found(host, *arguments, **named)]  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "getaddrinfo", both)


@pytest.mark.parametrize("first", ["dead", "frozen"])
def test_remote_readers_and_pings_try_all_addresses_of_a_name(tmp_path: Path, twofold: None, first: str) -> None:
    with ExitStack() as stack:
        if first == "frozen":
            stack.enter_context(frozen(FIRST))
        beta = stack.enter_context(closing(start(tmp_path, "beta", SECOND)))
        send(beta, r"private$\orders", "a")
        stack.enter_context(pytest.MonkeyPatch.context()).setattr(rpc, "_ORDER", AddressOrder())
        with client.remote("twofold", port=PORTS["rpc"]) as reader:
            assert reader.queue(r"DIRECT=OS:beta\private$\orders").receive(timeout=PATIENCE_S).label == "a"
        answer = ping("twofold", port=PORTS["ping"], timeout=PATIENCE_S)
        assert (answer.answer, answer.address) == ("accepts", SECOND)


def test_the_address_that_answered_last_comes_first(twofold: None) -> None:
    order = AddressOrder()

    async def addresses() -> list[str]:
        return [each.address for each in await reaching.find(["twofold", "127.0.60.4"], lambda host: 1, order)]

    assert asyncio.run(addresses()) == [FIRST, SECOND, "127.0.60.4"]
    order.answered(SECOND)
    order.failed(FIRST)
    assert asyncio.run(addresses()) == [SECOND, "127.0.60.4", FIRST]
    order.answered(FIRST)
    assert asyncio.run(addresses()) == [FIRST, SECOND, "127.0.60.4"]
