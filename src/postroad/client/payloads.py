"""What goes into requests to the HTTP API, and what comes out of its answers: paths, JSON and values."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote
from uuid import UUID

from postroad.client.values import KNOWN_NAMES, as_name
from postroad.errors import InvalidArgument, RemoteProtocolError
from postroad.values.plain import from_json

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from postroad.message import Message, Signature
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


def messages_json(messages: Sequence[Message]) -> list[dict[str, object]]:
    """Messages as the API takes them, without what is as it is by default. Like neighbours share the work."""
    from postroad.message import properties_of

    made = []
    shared: tuple[object, ...] | None = None
    values: dict[str, object] = {}
    for message in messages:
        properties = properties_of(message)
        if properties != shared:
            shared, values = properties, _properties_json(properties)
        made.append(values | _own_json(message))
    return made


def message_json(message: Message) -> dict[str, object]:
    (values,) = messages_json([message])
    return values


def _own_json(message: Message) -> dict[str, object]:
    """What each message has for itself."""
    body = message.body
    values: dict[str, object] = {"body": body} if isinstance(body, str) else {"body_base64": _base64(body)}
    if message.encrypt is not None:
        values["encrypt"] = message.encrypt
    if message.signature is not None:
        values |= _signature_json(message.signature)
    return values


def _properties_json(properties: tuple[object, ...]) -> dict[str, object]:
    from postroad.message import set_properties

    given = set_properties(properties)
    return {
        _KEYS.get(name, name): _AS_JSON[name](value) if name in _AS_JSON else value for name, value in given.items()
    }


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


def _identifier(value: object) -> str:
    from postroad.names import MessageId

    return str(MessageId.from_bytes(value)) if isinstance(value, bytes) else str(value)


def _trace(value: object) -> str:
    return f"PUBLIC={value}" if isinstance(value, UUID) else str(value)


def _base64(value: Any) -> str:
    return b64encode(value).decode("ascii")


def _seconds(name: str, value: Any) -> int:
    from postroad.message import whole_seconds

    return whole_seconds(value, name)


_KEYS = {"extension": "extension_base64", "message_class": "class"}
_AS_JSON: Mapping[str, Callable[[object], object]] = {
    "time_to_reach_queue": partial(_seconds, "time_to_reach_queue"),
    "time_to_be_received": partial(_seconds, "time_to_be_received"),
    "response_queue": str,
    "admin_queue": str,
    "dead_letter_queue": str,
    "connector_type": str,
    "extension": _base64,
    "correlation_id": _identifier,
    "trace": _trace,
}
