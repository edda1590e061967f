"""Kerberos from end to end, with tickets of a real domain controller: the API, remote readers and the commands.

The RPC protocol's own tests, and those of each token, are in integration/test_rpc_kerberos.py.
"""

from __future__ import annotations

import asyncio
import base64
import http.client
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import postroad as client
from postroad import aio
from postroad.errors import AccessDenied
from postroad.security.kerberos import initiate
from tests.certificates import Authority
from tests.commands import ServerProcess, postroad, serving
from tests.domain import ADMINISTRATOR
from tests.domain import PASSWORD as DOMAIN_PASSWORD
from tests.kerberos import ANN, BOB, Realm, run

TOKEN = "a-token-that-nobody-guesses-0123456789"
PASSWORD = "a-password-that-nobody-guesses"
QUEUE = r"private$\orders"
CURL = shutil.which("curl")
WHOAMI = "/api/v1/whoami?queue=private%24/orders"


def configured(
    directory: Path, realm: Realm, *, name: str = "alpha", rest: str = "", rpc: str = "", api: str = ""
) -> Path:
    """Ann reads the queue by her group, and Bob may only send."""
    directory.mkdir(exist_ok=True)
    file = directory / "alpha.toml"
    read = f"D:(A;;0x3f;;;{realm.sid('clerks')})(A;;0x24;;;S-1-1-0)"
    listen = 'host = "127.0.0.1"\nbinary = false\nping = false\nhttp = false\nrpc = 0\nepm = false\napi = 0\n'
    file.write_text(
        f'[manager]\nname = "alpha"\n[listen]\n{listen}[rpc]\nauthenticate = true\n'
        f'keytab = "{realm.keytab}"\n{rpc}\n[api]\ntoken = "{TOKEN}"\n{api}\n'
        f"[[queue]]\npath = '{QUEUE}'\nacl = \"{read}\"\n{rest}\n",
        encoding="utf-8",
    )
    file.chmod(0o600)
    return file


@pytest.fixture(scope="module", autouse=True)
def _krb5_conf(realm: Realm) -> Iterator[None]:
    patch = pytest.MonkeyPatch()
    patch.setenv("KRB5_CONFIG", str(realm.controller.krb5_conf))
    yield
    patch.undo()


@pytest.fixture(scope="module")
def server(realm: Realm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    user = f'[[user]]\nname = "eye"\npassword = "{PASSWORD}"\n'
    with serving(configured(tmp_path_factory.mktemp("alpha"), realm, rest=user)) as found:
        yield found


def place(server: ServerProcess) -> str:
    return server.api.replace("127.0.0.1", "localhost")


def negotiate(realm: Realm, host: str = "localhost", user: str = "ann", **options: Any) -> str:
    with realm.logged_in(user):
        _, token = initiate(host, "HTTP", spnego=True, **options)
    return f"Negotiate {base64.b64encode(token).decode()}"


def asked(
    server: ServerProcess, authorization: str | None, path: str = WHOAMI, method: str = "GET"
) -> tuple[int, Any, str]:
    """The status, the JSON and WWW-Authenticate of one request."""
    host, _, port = server.ready["listen"]["api"].rpartition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=60)
    connection.request(method, path, headers={} if authorization is None else {"Authorization": authorization})
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, json.loads(body), answer.headers.get("WWW-Authenticate", "")


def wait_for_log(server: ServerProcess, text: str, times: int = 1) -> None:
    while server.log.count(text) < times:
        time.sleep(0.05)


# The API


def test_a_ticket_logs_in_and_the_server_proves_who_it_is(realm: Realm, server: ServerProcess) -> None:
    status, found, proof = asked(server, negotiate(realm))
    assert status == 200
    assert (found["name"], found["role"]) == (ANN, "user")
    assert "receive" in found["queues"][QUEUE]
    assert proof.startswith("Negotiate o")  # a NegTokenResp
    status, found, _ = asked(server, negotiate(realm, user="bob"))
    assert (status, found["name"]) == (200, BOB)
    assert "receive" not in found["queues"].get(QUEUE, ())


def test_without_credentials_the_answer_names_kerberos_first(server: ServerProcess) -> None:
    status, _, challenge = asked(server, None)
    assert (status, challenge) == (401, 'Negotiate, Bearer, Basic realm="postroad"')


def test_a_ticket_counts_once(realm: Realm, server: ServerProcess) -> None:
    authorization = negotiate(realm)
    assert asked(server, authorization)[0] == 200
    status, problem, _ = asked(server, authorization)
    assert status == 401
    assert "it was used before" in problem["detail"]


def test_a_ticket_for_another_server_is_refused(realm: Realm, server: ServerProcess) -> None:
    status, problem, _ = asked(server, negotiate(realm, "other.postroad.test"))
    assert status == 401
    assert "it is for another server" in problem["detail"]


def test_hostile_tokens_are_refused(realm: Realm, server: ServerProcess) -> None:
    good = base64.b64decode(negotiate(realm).partition(" ")[2])
    tokens = [
        b"",
        b"\x60",
        good[:40],
        good[:-1],
        bytes(500),
        b"NTLMSSP\0\1\0\0\0" + bytes(28),
        b"\x60\x84\xff\xff\xff\xff",
    ]
    for token in tokens:
        assert asked(server, f"Negotiate {base64.b64encode(token).decode()}")[0] == 401
    for text in ("Negotiate", "Negotiate ?", "Negotiate a b", "negotiate =="):
        assert asked(server, text)[0] == 401
    status, found, _ = asked(server, negotiate(realm))
    assert (status, found["name"]) == (200, ANN)


def test_a_session_takes_the_place_of_the_ticket(realm: Realm, server: ServerProcess) -> None:
    status, login, _ = asked(server, negotiate(realm), "/api/v1/login", "POST")
    assert (status, login["who"]) == (200, ANN)
    assert 0 < login["expires_s"] <= 3600
    for _ in range(2):
        assert asked(server, f"Bearer {login['token']}")[1]["name"] == ANN
    status, problem, _ = asked(server, "Bearer session-of-nobody")
    assert (status, problem["detail"]) == (401, "the session has ended: log in again")
    assert asked(server, f"Bearer {TOKEN}", "/api/v1/login", "POST")[0] == 403


@pytest.mark.skipif(CURL is None, reason="curl is not installed")
def test_curl(realm: Realm, server: ServerProcess) -> None:
    assert CURL is not None
    found = run(realm, CURL, "-s", "--negotiate", "-u", ":", f"{place(server)}{WHOAMI}")
    if "SPNEGO" not in subprocess.run([CURL, "-V"], capture_output=True, text=True, check=True).stdout:
        pytest.skip("this curl has no SPNEGO")
    assert json.loads(found.stdout)["name"] == ANN
    sent = run(
        *(realm, CURL, "-s", "--negotiate", "-u", ":", "-H", "Content-Type: application/json"),
        *("-d", '{"messages": [{"label": "by curl"}]}', f"{place(server)}/api/v1/queues/private$/orders/messages"),
        user="bob",
    )
    assert json.loads(sent.stdout)["ids"]


def test_our_clients(realm: Realm, server: ServerProcess) -> None:
    with realm.logged_in():
        with client.connect(place(server), kerberos=True) as manager:
            queue = manager.queue(QUEUE)
            queue.purge()
            queue.send("one")
            assert queue.receive(5).body == b"one"

        async def body() -> None:
            async with aio.connect(place(server), kerberos=True) as manager:
                queue = manager.queue(QUEUE)
                await asyncio.gather(*(queue.send(f"{number}") for number in range(20)))
                assert len(await queue.peek_many(50, 0)) == 20
                await queue.purge()

        asyncio.run(body())
    with realm.logged_in("bob"), client.connect(place(server), kerberos=True) as manager:
        manager.queue(QUEUE).send("from bob")
        with pytest.raises(AccessDenied, match="no right to"):
            manager.queue(QUEUE).receive(0)


def test_our_clients_without_a_ticket(realm: Realm, server: ServerProcess) -> None:
    with realm.logged_in(None), pytest.raises(AccessDenied, match=r"there is no ticket \(run kinit\)"):
        client.connect(place(server), kerberos=True).queues()


def test_a_client_with_a_keytab_of_its_own(realm: Realm, server: ServerProcess) -> None:
    with realm.logged_in(None):
        patch = pytest.MonkeyPatch()
        patch.setenv("KRB5CCNAME", "MEMORY:bob")
        patch.setenv("KRB5_CLIENT_KTNAME", f"FILE:{realm.controller.keytab('bob')}")
        try:
            with client.connect(place(server), kerberos=True) as manager:
                manager.queue(QUEUE).send("from a service")
        finally:
            patch.undo()


def test_the_commands(realm: Realm, server: ServerProcess) -> None:
    ann = realm.environment()
    sent = postroad("send", QUEUE, "--body", "hello", "--kerberos", api=place(server), variables=ann)
    assert sent.code == 0, sent.errors
    received = postroad("receive", QUEUE, "--json", api=place(server), variables=ann | {"POSTROAD_KERBEROS": "1"})
    assert received.code == 0, received.errors
    refused = postroad("receive", QUEUE, "--kerberos", api=place(server), variables=realm.environment(None))
    assert refused.code == 1
    assert "there is no ticket (run kinit)" in refused.last_error
    both = postroad("queue", "list", "--kerberos", "--token", "x", api=place(server), variables=ann)
    assert both.code == 2


def test_an_expired_ticket_and_a_wrong_clock(realm: Realm, server: ServerProcess, tmp_path: Path) -> None:
    short = realm.controller.credentials_cache("bob", "Passw0rd!x", "-l", "1s")
    variables = {"KRB5_CONFIG": str(realm.controller.krb5_conf), "KRB5CCNAME": f"FILE:{short}"}
    time.sleep(2)  # the life of the ticket
    expired = postroad("queue", "list", "--kerberos", api=place(server), variables=variables)
    assert expired.code == 1
    assert "the ticket has expired (kinit again)" in expired.last_error


@pytest.mark.skipif(shutil.which("faketime") is None, reason="faketime is not installed")
def test_a_client_whose_clock_is_wrong(realm: Realm, server: ServerProcess) -> None:
    script = (
        "from base64 import b64encode; from postroad.security.kerberos import initiate; "
        "print(b64encode(initiate('localhost', 'HTTP', spnego=True)[1]).decode())"
    )
    assert run(realm, "kvno", "HTTP/localhost").returncode == 0  # while the clock was right
    made = run(realm, "faketime", "+10 minutes", sys.executable, "-c", script)
    status, problem, _ = asked(server, f"Negotiate {made.stdout.strip()}")
    assert status == 401
    assert "the clocks differ" in problem["detail"]


# TLS


class Interceptor:
    """Ends TLS with a certificate of its own, and passes everything on by TLS: what channel binding is against."""

    def __init__(self, files: tuple[Path, Path], port: int, trusted: Path) -> None:
        self._inside = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._inside.load_cert_chain(*files)
        self._outside = ssl.create_default_context(cafile=str(trusted))
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                stream, _ = self._listener.accept()
            except OSError:
                return
            with (
                self._inside.wrap_socket(stream, server_side=True) as inside,
                socket.create_connection(("localhost", self._target)) as plain,
                self._outside.wrap_socket(plain, server_hostname="localhost") as outside,
            ):
                while request := inside.recv(1 << 16):
                    outside.sendall(request)
                    inside.sendall(outside.recv(1 << 16))

    def close(self) -> None:
        self._listener.close()


def test_a_proxy_that_ends_tls_cannot_use_the_ticket(
    realm: Realm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path, "authority")
    certificate, key = authority.issue("localhost")
    shutil.copy(certificate, tmp_path / "server.pem")
    shutil.copy(key, tmp_path / "server.key")
    other = authority.issue("localhost")
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
    api = 'tls_certificate = "server.pem"\ntls_key = "server.key"\nrequire_channel_binding = true\n'
    with serving(configured(tmp_path, realm, api=api)) as server, realm.logged_in():
        port = int(server.ready["listen"]["api"].rpartition(":")[2])
        with client.connect(f"https://localhost:{port}", kerberos=True) as manager:
            manager.queue(QUEUE).send("bound")

        async def body() -> None:
            async with aio.connect(f"https://localhost:{port}", kerberos=True) as manager:
                await manager.queue(QUEUE).send("bound too")

        asyncio.run(body())
        proxy = Interceptor(other, port, authority.file)
        manager = client.connect(f"https://localhost:{proxy.port}", kerberos=True)
        with manager, pytest.raises(AccessDenied, match="belongs to another TLS connection"):
            manager.queue(QUEUE).send("stolen")
        proxy.close()
        _, unbound = initiate("localhost", "HTTP", spnego=True)
        trust = ssl.create_default_context(cafile=str(authority.file))
        connection = http.client.HTTPSConnection("localhost", port, context=trust, timeout=60)
        connection.request("GET", WHOAMI, headers={"Authorization": f"Negotiate {base64.b64encode(unbound).decode()}"})
        answer = connection.getresponse()
        assert answer.status == 401
        assert "require_channel_binding" in json.loads(answer.read())["detail"]
        connection.close()


# Remote readers


def test_remote_readers(realm: Realm, server: ServerProcess) -> None:
    host = server.ready["listen"]["rpc"].replace("127.0.0.1", "localhost")
    with realm.logged_in(), client.connect(place(server), kerberos=True) as manager:
        manager.queue(QUEUE).purge()
        manager.queue(QUEUE).send("far")
    read = postroad("remote", "receive", host, QUEUE, "--kerberos", "--json", variables=realm.environment())
    assert read.code == 0, read.errors
    name, _, port = host.rpartition(":")
    with realm.logged_in(), client.remote(name, port=int(port), kerberos=True) as reader:
        reader.queue(QUEUE).purge()
    refused = postroad("remote", "receive", host, QUEUE, "--kerberos", variables=realm.environment("bob"))
    assert refused.code == 1
    without = postroad("remote", "peek", host, QUEUE, "--kerberos", variables=realm.environment(None))
    assert without.code == 1
    assert "there is no ticket (run kinit)" in without.last_error
    (status,) = postroad("status", "--json", api=server.api, variables={"POSTROAD_TOKEN": TOKEN}).objects
    rows = {each["listener"]: each for each in status["exposure"]}
    assert rows["rpc"]["authentication"] == "users (kerberos, ntlm)"
    assert "kerberos" in rows["api"]["authentication"]


def test_ntlm_is_refused_by_policy(realm: Realm, tmp_path: Path) -> None:
    user = f'[[user]]\nname = "eye"\npassword = "{PASSWORD}"\n'
    with serving(configured(tmp_path, realm, rest=user, rpc="ntlm = false")) as server:
        host = server.ready["listen"]["rpc"].replace("127.0.0.1", "localhost")
        by_password = {"POSTROAD_PASSWORD": PASSWORD}
        refused = postroad("remote", "peek", host, QUEUE, "--user", "eye", "--timeout", "0", variables=by_password)
        assert refused.code == 1
        read = postroad("remote", "peek", host, QUEUE, "--kerberos", "--timeout", "0", variables=realm.environment())
        assert read.code == 3, read.errors  # no message, and no refusal


# Keytabs


def test_a_keytab_that_is_of_no_use_stops_the_start(realm: Realm, tmp_path: Path) -> None:
    keytab = tmp_path / "alpha.keytab"
    file = configured(tmp_path, realm)
    file.write_text(file.read_text().replace(str(realm.keytab), str(keytab)))
    cases: list[tuple[bytes | None, int, str]] = [
        (None, 0, "cannot be read: No such file or directory"),
        (b"", 0o600, "is empty: it must hold the key of a service"),
        (b"\x05\x02", 0o600, "is empty: it must hold the key of a service"),
        (b"not a keytab", 0o600, "must be a keytab"),
        (realm.keytab.read_bytes()[:-9], 0o600, "must be a keytab"),
        (realm.controller.keytab("ann").read_bytes(), 0o600, f"got only {ANN}"),
        (realm.keytab.read_bytes(), 0o644, "can be read by other users of this computer"),
    ]
    for content, mode, fault in cases:
        if content is not None:
            keytab.unlink(missing_ok=True)
            keytab.write_bytes(content)
            keytab.chmod(mode)
        started = postroad("serve", "-c", str(file))
        assert started.code == 2
        assert "rpc.keytab" in started.last_error
        assert fault in started.last_error
    keytab.chmod(0o600)
    assert postroad("serve", "--check", "-c", str(file)).code == 0


def test_another_keytab_counts_after_sighup(realm: Realm, tmp_path: Path) -> None:
    keytab = tmp_path / "alpha.keytab"
    shutil.copy(realm.other_keytab, keytab)
    keytab.chmod(0o600)
    file = configured(tmp_path, realm, rest=f'[[user]]\nname = "boss"\nprincipal = "{ANN}"\nadministrator = true\n')
    file.write_text(file.read_text().replace(str(realm.keytab), str(keytab)))
    with serving(file) as server:
        assert asked(server, negotiate(realm))[0] == 401
        shutil.copy(realm.keytab, keytab)
        os.kill(server.pid, signal.SIGHUP)
        wait_for_log(server, "configuration read again")
        status, found, _ = asked(server, negotiate(realm))
        assert (status, found["name"], found["role"]) == (200, "boss", "administrator")
        status, login, _ = asked(server, negotiate(realm), "/api/v1/login", "POST")
        file.write_text(file.read_text().partition("[[user]]")[0])
        os.kill(server.pid, signal.SIGHUP)
        wait_for_log(server, "configuration read again", 2)
        ended = asked(server, f"Bearer {login['token']}", "/api/v1/status")
        assert ended[0] == 403  # no longer the administrator that the session began as
        shutil.copy(realm.keytab, keytab)
        keytab.write_bytes(b"not a keytab")
        os.kill(server.pid, signal.SIGHUP)
        wait_for_log(server, "configuration not taken")


# The domain says who is an administrator, and who is not a user any more


def test_the_domain_says_who_is_an_administrator_and_who_has_gone(realm: Realm, tmp_path: Path) -> None:
    controller = realm.controller
    for name in ("dora", "emil"):
        controller.add_user(name)
    controller.tool("group", "addmembers", "clerks", "dora")
    password = tmp_path / "password"
    password.write_text(DOMAIN_PASSWORD)
    password.chmod(0o600)
    directory = (
        f'[directory]\nldap = "{controller.ldaps}"\nuser = "{ADMINISTRATOR}"\npassword_file = "{password}"\n'
        f"ca_certificates = \"{controller.ca_certificates}\"\nrefresh_s = 0.3\nadministrators = ['POSTROAD\\clerks']\n"
    )
    with serving(configured(tmp_path / "alpha", realm, rest=directory)) as server:

        def role(user: str) -> str:
            return str(asked(server, negotiate(realm, user=user))[1].get("role"))

        while role("dora") != "administrator":  # once the directory has said who they are
            time.sleep(0.05)
        assert role("emil") == "user"
        controller.tool("group", "removemembers", "clerks", "dora")
        while role("dora") == "administrator":  # although her ticket still says so
            time.sleep(0.05)
        assert "get-properties" in asked(server, negotiate(realm, user="emil"))[1]["queues"][QUEUE]
        controller.tool("user", "disable", "emil")
        while asked(server, negotiate(realm, user="emil"))[1].get("queues"):  # although his ticket is valid
            time.sleep(0.05)
