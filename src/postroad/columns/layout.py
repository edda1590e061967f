"""Finds the positions of all fields in many packets at once, with the layout of [MS-MQMQ] 2.2.20 and wire/view.py's
checks.

It handles only plain messages: without security, tracing, SOAP, several destinations or a session; a TransactionHeader
is allowed. Other messages, and malformed ones, are decoded one by one elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from postroad.columns.texts import (
    Bytes,
    Ints,
    Mask,
    bytes_of,
    count_per_row,
    matrix,
    offsets_of,
    slices,
)
from postroad.wire.constants import (
    ADMIN_CODES,
    DESTINATION_CODES,
    MAX_PACKET_SIZE,
    PROPERTIES_HEADER_SIZE,
    QUEUE_CODE_SIZES,
    SIGNATURE,
    VERSION,
    BaseFlags,
    QueueCode,
    UserFlags,
)

FIXED_SIZE = 64  # BaseHeader and the fixed part of UserHeader
MAX_NAMES_SIZE = 4096  # of the three queue names together; longer names are rare, and are read one by one
MAX_LABEL_UNITS = 250
_TRANSACTION_SIZE = 20
_CONNECTOR_SIZE = 16
_ODD_BASE = (BaseFlags.INTERNAL | BaseFlags.SESSION_HEADER | BaseFlags.DEBUG_HEADER | BaseFlags.TRACING).value
_ODD_USER = (UserFlags.SECURITY_HEADER | UserFlags.MULTI_QUEUE_HEADER | UserFlags.SOAP_HEADER).value
_RECOVERABLE = 0x20
_DELIVERY = UserFlags.DELIVERY.value
_SIZES = np.array(QUEUE_CODE_SIZES, np.int64)
_IS_DESTINATION = np.array([code in DESTINATION_CODES for code in range(8)])
_IS_ADMIN = np.array([code in ADMIN_CODES for code in range(8)])

_U16, _U32 = np.dtype("<u2"), np.dtype("<u4")


@dataclass(slots=True)
class Layout:
    """The plain messages of a batch. `rows` are their indices. Byte positions refer to the batch's buffer."""

    rows: Ints
    start: Ints
    base_flags: Ints
    source: Bytes  # the GUIDs, 16 bytes in a row
    address: Bytes
    sent_time: Ints
    message_id: Ints
    user_flags: Ints
    names_end: Ints
    transaction: Ints  # TransactionHeader.Flags; -1 without that header
    ack_flags: Ints
    message_class: Ints
    correlation_id: Bytes  # 20 bytes in a row
    body_type: Ints
    app_tag: Ints
    label_at: Ints
    label_end: Ints  # without the terminator
    extension_at: Ints
    body_at: Ints
    body_end: Ints

    def only(self, mask: Mask) -> Layout:
        """Only the rows that `mask` selects."""
        if mask.all():
            return self
        return Layout(*(getattr(self, each.name)[mask] for each in fields(self)))


def lay_out(packets: Any) -> Layout:
    """The layout of the plain messages among the packets of a binary array. Nulls are not messages."""
    data = bytes_of(packets)
    offsets = offsets_of(packets).astype(np.int64)
    sizes = np.diff(offsets)
    fit = (sizes >= FIXED_SIZE) & (sizes <= MAX_PACKET_SIZE)
    if packets.null_count:
        fit &= packets.is_valid().to_numpy(zero_copy_only=False)
    rows = np.flatnonzero(fit)
    start, size = offsets[:-1][rows], sizes[rows]

    head = matrix(packets, start, FIXED_SIZE)
    base_flags, user_flags = _u16(head, 2), _u32(head, 60)
    destination, admin, response = user_flags >> 10 & 7, user_flags >> 13 & 7, user_flags >> 16 & 7
    delivery = user_flags & _DELIVERY
    transactional = user_flags & UserFlags.TRANSACTION_HEADER.value != 0
    fit = (
        (head[:, 0] == VERSION)
        & (_u32(head, 4) == SIGNATURE)
        & (_u32(head, 8) == size)
        & (base_flags & _ODD_BASE == 0)
        & (user_flags & _ODD_USER == 0)
        & (user_flags & UserFlags.MESSAGE_PROPERTIES_HEADER.value != 0)
        & (delivery <= _RECOVERABLE)
        & (~transactional | (delivery != 0))
        & _IS_DESTINATION[destination]
        & _IS_ADMIN[admin]
    )
    at = np.full(len(rows), FIXED_SIZE, np.int64)
    for code in (destination, admin, response):
        at = _behind_name(data, start, size, at, code, fit)
    names_end = at
    fit &= names_end <= np.minimum(size, FIXED_SIZE + MAX_NAMES_SIZE)
    at = at + np.where(user_flags & UserFlags.CONNECTOR_TYPE.value, _CONNECTOR_SIZE, 0)
    fit &= ~transactional | (at + _TRANSACTION_SIZE <= size)
    flags_at = np.where(fit & transactional, start + at, 0)
    transaction = np.where(fit & transactional, _u32_at(data, flags_at), -1)
    with_connector = _TRANSACTION_SIZE + _CONNECTOR_SIZE
    at = at + np.where(transactional, np.where(transaction & 1, with_connector, _TRANSACTION_SIZE), 0)
    fit &= at + PROPERTIES_HEADER_SIZE <= size

    rows, start, size, head, at = rows[fit], start[fit], size[fit], head[fit], at[fit]
    found = matrix(packets, start + at, PROPERTIES_HEADER_SIZE)
    units, body_size, allocated, extension = (
        found[:, 1].astype(np.int64),
        _u32(found, 32),
        _u32(found, 36),
        _u32(found, 52),
    )
    label_at = at + PROPERTIES_HEADER_SIZE
    extension_at = label_at + 2 * units
    body_at = extension_at + extension
    layout = Layout(
        rows=rows,
        start=start,
        base_flags=base_flags[fit],
        source=head[:, 16:32],
        address=head[:, 32:48],
        sent_time=_u32(head, 52),
        message_id=_u32(head, 56),
        user_flags=user_flags[fit],
        names_end=start + names_end[fit],
        transaction=transaction[fit],
        ack_flags=found[:, 0].astype(np.int64),
        message_class=_u16(found, 2),
        correlation_id=found[:, 4:24],
        body_type=_u32(found, 24),
        app_tag=_u32(found, 28),
        label_at=start + label_at,
        label_end=start + extension_at - np.where(units, 2, 0),
        extension_at=start + extension_at,
        body_at=start + body_at,
        body_end=start + body_at + body_size,
    )
    whole = (body_size <= allocated) & (units <= MAX_LABEL_UNITS) & (body_at + allocated + 3 & ~3 == size)
    layout = layout.only(whole)
    return layout.only(_has_sound_label(packets, layout))


def _behind_name(data: Bytes, start: Ints, size: Ints, at: Ints, code: Ints, fit: Mask) -> Ints:
    """The position of the field after a queue name. Does not check that a direct name is text."""
    direct = code == QueueCode.DIRECT
    fit &= ~direct | (at + 2 <= size)
    count_at = np.where(direct & fit, start + at, 0)
    count = data[count_at].astype(np.int64) | data[count_at + 1].astype(np.int64) << 8 if len(data) > 1 else count_at
    return np.where(direct, at + 2 + count + 3 & ~3, at + _SIZES[code])


def _has_sound_label(packets: Any, layout: Layout) -> Mask:
    """Whether the label is empty, or has its only NUL at its end."""
    labels = slices(packets, layout.label_at, layout.extension_at)
    bounds = offsets_of(labels).astype(np.int64) // 2
    units = bytes_of(labels)[: 2 * bounds[-1]].view(_U16)
    is_nul = units == 0
    empty = np.diff(bounds) == 0
    last = np.maximum(bounds[1:] - 1, 0)
    ends = is_nul[last] if len(is_nul) else empty
    sound: Mask = empty | (ends & (count_per_row(is_nul, bounds) == 1))
    return sound


def _u16(rows: Bytes, at: int) -> Ints:
    return _column(rows, at, _U16)


def _u32(rows: Bytes, at: int) -> Ints:
    return _column(rows, at, _U32)


def _column(rows: Bytes, at: int, kind: np.dtype[Any]) -> Ints:
    column: npt.NDArray[Any] = np.ascontiguousarray(rows[:, at : at + kind.itemsize]).view(kind)
    return column[:, 0].astype(np.int64) if len(rows) else np.zeros(0, np.int64)


def _u32_at(data: Bytes, at: Ints) -> Ints:
    if len(data) < 4:
        return np.zeros(len(at), np.int64)
    number = data[at].astype(np.int64)
    for byte in (1, 2, 3):
        number |= data[at + byte].astype(np.int64) << 8 * byte
    return number
