"""Where bytes from outside reach native code: every module is in a table, and every target runs briefly each time."""

from __future__ import annotations

import ast
import random
from pathlib import Path

import pytest

from fuzz.native import FED, LIBRARIES, NOT_FED, SEEDS, TARGETS
from fuzz.targets import TARGETS as EVERY

SOURCE = Path(__file__).parents[2] / "src" / "postroad"
INPUTS = 300


def imports(text: str) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {each.name.partition(".")[0] for each in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.partition(".")[0])
    return found


def test_every_module_with_native_code_is_in_a_table() -> None:
    modules = {".".join(path.relative_to(SOURCE).with_suffix("").parts): path for path in SOURCE.rglob("*.py")}
    native = {name for name, path in modules.items() if imports(path.read_text(encoding="utf-8")) & LIBRARIES}
    assert native == set(FED) | set(NOT_FED)
    assert not set(FED) & set(NOT_FED)
    assert set(FED.values()) <= set(EVERY)
    assert set(TARGETS) <= set(EVERY)
    assert all(NOT_FED.values())


@pytest.mark.parametrize("name", TARGETS)
def test_changed_samples_break_nothing(name: str) -> None:
    chance = random.Random(29)
    for number in range(INPUTS):
        made = bytearray(SEEDS[name][number % len(SEEDS[name])])
        for _ in range(chance.randrange(6)):
            at = chance.randrange(len(made) or 1)
            made[at : at + chance.randrange(3)] = chance.randbytes(chance.randrange(3))
        TARGETS[name](bytes(made[: chance.randrange(len(made) + 1)] if number % 5 == 0 else made))
