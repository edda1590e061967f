"""The Windows kit beside a real Postroad: its definitions are imported, the calls of its script are answered, and the
checker reads what a run writes. A second Postroad plays Windows: what System.Messaging would show, its API shows."""

from __future__ import annotations

import hashlib
import json
import re
import socket
from base64 import b64decode
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.commands import PATIENCE_S, ServerProcess, postroad
from tests.kit_results import result

INVENTORY = Path(__file__).parents[1] / "data" / "windows" / "inventory.toml"
ADDRESSES = {"alpha": "127.0.97.11", "winserver": "127.0.97.12"}
BINARY = 11897
PEERS = "".join(f'"{address}" = {{ binary = {BINARY} }}\n' for address in ADDRESSES.values())
CONFIGURATION = """
[manager]
name = "{name}"
data = "{name}"
[listen]
host = "{address}"
binary = {binary}
ping = false
http = false
rpc = false
api = 0
[api]
token = "0123456789abcdef"
[multicast]
enabled = {multicast}
interfaces = ["lo"]
encapsulation = "udp"
[peers]
{peers}
"""
TOKEN = "0123456789abcdef"
PREFIX = "postroad-kit-0a1b2c3d"
FACTS = {  # the names of the kit, and those of the API where they differ
    **dict.fromkeys(("id", "label", "body", "body_type", "priority", "delivery", "app_tag", "class_name"), ""),
    **dict.fromkeys(("correlation_id", "response_queue"), ""),
    "extension": "extension_base64",
}

ACKNOWLEDGED = {
    "acknowledged": (["reach-queue", "receive"], ["ack-reach-queue", "ack-receive"]),
    "expired": (["nack-receive"], ["nack-receive-timeout"]),
}


class Side:
    """A manager, called as the script calls Postroad."""

    def __init__(self, server: ServerProcess, address: str) -> None:
        self.server, self.address = server, address

    def call(self, method: str, path: str, value: object = None, data: bytes | None = None) -> str:
        """As Invoke-Api of test.ps1: HTTP/1.0, and all that comes until the connection ends."""
        place = self.server.ready["listen"]["api"]
        head = f"{method} /api/v1{path} HTTP/1.0\r\nHost: {place}\r\nAuthorization: Bearer {TOKEN}\r\n"
        if value is not None:
            head += "Content-Type: application/json\r\n"
            data = json.dumps(value).encode()
        elif data is not None:
            head += "Content-Type: application/octet-stream\r\n"
        data = data or b""
        host, _, port = place.rpartition(":")
        with socket.create_connection((host, int(port)), PATIENCE_S) as connection:
            connection.sendall(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
            answer = b"".join(iter(lambda: connection.recv(1 << 20), b""))
        status, _, text = answer.partition(b"\r\n\r\n")
        assert re.match(rb"HTTP/1\.\d 20[014] ", status), answer
        assert b"chunked" not in status
        return text.decode()

    def create(self, name: str, **properties: object) -> None:
        path = rf"private$\{PREFIX}-{name}"
        self.call("POST", "/queues", {"path": path, **properties})
        rights = ["write", "peek", "receive", "get-properties"]
        for who in ("everyone", "anonymous"):
            self.call("POST", f"/queues/{quote(path, '')}/acl", {"grant": {"who": who, "rights": rights}})

    def name(self, queue: str) -> str:
        return rf"DIRECT=TCP:{self.address}\private$\{PREFIX}-{queue}"

    def send(self, to: str, value: dict[str, object]) -> str:
        identifier: str = json.loads(self.call("POST", f"/queues/{quote(to, '')}/messages", value))["ids"][0]
        return identifier

    def receive(self, queue: str) -> str:
        path = quote(rf"private$\{PREFIX}-{queue}", "")
        return self.call("POST", f"/queues/{path}/receive?count=1&timeout=60")

    def message(self, queue: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.receive(queue))["messages"][0]
        return found


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Side]]:
    with ExitStack() as stack:
        found = {}
        for name, address in ADDRESSES.items():
            file = tmp_path_factory.mktemp("kit") / f"{name}.toml"
            file.write_text(
                CONFIGURATION.format(
                    name=name,
                    address=address,
                    binary=BINARY,
                    peers=PEERS,
                    multicast="true" if name == "alpha" else "false",
                )
            )
            server = ServerProcess(file)
            stack.callback(server.close)
            found[name] = Side(server, address)
            for queue in ("plain", "acks", "back"):
                found[name].create(queue)
            found[name].create("orders", transactional=True)
        yield found


def asked(side: Side, label: str, recoverable: bool) -> dict[str, object]:
    """What test.ps1 asks Postroad to send."""
    return {
        "label": label,
        "body": f"body of {label}",
        "body_type": 8,
        "priority": 5,
        "recoverable": recoverable,
        "app_tag": 4711,
        "correlation_id": r"{01234567-89ab-cdef-0123-456789abcdef}\99",
        "response_queue": side.name("back"),
        "extension_base64": "ZXh0ZW5zaW9u",
    }


def test_the_definitions_of_the_inventory_are_imported(sides: dict[str, Side]) -> None:
    run = partial(postroad, api=sides["alpha"].server.api, variables={"POSTROAD_TOKEN": TOKEN})
    run("queue", "create", r"alpha\invoices", "--transactional")
    dry = run("definitions", "import", str(INVENTORY), "--dry-run")
    assert (dry.code, dry.errors) == (0, "")
    done = run("definitions", "import", str(INVENTORY))
    assert (done.code, done.errors) == (0, "")
    assert [line for line in done.lines if line.startswith("created")] == [
        r"created private$\orders",
        r"created private$\Zoe's queue",
        "created private$\\Größe €",
    ]
    again = run("definitions", "import", str(INVENTORY))
    assert again.lines == ["4 queues as in the file already"]
    (shown,) = run("queue", "show", r"private$\orders", "--json").objects
    assert (shown["transactional"], shown["quota_kb"], shown["journal_quota_kb"]) == (True, None, 4294967295)
    (acl,) = run("queue", "acl", "show", r"private$\orders", "--json").objects
    assert "(D;;0x4;;;AN)" in acl["sddl"]
    assert "(A;;0x2d;;;WD)" in acl["sddl"]


def test_a_run_with_a_second_postroad_as_windows(sides: dict[str, Side], tmp_path: Path) -> None:
    ours, windows = sides["alpha"], sides["winserver"]
    facts: dict[str, list[dict[str, Any]]] = {}
    for sender, receiver, step in ((windows, ours, "send"), (ours, windows, "receive")):
        for kind in ("express", "recoverable"):
            label = f"{step} {kind}"
            value = asked(sender, label, kind == "recoverable")
            identifier = sender.send(receiver.name("plain"), value)
            known = value | {"id": identifier, "delivery": kind, "class_name": "normal"}
            got = receiver.message("plain")
            both = (known, got) if step == "send" else (got, known)
            facts[f"{step}-{kind}"] = [
                {"name": name, "windows": both[0][key or name], "postroad": both[1][key or name]}
                for name, key in FACTS.items()
            ]
        labels = [f"{step} transactional {number}" for number in (1, 2, 3)]
        messages = [{"label": each, "body": each, "body_type": 8} for each in labels]
        path = f"/queues/{quote(receiver.name('orders'), '')}/messages"
        sender.call("POST", path, {"messages": messages, "transactional": True})
        got_all = [receiver.message("orders") for _ in labels]
        facts[f"{step}-transactional"] = [
            {"name": "labels", "windows": labels, "postroad": [each["label"] for each in got_all]},
            {"name": "first", "windows": True, "postroad": got_all[0]["first_in_transaction"]},
            {"name": "last", "windows": True, "postroad": got_all[2]["last_in_transaction"]},
            {"name": "delivery", "windows": "transactional", "postroad": got_all[1]["delivery"]},
        ]
        large = hashlib.shake_128(b"large").digest(3 << 20)
        path = f"/queues/{quote(receiver.name('plain'), '')}/messages?label={step}%20large"
        sender.call("POST", path, None, large)
        found = re.search(r'"body_base64":\s*"([^"]*)"', receiver.receive("plain"))
        assert found is not None
        body = b64decode(found[1])
        facts[f"{step}-large"] = [
            {"name": "length", "windows": len(large), "postroad": len(body)},
            {"name": "sha256", "windows": digest(large).upper(), "postroad": digest(body)},
        ]
        for name, (words, classes) in ACKNOWLEDGED.items():
            value = asked(sender, f"{step} {name}", True) | {"ack": words, "admin_queue": sender.name("acks")}
            expires = {"time_to_be_received": 2} if name == "expired" else {}
            identifier = sender.send(receiver.name("plain"), value | expires)
            if name == "acknowledged":
                receiver.message("plain")
            acks = [sender.message("acks") for _ in classes]
            facts[f"{step}-{name}"] = [
                {"name": "acknowledgments", "windows": [ack["class_name"] for ack in acks], "postroad": classes},
                {"name": "correlation_id", "windows": acks[0]["correlation_id"], "postroad": identifier},
            ]
    assert len(facts) == 12
    assert checked(facts, tmp_path / "result.json") == (0, [])
    facts["receive-express"][1]["windows"] = "something else"
    assert checked(facts, tmp_path / "wrong.json") == (1, ["receive-express"])


def checked(facts: dict[str, list[dict[str, Any]]], file: Path) -> tuple[int, list[str]]:
    """The exit code of a check of a run with these steps, and the steps that differ."""
    value = result()
    for each in value["steps"]:
        each.update({"facts": facts[each["name"]]} if each["name"] in facts else {"state": "skipped", "facts": []})
    file.write_text(json.dumps(value))
    outcome = postroad("kit", "check", str(file), "--json")
    found = outcome.objects
    assert {each["step"] for each in found if each["state"] == "done"} == set(facts)
    return outcome.code, [each["step"] for each in found if not each["agrees"]]


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_the_other_calls_of_the_script(sides: dict[str, Side]) -> None:
    ours = sides["alpha"]
    manager = json.loads(ours.call("GET", "/manager"))
    assert (manager["name"], bool(manager["version"]), bool(manager["multicast"])) == ("alpha", True, True)
    assert json.loads(sides["winserver"].call("GET", "/manager"))["multicast"] is None
    ours.create("cast", multicast_address="239.77.77.1:7777")
    path = "/queues/" + quote(rf"private$\{PREFIX}-cast", "")
    ours.send(rf"private$\{PREFIX}-cast", {"label": "management 1", "body": "x"})
    shown = json.loads(ours.call("GET", path))
    assert (shown["messages"], shown["format_name"][:8]) == (1, "PRIVATE=")
    assert shown["bytes"] > 0
    assert ours.call("DELETE", path) == ""
