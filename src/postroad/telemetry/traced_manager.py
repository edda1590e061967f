"""A queue manager that traces: it records a span for each message sent, each transfer and each receive.

It replaces the plain manager if `[tracing]` is on, so tracing costs nothing when it is off.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TextIO
from uuid import UUID

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SpanExporter
from opentelemetry.trace import Span, SpanKind, Status, StatusCode

from postroad.errors import PostroadError, StorageError
from postroad.manager import Manager
from postroad.manager.reads import Name
from postroad.message import Message
from postroad.names import MessageId
from postroad.queues.local import TRUSTED
from postroad.queues.outgoing_queues import Watcher
from postroad.queues.properties import QueueType
from postroad.queues.queue import Queue
from postroad.runtime.version import __version__
from postroad.security.access import Token
from postroad.store.interface import Record
from postroad.telemetry.trace_context import Carried, carried_by, carrying, parsed
from postroad.wire.constants import MessageClass, class_name
from postroad.wire.view import MessageView

COPIES = frozenset({QueueType.SYSTEM, QueueType.JOURNAL})  # their messages are copies, not steps of a journey
NS_PER_MS = 1_000_000


class Tracing:
    """Writes spans, and puts their context into messages."""

    def __init__(self, service: str, exporter: SpanExporter, *, label_prefix: bool = False) -> None:
        self.provider = TracerProvider(resource=Resource.create({"service.name": service}), shutdown_on_exit=False)
        self.provider.add_span_processor(BatchSpanProcessor(exporter))
        self.tracer = self.provider.get_tracer("postroad", __version__)
        self.label_prefix = label_prefix

    def close(self) -> None:
        """Exports the remaining spans."""
        self.provider.shutdown()

    @contextmanager
    def sending(self, destination: str, messages: Sequence[Message], now: float) -> Iterator[Sending]:
        """Opens a span for each message until the block ends."""
        sending = Sending()
        for message in messages:
            before = carried_by(message.extension, message.label)
            span = self.tracer.start_span(
                "send",
                None if before is None else parsed(before.traceparent),
                kind=SpanKind.PRODUCER,
                attributes=_attributes("send", destination),
            )
            sending.spans.append(span)
            carried = Carried(_traceparent(span), int(now * 1000))
            sending.messages.append(carrying(message, carried, label_prefix=self.label_prefix))
        try:
            yield sending
        except PostroadError as error:
            for span in sending.spans:
                span.set_status(Status(StatusCode.ERROR, str(error)))
            raise
        finally:
            for span in sending.spans:
                span.end()

    def record(self, name: str, parent: str, start_ms: int, end_ms: int, fault: str | None, **facts: str) -> None:
        """Records a span that has already ended."""
        kind = SpanKind.CONSUMER if name == "receive" else SpanKind.INTERNAL
        attributes = _attributes(name, facts["queue"]) | {"messaging.message.id": facts["id"]}
        start = start_ms * NS_PER_MS
        span = self.tracer.start_span(name, parsed(parent), kind=kind, attributes=attributes, start_time=start)
        if fault is not None:
            span.set_status(Status(StatusCode.ERROR, fault))
        span.end(max(start_ms, end_ms) * NS_PER_MS)


class Sending:
    """The spans of messages that are being sent, and the messages with their contexts."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.messages: list[Message] = []

    def sent(self, ids: Sequence[str]) -> list[str]:
        for span, message_id in zip(self.spans, ids, strict=False):  # with several destinations, the ids of the first
            span.set_attribute("messaging.message.id", message_id)
        return list(ids)


class TracedManager(Manager):
    """A Manager that also records a span for each step of a message."""

    def __init__(self, tracing: Tracing, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._tracing = tracing
        self.core.watch(Watcher(removed=self._removed))

    async def send(
        self,
        destination: Name,
        messages: Sequence[Message],
        transaction: UUID | None = None,
        token: Token = TRUSTED,
    ) -> list[str]:
        with self._tracing.sending(str(destination), messages, self.clock()) as sending:
            return sending.sent(await super().send(destination, sending.messages, transaction, token))

    def send_then(
        self,
        destination: Name,
        messages: Sequence[Message],
        token: Token,
        done: Callable[[list[str], StorageError | None], object],
    ) -> bool:
        return False  # `send` handles every message, because each span ends with its message

    async def send_transactional(
        self, destination: Name, messages: Sequence[Message], token: Token = TRUSTED
    ) -> list[str]:
        with self._tracing.sending(str(destination), messages, self.clock()) as sending:
            return sending.sent(await super().send_transactional(destination, sending.messages, token))

    def _removed(self, queue: Queue, records: Sequence[Record], reason: int, now: float) -> None:
        if queue.properties.queue_type not in COPIES:
            for record in records:
                self._ended(queue, record, reason, now)

    def _ended(self, queue: Queue, record: Record, reason: int, now: float) -> None:
        """A message has left the queue, received or dead. Records its way to this queue as one span, and its time in
        the queue as another."""
        view = MessageView(record.packet)
        carried = carried_by(view.extension, view.label)
        if carried is None:
            return
        sent_ms = view.sent_time * 1000 if carried.sent_ms is None else carried.sent_ms
        fault = None if reason == MessageClass.ACK_RECEIVE else class_name(reason)
        facts = {"queue": queue.name, "id": str(MessageId(view.source_queue_manager, view.message_id))}
        if queue.is_outgoing:
            self._tracing.record("transfer", carried.traceparent, sent_ms, int(now * 1000), fault, **facts)
            return
        if view.source_queue_manager != self.identifier:
            self._tracing.record("transfer", carried.traceparent, sent_ms, record.arrived_ms, None, **facts)
        self._tracing.record("receive", carried.traceparent, record.arrived_ms, int(now * 1000), fault, **facts)


def stream_exporter(stream: TextIO) -> SpanExporter:
    """Writes spans to a stream, one JSON object per line. The caller closes the stream after `Tracing.close`."""

    def line(span: ReadableSpan) -> str:
        return f"{span.to_json(indent=None)}\n"

    return ConsoleSpanExporter(out=stream, formatter=line)


def endpoint_exporter(endpoint: str) -> SpanExporter:
    """Sends spans to a collector, by OTLP over HTTP. Raises ImportError if the package for it is not installed."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    exporter: SpanExporter = OTLPSpanExporter(endpoint)
    return exporter


def _traceparent(span: Span) -> str:
    context = span.get_span_context()
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"


def _attributes(operation: str, destination: str) -> dict[str, str]:
    return {
        "messaging.system": "msmq",
        "messaging.operation.name": operation,
        "messaging.destination.name": destination,
    }
