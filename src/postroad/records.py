"""Messages as records, the binary format of the HTTP API: what a server sends and the Python client reads.

A record is the packet and what the packet does not say. No HTTP here.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct

from postroad.errors import RemoteProtocolError
from postroad.received import ReceivedMessage

MEDIA_TYPE = "application/vnd.postroad.records"
HEADER = Struct("<QQIHHI")  # lookup id, arrived_ms, aborts, reason, reserved, size of the packet that follows


def encode_records(messages: Iterable[ReceivedMessage]) -> bytes:
    """The messages, back to back."""
    parts: list[bytes] = []
    for each in messages:
        parts.append(HEADER.pack(each.lookup_id, each.arrived_ms, each.aborts, each.reason, 0, len(each.packet)))
        parts.append(each.packet)
    return b"".join(parts)


def decode_records(data: bytes) -> list[ReceivedMessage]:
    """All of the messages; RemoteProtocolError where `data` ends within a record. Packets are not looked into."""
    messages: list[ReceivedMessage] = []
    offset, end = 0, len(data)
    while offset < end:
        start = offset + HEADER.size
        if start > end:
            raise RemoteProtocolError(f"a record starts with {HEADER.size} bytes, {end - offset} are here", offset)
        lookup_id, arrived_ms, aborts, reason, _, size = HEADER.unpack_from(data, offset)
        if start + size > end:
            raise RemoteProtocolError(f"the record's packet has {size} bytes, {end - start} are here", start)
        messages.append(ReceivedMessage(data[start : start + size], lookup_id, arrived_ms, aborts, reason))
        offset = start + size
    return messages
