"""Bodies of WCF's netMsmq: the framing of [MC-NMF] as [MS-NMFMB] uses it, and the envelopes in it as XML text."""

from __future__ import annotations

import re
import zlib
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass

from postroad.bodies.bounds import MOST_BYTES, check_values
from postroad.bodies.nbfx import read_document, read_start, read_string_table
from postroad.errors import RemoteProtocolError

_VERSION, _MODE, _VIA, _KNOWN_ENCODING, _OTHER_ENCODING = 0, 1, 2, 3, 4
_UNSIZED, _SIZED, _END, _PREAMBLE_END = 5, 6, 7, 12
_SINGLETON_UNSIZED, _SIMPLEX, _SINGLETON_SIZED = 1, 3, 4
_START = bytes([_VERSION, 1, 0, _MODE])
_BINARY, _BINARY_SESSION, _MTOM = "application/soap+msbin1", "application/soap+msbinsession1", "multipart/related"
_SOAP_1_1, _SOAP_1_2 = "text/xml", "application/soap+xml"
_UTF8, _UTF16, _UTF16_BIG = "utf-8", "utf-16-le", "utf-16-be"
# [MC-NMF] 2.2.3.4.1. Where the specification says "Unicode little-endian", .NET writes big-endian: its unicodeFFFE.
_ENCODINGS: Mapping[int, tuple[str, str]] = {
    0: (_SOAP_1_1, _UTF8),
    1: (_SOAP_1_1, _UTF16),
    2: (_SOAP_1_1, _UTF16_BIG),
    3: (_SOAP_1_2, _UTF8),
    4: (_SOAP_1_2, _UTF16),
    5: (_SOAP_1_2, _UTF16_BIG),
    6: (_MTOM, _UTF8),
    7: (_BINARY, _UTF8),
    8: (_BINARY_SESSION, _UTF8),
}
_CHARSET = re.compile(r"charset=\"?([\w-]+)", re.IGNORECASE)
_CHARSETS = {"utf-8": _UTF8, "utf16": _UTF16, "utf-16": _UTF16, "utf-16le": _UTF16, "utf-16be": _UTF16_BIG}
_CHARSETS["unicodefffe"] = _UTF16_BIG
_BOUNDARY = re.compile(rb"boundary=(?:\"([^\"\r\n]{1,200})\"|([^\s;]{1,200}))", re.IGNORECASE)
_CONTENT_ID = re.compile(rb"^content-id:\s*<([^>\r\n]{1,500})>", re.IGNORECASE | re.MULTILINE)
_INCLUDE = re.compile(r"<(?:\w{1,50}:)?Include\b([^<>]{0,1000}+)>(?:\s{0,100}+</(?:\w{1,50}:)?Include>)?")
_REFERENCE = re.compile(r"\bhref=[\"']cid:([^\"']{1,500})[\"']")
_MOST_PARTS = 1000


@dataclass(frozen=True, slots=True)
class Framed:
    """What the frame says, and the envelopes in it."""

    via: str
    content_type: str
    envelopes: tuple[str, ...]


def is_framed(body: bytes) -> bool:
    """Whether it starts as the framing starts: a record of version 1.0, and a mode that netMsmq uses."""
    return body[:4] == _START and body[4:5] in (b"\x01", b"\x03", b"\x04")


def is_envelope(body: bytes) -> bool:
    """Whether it starts as a SOAP envelope in binary XML without a frame: `s:Envelope`, with its string's number."""
    return body[:2] == b"\x56\x02"


def start_of_envelope(body: bytes, size: int) -> str:
    """Some characters of the first envelope; "" if there is none."""
    try:
        return _Reader(body).start(size) if is_framed(body) else read_start(body, (), size)
    except RemoteProtocolError:
        return ""


def read_framed(body: bytes) -> Framed:
    """RemoteProtocolError if the frame or an envelope in it is damaged."""
    return _Reader(body).framed()


class _Reader:
    def __init__(self, body: bytes) -> None:
        self._body = body
        self._at = len(_START)

    def framed(self) -> Framed:
        if not is_framed(self._body):
            raise self._fault("must start with version 1.0 and a mode")
        mode, via, content_type, encoding = self._preamble()
        decoder = _Decoder(content_type, encoding)
        envelopes = [decoder.envelope(payload) for payload in self._payloads(mode)]
        if not envelopes:
            raise self._fault("must have an envelope")
        return Framed(via, content_type, tuple(envelopes))

    def start(self, size: int) -> str:
        mode, _, content_type, encoding = self._preamble()
        payloads = self._payloads(mode)
        return _Decoder(content_type, encoding).start(payloads[0], size) if payloads else ""

    def _preamble(self) -> tuple[int, str, str, str]:
        mode = self._byte()
        if self._byte() != _VIA:
            raise self._fault("must have an address")
        return mode, self._text(), *self._encoding()

    def _encoding(self) -> tuple[str, str]:
        record = self._byte()
        if record == _KNOWN_ENCODING and (known := _ENCODINGS.get(self._byte())):
            return known
        if record != _OTHER_ENCODING:
            raise self._fault("must have an encoding that is known")
        content_type = self._text()
        charset = _CHARSET.search(content_type)
        return content_type, _CHARSETS.get(charset[1].lower(), _UTF8) if charset else _UTF8

    def _payloads(self, mode: int) -> list[bytes]:
        """[MS-NMFMB] 3.1.1.3: without a session, the rest of the body is the envelope; with one, each has its size."""
        if mode == _SINGLETON_SIZED:
            return [self._body[self._at :]]
        found: list[bytes] = []
        while self._at < len(self._body):
            record = self._byte()
            if record == _SIZED and mode == _SIMPLEX:
                found.append(self._take(self._size()))
            elif record == _UNSIZED and mode == _SINGLETON_UNSIZED:
                found.append(self._chunks())
            elif record == _END:
                break
            elif record != _PREAMBLE_END:
                raise self._fault(f"must have no record {record}")
            check_values(len(found))
        return found

    def _chunks(self) -> bytes:
        chunks: list[bytes] = []
        while size := self._size():
            chunks.append(self._take(size))
        return b"".join(chunks)

    def _text(self) -> str:
        try:
            return self._take(self._size()).decode()
        except UnicodeDecodeError:
            raise self._fault("must have text in UTF-8") from None

    def _size(self) -> int:
        size = 0
        for shift in range(0, 35, 7):
            byte = self._byte()
            size |= (byte & 0x7F) << shift
            if byte < 0x80:
                return size
        raise self._fault("must have sizes of at most five bytes")

    def _byte(self) -> int:
        return self._take(1)[0]

    def _take(self, size: int) -> bytes:
        if size > len(self._body) - self._at:
            raise self._fault(f"must have {size} bytes more, has {len(self._body) - self._at}")
        self._at += size
        return self._body[self._at - size : self._at]

    def _fault(self, sentence: str) -> RemoteProtocolError:
        return RemoteProtocolError(f"[MC-NMF]: at byte {self._at}: the frame {sentence}")


class _Decoder:
    """Envelopes of one frame. Those of a session share a table of strings, and what they may grow to."""

    def __init__(self, content_type: str, encoding: str) -> None:
        kind, _, compression = content_type.partition(";")[0].strip().rpartition("+")
        known = compression in ("gzip", "deflate")
        self._kind = kind if known else content_type.partition(";")[0].strip()
        self._compression = compression if known else ""
        self._content_type = content_type
        self._encoding = encoding
        self._table: list[str] = []
        self._left = MOST_BYTES

    def envelope(self, payload: bytes) -> str:
        if self._compression:
            payload = _inflated(payload, self._compression, self._left)
        text = self._read(payload)
        self._left -= len(text)
        if self._left < 0:
            raise RemoteProtocolError(f"the envelopes must have at most {MOST_BYTES:,} characters")
        return text

    def start(self, payload: bytes, size: int) -> str:
        """Some characters of the start of the first envelope."""
        if self._compression:
            payload = _inflated(payload, self._compression, self._left)
        if self._kind in (_BINARY, _BINARY_SESSION):
            start = read_string_table(payload, self._table) if self._kind == _BINARY_SESSION else 0
            return read_start(payload[start:], self._table, size)
        return self._read(payload)[:size]

    def _read(self, payload: bytes) -> str:
        if self._kind == _BINARY:
            return read_document(payload)
        if self._kind == _BINARY_SESSION:
            start = read_string_table(payload, self._table)
            return read_document(payload[start:], self._table)
        if self._kind == _MTOM:
            return _mtom(payload, self._content_type)
        if self._kind in (_SOAP_1_1, _SOAP_1_2):
            return _text(payload, self._encoding)
        raise RemoteProtocolError(f"the envelope must be of a type that is known, not {self._kind[:80]!r}")


def _text(payload: bytes, encoding: str) -> str:
    """A byte order mark decides before the encoding that the frame names, and so does the first tag."""
    for mark, marked in ((b"\xef\xbb\xbf", _UTF8), (b"\xff\xfe", _UTF16), (b"\xfe\xff", _UTF16_BIG)):
        if payload.startswith(mark):
            payload, encoding = payload[len(mark) :], marked
            break
    else:
        encoding = {b"<\0": _UTF16, b"\0<": _UTF16_BIG}.get(payload[:2], encoding)
    try:
        return payload.decode(encoding)
    except UnicodeDecodeError:
        raise RemoteProtocolError(f"the envelope must be text in {encoding}") from None


def _inflated(payload: bytes, compression: str, most: int) -> bytes:
    engine = zlib.decompressobj(31 if compression == "gzip" else -15)
    try:
        found = engine.decompress(payload, most)
    except zlib.error as fault:
        raise RemoteProtocolError(f"the envelope must be in {compression}: {fault}") from None
    if engine.unconsumed_tail or not engine.eof:
        raise RemoteProtocolError(f"the envelope must be whole, and at most {MOST_BYTES:,} bytes")
    return found


def _mtom(payload: bytes, content_type: str) -> str:
    """The first part of a multipart message, with the others in place of the elements that include them."""
    head = payload.partition(b"\r\n\r\n")[0][:4096]
    boundary = _BOUNDARY.search(content_type.encode()) or _BOUNDARY.search(head)
    mark = b"--" + (boundary[1] or boundary[2]) if boundary else payload.lstrip()[:200].partition(b"\r\n")[0]
    if not mark.startswith(b"--") or len(mark) < 3:
        raise RemoteProtocolError("the envelope must have parts of MTOM")
    pieces = payload.split(mark, _MOST_PARTS)[1:]
    parts = [piece.removeprefix(b"\r\n").partition(b"\r\n\r\n") for piece in pieces if not piece.startswith(b"--")]
    if not parts:
        raise RemoteProtocolError("the envelope must have parts of MTOM")
    attached: dict[str, bytes] = {}
    for part_head, _, content in parts[1:]:
        if name := _CONTENT_ID.search(part_head):
            attached[name[1].decode("latin-1")] = content.removesuffix(b"\r\n")
    root = _text(parts[0][2].removesuffix(b"\r\n"), _UTF8)
    left = MOST_BYTES

    def included(match: re.Match[str]) -> str:
        nonlocal left
        reference = _REFERENCE.search(match[1])
        content = attached.get(reference[1].replace("%40", "@")) if reference else None
        if content is None:
            return match[0]
        left -= len(content) * 4 // 3
        if left < 0:
            raise RemoteProtocolError(f"the envelope must have at most {MOST_BYTES:,} bytes")
        return b64encode(content).decode()

    return _INCLUDE.sub(included, root)
