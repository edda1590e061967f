"""What a file contains: packets, damaged packets, and bytes without a packet. Values only."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from postroad.errors import RemoteProtocolError
from postroad.wire import Packet, Ping


@dataclass(frozen=True, slots=True)
class Origin:
    """Where something was found.

    `offset` counts bytes in a raw file, in the bytes of a hex text, or in one direction of a TCP stream from where the
    capture first saw it. `line` is for hex text. Frame, time and addresses are for captures.
    """

    offset: int = 0
    line: int | None = None
    frame: int | None = None
    time_ns: int | None = None
    source: str | None = None
    destination: str | None = None


@dataclass(frozen=True, slots=True)
class DecodedPacket:
    """A packet. `data` is the whole packet, and `packet` its decoded form."""

    origin: Origin
    data: bytes
    packet: Packet | Ping


@dataclass(frozen=True, slots=True)
class DamagedPacket:
    """A damaged packet. `data` is the part that is present, and the offset of `fault` counts from its start."""

    origin: Origin
    data: bytes
    fault: RemoteProtocolError


@dataclass(frozen=True, slots=True)
class Skipped:
    """`size` bytes that are not a packet or are missing from the file. 0 if the number is unknown."""

    origin: Origin
    size: int
    reason: str


class Kind(Enum):
    """What is not a packet of a session. The values are for people."""

    HTTP = "HTTP message"
    RPC = "RPC fragment"
    BODY = "body of a message"


@dataclass(frozen=True, slots=True)
class OtherPacket:
    """A whole HTTP message or RPC fragment, or a file that is the body of a message."""

    origin: Origin
    data: bytes
    kind: Kind


Item = DecodedPacket | DamagedPacket | OtherPacket | Skipped
