# Written by scripts/unasync.py from client/aio/backend.py: edit that one.
"""What a queue manager can do for a client, on plain values: the one seam between the faces and what serves them.

client/embedded.py serves it in this process, http.py beside this file over HTTP. Convenience belongs to the callers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from uuid import UUID

    from postroad.fields.queue import QueueAttributes
    from postroad.message import Message
    from postroad.received import ReceivedMessage
    from postroad.values.info import (
        ListenerInfo,
        LockInfo,
        ManagerInfo,
        QueueInfo,
        ReaderInfo,
        SessionInfo,
        TransactionInfo,
    )
    from postroad.values.offsets import HoldInfo, Mark, Selection, Submission
    from postroad.values.reading import QueueAccess, ReadCall, SeekAction, ShareMode
    from postroad.values.routes import Route, Table
    from postroad.values.trace import Trace


class Backend(Protocol):
    """What changes something returns once that is durable. Failures are the exceptions of `postroad.errors`, the same
    ones for every backend. A `timeout` is in seconds, 0 does not wait and None waits forever; reads that found nothing
    in time raise NoMessage. A read that is cancelled loses no message."""

    def close(self) -> None: ...

    def info(self) -> ManagerInfo: ...

    def route(self, destination: str, source: str | None) -> Route:
        """Between queue managers by name; a source of None is the manager itself."""

    def route_table(self, source: str | None) -> Table: ...

    def sessions(self) -> list[SessionInfo]: ...

    def readers(self) -> list[ReaderInfo]: ...

    def exposure(self) -> list[ListenerInfo]: ...

    def trace(self, message_id: str) -> Trace: ...

    # Queues

    def queues(self) -> list[QueueInfo]: ...

    def queue(self, name: str) -> QueueInfo: ...

    def create_queue(self, path: str, attributes: QueueAttributes) -> QueueInfo: ...

    def set_queue(self, name: str, attributes: QueueAttributes) -> QueueInfo: ...

    def delete_queue(self, name: str) -> None: ...

    def purge_queue(self, name: str) -> int: ...

    def pause_queue(self, name: str) -> QueueInfo: ...

    def resume_queue(self, name: str) -> QueueInfo: ...

    # Sending

    def send(self, name: str, messages: Sequence[Message], transaction: UUID | None) -> list[str]: ...

    def send_transactional(self, name: str, messages: Sequence[Message]) -> list[str]: ...

    # Reading

    def receive(
        self, name: str, count: int, timeout: float | None, transaction: UUID | None
    ) -> list[ReceivedMessage]: ...

    def peek(self, name: str, count: int, timeout: float | None) -> list[ReceivedMessage]: ...

    def page(self, name: str, after: int, limit: int) -> list[ReceivedMessage]:
        """Up to `limit` messages behind the lookup id `after` (-1: from the first on), at once; they stay."""

    def lookup(
        self, name: str, lookup_id: int, action: SeekAction, receive: bool, transaction: UUID | None
    ) -> ReceivedMessage: ...

    def lock(self, name: str, count: int, timeout: float | None) -> list[ReceivedMessage]:
        """The messages stay locked until `settle` while this process lives; the same holds for transactions."""

    def settle(self, name: str, lookup_ids: Sequence[int], delete: bool) -> None: ...

    # Ranges by order of arrival

    def mark(self, name: str, start: int, limit: int | None) -> Mark: ...

    def arrow(self, name: str, selection: Selection) -> Iterator[bytes]:
        """One Arrow stream, in pieces of any size; nothing is read before the caller takes it."""

    def hold(self, name: str, holder: str, start: int, end: int | None) -> HoldInfo: ...

    def holds(self, name: str) -> list[HoldInfo]: ...

    def commit_hold(self, name: str, holder: str, end: int) -> int: ...

    def release(self, name: str, holder: str) -> None: ...

    # Submissions

    def submit(
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

    def commit_submission(self, name: str, sender: str, epoch: int) -> None: ...

    def forget_submission(self, name: str, sender: str) -> None: ...

    # Handles and cursors

    def open_queue(self, name: str, access: QueueAccess, share: ShareMode) -> int: ...

    def close_queue(self, handle: int) -> None: ...

    def open_cursor(self, handle: int) -> int: ...

    def close_cursor(self, handle: int, cursor: int) -> None: ...

    def read_cursor(self, handle: int, cursor: int, call: ReadCall, timeout: float | None) -> ReceivedMessage: ...

    # Transactions

    def begin(self) -> UUID: ...

    def commit(self, transaction: UUID) -> None: ...

    def abort(self, transaction: UUID) -> None: ...

    # What clients hold

    def locks(self, name: str | None) -> list[LockInfo]: ...

    def release_locks(self, name: str, lookup_ids: Sequence[int] | None) -> list[int]: ...

    def transactions(self) -> list[TransactionInfo]: ...

    def abort_transaction(self, transaction: UUID) -> None: ...

    # Rescue

    def move(self, name: str, target: str, lookup_ids: Sequence[int]) -> list[int]: ...

    def move_page(self, name: str, target: str, after: int, limit: int) -> list[int]:
        """Moves up to `limit` messages from behind `after` on, in one commit; the lookup ids they had."""

    def insert(self, name: str, packets: Sequence[bytes]) -> list[int]: ...
