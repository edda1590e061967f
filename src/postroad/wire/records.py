"""Small structures outside of packets: keys, addresses, sequences, multicast groups and certificates.

[MS-MQMQ] 2.2.1 to 2.2.5, 2.2.10, 2.2.21 and 2.2.22. The marshalling of RPC is elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from hashlib import md5
from ipaddress import IPv4Address
from struct import Struct
from uuid import UUID

from postroad.errors import LocalProtocolError, RemoteProtocolError
from postroad.names import MulticastId
from postroad.wire.key_blobs import PublicKeyBlob
from postroad.wire.layout import Reader, encode_text

_U32 = Struct("<I")
_PUBLIC_KEY = Struct("<III")
_PUBLIC_KEYS = Struct("<II")
_TA_ADDRESS = Struct("<HH")
_SEQUENCE_INFO = Struct("<qII")
_MULTICAST_ID = Struct("<II")
_USER_CERTIFICATE = Struct("<16s16sI")


def _refuse_rest(reader: Reader, what: str) -> None:
    if reader.offset != reader.end:
        raise RemoteProtocolError(
            f"{what} must end here, but {reader.end - reader.offset} more bytes follow", reader.offset
        )


class ProviderType(IntEnum):
    """ulProviderType, 2.2.1"""

    RSA_FULL = 0x01
    RSA_AES = 0x18


@dataclass(frozen=True, slots=True)
class DsPublicKey:
    """MQDSPUBLICKEY, 2.2.1: a key and the provider that made it."""

    provider_type: ProviderType
    provider_name: str
    key: bytes

    @property
    def key_blob(self) -> PublicKeyBlob:
        """The key as numbers. Raises RemoteProtocolError if `key` is not an RSA exchange key."""
        return PublicKeyBlob.decode(self.key)

    @classmethod
    def read(cls, reader: Reader) -> DsPublicKey:
        start = reader.offset
        key_size, provider_size, code = reader.unpack(_PUBLIC_KEY, "MQDSPUBLICKEY")
        try:
            provider_type = ProviderType(code)
        except ValueError:
            raise RemoteProtocolError(f"provider type {code:#x} is not defined", start + 8) from None
        provider = reader.text(provider_size, "sProviderName")
        return cls(provider_type, provider, reader.take(key_size, "aBuf"))

    def encode(self) -> bytes:
        provider = encode_text(self.provider_name, "a provider name")
        return _PUBLIC_KEY.pack(len(self.key), len(provider), self.provider_type) + provider + self.key


def decode_public_keys(data: bytes) -> tuple[DsPublicKey, ...]:
    """MQDSPUBLICKEYS, 2.2.2"""
    reader = Reader(data, 0, len(data))
    size, count = reader.unpack(_PUBLIC_KEYS, "MQDSPUBLICKEYS")
    if size != len(data):
        raise RemoteProtocolError(f"ulLen {size} does not fit the {len(data)} bytes here", 0)
    keys = tuple(DsPublicKey.read(reader) for _ in range(count))  # each key takes bytes, so the data limits the loop
    _refuse_rest(reader, f"the {count} keys of MQDSPUBLICKEYS")
    return keys


def encode_public_keys(keys: Sequence[DsPublicKey]) -> bytes:
    packed = b"".join(key.encode() for key in keys)
    return _PUBLIC_KEYS.pack(_PUBLIC_KEYS.size + len(packed), len(keys)) + packed


class AddressType(IntEnum):
    """TA_ADDRESS, 2.2.4"""

    IP = 1
    IP_RAS = 2
    IPX = 3
    FOREIGN = 5


_ADDRESS_SIZES = {AddressType.IP: 4, AddressType.IP_RAS: 4, AddressType.IPX: 10, AddressType.FOREIGN: 16}


@dataclass(frozen=True, slots=True)
class TaAddress:
    """TA_ADDRESS, 2.2.4: where a queue manager can be reached."""

    address_type: AddressType
    address: bytes

    @property
    def ip(self) -> IPv4Address:
        return IPv4Address(self.address)

    @property
    def ipx(self) -> tuple[bytes, bytes]:
        """Network number and node number."""
        return self.address[:4], self.address[4:]

    @property
    def foreign(self) -> UUID:
        return UUID(bytes_le=self.address)

    @classmethod
    def read(cls, reader: Reader) -> TaAddress:
        start = reader.offset
        size, code = reader.unpack(_TA_ADDRESS, "TA_ADDRESS")
        try:
            address_type = AddressType(code)
        except ValueError:
            raise RemoteProtocolError(f"address type {code} is not defined", start + 2) from None
        if size != _ADDRESS_SIZES[address_type]:
            raise RemoteProtocolError(f"an {address_type.name} address cannot have {size} bytes", start)
        return cls(address_type, reader.take(size, "Address"))

    def encode(self) -> bytes:
        if len(self.address) != _ADDRESS_SIZES[self.address_type]:
            raise LocalProtocolError(f"an {self.address_type.name} address cannot have {len(self.address)} bytes")
        return _TA_ADDRESS.pack(len(self.address), self.address_type) + self.address


def decode_addresses(data: bytes) -> tuple[TaAddress, ...]:
    """The packed array of PROPID_QM_ADDRESS."""
    reader = Reader(data, 0, len(data))
    addresses = []
    while reader.offset < reader.end:
        addresses.append(TaAddress.read(reader))
    return tuple(addresses)


@dataclass(frozen=True, slots=True)
class SequenceInfo:
    """SEQUENCE_INFO, 2.2.5: a position in a sequence of transactional messages."""

    sequence_id: int = 0
    sequence_number: int = 0
    previous_number: int = 0

    @classmethod
    def decode(cls, data: bytes) -> SequenceInfo:
        if len(data) != _SEQUENCE_INFO.size:
            raise RemoteProtocolError(
                f"SEQUENCE_INFO must have {_SEQUENCE_INFO.size} bytes, got {len(data)}", len(data)
            )
        return cls(*_SEQUENCE_INFO.unpack(data))

    def encode(self) -> bytes:
        return _SEQUENCE_INFO.pack(self.sequence_id, self.sequence_number, self.previous_number)


def decode_multicast_id(data: bytes) -> MulticastId:
    """MULTICAST_ID, 2.2.10"""
    if len(data) != _MULTICAST_ID.size:
        raise RemoteProtocolError(f"MULTICAST_ID must have {_MULTICAST_ID.size} bytes, got {len(data)}", len(data))
    return MulticastId(*_MULTICAST_ID.unpack(data))


def encode_multicast_id(multicast: MulticastId) -> bytes:
    return _MULTICAST_ID.pack(multicast.address, multicast.port)


@dataclass(frozen=True, slots=True)
class UserSignCertificate:
    """MQUSERSIGNCERT, 2.2.22: a user's certificate with its MD5 digest. The digest is not checked here."""

    digest: bytes
    identifier: UUID
    certificate: bytes

    @classmethod
    def of(cls, identifier: UUID, certificate: bytes) -> UserSignCertificate:
        """A certificate to be registered under an identifier of the caller's choice."""
        return cls(md5(certificate, usedforsecurity=False).digest(), identifier, certificate)

    @classmethod
    def read(cls, reader: Reader) -> UserSignCertificate:
        digest, identifier, size = reader.unpack(_USER_CERTIFICATE, "MQUSERSIGNCERT")
        return cls(digest, UUID(bytes_le=identifier), reader.take(size, "Certificate"))

    def encode(self) -> bytes:
        return _USER_CERTIFICATE.pack(self.digest, self.identifier.bytes_le, len(self.certificate)) + self.certificate


def decode_user_certificates(data: bytes) -> tuple[UserSignCertificate, ...]:
    """MQUSERSIGNCERTS, 2.2.21"""
    reader = Reader(data, 0, len(data))
    (count,) = reader.unpack(_U32, "MQUSERSIGNCERTS")
    certificates = tuple(UserSignCertificate.read(reader) for _ in range(count))
    _refuse_rest(reader, f"the {count} certificates of MQUSERSIGNCERTS")
    return certificates


def encode_user_certificates(certificates: Sequence[UserSignCertificate]) -> bytes:
    return _U32.pack(len(certificates)) + b"".join(certificate.encode() for certificate in certificates)
