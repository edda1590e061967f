"""Iterates over the messages of a queue: fetches ahead, acknowledges in batches, and goes on after a restart."""

from __future__ import annotations

import logging
import opcode
import sys
from collections import deque
from time import monotonic
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Self

from postroad.client.aio.runtime import caller, sleep
from postroad.errors import (
    InvalidArgument,
    LeaseEnded,
    ManagerUnavailable,
    NoMessage,
    OperationCancelled,
    PostroadError,
    TransactionSequence,
)

if TYPE_CHECKING:
    from postroad.client.aio.manager import QueueManager
    from postroad.describe.received import ReceivedMessage

log = logging.getLogger(__name__)

MAX_PREFETCH = 10_000
ACKNOWLEDGE_S = 0.05  # a finished message is acknowledged after this time, or with the next fetch
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 5.0  # before the next try to reach the manager

_GONE = (LeaseEnded, TransactionSequence)
_AWAY = (ManagerUnavailable, OperationCancelled)
# `break` and `return` pop the iterator of their loop off the stack, with an instruction that cannot raise.
_POPS = {opcode.opmap[name] for name in ("POP_TOP", "POP_ITER") if name in opcode.opmap}


class Consumer:
    """An iterator that `Queue.consume` makes. As a context manager it also knows whether its block raised."""

    def __init__(self, manager: QueueManager, name: str, prefetch: int, timeout: float | None) -> None:
        self._closed = True  # until it is usable
        if not 1 <= prefetch <= MAX_PREFETCH:
            raise InvalidArgument(f"prefetch: must be between 1 and {MAX_PREFETCH}, got {prefetch}")
        self._manager = manager
        self._name = name
        self._prefetch = prefetch
        self._timeout = timeout
        self._ahead: deque[ReceivedMessage] = deque()  # fetched, but not handed over yet
        self._in_hand: int | None = None  # the message that the caller is working on
        self._done: list[int] = []  # messages that the caller has finished, and that the manager does not know of
        self._done_at = 0.0  # when the first of these was finished
        self._reached = False  # the manager has answered before
        self._doubtful = False  # a request broke off: the manager may have acknowledged `_done`, or have restarted
        self._owner: int | None = None
        self._closed = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ReceivedMessage:
        if self._closed:
            raise StopAsyncIteration
        self._check_owner()
        self._finish()
        if self._ahead and self._done and monotonic() - self._done_at >= ACKNOWLEDGE_S:
            await self._acknowledge()
        if not self._ahead and not await self._fetch():
            self._closed = True
            raise StopAsyncIteration
        message = self._ahead.popleft()
        self._in_hand = message.lookup_id
        return message

    def _check_owner(self) -> None:
        """Refuses other callers: a request for the next message acknowledges the one in hand, which is the owner's."""
        if self._owner is None:
            self._owner = caller()
        elif self._owner != caller():
            raise InvalidArgument("consume: must be used by one thread or task; call consume() in each of them")

    def _finish(self) -> None:
        if self._in_hand is not None:
            if not self._done:
                self._done_at = monotonic()
            self._done.append(self._in_hand)
            self._in_hand = None

    # The manager

    async def _fetch(self) -> bool:
        """Acknowledges finished messages and fetches more. Keeps trying while the manager is away. False if none
        came."""
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                messages = await self._manager.backend.fetch(self._name, self._prefetch, self._timeout, self._done)
            except NoMessage:
                self._done = []
                return False
            except _GONE as fault:
                if not self._done:
                    raise
                await self._acknowledge_each(fault)
            except _AWAY as fault:
                if not self._reached or self._manager.closed:
                    raise
                self._note_absence(fault, pause_s)
                await sleep(pause_s)
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
            else:
                self._reached, self._doubtful, self._done = True, False, []
                self._ahead.extend(messages)
                return True

    def _note_absence(self, fault: PostroadError, pause_s: float) -> None:
        if not self._doubtful:
            facts = {"queue": self._name, "reason": str(fault), "again_s": pause_s}
            log.warning("the consumer is waiting for the queue manager", extra=facts)
        self._doubtful = True

    async def _acknowledge(self) -> None:
        try:
            await self._manager.backend.settle(self._name, self._done, True)
            self._done = []
            return
        except _GONE as fault:
            await self._acknowledge_each(fault)
        except _AWAY as fault:
            if self._manager.closed:
                raise
            self._note_absence(fault, FIRST_PAUSE_S)
            self._done = []
        # If the manager has restarted, the fetched messages are no longer ours and will come again.
        await self._settle([message.lookup_id for message in self._ahead], delete=False)
        self._ahead.clear()

    async def _acknowledge_each(self, fault: PostroadError) -> None:
        """Acknowledges messages one by one, because some of them are no longer ours."""
        done, self._done = self._done, []
        if self._doubtful:  # the broken request has acknowledged them, or a restart has put them back
            return
        lost = 0
        for lookup_id in done:
            lost += not await self._settle([lookup_id], delete=True)
        facts = {"queue": self._name, "messages": lost, "reason": str(fault)}
        log.warning("messages returned to their queue before they were acknowledged, and will come again", extra=facts)

    async def _settle(self, lookup_ids: list[int], *, delete: bool) -> bool:
        """Settles messages and returns whether that succeeded. If not, they will come again."""
        try:
            if lookup_ids:
                await self._manager.backend.settle(self._name, lookup_ids, delete)
        except PostroadError:
            return False
        return True

    # The end

    async def close(self) -> None:
        """Acknowledges what was handed over and gives back what was only fetched. A second call does nothing."""
        await self._close(done=True)

    async def _close(self, *, done: bool) -> None:
        if self._closed:
            return
        self._closed = True
        fetched = [message.lookup_id for message in self._ahead]
        if done:
            self._finish()
        elif self._in_hand is not None:
            fetched.insert(0, self._in_hand)
        self._ahead.clear()
        if self._manager.closed:
            return
        await self._settle(fetched, delete=False)
        if self._done:
            try:
                await self._manager.backend.settle(self._name, self._done, True)
            except _GONE as fault:
                await self._acknowledge_each(fault)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, fault: object, trace: TracebackType | None) -> None:
        try:
            await self._close(done=kind is None)
        except PostroadError:
            if kind is None:
                raise  # otherwise the caller should see the first exception, that of the block

    def __del__(self) -> None:
        if not self._closed and not sys.is_finalizing():
            done = _leaves_its_loop(sys._getframe(1))
            name, manager = self._name, self._manager

            async def end() -> None:
                try:
                    await self._close(done=done)
                except PostroadError as fault:
                    log.warning(
                        "messages could not be acknowledged, and will come again",
                        extra={"queue": name, "reason": fault},
                    )

            manager.cleanups.run(end)


def _leaves_its_loop(frame: FrameType) -> bool:
    """Whether the code that drops an iterator leaves its loop by `break` or `return`, and not by an exception.

    Python does not tell, but the current instruction does. For any other instruction, such as the end of a function
    that had the iterator in a variable, this returns False: the message in hand comes again rather than being lost.
    """
    return frame.f_lasti >= 0 and frame.f_code.co_code[frame.f_lasti] in _POPS
