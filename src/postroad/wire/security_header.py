"""SecurityHeader, [MS-MQMQ] 2.2.20.6: the sender, the signature, the key. Nothing is verified here."""

from __future__ import annotations

from dataclasses import dataclass, field
from struct import Struct

from postroad.errors import LocalProtocolError, RemoteProtocolError
from postroad.wire.constants import MAX_CERTIFICATE_SIZE, SecurityFlags, SenderIdType
from postroad.wire.layout import Reader, Writer, encode_text, terminated_text

LAYOUT = Struct("<HHHHII")
_PROVIDER_TYPE = Struct("<I")
_ITEMS = ("SecurityID", "EncryptionKey", "Signature", "SenderCert", "ProviderInfo")
_SIZES_BY_SENDER_ID_TYPE = {SenderIdType.NONE.value: 0, SenderIdType.QUEUE_MANAGER.value: 16}  # a SID can have any size


@dataclass(frozen=True, slots=True)
class ProviderInfo:
    """The cryptographic provider of a signature, if it is not the default one."""

    provider_type: int
    provider_name: str

    @classmethod
    def decode(cls, data: bytes) -> ProviderInfo:
        if len(data) < _PROVIDER_TYPE.size:
            raise RemoteProtocolError("ProviderInfo is shorter than its type")
        (provider_type,) = _PROVIDER_TYPE.unpack_from(data)
        return cls(provider_type, terminated_text(data[_PROVIDER_TYPE.size :], "ProviderName", _PROVIDER_TYPE.size))

    def encode(self) -> bytes:
        return _PROVIDER_TYPE.pack(self.provider_type) + encode_text(self.provider_name, "ProviderName")


def security_header_end(data: bytes, offset: int, end: int) -> int:
    """Checks a SecurityHeader and returns the offset of the header after it."""
    if offset + LAYOUT.size > end:
        raise RemoteProtocolError("SecurityHeader is cut off", min(offset, end))
    flags, sender_id, key, signature, certificate, provider = LAYOUT.unpack_from(data, offset)
    sender_id_type = flags & 0x0F
    if sender_id_type > 2:
        raise RemoteProtocolError(f"sender id type {sender_id_type} is not defined", offset)
    if sender_id_type != 1 and sender_id != _SIZES_BY_SENDER_ID_TYPE[sender_id_type]:
        raise RemoteProtocolError(f"a sender id of type {sender_id_type} cannot have {sender_id} bytes", offset + 2)
    if certificate > MAX_CERTIFICATE_SIZE:
        raise RemoteProtocolError(
            f"SenderCertSize must be at most {MAX_CERTIFICATE_SIZE}, got {certificate}", offset + 8
        )
    if not (sender_id or key or signature or certificate or provider):
        raise RemoteProtocolError("a SecurityHeader must have data, but all of its sizes are 0", offset + 2)
    stop: int = (
        offset
        + LAYOUT.size
        + (sender_id + 3 & ~3)
        + (key + 3 & ~3)
        + (signature + 3 & ~3)
        + (certificate + 3 & ~3)
        + (provider + 3 & ~3)
    )
    if stop > end:
        raise RemoteProtocolError(f"SecurityHeader of {stop - offset} bytes is longer than its packet", offset)
    return stop


@dataclass(frozen=True, slots=True)
class SecurityHeader:
    """The five items of SecurityData. An empty item takes no space. The sizes count, not the flag AI."""

    flags: int = 0
    security_id: bytes = b""
    encryption_key: bytes = b""
    signature: bytes = b""
    sender_certificate: bytes = b""
    provider_info: bytes = b""
    padding: bytes = field(default=b"", compare=False, repr=False)

    @property
    def sender_id_type(self) -> SenderIdType:
        return SenderIdType(self.flags & SecurityFlags.SENDER_ID_TYPE)

    @property
    def encrypted_body(self) -> bool:
        return bool(self.flags & SecurityFlags.ENCRYPTED_BODY)

    @property
    def default_provider(self) -> bool:
        return bool(self.flags & SecurityFlags.DEFAULT_PROVIDER)

    @classmethod
    def decode(cls, reader: Reader) -> SecurityHeader:
        security_header_end(reader.data, reader.offset, reader.end)
        flags, *sizes = reader.unpack(LAYOUT, "SecurityHeader")
        security_id, key, signature, certificate, provider = map(reader.padded, sizes, _ITEMS)
        return cls(flags, security_id, key, signature, certificate, provider, reader.padding())

    def encode(self, writer: Writer) -> None:
        items = (self.security_id, self.encryption_key, self.signature, self.sender_certificate, self.provider_info)
        sizes = [len(item) for item in items]
        if not any(sizes):
            raise LocalProtocolError("a SecurityHeader must have a sender id, a key, a signature or a certificate")
        if max(sizes[:4]) > MAX_CERTIFICATE_SIZE:
            raise LocalProtocolError(f"an item of a SecurityHeader must have at most {MAX_CERTIFICATE_SIZE} bytes")
        sender_id_type = self.sender_id_type
        if sizes[0] != _SIZES_BY_SENDER_ID_TYPE.get(sender_id_type, sizes[0]):
            raise LocalProtocolError(f"a sender id of type {sender_id_type.name} cannot have {sizes[0]} bytes")
        writer.keep_padding(self.padding)
        writer.put(LAYOUT.pack(self.flags, *sizes))
        for item in items:
            writer.put(item)
            writer.align(4)
