"""The content of requests to the HTTP API and of its answers: paths, JSON and values."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeAlias, TypeVar
from urllib.parse import quote
from uuid import UUID

from postroad.errors import InvalidArgument, RemoteProtocolError
from postroad.reports.operations import SeekAction
from postroad.reports.plain import from_json

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from postroad.describe.received import ReceivedMessage
    from postroad.message import Message, Signature
    from postroad.reports.operations import QueueAccess, ReadCall, ShareMode


# The plain values that clients give: names, short forms of messages, attributes of queues, words for places.
#
# The asynchronous and the blocking client use these. Nothing here waits or speaks to a queue manager.


if TYPE_CHECKING:
    from postroad.describe.received import ReceivedMessage
    from postroad.message import Message
    from postroad.names import FormatName, PathName

    Name: TypeAlias = str | FormatName | PathName
    Sendable: TypeAlias = Message | bytes | str | dict[str, Any]
    Place: TypeAlias = Literal["current", "next", "previous", "first", "last"]

PAGE_MESSAGES = 100  # messages in the first step of an iteration
MAX_PAGE_MESSAGES = 5000
PAGE_BYTES = 4 << 20  # in a later step, about
MAX_PAGE_BYTES = 4 * PAGE_BYTES  # in any step, but for the last message: sizes say little of those that follow
MOVE_MESSAGES = 1000  # messages in one commit of a move
MAX_SUBMISSION = 10_000  # rows in one submission
KNOWN_NAMES = 1024  # parsed names to remember

_PLACES = {action.name.lower(): action for action in SeekAction}


# Programs use a few names again and again, and parsing a name costs more than sending a small message.
@lru_cache(KNOWN_NAMES)
def as_name(text: str) -> FormatName | PathName:
    from postroad.names import parse_name

    return parse_name(text)


def as_messages(given: Sendable | Iterable[Sendable]) -> tuple[list[Message], bool]:
    """The messages, and whether a single message was given.

    Bytes and text become the body of a message without properties. A dict becomes JSON.
    """
    from postroad.message import Message  # imported here, because it imports everything about packets

    def message(each: object) -> Message:
        if isinstance(each, Message):
            return each
        if isinstance(each, str | bytes):
            return Message(each)
        if isinstance(each, bytearray | memoryview):
            return Message(bytes(each))
        if isinstance(each, dict):
            return Message(json=each)
        raise InvalidArgument(f"message: must be a Message, bytes, text or a dict, got {_kind(each)}")

    if isinstance(given, Message | bytes | bytearray | memoryview | str | dict):
        return [message(given)], True
    if isinstance(given, Iterable):
        return [message(each) for each in given], False
    raise InvalidArgument(f"message: must be a Message, bytes, text, a dict or a sequence of these, got {_kind(given)}")


def _kind(value: object) -> str:
    return f"a value of type {type(value).__name__}"


def as_action(place: Place) -> SeekAction:
    try:
        return _PLACES[place]
    except KeyError:
        raise InvalidArgument(f"place: must be one of {', '.join(_PLACES)}, got {place!r}") from None


def as_lookup_id(given: int | str) -> int:
    """A lookup id, given as a number or as text."""
    if isinstance(given, int):
        return given
    if not given.isdecimal() or not given.isascii():
        raise InvalidArgument(f"lookup_id: must be a whole number, got {given!r}")
    return int(given)


def as_lookup_ids(messages: Iterable[ReceivedMessage | int | str]) -> list[int]:
    return [as_lookup_id(each) if isinstance(each, int | str) else each.lookup_id for each in messages]


def next_page(page: Sequence[ReceivedMessage]) -> int:
    """How many messages the next step of an iteration should ask for: many small ones, or few large ones."""
    mean = sum(len(message.packet) for message in page) // len(page)
    return max(1, min(MAX_PAGE_MESSAGES, PAGE_BYTES // max(1, mean)))


INCOMPLETE = "the answer lacks members: it is not from a queue manager, or it is from another version"

_PLAIN = re.compile(r"private\$\\[A-Za-z0-9_-]+", re.ASCII | re.IGNORECASE)  # a private queue of the manager itself

T = TypeVar("T")
InfoT = TypeVar("InfoT", bound="DataclassInstance")


@lru_cache(KNOWN_NAMES)
def queue_path(name: str, call: str = "") -> str:
    as_name(name)  # raises for anything else, which could be taken for another path of the API
    # The server reads a path faster if it has no escapes.
    path = name.replace("\\", "/") if _PLAIN.fullmatch(name) else quote(name, safe="")
    return f"/queues/{path}{'/' if call else ''}{call}"


@lru_cache(KNOWN_NAMES)
def is_single_name(name: str) -> bool:
    """Whether the name is one destination, and not a list of several."""
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


# Messages, and everything about packets, are imported with the first message that is sent or received.


def read_messages(answer: bytes) -> list[ReceivedMessage]:
    from postroad.describe.received import decode_records

    return decode_records(answer)


def read_one(answer: bytes) -> ReceivedMessage:
    messages = read_messages(answer)
    if len(messages) != 1:
        raise RemoteProtocolError(f"the answer must hold one message, got {len(messages)}")
    return messages[0]


def read_lease(identifier: object, lease_s: object) -> tuple[UUID, float]:
    """The lease that keeps messages locked or a transaction open, and the seconds within which it must be renewed."""
    try:
        return UUID(str(identifier)), float(str(lease_s))
    except ValueError:
        raise RemoteProtocolError(INCOMPLETE) from None


def read_info(kind: type[InfoT], values: Mapping[str, Any]) -> InfoT:
    """The information about a manager, a queue or a session. Members from another version are ignored."""
    try:
        return from_json(kind, values)
    except TypeError:
        raise RemoteProtocolError(INCOMPLETE) from None


def messages_json(messages: Sequence[Message]) -> list[dict[str, object]]:
    """Messages as JSON for the API, without values that are the default. Adjacent similar messages share the work."""
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
    from postroad.message import properties_of

    return _properties_json(properties_of(message)) | _own_json(message)


def _own_json(message: Message) -> dict[str, object]:
    """The part of the JSON that differs for each message."""
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


_AS_TEXT = json.JSONEncoder(separators=(",", ":")).encode  # json.dumps would make an encoder for each message
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


# Joined sends: while a request to a queue is under way, single messages for it are collected for the next request.
#
# aio/runtime.py and sync/runtime.py decide how callers wait.


MAX_JOINED = 1000  # messages in one request
MAX_JOINED_BYTES = 4 << 20  # bytes in one request, unless a single message is larger

# Posts messages, each as JSON, to a queue. Returns the id or the error of each.
Outcome = str | Exception
Post = Callable[[str, Sequence[bytes]], Coroutine[Any, Any, list[Outcome]]]


class JoinedSends(Protocol):
    """Sends single messages. The messages of one caller keep their order. Each caller gets its own id or error."""

    async def send(self, name: str, message: bytes) -> str: ...


class Sized(Protocol):
    @property
    def message(self) -> bytes: ...


Sent = TypeVar("Sent", bound=Sized)


@dataclass(slots=True)
class Lane(Generic[Sent]):
    """The sends to one queue: `busy` while a request is under way, and `waiting` messages in their order."""

    busy: bool = False
    waiting: deque[Sent] = field(default_factory=deque)

    def next_batch(self) -> list[Sent]:
        """Takes as many messages as one request can have."""
        batch: list[Sent] = []
        size = 0
        while self.waiting and len(batch) < MAX_JOINED:
            size += len(self.waiting[0].message)
            if batch and size > MAX_JOINED_BYTES:
                break
            batch.append(self.waiting.popleft())
        return batch


def encode_message(message: dict[str, object]) -> bytes:
    return _AS_TEXT(message).encode()


def encode_messages(messages: Sequence[bytes]) -> bytes:
    return b'{"messages":[' + b",".join(messages) + b"]}"
