"""Nobody assigns to another object's attributes: a part gets what it needs from its constructor or by a method.

A record is different: a dataclass that is not frozen. The room that declares it may write its fields.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "postroad"
Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda

# Rooms that write records of another room, and why they may.
SHARED = {
    "binary": {"carriers": "its peers, sequences and transfers are those of carriers, with more fields"},
    "soap": {"carriers": "the same"},
    "carriers": {"binary": "a step is over the places that the carrier keeps", "soap": "the same"},
    "console.pages": {"console": "a page is one visit, whose jobs it shows"},
}
# By file: attributes that may be assigned, and why.
ALLOWED: dict[str, tuple[str, frozenset[str]]] = {
    "api/application.py": ("the request that it answers", frozenset({"path"})),
    "binary/receiver.py": ("a counter", frozenset({"unwritten"})),
    "binary/service.py": ("what a carrier keeps of its outgoing queue", frozenset({"next_hops"})),
    "binary/transport.py": ("a session that its link has made", frozenset({"blocked"})),
    "carriers/steps.py": ("a counter", frozenset({"writes"})),
    "cli/__init__.py": ("Typer's context, and the process's output", frozenset({"obj", "stdout"})),
    "cli/backup.py": ("a progress bar of Rich", frozenset({"total"})),
    "cli/commands.py": ("Typer's commands", frozenset({"get_params", "parse_args", "get_runtime_param"})),
    "cli/context.py": (
        "a function that is a command",
        frozenset({"__signature__", "__annotations__", "__wrapped__", "optional_values"}),
    ),
    "client/remote.py": ("a message that was made just before", frozenset({"lookup_id"})),
    "client/sync/runtime.py": ("calls of one batch", frozenset({"outcome", "batch"})),
    "console/pages/overview.py": ("cards of the page", frozenset({"name"})),
    "describe/sections.py": ("a reader of octets", frozenset({"end"})),
    "names/format.py": ("a scanner of text", frozenset({"position"})),
    "names/path.py": ("the same", frozenset({"position"})),
    "net/http.py": ("the request that a connection reads and answers", frozenset({"expects", "answered"})),
    "net/limits.py": ("a counter of the limits that an admission is of", frozenset({"closing"})),
    "remote_read/qm2qm.py": ("a reader of octets", frozenset({"offset"})),
    "remote_read/remoteread.py": ("a reader of octets", frozenset({"offset"})),
    "rpc/interface.py": ("operations of the interface", frozenset({"interface"})),
    "runtime/deadlines.py": ("an entry of its own heap", frozenset({"time"})),
    "runtime/logs.py": ("a record of logging", frozenset({"suppressed"})),
    "soap/multicast.py": (
        "what a carrier keeps of its outgoing queue, and its receiver",
        frozenset({"next_hops", "bindings"}),
    ),
    "soap/receiver.py": ("a counter", frozenset({"unwritten"})),
    "soap/service.py": (
        "what a carrier keeps of its outgoing queue",
        frozenset({"next_hops", "failures"}),
    ),
    "soap/transport.py": ("its own client, and the request that it answers", frozenset({"tls", "keep_alive"})),
    "simulation/multicast.py": ("a host that is cut off", frozenset({"cut_until"})),
    "spark/pipeline/replay.py": ("a logger", frozenset({"disabled"})),
    "spark/session.py": ("a class of PySpark, extended", frozenset({"__init__"})),
    "store/directory_store.py": ("the overlay that the store alone has", frozenset({"newest"})),
    "store/layered.py": ("the overlay that the store alone has", frozenset({"newest", "frozen"})),
    "store/overlay.py": ("a counter of its own segment", frozenset({"changes"})),
    "wire/headers.py": ("a reader of octets", frozenset({"offset"})),
}


def room_of(file: Path) -> str:
    parts = file.relative_to(SOURCE).with_suffix("").parts
    return "console.pages" if parts[:2] == ("console", "pages") else parts[0]


def targets_of(node: ast.AST) -> Iterator[ast.expr]:
    match node:
        case ast.Assign(targets=targets) | ast.Delete(targets=targets):
            given = targets
        case ast.AugAssign(target=target) | ast.AnnAssign(target=target):
            given = [target]
        case _:
            return
    for each in given:
        yield from each.elts if isinstance(each, ast.Tuple | ast.List) else [each]


def is_record(node: ast.ClassDef) -> bool:
    decorators = [ast.unparse(each) for each in node.decorator_list]
    return any("dataclass" in each for each in decorators) and not any("frozen=True" in each for each in decorators)


def fields_of(node: ast.ClassDef) -> Iterator[str]:
    """Those that are declared, and those that it makes of them at once."""
    for each in node.body:
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
            yield each.target.id
        if isinstance(each, ast.FunctionDef) and each.name == "__post_init__":
            for inner in ast.walk(each):
                yield from (target.attr for target in targets_of(inner) if isinstance(target, ast.Attribute))


def made_in(function: Function) -> set[str]:
    """The locals that are new objects: calls of a class, or copies."""
    found: set[str] = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr) and isinstance(node.value, ast.Call):
            name = ast.unparse(node.value.func).rpartition(".")[2]
            if name in ("cls", "replace") or name.lstrip("_")[:1].isupper():
                given = [node.target] if isinstance(node, ast.NamedExpr) else targets_of(node)
                found |= {each.id for each in given if isinstance(each, ast.Name)}
    return found


@cache
def records() -> dict[str, set[str]]:
    """The fields of the records of each room."""
    found: dict[str, set[str]] = defaultdict(set)
    for file in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ClassDef) and is_record(node):
                found[room_of(file)] |= set(fields_of(node))
    return found


def foreign(tree: ast.AST, fields: set[str], made: frozenset[str] = frozenset()) -> Iterator[tuple[int, str, str]]:
    """Assignments to attributes of objects that are neither `self`, new here nor records of the room."""
    for node in ast.iter_child_nodes(tree):
        inner = made | made_in(node) if isinstance(node, Function) else made
        for target in targets_of(node):
            if isinstance(target, ast.Attribute) and target.attr not in fields:
                owner = target.value
                if not (isinstance(owner, ast.Name) and (owner.id in ("self", "cls") or owner.id in inner)):
                    yield target.lineno, target.attr, ast.unparse(target)
        yield from foreign(node, fields, inner)


def faults(file: str, text: str) -> list[str]:
    room = room_of(SOURCE / file)
    fields = set().union(*(records()[each] for each in (room, *SHARED.get(room, {}))))
    allowed = ALLOWED[file][1] if file in ALLOWED else frozenset()
    return [
        f"{file}:{line}: {shown} is another object's: give it to the constructor, or add a method that takes it"
        for line, attribute, shown in foreign(ast.parse(text), fields)
        if attribute not in allowed
    ]


def test_no_part_is_changed_from_outside() -> None:
    found: list[str] = []
    for file in sorted(SOURCE.rglob("*.py")):
        found += faults(file.relative_to(SOURCE).as_posix(), file.read_text())
    assert found == []


def test_what_is_allowed_is_there() -> None:
    """An exception that nothing needs any more goes."""
    for file, (_, attributes) in ALLOWED.items():
        room = room_of(SOURCE / file)
        fields = set().union(*(records()[each] for each in (room, *SHARED.get(room, {}))))
        found = {attribute for _, attribute, _ in foreign(ast.parse((SOURCE / file).read_text()), fields)}
        assert attributes <= found, file


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("def f(manager): manager.limits = 1", True),
        ("def f(self): self.manager.core.delivery.relay = 1", True),
        ("def f(manager): manager.core.queues.local_hosts |= {1}", True),
        ("def f(): manager = make(); manager.limits = 1", True),
        ("def f(): transport.service = manager.binary = 1", True),
        ("def f(self): self.limits = 1", False),
        ("def f(): value = Value(); value.name = 1", False),
        ("def f(value): value.items[1] = 2", False),
    ],
)
def test_the_search_finds_them(text: str, found: bool) -> None:
    assert bool(faults("server/server.py", text)) is found
