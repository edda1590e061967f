"""`postroad serve`: the ready line, signals, restarts, and what prevents a start."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

import postroad as client
from tests.commands import postroad, serving

QUEUES = r"""
[[queue]]
path = 'private$\orders'
transactional = true
[[queue]]
path = 'private$\plain'
label = "first"
quota_kb = 100
"""


def write(directory: Path, text: str, name: str = "alpha.toml") -> Path:
    file = directory / name
    file.write_text(text, encoding="utf-8")
    return file


def config(port: int = 0, rest: str = "") -> str:
    return f'[manager]\nname = "alpha"\n[listen]\nbinary = 0\nping = 0\nhttp = 0\nrpc = 0\napi = {port}\n{rest}'


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_one_line_when_ready_and_a_clean_end(tmp_path: Path, number: signal.Signals) -> None:
    with serving(write(tmp_path, config())) as server:
        assert set(server.ready) == {"ready", "name", "id", "listen"}
        assert (server.ready["ready"], server.ready["name"]) == (True, "alpha")
        # The endpoint mapper is there only if the test may listen on 135, and nobody else does.
        assert set(server.ready["listen"]) - {"epm"} == {"binary", "ping", "http", "rpc", "api"}
        with client.connect(server.api) as manager:
            assert manager.info().id == server.ready["id"]
        assert server.end(number) == (0, b"")
        events = [line.split(" ", 2)[1:] for line in server.log.splitlines()]
        assert ["info", "stopped"] in events
    assert (tmp_path / "data" / "alpha").is_dir()


@pytest.mark.spec("QB-6-25")
def test_a_kill_loses_nothing_durable_and_the_port_is_free_at_once(tmp_path: Path) -> None:
    with serving(write(tmp_path, config(rest=QUEUES))) as server:
        identifier = server.ready["id"]
        port = int(server.ready["listen"]["api"].rpartition(":")[2])
        with client.connect(server.api) as manager:
            plain = manager.queue(r"private$\plain")
            plain.send([client.Message("kept", recoverable=True), client.Message("express")])
            manager.queue(r"private$\orders").send([b"1", b"2"], transactional=True)
        assert server.end(signal.SIGKILL)[0] == -signal.SIGKILL
    with serving(write(tmp_path, config(port, QUEUES))) as server:
        assert server.ready["id"] == identifier
        with client.connect(server.api) as manager:
            assert [each.text for each in manager.queue(r"private$\plain").messages()] == ["kept"]
            assert [each.body for each in manager.queue(r"private$\orders").messages()] == [b"1", b"2"]


def test_queues_of_the_configuration_are_made_and_changed_but_keep_their_kind(tmp_path: Path) -> None:
    with serving(write(tmp_path, config(rest=QUEUES))) as server:
        with client.connect(server.api) as manager:
            plain = manager.queue(r"private$\plain").info()
            assert (plain.label, plain.quota_kb, plain.transactional) == ("first", 100, False)
            assert manager.queue(r"private$\orders").info().transactional
        server.end()
    changed = QUEUES.replace('"first"', '"second"').replace("quota_kb = 100", 'journal = true\nprivacy = "none"')
    with serving(write(tmp_path, config(rest=changed))) as server:
        with client.connect(server.api) as manager:
            again = manager.queue(r"private$\plain").info()
            assert (again.label, again.quota_kb, again.journal, again.privacy) == ("second", None, True, "none")
            assert again.id == plain.id
        server.end()
    file = write(tmp_path, config(rest=QUEUES.replace("transactional = true", "transactional = false")))
    refused = postroad("serve", "-c", str(file))
    assert refused.code == 2
    assert f"{file}: queue[1].transactional: " in refused.last_error
    assert "must be true, which the queue" in refused.last_error


def test_public_queues_of_the_directory_are_here_from_the_start(tmp_path: Path) -> None:
    manager_id, queue_id = "8f3c6a52-0d1e-4b7a-9c55-2f1f0f6f7a10", "0d9bdcd6-1b1c-4b6a-8a7e-6f6f3a0f6b11"
    directory = rf"""
[[site]]
name = "london"
[[manager]]
name = "alpha"
id = "{manager_id}"
address = "127.0.0.9"
sites = ["london"]
[[manager]]
name = "beta"
id = "{queue_id}"
sites = ["london"]
[[queue]]
path = 'beta\other'
id = "{manager_id}"
[[queue]]
path = 'ALPHA\orders'
id = "{queue_id}"
"""
    write(tmp_path, directory, "enterprise.toml")
    with (
        serving(write(tmp_path, config(rest='[directory]\nfile = "enterprise.toml"\n'))) as server,
        client.connect(server.api) as manager,
    ):
        assert server.ready["id"] == manager_id
        manager.send(f"PUBLIC={queue_id}", "by its id")
        manager.send(r"DIRECT=TCP:127.0.0.9\orders", "by the directory's address")
        manager.send(r"DIRECT=TCP:127.0.0.1\orders", "by the listener's address")
        info = manager.queue(r"alpha\orders").info()
        assert (info.format_name, info.messages, info.type) == (f"PUBLIC={queue_id}", 3, "public")
        with pytest.raises(client.QueueNotFound):
            manager.queue(r"alpha\other").info()
    write(tmp_path, directory.replace('["london"]', '["lodnon"]'), "enterprise.toml")
    refused = postroad("serve", "-c", str(tmp_path / "alpha.toml"))
    assert refused.code == 2
    assert refused.last_error.endswith(
        f"{tmp_path / 'enterprise.toml'}: manager[1].sites[1]: there is no site lodnon; did you mean london?"
    )


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (config().replace("api = 0", "api = 70000"), "listen.api: must be between 0 and 65535, got 70000"),
        (config().replace("api = 0", "apy = 0"), "listen.apy: there is no such setting; did you mean api?"),
        (config(rest="[binary]\nwindow_size = '64'\n"), "binary.window_size: must be a whole number, got the text"),
        (config(rest="[[queue]]\npath = 'orders'\n"), "queue[1].path: "),
        ("[manager\n", "line 1"),
    ],
)
def test_a_bad_configuration_is_named_in_the_last_line(tmp_path: Path, text: str, line: str) -> None:
    file = write(tmp_path, text)
    refused = postroad("serve", "-c", str(file))
    assert (refused.code, refused.output) == (2, b"")
    assert refused.last_error.startswith(f"postroad: {file}: {line}")


LISTENERS = ("binary", "ping", "http", "rpc", "api")


@pytest.mark.parametrize("listener", LISTENERS)
def test_an_address_of_another_computer_is_the_hosts_fault(tmp_path: Path, listener: str) -> None:
    token = "[api]\ntoken = 'secret'\n[rpc]\nanonymous = true\n"  # such an address is not loopback
    listeners = "\n".join(f"{each} = {0 if each == listener else 'false'}" for each in LISTENERS)
    file = write(tmp_path, f'[manager]\nname = "alpha"\n[listen]\nhost = "192.0.2.1"\n{listeners}\n{token}')
    refused = postroad("serve", "-c", str(file))
    assert (refused.code, refused.output) == (2, b"")
    assert refused.last_error.startswith(f"postroad: {file}: listen.host: cannot listen on 192.0.2.1:0: ")
    assert refused.last_error.endswith("; set it to an address of this computer")


def test_what_the_computer_cannot_give_is_one_clear_line(tmp_path: Path) -> None:
    with serving(write(tmp_path, config())) as server:
        same_data = postroad("serve", "-c", str(tmp_path / "alpha.toml"))
        port = int(server.ready["listen"]["api"].rpartition(":")[2])
        same_port = postroad("serve", "-c", str(write(tmp_path, config(port).replace("alpha", "beta"), "beta.toml")))
    assert (same_data.code, same_data.output) == (1, b"")
    assert "in use by process" in same_data.last_error
    assert (same_port.code, same_port.output) == (1, b"")
    assert f"listen.api: cannot listen on 127.0.0.1:{port}" in same_port.last_error
    assert same_port.last_error.endswith("; stop the program that uses it, or set another port")
    (tmp_path / "file").touch()
    no_directory = postroad(
        "serve", "-c", str(write(tmp_path, config().replace("[listen]", 'data = "file/x"\n[listen]')))
    )
    assert (no_directory.code, no_directory.output) == (1, b"")
    assert (
        f"{tmp_path / 'file' / 'x'}: the data directory cannot be created: Not a directory" in no_directory.last_error
    )


def test_a_token_is_asked_for_and_logs_can_be_json(tmp_path: Path) -> None:
    with serving(write(tmp_path, config(rest='[api]\ntoken = "s3cret"\n')), "--log-json") as server:
        refused = postroad("status", api=server.api)
        assert refused.code == 1
        assert "token" in refused.last_error
        assert postroad("status", "--token", "s3cret", api=server.api).code == 0
        server.end()
        events = [json.loads(line) for line in server.log.splitlines()]
    assert [each["event"] for each in events][-1] == "stopped"
    assert all({"time", "level", "event"} <= set(each) for each in events)
