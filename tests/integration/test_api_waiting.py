"""Reads that wait over HTTP end with a message, with their client, or with the server, and nothing is lost."""

from __future__ import annotations

import asyncio
import http.client
import socket
import struct
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from urllib.parse import quote

import pytest

from postroad.net.http import MAX_PIPELINED, MAX_UNREAD
from postroad.security.descriptors import Sid
from postroad.security.users import User
from postroad.store import Batch, MemoryStore
from tests.served import API, ORDERS, PATIENCE_S, Reply, Served, basic, served


@pytest.fixture
def api() -> Iterator[Served]:
    with served(users=[User("ann", Sid.parse("S-1-5-21-1-2-3-1001"))]) as running:
        running.create()
        yield running


def until(api: Served, holds: Callable[[], bool]) -> None:
    """Returns once `holds` returns True. It runs where the manager runs."""

    async def look() -> None:
        while not holds():  # noqa: ASYNC110  # the manager has no event for who waits in it
            await asyncio.sleep(0.005)

    api.run(asyncio.wait_for(look(), PATIENCE_S))


def waiting(api: Served, count: int) -> None:
    until(api, lambda: api.manager.queue("private$\\orders").waiting == count)


def begin(api: Served, path: str) -> http.client.HTTPConnection:
    """A read that waits, on a connection that the test can cut."""
    connection = api.connect()
    connection.request("POST", path)
    return connection


class Later:
    """A call made in a thread of its own."""

    def __init__(self, api: Served, path: str, headers: Mapping[str, str] | None = None) -> None:
        self._replies: list[Reply] = []
        self._thread = threading.Thread(target=lambda: self._replies.append(api.call("POST", path, headers=headers)))
        self._thread.start()

    def reply(self) -> Reply:
        self._thread.join(PATIENCE_S)
        (reply,) = self._replies
        return reply


@pytest.mark.parametrize("call", ["receive", "peek", "lock"])
def test_a_waiting_read_gets_the_message_that_comes(api: Served, call: str) -> None:
    later = Later(api, f"{ORDERS}/{call}?timeout={PATIENCE_S}")
    waiting(api, 1)
    api.send("a")
    assert [each["body"] for each in later.reply().json["messages"]] == ["a"]


def test_without_a_timeout_a_read_waits(api: Served) -> None:
    later = Later(api, f"{ORDERS}/receive")
    waiting(api, 1)
    api.send("a")
    assert later.reply().status == 200


@pytest.mark.parametrize("call", ["receive", "peek", "lock"])
def test_a_client_that_leaves_takes_nothing_with_it(api: Served, call: str) -> None:
    connection = begin(api, f"{ORDERS}/{call}")
    waiting(api, 1)
    connection.close()
    waiting(api, 0)
    api.send("a", recoverable=True)
    assert api.bodies() == ["a"]
    assert [each["body"] for each in api.call("POST", f"{ORDERS}/receive?timeout=0").json["messages"]] == ["a"]


def raw(path: str, *headers: str, method: str = "POST") -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: localhost", *headers, "", ""]).encode()


NEXT = raw("/healthz", method="GET")
LARGE = 8 * MAX_UNREAD
SENDING = raw(f"{ORDERS}/messages/raw", f"Content-Length: {LARGE}")
BEHIND = {
    "a request": NEXT,
    "as many as may wait": NEXT * MAX_PIPELINED,
    "one more": NEXT * (MAX_PIPELINED + 1),
    "a part of a request": NEXT[:-5],
    "a large part of a request": SENDING + bytes(MAX_UNREAD // 2),
    "more than is kept": SENDING + bytes(LARGE - 1),
    "a large request": SENDING + bytes(LARGE),
    "requests with large headers": raw("/healthz", f"X: {'x' * 20_000}", method="GET") * 6,
    "the last request": raw("/healthz", "Connection: close", method="GET") + b"what nobody reads" * 10_000,
    "no request": b"no request" * 10_000,
}


def cut(connection: socket.socket, how: str) -> None:
    """Ends a connection as a process that ends, or one that is killed with answers unread."""
    if how == "reset":
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


@pytest.mark.parametrize("how", ["end", "reset"])
@pytest.mark.parametrize("behind", BEHIND.values(), ids=BEHIND)
def test_a_client_that_leaves_is_noticed_whatever_it_sent_behind_its_read(api: Served, behind: bytes, how: str) -> None:
    connection = socket.create_connection((api.server.host, api.server.port), PATIENCE_S)
    connection.sendall(raw(f"{ORDERS}/receive"))
    waiting(api, 1)
    connection.sendall(behind)
    cut(connection, how)
    waiting(api, 0)
    api.send("a", recoverable=True)
    assert api.bodies() == ["a"]


def test_a_client_that_leaves_is_noticed_within_the_body_of_its_read(api: Served) -> None:
    connection = socket.create_connection((api.server.host, api.server.port), PATIENCE_S)
    connection.sendall(raw(f"{ORDERS}/receive", f"Content-Length: {LARGE}") + bytes(1000))
    waiting(api, 1)
    connection.close()
    waiting(api, 0)


def test_a_read_that_waits_ends_if_its_body_goes_on(api: Served) -> None:
    with socket.create_connection((api.server.host, api.server.port), PATIENCE_S) as connection:
        connection.sendall(raw(f"{ORDERS}/receive", f"Content-Length: {LARGE}"))
        waiting(api, 1)
        connection.sendall(bytes(MAX_UNREAD + 1))
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 413 ")
    waiting(api, 0)


def test_a_client_that_leaves_is_noticed_behind_requests_that_came_before_its_read(api: Served) -> None:
    """Those made the server stop reading, as one does that does not wait for a message."""
    connection = socket.create_connection((api.server.host, api.server.port), PATIENCE_S)
    connection.sendall(NEXT + raw(f"{ORDERS}/receive") + NEXT * (MAX_PIPELINED - 1))
    waiting(api, 1)
    connection.close()
    waiting(api, 0)


def test_requests_behind_a_read_that_waits_get_their_answers(api: Served) -> None:
    with socket.create_connection((api.server.host, api.server.port), PATIENCE_S) as connection:
        connection.sendall(raw(f"{ORDERS}/receive") + NEXT * 3 + SENDING + bytes(MAX_UNREAD))
        waiting(api, 1)
        api.send("a")
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    assert [int(part[:3]) for part in answer.split(b"HTTP/1.1 ")[1:]] == [200, 200, 200, 200, 413]
    assert answer.endswith(b"a client may send at most 65536 bytes while it waits for a message\n")


def test_of_many_readers_that_leave_and_stay_every_message_is_read_once(api: Served) -> None:
    staying = [Later(api, f"{ORDERS}/receive?timeout={PATIENCE_S}") for _ in range(4)]
    waiting(api, 4)
    leaving = [begin(api, f"{ORDERS}/receive") for _ in range(4)]
    waiting(api, 8)
    for connection in leaving:
        connection.close()
    waiting(api, 4)
    api.send("a", "b", "c", "d", "e", recoverable=True)
    read = [later.reply().json["messages"][0]["body"] for later in staying]
    assert sorted([*read, *api.bodies()]) == ["a", "b", "c", "d", "e"]


def test_a_client_that_leaves_frees_its_cursor(api: Served) -> None:
    handle = api.call("POST", f"{API}/handles", {"queue": "private$/orders", "access": "receive"}).json["handle"]
    cursor = api.call("POST", f"{API}/handles/{handle}/cursors").json["cursor"]
    path = f"{API}/handles/{handle}/cursors/{cursor}"
    for call in ("peek", "receive"):
        connection = begin(api, f"{path}/{call}")
        waiting(api, 1)
        busy = api.call("POST", f"{path}/{call}?timeout=0")
        assert (busy.status, busy.json["code"]) == (409, "ILLEGAL_CURSOR_ACTION")
        connection.close()
        waiting(api, 0)
        assert api.call("POST", f"{path}/{call}?timeout=0").status == 204
    api.send("a")
    assert api.call("POST", f"{path}/receive?timeout=0").json["body"] == "a"


def test_a_waiting_read_ends_when_its_queue_is_deleted(api: Served) -> None:
    later = Later(api, f"{ORDERS}/receive")
    waiting(api, 1)
    assert api.call("DELETE", ORDERS).status == 204
    told = later.reply()
    assert (told.status, told.json["code"]) == (409, "OPERATION_CANCELLED")


def test_a_waiting_read_ends_when_its_handle_is_closed(api: Served) -> None:
    handle = api.call("POST", f"{API}/handles", {"queue": "private$/orders", "access": "peek"}).json["handle"]
    cursor = api.call("POST", f"{API}/handles/{handle}/cursors").json["cursor"]
    later = Later(api, f"{API}/handles/{handle}/cursors/{cursor}/peek")
    waiting(api, 1)
    assert api.call("DELETE", f"{API}/handles/{handle}").status == 204
    assert later.reply().status == 409


def access(api: Served, edit: str) -> None:
    answer = api.call("POST", f"{ORDERS}/acl", {edit: {"who": "ann", "rights": ["receive"]}})
    assert answer.status == 200


@pytest.mark.parametrize("call", ["receive", "peek", "lock"])
def test_a_waiting_read_ends_when_its_reader_loses_the_right(api: Served, call: str) -> None:
    """Others continue to wait."""
    access(api, "grant")
    refused = Later(api, f"{ORDERS}/{call}?timeout={PATIENCE_S}", basic("ann"))
    waiting(api, 1)
    stays = Later(api, f"{ORDERS}/{call}?timeout={PATIENCE_S}")
    waiting(api, 2)
    access(api, "revoke")
    assert refused.reply().status == 403
    api.send("a")
    assert [each["body"] for each in stays.reply().json["messages"]] == ["a"]


@pytest.mark.parametrize("call", ["receive", "peek"])
def test_a_read_that_waits_at_a_cursor_ends_when_its_reader_loses_the_right(api: Served, call: str) -> None:
    access(api, "grant")
    opening = {"queue": "private$/orders", "access": "receive"}
    handle = api.call("POST", f"{API}/handles", opening, headers=basic("ann")).json["handle"]
    cursor = api.call("POST", f"{API}/handles/{handle}/cursors", headers=basic("ann")).json["cursor"]
    later = Later(api, f"{API}/handles/{handle}/cursors/{cursor}/{call}", basic("ann"))
    waiting(api, 1)
    access(api, "revoke")
    assert later.reply().status == 403


def test_a_server_that_stops_ends_its_waiting_reads() -> None:
    with served() as api:
        api.create()
        later = Later(api, f"{ORDERS}/receive")
        waiting(api, 1)
        api.run(api.server.stop())
        told = later.reply()
        assert (told.status, told.json["code"]) == (503, "OPERATION_CANCELLED")
        assert api.manager.queue("private$\\orders").waiting == 0


class SlowStore(MemoryStore):
    """A store whose commits wait for `gate`."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.gate.set()
        self.waits = threading.Event()

    def commit(self, batches: Iterable[Batch]) -> None:
        if not self.gate.is_set():
            self.waits.set()
            assert self.gate.wait(PATIENCE_S)
        super().commit(batches)


@pytest.mark.parametrize("wait", ["receive?timeout=20", "receive?timeout=20&correlation_id="])
def test_a_server_that_stops_answers_reads_whose_messages_have_left_the_queue(wait: str) -> None:
    store = SlowStore()
    with served(store) as api:
        api.create()
        answers_to = rf"{{{api.manager.identifier}}}\7"
        api.send("a", recoverable=True, correlation_id=answers_to)
        store.gate.clear()
        later = Later(api, f"{ORDERS}/{wait}{quote(answers_to) if wait.endswith('=') else ''}")
        assert store.waits.wait(PATIENCE_S)
        stopping = asyncio.run_coroutine_threadsafe(api.server.stop(), api.loop)
        api.run(asyncio.sleep(0))  # the stop has begun
        store.gate.set()
        told = later.reply()
        assert (told.status, [each["body"] for each in told.json["messages"]]) == (200, ["a"])
        stopping.result(PATIENCE_S)


def test_a_client_that_leaves_while_its_message_leaves_the_queue_gives_it_back() -> None:
    store = SlowStore()
    with served(store) as api:
        api.create()
        api.send("a", "b", recoverable=True)
        store.gate.clear()
        connection = begin(api, f"{ORDERS}/receive")
        assert store.waits.wait(PATIENCE_S)
        connection.close()
        until(api, lambda: not api.manager.reads.committing)
        store.gate.set()
        api.send("c", recoverable=True)  # once this is stored, so is what came back
        assert sorted(api.bodies()) == ["a", "b", "c"]
