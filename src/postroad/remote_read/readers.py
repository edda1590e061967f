"""What a manager asks its remote readers, also where there is no listener for them."""

from __future__ import annotations

from postroad.values.info import LockInfo, ReaderInfo


class RemoteReaders:
    """The remote readers; none if there is no listener."""

    def readers(self) -> list[ReaderInfo]:
        return []

    def locks(self, now: float) -> list[LockInfo]:
        """Messages that readers have locked and not acknowledged."""
        return []

    @property
    def settled(self) -> tuple[int, int]:
        """Messages that readers have acknowledged, and messages that went back."""
        return 0, 0
