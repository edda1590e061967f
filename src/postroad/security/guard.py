"""The security of messages at both ends, [MS-MQQB] 3.1.5.8.3 and 3.1.7.1.5: a Guard opens, a Sealer encrypts.

Both hold caches without locks: call each from one thread only. The event loop may call `is_secured`. Routers use none
of this.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeAlias
from uuid import UUID

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from postroad.errors import InvalidArgument, LocalProtocolError, RemoteProtocolError
from postroad.security.accounts import Accounts
from postroad.security.algorithms import (
    CIPHERS,
    DEFAULT_CIPHER,
    DEFAULT_CIPHERS,
    DEFAULT_HASHES,
    HASHES,
    MIN_RSA_BITS,
    PROVIDERS,
    Cipher,
    Provider,
    is_known_provider,
)
from postroad.security.descriptors import Sid
from postroad.security.encryption import (
    CERTIFICATE_LIFETIME_S,
    CERTIFICATES,
    KEY_LIFETIME_S,
    RECEIVE_KEYS,
    SEND_KEYS,
    ReceiveCache,
    SessionKey,
    TimedCache,
    decrypt,
    encrypt,
)
from postroad.security.keys import KeyRing, RandomBytes, peer_keys
from postroad.security.refusals import (
    UNSUPPORTED_PROVIDER,
    Reason,
    Refused,
    bad_encryption,
    bad_signature,
    not_encrypted,
)
from postroad.security.signatures import (
    DEFAULT_VERSIONS,
    LISTED,
    Profile,
    Verified,
    is_signed,
    public_key_of,
    verify_with,
)
from postroad.wire.constants import PrivacyLevel, QueueCode, SecurityFlags, SenderIdType
from postroad.wire.headers import ProviderInfo
from postroad.wire.security_patch import (
    SecurityParts,
    security_parts,
    security_sizes,
    with_security,
    with_security_flags,
)
from postroad.wire.view import MessageView

_AS_SHIFT: Final = 8
_DESTINATION_CODE: Final = 10  # of UserHeader.Flags
_BELIEVED = (SecurityFlags.AUTHENTICATED | SecurityFlags.SIGNATURE_TYPE).value  # 0 on the wire; set after the check
_ENCRYPTED = SecurityFlags.ENCRYPTED_BODY.value
_DEFAULT_PROVIDER = SecurityFlags.DEFAULT_PROVIDER.value
_SENDER_ID_TYPE = SecurityFlags.SENDER_ID_TYPE.value
_TOUCHED = _BELIEVED | _ENCRYPTED


def is_secured(view: MessageView) -> bool:
    """Whether a packet needs a Guard: it is signed, encrypted, or has fields that a peer must not set. Cheap."""
    sizes = security_sizes(view)
    if sizes is None:
        return False
    return bool(sizes.flags & _TOUCHED or sizes.encryption_key or sizes.signature) or is_signed(view)


def claimed_sid(view: MessageView) -> Sid | None:
    """The SID of the sender that a packet names, whether or not that is true. None if it names no SID."""
    header = security_parts(view)
    if header is None or header.flags & _SENDER_ID_TYPE != SenderIdType.SID:
        return None
    try:
        return Sid.decode(header.security_id)
    except RemoteProtocolError:
        return None


def arrived_encrypted(view: MessageView) -> bool:
    """Whether a stored message arrived encrypted. A Guard keeps EncryptionKey in no other message."""
    sizes = security_sizes(view)
    return sizes is not None and sizes.encryption_key > 0


@dataclass(frozen=True, slots=True)
class Opened:
    """`packet` is what a queue stores. `sender` is a SID that a registered certificate proves."""

    packet: bytes
    authentication_level: int = 0
    hash: str | None = None
    cipher: str | None = None
    sender: bytes | None = None


Verdict: TypeAlias = Opened | Refused
KnownCertificates: TypeAlias = TimedCache[tuple[bytes, int, bytes], RSAPublicKey]
SendPlace: TypeAlias = tuple[bytes, str, bytes]  # the peer's GUID, the cipher's word, the peer's public keys


ManagerCertificates: TypeAlias = Callable[[UUID], tuple[bytes, ...]]


def _no_certificates(manager: UUID) -> tuple[bytes, ...]:
    return ()


class Guard:
    """Decrypts and checks messages at their destination.

    `certificates` are the registered ones for each SID. `manager_certificates` are those of managers that sign their
    own messages. `accounts` have those of the directory, for senders who have none here. Results are cached for 20
    minutes, or until `use_certificates` is called.
    """

    def __init__(
        self,
        ring: KeyRing,
        certificates: Mapping[str, tuple[bytes, ...]],
        manager_certificates: ManagerCertificates = _no_certificates,
        *,
        profile: Profile = LISTED,
        accepted_hashes: Collection[str] = DEFAULT_HASHES,
        accepted_ciphers: Collection[str] = DEFAULT_CIPHERS,
        accepted_versions: Collection[str] = DEFAULT_VERSIONS,
        accounts: Accounts | None = None,
    ) -> None:
        for word in accepted_hashes:
            HASHES[word].check_available()
        for word in accepted_ciphers:
            CIPHERS[word].check_available()
        self._ring = ring
        self._certificates = certificates
        self._manager_certificates = manager_certificates
        self._accounts = accounts
        self._profile = profile
        self._hashes = frozenset(accepted_hashes)
        self._ciphers = frozenset(accepted_ciphers)
        self._versions = frozenset(accepted_versions)
        self.session_keys: ReceiveCache = TimedCache(RECEIVE_KEYS, KEY_LIFETIME_S)
        self.known_certificates: KnownCertificates = TimedCache(CERTIFICATES, CERTIFICATE_LIFETIME_S)

    def use_keys(self, ring: KeyRing) -> None:
        """Takes the keys after a rotation. Cached session keys stay valid."""
        self._ring = ring

    def use_certificates(self, certificates: Mapping[str, tuple[bytes, ...]]) -> None:
        """Replaces the registered certificates. The cache is new: `open`, in another thread, may still fill the old
        one."""
        self._certificates = certificates
        self.known_certificates = TimedCache(CERTIFICATES, CERTIFICATE_LIFETIME_S)

    def cleanup(self, now: float) -> float | None:
        """Drops old keys and certificates. Returns the seconds until the next call, or None if nothing is cached."""
        left = [each for each in (self.session_keys.cleanup(now), self.known_certificates.cleanup(now)) if each]
        return min(left, default=None)

    def open(self, packet: bytes, now: float) -> Opened | Refused:
        """[MS-MQQB] 3.1.5.8.3, except that it decrypts first, because the sender signed the plain body.

        Raises RemoteProtocolError if this is not a packet.
        """
        view = MessageView(packet)
        header = security_parts(view)
        if header is None:
            return Opened(packet)
        signed = is_signed(view)
        refused = _check_provider(header, signed=signed)
        if refused is not None:
            return refused
        flags = header.flags & ~_BELIEVED
        cipher = None
        if flags & _ENCRYPTED:
            decrypted = decrypt(view, self._ring, self.session_keys, now, self._ciphers)
            if isinstance(decrypted, Refused):
                return decrypted
            if not signed and flags == header.flags:  # nothing more to change, so no second copy
                return Opened(decrypted.packet, cipher=decrypted.cipher)
            flags &= ~_ENCRYPTED
            cipher, view = decrypted.cipher, MessageView(decrypted.packet)
        elif header.encryption_key:  # else it would look like a message that arrived encrypted
            view = _without_key(view)
        if not signed:
            return Opened(with_security_flags(view, flags), cipher=cipher)
        verified = self._verify(view, header, now)
        if isinstance(verified, Refused):
            # Another class would tell that the padding of a changed body was right.
            return verified if cipher is None else bad_encryption(verified.reason)
        sender = header.security_id if flags & _SENDER_ID_TYPE == SenderIdType.SID else None
        stored = with_security_flags(view, flags | verified.level << _AS_SHIFT)
        return Opened(stored, verified.level, verified.hash, cipher, sender)

    def _verify(self, view: MessageView, header: SecurityParts, now: float) -> Verified | Refused:
        place = (header.sender_certificate, header.flags & _SENDER_ID_TYPE, header.security_id)
        known = self.known_certificates
        key = known.get(place, now)
        if key is None:
            found = self._look_up(view, header)
            if isinstance(found, Refused):
                return found
            key = found
            known.put(place, key, now)
        return verify_with(view, header.signature, key, self._profile, self._hashes, self._versions)

    def _look_up(self, view: MessageView, header: SecurityParts) -> RSAPublicKey | Refused:
        """The key of a certificate that is registered for its sender. If the message names no sender, any certificate
        will do: the signature then proves that the message is unchanged, but not who sent it."""
        certificate = header.sender_certificate
        if not certificate:
            return bad_signature(Reason.NO_CERTIFICATE)
        sender_id_type = header.flags & _SENDER_ID_TYPE
        if sender_id_type == SenderIdType.SID:
            if certificate not in self._registered(header.security_id):
                return bad_signature(Reason.NOT_REGISTERED)
        elif sender_id_type == SenderIdType.QUEUE_MANAGER:
            itself = header.security_id == view.source_queue_manager_bytes
            if not itself or certificate not in self._manager_certificates(view.source_queue_manager):
                return bad_signature(Reason.NOT_REGISTERED)
        return public_key_of(certificate)

    def _registered(self, security_id: bytes) -> tuple[bytes, ...]:
        """The certificates of a SID: those of the configuration, otherwise those of the directory."""
        try:
            sid = Sid.decode(security_id)
        except RemoteProtocolError:
            return ()
        here = self._certificates.get(str(sid))
        if here is not None or self._accounts is None:
            return here or ()
        return self._accounts.certificates(sid)


def _check_provider(header: SecurityParts, *, signed: bool) -> Refused | None:
    """[MS-MQMQ] 2.2.20.6: a signature by a provider other than the default one names that provider."""
    if header.provider_info:
        try:
            name = ProviderInfo.decode(header.provider_info).provider_name
        except RemoteProtocolError:
            return UNSUPPORTED_PROVIDER
        return None if is_known_provider(name) else UNSUPPORTED_PROVIDER
    return bad_signature(Reason.UNKNOWN_PROVIDER) if signed and not header.flags & _DEFAULT_PROVIDER else None


def _without_key(view: MessageView) -> MessageView:
    header = view.security_header
    assert header is not None
    rest = replace(header, encryption_key=b"", padding=b"")
    return MessageView(with_security(view, rest, privacy_level=PrivacyLevel.NONE))


class Sealer:
    """Encrypts messages for their destination. Reuses the session key for each (peer, provider, cipher).

    `min_bits` is the length of the shortest public key that may be used.
    """

    def __init__(self, random_bytes: RandomBytes, *, min_bits: int = MIN_RSA_BITS) -> None:
        self._random_bytes = random_bytes
        self._min_bits = min_bits
        # The peer's keys decide which provider is used. They are part of the place, so a new session key is made after
        # they rotate.
        self.session_keys: TimedCache[SendPlace, SessionKey] = TimedCache(SEND_KEYS, KEY_LIFETIME_S)

    def cleanup(self, now: float) -> float | None:
        """Drops old keys. Returns the seconds until the next call, or None if nothing is cached."""
        return self.session_keys.cleanup(now)

    def seal(self, packet: bytes, public_keys: bytes, cipher_word: str, now: float) -> bytes | Refused:
        """`public_keys` is the MQDSPUBLICKEYS of the destination's manager, not of the next hop. A message for which
        this raises must not be sent, [MS-MQQB] 3.1.7.1.5.1."""
        if cipher_word not in CIPHERS:
            raise InvalidArgument(f"cipher: must be one of {', '.join(CIPHERS)}, got {cipher_word!r}")
        view = MessageView(packet)
        if view.encrypted:
            return not_encrypted(Reason.ALREADY_ENCRYPTED)
        if view.user_flags >> _DESTINATION_CODE & 7 not in (QueueCode.PUBLIC, QueueCode.PRIVATE_ON_DESTINATION):
            return not_encrypted(Reason.DIRECT_NAME)
        place = (view.queue_manager_address_bytes, cipher_word, public_keys)
        session = self.session_keys.get(place, now)
        if session is None:
            session = self.make(place)
            if session is None:
                return not_encrypted(Reason.NO_PUBLIC_KEY)
            self.session_keys.put(place, session, now)
        try:
            return encrypt(view, session)
        except LocalProtocolError:
            return not_encrypted(Reason.TOO_LARGE)

    def make(self, place: SendPlace) -> SessionKey | None:
        """Makes a session key for a place in the cache. None if the peer has no public key for the cipher. This is the
        RSA part of `seal`. It touches no cache, so a caller can run it in another thread and `put` the result."""
        _, cipher_word, public_keys = place
        try:
            chosen = _choose(peer_keys(public_keys, self._min_bits), CIPHERS[cipher_word])
        except RemoteProtocolError:
            return None
        return chosen and SessionKey.make(chosen[0], CIPHERS[cipher_word], chosen[1], self._random_bytes)


def _choose(keys: Mapping[PrivacyLevel, RSAPublicKey], cipher: Cipher) -> tuple[Provider, RSAPublicKey] | None:
    """Chooses the strongest provider that has the cipher and whose key the peer publishes. PrivacyLevel follows from
    it, because the receiver chooses its key by that field. It never chooses Base, whose 40 bits protect nothing."""
    for provider in PROVIDERS.values():
        if provider.level != PrivacyLevel.BASE and provider.fits(cipher) and provider.level in keys:
            return provider, keys[provider.level]
    return None


# What one queue manager needs for message security: two guards, a sealer, and their keys.


class Protection:
    """`guard` checks messages of local applications when they are sent. `opener` checks messages of other managers; a
    transport may call it in a thread of its own, so each of the two has its own caches."""

    def __init__(
        self,
        random_bytes: RandomBytes,
        ring: KeyRing = KeyRing({}),  # noqa: B008  (it is frozen)
        certificates: Mapping[str, tuple[bytes, ...]] | None = None,
        manager_certificates: ManagerCertificates = _no_certificates,
        *,
        profile: Profile = LISTED,
        accepted_hashes: Collection[str] = DEFAULT_HASHES,
        accepted_ciphers: Collection[str] = DEFAULT_CIPHERS,
        accepted_versions: Collection[str] = DEFAULT_VERSIONS,
        send_cipher: str = DEFAULT_CIPHER,
        accounts: Accounts | None = None,
    ) -> None:
        self.ring = ring
        self.accounts = accounts
        self.certificates = certificates or {}
        self.accepted_hashes = tuple(accepted_hashes)
        self.accepted_ciphers = tuple(accepted_ciphers)
        self.send_cipher = send_cipher
        self.profile = profile
        self.guard, self.opener = (
            Guard(
                ring,
                self.certificates,
                manager_certificates,
                profile=profile,
                accepted_hashes=accepted_hashes,
                accepted_ciphers=accepted_ciphers,
                accepted_versions=accepted_versions,
                accounts=accounts,
            )
            for _ in range(2)
        )
        self.sealer = Sealer(random_bytes)

    def use_certificates(self, certificates: Mapping[str, tuple[bytes, ...]]) -> None:
        """Replaces the registered certificates."""
        self.certificates = certificates
        self.guard.use_certificates(certificates)
        self.opener.use_certificates(certificates)

    def use_keys(self, ring: KeyRing) -> None:
        """Takes the keys after a rotation."""
        self.ring = ring
        self.guard.use_keys(ring)
        self.opener.use_keys(ring)
