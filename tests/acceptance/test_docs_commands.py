"""The commands of the how-to pages run as written, from the first line to the last; only addresses differ."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

import postroad as client
from tests.commands import PATIENCE_S, serving

ROOT = Path(__file__).parents[2]
HOW_TO = ROOT / "docs" / "how-to"
HERE = "127.0.20.7"  # instead of `127.0.0.`: addresses that no other test has


def blocks(page: str, language: str, chapter: str = "") -> list[str]:
    text = (HOW_TO / page).read_text(encoding="utf-8")
    text = text[text.index(chapter) :]
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


class Shell:
    """Runs the lines of a block in one directory, with `postroad` on the path."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.environment = dict(os.environ)
        command = directory / "bin" / "postroad"
        command.parent.mkdir()
        command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m postroad "$@"\n')
        command.chmod(0o755)
        self.environment["PATH"] = f"{command.parent}:{os.environ['PATH']}"

    def run(self, script: str) -> str:
        done = subprocess.run(
            ["sh", "-e", "-c", script],
            cwd=self.directory,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        assert done.returncode == 0, f"{script}\n{done.stderr}"
        return done.stdout


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def test_messages_are_kept_in_files_and_brought_back(shell: Shell) -> None:
    file = shell.directory / "alpha.toml"
    file.write_text('[manager]\nname = "alpha"\n[listen]\nbinary = false\nping = false\napi = 0\n', encoding="utf-8")
    with serving(file) as server, client.connect(server.api) as manager:
        shell.environment["POSTROAD_API"] = server.api
        orders = manager.create_queue(r"private$\orders")
        orders.send([client.Message(f"order {number}", recoverable=True) for number in range(3)])
        (keep, bring_back) = blocks("rescue-messages.md", "sh", "## Keep in a file")
        assert "3 messages" in shell.run(keep)
        assert orders.info().messages == 0
        shell.run(bring_back)
        assert [message.text for message in orders.messages()] == ["order 0", "order 1", "order 2"]


def test_a_stuck_message_is_got_out_of_its_queue(shell: Shell) -> None:
    file = shell.directory / "alpha.toml"
    file.write_text('[manager]\nname = "alpha"\n[listen]\nbinary = false\nping = false\napi = 0\n', encoding="utf-8")
    with serving(file) as server, client.connect(server.api) as manager:
        shell.environment["POSTROAD_API"] = server.api
        manager.send(r"DIRECT=TCP:10.0.0.63\private$\orders", client.Message("order 17", recoverable=True))
        (lines,) = blocks("find-a-stuck-message.md", "sh", "## Get it out of the queue")
        assert "moved 1 message" in shell.run(lines)
        assert [message.text for message in manager.queue(r"private$\parked").messages()] == ["order 17"]


def test_two_managers_and_the_way_between_them(shell: Shell) -> None:
    london, paris, enterprise = (text.replace("127.0.0.", HERE) for text in blocks("join-queue-managers.md", "toml"))
    (shell.directory / "enterprise.toml").write_text(enterprise)
    ports = "http = false\nrpc = false\n"
    _start, direct, ways, public, status = (
        text.replace("127.0.0.", HERE) for text in blocks("join-queue-managers.md", "sh")
    )
    with ExitStack() as stack:
        for name, text in (("london", london), ("paris", paris)):
            file = shell.directory / f"{name}.toml"
            file.write_text(text.replace("[directory]", f"{ports}[directory]"))
            stack.enter_context(serving(file))
        assert "hello" in shell.run(direct)
        found = shell.run(ways)
        assert found.count("route     london -> paris") == 2
        traced = shell.run(public)
        assert "ten boxes" in traced
        assert r"in paris\orders, not received yet" in traced
        assert f"out {HERE}3" in shell.run(status)


@pytest.mark.skipif(shutil.which("curl") is None, reason="the lines use curl")
def test_the_examples_of_soap_arrive_with_their_bodies(shell: Shell) -> None:
    (shell.directory / "examples").symlink_to(ROOT / "examples")
    file = shell.directory / "alpha.toml"
    listen = "binary = false\nping = false\nrpc = false\nhttp = 0\napi = 0\n"
    file.write_text(f'[manager]\nname = "alpha"\n[listen]\n{listen}', encoding="utf-8")
    with serving(file) as server, client.connect(server.api) as manager:
        shell.environment["POSTROAD_API"] = server.api
        (lines,) = blocks("send-by-soap.md", "sh", "## Receive")
        *sending, receiving = lines.splitlines()
        shell.run("\n".join(sending).replace("http://127.0.0.1/", f"http://{server.ready['listen']['http']}/"))
        received = [(each.label, each.body, each.delivery) for each in manager.queue(r"private$\orders").messages()]
        assert received == [("order 1", b"", "express"), ("order 2", b"ten boxes", "recoverable")]
        assert "ten boxes" in shell.run(receiving)
