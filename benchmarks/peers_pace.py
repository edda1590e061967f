"""A steady pace of sending. Each message contains its planned time of sending, from which the consumer computes the
latency. The planned time counts, not the real one, so a producer that falls behind cannot hide it."""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import AsyncIterator

SIZE = 1024
BODY = b"x" * SIZE
TICK_S = 0.001
STAMP = struct.Struct("<d")


def stamped(planned: float) -> bytes:
    return STAMP.pack(planned).ljust(SIZE, b"x")


def latency_ms(body: bytes) -> float:
    planned: float = STAMP.unpack_from(body)[0]
    return (time.monotonic() - planned) * 1e3


async def due(messages: int, per_second: float) -> AsyncIterator[list[float]]:
    """Yields the planned times of the messages that are due, again and again until all were due."""
    began = time.monotonic()
    sent = 0
    while sent < messages:
        passed = min(messages, int((time.monotonic() - began) * per_second) + 1)
        if passed > sent:
            yield [began + number / per_second for number in range(sent, passed)]
            sent = passed
        await asyncio.sleep(TICK_S)
