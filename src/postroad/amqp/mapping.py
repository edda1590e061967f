"""A message of [AMQP] 3.2 as a message of ours, and back. docs/reference/amqp.md has the table.

What no field of ours can hold travels in the extension as sections of AMQP: the sender's own ids, the type of the
content, groups, foreign annotations and the application properties, byte for byte.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from struct import Struct
from typing import Any, Final
from uuid import UUID

from postroad.amqp.codec import (
    FALSE,
    NULL,
    TRUE,
    Described,
    MalformedValue,
    binary,
    described,
    listed,
    mapped,
    read_list,
    read_value,
    symbol,
    text,
    timestamp,
    uint,
)
from postroad.describe.packets import admin_text, destination_text, is_authenticated, response_text, sender_id
from postroad.errors import IllegalName, InvalidMessage, PostroadError, RemoteProtocolError
from postroad.message import MAX_PRIORITY, Message, ack_flags
from postroad.names import FormatName, MessageId, PathName, parse_name
from postroad.store.interface import Record
from postroad.wire.constants import INFINITE, BodyType
from postroad.wire.headers import NO_CORRELATION
from postroad.wire.view import MessageView

SECTION_HEADER, SECTION_ANNOTATIONS, PROPERTIES, APPLICATION_PROPERTIES, DATA, SEQUENCE, VALUE, FOOTER = (
    *(0x70, 0x72, 0x73, 0x74, 0x75, 0x76, 0x77, 0x78),
)
DELIVERY_ANNOTATIONS: Final = 0x71
PREFIX: Final = "x-opt-msmq-"
_BODY_MARK: Final = PREFIX + "body"  # in an extension: the body of the packet is sections of AMQP
_U32, _TWO, _LONG = Struct(">I"), Struct(">II"), Struct(">Q")
# The fields of `properties` that the extension keeps: the ids, the content's type, the time of expiry, the groups.
_MESSAGE_ID, _TO, _SUBJECT, _REPLY_TO, _CORRELATION_ID = 0, 2, 3, 4, 5
_KEPT: Final = (0, 6, 7, 8, 10, 11, 12)
_MOST_FIELDS: Final = 13
_FOREVER: Final = 0xFFFFFFFF

Resolve = Callable[[PathName], FormatName]


# Addresses


def read_address(address: str) -> PathName | FormatName:
    """The queue that an address means: a path, whose separators may be slashes, the name of a public queue, or a format
    name. Raises IllegalName."""
    head = address.partition("\\")[0]
    if "=" in head.partition("/")[0]:
        return parse_name(address)
    if "\\" not in address:
        address = address.replace("/", "\\")
    if "\\" not in address and not address.startswith(";") and not address.lower().startswith("system$;"):
        address = f".\\{address}"
    return parse_name(address)


# From AMQP


@dataclass(slots=True)
class _Extension:
    """The sections that travel in the extension. `marked` means that the body of the packet is sections, too."""

    annotations: list[bytes] = field(default_factory=list)  # keys and values, in turn
    properties: dict[int, bytes] = field(default_factory=dict)  # by the number of the field
    application: bytes = b""
    marked: bool = False

    def encode(self) -> bytes:
        annotations = self.annotations
        if self.marked:
            annotations = [*annotations, symbol(_BODY_MARK), symbol("sections")]
        parts = [described(SECTION_ANNOTATIONS, mapped(annotations))] if annotations else []
        if self.properties:
            fields = (self.properties.get(each, NULL) for each in range(_MOST_FIELDS))
            parts.append(described(PROPERTIES, listed(*fields)))
        parts.append(self.application)
        return b"".join(parts)


def read_message(payload: bytes, resolve: Resolve) -> Message:
    """The message to send. `resolve` finds a local queue, or raises. Raises PostroadError for what cannot be one."""
    end = len(payload)
    at = 0
    header: list[Any] = []
    properties: list[Any] = []
    properties_at = annotations_at = application_at = application_end = -1
    body: bytes | str | None = None
    body_at = -1
    raw_body = False
    while at < end:
        if payload[at] != 0:
            raise MalformedValue("a message must be sections", at)
        if at + 3 <= end and payload[at + 1] == 0x53:
            code, start = payload[at + 2], at + 3
        else:
            descriptor, start = read_value(payload, at + 1, end)
            code = descriptor if isinstance(descriptor, int) else _SECTIONS.get(str(descriptor), 0)
        section_at = at
        if code == DATA:
            kind = payload[start] if start < end else 0
            if kind == 0xA0:
                begin, at = start + 2, start + 2 + payload[start + 1] if start + 1 < end else end + 1
            elif kind == 0xB0 and start + 5 <= end:
                begin = start + 5
                at = begin + _U32.unpack_from(payload, start + 1)[0]
            else:
                raise MalformedValue("the section data must be bytes", start)
            if at > end:
                raise MalformedValue("the section data is longer than the message", start)
            if isinstance(body, str) or raw_body:
                raise InvalidMessage("a message must have one kind of body")
            body = payload[begin:at] if body is None else body + payload[begin:at]
        elif code == SECTION_HEADER:
            header, at = read_list(payload, start, end)
        elif code == PROPERTIES:
            properties_at = start
            properties, at = read_list(payload, start, end)
        elif code in (VALUE, SEQUENCE):
            value, at = read_value(payload, start, end)
            if body is not None and not (raw_body and code == SEQUENCE):
                raise InvalidMessage("a message must have one kind of body")
            if (code == VALUE and isinstance(value, str) and payload[start] in (0xA1, 0xB1)) or (
                code == VALUE and isinstance(value, bytes) and payload[start] in (0xA0, 0xB0)
            ):
                body = value
            else:
                if not raw_body:
                    raw_body, body_at = True, section_at
                body = payload[body_at:at]
        else:
            value, at = read_value(payload, start, end)
            if code in (SECTION_ANNOTATIONS, APPLICATION_PROPERTIES, DELIVERY_ANNOTATIONS, FOOTER):
                if not isinstance(value, dict):
                    raise MalformedValue(f"the section {code:#04x} must be a map", start)
            else:
                raise MalformedValue(f"the section {code:#04x} is not defined", section_at)
            if code == SECTION_ANNOTATIONS:
                annotations_at = start
            elif code == APPLICATION_PROPERTIES:
                if not all(isinstance(each, str) for each in value):
                    raise InvalidMessage("the names of application properties must be text")
                application_at, application_end = section_at, at
    found: dict[str, Any] = {}
    if isinstance(body, str):
        found["body_type"] = BodyType.VT_BSTR
    if header:
        _take_header(found, header)
    extension: _Extension | None = None
    if properties:
        extension = _take_properties(found, properties, payload, properties_at, end, resolve)
    if annotations_at >= 0:
        extension = _take_annotations(found, payload, annotations_at, end, extension)
    if raw_body:
        extension = extension or _Extension()
        extension.marked = True
    if application_at >= 0:
        extension = extension or _Extension()
        extension.application = payload[application_at:application_end]
    if extension is not None:
        _put_extension(found, extension)
    return Message(b"" if body is None else body, **found)


_SECTIONS: Final[Mapping[Any, int]] = {
    "amqp:header:list": SECTION_HEADER,
    "amqp:delivery-annotations:map": DELIVERY_ANNOTATIONS,
    "amqp:message-annotations:map": SECTION_ANNOTATIONS,
    "amqp:properties:list": PROPERTIES,
    "amqp:application-properties:map": APPLICATION_PROPERTIES,
    "amqp:data:binary": DATA,
    "amqp:amqp-sequence:list": SEQUENCE,
    "amqp:amqp-value:*": VALUE,
    "amqp:footer:map": FOOTER,
}


def _put_extension(found: dict[str, Any], extension: _Extension) -> None:
    if not found.get("extension"):
        found["extension"] = extension.encode()
        return
    own = extension.properties.get(_MESSAGE_ID)
    if own is not None and _is_msmq_id(read_value(own, 0, len(own))[0]):
        del extension.properties[_MESSAGE_ID]  # of a message that came from a queue of ours and is sent on
    names = ["application properties"] if extension.application else []
    names += ["ids, content types or groups"] if extension.properties else []
    names += ["a body of this type"] if extension.marked else []
    if names:
        raise InvalidMessage(
            f"{PREFIX}extension must not be set together with {' and '.join(names)}, which travel in the extension too"
        )


def _take_header(found: dict[str, Any], header: list[Any]) -> None:
    durable, priority, ttl = (*header, None, None, None)[:3]
    if durable is True:
        found["recoverable"] = True
    if type(priority) is int:
        found["priority"] = min(priority, MAX_PRIORITY) if priority >= 0 else 0
    if type(ttl) is int and ttl >= 0:
        found["time_to_be_received"] = ttl / 1000


def _take_properties(
    found: dict[str, Any], values: list[Any], payload: bytes, start: int, end: int, resolve: Resolve
) -> _Extension | None:
    count = len(values)
    if count > _MOST_FIELDS:
        raise MalformedValue(f"the section properties must have at most {_MOST_FIELDS} fields, got {count}", start)
    kept = [each for each in _KEPT if each < count and values[each] is not None]
    if count > _SUBJECT and (subject := values[_SUBJECT]) is not None:
        if not isinstance(subject, str):
            raise InvalidMessage("subject must be text")
        found["label"] = subject
    if count > _REPLY_TO and (reply_to := values[_REPLY_TO]) is not None:
        name = _queue(reply_to, resolve) if isinstance(reply_to, str) else None
        if name is None:
            kept.append(_REPLY_TO)
        else:
            found["response_queue"] = str(name)
    if count > _CORRELATION_ID and (correlation := values[_CORRELATION_ID]) is not None:
        identifier = _is_msmq_id(correlation)
        if identifier is not None:
            found["correlation_id"] = identifier
        if identifier is None or str(identifier) != correlation:
            kept.append(_CORRELATION_ID)
    if not kept:
        return None
    extension = _Extension()
    spans = _spans(payload, start, end)
    extension.properties = {each: payload[slice(*spans[each])] for each in sorted(kept)}
    return extension


def _queue(address: str, resolve: Resolve) -> PathName | FormatName | None:
    """The queue of an address for replies. None for one that means nothing here: it travels as it is."""
    try:
        name = read_address(address)
        if isinstance(name, PathName):
            resolve(name)
    except PostroadError:
        return None
    return name


def _is_msmq_id(value: object) -> MessageId | None:
    if not isinstance(value, str) or not value.startswith("{"):
        return None
    try:
        return MessageId.parse(value)
    except IllegalName:
        return None


def _spans(data: bytes, at: int, end: int) -> list[tuple[int, int]]:
    """Where the parts of a list or map begin and end."""
    code = data[at]
    if code == 0x45:
        return []
    at += 3 if code in (0xC0, 0xC1) else 9
    stop = read_value(data, at - (3 if code in (0xC0, 0xC1) else 9), end)[1]
    spans = []
    while at < stop:
        _, after = read_value(data, at, stop)
        spans.append((at, after))
        at = after
    return spans


def _take_annotations(
    found: dict[str, Any], payload: bytes, start: int, end: int, extension: _Extension | None
) -> _Extension | None:
    spans = _spans(payload, start, end)
    foreign: list[bytes] = []
    for key_span, value_span in zip(spans[::2], spans[1::2], strict=True):
        key, _ = read_value(payload, *key_span)
        if not isinstance(key, str) or not key.startswith(PREFIX):
            foreign += [payload[slice(*key_span)], payload[slice(*value_span)]]
            continue
        value, _ = read_value(payload, *value_span)
        if (take := _SETTABLE.get(key.removeprefix(PREFIX))) is not None and value is not None:
            take(found, value)
    if foreign:
        extension = extension or _Extension()
        extension.annotations = foreign
    return extension


def _checked(name: str, value: Any, kind: type[Any], wanted: str) -> Any:
    if type(value) is not kind or (kind is int and not 0 <= value <= _FOREVER):
        raise InvalidMessage(f"{PREFIX}{name} must be {wanted}")
    return value


def _take_body_type(found: dict[str, Any], value: Any) -> None:
    found["body_type"] = _checked("body-type", value, int, "a number of 32 bits")


def _take_app_tag(found: dict[str, Any], value: Any) -> None:
    found["app_tag"] = _checked("app-tag", value, int, "a number of 32 bits")


def _take_extension(found: dict[str, Any], value: Any) -> None:
    found["extension"] = _checked("extension", value, bytes, "binary")


def _take_admin_queue(found: dict[str, Any], value: Any) -> None:
    name = _checked("admin-queue", value, str, "the address of a queue")
    found["admin_queue"] = str(read_address(name))


def _take_ack(found: dict[str, Any], value: Any) -> None:
    found["ack"] = ack_flags(_checked("ack", value, str, "words, as in reach-queue,receive"))


def _take_time_to_reach_queue(found: dict[str, Any], value: Any) -> None:
    found["time_to_reach_queue"] = _checked("time-to-reach-queue", value, int, "a number of milliseconds") / 1000


def _take_journal(found: dict[str, Any], value: Any) -> None:
    found["journal"] = _checked("journal", value, bool, "true or false")


def _take_dead_letter(found: dict[str, Any], value: Any) -> None:
    found["dead_letter"] = _checked("dead-letter", value, bool, "true or false")


_SETTABLE: Final[Mapping[str, Callable[[dict[str, Any], Any], None]]] = {
    "body-type": _take_body_type,
    "app-tag": _take_app_tag,
    "extension": _take_extension,
    "admin-queue": _take_admin_queue,
    "ack": _take_ack,
    "time-to-reach-queue": _take_time_to_reach_queue,
    "journal": _take_journal,
    "dead-letter": _take_dead_letter,
}


# To AMQP


def _key(name: str) -> bytes:
    return symbol(PREFIX + name)


_CLASS, _LOOKUP, _ARRIVED = _key("class") + b"\x70", _key("lookup-id") + b"\x80", _key("arrived-at") + b"\x83"
_BODY_TYPE, _APP_TAG = _key("body-type") + b"\x70", _key("app-tag") + b"\x70"
_AUTHENTICATED = _key("authenticated")
_DELIVERIES = {each: _key("delivery") + text(each) for each in ("express", "recoverable", "transactional")}
_ID, _SOURCE_MANAGER = _key("id"), _key("source-manager")
_ADMIN_QUEUE, _EXTENSION = _key("admin-queue"), _key("extension")
_FIXED = 9  # entries of the map that every message has


@lru_cache(1024)
def _manager(identifier: bytes) -> tuple[str, bytes]:
    """The beginning of ids of a manager, and the entry of the map that names it."""
    guid = UUID(bytes_le=identifier)
    return f"{{{guid}}}\\", _SOURCE_MANAGER + text(str(guid))


def write_message(record: Record, now: float) -> bytes:
    """The sections of a stored message, for a reader."""
    view = MessageView(record.packet)
    prefix, manager = _manager(view.source_queue_manager_bytes)
    identifier = text(f"{prefix}{view.message_id}")
    extension, label = view.extension, view.label
    kept = _read_extension(extension) if extension else None
    opaque = extension if kept is None else b""
    parts = [
        _header(record, view, now),
        b"",
        _properties(view, identifier, label, kept),
        b"" if kept is None else kept.application,
        _body(view, marked=kept is not None and kept.marked),
    ]
    entries = [
        *(_ID, identifier, _CLASS, _U32.pack(record.reason or view.message_class)),
        *(_LOOKUP, _LONG.pack(record.lookup_id), _ARRIVED, _LONG.pack(record.arrived_ms)),
        *(_BODY_TYPE, _U32.pack(view.body_type), _APP_TAG, _U32.pack(view.application_tag)),
        *(_AUTHENTICATED, TRUE if view.has_security and is_authenticated(view) else FALSE),
        _DELIVERIES["transactional" if view.transactional else "recoverable" if view.recoverable else "express"],
        manager,
    ]
    count = _FIXED
    if view.user_flags >> 13 & 7 and (admin := admin_text(view)) is not None:
        entries += [_ADMIN_QUEUE, text(admin)]
        count += 1
    if opaque:
        entries += [_EXTENSION, binary(opaque)]
        count += 1
    if kept is not None and kept.annotations:
        entries += kept.annotations
        count += len(kept.annotations) // 2
    content = b"".join(entries)
    parts[1] = b"\0\x53\x72\xd1" + _TWO.pack(len(content) + 4, 2 * count) + content
    return b"".join(parts)


def _header(record: Record, view: MessageView, now: float) -> bytes:
    seconds = view.time_to_be_received
    ttl = NULL
    if seconds != INFINITE:
        left_ms = int((min(view.sent_time, now) + seconds - now) * 1000)
        ttl = b"\x70" + _U32.pack(min(max(left_ms, 0), _FOREVER))
    content = b"".join((TRUE if view.recoverable else FALSE, b"\x50%c" % view.priority, ttl, NULL, uint(record.aborts)))
    return b"\0\x53\x70\xc0%c\x05" % (len(content) + 1) + content


def _properties(view: MessageView, identifier: bytes, label: str, kept: _Extension | None) -> bytes:
    own: Mapping[int, bytes] = {} if kept is None else kept.properties
    correlation = own.get(_CORRELATION_ID, NULL)
    if correlation == NULL and view.correlation_id != NO_CORRELATION:
        correlation = text(str(MessageId.from_bytes(view.correlation_id)))
    reply_to = own.get(_REPLY_TO, NULL)
    if view.user_flags >> 16 & 7 and (name := response_text(view)) is not None:
        reply_to = text(name)
    user = NULL
    if view.has_security and is_authenticated(view) and (sid := sender_id(view)) is not None:
        user = binary(sid.encode())
    get = own.get
    return described(
        PROPERTIES,
        listed(
            get(_MESSAGE_ID, identifier),
            user,
            _destination(view),
            text(label) if label else NULL,
            reply_to,
            correlation,
            get(6, NULL),
            get(7, NULL),
            get(8, NULL),
            timestamp(view.sent_time * 1000),
            get(10, NULL),
            get(11, NULL),
            get(12, NULL),
        ),
    )


_DESTINATIONS: dict[bytes, bytes] = {}  # the last few names, because messages of a queue have the same
_MOST_DESTINATIONS: Final = 256


def _destination(view: MessageView) -> bytes:
    key = view.destination_bytes
    found = _DESTINATIONS.get(key)
    if found is None:
        name = destination_text(view)
        found = NULL if name is None else text(name)
        if len(_DESTINATIONS) >= _MOST_DESTINATIONS:
            _DESTINATIONS.clear()
        if view.user_flags >> 10 & 7 == 7:  # any other name depends on other fields of the packet too
            _DESTINATIONS[key] = found
    return found


def _body(view: MessageView, *, marked: bool) -> bytes:
    body = view.body
    if marked and _is_sections(body):
        return body
    if view.body_type == BodyType.VT_BSTR and not view.encrypted:
        try:
            return b"\0\x53\x77" + text(body.decode("utf-16-le"))
        except UnicodeDecodeError:
            pass
    return b"\0\x53\x75" + binary(body)


def _is_sections(body: bytes) -> bool:
    """Whether a body is one amqp-value or some amqp-sequences. It may have come from anybody."""
    at, end = 0, len(body)
    try:
        while at < end:
            section, at = read_value(body, at, end)
            if not isinstance(section, Described) or section.descriptor not in (VALUE, SEQUENCE):
                return False
    except RemoteProtocolError:
        return False
    return end > 0


def _read_extension(extension: bytes) -> _Extension | None:
    """The sections in an extension; None if it is none of ours. Zeros may fill it up."""
    if extension[:2] != b"\0\x53":
        return None
    found = _Extension()
    at, end = 0, len(extension.rstrip(b"\0"))
    end = min(end + 8, len(extension))  # a section may end with zeros
    try:
        while at < end and extension[at : at + 2] == b"\0\x53":
            section_at, code, start = at, extension[at + 2], at + 3
            value, at = read_value(extension, start, len(extension))
            if code == PROPERTIES and isinstance(value, list) and len(value) <= _MOST_FIELDS:
                spans = _spans(extension, start, len(extension))
                wanted = {*_KEPT, _REPLY_TO, _CORRELATION_ID}
                found.properties = {
                    each: extension[slice(*span)]
                    for each, span in enumerate(spans)
                    if each in wanted and value[each] is not None
                }
            elif code == APPLICATION_PROPERTIES and isinstance(value, dict):
                found.application = extension[section_at:at]
            elif code == SECTION_ANNOTATIONS and isinstance(value, dict):
                found.marked = value.pop(_BODY_MARK, None) == "sections"
                spans = _spans(extension, start, len(extension))
                for key_span, value_span in zip(spans[::2], spans[1::2], strict=True):
                    key, _ = read_value(extension, *key_span)
                    if not isinstance(key, str) or not key.startswith(PREFIX):
                        found.annotations += [extension[slice(*key_span)], extension[slice(*value_span)]]
            else:
                return None
    except (RemoteProtocolError, IndexError):
        return None
    return found if not extension[at:].strip(b"\0") else None
