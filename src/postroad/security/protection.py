"""What one queue manager needs for the security of messages: two guards, a sealer, and the keys behind them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from uuid import UUID

from postroad.security.algorithms import DEFAULT_CIPHER, DEFAULT_CIPHERS, DEFAULT_HASHES
from postroad.security.guard import Guard, Sealer
from postroad.security.keys import KeyRing, RandomBytes
from postroad.security.signatures import DEFAULT_VERSIONS, LISTED, Profile


class Protection:
    """`guard` is for messages of applications here, checked where they are sent. `opener` is for messages of other
    managers: a transport may call it in a thread of its own, so each has its own caches."""

    def __init__(
        self,
        random_bytes: RandomBytes,
        ring: KeyRing = KeyRing({}),  # noqa: B008  (it is frozen)
        certificates: Mapping[str, tuple[bytes, ...]] | None = None,
        manager_certificates: Mapping[UUID, tuple[bytes, ...]] | None = None,
        *,
        profile: Profile = LISTED,
        accepted_hashes: Collection[str] = DEFAULT_HASHES,
        accepted_ciphers: Collection[str] = DEFAULT_CIPHERS,
        accepted_versions: Collection[str] = DEFAULT_VERSIONS,
        send_cipher: str = DEFAULT_CIPHER,
    ) -> None:
        self.ring = ring
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
            )
            for _ in range(2)
        )
        self.sealer = Sealer(random_bytes)

    def use_certificates(self, certificates: Mapping[str, tuple[bytes, ...]]) -> None:
        """Those that are registered from now on."""
        self.certificates = certificates
        self.guard.use_certificates(certificates)
        self.opener.use_certificates(certificates)

    def use_keys(self, ring: KeyRing) -> None:
        """After a rotation."""
        self.ring = ring
        self.guard.use_keys(ring)
        self.opener.use_keys(ring)
