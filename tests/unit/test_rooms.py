"""Which room may import which: a room imports only rooms below it, and a protocol core has no I/O, clock or chance."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from postroad.cli.commands import COMMANDS

SOURCE = Path(__file__).parents[2] / "src" / "postroad"

# Bottom to top. A room may import every floor below its own, unless ONLY says less. It never imports rooms of its own
# floor. The front door is the package itself (`import postroad`), which offers the client's verbs.
FRONT_DOOR = "postroad"
FLOORS: tuple[tuple[str, ...], ...] = (
    ("errors", "runtime"),
    ("net",),
    ("names",),
    ("wire", "validation"),
    ("bodies",),
    ("message",),
    ("store", "security"),
    ("describe",),
    ("columns", "reports"),
    ("queues",),
    ("config", "directory"),
    ("routing",),
    ("rpc", "pgm"),
    ("carriers",),
    ("binary", "soap", "remote_read", "amqp"),
    ("manager",),
    ("simulation",),  # joins the parts of many managers by itself
    ("api", "telemetry"),
    ("client",),  # above the manager, because an embedded client opens one
    ("aio",),
    (FRONT_DOOR, "spark", "server", "console"),
    ("cli",),
    ("__main__",),
)
WORDS = frozenset({"errors", "runtime.version", "names", "wire", "bodies", "message"})
ONLY: dict[str, frozenset[str]] = {
    # Values that people write need only names.
    "validation": frozenset({"errors", "names"}),
    # What a body says depends on its bytes alone.
    "bodies": frozenset({"errors", "names", "wire"}),
    # Reading captured bytes and showing packets need no queue and no store.
    "describe": WORDS | {"security", "net"},  # of net, the standard ports
    "columns": WORDS | {"describe"},
    # A client of the HTTP API needs nothing of what runs a queue manager; LOADED_LATE has the modules that do.
    "client": WORDS | {"describe", "validation", "reports", "net.endpoints", "net.ports"},
    # Pipelines and the front door see a queue manager as its users do.
    "aio": WORDS | {"client", "describe.received"},
    FRONT_DOOR: WORDS | {"aio", "client", "describe.received", "reports"},
    "spark": WORDS
    | {"client", "columns", "describe", "validation", "net", "reports"}
    | {"runtime.private_files"}
    | {"directory", "routing"},  # the routes of a whole enterprise follow the rules of one manager's
    # The console is a client of the API. It also reads access lists and expressions as people write them.
    "console": WORDS
    | {"runtime.bounded", "client", "describe", "validation", "reports", "net"}
    | {"security.descriptors", "security.rights", "security.sddl"},
    # A command is a client, too. Only `serve` starts a server, and only `console` starts the console.
    "cli": WORDS
    | {FRONT_DOOR, "client", "describe", "validation", "spark", "simulation", "reports"}
    | {"server", "config", "net", "runtime", "console"}
    | {"store.backup"}  # `backup` reads back what it has written
    | {"directory", "routing"}  # `route --enterprise` asks a file where no manager runs
    | {"rpc", "remote_read", "soap"},  # `decode` shows what was captured of them
    "__main__": frozenset({"cli"}),
}

# Modules that may import more than their room. Other modules of the room import them only inside functions: when
# somebody opens a data directory, reads Arrow, reads by MS-MQQP, signs or pings.
LOADED_LATE: dict[str, frozenset[str]] = {
    "client.ticket": frozenset({"security"}),
    "client.arrow": frozenset({"columns"}),
    "client.embedded": frozenset({"manager", "store", "queues", "columns"}),
    "client.remote": frozenset({"rpc", "remote_read"}),
    "client.signer": frozenset({"security"}),
    "client.ping": frozenset({"binary"}),
}

# Rooms and modules whose only inputs are their arguments: bytes or a timer, and `now`.
PURE = (
    "runtime.bounded",
    "runtime.deadlines",
    "net.endpoints",
    "net.ports",
    "errors",
    "runtime.commit",
    "runtime.version",
    "names",
    "wire",
    "validation.fields",
    "validation.kinds",
    "validation.queue_properties",
    "bodies",
    "message",
    "describe.capture",
    "describe",
    "describe.received",
    "directory.distinguished_names",
    "directory.domain_copy",
    "directory.objects",
    "directory.schema_mapping",
    "directory.snapshot",
    "directory.review",
    "directory.what_if",
    "routing",
    "security.access",
    "security.accounts",
    "security.descriptors",
    "security.directory_rights",
    "security.algorithms",
    "security.encryption",
    "security.guard",
    "security.keys",
    "security.refusals",
    "security.relay",
    "security.rights",
    "security.sddl",
    "security.users",
    "security.signatures",
    "store.interface",
    "store.express",
    "store.frames",
    "store.lease",
    "store.overlay",
    "store.replay",
    "store.rows",
    "reports",
    "queues",
    "carriers",
    "binary.states",
    "binary.session",
    "binary.sequences",
    "binary.neighbours",
    "binary.trace_reports",
    "binary.sender",
    "binary.receiver",
    "binary.service",
    "binary.session_reports",
    "binary.ping",
    "soap.elements",
    "soap.simple_types",
    "soap.tree",
    "soap.header",
    "soap.signature",
    "soap.envelope",
    "soap.multipart",
    "soap.addresses",
    "soap.packets",
    "soap.requests",
    "soap.streams",
    "soap.settings",
    "soap.sender",
    "soap.receiver",
    "soap.service",
    "soap.multicast",
    "pgm.packet",
    "pgm.settings",
    "pgm.source",
    "pgm.receiver",
    "rpc.pdu",
    "rpc.ndr",
    "rpc.interface",
    "rpc.constants",
    "rpc.security",
    "rpc.server_connection",
    "rpc.calls",
    "rpc.client_connection",
    "rpc.epm_interface",
    "rpc.mgmt",
    "rpc.negotiate",
    "rpc.ntlm_keys",
    "amqp.codec",
    "amqp.performatives",
    "amqp.links",
    "amqp.engine",
    "amqp.mapping",
    "amqp.nodes",
    "amqp.service",
    "remote_read.structures",
    "remote_read.qm2qm",
    "remote_read.qmcomm",
    "remote_read.remoteread",
    "remote_read.message_packet",
    "remote_read.mqqp",
    "remote_read.service",
    "remote_read.values",
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
    """The text of every module by name: `wire.packet`, `errors`, and the package itself as `postroad`."""
    sources = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        parts = parts[:-1] if parts[-1] == "__init__" else parts
        sources[".".join(parts) or FRONT_DOOR] = path.read_text(encoding="utf-8")
    return sources


def room_of(module: str) -> str:
    return module.partition(".")[0]


def imports(module: str, text: str, modules: frozenset[str]) -> Iterator[tuple[int, str]]:
    """(line, target) of every import. Our modules have their short name as `.name`, all others their own."""
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


def may_import(module: str, target: str) -> bool:
    """Whether the tables let the module import this one of ours. ONLY may name a room, or one module of it."""
    room, other = room_of(module), room_of(target)
    granted = allowed(room) | LOADED_LATE.get(module, frozenset())
    return other == room or other in granted or target in granted


def is_pure(module: str) -> bool:
    return any(module == pure or module.startswith(f"{pure}.") for pure in PURE)


def random_names(text: str) -> Iterator[tuple[int, str]]:
    """(line, name) of every use of an id that comes from chance or the clock."""
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
            elif not may_import(module, target[1:]):
                found.append(f"{module}:{line}: {room!r} may not import {other!r}")
            elif is_pure(module) and not is_pure(target[1:]) and target[1:] != room:
                found.append(f"{module}:{line}: a pure module imports {target[1:]}, which is not pure")
        if room == "client":
            found += [f"{module}: import {late} inside a function" for late in loads_early(text, modules, module)]
    return found


def loads_early(text: str, modules: frozenset[str], module: str) -> list[str]:
    """The modules of LOADED_LATE that an import of this one would load. Imports inside functions do not count."""
    outside = ast.parse(text)
    for node in ast.walk(outside):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = [ast.Pass()]
    return [target[1:] for _, target in imports(module, ast.unparse(outside), modules) if target[1:] in LOADED_LATE]


def test_every_import_follows_the_arrows() -> None:
    sources = read_sources()
    assert {"errors", FRONT_DOOR} <= set(sources)
    assert faults(sources) == []


# Where programs start: the command, the packages that people import, and what `python -m` runs.
ENTRANCES = frozenset(
    {FRONT_DOOR, "__main__", "aio", "cli", "client.arrow", "server", "spark", "spark.bodies", "simulation.__main__"}
    | {f"cli.{each.module}" for each in COMMANDS.values()}
)


# Modules that no program uses yet, and what will use each. A module that is used, or does not exist, must leave the
# list.
FOR_LATER = {
    "wire.variants": "management of a manager by others, [MS-MQMP] and [MS-MQCN]",
}


def unreachable(sources: Mapping[str, str], entrances: frozenset[str]) -> set[str]:
    """The modules that no program reaches from an entrance, by imports or by the name of a module in a text."""
    modules = frozenset(sources)
    reached: set[str] = set()
    to_visit = set(entrances & modules)
    while to_visit:
        module = to_visit.pop()
        reached.add(module)
        found = {target[1:] for _, target in imports(module, sources[module], modules) if target.startswith(".")}
        found |= {
            node.value.removeprefix(f"{FRONT_DOOR}.")
            for node in ast.walk(ast.parse(sources[module]))
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        }
        found |= {each.rpartition(".")[0] for each in found}  # a package is loaded with its modules
        to_visit |= (found & modules) - reached
    return set(modules) - reached


def test_every_module_has_a_use_outside_the_tests() -> None:
    assert unreachable(read_sources(), ENTRANCES) == set(FOR_LATER)


def test_a_module_without_a_caller_is_found() -> None:
    sources = {FRONT_DOOR: "from postroad.a.b import c", "a": "", "a.b": "HOME = 'postroad.d'", "d": "", "e": ""}
    assert unreachable(sources, frozenset({FRONT_DOOR})) == {"e"}


ARCHITECTURE = Path(__file__).parents[2] / "docs" / "explanation" / "architecture.md"


def documented_rooms() -> set[str]:
    """The names in backticks in the first column of the table of rooms."""
    text = ARCHITECTURE.read_text(encoding="utf-8")
    _, _, table = text.partition("| rooms | may import |\n")
    rows = table.partition("\n\n")[0].splitlines()[1:]
    return {name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])}


def drawn_floors() -> list[set[str]]:
    """The floors of the picture from top to bottom, each with its rooms."""
    _, _, rest = ARCHITECTURE.read_text(encoding="utf-8").partition("```mermaid\n")
    picture = rest.partition("```")[0]
    floors: list[set[str]] = []
    inside = False
    for line in picture.splitlines():
        room = re.match(r' +(\w+)\["(?:(\w+))', line)
        if line.strip().startswith("subgraph"):
            inside = True
            floors.append(set())
        elif line.strip() == "end":
            inside = False
        elif room and inside:
            floors[-1].add(room[2])
        elif room:
            floors.append({room[2]})
    return floors


def test_the_architecture_page_lists_every_room() -> None:
    there = {path.stem for path in SOURCE.iterdir() if path.suffix == ".py" or any(path.glob("*.py"))}
    assert documented_rooms() == there - {"__init__"} | {FRONT_DOOR}


def test_the_architecture_page_draws_the_rooms_on_their_floors() -> None:
    assert drawn_floors() == [set(floor) for floor in reversed(FLOORS)]


def test_the_tables_speak_only_of_known_rooms() -> None:
    names = [room for floor in FLOORS for room in floor]
    assert len(names) == len(set(names))
    assert set(ONLY) <= rooms()
    assert {room_of(target) for targets in ONLY.values() for target in targets} <= rooms()
    assert {room for targets in LOADED_LATE.values() for room in targets} <= rooms()
    assert set(LOADED_LATE) <= set(read_sources())
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
        ("describe.capture", "from postroad.store import interface"),
        ("describe", "from postroad.store import interface"),
        ("binary.session", "from postroad.soap import envelope"),
        ("errors", "from postroad import anything"),
        ("client.http", "from postroad.manager import Manager"),
        ("client.http", "from postroad.queues import queue"),
        ("client.http", "from postroad.net import limits"),
        ("client.remote", "from postroad.manager import Manager"),
        ("client.opening", "from postroad.client.embedded import open_embedded"),
        ("spark.source", "from postroad.manager import Manager"),
        ("spark.source", "from postroad.queues import queue"),
        ("console", "from postroad.manager import Manager"),
        ("cli", "from postroad.queues import queue"),
        ("manager", "from postroad.simulation import node"),
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
        ("describe", "from postroad.security.descriptors import Sid"),
        ("cli", "from postroad.describe import packet_json"),
        ("binary.transport", "import asyncio"),
        ("binary.transport", "from postroad.binary.session import Session"),
        ("client.embedded", "from postroad.manager import Manager"),
        ("client.http", "from postroad.net.endpoints import join"),
        ("spark.source", "from postroad.client import connect"),
        ("cli", "from postroad import __version__"),
        ("simulation", "from postroad.binary.session import Session"),
        (FRONT_DOOR, "from postroad.runtime.version import __version__"),
        (FRONT_DOOR, "from .client import connect"),
        ("__main__", "from postroad.cli import main"),
    ],
)
def test_a_right_arrow_is_left_alone(importer: str, statement: str) -> None:
    assert faults(house(importer, statement)) == []


def house(importer: str, statement: str) -> dict[str, str]:
    """A house of empty rooms. One module has one import."""
    modules = ["wire.base", "wire.packet", "queues.queue", "store.interface", "binary.session", "binary.transport"]
    modules += ["soap.envelope", "security.sid", "spark.source", "net.endpoints", "net.limits", *LOADED_LATE]
    return dict.fromkeys([*rooms(), *modules], "") | {importer: statement}
