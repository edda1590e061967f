"""Runs the tutorial as it is written: its shell lines in one shell, and then its Python on their tables."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

PAGE = Path(__file__).parents[2] / "docs" / "tutorial" / "from-queues-to-a-report.md"
BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PREPARED = ("make install\n", 'export PATH="$PWD/.venv/bin:$PATH"\n')  # what the test does instead
LONG_S = 900  # most of the commands start Spark


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@pytest.mark.skipif(shutil.which("curl") is None, reason="the lines use curl")
def test_every_line_runs(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = tmp_path / "bin" / "postroad"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m postroad "$@"\n')
    command.chmod(0o755)
    found = BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    port = str(free_port())
    lines = "".join(text for language, text in found if language == "sh").replace("8180", port)
    for line in PREPARED:
        assert line in lines
        lines = lines.replace(line, "")
    environment = os.environ | {
        "PATH": f"{command.parent}:{os.environ['PATH']}",
        "POSTROAD_API": f"http://127.0.0.1:{port}",
    }
    script = f"set -e; trap 'kill $(jobs -p) 2> {tmp_path}/kill.log || true' EXIT\n{lines}"
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=LONG_S
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert r"to do: 2 findings; first tutorial: private$\answers: 1,000. No program has the queue open" in done.stdout
    assert "100 dead letters would be sent again" in done.stdout
    assert "100 messages sent again, 100 dead letters removed" in done.stdout
    page = (tmp_path / "tutorial" / "report.html").read_text(encoding="utf-8")
    assert "100 were sent again" in page
    assert "pipeline replay" not in page
    assert {each.name for each in tmp_path.iterdir()} <= {"bin", "tutorial", "kill.log"}

    monkeypatch.chdir(tmp_path / "tutorial")
    for language, text in found:
        if language == "python":
            exec(compile(text, str(PAGE), "exec"), {"__name__": "page"})
    assert "|nack-q-purged|100  |" in capsys.readouterr().out
