"""The programs of docs/how-to/use-amqp-clients.md run as they are printed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.amqp_door import ORDERS, PATIENCE_S, TX, amqp_door

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "use-amqp-clients.md").read_text(encoding="utf-8")
PRICES = r"private$\prices"
QUEUES = {ORDERS: {}, PRICES: {}, TX: {"transactional": True}}
NODE, RHEA = shutil.which("node"), ROOT / "build" / "rhea" / "node_modules"


def program(language: str, directory: Path) -> Path:
    [source] = re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    path = directory / f"client.{language[:2]}"
    path.write_text(source)
    return path


def run(*command: str, **environment: str) -> list[str]:
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=3 * PATIENCE_S, env=os.environ | environment, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.skipif(find_spec("proton") is None, reason="no AMQP client: pip install postroad[amqp-test]")
def test_the_program_in_python(tmp_path: Path) -> None:
    with amqp_door(queues=QUEUES) as door:
        client = str(program("python", tmp_path))
        printed = run(sys.executable, client, f"amqp://{door.address}", "private$/orders", PRICES, TX)
        assert "\n".join(printed) in PAGE
        assert printed == ["order 1 three pairs of boots Leeds", "question 1 70", "paid"]
        assert [each.text for each in door.messages(TX)] == ["from Ann", "to Bob"]
        assert len({each.describe()["transaction_id"] for each in door.messages(TX)}) == 1
        assert (door.count(), door.count(PRICES)) == (0, 0)


@pytest.mark.skipif(NODE is None or not RHEA.exists(), reason="rhea is not there: run make rhea, with Node.js")
def test_the_program_in_javascript(tmp_path: Path) -> None:
    assert NODE is not None
    with amqp_door(queues=QUEUES) as door:
        client, (host, _, port) = program("js", tmp_path), door.address.rpartition(":")
        printed = run(NODE, str(client), host, port, "private$/orders", PRICES, NODE_PATH=str(RHEA))
        assert printed == ["order 1 three pairs of boots Leeds", "question 1 70"]
        assert (door.count(), door.count(PRICES)) == (0, 0)
