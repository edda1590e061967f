"""Makes a new message from a dead letter, and converts messages to JSON and back: a replay stores them as JSON."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from postroad.message import Message
from postroad.received import ReceivedMessage

_BYTES = ("body", "correlation_id", "extension")
_NO_CORRELATION = bytes(20)


def new_message(dead_letter: ReceivedMessage) -> Message:
    """A message with the same content and options. The manager gives it a new id, time and sequence number."""
    view = dead_letter.view
    traced = view.debug_header
    return Message(
        view.body,
        label=view.label,
        priority=view.priority,
        recoverable=view.recoverable,
        body_type=view.body_type,
        app_tag=view.application_tag,
        correlation_id=None if view.correlation_id == _NO_CORRELATION else view.correlation_id,
        response_queue=dead_letter.response_queue,
        admin_queue=dead_letter.admin_queue,
        ack=view.ack_flags,
        time_to_reach_queue=view.time_to_reach_queue,
        time_to_be_received=view.time_to_be_received,
        journal=view.positive_journaling,
        dead_letter=view.negative_journaling,
        trace=None if traced is None else traced.queue_identifier,
        extension=view.extension,
        connector_type=view.connector_type,
        message_class=view.message_class,
    )


def message_json(message: Message) -> dict[str, Any]:
    """The message as JSON-ready values. `read_message` is the inverse."""
    found: dict[str, Any] = {}
    for name in Message.__dataclass_fields__:
        value = getattr(message, name)
        if isinstance(value, bytes):
            value = {"base64": b64encode(value).decode()}
        elif isinstance(value, tuple):
            value = ",".join(value)
        elif value is not None and not isinstance(value, str | int | bool):
            value = str(value)
        found[name] = value
    return found


def read_message(values: Mapping[str, Any]) -> Message:
    given: dict[str, Any] = {
        name: b64decode(value["base64"]) if isinstance(value, Mapping) else value for name, value in values.items()
    }
    for name in ("trace", "connector_type"):
        if isinstance(given[name], str) and "=" not in given[name]:
            given[name] = UUID(given[name])
    return Message(**given)
