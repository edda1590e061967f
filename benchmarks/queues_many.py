"""What many outgoing queues cost: a restart, a send and receive, status, metrics, and one check of a quota.

`python -m benchmarks.queues_many [QUEUES]`. Each queue has one recoverable message for a host that does not answer. The
server is a separate process. Its binary listener is off, so that the figures are those of the queues alone. With
`--binary` it is on, and tries to reach all these hosts.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from urllib.request import Request, urlopen

from benchmarks.harness import best_of, print_table
from postroad.config import default_configuration
from postroad.manager import build_manager
from postroad.message import Message
from postroad.store import open_store

QUEUES = 10_000
BATCH = 500
LOCAL_QUEUE = "private$/here"


async def fill(directory: Path, count: int) -> float:
    """Makes the queues. Returns the seconds that one check of the manager's quota then takes."""
    manager = build_manager(default_configuration("alpha"), open_store(directory))
    await manager.start()
    names = [
        rf"DIRECT=TCP:127.{n >> 16 & 255}.{n >> 8 & 255}.{n & 255}\private$\orders" for n in range(256, 256 + count)
    ]
    for start in range(0, count, BATCH):
        batch = names[start : start + BATCH]
        await asyncio.gather(*(manager.send(name, [Message("order", recoverable=True)]) for name in batch))
    queue = manager.core.queues.get(names[0])
    seconds = best_of(lambda: manager.core.delivery.check_quota(queue, 100), rounds=5)
    await manager.stop()
    return seconds


def used(process: int) -> float:
    """Seconds of processor time of a process. 0 if the system does not report it."""
    stat = Path(f"/proc/{process}/stat")
    fields = stat.read_text().rpartition(")")[2].split() if stat.exists() else ["0"] * 20
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def timed(server: int, work: Callable[[], object], rounds: int = 3) -> tuple[str, str]:
    """Milliseconds of the best round, and the server's processor time per round in milliseconds."""
    taken, before = [], used(server)
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        taken.append(time.perf_counter() - start)
    return f"{min(taken) * 1e3:,.1f} ms", f"{(used(server) - before) / rounds * 1e3:,.1f} ms"


def main() -> None:
    binary = "--binary" in sys.argv
    numbers = [each for each in sys.argv[1:] if each.isdecimal()]
    count = int(numbers[0]) if numbers else QUEUES
    with tempfile.TemporaryDirectory() as place:
        rows = [
            ("one check of the manager's quota", f"{asyncio.run(fill(Path(place, 'data'), count)) * 1e6:.2f} us", "")
        ]
        config = Path(place, "alpha.toml")
        listeners = f"binary = {0 if binary else 'false'}\nping = false\nhttp = false\nrpc = false\napi = 0"
        config.write_text(
            f"[manager]\nname = 'alpha'\ndata = 'data'\n[listen]\n{listeners}\n[[queue]]\npath = 'private$\\here'\n"
        )
        start = time.perf_counter()
        server = subprocess.Popen(
            [sys.executable, "-m", "postroad", "serve", "-c", str(config)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        try:
            assert server.stdout is not None
            ready = json.loads(server.stdout.readline())
            rows.append(
                ("start until it is ready", f"{time.perf_counter() - start:.2f} s", f"{used(server.pid):.2f} s")
            )
            api = f"http://{ready['listen']['api']}"

            def call(path: str, body: object = None) -> bytes:
                data = None if body is None else json.dumps(body).encode()
                request = Request(f"{api}{path}", data, {"Content-Type": "application/json"} if data else {})
                with urlopen(request, timeout=600) as answer:
                    return bytes(answer.read())

            def send_and_receive() -> None:
                call(f"/api/v1/queues/{LOCAL_QUEUE}/messages", {"messages": [{"body": "x", "recoverable": True}]})
                assert call(f"/api/v1/queues/{LOCAL_QUEUE}/receive", {"timeout": 5})

            rows.append(("one send and receive by the API", *timed(server.pid, send_and_receive, 20)))
            rows.append(("GET /api/v1/queues", *timed(server.pid, lambda: call("/api/v1/queues"))))
            rows.append(("GET /api/v1/status", *timed(server.pid, lambda: call("/api/v1/status"))))
            rows.append(("GET /metrics", *timed(server.pid, lambda: call("/metrics"))))
            command = [sys.executable, "-m", "postroad", "status", "--api", api]
            rows.append(
                (
                    "postroad status",
                    *timed(server.pid, lambda: subprocess.run(command, check=True, capture_output=True)),
                )
            )
            lines = subprocess.run(command, check=True, capture_output=True).stdout.count(b"\n")
            rows.append(("lines that it prints", f"{lines:,}", ""))
        finally:
            server.terminate()
            server.wait()
        rows.append(
            ("memory of the server, at most", f"{resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >> 10} MiB", "")
        )
    print_table(f"{count:,} outgoing queues, each with one message", ("", "best", "server's processor time"), rows)


if __name__ == "__main__":
    main()
