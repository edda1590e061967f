"""A queue manager in which a test can make the n-th call to a hook, an encoder or a store fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import pytest

from postroad.binary.service import BinaryService, Hop, Peer
from postroad.binary.session import BinarySettings, Session
from postroad.errors import StorageError
from postroad.manager.composition import SECRET
from postroad.message import Composer, Message
from postroad.queues import delivery, local, transactions
from postroad.queues.holds import Hold
from postroad.queues.local import LocalQueueManager
from postroad.queues.open_queue import WaitingRead
from postroad.queues.properties import QueueProperties, QueueType
from postroad.queues.queue import Queue
from postroad.queues.tick import Change
from postroad.reports.operations import QueueAccess, ReadCall, ShareMode
from postroad.security.guard import Verdict
from postroad.soap.service import Peer as SoapPeer
from postroad.soap.service import Post, SoapService
from postroad.soap.settings import SoapSettings
from postroad.store.interface import Record
from postroad.store.memory import MemoryStore
from postroad.wire.headers import TxSequenceId
from postroad.wire.ordering import OrderingAck
from postroad.wire.patch import stamp_transaction
from postroad.wire.view import MessageView
from tests.unit.queues.harness import ACKS, ELSEWHERE, IDENTIFIER, LEDGER, NAME, ORDERS, OTHER, STARTED, Answer

HTTP = "DIRECT=http://10.0.0.5/msmq/private$/orders"
STRANGER = UUID(int=0xEE)
ACKS_NAME = rf"DIRECT=OS:{NAME}\{ACKS}"
_STORE_CALLS = ("put", "put_all", "replace", "delete", "delete_all", "commit", "scan", "scan_back", "get", "expired")


class Broken(RuntimeError):
    """Not one of our errors: no code can have expected it."""


class Faults:
    """Counts the calls while it is armed, and makes one of them fail."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self._armed = False
        self._at: int | None = None

    def passing(self, what: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            if self._armed:
                self.calls.append(what)
                if len(self.calls) == self._at:
                    raise Broken(what)
            return function(*arguments, **named)

        return call

    @contextmanager
    def armed(self, at: int | None) -> Iterator[None]:
        """Within this block, the call with this number fails. With None, no call fails."""
        self.calls.clear()
        self._at, self._armed = at, True
        try:
            yield
        finally:
            self._armed = False


class House:
    """A core with both protocols, and queues with something in each. Its peers are never reached."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.faults = Faults()
        self.now = STARTED
        self.store = MemoryStore()
        self.core = core = LocalQueueManager(NAME, IDENTIFIER, self.store, SECRET, insecure_nacks=True)
        core.start(self.now)
        self.land()
        self.answers: list[Answer] = []
        self.posts = 0
        self.binary = BinaryService(core, BinarySettings(), lambda name: [Hop("10.0.0.8")], self)
        self.soap = SoapService(core, SoapSettings(), self)
        self._break_at_hooks()
        self._break_at_encoders(patch)
        for store in (self.store, core.express):
            for name in _STORE_CALLS:
                patch.setattr(store, name, self.faults.passing(f"store.{name}", getattr(store, name)))
        for path in (ORDERS, OTHER, ACKS):
            core.create_queue(path, self.now, journal=path == ORDERS)
        core.create_queue(LEDGER, self.now, transactional=True, journal=True, abort_limit=1)
        self.land()

    def _break_at_hooks(self) -> None:
        delivery, passing = self.core.delivery, self.faults.passing
        for carrier in (self.binary, self.soap):
            for name in ("removed", "ready", "brought", "admin_name", "way_back", "hosts"):
                what = f"{type(carrier).__name__}.{name}"
                setattr(carrier, name, passing(what, getattr(carrier, name)))
        for name in ("_wake", "_locate"):
            setattr(delivery, name, passing(f"delivery.{name}", getattr(delivery, name)))

    def _break_at_encoders(self, patch: pytest.MonkeyPatch) -> None:
        passing = self.faults.passing
        for owner, name in (
            (Composer, "compose"),
            (OrderingAck, "encode"),
            (QueueProperties, "encode"),
            (Hold, "encode"),
            (transactions, "stamp_transactions"),
            (delivery, "MessageView"),
            (transactions, "MessageView"),
            (local, "MessageView"),
        ):
            function = getattr(owner, name)
            wrapped = passing(f"{getattr(owner, '__name__', owner)}.{name}", function)
            if owner is transactions or owner is delivery or owner is local:
                patch.setattr(owner, name, wrapped)
            else:
                patch.setattr(owner, name, lambda self, *a, _w=wrapped, **k: _w(self, *a, **k))

    # The drivers of both protocols

    def open(self, session: Session, packets: list[bytes], done: Callable[[list[Verdict] | None], None]) -> None:
        done([self.core.protection.opener.open(packet, self.now) for packet in packets])

    def connect(self, peer: Peer) -> None: ...

    def flush(self, session: Session) -> None:
        session.data_to_send()

    def when_durable(self, done: Callable[[StorageError | None], object], *, repeats: bool) -> None: ...

    def post(self, post: Post) -> None:
        self.posts += 1

    def close(self, peer: SoapPeer) -> None: ...

    # Verbs

    def land(self) -> None:
        while (tick := self.core.ticks.seal(self.now)) is not None:
            self.store.commit([tick.batch])
            self.core.ticks.committed(tick, self.now)

    def queue(self, path: str) -> Queue:
        return self.core.queues.get(path)

    def send(self, path: str, *labels: str, express: bool = False, **properties: object) -> None:
        self.core.send(path, [told(label, express, **properties) for label in labels], self.now)
        self.land()

    def stranger_sends(self, *labels: str) -> None:
        """A stranger sends transactional messages, and wants to know how each one ended."""
        direct = self.core.queues.direct_name(self.queue(LEDGER))
        composer = Composer(STRANGER, direct)
        for number, label in enumerate(labels, 1):
            packet = composer.compose(told(label), number, int(self.now), transactional=True)
            packet = stamp_transaction(packet, TxSequenceId(1, 1), number, number - 1, 1, first=True, last=True)
            self.core.delivery.arrive(self.queue(LEDGER), packet, MessageView(packet), self.now)
        self.land()

    def read(self, path: str, count: int, **details: Any) -> list[Record] | None:
        descriptor = self.core.open(path, QueueAccess.RECEIVE, ShareMode.DENY_NONE, self.now)
        try:
            return self.core.reading.read(WaitingRead(descriptor, ReadCall.RECEIVE, count, **details), self.now)
        finally:
            self.core.close(descriptor)

    def wait_for(self, path: str, **details: Any) -> Answer:
        """A waiting read that can fail when it gets its message."""
        answer = Answer()
        descriptor = self.core.open(path, QueueAccess.RECEIVE, ShareMode.DENY_NONE, self.now)
        request = WaitingRead(descriptor, ReadCall.RECEIVE, 1, two_phase=True, **details)
        request.satisfied = self.faults.passing("reader satisfied", answer.satisfied)
        request.failed = self.faults.passing("reader failed", answer.failed)
        assert self.core.reading.read(request, self.now) is None
        self.answers.append(answer)
        return answer

    # What is there

    def main(self) -> dict[str, object]:
        """What applications see: their messages, and which of them are locked."""
        found: dict[str, object] = {"transactions": len(self.core.transactions)}
        for queue in self.core.queues:
            own = queue.properties.queue_type in (QueueType.PRIVATE, QueueType.SUBQUEUE) and queue.name != ACKS
            if own or queue.name in (ELSEWHERE, HTTP):
                unsure = self.answers or queue.is_outgoing
                found[queue.name] = [
                    (MessageView(each.packet).label, None if unsure else queue.positions.get(each.lookup_id))
                    for each in queue.everything()
                ]
        return found

    def check_fronts(self) -> None:
        """Checks that the front which each queue keeps is right."""
        for queue in self.core.queues:
            assert queue.available(100) == _available(queue), queue

    def snapshot(self) -> dict[str, object]:
        """Everything that a failed change must leave alone. Numbers that it used up may stay used."""
        core, tick = self.core, self.core.tick
        return {
            "queues": {queue: _queue_state(queue) for queue in core.queues},
            "outgoing": dict(core.queues.outgoing),
            "infos": dict(core.queues.outgoing_info),
            "by_path": dict(core.queues._by_path),
            "express": {queue: core.express.scan(queue.number, limit=1000) for queue in core.queues},
            "transactions": {
                key: (each.ended, list(each.operations), list(each.waiting)) for key, each in core.transactions.items()
            },
            "sequences": (dict(core.transacting._sequences), dict(core.transacting._sequence_numbers)),
            "puts": dict(tick.batch.puts),
            "deletes": set(tick.batch.deletes),
            "state": dict(tick.batch.state),
            "changes": {
                queue: (each.added, each.added_bytes, each.removed, each.removed_bytes, each.first)
                for queue, each in tick.changes.items()
                if each != Change()
            },
            "taken": list(tick.taken),
            "replaced": set(tick.replaced),
            "sequenced": {queue: list(keys) for queue, keys in tick.sequenced.items() if keys},
            "writes": tick.writes,
            "callbacks": [len(each) for each in (tick.on_seal, tick.on_commit, tick.on_failure, tick.undo)],
            "steps": tick.steps,
            "answers": [(each.records, each.error) for each in self.answers],
            "descriptors": {handle: each.queue for handle, each in core.descriptors.items()},
        }


def _available(queue: Queue) -> list[Record]:
    """Read from the stores, without the front that the queue keeps."""
    return [record for record in queue.everything() if queue.is_available(record.lookup_id)]


def _queue_state(queue: Queue) -> tuple[object, ...]:
    return (
        queue.deleted,
        dict(queue.positions),
        list(queue.descriptors),
        list(queue.waiting),
        queue.journal,
        dict(queue.subqueues),
        dict(queue.holds),
        queue.stored_count,
        queue.stored_bytes,
        queue.reserved_bytes,
        queue.express_count,
        queue.express_bytes,
        _available(queue),
        queue.properties.encode(),
    )


def told(label: str, express: bool = False, **properties: object) -> Message:
    """A message that causes something at each of its steps."""
    values: dict[str, Any] = {
        "admin_queue": ACKS_NAME,
        "ack": "full",
        "journal": True,
        "dead_letter": True,
        "recoverable": not express,
    }
    return Message(b"body", label=label, **(values | properties))
