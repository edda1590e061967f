"""MessagePropertiesHeader, [MS-MQMQ] 2.2.19.3: label, extension, body and their properties."""

from __future__ import annotations

from dataclasses import dataclass, field
from struct import Struct

from postroad.errors import LocalProtocolError
from postroad.wire.constants import MAX_LABEL_UNITS, BodyType, EncryptionAlgorithm, HashAlgorithm
from postroad.wire.layout import Reader, Writer, encode_text

LAYOUT = Struct("<BBH20sIIIIIIII")
NO_CORRELATION = bytes(20)


@dataclass(frozen=True, slots=True)
class MessagePropertiesHeader:
    """`body` has AllocationBodySize bytes. An encrypted body is longer than `message_size`."""

    body: bytes = b""
    label: str = ""
    extension: bytes = b""
    flags: int = 0
    message_class: int = 0
    correlation_id: bytes = NO_CORRELATION
    body_type: int = BodyType.VT_EMPTY
    application_tag: int = 0
    privacy_level: int = 0
    hash_algorithm: int = HashAlgorithm.SHA1
    encryption_algorithm: int = EncryptionAlgorithm.RC4
    message_size: int | None = None
    # We write the label "" without any unit. A terminator alone is also legal on the wire.
    lone_terminator: bool = field(default=False, compare=False, repr=False)
    padding: bytes = field(default=b"", compare=False, repr=False)

    @classmethod
    def decode(cls, reader: Reader) -> MessagePropertiesHeader:
        flags, units, message_class, correlation_id, body_type, tag, size, allocated, privacy, hashing, cipher, ext = (
            reader.unpack(LAYOUT, "MessagePropertiesHeader")
        )
        label = reader.text(2 * units, "Label") if units else ""
        extension = reader.take(ext, "ExtensionData")
        body = reader.take(allocated, "MessageBody")
        reader.align(4, "MessagePropertiesHeader")
        return cls(
            body=body,
            label=label,
            extension=extension,
            flags=flags,
            message_class=message_class,
            correlation_id=correlation_id,
            body_type=body_type,
            application_tag=tag,
            privacy_level=privacy,
            hash_algorithm=hashing,
            encryption_algorithm=cipher,
            message_size=size,
            lone_terminator=units == 1,
            padding=reader.padding(),
        )

    def encode(self, writer: Writer) -> None:
        label = encode_text(self.label, "a label") if self.label or self.lone_terminator else b""
        if len(label) > 2 * MAX_LABEL_UNITS:
            raise LocalProtocolError(
                f"a label must have at most {MAX_LABEL_UNITS - 1} characters, got {len(label) // 2 - 1}"
            )
        if len(self.correlation_id) != len(NO_CORRELATION):
            raise LocalProtocolError(f"a correlation id must have 20 bytes, got {len(self.correlation_id)}")
        size = len(self.body) if self.message_size is None else self.message_size
        if size > len(self.body):
            raise LocalProtocolError(f"MessageSize must be at most the {len(self.body)} bytes of the body, got {size}")
        writer.keep_padding(self.padding)
        writer.put(
            LAYOUT.pack(
                self.flags,
                len(label) // 2,
                self.message_class,
                self.correlation_id,
                self.body_type,
                self.application_tag,
                size,
                len(self.body),
                self.privacy_level,
                self.hash_algorithm,
                self.encryption_algorithm,
                len(self.extension),
            )
        )
        writer.put(label)
        writer.put(self.extension)
        writer.put(self.body)
        writer.align(4)
