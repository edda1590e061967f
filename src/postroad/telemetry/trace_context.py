"""The context of a trace: read from texts, and carried by a message from manager to manager."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from opentelemetry.context import Context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from postroad.message import Message
from postroad.wire.constants import MAX_LABEL_UNITS

if TYPE_CHECKING:
    from postroad.describe.received import ReceivedMessage


# Contexts of OpenTelemetry, into messages and out of them. The only module here that an application needs.


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


# The context of a trace inside a message: in its extension or, where an application uses that, before its label.
#
# The extension is `traceparent: 00-...` [W3C Trace Context] and the time of sending, each in a line of ASCII.


_TRACEPARENT = r"(00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2})"
_EXTENSION = re.compile(rf"traceparent: {_TRACEPARENT}\n(?:sent-ms: ([0-9]{{1,15}})\n)?".encode())
_LABEL = re.compile(rf"\[{_TRACEPARENT}\] ?")


@dataclass(frozen=True, slots=True)
class Carried:
    """`sent_ms` is None where only the label has the context."""

    traceparent: str
    sent_ms: int | None = None


def carried_by(extension: bytes, label: str) -> Carried | None:
    """The context in a message; None if it has none."""
    found = _EXTENSION.fullmatch(extension)
    if found is not None:
        return Carried(found[1].decode(), int(found[2]) if found[2] else None)
    prefix = _LABEL.match(label)
    return None if prefix is None else Carried(prefix[1])


def carrying(message: Message, carried: Carried, *, label_prefix: bool) -> Message:
    """The message with a context, in the place of the one that it had. It stays as it is if its extension is the
    application's own and the label may not or cannot take the context, and if it is signed: that would break."""
    if message.signature is not None:
        return message
    if not message.extension or _EXTENSION.fullmatch(message.extension):
        time = "" if carried.sent_ms is None else f"sent-ms: {carried.sent_ms}\n"
        return replace(message, extension=f"traceparent: {carried.traceparent}\n{time}".encode())
    label = f"[{carried.traceparent}] {_LABEL.sub('', message.label, count=1)}"
    fits = len(label.encode("utf-16-le", "surrogatepass")) // 2 < MAX_LABEL_UNITS
    return replace(message, label=label) if label_prefix and fits else message
