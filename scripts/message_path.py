"""`python -m scripts.message_path`: the files that one recoverable message passes through, in and out, by TCP and HTTP.

A file counts when its code runs for the message. Timers do not count, and neither do the files that only read and write
formats (`names`, `wire`, `message`, the SOAP envelope). The store counts as one file. Two managers run: one in this
process, which is traced, and one in another.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import postroad
from postroad import aio
from postroad.config import load_configuration
from postroad.message import Message
from postroad.server.server import Server

SOURCE = f"{Path(postroad.__file__).parent}/"
FORMATS = ("names/", "wire/", "message", "errors", "deadlines", "version", "describe/", "net/endpoints", "client/")
ENVELOPE = frozenset(
    f"soap/{name}.py"
    for name in [
        "elements",
        "texts",
        "tree",
        "blocks",
        "header",
        "msmq",
        "signature",
        "fast_envelope",
        "envelope",
        "multipart",
        "addresses",
        "packets",
        "mapping",
    ]
)
TIMERS = frozenset(
    {"run_timers", "_run_timers", "on_timer", "_on_timer", "_sweep", "changed", "deadline", "soon", "commit_soon"}
)
QUEUE = r"private$\orders"
HOSTS = {"alpha": "127.0.0.2", "beta": "127.0.0.3"}
DESTINATIONS = {
    "TCP": rf"DIRECT=TCP:127.0.0.3\{QUEUE}",
    "HTTP": "DIRECT=HTTP://127.0.0.3:8080/msmq/private$/orders",
}
ARRIVES_S = 0.5


class Trace:
    """Which files were called, in the order of their first call, and which file called which."""

    def __init__(self) -> None:
        self.files: dict[str, None] = {}
        self.crossings: set[tuple[str, str]] = set()

    @contextmanager
    def running(self) -> Iterator[None]:
        threading.setprofile(self._call)
        sys.setprofile(self._call)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    def _call(self, frame: FrameType, event: str, argument: object) -> None:
        file = _file(frame)
        if event != "call" or file is None:
            return
        caller = None
        step: FrameType | None = frame
        while step is not None:
            if step.f_code.co_name in TIMERS and step.f_code.co_filename.startswith(SOURCE):
                return
            if caller is None and step is not frame:
                caller = _file(step)
            step = step.f_back
        self.files[file] = None
        if caller is not None and caller != file:
            self.crossings.add((caller, file))


def _file(frame: FrameType) -> str | None:
    path = frame.f_code.co_filename
    if not path.startswith(SOURCE):
        return None
    name = path.removeprefix(SOURCE)
    if name.startswith(FORMATS) or name in ENVELOPE or name.endswith("__init__.py"):
        return None
    return "store" if name.startswith("store/") else name


def _configuration(directory: Path, name: str) -> Path:
    file = directory / f"{name}.toml"
    file.write_text(
        f'[manager]\nname = "{name}"\ndata = "{directory / name}"\n'
        f'[listen]\nhost = "{HOSTS[name]}"\nbinary = 1801\nhttp = 8080\napi = 8180\n[binary]\nping = false\n'
        "[[queue]]\npath = 'private$\\orders'\n"
    )
    return file


async def trace(direction: str) -> None:
    own, other = ("beta", "alpha") if direction == "in" else ("alpha", "beta")
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary)
        command = [sys.executable, "-m", "postroad", "serve", "--config", str(_configuration(directory, other))]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # noqa: ASYNC220
        server = Server(load_configuration(_configuration(directory, own)))
        await server.start()
        try:
            assert server._manager is not None
            managers = {name: await _connected(f"http://{host}:8180") for name, host in HOSTS.items()}
            send = managers["alpha"].send if direction == "in" else server._manager.send
            for scheme, destination in DESTINATIONS.items():
                for _ in range(2):  # the first messages open sessions and queues
                    await send(destination, [Message("hello", recoverable=True)])
                    await asyncio.sleep(ARRIVES_S)
                found = Trace()
                with found.running():
                    await send(destination, [Message("hello", recoverable=True)])
                    await asyncio.sleep(ARRIVES_S)
                print(f"{direction} by {scheme}: {len(found.files)} files, {len(found.crossings)} crossings")
                print("  " + " -> ".join(found.files))
            for manager in managers.values():
                await manager.close()
        finally:
            await server.stop()
            process.terminate()
            process.wait()


async def _connected(address: str) -> aio.QueueManager:
    for _ in range(100):
        manager = await aio.connect(address)
        try:
            await manager.queue(QUEUE).info()
        except postroad.errors.PostroadError:
            await manager.close()
            await asyncio.sleep(0.1)
        else:
            return manager
    raise SystemExit(f"no queue manager answers at {address}")


if __name__ == "__main__":
    asyncio.run(trace("in"))
    asyncio.run(trace("out"))
