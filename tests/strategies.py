"""Hypothesis strategies for everything that can be on the wire, legal and damaged.

The packets here are legal, with random values in bits and bytes without a meaning. `damaged` makes them illegal.
"""

from __future__ import annotations

from dataclasses import replace
from struct import pack
from uuid import UUID

from hypothesis import strategies as st

from postroad.wire import (
    BaseHeader,
    ConnectionParameters,
    EstablishConnection,
    FinalAck,
    MessagePropertiesHeader,
    OrderAck,
    Ping,
    QueueField,
    SessionAck,
    SessionHeader,
    TransactionHeader,
    TxSequenceId,
    UserHeader,
    UserMessage,
)
from postroad.wire.constants import (
    ADMIN_CODES,
    DESTINATION_CODES,
    BaseFlags,
    EncryptionAlgorithm,
    FormatType,
    QueueCode,
    SectionId,
    SecurityFlags,
    SenderIdType,
    TransactionFlags,
)
from postroad.wire.headers import (
    QUEUE_TYPE_MASK,
    AddressHeader,
    DebugHeader,
    FormatNameElement,
    MultiQueueFormatHeader,
    ProviderInfo,
    SecurityHeader,
    SoapHeader,
)
from postroad.wire.internal import InternalHeader, InternalPacket
from postroad.wire.octets import NULL_GUID, Writer, aligned
from postroad.wire.ordering import order_queue
from postroad.wire.records import PublicKeyBlob, SimpleBlob

u8 = st.integers(0, 0xFF)
u16 = st.integers(0, 0xFFFF)
u32 = st.integers(0, 0xFFFFFFFF)
guids = st.one_of(st.just(NULL_GUID), st.binary(min_size=16, max_size=16).map(lambda data: UUID(bytes_le=data)))
padding = st.one_of(st.just(b""), st.binary(min_size=24, max_size=24))
DELIVERY_UNDEFINED = 0x40  # the second bit of DM
RECOVERABLE = 0x20


def utf16(units: list[int]) -> str:
    return pack(f"<{len(units)}H", *units).decode("utf-16-le", "surrogatepass")


def texts(max_units: int = 40) -> st.SearchStrategy[str]:
    """Any text without NUL that fits UTF-16, including unpaired surrogates. Most of it is readable."""
    readable = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=max_units // 2)
    units = st.lists(st.integers(1, 0xFFFF), max_size=max_units).map(utf16)
    return st.one_of(readable, units)


# UserMessage, [MS-MQMQ] 2.2.20


_queue_fields: dict[QueueCode, st.SearchStrategy[QueueField]] = {
    QueueCode.NONE: st.just(QueueField()),
    QueueCode.SAME_AS_ADMIN: st.just(QueueField(QueueCode.SAME_AS_ADMIN)),
    QueueCode.PRIVATE_ON_SOURCE: u32.map(lambda number: QueueField(QueueCode.PRIVATE_ON_SOURCE, number)),
    QueueCode.PRIVATE_ON_DESTINATION: u32.map(lambda number: QueueField(QueueCode.PRIVATE_ON_DESTINATION, number)),
    QueueCode.PRIVATE_ON_ADMIN: u32.map(lambda number: QueueField(QueueCode.PRIVATE_ON_ADMIN, number)),
    QueueCode.PUBLIC: guids.map(lambda guid: QueueField(QueueCode.PUBLIC, guid=guid)),
    QueueCode.PRIVATE_ON_OTHER: st.builds(QueueField, st.just(QueueCode.PRIVATE_ON_OTHER), u32, guids),
    QueueCode.DIRECT: texts(60).map(lambda name: QueueField(QueueCode.DIRECT, direct_name=name)),
}
destination_queues = st.one_of(*(_queue_fields[QueueCode(code)] for code in sorted(DESTINATION_CODES)))
admin_queues = st.one_of(*(_queue_fields[QueueCode(code)] for code in sorted(ADMIN_CODES)))
response_queues = st.one_of(*_queue_fields.values())

base_headers = st.builds(
    BaseHeader,
    flags=u16.map(lambda flags: flags & ~BaseFlags.TRACING),
    time_to_reach_queue=u32,
    reserved=u8,
)


user_headers = st.builds(
    UserHeader,
    source_queue_manager=guids,
    message_id=u32,
    destination_queue=destination_queues,
    queue_manager_address=guids,
    time_to_be_received=u32,
    sent_time=u32,
    flags=u32.map(lambda flags: flags & ~DELIVERY_UNDEFINED),
    admin_queue=admin_queues,
    response_queue=response_queues,
    connector_type=st.none() | guids,
    padding=padding,
)


_sequence_numbers = st.integers(1, 0xFFFFFFFF).flatmap(
    lambda number: st.tuples(st.just(number), st.integers(0, number - 1))
)
transaction_headers = st.builds(
    lambda sequence, place, *rest: TransactionHeader(sequence, *place, *rest),
    st.builds(TxSequenceId, u32, u32),
    _sequence_numbers,
    u32.map(lambda flags: flags & ~TransactionFlags.CONNECTOR_QM_GUID),
    st.none() | guids,
)


_sender_ids = {
    SenderIdType.NONE: st.just(b""),
    SenderIdType.SID: st.binary(min_size=8, max_size=68),
    SenderIdType.QUEUE_MANAGER: st.binary(min_size=16, max_size=16),
}
_items = st.binary(max_size=40)
_certificates = st.binary(min_size=1, max_size=40)
_provider_infos = st.just(b"") | st.builds(ProviderInfo, u32, texts()).map(ProviderInfo.encode)


@st.composite
def security_headers(draw: st.DrawFn) -> SecurityHeader:
    sender_id_type = draw(st.sampled_from(SenderIdType))
    return SecurityHeader(
        flags=draw(u16) & ~SecurityFlags.SENDER_ID_TYPE | sender_id_type,
        security_id=draw(_sender_ids[sender_id_type]),
        encryption_key=draw(_items),
        signature=draw(_items),
        sender_certificate=draw(_certificates),
        provider_info=draw(_provider_infos),
        padding=draw(padding),
    )


# The region of a body may be larger than the body itself.
_bodies = st.binary(max_size=200).flatmap(lambda body: st.tuples(st.just(body), st.integers(0, len(body))))
properties_headers = st.builds(
    lambda body, **fields: MessagePropertiesHeader(body[0], message_size=body[1], **fields),
    _bodies,
    label=texts(249),
    extension=st.binary(max_size=40),
    flags=u8,
    message_class=u16,
    correlation_id=st.binary(min_size=20, max_size=20),
    body_type=u32,
    application_tag=u32,
    privacy_level=u32,
    hash_algorithm=u32,
    encryption_algorithm=u32,
    lone_terminator=st.booleans(),
    padding=padding,
)
debug_headers = st.builds(DebugHeader, st.none() | guids, u16.map(lambda flags: flags & ~QUEUE_TYPE_MASK), u16)


# If the second section is not aligned, its id must not seem to be at the boundary as well.
_soap_reserved = u16.filter(lambda number: number != SectionId.SOAP_BODY)
soap_headers = st.builds(
    SoapHeader,
    st.none() | texts(),
    st.none() | texts(),
    st.tuples(_soap_reserved, _soap_reserved),
    aligned=st.booleans(),
    padding=padding,
)
format_name_elements = st.one_of(
    st.builds(FormatNameElement, st.just(FormatType.PUBLIC), guids),
    st.builds(FormatNameElement, st.just(FormatType.PRIVATE), guids, u32),
    st.builds(FormatNameElement, st.just(FormatType.DISTRIBUTION_LIST), guids),
    texts().map(lambda name: FormatNameElement(FormatType.DIRECT, direct_name=name)),
)


_elements = st.lists(format_name_elements, max_size=4).map(tuple)


@st.composite
def address_headers(draw: st.DrawFn) -> AddressHeader:
    elements = draw(_elements)
    align_public = draw(st.booleans())
    writer = Writer()
    writer.size = 12
    for element in elements:
        element.encode(writer, align_public)
    return AddressHeader(
        elements,
        draw(u16),
        align_public,
        header_size=draw(st.integers(writer.size, aligned(writer.size))),  # the last padding may be missing
        padding=draw(padding),
    )


multi_queue_headers = st.builds(
    MultiQueueFormatHeader,
    address_headers(),
    address_headers(),
    address_headers(),
    st.binary(max_size=40),
    u16,
    padding,
)
session_headers = st.builds(SessionHeader, u16, u16, u32, u16, u16, u16, u16)


def _legal(message: UserMessage, tracing: bool) -> UserMessage:
    """Corrects the two flags that depend on other headers."""
    base, user = message.base, message.user
    if tracing and message.debug is not None:
        base = replace(base, flags=base.flags | BaseFlags.TRACING)
    if message.transaction is not None:
        user = replace(user, flags=user.flags | RECOVERABLE)
    return replace(message, base=base, user=user)


user_messages: st.SearchStrategy[UserMessage] = st.builds(
    _legal,
    st.builds(
        UserMessage,
        base_headers,
        user_headers,
        properties_headers,
        st.none() | transaction_headers,
        st.none() | security_headers(),
        st.none() | debug_headers,
        st.none() | soap_headers,
        st.none() | multi_queue_headers,
        st.none() | session_headers,
    ),
    st.booleans(),
)


# Packets of a session, [MS-MQQB] 2.2

_internal_base_headers = st.builds(
    BaseHeader,
    flags=u16.map(lambda flags: flags & ~BaseFlags.DEBUG_HEADER),
    time_to_reach_queue=u32,
    reserved=u8,
)
# PT and CS follow from the packet.
_internal_headers = st.builds(InternalHeader, u16.map(lambda flags: flags & 0xFFE0), u16)
_internal = {"priority": st.integers(0, 7), "base": _internal_base_headers, "internal": _internal_headers}

internal_packets: st.SearchStrategy[InternalPacket] = st.one_of(
    st.builds(
        EstablishConnection,
        guids,
        guids,
        u32,
        u8.map(lambda high: high << 8 | 0x10),
        u16,
        st.binary(min_size=512, max_size=512),
        refused=st.booleans(),
        **_internal,
    ),
    st.builds(
        ConnectionParameters,
        st.integers(500, 120_000),
        st.integers(20_000, 120_000),
        u16,
        u16,
        refused=st.booleans(),
        **_internal,
    ),
    st.builds(SessionAck, session_headers, **_internal),
)

order_queues = st.one_of(
    st.just(order_queue()),
    st.ip_addresses().map(lambda address: order_queue(str(address))),
    st.from_regex(r"SPX:[0-9A-F]{8}\.[0-9A-F]{12}\\PRIVATE\$\\order_queue\$", fullmatch=True).map(
        lambda name: QueueField(QueueCode.DIRECT, direct_name=name)
    ),
)
_ordering = {
    "source_queue_manager": guids,
    "message_id": u32,
    "sent_time": u32,
    "destination_queue": order_queues,
    "sequence_id": st.builds(TxSequenceId, u32, u32),
    "sequence_number": st.integers(1, 0xFFFFFFFF),
    "previous_sequence_number": st.integers(0, 0xFFFFFFFE),
    "queue_manager_address": guids,
}
ordering_acks: st.SearchStrategy[OrderAck | FinalAck] = st.one_of(
    st.builds(OrderAck, reserved=st.binary(min_size=20, max_size=20), **_ordering),
    st.builds(
        FinalAck, final_class=st.integers(0x4000, 0xFFFF), source_guid=guids, acknowledged_message_id=u32, **_ordering
    ),
)
pings = st.builds(Ping, u32, guids, u16)

packets: st.SearchStrategy[bytes] = st.one_of(
    user_messages.map(UserMessage.encode),
    internal_packets.map(lambda packet: packet.encode()),
    ordering_acks.map(lambda ack: ack.encode()),
)

# Keys, [MS-MQQB] 2.4

public_key_blobs = st.builds(PublicKeyBlob, st.integers(1, 2**2048 - 1), u32)
simple_blobs = st.builds(SimpleBlob, st.sampled_from(EncryptionAlgorithm), st.binary(min_size=1, max_size=256))


# Damage


_KINDS = st.sampled_from(("flip", "cut", "drop", "insert", "u16", "u32", "step"))
_STEPS = st.sampled_from((-4, -2, -1, 1, 2, 4))
_BITS = st.integers(0, 7)
_LENGTHS = st.integers(1, 20)
_INSERTIONS = st.binary(min_size=1, max_size=20)


@st.composite
def damaged(draw: st.DrawFn, whole: st.SearchStrategy[bytes], *, base_header: bool = False) -> bytes:
    """Damages valid bytes: flips, cuts, drops or inserts some, or changes a number a little or a lot.

    If they start with a BaseHeader, most of the damage spares it and PacketSize is corrected. So the damage reaches the
    decoders behind the first check.
    """
    data = bytearray(draw(whole))
    spared = 16 if base_header and draw(st.integers(0, 4)) else 0
    for _ in range(draw(st.integers(1, 3))):
        if len(data) <= spared:
            break
        at = spared + draw(u32) % (len(data) - spared)
        match draw(_KINDS):
            case "flip":
                data[at] ^= 1 << draw(_BITS)
            case "cut":
                del data[at:]
            case "drop":
                del data[at : at + draw(_LENGTHS)]
            case "insert":
                data[at:at] = draw(_INSERTIONS)
            case "u16":
                data[at : at + 2] = pack("<H", draw(u16))
            case "u32":
                data[at : at + 4] = pack("<I", draw(u32))
            case "step":
                at &= ~1  # the sizes in a packet are at even offsets
                value = int.from_bytes(data[at : at + 2], "little") + draw(_STEPS)
                data[at : at + 2] = pack("<H", value & 0xFFFF)
    if spared and len(data) >= spared:
        behind = 16 if data[2] & 0x18 == 0x10 else 0
        data[8:12] = pack("<I", max(len(data) - behind, 0))
    return bytes(data)


damaged_packets = damaged(packets, base_header=True)
