"""The access rights of [MS-MQMQ] 2.2.3 and 2.2.23 to 2.2.27 under the specification's names, and the words that people
use for the rights of a queue. This module checks nothing.

Each kind of object has its own mask: one bit means different things for a queue and for its manager.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from enum import IntFlag
from types import MappingProxyType

from postroad.errors import InvalidArgument


class StandardRight(IntFlag):
    """The bits of ACCESS_MASK with the same meaning for every object, [MS-DTYP] 2.4.3."""

    DELETE = 0x10000
    READ_CONTROL = 0x20000
    WRITE_DAC = 0x40000
    WRITE_OWNER = 0x80000
    SYNCHRONIZE = 0x100000
    ACCESS_SYSTEM_SECURITY = 0x1000000
    MAXIMUM_ALLOWED = 0x2000000
    GENERIC_ALL = 0x10000000
    GENERIC_EXECUTE = 0x20000000
    GENERIC_WRITE = 0x40000000
    GENERIC_READ = 0x80000000


class SecurityInformation(IntFlag):
    """SECURITY_INFORMATION, 2.2.3: the parts of a security descriptor that a call is about."""

    OWNER = 0x1
    GROUP = 0x2
    DACL = 0x4
    SACL = 0x8


class QueueManagerRight(IntFlag):
    """MQQMACCESSMASK, 2.2.23: rights on a queue manager, its journal and its dead-letter queues."""

    DELETE_DEADLETTER_MESSAGE = 0x1
    PEEK_DEADLETTER_MESSAGE = 0x2
    CREATE_QUEUE = 0x4
    SET_MACHINE_PROPERTIES = 0x10
    GET_MACHINE_PROPERTIES = 0x20
    DELETE_JOURNAL_QUEUE_MESSAGE = 0x40
    PEEK_JOURNAL_QUEUE_MESSAGE = 0x80
    DELETE_MACHINE = 0x10000
    GET_MACHINE_PERMISSIONS = 0x20000
    CHANGE_MACHINE_PERMISSIONS = 0x40000
    TAKE_MACHINE_OWNERSHIP = 0x80000

    RECEIVE_DEADLETTER_MESSAGE = DELETE_DEADLETTER_MESSAGE | PEEK_DEADLETTER_MESSAGE
    RECEIVE_JOURNAL_QUEUE_MESSAGE = DELETE_JOURNAL_QUEUE_MESSAGE | PEEK_JOURNAL_QUEUE_MESSAGE
    MACHINE_WORLD_RIGHTS = GET_MACHINE_PROPERTIES | GET_MACHINE_PERMISSIONS
    MACHINE_GENERIC_READ = MACHINE_WORLD_RIGHTS | RECEIVE_DEADLETTER_MESSAGE | RECEIVE_JOURNAL_QUEUE_MESSAGE
    MACHINE_GENERIC_WRITE = MACHINE_WORLD_RIGHTS | CREATE_QUEUE
    MACHINE_GENERIC_ALL = (
        MACHINE_GENERIC_READ
        | MACHINE_GENERIC_WRITE
        | SET_MACHINE_PROPERTIES
        | DELETE_MACHINE
        | CHANGE_MACHINE_PERMISSIONS
        | TAKE_MACHINE_OWNERSHIP
    )


class QueueRight(IntFlag):
    """MQQUEUEACCESSMASK, 2.2.24: rights on a queue and its journal. Other specifications cite 2.2.25 by mistake."""

    DELETE_MESSAGE = 0x1
    PEEK_MESSAGE = 0x2
    WRITE_MESSAGE = 0x4
    DELETE_JOURNAL_MESSAGE = 0x8
    SET_QUEUE_PROPERTIES = 0x10
    GET_QUEUE_PROPERTIES = 0x20
    DELETE_QUEUE = 0x10000
    GET_QUEUE_PERMISSIONS = 0x20000
    CHANGE_QUEUE_PERMISSIONS = 0x40000
    TAKE_QUEUE_OWNERSHIP = 0x80000

    RECEIVE_MESSAGE = DELETE_MESSAGE | PEEK_MESSAGE
    RECEIVE_JOURNAL_MESSAGE = DELETE_JOURNAL_MESSAGE | PEEK_MESSAGE
    QUEUE_GENERIC_READ = GET_QUEUE_PROPERTIES | GET_QUEUE_PERMISSIONS | RECEIVE_MESSAGE | RECEIVE_JOURNAL_MESSAGE
    QUEUE_GENERIC_WRITE = GET_QUEUE_PROPERTIES | GET_QUEUE_PERMISSIONS | WRITE_MESSAGE
    QUEUE_GENERIC_ALL = (
        QUEUE_GENERIC_READ
        | QUEUE_GENERIC_WRITE
        | SET_QUEUE_PROPERTIES
        | DELETE_QUEUE
        | CHANGE_QUEUE_PERMISSIONS
        | TAKE_QUEUE_OWNERSHIP
    )


class SiteRight(IntFlag):
    """MQSITEACCESSMASK, 2.2.25"""

    CREATE_FRS = 0x1
    CREATE_BSC = 0x2
    CREATE_MACHINE = 0x4
    SET_SITE_PROPERTIES = 0x10
    GET_SITE_PROPERTIES = 0x20
    DELETE_SITE = 0x10000
    GET_SITE_PERMISSIONS = 0x20000
    CHANGE_SITE_PERMISSIONS = 0x40000
    TAKE_SITE_OWNERSHIP = 0x80000

    SITE_GENERIC_READ = GET_SITE_PROPERTIES | GET_SITE_PERMISSIONS
    SITE_GENERIC_WRITE = SITE_GENERIC_READ | CREATE_MACHINE
    SITE_GENERIC_ALL = (
        SITE_GENERIC_WRITE
        | CREATE_FRS
        | CREATE_BSC
        | SET_SITE_PROPERTIES
        | DELETE_SITE
        | CHANGE_SITE_PERMISSIONS
        | TAKE_SITE_OWNERSHIP
    )


class EnterpriseRight(IntFlag):
    """MQENTACCESSMASK, 2.2.26"""

    CREATE_USER = 0x1
    CREATE_SITE = 0x2
    CREATE_CN = 0x4
    SET_ENTERPRISE_PROPERTIES = 0x10
    GET_ENTERPRISE_PROPERTIES = 0x20
    DELETE_ENTERPRISE = 0x10000
    GET_ENTERPRISE_PERMISSIONS = 0x20000
    CHANGE_ENTERPRISE_PERMISSIONS = 0x40000
    TAKE_ENTERPRISE_OWNERSHIP = 0x80000

    ENTERPRISE_GENERIC_READ = CREATE_USER | GET_ENTERPRISE_PROPERTIES | GET_ENTERPRISE_PERMISSIONS
    ENTERPRISE_GENERIC_WRITE = ENTERPRISE_GENERIC_READ | CREATE_SITE | CREATE_CN
    ENTERPRISE_GENERIC_ALL = (
        ENTERPRISE_GENERIC_WRITE
        | SET_ENTERPRISE_PROPERTIES
        | DELETE_ENTERPRISE
        | CHANGE_ENTERPRISE_PERMISSIONS
        | TAKE_ENTERPRISE_OWNERSHIP
    )


class ConnectedNetworkRight(IntFlag):
    """MQCNACCESSMASK, 2.2.27"""

    CN_OPEN_CONNECTOR = 0x1
    SET_CN_PROPERTIES = 0x10
    GET_CN_PROPERTIES = 0x20
    DELETE_CN = 0x10000
    GET_CN_PERMISSIONS = 0x20000
    CHANGE_CN_PERMISSIONS = 0x40000
    TAKE_CN_OWNERSHIP = 0x80000

    CN_GENERIC_READ = GET_CN_PROPERTIES | GET_CN_PERMISSIONS
    CN_GENERIC_ALL = (
        CN_GENERIC_READ | CN_OPEN_CONNECTOR | SET_CN_PROPERTIES | DELETE_CN | CHANGE_CN_PERMISSIONS | TAKE_CN_OWNERSHIP
    )


@dataclass(frozen=True, slots=True)
class GenericMapping:
    """The meaning of generic rights for one kind of object. The specifications give generic execute no meaning."""

    read: int
    write: int
    all: int

    def map(self, mask: int) -> int:
        """The mask with specific rights in place of the generic ones."""
        for generic, specific in (
            (StandardRight.GENERIC_READ, self.read),
            (StandardRight.GENERIC_WRITE, self.write),
            (StandardRight.GENERIC_EXECUTE, 0),
            (StandardRight.GENERIC_ALL, self.all),
        ):
            if mask & generic:
                mask = mask & ~generic | specific
        return int(mask)


QUEUE_MAPPING = GenericMapping(
    read=QueueRight.QUEUE_GENERIC_READ.value,
    write=QueueRight.QUEUE_GENERIC_WRITE.value,
    all=QueueRight.QUEUE_GENERIC_ALL.value,
)
MANAGER_MAPPING = GenericMapping(
    read=QueueManagerRight.MACHINE_GENERIC_READ.value,
    write=QueueManagerRight.MACHINE_GENERIC_WRITE.value,
    all=QueueManagerRight.MACHINE_GENERIC_ALL.value,
)

# The words of `postroad queue acl`. A purge removes messages as a receive does, so it needs the same right.
QUEUE_RIGHT_WORDS: Mapping[str, int] = MappingProxyType(
    {
        "write": QueueRight.WRITE_MESSAGE.value,
        "peek": QueueRight.PEEK_MESSAGE.value,
        "receive": QueueRight.RECEIVE_MESSAGE.value,
        "purge": QueueRight.RECEIVE_MESSAGE.value,
        "receive-journal": QueueRight.RECEIVE_JOURNAL_MESSAGE.value,
        "get-properties": QueueRight.GET_QUEUE_PROPERTIES.value,
        "set-properties": QueueRight.SET_QUEUE_PROPERTIES.value,
        "delete": QueueRight.DELETE_QUEUE.value,
        "get-permissions": QueueRight.GET_QUEUE_PERMISSIONS.value,
        "set-permissions": QueueRight.CHANGE_QUEUE_PERMISSIONS.value,
        "take-ownership": QueueRight.TAKE_QUEUE_OWNERSHIP.value,
        "full": QueueRight.QUEUE_GENERIC_ALL.value,
    }
)


def parse_queue_rights(words: Iterable[str]) -> int:
    """The mask of all these words. Raises InvalidArgument for an unknown word, and if there is none."""
    mask = 0
    for word in words:
        if word not in QUEUE_RIGHT_WORDS:  # Windows says "send", which resembles none of our words
            close = ["write"] if word == "send" else get_close_matches(word.lower(), QUEUE_RIGHT_WORDS, n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise InvalidArgument(f"right must be one of {', '.join(QUEUE_RIGHT_WORDS)}, got {word!r}{hint}")
        mask |= QUEUE_RIGHT_WORDS[word]
    if not mask:
        raise InvalidArgument(f"right must be at least one of {', '.join(QUEUE_RIGHT_WORDS)}, got none")
    return mask
