"""SoapHeader, [MS-MQMQ] 2.2.20.7: the SOAP envelope of a message, as two strings."""

from __future__ import annotations

from dataclasses import dataclass, field
from struct import Struct

from postroad.errors import RemoteProtocolError
from postroad.wire.constants import SectionId
from postroad.wire.layout import Reader, Writer, check_text, encode_text

_SECTION = Struct("<HHI")
SECTION_SIZE = _SECTION.size  # of what stands before the text
_HEADER, _BODY = SectionId.SOAP_HEADER.value, SectionId.SOAP_BODY.value


@dataclass(frozen=True, slots=True)
class SoapHeader:
    """`header` and `body` are None if the packet has no unit of them, not even a terminator."""

    header: str | None
    body: str | None
    reserved: tuple[int, int] = (0, 0)
    aligned: bool = field(default=True, compare=False)  # whether the second section starts on a 4-byte boundary
    padding: bytes = field(default=b"", compare=False, repr=False)

    @classmethod
    def decode(cls, reader: Reader) -> SoapHeader:
        header, reserved = _decode_section(reader, SectionId.SOAP_HEADER)
        # The specification gives no padding rule between the sections: we accept both with and without padding.
        boundary = -(-reader.offset // 4) * 4
        is_aligned = boundary == reader.offset or _section_id(reader.data, boundary, reader.end) == SectionId.SOAP_BODY
        if is_aligned:
            reader.align(4, "SoapHeader.Header")
        body, reserved1 = _decode_section(reader, SectionId.SOAP_BODY)
        reader.align(4, "SoapHeader.Body")
        return cls(header, body, (reserved, reserved1), is_aligned, reader.padding())

    def encode(self, writer: Writer) -> None:
        writer.keep_padding(self.padding)
        writer.put(_encode_section(_HEADER, self.reserved[0], self.header))
        if self.aligned:
            writer.align(4)
        writer.put(_encode_section(_BODY, self.reserved[1], self.body))
        writer.align(4)


def soap_sections(header: str, body: str) -> bytes:
    """A SoapHeader as `encode` writes it, starting at a 4-byte boundary."""
    first, second = _encode_section(_HEADER, 0, header), _encode_section(_BODY, 0, body)
    return b"".join((first, bytes(-len(first) % 4), second, bytes(-len(second) % 4)))


def soap_header_end(data: bytes, offset: int, end: int) -> int:
    """Checks a SoapHeader with both its sections and returns the offset of its end. -1 means that the header has
    another form: then `decode` reads it or names the fault."""
    for expected in (_HEADER, _BODY):
        if offset + _SECTION.size > end:
            return -1
        section_id, _, units = _SECTION.unpack_from(data, offset)
        offset += _SECTION.size
        stop = offset + 2 * units
        if section_id != expected or not units or stop > end:
            return -1
        check_text(data, offset, stop, "SoapHeader string")
        offset = stop + 3 & ~3
    return offset


def _section_id(data: bytes, offset: int, end: int) -> int:
    return int.from_bytes(data[offset : min(offset + 2, end)], "little")


def _decode_section(reader: Reader, expected: SectionId) -> tuple[str | None, int]:
    start = reader.offset
    section_id, reserved, units = reader.unpack(_SECTION, "SoapHeader section")
    if section_id != expected:
        raise RemoteProtocolError(f"SoapHeader section must be {expected:#06x}, got {section_id:#06x}", start)
    return (reader.text(2 * units, "SoapHeader string") if units else None), reserved


def _encode_section(section_id: int, reserved: int, text: str | None) -> bytes:
    data = b"" if text is None else encode_text(text, "a SoapHeader string")
    return _SECTION.pack(section_id, reserved, len(data) // 2) + data
