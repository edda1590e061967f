"""Cuts one stream of bytes into packets, and continues after a fault. Knows no file and no network.

`wire.Framer` ends a session at the first bad header. This continues at the next plausible header.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace

from postroad.describe.capture.items import (
    DamagedPacket,
    DecodedPacket,
    Item,
    Origin,
    Skipped,
)
from postroad.errors import RemoteProtocolError
from postroad.wire import Ping, decode_packet
from postroad.wire.constants import (
    BASE_HEADER_SIZE,
    MAX_PACKET_SIZE,
    SESSION_HEADER_SIZE,
    SIGNATURE,
    VERSION,
    BaseFlags,
)
from postroad.wire.headers import BASE_LAYOUT, check_base_header
from postroad.wire.internal import PING_SIGNATURE, PING_SIZE

# An incomplete packet, and one more header, which shows whether a damaged packet ended where it said.
MAX_BUFFERED = MAX_PACKET_SIZE + SESSION_HEADER_SIZE + BASE_HEADER_SIZE
# Feeds in the buffer whose origin is remembered. Packets in later feeds get the last origin.
MAX_ORIGINS = 65_536
# Bytes that may be read again after a fault, beyond four times those already read. Real damage never needs more.
# Without a limit, a file that consists of false headers would be read once for each of them.
SECOND_LOOK = 16 * MAX_PACKET_SIZE
_SIGNATURE_AT = 4
_SIGNATURE = SIGNATURE.to_bytes(4, "little")
_PING = PING_SIGNATURE.to_bytes(2, "little")
_SESSION_ONLY = BaseFlags.SESSION_HEADER.value
_SESSION_OR_INTERNAL = (BaseFlags.SESSION_HEADER | BaseFlags.INTERNAL).value
_NOT_WHOLE = -1


class Cutter:
    """Finds packets in a stream that is fed to it, and returns them in order. Holds at most MAX_BUFFERED bytes and one
    feed.

    `pings` says whether Ping packets may be among the others, as in a file of packets; a TCP stream has none. `opening`
    is the reason to report for bytes before the first packet, if the caller knows one.
    """

    def __init__(self, *, pings: bool = False, opening: str | None = None) -> None:
        self.position = 0  # position in the stream of the first byte in the buffer
        self._pings = pings
        self._opening = opening
        self._buffer = bytearray()
        self._origins: deque[Origin] = deque()  # of the feeds with bytes in the buffer
        self._searching: tuple[Origin, str] | None = None  # where packets could no longer be followed, and why
        self._looked_again = 0

    @property
    def buffered(self) -> int:
        return len(self._buffer)

    def feed(self, data: bytes, origin: Origin) -> list[Item]:
        """Adds bytes of the stream. `origin` says where they were found; its offset is ignored, because positions are
        counted here."""
        if not self._buffer:
            self._origins.clear()
        if len(self._origins) < MAX_ORIGINS:
            self._origins.append(replace(origin, offset=self.position + len(self._buffer)))
        self._buffer += data
        return self._cut(last=False)

    def lose(self, size: int, reason: str | None) -> list[Item]:
        """Reports a gap of `size` bytes at this place. An incomplete packet stays incomplete.

        `reason` is reported with the lost bytes. None means a new start without a fault.
        """
        items = self._cut(last=True)
        if size and reason is not None:
            items.append(Skipped(self._origin(self.position), size, reason))
        self.position += size
        self._opening = None if reason is None else "the start of the packet is missing"
        return items

    def finish(self) -> list[Item]:
        """Ends the stream. What is left is an incomplete packet, or nothing."""
        return self.lose(0, None)

    def _cut(self, last: bool) -> list[Item]:
        items: list[Item] = []
        while self._buffer:
            taken = self._take(items, last) if self._searching is None else self._search(items, last)
            if taken == _NOT_WHOLE:
                break
            self._drop(taken)
        return items

    def _take(self, items: list[Item], last: bool) -> int:
        """Takes the item at the front. Returns its size, or _NOT_WHOLE if more bytes are needed."""
        buffer = self._buffer
        if len(buffer) < BASE_HEADER_SIZE and not last:
            return _NOT_WHOLE
        if self._pings and buffer[2:4] == _PING and buffer[4:8] != _SIGNATURE:
            if len(buffer) >= PING_SIZE:
                data = bytes(buffer[:PING_SIZE])
                items.append(DecodedPacket(self._origin(self.position), data, Ping.decode(data)))
                return PING_SIZE
            if not last:
                return _NOT_WHOLE
        try:
            size = packet_size(buffer)
        except RemoteProtocolError as fault:
            # If there is already a reason for the bytes before a packet, what they contain is not another fault.
            self._searching = self._origin(self.position), self._opening or fault.fault
            return 0
        if len(buffer) < size:
            return self._take_cut_off(items, size) if last else _NOT_WHOLE
        with memoryview(buffer) as view:
            data = bytes(view[:size])
        try:
            packet = decode_packet(data)
        except RemoteProtocolError as fault:
            # Drop the traceback, which keeps a copy of the packet alive.
            return self._take_damaged(items, size, fault.with_traceback(None), last)
        self._opening = None
        items.append(DecodedPacket(self._origin(self.position), data, packet))
        return size

    def _take_damaged(self, items: list[Item], size: int, fault: RemoteProtocolError, last: bool) -> int:
        """Takes a damaged packet. It ends where its header says if another one starts there, or else where the next one
        starts."""
        buffer = self._buffer
        if len(buffer) < size + BASE_HEADER_SIZE and not last:
            return _NOT_WHOLE
        may_look_again = self._looked_again + size <= SECOND_LOOK + 4 * self.position
        if len(buffer) > size and not is_plausible(buffer, size) and may_look_again:
            inside = find_header(buffer, 1, size)
            if inside is not None:
                self._looked_again += size - inside
                size = inside
        items.append(DamagedPacket(self._origin(self.position), bytes(buffer[:size]), fault))
        return size

    def _take_cut_off(self, items: list[Item], size: int) -> int:
        here = len(self._buffer)
        inside = find_header(self._buffer, 1, here)
        end = here if inside is None else inside
        fault = RemoteProtocolError(f"the packet must have {size} bytes, got {here}", end)
        if inside is not None:
            fault = RemoteProtocolError(
                f"the packet must have {size} bytes, but another one starts after {inside}", end
            )
        items.append(DamagedPacket(self._origin(self.position), bytes(self._buffer[:end]), fault))
        return end

    def _search(self, items: list[Item], last: bool) -> int:
        """Skips bytes up to the next plausible header. Keeps what may be the start of one."""
        assert self._searching is not None
        start, reason = self._searching
        found = find_header(self._buffer, 0, len(self._buffer))
        if found is None and not last:
            passed = max(0, len(self._buffer) - BASE_HEADER_SIZE + 1)
            return passed or _NOT_WHOLE
        end = len(self._buffer) if found is None else found
        items.append(Skipped(start, self.position + end - start.offset, reason))
        self._searching = None
        self._opening = None
        return end

    def _drop(self, count: int) -> None:
        del self._buffer[:count]
        self.position += count
        while len(self._origins) > 1 and self._origins[1].offset <= self.position:
            self._origins.popleft()

    def _origin(self, position: int) -> Origin:
        origin = self._origins[0] if self._origins else Origin()
        return replace(origin, offset=position)


def packet_size(data: bytes | bytearray) -> int:
    """The size on the wire of the packet that starts here. Raises RemoteProtocolError if none does."""
    if len(data) < BASE_HEADER_SIZE:
        raise RemoteProtocolError(f"a BaseHeader must have {BASE_HEADER_SIZE} bytes, got {len(data)}", len(data))
    version, _, flags, signature, size, _ = BASE_LAYOUT.unpack_from(data)
    check_base_header(version, signature, size)
    # [MS-MQMQ] 2.2.19.1: PacketSize does not count the SessionHeader after a UserMessage, and only that one.
    return size + SESSION_HEADER_SIZE if flags & _SESSION_OR_INTERNAL == _SESSION_ONLY else int(size)


def is_plausible(data: bytearray, at: int) -> bool:
    """Whether a BaseHeader could start here: version, signature and a size within bounds."""
    if len(data) < at + BASE_HEADER_SIZE:
        return False
    version, _, _, signature, size, _ = BASE_LAYOUT.unpack_from(data, at)
    return bool(signature == SIGNATURE and version == VERSION and BASE_HEADER_SIZE <= size <= MAX_PACKET_SIZE)


def find_header(data: bytearray, start: int, end: int) -> int | None:
    """The first place from `start`, before `end`, where a BaseHeader could start."""
    stop = end + _SIGNATURE_AT + len(_SIGNATURE) - 1
    at = data.find(_SIGNATURE, start + _SIGNATURE_AT, stop)
    while at >= 0:
        if is_plausible(data, at - _SIGNATURE_AT):
            return at - _SIGNATURE_AT
        at = data.find(_SIGNATURE, at + 1, stop)
    return None
