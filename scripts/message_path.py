"""`python -m scripts.message_path [--paths]`: the calls between modules that one message costs, on five ways.

Every call counts that a function of one module makes to a function of another one, directly or through the standard
library, in every thread: formats, clients and timers too. What a manager does without a message does not count, such
as its round of every half second. Two managers run: one in this process, which is traced, and one in another. What
drives the other side runs in a thread that is not traced.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

import postroad
from postroad import aio
from postroad.client.remote import RemoteBackend
from postroad.config import load_configuration
from postroad.message import Message
from postroad.server.server import Server
from postroad.spark.data_source import MessageSource

SOURCE = f"{Path(postroad.__file__).parent}/"
# What runs without a message too, by module and function.
ROUNDS = frozenset({("manager/manager", "run_timers"), ("rpc/server", "_sweep")})
ORDERS, SENT, READ, SHOWN = (rf"private$\{name}" for name in ("orders", "sent", "read", "shown"))
OWN, OTHER = "beta", "alpha"
HOSTS = {OTHER: "127.0.0.2", OWN: "127.0.0.3"}
RPC = 2103
BY_TCP = {host: rf"DIRECT=TCP:{host}\{ORDERS}" for host in HOSTS.values()}
BY_HTTP = f"DIRECT=HTTP://{HOSTS[OWN]}:8080/msmq/private$/orders"
# The peer acknowledges a recoverable message half a second after it came.
SETTLES_S = 0.9
TURNS = 4  # of each walk, behind two that open connections and queues; the shortest counts

T = TypeVar("T")


@dataclass
class Walk:
    """What one message has cost."""

    calls: int = 0
    modules: dict[str, None] = field(default_factory=dict)  # in the order of their first call
    edges: Counter[tuple[str, str]] = field(default_factory=Counter)


class Trace:
    """Notes calls between modules while it is `on`, in this thread and in those that start after `install`."""

    def __init__(self) -> None:
        self.on = False
        self.walk = Walk()

    def install(self) -> None:
        threading.setprofile(self._call)
        sys.setprofile(self._call)

    def _call(self, frame: FrameType, event: str, argument: object) -> None:
        if not self.on or event != "call" or (module := _module(frame)) is None:
            return
        caller: str | None = None
        step: FrameType | None = frame
        while step is not None:
            above = _module(step)
            if (above, step.f_code.co_name) in ROUNDS:
                return
            if step is not frame:
                caller = caller or above
            step = step.f_back
        walk = self.walk
        walk.modules[module] = None
        if caller is not None and caller != module:
            walk.calls += 1
            walk.edges[caller, module] += 1


def _module(frame: FrameType) -> str | None:
    path = frame.f_code.co_filename
    return path.removeprefix(SOURCE).removesuffix(".py") if path.startswith(SOURCE) else None


class Outside:
    """A thread with an event loop of its own, for what is not to be traced: start it before the trace."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self.loop))


def _configuration(directory: Path, name: str) -> Path:
    file = directory / f"{name}.toml"
    queues = "".join(f"[[queue]]\npath = '{path}'\n" for path in (ORDERS, SENT, READ, SHOWN))
    file.write_text(
        f'[manager]\nname = "{name}"\ndata = "{directory / name}"\n'
        f'[listen]\nhost = "{HOSTS[name]}"\nbinary = 1801\nhttp = 8080\napi = 8180\nrpc = {RPC}\n'
        f"[binary]\nping = false\n{queues}"
    )
    return file


async def measure(outside: Outside, trace: Trace) -> dict[str, Walk]:
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary)
        command = [sys.executable, "-m", "postroad", "serve", "--config", str(_configuration(directory, OTHER))]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # noqa: ASYNC220
        server = Server(load_configuration(_configuration(directory, OWN)))
        await server.start()
        try:
            return await _walks(outside, trace)
        finally:
            trace.on = False
            await server.stop()
            process.terminate()
            process.wait()


async def _walks(outside: Outside, trace: Trace) -> dict[str, Walk]:
    other = await outside.run(_connected(HOSTS[OTHER]))
    prepare = await outside.run(_connected(HOSTS[OWN]))
    own = await aio.connect(f"http://{HOSTS[OWN]}:8180")
    backend = await outside.run(_remote())
    message = [Message("hello", recoverable=True)]

    async def come(destination: str) -> None:
        await outside.run(other.send(destination, message))

    async def spark() -> None:
        await asyncio.to_thread(_read_with_spark)

    async def nothing() -> None:
        pass

    ways: dict[str, tuple[Callable[[], Awaitable[Any]], Callable[[], Awaitable[Any]]]] = {
        "TCP in": (nothing, lambda: come(BY_TCP[HOSTS[OWN]])),
        "client to wire": (nothing, lambda: own.send(BY_TCP[HOSTS[OTHER]], message)),
        "SOAP in": (nothing, lambda: come(BY_HTTP)),
        "remote receive": (
            lambda: outside.run(prepare.send(READ, message)),
            lambda: outside.run(backend.receive(READ, 1, 5, None)),
        ),
        "Spark batch read": (nothing, spark),
    }
    await outside.run(prepare.send(SHOWN, message))
    found: dict[str, Walk] = {}
    for name, (prepared, step) in ways.items():
        for turn in range(2 + TURNS):
            await prepared()
            await asyncio.sleep(SETTLES_S)
            trace.walk, trace.on = Walk(), turn >= 2
            await step()
            await asyncio.sleep(SETTLES_S)
            trace.on = False
            if trace.walk.calls and (name not in found or trace.walk.calls < found[name].calls):
                found[name] = trace.walk
    await own.close()
    for each in (other, prepare, backend):
        await outside.run(each.close())
    return found


def _read_with_spark() -> None:
    """What Spark's Python processes do for one batch; its own process, in Java, is not there."""
    source = MessageSource({"api": f"http://{HOSTS[OWN]}:8180", "queue": SHOWN})
    reader = source.reader(source.schema())
    rows = sum(batch.num_rows for part in reader.partitions() for batch in reader.read(part))
    assert rows == 1


async def _remote() -> RemoteBackend:
    return RemoteBackend(HOSTS[OWN], RPC)


async def _connected(host: str) -> aio.QueueManager:
    for _ in range(300):
        manager = await aio.connect(f"http://{host}:8180")
        try:
            await manager.queue(ORDERS).info()
        except postroad.errors.PostroadError:
            await manager.close()
            await asyncio.sleep(0.1)
        else:
            return manager
    raise SystemExit(f"no queue manager answers at {host}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--paths", action="store_true", help="print the modules of each walk in their order")
    parser.add_argument("--edges", action="store_true", help="print the calls between each two modules")
    arguments = parser.parse_args()
    outside, trace = Outside(), Trace()
    trace.install()
    found = asyncio.run(measure(outside, trace))
    print(f"{'walk':<18}{'calls':>8}{'modules':>9}{'edges':>7}")
    for name, walk in found.items():
        print(f"{name:<18}{walk.calls:>8}{len(walk.modules):>9}{len(walk.edges):>7}")
    for name, walk in found.items():
        if arguments.paths:
            print(f"\n{name}:\n  {' -> '.join(walk.modules)}")
        if arguments.edges:
            print(f"\n{name}:")
            for (caller, module), calls in walk.edges.most_common():
                print(f"  {calls:>4}  {caller} -> {module}")


if __name__ == "__main__":
    main()
