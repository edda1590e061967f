"""A reload reads certificates, keys and secrets again, even if the configuration is unchanged. Uses real TLS."""

from __future__ import annotations

import asyncio
import logging
import shutil
import ssl
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from postroad.config import load_configuration
from postroad.message import Message
from postroad.security.guard import Opened
from postroad.security.refusals import Refused
from postroad.server.server import Server
from tests.certificates import Authority
from tests.integration.test_soap_ports import FAR, OK, answering, direct, run, server_context, until
from tests.security_vectors import ADVANCED, CERTIFICATE, SID, SIGNED_2_0, certificate_of

HOST = "127.0.40.21"
OWN = "00000000-0000-0000-0000-00000000000a"
CONFIG = f"""
[manager]
name = "alpha"
[listen]
host = "{HOST}"
binary = false
ping = false
http = false
rpc = false
api = 0
"""
TLS = f'tls_certificate = "{HOST}.pem"\ntls_key = "{HOST}.key"\n'


def configured(file: Path, text: str) -> Server:
    file.write_text(CONFIG + text)
    return Server(load_configuration(file))


@asynccontextmanager
async def running(file: Path, text: str) -> AsyncIterator[Server]:
    server = configured(file, text)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


@contextmanager
def reloaded(caplog: pytest.LogCaptureFixture) -> Iterator[Callable[[], list[str]]]:
    """The lines of the log since the last call, with their facts."""
    caplog.clear()
    with caplog.at_level(logging.INFO, "postroad.server.reload"):

        def lines() -> list[str]:
            found = []
            for each in caplog.records:
                names = ("taken", "settings", "files", "reason")
                facts = [f"{name}={each.__dict__[name]}" for name in names if name in each.__dict__]
                found.append(" ".join([each.getMessage(), *facts]))
            caplog.clear()
            return found

        yield lines


class Client:
    """A TLS connection that trusts `authority`, and asks for pages."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self.certificate: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)

    @classmethod
    async def connect(cls, address: str, authority: Path, own: tuple[Path, Path] | None = None) -> Client:
        context = ssl.create_default_context(cafile=str(authority))
        if own is not None:
            context.load_cert_chain(*own)
        host, _, port = address.rpartition(":")
        return cls(*await asyncio.open_connection(host, int(port), ssl=context))

    async def get(self, path: str, authorization: str = "") -> int:
        header = f"Authorization: {authorization}\r\n" if authorization else ""
        self._writer.write(f"GET {path} HTTP/1.1\r\nHost: {HOST}\r\n{header}\r\n".encode())
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode()
        (length,) = (line for line in head.lower().split("\r\n") if line.startswith("content-length:"))
        await self._reader.readexactly(int(length.partition(":")[2]))
        return int(head.split()[1])

    async def close(self) -> None:
        self._writer.close()


def addresses(server: Server) -> dict[str, str]:
    listen = server.ready["listen"]
    assert isinstance(listen, dict)
    return listen


def pem_of(der: bytes) -> str:
    return ssl.DER_cert_to_PEM_cert(der)


def test_new_certificates_are_served_to_new_connections_and_old_ones_go_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    authority = Authority(tmp_path)
    certificate, _ = authority.issue(HOST)

    async def body() -> None:
        async with running(tmp_path / "alpha.toml", f"https = 0\n[api]\n{TLS}[srmp]\n{TLS}") as server:
            old = {}
            for name in ("api", "https"):
                old[name] = await Client.connect(addresses(server)[name], authority.file)
                assert pem_of(old[name].certificate) == certificate.read_text()
            assert await old["api"].get("/healthz") == 200
            authority.issue(HOST)
            with reloaded(caplog) as lines:
                await server.reload()
                (line,) = lines()
            assert "configuration read again taken=" in line
            for key in ("api.tls_certificate", "api.tls_key", "srmp.tls_certificate", "srmp.tls_key"):
                assert line.count(key) == 2  # read, and taken
            assert await old["api"].get("/healthz") == 200
            assert await old["https"].get("/") == 405
            for name in ("api", "https"):
                new = await Client.connect(addresses(server)[name], authority.file)
                assert pem_of(new.certificate) == certificate.read_text()
                assert new.certificate != old[name].certificate
                await new.close()
                await old[name].close()

    run(body)


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")  # a client that is refused in the handshake
def test_another_authority_of_clients_counts_for_the_next_connection(tmp_path: Path) -> None:
    servers = Authority(tmp_path)
    servers.issue(HOST)
    before, after = Authority(tmp_path, "before"), Authority(tmp_path, "after")
    shutil.copy(before.file, tmp_path / "clients.pem")
    own = {before: before.issue("10.0.0.1"), after: after.issue("10.0.0.2")}

    async def body() -> None:
        async with running(tmp_path / "alpha.toml", f'[api]\n{TLS}client_ca = "clients.pem"\n') as server:
            api = addresses(server)["api"]

            async def comes_in(client: Authority) -> bool:
                try:
                    connection = await Client.connect(api, servers.file, own[client])
                    status = await connection.get("/api/v1/queues")
                    await connection.close()
                except (OSError, asyncio.IncompleteReadError):
                    return False
                return status == 200

            assert (await comes_in(before), await comes_in(after)) == (True, False)
            old = await Client.connect(api, servers.file, own[before])
            shutil.copy(after.file, tmp_path / "clients.pem")
            await server.reload()
            assert (await comes_in(before), await comes_in(after)) == (False, True)
            assert await old.get("/api/v1/queues") == 200
            await old.close()

    run(body)


def test_passwords_and_tokens_are_read_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    authority = Authority(tmp_path)
    authority.issue(HOST)
    (tmp_path / "token").write_text("first\n")
    (tmp_path / "ann").write_text("word\n")

    def basic(password: str) -> str:
        return f"Basic {b64encode(f'ann:{password}'.encode()).decode()}"

    async def body() -> None:
        text = f'[api]\n{TLS}token_file = "token"\n[[user]]\nname = "ann"\npassword_file = "ann"\n'
        async with running(tmp_path / "alpha.toml", text) as server:
            client = await Client.connect(addresses(server)["api"], authority.file)

            async def statuses() -> list[int]:
                whom = ("Bearer first", "Bearer second", basic("word"), basic("another"))
                return [await client.get("/api/v1/queues", each) for each in whom]

            assert await statuses() == [200, 401, 200, 401]
            (tmp_path / "token").write_text("second\n")
            (tmp_path / "ann").write_text("another\n")
            with reloaded(caplog) as lines:
                await server.reload()
                (line,) = lines()
                assert "taken=api.token, user files=api.tls_certificate" in line
                assert "api.token_file" in line
                assert "user[1].password_file" in line
                await server.reload()
                (line,) = lines()
                assert line.startswith("configuration read again: nothing has changed files=")
            assert await statuses() == [401, 200, 401, 200]
            await client.close()

    run(body)


@pytest.mark.parametrize(
    ("file", "content", "fault"),
    [
        (f"{HOST}.pem", "not PEM", "api.tls_certificate: cannot be used"),
        (f"{HOST}.key", "not PEM", "api.tls_certificate: cannot be used"),
        ("clients.pem", "not PEM", "api.client_ca: cannot be used"),
        ("ann.der", "not DER", "certificate[1].file: "),
        ("enterprise.toml", "[[site]]", "enterprise.toml: site[1].name: is missing"),
        ("bob", "two\nlines\n", "user[1].password_file: "),
        ("clients.pem", None, "api.client_ca: there is no file"),
    ],
)
def test_after_a_broken_file_nothing_has_changed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, file: str, content: str | None, fault: str
) -> None:
    authority = Authority(tmp_path)
    certificate, _ = authority.issue(HOST)
    own = authority.issue("10.0.0.1")
    shutil.copy(authority.file, tmp_path / "clients.pem")
    (tmp_path / "token").write_text("first\n")
    (tmp_path / "bob").write_text("word\n")
    (tmp_path / "ann.der").write_bytes(CERTIFICATE)
    (tmp_path / "enterprise.toml").write_text("")
    text = f"""
[api]
{TLS}client_ca = "clients.pem"
token_file = "token"
[directory]
file = "enterprise.toml"
[[user]]
name = "bob"
password_file = "bob"
[[certificate]]
sid = "{SID}"
file = "ann.der"
"""

    async def body() -> None:
        async with running(tmp_path / "alpha.toml", text) as server:
            served = certificate.read_text()
            authority.issue(HOST)
            (tmp_path / "token").write_text("second\n")
            if content is None:
                (tmp_path / file).unlink()
            else:
                (tmp_path / file).write_text(content)
            with reloaded(caplog) as lines:
                await server.reload()
                (line,) = lines()
            assert line.startswith("configuration not taken; the manager goes on with the one it has reason=")
            assert fault in line
            client = await Client.connect(addresses(server)["api"], authority.file, own)
            assert pem_of(client.certificate) == served
            assert await client.get("/api/v1/queues", "Bearer second") == 401
            assert await client.get("/api/v1/queues", "Bearer first") == 200
            await client.close()

    run(body)


def test_a_certificate_of_a_sender_is_read_again_and_no_longer_counts_if_it_is_replaced(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "ann.der").write_bytes(CERTIFICATE)

    async def body() -> None:
        text = f'[[certificate]]\nsid = "{SID}"\nfile = "ann.der"\n'
        async with running(tmp_path / "alpha.toml", text) as server:
            protection = server.manager.core.protection
            guards = (protection.guard, protection.opener)
            assert all(isinstance(each.open(SIGNED_2_0, 0.0), Opened) for each in guards)
            (tmp_path / "ann.der").write_bytes(certificate_of(ADVANCED))
            with reloaded(caplog) as lines:
                await server.reload()
                assert lines() == ["configuration read again taken=certificate[1].file files=certificate[1].file"]
            assert all(isinstance(each.open(SIGNED_2_0, 1.0), Refused) for each in guards)
            (tmp_path / "alpha.toml").write_text(CONFIG)
            await server.reload()
            assert protection.certificates == {}

    run(body)


def test_the_directory_is_read_at_once(tmp_path: Path) -> None:
    (tmp_path / "enterprise.toml").write_text("")
    site = '[[site]]\nname = "london"\n'
    alpha = f'{site}[[manager]]\nname = "alpha"\nid = "{OWN}"\nsites = ["london"]\n'

    async def body() -> None:
        text = '[directory]\nfile = "enterprise.toml"\npoll_s = 1000\n'
        async with running(tmp_path / "alpha.toml", text) as server:
            manager = server.manager
            assert manager is not None
            await server.reload()
            assert [each.computer_name for each in manager.router.directory.managers] == []
            (tmp_path / "enterprise.toml").write_text(alpha)
            await server.reload()
            assert [each.computer_name for each in manager.router.directory.managers] == ["alpha"]

    run(body)


def test_other_authorities_are_trusted_for_the_next_connection_to_another_manager(tmp_path: Path) -> None:
    before, after = Authority(tmp_path, "before"), Authority(tmp_path, "after")
    before.issue(HOST)
    shutil.copy(before.file, tmp_path / "trusted.pem")

    async def body() -> None:
        text = 'https = 0\n[srmp]\nca_certificates = "trusted.pem"\nretransmission_ms = 50\nresend_s = [0.05]\n'
        async with (
            answering(OK, tls=server_context(after, FAR)) as peer,
            running(tmp_path / "alpha.toml", text + TLS) as server,
        ):
            manager = server.manager
            assert manager is not None
            name = direct(peer.port, scheme="HTTPS")
            await manager.send(name, [Message(label="a", recoverable=True)])
            await until(lambda: "not to be trusted" in str(manager.queue(name).last_error))
            shutil.copy(after.file, tmp_path / "trusted.pem")
            await server.reload()
            await until(lambda: bool(peer.heads))

    run(body)
