"""Small structures outside of packets: keys, addresses, sequences, multicast groups and certificates.

[MS-MQMQ] 2.2.1 to 2.2.5, 2.2.10, 2.2.21 and 2.2.22. RPC marshalling is elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from hashlib import md5
from ipaddress import IPv4Address
from struct import Struct
from typing import Self
from uuid import UUID

from postroad.errors import LocalProtocolError, RemoteProtocolError
from postroad.names import MulticastId
from postroad.wire.constants import EncryptionAlgorithm, MessageClass
from postroad.wire.octets import Reader, encode_text
from postroad.wire.view import MessageView

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
    """MQUSERSIGNCERT, 2.2.22: a user's certificate with its MD5 digest, which is not checked here."""

    digest: bytes
    identifier: UUID
    certificate: bytes

    @classmethod
    def of(cls, identifier: UUID, certificate: bytes) -> UserSignCertificate:
        """A certificate to be registered under an identifier that the caller chooses."""
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


# PUBLICKEYBLOB and SIMPLEBLOB, [MS-MQQB] 2.4: RSA keys and session keys as Windows exports them, little-endian.


_PUBLIC = Struct("<12sII")
_PUBLIC_PREFIX = bytes.fromhex("0602000000a4000052534131")
_SIMPLE = Struct("<4sI4s")
_SIMPLE_PREFIX = bytes.fromhex("01020000")
_SIMPLE_KEY_TYPE = bytes.fromhex("00a40000")


@dataclass(frozen=True, slots=True)
class PublicKeyBlob:
    """An RSA key for key exchange."""

    modulus: int
    public_exponent: int

    @property
    def bit_length(self) -> int:
        """bitLen: eight times the number of octets in the modulus, k in [RFC8017] 2."""
        return -(-self.modulus.bit_length() // 8) * 8

    @classmethod
    def decode(cls, data: bytes) -> PublicKeyBlob:
        if len(data) <= _PUBLIC.size:
            raise RemoteProtocolError("PUBLICKEYBLOB is cut off", len(data))
        prefix, bits, exponent = _PUBLIC.unpack_from(data)
        if prefix != _PUBLIC_PREFIX:
            raise RemoteProtocolError("PUBLICKEYBLOB must start with the mark of an RSA exchange key", 0)
        blob = cls(int.from_bytes(data[_PUBLIC.size :], "little"), exponent)
        if not bits == blob.bit_length == 8 * (len(data) - _PUBLIC.size):
            raise RemoteProtocolError(
                f"a modulus of {bits} bits does not fit the {len(data) - _PUBLIC.size} bytes of the blob", 12
            )
        return blob

    def encode(self) -> bytes:
        modulus = self.modulus.to_bytes(self.bit_length // 8, "little")
        return _PUBLIC.pack(_PUBLIC_PREFIX, self.bit_length, self.public_exponent) + modulus


@dataclass(frozen=True, slots=True)
class SimpleBlob:
    """A session key, encrypted with the receiver's RSA key. `encrypted_key` is in the wire's little-endian order."""

    session_key_algorithm: EncryptionAlgorithm
    encrypted_key: bytes

    @property
    def rsa_octets(self) -> bytes:
        """The RSA octet string, [RFC8017] 4: the same bytes in reverse order."""
        return self.encrypted_key[::-1]

    @classmethod
    def decode(cls, data: bytes) -> SimpleBlob:
        if len(data) <= _SIMPLE.size:
            raise RemoteProtocolError("SIMPLEBLOB is cut off", len(data))
        prefix, algorithm, key_type = _SIMPLE.unpack_from(data)
        if prefix != _SIMPLE_PREFIX or key_type != _SIMPLE_KEY_TYPE:
            raise RemoteProtocolError("SIMPLEBLOB must start with the mark of an RSA-encrypted session key", 0)
        try:
            return cls(EncryptionAlgorithm(algorithm), data[_SIMPLE.size :])
        except ValueError:
            raise RemoteProtocolError(f"session key algorithm {algorithm:#010x} is not defined", 4) from None

    def encode(self) -> bytes:
        return _SIMPLE.pack(_SIMPLE_PREFIX, self.session_key_algorithm, _SIMPLE_KEY_TYPE) + self.encrypted_key


# Trace reports, [MS-MQQB] 3.1.5.8.9 and 3.1.7.1.7: managers report a traced message in a label and a body.


MESSAGE_ID_TAG = "<MESSAGE ID>"
_LABEL = re.compile(r"([0-9A-Fa-f]{4}):([0-9A-Fa-f]{8}):([0-9A-Fa-f]{2})(?: .*)?", re.DOTALL)
_ELEMENT = re.compile(r"<(MESSAGE ID|TARGET QUEUE|NEXT HOP|HOP COUNT)>(.*?) *</\1>", re.DOTALL)


@dataclass(frozen=True, slots=True)
class TraceReport:
    """The message that a manager saw, its number of hops, and its destination.

    Only a manager that forwards a message reports a next hop.
    """

    manager_digits: str  # the first four hexadecimal digits of the source manager's GUID
    message_id: int
    hops: int
    target_queue: str | None = None
    next_hop: str | None = None

    @classmethod
    def of(cls, view: MessageView) -> Self | None:
        """The report in a message. None if the message is not a report in this grammar."""
        if view.message_class != MessageClass.REPORT or view.encrypted:
            return None
        label = _LABEL.fullmatch(view.label)
        if label is None:
            return None
        elements = dict(_ELEMENT.findall(view.body.decode("utf-16-le", "replace")))
        return cls(
            label[1].lower(),
            int(label[2], 16),
            int(label[3], 16),
            elements.get("TARGET QUEUE"),
            elements.get("NEXT HOP"),
        )

    def is_about(self, source: UUID, message_id: int) -> bool:
        return self.message_id == message_id and str(source).startswith(self.manager_digits)
