"""The arrows of the house: a room imports only rooms below it, and a protocol core knows no I/O, clock or chance.

A room is a module or a package directly under `postroad`. A new room fails here until it is given a place.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "postroad"

# Bottom to top. A room may import every floor below its own, unless ONLY says less; never its own floor's other rooms.
# The front door is the package itself (`import postroad`), which offers the client's verbs.
FRONT_DOOR = "postroad"
FLOORS: tuple[tuple[str, ...], ...] = (
    ("deadlines", "errors", "version", "runtime"),
    ("net",),
    ("names",),
    ("wire", "settings"),
    ("message",),
    ("store", "security"),
    ("capture", "describe"),
    ("received",),
    ("columns", "values"),
    ("queues",),
    ("config", "directory"),
    ("routing",),
    ("rpc",),
    ("transfer",),
    ("binary", "soap", "remote_read"),
    ("status",),
    ("offsets",),
    ("manager", "simulation"),  # the simulator joins managers' parts by itself, so it stands beside the manager
    ("api",),
    ("client",),  # above the manager, because an embedded client opens one
    ("aio",),
    (FRONT_DOOR, "spark", "server"),
    ("console", "cli"),
    ("__main__",),
)
WORDS = frozenset({"errors", "version", "names", "wire", "message"})
ONLY: dict[str, frozenset[str]] = {
    # Reading settings needs names at the most.
    "settings": frozenset({"errors", "names"}),
    # Reading captured bytes and showing packets need no queue and no store.
    "capture": WORDS,
    "describe": WORDS | {"security"},
    "received": WORDS | {"describe"},
    "columns": WORDS | {"describe"},
    # Pipelines and the front door see a queue manager as its users do.
    "aio": WORDS | {"client", "received"},
    FRONT_DOOR: WORDS | {"aio", "client", "received"},
    "spark": WORDS
    | {"client", "capture", "columns", "describe", "received"}
    | {"directory", "routing"},  # the routes of a whole enterprise follow the rules of one manager's
    # The console is a user of the API; a command is a user of the client. `serve` alone starts a server.
    "console": WORDS | {FRONT_DOOR, "api", "client"},
    "cli": WORDS
    | {FRONT_DOOR, "client", "capture", "describe", "received", "spark", "simulation"}
    | {"server", "config", "runtime"}
    | {"directory", "routing"},  # `route --enterprise` asks a file where no manager runs
    "__main__": frozenset({"cli"}),
}

# Rooms and modules whose only inputs are their arguments: bytes or a timer, and `now`.
PURE = (
    "deadlines",
    "net.endpoints",
    "errors",
    "version",
    "names",
    "wire",
    "message",
    "capture",
    "describe.where",
    "directory.objects",
    "directory.reading",
    "directory.snapshot",
    "directory.review",
    "routing",
    "security.relay",
    "store.interface",
    "store.row",
    "store.express",
    "values",
    "queues",
    "transfer",
    "binary.settings",
    "binary.states",
    "binary.session",
    "binary.sequences",
    "binary.awaiting",
    "binary.neighbours",
    "binary.tracing",
    "binary.sender",
    "binary.receiver",
    "binary.service",
    "binary.report",
    "binary.transfers",
    "binary.ping",
    "soap.elements",
    "soap.texts",
    "soap.tree",
    "soap.blocks",
    "soap.header",
    "soap.msmq",
    "soap.signature",
    "soap.fast_envelope",
    "soap.envelope",
    "soap.multipart",
    "soap.addresses",
    "soap.packets",
    "soap.mapping",
    "soap.streams",
    "soap.redirection",
    "soap.settings",
    "soap.receipts",
    "soap.incoming",
    "soap.outgoing",
    "soap.sender",
    "soap.receiver",
    "soap.service",
    "soap.report",
    "soap.transfers",
    "rpc.pdu",
    "rpc.ndr",
    "rpc.interface",
    "rpc.constants",
    "rpc.fragments",
    "rpc.presentation",
    "rpc.verification",
    "rpc.security",
    "rpc.caller",
    "rpc.association",
    "rpc.calls",
    "rpc.server_connection",
    "rpc.client_connection",
    "rpc.tower",
    "rpc.epm_interface",
    "rpc.negotiate",
)
IMPURE_LIBRARIES = frozenset(
    {"asyncio", "concurrent", "multiprocessing", "random", "secrets", "select", "selectors"}
    | {"socket", "socketserver", "ssl", "subprocess", "threading", "time"}
)
RANDOM_IDS = frozenset({"uuid1", "uuid4"})


def allowed(room: str) -> frozenset[str]:
    if room in ONLY:
        return ONLY[room]
    below: set[str] = set()
    for floor in FLOORS:
        if room in floor:
            return frozenset(below)
        below.update(floor)
    raise KeyError(room)


def rooms() -> set[str]:
    return {room for floor in FLOORS for room in floor}


def read_sources() -> dict[str, str]:
    """Every module's text by its name: `wire.packet`, `errors`, and the package itself as `postroad`."""
    sources = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        parts = parts[:-1] if parts[-1] == "__init__" else parts
        sources[".".join(parts) or FRONT_DOOR] = path.read_text(encoding="utf-8")
    return sources


def room_of(module: str) -> str:
    return module.partition(".")[0]


def imports(module: str, text: str, modules: frozenset[str]) -> Iterator[tuple[int, str]]:
    """(line, target) of every import: one of our modules by its short name as `.name`, anything else by its own name.

    Imports inside functions and under TYPE_CHECKING count: the arrow is there all the same.
    """
    is_package = module == FRONT_DOOR or any(other.startswith(f"{module}.") for other in modules)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, _ours(alias.name) or alias.name
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(module, is_package, node)
            for alias in node.names:
                submodule = _ours(f"{base}.{alias.name}")
                target = submodule if submodule and submodule[1:] in modules else _ours(base)
                yield node.lineno, target or base


def _ours(name: str) -> str | None:
    if name == FRONT_DOOR:
        return f".{FRONT_DOOR}"
    return name.removeprefix(FRONT_DOOR) if name.startswith(f"{FRONT_DOOR}.") else None


def _absolute(module: str, is_package: bool, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    here = [FRONT_DOOR] if module == FRONT_DOOR else [FRONT_DOOR, *module.split(".")]
    up = node.level - 1 if is_package else node.level
    return ".".join([*here[: len(here) - up], *([node.module] if node.module else [])])


def is_pure(module: str) -> bool:
    return any(module == pure or module.startswith(f"{pure}.") for pure in PURE)


def random_names(text: str) -> Iterator[tuple[int, str]]:
    """(line, name) of every use of an id that is made by chance or from the clock."""
    for node in ast.walk(ast.parse(text)):
        names = [alias.name for alias in node.names] if isinstance(node, ast.ImportFrom) else []
        names += [node.attr] if isinstance(node, ast.Attribute) else []
        for name in RANDOM_IDS.intersection(names):
            yield node.lineno, name  # type: ignore[attr-defined]


def faults(sources: Mapping[str, str]) -> list[str]:
    """One sentence for each import that the tables forbid."""
    found = []
    modules = frozenset(sources)
    for module, text in sources.items():
        room = room_of(module)
        if room not in rooms():
            found.append(f"{module}: give the room {room!r} a floor in FLOORS")
            continue
        if is_pure(module):
            found += [f"{module}:{line}: a pure module uses {name}" for line, name in random_names(text)]
        for line, target in imports(module, text, modules):
            other = room_of(target[1:]) if target.startswith(".") else None
            if other is None:
                if is_pure(module) and room_of(target) in IMPURE_LIBRARIES:
                    found.append(f"{module}:{line}: a pure module imports {target}")
            elif other != room and other not in allowed(room):
                found.append(f"{module}:{line}: {room!r} may not import {other!r}")
            elif is_pure(module) and not is_pure(target[1:]) and target[1:] != room:
                found.append(f"{module}:{line}: a pure module imports {target[1:]}, which is not pure")
    return found


def test_every_import_follows_the_arrows() -> None:
    sources = read_sources()
    assert {"errors", FRONT_DOOR} <= set(sources)
    assert faults(sources) == []


def test_the_tables_speak_only_of_known_rooms() -> None:
    names = [room for floor in FLOORS for room in floor]
    assert len(names) == len(set(names))
    assert set(ONLY) <= rooms()
    assert {room for targets in ONLY.values() for room in targets} <= rooms()
    assert {room_of(module) for module in PURE} <= rooms()


@pytest.mark.parametrize(
    ("importer", "statement"),
    [
        ("wire.packet", "from postroad.queues import queue"),
        ("wire.packet", "from postroad import queues"),
        ("wire.packet", "import postroad.queues.queue"),
        ("wire.packet", "from ..queues.queue import Queue"),
        ("wire", "from ..queues import queue"),
        ("wire.packet", "def late():\n    from postroad.queues import queue"),
        ("names", "from postroad.wire import packet"),
        ("queues.queue", "from postroad.manager import Manager"),
        ("capture", "from postroad.store import interface"),
        ("describe", "from postroad.store import interface"),
        ("binary.session", "from postroad.soap import envelope"),
        ("errors", "from postroad import anything"),
        ("spark.source", "from postroad.manager import Manager"),
        ("spark.source", "from postroad.queues import queue"),
        ("console", "from postroad.manager import Manager"),
        ("cli", "from postroad.queues import queue"),
        ("simulation", "from postroad.manager import Manager"),
        ("attic", "import json"),
        ("wire.packet", "import socket"),
        ("wire.packet", "from time import monotonic"),
        ("names", "import asyncio.events"),
        ("binary.session", "import random"),
        ("queues.queue", "from uuid import uuid4"),
        ("queues.queue", "import uuid\nfresh = uuid.uuid4"),
        ("binary.session", "from postroad.store import sqlite"),
        ("binary.session", "from postroad.binary import transport"),
    ],
)
def test_a_wrong_arrow_is_found(importer: str, statement: str) -> None:
    assert len(faults(house(importer, statement))) == 1


@pytest.mark.parametrize(
    ("importer", "statement"),
    [
        ("wire.packet", "from postroad.errors import RemoteProtocolError"),
        ("wire.packet", "from . import base"),
        ("wire.packet", "import struct"),
        ("wire", "from postroad.wire.packet import Packet"),
        ("queues.queue", "from postroad.store.interface import Store"),
        ("describe", "from postroad.security import Sid"),
        ("cli", "from postroad.describe import packet_json"),
        ("binary.transport", "import asyncio"),
        ("binary.transport", "from postroad.binary.session import Session"),
        ("client", "from postroad.manager import Manager"),
        ("spark.source", "from postroad.client import connect"),
        ("cli", "from postroad import __version__"),
        ("simulation", "from postroad.binary.session import Session"),
        (FRONT_DOOR, "from postroad.version import __version__"),
        (FRONT_DOOR, "from .client import connect"),
        ("__main__", "from postroad.cli import main"),
    ],
)
def test_a_right_arrow_is_left_alone(importer: str, statement: str) -> None:
    assert faults(house(importer, statement)) == []


def house(importer: str, statement: str) -> dict[str, str]:
    """A house of empty rooms where one module holds one import."""
    modules = ["wire.base", "wire.packet", "queues.queue", "store.interface", "binary.session", "binary.transport"]
    modules += ["soap.envelope", "spark.source"]
    return dict.fromkeys([*rooms(), *modules], "") | {importer: statement}
