"""What pyproject.toml cannot say: the version names the commit that a build was made from, as in 0.1.0+g1a2b3c4.

`.dirty` says that the build has changes that are not committed. `.editable` says that the code is that of the source
tree, which may have changed since. With POSTROAD_RELEASE in the environment the version is the bare number. Without
git, as in a build from a source archive, the file that is already there stays.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

ROOT = Path(__file__).resolve().parent
PACKAGE = Path("src/postroad/runtime")


def described_commit() -> str | None:
    if "POSTROAD_RELEASE" in os.environ:
        return ""
    if not (ROOT / ".git").exists():  # a file in a worktree; git itself would also look in the directories above
        return None
    command = ["git", "describe", "--always", "--dirty=.dirty", "--abbrev=7", "--exclude=*"]
    try:
        return "g" + subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def written(name: str, path: Path) -> str:
    """The text that a module assigns to a name; empty if there is none."""
    found = re.search(rf'^{name} = "(.*)"$', path.read_text(encoding="utf-8"), re.MULTILINE) if path.exists() else None
    return found[1] if found else ""


COMMIT = described_commit()
RELEASE = written("RELEASE", ROOT / PACKAGE / "version.py")
LOCAL = written("COMMIT", ROOT / PACKAGE / "commit.py") if COMMIT is None else COMMIT


def write_commit(package: Path, commit: str | None) -> None:
    if commit is not None:
        (package / "commit.py").write_text(f'COMMIT = "{commit}"\n', encoding="utf-8")


class BuildWithCommit(build_py):
    def run(self) -> None:
        super().run()
        if self.editable_mode:
            write_commit(ROOT / PACKAGE, COMMIT and f"{COMMIT.removesuffix('.dirty')}.editable")
        else:
            write_commit(Path(self.build_lib, "postroad", "runtime"), COMMIT)


class ArchiveWithCommit(sdist):
    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        super().make_release_tree(base_dir, files)
        target = Path(base_dir, PACKAGE)
        (target / "commit.py").unlink(missing_ok=True)  # sdist may have linked ours, which must stay as it is
        write_commit(target, LOCAL)


setup(
    version=f"{RELEASE}+{LOCAL}" if LOCAL else RELEASE,
    cmdclass={"build_py": BuildWithCommit, "sdist": ArchiveWithCommit},
)
