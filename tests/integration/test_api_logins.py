"""Who calls the HTTP API: the token, users with passwords, certificates, and those who pretend to be somebody else."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import ssl
from base64 import b64encode
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from postroad.api import Settings, TlsFiles, build_app
from postroad.config import default_configuration
from postroad.manager import build_manager
from postroad.net import endpoints
from postroad.net.endpoints import CALLED_FOR
from postroad.net.exchange import Request
from postroad.net.http import HttpConnection
from postroad.security.descriptors import Sid
from postroad.security.users import User, Users
from postroad.store import MemoryStore
from tests.certificates import Authority
from tests.served import API, ORDERS, PASSWORD, Served, basic, served

ANN = User("ann", Sid.parse("S-1-5-21-1-2-3-1001"))
ROOT = User("root", Sid.parse("S-1-5-21-1-2-3-1003"), administrator=True)
TOKEN = "the-token-of-this-api"
BEARER = {"Authorization": f"Bearer {TOKEN}"}
STATUS = f"{API}/status"  # for administrators
QUEUES = f"{API}/queues"  # for every caller


def encoded(login: str | bytes) -> dict[str, str]:
    return {"Authorization": f"Basic {b64encode(login.encode() if isinstance(login, str) else login).decode()}"}


def raw(api: Served, *lines: str) -> int:
    """Sends a request with exactly these lines. Returns the status of the answer."""
    with socket.create_connection((api.server.host, api.server.port), 20) as connection:
        connection.sendall("\r\n".join([*lines, "Connection: close", "", ""]).encode("latin-1"))
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
    return int(answer.split(b" ", 2)[1])


def test_each_kind_of_caller() -> None:
    with served(token=TOKEN, users=[ANN, ROOT]) as api:
        assert api.call("GET", STATUS, headers=BEARER).status == 200
        assert api.call("GET", STATUS, headers=basic("root")).status == 200
        assert api.call("GET", STATUS, headers=basic("ann")).status == 403
        assert api.call("GET", QUEUES, headers=basic("ann")).status == 200
        assert api.call("GET", QUEUES, headers=basic("ANN")).status == 200  # as NTLM compares names
        refused = api.call("GET", QUEUES)
        assert (refused.status, refused.headers["www-authenticate"]) == (401, 'Bearer, Basic realm="postroad"')


def test_without_a_token_only_a_login_makes_a_caller_less_than_administrator() -> None:
    with served(users=[ANN]) as api:
        assert api.call("GET", STATUS).status == 200
        assert api.call("GET", STATUS, headers=basic("ann")).status == 403
        assert api.call("GET", STATUS, headers=basic("ann", "wrong")).status == 401
        assert api.call("GET", STATUS, headers={"Authorization": "Digest username=ann"}).status == 401


@pytest.mark.parametrize(
    "login",
    [
        "ann:wrong",
        "nobody:a secret",
        "ann",
        "ann:",
        ":",
        ":a secret",
        "",
        "ann\0:a secret",
        " ann:a secret",
        "ann:a secret\n",
        b"\xff\xfe:\xff",
        f"token:{TOKEN}",
        f"{TOKEN}:{TOKEN}",
        f"ann:{TOKEN}",
    ],
)
def test_whatever_is_wrong_with_a_login_the_answer_is_the_same(login: str | bytes) -> None:
    with served(token=TOKEN, users=[ANN]) as api:
        refused = api.call("GET", QUEUES, headers=encoded(login))
        assert refused.status == 401
        assert refused.json["detail"] == "the user or the password is wrong"


@pytest.mark.parametrize("header", ["Basic", "Basic !!!", "basic YW5u", "Basic YW5uOmEgc2VjcmV0=x", "Basic  "])
def test_a_login_that_cannot_be_read_is_wrong(header: str) -> None:
    with served(users=[ANN]) as api:
        assert api.call("GET", QUEUES, headers={"Authorization": header}).status == 401


def test_a_user_without_a_password_cannot_log_in() -> None:
    with served(users=[ANN], password="") as api:
        for password in ("", PASSWORD):
            assert api.call("GET", QUEUES, headers=basic("ann", password)).status == 401


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_two_authorizations_are_none(order: tuple[int, int]) -> None:
    with served(token=TOKEN, users=[ANN]) as api:
        lines = [f"Authorization: {each['Authorization']}" for each in (BEARER, basic("ann"))]
        head = (f"GET {QUEUES} HTTP/1.1", "Host: localhost")
        assert raw(api, *head, *(lines[each] for each in order)) == 401
        assert raw(api, *head, lines[0], lines[0]) == 401
        assert raw(api, *head, lines[0]) == 200


@pytest.mark.parametrize(
    "header",
    [
        "X-Forwarded-User: root",
        "X-Remote-User: root",
        "X-Forwarded-For: 127.0.0.1\r\nX-Forwarded-Proto: https",
        "X-Original-URL: /healthz",
        "Authorization : Bearer the-token-of-this-api",
        "X: y\r\n Authorization: Bearer the-token-of-this-api",
        "Proxy-Authorization: Bearer the-token-of-this-api",
        "Authorization_: Bearer the-token-of-this-api",
    ],
)
def test_no_other_header_makes_a_caller(header: str) -> None:
    with served(token=TOKEN, users=[ANN, ROOT]) as api:
        assert raw(api, f"GET {STATUS} HTTP/1.1", "Host: localhost", header) in (400, 401)


@pytest.mark.parametrize(
    "path", ["/healthz/../api/v1/status", "//api/v1/status", "/api/v1/status/", "/%2e/api/v1/status"]
)
def test_no_spelling_of_a_path_is_open(path: str) -> None:
    with served(token=TOKEN) as api:
        assert raw(api, f"GET {path} HTTP/1.1", "Host: localhost") == 401


def test_a_request_hidden_in_a_body_has_its_own_credentials() -> None:
    """Both lengths are given. The second request counts as a body or is refused; it never gets the credentials of the
    first."""
    with served(token=TOKEN, users=[ANN]) as api:
        api.call("POST", QUEUES, {"path": "private$/orders"}, headers=BEARER)
        hidden = f"DELETE {ORDERS} HTTP/1.1\r\nHost: localhost\r\n\r\n"
        login = f"Authorization: {basic('ann')['Authorization']}"
        head = [f"GET {QUEUES} HTTP/1.1", "Host: localhost", login]
        with socket.create_connection((api.server.host, api.server.port), 20) as connection:
            lengths = [f"Content-Length: {len(hidden)}", "Transfer-Encoding: chunked"]
            connection.sendall("\r\n".join([*head, *lengths, "", f"0\r\n\r\n{hidden}"]).encode())
            connection.settimeout(1)
            answer = b""
            try:
                while piece := connection.recv(65536):
                    answer += piece
            except TimeoutError:
                pass
        assert b" 204 " not in answer
        assert api.call("GET", ORDERS, headers=BEARER).status == 200


@pytest.mark.parametrize(
    ("client", "scheme", "status"),
    [
        ("192.0.2.9", "http", 401),
        ("2001:db8::9", "http", 401),
        ("", "http", 401),
        ("192.0.2.9", "https", 200),
        ("127.0.0.1", "http", 200),
        ("127.9.9.9", "http", 200),
        ("::1", "http", 200),
    ],
)
def test_a_password_from_another_computer_needs_tls(client: str, scheme: str, status: int) -> None:
    statuses = [asyncio.run(asked(client, scheme, password)) for password in (PASSWORD, "wrong")]
    assert statuses == [status, 401]


async def asked(client: str, scheme: str, password: str) -> int:
    """The status of the answer to a caller from this address."""
    manager = build_manager(default_configuration("alpha"), MemoryStore())
    manager.core.use(replace(manager.core.settings, users=Users([ANN])), manager.clock())
    await manager.start()
    try:
        app = build_app(manager, Settings(TOKEN, credentials={"ann": PASSWORD}))
        login = basic("ann", password)["Authorization"]
        fields = [(b"host", "alpha"), (b"authorization", login), (b"x-forwarded-proto", "https")]
        connection = SimpleNamespace(peer=client, secure=scheme == "https", subject=None)
        target, sent = QUEUES.encode(), [(name, value.encode()) for name, value in fields]
        request = Request(
            cast(HttpConnection, connection), "GET", target, sent, dict(fields), 0, chunks=True, keep_alive=True
        )
        return int((await app.respond(request)).status)
    finally:
        await manager.stop()


def test_certificates_are_administrators_unless_they_bring_a_login(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.issue("127.0.0.1")
    mine, my_key = authority.issue("client")
    with served(users=[ANN], tls=TlsFiles(certificate, key, authority.file)) as api:
        context = ssl.create_default_context(cafile=str(authority.file))
        context.load_cert_chain(mine, my_key)

        def status(**headers: str) -> int:
            connection = http.client.HTTPSConnection("127.0.0.1", api.server.port, context=context, timeout=20)
            connection.request("GET", STATUS, headers=headers)
            answer = connection.getresponse()
            connection.close()
            return answer.status

        assert status() == 200
        assert status(**basic("ann")) == 403
        assert status(**basic("ann", "wrong")) == 401


def test_guessing_is_slowed_down_and_audited(tmp_path: Path) -> None:
    audit = tmp_path / "audit.jsonl"
    with served(token=TOKEN, users=[ANN], audit=audit) as api:
        assert api.call("GET", QUEUES, headers=basic("ann")).status == 200
        for _ in range(4):
            assert api.call("GET", QUEUES, headers=basic("ann", "guess")).status == 401
        delay = api.manager.logins.delay("127.0.0.1", api.manager.clock())
        assert delay > 0
        began = api.manager.clock()
        assert api.call("GET", QUEUES, headers=basic("ANN")).status == 200  # it waits for its turn
        assert api.manager.clock() - began >= delay / 2
    lines = [json.loads(line) for line in audit.read_text().splitlines()]
    assert [(line["what"], line["who"], line["door"]) for line in lines] == [("login refused", "ann", "api")] * 4
    assert "guess" not in audit.read_text()


def test_a_call_without_the_right_is_audited(tmp_path: Path) -> None:
    audit = tmp_path / "audit.jsonl"
    with served(token=TOKEN, users=[ANN], audit=audit) as api:
        assert api.call("GET", f"{API}/status", headers=basic("ann")).status == 403
    (line,) = map(json.loads, audit.read_text().splitlines())
    assert (line["what"], line["who"], line["call"]) == ("access refused", "ann", "GET /status")
    assert (line["from"], line["outcome"]) == ("127.0.0.1", "refused")


def test_a_login_that_worked_before_does_not_wait_while_others_guess() -> None:
    with served(users=[ANN]) as api:
        assert api.call("GET", QUEUES, headers=basic("ann")).status == 200
        for _ in range(12):
            api.manager.logins.failed("127.0.0.1", api.manager.clock(), door="api", who="ann")
        assert api.call("GET", QUEUES, headers=basic("ann")).status == 200
        assert api.manager.logins.delay("127.0.0.1", api.manager.clock()) > 0  # of the 8 s


@pytest.mark.parametrize("name", ["token", "local", "CN=ann", "anonymous "])
def test_a_user_cannot_pass_for_another_kind_of_caller_in_the_audit_log(tmp_path: Path, name: str) -> None:
    audit = tmp_path / "audit.jsonl"
    user = User(name, ANN.sid, administrator=True)
    with served(token=TOKEN, users=[user], audit=audit) as api:
        new = {"path": "private$/orders"}
        assert api.call("POST", QUEUES, new, headers=basic(name)).status == 201
    (line,) = (json.loads(line) for line in audit.read_text().splitlines())
    assert line["who"] not in ("token", "local", "CN=ann", "anonymous")


def test_the_audit_log_names_the_user_and_what_was_refused(tmp_path: Path) -> None:
    audit = tmp_path / "audit.jsonl"
    with served(token=TOKEN, users=[ANN], audit=audit) as api:
        assert api.call("POST", QUEUES, {"path": "private$/orders"}, headers=basic("ann")).status == 403
    (line,) = (json.loads(line) for line in audit.read_text().splitlines())
    assert (line["who"], line["what"], line["outcome"]) == (
        "ann",
        "create queue",
        "no right to create queues: only administrators have it",
    )


def test_users_and_the_last_events_without_a_file() -> None:
    with served(users=[ANN, ROOT], token=TOKEN) as api:
        assert api.call("GET", f"{API}/queues", headers={"Authorization": "Bearer wrong"}).status == 401
        root = basic("root")
        assert api.call("POST", f"{API}/queues", {"path": "private$/new"}, headers=root).status == 201
        assert api.call("DELETE", f"{API}/queues/private$/new", headers=root).status == 204
        found = api.call("GET", f"{API}/audit", headers=root).json
        assert found["file"] is None
        assert [each["what"] for each in found["events"]][-1] == "login refused"
        assert "root" in found["events"][0]["who"]
        assert len(api.call("GET", f"{API}/audit?limit=1", headers=root).json["events"]) == 1
        users = api.call("GET", f"{API}/users", headers=root).json["users"]
        assert [(each["name"], each["administrator"]) for each in users] == [("ann", False), ("root", True)]
        assert all("password" not in each for each in users)


def called_for(address: str, key: str = TOKEN) -> dict[str, str]:
    return {CALLED_FOR: endpoints.called_for(key.encode(), address)}


def test_wrong_logins_at_a_console_make_only_their_own_address_wait() -> None:
    """Both the console and its users come from one address."""
    with served(token=TOKEN, users=[ANN]) as api:
        for _ in range(6):
            assert api.call("GET", QUEUES, headers=basic("ann", "x") | called_for("203.0.113.5")).status == 401
        now = api.manager.clock()
        assert api.manager.logins.delay("203.0.113.5", now) > 0
        assert api.manager.logins.delay("127.0.0.1", now) == 0
        assert api.call("GET", QUEUES, headers=basic("ann") | called_for("203.0.113.6")).status == 200
        assert {each["from"] for each in api.manager.audit.recent} == {"203.0.113.5"}


def test_only_who_has_the_key_may_name_another_address() -> None:
    with served(token=TOKEN, users=[ANN]) as api:
        for false in (
            called_for("203.0.113.5", "another key"),
            {CALLED_FOR: "203.0.113.5"},
            {CALLED_FOR: called_for("203.0.113.6")[CALLED_FOR].replace("203.0.113.6", "203.0.113.5")},
            {CALLED_FOR: "\u00e9 \u00e9"},
        ):
            assert api.call("GET", QUEUES, headers=basic("ann", "x") | false).status == 401
        assert {each["from"] for each in api.manager.audit.recent} == {"127.0.0.1"}


def test_a_password_in_plain_text_is_refused_by_where_it_comes_from_not_by_what_is_said() -> None:
    with served(token=TOKEN, users=[ANN]) as api:
        assert api.call("GET", QUEUES, headers=basic("ann") | called_for("203.0.113.5")).status == 200
