"""Encrypted bodies, [MS-MQQB] 3.1.7.1.5 and 3.1.5.8.3: the body and the fields that describe it, nothing else.

A message is signed before it is encrypted, and decrypted before its signature is checked. Equal bodies under one
session key give equal ciphertext, because the protocol's initial value is zero.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable
from dataclasses import dataclass
from hmac import compare_digest
from typing import Final, Generic, TypeAlias, TypeVar

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey

from postroad.errors import LocalProtocolError, RemoteProtocolError
from postroad.security.algorithms import (
    CIPHERS_BY_NUMBER,
    DEFAULT_CIPHERS,
    PROVIDERS,
    Cipher,
    DecryptionFailed,
    Provider,
)
from postroad.security.keys import KeyRing, RandomBytes, unwrap_session_key, wrap_session_key
from postroad.security.refusals import Reason, Refused, bad_encryption
from postroad.wire.constants import EncryptionAlgorithm, PrivacyLevel, SecurityFlags
from postroad.wire.headers import ProviderInfo
from postroad.wire.records import SimpleBlob
from postroad.wire.security_patch import SecurityParts, encode_parts, security_parts, with_security
from postroad.wire.view import MessageView

# Bounded caches with lifetimes, [MS-MQQB] 3.1.1.3 and 3.1.6.10 to 3.1.6.13: session keys and certificates. They have no
# clock: callers pass `now` of a monotonic clock, so a step of the system's time keeps no key alive.


K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

# [MS-MQQB] 3.1.3.1
SEND_KEYS: Final = 53  # SendSymmetricKeyCacheSize
RECEIVE_KEYS: Final = 127  # ReceiveSymmetricKeyCacheSize
CERTIFICATES: Final = 53  # UserCertCacheSize
KEY_LIFETIME_S: Final = 600.0  # SymmetricKeyShortLifetime
CERTIFICATE_LIFETIME_S: Final = 1200.0  # UserCertLifetime
_CLEANUP_MARGIN_S: Final = 60.0  # 3.1.6.10: one minute past the lifetime of the oldest entry


class TimedCache(Generic[K, V]):
    """Never returns an entry after its lifetime, whether or not `cleanup` was called. A read does not renew an entry.

    `cleanup` may run in another thread than the rest. At worst it drops an entry that was just made again.
    """

    def __init__(self, size: int, lifetime_s: float) -> None:
        self._size = size
        self._lifetime_s = lifetime_s
        self._entries: dict[K, tuple[V, float]] = {}  # the oldest first

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: K, now: float) -> V | None:
        found = self._entries.get(key)
        if found is None:
            return None
        if now - found[1] > self._lifetime_s:
            self._entries.pop(key, None)
            return None
        return found[0]

    def put(self, key: K, value: V, now: float) -> None:
        """Adds an entry. A full cache first drops the older half of its entries, [MS-MQQB] 3.1.5.8.3."""
        self._entries.pop(key, None)
        if len(self._entries) >= self._size:
            for oldest in list(self._entries)[: self._size // 2]:
                self._entries.pop(oldest, None)
        self._entries[key] = value, now

    def clear(self) -> None:
        self._entries.clear()

    def cleanup(self, now: float) -> float | None:
        """Drops what is too old. Returns the seconds until the next cleanup, or None if nothing is left."""
        for key, (_, cached) in list(self._entries.items()):
            if now - cached <= self._lifetime_s:
                return self._lifetime_s + _CLEANUP_MARGIN_S - (now - cached)
            self._entries.pop(key, None)
        return None


_ENCRYPTED = SecurityFlags.ENCRYPTED_BODY.value
_DEFAULT_PROVIDER = SecurityFlags.DEFAULT_PROVIDER.value
_SECURITY_DATA = SecurityFlags.SECURITY_DATA.value
_NO_SECURITY: Final = SecurityParts(0, b"", b"", b"", b"", b"")
_PROVIDER_INFO: Final = {
    each.level: ProviderInfo(each.provider_type, each.name).encode() for each in PROVIDERS.values()
}
_NOT_DECRYPTED: Final = bad_encryption(Reason.NOT_DECRYPTED)
_ZERO_END = 11  # bytes: the 88 bits that fill a 40-bit RC2 key up to 128 bits

# SelectedCSP, EncryptionAlgorithm, SourceQueueManager, EncryptionKey: 3.1.5.8.3
ReceiveCache: TypeAlias = TimedCache[tuple[int, int, bytes, bytes], bytes]


@dataclass(frozen=True, slots=True)
class SessionKey:
    """A sender's CachedSymmetricKey, 3.1.1.3.3: the key, and the SIMPLEBLOB that carries it to the receiver."""

    provider: Provider
    cipher: Cipher
    key: bytes
    blob: bytes

    @classmethod
    def make(
        cls, provider: Provider, cipher: Cipher, public_key: RSAPublicKey, random_bytes: RandomBytes
    ) -> SessionKey:
        key = random_bytes(provider.key_size(cipher))
        return cls(provider, cipher, key, wrap_session_key(public_key, cipher, key, random_bytes))


def encrypt(view: MessageView, session: SessionKey) -> bytes:
    """Returns the packet with an encrypted body. MessageSize stays the plain size; AllocationBodySize becomes the
    encrypted size."""
    if view.encrypted:
        raise LocalProtocolError("the message is already encrypted")
    before = security_parts(view) or _NO_SECURITY
    provider = session.provider
    header = before._replace(
        # ProviderInfo is present only if the provider is not the default one, [MS-MQMQ] 2.2.20.6.
        flags=before.flags & ~_DEFAULT_PROVIDER | _ENCRYPTED | _SECURITY_DATA,
        encryption_key=session.blob,
        provider_info=_PROVIDER_INFO[provider.level],
    )
    body = view.body
    return with_security(
        view,
        encode_parts(header),
        body=session.cipher.encrypt(session.key, body),
        message_size=len(body),
        privacy_level=provider.level,
        encryption_algorithm=session.cipher.number,
    )


@dataclass(frozen=True, slots=True)
class Decrypted:
    """`packet` is what a queue stores: the body is plain, EB is cleared, EncryptionKey and PrivacyLevel are kept."""

    packet: bytes
    cipher: str


def decrypt(
    view: MessageView,
    ring: KeyRing,
    cache: ReceiveCache,
    now: float,
    accepted_ciphers: Collection[str] = DEFAULT_CIPHERS,
    *,
    reject_padded_rc2: bool = True,
) -> Decrypted | Refused:
    """Decrypts the body. A wrong padding, length, blob or key gives the same refusal, after the same steps.

    `reject_padded_rc2` is RejectEnhancedRC2Using40BitKeys.
    """
    header = security_parts(view)
    if header is None or not header.flags & _ENCRYPTED:
        raise LocalProtocolError("the message is not encrypted")
    provider = PROVIDERS.get(view.privacy_level)
    if provider is None:
        return bad_encryption(Reason.PRIVACY_LEVEL)
    cipher = CIPHERS_BY_NUMBER.get(view.encryption_algorithm)
    if cipher is None or cipher.word not in accepted_ciphers or not provider.fits(cipher):
        return bad_encryption(Reason.CIPHER_REFUSED)
    place = (int(provider.level), int(cipher.number), view.source_queue_manager_bytes, header.encryption_key)
    cached = cache.get(place, now)
    if cached is not None:
        opened = _with_key(view, cipher, cached)
    else:
        opened = _with_any_key(view, header.encryption_key, provider, cipher, ring.private_keys(provider))
    if opened is None:
        return _NOT_DECRYPTED
    session_key, body = opened
    if reject_padded_rc2 and _is_padded_rc2(provider, cipher, session_key):
        return _NOT_DECRYPTED
    # Only a key that has opened a body is cached, so blobs of strangers cannot evict others.
    if cached is None:
        cache.put(place, session_key, now)
    return Decrypted(with_security(view, header.flags & ~_ENCRYPTED, body=body), cipher.word)


def _is_padded_rc2(provider: Provider, cipher: Cipher, session_key: bytes) -> bool:
    """Whether the key has 40 bits instead of 128."""
    enhanced_rc2 = provider.level is PrivacyLevel.ENHANCED and cipher.number is EncryptionAlgorithm.RC2
    return enhanced_rc2 and compare_digest(session_key[-_ZERO_END:], bytes(_ZERO_END))


def _with_any_key(
    view: MessageView, data: bytes, provider: Provider, cipher: Cipher, keys: tuple[RSAPrivateKey, ...]
) -> tuple[bytes, bytes] | None:
    """The session key and the plain body. Tries every key of the ring, so the time does not show which one fits."""
    try:
        blob = SimpleBlob.decode(data)
    except RemoteProtocolError:
        return None
    size = provider.key_size(cipher)
    fitting: set[tuple[bytes, bytes]] = set()
    for key in keys:
        session_key = unwrap_session_key(key, blob)
        right = len(session_key) == size and blob.session_key_algorithm is cipher.number
        opened = _with_key(view, cipher, session_key if right else bytes(size))
        if right and opened is not None:
            fitting.add(opened)
    # A wrong key can by chance give a session key of the right length, and RC4 cannot notice that. If two keys fit,
    # none is taken.
    return fitting.pop() if len(fitting) == 1 else None


def _with_key(view: MessageView, cipher: Cipher, session_key: bytes) -> tuple[bytes, bytes] | None:
    """The session key and the plain body, if the body has MessageSize bytes."""
    try:
        body = cipher.decrypt(session_key, view.body)
    except DecryptionFailed:
        return None
    return (session_key, body) if len(body) == view.message_size else None
