"""What a queue manager can do for a client, on plain values. This is the only interface between clients and managers.

client/embedded.py implements it in this process, client/http_backend.py over HTTP, and client/remote.py by remote read.
Conveniences are left to the callers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from uuid import UUID

    from postroad.describe.received import ReceivedMessage
    from postroad.message import Message
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
    from postroad.validation.queue_properties import QueueAttributes


class Backend(Protocol):
    """The verbs of a queue manager.

    A verb that changes something returns once the change is durable. Every backend fails with the same exceptions of
    `postroad.errors`. A `timeout` is in seconds: 0 does not wait, and None waits forever. A read that finds nothing in
    time raises NoMessage. A read that is cancelled loses no message.
    """

    async def close(self) -> None: ...

    async def info(self) -> ManagerInfo: ...

    async def route(self, destination: str, source: str | None) -> Route:
        """The route between two queue managers, given by name. A source of None is this manager."""

    async def route_table(self, source: str | None) -> Table: ...

    async def sessions(self) -> list[SessionInfo]: ...

    async def readers(self) -> list[ReaderInfo]: ...

    async def exposure(self) -> list[ListenerInfo]: ...

    async def keys(self) -> KeysInfo: ...

    async def rotate_keys(self) -> KeysInfo: ...

    async def trace(self, message_id: str) -> Trace: ...

    # Queues

    async def queues(self) -> list[QueueInfo]: ...

    async def queue(self, name: str) -> QueueInfo: ...

    async def create_queue(self, path: str, attributes: QueueAttributes) -> QueueInfo: ...

    async def set_queue(self, name: str, attributes: QueueAttributes) -> QueueInfo: ...

    async def delete_queue(self, name: str) -> None: ...

    async def purge_queue(self, name: str) -> int: ...

    async def acl(self, name: str) -> str:
        """The access list in SDDL."""

    async def set_acl(self, name: str, sddl: str | None) -> str: ...

    async def edit_acl(self, name: str, edit: str, who: str, rights: Sequence[str]) -> str:
        """Changes the access list. `edit` is grant, deny or revoke."""

    async def pause_queue(self, name: str) -> QueueInfo: ...

    async def resume_queue(self, name: str) -> QueueInfo: ...

    # Sending

    async def resolve(self, destination: str, names: Sequence[str], certificate: bytes) -> Resolution:
        """Resolves a destination and other queues to the names that packets will have. Sends nothing."""

    async def send(self, name: str, messages: Sequence[Message], transaction: UUID | None) -> list[str]: ...

    async def send_transactional(self, name: str, messages: Sequence[Message]) -> list[str]: ...

    # Reading

    async def receive(
        self, name: str, count: int, timeout: float | None, transaction: UUID | None
    ) -> list[ReceivedMessage]: ...

    async def receive_correlated(
        self, name: str, correlation_id: str, timeout: float | None, transaction: UUID | None
    ) -> ReceivedMessage: ...

    async def peek(self, name: str, count: int, timeout: float | None) -> list[ReceivedMessage]: ...

    async def page(self, name: str, after: int, limit: int) -> list[ReceivedMessage]:
        """Up to `limit` messages after the lookup id `after` (-1 for all), without waiting. They stay in the queue."""

    async def lookup(
        self, name: str, lookup_id: int, action: SeekAction, receive: bool, transaction: UUID | None
    ) -> ReceivedMessage: ...

    async def lock(self, name: str, count: int, timeout: float | None) -> list[ReceivedMessage]:
        """Locks messages until `settle`, but no longer than this process lives. The same limit holds for
        transactions."""

    async def settle(self, name: str, lookup_ids: Sequence[int], delete: bool) -> None: ...

    async def fetch(
        self, name: str, count: int, timeout: float | None, acknowledged: Sequence[int]
    ) -> list[ReceivedMessage]:
        """Settles locked messages by deleting them, and then locks more.

        If it raises NoMessage, the messages were settled, and no others came. After ManagerUnavailable it can be called
        again with the same messages.
        """

    # Ranges by order of arrival

    async def mark(self, name: str, start: int, limit: int | None) -> Mark: ...

    def arrow(self, name: str, selection: Selection) -> AsyncIterator[bytes]:
        """One Arrow stream, in pieces of any size. It is read only as the caller takes the pieces."""

    async def hold(self, name: str, holder: str, start: int, end: int | None) -> HoldInfo: ...

    async def holds(self, name: str) -> list[HoldInfo]: ...

    async def commit_hold(self, name: str, holder: str, end: int) -> int: ...

    async def release(self, name: str, holder: str) -> None: ...

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
        """Sends messages, given as such or as the bytes of an Arrow stream with one message in each row."""

    async def commit_submission(self, name: str, sender: str, epoch: int) -> None: ...

    async def forget_submission(self, name: str, sender: str) -> None: ...

    # Handles and cursors

    async def open_queue(self, name: str, access: QueueAccess, share: ShareMode) -> int: ...

    async def close_queue(self, handle: int) -> None: ...

    async def open_cursor(self, handle: int) -> int: ...

    async def close_cursor(self, handle: int, cursor: int) -> None: ...

    async def read_cursor(self, handle: int, cursor: int, call: ReadCall, timeout: float | None) -> ReceivedMessage: ...

    # Transactions

    async def begin(self) -> UUID: ...

    async def commit(self, transaction: UUID) -> None: ...

    async def abort(self, transaction: UUID) -> None: ...

    # What clients hold

    async def locks(self, name: str | None) -> list[LockInfo]: ...

    async def release_locks(self, name: str, lookup_ids: Sequence[int] | None) -> list[int]: ...

    async def transactions(self) -> list[TransactionInfo]: ...

    async def abort_transaction(self, transaction: UUID) -> None: ...

    # Rescue

    async def move(self, name: str, target: str, lookup_ids: Sequence[int]) -> list[int]: ...

    async def move_page(self, name: str, target: str, after: int, limit: int) -> list[int]:
        """Moves up to `limit` messages after `after` in one commit. Returns the lookup ids that they had."""

    async def insert(self, name: str, packets: Sequence[bytes]) -> list[int]: ...
