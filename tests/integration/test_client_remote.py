"""A queue manager behind HTTP: connections, ways in which it can be out of reach, and reads that are given up."""

from __future__ import annotations

import asyncio
import http.server
import socket
import ssl
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import postroad
from postroad import aio, errors
from postroad.api.server import TlsFiles
from postroad.client import http_backend as http_client
from tests.certificates import Authority
from tests.faces import served
from tests.relay import relayed


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@pytest.fixture
def url() -> Iterator[str]:
    with served(":memory:") as address:
        yield address


# Out of reach


def test_a_manager_that_is_down_is_named_with_what_to_check() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    with postroad.connect(url) as qm, pytest.raises(errors.ManagerUnavailable) as refusal:
        qm.info()
    assert refusal.value.url == url
    assert str(refusal.value).startswith(f"no queue manager answers at {url}: ")
    assert "refused" in str(refusal.value)
    assert "check that it runs" in str(refusal.value)


def test_a_host_that_nobody_knows() -> None:
    with postroad.connect("http://nobody.invalid:8180") as qm, pytest.raises(errors.ManagerUnavailable, match="nobody"):
        qm.info()


def test_a_broken_connection_says_that_the_outcome_is_not_known(url: str) -> None:
    with relayed(url) as relay, postroad.connect(relay.url) as qm:
        queue = qm.create_queue(r"private$\orders")
        relay.cut = True
        with pytest.raises(errors.ManagerUnavailable, match="not known"):
            queue.send(b"did it arrive?")
        relay.cut = False
        assert queue.receive(5).body == b"did it arrive?"


def test_a_server_that_is_no_queue_manager() -> None:
    with http.server.HTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with postroad.connect(f"http://127.0.0.1:{server.server_port}") as qm:
            with pytest.raises(errors.ManagerUnavailable, match="404"):
                qm.info()
            with pytest.raises(errors.ManagerUnavailable, match="501"):
                qm.queue(r"private$\orders").receive(0)
        server.shutdown()


@pytest.mark.parametrize("url", ["", "127.0.0.1:8180", "ftp://host", "http://"])
def test_an_address_that_is_none(url: str) -> None:
    with pytest.raises(errors.InvalidArgument, match="url"):
        postroad.connect(url)


def test_tls_where_plain_http_is_spoken(url: str) -> None:
    secure = url.replace("http:", "https:")
    with postroad.connect(secure) as qm, pytest.raises(errors.ManagerUnavailable) as refusal:
        qm.info()
    assert refusal.value.fault == f"{url.removeprefix('http://')} does not speak TLS; write {url}"


@pytest.mark.parametrize(
    ("name", "known", "fault"),
    [
        (
            "127.0.0.1",
            False,
            r"\(unable to get local issuer .*\): set SSL_CERT_FILE, or caFile in Spark, to a PEM file with its issuer;",
        ),
        ("10.0.0.7", True, r"\(IP address mismatch, certificate is not valid for '127.0.0.1'\);"),
    ],
)
def test_a_certificate_that_is_not_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, known: bool, fault: str
) -> None:
    server = http.server.HTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
    authority = Authority(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.issue(name))
    if known:
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
    server.socket = context.wrap_socket(server.socket, server_side=True)
    with server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"https://127.0.0.1:{server.server_port}"
        with postroad.connect(url) as qm, pytest.raises(errors.ManagerUnavailable, match=f"is not trusted {fault}"):
            qm.info()
        server.shutdown()


@pytest.mark.parametrize("path", ["/", "/api/v1", "/api/v1/"])
def test_the_path_of_the_api_may_stand_in_the_address(url: str, path: str) -> None:
    with postroad.connect(url + path) as qm:
        assert qm.info().queues == 0


def test_a_token_opens_the_door() -> None:
    with served(":memory:", token="secret") as url:
        for wrong in (None, "other"):
            with postroad.connect(url, token=wrong) as qm, pytest.raises(errors.AccessDenied, match="token"):
                qm.info()
        with postroad.connect(url + "/", token="secret") as qm:
            assert qm.info().name == "alpha"


# Connections


def test_requests_share_a_connection(url: str) -> None:
    with relayed(url) as relay, postroad.connect(relay.url) as qm:
        queue = qm.create_queue(r"private$\orders")
        for number in range(10):
            queue.send(str(number))
            queue.receive(0)
        assert relay.connections == 1


def test_a_read_that_waits_keeps_no_other_call_from_its_answer(url: str) -> None:
    with postroad.connect(url) as qm, ThreadPoolExecutor(200) as pool:
        queue = qm.create_queue(r"private$\orders")
        readers = [pool.submit(queue.receive) for _ in range(150)]
        while queue.info().waiting < 150:
            pass
        queue.send(["x"] * 150)
        assert {reader.result().text for reader in readers} == {"x"}


def test_a_client_outlives_a_restart_of_its_manager(tmp_path: Path) -> None:
    with served(tmp_path) as url:
        qm = postroad.connect(url)
        qm.create_queue(r"private$\orders").send(postroad.Message("kept", recoverable=True))
    with qm:
        with pytest.raises(errors.ManagerUnavailable):
            qm.info()
        with served(tmp_path, port=int(url.rpartition(":")[2])):
            assert qm.queue(r"private$\orders").receive(0).text == "kept"


def test_requests_with_certificates_share_a_connection_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate, key = Authority(tmp_path).issue("127.0.0.1")
    clients = Authority(tmp_path, "clients")
    own, own_key = clients.issue("10.0.0.7")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "authority.pem"))
    with served(":memory:", tls=TlsFiles(certificate, key, clients.file)) as url, relayed(url) as relay:
        secure = relay.url.replace("http://", "https://")
        with postroad.connect(secure, client_certificate=own, client_key=own_key) as qm:
            queue = qm.create_queue(r"private$\orders")
            for number in range(10):
                queue.send(str(number))
                assert queue.receive(0).text == str(number)
            assert relay.connections == 1
        with postroad.connect(secure) as qm, pytest.raises(errors.ManagerUnavailable, match="POSTROAD_CLIENT_CERT"):
            qm.info()


def test_a_connection_that_the_server_has_closed_meanwhile_costs_no_call() -> None:
    closed = threading.Semaphore(0)

    def answer_and_close(listener: socket.socket) -> None:
        for _ in range(3):
            connection, _ = listener.accept()
            with connection:
                while b"\r\n\r\n" not in connection.recv(65536):
                    pass
                connection.sendall(
                    b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 14\r\n\r\n{"queues": []}'
                )
            closed.release()

    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as pool:
        listener.settimeout(10)  # for a client that fails: it calls no more
        server = pool.submit(answer_and_close, listener)
        with postroad.connect(f"http://127.0.0.1:{listener.getsockname()[1]}") as qm:
            for _ in range(3):
                assert qm.queues() == []
                closed.acquire()
        server.result()


def test_a_call_whose_connection_broke_costs_no_other_call(url: str) -> None:
    with relayed(url) as relay, postroad.connect(relay.url) as qm:
        queue = qm.create_queue(r"private$\orders")
        relay.cut = True
        with pytest.raises(errors.ManagerUnavailable):
            queue.info()
        relay.cut = False
        queue.send("once")
        assert (queue.receive(0).text, relay.connections) == ("once", 2)


def test_closing_ends_the_calls_of_other_threads(url: str) -> None:
    with ThreadPoolExecutor(1) as pool, postroad.connect(url) as watcher:
        qm = postroad.connect(url)
        reader = pool.submit(qm.create_queue(r"private$\orders").receive)
        while not watcher.queue(r"private$\orders").info().waiting:
            pass
        qm.close()
        assert isinstance(reader.exception(), errors.OperationCancelled)


def test_a_name_and_a_password_may_stand_in_the_address() -> None:
    asked = []

    class Listening(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append((self.path, self.headers["Authorization"]))
            self.send_error(404)

    with http.server.HTTPServer(("127.0.0.1", 0), Listening) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://ann:p%40ss@127.0.0.1:{server.server_port}/behind"
        with postroad.connect(url) as qm, pytest.raises(errors.ManagerUnavailable) as refusal:
            qm.info()
        server.shutdown()
    assert asked == [("/behind/api/v1/manager", "Basic YW5uOnBAc3M=")]
    assert "p%40ss" not in str(refusal.value)


# Waiting


def test_a_long_wait_is_asked_for_in_pieces(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_client, "WAIT_S", 0.01)
    with postroad.connect(url) as qm, ThreadPoolExecutor(1) as pool:
        queue = qm.create_queue(r"private$\orders")
        with pytest.raises(errors.NoMessage):
            queue.receive(0.05)
        reader = pool.submit(queue.receive)
        with pytest.raises(errors.NoMessage):
            queue.peek(0.1)
        assert not reader.done()
        queue.send("at last")
        assert reader.result().text == "at last"


def test_a_server_that_stops_ends_the_reads_that_wait() -> None:
    with ThreadPoolExecutor(1) as pool:
        with served(":memory:") as url:
            qm = postroad.connect(url)
            queue = qm.create_queue(r"private$\orders")
            reader = pool.submit(queue.receive)
            while not queue.info().waiting:
                pass
        with qm:
            assert isinstance(reader.exception(), errors.OperationCancelled)


@pytest.mark.parametrize("verb", ["receive", "lock", "cursor"])
def test_a_read_that_is_cancelled_takes_nothing(url: str, verb: str) -> None:
    async def read(queue: aio.Queue) -> None:
        if verb == "receive":
            await queue.receive()
        elif verb == "lock":
            await queue.lock()
        else:
            async with queue.cursor() as cursor:
                await cursor.receive()

    async def main() -> None:
        async with aio.connect(url) as qm:
            queue = await qm.create_queue(r"private$\orders")
            reading = asyncio.create_task(read(queue))
            while not (await queue.info()).waiting:
                pass
            reading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reading
            while (info := await queue.info()).waiting or info.readers:
                pass
            await queue.send("still there")
            assert (await queue.receive(0)).text == "still there"

    asyncio.run(main())
