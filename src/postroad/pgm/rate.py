"""The rate regulator of a source, [RFC 3208] 5.1.1 and [MC-MQSRM] 2.1.3.1: a token bucket."""

from __future__ import annotations

CLOCK_S = 1e-6  # times are no finer than this, so a packet is not held back for less


class TokenBucket:
    """Holds what `depth_s` seconds bring at the most, and never less than one packet of the largest size."""

    def __init__(self, bytes_per_s: float, depth_s: float, largest: int, now: float) -> None:
        self._rate = bytes_per_s
        self._depth = max(bytes_per_s * depth_s, float(largest))
        self._tokens = self._depth
        self._at = now

    def _fill(self, now: float) -> None:
        if now > self._at:
            self._tokens = min(self._depth, self._tokens + (now - self._at) * self._rate)
            self._at = now

    def take(self, size: int, now: float) -> bool:
        """Whether so many bytes may leave now; then they have."""
        self._fill(now)
        if self._tokens + self._rate * CLOCK_S < size:
            return False
        self._tokens -= size
        return True

    def when(self, size: int, now: float) -> float:
        """When so many bytes may leave."""
        self._fill(now)
        return now + max(0.0, size - self._tokens) / self._rate
