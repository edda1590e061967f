"""GitHub runs what `.ci/run` runs, the documentation lists every target of the Makefile, and somebody can try each
lower bound in pyproject.toml."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from scripts.dependency_ranges import EXTRAS, lower_bounds

ROOT = Path(__file__).parents[2]
WORKFLOWS = ROOT / ".github" / "workflows"


def test_a_push_runs_the_targets_of_ci() -> None:
    commands = re.findall(r"^make (.*?)(?: 2>&1.*)?$", (ROOT / ".ci" / "run").read_text(), re.MULTILINE)
    local = [word for command in commands for word in command.split() if not word.startswith("-")]
    listed = re.findall(r"^ {10}- (.+)$", (WORKFLOWS / "ci.yml").read_text(), re.MULTILINE)
    assert sorted(word for targets in listed for word in targets.split()) == sorted(local)
    assert "test-ci" in local


def test_workflows_run_targets_that_exist() -> None:
    made = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for file in WORKFLOWS.glob("*.yml"):
        run = re.findall(r"run: make ([a-z-]+)$", file.read_text(), re.MULTILINE)
        assert set(run) <= made, file


def test_the_documentation_lists_every_target() -> None:
    phony = " ".join(re.findall(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)).split()
    page = (ROOT / "docs" / "how-to" / "run-the-checks.md").read_text(encoding="utf-8")
    rows = [line.split(" | ")[0] for line in page.partition("## All targets")[2].splitlines() if line.startswith("| ")]
    assert sorted(re.findall(r"`make ([a-z0-9-]+)`", "".join(rows))) == sorted(phony)


def test_every_dependency_of_the_wheel_says_how_old_it_may_be() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pins = lower_bounds(project)
    assert all(re.fullmatch(r"[A-Za-z0-9-]+==[0-9.]+", pin) for pin in pins)
    assert {pin.partition("==")[0] for pin in pins} >= {"aiohttp", "apsw", "pyarrow", "jinja2"}
    bare = {"dependencies": ["aiohttp"], "optional-dependencies": {name: [] for name in EXTRAS}}
    with pytest.raises(ValueError, match=r"^aiohttp: pyproject.toml must name the oldest version"):
        lower_bounds(bare)
