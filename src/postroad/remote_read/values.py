"""The constants of [MS-MQQP] 2.2 and [MS-MQMP] 3.1.4: actions, acknowledgments, ports, access, versions. No rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

from postroad.reports.operations import QueueAccess, ReadCall, SeekAction, ShareMode

INFINITE_MS = 0xFFFFFFFF  # of ulTimeout: no time limit
SEQUENTIAL_MASK = (1 << 56) - 1  # SequentialId: the least significant seven octets of a lookup identifier
LAST_LOOKUP_ID = 0xFFFFFFFFFFFFFFFF  # with a PREV action, the last message of the queue
SEVERITY = 0x80000000


def is_failure(status: int) -> bool:
    """2.2: an HRESULT is a failure if its severity bit is set."""
    return bool(status & SEVERITY)


class Action(IntEnum):
    """2.2.2.1 ulAction"""

    RECEIVE = 0x00000000
    PEEK_CURRENT = 0x80000000
    PEEK_NEXT = 0x80000001
    LOOKUP_PEEK_CURRENT = 0x40000010
    LOOKUP_PEEK_NEXT = 0x40000011
    LOOKUP_PEEK_PREV = 0x40000012
    LOOKUP_RECEIVE_CURRENT = 0x40000020
    LOOKUP_RECEIVE_NEXT = 0x40000021
    LOOKUP_RECEIVE_PREV = 0x40000022


# 3.1.4.1: what each action does with the queue.
CALLS: Mapping[int, ReadCall] = {
    Action.RECEIVE: ReadCall.RECEIVE,
    Action.PEEK_CURRENT: ReadCall.PEEK,
    Action.PEEK_NEXT: ReadCall.PEEK_NEXT,
}
# 3.1.4.11: whether an action removes the message, and where it looks, starting at the lookup identifier.
SEEKS: Mapping[int, tuple[bool, SeekAction]] = {
    Action.LOOKUP_PEEK_CURRENT: (False, SeekAction.CURRENT),
    Action.LOOKUP_PEEK_NEXT: (False, SeekAction.NEXT),
    Action.LOOKUP_PEEK_PREV: (False, SeekAction.PREVIOUS),
    Action.LOOKUP_RECEIVE_CURRENT: (True, SeekAction.CURRENT),
    Action.LOOKUP_RECEIVE_NEXT: (True, SeekAction.NEXT),
    Action.LOOKUP_RECEIVE_PREV: (True, SeekAction.PREVIOUS),
}


class Ack(IntEnum):
    """2.2.1.3 REMOTEREADACK"""

    RR_UNKNOWN = 0
    RR_NACK = 1
    RR_ACK = 2


class PortType(IntEnum):
    """3.1.4.8 dwPortType, and fIP of [MS-MQMP] 3.1.4.24"""

    IP_HANDSHAKE = 0
    IP_READ = 1
    IPX_HANDSHAKE = 2
    IPX_READ = 3


class DesiredAccess(IntEnum):
    """[MS-MQMP] 3.1.4.2 dwDesiredAccess"""

    RECEIVE = 0x00000001
    PEEK = 0x00000020


class DesiredShare(IntEnum):
    """[MS-MQMP] 3.1.4.2 dwShareMode"""

    DENY_NONE = 0
    DENY_RECEIVE = 1


ACCESS = {DesiredAccess.RECEIVE: QueueAccess.RECEIVE, DesiredAccess.PEEK: QueueAccess.PEEK}
SHARE = {DesiredShare.DENY_NONE: ShareMode.DENY_NONE, DesiredShare.DENY_RECEIVE: ShareMode.DENY_RECEIVE}


@dataclass(frozen=True, slots=True, order=True)
class Version:
    """3.1.4.9: the version that a server reports."""

    major: int
    minor: int
    build: int

    @property
    def is_old(self) -> bool:
        """3.2.4.2: a server that knows only RemoteQMStartReceive.

        The specification's third test is contained in its second. With minor equal to 1 it makes sense: a server from
        before the release of Windows XP.
        """
        return self < Version(5, 1, 951)


OWN_VERSION = Version(6, 1, 7600)  # Windows 7; all later versions of Windows report these numbers


@dataclass(frozen=True, slots=True)
class Ports:
    """3.1.4.8: where the interfaces listen. 0 means not at all."""

    handshake: int
    read: int


@dataclass(slots=True)
class ReadRequest:
    """What a client sets in REMOTEREADDESC, 2.2.2.1."""

    queue_handle: int  # hRemoteQueue
    queue: int  # dwQueue
    action: int
    request_id: int
    timeout_ms: int = 0
    cursor: int = 0
