"""The programs that check the files of packaging/: those of `make check-packaging`, else those on the PATH."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGING = ROOT / "packaging"
INSTALLED = ROOT / "build" / "checkers-venv" / "bin"
PATIENCE_S = 120
HOW = {
    "promtool": "apt-get install prometheus",
    "systemd-analyze": "apt-get install systemd",
}


def check(program: str, *arguments: str, directory: Path = ROOT) -> str:
    """What the checker prints. Skips the test if it is not installed, and fails the test if it finds a fault."""
    found = shutil.which(program, path=f"{INSTALLED}{os.pathsep}{os.environ['PATH']}")
    if found is None:
        pytest.skip(f"{program} is not installed: {HOW.get(program, 'make check-packaging')}")
    done = subprocess.run(
        [found, *arguments], cwd=directory, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr
