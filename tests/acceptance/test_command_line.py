"""The `postroad` command itself: versions, help, and one line for anybody who uses it wrongly."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import postroad as postroad_client
from postroad import __version__
from postroad.cli.commands import COMMANDS, load
from tests.faces import served


def postroad(*arguments: str, environment: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "postroad", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def test_the_version() -> None:
    run = postroad("--version")
    assert (run.returncode, run.stdout, run.stderr) == (0, f"postroad {__version__}\n", "")


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], ["decode", "--help"], ["serve", "--help"]])
def test_help(arguments: list[str]) -> None:
    run = postroad(*arguments)
    assert (run.returncode, run.stderr) == (0, "")
    assert "Usage: postroad" in run.stdout


def test_a_group_without_a_command_shows_its_help() -> None:
    run = postroad("remote")
    assert (run.returncode, run.stderr) == (2, "")
    assert run.stdout == postroad("remote", "--help").stdout


def test_the_list_of_commands_has_whole_sentences_and_loads_no_rich() -> None:
    program = "import sys; from postroad.cli import main; main(['--help']); sys.exit('rich' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr) == (0, "")
    shown = " ".join(run.stdout.split())
    assert [name for name, source in COMMANDS.items() if f"{name} {source.help}" not in shown] == []


def test_the_list_of_commands_says_of_each_what_its_own_help_says() -> None:
    for name, source in COMMANDS.items():
        first, _, _ = (load(name).help or "").partition("\n\n")
        assert " ".join(first.split()) == source.help, name


@pytest.mark.parametrize("arguments", [["queue", "list"], ["status"], ["peek", "private$\\q"]])
def test_a_small_command_loads_no_more_than_it_needs(arguments: list[str], tmp_path: Path) -> None:
    heavy = ["aiohttp", "asyncio", "pydantic", "rich", "apsw", "postroad.queues", "postroad.store", "postroad.spark"]
    if "peek" not in arguments:  # no message, so nothing about packets
        heavy += ["postroad.wire", "postroad.message", "postroad.describe.received"]
    program = f"""
import sys
from postroad.cli import main

main({arguments!r})
print([name for name in {heavy!r} if name in sys.modules], file=sys.stderr)
"""
    with served(tmp_path) as url, postroad_client.connect(url) as manager:
        manager.create_queue("private$\\q").send("text")
        environment = {**os.environ, "POSTROAD_API": url}
        run = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=False
        )
    assert run.stderr == "[]\n"
    assert run.stdout


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with served(tmp_path_factory.mktemp("served")) as url, postroad_client.connect(url) as manager:
        manager.create_queue("private$\\q")
        yield url


NOBODY = "http://127.0.0.1:9"


@pytest.mark.parametrize(
    ("arguments", "variable"),
    [
        (["--api", "URL", "--json", "queue", "show", "private$\\q"], ""),
        (["--json", "queue", "show", "private$\\q", "--api", "URL"], NOBODY),
        (["--api", "URL", "queue", "show", "private$\\q", "--json"], NOBODY),
        (["--api", NOBODY, "queue", "show", "private$\\q", "--json", "--api", "URL"], NOBODY),
        (["--json", "queue", "show", "private$\\q"], "URL"),
    ],
)
def test_options_of_all_commands_stand_before_the_command_or_behind_it(
    arguments: list[str], variable: str, api: str
) -> None:
    """The last one wins, and any of them overrides the environment."""
    environment = {**os.environ, "POSTROAD_API": variable.replace("URL", api)}
    run = postroad(*(each.replace("URL", api) for each in arguments), environment=environment)
    assert (run.returncode, run.stderr) == (0, "")
    assert json.loads(run.stdout)["path"] == "private$\\q"


def test_a_token_before_the_command_wins_over_a_file(api: str, tmp_path: Path) -> None:
    environment = {**os.environ, "POSTROAD_API": api, "POSTROAD_TOKEN_FILE": str(tmp_path / "missing")}
    assert postroad("--token", "secret", "queue", "list", environment=environment).returncode == 0
    without = postroad("queue", "list", environment=environment)
    assert (without.returncode, without.stdout) == (2, "")
    assert without.stderr == f"postroad: POSTROAD_TOKEN_FILE: {tmp_path / 'missing'}: No such file or directory\n"


def test_commands_without_an_api_know_json_before_their_name_too() -> None:
    run = postroad("--json", "ping", "127.0.0.1", "--port", "9", "--timeout", "0.1")
    assert json.loads(run.stdout)["host"] == "127.0.0.1"


def test_no_command_at_all() -> None:
    run = postroad()
    assert run.returncode == 2
    assert "decode" in run.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ["nothing"],
        ["decode"],
        ["decode", "one", "two"],
        ["decode", "--nothing", "file"],
        ["decode", "--port", "0", "file"],
        ["decode", "--port", "65536", "file"],
        ["decode", "--port", "msmq", "file"],
        ["decode", "--ping-port"],
        ["serve", "-c"],
        ["serve", "-c", "no-such-file.toml"],
        ["queue"],
        ["queue", "create"],
        ["queue", "set", r"private$\q"],
        ["queue", "set", r"private$\q", "--quota-kb", "much"],
        ["queue", "create", r"private$\q", "--privacy", "full"],
        ["send"],
        ["send", r"private$\q", "text"],
        ["send", r"private$\q", "--body", "x", "--file", "y"],
        ["send", r"private$\q", "--file", "no-such-file"],
        ["send", r"private$\q", "--priority", "8"],
        ["send", r"private$\q", "--ack", "sometimes"],
        ["send", r"private$\q", "--correlation", "17"],
        ["send", r"private$\q", "--trace", r"private$\q"],
        ["send", r"private$\q", "--count", "0"],
        ["send", r"private$\q", "--sign", "certificate"],
        ["send", r"private$\q", "--encrypt", "body"],
        ["decode", "--verify"],
        ["send", r"private$\q", "--ack", "full"],
        ["send", "orders"],
        ["receive", "DIRECT=OS:alpha"],
        ["receive", r"private$\q", "--count", "0"],
        ["receive", r"private$\q", "--lookup", str(2**63)],
        ["receive", r"private$\q", "--lookup", "1", "--count", "2"],
        ["peek", r"private$\q", "--lookup", "1", "--count", "2"],
        ["peek", r"private$\q", "--timeout", "nan"],
        ["browse", r"private$\q", "--after", str(2**63)],
        ["export", r"private$\q", "file", "--keep", "--remove"],
        ["export", r"private$\q", "-", "--json"],
        ["queue", "list", "--api", "alpha"],
        ["receive", r"private$\q", "--timeout", "-1"],
        ["peek", r"private$\q", "--json", "--raw"],
        ["browse", r"private$\q", "--where", "labl == 1"],
        ["move", r"private$\q", r"private$\r"],
        ["move", r"private$\q", r"private$\r", "--all", "--where", "true"],
        ["move", r"private$\q", r"private$\r", "--where", "priority >"],
        ["import", r"private$\q", "no-such-file"],
    ],
    ids=" ".join,
)
def test_wrong_usage_is_one_line(arguments: list[str]) -> None:
    run = postroad(*arguments)
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr.startswith("postroad: ")
    assert run.stderr.count("\n") == 1


def test_an_api_that_is_no_url_is_called_by_the_name_of_its_option() -> None:
    run = postroad("status", "--api", "127.0.0.2:8180")
    assert run.returncode == 2
    assert run.stderr.startswith("postroad: --api: must be the address of an HTTP API, such as http://")


def test_commands_load_what_they_need_when_they_run() -> None:
    script = "import sys; before = {*sys.modules}; import postroad.cli; print(*{*sys.modules} - before)"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert not {"rich.console", "postroad.wire", "postroad.describe.capture", "json"} & set(run.stdout.split())
