"""MultiQueueFormatHeader, [MS-MQMQ] 2.2.20.1 to 2.2.20.3: all the destinations of a message with several."""

from __future__ import annotations

from dataclasses import dataclass, field
from struct import Struct
from uuid import UUID

from postroad.errors import LocalProtocolError, RemoteProtocolError
from postroad.wire.constants import FormatType, SectionId
from postroad.wire.layout import Reader, Writer, aligned, encode_text

_ADDRESS = Struct("<IHHI")
_SIGNATURE = Struct("<HHI")
_U16 = Struct("<H")
_U32 = Struct("<I")
# No specification limits a list. Without a limit, one packet of empty names keeps its reader busy for seconds.
MAX_ELEMENTS = 4096
_SECTIONS = (SectionId.DESTINATION, SectionId.ADMINISTRATION, SectionId.RESPONSE)


@dataclass(frozen=True, slots=True)
class FormatNameElement:
    """One MQFFormatNameElement, 2.2.18.1.4: a GUID, a GUID and a number, or a direct name."""

    format_type: FormatType
    guid: UUID | None = None
    number: int | None = None
    direct_name: str | None = None

    @classmethod
    def decode(cls, reader: Reader, align_public: bool) -> FormatNameElement:
        start = reader.offset
        (code,) = reader.unpack(_U16, "FormatType")
        match code:
            case FormatType.PUBLIC:
                if align_public:
                    reader.align(4, "a public element")
                return cls(FormatType.PUBLIC, guid=reader.guid("a public element"))
            case FormatType.PRIVATE:
                reader.align(4, "a private element")
                guid = reader.guid("a private element")
                return cls(FormatType.PRIVATE, guid, reader.unpack(_U32, "a private element")[0])
            case FormatType.DIRECT:
                reader.align(2, "a direct element")
                return cls(FormatType.DIRECT, direct_name=reader.text_to_nul("a direct element"))
            case FormatType.DISTRIBUTION_LIST:
                reader.align(4, "a distribution list element")
                return cls(FormatType.DISTRIBUTION_LIST, guid=reader.guid("a distribution list element"))
        raise RemoteProtocolError(f"format type {code} is not defined", start)

    def encode(self, writer: Writer, align_public: bool) -> None:
        writer.put(_U16.pack(self.format_type))
        if self.direct_name is not None:
            writer.align(2)
            writer.put(encode_text(self.direct_name, "a direct name"))
            return
        assert self.guid is not None
        if self.format_type is not FormatType.PUBLIC or align_public:
            writer.align(4)
        writer.put(self.guid.bytes_le)
        if self.number is not None:
            writer.put(_U32.pack(self.number))


@dataclass(frozen=True, slots=True)
class AddressHeader:
    """MQFAddressHeader, 2.2.20.2: a list of queues."""

    elements: tuple[FormatNameElement, ...] = ()
    reserved: int = 0
    # The specification does not say whether a public GUID is aligned, or whether HeaderSize counts the last padding.
    align_public: bool = field(default=False, compare=False)
    header_size: int = field(default=0, compare=False, repr=False)
    padding: bytes = field(default=b"", compare=False, repr=False)

    @classmethod
    def decode(cls, reader: Reader, expected: SectionId) -> AddressHeader:
        start = reader.offset
        size, section_id, reserved, count = reader.unpack(_ADDRESS, "MQFAddressHeader")
        if section_id != expected:
            raise RemoteProtocolError(f"section must be {expected:#06x}, got {section_id:#06x}", start + 4)
        if size < _ADDRESS.size or start + size > reader.end:
            raise RemoteProtocolError(f"HeaderSize {size} does not fit its packet", start)
        if count > size:  # limits the loop: the shortest element is longer than a byte
            raise RemoteProtocolError(f"{count} elements do not fit a HeaderSize of {size}", start + 8)
        if count > MAX_ELEMENTS:
            raise RemoteProtocolError(f"a list of {count} queues is longer than {MAX_ELEMENTS}", start + 8)
        fault: RemoteProtocolError | None = None
        for align_public in (False, True):
            attempt = Reader(reader.data, reader.offset, start + size)
            try:
                elements = tuple(FormatNameElement.decode(attempt, align_public) for _ in range(count))
                if aligned(attempt.offset) != aligned(start + size):
                    raise RemoteProtocolError(f"HeaderSize {size} is larger than its {count} elements", attempt.offset)
            except RemoteProtocolError as error:
                fault = fault or error
                continue
            attempt.end = reader.end
            attempt.align(4, "MQFAddressHeader")
            reader.offset = attempt.offset
            return cls(elements, reserved, align_public, size, attempt.padding())
        assert fault is not None
        raise fault

    def encode(self, writer: Writer, section_id: SectionId) -> None:
        if len(self.elements) > MAX_ELEMENTS:
            raise LocalProtocolError(f"a list of {len(self.elements)} queues is longer than {MAX_ELEMENTS}")
        body = Writer()
        body.size = writer.size + _ADDRESS.size  # alignment counts from the packet's start
        body.keep_padding(self.padding)
        for element in self.elements:
            element.encode(body, self.align_public)
        body.align(4)
        size = body.size - writer.size
        if aligned(self.header_size) == size:
            size = self.header_size
        writer.put(_ADDRESS.pack(size, section_id, self.reserved, len(self.elements)))
        writer.put(body.getvalue())


@dataclass(frozen=True, slots=True)
class MultiQueueFormatHeader:
    """Three lists of queues and one signature over them."""

    destination: AddressHeader = AddressHeader()
    administration: AddressHeader = AddressHeader()
    response: AddressHeader = AddressHeader()
    signature: bytes = b""
    signature_reserved: int = 0
    padding: bytes = field(default=b"", compare=False, repr=False)

    @classmethod
    def decode(cls, reader: Reader) -> MultiQueueFormatHeader:
        destination, administration, response = (AddressHeader.decode(reader, section) for section in _SECTIONS)
        start = reader.offset
        section_id, reserved, size = reader.unpack(_SIGNATURE, "MQFSignatureHeader")
        if section_id != SectionId.SIGNATURE:
            raise RemoteProtocolError(f"section must be {SectionId.SIGNATURE:#06x}, got {section_id:#06x}", start)
        signature = reader.take(size, "MQFSignatureHeader.Signature")
        reader.align(4, "MQFSignatureHeader")
        return cls(destination, administration, response, signature, reserved, reader.padding())

    def encode(self, writer: Writer) -> None:
        for section, addresses in zip(_SECTIONS, (self.destination, self.administration, self.response), strict=True):
            addresses.encode(writer, section)
        writer.keep_padding(self.padding)
        writer.put(_SIGNATURE.pack(SectionId.SIGNATURE, self.signature_reserved, len(self.signature)))
        writer.put(self.signature)
        writer.align(4)
