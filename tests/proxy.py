"""A small forwarding HTTP proxy as a separate process: `python -m tests.proxy HOST` prints its port.

It forwards requests in absolute form one by one. CONNECT opens a tunnel. Each request is a line on standard output. The
statuses after HOST are its answers to the first requests, as in `python -m tests.proxy HOST 407 404`.
"""

from __future__ import annotations

import asyncio
import sys
from urllib.parse import urlsplit

refusals = sys.argv[2:]


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            line, _, rest = head.decode("latin-1").partition("\r\n")
            method, target, _ = line.split()
            print(f"{method} {target}", flush=True)
            if refusals:
                await refuse(reader, writer, rest)
                continue
            if method == "CONNECT":
                await tunnel(reader, writer, target)
                return
            await pass_on(reader, writer, method, target, rest)
    except (asyncio.IncompleteReadError, ConnectionError, OSError):
        pass
    finally:
        writer.close()


async def tunnel(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, target: str) -> None:
    host, _, port = target.rpartition(":")
    far_reader, far_writer = await asyncio.open_connection(host, int(port))
    writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
    await asyncio.gather(copy(reader, far_writer), copy(far_reader, writer))


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()


async def pass_on(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, method: str, target: str, headers: str
) -> None:
    parts = urlsplit(target)
    far_reader, far_writer = await asyncio.open_connection(parts.hostname, parts.port or 80)
    path = parts.path + (f"?{parts.query}" if parts.query else "")
    far_writer.write(f"{method} {path} HTTP/1.1\r\n{headers}".encode("latin-1"))
    far_writer.write(await reader.readexactly(length_of(headers)))
    answer = await far_reader.readuntil(b"\r\n\r\n")
    writer.write(answer)
    await writer.drain()
    far_writer.close()


async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, headers: str) -> None:
    await reader.readexactly(length_of(headers))
    writer.write(f"HTTP/1.1 {refusals.pop(0)} No\r\nLocation: http://127.0.50.99/msmq/\r\n".encode())
    writer.write(b"Content-Type: text/html\r\nContent-Length: 9\r\n\r\n<p>No</p>")
    await writer.drain()


def length_of(headers: str) -> int:
    lines = headers.lower().split("\r\n")
    return next((int(line.split(":")[1]) for line in lines if line.startswith("content-length:")), 0)


async def main() -> None:
    server = await asyncio.start_server(serve, sys.argv[1], 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
