"""What the handlers of both protocols share: the queue manager that they need, replies that wait for the disk, reads
that wait for a message, and purges. A new interface of the same door is one more subclass."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from postroad.errors import PostroadError, Status, StorageError
from postroad.net.limits import Limits
from postroad.queues.local import LocalQueueManager
from postroad.queues.open_queue import WaitingRead
from postroad.remote_read.service import Answer, RemoteQueue, RemoteReadEntry, RemoteReadService
from postroad.rpc.calls import Later
from postroad.rpc.interface import Interface
from postroad.rpc.server import RpcServer
from postroad.security.attempts import Audit
from postroad.store.interface import Record

Out = TypeVar("Out")
T = TypeVar("T")


class WaitingReads(Protocol):
    """Reads that end later."""

    def wait(
        self, request: WaitingRead, take: Callable[[list[Record]], T], refuse: Callable[[PostroadError], T]
    ) -> Awaitable[T]: ...


class ReadManager(Protocol):
    """What the handlers need from their queue manager."""

    clock: Callable[[], float]
    core: LocalQueueManager
    limits: Limits

    @property
    def reads(self) -> WaitingReads: ...

    def commit_soon(self) -> None: ...

    def change_then(self, operation: Callable[[], T], done: Callable[[T, StorageError | None], object]) -> T: ...

    async def durably(self, operation: Callable[[], T]) -> T: ...


class Handlers:
    """The methods of one queue manager. They answer at once if they can. When a client leaves, the RPC runtime cancels
    its waiting calls."""

    interfaces: tuple[Interface, ...]

    def __init__(self, manager: ReadManager, service: RemoteReadService, audit: Audit | None = None) -> None:
        self.manager = manager
        self.service = service
        self.audit = audit

    def register(self, server: RpcServer) -> None:
        """Offers the interfaces, with a handler for every operation."""
        raise NotImplementedError

    def durably(self, operation: Callable[[], int], reply: Callable[[int], Out]) -> Out | Later[Out]:
        """Returns the reply with the operation's status: after the commit if something must be on disk, else at
        once."""
        later: Later[Out] = Later()

        def done(status: int, error: StorageError | None) -> None:
            later.give(reply(status if error is None else error.status))

        self.manager.change_then(operation, done)
        return later.given

    def answer(self, found: Answer | RemoteReadEntry, reply: Callable[[Answer], Out]) -> Out | Awaitable[Out]:
        """The reply to a read: at once, or when it has ended."""
        self.manager.commit_soon()  # the read may have removed expired messages
        if isinstance(found, Answer):
            return reply(found)
        assert found.waiting is not None
        return self.manager.reads.wait(
            found.waiting,
            lambda records: reply(self.service.finish(found, records)),
            lambda error: reply(self.service.fail(found, error)),
        )

    async def purge(self, remote: RemoteQueue | None, step: Callable[[], tuple[int, bool]]) -> int:
        """Purges step by step, one commit for each, and records in the audit who has the queue open. A handle that was
        never given out purges nothing."""
        try:
            status, more = await self.manager.durably(step)
            while more:
                status, more = await self.manager.durably(step)
        except PostroadError as error:
            status = error.status
        if remote is not None and self.audit is not None:
            who, outcome = remote.caller.user or "anonymous", "done" if status == Status.OK else "refused"
            self.audit("purge", who=who, address=remote.caller.address, queue=remote.path, outcome=outcome)
        return status
