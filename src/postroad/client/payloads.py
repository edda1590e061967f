"""What goes into requests to the HTTP API, and what comes out of its answers: paths, JSON and values."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote
from uuid import UUID

from postroad.client.values import KNOWN_NAMES, as_name
from postroad.errors import InvalidArgument, RemoteProtocolError
from postroad.values.plain import from_json

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from postroad.message import Message, Signature
    from postroad.names import MessageId
    from postroad.received import ReceivedMessage
    from postroad.values.reading import QueueAccess, ReadCall, ShareMode

INCOMPLETE = "the answer lacks members: it is not from a queue manager, or from another version of one"

_PLAIN = re.compile(r"private\$\\[A-Za-z0-9_-]+", re.ASCII | re.IGNORECASE)  # a private queue of the manager itself

T = TypeVar("T")
InfoT = TypeVar("InfoT", bound="DataclassInstance")


@lru_cache(KNOWN_NAMES)
def queue_path(name: str, call: str = "") -> str:
    as_name(name)  # what is no name might be taken for another path of the API
    # The server reads a path without escapes faster.
    path = name.replace("\\", "/") if _PLAIN.fullmatch(name) else quote(name, safe="")
    return f"/queues/{path}{'/' if call else ''}{call}"


@lru_cache(KNOWN_NAMES)
def names_one(name: str) -> bool:
    """Whether it is one destination, not a list of several."""
    from postroad.names import DistributionListName, MultipleElementName

    return not isinstance(as_name(name), MultipleElementName | DistributionListName)


def hold_path(name: str, holder: str) -> str:
    return queue_path(name, f"holds/{quote(holder, safe='')}")


def submissions_path(name: str, sender: str) -> str:
    return queue_path(name, f"submissions/{quote(sender, safe='')}")


def word(member: QueueAccess | ShareMode | ReadCall) -> str:
    return member.name.lower().replace("_", "-")


def check_timeout(timeout: float | None) -> None:
    if timeout is not None and not (isinstance(timeout, int | float) and timeout >= 0):
        raise InvalidArgument(
            f"timeout: must be a number of seconds, not negative, got {timeout!r}; 0 does not wait, None waits forever"
        )


# Messages, and with them everything about packets, are imported when the first one comes or goes.


def read_messages(answer: bytes) -> list[ReceivedMessage]:
    from postroad.received import decode_records

    return decode_records(answer)


def read_one(answer: bytes) -> ReceivedMessage:
    messages = read_messages(answer)
    if len(messages) != 1:
        raise RemoteProtocolError(f"the answer must hold one message, got {len(messages)}")
    return messages[0]


def read_lease(identifier: object, lease_s: object) -> tuple[UUID, float]:
    """What keeps messages locked or a transaction open, and the seconds within which it must be renewed."""
    try:
        return UUID(str(identifier)), float(str(lease_s))
    except ValueError:
        raise RemoteProtocolError(INCOMPLETE) from None


def read_info(kind: type[InfoT], values: Mapping[str, Any]) -> InfoT:
    """What a manager says of itself, of a queue or of a session; what another version says besides is left out."""
    try:
        return from_json(kind, values)
    except TypeError:
        raise RemoteProtocolError(INCOMPLETE) from None


@cache
def _plain_properties() -> dict[str, Any]:
    """The properties of a message that JSON has as they are, each with its default."""
    from postroad.message import Message

    others = {"body", "extension", "message_class", "correlation_id", "trace", "signature", "sign"}
    known = (each for each in fields(Message) if each.default is not MISSING and each.name not in others)
    return {each.name: each.default for each in known}


def messages_json(messages: Sequence[Message]) -> list[dict[str, object]]:
    return list(map(message_json, messages))


def message_json(message: Message) -> dict[str, object]:
    """A message as the API takes it, without what is as it is by default."""
    from postroad.message import check_types, whole_seconds

    check_types(message)
    values: dict[str, object] = {
        name: str(value) if isinstance(value, UUID) else value
        for name, default in _plain_properties().items()
        if (value := getattr(message, name)) != default
    }
    for name in ("time_to_reach_queue", "time_to_be_received"):
        if name in values:
            values[name] = whole_seconds(getattr(message, name), name)
    if isinstance(message.body, str):
        values["body"] = message.body
    else:
        values["body_base64"] = b64encode(message.body).decode()
    for name in ("response_queue", "admin_queue", "dead_letter_queue"):
        if name in values:
            values[name] = str(values[name])
    if message.extension:
        values["extension_base64"] = b64encode(message.extension).decode()
    if message.message_class:
        values["class"] = message.message_class
    if message.signature is not None:
        values |= _signature_json(message.signature)
    if message.correlation_id is not None:
        values["correlation_id"] = _identifier(message.correlation_id)
    if message.trace is not None:
        values["trace"] = f"PUBLIC={message.trace}" if isinstance(message.trace, UUID) else message.trace
    return values


def _signature_json(signature: Signature) -> dict[str, object]:
    values: dict[str, object] = {
        "signature_base64": b64encode(signature.value).decode(),
        "certificate_base64": b64encode(signature.certificate).decode(),
        "hash": signature.hash,
        "signature_version": signature.version,
    }
    if signature.sender_id is not None:
        values["sender_id"] = str(signature.sender_id)
    return values


def _identifier(value: MessageId | bytes | str) -> str:
    from postroad.names import MessageId

    return str(MessageId.from_bytes(value)) if isinstance(value, bytes) else str(value)
