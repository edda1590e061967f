"""What a queue manager is given besides its store: settings that can change while it runs, and chance.

The defaults of the settings are those of `postroad serve`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from postroad.queues.owners import DEFAULTS, Held
from postroad.security.relay import RelayRule
from postroad.security.users import Users

DEFAULT_QUOTA_KB: Final = 8 << 20  # 8 GiB with journals and dead letters: the most that strangers can fill
MAX_OUTGOING: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTimes:
    """How long a client may be silent before a locked message returns, and before a transaction is aborted."""

    receive_s: float = 60.0
    transaction_s: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreSettings:
    """`core.use` takes all of them at once."""

    quota_kb: int | None = DEFAULT_QUOTA_KB  # None: no limit
    outgoing_queues: int = MAX_OUTGOING
    held: Mapping[Held, int] = field(default_factory=lambda: DEFAULTS)  # the most that one owner may hold
    relay: tuple[RelayRule, ...] = ()  # hosts that strangers may make this manager call
    users: Users = field(default_factory=Users)
    tickets: bool = False  # whether accounts of a domain log in, who need not be among the users
    claimed_senders: bool = False  # whether the sender counts that an unsigned message names, as for MSMQ
    leases: LeaseTimes = LeaseTimes()
    journal_days: float | None = None  # None: journals keep everything
    strict_names: bool = False  # whether new queues must have names that [MS-MQMQ] 2.1.1 prints


@dataclass(frozen=True, slots=True)
class Chance:
    """`new_id` gives ids that were never given, `below` a number from 0 to its argument. Strangers must not guess
    either."""

    new_id: Callable[[], UUID]
    below: Callable[[int], int]
