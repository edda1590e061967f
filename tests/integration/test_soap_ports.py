"""SOAP on real sockets within one process: what servers and proxies do to our requests, and what requests of others do
to us. acceptance/test_soap.py has the same protocol between processes."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from postroad.config import load_configuration
from postroad.errors import ConfigurationError, PostroadError, StorageError
from postroad.manager import Manager
from postroad.message import Message
from postroad.server.server import Server
from postroad.soap import transport
from postroad.soap.elements import Attachments, Services
from postroad.soap.envelope import write_envelope
from postroad.soap.multipart import MAX_ENTITY_SIZE, join_entity
from postroad.soap.receiver import Incoming
from postroad.store.interface import Batch
from tests.certificates import Authority
from tests.unit.soap.network import STRANGER, stranger_message

PATIENCE_S = 30
ALPHA, BETA, FAR = "127.0.40.11", "127.0.40.12", "127.0.40.13"
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"
CONFIGURATION = """
[manager]
name = "{name}"
[listen]
host = "{host}"
binary = false
ping = false
http = 0
rpc = false
api = false
{listen}
[srmp]
retransmission_ms = 50
{srmp}
"""


@asynccontextmanager
async def serving(
    directory: Path, name: str = "alpha", host: str = ALPHA, *, listen: str = "", srmp: str = ""
) -> AsyncIterator[tuple[Manager, dict[str, str]]]:
    """A manager, and the addresses of its listeners."""
    file = directory / f"{name}.toml"
    file.write_text(CONFIGURATION.format(name=name, host=host, listen=listen, srmp=srmp))
    server = Server(load_configuration(file))
    await server.start()
    try:
        addresses = server.ready["listen"]
        assert isinstance(addresses, dict)
        yield server.manager, addresses
    finally:
        await server.stop()


@dataclass
class Scripted:
    """A server that answers each request with the next of its byte strings, and repeats the last. An empty one closes
    at once."""

    answers: list[bytes]
    heads: list[str] = field(default_factory=list)
    port: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                length = [line for line in head.lower().split("\r\n") if line.startswith("content-length:")]
                await reader.readexactly(int(length[0].split(":")[1]) if length else 0)
                self.heads.append(head)
                answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
                if not answer:
                    return
                writer.write(answer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def answering(*answers: bytes, tls: ssl.SSLContext | None = None) -> AsyncIterator[Scripted]:
    scripted = Scripted(list(answers))
    server = await asyncio.start_server(scripted.serve, FAR, 0, ssl=tls)
    scripted.port = server.sockets[0].getsockname()[1]
    try:
        yield scripted
    finally:
        server.close()


def direct(port: int, host: str = FAR, scheme: str = "HTTP") -> str:
    return f"DIRECT={scheme}://{host}:{port}/msmq/private$/orders"


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110  # what is waited for is plain state
            await asyncio.sleep(0.01)


async def failure(manager: Manager, name: str) -> tuple[object, str]:
    """How an attempt to send to this queue ended: its status, and the error in words."""
    await manager.send(name, [Message(label="a", recoverable=True)])
    async with asyncio.timeout(PATIENCE_S):
        while not (info := manager.queue(name)).last_error:  # noqa: ASYNC110  # the next try clears it
            await asyncio.sleep(0.01)
    assert info.messages == 1  # nothing is lost by it
    return next(each["status"] for each in info.history if each["error"]), str(info.last_error)


def run(body: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(4 * PATIENCE_S):
            await body()

    coroutine: Coroutine[Any, Any, None] = bounded()
    asyncio.run(coroutine)


# Our requests


def test_messages_go_from_one_manager_to_the_other_and_back(tmp_path: Path) -> None:
    async def body() -> None:
        async with (
            serving(tmp_path, "alpha", ALPHA) as (alpha, _),
            serving(tmp_path, "beta", BETA) as (beta, there),
        ):
            await beta.create_queue(r"private$\orders", transactional=True)
            name = f"DIRECT=HTTP://{there['http']}/msmq/private$/orders"
            for label in ("a", "b"):
                await alpha.send_transactional(name, [Message(label=label)])
            await until(lambda: beta.queue(r"private$\orders").messages == 2)
            await until(lambda: alpha.queue(name).messages == 0)  # by a receipt, which beta posts to alpha
            assert alpha.queue(name).failures == 0

    run(body)


def test_a_server_that_closes_an_idle_connection_gets_the_request_again_at_once(tmp_path: Path) -> None:
    async def body() -> None:
        async with serving(tmp_path) as (manager, _), answering(b"", OK) as far:
            name = direct(far.port)
            await manager.send(name, [Message(label="a", recoverable=True)])
            await until(lambda: len(far.heads) == 2)
            await until(lambda: manager.queue(name).messages == 0)
            assert manager.queue(name).failures == 0

    run(body)


@pytest.mark.parametrize(
    ("name", "status", "error"),
    [
        (direct(9), "connect socket failure", f"cannot connect to {FAR}:9: Connection refused"),
        (direct(80, "no-such-host.invalid"), "name resolution failure", "no-such-host.invalid cannot be found: "),
    ],
)
def test_a_host_that_cannot_be_reached_is_named_with_the_reason(
    tmp_path: Path, name: str, status: str, error: str
) -> None:
    async def body() -> None:
        async with serving(tmp_path) as (manager, _):
            found = await failure(manager, name)
            assert found[0] == status
            assert error in found[1]

    run(body)


def test_an_answer_that_is_not_http_is_a_failure(tmp_path: Path) -> None:
    async def body() -> None:
        async with serving(tmp_path) as (manager, _), answering(b"SSH-2.0-OpenSSH\r\n\r\n") as far:
            status, error = await failure(manager, direct(far.port))
            assert status == "send failure"
            assert error.startswith(f"no answer from {FAR}: ")

    run(body)


def test_a_server_that_never_answers_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "ANSWER_TIMEOUT_S", 0.2)

    async def body() -> None:
        async with serving(tmp_path) as (manager, _), answering(b"HTTP/1.1") as far:
            found = await failure(manager, direct(far.port))
            assert found == ("connect socket failure", f"{FAR} did not answer in time")

    run(body)


def test_a_fault_of_our_own_in_a_request_is_logged_and_the_message_is_sent_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def body() -> None:
        async with serving(tmp_path) as (manager, _), answering(OK) as far:
            with monkeypatch.context() as broken:
                broken.setattr("postroad.soap.transport.URL.build", lambda **parts: 1 / 0)
                status, error = await failure(manager, direct(far.port))
            assert (status, error) == ("send failure", f"no answer from {FAR}: division by zero")
            assert "request not made" in caplog.messages
            await until(lambda: manager.queue(direct(far.port)).messages == 0)

    run(body)


def server_context(authority: Authority, address: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.issue(address))
    return context


@pytest.mark.parametrize(
    ("trusted", "subject", "words"),
    [
        (False, FAR, "self-signed certificate in certificate chain|unable to get local issuer certificate"),
        (True, BETA, f"IP address mismatch, certificate is not valid for '{FAR}'"),
    ],
)
def test_a_certificate_that_is_not_to_be_trusted_is_named_with_the_reason(
    tmp_path: Path, trusted: bool, subject: str, words: str
) -> None:
    authority = Authority(tmp_path)
    srmp = f'ca_certificates = "{authority.file}"' if trusted else ""

    async def body() -> None:
        tls = server_context(authority, subject)
        async with serving(tmp_path, srmp=srmp) as (manager, _), answering(OK, tls=tls) as far:
            status, error = await failure(manager, direct(far.port, scheme="HTTPS"))
            assert status == "invalid server certificate"
            assert error.startswith(f"the certificate of {FAR} is not to be trusted: ")
            assert any(each in error for each in words.split("|"))
            assert far.heads == []

    run(body)


def test_a_certificate_of_the_right_authority_is_trusted(tmp_path: Path) -> None:
    authority = Authority(tmp_path)

    async def body() -> None:
        tls = server_context(authority, FAR)
        srmp = f'ca_certificates = "{authority.file}"'
        async with serving(tmp_path, srmp=srmp) as (manager, _), answering(OK, tls=tls) as far:
            name = direct(far.port, scheme="HTTPS")
            await manager.send(name, [Message(label="a", recoverable=True)])
            await until(lambda: manager.queue(name).messages == 0)
            assert len(far.heads) == 1

    run(body)


def test_a_server_without_tls_is_named_with_the_reason(tmp_path: Path) -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async def body() -> None:
        plain = await asyncio.start_server(refuse, FAR, 0)
        port = plain.sockets[0].getsockname()[1]
        async with serving(tmp_path) as (manager, _):
            status, error = await failure(manager, direct(port, scheme="HTTPS"))
        plain.close()
        assert status == "connect socket failure"
        assert error.startswith(f"cannot connect to {FAR}:{port}: TLS fails")

    run(body)


def test_a_proxy_is_asked_for_all_hosts_but_those_named(tmp_path: Path) -> None:
    async def body() -> None:
        async with answering(OK) as far, answering(OK) as proxy:
            srmp = f'proxy = "http://{FAR}:{proxy.port}"\nno_proxy = ["{FAR}"]'
            async with serving(tmp_path, srmp=srmp) as (manager, _):
                for name in (direct(far.port), direct(8080, "far-away.invalid")):
                    await manager.send(name, [Message(label="a", recoverable=True)])
                await until(lambda: len(far.heads) == 1 and len(proxy.heads) == 1)
        assert far.heads[0].startswith("POST /msmq/private$/orders HTTP/1.1\r\n")
        assert proxy.heads[0].startswith("POST http://far-away.invalid:8080/msmq/private$/orders HTTP/1.1\r\n")

    run(body)


def test_a_proxy_that_refuses_a_tunnel_is_named_with_its_answer(tmp_path: Path) -> None:
    async def body() -> None:
        refusal = b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n"
        async with answering(refusal) as proxy:
            async with serving(tmp_path, srmp=f'proxy = "http://{FAR}:{proxy.port}"') as (manager, _):
                found = await failure(manager, direct(443, "far-away.invalid", "HTTPS"))
            words = "the proxy did not connect to far-away.invalid: 407 Proxy Authentication Required"
            assert found == ("connection refused", words)

    run(body)


HARDENED = """
[manager]
name = "alpha"
[listen]
host = "127.0.40.11"
binary = 0
ping = 0
http = 0
rpc = 0
epm = 0
api = false
[security]
hardened = {hardened}
"""


@pytest.mark.spec("DM-3.1.1.1-07", "DM-3.1.1.3-03", "DM-3.1.3-10")
def test_a_hardened_manager_sends_and_listens_by_http_alone(tmp_path: Path) -> None:
    far = rf"DIRECT=TCP:{FAR}\private$\orders"

    async def serve(hardened: str, body: Callable[[Manager, dict[str, str]], Awaitable[None]]) -> None:
        file = tmp_path / "alpha.toml"
        file.write_text(HARDENED.format(hardened=hardened))
        server = Server(load_configuration(file))
        await server.start()
        try:
            addresses = server.ready["listen"]
            assert isinstance(addresses, dict)
            await body(server.manager, addresses)
        finally:
            await server.stop()

    async def locked(manager: Manager, addresses: dict[str, str]) -> None:
        assert set(addresses) == {"http"}
        (row,) = manager.doors.exposure
        assert row.allows.endswith("; hardened: by HTTP alone, and nobody reads remotely")
        await manager.send(far, [Message(label="far", recoverable=True)])
        async with answering(OK) as near:
            await manager.send(direct(near.port), [Message(label="near", recoverable=True)])
            await until(lambda: len(near.heads) == 1)
        manager.pause_queue(far)
        manager.resume_queue(far)
        info = manager.queue(far)
        assert (info.state, info.messages) == ("LOCKED", 1)
        assert info.why == "locked: security.hardened is on, so this queue manager sends by HTTP alone"

    async def open_again(manager: Manager, addresses: dict[str, str]) -> None:
        assert set(addresses) == {"http", "binary", "ping", "rpc", "epm"}
        await until(lambda: manager.queue(far).state == "WAITING" or manager.queue(far).failures > 0)
        assert manager.queue(far).messages == 1

    async def body() -> None:
        await serve("true", locked)
        await serve("true", lambda manager, addresses: stays(manager))
        await serve("false", open_again)

    async def stays(manager: Manager) -> None:
        assert manager.queue(far).state == "LOCKED"

    run(body)


def test_a_hardened_manager_with_multicast_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "alpha.toml"
    file.write_text(HARDENED.format(hardened="true") + "[multicast]\nenabled = true\n")
    with pytest.raises(ConfigurationError, match=r"multicast\.enabled.*must be false"):
        load_configuration(file)


# Requests of others


def entity(url: str, number: int = 1, *, durable: bool = False) -> tuple[str, bytes]:
    envelope = stranger_message(url, number, label="note", now=time.time())
    if durable:
        envelope = replace(envelope, services=Services(durable=True))
    kind, pieces = join_entity(write_envelope(envelope), Attachments(b"text"), STRANGER, number)
    return kind, b"".join(pieces)


async def ask(address: str, head: str, *pieces: bytes) -> bytes:
    """Returns what comes back until the connection is closed."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"{head}\r\nHost: alpha\r\n".encode() + b"".join(pieces))
    answer = await asyncio.wait_for(reader.read(), PATIENCE_S)
    writer.close()
    return answer


async def post(manager: Manager, address: str, number: int = 1, target: str = "/msmq/private$/orders") -> bytes:
    """A valid request to the queue orders, by a stranger."""
    kind, body = entity(f"http://{address}/msmq/private$/orders", number)
    head = f"Content-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return await ask(address, f"POST {target} HTTP/1.1", head.encode(), body)


@pytest.mark.parametrize(
    ("head", "rest", "status", "reason"),
    [
        ("GET /msmq/private$/orders HTTP/1.1", b"\r\n", b"405 Method Not Allowed", None),
        (
            "POST /other/private$/orders HTTP/1.1",
            b"Content-Length: 0\r\n\r\n",
            b"400 ",
            "the path must start with /msmq/",
        ),
        (
            "POST /msmq/private$/orders HTTP/1.1",
            f"Content-Length: {MAX_ENTITY_SIZE + 1}\r\n\r\n".encode(),
            b"400 ",
            f"its Content-Length must be at most {MAX_ENTITY_SIZE} bytes",
        ),
        (
            "POST /msmq/private$/orders HTTP/1.1",
            b"Content-Type: text/plain\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello",
            b"400 ",
            "text/plain",
        ),
    ],
)
def test_a_request_that_is_refused_gets_no_body_and_the_log_says_why(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, head: str, rest: bytes, status: bytes, reason: str | None
) -> None:
    async def body() -> None:
        async with serving(tmp_path) as (_, addresses):
            answer = await ask(addresses["http"], head, rest)
        assert answer.startswith(b"HTTP/1.1 " + status)
        assert b"content-length: 0\r\n" in answer
        assert answer.endswith(b"\r\n\r\n")
        assert (b"allow: POST\r\n" in answer) is (reason is None)
        refused = [vars(each)["reason"] for each in caplog.records if each.message == "SOAP request refused"]
        assert len(refused) == (reason is not None)
        assert reason is None or reason in refused[0]

    run(body)


@pytest.mark.parametrize("target", ["/MSMQ/private$/orders", "/%6Dsmq/orders?x", "http://alpha:80/msmq/orders"])
def test_a_target_is_read_as_a_url(tmp_path: Path, target: str) -> None:
    async def body() -> None:
        async with serving(tmp_path) as (manager, addresses):
            await manager.create_queue(r"private$\orders")
            assert (await post(manager, addresses["http"], target=target)).startswith(b"HTTP/1.1 200 ")
            assert manager.queue(r"private$\orders").messages == 1

    run(body)


def test_a_body_that_is_too_large_or_does_not_come_whole_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(transport, "MAX_ENTITY_SIZE", 1000)
    chunks = b"200\r\n" + bytes(0x200) + b"\r\n"

    async def body() -> None:
        async with serving(tmp_path) as (manager, addresses):
            await manager.create_queue(r"private$\orders")
            line = "POST /msmq/private$/orders HTTP/1.1"
            answer = await ask(addresses["http"], line, b"Transfer-Encoding: chunked\r\n\r\n", chunks, chunks)
            assert answer.startswith(b"HTTP/1.1 400 ")
            host, _, port = addresses["http"].rpartition(":")
            _, writer = await asyncio.open_connection(host, int(port))
            writer.write(f"{line}\r\nHost: alpha\r\nContent-Length: 500\r\n\r\nonly this".encode())
            writer.close()
            await until(lambda: caplog.messages.count("SOAP request refused") == 2)
            assert manager.queue(r"private$\orders").messages == 0

    run(body)


def test_a_message_is_taken_once_it_is_durable_and_not_where_storing_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def body() -> None:
        async with serving(tmp_path) as (manager, addresses):
            await manager.create_queue(r"private$\orders")
            for fault in (StorageError("the disk is full"), ZeroDivisionError("a bug")):

                def fail(*arguments: object, fault: Exception = fault) -> None:
                    raise fault

                with monkeypatch.context() as broken:
                    broken.setattr(manager.doors.soap, "received", fail)
                    answer = await post(manager, addresses["http"])
                assert answer.startswith(b"HTTP/1.1 500 ")
                assert caplog.messages.count("request not taken") == isinstance(fault, ZeroDivisionError)
            assert manager.queue(r"private$\orders").messages == 0
            assert (await post(manager, addresses["http"])).startswith(b"HTTP/1.1 200 ")
            assert manager.queue(r"private$\orders").messages == 1

    run(body)


def test_durable_messages_that_come_together_share_a_commit_and_regular_ones_make_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body() -> None:
        async with serving(tmp_path) as (manager, addresses):
            await manager.create_queue(r"private$\orders")
            assert manager.doors.soap is not None
            soap = manager.doors.soap.driver
            assert isinstance(soap, transport.SoapTransport)
            commits: list[Iterable[Batch]] = []
            commit = manager.store.commit

            def counted(batches: Iterable[Batch]) -> None:
                commits.append(batches)
                commit(batches)

            monkeypatch.setattr(manager.store, "commit", counted)
            number = 0
            for durable in (False, True):
                answers: list[int] = []
                for _ in range(8):
                    number += 1
                    kind, octets = entity(f"http://{addresses['http']}/msmq/private$/orders", number, durable=durable)
                    soap.take(Incoming(kind, octets, ALPHA), answers.append)
                assert answers == ([] if durable else [200] * 8)
                await until(lambda answers=answers: len(answers) == 8)  # type: ignore[misc]
                assert answers == [200] * 8
                assert len(commits) == durable
            assert manager.queue(r"private$\orders").messages == 16

    run(body)


# The listener


@pytest.mark.parametrize("broken", ["certificate", "key"])
def test_a_certificate_that_cannot_be_used_is_named_with_its_setting(tmp_path: Path, broken: str) -> None:
    certificate, key = Authority(tmp_path).issue(ALPHA)
    (certificate if broken == "certificate" else key).write_text("not PEM")
    srmp = f'tls_certificate = "{certificate}"\ntls_key = "{key}"'

    async def body() -> None:
        with pytest.raises(ConfigurationError, match=r"srmp\.tls_certificate: cannot be used: "):
            async with serving(tmp_path, listen="https = 0", srmp=srmp):
                pass

    run(body)


def test_authorities_that_cannot_be_read_are_named_with_their_setting(tmp_path: Path) -> None:
    (tmp_path / "authorities.pem").write_text("not PEM")

    async def body() -> None:
        with pytest.raises(ConfigurationError, match=r"srmp\.ca_certificates: cannot be used: "):
            async with serving(tmp_path, srmp='ca_certificates = "authorities.pem"'):
                pass

    run(body)


def test_a_port_that_another_program_uses_is_named(tmp_path: Path) -> None:
    async def body() -> None:
        async with answering(OK) as other:
            listen = f"https = {other.port}"
            certificate, key = Authority(tmp_path).issue(FAR)
            srmp = f'tls_certificate = "{certificate}"\ntls_key = "{key}"'
            with pytest.raises(
                PostroadError, match=f"listen.https: cannot listen on {FAR}:{other.port}: Address already"
            ):
                async with serving(tmp_path, host=FAR, listen=listen, srmp=srmp):
                    pass

    run(body)
