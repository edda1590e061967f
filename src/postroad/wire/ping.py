"""The Ping packet, [MS-MQQB] 2.2.7: 24 bytes of UDP, with the same layout for request and response."""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from uuid import UUID

from postroad.errors import RemoteProtocolError
from postroad.wire.constants import PingFlags

_LAYOUT = Struct("<HHI16s")
PING_SIGNATURE = 0x5548
PING_SIZE = _LAYOUT.size


@dataclass(frozen=True, slots=True)
class Ping:
    """`queue_manager` is the manager that made the packet. Unused flag bits are kept."""

    cookie: int
    queue_manager: UUID
    flags: int = 0

    @property
    def independent_client(self) -> bool:
        return bool(self.flags & PingFlags.INDEPENDENT_CLIENT)

    @property
    def refused(self) -> bool:
        return bool(self.flags & PingFlags.REFUSED)

    @classmethod
    def decode(cls, data: bytes) -> Ping:
        if len(data) != PING_SIZE:
            raise RemoteProtocolError(f"a Ping must have {PING_SIZE} bytes, got {len(data)}", min(len(data), PING_SIZE))
        flags, signature, cookie, guid = _LAYOUT.unpack(data)
        if signature != PING_SIGNATURE:
            raise RemoteProtocolError(
                f"signature must be {PING_SIGNATURE:#06x}, got {signature:#06x}: this is not a Ping", 2
            )
        return cls(cookie, UUID(bytes_le=guid), flags)

    def encode(self) -> bytes:
        return _LAYOUT.pack(self.flags, PING_SIGNATURE, self.cookie, self.queue_manager.bytes_le)

    def response(self, queue_manager: UUID, *, refused: bool) -> Ping:
        """The response: the same cookie and client type, with the responder's GUID."""
        kept = self.flags & PingFlags.INDEPENDENT_CLIENT
        return Ping(self.cookie, queue_manager, kept | (PingFlags.REFUSED if refused else 0))
