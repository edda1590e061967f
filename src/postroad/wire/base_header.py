"""BaseHeader, [MS-MQMQ] 2.2.19.1: the first 16 bytes of every packet of a session."""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct

from postroad.errors import RemoteProtocolError
from postroad.wire.constants import BASE_HEADER_SIZE, INFINITE, MAX_PACKET_SIZE, SIGNATURE, VERSION, BaseFlags

LAYOUT = Struct("<BBHIII")


def check_base_header(version: int, signature: int, packet_size: int) -> None:
    """Checks the rules for all packets. Raises RemoteProtocolError with the offset of the field at fault."""
    if signature != SIGNATURE:
        raise RemoteProtocolError(
            f"signature must be {SIGNATURE:#010x}, got {signature:#010x}: this is not an MSMQ packet", 4
        )
    if version != VERSION:
        raise RemoteProtocolError(f"version must be {VERSION:#04x}, got {version:#04x}", 0)
    if not BASE_HEADER_SIZE <= packet_size <= MAX_PACKET_SIZE:
        raise RemoteProtocolError(
            f"PacketSize must be between {BASE_HEADER_SIZE} and {MAX_PACKET_SIZE}, got {packet_size}", 8
        )


@dataclass(frozen=True, slots=True)
class BaseHeader:
    """`packet_size` does not count a SessionHeader after a UserMessage, but counts the one in a SessionAck."""

    flags: int = 0
    packet_size: int = 0
    time_to_reach_queue: int = INFINITE
    reserved: int = 0

    @property
    def priority(self) -> int:
        return self.flags & BaseFlags.PRIORITY

    @classmethod
    def decode(cls, data: bytes) -> BaseHeader:
        if len(data) < LAYOUT.size:
            raise RemoteProtocolError(f"a BaseHeader must have {LAYOUT.size} bytes, got {len(data)}", len(data))
        version, reserved, flags, signature, packet_size, time_to_reach_queue = LAYOUT.unpack_from(data)
        check_base_header(version, signature, packet_size)
        return cls(flags, packet_size, time_to_reach_queue, reserved)

    def encode(self) -> bytes:
        return LAYOUT.pack(VERSION, self.reserved, self.flags, SIGNATURE, self.packet_size, self.time_to_reach_queue)
