"""What reading a file gives: packets, damaged packets, and places where there is none. Values only."""

from __future__ import annotations

from dataclasses import dataclass

from postroad.errors import RemoteProtocolError
from postroad.wire import Packet, Ping


@dataclass(frozen=True, slots=True)
class Origin:
    """Where something was found.

    `offset` counts bytes in a raw file, in the bytes that a hex text spells, or in one direction of a TCP stream from
    where the capture first saw it. `line` is known for hex text; frame, time and addresses are known for captures.
    """

    offset: int = 0
    line: int | None = None
    frame: int | None = None
    time_ns: int | None = None
    source: str | None = None
    destination: str | None = None


@dataclass(frozen=True, slots=True)
class DecodedPacket:
    """`data` is the whole packet, `packet` what it was decoded to."""

    origin: Origin
    data: bytes
    packet: Packet | Ping


@dataclass(frozen=True, slots=True)
class DamagedPacket:
    """Starts like a packet and has a fault; `data` is what there is of it, and `fault` is told from its start."""

    origin: Origin
    data: bytes
    fault: RemoteProtocolError


@dataclass(frozen=True, slots=True)
class Skipped:
    """`size` bytes, 0 where that means nothing, that hold no packet, or that the file lacks."""

    origin: Origin
    size: int
    reason: str


Item = DecodedPacket | DamagedPacket | Skipped
