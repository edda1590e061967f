"""The keys of all managers, beside their disks: a crash does not touch them. And what the directory says of them."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from uuid import UUID

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

from postroad.security.keys import KeyRing
from postroad.security.protection import Protection
from postroad.simulation.keys import SENDER_SID, exchange_keys, sender


class Vault:
    """Session keys come from a generator of their own: networks without security run as they did without it."""

    def __init__(self, seed: int, managers: Sequence[UUID]) -> None:
        self._random = Random(f"session keys {seed}")
        self._keys = exchange_keys()
        self._rings = {manager: KeyRing.make(self._next_key) for manager in managers}
        self._published = {manager: ring.public_keys for manager, ring in self._rings.items()}

    def _next_key(self, bits: int) -> RSAPrivateKey:
        return next(self._keys)

    def protection(self, manager: UUID) -> Protection:
        """For one life of a manager: its caches are empty."""
        return Protection(self._random.randbytes, self._rings[manager], {SENDER_SID: (sender().certificate,)})

    def rotate(self, manager: UUID) -> KeyRing:
        ring = self._rings[manager] = self._rings[manager].rotated(self._next_key)
        return ring

    def publish(self, manager: UUID) -> None:
        self._published[manager] = self._rings[manager].public_keys

    def public_keys(self, manager: UUID) -> bytes:
        """What the directory has."""
        return self._published[manager]
