"""The files of packaging/ beside a manager that runs: the health check, and every metric that they name."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import urllib.request
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

import pytest

from postroad.api.monitoring import standing_metrics
from tests.commands import PATIENCE_S, ServerProcess, postroad, serving
from tests.packaging.checkers import PACKAGING

CONFIGURATION = """
[manager]
name = "alpha"
data = "data"
[listen]
binary = 0
ping = false
http = 0
rpc = 0
api = 0
[multicast]
enabled = true
encapsulation = "udp"
interfaces = ["127.0.0.1"]
port_udp = {port}
"""
NAME = re.compile(r"\bpostroad_[a-z_]+\b")
USERS = ("prometheus/alerts.yml", "prometheus/alerts_test.yml", "grafana/postroad.json")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """With multicast and an outgoing queue, whose metrics exist only where these do."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    file = tmp_path_factory.mktemp("manager") / "postroad.toml"
    file.write_text(CONFIGURATION.format(port=port))
    with serving(file) as running:
        assert postroad("send", r"DIRECT=TCP:127.0.0.99\private$\x", "--body", "x", api=running.api).code == 0
        yield running


@pytest.mark.parametrize("name", USERS)
def test_every_metric_exists(name: str, server: ServerProcess) -> None:
    with urllib.request.urlopen(f"{server.api}/metrics", timeout=PATIENCE_S) as page:
        found = set(re.findall(r"^# TYPE (\S+)", page.read().decode(), re.MULTILINE))
    # Those of a store that several processes share: integration needs a database for them.
    report = {"kind": "postgresql", "role": "active", "epoch": 1, "standbys": [], "synchronous": True, "trouble": None}
    found |= {metric for metric, *_ in standing_metrics(report)}
    used = set(NAME.findall((PACKAGING / name).read_text()))
    assert len(used) > 10
    assert used - found == set()


def health_check(port: str) -> int:
    text = (PACKAGING / "container" / "Containerfile").read_text()
    (command,) = re.findall(r"^HEALTHCHECK .*\\\n +CMD (\[.*\])$", text, re.MULTILINE)
    program = [each.replace("8180", port) for each in json.loads(command)]
    assert program[0] == "python"
    return subprocess.run(
        [sys.executable, *program[1:]], capture_output=True, timeout=PATIENCE_S, check=False
    ).returncode


def test_the_containers_health_check_sees_whether_a_manager_is_ready(server: ServerProcess) -> None:
    assert health_check(server.api.rpartition(":")[2]) == 0
    with socket.socket() as taken:  # a port where nothing listens
        taken.bind(("127.0.0.1", 0))
        assert health_check(str(taken.getsockname()[1])) == 1


def test_the_two_managers_of_the_compose_file_exchange_messages(tmp_path: Path) -> None:
    """Their configurations on loopback addresses of their own, with the token as a secret."""
    token = tmp_path / "token"
    token.write_text("0123456789abcdef")
    token.chmod(0o600)
    monitor = tmp_path / "monitor"
    monitor.write_text("fedcba9876543210")
    monitor.chmod(0o600)
    files = []
    for name, address in (("alpha", "127.0.0.2"), ("beta", "127.0.0.3")):
        text = (PACKAGING / "compose" / f"{name}.toml").read_text()
        for before, after in (
            ("/run/secrets/postroad-token", str(token)),
            ("/run/secrets/postroad-monitor", str(monitor)),
            ("/var/lib/postroad", str(tmp_path / name)),
            ('host = "0.0.0.0"', f'host = "{address}"\nhttp = false\nping = false'),
        ):
            assert before in text
            text = text.replace(before, after)
        files.append(tmp_path / f"{name}.toml")
        files[-1].write_text(text)
    credentials = {"POSTROAD_TOKEN": token.read_text()}
    queue = r"private$\orders"
    with serving(files[0]) as alpha, serving(files[1]) as beta:
        sent = postroad(
            "send", f"DIRECT=TCP:127.0.0.3\\{queue}", "--transactional", "--body", "ten boxes",
            api=alpha.api, variables=credentials,
        )  # fmt: skip
        assert sent.code == 0, sent.errors
        received = postroad("receive", queue, "--timeout", "30", "--json", api=beta.api, variables=credentials)
        assert received.objects[0]["body"] == "ten boxes"
        looks = {"POSTROAD_USER": "monitor", "POSTROAD_PASSWORD": monitor.read_text()}
        login = b64encode(f"monitor:{monitor.read_text()}".encode()).decode()
        request = urllib.request.Request(f"{beta.api}/metrics", headers={"Authorization": f"Basic {login}"})
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as page:  # as prometheus.yml does
            assert b"postroad_queue_messages" in page.read()
        assert postroad("send", queue, "--transactional", "--body", "x", api=beta.api, variables=looks).code == 1
