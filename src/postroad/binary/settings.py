"""The settings of the protocol, with the specification's defaults ([MS-MQQB] 3.1.2, 3.1.3.2 and its notes)."""

from __future__ import annotations

from dataclasses import dataclass

from postroad.wire.constants import RESEND_TABLE_S

# [MS-MQQB] note 44: how long an idle session stays open, and on a routing server.
CLEANUP_MS = 300_000
ROUTING_CLEANUP_MS = 120_000
TIMERS = "binary timers"  # their name in logs, if they fail


@dataclass(frozen=True, slots=True)
class BinarySettings:
    """The settings of all sessions of one queue manager. Names of times end in their unit."""

    window_size: int = 1024  # what we propose: the smaller one of both ends applies; notes 36 and 50 say 64
    ack_timeout_ms: int = 120_000  # AckWaitTimeout
    initialization_ms: int = 60_000
    cleanup_ms: int = CLEANUP_MS
    retry_connect_s: float = 1.0
    order_ack_ms: int = 500  # OrderAckTimeout
    max_order_ack_delay_s: float = 10.0
    # Messages, after which it is not delayed further, because the sender keeps them until it comes.
    order_ack_messages: int = 1024
    resend_s: tuple[float, ...] = RESEND_TABLE_S
    duplicates: int = 10_000  # entries of MessageIDHistoryTable
    duplicates_s: int = 1800
    ack_wait_factor: int = 2  # for a session to a direct name; otherwise 1
    max_sessions: int = 10_000
    remote_managers: int = 10_000  # sources whose sequences and addresses are remembered
