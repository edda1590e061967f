"""Bounded caches with lifetimes, [MS-MQQB] 3.1.1.3 and 3.1.6.10 to 3.1.6.13: session keys and certificates.

No clock here: callers pass `now` of a monotonic clock, so a step of the system's time keeps no key alive.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

# [MS-MQQB] 3.1.3.1
SEND_KEYS: Final = 53  # SendSymmetricKeyCacheSize
RECEIVE_KEYS: Final = 127  # ReceiveSymmetricKeyCacheSize
CERTIFICATES: Final = 53  # UserCertCacheSize
KEY_LIFETIME_S: Final = 600.0  # SymmetricKeyShortLifetime
CERTIFICATE_LIFETIME_S: Final = 1200.0  # UserCertLifetime
_CLEANUP_MARGIN_S: Final = 60.0  # 3.1.6.10: a minute past the lifetime of the oldest entry


class TimedCache(Generic[K, V]):
    """An entry is never returned after its lifetime, whether `cleanup` was called or not. A read does not renew it.

    `cleanup` may run in another thread than the rest: at worst it drops an entry that was just made again.
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
        """A full cache first drops the older half of its entries, [MS-MQQB] 3.1.5.8.3."""
        self._entries.pop(key, None)
        if len(self._entries) >= self._size:
            for oldest in list(self._entries)[: self._size // 2]:
                self._entries.pop(oldest, None)
        self._entries[key] = value, now

    def clear(self) -> None:
        self._entries.clear()

    def cleanup(self, now: float) -> float | None:
        """Drops what is too old. The seconds until the next cleanup, or None where nothing is left."""
        for key, (_, cached) in list(self._entries.items()):
            if now - cached <= self._lifetime_s:
                return self._lifetime_s + _CLEANUP_MARGIN_S - (now - cached)
            self._entries.pop(key, None)
        return None
