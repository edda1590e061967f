"""The `postroad` command itself: versions, help, and one line for whoever uses it wrongly."""

from __future__ import annotations

import subprocess
import sys

import pytest

from postroad import __version__


def postroad(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "postroad", *arguments], capture_output=True, text=True, check=False)


def test_the_version() -> None:
    run = postroad("--version")
    assert (run.returncode, run.stdout, run.stderr) == (0, f"postroad {__version__}\n", "")


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], ["decode", "--help"], ["serve", "--help"]])
def test_help(arguments: list[str]) -> None:
    run = postroad(*arguments)
    assert (run.returncode, run.stderr) == (0, "")
    assert "Usage: postroad" in run.stdout


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
    ],
    ids=" ".join,
)
def test_wrong_usage_is_one_line(arguments: list[str]) -> None:
    run = postroad(*arguments)
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr.startswith("postroad: ")
    assert run.stderr.count("\n") == 1


def test_serving_is_not_part_of_this_version() -> None:
    run = postroad("serve", "-c", "postroad.toml")
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr == "postroad: serving is not part of this version\n"


def test_commands_load_what_they_need_when_they_run() -> None:
    script = "import sys, postroad.cli; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert not {"rich.console", "postroad.wire", "postroad.capture", "json"} & set(run.stdout.split())
