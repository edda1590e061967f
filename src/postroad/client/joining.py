"""Sends that go together: while one request to a queue is under way, single messages for it gather for the next one.

How callers wait is the business of aio/joined.py and sync/joined.py.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

MAX_JOINED = 1000  # messages of one request
MAX_JOINED_BYTES = 4 << 20  # and bytes, but for a message that is larger by itself

# Posts messages, each as JSON, to a queue: the id or the error of each.
Outcome = str | Exception
Post = Callable[[str, Sequence[bytes]], Coroutine[Any, Any, list[Outcome]]]


class JoinedSends(Protocol):
    """Sends single messages. Those of one caller keep their order, and each caller gets its own id or error."""

    async def send(self, name: str, message: bytes) -> str: ...


class Sized(Protocol):
    @property
    def message(self) -> bytes: ...


T = TypeVar("T", bound=Sized)


@dataclass(slots=True)
class Lane(Generic[T]):
    """The sends to one queue: `busy` while a request is under way, and who waits for the next one, the first first."""

    busy: bool = False
    waiting: deque[T] = field(default_factory=deque)

    def next_batch(self) -> list[T]:
        """As many as one request takes."""
        batch: list[T] = []
        size = 0
        while self.waiting and len(batch) < MAX_JOINED:
            size += len(self.waiting[0].message)
            if batch and size > MAX_JOINED_BYTES:
                break
            batch.append(self.waiting.popleft())
        return batch


def encode_message(message: dict[str, object]) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode()


def encode_messages(messages: Sequence[bytes]) -> bytes:
    return b'{"messages":[' + b",".join(messages) + b"]}"
