"""The commands of the how-to pages run as written, from the first line to the last; only addresses differ."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from base64 import b64decode
from contextlib import ExitStack
from pathlib import Path
from uuid import UUID

import pytest

import postroad as client
from postroad.message import Composer
from postroad.names import parse_format_name
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


DOTNET = {
    "mono/system.messaging/xml": "xml",
    "mono/system.messaging/binary": "binary",
    "core/activex/lpwstr/unicode": "activex",
    "core/activex/currency/129.9": "activex",
    "core/netmsmq/request": "wcf",
    "core/nservicebus/json-send": "nservicebus",
    "core/rebus/order": "rebus",
    "core/masstransit/envelope": "masstransit",
    "core/nservicebus/error-json": "failed",
    "core/rebus/error": "failed",
    "core/masstransit/fault": "failed",
}


def test_the_examples_of_dotnet_are_bodies_that_dotnet_wrote() -> None:
    lines = (ROOT / "tests" / "data" / "bodies" / "samples.jsonl").read_text(encoding="utf-8").splitlines()
    samples = {sample["name"]: sample for sample in map(json.loads, lines)}
    source = UUID("5f0c9a3e-7d41-4b7e-9a55-0e6f1c2d3b4a")
    composer = Composer(source, parse_format_name(r"DIRECT=OS:app01\private$\dotnet"))
    packets = []
    for number, (name, label) in enumerate(DOTNET.items(), 1):
        sample = samples[name]
        message = client.Message(
            b64decode(sample["body_base64"]),
            extension=b64decode(sample["extension_base64"] or ""),
            body_type=sample["body_type"],
            app_tag=sample["app_tag"],
            label=label,
            recoverable=True,
        )
        packets.append(composer.compose(message, number, 1_773_500_000))
    assert (ROOT / "examples" / "dotnet.packets").read_bytes() == b"".join(packets)


def assert_shown(block: str, output: str) -> None:
    """The lines of the block are in the output in this order, and next to each other but for `...`."""
    at = 0
    for part in block.split("...\n"):
        found = output.find(part, at)
        assert found >= 0, part
        at = found + len(part)


def test_messages_of_dotnet_are_read_found_changed_and_sent_again(shell: Shell) -> None:
    (shell.directory / "examples").symlink_to(ROOT / "examples")
    file = shell.directory / "alpha.toml"
    file.write_text('[manager]\nname = "alpha"\n[listen]\nbinary = false\nping = false\napi = 0\n', encoding="utf-8")
    page = "messages-of-dotnet.md"
    imports, nservicebus, rebus, searches, move, dry_run, retry, others = blocks(page, "sh")
    (python,) = blocks(page, "python")
    *shown, groups = blocks(page, "text")
    with serving(file) as server, client.connect(server.api) as manager:
        shell.environment["POSTROAD_API"] = server.api
        output = shell.run(imports)
        assert len(shown) == 7
        for block in shown:
            assert_shown(block, output)
        shell.run(nservicebus)
        shell.run(rebus)
        billing = manager.queue(r"private$\billing")
        first, second = billing.messages()
        assert (first.message_type, first.decoded()["system"]) == ("Shop.Messages.PlaceOrder", "nservicebus")
        assert (second.message_type, second.decoded()["system"]) == ("Shop.Order", "rebus")
        counts = [len(shell.run(line).splitlines()) for line in searches.splitlines()]
        assert counts == [8, 4, 1]  # with the head of the table, but for JSON
        exec(python.replace("http://127.0.0.1:8180", server.api), {})
        assert [each.json()["Customer"] for each in list(billing.messages())[2:]] == ["Grace Hopper"]
        assert "moved 3 messages" in shell.run(move)
        assert shell.run(dry_run) == groups
        assert "sent 1 message" in shell.run(retry)
        assert "sent 1 message" in shell.run(others)
        assert [each.label for each in billing.messages()][3:] == ["failed", "failed"]
        assert [each.message_type for each in manager.queue(r"private$\error").messages()] == [
            "MassTransit.Fault[[Shop:Order]]"
        ]
        table = (HOW_TO / page).read_text(encoding="utf-8")
        searched = re.findall(r"^\| search \| (.*) \|$", table, re.MULTILINE)
        shell.run("postroad queue purge 'private$\\dotnet'")
        shell.run("postroad import 'private$\\dotnet' examples/dotnet.packets")
        assert len(searched) == 7
        for expression in (each for cell in searched for each in re.findall(r"`([^`]+)`", cell) if len(each) > 5):
            quoted = expression.replace("'", "'\\''")
            found = shell.run(f"postroad browse 'private$\\dotnet' --where '{quoted}'")
            assert found != "no messages\n" or "Publish" in expression, expression
