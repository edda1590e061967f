"""The context of a trace: its text form, and how a message carries it from manager to manager."""

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


# OpenTelemetry contexts, put into messages and taken out of them. Applications need only these functions.


_W3C = TraceContextTextMapPropagator()


def with_context(message: Message, context: Context | None = None, *, label_prefix: bool = False) -> Message:
    """Returns the message with `context`, or with the current one if None. The spans of its journey join that trace."""
    fields: dict[str, str] = {}
    _W3C.inject(fields, context)
    if "traceparent" not in fields:
        return message  # no span is active
    return carrying(message, Carried(fields["traceparent"]), label_prefix=label_prefix)


def context_of(message: ReceivedMessage) -> Context | None:
    """The context that a message carries, for use as the parent of the spans of its processing. None if it has none."""
    carried = carried_by(message.extension, message.label)
    return None if carried is None else parsed(carried.traceparent)


def parsed(traceparent: str) -> Context:
    return _W3C.extract({"traceparent": traceparent}, Context())


# Where a message carries the context: in its extension or, if the application uses the extension, before its label. The
# extension is `traceparent: 00-...` [W3C Trace Context] and the time of sending, each in one line of ASCII.


_TRACEPARENT = r"(00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2})"
_EXTENSION = re.compile(rf"traceparent: {_TRACEPARENT}\n(?:sent-ms: ([0-9]{{1,15}})\n)?".encode())
_LABEL = re.compile(rf"\[{_TRACEPARENT}\] ?")


@dataclass(frozen=True, slots=True)
class Carried:
    """`sent_ms` is None if only the label carries the context."""

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
    """Returns the message with this context in place of any other. A signed message is returned unchanged, because a
    change would break its signature. A message is also unchanged if the application uses the extension and the label
    cannot, or must not, take the context."""
    if message.signature is not None:
        return message
    if not message.extension or _EXTENSION.fullmatch(message.extension):
        time = "" if carried.sent_ms is None else f"sent-ms: {carried.sent_ms}\n"
        return replace(message, extension=f"traceparent: {carried.traceparent}\n{time}".encode())
    label = f"[{carried.traceparent}] {_LABEL.sub('', message.label, count=1)}"
    fits = len(label.encode("utf-16-le", "surrogatepass")) // 2 < MAX_LABEL_UNITS
    return replace(message, label=label) if label_prefix and fits else message
