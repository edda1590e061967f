"""The hashes, ciphers and providers of message security, by the configuration's words and the packet's numbers.

[MS-MQMQ] 2.2.19.3 and [MS-MQQB] 3.1.7.1.5. The configuration decides which are accepted. The libraries for old
algorithms are imported at their first use.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Final

from cryptography.hazmat.primitives.ciphers import Cipher as LibraryCipher
from cryptography.hazmat.primitives.ciphers import algorithms, modes
from cryptography.hazmat.primitives.padding import PKCS7

from postroad.errors import PostroadError, VendorStatus
from postroad.wire.constants import EncryptionAlgorithm, HashAlgorithm, PrivacyLevel
from postroad.wire.records import ProviderType

DEFAULT_HASHES: Final = ("sha512", "sha256")
DEFAULT_CIPHERS: Final = ("aes256", "aes192", "aes128")
DEFAULT_HASH: Final = "sha512"
DEFAULT_CIPHER: Final = "aes256"
MIN_RSA_BITS: Final = 1024  # shorter keys are refused for every purpose
_WEAK_KEY_SIZE: Final = 5  # bytes: the 40 bits of the Base provider


class MissingLibrary(PostroadError):
    """The library for an old algorithm is not installed."""

    status = VendorStatus.CONFIGURATION


def _need_legacy(what: str) -> None:
    if find_spec("Cryptodome") is None:
        raise MissingLibrary(f"{what} needs pycryptodomex; run pip install 'postroad[legacy]'")


@dataclass(frozen=True, slots=True)
class Hash:
    """`prefix` is the DigestInfo of [RFC8017] 9.2 up to the digest."""

    word: str
    number: HashAlgorithm
    prefix: bytes
    compute: Callable[[bytes], bytes]
    legacy: bool = False

    def digest_info(self, data: bytes) -> bytes:
        return self.prefix + self.compute(data)

    def check_available(self) -> None:
        """Raises MissingLibrary if the hash cannot be computed."""
        if self.legacy:
            _need_legacy(f"the hash {self.word}")


def _md4(data: bytes) -> bytes:
    _need_legacy("the hash md4")
    from Cryptodome.Hash import MD4

    return MD4.new(data).digest()


def _md2(data: bytes) -> bytes:
    _need_legacy("the hash md2")
    from Cryptodome.Hash import MD2

    return MD2.new(data).digest()


def _prefix(text: str) -> bytes:
    return bytes.fromhex(text)


_HASHES = (
    Hash(
        "sha512",
        HashAlgorithm.SHA512,
        _prefix("3051300d060960864801650304020305000440"),
        lambda data: hashlib.sha512(data).digest(),
    ),
    Hash(
        "sha256",
        HashAlgorithm.SHA256,
        _prefix("3031300d060960864801650304020105000420"),
        lambda data: hashlib.sha256(data).digest(),
    ),
    Hash(
        "sha1",
        HashAlgorithm.SHA1,
        _prefix("3021300906052b0e03021a05000414"),
        lambda data: hashlib.sha1(data, usedforsecurity=False).digest(),
    ),
    Hash(
        "md5",
        HashAlgorithm.MD5,
        _prefix("3020300c06082a864886f70d020505000410"),
        lambda data: hashlib.md5(data, usedforsecurity=False).digest(),
    ),
    Hash("md4", HashAlgorithm.MD4, _prefix("3020300c06082a864886f70d020405000410"), _md4, legacy=True),
    Hash("md2", HashAlgorithm.MD2, _prefix("3020300c06082a864886f70d020205000410"), _md2, legacy=True),
)
HASHES: Final = {each.word: each for each in _HASHES}
HASHES_BY_NUMBER: Final = {int(each.number): each for each in _HASHES}


class DecryptionFailed(Exception):
    """The bytes were not encrypted with this key."""


@dataclass(frozen=True, slots=True)
class Cipher:
    """CBC with a zero IV and PKCS #5 padding. A cipher with `block_size` 0 is a stream cipher."""

    word: str
    number: EncryptionAlgorithm
    key_size: int
    block_size: int
    level: PrivacyLevel  # of the provider that a sender uses with it

    def encrypt(self, key: bytes, data: bytes) -> bytes:
        if not self.block_size:
            return self._transform(key, data, decrypt=False)
        padder = PKCS7(8 * self.block_size).padder()
        return self._transform(key, padder.update(data) + padder.finalize(), decrypt=False)

    def decrypt(self, key: bytes, data: bytes) -> bytes:
        """Raises DecryptionFailed."""
        if not self.block_size:
            return self._transform(key, data, decrypt=True)
        if not data or len(data) % self.block_size:
            raise DecryptionFailed
        padded = self._transform(key, data, decrypt=True)
        unpadder = PKCS7(8 * self.block_size).unpadder()
        try:
            return unpadder.update(padded) + unpadder.finalize()
        except ValueError:
            raise DecryptionFailed from None

    def check_available(self) -> None:
        """Raises MissingLibrary if the cipher cannot be used. RC2 needs a library for the 40-bit keys of some peers."""
        if self.number is EncryptionAlgorithm.RC2:
            _need_legacy("the cipher rc2")

    def _transform(self, key: bytes, data: bytes, *, decrypt: bool) -> bytes:
        if self.number is EncryptionAlgorithm.RC2:
            # The effective key length is the length of the key, [RFC2268].
            _need_legacy("the cipher rc2")
            from Cryptodome.Cipher import ARC2

            rc2 = ARC2.new(  # its type hints lack the argument
                key,
                ARC2.MODE_CBC,
                bytes(self.block_size),
                effective_keylen=8 * len(key),  # type: ignore[call-arg]
            )
            return rc2.decrypt(data) if decrypt else rc2.encrypt(data)
        if self.number is EncryptionAlgorithm.RC4:
            from cryptography.hazmat.decrepit.ciphers.algorithms import ARC4

            stream = LibraryCipher(ARC4(key), mode=None).encryptor()  # decryption is the same
            return stream.update(data) + stream.finalize()
        blocks = LibraryCipher(algorithms.AES(key), modes.CBC(bytes(self.block_size)))
        context = blocks.decryptor() if decrypt else blocks.encryptor()
        return context.update(data) + context.finalize()


_CIPHERS = (
    Cipher("aes256", EncryptionAlgorithm.AES_256, 32, 16, PrivacyLevel.ADVANCED),
    Cipher("aes192", EncryptionAlgorithm.AES_192, 24, 16, PrivacyLevel.ADVANCED),
    Cipher("aes128", EncryptionAlgorithm.AES_128, 16, 16, PrivacyLevel.ADVANCED),
    Cipher("rc4", EncryptionAlgorithm.RC4, 16, 0, PrivacyLevel.ENHANCED),
    Cipher("rc2", EncryptionAlgorithm.RC2, 16, 8, PrivacyLevel.ENHANCED),
)
CIPHERS: Final = {each.word: each for each in _CIPHERS}
CIPHERS_BY_NUMBER: Final = {int(each.number): each for each in _CIPHERS}


@dataclass(frozen=True, slots=True)
class Provider:
    """A cryptographic service provider. Its PrivacyLevel chooses the receiver's key, [MS-MQQB] 3.1.5.8.3."""

    level: PrivacyLevel
    name: str
    provider_type: ProviderType

    def fits(self, cipher: Cipher) -> bool:
        """Whether the provider has the cipher, [MS-MQMQ] 2.2.19.3: AES at level 5, RC2 and RC4 at the other levels."""
        return (self.level is PrivacyLevel.ADVANCED) == (cipher.level is PrivacyLevel.ADVANCED)

    def key_size(self, cipher: Cipher) -> int:
        return _WEAK_KEY_SIZE if self.level is PrivacyLevel.BASE else cipher.key_size


ADVANCED: Final = Provider(
    PrivacyLevel.ADVANCED, "Microsoft Enhanced RSA and AES Cryptographic Provider", ProviderType.RSA_AES
)
ENHANCED: Final = Provider(
    PrivacyLevel.ENHANCED, "Microsoft Enhanced Cryptographic Provider v1.0", ProviderType.RSA_FULL
)
BASE: Final = Provider(PrivacyLevel.BASE, "Microsoft Base Cryptographic Provider v1.0", ProviderType.RSA_FULL)
PROVIDERS: Final = {int(each.level): each for each in (ADVANCED, ENHANCED, BASE)}
# Other names that Windows uses for these providers, or for providers with the same RSA signatures.
_OTHER_NAMES = (
    "Microsoft AES Cryptographic Provider",
    "Microsoft Strong Cryptographic Provider",
    "Microsoft RSA SChannel Cryptographic Provider",
)


def _plain(name: str) -> str:
    """The name without variants: peers write it with and without a comma, and with `v1.0` or `1.0`."""
    return name.lower().replace(",", "").replace("v1.0", "1.0").removesuffix(" (prototype)").strip()


_PROVIDERS_BY_NAME = {_plain(each.name): each for each in PROVIDERS.values()}
_KNOWN_NAMES = frozenset({*_PROVIDERS_BY_NAME, *map(_plain, _OTHER_NAMES)})


def provider_named(name: str) -> Provider | None:
    """The provider with this name, for a published key."""
    return _PROVIDERS_BY_NAME.get(_plain(name))


def is_known_provider(name: str) -> bool:
    """Whether we understand the signatures and keys of this provider."""
    return _plain(name) in _KNOWN_NAMES
