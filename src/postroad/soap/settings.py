"""The settings of the SOAP protocol, with the defaults of [MC-MQSRM] 3.1.2, 3.1.3.1 and its notes."""

from __future__ import annotations

from dataclasses import dataclass, field

from postroad.soap.addresses import Redirections
from postroad.wire.constants import RESEND_TABLE_S

CLOCK_TOLERANCE_S = 300.0
DUPLICATES, DUPLICATES_S = 10_000, 1800  # entries of a MessageIdHistoryTable, and how long they stay: note 16
TIMERS = "soap timers"  # as people see them where they fail


@dataclass(frozen=True, slots=True)
class SoapSettings:
    """Names of times end in their unit. A queue manager has one of these."""

    retransmission_ms: int = 20_000  # RetransmissionTimeout
    resend_s: tuple[float, ...] = RESEND_TABLE_S
    receipt_ms: int = 500  # Stream Receipt Coalescing Timer
    max_receipt_delay_s: float = 10.0  # 3.1.5.1.6.3
    cleanup_ms: int = 300_000  # Session Cleanup Timer
    clock_tolerance_s: float = CLOCK_TOLERANCE_S  # later messages are dropped; clocks differ
    duplicates: int = DUPLICATES
    duplicates_s: int = DUPLICATES_S
    posts_per_host: int = 8  # requests to one host that wait for answers at a time
    remote_managers: int = 10_000  # streams of other managers that are remembered, at most
    unacknowledged: int = 10_000  # stream messages of one queue that wait for a receipt, at most
    accept_hashes: frozenset[str] = frozenset({"sha512", "sha256"})  # SRMP has sha1 and md5; none of them by default
    redirections: Redirections = field(default_factory=Redirections)
