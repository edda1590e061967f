"""The HTTP API as a server: where it listens, who may call, how it stops, and the documentation's curl commands."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import signal
import socket
import ssl
import subprocess
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from postroad.api import ApiServer, TlsFiles
from postroad.config import default_configuration
from postroad.errors import ConfigurationError
from postroad.manager import Manager, build_manager
from postroad.store import MemoryStore
from tests.certificates import Authority
from tests.served import API, ORDERS, Served, served

DOCUMENTATION = Path(__file__).parents[2] / "docs" / "reference" / "http-api.md"


async def manager() -> Manager:
    made = build_manager(default_configuration("alpha"), MemoryStore())
    await made.start()
    return made


def listens(host: str, port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((host, port)) == 0


def test_any_free_port_is_reported_and_freed_again() -> None:
    async def run() -> None:
        core = await manager()
        first, second = ApiServer(core, port=0), ApiServer(core, port=0)
        await first.start()
        await second.start()
        assert first.port != second.port
        assert first.address == f"127.0.0.1:{first.port}"
        assert first.url == f"http://127.0.0.1:{first.port}"
        assert listens("127.0.0.1", first.port)
        await first.stop()
        await first.stop()
        assert not listens("127.0.0.1", first.port)
        again = ApiServer(core, port=first.port)
        await again.start()
        await again.stop()
        await second.stop()
        await core.stop()

    asyncio.run(run())


def test_signals_are_left_alone() -> None:
    async def run() -> None:
        before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
        core = await manager()
        server = ApiServer(core, port=0)
        await server.start()
        assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
        await server.stop()
        await core.stop()

    asyncio.run(run())


def start_fails(host: str, port: int = 0, token: str | None = None, tls: TlsFiles | None = None) -> ConfigurationError:
    async def run() -> ConfigurationError:
        core = await manager()
        try:
            with pytest.raises(ConfigurationError) as caught:
                await ApiServer(core, host, port, token, tls).start()
        finally:
            await core.stop()
        return caught.value

    return asyncio.run(run())


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_other_computers_need_a_token(host: str) -> None:
    fault = start_fails(host)
    assert fault.key == "api.token"
    assert "token" in fault.fault


def test_tls_alone_does_not_say_who_calls(tmp_path: Path) -> None:
    certificate, key = Authority(tmp_path).issue("127.0.0.1")
    fault = start_fails("0.0.0.0", tls=TlsFiles(certificate, key))
    assert fault.key == "api.token"
    assert "TLS alone does not authenticate callers; set api.token_file or api.client_ca" in fault.fault


def test_an_authority_of_clients_that_is_none_is_named(tmp_path: Path) -> None:
    certificate, key = Authority(tmp_path).issue("127.0.0.1")
    assert start_fails("127.0.0.1", tls=TlsFiles(certificate, key, key)).key == "api.client_ca"


def test_with_a_token_it_listens_everywhere() -> None:
    with served(token="secret", host="0.0.0.0") as api:
        assert listens("127.0.0.1", api.server.port)


def test_a_port_that_is_taken_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        fault = start_fails("127.0.0.1", port)
    assert (fault.key, str(port) in fault.fault) == ("listen.api", True)


def test_a_host_that_is_not_there_is_named() -> None:
    assert start_fails("no-such-host.invalid").key == "listen.host"


def test_a_certificate_that_is_none_is_named(tmp_path: Path) -> None:
    file = tmp_path / "certificate.pem"
    file.write_text("no certificate")
    assert start_fails("127.0.0.1", tls=TlsFiles(file, file)).key == "api.tls_certificate"


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
def test_tls(tmp_path: Path) -> None:
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=alpha -addext subjectAltName=IP:127.0.0.1"
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*command.split(), *files], check=True, capture_output=True)

    async def run() -> None:
        core = await manager()
        server = ApiServer(core, port=0, tls=TlsFiles(certificate, key))
        await server.start()
        assert server.url.startswith("https://")
        context = ssl.create_default_context(cafile=str(certificate))

        def ask() -> str:
            with urllib.request.urlopen(f"{server.url}{API}/manager", context=context) as answer:
                return str(json.load(answer)["name"])

        assert await asyncio.to_thread(ask) == "alpha"
        await server.stop()
        await core.stop()

    asyncio.run(run())


@pytest.mark.parametrize("sent", [None, "Bearer wrong", "Basic secret", "secret", "Bearer"])
def test_a_call_without_the_token_is_refused(sent: str | None) -> None:
    with served(token="secret") as api:
        headers = {} if sent is None else {"Authorization": sent}
        for path in (f"{API}/manager", "/metrics", f"{API}/openapi.json", "/nothing"):
            answer = api.call("GET", path, headers=headers)
            assert (answer.status, answer.json["code"]) == (401, "ACCESS_DENIED")
            assert answer.headers["www-authenticate"] == "Bearer"
            assert answer.json["detail"].startswith("a token is required: " if sent is None else "the token is wrong: ")
            assert "--token or POSTROAD_TOKEN for commands" in answer.json["detail"]
        for path in ("/", "/docs", "/healthz", "/readyz"):
            assert api.call("GET", path, headers=headers).status == 200


def test_a_page_that_everybody_sees_tells_strangers_nothing_of_the_manager() -> None:
    with served(token="secret") as api:
        assert b"alpha" not in api.call("GET", "/").body
        assert (api.call("GET", "/healthz").body, api.call("GET", "/readyz").body) == (b"ok\n", b"ready\n")


def test_wrong_tokens_are_answered_late_and_the_right_one_at_once() -> None:
    with served(token="secret") as api, ThreadPoolExecutor(1) as pool:
        for _ in range(30):
            api.manager.logins.failed("127.0.0.1", api.manager.clock(), door="rpc", who="ann")
        guess = pool.submit(api.call, "GET", f"{API}/manager", headers={"Authorization": "Bearer wrong"})
        while api.manager.logins.total == 30:
            time.sleep(0.01)
        assert api.call("GET", f"{API}/manager", headers={"Authorization": "Bearer secret"}).status == 200
        assert not guess.done()  # it waits 8 s
        api.run(api.server.stop())  # which waits for no guess
        assert guess.result().status == 401


def test_a_call_without_any_token_is_no_guess() -> None:
    with served(token="secret") as api:
        for _ in range(10):
            assert api.call("GET", f"{API}/manager").status == 401
        assert api.manager.logins.total == 0


def test_a_call_with_the_token_is_served() -> None:
    with served(token="secret") as api:
        assert api.call("GET", f"{API}/manager", headers={"Authorization": "Bearer secret"}).status == 200


@pytest.mark.parametrize("origin", ["https://pages.example", "null", "http://127.0.0.1:1"])
def test_web_pages_of_other_origins_are_refused(origin: str) -> None:
    with served() as api:
        api.create()
        answer = api.call("POST", f"{ORDERS}/messages", body=b"x", headers={"Origin": origin})
        assert (answer.status, answer.json["code"]) == (403, "ACCESS_DENIED")
        assert api.bodies() == []


CHANGES = [
    ("POST", f"{API}/queues"),
    ("POST", f"{ORDERS}/messages"),
    ("POST", f"{ORDERS}/purge"),
    ("PATCH", ORDERS),
    ("DELETE", ORDERS),
    ("DELETE", f"{ORDERS}/messages/1"),
    ("PUT", f"{ORDERS}/holds/x"),
    ("POST", f"{API}/transactions"),
]


@pytest.mark.parametrize("site", ["cross-site", "same-site", "Cross-Site", "whatever-comes-next", ""])
@pytest.mark.parametrize("token", [None, "secret"])
def test_what_a_browser_marks_as_another_sites_changes_nothing(site: str, token: str | None) -> None:
    """An old browser sends a form without an Origin, and no media type of a form makes it ask first."""
    with served(token=token) as api:
        headers = {"Sec-Fetch-Site": site, "Content-Type": "text/plain"}
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        for method, path in CHANGES:
            answer = api.call(method, path, body=b"{}", headers=headers)
            assert (answer.status, answer.json["code"]) == (403, "ACCESS_DENIED")
            assert answer.json["detail"].startswith(f"Sec-Fetch-Site: {site}: only this server's own web pages")


@pytest.mark.parametrize("site", ["same-origin", "none"])
def test_the_servers_own_pages_and_the_person_at_the_browser_may_change_things(site: str) -> None:
    with served() as api:
        api.create()
        assert api.call("POST", f"{ORDERS}/messages", body=b"x", headers={"Sec-Fetch-Site": site}).status == 201
        assert api.call("GET", ORDERS, headers={"Sec-Fetch-Site": "cross-site"}).status == 200  # a link


def test_its_own_pages_may_call() -> None:
    with served() as api:
        assert api.call("GET", f"{API}/manager", headers={"Origin": api.server.url}).status == 200


@pytest.mark.parametrize(
    ("host", "status"),
    [("localhost:1", 200), ("alpha", 200), ("[::1]:5", 200), ("127.0.0.2", 200), ("pages.example:8180", 403)],
)
def test_a_name_that_leads_here_must_be_ours(host: str, status: int) -> None:
    with served() as api:
        assert api.call("GET", f"{API}/manager", headers={"Host": host}).status == status


def documented_lines() -> list[str]:
    block = re.search(r"```sh\n(.*?)```", DOCUMENTATION.read_text(encoding="utf-8"), re.DOTALL)
    assert block is not None
    return block[1].splitlines()


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not here")
def test_curl_as_the_documentation_has_it() -> None:
    with served() as api:
        create, send, receive = (curl(api, line) for line in documented_lines())
        assert create["path"] == "private$\\orders"
        assert len(send["ids"]) == 1
        (message,) = receive["messages"]
        assert (message["body"], message["label"], message["id"]) == ("hello", "x", send["ids"][0])


def curl(api: Served, line: str) -> Any:
    command = line.replace("http://127.0.0.1:8180", api.server.url).replace("curl ", "curl -sS --fail ", 1)
    run = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False, timeout=60)
    assert (run.returncode, run.stderr) == (0, "")
    return json.loads(run.stdout)
