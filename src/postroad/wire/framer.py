"""Cuts a byte stream into packets. The size of the chunks does not matter. It never holds more than one packet."""

from __future__ import annotations

from postroad.errors import RemoteProtocolError
from postroad.wire.constants import (
    BASE_HEADER_SIZE,
    MAX_PACKET_SIZE,
    SESSION_HEADER_SIZE,
    SIGNATURE,
    VERSION,
    BaseFlags,
    MessageClass,
    PacketType,
)
from postroad.wire.headers import BASE_LAYOUT, BaseHeader, check_base_header
from postroad.wire.internal import ConnectionParameters, EstablishConnection, InternalHeader, SessionAck
from postroad.wire.ordering import BODY_SIZE, FINAL_ACK_CLASSES, LABEL, FinalAck, OrderAck, is_order_queue
from postroad.wire.patch import transaction_header_at
from postroad.wire.view import MessageView

# The most bytes that a peer can make us keep between two feeds: one incomplete packet.
MAX_BUFFERED = MAX_PACKET_SIZE + SESSION_HEADER_SIZE
_SESSION_ONLY = BaseFlags.SESSION_HEADER.value
_SESSION_OR_INTERNAL = (BaseFlags.SESSION_HEADER | BaseFlags.INTERNAL).value


class Framer:
    """Takes the bytes that arrived and returns complete packets. It allocates memory only for bytes that arrived.

    The first bad header ends the stream: `error` says why, `position` says where, and no more packets are returned.
    """

    __slots__ = ("_buffer", "_limit", "_needed", "_over_limit", "error", "position")

    def __init__(self, limit: int = MAX_BUFFERED) -> None:
        """`limit` is the largest size of a packet, until `lift_limit`."""
        self._buffer = bytearray()
        self._needed = 0  # bytes that the buffer must have before there is something to cut
        self._limit = limit
        self._over_limit = False  # the error is a packet above the limit, which may be valid once the limit is lifted
        self.error: RemoteProtocolError | None = None
        self.position = 0  # the position in the stream after the last complete packet

    @property
    def buffered(self) -> int:
        """The number of bytes of an incomplete packet."""
        return len(self._buffer)

    def lift_limit(self) -> list[bytes]:
        """Lets packets have any legal size from now on. Returns the packets that the limit held up."""
        if self._limit == MAX_BUFFERED:
            return []
        self._limit = MAX_BUFFERED
        if self._over_limit:
            self._over_limit, self.error = False, None
        held = bytes(self._buffer)
        self._buffer.clear()
        return self.feed(held)

    def feed(self, data: bytes) -> list[bytes]:
        """The packets that `data` completes, including those before a fault."""
        if self.error:
            return []
        packets: list[bytes] = []
        taken = 0
        while self._buffer:  # the start of a packet: first its header, then the rest of it
            missing = self._needed - len(self._buffer)
            self._buffer += data[taken : taken + missing]
            taken = min(taken + missing, len(data))
            if len(self._buffer) < self._needed:
                return packets
            if self._cut(bytes(self._buffer), 0, packets):
                self._buffer.clear()
            elif self.error:
                break
        if not self.error:
            taken = self._cut(data, taken, packets)
        if not self.error or self._over_limit:
            self._buffer += data[taken:]
        else:
            self._buffer.clear()
        return packets

    def _cut(self, data: bytes, offset: int, packets: list[bytes]) -> int:
        """Appends the packets from the offset on. Returns the offset after the last one."""
        start, end = offset, len(data)
        self._needed = BASE_HEADER_SIZE
        while end - offset >= BASE_HEADER_SIZE:
            version, _, flags, signature, size, _ = BASE_LAYOUT.unpack_from(data, offset)
            if signature != SIGNATURE or version != VERSION or not BASE_HEADER_SIZE <= size <= MAX_PACKET_SIZE:
                try:
                    check_base_header(version, signature, size)
                except RemoteProtocolError as error:
                    self.error = error
                break
            # [MS-MQMQ] 2.2.19.1: PacketSize does not count the SessionHeader after a UserMessage, and only that one.
            if flags & _SESSION_OR_INTERNAL == _SESSION_ONLY:
                size += SESSION_HEADER_SIZE
            if end - offset < size:
                self._needed = size
                if size > self._limit:
                    self._over_limit = True
                    fault = f"a packet must have at most {self._limit} bytes here, got {size}"
                    self.error = RemoteProtocolError(fault, offset)
                break
            packets.append(data[offset : offset + size])
            offset += size
        self.position += offset - start
        return offset


# Finds the type of a packet, [MS-MQQB] 3.1.5.1.1.


Packet = MessageView | OrderAck | FinalAck | EstablishConnection | ConnectionParameters | SessionAck

_INTERNAL = 0x0008


def decode_packet(data: bytes) -> Packet:
    """Decodes one complete packet of a session. Raises RemoteProtocolError if the bytes are not a packet."""
    if len(data) > 2 and data[2] & _INTERNAL:
        return SessionAck.plain(data) or _decode_internal(data)
    view = MessageView(data)
    check_place(view)
    # Reports and administration acknowledgments are UserMessages, whatever their class.
    if view.message_class and not view.base_flags and view.label == LABEL and is_order_queue(view.destination_queue):
        if view.message_class == MessageClass.ORDER_ACK and view.message_size == BODY_SIZE:
            return OrderAck.of(view)
        if view.message_class >= FINAL_ACK_CLASSES:
            return FinalAck.of(view)
    return view


def check_place(view: MessageView) -> None:
    """[MS-MQMQ] 2.2.20.5: numbers start at 1, and the previous message has a lower one. A FinalAck cannot name others.

    Every receiver of packets calls this. A view accepts such packets, because older versions may have stored them.
    """
    fields = view.transaction_fields
    if fields is not None and fields[4] >= fields[3]:
        raise RemoteProtocolError(
            f"PreviousTxSequenceNumber must be below TxSequenceNumber {fields[3]}, got {fields[4]}",
            transaction_header_at(view.data) + 12,
        )


def _decode_internal(data: bytes) -> EstablishConnection | ConnectionParameters | SessionAck:
    base = BaseHeader.decode(data)
    if base.flags & 0x0020:
        raise RemoteProtocolError("an internal packet must not have a DebugHeader", 2)
    internal = InternalHeader.decode(data)
    match internal.packet_type:
        case PacketType.ESTABLISH_CONNECTION:
            return EstablishConnection.decode(data, base, internal)
        case PacketType.CONNECTION_PARAMETERS:
            return ConnectionParameters.decode(data, base, internal)
        case _:
            return SessionAck.decode(data, base, internal)
