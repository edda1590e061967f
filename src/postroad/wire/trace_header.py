"""DebugHeader, [MS-MQMQ] 2.2.20.8: the queue for the trace reports of a message."""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from uuid import UUID

from postroad.errors import RemoteProtocolError
from postroad.wire.layout import Reader, Writer

_LAYOUT = Struct("<HH")
QUEUE_TYPE_MASK = 0x0003  # QT
QUEUE_TYPE_PUBLIC = 1


@dataclass(frozen=True, slots=True)
class DebugHeader:
    """`queue_identifier` is a public queue, or None."""

    queue_identifier: UUID | None = None
    flags: int = 0
    reserved: int = 0

    @classmethod
    def decode(cls, reader: Reader) -> DebugHeader:
        start = reader.offset
        flags, reserved = reader.unpack(_LAYOUT, "DebugHeader")
        if (queue_type := flags & QUEUE_TYPE_MASK) > QUEUE_TYPE_PUBLIC:
            raise RemoteProtocolError(f"DebugHeader queue type {queue_type} is not defined", start)
        return cls(reader.guid("DebugHeader.QueueIdentifier") if queue_type else None, flags, reserved)

    def encode(self, writer: Writer) -> None:
        queue_type = QUEUE_TYPE_PUBLIC if self.queue_identifier else 0
        writer.put(_LAYOUT.pack(self.flags & ~QUEUE_TYPE_MASK | queue_type, self.reserved))
        if self.queue_identifier:
            writer.put(self.queue_identifier.bytes_le)
