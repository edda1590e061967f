"""AMQP 1.0 as rhea speaks it, the client for JavaScript: an implementation that shares nothing with Proton."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.amqp_door import ORDERS, PATIENCE_S, amqp_door

ROOT = Path(__file__).parents[2]
RHEA = ROOT / "build" / "rhea"
NODE = shutil.which("node")


@pytest.mark.skipif(NODE is None, reason="there is no node: install Node.js")
@pytest.mark.skipif(not (RHEA / "node_modules" / "rhea").exists(), reason="rhea is not there: run make rhea")
def test_rhea_sends_receives_and_asks() -> None:
    assert NODE is not None
    with amqp_door() as door:
        port = door.address.rpartition(":")[2]
        script = ROOT / "tests" / "rhea_client.js"
        done = subprocess.run(
            [NODE, str(script), str(RHEA), port], capture_output=True, text=True, timeout=3 * PATIENCE_S, check=False
        )
        assert done.returncode == 0, done.stderr
        seen = json.loads(done.stdout)
        assert (seen["accepted"], seen["rejected"]) == (6, ["amqp:link:message-size-exceeded"])
        assert seen["counts"] == [0, 0, 1]
        assert seen["bodies"] == ["message 1", "message 2", "message 3", "message 4", "bytes"]
        assert seen["drained"] is True
        assert seen["answer"] == ["how much? 42", "q"]
        last = seen["last"]
        assert (last["id"], last["subject"], last["correlation"], last["durable"]) == ("id-4", "label 4", "c-4", True)
        assert last["properties"] == {"text": "x", "number": 7, "yes": True}
        assert 0 < last["ttl"] <= 600_000
        assert [each.text for each in door.messages(";deadletter")] == ["message 0"]
        assert door.bodies(ORDERS) == []
