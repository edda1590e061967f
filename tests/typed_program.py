"""A program as people write it without looking anything up. `mypy --strict` accepts it, and a test runs it."""

from __future__ import annotations

import postroad
from postroad import aio


def work(qm: postroad.QueueManager) -> str:
    queue = qm.create_queue(r"private$\orders")
    asked: str = queue.send({"order": 1})
    several: list[str] = queue.send([{"order": 2}, "text", b"bytes", postroad.Message(json=[1])])
    for message in queue.consume(prefetch=2, timeout=0):
        words: list[str] = message.text.upper().split()
        if words == ["TEXT"]:
            queue.send(postroad.Message("answer", correlation_id=asked))
        if message.id == several[-1]:
            break
    answer = queue.receive_by_correlation_id(asked, timeout=5)
    assert answer.correlation_id is not None
    queue.send({"order": len([asked])})
    order = queue.receive(timeout=5).json()
    return f"{answer.text.upper()} to {order['order']}"


async def work_async(qm: aio.QueueManager) -> str:
    queue = await qm.create_queue(r"private$\orders")
    asked: str = await queue.send({"order": 1})
    async for message in queue.consume(timeout=0):
        await queue.send(postroad.Message(message.text.lower(), correlation_id=message.id))
        break
    await queue.send(postroad.Message("answer", correlation_id=asked, priority=7))
    return (await queue.receive_by_correlation_id(asked, timeout=5)).text
