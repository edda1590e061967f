"""RSA keys in message security: the blobs of [MS-MQQB] 2.4, the keys that managers publish, and a manager's own.

The caller stores the files, and passes functions that make keys and random bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey, RSAPublicNumbers

from postroad.errors import InvalidArgument, RemoteProtocolError
from postroad.security.algorithms import ADVANCED, BASE, ENHANCED, MIN_RSA_BITS, Cipher, Provider, provider_named
from postroad.wire.constants import PrivacyLevel
from postroad.wire.records import DsPublicKey, PublicKeyBlob, SimpleBlob, decode_public_keys, encode_public_keys

RandomBytes: TypeAlias = Callable[[int], bytes]
MakeKey: TypeAlias = Callable[[int], RSAPrivateKey]  # the number of bits

DEFAULT_BITS: Final = 2048
_PUBLIC_EXPONENT: Final = 65_537
MAX_PREVIOUS: Final = 3  # each one costs an RSA operation for every message that cannot be decrypted
_KEY_TYPE_AT = slice(4, 8)
_EXCHANGE, _SIGNING = (0xA400).to_bytes(4, "little"), (0x2400).to_bytes(4, "little")  # [MS-MQMQ] 2.2.20.6
_PKCS1_OVERHEAD = 11  # [RFC8017] 7.2.1
_OWN = (ENHANCED, ADVANCED)  # not Base: a key of 512 bits protects nothing
_WORDS = {ADVANCED.level: "advanced", ENHANCED.level: "enhanced", BASE.level: "base"}
_LEVELS = {word: level for level, word in _WORDS.items()}
_LABEL, _BEGIN, _END = "provider: ", "-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----"


def make_private_key(bits: int) -> RSAPrivateKey:
    """A MakeKey that uses the library's randomness. It takes a tenth of a second or more."""
    return rsa.generate_private_key(_PUBLIC_EXPONENT, bits)


def public_key_der(key: RSAPublicKey) -> bytes:
    """The key in the form that `openssl rsa -pubout -outform DER` writes."""
    return key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)


def encode_public_key(key: RSAPublicKey, *, signing: bool = False) -> bytes:
    """A PUBLICKEYBLOB."""
    numbers = key.public_numbers()
    blob = PublicKeyBlob(numbers.n, numbers.e).encode()
    return blob[: _KEY_TYPE_AT.start] + (_SIGNING if signing else _EXCHANGE) + blob[_KEY_TYPE_AT.stop :]


def decode_public_key(blob: bytes, *, signing: bool = False) -> RSAPublicKey:
    """Raises RemoteProtocolError if the blob is not an RSA key of this kind."""
    if blob[_KEY_TYPE_AT] != (_SIGNING if signing else _EXCHANGE):
        kind = "signing" if signing else "exchange"
        raise RemoteProtocolError(f"PUBLICKEYBLOB must hold an RSA {kind} key", _KEY_TYPE_AT.start)
    numbers = PublicKeyBlob.decode(blob[: _KEY_TYPE_AT.start] + _EXCHANGE + blob[_KEY_TYPE_AT.stop :])
    try:
        return RSAPublicNumbers(numbers.public_exponent, numbers.modulus).public_key()
    except (ValueError, UnsupportedAlgorithm) as fault:
        raise RemoteProtocolError(f"PUBLICKEYBLOB holds no usable RSA key: {fault}") from None


def wrap_session_key(key: RSAPublicKey, cipher: Cipher, session_key: bytes, random_bytes: RandomBytes) -> bytes:
    """A SIMPLEBLOB: the session key under RSAES-PKCS1-v1_5, reversed.

    The padding is made here, because the library takes no random bytes from its caller.
    """
    numbers, size = key.public_numbers(), (key.key_size + 7) // 8
    missing = size - 3 - len(session_key)
    if missing < _PKCS1_OVERHEAD - 3:
        raise InvalidArgument(f"key: {key.key_size} bits are too few for a session key of {len(session_key)} bytes")
    padding = b""
    while len(padding) < missing:
        padding += random_bytes(missing).translate(None, b"\0")
    message = b"\0\2" + padding[:missing] + b"\0" + session_key
    octets = pow(int.from_bytes(message, "big"), numbers.e, numbers.n).to_bytes(size, "big")
    return SimpleBlob(cipher.number, octets[::-1]).encode()


def unwrap_session_key(key: RSAPrivateKey, blob: SimpleBlob) -> bytes:
    """The content of the blob. For a wrong key or a wrong blob it is random bytes, or none. Check the length, and never
    let a sender learn which of the two happened."""
    try:
        return key.decrypt(blob.rsa_octets, PKCS1v15())
    except ValueError:
        return b""


def peer_keys(public_keys: bytes, min_bits: int = MIN_RSA_BITS) -> dict[PrivacyLevel, RSAPublicKey]:
    """The exchange keys in an MQDSPUBLICKEYS that a sender can use. Raises RemoteProtocolError for other bytes.

    Leaves out keys of unknown providers, and keys that are too short.
    """
    found: dict[PrivacyLevel, RSAPublicKey] = {}
    for published in decode_public_keys(public_keys):
        provider = provider_named(published.provider_name)
        if provider is not None:
            key = decode_public_key(published.key)
            if key.key_size >= min_bits:
                found.setdefault(provider.level, key)
    return found


@dataclass(frozen=True, slots=True)
class KeyRing:
    """A manager's exchange keys by PrivacyLevel, the newest first. Only the newest are published."""

    keys: Mapping[PrivacyLevel, tuple[RSAPrivateKey, ...]]

    @classmethod
    def make(cls, make_key: MakeKey, bits: int = DEFAULT_BITS) -> KeyRing:
        return cls({provider.level: (make_key(bits),) for provider in _OWN})

    def rotated(self, make_key: MakeKey, bits: int = DEFAULT_BITS) -> KeyRing:
        """The ring with new keys. The previous ones still decrypt messages that are on their way."""
        return KeyRing(
            {
                provider.level: (make_key(bits), *self.keys.get(provider.level, ()))[: MAX_PREVIOUS + 1]
                for provider in _OWN
            }
        )

    def private_keys(self, provider: Provider) -> tuple[RSAPrivateKey, ...]:
        return self.keys.get(provider.level, ())

    @property
    def public_keys(self) -> bytes:
        """The MQDSPUBLICKEYS to publish. Its hexadecimal text is `public_keys` of a manager in `enterprise.toml`."""
        return self._published(signing=False)

    @property
    def signing_keys(self) -> bytes:
        """The same keys for signatures, as the directory's mSMQSignKey has them."""
        return self._published(signing=True)

    def _published(self, *, signing: bool) -> bytes:
        return encode_public_keys(
            [
                DsPublicKey(provider.provider_type, provider.name, encode_public_key(key.public_key(), signing=signing))
                for provider in _OWN
                for key in self.keys.get(provider.level, ())[:1]
            ]
        )

    def to_pem(self) -> str:
        """The private keys as text. The caller must store it where only the manager can read it."""
        return "".join(
            f"{_LABEL}{_WORDS[level]}\n{_private_pem(key)}" for level, keys in self.keys.items() for key in keys
        )

    @classmethod
    def from_pem(cls, text: str) -> KeyRing:
        """Raises InvalidArgument if this is not what `to_pem` wrote."""
        found: dict[PrivacyLevel, tuple[RSAPrivateKey, ...]] = {}
        for part in text.split(_LABEL)[1:]:
            first, _, pem = part.partition("\n")
            word = first.strip()
            level = _LEVELS.get(word)
            if level is None:
                raise InvalidArgument(f"keys: a provider must be one of {', '.join(_LEVELS)}, got {word[:40]!r}")
            found[level] = (*found.get(level, ()), _read_private(pem, word))
        if not found:
            raise InvalidArgument(f"keys: must have lines {_LABEL!r}, each followed by a private key, got none")
        return cls(found)


def _private_pem(key: RSAPrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode("ascii")


def _read_private(pem: str, word: str) -> RSAPrivateKey:
    if pem.count(_BEGIN) != 1 or _END not in pem:
        raise InvalidArgument(f"keys: one private key must follow the line {_LABEL}{word}, got {pem.count(_BEGIN)}")
    try:
        key = serialization.load_pem_private_key(pem.encode(), None)
    except (ValueError, UnsupportedAlgorithm):
        raise InvalidArgument(f"keys: the private key of the provider {word} cannot be read") from None
    if not isinstance(key, RSAPrivateKey):
        raise InvalidArgument(f"keys: the private key of the provider {word} must be an RSA key")
    return key
