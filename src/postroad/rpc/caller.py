"""Who makes a call, and whether it may use what another caller has opened. No I/O."""

from __future__ import annotations

from dataclasses import dataclass

from postroad.rpc.constants import AuthLevel


@dataclass(frozen=True, slots=True)
class Caller:
    """What is known of a client. One is made for each security context of a connection, not for each call."""

    address: str = ""
    user: str | None = None  # the authenticated name; None for an anonymous client
    level: int = AuthLevel.NONE
    association: int = 0

    def may_use(self, owner: Caller) -> bool:
        """Whether this caller may use what `owner` opened: the same user at no lower level. Callers without a name are
        distinguished by their address."""
        if self is owner:
            return True
        if self.user is None:
            return owner.user is None and self.address == owner.address
        return self.user == owner.user and self.level >= owner.level
