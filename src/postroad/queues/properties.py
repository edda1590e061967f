"""What is known of a queue besides its messages: the persistent attributes of [MS-MQDMPR] 3.1.1.2 and 3.1.1.3."""

# ruff: noqa: RUF009  (a property is a dataclass field, made by a function)

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from enum import Enum
from typing import Any
from uuid import UUID

from postroad.errors import InvalidArgument, StorageError
from postroad.security.sddl import parse_sddl
from postroad.validation.kinds import GUID, checked, parsed
from postroad.validation.queue_properties import (
    DEFAULT_JOURNAL_QUOTA_KB,
    MAX_QUOTA_KB,
    QueueSettings,
    queue_properties,
    queue_property,
)
from postroad.wire.octets import NULL_GUID


class QueueType(Enum):
    """[MS-MQDMPR] 3.1.1.2 QueueType, and the two kinds of queue that belong to another queue."""

    PRIVATE = "private"
    PUBLIC = "public"
    SYSTEM = "system"
    CONNECTOR = "connector"
    OUTGOING = "outgoing"
    JOURNAL = "journal"
    SUBQUEUE = "subqueue"


_COPIES = (QueueType.SYSTEM, QueueType.JOURNAL)
_JOURNALED = (QueueType.PRIVATE, QueueType.PUBLIC)


def _sddl(text: str) -> str:
    parse_sddl(text)
    return text


@dataclass(frozen=True, slots=True)
class QueueProperties(QueueSettings):
    r"""`path` is the part after the computer, as in `private$\orders`. For an outgoing queue it is the format name.

    A quota of None means no limit. A journal or dead-letter queue always has a quota; for these MAX_QUOTA_KB means no
    limit. The other defaults are those of Set Queue Defaults, 3.1.7.1.33.
    """

    queue_type: QueueType
    path: str
    identifier: UUID
    private_queue_number: int = 0
    type_id: UUID = queue_property(GUID, NULL_GUID, "the application's own GUID", "[MS-MQMQ] 2.3.1.2", fixed=True)
    create_time: int = 0
    modify_time: int = 0
    owner: int | None = None  # the number of the queue that a journal or subqueue belongs to
    acl: str | None = queue_property(
        parsed("an access list in SDDL", _sddl, 65_535),
        None,
        "who may use the queue, in SDDL; None: the default descriptor",
        "[MS-MQMQ] 2.3.1.25",
        none=None,
    )

    def __post_init__(self) -> None:
        """A store may be older than the defaults of copies, so fills them in."""
        if self.quota_kb is None and self.queue_type in _COPIES:
            object.__setattr__(self, "quota_kb", DEFAULT_JOURNAL_QUOTA_KB)
        if self.queue_type not in _JOURNALED:
            object.__setattr__(self, "journal_quota_kb", None)
        elif self.journal_quota_kb is None:
            object.__setattr__(self, "journal_quota_kb", DEFAULT_JOURNAL_QUOTA_KB)

    def encode(self) -> bytes:
        values = {stored: _plain(getattr(self, name)) for stored, name in _STORED.items()}
        return json.dumps(values, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, data: bytes, what: str) -> QueueProperties:
        """Reads what `encode` wrote. Leaves out attributes that this version does not know.

        It does not check values again: an earlier version may have allowed what is refused today.
        """
        try:
            stored: dict[str, Any] = json.loads(data)
            values = {_STORED[name]: value for name, value in stored.items() if name in _STORED}
            for name, kind in _TYPES.items():
                if name in values:
                    values[name] = kind(values[name])
            return cls(**values)
        except (ValueError, KeyError, TypeError) as fault:
            raise StorageError(f"the stored definition of {what} cannot be read: {fault}") from fault


_PROPERTIES = queue_properties(QueueProperties)
CHANGEABLE = frozenset(name for name, each in _PROPERTIES.items() if not each.fixed)
# The attributes by their names in the store, and those that need a conversion because JSON lacks their type.
_STORED = {
    _PROPERTIES[each.name].stored if each.name in _PROPERTIES else each.name: each.name
    for each in fields(QueueProperties)
}
_TYPES: dict[str, type[Any]] = {"queue_type": QueueType, "identifier": UUID} | {
    name: type(each.default) for name, each in _PROPERTIES.items() if isinstance(each.default, Enum | UUID)
}


def check_attributes(queue_type: QueueType, attributes: dict[str, object]) -> dict[str, Any]:
    """The attributes that a caller gives, in the queue's own form. InvalidArgument for what no queue can have."""
    found: dict[str, Any] = {}
    for name, given in attributes.items():
        if name not in _PROPERTIES:
            raise InvalidArgument(f"{name}: a queue has no such property, or nobody can set it")
        value = found[name] = checked(_PROPERTIES[name].json_kind, given, name)
        if name == "journal_quota_kb" or (name == "quota_kb" and queue_type in _COPIES):
            found[name] = DEFAULT_JOURNAL_QUOTA_KB if value is None else value
        elif name == "quota_kb" and value == MAX_QUOTA_KB:
            found[name] = None
        elif name == "base_priority" and queue_type is not QueueType.PUBLIC:
            del found[name]  # [MS-MQMQ] 2.3.1.6: it is 0 without a directory, and setting it is ignored
    return found


def _plain(value: object) -> object:
    if isinstance(value, Enum):
        return value.value
    return str(value) if isinstance(value, UUID) else value
