"""Packets made by hand, and variations of packets, to compare our own codec with.

Nothing here uses the encoders under test. It calls the decoders only in `meaning` and `refusal`.
"""

from __future__ import annotations

from struct import pack, pack_into, unpack_from
from uuid import UUID

import pytest

from postroad.errors import RemoteProtocolError
from postroad.wire import MessageView

SOURCE = UUID("11223344-5566-7788-99aa-bbccddeeff00")
ADDRESS = UUID("01020304-0506-0708-090a-0b0c0d0e0f10")
OTHER = UUID("a0a1a2a3-a4a5-a6a7-a8a9-aaabacadaeaf")
SENT_TIME = 0x65000000
MESSAGE_ID = 0x00C0FFEE
# Is in the MessagePropertiesHeader of every packet made here, so that a reader who sees it has found that header.
TAG = 0x600DF00D

PROPERTIES_PRESENT = 0x00200000
_PACKET_SIZE_AT = 8
_USER_FLAGS_AT = 60


def marked_as_http(packet: bytes) -> bytes:
    """The packet with AH set and no known address."""
    return packet[:32] + bytes(16) + packet[48:63] + bytes((packet[63] | 0x02,)) + packet[64:]


def u16(value: int) -> bytes:
    return pack("<H", value)


def u32(value: int) -> bytes:
    return pack("<I", value)


def utf16(text: str) -> bytes:
    """Text in UTF-16 with its terminator."""
    return text.encode("utf-16-le", "surrogatepass") + b"\0\0"


def padded(data: bytes, pad: bytes = b"\xbe") -> bytes:
    """Bytes padded to a multiple of four."""
    return data + pad * (-len(data) % 4)


def direct_name(text: str) -> bytes:
    """A DirectQueueFormatName with its padding."""
    name = utf16(text)
    return padded(u16(len(name)) + name)


def properties(
    label: str | None = None,
    extension: bytes = b"",
    body: bytes = b"",
    *,
    flags: int = 0,
    message_class: int = 0,
    correlation_id: bytes = bytes(20),
    body_type: int = 0,
    message_size: int | None = None,
) -> bytes:
    """A MessagePropertiesHeader with its padding; `body` is the allocated region."""
    name = b"" if label is None else utf16(label)
    size = len(body) if message_size is None else message_size
    fixed = pack("<BBH20sII", flags, len(name) // 2, message_class, correlation_id, body_type, TAG)
    fixed += pack("<IIIIII", size, len(body), 0, 0x8004, 0x6801, len(extension))
    return padded(fixed + name + extension + body)


def by_hand(
    names: bytes = b"",
    user_flags: int = 0,
    after_names: bytes = b"",
    *,
    base_flags: int = 0,
    properties: bytes = properties(),
    trailers: bytes = b"",
    session: bytes = b"",
) -> bytes:
    """A UserMessage. The caller sets the flags of the parts it passes, except for that of the
    MessagePropertiesHeader."""
    size = 64 + len(names) + len(after_names) + len(properties) + len(trailers)
    base = pack("<BBHIII", 0x10, 0, base_flags, 0x524F494C, size, 0xFFFFFFFF)
    user = pack("<IIII", 0xFFFFFFFF, SENT_TIME, MESSAGE_ID, user_flags | PROPERTIES_PRESENT)
    fixed = base + SOURCE.bytes_le + ADDRESS.bytes_le + user
    return fixed + names + after_names + properties + trailers + session


def patched(packet: bytes, offset: int, data: bytes) -> bytes:
    """The packet with other bytes in one place. Its length does not change."""
    assert offset + len(data) <= len(packet)
    return packet[:offset] + data + packet[offset + len(data) :]


def with_bits(packet: bytes, offset: int, bits: int) -> bytes:
    """The packet with bits set in the 16-bit number at an offset, or in the 32-bit number if they need it."""
    code = "<H" if bits <= 0xFFFF else "<I"
    changed = bytearray(packet)
    pack_into(code, changed, offset, unpack_from(code, packet, offset)[0] | bits)
    return bytes(changed)


def spliced(packet: bytes, offset: int, data: bytes, removed: int = 0) -> bytes:
    """The packet with `data` in place of `removed` bytes, and with PacketSize adjusted."""
    (size,) = unpack_from("<I", packet, _PACKET_SIZE_AT)
    longer = packet[:offset] + data + packet[offset + removed :]
    return patched(longer, _PACKET_SIZE_AT, u32(size + len(data) - removed))


def base_flags(packet: bytes) -> int:
    flags: int = unpack_from("<H", packet, 2)[0]
    return flags


def user_flags(packet: bytes) -> int:
    flags: int = unpack_from("<I", packet, _USER_FLAGS_AT)[0]
    return flags


def meaning(packet: bytes, *without: str) -> dict[str, object]:
    """Every property of a message by name, except for the two words of raw flags and those named."""
    view = MessageView(packet)
    hidden = {"base_flags", "user_flags", *without}
    names = [name for name, member in vars(MessageView).items() if isinstance(member, property)]
    return {name: getattr(view, name) for name in names if name not in hidden}


def refusal(packet: bytes) -> RemoteProtocolError:
    """Why bytes are not a UserMessage, and where."""
    with pytest.raises(RemoteProtocolError) as caught:
        MessageView(packet)
    return caught.value
