"""What a queue manager can do for a client, on plain values: the one seam between the faces and what serves them.

client/embedded.py serves it in this process, client/http_backend.py over HTTP, client/remote.py by remote read.
Convenience belongs to the callers.
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
    """What changes something returns once that is durable. Failures are the exceptions of `postroad.errors`, the same
    ones for every backend. A `timeout` is in seconds, 0 does not wait and None waits forever; reads that found nothing
    in time raise NoMessage. A read that is cancelled loses no message."""

    async def close(self) -> None: ...

    async def info(self) -> ManagerInfo: ...

    async def route(self, destination: str, source: str | None) -> Route:
        """Between queue managers by name; a source of None is the manager itself."""

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
        """`edit` is grant, deny or revoke."""

    async def pause_queue(self, name: str) -> QueueInfo: ...

    async def resume_queue(self, name: str) -> QueueInfo: ...

    # Sending

    async def resolve(self, destination: str, names: Sequence[str], certificate: bytes) -> Resolution:
        """The names of a destination and of other queues as packets have them. Nothing is sent."""

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
        """Up to `limit` messages behind the lookup id `after` (-1: from the first on), at once; they stay."""

    async def lookup(
        self, name: str, lookup_id: int, action: SeekAction, receive: bool, transaction: UUID | None
    ) -> ReceivedMessage: ...

    async def lock(self, name: str, count: int, timeout: float | None) -> list[ReceivedMessage]:
        """The messages stay locked until `settle` while this process lives; the same holds for transactions."""

    async def settle(self, name: str, lookup_ids: Sequence[int], delete: bool) -> None: ...

    async def fetch(
        self, name: str, count: int, timeout: float | None, acknowledged: Sequence[int]
    ) -> list[ReceivedMessage]:
        """Settles locked messages, which go, and then locks more. NoMessage: they are settled, and no more came. After
        ManagerUnavailable it can be tried again with the same messages."""

    # Ranges by order of arrival

    async def mark(self, name: str, start: int, limit: int | None) -> Mark: ...

    def arrow(self, name: str, selection: Selection) -> AsyncIterator[bytes]:
        """One Arrow stream, in pieces of any size; nothing is read before the caller takes it."""

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
        """Messages, or the bytes of an Arrow stream with one in each row."""

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
        """Moves up to `limit` messages from behind `after` on, in one commit; the lookup ids they had."""

    async def insert(self, name: str, packets: Sequence[bytes]) -> list[int]: ...
