"""The README's lines run as written, with a server of the test's own on a port of its own."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
ADDRESS = "127.0.0.1:8180"  # as the README has it


def block(language: str, containing: str) -> str:
    blocks = re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)
    (found,) = [each for each in blocks if containing in each]
    return str(found)


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    file = tmp_path / "postroad.toml"
    file.write_text(
        '[manager]\nname = "alpha"\ndata = "data"\n[listen]\nbinary = false\nping = false\n'
        "http = false\nrpc = false\napi = 0\n"
    )
    command = [sys.executable, "-m", "postroad", "serve", "-c", str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield str(json.loads(server.stdout.readline())["listen"]["api"])
        finally:
            server.terminate()
            assert server.wait(30) == 0


@pytest.mark.skipif(shutil.which("curl") is None, reason="the lines use curl")
def test_the_first_lines_work_as_written(address: str, tmp_path: Path) -> None:
    commands = tmp_path / "bin"
    commands.mkdir()
    (commands / "postroad").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m postroad "$@"\n')
    (commands / "postroad").chmod(0o755)
    lines = block("sh", "queue create").replace(ADDRESS, address).splitlines()[1:]  # the first one sets the PATH
    lines += block("sh", "look at me").splitlines()
    environment = os.environ | {
        "PATH": f"{commands}:{os.environ['PATH']}",
        "POSTROAD_API": f"http://{address}",
    }
    output = []
    for line in lines:
        done = subprocess.run(["sh", "-c", line], env=environment, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, f"{line}\n{done.stderr}"
        output.append(done.stdout)
    assert json.loads(output[2])["label"] == "order 1"
    assert "ten boxes" in output[3]
    (message,) = json.loads(output[6])["messages"]
    assert (message["body"], message["label"]) == ("hello from curl", "hello")
    assert "notes" in output[7]
    assert output[-1].startswith("{")  # the id of the message that the console shows


def test_the_python_lines_work_as_written(tmp_path: Path) -> None:
    program = block("python", "postroad.open")
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "ten boxes\n"
