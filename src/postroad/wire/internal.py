"""The internal packets, [MS-MQQB] 2.2.1 to 2.2.3 and 2.2.6, which open a session and acknowledge messages, and the
SessionHeader."""

from __future__ import annotations

from dataclasses import dataclass, field
from struct import Struct
from typing import Any, ClassVar
from uuid import UUID

from postroad.errors import LocalProtocolError, RemoteProtocolError
from postroad.wire.constants import (
    BASE_HEADER_SIZE,
    INTERNAL_HEADER_SIZE,
    SESSION_HEADER_SIZE,
    BaseFlags,
    OperatingSystemFlags,
    PacketType,
    PingFlags,
)
from postroad.wire.headers import BaseHeader

# The Ping packet, [MS-MQQB] 2.2.7: 24 bytes of UDP, with the same layout for request and response.


_LAYOUT = Struct("<HHI16s")
PING_SIGNATURE = 0x5548
PING_SIZE = _LAYOUT.size


@dataclass(frozen=True, slots=True)
class Ping:
    """A Ping. `queue_manager` is the manager that made the packet. Unused flag bits are kept."""

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


_SESSION_LAYOUT = Struct("<HHIHHHH")


@dataclass(frozen=True, slots=True)
class SessionHeader:
    """[MS-MQMQ] 2.2.20.4: acknowledgments and counts, in a SessionAck or after a UserMessage. All counters
    are 16 bits wide and wrap."""

    ack_sequence_number: int = 0
    recoverable_msg_ack_seq_number: int = 0
    recoverable_msg_ack_flags: int = 0
    user_msg_sequence_number: int = 0
    recoverable_msg_seq_number: int = 0
    window_size: int = 0x40
    reserved: int = 0

    @classmethod
    def decode(cls, data: bytes, offset: int = 0) -> SessionHeader:
        return cls(*_SESSION_LAYOUT.unpack_from(data, offset))

    def encode(self) -> bytes:
        return _SESSION_LAYOUT.pack(
            self.ack_sequence_number,
            self.recoverable_msg_ack_seq_number,
            self.recoverable_msg_ack_flags,
            self.user_msg_sequence_number,
            self.recoverable_msg_seq_number,
            self.window_size,
            self.reserved,
        )


_INTERNAL = Struct("<HH")
_PACKET_TYPE = 0x000F  # PT
_PACKET_TYPES = frozenset(PacketType)
_REFUSED = 0x0010  # CS
_BODY = BASE_HEADER_SIZE + INTERNAL_HEADER_SIZE

ACK_TIMEOUT_RANGE_MS = range(20_000, 120_001)
RECOVERABLE_ACK_TIMEOUT_RANGE_MS = range(500, 120_001)


@dataclass(frozen=True, slots=True)
class InternalHeader:
    """[MS-MQQB] 2.2.1. Reserved bits are kept in `flags`."""

    flags: int
    reserved: int = 0

    @property
    def packet_type(self) -> int:
        return self.flags & _PACKET_TYPE

    @property
    def refused(self) -> bool:
        return bool(self.flags & _REFUSED)

    @classmethod
    def decode(cls, data: bytes) -> InternalHeader:
        if len(data) < _BODY:
            raise RemoteProtocolError("InternalHeader is cut off", BASE_HEADER_SIZE)
        reserved, flags = _INTERNAL.unpack_from(data, BASE_HEADER_SIZE)
        if flags & _PACKET_TYPE not in _PACKET_TYPES:
            raise RemoteProtocolError(f"internal packet type {flags & _PACKET_TYPE} is not defined", 18)
        return cls(flags, reserved)

    def encode(self) -> bytes:
        if self.packet_type not in _PACKET_TYPES:
            raise LocalProtocolError(f"internal packet type {self.packet_type} is not defined")
        return _INTERNAL.pack(self.reserved, self.flags)


@dataclass(frozen=True, slots=True)
class InternalPacket:
    """What the three packets have in common: a fixed size, BaseHeader.IN and a type. A peer's extra bits are kept."""

    packet_type: ClassVar[PacketType]
    size: ClassVar[int]
    required_flags: ClassVar[int] = BaseFlags.INTERNAL.value

    refused: bool = field(default=False, kw_only=True)
    priority: int = field(default=0, kw_only=True)
    base: BaseHeader | None = field(default=None, kw_only=True, compare=False, repr=False)
    internal: InternalHeader | None = field(default=None, kw_only=True, compare=False, repr=False)

    @classmethod
    def check(cls, base: BaseHeader, data: bytes) -> None:
        """Refuses a packet of the wrong size, or one that lacks a flag its type requires."""
        if base.packet_size != cls.size or len(data) != cls.size:
            raise RemoteProtocolError(
                f"{cls.__name__} must have {cls.size} bytes, got {len(data)} and PacketSize {base.packet_size}", 8
            )
        if base.flags & cls.required_flags != cls.required_flags:
            raise RemoteProtocolError(
                f"{cls.__name__} must have the flags {cls.required_flags:#06x}, got {base.flags:#06x}", 2
            )

    @staticmethod
    def kept(base: BaseHeader, internal: InternalHeader) -> dict[str, Any]:
        """The values from the headers that every packet keeps."""
        return {"refused": internal.refused, "priority": base.priority, "base": base, "internal": internal}

    def encode(self) -> bytes:
        base = self.base or BaseHeader()
        kept = self.internal.flags & ~(_PACKET_TYPE | _REFUSED) if self.internal else 0
        flags = base.flags & ~BaseFlags.PRIORITY | self.required_flags | self.priority
        header = BaseHeader(flags, self.size, base.time_to_reach_queue, base.reserved)
        internal = InternalHeader(
            kept | self.packet_type | (_REFUSED if self.refused else 0), self.internal.reserved if self.internal else 0
        )
        return header.encode() + internal.encode() + self.encode_body()

    def encode_body(self) -> bytes:
        raise NotImplementedError


_ESTABLISH = Struct("<16s16sIHH512s")
RESPONSE_PADDING = b"\x5a" * 512
RESPONSE_RESERVED = 0x5A  # Windows answers so, and network scanners recognise a queue manager by it
RESPONSE_PRIORITY = 3


@dataclass(frozen=True, slots=True)
class EstablishConnection(InternalPacket):
    """[MS-MQQB] 2.2.3: the two managers of a session. Request and response have the same layout."""

    packet_type = PacketType.ESTABLISH_CONNECTION
    size = _BODY + _ESTABLISH.size

    client_guid: UUID
    server_guid: UUID
    time_stamp: int
    operating_system: int = OperatingSystemFlags.CONSTANT.value
    reserved: int = field(default=0, compare=False)
    padding: bytes = field(default=bytes(512), compare=False, repr=False)

    @classmethod
    def decode(cls, data: bytes, base: BaseHeader, internal: InternalHeader) -> EstablishConnection:
        cls.check(base, data)
        client, server, time_stamp, system, reserved, padding = _ESTABLISH.unpack_from(data, _BODY)
        guids = UUID(bytes_le=client), UUID(bytes_le=server)
        return cls(*guids, time_stamp, system, reserved, padding, **cls.kept(base, internal))

    def encode_body(self) -> bytes:
        if self.operating_system & 0x00FF != OperatingSystemFlags.CONSTANT:
            raise LocalProtocolError("the low byte of OperatingSystem must be 0x10")
        return _ESTABLISH.pack(
            self.client_guid.bytes_le,
            self.server_guid.bytes_le,
            self.time_stamp,
            self.operating_system,
            self.reserved,
            self.padding,
        )

    def response(self, server_guid: UUID, *, refused: bool = False) -> EstablishConnection:
        """The acceptor's answer, as Windows writes it: it repeats time stamp, SE and OS, and the padding is 0x5A."""
        repeated = self.operating_system & (OperatingSystemFlags.NO_PING | OperatingSystemFlags.SERVER)
        return EstablishConnection(
            self.client_guid,
            server_guid,
            self.time_stamp,
            OperatingSystemFlags.CONSTANT | repeated,
            padding=RESPONSE_PADDING,
            refused=refused,
            priority=RESPONSE_PRIORITY,
            base=BaseHeader(reserved=RESPONSE_RESERVED),
        )


_PARAMETERS = Struct("<IIHH")


@dataclass(frozen=True, slots=True)
class ConnectionParameters(InternalPacket):
    """[MS-MQQB] 2.2.2: the time-outs and the window of a session. Their ranges are checked."""

    packet_type = PacketType.CONNECTION_PARAMETERS
    size = _BODY + _PARAMETERS.size

    recoverable_ack_timeout_ms: int
    ack_timeout_ms: int
    window_size: int
    reserved: int = field(default=0, compare=False)

    @classmethod
    def decode(cls, data: bytes, base: BaseHeader, internal: InternalHeader) -> ConnectionParameters:
        cls.check(base, data)
        recoverable, ack, reserved, window = _PARAMETERS.unpack_from(data, _BODY)
        if recoverable not in RECOVERABLE_ACK_TIMEOUT_RANGE_MS:
            raise RemoteProtocolError(
                f"RecoverableAckTimeout must be between 500 and 120000 ms, got {recoverable}", _BODY
            )
        if ack not in ACK_TIMEOUT_RANGE_MS:
            raise RemoteProtocolError(f"AckTimeout must be between 20000 and 120000 ms, got {ack}", _BODY + 4)
        return cls(recoverable, ack, window, reserved, **cls.kept(base, internal))

    def encode_body(self) -> bytes:
        if self.recoverable_ack_timeout_ms not in RECOVERABLE_ACK_TIMEOUT_RANGE_MS:
            raise LocalProtocolError("RecoverableAckTimeout must be 500 to 120000 ms")
        if self.ack_timeout_ms not in ACK_TIMEOUT_RANGE_MS:
            raise LocalProtocolError("AckTimeout must be 20000 to 120000 ms")
        return _PARAMETERS.pack(self.recoverable_ack_timeout_ms, self.ack_timeout_ms, self.reserved, self.window_size)


@dataclass(frozen=True, slots=True)
class SessionAck(InternalPacket):
    """[MS-MQQB] 2.2.6: a SessionHeader alone. Here PacketSize counts it, unlike after a UserMessage."""

    packet_type = PacketType.SESSION_ACK
    size = _BODY + SESSION_HEADER_SIZE
    required_flags = (BaseFlags.INTERNAL | BaseFlags.SESSION_HEADER).value

    session: SessionHeader

    @classmethod
    def plain(cls, data: bytes) -> SessionAck | None:
        """The packet, if its headers are those that `encode_plain` writes. A sender receives no other packet more
        often."""
        if len(data) != cls.size or not data.startswith(PLAIN_ACK):
            return None
        return cls(SessionHeader.decode(data, _BODY))

    @classmethod
    def decode(cls, data: bytes, base: BaseHeader, internal: InternalHeader) -> SessionAck:
        cls.check(base, data)
        if internal.refused:
            raise RemoteProtocolError("a SessionAck must not refuse a connection", 18)
        return cls(SessionHeader.decode(data, _BODY), **cls.kept(base, internal))

    def encode_body(self) -> bytes:
        if self.refused:  # [MS-MQQB] 2.2.1: CS is for the packets that open a session
            raise LocalProtocolError("a SessionAck cannot refuse a connection")
        return self.session.encode()


PLAIN_ACK = SessionAck(SessionHeader()).encode()[:_BODY]
