"""What all format names have in common, and the specification's enumerations for names.

No grammar here: each kind of name reads and prints itself in its own module.
"""

from __future__ import annotations

from enum import IntEnum


class MsmqVersion(IntEnum):
    """The versions whose grammars differ, [MS-MQMQ] 2.1.1. Names are read as V6 unless a caller asks otherwise."""

    V1 = 1
    V2 = 2
    V3 = 3
    V4 = 4
    V5 = 5
    V6 = 6


class QueueFormatType(IntEnum):
    """[MS-MQMQ] 2.2.6"""

    UNKNOWN = 0
    PUBLIC = 1
    PRIVATE = 2
    DIRECT = 3
    MACHINE = 4
    CONNECTOR = 5
    DL = 6
    MULTICAST = 7
    SUBQUEUE = 8


class QueueSuffixType(IntEnum):
    """[MS-MQMQ] 2.2.11"""

    NONE = 0
    JOURNAL = 1
    DEADLETTER = 2
    DEADXACT = 3
    XACTONLY = 4
    SUBQUEUE = 5


# The suffixes that name a computer's own queues, [MS-MQMQ] 2.1.2 and 2.1.6.
COMPUTER_SUFFIXES = {
    "journal": QueueSuffixType.JOURNAL,
    "deadletter": QueueSuffixType.DEADLETTER,
    "deadxact": QueueSuffixType.DEADXACT,
}
_READ_ONLY = frozenset(COMPUTER_SUFFIXES.values())


class FormatName:
    """A format name, [MS-MQMQ] 2.1.2 to 2.1.7: one frozen class for each kind.

    `str()` gives text that parses back to an equal value. Two names are equal if they have the same kind and name the
    same queue. Case does not count in comparisons, but a name keeps its case for people and for the wire.
    """

    __slots__ = ()

    @property
    def suffix(self) -> QueueSuffixType:
        """Which queue of the named object is meant, in the terms of QUEUE_FORMAT."""
        return QueueSuffixType.NONE

    @property
    def is_read_only(self) -> bool:
        """True for journals and dead-letter queues: messages cannot be sent to them."""
        return self.suffix in _READ_ONLY

    @property
    def is_send_only(self) -> bool:
        """True for URLs and multicast addresses, which nobody can read from."""
        return False
