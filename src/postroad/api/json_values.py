"""JSON to our values and back: messages to send, queues to create or change, and the answers of the API.

It refuses unknown keys and values of the wrong type, and names them. No HTTP here.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from postroad.errors import InvalidArgument, InvalidMessage, MessageTooLarge, PostroadError
from postroad.message import ACK_WORDS, MAX_PRIORITY, Message, Signature, ack_flags
from postroad.security.algorithms import CIPHERS, DEFAULT_HASH, HASHES
from postroad.security.descriptors import Sid
from postroad.security.signatures import VERSIONS
from postroad.validation import queue_properties
from postroad.validation.kinds import (
    BASE64,
    GUID,
    SWITCH,
    TEXT,
    UINT32,
    FieldFault,
    Kind,
    Property,
    checked,
    items,
    nullable,
    parsed,
    properties,
    read_values,
    shown,
    text,
    whole,
)
from postroad.wire.constants import CUSTOM_CLASS_MASK, INFINITE, MAX_LABEL_UNITS

MAX_BATCH_MESSAGES = 10_000  # in one request: a commit takes them in well under a second
MAX_JSON_BYTES = 32 << 20  # larger than the largest message with every character escaped
MAX_VALUES = 40 * MAX_BATCH_MESSAGES  # a message with all properties has 33
MAX_DIGITS = 40  # with a sign; Python reads numbers with thousands of digits slowly
SMALL_JSON = 1 << 20  # quickly read, whatever it contains
_STEP = 256 << 10
_OPENERS = (b",", b"[", b"{")  # every value but the first follows one
TRANSACTIONAL = "transactional"
SEPARATE = "separate"
MESSAGES = "messages"


def queue_name(name: str) -> str:
    r"""A queue's name in the core's form. A local path may have slashes, as in `private$/orders`.

    Only names without backslash and equals sign change: with a slash, none of those is legal as it is.
    """
    return name if "\\" in name or "=" in name else name.replace("/", "\\")


def one_of(words: Collection[str]) -> Kind[str]:
    def check(value: Any) -> str:
        if value not in words:
            raise ValueError
        return str(value)

    return Kind(f"one of {', '.join(filter(None, words))}", {"type": "string", "enum": list(words)}, check)


def _ack(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return whole(0, 0xFF)(value)
    words = value if isinstance(value, list) else [value]
    if not all(isinstance(word, str) for word in words):
        raise TypeError
    try:
        return ack_flags(value)
    except InvalidMessage as error:
        raise FieldFault(str(error).removeprefix("ack: ")) from None


QUEUE = Kind("a queue's name as text", {"type": "string"}, lambda value: queue_name(TEXT.check(value)))
ACK = Kind(
    f"a list of the words {', '.join(ACK_WORDS)}, or their bits",
    {
        "anyOf": [
            {"type": "array", "items": {"type": "string", "enum": list(ACK_WORDS)}},
            {"type": "string"},
            {"type": "integer", "minimum": 0, "maximum": 0xFF},
        ]
    },
    _ack,
)
SID = parsed("a SID such as S-1-5-21-1-2-3-1001", lambda value: str(Sid.parse(value)))
SECONDS = nullable(whole(0, INFINITE))

# The properties that a sender sets on a message: in JSON and, except for the body, in query parameters.
MESSAGE_PROPERTIES = properties(
    Property("body", "body", TEXT, "the body, as text"),
    Property("body_base64", "body", BASE64, "the body, as bytes"),
    Property("body_type", "body_type", UINT32, "the body's VARENUM; text is UTF-16 for 8 and 31, else UTF-8"),
    Property("label", "label", text(MAX_LABEL_UNITS - 1), "a title for readers"),
    Property("priority", "priority", whole(0, MAX_PRIORITY), "7 goes first; the default is 3"),
    Property("recoverable", "recoverable", SWITCH, "whether the message survives a restart"),
    Property("app_tag", "app_tag", UINT32, "a number for the application's own use"),
    Property("correlation_id", "correlation_id", nullable(TEXT), r"{guid}\ordinal of the message to answer"),
    Property("response_queue", "response_queue", nullable(QUEUE), "the queue for answers"),
    Property("admin_queue", "admin_queue", nullable(QUEUE), "the queue for acknowledgments"),
    Property("ack", "ack", ACK, "the acknowledgments that the sender wants"),
    Property("time_to_reach_queue", "time_to_reach_queue", SECONDS, "seconds that the message may take to arrive"),
    Property("time_to_be_received", "time_to_be_received", SECONDS, "seconds until the message expires unread"),
    Property("journal", "journal", SWITCH, "whether the sender keeps a copy once the message is delivered"),
    Property("dead_letter", "dead_letter", SWITCH, "whether a copy is kept if the message cannot be delivered"),
    Property("dead_letter_queue", "dead_letter_queue", nullable(QUEUE), "the local queue for that copy"),
    Property("trace", "trace", nullable(TEXT), "PUBLIC=<guid> of the queue for reports about each hop"),
    Property("extension_base64", "extension", BASE64, "bytes for the application's own use"),
    Property("connector_type", "connector_type", nullable(GUID), "the connector of a message to a foreign system"),
    Property("class", "message_class", whole(0, CUSTOM_CLASS_MASK), "the class of a connector's own acknowledgment"),
    Property("signature_base64", "value", BASE64, "the sender's own signature, as it is on the wire"),
    Property("certificate_base64", "certificate", BASE64, "the certificate (DER) of the key that signed"),
    Property("hash", "hash", one_of(HASHES), f"the hash that was signed; the default is {DEFAULT_HASH}"),
    Property("signature_version", "version", one_of(VERSIONS), "the version of the signature; the default is 2.0"),
    Property("sender_id", "sender_id", nullable(SID), "the SID of the sender that the certificate is registered for"),
    Property(
        "encrypt",
        "encrypt",
        nullable(one_of(("", *CIPHERS))),
        "the cipher for the body on its way to another manager; empty for the manager's send_cipher",
    ),
)
SIGNATURE = ("value", "certificate", "hash", "version", "sender_id")  # fields of a Signature
NEW_QUEUE = properties(
    Property("path", "path", QUEUE, r"the queue's path, as in private$\orders", required=True),
    Property("public", "public", SWITCH, "whether a path without a computer is that of a public queue"),
    *queue_properties.NEW_QUEUE.values(),
)

QUESTION = properties(
    Property("destination", "destination", QUEUE, "where the message goes", required=True),
    Property("names", "names", items(QUEUE, most=16), "other queues that the message names"),
    Property("certificate_base64", "certificate", BASE64, "the certificate (DER) of the key that will sign"),
)


def check_structure(data: bytes) -> Iterator[None]:
    """Counts the values in JSON before anything is built from it. Raises MessageTooLarge if there are more than the
    largest request has. Otherwise a few bytes of JSON could take a hundred bytes of memory each."""
    if len(data) <= SMALL_JSON:
        return
    if not json.detect_encoding(data).startswith("utf-8"):
        raise InvalidArgument("body: must be JSON in UTF-8")
    most = 1
    for start in range(0, len(data), _STEP):
        most += sum(data.count(each, start, start + _STEP) for each in _OPENERS)  # those within strings too
        yield
    if most <= MAX_VALUES:
        return
    values, start, inside = 0, 0, False
    while start < len(data):
        end = start + _STEP
        piece = data[start:end]
        if (len(piece) - len(piece.rstrip(b"\\"))) % 2:  # do not split an escape
            end += 1
            piece = data[start:end]
        parts = piece.replace(rb"\\", b"").replace(rb"\"", b"").split(b'"')
        outside = b"".join(parts[inside::2])
        values += sum(map(outside.count, _OPENERS))
        if values > MAX_VALUES:
            raise MessageTooLarge(
                f"body: has more than {MAX_VALUES} values; a request sends at most {MAX_BATCH_MESSAGES} messages"
            )
        inside ^= len(parts) % 2 == 0
        start = end
        yield


def load_json(data: bytes) -> object:
    """Any JSON value. Raises InvalidArgument with the position of the fault."""
    try:
        return _DECODER.decode(data.decode(json.detect_encoding(data), "surrogatepass"))
    except json.JSONDecodeError as error:
        raise InvalidArgument(f"body: must be JSON; line {error.lineno}, column {error.colno}: {error.msg}") from None
    except RecursionError:
        raise InvalidArgument("body: must not be nested too deeply") from None
    except ValueError as error:
        raise InvalidArgument(f"body: must be JSON: {error}") from None


def _no_constant(word: str) -> object:
    raise ValueError(f"{word} is not a number")


def _whole(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise ValueError(f"a whole number has at most {MAX_DIGITS} digits, got {len(digits)}")
    return int(digits)


_DECODER = json.JSONDecoder(parse_constant=_no_constant, parse_int=_whole)


def json_object(data: bytes) -> dict[str, object]:
    value = load_json(data)
    if not isinstance(value, dict):
        raise InvalidArgument(f"body: must be a JSON object, got {shown(value)}")
    return value


def make_message(values: dict[str, Any], place: str = "") -> Message:
    """A message from the fields of MESSAGE_PROPERTIES. A signature needs its certificate, and the other fields of the
    signature need both."""
    signed = {name: values.pop(name) for name in SIGNATURE if name in values}
    if not signed:
        return Message(**values)
    for name in ("signature_base64", "certificate_base64"):
        if not signed.get(MESSAGE_PROPERTIES[name].field):
            raise InvalidMessage(f"{place}{name}: is missing; a signed message needs it")
    return Message(signature=Signature(**signed), **values)


def read_message(data: object, place: str = "") -> Message:
    if not isinstance(data, dict):
        raise InvalidMessage(f"{place.rstrip('.') or 'body'}: must be a JSON object, got {shown(data)}")
    return make_message(read_values(data, MESSAGE_PROPERTIES, InvalidMessage, place), place)


@dataclass(frozen=True, slots=True)
class Sending:
    """The content of the body of a send."""

    messages: list[Message]
    transactional: bool


def read_sending(data: bytes) -> Sending:
    """Reads one message, or a list in `messages`. `transactional` stands beside the properties or beside the list."""
    body = json_object(data)
    transactional = checked(SWITCH, body.pop(TRANSACTIONAL, False), TRANSACTIONAL, InvalidMessage)
    if MESSAGES not in body:
        return Sending([read_message(body)], transactional)
    listed = _listed(body)
    return Sending([read_message(each, f"{MESSAGES}[{index}].") for index, each in enumerate(listed)], transactional)


def read_each(data: bytes) -> list[Message | PostroadError]:
    """Reads messages that succeed or fail one by one: each message, or what is wrong with it."""
    read: list[Message | PostroadError] = []
    for each in _listed(json_object(data)):
        try:
            read.append(read_message(each))
        except PostroadError as error:
            read.append(error)
    return read


def _listed(body: dict[str, object]) -> list[object]:
    listed = body.pop(MESSAGES, None)
    for name in body:
        raise InvalidMessage(f"{name}: must not be set together with {MESSAGES}; only {TRANSACTIONAL} may be")
    if not isinstance(listed, list):
        raise InvalidMessage(f"{MESSAGES}: must be a list, got {shown(listed)}")
    check_batch(len(listed), MESSAGES)
    return listed


def check_batch(count: int, what: str) -> None:
    if count > MAX_BATCH_MESSAGES:
        raise InvalidArgument(f"{what}: must have at most {MAX_BATCH_MESSAGES} items, got {count}")
