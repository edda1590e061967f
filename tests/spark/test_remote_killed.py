"""A stream by remote read whose server and driver are killed: every row arrives exactly once."""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path

import pytest

import postroad as client
from tests.commands import ServerProcess
from tests.spark.test_cluster import Driver, send

MESSAGES = 4000
MASTER = "local[2,3]"
RPC = "127.0.80.6:12103"
CONFIGURATION = r"""
[manager]
name = "alpha"
data = "data"
[listen]
host = "127.0.80.6"
binary = false
ping = false
http = false
rpc = 12103
api = 18180
[[queue]]
path = 'private$\orders'
[[queue]]
path = 'private$\copies'
transactional = true
"""


@pytest.mark.timeout(600)
def test_the_server_and_the_driver_are_killed_once(tmp_path: Path) -> None:
    file = tmp_path / "alpha.toml"
    file.write_text(CONFIGURATION)
    server = ServerProcess(file)
    driver: Driver | None = None
    try:
        send(server.api, 0, MESSAGES // 2)
        driver = Driver(MASTER, server.api, tmp_path, "--rpc", RPC)
        driver.wait_for_batch()
        server.end(signal.SIGKILL)
        server = ServerProcess(file)
        driver.wait_for_batch()
        driver.kill()
        send(server.api, MESSAGES // 2, MESSAGES // 2)
        driver = Driver(MASTER, server.api, tmp_path, "--rpc", RPC, "--drain")
        driver.finish()
        assert (tmp_path / "failed").exists(), "a task has failed and was tried again"
        with client.connect(server.api) as manager:
            copies = Counter(message.text or "" for message in manager.queue(r"private$\copies").messages())
            left = manager.queue(r"private$\orders").info().messages
        expected = Counter(str(number) for number in range(MESSAGES))
        assert expected - copies == Counter(), "lost"
        assert copies - expected == Counter(), "doubled"
        assert left == 0
    finally:
        if driver is not None:
            driver.kill()
        server.end(signal.SIGTERM)
