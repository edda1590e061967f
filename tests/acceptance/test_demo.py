"""The demo runs to its end, through the installed command line, as `make demo` runs it."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PATIENCE_S = 600  # for a busy machine: an idle one takes a minute


@pytest.mark.timeout(PATIENCE_S + 60)
def test_the_demo_tells_the_whole_story() -> None:
    command = [sys.executable, "-m", "scripts.demo"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "rome received 'recoverable greetings from london', recoverable, after 1 hop(s)" in run.stdout
    assert "rome has 'prices have changed'" in run.stdout
    assert "died of nack-reach-queue-timeout" in run.stdout
    assert "received by rome: 15, Spark says 15" in run.stdout


def test_an_address_in_use_is_one_line_and_everything_stops() -> None:
    with socket.create_server(("127.0.0.3", 8180)):
        command = [sys.executable, "-m", "scripts.demo"]
        run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert run.returncode == 1
    (line,) = run.stderr.splitlines()
    assert "listen.api: cannot listen on 127.0.0.3:8180" in line
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", 8180), timeout=10)
