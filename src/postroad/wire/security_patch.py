"""Changes the security parts of a packet: SecurityHeader, body, MQFSignatureHeader. All other bytes stay as they are.

[MS-MQMQ] 2.2.19.3, 2.2.20.3 and 2.2.20.6. Nothing is signed or encrypted here.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from postroad.errors import LocalProtocolError
from postroad.wire.constants import MAX_PACKET_SIZE, PROPERTIES_HEADER_SIZE, QueueCode, SectionId, UserFlags
from postroad.wire.headers import PROPERTIES_LAYOUT as PROPERTIES
from postroad.wire.headers import SECURITY_LAYOUT as SECURITY
from postroad.wire.headers import SecurityHeader
from postroad.wire.octets import Writer, aligned
from postroad.wire.view import MessageView

DESTINATION_QUEUE, ADMIN_QUEUE, RESPONSE_QUEUE = 0, 1, 2  # the order of names in a UserHeader
_SIZE_AT = slice(8, 12)  # BaseHeader.PacketSize
_SECURITY_PRESENT_AT = 62  # the byte of UserHeader.Flags with SH
_SECURITY_PRESENT = 0x08
_SIGNATURE_HEADER = Struct("<HHI")
_CONNECTOR_TYPE = UserFlags.CONNECTOR_TYPE.value


class SecuritySizes(NamedTuple):
    """The fixed part of a SecurityHeader, read without its items."""

    flags: int
    sender_id: int
    encryption_key: int
    signature: int
    sender_certificate: int
    provider_info: int


def security_sizes(view: MessageView) -> SecuritySizes | None:
    """The sizes in the SecurityHeader. None without that header."""
    at = view._security_at
    return SecuritySizes._make(SECURITY.unpack_from(view.data, at)) if at else None


class SecurityParts(NamedTuple):
    """A SecurityHeader as plain bytes, at a quarter of the cost of a SecurityHeader value."""

    flags: int
    security_id: bytes
    encryption_key: bytes
    signature: bytes
    sender_certificate: bytes
    provider_info: bytes


def security_parts(view: MessageView) -> SecurityParts | None:
    """The parts of the SecurityHeader. None without that header."""
    at, data = view._security_at, view.data
    if not at:
        return None
    flags, *sizes = SECURITY.unpack_from(data, at)
    at += SECURITY.size
    items = []
    for size in sizes:
        items.append(data[at : at + size])
        at += size + 3 & ~3
    return SecurityParts(flags, *items)


def encode_parts(parts: SecurityParts) -> bytes:
    """Encodes a SecurityHeader that `security_parts` can read. The caller makes sure that the items fit."""
    flags, *items = parts
    padded = (item + bytes(-len(item) & 3) for item in items)
    return SECURITY.pack(flags, *map(len, items)) + b"".join(padded)


def label_bytes(view: MessageView) -> bytes:
    """The label as it is in the packet, with its terminator. Empty if LabelLength is 0."""
    start = view._properties_at + PROPERTIES_HEADER_SIZE
    return view.data[start : start + 2 * view._properties[1]]


def name_bytes(view: MessageView, which: int) -> bytes:
    """One of the three queues as it is in the packet: a direct name with its terminator, without count and padding."""
    start, stop = view._names[which : which + 2]
    if view.user_flags >> 10 + 3 * which & 7 != QueueCode.DIRECT:
        return view.data[start:stop]
    return view.data[start + 2 : start + 2 + int.from_bytes(view.data[start : start + 2], "little")]


def connector_bytes(view: MessageView) -> bytes:
    """ConnectorType, or empty bytes."""
    at = view._names[3]
    return view.data[at : at + 16] if view.user_flags & _CONNECTOR_TYPE else b""


def with_security_flags(view: MessageView, flags: int) -> bytes:
    """The packet with other SecurityHeader.Flags. It must have that header."""
    at, data = view._security_at, view.data
    return data[:at] + flags.to_bytes(2, "little") + data[at + 2 :]


def with_security(
    view: MessageView,
    header: SecurityHeader | bytes | int,
    *,
    body: bytes | None = None,
    message_size: int | None = None,
    privacy_level: int | None = None,
    hash_algorithm: int | None = None,
    encryption_algorithm: int | None = None,
) -> bytes:
    """The packet with this SecurityHeader, which is new or replaces its own, and with the other given parts.

    A header given as bytes is already encoded. A number keeps the packet's own header and sets these flags. `body`
    fills AllocationBodySize. `message_size` is the size of the plain body, by default that of `body`.
    """
    data, at = view.data, view._properties_at
    acks, units, kind, correlation, body_type, tag, plain, allocated, privacy, hashing, cipher, extension = (
        view._properties
    )
    start = at + PROPERTIES_HEADER_SIZE + 2 * units + extension  # of the body
    stop = start + allocated
    if body is None:
        body = data[start:stop]
    else:
        plain, allocated = (len(body) if message_size is None else message_size), len(body)
    if isinstance(header, int):
        security = header.to_bytes(2, "little") + data[view._security_at + 2 : at]
    elif isinstance(header, bytes):
        security = header
    else:
        writer = Writer()
        header.encode(writer)
        security = writer.getvalue()
    properties = PROPERTIES.pack(
        acks,
        units,
        kind,
        correlation,
        body_type,
        tag,
        plain,
        allocated,
        privacy if privacy_level is None else privacy_level,
        hashing if hash_algorithm is None else hash_algorithm,
        cipher if encryption_algorithm is None else encryption_algorithm,
        extension,
    )
    before = data[: view._security_at or at]
    middle = properties + data[at + PROPERTIES_HEADER_SIZE : start] + body
    filled = len(before) + len(security) + len(middle)
    # Every header starts at a multiple of 4, so the headers that follow move without a change.
    packet = b"".join(
        (before, security, middle, bytes(aligned(filled) - filled), data[aligned(stop) : view.packet_size])
    )
    present = bytes((packet[_SECURITY_PRESENT_AT] | _SECURITY_PRESENT,))
    return _sized(packet[:_SECURITY_PRESENT_AT] + present + packet[_SECURITY_PRESENT_AT + 1 :], view)


def with_multi_queue_signature(view: MessageView, signature: bytes) -> bytes:
    """The packet with this signature in its MQFSignatureHeader, which is the last header of a packet."""
    header = view.multi_queue_header
    if header is None:
        raise LocalProtocolError("only a message with several destinations has an MQFSignatureHeader")
    end = view.packet_size - _SIGNATURE_HEADER.size - aligned(len(header.signature))
    fixed = _SIGNATURE_HEADER.pack(SectionId.SIGNATURE, header.signature_reserved, len(signature))
    padding = bytes(aligned(len(signature)) - len(signature))
    return _sized(view.data[:end] + fixed + signature + padding, view)


def _sized(packet: bytes, view: MessageView) -> bytes:
    """Sets PacketSize and adds what followed the packet: its SessionHeader or its local part."""
    if len(packet) > MAX_PACKET_SIZE:
        raise LocalProtocolError(
            f"a packet must have at most {MAX_PACKET_SIZE} bytes, got {len(packet)}: make the body smaller"
        )
    size = len(packet).to_bytes(4, "little")
    return packet[: _SIZE_AT.start] + size + packet[_SIZE_AT.stop :] + view.data[view.packet_size :]
