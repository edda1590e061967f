"""A queue manager as a program sees it, embedded or remote: queues by name, transactions over them, rescue."""

from __future__ import annotations

from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Self, Unpack, overload
from uuid import UUID

from postroad.client.aio.queue import Queue, Transaction
from postroad.client.aio.runtime import Leaving
from postroad.client.payloads import MOVE_MESSAGES, as_lookup_ids
from postroad.errors import InvalidArgument, InvalidHandle, PostroadError, QueueExists

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from postroad.client.aio.backend import Backend
    from postroad.client.payloads import Name, Sendable
    from postroad.client.signing import Signing
    from postroad.describe.received import ReceivedMessage
    from postroad.names import MessageId
    from postroad.reports.enterprise import Route, Table
    from postroad.reports.info import (
        KeysInfo,
        ListenerInfo,
        LockInfo,
        ManagerInfo,
        QueueInfo,
        ReaderInfo,
        SessionInfo,
        TransactionInfo,
    )
    from postroad.reports.trace import Trace
    from postroad.validation.queue_properties import QueueAttributes


class QueueManager:
    """Made by `open` or `connect`. A context manager that closes itself; once closed, every verb raises InvalidHandle.

    Whatever changes something returns once that is durable. Calls made at the same time share a commit.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend: Backend | None = backend
        self._signing: Signing | None = None
        self.leaving = Leaving()  # consumers that their loops have dropped

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def closed(self) -> bool:
        return self._backend is None

    @property
    def backend(self) -> Backend:
        """The same verbs on plain values; for tools that need no convenience."""
        if self._backend is None:
            raise InvalidHandle("this queue manager was closed: open it, or connect to it, again")
        return self._backend

    @property
    def signing(self) -> Signing:
        """What signs the messages that this connection sends."""
        if self._signing is None:
            from postroad.client.signing import Signing  # and with it everything about packets

            self._signing = Signing()
        return self._signing

    async def close(self) -> None:
        """Reads that wait end with OperationCancelled, open transactions of an embedded manager are aborted. A second
        call does nothing."""
        await self.leaving.wait()
        backend, self._backend = self._backend, None
        if backend is not None:
            await backend.close()

    async def info(self) -> ManagerInfo:
        return await self.backend.info()

    async def route(self, destination: str, source: str | None = None) -> Route:
        """The way from one queue manager of the directory to another, by name, and why; from this one if none is given.

        ManagerNotFound for a name that is unknown, NoRoute if no way leads there.
        """
        return await self.backend.route(destination, source)

    async def route_table(self, source: str | None = None) -> Table:
        """The routing table of a queue manager of the directory; without rows unless it is a site gate."""
        return await self.backend.route_table(source)

    async def sessions(self) -> list[SessionInfo]:
        """The sessions with other queue managers, in the order they were made."""
        return await self.backend.sessions()

    async def readers(self) -> list[ReaderInfo]:
        """The queues that readers on other computers have open here."""
        return await self.backend.readers()

    async def exposure(self) -> list[ListenerInfo]:
        """The listeners: who reaches each, who may do what there, and whether it is encrypted. An embedded queue
        manager has none."""
        return await self.backend.exposure()

    async def keys(self) -> KeysInfo:
        """The public keys that other managers encrypt messages with. An embedded queue manager has none."""
        return await self.backend.keys()

    async def rotate_keys(self) -> KeysInfo:
        """Makes new keys. The previous ones still decrypt messages that are on their way."""
        return await self.backend.rotate_keys()

    async def locks(self, name: Name | None = None) -> list[LockInfo]:
        """Messages that clients have locked or taken in transactions, of one queue or of all, with their owners."""
        return await self.backend.locks(None if name is None else str(name))

    async def transactions(self) -> list[TransactionInfo]:
        """The open transactions of all clients, with their owners."""
        return await self.backend.transactions()

    async def abort_transaction(self, identifier: UUID | str) -> None:
        """Aborts the transaction of any client, as an operator; its owner gets LeaseEnded."""
        try:
            parsed = identifier if isinstance(identifier, UUID) else UUID(identifier)
        except ValueError:
            raise InvalidArgument(
                f"identifier: {identifier!r} is not the id of a transaction, which is a GUID"
            ) from None
        await self.backend.abort_transaction(parsed)

    async def trace(self, message_id: MessageId | str) -> Trace:
        r"""Where a message went, as far as this queue manager knows: `{guid}\ordinal`, as `send` gives it.

        A message that nothing is known of has no findings.
        """
        return await self.backend.trace(str(message_id))

    # Queues

    def queue(self, name: Name) -> Queue:
        """The queue of this name: a local path, or any format name. Whether it exists is not checked."""
        return Queue(self, str(name))

    async def queues(self) -> list[QueueInfo]:
        """Every queue: journals, subqueues, outgoing queues and the manager's own among them."""
        return await self.backend.queues()

    async def create_queue(
        self,
        path: Name,
        *,
        exist_ok: bool = False,
        **attributes: Unpack[QueueAttributes],
    ) -> Queue:
        r"""A new queue, as in `create_queue(r"private$\orders")`. Quotas of None are no limit. A message that aborted
        transactions put back `abort_limit` times moves to the subqueue `;poison`.

        QueueExists if it is there already; with `exist_ok`, only if it is not of the kind that was asked for.
        """
        try:
            await self.backend.create_queue(str(path), attributes)
        except QueueExists:
            if not exist_ok:
                raise
            transactional = attributes.get("transactional", False)
            if (await self.backend.queue(str(path))).transactional != transactional:
                kind = "not transactional" if transactional else "transactional"
                raise QueueExists(f"the queue {path} exists already, and is {kind}") from None
        return self.queue(path)

    async def delete_queue(self, name: Name) -> None:
        """The queue goes, with every message in it, its journal and its subqueues."""
        await self.backend.delete_queue(str(name))

    # Messages

    @overload  # text is a sequence of texts as well: it counts as one message
    async def send(  # type: ignore[overload-overlap]
        self, name: Name, messages: Sendable, tx: Transaction | None = None, *, transactional: bool = False
    ) -> str: ...

    @overload
    async def send(
        self, name: Name, messages: Iterable[Sendable], tx: Transaction | None = None, *, transactional: bool = False
    ) -> list[str]: ...

    async def send(
        self,
        name: Name,
        messages: Sendable | Iterable[Sendable],
        tx: Transaction | None = None,
        *,
        transactional: bool = False,
    ) -> str | list[str]:
        """`Queue.send` to any name; a list of several format names sends a copy to each."""
        return await self.queue(name).send(messages, tx, transactional=transactional)

    async def move(
        self,
        name: Name,
        target: Name,
        messages: Iterable[ReceivedMessage | int | str] | None = None,
    ) -> list[int]:
        """Moves these messages, all at once, or everything that is in the queue, a thousand at a time; the lookup ids
        they had. Nothing is acknowledged, and their new places are at the end of the target."""
        if messages is not None:
            return await self.backend.move(str(name), str(target), as_lookup_ids(messages))
        moved: list[int] = []
        after = -1
        while page := await self.backend.move_page(str(name), str(target), after, MOVE_MESSAGES):
            moved += page
            after = page[-1]
            if len(page) < MOVE_MESSAGES:
                break  # what arrives from now on was not in the queue
        return moved

    # Transactions

    async def begin(self) -> Transaction:
        return Transaction(self, await self.backend.begin())

    async def commit(self, tx: Transaction) -> None:
        await tx.commit()

    async def abort(self, tx: Transaction) -> None:
        await tx.abort()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Transaction]:
        """Commits when the block ends, aborts when it raises; does neither if the block ended it by itself."""
        tx = await self.begin()
        try:
            yield tx
        except BaseException:
            if not tx.ended:
                with suppress(PostroadError):  # what went wrong first is what the caller has to hear
                    await tx.abort()
            raise
        if not tx.ended:
            await tx.commit()
