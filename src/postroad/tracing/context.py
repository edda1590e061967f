"""Contexts of OpenTelemetry, into messages and out of them. The only module here that an application needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opentelemetry.context import Context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from postroad.tracing.carried import Carried, carried_by, carrying

if TYPE_CHECKING:
    from postroad.message import Message
    from postroad.received import ReceivedMessage

_W3C = TraceContextTextMapPropagator()


def with_context(message: Message, context: Context | None = None, *, label_prefix: bool = False) -> Message:
    """The message with the current context, or this one: the spans of its journey are then part of that trace."""
    fields: dict[str, str] = {}
    _W3C.inject(fields, context)
    if "traceparent" not in fields:
        return message  # there is no span
    return carrying(message, Carried(fields["traceparent"]), label_prefix=label_prefix)


def context_of(message: ReceivedMessage) -> Context | None:
    """The context that a message has brought, as the parent of the spans of its work; None without one."""
    carried = carried_by(message.extension, message.label)
    return None if carried is None else parsed(carried.traceparent)


def parsed(traceparent: str) -> Context:
    return _W3C.extract({"traceparent": traceparent}, Context())
