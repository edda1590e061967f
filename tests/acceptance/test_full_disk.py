"""A disk that is really full: nothing promised is lost, its messages can be received, and people are informed."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

import postroad
from tests.commands import PATIENCE_S, POSTROAD, serving

MOUNT = 'mount -t tmpfs -o size=$1 tmpfs "$2" && shift 2 && exec "$@"'
KILOBYTES = 8 * 1024
ORDERS = r"private$\orders"
OTHER = r"private$\other"


def mounted(directory: Path, *command: str) -> list[str]:
    """Runs a command in a mount namespace of its own, in which the directory is a small disk."""
    return ["unshare", "-m", "sh", "-c", MOUNT, "sh", f"{KILOBYTES}k", str(directory), *command]


def may_mount(directory: Path) -> bool:
    if sys.platform != "linux" or shutil.which("unshare") is None:
        return False
    return subprocess.run(mounted(directory, "true"), capture_output=True, check=False).returncode == 0


@contextmanager
def serving_on_small_disk(place: Path) -> Iterator[tuple[subprocess.Popen[bytes], str, Path]]:
    data = place / "data"
    data.mkdir()
    if not may_mount(data):
        pytest.skip("this user may not mount a small disk")
    config, log = place / "alpha.toml", place / "log"
    config.write_text(
        "[manager]\nname = 'alpha'\ndata = 'data'\n"
        "[listen]\nbinary = false\nping = false\nhttp = false\nrpc = false\napi = 0\n"
        f"[[queue]]\npath = '{ORDERS}'\n[[queue]]\npath = '{OTHER}'\n"
    )
    with log.open("wb") as errors:
        process = subprocess.Popen(
            mounted(data, *POSTROAD, "serve", "-c", str(config)), stdout=subprocess.PIPE, stderr=errors
        )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, log.read_text()
        yield process, f"http://{json.loads(line)['listen']['api']}", log
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(PATIENCE_S)
        assert process.stdout is not None
        process.stdout.close()


def readiness(api: str) -> tuple[int, str]:
    try:
        with urlopen(f"{api}/readyz", timeout=PATIENCE_S) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as answer:
        with answer:
            return answer.code, answer.read().decode()


def wait_until_ready(api: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while readiness(api)[0] != 200:
        assert time.monotonic() < deadline, readiness(api)
        time.sleep(0.1)


def fill(queue: postroad.Queue, size: int, number: int = 0) -> list[str]:
    """Sends until nothing more is accepted. Returns the labels of what was promised."""
    promised: list[str] = []
    while True:
        label = f"{number + len(promised)}"
        try:
            queue.send(postroad.Message(bytes(size), label=label, recoverable=True))
        except (postroad.QuotaExceeded, postroad.StorageError):
            return promised
        promised.append(label)


def drain(queue: postroad.Queue) -> list[str]:
    """Receives messages one by one, each in a commit of its own. Returns their labels."""
    received: list[str] = []
    with suppress(postroad.NoMessage):
        while True:
            received.append(queue.receive(0).label)
    return received


@pytest.mark.parametrize("size", [4000, 60_000])
def test_a_full_disk_is_told_of_and_can_be_drained(tmp_path: Path, size: int) -> None:
    with serving_on_small_disk(tmp_path) as (process, api, log), postroad.connect(api) as manager:
        orders, other = manager.queue(ORDERS), manager.queue(OTHER)
        assert readiness(api) == (200, "ready\n")
        promised = fill(orders, size)
        with pytest.raises(postroad.QuotaExceeded, match="the disk is full"):
            other.send(postroad.Message("small", recoverable=True))
        code, reason = readiness(api)
        assert (code, "the disk is full" in reason) == (503, True), reason
        assert "the disk is full" in str(manager.info().storage_error)
        assert drain(orders) == promised
        wait_until_ready(api)
        other.send(postroad.Message("again", recoverable=True))
        assert log.read_text().count("disk full") == 1
        assert log.read_text().count("disk has room again") == 1
        assert "Traceback" not in log.read_text()
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0


def test_what_others_write_fills_the_disk_too_and_receives_still_commit(tmp_path: Path) -> None:
    with serving_on_small_disk(tmp_path) as (process, api, log), postroad.connect(api) as manager:
        orders = manager.queue(ORDERS)
        promised = [f"{number}" for number in range(10)]  # too few for the log to be folded
        orders.send([postroad.Message(bytes(5000), label=label, recoverable=True) for label in promised])
        # As the server's own user, where its disk is: /proc leads there.
        stranger = Path(f"/proc/{process.pid}/root{tmp_path}/data/stranger")
        with stranger.open("wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(4096))
        code, reason = readiness(api)
        assert (code, "the disk is full" in reason) == (503, True), reason
        with pytest.raises((postroad.QuotaExceeded, postroad.StorageError), match="disk is full"):
            orders.send(postroad.Message("more", recoverable=True))
        assert drain(orders) == promised
        stranger.unlink()
        wait_until_ready(api)
        orders.send(postroad.Message("again", recoverable=True))
        assert "Traceback" not in log.read_text()


def test_express_messages_that_a_stop_drops_are_counted_in_the_log(tmp_path: Path) -> None:
    config = tmp_path / "alpha.toml"
    config.write_text(
        "[manager]\nname = 'alpha'\n[listen]\nbinary = false\nping = false\nhttp = false\nrpc = false\napi = 0\n"
        f"[[queue]]\npath = '{ORDERS}'\n"
    )
    with serving(config) as server:
        with postroad.connect(server.api) as manager:
            manager.queue(ORDERS).send([postroad.Message("express") for _ in range(3)])
            manager.queue(ORDERS).send(postroad.Message("kept", recoverable=True))
        assert server.end()[0] == 0
        (line,) = [line for line in server.log.splitlines() if "express messages dropped" in line]
        assert "messages=3" in line
