"""SOAP between real processes over loopback: every kind of message, with kill -9, faulty servers, proxies and TLS."""

from __future__ import annotations

import http.client
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import postroad as client
from postroad.errors import PostroadError
from postroad.soap.elements import (
    Attachments,
    CommitmentReceiptRequest,
    DeliveryReceiptRequest,
    Envelope,
    Services,
    StreamId,
    StreamReceipt,
)
from postroad.soap.envelope import read_envelope, write_envelope
from postroad.soap.multipart import join_entity, split_entity
from postroad.wire.constants import MessageClass
from tests.certificates import Authority
from tests.commands import ServerProcess, postroad
from tests.unit.soap.network import STRANGER, stranger_message, stream_message

ADDRESSES = {"alpha": "127.0.50.11", "beta": "127.0.50.12", "gate": "127.0.50.13"}
PORT = 18050
SECURE_PORT = 18443
CONFIGURATION = """
[manager]
name = "{name}"
data = "data/{name}"
[listen]
host = "{address}"
binary = false
ping = false
http = {port}
rpc = false
api = 0
{listen}
[srmp]
retransmission_ms = 300
resend_s = [2, 2, 2]
{srmp}
"""


class Manager:
    """One `postroad serve` that can be killed and started again, and a client of it."""

    def __init__(
        self, directory: Path, stack: ExitStack, name: str, srmp: str = "", listen: str = "", port: int = PORT
    ) -> None:
        self.name = name
        self.address = ADDRESSES[name]
        self._port = port
        self._stack = stack
        self._file = directory / f"{name}.toml"
        self._file.write_text(
            CONFIGURATION.format(name=name, address=self.address, port=port, srmp=srmp, listen=listen)
        )
        self.start()

    def start(self) -> None:
        self.process = ServerProcess(self._file)
        self._stack.callback(self.process.close)
        self.client = self._stack.enter_context(client.connect(self.process.api))

    def kill(self) -> None:
        self.process.end(signal.SIGKILL)

    def url(self, queue: str, scheme: str = "http", port: int | None = None) -> str:
        return f"{scheme}://{self.address}:{port or self._port}/msmq/private$/{queue}"

    def direct(self, queue: str) -> str:
        return f"DIRECT={self.url(queue)}"

    def queue(self, name: str) -> client.Queue:
        return self.client.queue(name if name.startswith((";", "DIRECT")) else rf"private$\{name}")

    def received(self, queue: str, count: int) -> list[str]:
        found: list[str] = []
        while len(found) < count:
            found += [each.label for each in self.queue(queue).receive_many(100, timeout=60)]
        return found

    def post(
        self,
        content_type: str,
        body: bytes,
        path: str = "/msmq/private$/plain",
        method: str = "POST",
        address: str = "127.0.0.1",
    ) -> int:
        """Returns the status. `address` is where the request comes from."""
        connection = http.client.HTTPConnection(self.address, self._port, timeout=30, source_address=(address, 0))
        try:
            connection.request(method, path, body, {"Content-Type": content_type})
            answer = connection.getresponse()
            assert answer.read() == b""
            return answer.status
        finally:
            connection.close()

    def ask(self, envelope: Envelope, address: str) -> int:
        kind, pieces = join_entity(write_envelope(envelope), Attachments(), STRANGER, 1)
        return self.post(kind, b"".join(pieces), address=address)

    def metric(self, name: str) -> int:
        with urllib.request.urlopen(f"{self.process.api}/metrics", timeout=30) as answer:
            lines = answer.read().decode().splitlines()
        return int(float(next(line.split()[1] for line in lines if line.startswith(f"{name} "))))


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def alpha(tmp_path: Path, stack: ExitStack) -> Manager:
    manager = Manager(tmp_path, stack, "alpha")
    manager.client.create_queue(r"private$\acks")
    return manager


@pytest.fixture
def beta(tmp_path: Path, stack: ExitStack) -> Manager:
    manager = Manager(tmp_path, stack, "beta")
    provide(manager)
    return manager


def provide(manager: Manager) -> None:
    manager.client.create_queue(r"private$\plain")
    manager.client.create_queue(r"private$\orders", transactional=True)


def wait_until(happened: Callable[[], bool], patience_s: float = 60) -> None:
    deadline = time.monotonic() + patience_s
    while not happened():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


def entity(url: str, number: int, label: str = "note", *, body: bytes | None = b"text") -> tuple[str, bytes]:
    envelope = stranger_message(url, number, label=label, now=time.time())
    kind, pieces = join_entity(write_envelope(envelope), Attachments(body), STRANGER, number)
    return kind, b"".join(pieces)


@pytest.mark.spec("SRM-2.1.1-01", "SRM-2.1.1-02")
def test_every_kind_of_message_arrives_and_is_acknowledged(alpha: Manager, beta: Manager) -> None:
    for recoverable in (False, True):
        labels = [f"{recoverable} {number}" for number in range(50)]
        alpha.client.send(
            beta.direct("plain"), [client.Message(b"x" * 2000, label=each, recoverable=recoverable) for each in labels]
        )
        assert sorted(beta.received("plain", 50)) == sorted(labels)
    asked = client.Message("?", label="asked", recoverable=True, ack="full", admin_queue=alpha.direct("acks"))
    alpha.client.send(beta.direct("plain"), asked)
    received = beta.queue("plain").receive(timeout=30)
    assert (received.text, received.delivery) == ("?", "recoverable")
    classes = [alpha.queue("acks").receive(timeout=30).class_name for _ in range(2)]
    assert classes == ["ack-reach-queue", "ack-receive"]
    order = [client.Message(f"{number}", label=f"{number}") for number in range(30)]
    alpha.queue(beta.direct("orders")).send(order, transactional=True)
    assert beta.received("orders", 30) == [f"{number}" for number in range(30)]
    wait_until(lambda: alpha.queue(beta.direct("orders")).info().messages == 0)


def test_a_message_may_be_as_large_as_a_packet(alpha: Manager, beta: Manager) -> None:
    body = bytes(range(256)) * (4 * 1024 * 4 - 64)
    alpha.client.send(beta.direct("plain"), client.Message(body, label="large", recoverable=True))
    assert beta.queue("plain").receive(timeout=60).body == body


@pytest.mark.spec("SRM-3.1.1.1.1-01", "SRM-3.1.1.1.3-01", "SRM-6-18", "SRM-1.3.5.2-01", "SRM-3.1.1.1.3-03")
@pytest.mark.parametrize("victims", [("alpha",), ("beta",), ("alpha", "beta")])
def test_a_kill_in_the_middle_loses_and_doubles_nothing(
    alpha: Manager, beta: Manager, victims: tuple[str, ...]
) -> None:
    managers = {"alpha": alpha, "beta": beta}
    names = {"plain": beta.direct("plain"), "orders": beta.direct("orders")}
    identities = [alpha.client.info().id, beta.client.info().id]
    sent: dict[str, list[str]] = {"plain": [], "orders": []}
    for batch in range(8):
        for kind, labels in sent.items():
            words = [f"{kind} {batch}.{number}" for number in range(10)]
            messages = [client.Message(b"x" * 500, label=each, recoverable=True, dead_letter=True) for each in words]
            alpha.queue(names[kind]).send(messages, transactional=kind == "orders")
            labels += words
        if batch in (2, 5):
            for victim in victims:
                managers[victim].kill()
            for victim in victims:
                managers[victim].start()
    assert beta.received("orders", 80) == sent["orders"]
    assert sorted(beta.received("plain", 80)) == sorted(sent["plain"])
    for kind in sent:
        with pytest.raises(PostroadError):
            beta.queue(kind).receive(timeout=1)
    wait_until(lambda: alpha.queue(names["orders"]).info().messages == 0)
    assert [alpha.client.info().id, beta.client.info().id] == identities
    assert alpha.queue(";deadxact").info().messages == 0


class _Answers(BaseHTTPRequestHandler):
    """Answers what the server's script says, and repeats the last entry."""

    protocol_version = "HTTP/1.1"
    server: Scripted

    def setup(self) -> None:
        super().setup()
        self.server.connections += 1

    def do_POST(self) -> None:
        text, _ = split_entity(self.headers["Content-Type"], self.rfile.read(int(self.headers["Content-Length"])))
        self.server.envelopes.append(read_envelope(text))
        script = self.server.script
        status = script.pop(0) if len(script) > 1 else script[0]
        self.server.requests.append((self.path, status, self.headers))
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *arguments: object) -> None:
        pass


class Scripted(ThreadingHTTPServer):
    """A server that is not a queue manager."""

    def __init__(self, *script: int) -> None:
        super().__init__(("127.0.50.14", 0), _Answers)
        self.script = list(script)
        self.requests: list[tuple[str, int, Message]] = []
        self.envelopes: list[Envelope] = []
        self.connections = 0

    def direct(self, queue: str) -> str:
        return f"DIRECT=HTTP://127.0.50.14:{self.server_port}/msmq/private$/{queue}"


@contextmanager
def answering(*script: int) -> Iterator[Scripted]:
    server = Scripted(*script)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.mark.spec("SRM-3.1.2.1-01", "SRM-3.1.7.2.5-08")
def test_a_server_that_answers_500_for_a_while_gets_the_message_in_the_end(alpha: Manager) -> None:
    with answering(500, 503, 500, 500, 200) as server:
        name = server.direct("Slow")
        alpha.client.send(name, client.Message("x", label="patient", recoverable=True))
        wait_until(lambda: len(server.requests) >= 2)
        info = alpha.queue(name).info()
        assert info.why is not None
        wait_until(lambda: alpha.queue(name).info().messages == 0)
        assert [status for _, status, _ in server.requests] == [500, 503, 500, 500, 200]
        assert {path for path, _, _ in server.requests} == {"/msmq/private$/slow"}
        assert alpha.queue(name).info().failures == 4


@pytest.mark.spec("SRM-4.1-01", "SRM-4.1-02", "SRM-4.1-05", "SRM-4.1-06", "SRM-3.1.7.7-04")
def test_what_a_request_looks_like_and_that_its_connection_is_used_again(alpha: Manager) -> None:
    with answering(200) as server:
        for number in range(5):
            alpha.client.send(server.direct("SimpleQ"), client.Message("x", label=f"{number}", recoverable=True))
            wait_until(lambda number=number: len(server.requests) == number + 1)  # type: ignore[misc]
        assert server.connections == 1
        assert {line for line, _, _ in server.requests} == {"/msmq/private$/simpleq"}
        for _, _, headers in server.requests:
            assert headers["Host"] == f"127.0.50.14:{server.server_port}"
            assert headers["SOAPAction"] == '"MSMQMessage"'
            assert headers["Proxy-Accept"] == "NonInteractiveClient"
            assert headers["Content-Type"].startswith('multipart/related; boundary="MSMQ - SOAP boundary, ')


@pytest.mark.spec("SRM-4.3-03", "SRM-3.1.1.4.1-01")
def test_what_an_answer_looks_like(beta: Manager) -> None:
    kind, body = entity(beta.url("plain"), 1)
    head = f"POST /msmq/private$/plain HTTP/1.1\r\nHost: beta\r\nContent-Type: {kind}\r\n"
    head += f"Content-Length: {len(body)}\r\n\r\n"
    with socket.create_connection((beta.address, PORT), timeout=30) as connection:
        connection.sendall(head.encode() + body)
        answer = connection.recv(4096).decode().lower()
    assert answer.startswith("http/1.1 200 ok\r\n")
    assert "\r\ncontent-length: 0\r\n" in answer
    assert answer.endswith("\r\n\r\n")


def test_a_queue_that_waits_says_why(alpha: Manager) -> None:
    with answering(503) as server:
        name = server.direct("slow")
        sent = alpha.client.send(name, client.Message("x", recoverable=True))
        wait_until(lambda: alpha.queue(name).info().failures > 0)
        shown = postroad("queue", "show", name, "--json", api=alpha.process.api).objects[0]
        assert "127.0.50.14 answered 503 (Service Unavailable); next try in" in shown["why"] or shown["why"].startswith(
            "sent to"
        )
        wait_until(lambda: bool(alpha.queue(name).info().stuck))
        trace = postroad("trace", sent, api=alpha.process.api).text
        assert "in the outgoing queue to DIRECT=HTTP://127.0.50.14" in trace
        status = postroad("status", api=alpha.process.api)
        assert "127.0.50.14" in status.text
        secure = server.direct("plain").replace("HTTP:", "HTTPS:")
        alpha.client.send(secure, client.Message("x", recoverable=True))
        fault = f"cannot connect to 127.0.50.14:{server.server_port}: TLS fails"
        wait_until(lambda: fault in str(alpha.queue(secure).info().why))
    nobody = "DIRECT=HTTP://127.0.50.99:9/msmq/private$/q"
    alpha.client.send(nobody, client.Message("x", recoverable=True))
    wait_until(lambda: "cannot connect to 127.0.50.99:9: Connection refused" in str(alpha.queue(nobody).info().why))
    unknown = "DIRECT=HTTP://no-such-host.invalid/msmq/private$/q"
    alpha.client.send(unknown, client.Message("x", recoverable=True))
    wait_until(lambda: "no-such-host.invalid cannot be found" in str(alpha.queue(unknown).info().why))


@pytest.mark.spec("SRM-3.1.7.2.5-06", "SRM-3.1.7.2.5-07")
def test_what_a_server_refuses_is_a_dead_letter_with_its_reason(alpha: Manager, beta: Manager) -> None:
    alpha.client.send(beta.direct("nothing"), client.Message("x", label="refused", recoverable=True, dead_letter=True))
    wait_until(lambda: alpha.queue(";deadletter").info().messages == 1)
    letter = alpha.queue(";deadletter").peek()
    assert (letter.label, letter.class_name) == ("refused", "nack-bad-dst-q")
    assert alpha.queue(beta.direct("nothing")).info().messages == 0


@pytest.mark.spec("SRM-3.1.7.4-01", "SRM-3.1.7.5-01")
def test_a_paused_queue_sends_when_it_is_resumed(alpha: Manager, beta: Manager) -> None:
    name = beta.direct("plain")
    alpha.client.send(name, client.Message("x", label="first", recoverable=True))
    assert beta.received("plain", 1) == ["first"]
    assert postroad("queue", "pause", name, api=alpha.process.api).code == 0
    alpha.client.send(name, client.Message("x", label="second", recoverable=True))
    assert alpha.queue(name).info().why == "paused by an operator"
    with pytest.raises(PostroadError):
        beta.queue("plain").receive(timeout=1)
    assert postroad("queue", "resume", name, api=alpha.process.api).code == 0
    assert beta.received("plain", 1) == ["second"]


@pytest.mark.spec("SRM-3.1.1.1.5-04")
def test_a_storm_of_duplicates_leaves_one_message(beta: Manager) -> None:
    copies = [entity(beta.url("plain"), number, f"{number}") for number in range(5)] * 60
    with ThreadPoolExecutor(16) as pool:
        statuses = set(pool.map(lambda each: beta.post(*each), copies))
    assert statuses == {200}
    assert sorted(beta.received("plain", 5)) == [f"{number}" for number in range(5)]
    with pytest.raises(PostroadError):
        beta.queue("plain").receive(timeout=1)


def test_the_log_says_of_each_refused_request_why_but_not_of_a_flood(beta: Manager) -> None:
    assert beta.post("text/plain", b"hello") == 400
    assert beta.post(*entity(beta.url("nothing"), 1)) == 400
    assert beta.post("text/xml", b"<a/>", "/private$/plain") == 400
    told = [line for line in beta.process.log.splitlines() if "SOAP request refused" in line]
    assert ["text/plain" in told[0], "there is no queue" in told[1], "start with /msmq/" in told[2]] == [True] * 3
    for _ in range(60):
        assert beta.post("text/plain", b"hello") == 400
    assert 20 <= beta.process.log.count("SOAP request refused") < 60


@pytest.mark.spec("SRM-3.1.5.1.2-02", "SRM-3.1.5.1.3-11")
def test_strange_requests_are_answered_400_and_the_manager_goes_on(beta: Manager) -> None:
    kind, body = entity(beta.url("plain"), 1)
    bomb = b'<!DOCTYPE a [<!ENTITY b "xxxxxxxxxx"><!ENTITY c "&b;&b;&b;&b;&b;&b;">]><a>&c;</a>'
    assert beta.post("text/xml", bomb) == 400
    assert beta.post("text/xml", b"\x00\xff" * 100) == 400
    assert beta.post("text/xml", b"<a>" * 20_000) == 400
    assert beta.post(kind, body[:-40]) == 400
    assert beta.post("text/plain", b"hello") == 400
    assert beta.post(kind, body, "/other/private$/plain") == 400
    assert beta.post(kind, b"", method="GET") == 405
    assert beta.post(*entity(beta.url("nothing"), 2)) == 400
    assert beta.post(*entity("http://elsewhere/msmq/private$/plain", 3)) == 400
    with socket.create_connection((beta.address, PORT)) as connection:
        connection.sendall(b"POST /msmq/private$/plain HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n")
        assert connection.recv(1000).startswith(b"HTTP/1.1 400")
    with socket.create_connection((beta.address, PORT)) as connection:
        connection.sendall(b"\x16\x03\x01\x02\x00nonsense\r\n\r\n")
        assert connection.recv(1000).startswith(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n")
        assert connection.recv(1000) == b""
    with socket.create_connection((beta.address, PORT)) as connection, suppress(ConnectionError):
        for _ in range(20):
            connection.sendall(b"POST /msmq/ HTTP/1.1\r\nX: " + b"y" * 50_000)
        assert connection.recv(4096).startswith(b"HTTP/1.1 400")
    assert beta.post(kind, body, "/MSMQ/Private$/PLAIN") == 200
    assert beta.received("plain", 1) == ["note"]


def test_a_chunked_request_and_many_on_one_connection(beta: Manager) -> None:
    connection = http.client.HTTPConnection(beta.address, PORT, timeout=30)
    for number in range(20):
        kind, body = entity(beta.url("plain"), number)
        pieces = iter([body[:100], body[100:]])
        connection.request("POST", "/msmq/private$/plain", pieces, {"Content-Type": kind}, encode_chunked=True)
        answer = connection.getresponse()
        assert (answer.status, answer.read()) == (200, b"")
    connection.close()
    assert len(beta.received("plain", 20)) == 20


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not here")
def test_curl_can_send(beta: Manager, tmp_path: Path) -> None:
    for number, body in ((1, None), (2, b"a body")):
        kind, data = entity(beta.url("plain"), number, f"curl {number}", body=body)
        (tmp_path / "entity").write_bytes(data)
        command = ["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "-H", f"Content-Type: {kind}"]
        command += ["--data-binary", f"@{tmp_path / 'entity'}", beta.url("plain")]
        assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "200"
    messages = [beta.queue("plain").receive(timeout=10) for _ in range(2)]
    assert [(each.label, each.body) for each in messages] == [("curl 1", b""), ("curl 2", b"a body")]


@contextmanager
def proxying(*refusals: int) -> Iterator[tuple[int, list[str]]]:
    """A proxy's port, and the requests that it has passed on, or refused with the statuses that come first."""
    command = [sys.executable, "-m", "tests.proxy", "127.0.50.15", *map(str, refusals)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    port = int(process.stdout.readline())
    lines: list[str] = []
    output = process.stdout
    thread = threading.Thread(target=lambda: lines.extend(line.strip() for line in output))
    thread.start()
    try:
        yield port, lines
    finally:
        process.terminate()
        process.wait(30)
        thread.join()
        process.stdout.close()


def test_messages_and_receipts_go_through_a_proxy(tmp_path: Path, stack: ExitStack, beta: Manager) -> None:
    port, lines = stack.enter_context(proxying())
    alpha = Manager(tmp_path, stack, "alpha", srmp=f'proxy = "http://127.0.50.15:{port}"')
    alpha.client.send(beta.direct("plain"), client.Message("x", label="proxied", recoverable=True))
    assert beta.received("plain", 1) == ["proxied"]
    alpha.queue(beta.direct("orders")).send(
        [client.Message(f"{each}", label=f"{each}") for each in range(5)], transactional=True
    )
    assert beta.received("orders", 5) == [f"{each}" for each in range(5)]
    wait_until(lambda: lines.count(f"POST {beta.url('orders')}") >= 5)
    assert f"POST {beta.url('plain')}" in lines


@pytest.mark.spec("SRM-3.1.2.1-01", "SRM-3.1.2.1-02")
@pytest.mark.parametrize("queue", ["plain", "orders"])
def test_what_a_proxy_refuses_for_a_while_is_delivered_afterwards(
    tmp_path: Path, stack: ExitStack, beta: Manager, queue: str
) -> None:
    refusals = (407, 404, 429, 413, 301, 502)
    port, lines = stack.enter_context(proxying(*refusals))
    alpha = Manager(tmp_path, stack, "alpha", srmp=f'proxy = "http://127.0.50.15:{port}"')
    labels = [f"{each}" for each in range(3)]
    messages = [client.Message(each, label=each, recoverable=True, dead_letter=queue == "plain") for each in labels]
    alpha.queue(beta.direct(queue)).send(messages, transactional=queue == "orders")
    wait_until(lambda: beta.queue(queue).info().messages == len(labels))
    assert sorted(beta.received(queue, 3)) == labels
    assert set(lines) >= {f"POST {beta.url(queue)}"}  # and nothing went where the 301 points
    assert not [line for line in lines if "127.0.50.99" in line]
    assert "SOAP message put off" in alpha.process.log
    assert "answered 407 (Proxy Authentication Required): it wants a login" in alpha.process.log
    assert alpha.client.queue(";deadletter").info().messages == 0


@pytest.mark.spec("SRM-2.1.1-03", "SRM-6-27", "SRM-5.1-01")
def test_https_with_a_certificate_that_is_trusted_and_with_one_that_is_not(tmp_path: Path, stack: ExitStack) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.issue(ADDRESSES["beta"])
    own_certificate, own_key = authority.issue(ADDRESSES["alpha"])
    trust = f'ca_certificates = "{authority.file}"\n'
    listen = f"https = {SECURE_PORT}"
    receipts = f'receipts_url = "https://{ADDRESSES["alpha"]}:{SECURE_PORT}/msmq/private$/order_queue$"\n'
    beta = Manager(
        tmp_path, stack, "beta", listen=listen, srmp=f'{trust}tls_certificate = "{certificate}"\ntls_key = "{key}"'
    )
    alpha = Manager(
        tmp_path,
        stack,
        "alpha",
        listen=listen,
        srmp=f'{trust}{receipts}tls_certificate = "{own_certificate}"\ntls_key = "{own_key}"',
    )
    stranger = Manager(tmp_path, stack, "gate")
    assert beta.process.ready["listen"]["https"] == f"{ADDRESSES['beta']}:{SECURE_PORT}"
    provide(beta)
    secure = {queue: f"DIRECT={beta.url(queue, 'HTTPS', SECURE_PORT)}" for queue in ("plain", "orders")}
    alpha.client.send(secure["plain"], client.Message("x", label="secret", recoverable=True))
    assert beta.received("plain", 1) == ["secret"]
    alpha.queue(secure["orders"]).send(client.Message("1", label="1"), transactional=True)
    assert beta.received("orders", 1) == ["1"]
    wait_until(lambda: alpha.queue(secure["orders"]).info().messages == 0)  # by a receipt over HTTPS
    stranger.client.send(secure["plain"], client.Message("x", label="not trusted", recoverable=True))
    wait_until(lambda: stranger.queue(secure["plain"]).info().failures > 0)
    info = stranger.queue(secure["plain"]).info()
    assert "the certificate of 127.0.50.12 is not to be trusted" in str(info.why)
    assert info.messages == 1


def test_a_store_and_forward_server_stands_between_two_that_do_not_meet(tmp_path: Path, stack: ExitStack) -> None:
    ends = f'[relay]\nallow = ["{ADDRESSES["alpha"]}", "{ADDRESSES["beta"]}"]\n'
    Manager(tmp_path, stack, "gate", srmp=f"store_and_forward = true\n{ends}")
    beta = Manager(tmp_path, stack, "beta", srmp=ends)  # which hears of alpha from the gate alone
    provide(beta)
    # Beta learns of alpha only through the gate: the name alone would not lead back.
    receipts = f'receipts_url = "http://{ADDRESSES["alpha"]}:{PORT}/msmq/private$/order_queue$"\n'
    way = (
        f'{receipts}[[srmp.outbound]]\nfrom = "http://{ADDRESSES["beta"]}*"\nto = "http://{ADDRESSES["gate"]}:{PORT}/"'
    )
    alpha = Manager(tmp_path, stack, "alpha", srmp=way)
    alpha.queue(beta.direct("orders")).send(
        [client.Message(f"{each}", label=f"{each}") for each in range(10)], transactional=True
    )
    assert beta.received("orders", 10) == [f"{each}" for each in range(10)]
    wait_until(lambda: alpha.queue(beta.direct("orders")).info().messages == 0)


def stream_receipt(to: str, number: int, stream_id: StreamId, last_ordinal: int) -> Envelope:
    envelope = stranger_message(
        to, number, label="QM Ordering Ack", now=time.time(), message_class=MessageClass.ORDER_ACK
    )
    return replace(envelope, stream_receipt=StreamReceipt(stream_id, last_ordinal))


def test_only_the_receiver_of_a_stream_acknowledges_it(alpha: Manager) -> None:
    with answering(200) as server:
        there = alpha.queue(server.direct("orders"))
        there.send([client.Message("x", label=f"{each}", journal=True) for each in range(3)], transactional=True)
        wait_until(lambda: len(server.requests) >= 3)
        stream = server.envelopes[0].stream
        assert stream is not None
        to = alpha.url("order_queue$")
        everything = [stream_receipt(to, each, stream.stream_id, each) for each in (1, 2, 3)]
        for number, forged in enumerate([*everything, stream_receipt(to, 4, stream.stream_id, 0xFFFFFFFF)]):
            assert alpha.ask(forged, f"127.0.50.{90 + number}") == 200
        assert alpha.ask(stream_receipt(to, 5, stream.stream_id, 0xFFFFFFFF), "127.0.50.14") == 200
        assert there.info().messages == 3
        assert alpha.queue(";journal").info().messages == 0
        assert alpha.metric("postroad_soap_receipts_ignored_total") == 3
        assert "stream receipt ignored" in alpha.process.log
        assert "[relay] allow" in alpha.process.log
        assert alpha.ask(everything[2], "127.0.50.14") == 200
        wait_until(lambda: there.info().messages == 0)
        assert alpha.queue(";journal").info().messages == 3


def test_a_message_cannot_make_its_receiver_call_another_host(beta: Manager) -> None:
    with socket.create_server(("127.0.50.77", 0)) as elsewhere:
        url = f"http://127.0.50.77:{elsewhere.getsockname()[1]}/msmq/private$/order_queue$"
        asking = Services(True, DeliveryReceiptRequest(url), CommitmentReceiptRequest(url, True, True))
        plain = replace(stranger_message(beta.url("plain"), 1, label="one", now=time.time()), services=asking)
        ordered = stream_message(beta.url("orders"), 1, start=url, label="two", dead_letter=True, now=time.time())
        for envelope in (plain, ordered):
            assert beta.ask(envelope, "127.0.50.98") == 200
        assert beta.received("plain", 1) + beta.received("orders", 1) == ["one", "two"]
        # For delivery and commitment, for the stream and for its end.
        wait_until(lambda: beta.metric("postroad_soap_receipts_dropped_total") == 4)
        assert "add 127.0.50.77 to [relay] allow" in beta.process.log
        elsewhere.setblocking(False)
        with pytest.raises(BlockingIOError):
            elsewhere.accept()
    assert not [each.path for each in beta.client.queues() if "127.0.50.77" in each.path]


def test_receipts_for_a_name_go_to_the_address_that_the_message_came_from(beta: Manager) -> None:
    with answering(200) as server:
        start = f"http://far-away:{server.server_port}/msmq/private$/order_queue$"
        ordered = stream_message(beta.url("orders"), 1, start=start, now=time.time())
        assert beta.ask(ordered, "127.0.50.14") == 200
        wait_until(lambda: len(server.envelopes) == 1)
        (receipt,) = server.envelopes
        assert receipt.path.to == start
        assert receipt.stream_receipt is not None
        beta.client.send(f"DIRECT={start}", client.Message("x", recoverable=True))
        wait_until(lambda: "far-away cannot be found" in str(beta.queue(f"DIRECT={start}").info().why))


def test_at_an_address_the_certificate_is_still_that_of_the_name(tmp_path: Path, stack: ExitStack) -> None:
    """Receipts by HTTPS for a name that beta does not know."""
    authority = Authority(tmp_path)
    listen = f"https = {SECURE_PORT}"
    managers = {}
    for name, subject in (("alpha", "alpha.test"), ("beta", ADDRESSES["beta"])):
        certificate, key = authority.issue(subject)
        srmp = f'ca_certificates = "{authority.file}"\ntls_certificate = "{certificate}"\ntls_key = "{key}"\n'
        if name == "alpha":
            srmp += (
                f'hosts = ["{subject}"]\nreceipts_url = "https://{subject}:{SECURE_PORT}/msmq/private$/order_queue$"'
            )
        managers[name] = Manager(tmp_path, stack, name, listen=listen, srmp=srmp)
    provide(managers["beta"])
    secure = managers["alpha"].queue(f"DIRECT={managers['beta'].url('orders', 'HTTPS', SECURE_PORT)}")
    secure.send(client.Message("1", label="1"), transactional=True)
    assert managers["beta"].received("orders", 1) == ["1"]
    wait_until(lambda: secure.info().messages == 0)


def test_nothing_is_passed_on_to_hosts_that_nobody_has_named(tmp_path: Path, stack: ExitStack) -> None:
    gate = Manager(tmp_path, stack, "gate", srmp="store_and_forward = true")
    with answering(200) as server:
        url = f"http://127.0.50.14:{server.server_port}/msmq/private$/plain"
        assert gate.ask(stranger_message(url, 1, now=time.time()), "127.0.50.98") == 400
        assert "[relay] allow" in gate.process.log
        assert server.connections == 0


def test_commands_take_urls_wherever_they_take_a_name(alpha: Manager, beta: Manager) -> None:
    sent = postroad(
        "send",
        beta.direct("plain"),
        "--body",
        "hello",
        "--label",
        "by hand",
        "--ack",
        "reach-queue",
        "--admin-queue",
        alpha.direct("acks"),
        "--response-queue",
        alpha.direct("acks"),
        api=alpha.process.api,
    )
    assert sent.code == 0, sent.errors
    received = postroad("receive", r"private$\plain", "--timeout", "30", "--json", api=beta.process.api).objects[0]
    assert received["response_queue"].lower() == alpha.direct("acks").lower()
    assert alpha.queue("acks").receive(timeout=30).class_name == "ack-reach-queue"


def test_without_a_word_about_http_the_manager_starts_even_if_port_80_is_taken(tmp_path: Path) -> None:
    file = tmp_path / "alpha.toml"
    text = CONFIGURATION.format(name="alpha", address=ADDRESSES["alpha"], port=0, listen="", srmp="")
    file.write_text(text.replace("http = 0\n", ""))
    with socket.socket() as taken, ExitStack() as stack:
        with suppress(PermissionError):  # then the manager may not have it either
            taken.bind((ADDRESSES["alpha"], 80))
            taken.listen()
        process = ServerProcess(file)
        stack.callback(process.close)
        assert "http" not in process.ready["listen"]
        assert "not listening" in process.log
    file.write_text(text.replace("http = 0\n", "http = 80\n"))
    with socket.socket() as taken:
        with suppress(PermissionError):
            taken.bind((ADDRESSES["alpha"], 80))
            taken.listen()
        outcome = postroad("serve", "-c", str(file))
    assert outcome.code == 1
    assert "listen.http: " in outcome.last_error


def test_a_certificate_that_is_missing_is_told_before_anything_starts(tmp_path: Path) -> None:
    file = tmp_path / "alpha.toml"
    text = CONFIGURATION.format(name="alpha", address=ADDRESSES["alpha"], port=0, listen="https = 0", srmp="")
    file.write_text(text)
    outcome = postroad("serve", "-c", str(file))
    assert outcome.code == 2
    assert "srmp.tls_certificate: is missing" in outcome.last_error
