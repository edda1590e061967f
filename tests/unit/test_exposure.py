"""The table of listeners: who reaches each, and who may do what there."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from postroad.config import (
    ApiSettings,
    Configuration,
    ManagerSettings,
    RpcLevel,
    RpcSettings,
    SrmpSettings,
    User,
    load_configuration,
)
from postroad.server.exposure import RpcFacts, announce, exposure, is_open_to_strangers, readable_secrets

ALL = ("binary", "ping", "http", "https", "rpc", "epm", "api")
PLAIN = Configuration(manager=ManagerSettings(name="alpha"), file=None, data=Path("data"))
FILE = Path("file.pem")


def table(
    config: Configuration = PLAIN, *, reachable: bool = True, rpc: RpcFacts | None = None
) -> dict[str, tuple[str, str, str]]:
    found = exposure(config, dict.fromkeys(ALL, "there:1"), reachable=reachable, rpc=rpc or RpcFacts(True, ("ntlm",)))
    assert [each.listener for each in found] == list(ALL)
    assert {each.reachable for each in found} == {reachable}
    return {each.listener: (each.authentication, each.encryption, each.allows) for each in found}


def test_a_listener_that_is_off_has_no_row() -> None:
    (row,) = exposure(PLAIN, {"ping": "127.0.0.1:3527"}, reachable=False, rpc=RpcFacts(False))
    assert (row.listener, row.address, row.reachable) == ("ping", "127.0.0.1:3527", False)


def test_what_protocols_cannot_protect_is_said() -> None:
    found = table()
    assert found["binary"] == found["http"] == ("none", "none", "everybody may send messages")
    assert found["https"] == ("none", "tls", "everybody may send messages")
    assert table(reachable=False)["binary"][2] == "everybody on this computer may send messages"


@pytest.mark.parametrize(
    ("api", "row"),
    [
        (ApiSettings(), ("none", "none", "everybody on this computer may do everything")),
        (ApiSettings(token="x"), ("token", "none", "callers with the token may do everything")),
        (
            ApiSettings(client_ca=FILE, tls_certificate=FILE, tls_key=FILE),
            ("client certificate", "tls", "callers with the client certificate may do everything"),
        ),
        (
            ApiSettings(token="x", client_ca=FILE, tls_certificate=FILE, tls_key=FILE),
            ("token and client certificate", "tls", "callers with the token and client certificate may do everything"),
        ),
    ],
)
def test_the_api(api: ApiSettings, row: tuple[str, str, str]) -> None:
    assert table(replace(PLAIN, api=api), reachable=False)["api"] == row


def test_users_of_the_api_are_listed_beside_the_token() -> None:
    config = replace(PLAIN, api=ApiSettings(token="x"), users=(User(name="ann", password="y"),))
    allows = "callers with the token may do everything; users may do what access lists allow"
    assert table(config)["api"] == ("token", "none", allows)


@pytest.mark.parametrize(
    ("facts", "level", "row"),
    [
        (RpcFacts(False), RpcLevel.PRIVACY, ("none", "none", "everybody may read, receive and purge")),
        (
            RpcFacts(True, ("ntlm", "kerberos"), "there:2105"),
            RpcLevel.INTEGRITY,
            (
                "users (ntlm, kerberos)",
                "per call: signed or sealed",
                "users may read, receive and purge; on there:2105 too",
            ),
        ),
        (
            RpcFacts(True),
            RpcLevel.PRIVACY,
            ("users (ntlm)", "per call: sealed", "no one (there is no [[user]]) may read, receive and purge"),
        ),
    ],
)
def test_remote_readers(facts: RpcFacts, level: RpcLevel, row: tuple[str, str, str]) -> None:
    assert table(replace(PLAIN, rpc=RpcSettings(minimum_level=level)), rpc=facts)["rpc"] == row


def test_only_what_strangers_reach_unknown_and_unencrypted_is_warned_of() -> None:
    token = replace(PLAIN, api=ApiSettings(token="x"))
    found = exposure(token, dict.fromkeys(ALL, ""), reachable=True, rpc=RpcFacts(True, ("ntlm",)))
    assert [each.listener for each in found if is_open_to_strangers(each)] == ["binary", "ping", "http", "epm"]
    found = exposure(PLAIN, dict.fromkeys(ALL, ""), reachable=False, rpc=RpcFacts(False))
    assert not any(map(is_open_to_strangers, found))


@pytest.mark.skipif(sys.platform == "win32", reason="Unix permissions")
def test_files_with_secrets_that_others_can_read(tmp_path: Path) -> None:
    for name in ("token", "key.pem", "ann.pw", "bob.pw"):
        (tmp_path / name).write_text("secret")
        (tmp_path / name).chmod(0o600 if name == "bob.pw" else 0o640)
    config = replace(
        PLAIN,
        file=tmp_path / "alpha.toml",
        api=ApiSettings(token="secret", token_file=tmp_path / "token", tls_key=tmp_path / "key.pem"),
        srmp=SrmpSettings(tls_key=tmp_path / "key.pem"),
        users=(
            User(name="ann", password="secret", password_file=tmp_path / "ann.pw"),
            User(name="bob", password="secret", password_file=tmp_path / "bob.pw"),
        ),
    )
    found = [(key, file.name) for key, file in readable_secrets(config)]
    assert found == [("api.token_file", "token"), ("api.tls_key", "key.pem"), ("user[1].password_file", "ann.pw")]


@pytest.mark.skipif(sys.platform == "win32", reason="Unix permissions")
def test_the_configuration_itself_is_one_where_it_holds_a_password(tmp_path: Path) -> None:
    file = tmp_path / "alpha.toml"
    file.write_text('[manager]\nname = "alpha"\n[[user]]\nname = "ann"\npassword = "secret"\n')
    file.chmod(0o644)
    assert list(readable_secrets(load_configuration(file))) == [("user[1].password", file)]
    file.chmod(0o600)
    assert list(readable_secrets(load_configuration(file))) == []
    file.write_text('[manager]\nname = "alpha"\n')
    file.chmod(0o644)
    assert list(readable_secrets(load_configuration(file))) == []


@pytest.mark.parametrize("reachable", [False, True])
@pytest.mark.parametrize("authenticate", [False, True])
@pytest.mark.parametrize(
    "people", [{}, {"api": ApiSettings(token="x" * 40)}, {"users": (User(name="a", password="b"),)}]
)
def test_remote_readers_without_a_login_are_told_where_others_must_log_in(
    people: dict[str, Any], authenticate: bool, reachable: bool, caplog: pytest.LogCaptureFixture
) -> None:
    config = replace(PLAIN, **people)
    listeners = exposure(config, {"rpc": "there:1"}, reachable=reachable, rpc=RpcFacts(authenticate, ("ntlm",)))
    announce(config, listeners)
    told = [each for each in caplog.records if getattr(each, "setting", None) == "rpc.authenticate"]
    assert len(told) == (1 if people and not authenticate and not reachable else 0)
    caplog.clear()
    announce(replace(config, rpc=RpcSettings(anonymous=True)), listeners)
    assert not [each for each in caplog.records if getattr(each, "setting", None) == "rpc.authenticate"]
