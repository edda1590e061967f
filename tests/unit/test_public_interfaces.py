"""We use only what others publish: their private modules, classes and functions change with any release of theirs."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "postroad"

ALLOWED = frozenset({"_typeshed", "__future__"})  # for checkers and the compiler alone
DOCUMENTED = frozenset({"os._exit", "sys._getframe"})  # the library's manual describes them


def private_imports(text: str) -> Iterator[str]:
    """Imports of others' modules and names that begin with an underscore, or whose module is an implementation."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            paths = [each.name for each in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            paths = [f"{node.module}.{each.name}" for each in node.names]
        else:
            continue
        for path in paths:
            parts = path.split(".")
            if parts[0] != "postroad" and parts[0] not in ALLOWED and any(map(_is_private, parts)):
                yield path


def private_members(text: str) -> Iterator[str]:
    """Members with an underscore of what was imported from others: `asyncio._get_running_loop`, `sys._getframe`."""
    tree = ast.parse(text)
    imported = {
        each.asname or each.name.partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom) and not _is_ours(node)
        for each in node.names
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in imported:
            name = f"{node.value.id}.{node.attr}"
            if node.attr.startswith("_") and not node.attr.startswith("__") and name not in DOCUMENTED:
                yield name


def _is_ours(node: ast.Import | ast.ImportFrom) -> bool:
    if isinstance(node, ast.ImportFrom):
        return bool(node.level) or (node.module or "").partition(".")[0] == "postroad"
    return all(each.name.partition(".")[0] == "postroad" for each in node.names)


def _is_private(part: str) -> bool:
    return (part.startswith("_") and not part.startswith("__")) or part.endswith("_impl") or part == "_internal"


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE)))
def test_no_module_uses_what_is_private_to_others(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert [*private_imports(text), *private_members(text)] == []


def test_the_scan_finds_them() -> None:
    assert "_socket" in sys.modules
    found = (
        "from uvicorn.protocols.http.httptools_impl import X\nfrom a._b import c\nfrom a import _c\nimport _socket\n"
    )
    assert [*private_imports(found)] == ["uvicorn.protocols.http.httptools_impl.X", "a._b.c", "a._c", "_socket"]
    assert [*private_imports("from postroad.a import _b\nfrom . import _c\nfrom __future__ import annotations")] == []
    assert [*private_members("import asyncio as a\na._get_running_loop()\na.sleep(0)")] == ["a._get_running_loop"]
