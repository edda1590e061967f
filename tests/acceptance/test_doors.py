"""Who may come in: the table of listeners, certificates of clients, files for their owner only, and the audit log."""

from __future__ import annotations

import asyncio
import gc
import json
import re
import shutil
import ssl
import stat
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import aiohttp
import pytest

import postroad as client
from tests.certificates import Authority
from tests.commands import ServerProcess, postroad, serving

TOKEN = "a-token-that-nobody-guesses-0123456789"
PASSWORD = "a-password-that-nobody-guesses"


def configured(directory: Path, rest: str = "", host: str = "127.0.0.1") -> Path:
    file = directory / "alpha.toml"
    listen = f'host = "{host}"\nbinary = 0\nping = 0\nhttp = 0\nrpc = 0\nepm = false\napi = 0\n'
    rest += "[rpc]\nanonymous = true\n" if host == "0.0.0.0" else ""
    queues = "[[queue]]\npath = 'private$\\orders'\n[[queue]]\npath = 'private$\\other'\n"
    file.write_text(f'[manager]\nname = "alpha"\n[listen]\n{listen}{rest}\n{queues}', encoding="utf-8")
    file.chmod(0o600)
    return file


def secret_file(directory: Path, name: str, secret: str, mode: int = 0o600) -> Path:
    file = directory / name
    file.write_text(f"{secret}\n", encoding="utf-8")
    file.chmod(mode)
    return file


def exposed(server: ServerProcess, **options: Any) -> dict[str, dict[str, Any]]:
    (status,) = postroad("status", "--json", **options).objects
    found = {each["listener"]: each for each in status["exposure"]}
    assert {name: each["address"] for name, each in found.items()} == server.ready["listen"]
    return found


# The table


def test_on_loopback_the_table_is_in_the_log_and_in_status_and_nothing_is_warned_of(tmp_path: Path) -> None:
    with serving(configured(tmp_path)) as server:
        found = exposed(server, api=server.api)
        assert not any(each["reachable"] for each in found.values())
        assert found["api"]["authentication"] == found["api"]["encryption"] == "none"
        text = postroad("status", "--all", api=server.api).text
        log = server.log
        for name, each in found.items():
            row = re.compile(rf"^ *{name} +{re.escape(each['address'])} .*{re.escape(each['allows'])}$", re.MULTILINE)
            assert row.search(text)
            assert row.search(log)
        assert " warning " not in log


def test_where_others_reach_it_each_open_listener_is_warned_of(tmp_path: Path) -> None:
    secret_file(tmp_path, "token", TOKEN)
    with serving(configured(tmp_path, '[api]\ntoken_file = "token"\n', "0.0.0.0"), "--log-json") as server:
        api = server.api.replace("0.0.0.0", "127.0.0.1")
        found = exposed(server, api=api, variables={"POSTROAD_TOKEN_FILE": str(tmp_path / "token")})
        assert all(each["reachable"] for each in found.values())
        assert found["api"]["authentication"] == "token"
        events = [json.loads(line) for line in server.log.splitlines()]
    (table,) = (each["table"] for each in events if "table" in each)
    assert [each["listener"] for each in table] == ["binary", "ping", "http", "rpc", "api"]
    warned = [each["listener"] for each in events if each["level"] == "warning"]
    assert {"binary", "ping", "http"} <= set(warned)
    assert "api" not in warned


@pytest.mark.parametrize(
    ("rest", "key"),
    [
        ("", "api.token: is missing: other computers can reach 0.0.0.0"),
        ('[api]\ntls_certificate = "127.0.0.1.pem"\ntls_key = "127.0.0.1.key"\n', "api.token: is missing: other"),
        ('[api]\nclient_ca = "authority.pem"\n', "api.tls_certificate: is missing: client_ca"),
        (
            '[api]\ntls_certificate = "127.0.0.1.pem"\ntls_key = "127.0.0.1.key"\nclient_ca = "127.0.0.1.key"\n',
            "api.client_ca: cannot be used",
        ),
        (f'[api]\ntoken = "{TOKEN}"\n[audit]\nfile = "missing/audit.jsonl"\n', "audit.file: "),
        (f'[api]\ntoken = "{TOKEN}\\u0007"\n', "api.token: must not contain control characters"),
        ("[api]\ntoken = 1234567890123456\n", "api.token: must be text, got a value of another type"),
    ],
)
def test_a_door_that_would_stand_open_keeps_it_from_starting(tmp_path: Path, rest: str, key: str) -> None:
    Authority(tmp_path).issue("127.0.0.1")
    file = configured(tmp_path, rest, "0.0.0.0")
    refused = postroad("serve", "-c", str(file))
    assert (refused.code, refused.output) == (2, b"")
    assert refused.last_error.startswith(f"postroad: {file}: {key}")
    assert TOKEN not in refused.errors
    assert "1234567890123456" not in refused.errors


# Certificates of clients


@pytest.fixture
def mutual(tmp_path: Path) -> Path:
    """A configuration whose API recognizes clients by their certificates, with the files that it needs."""
    Authority(tmp_path).issue("127.0.0.1")
    Authority(tmp_path, "clients").issue("10.0.0.7")
    Authority(tmp_path, "strangers").issue("10.0.0.8")
    files = 'tls_certificate = "127.0.0.1.pem"\ntls_key = "127.0.0.1.key"\nclient_ca = "clients.pem"\n'
    return configured(tmp_path, f'[api]\n{files}[audit]\nfile = "audit.jsonl"\n', "0.0.0.0")


def variables(directory: Path, address: str | None) -> dict[str, str]:
    trusted = {"SSL_CERT_FILE": str(directory / "authority.pem")}
    if address is None:
        return trusted
    files = {"POSTROAD_CLIENT_CERT": f"{address}.pem", "POSTROAD_CLIENT_KEY": f"{address}.key"}
    return trusted | {name: str(directory / file) for name, file in files.items()}


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")  # asyncio: the loop ends before TLS has said goodbye
def test_only_who_has_a_certificate_comes_in(mutual: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = mutual.parent
    with serving(mutual) as server:
        api = f"https://127.0.0.1:{server.ready['listen']['api'].rpartition(':')[2]}"
        found = exposed(server, api=api, variables=variables(directory, "10.0.0.7"))
        assert (found["api"]["authentication"], found["api"]["encryption"]) == ("client certificate", "tls")
        for address, hint in ((None, "set POSTROAD_CLIENT_CERT"), ("10.0.0.8", "client_ca issued this client's")):
            refused = postroad("queue", "purge", "private$\\orders", api=api, variables=variables(directory, address))
            assert refused.code == 1
            assert hint in refused.last_error
        asyncio.run(ask_with_aiohttp(api, directory))
        gc.collect()  # here, and not in another test
        monkeypatch.setenv("SSL_CERT_FILE", str(directory / "authority.pem"))
        certificate, key = directory / "10.0.0.7.pem", directory / "10.0.0.7.key"
        with client.connect(api, client_certificate=certificate, client_key=key) as manager:
            manager.queue("private$\\orders").send("hello")
            assert manager.queue("private$\\orders").purge() == 1
        with client.connect(api) as manager, pytest.raises(client.ManagerUnavailable):
            manager.info()
        with pytest.raises(client.errors.InvalidArgument, match=r"client_certificate: .* cannot be used"):
            client.connect(api, client_certificate=key)
    (purge,) = [each for each in audited(directory) if each["what"] == "purge"]
    assert (purge["who"], purge["from"], purge["messages"]) == ("CN=10.0.0.7", "127.0.0.1", 1)


async def ask_with_aiohttp(api: str, directory: Path) -> None:
    """Anybody can use a name that leads here, but not the certificate."""
    context = ssl.create_default_context(cafile=str(directory / "authority.pem"))
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientError):
            await session.post(f"{api}/api/v1/queues/private$/orders/purge", ssl=context)
        context.load_cert_chain(directory / "10.0.0.7.pem", directory / "10.0.0.7.key")
        async with session.get(f"{api}/readyz", ssl=context, headers={"Host": "queues.example"}) as answer:
            assert answer.status == 200


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not here")
def test_curl_needs_it_too(mutual: Path) -> None:
    directory = mutual.parent
    with serving(mutual) as server:
        url = f"https://127.0.0.1:{server.ready['listen']['api'].rpartition(':')[2]}/healthz"
        command = ["curl", "-sS", "--cacert", str(directory / "authority.pem"), url]
        assert subprocess.run(command, capture_output=True, check=False).returncode != 0
        command += ["--cert", str(directory / "10.0.0.7.pem"), "--key", str(directory / "10.0.0.7.key")]
        assert subprocess.run(command, capture_output=True, check=True).stdout == b"ok\n"


# Files and secrets


@pytest.mark.skipif(sys.platform == "win32", reason="Unix permissions")
def test_what_it_keeps_is_private_and_secrets_that_are_not_are_named(tmp_path: Path) -> None:
    loose = secret_file(tmp_path, "the token", TOKEN, 0o644)
    secret_file(tmp_path, "ann.pw", PASSWORD)
    rest = '[api]\ntoken_file = "the token"\n[audit]\nfile = "audit.jsonl"\n'
    user = '[[user]]\nname = "ann"\npassword_file = "ann.pw"\n'
    with serving(configured(tmp_path, rest + user)) as server:
        data = tmp_path / "data" / "alpha"
        names = {each.name for each in data.iterdir()}
        journals = {each for each in names if each.startswith("journal-")}
        assert journals
        assert names - journals == {
            "keys.pem",
            "lock",
            "reserve",
            "store.sqlite",
            "store.sqlite-wal",
            "store.sqlite-shm",
        }
        assert {stat.S_IMODE(each.stat().st_mode) for each in (*data.iterdir(), tmp_path / "audit.jsonl")} == {0o600}
        assert stat.S_IMODE(data.stat().st_mode) == 0o700
        (warning,) = [
            line for line in server.log.splitlines() if " warning " in line and "rpc.authenticate" not in line
        ]
        assert "setting=api.token_file" in warning
        assert f"do=\"chmod 600 '{loose}'\"" in warning
        for _ in range(5):
            assert postroad("status", "--token", "wrong", api=server.api).code == 1
        assert postroad("status", "--token", TOKEN, api=server.api).code == 0
        told = server.log + (tmp_path / "audit.jsonl").read_text()
        told += postroad("status", "--json", "--token", TOKEN, api=server.api).text
        assert "login refused door=api address=127.0.0.1" in server.log
    assert TOKEN not in told
    assert PASSWORD not in told
    assert "wrong" not in told


# The audit log


def audited(directory: Path) -> list[dict[str, Any]]:
    lines = (directory / "audit.jsonl").read_text(encoding="utf-8").splitlines()
    found = [json.loads(line) for line in lines]
    for each in found:
        assert {"when", "who", "from", "what", "outcome"} <= set(each)
        assert datetime.fromisoformat(each["when"]).tzinfo is not None
    return found


def test_whoever_changes_something_is_in_the_audit_log(tmp_path: Path) -> None:
    rest = f'[api]\ntoken = "{TOKEN}"\n[audit]\nfile = "audit.jsonl"\n'
    with serving(configured(tmp_path, rest)) as server:
        made = [(each["what"], each["who"], each["queue"]) for each in audited(tmp_path)]
        assert made == [("create queue", "configuration", rf".\private$\{name}") for name in ("orders", "other")]
        (tmp_path / "audit.jsonl").rename(tmp_path / "audit.1")  # as logrotate does

        def run(*command: str, code: int = 0) -> None:
            assert postroad(*command, "--token", TOKEN, api=server.api).code == code

        run("queue", "create", "private$\\new")
        run("queue", "set", "private$\\new", "--label", "changed")
        run("send", "private$\\orders", "--body", "x", "--count", "3")
        run("receive", "private$\\orders")
        run("move", "private$\\orders", "private$\\new", "--all")
        run("queue", "purge", "private$\\new")
        run("queue", "delete", "private$\\new")
        run("queue", "delete", "private$\\new", code=1)
        assert postroad("queue", "purge", "private$\\other", "--token", "wrong", api=server.api).code == 1
        port = server.ready["listen"]["rpc"].rpartition(":")[2]
        ports = tmp_path / "ports.toml"
        ports.write_text(f'[manager]\nname = "beta"\n[peers]\n"127.0.0.1" = {{ rpc = {port} }}\n')
        assert postroad("remote", "purge", "127.0.0.1", "private$\\other", "--config", str(ports)).code == 0
    found = audited(tmp_path)
    assert {(each["who"], each["from"]) for each in found[:-2]} == {("token", "127.0.0.1")}
    assert [(each["what"], each.get("queue"), each.get("messages"), each["outcome"]) for each in found[:-3]] == [
        ("create queue", "private$\\new", None, "done"),
        ("change queue", "private$\\new", None, "done"),
        ("move", "private$\\orders", 2, "done"),
        ("purge", "private$\\new", 2, "done"),
        ("delete queue", "private$\\new", None, "done"),
    ]
    assert (found[1]["properties"], found[2]["to"]) == ("label", "private$\\new")
    missing, refused, remote = found[-3:]
    assert "private$\\new" in missing["outcome"]
    assert (refused["what"], refused["door"], refused["outcome"]) == ("login refused", "api", "refused")
    assert (remote["what"], remote["who"], remote["from"]) == ("purge", "anonymous", "127.0.0.1")
    assert remote["queue"].endswith("private$\\other")


def test_who_needs_no_credentials_is_local(tmp_path: Path) -> None:
    with serving(configured(tmp_path, '[audit]\nfile = "audit.jsonl"\n')) as server:
        postroad("queue", "purge", "private$\\orders", api=server.api)
    assert (audited(tmp_path)[-1]["what"], audited(tmp_path)[-1]["who"]) == ("purge", "local")


def test_what_an_operator_takes_from_a_client_is_in_the_audit_log(tmp_path: Path) -> None:
    rest = f'[api]\ntoken = "{TOKEN}"\n[audit]\nfile = "audit.jsonl"\n'
    with serving(configured(tmp_path, rest)) as server, client.connect(server.api, token=TOKEN) as manager:
        queue = manager.queue(r"private$\orders")
        queue.send(client.Message(b"x", recoverable=True))
        queue.lock(1, timeout=5)
        assert postroad("lock", "release", r"private$\orders", "--token", TOKEN, api=server.api).code == 0
        transaction = manager.begin().id
        assert postroad("transaction", "abort", str(transaction), "--token", TOKEN, api=server.api).code == 0
    released, aborted = audited(tmp_path)[-2:]
    assert (released["what"], released["who"], released["messages"]) == ("release locks", "token", 1)
    assert (aborted["what"], aborted["transaction"]) == ("abort transaction", str(transaction))
