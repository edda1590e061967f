"""Where a manager keeps what must survive, and whether this process may use it.

Standing is that of files: whoever has opened them is active. A store that several processes share has another one.
"""

from __future__ import annotations

from postroad.errors import LocalProtocolError


class Standing:
    """The standing of a manager whose store is its own."""

    can_fail_over = False  # whether the store can be away, or belong to another process

    def report(self) -> dict[str, object]:
        """The member `store` of the manager's description."""
        return {"kind": "files", "role": "active", "epoch": 0, "standbys": [], "synchronous": False}

    def refusal(self) -> str | None:
        """Why this process serves nobody: another one is active. None if it serves."""
        return None

    def holds(self) -> bool:
        """Whether no other process can have taken over the store."""
        return True

    def stalled(self) -> str | None:
        """Why nothing can be stored or read at the moment. It comes back by itself."""
        return None

    def waits_since(self) -> float | None:
        """Since when the store waits for its database, by the clock of the event loop. None if it does not."""
        return None

    def hand_over(self) -> None:
        """Lets another process become active, soon. Raises PostroadError if none could."""
        raise LocalProtocolError("the store is in files: only a store in PostgreSQL has standbys; see [store] url")
