"""The headers of a packet, field by field. For a damaged packet, the fields before the damage.

`wire` checks packets. This module only shows their bytes.
"""

from __future__ import annotations

import re
from base64 import b64encode
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import IntEnum, IntFlag
from uuid import UUID

from postroad.errors import IllegalFormatName, RemoteProtocolError
from postroad.names import MessageId
from postroad.security.descriptors import Sid
from postroad.wire.constants import (
    ADMIN_SHIFT,
    DELIVERY_SHIFT,
    DESTINATION_SHIFT,
    INFINITE,
    INTERNAL_HEADER_SIZE,
    RESPONSE_SHIFT,
    SESSION_HEADER_SIZE,
    AckFlags,
    BaseFlags,
    BodyType,
    Delivery,
    EncryptionAlgorithm,
    FormatType,
    HashAlgorithm,
    OperatingSystemFlags,
    PacketType,
    PingFlags,
    PrivacyLevel,
    QueueCode,
    SecurityFlags,
    SenderIdType,
    TransactionFlags,
    UserFlags,
    class_name,
)
from postroad.wire.headers import BASE_LAYOUT as BASE
from postroad.wire.headers import PROPERTIES_LAYOUT as PROPERTIES
from postroad.wire.headers import USER_LAYOUT as USER
from postroad.wire.headers import (
    AddressHeader,
    BaseHeader,
    DebugHeader,
    FormatNameElement,
    MultiQueueFormatHeader,
    SecurityHeader,
    SoapHeader,
    TransactionHeader,
)
from postroad.wire.internal import ConnectionParameters, EstablishConnection, InternalHeader, Ping, SessionHeader
from postroad.wire.octets import Reader, whole_text
from postroad.wire.queue_names import QueueField, written_name

_WORD_START = re.compile(r"(?<!^)(?=[A-Z])")
_PRIVATE_OF = {
    QueueCode.PRIVATE_ON_SOURCE: "the source's manager",
    QueueCode.PRIVATE_ON_DESTINATION: "the destination's manager",
    QueueCode.PRIVATE_ON_ADMIN: "the administration queue's manager",
}


@dataclass(frozen=True, slots=True)
class Field:
    """One field. `value` is ready for JSON, and `text` is for people, who may omit the `quiet` fields."""

    name: str
    value: object
    text: str
    quiet: bool = False


@dataclass(slots=True)
class Section:
    """One header and its position in the packet. `name` is the specification's word."""

    name: str
    offset: int
    fields: list[Field] = field(default_factory=list)

    @property
    def key(self) -> str:
        return _WORD_START.sub("_", self.name).lower()

    def json(self) -> dict[str, object]:
        return {field.name: field.value for field in self.fields}

    def add(self, name: str, value: object, text: str | None = None, quiet: bool = False) -> None:
        self.fields.append(Field(name, value, str(value) if text is None else text, quiet))

    def guid(self, name: str, value: UUID) -> None:
        self.add(name, str(value), quiet=value.int == 0)

    def reserved(self, value: int, name: str = "reserved") -> None:
        self.add(name, value, f"{value:#x}", quiet=True)

    def code(self, name: str, kind: type[IntEnum], value: int, digits: int = 0) -> None:
        number = f"{value:#0{digits + 2}x}" if digits else str(value)
        self.add(name, value, f"{number} {code_word(kind, value) or '(not defined)'}")

    def flags(self, kind: type[IntFlag], value: int, digits: int, *fields: str) -> None:
        """Flags as a raw number and the words of their bits. People also see the `fields` of several bits in it."""
        words = flag_words(kind, value)
        self.add("flags", value, f"{value:#0{digits + 2}x} {', '.join([*fields, *words])}".rstrip())
        self.add("flag_names", words, quiet=True)

    def blob(self, name: str, data: bytes) -> None:
        self.add(f"{name}_base64", base64_text(data), f"{len(data)} bytes", quiet=not data)


def describe_headers(data: bytes, fault: RemoteProtocolError | None = None) -> list[Section]:
    """The headers of a packet that starts at `data`, in order. Never raises.

    For a packet with a `fault`, the list ends with the faulty header. An incomplete header has the fields before its
    end.
    """
    walk = _Walk(data)
    with suppress(RemoteProtocolError):  # `fault` has the reason; keep the sections that were read before
        walk.run()
    sections = [section for section in walk.sections if section.fields]
    if fault is None or fault.offset is None:
        return sections
    return [section for section in sections if section.offset <= fault.offset]


def describe_ping(ping: Ping) -> list[Section]:
    section = Section("Ping", 0)
    section.flags(PingFlags, ping.flags, 4)
    section.add("cookie", ping.cookie)
    section.add("queue_manager", str(ping.queue_manager))
    return [section]


class _Walk:
    """Reads the headers in order. Each adds the fields that it has read to its section before anything can fail."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.reader = Reader(data, 0, len(data))
        self.sections: list[Section] = []

    def run(self) -> None:
        base_flags, packet_size = self._base()
        self.reader.end = min(len(self.data), packet_size)
        if base_flags & BaseFlags.INTERNAL:
            self._internal()
        else:
            self._user_message(base_flags)
            if base_flags & BaseFlags.SESSION_HEADER:
                self.reader.offset, self.reader.end = packet_size, len(self.data)
                self._session()

    def _user_message(self, base_flags: int) -> None:
        user_flags = self._user()
        if user_flags & UserFlags.TRANSACTION_HEADER:
            self._transaction()
        if user_flags & UserFlags.SECURITY_HEADER:
            self._security()
        self._properties()
        if base_flags & BaseFlags.DEBUG_HEADER:
            self._debug()
        if user_flags & UserFlags.SOAP_HEADER:
            self._soap()
        if user_flags & UserFlags.MULTI_QUEUE_HEADER:
            self._multi_queue()

    def _open(self, name: str) -> Section:
        section = Section(name, self.reader.offset)
        self.sections.append(section)
        return section

    def _base(self) -> tuple[int, int]:
        section = self._open("BaseHeader")
        version, reserved, flags, signature, size, to_reach = self.reader.unpack(BASE, section.name)
        section.add("version", version, f"{version:#04x}", quiet=True)
        section.reserved(reserved)
        section.flags(BaseFlags, flags, 4, f"priority {flags & BaseFlags.PRIORITY}")
        section.add("signature", signature, f"{signature:#010x}", quiet=True)
        section.add("packet_size", size)
        section.add("time_to_reach_queue", to_reach, duration(to_reach))
        return flags, size

    def _user(self) -> int:
        section = self._open("UserHeader")
        source, address, to_be_received, sent, message_id, flags = self.reader.unpack(USER, section.name)
        section.add("source_queue_manager", str(UUID(bytes_le=source)))
        section.guid("queue_manager_address", UUID(bytes_le=address))
        section.add("time_to_be_received", to_be_received, duration(to_be_received))
        section.add("sent_time", sent, rfc3339(sent))
        section.add("message_id", message_id)
        delivery = code_word(Delivery, (flags & UserFlags.DELIVERY) >> DELIVERY_SHIFT) or "delivery not defined"
        hops = flags & UserFlags.HOP_COUNT
        section.flags(UserFlags, flags, 8, delivery, f"{hops} hop{'' if hops == 1 else 's'}")
        for name, shift, what in (
            ("destination_queue", DESTINATION_SHIFT, "DestinationQueue"),
            ("admin_queue", ADMIN_SHIFT, "AdminQueue"),
            ("response_queue", RESPONSE_SHIFT, "ResponseQueue"),
        ):
            queue = QueueField.decode(flags >> shift & 7, self.reader, what)
            section.add(name, _queue_json(queue), _queue_text(queue), quiet=queue.code is QueueCode.NONE)
        if flags & UserFlags.CONNECTOR_TYPE:
            section.add("connector_type", str(self.reader.guid("ConnectorType")))
        result: int = flags
        return result

    def _transaction(self) -> None:
        section = self._open("TransactionHeader")
        header = TransactionHeader.decode(self.reader)
        section.flags(TransactionFlags, header.flags, 8)
        section.add("transaction_id", header.transaction_id)
        sequence = header.sequence_id
        section.add(
            "sequence_id",
            {"ordinal": sequence.ordinal, "time_stamp": sequence.time_stamp},
            f"ordinal {sequence.ordinal}, time stamp {sequence.time_stamp}",
        )
        section.add("sequence_number", header.sequence_number)
        section.add("previous_sequence_number", header.previous_sequence_number)
        if header.connector_qm_guid is not None:
            section.add("connector_qm_guid", str(header.connector_qm_guid))

    def _security(self) -> None:
        section = self._open("SecurityHeader")
        header = SecurityHeader.decode(self.reader)
        section.flags(SecurityFlags, header.flags, 4)
        section.code("sender_id_type", SenderIdType, header.sender_id_type)
        section.add("sender_id", sender_text(header), quiet=not header.security_id)
        section.add("security_id_base64", base64_text(header.security_id), quiet=True)
        section.blob("encryption_key", header.encryption_key)
        section.blob("signature", header.signature)
        section.blob("sender_certificate", header.sender_certificate)
        section.blob("provider_info", header.provider_info)

    def _properties(self) -> None:
        section = self._open("MessagePropertiesHeader")
        flags, units, kind, correlation, body_type, tag, size, allocated, privacy, hashing, cipher, extension = (
            self.reader.unpack(PROPERTIES, section.name)
        )
        section.flags(AckFlags, flags, 2)
        section.add("message_class", kind, f"{kind:#06x} {class_name(kind)}")
        section.add("correlation_id", identifier_text(correlation), quiet=not any(correlation))
        section.code("body_type", BodyType, body_type)
        section.add("application_tag", tag, quiet=not tag)
        section.add("message_size", size, f"{size} bytes")
        section.add("allocation_body_size", allocated, f"{allocated} bytes", quiet=allocated == size)
        section.code("privacy_level", PrivacyLevel, privacy)
        section.code("hash_algorithm", HashAlgorithm, hashing, 4)
        section.code("encryption_algorithm", EncryptionAlgorithm, cipher, 4)
        section.add("extension_size", extension, f"{extension} bytes", quiet=not extension)
        label = whole_text(self.reader.text(2 * units, "Label")) if units else ""
        section.add("label", label, quiet=not label)
        self.reader.take(extension, "ExtensionData")
        self.reader.padded(allocated, "MessageBody")

    def _debug(self) -> None:
        section = self._open("DebugHeader")
        header = DebugHeader.decode(self.reader)
        section.add("flags", header.flags, f"{header.flags:#06x}")
        section.reserved(header.reserved)
        trace = header.queue_identifier
        section.add("queue_identifier", None if trace is None else str(trace), "none" if trace is None else None)

    def _soap(self) -> None:
        section = self._open("SoapHeader")
        header = SoapHeader.decode(self.reader)
        for name, text in (("header", header.header), ("body", header.body)):
            shown = None if text is None else whole_text(text)
            section.add(name, shown, "none" if shown is None else shown)
        section.add("reserved", list(header.reserved), quiet=True)

    def _multi_queue(self) -> None:
        section = self._open("MultiQueueFormatHeader")
        header = MultiQueueFormatHeader.decode(self.reader)
        for name, addresses in (
            ("destination", header.destination),
            ("administration", header.administration),
            ("response", header.response),
        ):
            names = _element_texts(addresses)
            section.add(name, names, ", ".join(names) or "none", quiet=not names)
        section.blob("signature", header.signature)

    def _session(self) -> None:
        section = self._open("SessionHeader")
        self._session_fields(section, SessionHeader.decode(self.reader.take(SESSION_HEADER_SIZE, section.name)))

    def _session_fields(self, section: Section, header: SessionHeader) -> None:
        section.add("ack_sequence_number", header.ack_sequence_number)
        section.add("recoverable_msg_ack_seq_number", header.recoverable_msg_ack_seq_number)
        acks = header.recoverable_msg_ack_flags
        section.add("recoverable_msg_ack_flags", acks, f"{acks:#010x}")
        section.add("user_msg_sequence_number", header.user_msg_sequence_number)
        section.add("recoverable_msg_seq_number", header.recoverable_msg_seq_number)
        section.add("window_size", header.window_size)
        section.reserved(header.reserved)

    def _internal(self) -> None:
        section = self._open("InternalHeader")
        header = InternalHeader.decode(self.data)
        self.reader.offset += INTERNAL_HEADER_SIZE
        section.reserved(header.reserved)
        kind = code_word(PacketType, header.packet_type)
        refused = ", connection refused" if header.refused else ""
        section.add("flags", header.flags, f"{header.flags:#06x} {kind}{refused}")
        section.add("packet_type", header.packet_type, quiet=True)
        section.add("refused", header.refused, quiet=True)
        match header.packet_type:
            case PacketType.SESSION_ACK:
                self._session()
            case PacketType.ESTABLISH_CONNECTION:
                self._establish_connection(header)
            case _:
                self._connection_parameters(header)

    def _establish_connection(self, internal: InternalHeader) -> None:
        section = self._open("EstablishConnectionHeader")
        packet = EstablishConnection.decode(self.data, BaseHeader.decode(self.data), internal)
        section.add("client_guid", str(packet.client_guid))
        section.add("server_guid", str(packet.server_guid))
        section.add("time_stamp", packet.time_stamp)
        system = packet.operating_system
        words = flag_words(OperatingSystemFlags, system & ~OperatingSystemFlags.CONSTANT)
        section.add("operating_system", system, f"{system:#06x} {', '.join(words)}".rstrip())
        section.add("operating_system_names", words, quiet=True)
        section.reserved(packet.reserved)

    def _connection_parameters(self, internal: InternalHeader) -> None:
        section = self._open("ConnectionParametersHeader")
        packet = ConnectionParameters.decode(self.data, BaseHeader.decode(self.data), internal)
        for name in ("recoverable_ack_timeout_ms", "ack_timeout_ms"):
            value = getattr(packet, name)
            section.add(name, value, f"{value} ms")
        section.add("window_size", packet.window_size)
        section.reserved(packet.reserved)


def _queue_json(queue: QueueField) -> dict[str, object]:
    described: dict[str, object] = {"code": int(queue.code), "kind": code_word(QueueCode, queue.code)}
    match queue.code:
        case QueueCode.NONE | QueueCode.SAME_AS_ADMIN:
            pass
        case QueueCode.DIRECT:
            described["direct_name"] = whole_text(queue.direct_name)
        case QueueCode.PUBLIC:
            described["guid"] = str(queue.guid)
        case QueueCode.PRIVATE_ON_OTHER:
            described |= {"guid": str(queue.guid), "number": queue.number}
        case _:
            described["number"] = queue.number
    return described


def _queue_text(queue: QueueField) -> str:
    match queue.code:
        case QueueCode.NONE:
            return "none"
        case QueueCode.SAME_AS_ADMIN:
            return "the administration queue"
        case QueueCode.DIRECT:
            return direct_format_name(queue.direct_name)
        case QueueCode.PUBLIC:
            return f"PUBLIC={queue.guid}"
        case QueueCode.PRIVATE_ON_OTHER:
            return f"PRIVATE={queue.guid}\\{queue.number:x}"
        case _:
            return f"private queue {queue.number:x} of {_PRIVATE_OF[queue.code]}"


def _element_texts(addresses: AddressHeader) -> list[str]:
    return [_element_text(element) for element in addresses.elements]


def _element_text(element: FormatNameElement) -> str:
    if element.direct_name is not None:
        return direct_format_name(element.direct_name)
    kinds = {FormatType.PUBLIC: "PUBLIC", FormatType.PRIVATE: "PRIVATE", FormatType.DISTRIBUTION_LIST: "DL"}
    number = "" if element.number is None else f"\\{element.number:x}"
    return f"{kinds[element.format_type]}={element.guid}{number}"


# Single values as JSON and as text: times, flags, codes, identifiers, strings. Nothing here knows packets.


_UNITS = ((86400, "day"), (3600, "hour"), (60, "minute"))
_NS = 1_000_000_000


def rfc3339(seconds: int, nanoseconds: int | None = None) -> str | None:
    """A time such as `2024-05-17T09:30:00Z`, with six or nine digits if there is a fraction. None outside years 1 to
    9999."""
    try:
        moment = datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None).isoformat()
    except (ValueError, OverflowError, OSError):
        return None
    if nanoseconds is None:
        return f"{moment}Z"
    fraction = f"{nanoseconds:09d}"
    return f"{moment}.{fraction.removesuffix('000')}Z"


def rfc3339_ns(time_ns: int) -> str | None:
    """A time from nanoseconds since 1970, like `rfc3339`."""
    return rfc3339(*divmod(time_ns, _NS))


def duration(seconds: int) -> str:
    """Seconds in words: `345600 s (4 days)`, or `for ever` for the value that means it."""
    if seconds == INFINITE:
        return "for ever"
    for size, unit in _UNITS:
        count, rest = divmod(seconds, size)
        if count and not rest:
            return f"{seconds} s ({count} {unit}{'s' if count > 1 else ''})"
    return f"{seconds} s"


def word(member: IntEnum | IntFlag) -> str:
    """A constant's name in lower case with hyphens."""
    return (member.name or str(member.value)).lower().replace("_", "-")


def code_word(kind: type[IntEnum], value: int) -> str | None:
    """The word for a code. None for an unknown code."""
    try:
        return word(kind(value))
    except ValueError:
        return None


def flag_words(kind: type[IntFlag], value: int) -> list[str]:
    """The words of the single bits that are set. Fields of several bits and reserved bits have no words."""
    return [word(flag) for flag in kind if flag.value.bit_count() == 1 and value & flag.value]


def base64_text(data: bytes) -> str:
    return b64encode(data).decode("ascii")


def identifier_text(data: bytes) -> str | None:
    r"""The 20 bytes of a message identifier as `{guid}\ordinal`. None if they are all zero."""
    return str(MessageId.from_bytes(data)) if any(data) else None


def direct_format_name(text: str) -> str:
    """The format name of a direct string. An invalid one is shown as it is."""
    try:
        return whole_text(str(written_name(text)))
    except IllegalFormatName:
        return f"DIRECT={whole_text(text)}"


def sender_text(security: SecurityHeader | None) -> str | None:
    """The sender as a SID or a queue manager's GUID, [MS-MQMQ] 2.2.20.6 ST. Bytes that are not a SID are shown as
    hex."""
    if security is None or not security.security_id:
        return None
    raw = security.security_id
    if security.sender_id_type is SenderIdType.QUEUE_MANAGER:
        return str(UUID(bytes_le=raw))
    try:
        return str(Sid.decode(raw))
    except RemoteProtocolError:
        return raw.hex()
