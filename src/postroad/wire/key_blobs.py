"""PUBLICKEYBLOB and SIMPLEBLOB, [MS-MQQB] 2.4: RSA keys and session keys as Windows exports them, little-endian."""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct

from postroad.errors import RemoteProtocolError
from postroad.wire.constants import EncryptionAlgorithm

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
        """bitLen: eight times the octets of the modulus, k in [RFC8017] 2."""
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
