"""Managers with their consoles as processes of their own, filled with queues and messages, and a browser to look."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import postroad
from postroad import Message
from tests.commands import POSTROAD, ServerProcess, serving

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
BROWSER_FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PATIENCE_S = 60
TOKEN = "a-token-that-is-long-enough"
PASSWORD = "correct horse"
SCRIPT = "<script>document.title='owned'</script>"
IMAGE = "<img src=x onerror=\"document.title='owned'\">"
MANY = 120

ALPHA = r"""
[manager]
name = "alpha"
[listen]
api = 0
console = 0
binary = 0
http = false
ping = false
rpc = false
[directory]
file = "enterprise.toml"
[[queue]]
path = 'private$\orders'
journal = true
label = "Orders of the shop"
[[queue]]
path = 'private$\payments'
transactional = true
[[queue]]
path = 'private$\small'
quota_kb = 8
[[user]]
name = "ann"
password = "correct horse"
[[user]]
name = "root"
password = "correct horse"
administrator = true
[[user]]
name = "eye"
password = "correct horse"
monitor = true
"""
GUARDED = ALPHA.replace('"alpha"', '"guarded"').replace('[directory]\nfile = "enterprise.toml"\n', "") + (
    f'[api]\ntoken = "{TOKEN}"\n'
)
ENTERPRISE = """
[[site]]
name = "london"
[[site]]
name = "paris"
[[site]]
name = "rome"
[[link]]
sites = ["london", "paris"]
cost = 3
gates = ["alpha", "par-gate"]
[[link]]
sites = ["paris", "rome"]
cost = 2
gates = ["par-gate", "rom-gate"]
[[link]]
sites = ["london", "rome"]
cost = 9
gates = ["alpha", "rom-gate"]
"""
MANAGER = """
[[manager]]
name = "{name}"
id = "{id}"
address = "{address}"
sites = ["{site}"]
routing_server = true
"""
MANAGERS = (
    ("alpha", "8f3c1f6e-5d0f-4a7e-9a55-1d6a3f9b1a01", "127.0.0.1", "london"),
    ("par-gate", "8f3c1f6e-5d0f-4a7e-9a55-1d6a3f9b1a02", "127.0.0.92", "paris"),
    ("rom-gate", "8f3c1f6e-5d0f-4a7e-9a55-1d6a3f9b1a03", "127.0.0.93", "rome"),
)


class Site:
    """A manager and its console."""

    def __init__(self, server: ServerProcess) -> None:
        self.server = server
        self.api = server.api
        self.url = f"http://{server.ready['listen']['console']}"

    def connect(self, token: str | None = None) -> postroad.QueueManager:
        return postroad.connect(self.api, token=token)


@contextmanager
def alpha(directory: Path) -> Iterator[Site]:
    text = ENTERPRISE
    for name, identifier, address, site in MANAGERS:
        text += MANAGER.format(name=name, id=identifier, address=address, site=site)
    (directory / "enterprise.toml").write_text(text)
    config = directory / "alpha.toml"
    config.write_text(ALPHA)
    with serving(config) as server:
        yield Site(server)


@contextmanager
def guarded(directory: Path) -> Iterator[Site]:
    config = directory / "guarded.toml"
    config.write_text(GUARDED)
    with serving(config) as server:
        yield Site(server)


@contextmanager
def console_of(*apis: str, variables: Mapping[str, str] | None = None) -> Iterator[str]:
    """The address of a `postroad console` for these managers."""
    command = [*POSTROAD, "console", "--port", "0"]
    for each in apis:
        command += ["--api", each]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, **(variables or {})})
    assert process.stdout is not None
    try:
        yield process.stdout.readline().decode().split()[-1].rstrip("/")
    finally:
        process.terminate()
        process.wait(PATIENCE_S)
        process.stdout.close()


def fill(site: Site) -> None:
    """Messages of every kind: many, markup, JSON, XML, binary, stuck ones and dead letters."""
    with site.connect() as manager:
        orders = manager.queue(r"private$\orders")
        orders.send([Message(json.dumps({"order": n, "total": 9.5}), label=f"order {n}") for n in range(MANY)])
        orders.send(Message(f"body {SCRIPT} {IMAGE}", label=f"{SCRIPT}{IMAGE}"))
        orders.send(Message("<order id='7'><item>tea &amp; milk</item></order>", label="as XML", priority=6))
        orders.send(Message(bytes(range(256)), label="binary"))
        manager.create_queue(f"private$\\{'x' * 60}.archive", label=IMAGE)
        small = manager.queue(r"private$\small")
        small.send(Message(b"x" * 7300, label="fills it", recoverable=True))
        elsewhere = r"DIRECT=TCP:127.0.0.99\private$\far"
        manager.send(elsewhere, [Message("soon", label=f"stuck {n}", recoverable=True) for n in range(3)])
        lost = Message(
            f"lost {SCRIPT}", label=f"lost {IMAGE}", recoverable=True, dead_letter=True, time_to_reach_queue=1
        )
        manager.send(r"DIRECT=TCP:127.0.0.98\private$\gone", [lost] * 5)
        wait_for(lambda: manager.queue(";deadletter").info().messages == 5)


def wait_for(condition: object, patience_s: float = PATIENCE_S) -> None:
    assert callable(condition)
    deadline = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)
