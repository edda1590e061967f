"""A message as an application writes it, and the packet made from it ([MS-MQDMPR] 3.1.7.1.30 and 3.1.7.1.32).

Composing is a hot path: one `pack` for the fixed headers, names encoded once per destination, no header objects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, InitVar, dataclass
from datetime import timedelta
from json import dumps
from math import ceil
from operator import attrgetter
from struct import Struct, pack
from typing import Protocol
from uuid import UUID

from postroad.errors import IllegalFormatName, IllegalName, InvalidMessage, LocalProtocolError, MessageTooLarge
from postroad.names import (
    DirectName,
    FormatName,
    MessageId,
    MulticastName,
    PathName,
    PrivateName,
    PublicName,
    parse_guid,
    parse_name,
)
from postroad.wire.constants import (
    CUSTOM_CLASS_MASK,
    DEFAULT_TIME_TO_REACH_QUEUE_S,
    INFINITE,
    MAX_LABEL_UNITS,
    MAX_PACKET_SIZE,
    SIGNATURE,
    VERSION,
    AckFlags,
    BaseFlags,
    EncryptionAlgorithm,
    FormatType,
    HashAlgorithm,
    UserFlags,
)
from postroad.wire.headers import (
    NO_CORRELATION,
    AddressHeader,
    DebugHeader,
    FormatNameElement,
    MultiQueueFormatHeader,
)
from postroad.wire.headers import PROPERTIES_LAYOUT as PROPERTIES
from postroad.wire.octets import NULL_GUID, Writer, encode_body
from postroad.wire.patch import MESSAGE_ID
from postroad.wire.queue_names import destination_field, other_field
from postroad.wire.view import with_dead_letter_queue

_FIXED = Struct("<BBHIII16s16sIIII")  # BaseHeader and the fixed part of UserHeader
_ID = Struct("<I")
_SIZE_AT = 8  # PacketSize in a packet
_BODY_SIZES_AT = 32  # MessageSize and AllocationBodySize in the MessagePropertiesHeader, behind the label's length at 1
_UNNUMBERED = pack("<IIIII", 0, 0, 0, 1, 0)  # a TransactionHeader without sequence numbers, which the commit fills in
_RECOVERABLE = 0x20
_SHA1, _RC4 = int(HashAlgorithm.SHA1), int(EncryptionAlgorithm.RC4)
_BODY = 6  # its index among the parts of a packet
_PADDING = (b"", b"\0\0\0", b"\0\0", b"\0")
MAX_SEEN_TYPES = 1000
_NO_JSON = object()
_NO_BODY = b""

Resolve = Callable[[PathName], FormatName]
_Names = tuple[int, bytes, bytes]  # user flags, QueueManagerAddress, the encoded names

DEFAULT_PRIORITY = 3
MAX_PRIORITY = 7

# [MS-MQDMPR] 3.1.1.12 AcknowledgementsRequested: the words of the command line and of JSON, with their bits.
ACK_WORDS = {
    "none": 0,
    "reach-queue": AckFlags.POSITIVE_ARRIVAL.value,
    "receive": AckFlags.POSITIVE_RECEIVE.value,
    "nack-reach-queue": AckFlags.NEGATIVE_ARRIVAL.value,
    "nack-receive": AckFlags.NEGATIVE_RECEIVE.value,
    "full": (
        AckFlags.POSITIVE_ARRIVAL | AckFlags.POSITIVE_RECEIVE | AckFlags.NEGATIVE_ARRIVAL | AckFlags.NEGATIVE_RECEIVE
    ).value,
}


def ack_flags(words: Iterable[str] | str) -> int:
    """The bits for words such as "reach-queue,receive" or ["full"]."""
    flags = 0
    for word in words.split(",") if isinstance(words, str) else words:
        try:
            flags |= ACK_WORDS[word.strip().lower()]
        except KeyError:
            raise InvalidMessage(f"ack: must be one of {', '.join(ACK_WORDS)}, got {word!r}") from None
    return flags


@dataclass(frozen=True, slots=True)
class Signature:
    """A signature that an application made with its own key, [MS-MQMQ] 2.5.

    `value` is as on the wire, and `certificate` is in DER. `sender_id` is the sender's SID as text, or the id of a
    queue manager.
    """

    value: bytes
    certificate: bytes
    version: str = "2.0"
    hash: str = "sha512"
    sender_id: str | UUID | None = None


class MessageSigner(Protocol):
    """Signs messages before they are sent, such as `postroad.Signer`. `certificate` is in DER."""

    @property
    def certificate(self) -> bytes: ...

    def signature(self, packets: Sequence[bytes], profile: str, registered: str | None) -> Signature:
        """The signature of one message, which has one packet for each destination.

        `profile` is the manager's signature profile, and `registered` the SID that it has for the certificate.
        """


@dataclass(slots=True)
class Message:
    """A message to send.

    A text body is stored as UTF-16 for the body types 8 and 31, and as UTF-8 for all others. `json` takes any value
    that JSON can hold and makes the body from it.

    `recoverable` messages survive a restart; other messages are express and live in memory. In a transaction, every
    message is recoverable and is delivered exactly once and in order. `journal` keeps a copy in the manager's journal
    after delivery. `dead_letter` keeps a copy in its dead-letter queue if delivery fails; `dead_letter_queue` keeps
    that copy in another queue of the sending manager. Times are seconds or a timedelta, and are rounded up.

    `ack` selects acknowledgments, which go to `admin_queue`; neither works without the other. `encrypt` names a cipher
    for the body on its way to another manager; "" is the manager's own choice. A client signs the message with `sign`,
    and puts the result into `signature`.
    """

    body: bytes | str = _NO_BODY
    _: KW_ONLY
    json: InitVar[object] = _NO_JSON
    label: str = ""
    priority: int = DEFAULT_PRIORITY
    recoverable: bool = False
    body_type: int = 0
    app_tag: int = 0
    correlation_id: MessageId | bytes | str | None = None
    response_queue: FormatName | str | None = None
    admin_queue: FormatName | str | None = None
    ack: int | str | tuple[str, ...] = 0
    time_to_reach_queue: float | timedelta | None = None
    time_to_be_received: float | timedelta | None = None
    journal: bool = False
    dead_letter: bool = False
    dead_letter_queue: FormatName | PathName | str | None = None
    trace: UUID | str | None = None
    extension: bytes = b""
    connector_type: UUID | str | None = None
    message_class: int = 0
    signature: Signature | None = None
    encrypt: str | None = None
    sign: MessageSigner | None = None

    def __post_init__(self, json: object) -> None:
        body = self.body
        kind = type(body)
        if (kind is bytes or kind is str) and json is _NO_JSON:
            return  # this is the usual case
        if json is not _NO_JSON:
            if body is not _NO_BODY:
                raise InvalidMessage("json: must not be set together with a body")
            self.body = json_text(json)
        elif not isinstance(body, str | bytes):
            if not isinstance(body, bytearray | memoryview):
                raise InvalidMessage(
                    f"body: must be bytes or text, got {_shown(body)}; Message(json=...) takes numbers, lists and dicts"
                )
            self.body = bytes(body)


def json_text(value: object) -> str:
    """A value as JSON that readers recognise as text. Characters that do not print are escaped."""
    try:
        text = dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return text if text.isprintable() else dumps(value, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as fault:
        raise InvalidMessage(f"json: must be a value that JSON can hold: {fault}") from None


def _shown(value: object) -> str:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return f"the number {value}" if number else f"a value of type {type(value).__name__}"


# Every property of a message that its packet has, except the body.
_NONE = type(None)
_NUMBER = ((int,), "a whole number")
_SWITCH = ((bool,), "True or False")
_SECONDS = ((int, float, timedelta, _NONE), "a number of seconds, a timedelta or None")
_QUEUE = ((str, FormatName, PathName, _NONE), "a queue's name or None")
_TYPES: Mapping[str, tuple[tuple[type, ...], str]] = {
    "label": ((str,), "text"),
    "priority": _NUMBER,
    "recoverable": _SWITCH,
    "body_type": _NUMBER,
    "app_tag": _NUMBER,
    "correlation_id": ((str, bytes, MessageId, _NONE), "a message id, 20 bytes or None"),
    "response_queue": _QUEUE,
    "admin_queue": _QUEUE,
    "ack": ((int, str, tuple, list), "words such as 'reach-queue', or a number"),
    "time_to_reach_queue": _SECONDS,
    "time_to_be_received": _SECONDS,
    "journal": _SWITCH,
    "dead_letter": _SWITCH,
    "dead_letter_queue": _QUEUE,
    "trace": ((str, UUID, _NONE), "PUBLIC=<guid>, a UUID or None"),
    "extension": ((bytes, bytearray, memoryview), "bytes"),
    "connector_type": ((str, UUID, _NONE), "a GUID or None"),
    "message_class": _NUMBER,
}
properties_of: Callable[[Message], tuple[object, ...]] = attrgetter(*_TYPES)
_DEFAULTS = tuple(Message.__dataclass_fields__[name].default for name in _TYPES)
_seen_types: set[tuple[type, ...]] = set()  # combinations of checked properties, in the order of _TYPES


def _check_properties(properties: tuple[object, ...]) -> None:
    kinds = tuple(map(type, properties))
    if kinds in _seen_types:
        return
    for (name, (allowed, wanted)), value in zip(_TYPES.items(), properties, strict=True):
        if not isinstance(value, allowed) or (isinstance(value, bool) and bool not in allowed):
            raise InvalidMessage(f"{name}: must be {wanted}, got {_shown(value)}")
    if len(_seen_types) < MAX_SEEN_TYPES:
        _seen_types.add(kinds)


def _u32(value: int, what: str) -> int:
    if not 0 <= value <= 0xFFFFFFFF:
        raise InvalidMessage(f"{what}: must be between 0 and {0xFFFFFFFF}, got {value}")
    return value


def whole_seconds(value: float | timedelta, what: str) -> int:
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if not 0 <= seconds <= INFINITE:
        raise InvalidMessage(f"{what}: must be between 0 and {INFINITE} seconds, got {value}")
    return ceil(seconds)


def check_types(message: Message) -> None:
    """Raises InvalidMessage for the first property whose value has a wrong type."""
    _check_properties(properties_of(message))


def set_properties(properties: tuple[object, ...]) -> dict[str, object]:
    """The properties of `properties_of` that differ from their defaults, checked as by `check_types`."""
    _check_properties(properties)
    named = zip(_TYPES, properties, _DEFAULTS, strict=True)
    return {name: value for name, value, default in named if value is not default and value != default}


def _correlation(value: MessageId | bytes | str | None) -> bytes:
    if value is None:
        return NO_CORRELATION
    if isinstance(value, str):
        try:
            value = MessageId.parse(value)
        except (ValueError, IllegalName) as fault:
            raise InvalidMessage(f"correlation id: {fault}") from None
    data = value.to_bytes() if isinstance(value, MessageId) else bytes(value)
    if len(data) != len(NO_CORRELATION):
        raise InvalidMessage(f"correlation id: must have 20 bytes, got {len(data)}")
    return data


def _trace_queue(value: UUID | str) -> UUID:
    if isinstance(value, UUID):
        return value
    name = parse_name(value)
    if not isinstance(name, PublicName):
        raise InvalidMessage(f"trace: must be a public queue, as in PUBLIC=<guid>, got {value!r}")
    return name.guid


def _local_queue(name: FormatName | PathName | str) -> str:
    """Checks the form of the name only. Whether the queue exists matters only once the message has died."""
    try:
        return str(parse_name(name) if isinstance(name, str) else name)
    except IllegalName as fault:
        raise InvalidMessage(f"dead_letter_queue: {fault}") from None


class Composer:
    r"""Makes packets for one destination. The names of admin and response queues are encoded once.

    `resolve` turns a path such as `private$\replies` into a format name that other managers understand.
    `resolve_response` does so for a response queue, if it has another name. `manager` is the manager of a public queue,
    if known.
    """

    __slots__ = ("_names", "_resolve", "_resolve_response", "destination", "manager", "multi_queue", "source")

    def __init__(
        self,
        source: UUID,
        destination: FormatName,
        resolve: Resolve | None = None,
        multi_queue: MultiQueueFormatHeader | None = None,
        manager: UUID = NULL_GUID,
        resolve_response: Resolve | None = None,
    ) -> None:
        self.source = source.bytes_le
        self.destination = destination
        self.multi_queue = multi_queue
        self.manager = manager
        self._resolve = resolve
        self._resolve_response = resolve_response or resolve
        self._names: dict[object, _Names] = {}

    def compose(self, message: Message, message_id: int, sent_time: int, *, transactional: bool = False) -> bytes:
        """Makes one packet. The commit fills in the TransactionHeader of a transactional one."""
        check_types(message)
        return self._compose(message, _octets(message), message_id, sent_time, transactional)[0]

    def compose_all(
        self, messages: Iterable[Message], ids: Iterable[int], sent_time: int, *, transactional: bool = False
    ) -> list[bytes]:
        """Makes a packet for each message. If messages differ only in their ids, labels and bodies, the rest is
        encoded once."""
        packets: list[bytes] = []
        common: tuple[object, ...] | None = None
        rest: tuple[object, ...] = ()
        pattern: _Pattern | None = None
        head = middle = tail = b""
        size = 0
        for message, message_id in zip(messages, ids, strict=True):
            body = _octets(message)
            properties = properties_of(message)
            if properties == common and len(body) == size:
                packets.append(b"".join((head, _ID.pack(message_id), middle, body, tail)))
                continue
            if pattern is not None and properties[1:] == rest:
                found = pattern.packet(properties[0], message_id, body)
                if found is not None:
                    packets.append(found)
                    continue
            _check_properties(properties)
            packet, body_at = self._compose(message, body, message_id, sent_time, transactional)
            packets.append(packet)
            common, rest, size = properties, properties[1:], len(body)
            head, middle = packet[: MESSAGE_ID.start], packet[MESSAGE_ID.stop : body_at]
            tail = packet[body_at + size :]
            # what follows the body may depend on its size
            plain = self.multi_queue is None and message.trace is None and message.dead_letter_queue is None
            pattern = _Pattern(packet, body_at, message) if plain else None
        return packets

    def _compose(
        self, message: Message, body: bytes, message_id: int, sent_time: int, transactional: bool
    ) -> tuple[bytes, int]:
        """The packet, and the position of its body."""
        acks = message.ack if isinstance(message.ack, int) else ack_flags(message.ack)
        # [MS-MQMQ] 2.2.19.2: there is an administration queue if and only if acknowledgments are requested.
        admin_queue = message.admin_queue if acks else None
        if admin_queue is None:
            acks = 0
        key = (admin_queue, message.response_queue, message.connector_type)
        names = self._names.get(key) or self._encode_names(key)
        priority = message.priority
        if not 0 <= priority <= MAX_PRIORITY:
            raise InvalidMessage(f"priority: must be between 0 and {MAX_PRIORITY}, got {priority}")
        flags = names[0]
        base_flags = 0 if transactional else priority  # [MS-MQDMPR] 3.1.7.1.32: PR is 0 in a transaction
        if message.recoverable or transactional:
            flags |= _RECOVERABLE
        if message.journal:
            flags |= UserFlags.POSITIVE_JOURNALING.value
        if message.dead_letter or message.dead_letter_queue is not None:
            flags |= UserFlags.NEGATIVE_JOURNALING.value
        label = message.label.encode("utf-16-le", "surrogatepass") + b"\0\0" if message.label else b""
        if len(label) > 2 * MAX_LABEL_UNITS or "\0" in message.label:
            raise InvalidMessage(
                f"label: must have at most {MAX_LABEL_UNITS - 1} characters and no NUL, got {len(label) // 2 - 1}"
            )
        if message.message_class & ~CUSTOM_CLASS_MASK:
            raise InvalidMessage(
                f"class: must only have bits of {CUSTOM_CLASS_MASK:#06x}, got {message.message_class:#06x}"
            )
        extension = message.extension
        filled = len(label) + len(extension) + len(body)
        trailer = b""
        if message.trace is not None:
            base_flags |= BaseFlags.TRACING | BaseFlags.DEBUG_HEADER
            trailer = _encoded(DebugHeader(_trace_queue(message.trace)))
        parts = [
            b"",
            names[2],
            _UNNUMBERED if transactional else b"",
            PROPERTIES.pack(
                acks,
                len(label) // 2,
                message.message_class,
                _correlation(message.correlation_id),
                _u32(message.body_type, "body type"),
                _u32(message.app_tag, "application tag"),
                len(body),
                len(body),
                0,
                _SHA1,
                _RC4,
                len(extension),
            ),
            label,
            extension,
            body,
            _PADDING[filled & 3],
            trailer,
        ]
        size = 64 + sum(map(len, parts))
        if self.multi_queue is not None:
            flags |= UserFlags.MULTI_QUEUE_HEADER.value
            parts.append(_encoded(self.multi_queue, size))
            size += len(parts[-1])
        if size > MAX_PACKET_SIZE:
            raise MessageTooLarge(
                f"the packet must have at most {MAX_PACKET_SIZE} bytes (4 MiB) with its headers, got {size}"
            )
        if transactional:
            flags |= UserFlags.TRANSACTION_HEADER.value
        parts[0] = _FIXED.pack(
            VERSION,
            0,
            base_flags,
            SIGNATURE,
            size,
            DEFAULT_TIME_TO_REACH_QUEUE_S
            if message.time_to_reach_queue is None
            else whole_seconds(message.time_to_reach_queue, "time_to_reach_queue"),
            self.source,
            names[1],
            INFINITE
            if message.time_to_be_received is None
            else whole_seconds(message.time_to_be_received, "time_to_be_received"),
            sent_time,
            message_id,
            flags,
        )
        packet = b"".join(parts)
        body_at = sum(map(len, parts[:_BODY]))
        if message.dead_letter_queue is None:
            return packet, body_at
        return with_dead_letter_queue(packet, _local_queue(message.dead_letter_queue)), body_at

    def _encode_names(self, key: tuple[FormatName | str | None, FormatName | str | None, UUID | str | None]) -> _Names:
        """User flags, QueueManagerAddress and encoded names, cached for the next message with the same names."""
        destination, address = destination_field(self.destination)
        if isinstance(self.destination, PublicName):
            address = self.manager
        source = UUID(bytes_le=self.source)
        admin_name = self._format_name(key[0], "admin queue", self._resolve)
        # [MS-MQMQ] 2.1.6: the answers of a group's members could not be told apart
        if isinstance(admin_name, MulticastName):
            raise IllegalFormatName(str(admin_name), 0, "an administration queue must not be a multicast address")
        admin = other_field(admin_name, source, address)
        response_name = self._format_name(key[1], "response queue", self._resolve_response)
        response = other_field(response_name, source, address)
        writer = Writer()
        for field in (destination, admin, response):
            field.encode(writer)
        flags = destination.code << 10 | admin.code << 13 | response.code << 16
        flags |= UserFlags.MESSAGE_PROPERTIES_HEADER.value
        if key[2] is not None:
            writer.put((key[2] if isinstance(key[2], UUID) else parse_guid(key[2])).bytes_le)
            flags |= UserFlags.CONNECTOR_TYPE.value
        self._names[key] = names = (flags, address.bytes_le, writer.getvalue())
        return names

    @staticmethod
    def _format_name(name: FormatName | str | None, what: str, resolve: Resolve | None) -> FormatName | None:
        if name is None:
            return None
        parsed = parse_name(name) if isinstance(name, str) else name
        if isinstance(parsed, PathName):
            if resolve is None:
                raise InvalidMessage(f"{what}: must be a format name here, got the path {name!r}")
            parsed = resolve(parsed)
        if not isinstance(parsed, PublicName | PrivateName | DirectName | MulticastName):
            raise InvalidMessage(f"{what}: must be a public, private, direct or multicast name, got {name}")
        return parsed


class _Pattern:
    """A packet without its id, label and body, and so without its sizes."""

    __slots__ = ("_extension", "_head", "_parts", "_size")

    def __init__(self, packet: bytes, body_at: int, message: Message) -> None:
        units = len(message.label.encode("utf-16-le", "surrogatepass")) // 2
        label_at = body_at - len(message.extension) - (2 * units + 2 if units else 0)
        at = label_at - PROPERTIES.size
        self._size = label_at + len(message.extension)
        self._extension = message.extension
        self._parts = (
            packet[:_SIZE_AT],
            packet[_SIZE_AT + 4 : MESSAGE_ID.start],
            packet[MESSAGE_ID.stop : at + 1],
            packet[at + 2 : at + _BODY_SIZES_AT],
            packet[at + _BODY_SIZES_AT + 8 : label_at],
        )
        one, two, three, four, five = (f"{len(part)}s" for part in self._parts)
        self._head = Struct(f"<{one}I{two}I{three}B{four}II{five}")

    def packet(self, label: object, message_id: int, body: bytes) -> bytes | None:
        """The packet. None if it would be too large or has a wrong label."""
        if type(label) is not str or "\0" in label:
            return None
        text = label.encode("utf-16-le", "surrogatepass") + b"\0\0" if label else b""
        units, count = len(text) // 2, len(body)
        padding = _PADDING[len(text) + len(self._extension) + count & 3]
        size = self._size + len(text) + count + len(padding)
        if units > MAX_LABEL_UNITS or size > MAX_PACKET_SIZE:
            return None
        one, two, three, four, five = self._parts
        head = self._head.pack(one, size, two, message_id, three, units, four, count, count, five)
        return b"".join((head, text, self._extension, body, padding))


def _octets(message: Message) -> bytes:
    """The body as it is in the packet."""
    body = message.body
    return encode_body(body, message.body_type) if isinstance(body, str) else body


def _encoded(header: DebugHeader | MultiQueueFormatHeader, at: int = 0) -> bytes:
    writer = Writer()
    writer.size = at
    header.encode(writer)
    return writer.getvalue()


def multi_queue_header(destinations: Iterable[FormatName]) -> MultiQueueFormatHeader:
    """[MS-MQMQ] 2.2.20.1: the list of all destinations, which each copy has."""
    return MultiQueueFormatHeader(AddressHeader(tuple(map(_element, destinations))))


def _element(name: FormatName) -> FormatNameElement:
    match name:
        case PublicName():
            return FormatNameElement(FormatType.PUBLIC, guid=name.guid)
        case PrivateName():
            return FormatNameElement(FormatType.PRIVATE, name.guid, name.number)
        case DirectName():
            return FormatNameElement(FormatType.DIRECT, direct_name=name.wire_text)
        case MulticastName():
            return FormatNameElement(FormatType.DIRECT, direct_name=str(name))
    raise LocalProtocolError(
        f"a list of destinations must hold public, private, direct and multicast names only, got {name}"
    )
