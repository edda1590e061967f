"""Converts messages to JSON and back: a replay stores them as JSON."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import fields
from typing import Any
from uuid import UUID

from postroad.message import Message

_BYTES = ("body", "correlation_id", "extension")


def message_json(message: Message) -> dict[str, Any]:
    """The message as JSON-ready values. `read_message` is the inverse."""
    found: dict[str, Any] = {}
    for name in (each.name for each in fields(Message)):
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
