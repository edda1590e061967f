"""A queue manager in this process, on the caller's event loop: a thin adapter over postroad.manager."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from pathlib import Path
from uuid import UUID

from postroad.client.payloads import MAX_SUBMISSION, as_name
from postroad.describe.received import ReceivedMessage
from postroad.errors import IllegalName, InvalidArgument, MessageAlreadyReceived, MessageNotFound, NoMessage
from postroad.manager import NAME_STATE, Manager, build_embedded
from postroad.manager.reads import answering
from postroad.message import Message
from postroad.names import FormatName, MultipleElementName, PathName
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
from postroad.reports.offsets import HoldInfo, Mark, Selection, Submission
from postroad.reports.operations import QueueAccess, ReadCall, Resolution, SeekAction, ShareMode
from postroad.reports.trace import Trace
from postroad.store import Store, open_store
from postroad.validation.kinds import read_object
from postroad.validation.queue_properties import NEW_QUEUE, QueueAttributes

log = logging.getLogger(__name__)


async def open_embedded(path: str | Path, name: str | None = None) -> EmbeddedBackend:
    """Opens a data directory, or ":memory:", and starts a manager on it. Creates the directory if necessary.

    The directory remembers the name. Without `name`, the manager keeps the last one; a new one gets the first part of
    the host's name.
    """
    store = await asyncio.to_thread(open_store, path)
    try:
        name = name or _stored_name(store) or socket.gethostname().partition(".")[0] or "postroad"
        _check_name(name)
        manager = build_embedded(name, store)
        manager.core.tick.set_state(NAME_STATE, name.encode())
    except BaseException:
        store.close()
        raise
    try:
        await manager.start()
    except BaseException:
        await manager.stop()
        raise
    return EmbeddedBackend(manager)


def _stored_name(store: Store) -> str | None:
    stored = store.state(NAME_STATE).get(NAME_STATE)
    return stored.decode() if stored else None


def _check_name(name: str) -> None:
    try:
        computer = PathName.parse(rf"{name}\private$\queue").computer
    except IllegalName as fault:
        raise InvalidArgument(f"name: {name!r} cannot be a computer's name: {fault.fault}") from None
    if computer != name or name == ".":
        raise InvalidArgument(f"name: {name!r} cannot be a computer's name")


class EmbeddedBackend:
    """Implements `Backend` with a manager that is running and belongs to this object."""

    def __init__(self, manager: Manager) -> None:
        self.manager = manager
        self._reported: set[str] = set()

    async def close(self) -> None:
        await self.manager.stop()

    async def info(self) -> ManagerInfo:
        return self.manager.info()

    async def route(self, destination: str, source: str | None) -> Route:
        return self.manager.router.routes.route(source or self.manager.name, destination)

    async def route_table(self, source: str | None) -> Table:
        return self.manager.router.routes.table(source or self.manager.name)

    async def sessions(self) -> list[SessionInfo]:
        return self.manager.sessions()

    async def readers(self) -> list[ReaderInfo]:
        return self.manager.doors.remote_read.readers()

    async def exposure(self) -> list[ListenerInfo]:
        return list(self.manager.doors.exposure)

    async def keys(self) -> KeysInfo:
        return self.manager.keys.describe()

    async def rotate_keys(self) -> KeysInfo:
        return await self.manager.keys.rotate()

    async def trace(self, message_id: str) -> Trace:
        return await self.manager.trace(message_id)

    # Queues

    async def queues(self) -> list[QueueInfo]:
        return await self.manager.all_queues()

    async def queue(self, name: str) -> QueueInfo:
        return self.manager.queue(as_name(name))

    async def create_queue(self, path: str, attributes: QueueAttributes) -> QueueInfo:
        return await self.manager.create_queue(path, **read_object(attributes, NEW_QUEUE))

    async def set_queue(self, name: str, attributes: QueueAttributes) -> QueueInfo:
        return await self.manager.set_queue(as_name(name), **read_object(attributes, NEW_QUEUE))

    async def delete_queue(self, name: str) -> None:
        await self.manager.delete_queue(as_name(name))

    async def purge_queue(self, name: str) -> int:
        return await self.manager.purge_queue(as_name(name))

    async def acl(self, name: str) -> str:
        return self.manager.access_lists.show(as_name(name))

    async def set_acl(self, name: str, sddl: str | None) -> str:
        return await self.manager.access_lists.set(as_name(name), sddl)

    async def edit_acl(self, name: str, edit: str, who: str, rights: Sequence[str]) -> str:
        return await self.manager.access_lists.edit(as_name(name), edit, who, rights)

    async def pause_queue(self, name: str) -> QueueInfo:
        return self.manager.pause_queue(as_name(name))

    async def resume_queue(self, name: str) -> QueueInfo:
        return self.manager.resume_queue(as_name(name))

    # Sending

    async def resolve(self, destination: str, names: Sequence[str], certificate: bytes) -> Resolution:
        return await self.manager.resolve(as_name(destination), [as_name(name) for name in names], certificate)

    async def send(self, name: str, messages: Sequence[Message], transaction: UUID | None) -> list[str]:
        parsed = as_name(name)
        ids = await self.manager.send(parsed, messages, transaction)
        self._warn_of_waiting(parsed)
        return ids

    async def send_transactional(self, name: str, messages: Sequence[Message]) -> list[str]:
        parsed = as_name(name)
        ids = await self.manager.send_transactional(parsed, messages)
        self._warn_of_waiting(parsed)
        return ids

    def _warn_of_waiting(self, name: FormatName | PathName) -> None:
        """Warns once per queue that messages for another machine stay here, because an embedded manager has no
        transport."""
        for element in name.elements if isinstance(name, MultipleElementName) else (name,):
            queue = self.manager.core.queues.find(element)
            if queue is not None and queue.is_outgoing and queue.name not in self._reported:
                self._reported.add(queue.name)
                log.warning(
                    "messages to %s wait here, because a queue manager inside a program sends nothing to other "
                    "machines: run `postroad serve` on its data directory (express messages are lost by then), or "
                    "connect to a running manager",
                    queue.name,
                )

    # Reading

    async def receive(
        self, name: str, count: int, timeout: float | None, transaction: UUID | None
    ) -> list[ReceivedMessage]:
        return await self.manager.reads.receive(as_name(name), count, timeout, transaction)

    async def receive_correlated(
        self, name: str, correlation_id: str, timeout: float | None, transaction: UUID | None
    ) -> ReceivedMessage:
        while True:
            lookup_id = await self.manager.reads.find(as_name(name), answering(correlation_id), timeout)
            with suppress(MessageNotFound, MessageAlreadyReceived):  # another reader was faster
                return await self.lookup(name, lookup_id, SeekAction.CURRENT, True, transaction)

    async def peek(self, name: str, count: int, timeout: float | None) -> list[ReceivedMessage]:
        return await self.manager.reads.peek(as_name(name), count, timeout)

    async def page(self, name: str, after: int, limit: int) -> list[ReceivedMessage]:
        return await self.manager.reads.peek(as_name(name), limit, after=after)

    async def lookup(
        self, name: str, lookup_id: int, action: SeekAction, receive: bool, transaction: UUID | None
    ) -> ReceivedMessage:
        return await self.manager.reads.lookup(
            as_name(name), lookup_id, action, receive=receive, transaction=transaction
        )

    async def lock(self, name: str, count: int, timeout: float | None) -> list[ReceivedMessage]:
        return (await self.manager.reads.lock(as_name(name), count, timeout)).messages

    async def settle(self, name: str, lookup_ids: Sequence[int], delete: bool) -> None:
        await self.manager.reads.settle(as_name(name), lookup_ids, delete=delete)

    async def fetch(
        self, name: str, count: int, timeout: float | None, acknowledged: Sequence[int]
    ) -> list[ReceivedMessage]:
        if acknowledged:
            self.manager.reads.acknowledge(as_name(name), acknowledged)
        return await self.lock(name, count, timeout)

    # Ranges by order of arrival

    async def mark(self, name: str, start: int, limit: int | None) -> Mark:
        return await self.manager.offsets.mark(as_name(name), start, limit)

    async def arrow(self, name: str, selection: Selection) -> AsyncIterator[bytes]:
        async for piece in self.manager.offsets.arrow(as_name(name), selection):
            yield bytes(piece)

    async def hold(self, name: str, holder: str, start: int, end: int | None) -> HoldInfo:
        return await self.manager.offsets.hold(as_name(name), holder, start, end)

    async def holds(self, name: str) -> list[HoldInfo]:
        return await self.manager.offsets.holds(as_name(name))

    async def commit_hold(self, name: str, holder: str, end: int) -> int:
        return await self.manager.offsets.commit_hold(as_name(name), holder, end)

    async def release(self, name: str, holder: str) -> None:
        await self.manager.offsets.release(as_name(name), holder)

    # Submissions

    async def submit(
        self,
        name: str,
        sender: str,
        epoch: int,
        partition: int,
        row: int,
        messages: Sequence[Message] | bytes,
        transactional: bool | None,
    ) -> Submission:
        if isinstance(messages, bytes):
            from postroad.columns.sending import read_messages

            rows = read_messages(messages, MAX_SUBMISSION)
            messages = rows.messages
            if transactional is None:
                transactional = rows.transactional
        return await self.manager.offsets.submit(as_name(name), sender, epoch, partition, row, messages, transactional)

    async def commit_submission(self, name: str, sender: str, epoch: int) -> None:
        await self.manager.offsets.commit_submission(as_name(name), sender, epoch)

    async def forget_submission(self, name: str, sender: str) -> None:
        await self.manager.offsets.forget_submission(as_name(name), sender)

    # Handles and cursors

    async def open_queue(self, name: str, access: QueueAccess, share: ShareMode) -> int:
        return self.manager.reads.open_queue(as_name(name), access, share)

    async def close_queue(self, handle: int) -> None:
        self.manager.reads.close_queue(handle)

    async def open_cursor(self, handle: int) -> int:
        return self.manager.reads.open_cursor(handle)

    async def close_cursor(self, handle: int, cursor: int) -> None:
        self.manager.reads.close_cursor(handle, cursor)

    async def read_cursor(self, handle: int, cursor: int, call: ReadCall, timeout: float | None) -> ReceivedMessage:
        try:
            return await self.manager.reads.read_cursor(handle, cursor, call, timeout)
        except MessageNotFound:  # the specification's error for a time-out of this call
            raise NoMessage(self.manager.core.descriptor(handle).queue_name) from None

    # Transactions

    async def begin(self) -> UUID:
        return self.manager.begin()

    async def commit(self, transaction: UUID) -> None:
        await self.manager.commit(transaction)

    async def abort(self, transaction: UUID) -> None:
        await self.manager.abort(transaction)

    # What clients hold

    async def locks(self, name: str | None) -> list[LockInfo]:
        return self.manager.leases.locks(None if name is None else as_name(name))

    async def release_locks(self, name: str, lookup_ids: Sequence[int] | None) -> list[int]:
        return await self.manager.leases.release(as_name(name), lookup_ids)

    async def transactions(self) -> list[TransactionInfo]:
        return self.manager.leases.transactions()

    async def abort_transaction(self, transaction: UUID) -> None:
        await self.manager.leases.abort(transaction)

    # Rescue

    async def move(self, name: str, target: str, lookup_ids: Sequence[int]) -> list[int]:
        return await self.manager.rescue.move(as_name(name), as_name(target), lookup_ids)

    async def move_page(self, name: str, target: str, after: int, limit: int) -> list[int]:
        return await self.manager.rescue.move(as_name(name), as_name(target), limit=limit, after=after)

    async def insert(self, name: str, packets: Sequence[bytes]) -> list[int]:
        return await self.manager.rescue.insert(as_name(name), packets)
