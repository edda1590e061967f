"""A client process of the client benchmark. It has one role, and ends when its messages are sent or received."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable

import postroad
from postroad import aio
from postroad.message import Message

BODY = b"x" * 1024
BATCH = 100
CONCURRENT = 1000
PREFETCH = 1000
QUEUE = r"private$\benchmark"


def _message() -> Message:
    return Message(BODY, recoverable=True)


def _begin() -> tuple[float, float]:
    """Waits for the line that tells it to begin."""
    print("ready", flush=True)
    sys.stdin.readline()
    return time.time(), time.process_time()


def _end(begun: tuple[float, float]) -> None:
    started, cpu = begun
    print(json.dumps({"started": started, "ended": time.time(), "cpu": time.process_time() - cpu}), flush=True)


def blocking(work: Callable[[postroad.Queue, int], None]) -> Callable[[str, int], None]:
    def run(url: str, messages: int) -> None:
        with postroad.connect(url) as manager:
            manager.info()  # makes the connection
            queue = manager.queue(QUEUE)
            begun = _begin()
            work(queue, messages)
            _end(begun)

    return run


@blocking
def send_one(queue: postroad.Queue, messages: int) -> None:
    for _ in range(messages):
        queue.send(_message())


@blocking
def receive_one(queue: postroad.Queue, messages: int) -> None:
    for _ in range(messages):
        queue.receive(timeout=0)


@blocking
def consume(queue: postroad.Queue, messages: int) -> None:
    for number, _ in enumerate(queue.consume(prefetch=PREFETCH), 1):
        if number == messages:
            break


@blocking
def send_batches(queue: postroad.Queue, messages: int) -> None:
    for _ in range(messages // BATCH):
        queue.send([_message() for _ in range(BATCH)])


@blocking
def receive_batches(queue: postroad.Queue, messages: int) -> None:
    left = messages
    while left:
        left -= len(queue.receive_many(BATCH, timeout=0))


def aio_send(url: str, messages: int) -> None:
    async def main() -> None:
        async with aio.connect(url) as manager:
            await manager.info()
            queue = manager.queue(QUEUE)
            begun = _begin()
            numbers = iter(range(messages))

            async def send() -> None:
                for _ in numbers:
                    await queue.send(_message())

            await asyncio.gather(*(send() for _ in range(CONCURRENT)))
            _end(begun)

    asyncio.run(main())


def aio_consume(url: str, messages: int) -> None:
    async def main() -> None:
        async with aio.connect(url) as manager:
            await manager.info()
            queue = manager.queue(QUEUE)
            begun = _begin()
            left = messages
            async for _ in queue.consume(prefetch=PREFETCH):
                left -= 1
                if not left:
                    break
            _end(begun)

    asyncio.run(main())


ROLES = {each.__name__: each for each in (aio_send, aio_consume)} | {
    "send_one": send_one,
    "receive_one": receive_one,
    "consume": consume,
    "send_batches": send_batches,
    "receive_batches": receive_batches,
}

if __name__ == "__main__":
    ROLES[sys.argv[1]](sys.argv[2], int(sys.argv[3]))
