"""`make release` in a temporary clone: what it refuses and changes. A dry run changes nothing."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.release import CHANGELOG, CHART, VERSION_FILE, Refused, built, release

DATE = "2026-01-31"
CHANGES = "# Changelog\n\n## [Unreleased]\n\n### Added\n\n- A thing.\n\n## [0.1.0] - 2025-01-01\n\n- The first.\n"
GREEN, RED = ([sys.executable, "-c", f"raise SystemExit({code})"] for code in (0, 1))
PROJECT = """
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"
[project]
name = "postroad"
dynamic = ["version"]
[tool.setuptools.packages.find]
where = ["src"]
"""
SETUP = Path(__file__).parents[2] / "setup.py"


def git(root: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for variable in ("GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME"):
        monkeypatch.setenv(variable, "A Tester")
    for variable in ("GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"):
        monkeypatch.setenv(variable, "tester@example.com")
    origin = tmp_path / "origin"
    (origin / VERSION_FILE).parent.mkdir(parents=True)
    (origin / VERSION_FILE).write_text('"""The version."""\n\nRELEASE = "0.1.0"\n')
    (origin / VERSION_FILE).with_name("__init__.py").write_text("")
    (origin / CHANGELOG).write_text(CHANGES)
    (origin / "pyproject.toml").write_text(PROJECT)
    shutil.copy(SETUP, origin)
    (origin / CHART).parent.mkdir(parents=True)
    (origin / CHART).write_text('apiVersion: v2\nversion: "0.1.0"\nappVersion: "0.1.0"\n')
    (origin / ".gitignore").write_text("dist/\nbuild/\n*.egg-info/\n")
    git(tmp_path, "init", "--quiet", str(origin))
    git(origin, "add", ".")
    git(origin, "commit", "--quiet", "-m", "First")
    git(tmp_path, "clone", "--quiet", str(origin), "clone")
    return tmp_path / "clone"


def test_a_release_sets_version_and_changelog_builds_and_tags(clone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    release(clone, "0.2.0", dry_run=False, green=GREEN, date=DATE)
    assert 'RELEASE = "0.2.0"' in (clone / VERSION_FILE).read_text()
    assert (clone / CHART).read_text() == 'apiVersion: v2\nversion: "0.2.0"\nappVersion: "0.2.0"\n'
    text = (clone / CHANGELOG).read_text()
    assert "## [Unreleased]\n\n## [0.2.0] - 2026-01-31\n\n### Added\n\n- A thing.\n\n## [0.1.0]" in text
    assert git(clone, "status", "--porcelain") == ""
    assert git(clone, "log", "-1", "--format=%s") == "Release 0.2.0"
    assert git(clone, "rev-list", "-1", "v0.2.0") == git(clone, "rev-parse", "HEAD")
    assert {path.name for path in (clone / "dist").iterdir()} == set(built("0.2.0"))
    assert capsys.readouterr().out.splitlines()[-1] == "git push origin HEAD v0.2.0"


def test_a_dry_run_says_the_steps_and_changes_nothing(clone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    release(clone, "0.2.0", dry_run=True, green=RED, date=DATE)
    assert "would set the version to 0.2.0" in capsys.readouterr().out
    assert git(clone, "status", "--porcelain") == ""
    assert git(clone, "tag") == ""
    assert (clone / CHANGELOG).read_text() == CHANGES


def test_a_red_tree_is_not_released(clone: Path) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        release(clone, "0.2.0", dry_run=False, green=RED, date=DATE)
    assert git(clone, "status", "--porcelain") == ""
    assert git(clone, "tag") == ""


@pytest.mark.parametrize(
    ("meanwhile", "fault"),
    [
        ("git commit --quiet --allow-empty -m Meanwhile", "must be the one that was tested"),
        ("touch new.txt", "must be clean"),
    ],
)
def test_a_tree_that_changes_during_the_tests_is_not_released(clone: Path, meanwhile: str, fault: str) -> None:
    with pytest.raises(Refused, match=fault):
        release(clone, "0.2.0", dry_run=False, green=["sh", "-c", meanwhile], date=DATE)
    assert (git(clone, "diff"), git(clone, "tag")) == ("", "")


@pytest.mark.parametrize(
    ("version", "fault"),
    [("0.2", "must be three numbers"), ("v0.2.0", "must be three numbers"), ("0.0.9", "must not go back")],
)
def test_a_version_that_cannot_be_released(clone: Path, version: str, fault: str) -> None:
    with pytest.raises(Refused, match=fault):
        release(clone, version, dry_run=True, green=GREEN, date=DATE)


def test_a_tree_that_is_not_clean_a_tag_that_exists_and_no_changes(clone: Path) -> None:
    (clone / "new.txt").write_text("")
    with pytest.raises(Refused, match="must be clean"):
        release(clone, "0.2.0", dry_run=True, green=GREEN, date=DATE)
    (clone / "new.txt").unlink()
    git(clone, "tag", "v0.2.0")
    with pytest.raises(Refused, match="exists already"):
        release(clone, "0.2.0", dry_run=True, green=GREEN, date=DATE)
    (clone / CHANGELOG).write_text(CHANGES.replace("### Added\n\n- A thing.\n\n", ""))
    git(clone, "commit", "--quiet", "-a", "-m", "No changes")
    with pytest.raises(Refused, match="must have entries"):
        release(clone, "0.3.0", dry_run=True, green=GREEN, date=DATE)
