"""The frames of [AMQP] parts 2, 4 and 5: their bodies by number, with checked fields, and the frames that we send.

What a frame means is in engine.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct
from typing import Any, Final

from postroad.amqp.codec import (
    LIST_0,
    NULL,
    Described,
    MalformedValue,
    binary,
    boolean,
    described,
    listed,
    read_list,
    read_value,
    symbol,
    text,
    uint,
)
from postroad.errors import (
    AccessDenied,
    IllegalName,
    InvalidMessage,
    LimitReached,
    MessageTooLarge,
    PostroadError,
    QueueNotAvailable,
    QueueNotFound,
    QuotaExceeded,
    SharingViolation,
    StorageError,
    TransactionSequence,
    TransactionUsage,
)

HEADER: Final = b"AMQP\0\1\0\0"
SASL_HEADER: Final = b"AMQP\3\1\0\0"
FRAME = Struct(">IBBH")  # size, data offset in words, type, channel
AMQP_FRAME, SASL_FRAME = 0, 1
HEARTBEAT: Final = FRAME.pack(8, 2, AMQP_FRAME, 0)
SERIAL: Final = 0xFFFFFFFF  # ids and counts wrap around
LEAST_FRAME: Final = 512  # 2.4.1: every peer takes frames of this size
MOST_DESCRIPTION: Final = 350  # characters of a sentence to a peer: it must fit in the least frame

OPEN, BEGIN, ATTACH, FLOW, TRANSFER, DISPOSITION, DETACH, END, CLOSE = range(0x10, 0x19)
ERROR = 0x1D
RECEIVED, ACCEPTED, REJECTED, RELEASED, MODIFIED = range(0x23, 0x28)
SOURCE, TARGET = 0x28, 0x29
COORDINATOR, DECLARE, DISCHARGE, DECLARED, TRANSACTIONAL = range(0x30, 0x35)
MECHANISMS, INIT, CHALLENGE, RESPONSE, OUTCOME = range(0x40, 0x45)

_FRAMES = ("open", "begin", "attach", "flow", "transfer", "disposition", "detach", "end", "close")
_NAMES: Final[Mapping[str, int]] = {
    **{f"amqp:{name}:list": OPEN + place for place, name in enumerate(_FRAMES)},
    "amqp:error:list": ERROR,
    "amqp:source:list": SOURCE,
    "amqp:target:list": TARGET,
    **{f"amqp:{name}:list": RECEIVED + place for place, name in enumerate(("received", "accepted", "rejected"))},
    "amqp:released:list": RELEASED,
    "amqp:modified:list": MODIFIED,
    "amqp:coordinator:list": COORDINATOR,
    "amqp:declare:list": DECLARE,
    "amqp:discharge:list": DISCHARGE,
    "amqp:declared:list": DECLARED,
    "amqp:transactional-state:list": TRANSACTIONAL,
    "amqp:sasl-init:list": INIT,
    "amqp:sasl-response:list": RESPONSE,
}

# Error conditions, 2.8.15 to 2.8.18 and 4.5.8.
INTERNAL = "amqp:internal-error"
NOT_FOUND = "amqp:not-found"
UNAUTHORIZED = "amqp:unauthorized-access"
DECODE_ERROR = "amqp:decode-error"
RESOURCE_LIMIT = "amqp:resource-limit-exceeded"
NOT_ALLOWED = "amqp:not-allowed"
INVALID_FIELD = "amqp:invalid-field"
NOT_IMPLEMENTED = "amqp:not-implemented"
RESOURCE_LOCKED = "amqp:resource-locked"
PRECONDITION_FAILED = "amqp:precondition-failed"
RESOURCE_DELETED = "amqp:resource-deleted"
ILLEGAL_STATE = "amqp:illegal-state"
FORCED = "amqp:connection:forced"
FRAMING_ERROR = "amqp:connection:framing-error"
WINDOW_VIOLATION = "amqp:session:window-violation"
ERRANT_LINK = "amqp:session:errant-link"
HANDLE_IN_USE = "amqp:session:handle-in-use"
UNATTACHED_HANDLE = "amqp:session:unattached-handle"
TRANSFER_LIMIT = "amqp:link:transfer-limit-exceeded"
MESSAGE_SIZE = "amqp:link:message-size-exceeded"
STOLEN = "amqp:link:stolen"
UNKNOWN_TRANSACTION = "amqp:transaction:unknown-id"
ROLLED_BACK = "amqp:transaction:rollback"


class Fault(PostroadError):
    """An error that a peer gets, with its condition."""

    def __init__(self, condition: str, description: str) -> None:
        super().__init__(description)
        self.condition = condition


class ConnectionFault(Fault):
    """Ends the connection."""


class SessionFault(Fault):
    """Ends the session."""


_CONDITIONS: Final[tuple[tuple[type[PostroadError], str], ...]] = (
    (QueueNotFound, NOT_FOUND),
    (IllegalName, NOT_FOUND),
    (AccessDenied, UNAUTHORIZED),
    (QuotaExceeded, RESOURCE_LIMIT),
    (LimitReached, RESOURCE_LIMIT),
    (MessageTooLarge, MESSAGE_SIZE),
    (SharingViolation, RESOURCE_LOCKED),
    (QueueNotAvailable, RESOURCE_DELETED),
    (TransactionUsage, NOT_ALLOWED),
    (TransactionSequence, UNKNOWN_TRANSACTION),
    (InvalidMessage, INVALID_FIELD),
    (StorageError, INTERNAL),
    (MalformedValue, DECODE_ERROR),
)


def condition_of(error: PostroadError) -> str:
    if isinstance(error, Fault):
        return error.condition
    return next((condition for kind, condition in _CONDITIONS if isinstance(error, kind)), PRECONDITION_FAILED)


# Reading. The fields of each body: the type of a value, and what an absent one means; ... if there must be one.


class _Long(int):
    """Marks a field of 64 bits. All other numbers have at most 32."""


_ANY, _TEXT, _BYTES, _MAP = object, str, bytes, dict
_MOST: Final[Mapping[type, int]] = {int: SERIAL, _Long: 0xFFFFFFFFFFFFFFFF}
_NONE: Final = None
_BODIES: Final[Mapping[int, tuple[tuple[type, Any], ...]]] = {
    OPEN: (
        *((_TEXT, ...), (_TEXT, _NONE), (int, SERIAL), (int, 0xFFFF), (int, 0), (_ANY, _NONE), (_ANY, _NONE)),
        *((_ANY, _NONE), (_ANY, _NONE), (_MAP, _NONE)),
    ),
    BEGIN: (
        *((int, _NONE), (int, ...), (int, ...), (int, ...), (int, SERIAL)),
        *((_ANY, _NONE), (_ANY, _NONE), (_MAP, _NONE)),
    ),
    ATTACH: (
        *((_TEXT, ...), (int, ...), (bool, ...), (int, 2), (int, 0), (Described, _NONE), (Described, _NONE)),
        *((_MAP, _NONE), (bool, False), (int, _NONE), (_Long, 0), (_ANY, _NONE), (_ANY, _NONE), (_MAP, _NONE)),
    ),
    FLOW: (
        *((int, _NONE), (int, ...), (int, ...), (int, ...), (int, _NONE), (int, _NONE), (int, _NONE)),
        *((int, _NONE), (bool, False), (bool, False), (_MAP, _NONE)),
    ),
    TRANSFER: (
        *((int, ...), (int, _NONE), (_BYTES, _NONE), (int, 0), (bool, _NONE), (bool, False), (int, _NONE)),
        *((Described, _NONE), (bool, False), (bool, False), (bool, False)),
    ),
    DISPOSITION: ((bool, ...), (int, ...), (int, _NONE), (bool, False), (Described, _NONE), (bool, False)),
    DETACH: ((int, ...), (bool, False), (Described, _NONE)),
    END: ((Described, _NONE),),
    CLOSE: ((Described, _NONE),),
    SOURCE: (
        *((_TEXT, _NONE), (int, 0), (_TEXT, "session-end"), (int, 0), (bool, False), (_MAP, _NONE), (_TEXT, _NONE)),
        *((_MAP, _NONE), (Described, _NONE), (_ANY, _NONE), (_ANY, _NONE)),
    ),
    TARGET: (
        *((_TEXT, _NONE), (int, 0), (_TEXT, "session-end"), (int, 0), (bool, False), (_MAP, _NONE)),
        *((_ANY, _NONE),),
    ),
    COORDINATOR: ((_ANY, _NONE),),
    DECLARE: ((_ANY, _NONE),),
    DISCHARGE: ((_BYTES, ...), (bool, False)),
    REJECTED: ((Described, _NONE),),
    MODIFIED: ((bool, False), (bool, False), (_MAP, _NONE)),
    TRANSACTIONAL: ((_BYTES, ...), (Described, _NONE)),
    INIT: ((_TEXT, ...), (_BYTES, b""), (_TEXT, _NONE)),
}


def code_of(descriptor: object) -> int:
    """The number of a descriptor; -1 if it is none that we know."""
    if type(descriptor) is int:
        return descriptor if 0 <= descriptor < 0x100 else -1
    return _NAMES.get(descriptor, -1) if isinstance(descriptor, str) else -1


def read_body(data: bytes, at: int, end: int) -> tuple[int, list[Any], int]:
    """The body of a frame: its number, its fields as they are, and where the payload begins."""
    if at + 2 < end and data[at] == 0 and data[at + 1] == 0x53:
        code, at = data[at + 2], at + 3
    else:
        if at >= end or data[at] != 0:
            raise MalformedValue("a frame must have a described body", at)
        descriptor, at = read_value(data, at + 1, end)
        code = code_of(descriptor)
    values, at = read_list(data, at, end)
    return code, values, at


def fields_of(code: int, values: list[Any]) -> list[Any]:
    """All fields of a body, absent ones with their defaults. Raises MalformedValue for a value of a wrong type."""
    fields = _BODIES[code]
    if len(values) > len(fields):
        raise MalformedValue(f"the body {code:#04x} must have at most {len(fields)} fields, got {len(values)}")
    found = []
    for place, (kind, default) in enumerate(fields):
        value = values[place] if place < len(values) else None
        if value is None:
            if default is ...:
                raise MalformedValue(f"the body {code:#04x} must have its field {place + 1}")
            value = default
        elif not (type(value) is int and 0 <= value <= _MOST[kind] if kind in _MOST else isinstance(value, kind)):
            raise MalformedValue(f"the field {place + 1} of the body {code:#04x} has a wrong type or value")
        found.append(value)
    return found


def described_fields(value: Described | None, *codes: int) -> tuple[int, list[Any]] | None:
    """The fields of a described list such as a source. None for none, and for another one."""
    if value is None:
        return None
    code = code_of(value.descriptor)
    if code not in codes or not isinstance(value.value, list):
        return None
    return code, fields_of(code, value.value)


# Sending

STATE_ACCEPTED: Final = described(ACCEPTED, LIST_0)
STATE_RELEASED: Final = described(RELEASED, LIST_0)
OUTCOMES: Final = (
    "amqp:accepted:list",
    "amqp:rejected:list",
    "amqp:released:list",
    "amqp:modified:list",
)


def error_value(condition: str, description: str) -> bytes:
    return described(ERROR, listed(symbol(condition), text(description[:MOST_DESCRIPTION])))


def state_rejected(error: PostroadError) -> bytes:
    return described(REJECTED, listed(error_value(condition_of(error), str(error))))


def state_transactional(transaction: bytes, outcome: bytes = NULL) -> bytes:
    return described(TRANSACTIONAL, listed(binary(transaction), outcome))


def state_declared(transaction: bytes) -> bytes:
    return described(DECLARED, listed(binary(transaction)))


def frame(channel: int, body: bytes, kind: int = AMQP_FRAME) -> bytes:
    return FRAME.pack(8 + len(body), 2, kind, channel) + body


def disposition(
    channel: int, *, receiver: bool, first: int, last: int, state: bytes = NULL, settled: bool = True
) -> bytes:
    fields = listed(boolean(receiver), uint(first), uint(last), boolean(settled), state)
    return frame(channel, described(DISPOSITION, fields))
