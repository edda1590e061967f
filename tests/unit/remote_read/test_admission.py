"""Whether remote readers must log in: every combination of the settings, and of what is not installed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from postroad.config import Configuration, ListenSettings, RpcSettings, User, default_configuration
from postroad.errors import ConfigurationError
from postroad.remote_read import readers
from postroad.remote_read.readers import readers_log_in

ANN = (User(name="ann", password="secret"),)


def config(authenticate: bool | None, anonymous: bool = False, users: tuple[User, ...] = ANN) -> Configuration:
    rpc = RpcSettings(authenticate=authenticate, anonymous=anonymous)
    return replace(default_configuration(), rpc=rpc, users=users)


@pytest.mark.parametrize(
    ("authenticate", "anonymous", "reachable", "expected"),
    [
        (None, False, False, False),
        (None, False, True, True),
        (None, True, True, False),
        (None, True, False, False),
        (True, False, False, True),
        (True, False, True, True),
        (False, False, False, False),
        (False, True, True, False),
        (False, True, False, False),
        (False, False, True, "rpc.authenticate"),
        (True, True, False, "rpc.anonymous"),
        (True, True, True, "rpc.anonymous"),
    ],
)
def test_who_logs_in(authenticate: bool | None, anonymous: bool, reachable: bool, expected: bool | str) -> None:
    if isinstance(expected, bool):
        assert readers_log_in(config(authenticate, anonymous), reachable) is expected
        return
    with pytest.raises(ConfigurationError) as caught:
        readers_log_in(config(authenticate, anonymous), reachable)
    assert caught.value.key == expected


@pytest.mark.parametrize("authenticate", [None, True])
def test_where_logins_cannot_be_checked_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, authenticate: bool | None
) -> None:
    monkeypatch.setattr(readers, "can_authenticate", lambda: False)
    with pytest.raises(ConfigurationError, match=r"run pip install 'postroad\[auth\]'"):
        readers_log_in(config(authenticate), reachable=True)
    assert readers_log_in(config(None, anonymous=True), reachable=True) is False


def test_without_a_listener_nothing_is_asked() -> None:
    off = replace(config(None, users=()), listen=ListenSettings(rpc=None))
    assert readers_log_in(off, reachable=True) is False
