"""What is known of a queue besides its messages: the persistent attributes of [MS-MQDMPR] 3.1.1.2 and 3.1.1.3."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from enum import Enum
from typing import Any
from uuid import UUID

from postroad.errors import IllegalName, InvalidArgument, StorageError
from postroad.names import MulticastName, parse_format_name
from postroad.wire.layout import NULL_GUID

MAX_LABEL = 124
MAX_QUOTA_KB = 0xFFFFFFFF  # [MS-MQMQ] 2.3.1.5: stands for no limit
DEFAULT_JOURNAL_QUOTA_KB = 1 << 20  # of each journal and dead-letter queue: nobody asks for what fills them
BASE_PRIORITIES = range(-0x8000, 0x8000)


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


_COPIES = (QueueType.SYSTEM, QueueType.JOURNAL)
_JOURNALED = (QueueType.PRIVATE, QueueType.PUBLIC)
# What the manager itself says of a queue.
_GIVEN = frozenset({"queue_type", "path", "private_queue_number", "create_time", "modify_time", "owner"})


@dataclass(slots=True)
class QueueProperties:
    r"""`path` is the part after the computer, as in `private$\orders`; of an outgoing queue, its format name.

    A quota of None is no limit. That of a journal or dead-letter queue is never None: there MAX_QUOTA_KB is no limit.
    The other defaults are those of Set Queue Defaults, 3.1.7.1.33.
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

    def __post_init__(self) -> None:
        """A store may be older than the default."""
        if self.quota_kb is None and self.queue_type in _COPIES:
            self.quota_kb = DEFAULT_JOURNAL_QUOTA_KB
        if self.journal_quota_kb is None and self.queue_type in _JOURNALED:
            self.journal_quota_kb = DEFAULT_JOURNAL_QUOTA_KB

    def encode(self) -> bytes:
        values = {name: _plain(value) for name, value in asdict(self).items()}
        return json.dumps(values, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, data: bytes, what: str) -> QueueProperties:
        """Reads what `encode` wrote; attributes that this version does not know are left out."""
        try:
            values: dict[str, Any] = json.loads(data)
            values = {name: value for name, value in values.items() if name in _KNOWN}
            values["queue_type"] = QueueType(values["queue_type"])
            values["identifier"] = UUID(values["identifier"])
            values["type_id"] = UUID(values["type_id"])
            values["privacy"] = QueuePrivacy(values["privacy"])
            return cls(**values)
        except (ValueError, KeyError, TypeError) as fault:
            raise StorageError(f"the stored definition of {what} cannot be read: {fault}") from fault


_KNOWN = frozenset(field.name for field in fields(QueueProperties))


def check_attributes(queue_type: QueueType, attributes: dict[str, object]) -> dict[str, object]:
    """What callers say of a queue, as it is kept; raises InvalidArgument for what no queue can have."""
    checked = dict(attributes)
    for name, value in attributes.items():
        if name not in _KNOWN or name in _GIVEN:
            raise InvalidArgument(f"{name}: a queue has no such property, or nobody can set it")
        if name == "label" and len(str(value)) > MAX_LABEL:
            raise InvalidArgument(f"label: a queue's label has at most {MAX_LABEL} characters")
        if name in ("quota_kb", "journal_quota_kb"):
            if value is not None and (not isinstance(value, int) or not 0 <= value <= MAX_QUOTA_KB):
                raise InvalidArgument(f"{name}: {value!r} is not between 0 and {MAX_QUOTA_KB}")
            if name == "journal_quota_kb" or queue_type in _COPIES:
                checked[name] = DEFAULT_JOURNAL_QUOTA_KB if value is None else value
            else:
                checked[name] = None if value == MAX_QUOTA_KB else value
        if name == "base_priority":
            if value not in BASE_PRIORITIES:
                raise InvalidArgument(f"base_priority: {value!r} is not between -32768 and 32767")
            # [MS-MQMQ] 2.3.1.6: of a queue that no directory shows it counts as 0, and setting it is ignored.
            checked[name] = value if queue_type is QueueType.PUBLIC else 0
        if name == "privacy":
            checked[name] = _privacy(value)
        if name == "multicast_address" and value is not None:
            checked[name] = _multicast_address(str(value))
    return checked


def _privacy(value: object) -> QueuePrivacy:
    try:
        return QueuePrivacy(value)
    except ValueError:
        words = ", ".join(level.value for level in QueuePrivacy)
        raise InvalidArgument(f"privacy: {value!r} is not one of {words}") from None


def _multicast_address(text: str) -> str:
    try:
        name = parse_format_name(f"MULTICAST={text}")
    except IllegalName as fault:
        raise InvalidArgument(f"multicast_address: {text!r}: {fault.fault}") from None
    if not isinstance(name, MulticastName):
        raise InvalidArgument(f"multicast_address: {text!r} is not one address and port")
    return text


def _plain(value: object) -> object:
    if isinstance(value, Enum):
        return value.value
    return str(value) if isinstance(value, UUID) else value
