"""The version that setup.py gives to a wheel, a source archive and an editable install."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from scripts.release import VERSION_FILE

ROOT = Path(__file__).parents[2]
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
COMMIT_FILE = "postroad/runtime/commit.py"


def run(directory: Path, *command: str) -> str:
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small package with the setup.py and the version of this one, in a repository of its own."""
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", "A Tester")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "tester@example.com")
    monkeypatch.delenv("PYTHONPATH", raising=False)
    root = tmp_path / "clone"
    version = root / VERSION_FILE
    version.parent.mkdir(parents=True)
    shutil.copy(ROOT / VERSION_FILE, version)
    version.parents[1].joinpath("__init__.py").touch()
    shutil.copy(ROOT / "setup.py", root)
    (root / "pyproject.toml").write_text(PROJECT)
    (root / ".gitignore").write_text("dist/\nbuild/\n*.egg-info/\n__pycache__/\ncommit.py\n")
    run(tmp_path, "git", "init", "--quiet", str(root))
    run(root, "git", "add", ".")
    run(root, "git", "commit", "--quiet", "-m", "First")
    return root


def commit_of(root: Path) -> str:
    return run(root, "git", "rev-parse", "--short=7", "HEAD")


def build(root: Path, kind: str) -> Path:
    """Of an archive or a wheel, without the network."""
    run(root, sys.executable, "-m", "build", "--no-isolation", f"--{kind}", "--outdir", "dist")
    (built,) = (root / "dist").glob("*.whl" if kind == "wheel" else "*.tar.gz")
    return built


def version_of(directory: Path) -> str:
    """What the package in this directory says of itself."""
    return run(directory, sys.executable, "-c", "from postroad.runtime.version import __version__; print(__version__)")


def version_in(wheel: Path, target: Path) -> str:
    with zipfile.ZipFile(wheel) as file:
        file.extractall(target)
    return version_of(target)


def release() -> str:
    found = [line for line in (ROOT / VERSION_FILE).read_text().splitlines() if line.startswith("RELEASE = ")]
    return found[0].split('"')[1]


def test_a_wheel_names_its_commit_and_leaves_the_source_tree_alone(clone: Path, tmp_path: Path) -> None:
    wheel = build(clone, "wheel")
    expected = f"{release()}+g{commit_of(clone)}"
    assert wheel.name == f"postroad-{expected}-py3-none-any.whl"
    assert version_in(wheel, tmp_path / "installed") == expected
    assert not (clone / "src" / COMMIT_FILE).exists()
    assert version_of(clone / "src") == release()  # not installed: the bare number


def test_a_wheel_from_a_source_archive_names_the_archives_commit(clone: Path, tmp_path: Path) -> None:
    archive = build(clone, "sdist")
    with tarfile.open(archive) as file:
        file.extractall(tmp_path / "unpacked", filter="data")
    (unpacked,) = (tmp_path / "unpacked").iterdir()
    assert not (unpacked / ".git").exists()
    wheel = build(unpacked, "wheel")
    assert version_in(wheel, tmp_path / "installed") == f"{release()}+g{commit_of(clone)}"


def test_changes_that_are_not_committed_show(clone: Path, tmp_path: Path) -> None:
    (clone / "pyproject.toml").write_text(PROJECT + "# changed\n")
    wheel = build(clone, "wheel")
    assert version_in(wheel, tmp_path / "installed") == f"{release()}+g{commit_of(clone)}.dirty"


def test_an_editable_install_names_the_commit_and_says_that_it_is_editable(clone: Path, tmp_path: Path) -> None:
    hook = f"import setuptools.build_meta as backend; backend.build_editable({str(tmp_path)!r})"
    run(clone, sys.executable, "-c", hook)
    assert version_of(clone / "src") == f"{release()}+g{commit_of(clone)}.editable"
    assert run(clone, "git", "status", "--porcelain") == ""


def test_a_wheel_built_beside_an_editable_install_has_its_own_commit(clone: Path, tmp_path: Path) -> None:
    (clone / "src" / COMMIT_FILE).write_text('COMMIT = "g0000000.editable"\n')
    wheel = build(clone, "wheel")
    assert version_in(wheel, tmp_path / "installed") == f"{release()}+g{commit_of(clone)}"
    assert version_of(clone / "src") == f"{release()}+g0000000.editable"


def test_a_release_has_the_bare_number(clone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POSTROAD_RELEASE", release())
    assert version_in(build(clone, "wheel"), tmp_path / "installed") == release()
