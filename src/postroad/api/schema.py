"""JSON to our values and back: messages to send, queues to make or change, and what is told of queues and the manager.

Strict: a key that no table has, or a value of a wrong kind, is refused by its name. No HTTP here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import Any

from postroad.api.kinds import (
    BASE64,
    GUID,
    SWITCH,
    TEXT,
    UINT32,
    UINT32_MAX,
    Kind,
    NotOfKind,
    choice,
    nullable,
    text,
    whole,
)
from postroad.errors import InvalidArgument, InvalidMessage, PostroadError
from postroad.message import ACK_WORDS, MAX_PRIORITY, Message, ack_flags
from postroad.queues.collection import MAX_LABEL
from postroad.queues.info import (
    ListenerInfo,
    LockInfo,
    ManagerInfo,
    QueueInfo,
    ReaderInfo,
    SessionInfo,
    TransactionInfo,
)
from postroad.queues.properties import QueuePrivacy
from postroad.wire.constants import CUSTOM_CLASS_MASK, INFINITE, MAX_LABEL_UNITS

MAX_BATCH_MESSAGES = 10_000  # in one request: what one commit takes in well under a second
TRANSACTIONAL = "transactional"
MESSAGES = "messages"


@dataclass(frozen=True, slots=True)
class Property:
    """One key of a JSON object, and the field or argument that its value goes to."""

    name: str
    field: str
    kind: Kind
    description: str


Table = Mapping[str, Property]


def _table(*properties: Property) -> Table:
    return {each.name: each for each in properties}


def queue_name(name: str) -> str:
    r"""A queue's name as the core reads it: a local path may have slashes, as in `private$/orders`.

    No name without a backslash and without an equals sign is legal with a slash in it, so that nothing is hidden.
    """
    return name if "\\" in name or "=" in name else name.replace("/", "\\")


def _ack(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        if not 0 <= value <= 0xFF:
            raise ValueError
        return value
    words = value if isinstance(value, list) else [value]
    if not all(isinstance(word, str) for word in words):
        raise ValueError
    try:
        return ack_flags(value)
    except InvalidMessage as error:
        raise NotOfKind(str(error).removeprefix("ack: ")) from None


QUEUE = Kind("a queue's name", {"type": "string"}, lambda value: queue_name(TEXT.check(value)))
ACK = Kind(
    f"a list of the words {', '.join(ACK_WORDS)}, nor their bits",
    {
        "anyOf": [
            {"type": "array", "items": {"type": "string", "enum": list(ACK_WORDS)}},
            {"type": "string"},
            {"type": "integer", "minimum": 0, "maximum": 0xFF},
        ]
    },
    _ack,
)
SECONDS = nullable(whole(0, INFINITE))
QUOTA_KB = nullable(UINT32)

# What a sender may say of a message: as JSON, and but for the body as query parameters.
MESSAGE_PROPERTIES = _table(
    Property("body", "body", TEXT, "the body, as text"),
    Property("body_base64", "body", BASE64, "the body, as bytes"),
    Property("body_type", "body_type", UINT32, "its VARENUM; text is UTF-16 for 8 and 31, else UTF-8"),
    Property("label", "label", text(MAX_LABEL_UNITS - 1), "a title for people"),
    Property("priority", "priority", whole(0, MAX_PRIORITY), "7 goes first; 3 if absent"),
    Property("recoverable", "recoverable", SWITCH, "whether it survives a restart"),
    Property("app_tag", "app_tag", UINT32, "a number for the application's own use"),
    Property("correlation_id", "correlation_id", nullable(TEXT), r"{guid}\ordinal of the message that it answers"),
    Property("response_queue", "response_queue", nullable(QUEUE), "where answers go"),
    Property("admin_queue", "admin_queue", nullable(QUEUE), "where acknowledgments go"),
    Property("ack", "ack", ACK, "which acknowledgments are wanted"),
    Property("time_to_reach_queue", "time_to_reach_queue", SECONDS, "seconds that it may be on its way"),
    Property("time_to_be_received", "time_to_be_received", SECONDS, "seconds until it leaves unread"),
    Property("journal", "journal", SWITCH, "whether a copy is kept once it is delivered"),
    Property("dead_letter", "dead_letter", SWITCH, "whether a copy is kept if it cannot be delivered"),
    Property("dead_letter_queue", "dead_letter_queue", nullable(QUEUE), "a local queue that takes the copy if it dies"),
    Property("trace", "trace", nullable(TEXT), "PUBLIC=<guid> of the queue that hears of each hop"),
    Property("extension_base64", "extension", BASE64, "bytes for the application's own use"),
    Property("connector_type", "connector_type", nullable(GUID), "of a message to a foreign system"),
    Property("class", "message_class", whole(0, CUSTOM_CLASS_MASK), "of a connector's own acknowledgment"),
)

_CHANGEABLE = (
    Property("label", "label", text(MAX_LABEL), "a title for people"),
    Property("journal", "journaling", SWITCH, "whether received messages are copied to its journal"),
    Property("quota_kb", "quota_kb", QUOTA_KB, "how much it holds; null is no limit"),
    Property(
        "journal_quota_kb",
        "journal_quota_kb",
        QUOTA_KB,
        "how much its journal holds; null is 1048576, and 4294967295 no limit",
    ),
    Property("authenticate", "authenticate", SWITCH, "whether it takes signed messages only"),
    Property(
        "privacy", "privacy", choice({each.value: each for each in QueuePrivacy}), "which bodies it takes: encrypted"
    ),
    Property(
        "abort_limit", "abort_limit", nullable(whole(1, UINT32_MAX)), "aborts after which a message moves to ;poison"
    ),
)
QUEUE_CHANGES = _table(*_CHANGEABLE)
NEW_QUEUE = _table(
    Property("path", "path", QUEUE, r"where it is, as in private$\orders"),
    Property("transactional", "transactional", SWITCH, "whether all of its messages are sent within transactions"),
    *_CHANGEABLE,
)


def load_json(data: bytes) -> object:
    """Any JSON value; raises InvalidArgument with the place of the fault."""
    try:
        return json.loads(data, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise InvalidArgument(f"body: not JSON at line {error.lineno}, column {error.colno}: {error.msg}") from None
    except RecursionError:
        raise InvalidArgument("body: the JSON is nested too deeply") from None
    except ValueError as error:
        raise InvalidArgument(f"body: not JSON: {error}") from None


def _no_constant(word: str) -> object:
    raise ValueError(f"{word} is no number")


def json_object(data: bytes) -> dict[str, object]:
    value = load_json(data)
    if not isinstance(value, dict):
        raise InvalidArgument("body: a JSON object is wanted")
    return value


def read_object(
    data: Mapping[str, object], table: Table, error: type[PostroadError] = InvalidArgument, place: str = ""
) -> dict[str, Any]:
    """The values of an object by the fields they go to; the first fault is raised as `error`, with its place."""
    values: dict[str, Any] = {}
    for name, value in data.items():
        wanted = table.get(name)
        if wanted is None:
            raise error(f"{place}{name}: there is no such property{_suggestion(name, table)}")
        try:
            found = wanted.kind(value)
        except NotOfKind as problem:
            raise error(f"{place}{name}: {problem}") from None
        if wanted.field in values:
            raise error(f"{place}{name}: it is given twice, in two forms")
        values[wanted.field] = found
    return values


def require(values: Mapping[str, Any], *names: str) -> None:
    for name in names:
        if name not in values:
            raise InvalidArgument(f"{name}: it is missing")


def _suggestion(name: str, known: Iterable[str]) -> str:
    known = list(known)
    close = get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]}?" if close else f"; known are {', '.join(known)}"


def read_message(data: object, place: str = "") -> Message:
    if not isinstance(data, dict):
        raise InvalidMessage(f"{place.rstrip('.') or 'body'}: a message is a JSON object")
    return Message(**read_object(data, MESSAGE_PROPERTIES, InvalidMessage, place))


@dataclass(frozen=True, slots=True)
class Sending:
    """What the body of a send asks for."""

    messages: list[Message]
    transactional: bool


def read_sending(data: bytes) -> Sending:
    """One message, or `messages`, with `transactional` beside its properties or beside the list."""
    body = json_object(data)
    transactional = body.pop(TRANSACTIONAL, False)
    if not isinstance(transactional, bool):
        raise InvalidMessage(f"{TRANSACTIONAL}: true or false is wanted")
    if MESSAGES not in body:
        return Sending([read_message(body)], transactional)
    listed = body.pop(MESSAGES)
    for name in body:
        raise InvalidMessage(f"{name}: beside {MESSAGES} there is only {TRANSACTIONAL}")
    if not isinstance(listed, list):
        raise InvalidMessage(f"{MESSAGES}: a list is wanted")
    check_batch(len(listed), MESSAGES)
    return Sending([read_message(each, f"{MESSAGES}[{index}].") for index, each in enumerate(listed)], transactional)


def check_batch(count: int, what: str) -> None:
    if count > MAX_BATCH_MESSAGES:
        raise InvalidArgument(f"{what}: at most {MAX_BATCH_MESSAGES} can be in one request, not {count}")


_QUEUE_FIELDS = tuple(each.name for each in fields(QueueInfo))
_MANAGER_FIELDS = tuple(each.name for each in fields(ManagerInfo))
_SESSION_FIELDS = tuple(each.name for each in fields(SessionInfo))
_READER_FIELDS = tuple(each.name for each in fields(ReaderInfo))
_LISTENER_FIELDS = tuple(each.name for each in fields(ListenerInfo))
_LOCK_FIELDS = tuple(each.name for each in fields(LockInfo))
_TRANSACTION_FIELDS = tuple(each.name for each in fields(TransactionInfo))


def queue_json(info: QueueInfo) -> dict[str, object]:
    return {name: getattr(info, name) for name in _QUEUE_FIELDS}


def manager_json(info: ManagerInfo) -> dict[str, object]:
    return {name: getattr(info, name) for name in _MANAGER_FIELDS}


def session_json(info: SessionInfo) -> dict[str, object]:
    return {name: getattr(info, name) for name in _SESSION_FIELDS}


def reader_json(info: ReaderInfo) -> dict[str, object]:
    return {name: getattr(info, name) for name in _READER_FIELDS}


def listener_json(info: ListenerInfo) -> dict[str, object]:
    return {name: getattr(info, name) for name in _LISTENER_FIELDS}


def lock_json(info: LockInfo) -> dict[str, object]:
    return {name: getattr(info, name) for name in _LOCK_FIELDS}


def transaction_json(info: TransactionInfo) -> dict[str, object]:
    return {name: getattr(info, name) for name in _TRANSACTION_FIELDS}
