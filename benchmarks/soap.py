"""A queue manager's HTTP listener under load, in a separate process: messages per second by SOAP. `make bench-soap`.

Beside them, in the same run: requests without a body on the same server, which cost what its HTTP costs; and what lxml
needs to parse the same envelope.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

from lxml import etree

from benchmarks.harness import print_table, process_cpu_s
from postroad.soap.elements import Attachments, Envelope, Msmq, Properties, Services
from postroad.soap.elements import Path as SoapPath
from postroad.soap.envelope import write_envelope
from postroad.soap.multipart import join_entity

HOST = "127.0.50.21"
QUEUE = "private$/bench"
BODY = b"x" * 1024
SOURCE = UUID(int=0xBE7C)
ROUNDS = 3
CONNECTIONS = (1, 8)
NAMES = {
    "empty": "requests without a body",
    "regular": "regular messages",
    "durable": "durable messages",
}
CONFIGURATION = """
[manager]
name = "bench"
[listen]
host = "{host}"
http = 0
binary = false
ping = false
rpc = false
api = false
[[queue]]
path = 'private$\\bench'
"""


class Load(asyncio.Protocol):
    """One connection: it sends the next request as soon as the last one is answered."""

    def __init__(self, requests: list[bytes], wanted: bytes) -> None:
        self._requests = requests
        self._wanted = wanted
        self._received = b""
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._next()

    def _next(self) -> None:
        if self._requests:
            self._transport.write(self._requests.pop())
        else:
            self._transport.close()
            self.done.set_result(None)

    def data_received(self, data: bytes) -> None:
        self._received += data
        if self._received.endswith(b"\r\n\r\n"):
            if not self._received.startswith(self._wanted):
                self.done.set_exception(RuntimeError(self._received.decode()))
                self._transport.close()
                return
            self._received = b""
            self._next()


def envelope(number: int, *, durable: bool) -> Envelope:
    now = int(time.time())
    return Envelope(
        path=SoapPath("MSMQ:bench", f"http://{HOST}/msmq/{QUEUE}", f"uuid:{number}@{SOURCE}"),
        properties=Properties(now + 3600, now),
        services=Services(durable=True) if durable else None,
        msmq=Msmq(message_class=0, priority=3, source_qm_guid=SOURCE, ttrq=now + 3600),
    )


def request(body: bytes, content_type: str) -> bytes:
    head = f"POST /msmq/{QUEUE} HTTP/1.1\r\nHost: {HOST}\r\nContent-Type: {content_type}\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def requests(first: int, count: int, *, durable: bool) -> list[bytes]:
    found = []
    for number in range(first, first + count):
        text = write_envelope(envelope(number, durable=durable))
        content_type, pieces = join_entity(text, Attachments(BODY), SOURCE, number)
        found.append(request(b"".join(pieces), content_type))
    return found


async def rate(port: int, made: list[bytes], connections: int, wanted: bytes) -> float:
    """Requests a second."""
    count = len(made)
    loop = asyncio.get_running_loop()
    started = time.perf_counter()
    links = [await loop.create_connection(lambda: Load(made, wanted), HOST, port) for _ in range(connections)]
    await asyncio.gather(*(link.done for _, link in links))
    return count / (time.perf_counter() - started)


def parse_rate(seconds: float = 0.5) -> float:
    """Envelopes per second that lxml parses."""
    text = write_envelope(envelope(1, durable=True))
    started, count = time.perf_counter(), 0
    while (now := time.perf_counter()) < started + seconds:
        for _ in range(100):
            etree.fromstring(text)
        count += 100
    return count / (now - started)


@contextmanager
def serving(*command: str) -> Iterator[tuple[int, int]]:
    """Starts a server. Returns its process id and its port."""
    with subprocess.Popen([sys.executable, "-m", *command], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield server.pid, int(json.loads(server.stdout.readline())["listen"]["http"].rpartition(":")[2])
        finally:
            server.terminate()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=3000)
    arguments = parser.parse_args()
    with serving_manager() as (pid, port):
        measure(pid, port, arguments.messages)


@contextmanager
def serving_manager() -> Iterator[tuple[int, int]]:
    """Starts a manager with an empty queue. Returns its process id and its port."""
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory, "bench.toml")
        file.write_text(CONFIGURATION.format(host=HOST))
        with serving("postroad", "serve", "-c", str(file), "--log-level", "error") as found:
            yield found


def measure(pid: int, port: int, messages: int) -> None:
    number = 1
    rows = []
    parsed = max(parse_rate() for _ in range(ROUNDS))
    for connections in CONNECTIONS:
        rates = dict.fromkeys(NAMES, 0.0)
        spent = dict.fromkeys(NAMES, math.inf)  # the server's processor time for each request
        for _ in range(ROUNDS):  # in turn, so that all see the same machine
            for kind in NAMES:
                made, wanted = [request(b"", "text/xml")] * messages, b"HTTP/1.1 400"
                if kind in ("regular", "durable"):
                    made, wanted = requests(number, messages, durable=kind == "durable"), b"HTTP/1.1 200"
                    number += messages
                before = process_cpu_s(pid)
                rates[kind] = max(rates[kind], asyncio.run(rate(port, made, connections, wanted)))
                spent[kind] = min(spent[kind], (process_cpu_s(pid) - before) / messages)
        for kind, name in NAMES.items():
            figures = (f"{rates[kind]:,.0f}", f"{rates[kind] / rates['empty']:.2f}", f"{spent[kind] * 1e6:.0f}")
            rows.append((name, str(connections), *figures))
    rows.append(("lxml parses the same envelope", "", f"{parsed:,.0f}", "", ""))
    print_table(
        "SOAP over HTTP, 1 KiB body, one server process",
        ("", "connections", "a second", "of an empty request", "server CPU us"),
        rows,
        f"best of {ROUNDS} rounds of {messages:,}; each connection sends when the last request is answered",
    )


if __name__ == "__main__":
    main()
