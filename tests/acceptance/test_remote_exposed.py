"""Remote readers of a manager that other computers can reach: who may read, and what prevents a start."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands import Outcome, ServerProcess, postroad, serving
from tests.remote.stranger import StrangeReader, stranger

QUEUE = r"private$\orders"
USER = '[[user]]\nname = "reader"\npassword_file = "reader.pw"\n'
LOGIN = ("--user", "reader", "--password", "a secret")
DENIED = 0xC00E0025


def write(directory: Path, rest: str = "", rpc: str = "rpc = 0", host: str = "0.0.0.0") -> Path:
    (directory / "reader.pw").write_text("a secret\n", encoding="utf-8")
    file = directory / "alpha.toml"
    file.write_text(
        f'[manager]\nname = "alpha"\n[listen]\nhost = "{host}"\nbinary = 0\nping = 0\nhttp = 0\napi = 0\n{rpc}\n'
        f"[api]\ntoken = 'token'\n[[queue]]\npath = '{QUEUE}'\n{rest}",
        encoding="utf-8",
    )
    return file


def remote(server: ServerProcess, verb: str, *options: str, host: str = "127.0.0.1") -> Outcome:
    port = server.ready["listen"]["rpc"].rpartition(":")[2]
    return postroad("remote", verb, f"{host}:{port}", QUEUE, *options)


def fill(server: ServerProcess) -> None:
    api = f"http://127.0.0.1:{server.ready['listen']['api'].rpartition(':')[2]}"
    assert postroad("send", QUEUE, "--body", "one", "--token", "token", api=api).code == 0


@pytest.mark.parametrize(
    ("rest", "rpc", "key", "words"),
    [
        ("", "rpc = 0", "user: is missing", ["[[user]]", "rpc.anonymous = true", "listen.rpc = false"]),
        ("", "", "user: is missing", ["[[user]]", "rpc.anonymous = true", "listen.rpc = false"]),
        ("[rpc]\nauthenticate = true\n", "rpc = 0", "user: is missing", ["[[user]]", "listen.rpc = false"]),
        (
            f"[rpc]\nauthenticate = false\n{USER}",
            "rpc = 0",
            "rpc.authenticate: must",
            ["[[user]]", "rpc.anonymous = true", "listen.rpc = false"],
        ),
        (
            f"[rpc]\nauthenticate = true\nanonymous = true\n{USER}",
            "rpc = 0",
            "rpc.anonymous: must not be true",
            [],
        ),
    ],
)
def test_a_manager_that_strangers_could_read_does_not_start(
    tmp_path: Path, rest: str, rpc: str, key: str, words: list[str]
) -> None:
    file = write(tmp_path, rest, rpc)
    refused = postroad("serve", "-c", str(file))
    assert (refused.code, refused.output) == (2, b"")
    assert f"{file}: {key}" in refused.last_error
    assert [word for word in words if word not in refused.last_error] == []
    assert "Traceback" not in refused.errors
    assert not (tmp_path / "data").exists()


def test_on_an_address_of_others_only_users_read(tmp_path: Path) -> None:
    with serving(write(tmp_path, USER)) as server:
        fill(server)
        for verb in ("peek", "receive", "purge"):
            stranger = remote(server, verb)
            assert stranger.code == 1
            assert "Traceback" not in stranger.errors
        assert remote(server, "receive", *LOGIN).code == 0
        assert remote(server, "receive", "--user", "reader", "--password", "a guess").code == 1
        assert "login refused door=rpc address=127.0.0.1 who=reader" in server.log
        assert "Traceback" not in server.log


def test_nobody_else_uses_a_readers_handle(tmp_path: Path) -> None:
    with serving(write(tmp_path, USER)) as server, stranger() as client:
        fill(server)
        address = ("127.0.0.1", int(server.ready["listen"]["rpc"].rpartition(":")[2]))
        reader = StrangeReader(client, address, rf"OS:alpha\{QUEUE}", user="reader", password="a secret", level=6)
        client.call("thief", "connect", host=address[0], port=address[1], interface="qm2qm")
        assert client.call("thief", "open_queue", queue=reader.handle)["status"] == DENIED
        assert client.call("thief", "start2", **reader.fields(0))["status"] == DENIED
        assert client.call("thief", "purge", handle=reader.handle)["status"] == DENIED
        assert reader.read()["status"] == 0
        assert reader.end(2)["status"] == 0


def test_anonymous_readers_are_let_in_where_the_configuration_says_so(tmp_path: Path) -> None:
    with serving(write(tmp_path, "[rpc]\nanonymous = true\n")) as server:
        fill(server)
        assert remote(server, "receive").code == 0


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_on_loopback_nobody_has_to_log_in(tmp_path: Path, host: str) -> None:
    with serving(write(tmp_path, host=host)) as server:
        fill(server)
        assert remote(server, "receive", host=host).code == 0


def test_without_remote_readers_there_is_nothing_to_ask_for(tmp_path: Path) -> None:
    with serving(write(tmp_path, rpc="rpc = false")) as server:
        assert "rpc" not in server.ready["listen"]


def test_a_host_that_cannot_be_found_is_named_as_such(tmp_path: Path) -> None:
    refused = postroad("serve", "-c", str(write(tmp_path, host="nowhere.invalid")))
    assert refused.code == 2
    assert "listen.host: cannot listen on nowhere.invalid" in refused.last_error


@pytest.mark.parametrize("host", ["0.0.0.0", "127.0.0.1"])
def test_the_minimum_level_is_asked_of_users(tmp_path: Path, host: str) -> None:
    """Our own commands seal every call, so they can read wherever users can."""
    with serving(
        write(tmp_path, f'[rpc]\nauthenticate = true\nminimum_level = "privacy"\n{USER}', host=host)
    ) as server:
        fill(server)
        assert remote(server, "receive", *LOGIN).code == 0
