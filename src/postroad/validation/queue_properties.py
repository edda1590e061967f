"""The properties of a queue that people set, each described once.

The configuration file, the HTTP API and its OpenAPI description, the commands, the Python verbs, the store and the
reference are made from this table or checked against it. A new property is a line in QueueSettings and, for type
checkers, one in QueueAttributes.
"""

# ruff: noqa: RUF009  (a property is a dataclass field, made by a function)

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, replace
from enum import StrEnum
from typing import Any, Literal, TypedDict, TypeVar

from postroad.errors import IllegalName
from postroad.validation.fields import MORE, setting
from postroad.validation.kinds import (
    SWITCH,
    UINT32,
    UINT32_MAX,
    FieldFault,
    Kind,
    Property,
    choice,
    line,
    nullable,
    parsed,
    properties,
    whole,
)

T = TypeVar("T")
D = TypeVar("D")

MAX_LABEL = 124
MAX_QUOTA_KB = UINT32_MAX  # [MS-MQMQ] 2.3.1.5: no limit
BASE_PRIORITY = whole(-0x8000, 0x7FFF)
NO_BASE_PRIORITY = "must be 0, because only a public queue has a base priority"  # [MS-MQMQ] 2.3.1.6
# of each journal and dead-letter queue, because these fill up without anybody asking for it
DEFAULT_JOURNAL_QUOTA_KB = 1 << 20


def _multicast_address(text: str) -> str:
    from postroad.names import MulticastName, parse_format_name  # imported here, because a small command needs no names

    try:
        name = parse_format_name(f"MULTICAST={text}")
    except IllegalName as fault:
        raise FieldFault(f"must be an address and port such as 234.1.1.1:8001, got {text!r}: {fault.fault}") from None
    if not isinstance(name, MulticastName):
        raise FieldFault(f"must be one address and port, got {text!r}")
    return f"{name.address}:{name.port}"


class QueuePrivacy(StrEnum):
    """PrivacyLevel: which bodies a queue accepts."""

    NONE = "none"
    OPTIONAL = "optional"
    BODY = "body"


@dataclass(frozen=True, slots=True)
class QueueProperty:
    """One row of the table. `stored` is its name in the store."""

    name: str
    kind: Kind[Any]
    default: object
    help: str
    spec: str
    fixed: bool
    none: object
    stored: str

    @property
    def optional(self) -> bool:
        return self.none is not MISSING

    @property
    def json_kind(self) -> Kind[Any]:
        return nullable(self.kind) if self.optional else self.kind

    def from_text(self, text: str) -> object:
        """Reads the value of a command's option. Raises FieldFault if it does not fit."""
        if not self.optional:
            return self.kind.from_text(text)
        if text.lower() == "none":
            return self.none
        try:
            return self.kind.from_text(text)
        except FieldFault as fault:
            raise FieldFault(f"{fault.fault}; or none") from None


def queue_property(
    kind: Kind[T],
    default: D,
    help: str,
    spec: str,
    *,
    fixed: bool = False,
    none: object = MISSING,
    stored: str | None = None,
) -> T | D:
    """A property: its kind, its default, what it means, and its section of the specification.

    A fixed property cannot change once the queue exists. `none` is the value of the word none on a command line; such a
    property may be null in JSON and None in Python. `stored` is its name in the store, if that differs.
    """
    return setting(kind, default, more=QueueProperty("", kind, default, help, spec, fixed, none, stored or ""))


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSettings:
    """What people can set. A quota or limit of None means no limit."""

    transactional: bool = queue_property(
        SWITCH, False, "take messages sent in transactions only", "[MS-MQMQ] 2.3.1.13", fixed=True
    )
    label: str = queue_property(
        line(MAX_LABEL, empty=True), "", f"a title of up to {MAX_LABEL} characters", "[MS-MQMQ] 2.3.1.8"
    )
    journal: bool = queue_property(
        SWITCH,
        False,
        "copy received messages to the queue's journal",
        "[MS-MQMQ] 2.3.1.4",
        stored="journaling",
    )
    quota_kb: int | None = queue_property(
        UINT32, None, "how much the queue holds, in KiB", "[MS-MQMQ] 2.3.1.5", none=MAX_QUOTA_KB
    )
    journal_quota_kb: int | None = queue_property(
        UINT32,
        DEFAULT_JOURNAL_QUOTA_KB,
        f"how much the queue's journal holds, in KiB; {MAX_QUOTA_KB} is no limit",
        "[MS-MQMQ] 2.3.1.7",
        none=MAX_QUOTA_KB,
    )
    authenticate: bool = queue_property(
        SWITCH,
        False,
        "take signed messages only, and those of users who have logged in to the API",
        "[MS-MQMQ] 2.3.1.11",
    )
    privacy: QueuePrivacy = queue_property(
        choice(QueuePrivacy),
        QueuePrivacy.OPTIONAL,
        "which bodies the queue takes: none (clear ones), optional (both kinds) or body (encrypted ones)",
        "[MS-MQMQ] 2.3.1.12",
    )
    abort_limit: int | None = queue_property(
        whole(1, UINT32_MAX), None, "how many aborts move a message to the subqueue ;poison", "", none=None
    )
    base_priority: int = queue_property(
        BASE_PRIORITY,
        0,
        "for a public queue, -32768 to 32767: of the queues to one next hop, senders serve those of the highest first",
        "[MS-MQMQ] 2.3.1.6",
    )
    multicast_address: str | None = queue_property(
        parsed("an address and port such as 234.1.1.1:8001", _multicast_address),
        None,
        "the multicast address that the queue listens to, such as 234.1.1.1:8001; not for a transactional queue",
        "[MS-MQMQ] 2.3.1.23",
        none=None,
    )


class QueueAttributes(TypedDict, total=False):
    """The settings as keyword arguments in Python."""

    transactional: bool
    label: str
    journal: bool
    quota_kb: int | None
    journal_quota_kb: int | None
    authenticate: bool
    privacy: Literal["none", "optional", "body"]
    abort_limit: int | None
    base_priority: int
    multicast_address: str | None


def queue_properties(schema: type[Any] = QueueSettings) -> Mapping[str, QueueProperty]:
    """The properties of a dataclass whose fields are properties, by name."""
    found = {each.name: each.metadata.get(MORE) for each in fields(schema)}
    return {
        name: replace(each, name=name, stored=each.stored or name) for name, each in found.items() if each is not None
    }


QUEUE_PROPERTIES = queue_properties()
CHANGEABLE = {name: each for name, each in QUEUE_PROPERTIES.items() if not each.fixed}
# As keys of a JSON object: those of a new queue, and those that can change.
NEW_QUEUE = properties(*(Property(name, name, each.json_kind, each.help) for name, each in QUEUE_PROPERTIES.items()))
QUEUE_CHANGES = {name: NEW_QUEUE[name] for name in CHANGEABLE}


def settings_of(described: QueueSettings) -> dict[str, Any]:
    """Only the properties of a dataclass that has more fields."""
    return {name: getattr(described, name) for name in QUEUE_PROPERTIES}
