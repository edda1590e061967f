"""What is known of a queue besides its messages: the persistent attributes of [MS-MQDMPR] 3.1.1.2 and 3.1.1.3."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from enum import Enum
from typing import Any
from uuid import UUID

from postroad.errors import StorageError
from postroad.wire.layout import NULL_GUID


class QueueType(Enum):
    """[MS-MQDMPR] 3.1.1.2 QueueType, and the two kinds of queue that hang on another one."""

    PRIVATE = "private"
    PUBLIC = "public"
    SYSTEM = "system"
    CONNECTOR = "connector"
    OUTGOING = "outgoing"
    JOURNAL = "journal"
    SUBQUEUE = "subqueue"


class QueuePrivacy(Enum):
    """PrivacyLevel: which bodies a queue takes."""

    NONE = "none"
    OPTIONAL = "optional"
    BODY = "body"


@dataclass(slots=True)
class QueueProperties:
    r"""`path` is the part after the computer, as in `private$\orders`; of an outgoing queue, its format name.

    A quota of None is no limit. The defaults are those of Set Queue Defaults, 3.1.7.1.33.
    """

    queue_type: QueueType
    path: str
    identifier: UUID
    private_queue_number: int = 0
    transactional: bool = False
    label: str = ""
    journaling: bool = False
    quota_kb: int | None = None
    journal_quota_kb: int | None = None
    authenticate: bool = False
    privacy: QueuePrivacy = QueuePrivacy.OPTIONAL
    type_id: UUID = NULL_GUID
    base_priority: int = 0
    abort_limit: int | None = None  # how often a message may be put back before it moves to ;poison
    multicast_address: str | None = None
    create_time: int = 0
    modify_time: int = 0
    owner: int | None = None  # the number of the queue that a journal or subqueue belongs to

    def encode(self) -> bytes:
        values = {name: _plain(value) for name, value in asdict(self).items()}
        return json.dumps(values, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, data: bytes, what: str) -> QueueProperties:
        """Reads what `encode` wrote; attributes that this version does not know are left out."""
        try:
            values: dict[str, Any] = json.loads(data)
            known = {field.name for field in fields(cls)}
            values = {name: value for name, value in values.items() if name in known}
            values["queue_type"] = QueueType(values["queue_type"])
            values["identifier"] = UUID(values["identifier"])
            values["type_id"] = UUID(values["type_id"])
            values["privacy"] = QueuePrivacy(values["privacy"])
            return cls(**values)
        except (ValueError, KeyError, TypeError) as fault:
            raise StorageError(f"the stored definition of {what} cannot be read: {fault}") from fault


def _plain(value: object) -> object:
    if isinstance(value, Enum):
        return value.value
    return str(value) if isinstance(value, UUID) else value
