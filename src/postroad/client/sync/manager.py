# Written by scripts/unasync.py from client/aio/manager.py: edit that one.
"""A queue manager as a program sees it, embedded or remote: queues by name, transactions over them, and rescue."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Self, Unpack, overload
from uuid import UUID

from postroad.client.payloads import MOVE_MESSAGES, as_lookup_ids
from postroad.client.sync.queue import Queue, Transaction
from postroad.client.sync.runtime import Cleanups
from postroad.errors import InvalidArgument, InvalidHandle, PostroadError, QueueExists
from postroad.names import public_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from postroad.client.payloads import Name, Sendable
    from postroad.client.signing import Signing
    from postroad.client.sync.backend import Backend
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
    """A queue manager, made by `open` or `connect`. As a context manager it closes itself.

    Once it is closed, every verb raises InvalidHandle. A verb that changes something returns once the change is
    durable. Calls made at the same time share a commit.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend: Backend | None = backend
        self._signing: Signing | None = None
        self.cleanups = Cleanups()  # ends consumers that their loops have dropped

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def closed(self) -> bool:
        return self._backend is None

    @property
    def backend(self) -> Backend:
        """The same verbs on plain values, for tools that need no conveniences."""
        if self._backend is None:
            raise InvalidHandle("this queue manager is closed: open it or connect to it again")
        return self._backend

    @property
    def signing(self) -> Signing:
        """Signs the messages that this connection sends."""
        if self._signing is None:
            from postroad.client.signing import Signing  # imported here, because it imports everything about packets

            self._signing = Signing()
        return self._signing

    def close(self) -> None:
        """Closes the connection. Waiting reads end with OperationCancelled.

        For an embedded manager, open transactions are aborted. A second call does nothing.
        """
        self.cleanups.wait()
        backend, self._backend = self._backend, None
        if backend is not None:
            backend.close()

    def info(self) -> ManagerInfo:
        return self.backend.info()

    def route(self, destination: str, source: str | None = None) -> Route:
        """The route from one queue manager of the directory to another, by name, with the reasons. The default source
        is this manager.

        Raises ManagerNotFound for an unknown name, and NoRoute if there is no route.
        """
        return self.backend.route(destination, source)

    def route_table(self, source: str | None = None) -> Table:
        """The routing table of a queue manager in the directory. It has rows only for a site gate."""
        return self.backend.route_table(source)

    def sessions(self) -> list[SessionInfo]:
        """The sessions with other queue managers, in the order in which they were opened."""
        return self.backend.sessions()

    def readers(self) -> list[ReaderInfo]:
        """The queues that readers on other computers have open here."""
        return self.backend.readers()

    def exposure(self) -> list[ListenerInfo]:
        """The listeners: who can reach each one, who may do what there, and whether it is encrypted.

        An embedded queue manager has none.
        """
        return self.backend.exposure()

    def keys(self) -> KeysInfo:
        """The public keys that other managers use to encrypt messages. An embedded queue manager has none."""
        return self.backend.keys()

    def rotate_keys(self) -> KeysInfo:
        """Makes new keys. The previous ones still decrypt messages that are on their way."""
        return self.backend.rotate_keys()

    def locks(self, name: Name | None = None) -> list[LockInfo]:
        """The messages that clients have locked or received in open transactions, with their owners, in one queue or in
        all."""
        return self.backend.locks(None if name is None else str(name))

    def transactions(self) -> list[TransactionInfo]:
        """The open transactions of all clients, with their owners."""
        return self.backend.transactions()

    def abort_transaction(self, identifier: UUID | str) -> None:
        """Aborts the transaction of any client. This is for operators; the owner gets LeaseEnded."""
        try:
            parsed = identifier if isinstance(identifier, UUID) else UUID(identifier)
        except ValueError:
            raise InvalidArgument(f"identifier: must be the GUID of a transaction, got {identifier!r}") from None
        self.backend.abort_transaction(parsed)

    def trace(self, message_id: MessageId | str) -> Trace:
        r"""Where a message went, as far as this queue manager knows. The id is `{guid}\ordinal`, as `send` returns it.

        The trace of an unknown message has no findings.
        """
        return self.backend.trace(str(message_id))

    # Queues

    def queue(self, name: Name) -> Queue:
        """The queue with this name: a local path or any format name. Does not check whether the queue exists."""
        return Queue(self, str(name))

    def queues(self) -> list[QueueInfo]:
        """Every queue, including journals, subqueues, outgoing queues and the manager's own queues."""
        return self.backend.queues()

    def create_queue(
        self,
        path: Name,
        *,
        public: bool = False,
        exist_ok: bool = False,
        **attributes: Unpack[QueueAttributes],
    ) -> Queue:
        r"""Creates a queue, as in `create_queue(r"private$\orders")` or `create_queue("orders", public=True)`.

        A quota of None is no limit. When aborted transactions have put a message back `abort_limit` times, it moves to
        the subqueue `;poison`. Raises QueueExists if the queue exists; with `exist_ok`, only if it is of another kind.
        """
        if public:
            path = public_path(str(path))
        try:
            self.backend.create_queue(str(path), attributes)
        except QueueExists:
            if not exist_ok:
                raise
            transactional = attributes.get("transactional", False)
            if (self.backend.queue(str(path))).transactional != transactional:
                kind = "not transactional" if transactional else "transactional"
                raise QueueExists(f"the queue {path} exists already, and is {kind}") from None
        return self.queue(path)

    def delete_queue(self, name: Name) -> None:
        """Deletes a queue with all its messages, its journal and its subqueues."""
        self.backend.delete_queue(str(name))

    # Messages

    @overload  # text is also a sequence of texts, but counts as one message
    def send(  # type: ignore[overload-overlap]
        self, name: Name, messages: Sendable, tx: Transaction | None = None, *, transactional: bool = False
    ) -> str: ...

    @overload
    def send(
        self, name: Name, messages: Iterable[Sendable], tx: Transaction | None = None, *, transactional: bool = False
    ) -> list[str]: ...

    def send(
        self,
        name: Name,
        messages: Sendable | Iterable[Sendable],
        tx: Transaction | None = None,
        *,
        transactional: bool = False,
    ) -> str | list[str]:
        """Sends to a queue with any name, like `Queue.send`. For a list of format names, each queue gets a copy."""
        return self.queue(name).send(messages, tx, transactional=transactional)

    def move(
        self,
        name: Name,
        target: Name,
        messages: Iterable[ReceivedMessage | int | str] | None = None,
    ) -> list[int]:
        """Moves messages to the end of another queue: the given ones in one step, or all, a thousand at a time.

        Returns the lookup ids that they had. No acknowledgments are sent.
        """
        if messages is not None:
            return self.backend.move(str(name), str(target), as_lookup_ids(messages))
        moved: list[int] = []
        after = -1
        while page := self.backend.move_page(str(name), str(target), after, MOVE_MESSAGES):
            moved += page
            after = page[-1]
            if len(page) < MOVE_MESSAGES:
                break  # the last message now; later arrivals are not moved
        return moved

    # Transactions

    def begin(self) -> Transaction:
        return Transaction(self, self.backend.begin())

    def commit(self, tx: Transaction) -> None:
        tx.commit()

    def abort(self, tx: Transaction) -> None:
        tx.abort()

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """A transaction that commits when the block ends and aborts when it raises, unless the block has already ended
        it."""
        tx = self.begin()
        try:
            yield tx
        except BaseException:
            if not tx.ended:
                with suppress(PostroadError):  # the caller should see the first exception, that of the block
                    tx.abort()
            raise
        if not tx.ended:
            tx.commit()


class RemoteManager(QueueManager):
    """A queue manager on another computer, made by `remote`. Its queues can be read and purged, and its administrators
    can ask it for figures and make it act."""

    def info(self, queue: Name | None = None) -> dict[str, Any]:  # type: ignore[override]
        """The properties of the queue manager, or of one of its queues, by MS-MQMR. Their names are those of [MS-MQMQ]
        2.3.11 and 2.3.12, such as `MESSAGE_COUNT`; one that has no value is None."""
        backend: Any = self.backend
        found: dict[str, Any] = backend.managed(None if queue is None else str(queue))
        return found

    def act(self, action: str, queue: Name | None = None) -> None:
        """`CONNECT`, `DISCONNECT` or `TIDY` of the queue manager; `PAUSE`, `RESUME` or `EOD_RESEND` of an outgoing
        queue."""
        backend: Any = self.backend
        backend.act(action, None if queue is None else str(queue))
