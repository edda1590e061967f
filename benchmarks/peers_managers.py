"""Two queue managers over TCP, end to end. Each producer is a process with a sending manager of its own. The consumer
is a process with the manager whose application receives in batches."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from uuid import UUID

from benchmarks.network import BATCH, RECEIVER, UNCONFIRMED, open_manager
from benchmarks.peers_figures import Figures, Sample, figures
from benchmarks.peers_pace import BODY, due, latency_ms, stamped
from benchmarks.peers_processes import Child, Meter, Report, next_order, run_together, say_ready, started, wait_ready
from postroad.binary.session import BinarySettings
from postroad.manager import Manager
from postroad.message import Message
from postroad.runtime.supervision import relax_collector

MODULE = "benchmarks.peers_managers"
SENDER = "127.0.43.{}"
DEFAULT_WINDOW = BinarySettings().window_size
BACKLOG = 10_000  # messages by which a producer's manager may be ahead of the consumer's
SAMPLE_S = 1.0


@dataclass(frozen=True, slots=True)
class Load:
    """What one run sends. With `per_second`, producers keep that pace together, and the consumer measures latencies."""

    kind: str = "recoverable"
    messages: int = 30_000
    window: int = DEFAULT_WINDOW
    producers: int = 1
    consumed: bool = True  # else the run ends when the last message is stored at the receiver
    per_second: float = 0.0

    @property
    def each(self) -> int:
        """The messages of one producer: whole batches."""
        return max(1, self.messages // self.producers // BATCH) * BATCH


@dataclass(frozen=True, slots=True)
class Run:
    figures: Figures
    consumers: list[Report]
    producers: list[Report]

    @property
    def times(self) -> tuple[float, float]:
        """When the first producer began and when the last consumer ended, by the monotonic clock."""
        return min(each["began"] for each in self.producers), max(each["ended"] for each in self.consumers)

    @property
    def latencies_ms(self) -> list[float]:
        return [each for report in self.consumers for each in report["latencies_ms"]]

    @property
    def samples(self) -> dict[str, list[Sample]]:
        """Of the consumer and of the first producer."""
        reports = {"consumer": self.consumers[0], "producer": self.producers[0]}
        return {name: [Sample(*each) for each in report["samples"]] for name, report in reports.items()}


def measure(name: str, load: Load, trace: Path | None = None) -> Run:
    """`trace` is a directory that gets the syncs of each process."""
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:

        def start(role: str) -> Child:
            file = None if trace is None else trace / role
            arguments = (role, directory, json.dumps(asdict(load)))
            return stack.enter_context(started(MODULE, *arguments, trace=file))

        # Producers end first (a stack is left from its top), so that no manager tries to reach one that is gone.
        consumers = [start("consumer")]
        producers = [start(str(number)) for number in range(load.producers)]
        wait_ready([*consumers, *producers])
        received, sent = run_together(consumers, producers)
    began, ended = min(each["began"] for each in sent), max(each["ended"] for each in received)
    spent = {"producer": sum(each["cpu_s"] for each in sent), "consumer": sum(each["cpu_s"] for each in received)}
    return Run(figures(name, load.each * load.producers, began, ended, spent), received, sent)


# What the processes do


async def produce(number: int, directory: str, load: Load) -> None:
    async with opened(f"sender{number}", SENDER.format(number + 1), directory, load.window, number + 1) as manager:
        name = rf"DIRECT=TCP:{RECEIVER}\private$\bench{number}"
        say_ready()
        await next_order()
        meter = Meter()
        async with sampled(meter, lambda: 0):
            await (send_at_pace if load.per_second else send_fast)(manager, name, load)
            await next_order()  # all arrived
        meter.report()
        await next_order()


async def send_fast(manager: Manager, name: str, load: Load) -> None:
    batch = [compose(load.kind, BODY)] * BATCH
    batches = iter(range(load.each // BATCH))

    async def produce() -> None:
        for _ in batches:
            await send(manager, name, load.kind, batch)
            queue = manager.core.queues.get(name)
            while queue.count > BACKLOG:  # noqa: ASYNC110
                await asyncio.sleep(0.005)

    await asyncio.gather(*(produce() for _ in range(max(1, UNCONFIRMED // BATCH // load.producers))))


async def send_at_pace(manager: Manager, name: str, load: Load) -> None:
    async with asyncio.TaskGroup() as tasks:
        async for planned in due(load.each, load.per_second / load.producers):
            tasks.create_task(send(manager, name, load.kind, [compose(load.kind, stamped(each)) for each in planned]))


def compose(kind: str, body: bytes) -> Message:
    return Message(body, label="bench", recoverable=kind == "recoverable")


async def send(manager: Manager, name: str, kind: str, messages: list[Message]) -> None:
    await (manager.send_transactional if kind == "transactional" else manager.send)(name, messages)


async def consume(directory: str, load: Load) -> None:
    async with opened("receiver", RECEIVER, directory, load.window) as manager:
        names = [rf"private$\bench{number}" for number in range(load.producers)]
        for name in names:
            await manager.create_queue(name, transactional=load.kind == "transactional")
        say_ready()
        await next_order()
        meter = Meter()
        latencies: list[float] = []
        counts = dict.fromkeys(names, 0)
        async with sampled(meter, lambda: sum(counts.values())), asyncio.TaskGroup() as tasks:
            for name in names:
                tasks.create_task(drain(manager, name, load, counts, latencies))
        meter.report(latencies_ms=latencies)
        await next_order()


async def drain(manager: Manager, name: str, load: Load, counts: dict[str, int], latencies: list[float]) -> None:
    """Receives in batches. As many messages wait for the disk here as a peer's consumer may have unacknowledged."""
    queue = manager.core.queues.get(name)
    while not load.consumed and queue.count < load.each:  # noqa: ASYNC110
        await asyncio.sleep(0.005)

    async def receive() -> None:
        while load.consumed and counts[name] < load.each:
            transaction = manager.begin() if load.kind == "transactional" else None
            messages = await manager.reads.receive(name, BATCH, None, transaction)
            if transaction is not None:
                await manager.commit(transaction)
            bodies = [each.body for each in messages]  # a consumer that does not look at its messages would be cheating
            if load.per_second:
                latencies.extend(map(latency_ms, bodies))
            counts[name] += len(bodies)

    readers = [asyncio.create_task(receive()) for _ in range(max(1, UNCONFIRMED // BATCH // load.producers))]
    ended, waiting = await asyncio.wait(readers, return_when=asyncio.FIRST_COMPLETED)
    for each in waiting:
        each.cancel()
    for each in ended:
        each.result()


@asynccontextmanager
async def opened(
    name: str, host: str, directory: str, window: int, identifier: int | None = None
) -> AsyncIterator[Manager]:
    known = None if identifier is None else UUID(int=identifier)
    manager, transport = await open_manager(name, host, directory, window, known)
    try:
        yield manager
    finally:
        await transport.stop()
        await manager.stop()


@asynccontextmanager
async def sampled(meter: Meter, count: Callable[[], int]) -> AsyncIterator[None]:
    """Samples memory and messages from time to time, at the beginning and at the end."""

    async def sample() -> None:
        while True:
            meter.sample(count())
            await asyncio.sleep(SAMPLE_S)

    task = asyncio.create_task(sample())
    yield
    task.cancel()
    meter.sample(count())


if __name__ == "__main__":
    logging.getLogger("postroad").addHandler(logging.NullHandler())  # its last express messages may be unacknowledged
    role, directory, load = sys.argv[1], sys.argv[2], Load(**json.loads(sys.argv[3]))
    relax_collector()  # like `postroad serve`
    asyncio.run(consume(directory, load) if role == "consumer" else produce(int(role), directory, load))
