"""The demo plays to its end, through the installed command line, as `make demo` runs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_demo_decodes_every_sample_packet() -> None:
    run = subprocess.run([sys.executable, "-m", "scripts.demo"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr) == (0, "")
    for sign in ("mqsender label", "SessionAck", "DIRECT=OS:hh\\a", "TransactionHeader"):
        assert sign in run.stdout
    assert {path.name for path in (ROOT / "examples").glob("*.hex") if path.name not in run.stdout} == set()
