"""The applications that send and those that read. They are outside the managers and survive their crashes."""

from __future__ import annotations

from uuid import UUID

from postroad.errors import PostroadError
from postroad.message import Composer, Message, Signature
from postroad.names import FormatName, PathName
from postroad.queues.open_queue import OpenQueueDescriptor, Transaction, WaitingRead
from postroad.reports.operations import QueueAccess, ReadCall, ShareMode
from postroad.simulation.keys import impostor, sender
from postroad.simulation.ledger import Promise, Stage, TrackedMessage
from postroad.simulation.node import Node
from postroad.simulation.scenario import ACKS, Consumer, Flow, Kind, Naming, local_path
from postroad.store.interface import Record

RETRY_S = 0.5  # how long an application waits after a manager was down or refused


class SendingApp:
    """Sends the messages of one flow. It gives up what its manager refuses."""

    def __init__(self, flow: Flow, node: Node, destination: FormatName, stage: Stage) -> None:
        self.flow = flow
        self.node = node
        self.done = False
        self.refused = 0  # messages that the manager refused
        self._destination = destination
        self._admin: FormatName | str | None = None
        if flow.ack:
            self._admin = _admin_name(flow.naming, node)
        self._stage = stage
        self._signature: Signature | None = None
        self._left = flow.count
        stage.loop.after(flow.start_s, self._step)

    def _step(self) -> None:
        if not self.node.up:
            self._stage.loop.after(RETRY_S, self._step)
            return
        count = min(self._left, self.flow.batch)
        self._left -= count
        self._send(count)
        self.node.changed()
        if self._left:
            self._stage.loop.after(self.flow.every_ms / 1000 * (0.5 + self._stage.chance.random()), self._step)
        else:
            self.done = True

    def _send(self, count: int) -> None:
        flow, node = self.flow, self.node.current
        core = node.core
        perishable = [self._stage.chance.random() < flow.perishable for _ in range(count)]
        transaction = self._begin() if flow.kind is Kind.TRANSACTIONAL else None
        try:
            messages = [self._compose(each) for each in perishable]
            ids = core.send(self._destination, messages, self.node.now, transaction)
        except PostroadError as error:
            self._stage.log.note(self.node.name, f"send refused: {error}")
            self.refused += count
            if transaction is not None:
                core.abort(transaction, self.node.now)
            return
        source = self.node.identifier.bytes_le
        sent = [
            self._stage.ledger.write(flow, source + each.to_bytes(4, "little"), self._stage.loop.now, perishable=short)
            for each, short in zip(ids, perishable, strict=True)
        ]
        self._stage.log.note(
            self.node.name, f"sends messages {sent[0].number} to {sent[-1].number} as message {ids[0]}"
        )
        if transaction is not None:
            if self._stage.chance.random() < flow.aborts:
                core.abort(transaction, self.node.now)
                self._settle(sent, Promise.WITHDRAWN)
                return
            core.commit(transaction, self.node.now)
        if flow.kind is Kind.EXPRESS:
            self._settle(sent, Promise.KEPT)
        else:
            node.when_durable(
                lambda error: self._settle(sent, Promise.KEPT if error is None else Promise.BROKEN), survives=True
            )

    def _compose(self, perishable: bool) -> Message:
        flow = self.flow
        message = Message(
            b"x" * flow.size,
            recoverable=flow.kind is not Kind.EXPRESS,
            time_to_reach_queue=flow.time_to_reach_queue_s if perishable else None,
            dead_letter=flow.dead_letter,
            journal=flow.journal,
            ack="full" if flow.ack else 0,
            admin_queue=self._admin,
            encrypt="" if flow.encrypted else None,
        )
        if flow.signed:
            message.signature = self._sign(message)
        return message

    def _sign(self, message: Message) -> Signature:
        """Signs for all messages at once: they do not differ in what is signed."""
        if self._signature is None:
            user = impostor() if self.flow.impostor else sender()
            composer = Composer(self.node.identifier, self._destination, self._format_name)
            transactional = self.flow.kind is Kind.TRANSACTIONAL
            self._signature = user.signature(message, composer, transactional=transactional)
        return self._signature

    def _format_name(self, path: PathName) -> FormatName:
        queues = self.node.core.queues
        return queues.format_name(queues.get(path))

    def _begin(self) -> Transaction:
        return self.node.core.begin(UUID(int=self._stage.chance.getrandbits(128)))

    def _settle(self, sent: list[TrackedMessage], promise: Promise) -> None:
        for letter in sent:
            letter.promise = promise
        self._stage.log.note(self.node.name, f"messages {sent[0].number} to {sent[-1].number}: {promise.name.lower()}")


def _admin_name(naming: Naming, node: Node) -> str:
    match naming:
        case Naming.DIRECT:
            return direct_name(node, ACKS)
        case Naming.HTTP:
            return http_name(node, ACKS)
    return ACKS


def direct_name(node: Node, path: str) -> str:
    """By address, or by name if the manager has several."""
    if node.moves:
        return f"DIRECT=OS:{node.name}\\{path}"
    return f"DIRECT=TCP:{node.address}\\{path}"


def http_name(node: Node, path: str) -> str:
    host = node.name if node.moves else node.address
    return f"DIRECT=HTTP://{host}/msmq/{path}".replace("\\", "/")


class ReadingApp:
    """Reads one queue for ever. When its manager restarts, it begins anew."""

    def __init__(self, consumer: Consumer, node: Node, stage: Stage) -> None:
        self.consumer = consumer
        self.node = node
        self._stage = stage
        self._starts_at = stage.loop.now + consumer.start_s
        node.each_start(self._start)

    def _start(self) -> None:
        node = self.node.current
        path = local_path(self.consumer.queue)
        descriptor = node.core.open(path, QueueAccess.RECEIVE, ShareMode.DENY_NONE, node.now)
        node.after(max(0.0, self._starts_at - self._stage.loop.now), lambda: self._ask(node, descriptor))

    def _ask(self, node: Node, descriptor: OpenQueueDescriptor) -> None:
        transaction = None
        if descriptor.queue is not None and descriptor.queue.properties.transactional:
            transaction = node.core.begin(UUID(int=self._stage.chance.getrandbits(128)))
        request = WaitingRead(
            descriptor,
            ReadCall.RECEIVE,
            self._stage.chance.randint(1, self.consumer.batch),
            transaction=transaction,
            two_phase=transaction is None,
            satisfied=lambda records: self._have(node, descriptor, records, transaction),
        )
        records = node.core.reading.read(request, node.now)
        if records is not None:
            self._have(node, descriptor, records, transaction)
        node.changed()

    def _have(
        self, node: Node, descriptor: OpenQueueDescriptor, records: list[Record], transaction: Transaction | None
    ) -> None:
        think_s = self.consumer.think_ms / 1000 * 2 * self._stage.chance.random()
        node.after(think_s, lambda: self._decide(node, descriptor, records, transaction))

    def _decide(
        self, node: Node, descriptor: OpenQueueDescriptor, records: list[Record], transaction: Transaction | None
    ) -> None:
        core, now = node.core, node.now
        keep = self._stage.chance.random() >= self.consumer.aborts
        if transaction is None:
            queue = descriptor.queue
            assert queue is not None
            for record in records:
                core.reading.end(queue, record, now, delete=keep)
        elif keep:
            core.commit(transaction, now)
        else:
            core.abort(transaction, now)
        error_s = node.clock_error_s

        def settled(error: BaseException | None) -> None:
            if keep and error is None:
                for record in records:
                    letter = self._stage.ledger.arrived(record, error_s, consumed=True)
                    self._stage.log.note(self.node.name, f"consumed {letter or 'an acknowledgment'}")
            if node.up:
                node.after(0.0, lambda: self._ask(node, descriptor))

        node.when_durable(settled, survives=True)
        node.changed()
