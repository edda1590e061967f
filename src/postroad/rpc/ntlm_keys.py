"""NTLM's keys and signatures, [MS-NLMP] 3.3.2 and 3.4: NTLMv2 only, with extended session security and 128 bits.

It needs `cryptography` (the extra `auth`) for RC4. MD4 is implemented here, because neither `cryptography` nor hashlib
always has it.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from struct import Struct, pack, unpack
from typing import TYPE_CHECKING, Final

from postroad.errors import AuthenticationFailed

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers import CipherContext

SIGNATURE_SIZE: Final = 16
_SIGNATURE: Final = Struct("<I8sI")
_SIGNING: Final = "session key to {}-to-{} signing key magic constant\0"
_SEALING: Final = "session key to {}-to-{} sealing key magic constant\0"


def hmac_md5(key: bytes, *parts: bytes) -> bytes:
    return hmac.new(key, b"".join(parts), hashlib.md5).digest()


def rc4(key: bytes) -> CipherContext:
    from cryptography.hazmat.decrepit.ciphers.algorithms import ARC4
    from cryptography.hazmat.primitives.ciphers import Cipher

    return Cipher(ARC4(key), mode=None).encryptor()


def nt_hash(password: str) -> bytes:
    """NTOWFv1: the hash that stands for a password everywhere in NTLM."""
    return md4(password.encode("utf-16-le"))


def response_key(hashed: bytes, user: str, domain: str) -> bytes:
    """NTOWFv2"""
    return hmac_md5(hashed, (user.upper() + domain).encode("utf-16-le"))


class Direction:
    """Signing and sealing in one direction: two keys, the state of the stream cipher, and the next sequence number."""

    def __init__(self, session_key: bytes, sender: str, receiver: str, *, key_exchange: bool) -> None:
        self._sign_key = hashlib.md5(session_key + _SIGNING.format(sender, receiver).encode()).digest()
        self._seal_key = hashlib.md5(session_key + _SEALING.format(sender, receiver).encode()).digest()
        self._key_exchange = key_exchange
        self._sequence = 0
        self.reset()

    def reset(self) -> None:
        """Restarts the cipher but not the sequence number, as after a mechListMIC: [MS-SPNG] 3.2.5.1."""
        self._cipher = rc4(self._seal_key)

    def crypt(self, data: bytes) -> bytes:
        return self._cipher.update(data)

    def sign(self, *parts: bytes) -> bytes:
        """[MS-NLMP] 3.4.4.2. If the message is sealed, call `crypt` first: both use one key stream."""
        sequence = pack("<I", self._sequence)
        checksum = hmac_md5(self._sign_key, sequence, *parts)[:8]
        if self._key_exchange:
            checksum = self._cipher.update(checksum)
        signature = _SIGNATURE.pack(1, checksum, self._sequence)
        self._sequence = (self._sequence + 1) & 0xFFFFFFFF
        return signature

    def verify(self, signature: bytes, *parts: bytes) -> None:
        if not hmac.compare_digest(self.sign(*parts), signature):
            raise AuthenticationFailed("the signature is wrong")


def md4(data: bytes) -> bytes:
    """RFC 1320"""
    size = len(data)
    data += b"\x80" + bytes((55 - size) % 64) + pack("<Q", size * 8)
    state = [0x67452301, 0xEFCDAB89, 0x98BADCFE, 0x10325476]
    for start in range(0, len(data), 64):
        words = unpack("<16I", data[start : start + 64])
        a, b, c, d = state
        for order, shifts, constant, mix in _ROUNDS:
            for n, k in enumerate(order):
                value = (a + mix(b, c, d) + words[k] + constant) & 0xFFFFFFFF
                shift = shifts[n % 4]
                a, b, c, d = d, (value << shift | value >> (32 - shift)) & 0xFFFFFFFF, b, c
        state = [(old + new) & 0xFFFFFFFF for old, new in zip(state, (a, b, c, d), strict=True)]
    return pack("<4I", *state)


_Mix = Callable[[int, int, int], int]
_ROUNDS: Final[tuple[tuple[tuple[int, ...], tuple[int, ...], int, _Mix], ...]] = (
    (tuple(range(16)), (3, 7, 11, 19), 0, lambda x, y, z: (x & y) | (~x & z)),
    (
        (0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15),
        (3, 5, 9, 13),
        0x5A827999,
        lambda x, y, z: (x & y) | (x & z) | (y & z),
    ),
    ((0, 8, 4, 12, 2, 10, 6, 14, 1, 9, 5, 13, 3, 11, 7, 15), (3, 9, 11, 15), 0x6ED9EBA1, lambda x, y, z: x ^ y ^ z),
)
