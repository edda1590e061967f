"""SIGHUP: the configuration is read again. The log says what takes effect, what needs a restart and what is wrong."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from tests.commands import ServerProcess, postroad, serving

CONFIG = r"""
[manager]
name = "alpha"
data = "data"
[listen]
binary = false
ping = false
http = false
rpc = false
api = 0
[api]
token = "first"
[[queue]]
path = 'private$\orders'
"""
PATIENCE_S = 60


def reload(server: ServerProcess, config: Path, text: str, line: str = "configuration") -> str:
    """The log lines that follow from a new configuration, up to one with these words."""
    config.write_text(text)
    before = len(server.log)
    os.kill(server.pid, signal.SIGHUP)
    deadline = time.monotonic() + PATIENCE_S
    while line not in server.log[before:] and time.monotonic() < deadline:
        time.sleep(0.05)
    return server.log[before:]


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "alpha.toml"
    file.write_text(CONFIG)
    return file


def test_what_can_change_counts_at_once(config: Path) -> None:
    more = "label = 'new'\n[[queue]]\npath = 'private$\\more'\n[[user]]\nname = 'ann'\npassword = 'word'\n"
    with serving(config) as server:
        log = reload(server, config, CONFIG.replace("first", "second") + more)
        assert 'configuration read again taken="api.token, user, queue"' in log
        assert postroad("queue", "list", "--token", "first", api=server.api).code == 1
        found = postroad("queue", "list", "--token", "second", "--json", api=server.api).objects
        assert {r"private$\orders": "new", r"private$\more": ""}.items() <= {
            each["path"]: each["label"] for each in found
        }.items()
        (shown,) = postroad("status", "--token", "second", "--json", api=server.api).objects
        (row,) = [each for each in shown["exposure"] if each["listener"] == "api"]
        assert row["allows"].endswith("users may do what access lists allow")  # there was no user before
        login = {"POSTROAD_USER": "ann", "POSTROAD_PASSWORD": "word"}
        assert postroad("queue", "list", api=server.api, variables=login).code == 0
        assert "nothing has changed" in reload(server, config, config.read_text())
        assert server.end() == (0, b"")
        assert "restart" not in server.log


def test_what_needs_a_restart_is_named(config: Path) -> None:
    with serving(config) as server:
        text = CONFIG.replace("ping = false", "ping = 0") + "[binary]\nwindow_size = 7\n"
        log = reload(server, config, text, "need a restart")
        assert 'settings need a restart of the manager settings="listen.ping, binary.window_size"' in log
        assert "taken=nothing" in log


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("[limits]\nconnections = -1\n", "limits.connections"),
        ("not toml", "line"),
        ("transactional = true\n[[queue]]\npath = 'private$\\new'\n", "queue[1].transactional: must be false"),
        ("[[user]]\nname = 'everyone'\npassword = 'x'\n", "user[1].name"),
    ],
)
def test_after_a_fault_the_old_configuration_stays(config: Path, change: str, words: str) -> None:
    with serving(config) as server:
        log = reload(server, config, CONFIG.replace("first", "second") + change)
        assert "error configuration not taken; the manager goes on with the one it has" in log
        assert words in log
        found = postroad("queue", "list", "--json", "--token", "first", api=server.api)
        assert [each["path"] for each in found.objects if each["path"] == r"private$\new"] == []
        assert found.code == 0


def test_the_level_of_the_log_changes_at_run_time(config: Path) -> None:
    with serving(config) as server:
        token = ("--token", "first")
        assert postroad("log-level", *token, api=server.api).text == "info\n"
        assert postroad("log-level", "warning", *token, "--json", api=server.api).objects == [{"level": "warning"}]
        postroad("queue", "create", r"private$\quiet", *token, api=server.api)
        assert postroad("log-level", "loud", *token, api=server.api).code == 2
        log = reload(server, config, CONFIG + "[log]\nlevel = 'debug'\n")
        assert "log.level" in log
        assert postroad("log-level", *token, api=server.api).text == "debug\n"


def test_the_option_wins_over_the_configuration(config: Path) -> None:
    config.write_text(CONFIG + "[log]\nlevel = 'error'\n")
    with serving(config, "--log-level", "info") as server:
        assert postroad("log-level", "--token", "first", api=server.api).text == "info\n"
    with serving(config) as server:
        assert postroad("log-level", "--token", "first", api=server.api).text == "error\n"


def test_the_disk_is_in_status_and_metrics(config: Path) -> None:
    import urllib.request

    with serving(config) as server:
        disk = postroad("status", "--json", "--token", "first", api=server.api).objects[0]["manager"]["disk"]
        assert disk["database"] > 0
        assert disk["total"] >= disk["free"] > 0
        request = urllib.request.Request(f"{server.api}/metrics", headers={"Authorization": "Bearer first"})
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            page = answer.read().decode()
    assert 'postroad_disk_bytes{use="database"}' in page
    assert "postroad_disk_free_bytes" in page
