"""A queue manager's HTTP listener under load, in a separate process: messages a second by SOAP. `make bench-soap`.

Beside them, in the same run and on the same server, requests without a body, which cost what HTTP costs; and what lxml
needs to parse the same envelope.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

from lxml import etree

from benchmarks.harness import print_table
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
    """One connection: the next request as soon as the last one is answered."""

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
    """Envelopes a second that lxml parses."""
    text = write_envelope(envelope(1, durable=True))
    started, count = time.perf_counter(), 0
    while (now := time.perf_counter()) < started + seconds:
        for _ in range(100):
            etree.fromstring(text)
        count += 100
    return count / (now - started)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=3000)
    arguments = parser.parse_args()
    with serving() as (port, _):
        measure(port, arguments.messages)


@contextmanager
def serving() -> Iterator[tuple[int, int]]:
    """The port and the process id of a manager with an empty queue."""
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory, "bench.toml")
        file.write_text(CONFIGURATION.format(host=HOST))
        command = [sys.executable, "-m", "postroad", "serve", "-c", str(file), "--log-level", "error"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            port = int(json.loads(server.stdout.readline())["listen"]["http"].rpartition(":")[2])
            try:
                yield port, server.pid
            finally:
                server.terminate()


def measure(port: int, messages: int) -> None:
    number = 1
    rows = []
    parsed = max(parse_rate() for _ in range(ROUNDS))
    for connections in CONNECTIONS:
        rates: dict[str, float] = {"empty": 0.0, "regular": 0.0, "durable": 0.0}
        for _ in range(ROUNDS):  # in turn, so all see the same machine
            empty = [request(b"", "text/xml")] * messages
            rates["empty"] = max(rates["empty"], asyncio.run(rate(port, empty, connections, b"HTTP/1.1 400")))
            for kind in ("regular", "durable"):
                made = requests(number, messages, durable=kind == "durable")
                number += messages
                rates[kind] = max(rates[kind], asyncio.run(rate(port, made, connections, b"HTTP/1.1 200")))
        for kind, figure in rates.items():
            name = "requests without a body" if kind == "empty" else f"{kind} messages"
            rows.append((name, str(connections), f"{figure:,.0f}", f"{figure / rates['empty']:.2f}"))
    rows.append(("lxml parses the same envelope", "", f"{parsed:,.0f}", ""))
    print_table(
        "SOAP over HTTP, 1 KiB body, one server process",
        ("", "connections", "a second", "of an empty request"),
        rows,
        f"best of {ROUNDS} rounds of {messages:,}; each connection sends when the last request is answered",
    )


if __name__ == "__main__":
    main()
