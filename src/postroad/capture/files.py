"""A file of packets in any form: recognised by its content, read once from front to back."""

from __future__ import annotations

import io
from codecs import BOM_UTF16_BE, BOM_UTF16_LE, getincrementaldecoder
from collections.abc import Iterator
from enum import Enum
from typing import BinaryIO

from postroad.capture.cutter import Cutter
from postroad.capture.hex_text import Piece, read_hex
from postroad.capture.internet import Datagram, Ports, Unusable, is_known_link, read_frame
from postroad.capture.items import DecodedPacket, Item, Origin, Skipped
from postroad.capture.pcap import PCAP_MAGICS, PCAPNG_MAGIC, Frame, read_pcap, read_pcapng
from postroad.capture.streams import Streams
from postroad.errors import RemoteProtocolError
from postroad.wire import Ping

STANDARD_PORTS = Ports()
HEAD_SIZE = 4096  # bytes that show the form of a file
_CHUNK_SIZE = 65_536
_TEXT = bytes(range(0x20, 0x7F)) + b"\t\n\r\f"
_GZIP = b"\x1f\x8b"
_BOMS_UTF16 = (BOM_UTF16_LE, BOM_UTF16_BE)


class FileKind(Enum):
    """The values are for people."""

    PCAP = "a pcap capture"
    PCAPNG = "a pcapng capture"
    HEX = "hex text"
    RAW = "raw packets"


def recognise(head: bytes) -> FileKind:
    """The form of a file by its first bytes. Text is hex text, and anything unknown is raw packets."""
    if head[:4] in PCAP_MAGICS:
        return FileKind.PCAP
    if head[:4] == PCAPNG_MAGIC:
        return FileKind.PCAPNG
    return FileKind.HEX if _is_text(head) else FileKind.RAW


def _is_text(head: bytes) -> bool:
    if head.startswith(_BOMS_UTF16):
        return True
    if any(byte < 0x80 for byte in head.translate(None, _TEXT)):
        return False
    try:
        getincrementaldecoder("utf-8")().decode(head)  # comments may be in any language; the last character may be cut
    except UnicodeDecodeError:
        return False
    return True


class CaptureFile:
    """Reads `stream` from its position. `items` can be iterated once; `kind` and `frames` describe the whole file.

    For any content, the only exceptions are those of `stream` itself: faults are items.
    """

    def __init__(self, stream: BinaryIO, ports: Ports = STANDARD_PORTS) -> None:
        head = stream.read(HEAD_SIZE)
        self.kind = recognise(head)
        self.empty = not head
        self.frames = 0  # of a capture, so far
        self._ports = ports
        self._opening = "the file is compressed; unpack it first" if head.startswith(_GZIP) else None
        self._stream = io.BufferedReader(_Rejoined(head, stream), _CHUNK_SIZE)

    def items(self) -> Iterator[Item]:
        match self.kind:
            case FileKind.PCAP:
                return self._captured(read_pcap(self._stream))
            case FileKind.PCAPNG:
                return self._captured(read_pcapng(self._stream))
            case FileKind.HEX:
                return self._hex()
            case FileKind.RAW:
                return self._raw()

    def _raw(self) -> Iterator[Item]:
        cutter = Cutter(pings=True, opening=self._opening)
        while chunk := self._stream.read(_CHUNK_SIZE):
            yield from cutter.feed(chunk, Origin())
        yield from cutter.finish()

    def _hex(self) -> Iterator[Item]:
        encoding = "utf-16" if self._stream.peek(2).startswith(_BOMS_UTF16) else "utf-8-sig"
        text = io.TextIOWrapper(self._stream, encoding, errors="replace")
        cutter = Cutter(pings=True)
        for piece in read_hex(text):
            if isinstance(piece, Piece):
                yield from cutter.feed(piece.data, Origin(line=piece.line))
                continue
            yield from cutter.lose(0, piece.reason)
            if piece.reason is not None:
                yield Skipped(Origin(cutter.position, line=piece.line), 0, piece.reason)
        yield from cutter.finish()

    def _captured(self, frames: Iterator[Frame | Skipped]) -> Iterator[Item]:
        streams = Streams()
        unknown: set[int] = set()
        for frame in frames:
            if isinstance(frame, Skipped):
                yield frame
                continue
            self.frames += 1
            if is_known_link(frame.link_type):
                yield from self._frame(frame, streams)
            elif frame.link_type not in unknown:
                unknown.add(frame.link_type)
                reason = f"unknown link type {frame.link_type}"
                yield Skipped(Origin(frame.offset, frame=frame.number), 0, reason)
        yield from streams.finish()

    def _frame(self, frame: Frame, streams: Streams) -> list[Item]:
        found = read_frame(frame.link_type, frame.data, self._ports)
        if found is None:
            return []
        origin = Origin(frame=frame.number, time_ns=frame.time_ns)
        if isinstance(found, Unusable | Datagram):
            source, destination = found.endpoints.source_text, found.endpoints.destination_text
            origin = Origin(0, None, frame.number, frame.time_ns, source, destination)
            return [Skipped(origin, 0, found.reason) if isinstance(found, Unusable) else _ping(found.payload, origin)]
        return streams.feed(found, origin)


def _ping(payload: bytes, origin: Origin) -> Item:
    try:
        return DecodedPacket(origin, payload, Ping.decode(payload))
    except RemoteProtocolError as fault:
        return Skipped(origin, len(payload), fault.fault)


class _Rejoined(io.RawIOBase):
    """The bytes read so far, and then the rest."""

    def __init__(self, head: bytes, rest: BinaryIO) -> None:
        self._head = head
        self._rest = rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        view = memoryview(buffer)  # type: ignore[arg-type]
        data = self._head[: len(view)] or self._rest.read(len(view))
        self._head = self._head[len(data) :]
        view[: len(data)] = data
        return len(data)
