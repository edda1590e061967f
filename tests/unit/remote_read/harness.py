"""The remote read service over queues, with a clock that only tests move: readers and their requests."""

from __future__ import annotations

from itertools import count
from uuid import UUID

from postroad.names import DirectName, QueueFormat, parse_format_name
from postroad.names.queue_format import Arm
from postroad.queues.open_queue import WaitingRead
from postroad.queues.queue import Queue
from postroad.remote_read.mqqp import Mqqp, OpenQueueEntry, RemoteOpenQueue
from postroad.remote_read.service import Answer, RemoteReadEntry, RemoteReadService
from postroad.remote_read.values import (
    INFINITE_MS,
    Ack,
    Action,
    DesiredAccess,
    DesiredShare,
    ReadRequest,
)
from postroad.rpc.calls import Caller
from postroad.rpc.constants import AuthLevel
from postroad.wire.view import MessageView
from tests.unit.queues.harness import ORDERS, OTHER
from tests.unit.queues.harness import Harness as QueueHarness

CLIENT = UUID("99887766-5544-3322-1100-ffeeddccbbaa")
SOMEBODY = Caller("127.0.70.9", "reader", AuthLevel.INTEGRITY, 1)
NOBODY = Caller("127.0.70.9")
FIRST_HANDLE = 0x1001
OK = 0

Parts = tuple[int, int, Arm]


def parts(name: str) -> Parts:
    """A format name, or a path on this manager, in the parts of a QUEUE_FORMAT."""
    parsed = parse_format_name(name if "=" in name else f"DIRECT=OS:alpha\\{name}")
    value = QueueFormat.from_format_name(parsed)
    assert isinstance(parsed, DirectName) or value.arm is not None
    return value.m_qft, value.m_suffix_and_flags, value.arm


class Read:
    """One read and its result."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.pending: RemoteReadEntry | None = None

    def follow(self, service: RemoteReadService, entry: RemoteReadEntry) -> None:
        """Waits for the read's end, as a manager does."""
        self.pending = entry
        assert entry.waiting is not None
        entry.waiting.satisfied = lambda records: self.answers.append(service.finish(entry, records))
        entry.waiting.failed = lambda error: self.answers.append(service.fail(entry, error))

    @property
    def waits(self) -> bool:
        return not self.answers

    @property
    def answer(self) -> Answer:
        (answer,) = self.answers  # one, and only one
        return answer

    @property
    def status(self) -> int:
        return self.answer.status

    @property
    def entry(self) -> RemoteReadEntry | None:
        return self.answer.entry

    @property
    def label(self) -> str | None:
        """The message's label. None if there is no message."""
        record = self.answer.record
        assert (record is None) == (self.answer.status != OK)
        return None if record is None else MessageView(record.packet).label


class Reader:
    """A client that has opened a queue, by both interfaces."""

    def __init__(self, harness: Harness, opened: RemoteOpenQueue) -> None:
        self.harness = harness
        self.remote = opened.remote
        self.handle = opened.handle
        status, session = harness.mqqp.open_queue(CLIENT, self.handle, self.handle, SOMEBODY)
        assert status == OK
        assert session is not None
        self.session: OpenQueueEntry = session
        self._ids = count(1)

    def ask(
        self,
        action: int = Action.RECEIVE,
        timeout_ms: int = 0,
        cursor: int = 0,
        request_id: int | None = None,
        *,
        queue_handle: int | None = None,
        queue: int | None = None,
        caller: Caller = SOMEBODY,
    ) -> Read:
        request = ReadRequest(
            self.handle if queue_handle is None else queue_handle,
            self.handle if queue is None else queue,
            action,
            next(self._ids) if request_id is None else request_id,
            timeout_ms,
            cursor,
        )
        read = Read()
        found = self.harness.mqqp.start_receive(request, self.harness.queues.now, caller)
        if isinstance(found, Answer):
            read.answers.append(found)
        else:
            read.follow(self.harness.service, found)
        self.harness.queues.tick()
        return read

    def receive(self, cursor: int = 0) -> Read:
        return self.ask(Action.RECEIVE, cursor=cursor)

    def peek(self, cursor: int = 0) -> Read:
        return self.ask(Action.PEEK_CURRENT, cursor=cursor)

    def peek_next(self, cursor: int) -> Read:
        return self.ask(Action.PEEK_NEXT, cursor=cursor)

    def wait(self, action: int = Action.RECEIVE, timeout_ms: int = INFINITE_MS, request_id: int | None = None) -> Read:
        read = self.ask(action, timeout_ms, request_id=request_id)
        assert read.waits
        return read

    def lookup(
        self,
        action: int,
        lookup_id: int,
        timeout_ms: int = 0,
        cursor: int = 0,
        request_id: int = 0,
        caller: Caller = SOMEBODY,
    ) -> Read:
        request = ReadRequest(self.handle, 0, action, request_id, timeout_ms, cursor)
        read = Read()
        read.answers.append(
            self.harness.mqqp.start_receive_by_lookup_id(lookup_id, request, self.harness.queues.now, caller)
        )
        self.harness.queues.tick()
        return read

    def end(self, read: Read, ack: Ack) -> int:
        status = self.harness.mqqp.end_receive(read.entry, ack, self.harness.queues.now)
        self.harness.queues.tick()
        return status

    def take(self) -> str | None:
        """Receives and acknowledges the first message. Returns its label."""
        read = self.receive()
        assert self.end(read, Ack.RR_ACK) == OK
        return read.label

    def cancel(self, request_id: int, *, queue: int | None = None, caller: Caller = SOMEBODY) -> int:
        queue = self.handle if queue is None else queue
        return self.harness.mqqp.cancel_receive(self.handle, queue, request_id, caller)

    def cursor(self) -> int:
        status, handle = self.harness.mqqp.create_remote_cursor(self.handle, SOMEBODY)
        assert status == OK
        assert handle
        return handle

    def purge(self, caller: Caller = SOMEBODY) -> int:
        status, _ = self.harness.mqqp.purge_queue(self.handle, self.harness.queues.now, caller)
        self.harness.queues.tick()
        return status

    def close(self) -> int:
        status = self.harness.mqqp.close_queue(self.session, self.harness.queues.now)
        self.harness.queues.tick()
        return status


class Harness:
    """Handles count from FIRST_HANDLE, so that a test can tell them from other numbers."""

    def __init__(self, *, authenticate: bool = False) -> None:
        self.queues = QueueHarness()
        self.queues.create(ORDERS)
        self.queues.create(OTHER)
        self.service = RemoteReadService(self.queues.manager, authenticate=authenticate)
        self.mqqp = Mqqp(self.service, count(FIRST_HANDLE).__next__)

    def try_open(
        self,
        name: str | Parts | None = ORDERS,
        access: int = DesiredAccess.RECEIVE,
        share: int = DesiredShare.DENY_NONE,
        caller: Caller = SOMEBODY,
    ) -> tuple[int, RemoteOpenQueue | None]:
        given = parts(name) if isinstance(name, str) else name
        return self.mqqp.open_remote_queue(given, access, share, self.queues.now, caller)

    def open(
        self, name: str = ORDERS, access: int = DesiredAccess.RECEIVE, share: int = DesiredShare.DENY_NONE
    ) -> RemoteOpenQueue:
        """A queue that is open by qmcomm only."""
        status, remote = self.try_open(name, access, share)
        assert status == OK
        assert remote is not None
        return remote

    def reader(
        self, name: str = ORDERS, access: int = DesiredAccess.RECEIVE, share: int = DesiredShare.DENY_NONE
    ) -> Reader:
        return Reader(self, self.open(name, access, share))

    def send(self, *labels: str, queue: str = ORDERS) -> list[int]:
        """Sends messages with these labels. Returns the lookup ids of everything in the queue."""
        self.queues.send(queue, *labels)
        return [record.lookup_id for record in self.queues.queue(queue).available(1000)]

    def waiting(self, read: Read) -> tuple[Queue, WaitingRead]:
        """A read that waits, and the queue on which it waits."""
        assert read.pending is not None
        queue, waiting = read.pending.remote.descriptor.queue, read.pending.waiting
        assert queue is not None
        assert waiting is not None
        return queue, waiting

    def labels(self, queue: str = ORDERS) -> list[str]:
        return self.queues.labels(queue)

    def pending(self) -> int:
        return sum(len(each.waiting) for each in self.service.opened)
