r"""The simple types of [MC-MQSRM] 2.2.1 and the two identifiers, as text: numbers, dates, GUIDs, base64.

Each reader gets the place that it reads, so an error can name it. White space around a value does not count.
"""

from __future__ import annotations

import re
from binascii import a2b_base64, b2a_base64
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from uuid import UUID

from postroad.errors import MalformedSoap
from postroad.names import MessageId
from postroad.soap.elements import StreamId
from postroad.wire.headers import TxSequenceId

SPACE = " \t\r\n"  # XML's white space
U16 = 0xFFFF
U32 = 0xFFFFFFFF
U64 = 0xFFFFFFFFFFFFFFFF
_MAX_DIGITS = 40  # leading zeros are legal, but int() must not get a megabyte of them
_CACHED = 1024  # dates and GUIDs recur in message after message
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DATE = re.compile(r"(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)", re.ASCII)
_GUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_MESSAGE_ID = re.compile(r"uuid:(\d+)@(.*)", re.ASCII)
_STREAM_ID = re.compile(r"uid:([^\\]*)\\(\d+)", re.ASCII)
# [XML 1.0] 2.2 Char: the characters that it excludes.
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
REPLACEMENT = "\ufffd"


def parse_number(text: str, place: str, largest: int = U32) -> int:
    """2.2.1.3: decimal digits without a sign. A number above `largest` would not fit its field."""
    digits = text.strip(SPACE)
    if not (digits.isascii() and digits.isdigit()):
        raise MalformedSoap(place, f"must be a decimal number, got {shown(text)}")
    if len(digits) > _MAX_DIGITS or (number := int(digits)) > largest:
        raise MalformedSoap(place, f"must be at most {largest}, got {shown(digits)}")
    return number


def parse_date(text: str, place: str) -> int:
    """2.2.1.2: YYYYMMDDThhmmss in UTC, as seconds since 1970. Earlier dates are negative."""
    try:
        return _seconds(text.strip(SPACE))
    except ValueError:
        raise MalformedSoap(place, f"must be a date such as 20070618T210654, got {shown(text)}") from None


@lru_cache(_CACHED)
def _seconds(text: str) -> int:
    match = _DATE.fullmatch(text)
    if match is None:
        raise ValueError(text)
    year, month, day, hour, minute, second = map(int, match.groups())
    return (datetime(year, month, day, hour, minute, second, tzinfo=UTC) - _EPOCH) // timedelta(seconds=1)


@lru_cache(_CACHED)
def date_text(seconds: int) -> str:
    """2.2.1.2. Later times become the last second of the year 9999."""
    return (_EPOCH + timedelta(seconds=seconds)).strftime("%Y%m%dT%H%M%S").zfill(15)


def parse_guid(text: str, place: str) -> UUID:
    """2.2.1.1: 8-4-4-4-12 hexadecimal digits, without braces."""
    try:
        return _uuid(text.strip(SPACE))
    except ValueError:
        raise MalformedSoap(place, f"must be a GUID, got {shown(text)}") from None


@lru_cache(_CACHED)
def _uuid(text: str) -> UUID:
    if _GUID.fullmatch(text) is None:
        raise ValueError(text)
    return UUID(text)


def parse_base64(text: str, place: str) -> bytes:
    """[RFC3548], with padding. Line breaks inside are allowed, because XML allows them."""
    digits = "".join(text.split())
    try:
        if len(digits) % 4:
            raise ValueError(digits)
        return a2b_base64(digits, strict_mode=True)
    except ValueError:
        raise MalformedSoap(place, f"must be base64, got {shown(text)}") from None


def base64_text(data: bytes) -> str:
    return b2a_base64(data, newline=False).decode("ascii")


def parse_message_id(text: str, place: str) -> MessageId:
    """2.2.4.3: `uuid:`, the index, `@` and the GUID of the sending manager."""
    match = _message_id(text, place)
    return MessageId(parse_guid(match[2], place), parse_number(match[1], place))


def parse_ordinal(text: str, place: str) -> int:
    """The index in a message id."""
    return parse_number(_message_id(text, place)[1], place)


def _message_id(text: str, place: str) -> re.Match[str]:
    match = _MESSAGE_ID.fullmatch(text.strip(SPACE))
    if match is None:
        raise MalformedSoap(place, f"must be an id such as uuid:17@<guid>, got {shown(text)}")
    return match


def message_id_text(message_id: MessageId) -> str:
    return f"uuid:{message_id.ordinal}@{message_id.guid}"


def parse_stream_id(text: str, place: str) -> StreamId:
    r"""2.2.5.3.1: `uid:`, the GUID of the sending manager, `\` and a 64-bit number: a time stamp and an ordinal."""
    match = _STREAM_ID.fullmatch(text.strip(SPACE))
    if match is None:
        raise MalformedSoap(place, rf"must be a stream id such as uid:<guid>\17, got {shown(text)}")
    number = parse_number(match[2], place, U64)
    return StreamId(parse_guid(match[1], place), TxSequenceId(number & U32, number >> 32))


def stream_id_text(stream_id: StreamId) -> str:
    return f"uid:{stream_id.guid}\\{stream_id.sequence.value}"


def is_xml_text(text: str) -> bool:
    """Whether XML can express every character: no NUL, no other control characters, no half of a surrogate pair."""
    return _NOT_XML.search(text) is None


def to_xml_text(text: str) -> str:
    """The text with U+FFFD in place of each character that XML cannot express."""
    return _NOT_XML.sub(REPLACEMENT, text)


def shown(text: str) -> str:
    """The text, or how it begins, for use in an error."""
    return repr(text if len(text) <= 80 else text[:77] + "...")
