"""A manager that publishes, as its users see it: commands, the HTTP API, Python, and the errors of a directory."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen
from uuid import UUID, uuid4

import pytest

import postroad as client
from postroad.directory.ldap_connection import LdapConnection, LdapSettings, connect
from tests.commands import ServerProcess, postroad
from tests.domain import ADMINISTRATOR, BASE, PASSWORD, Controller

COMPUTERS = f"CN=Computers,{BASE}"
NAME = f"pc{uuid4().hex[:8]}"
ADDRESS = f"127.201.{os.getpid() % 256}.7"
CONFIGURATION = """
[manager]
name = "{name}"
[listen]
host = "{address}"
binary = 0
ping = false
rpc = false
api = 0
[api]
token = "a-token-for-tests"
[directory]
ldap = "{ldaps}"
user = "{user}"
password_file = "password"
ca_certificates = "{authority}"
publish = true
refresh_s = 0.1
"""


@pytest.fixture(scope="module")
def directory(domain_controller: Controller, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LdapConnection]:
    place = tmp_path_factory.mktemp("administration")
    (place / "password").write_text(PASSWORD)
    settings = LdapSettings(
        servers=(domain_controller.ldaps,),
        user=ADMINISTRATOR,
        password_file=place / "password",
        ca_certificates=domain_controller.ca_certificates,
    )
    with connect(settings) as connection:
        values = {"objectClass": ["computer"], "sAMAccountName": [f"{NAME}$"], "userAccountControl": ["4096"]}
        connection.add(f"CN={NAME},{COMPUTERS}", values)
        yield connection


@pytest.fixture(scope="module")
def user(domain_controller: Controller) -> str:
    name = f"u{uuid4().hex[:8]}"
    domain_controller.add_user(name)
    return f"{name}@POSTROAD.TEST"


def configured(place: Path, controller: Controller, user: str) -> Path:
    (place / "password").write_text(PASSWORD)
    file = place / "postroad.toml"
    file.write_text(
        CONFIGURATION.format(
            name=NAME, address=ADDRESS, ldaps=controller.ldaps, user=user, authority=controller.ca_certificates
        )
    )
    return file


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("manager")


@pytest.fixture
def server(
    place: Path, domain_controller: Controller, directory: LdapConnection, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ServerProcess]:
    monkeypatch.setenv("POSTROAD_TOKEN", "a-token-for-tests")
    process = ServerProcess(configured(place, domain_controller, ADMINISTRATOR))
    try:
        yield process
    finally:
        process.close()


def run(server: ServerProcess, *arguments: str, code: int = 0) -> str:
    outcome = postroad(*arguments, api=server.api, variables={"POSTROAD_TOKEN": "a-token-for-tests"})
    assert outcome.code == code, outcome.errors
    return outcome.text if code == 0 else outcome.errors


def held(directory: LdapConnection, name: str) -> UUID | None:
    entry = directory.read(f"CN={name},CN=msmq,CN={NAME},{COMPUTERS}", ["objectGUID"])
    return None if entry is None else UUID(bytes_le=entry.first("objectguid") or b"")


def ask(server: ServerProcess, method: str, path: str, body: object = None) -> tuple[int, dict[str, object]]:
    request = Request(
        f"{server.api}/api/v1{path}",
        None if body is None else json.dumps(body).encode(),
        {"Authorization": "Bearer a-token-for-tests", "Content-Type": "application/json"},
        method=method,
    )
    try:
        with urlopen(request) as answer:
            data = answer.read()
            return answer.status, json.loads(data) if data else {}
    except HTTPError as error:
        return error.code, json.loads(error.read())


def test_the_command(server: ServerProcess, directory: LdapConnection) -> None:
    assert run(server, "queue", "create", "orders", "--public", "--label", "Orders").strip() == rf"{NAME}\orders"
    shown = json.loads(run(server, "queue", "show", rf"{NAME}\orders", "--json"))
    assert held(directory, "orders") == UUID(shown["id"])
    run(server, "queue", "set", r".\orders", "--quota-kb", "12")
    entry = directory.read(f"<GUID={shown['id']}>", ["mSMQQueueQuota"])
    assert entry is not None
    assert entry.first("msmqqueuequota") == b"12"
    run(server, "queue", "delete", r".\orders")
    assert held(directory, "orders") is None


def test_the_api(server: ServerProcess, directory: LdapConnection) -> None:
    status, made = ask(server, "POST", "/queues", {"path": "orders", "public": True})
    assert (status, made["path"]) == (201, rf"{NAME}\orders")
    assert str(held(directory, "orders")) == made["id"]
    status, problem = ask(server, "POST", "/queues", {"path": "orders", "public": True})
    assert (status, problem["hresult"]) == (409, "0xC00E0005")
    status, problem = ask(server, "POST", "/queues", {"path": r"private$\orders", "public": True})
    assert status == 400
    assert ask(server, "DELETE", f"/queues/PUBLIC={made['id']}")[0] == 204
    assert held(directory, "orders") is None


def test_python(server: ServerProcess, directory: LdapConnection) -> None:
    with client.connect(server.api, token="a-token-for-tests") as manager:
        queue = manager.create_queue("orders", public=True, transactional=True)
        assert queue.info().transactional
        assert manager.create_queue("orders", public=True, transactional=True, exist_ok=True).info().id
        queue.delete()
    assert held(directory, "orders") is None


def test_definitions(server: ServerProcess, directory: LdapConnection, tmp_path: Path) -> None:
    run(server, "queue", "create", "orders", "--public", "--label", "Orders")
    run(server, "queue", "acl", "grant", r".\orders", "S-1-5-21-1-2-3-77", "receive")
    run(server, "definitions", "export", str(tmp_path / "queues.toml"))
    run(server, "queue", "delete", r".\orders")
    run(server, "definitions", "import", str(tmp_path / "queues.toml"))
    assert held(directory, "orders") is not None
    assert "S-1-5-21-1-2-3-77" in run(server, "queue", "acl", "show", r".\orders", "--sddl")
    run(server, "queue", "delete", r".\orders")


def test_a_directory_that_refuses(
    server: ServerProcess, directory: LdapConnection, place: Path, domain_controller: Controller, user: str
) -> None:
    """The same manager with an account that has no rights."""
    run(server, "queue", "create", "mine", "--public")
    server.close()
    process = ServerProcess(configured(place, domain_controller, user))
    try:
        status, problem = ask(process, "POST", "/queues", {"path": "orders", "public": True})
        assert (status, problem["hresult"], problem["code"]) == (403, "0xC00E0025", "ACCESS_DENIED")
        assert "postroad directory check" in str(problem["detail"])
        assert ask(process, "GET", r"/queues/.%5Corders")[0] == 404
        assert ask(process, "PATCH", r"/queues/.%5Cmine", {"label": "x"})[0] == 403
        assert ask(process, "GET", r"/queues/.%5Cmine")[1]["label"] == ""
        assert "does not let" in run(process, "queue", "create", "orders", "--public", code=1)
    finally:
        process.close()
    assert held(directory, "orders") is None


def test_killed_while_it_creates(server: ServerProcess, directory: LdapConnection, place: Path) -> None:
    """What is in the directory and what is here agree after the next start."""
    for number in range(5):
        ask(server, "POST", "/queues", {"path": f"before{number}", "public": True})
    server.end(signal.SIGKILL)
    directory.add(f"CN=half,CN=msmq,CN={NAME},{COMPUTERS}", {"objectClass": ["mSMQQueue"]})
    process = ServerProcess(place / "postroad.toml")
    try:
        for name in ("half", *(f"before{number}" for number in range(5))):
            status, found = ask(process, "GET", f"/queues/.%5C{name}")
            assert (status, found["id"]) == (200, str(held(directory, name)))
    finally:
        process.close()
