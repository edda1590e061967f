"""A queue of any MSMQ server for Spark's processes: MS-MQQP by blocking calls, repeated while the server restarts.
Finds messages by lookup ids, with many calls at a time if the ids are known."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from enum import Enum
from typing import TypeVar

from postroad.client.blocking import LoopThread
from postroad.client.remote import RemoteBackend
from postroad.client.values import as_action, next_page
from postroad.errors import (
    InvalidHandle,
    MessageAlreadyReceived,
    MessageNotFound,
    RpcUnavailable,
    SharingViolation,
    TransactionSequence,
    TransactionUsage,
)
from postroad.received import ReceivedMessage
from postroad.spark.credentials import read_secret
from postroad.spark.manager import ANSWER_S, Patience
from postroad.spark.options import ARRIVAL_MASK, Place, Rpc
from postroad.spark.remote_offsets import Seen

T = TypeVar("T")
FIRST_PAGE = 8  # messages, of up to 4 MiB each, until their size is known
IN_FLIGHT = 64  # calls at a time
LAST_LOOKUP_ID = (1 << 63) - 1
PROBES = 64  # lookup ids to try in search of a message
_CURRENT, _FIRST, _LAST = as_action("current"), as_action("first"), as_action("last")
_NOT_THERE = (MessageNotFound, MessageAlreadyReceived)
_BROKEN = (RpcUnavailable, InvalidHandle)


class Fate(Enum):
    """Why a message is not in its place."""

    TAKEN = "taken"  # by us
    GONE = "gone"
    LOCKED = "locked"  # another reader is receiving it, and may put it back


class RemoteQueue:
    """Calls about one queue. If the server does not answer, they try again until the place's time-out.

    Each can be made twice without harm: a received message is not there a second time, and one whose receive was not
    acknowledged is back in its place when the connection ends.
    """

    def __init__(self, place: Place, rpc: Rpc, *, timeout_s: float | None = None) -> None:
        self._queue = place.queue
        self._timeout_s = place.timeout_s if timeout_s is None else min(timeout_s, place.timeout_s)
        self._rpc = rpc
        self._thread = LoopThread()
        self._backend = self._thread.run(self._start())

    async def _start(self) -> RemoteBackend:
        rpc = self._rpc
        password = rpc.password if rpc.password_file is None else read_secret("passwordFile", rpc.password_file)
        return RemoteBackend(rpc.host, rpc.port, user=rpc.user, password=password)

    def close(self) -> None:
        try:
            self._thread.run(self._backend.close())
        finally:
            self._thread.stop()

    # Looking

    def ends(self) -> tuple[int, int] | None:
        """The lookup ids of the first and the last message; None if there is none."""

        async def look() -> tuple[int, int] | None:
            try:
                first = await self._backend.lookup(self._queue, 0, _FIRST, False, None)
                last = await self._backend.lookup(self._queue, 0, _LAST, False, None)
            except MessageNotFound:
                return None
            return first.lookup_id, last.lookup_id

        return self._asked(look)

    def at(self, lookup_id: int) -> ReceivedMessage | None:
        """The message with this lookup id, if it is there and no other reader has it locked."""

        async def look() -> ReceivedMessage | None:
            found = await self._look(lookup_id)
            return None if isinstance(found, Fate) else found

        return self._asked(look)

    def near(self, lookup_id: int, end: int) -> int | None:
        """The lookup id of a message from `lookup_id` on: close to it and below `end`, or None.

        The protocol finds the next message only from one that exists.
        """
        for first in range(lookup_id, min(lookup_id + PROBES, end), FIRST_PAGE):
            tried = range(first, min(first + FIRST_PAGE, end))

            async def look(tried: range = tried) -> list[ReceivedMessage | Fate]:
                return await asyncio.gather(*(self._look(each) for each in tried))

            for found in self._asked(look):
                if not isinstance(found, Fate):
                    return found.lookup_id
        return None

    def walk(self, after: int = 0, end: int | None = None) -> Iterator[list[ReceivedMessage]]:
        """The messages with after < lookup id < end that no other reader has locked, in queue order, page by page.

        The protocol finds only one message behind another. While lookup ids are dense, the next ones are guessed, and
        looked at together: a guess that is wrong costs less than to wait for each answer.
        """
        count, known, guess = FIRST_PAGE, after, None
        while True:
            tried = range(0)
            if guess is not None:
                last = min(guess + count, (known | ARRIVAL_MASK) + 1, end or LAST_LOOKUP_ID)  # of the same priority
                tried = range(guess, last)
            page = self._guessed(tried) if tried else self._page(known, count)
            inside = page if end is None else [each for each in page if each.lookup_id < end]
            if inside:
                yield inside
                known = inside[-1].lookup_id
            if tried:
                guess = tried.stop if 2 * len(page) >= len(tried) else None
            elif len(page) < count or len(inside) < len(page):
                return
            elif known - page[0].lookup_id < 2 * len(page):
                guess = known + 1
            count = min(next_page(page), IN_FLIGHT) if page else FIRST_PAGE

    def _page(self, after: int, count: int) -> list[ReceivedMessage]:
        async def look() -> list[ReceivedMessage]:
            return await self._backend.page(self._queue, after, count)

        return self._asked(look)

    def _guessed(self, tried: range) -> list[ReceivedMessage]:
        async def look() -> list[ReceivedMessage | Fate]:
            return await asyncio.gather(*map(self._look, tried))

        return [each for each in self._asked(look) if isinstance(each, ReceivedMessage)]

    def peek(self, batch: Sequence[Seen]) -> Iterator[list[ReceivedMessage]]:
        """Those of the messages that exist, page by page. SharingViolation if another reader keeps one locked."""
        place, count = 0, FIRST_PAGE
        while place < len(batch):
            answers = self._settled(batch[place : place + count], self._look_for)
            place += count
            page = [each for each in answers if isinstance(each, ReceivedMessage)]
            if page:
                yield page
                count = min(next_page(page), IN_FLIGHT)

    async def _look(self, lookup_id: int) -> ReceivedMessage | Fate:
        try:
            return await self._backend.lookup(self._queue, lookup_id, _CURRENT, False, None)
        except _NOT_THERE:
            return Fate.GONE
        except TransactionUsage:
            return Fate.LOCKED

    async def _look_for(self, seen: Seen) -> ReceivedMessage | Fate:
        found = await self._look(seen.lookup_id)
        return Fate.GONE if isinstance(found, ReceivedMessage) and Seen.of(found) != seen else found

    # Taking

    def remove(self, batch: Sequence[Seen]) -> int:
        """Receives only these messages, and returns how many of them were gone."""
        gone = 0
        for place in range(0, len(batch), IN_FLIGHT):
            answers = self._settled(batch[place : place + IN_FLIGHT], self._take)
            gone += sum(each is Fate.GONE for each in answers)
        return gone

    async def _take(self, seen: Seen) -> ReceivedMessage | Fate:
        try:
            taken = await self._backend.receive_if(self._queue, seen.lookup_id, lambda found: Seen.of(found) == seen)
        except (*_NOT_THERE, TransactionSequence):
            # Servers also report a locked message as not found. One that is back by now is tried again.
            return Fate.GONE if await self._look_for(seen) is Fate.GONE else Fate.LOCKED
        return Fate.TAKEN if taken else Fate.GONE

    # Asking

    def _asked(self, work: Callable[[], Awaitable[T]]) -> T:
        patience = Patience(self._timeout_s)
        while True:
            try:
                return self._thread.run(self._timed(work()))
            except _BROKEN as fault:
                failure = fault
            patience.wait(failure)

    async def _timed(self, work: Awaitable[T]) -> T:
        try:
            async with asyncio.timeout(ANSWER_S):
                return await work
        except TimeoutError:
            raise RpcUnavailable(f"{self._rpc} did not answer within {ANSWER_S:g} seconds") from None

    def _settled(
        self, batch: Sequence[Seen], one: Callable[[Seen], Awaitable[ReceivedMessage | Fate]]
    ) -> list[ReceivedMessage | Fate]:
        """The result of `one` for each message, all at a time; repeated for those without a result."""
        patience = Patience(self._timeout_s)
        settled: dict[Seen, ReceivedMessage | Fate] = {}
        while left := [each for each in batch if each not in settled]:

            async def ask(left: list[Seen] = left) -> list[ReceivedMessage | Fate | BaseException]:
                return await asyncio.gather(*(self._timed(one(each)) for each in left), return_exceptions=True)

            fault: RpcUnavailable | InvalidHandle | SharingViolation | None = None
            for each, answer in zip(left, self._thread.run(ask()), strict=True):
                if isinstance(answer, _BROKEN):
                    fault = answer
                elif isinstance(answer, BaseException):
                    raise answer
                elif answer is Fate.LOCKED:
                    fault = fault or self._kept(each)
                else:
                    settled[each] = answer
            if fault is not None:
                patience.wait(fault)
        return [settled[each] for each in batch]

    def _kept(self, seen: Seen) -> SharingViolation:
        return SharingViolation(
            f"{self._queue}: another reader still has the message with lookup id {seen.lookup_id} locked; "
            "start the stream again later"
        )
