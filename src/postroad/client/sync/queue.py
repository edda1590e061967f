# Written by scripts/unasync.py from client/aio/queue.py: edit that one.
"""A queue as a program sees it: send, receive, peek, and everything else one does with one queue."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Literal, Self, Unpack, overload
from uuid import UUID

from postroad.client.payloads import PAGE_MESSAGES, as_action, as_lookup_id, as_lookup_ids, as_messages, next_page
from postroad.client.sync.consuming import Consumer
from postroad.errors import InvalidArgument, InvalidHandle, PostroadError
from postroad.reports.offsets import Selection
from postroad.reports.operations import QueueAccess, ReadCall, ShareMode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from postroad.client.payloads import Place, Sendable
    from postroad.client.sync.backend import Backend
    from postroad.client.sync.manager import QueueManager
    from postroad.describe.received import ReceivedMessage
    from postroad.message import Message
    from postroad.reports.info import QueueInfo
    from postroad.reports.offsets import HoldInfo, Mark, Submission
    from postroad.validation.queue_properties import QueueAttributes


# A local transaction as its owner sees it: open, then committed or aborted, once.


class Transaction:
    """Sends and receives that happen together, in any queues of one manager. Made by `QueueManager.transaction`, which
    also ends it, or by `QueueManager.begin`. It stays open however long the work takes; the manager aborts it once this
    process is gone or silent for too long, and then a commit raises LeaseEnded."""

    __slots__ = ("_manager", "ended", "identifier")

    def __init__(self, manager: QueueManager, identifier: UUID) -> None:
        self._manager = manager
        self.identifier = identifier
        self.ended = False

    def __repr__(self) -> str:
        return f"<Transaction {self.id}{', ended' if self.ended else ''}>"

    @property
    def id(self) -> str:
        return str(self.identifier)

    def commit(self) -> None:
        """Everything done in it becomes true, durably. TransactionSequence if it has ended already."""
        self.ended = True
        self._manager.backend.commit(self.identifier)

    def abort(self) -> None:
        """What was sent never was; what was received is back in its place."""
        self.ended = True
        self._manager.backend.abort(self.identifier)


# An open queue and its cursors: a reader that keeps others out, or that walks through a queue at its own pace.


class OpenQueue:
    """Made by `Queue.open`; a context manager that closes itself. With `exclusive=True` this is the only reader."""

    __slots__ = ("_manager", "closed", "handle", "name")

    def __init__(self, manager: QueueManager, name: str, handle: int) -> None:
        self._manager = manager
        self.name = name
        self.handle = handle
        self.closed = False

    def __repr__(self) -> str:
        return f"<OpenQueue {self.name}{', closed' if self.closed else ''}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def receive(self, timeout: float | None = None) -> ReceivedMessage:
        """Takes the first message."""
        with self.cursor() as cursor:
            return cursor.receive(timeout)

    def peek(self, timeout: float | None = None) -> ReceivedMessage:
        """The first message, which stays."""
        with self.cursor() as cursor:
            return cursor.peek(timeout)

    @contextmanager
    def cursor(self) -> Iterator[Cursor]:
        """A cursor before the first message."""
        if self.closed:
            raise InvalidHandle(f"the queue {self.name} was closed: open it again")
        cursor = Cursor(self._manager, self.handle, self._manager.backend.open_cursor(self.handle))
        try:
            yield cursor
        finally:
            with suppress(PostroadError):  # the handle, the queue or the manager may be gone
                self._manager.backend.close_cursor(self.handle, cursor.number)

    def close(self) -> None:
        """Reads that wait on it end with OperationCancelled. A second call does nothing."""
        if not self.closed and not self._manager.closed:
            self.closed = True
            self._manager.backend.close_queue(self.handle)


class Cursor:
    """A place in a queue, before the first message at first. Reads that found nothing in time raise NoMessage;
    MessageAlreadyReceived says that another reader took the message at this place."""

    __slots__ = ("_handle", "_manager", "number")

    def __init__(self, manager: QueueManager, handle: int, number: int) -> None:
        self._manager = manager
        self._handle = handle
        self.number = number

    def peek(self, timeout: float | None = None) -> ReceivedMessage:
        """The message at the cursor."""
        return self._manager.backend.read_cursor(self._handle, self.number, ReadCall.PEEK, timeout)

    def peek_next(self, timeout: float | None = None) -> ReceivedMessage:
        """The message behind the cursor, which moves there. IllegalCursorAction before the first `peek`."""
        return self._manager.backend.read_cursor(self._handle, self.number, ReadCall.PEEK_NEXT, timeout)

    def receive(self, timeout: float | None = None) -> ReceivedMessage:
        """Takes the message at the cursor; the next read is about the one behind it."""
        return self._manager.backend.read_cursor(self._handle, self.number, ReadCall.RECEIVE, timeout)


class Queue:
    """A name on one manager; it costs nothing, and says nothing of whether the queue exists.

    A `timeout` is in seconds: 0 does not wait, None waits forever. Reads that found nothing in time raise NoMessage.
    """

    __slots__ = ("manager", "name")

    def __init__(self, manager: QueueManager, name: str) -> None:
        self.manager = manager
        self.name = name

    def __repr__(self) -> str:
        return f"<Queue {self.name}>"

    @property
    def _backend(self) -> Backend:
        return self.manager.backend

    # Sending

    @overload  # text is a sequence of texts as well: it counts as one message
    def send(  # type: ignore[overload-overlap]
        self, messages: Sendable, tx: Transaction | None = None, *, transactional: bool = False
    ) -> str: ...

    @overload
    def send(
        self, messages: Iterable[Sendable], tx: Transaction | None = None, *, transactional: bool = False
    ) -> list[str]: ...

    def send(
        self,
        messages: Sendable | Iterable[Sendable],
        tx: Transaction | None = None,
        *,
        transactional: bool = False,
    ) -> str | list[str]:
        r"""Sends one message and gives its id, `{guid}\ordinal`; or several, all or none, and gives their ids.

        Bytes and text are messages without properties, and a dict is sent as JSON. A transactional queue takes messages
        within a transaction only: `tx`, or one of its own with `transactional=True`; any other queue, only without.
        """
        if transactional and tx is not None:
            raise InvalidArgument("transactional: the messages go in the transaction that was given")
        values, alone = as_messages(messages)
        name = self.name
        if any(each.sign is not None for each in values):
            name, values = self._signed(values, transactional or tx is not None)
        if transactional:
            ids = self._backend.send_transactional(name, values)
        else:
            ids = self._backend.send(name, values, None if tx is None else tx.identifier)
        return ids[0] if alone else ids

    def _signed(self, messages: list[Message], transactional: bool) -> tuple[str, list[Message]]:
        """The messages with their signatures, and the name to send them to. It asks the manager for what is not known
        yet on this connection."""
        signing = self.manager.signing
        for question in signing.unknown(self.name, messages):
            signing.learn(question, self._backend.resolve(*question))
        return signing.sign(self.name, messages, transactional)

    # Receiving

    def receive(self, timeout: float | None = None, tx: Transaction | None = None) -> ReceivedMessage:
        """Takes the first message. In a transaction it is gone once that commits, and back if it aborts."""
        return (self.receive_many(1, timeout, tx))[0]

    def receive_many(
        self, count: int, timeout: float | None = None, tx: Transaction | None = None
    ) -> list[ReceivedMessage]:
        """Takes up to `count` messages that are there; waits only for the first."""
        return self._backend.receive(self.name, count, timeout, None if tx is None else tx.identifier)

    def receive_by_id(
        self,
        lookup_id: int | str,
        place: Place = "current",
        tx: Transaction | None = None,
    ) -> ReceivedMessage:
        """Takes the message with this lookup id, or the one that stands `next` or `previous` to it."""
        transaction = None if tx is None else tx.identifier
        return self._backend.lookup(self.name, as_lookup_id(lookup_id), as_action(place), True, transaction)

    def receive_by_correlation_id(
        self, correlation_id: str, timeout: float | None = None, tx: Transaction | None = None
    ) -> ReceivedMessage:
        """Takes the first message that has this correlation id, such as the reply to a message that `send` gave this id
        for. It leaves the others in their places, and looks through all of them: keep the queue short."""
        transaction = None if tx is None else tx.identifier
        return self._backend.receive_correlated(self.name, str(correlation_id), timeout, transaction)

    @contextmanager
    def receiving(self, timeout: float | None = None) -> Iterator[ReceivedMessage]:
        """The first message, for the length of a block, however long that takes: no other reader gets it. It is gone
        when the block ends, and back in its place if the block raises, this process dies or the manager restarts.

        LeaseEnded at the end of the block: the message went back meanwhile, and another reader may receive it too.
        """
        with self.receiving_many(1, timeout) as messages:
            yield messages[0]

    @contextmanager
    def receiving_many(self, count: int, timeout: float | None = None) -> Iterator[list[ReceivedMessage]]:
        """Up to `count` messages, which go or return together."""
        messages = self.lock(count, timeout)
        try:
            yield messages
        except BaseException:
            with suppress(PostroadError):  # what went wrong first is what the caller has to hear
                self.settle(messages, delete=False)
            raise
        self.settle(messages, delete=True)

    def consume(self, prefetch: int = 100, *, timeout: float | None = None) -> Consumer:
        """Every message as it comes, as in `for message in queue.consume()`; up to `prefetch` are fetched ahead,
        and no other reader gets these.

        Asking for the next message acknowledges the one before, and so does the end of the loop by `break`; an
        exception in its body gives that message back. What was fetched and not handed over goes back in any case. It
        goes on after a restart of the manager: what was not acknowledged comes again, so a message can come twice.
        With `timeout` the loop ends when no message came for so many seconds. `with queue.consume() as messages`
        does the same for iterators that are kept in a variable.
        """
        return Consumer(self.manager, self.name, prefetch, timeout)

    def lock(self, count: int = 1, timeout: float | None = None) -> list[ReceivedMessage]:
        """The first phase of a receive: no other reader gets these messages until `settle` or the end of this
        process."""
        return self._backend.lock(self.name, count, timeout)

    def settle(self, messages: Iterable[ReceivedMessage | int | str], *, delete: bool) -> None:
        """The second phase: locked messages go, or return to their places."""
        self._backend.settle(self.name, as_lookup_ids(messages), delete)

    def release_locks(self, messages: Iterable[ReceivedMessage | int | str] | None = None) -> list[int]:
        """Puts messages back that clients have locked, all of them or these, as an operator; their lookup ids. A client
        that still works hears of it with LeaseEnded."""
        return self._backend.release_locks(self.name, None if messages is None else as_lookup_ids(messages))

    # Looking

    def peek(self, timeout: float | None = None) -> ReceivedMessage:
        """The first message, which stays."""
        return (self.peek_many(1, timeout))[0]

    def peek_many(self, count: int, timeout: float | None = None) -> list[ReceivedMessage]:
        """Up to `count` messages from the first on, which stay; waits only for the first."""
        return self._backend.peek(self.name, count, timeout)

    def peek_by_id(self, lookup_id: int | str, place: Place = "current") -> ReceivedMessage:
        """The message with this lookup id, or the one that stands `next` or `previous` to it."""
        return self._backend.lookup(self.name, as_lookup_id(lookup_id), as_action(place), False, None)

    def messages(self, after: int = -1, until: int | None = None) -> Iterator[ReceivedMessage]:
        """Every message from the first on, or from behind the lookup id `after`, up to and with `until`, without taking
        or waiting. Those that come or go meanwhile may or may not be seen; none is seen twice."""
        limit = PAGE_MESSAGES
        while page := self._backend.page(self.name, after, limit):
            limit = next_page(page)
            for message in page:
                after = message.lookup_id
                if until is not None and after > until:
                    return
                yield message

    # Pipelines: ranges by order of arrival, and sending once

    def mark(self, start: int = 0, limit: int | None = None) -> Mark:
        """How far the queue can be read: below `arrival` nothing can appear any more. With `limit`, no further than
        behind that many messages from `start` on. An arrival number is the lower 56 bits of a lookup id."""
        return self._backend.mark(self.name, start, limit)

    def arrow(
        self,
        start: int = 0,
        end: int | None = None,
        *,
        columns: Iterable[str] | None = None,
        hold: str | None = None,
        limit: int | None = None,
        priority: int | None = None,
        message_class: int | None = None,
        label: str | None = None,
    ) -> Iterator[bytes]:
        """Messages with `start` <= arrival < `end`, in that order, as the pieces of one Arrow stream. `hold` is whose
        messages are shown besides those that anybody can have."""
        chosen = None if columns is None else tuple(columns)
        selection = Selection(start, end, hold, limit, chosen, priority, message_class, label)
        return self._backend.arrow(self.name, selection)

    def hold(self, name: str, start: int, end: int | None = None) -> HoldInfo:
        """Keeps messages with `start` <= arrival < `end` from every other reader, from purges and from expiry, restarts
        included, until `commit_hold` or `release`; without an end, up to the mark. Again, and wider, under the same
        name; SharingViolation where another name holds some of them."""
        return self._backend.hold(self.name, name, start, end)

    def holds(self) -> list[HoldInfo]:
        return self._backend.holds(self.name)

    def commit_hold(self, name: str, end: int) -> int:
        """Receives what `name` holds below the arrival number `end`; how many messages went. What is gone is gone: a
        second call does nothing."""
        return self._backend.commit_hold(self.name, name, end)

    def release(self, name: str) -> None:
        """Gives what `name` holds back to every reader."""
        self._backend.release(self.name, name)

    def submit(
        self,
        messages: Sendable | Iterable[Sendable],
        name: str,
        epoch: int,
        partition: int,
        row: int = 0,
        *,
        transactional: bool | None = None,
    ) -> Submission:
        """Sends messages that are the rows from `row` on of a partition of an epoch, but for those that the sender
        `name` has sent already: to try again is safe. Whether they go in a transaction is the queue's to say, if it is
        a local one and nobody else does."""
        values, _ = as_messages(messages)
        if any(each.sign is not None for each in values):
            raise InvalidArgument("sign: a submission cannot be signed; use send")
        return self._backend.submit(self.name, name, epoch, partition, row, values, transactional)

    def submit_arrow(
        self, stream: bytes, name: str, epoch: int, partition: int, row: int = 0, *, transactional: bool | None = None
    ) -> Submission:
        """The same for an Arrow stream with a message in each row."""
        return self._backend.submit(self.name, name, epoch, partition, row, stream, transactional)

    def commit_submission(self, name: str, epoch: int) -> None:
        """All of the epoch, and of those before it, is sent: what comes of them again is dropped."""
        self._backend.commit_submission(self.name, name, epoch)

    def forget_submission(self, name: str) -> None:
        """The sender does not come back: nothing is remembered of it."""
        self._backend.forget_submission(self.name, name)

    # Handles

    def open(self, *, access: Literal["receive", "peek"] = "receive", exclusive: bool = False) -> OpenQueue:
        """A handle on the queue, for cursors; `exclusive` keeps every other reader out until it is closed.
        SharingViolation if others stand in the way."""
        share = ShareMode.DENY_RECEIVE if exclusive else ShareMode.DENY_NONE
        opened = QueueAccess.RECEIVE if access == "receive" else QueueAccess.PEEK
        return OpenQueue(self.manager, self.name, self._backend.open_queue(self.name, opened, share))

    @contextmanager
    def cursor(self) -> Iterator[Cursor]:
        """A cursor before the first message, on a handle of its own."""
        with self.open() as handle, handle.cursor() as cursor:
            yield cursor

    # The queue itself

    def info(self) -> QueueInfo:
        return self._backend.queue(self.name)

    def change(self, **attributes: Unpack[QueueAttributes]) -> QueueInfo:
        """Changes attributes, as in `change(quota_kb=1024, journal=True)`. The kind cannot change."""
        return self._backend.set_queue(self.name, attributes)

    def acl(self) -> str:
        """The access list: who may do what with the queue, in SDDL."""
        return self._backend.acl(self.name)

    def set_acl(self, sddl: str | None) -> str:
        """Replaces the access list, and gives the new one. The owner stays if `sddl` names none, and without `D:`
        everybody may do everything. None restores the default."""
        return self._backend.set_acl(self.name, sddl)

    def grant(self, who: str, *rights: str) -> str:
        """Allows `who` more, as in `grant("ann", "peek", "receive")`; gives the new list. `who` is a user, a SID,
        everyone or anonymous."""
        return self._backend.edit_acl(self.name, "grant", who, rights)

    def deny(self, who: str, *rights: str) -> str:
        """Forbids these rights, whatever other entries allow."""
        return self._backend.edit_acl(self.name, "deny", who, rights)

    def revoke(self, who: str, *rights: str) -> str:
        """Removes these rights from all entries of `who`, those that allow and those that deny."""
        return self._backend.edit_acl(self.name, "revoke", who, rights)

    def purge(self) -> int:
        """Throws every message away; how many there were. Locked ones go when their reader is done."""
        return self._backend.purge_queue(self.name)

    def delete(self) -> None:
        """The queue goes, with every message in it, its journal and its subqueues."""
        self._backend.delete_queue(self.name)

    def pause(self) -> QueueInfo:
        """An outgoing queue sends nothing until it is resumed."""
        return self._backend.pause_queue(self.name)

    def resume(self) -> QueueInfo:
        """An outgoing queue sends again."""
        return self._backend.resume_queue(self.name)

    def insert(self, packets: Iterable[bytes]) -> list[int]:
        """Puts packets into a local queue byte for byte, as `ReceivedMessage.packet` gave them; their lookup ids."""
        return self._backend.insert(self.name, list(packets))
