"""Who makes a call, and whether what somebody opened is theirs to use. No I/O."""

from __future__ import annotations

from dataclasses import dataclass

from postroad.rpc.constants import AuthLevel


@dataclass(frozen=True, slots=True)
class Caller:
    """What is known of a client. One is made for each security context of a connection, and not for each call."""

    address: str = ""
    user: str | None = None  # who it has proved to be; None for one that did not say
    level: int = AuthLevel.NONE
    association: int = 0

    def may_use(self, owner: Caller) -> bool:
        """Whether what `owner` opened is this caller's too: the same user at no lower level. Callers without a name
        are told apart by their address."""
        if self is owner:
            return True
        if self.user is None:
            return owner.user is None and self.address == owner.address
        return self.user == owner.user and self.level >= owner.level
