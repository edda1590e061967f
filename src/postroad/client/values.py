"""The plain values that clients give: names, messages in their short forms, attributes of queues, words for places.

Both faces use these; nothing here waits or speaks to a queue manager.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from postroad.errors import InvalidArgument
from postroad.values.reading import SeekAction

if TYPE_CHECKING:
    from postroad.message import Message
    from postroad.names import FormatName, PathName
    from postroad.received import ReceivedMessage

    Name: TypeAlias = str | FormatName | PathName
    Sendable: TypeAlias = Message | bytes | str | dict[str, Any]
    Place: TypeAlias = Literal["current", "next", "previous", "first", "last"]

PAGE_MESSAGES = 100  # messages that the first step of an iteration brings
MAX_PAGE_MESSAGES = 5000
PAGE_BYTES = 4 << 20  # about what a later step brings
MOVE_MESSAGES = 1000  # messages that one commit of a move takes
MAX_SUBMISSION = 10_000  # rows of one submission
KNOWN_NAMES = 1024  # names that are kept as they were read, for the next call

_PLACES = {action.name.lower(): action for action in SeekAction}


# A program uses a few names over and over, and reading one costs more than sending a small message.
@lru_cache(KNOWN_NAMES)
def as_name(text: str) -> FormatName | PathName:
    from postroad.names import parse_name

    return parse_name(text)


def as_messages(given: Sendable | Iterable[Sendable]) -> tuple[list[Message], bool]:
    """The messages, and whether it was one alone. Bytes and text are the body of a message without properties, and a
    dict is sent as JSON."""
    from postroad.message import Message  # and with it everything about packets, which only some calls need

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
    """A number, or its digits as text."""
    if isinstance(given, int):
        return given
    if not given.isdecimal() or not given.isascii():
        raise InvalidArgument(f"lookup_id: must be a whole number, got {given!r}")
    return int(given)


def as_lookup_ids(messages: Iterable[ReceivedMessage | int | str]) -> list[int]:
    return [as_lookup_id(each) if isinstance(each, int | str) else each.lookup_id for each in messages]


def next_page(page: Sequence[ReceivedMessage]) -> int:
    """How many messages the next step of an iteration asks for: many small ones, or few large ones."""
    mean = sum(len(message.packet) for message in page) // len(page)
    return max(1, min(MAX_PAGE_MESSAGES, PAGE_BYTES // max(1, mean)))
