"""Decodes packets to columns: plain messages all at once, and others one by one by the rules of describe/packets.py."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from postroad.columns.schema import ARROW_TYPES, ERROR, PROPERTIES
from postroad.columns.texts import (
    Bytes,
    Ints,
    Mask,
    binary,
    body_texts,
    bytes_of,
    count_per_row,
    fixed,
    guid_rows,
    identifiers,
    matrix,
    offsets_of,
    slices,
    utf16_text,
)
from postroad.describe.packets import (
    admin_text,
    destination_text,
    message_json,
    response_text,
)
from postroad.errors import RemoteProtocolError
from postroad.wire.constants import (
    ADMIN_CODES,
    ADMIN_SHIFT,
    DESTINATION_CODES,
    DESTINATION_SHIFT,
    MAX_PACKET_SIZE,
    PROPERTIES_HEADER_SIZE,
    QUEUE_CODE_SIZES,
    RESPONSE_SHIFT,
    SIGNATURE,
    TRANSACTION_ID_SHIFT,
    VERSION,
    BaseFlags,
    QueueCode,
    TransactionFlags,
    UserFlags,
    class_name,
)
from postroad.wire.octets import body_text, whole_text
from postroad.wire.view import MessageView

_MICROSECONDS = 1_000_000
_NAMES = ("destination_queue", "admin_queue", "response_queue")
_NAME_BITS = (UserFlags.DESTINATION_QUEUE | UserFlags.ADMIN_QUEUE | UserFlags.RESPONSE_QUEUE).value


def decode(packets: Any, *, reason: Any = None, columns: Sequence[str] | None = None) -> dict[str, Any]:
    """The columns by name, with a value for each packet. By default, these are all properties and `decode_error`.

    `packets` is a binary array. A packet that is not a message has nulls and the error in `decode_error`; a null has
    only nulls. `reason` is the reason of a dead letter, or 0 or null for other messages. It replaces their class.
    """
    packets = _plain(packets, pa.binary())
    wanted = (*PROPERTIES, ERROR) if columns is None else columns
    reasons = _numbers(reason, len(packets))
    layout = lay_out(packets)
    batch = _Batch(packets, layout, reasons)
    if any(name in _NAMES for name in wanted) or not batch.names_are_sound():
        batch.read_names()
    found = {name: batch.column(name) for name in wanted}
    if len(batch.layout.rows) == len(packets):
        return found
    return _joined(found, packets, batch.layout.rows, reasons)


def _plain(array: Any, kind: Any) -> Any:
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    return array if array.type == kind else array.cast(kind)


def _numbers(array: Any, count: int) -> Ints:
    if array is None:
        return np.zeros(count, np.int64)
    found: Ints = pc.fill_null(_plain(array, pa.int64()), 0).to_numpy(zero_copy_only=False)
    return found


class _Batch:
    """The plain messages of a batch. A column is made when it is first used."""

    def __init__(self, packets: Any, layout: Layout, reasons: Ints) -> None:
        self.packets = packets
        self.layout = layout
        self._reasons = reasons
        self._names: dict[str, Any] = {}
        self._bodies: Any = None

    def column(self, name: str) -> Any:
        if name in _NAMES:
            return self._names[name]
        return _COLUMNS[name](self)

    # Queue names

    def names_are_sound(self) -> bool:
        """Whether there are no direct names, which may be invalid text."""
        return not _has_code(self.layout.user_flags, QueueCode.DIRECT).any()

    def read_names(self) -> None:
        """Reads the three names, each once for all messages that have it.

        Messages with an invalid name leave the batch. They are decoded one by one, which gives the exact error.
        """
        layout = self.layout
        codes = layout.user_flags & _NAME_BITS
        names = slices(self.packets, layout.start + FIXED_SIZE, layout.names_end)
        keys = pc.binary_join_element_wise(names, self._name_context(codes), pa.scalar(b"", pa.binary()))
        known = keys.dictionary_encode()
        indices = known.indices.to_numpy()
        _, first = np.unique(indices, return_index=True)
        texts: dict[str, list[str | None]] = {name: [] for name in _NAMES}
        sound = []
        for row in first.tolist():
            try:
                view = MessageView(self.packets[int(layout.rows[row])].as_py())
            except RemoteProtocolError:
                sound.append(False)
                described: tuple[str | None, ...] = (None, None, None)
            else:
                sound.append(True)
                described = (destination_text(view), admin_text(view), response_text(view))
            for name, text in zip(_NAMES, described, strict=True):
                texts[name].append(text)
        if not all(sound):
            mask = np.array(sound)[indices]
            self.layout = layout.only(mask)
            indices = indices[mask]
        chosen = pa.array(indices)
        self._names = {name: pa.array(texts[name], pa.string()).take(chosen) for name in _NAMES}

    def _name_context(self, codes: Ints) -> Any:
        """What the names depend on besides their bytes: their codes, and the managers that some codes refer to."""
        layout = self.layout
        rows = np.zeros((len(codes), 36), np.uint8)
        rows[:, :4] = codes.astype("<u4")[:, None].view(np.uint8)
        of_source = _has_code(codes, QueueCode.PRIVATE_ON_SOURCE)
        of_destination = _has_code(codes, QueueCode.PRIVATE_ON_DESTINATION)
        rows[of_source, 4:20] = layout.source[of_source]
        rows[of_destination, 20:36] = layout.address[of_destination]
        return binary(rows.reshape(-1), np.arange(len(rows) + 1) * 36, pa.binary())

    # All other properties

    @property
    def bodies(self) -> Any:
        if self._bodies is None:
            self._bodies = slices(self.packets, self.layout.body_at, self.layout.body_end)
        return self._bodies

    @property
    def classes(self) -> Ints:
        reasons = self._reasons[self.layout.rows]
        return np.where(reasons != 0, reasons, self.layout.message_class)

    def class_names(self) -> Any:
        known, indices = np.unique(self.classes, return_inverse=True)
        return pa.array([class_name(each) for each in known.tolist()], pa.string()).take(pa.array(indices))

    def deliveries(self) -> Any:
        recoverable = self.layout.user_flags & UserFlags.DELIVERY.value != 0
        return _DELIVERIES.take(pa.array(np.where(self.layout.transaction >= 0, 2, recoverable.astype(np.int64))))

    def correlation_ids(self) -> Any:
        raw = self.layout.correlation_id
        ordinals = np.ascontiguousarray(raw[:, 16:20]).view("<u4").reshape(-1).astype(np.int64)
        nothing = pa.scalar(None, pa.string())
        there = raw.any(axis=1)
        if not there.any():
            return pa.nulls(len(raw), pa.string())
        return pc.if_else(pa.array(there), identifiers(raw[:, :16], ordinals), nothing)

    def transaction_flag(self, flag: TransactionFlags) -> Any:
        flags = self.layout.transaction
        return pa.array((flags >= 0) & (flags & flag.value != 0))

    def transaction_ids(self) -> Any:
        flags = self.layout.transaction
        return pa.array((flags & TransactionFlags.IDENTIFIER.value) >> TRANSACTION_ID_SHIFT, mask=flags < 0)

    def all_false(self) -> Any:
        return pa.array(np.zeros(len(self.layout.rows), bool))

    def all_null(self) -> Any:
        return pa.nulls(len(self.layout.rows), pa.string())


def _has_code(flags: Ints, code: QueueCode) -> Mask:
    found: Mask = np.zeros(len(flags), bool)
    for shift in (DESTINATION_SHIFT, ADMIN_SHIFT, RESPONSE_SHIFT):
        found |= (flags >> shift & 7) == code
    return found


_DELIVERIES = pa.array(["express", "recoverable", "transactional"])
_COLUMNS: dict[str, Callable[[_Batch], Any]] = {
    "id": lambda batch: identifiers(batch.layout.source, batch.layout.message_id),
    "class": lambda batch: pa.array(batch.classes.astype(np.int32)),
    "class_name": _Batch.class_names,
    "label": lambda batch: utf16_text(slices(batch.packets, batch.layout.label_at, batch.layout.label_end)),
    "body": lambda batch: batch.bodies,
    "body_text": lambda batch: body_texts(batch.bodies, batch.layout.body_type),
    "body_type": lambda batch: pa.array(batch.layout.body_type),
    "priority": lambda batch: pa.array((batch.layout.base_flags & BaseFlags.PRIORITY.value).astype(np.int32)),
    "delivery": _Batch.deliveries,
    "correlation_id": _Batch.correlation_ids,
    "sent_at": lambda batch: pa.array(batch.layout.sent_time * _MICROSECONDS).cast(ARROW_TYPES["sent_at"]),
    "source_manager": lambda batch: fixed(guid_rows(batch.layout.source)),
    "dead_letter_queue": _Batch.all_null,
    "extension": lambda batch: slices(batch.packets, batch.layout.extension_at, batch.layout.body_at),
    "app_tag": lambda batch: pa.array(batch.layout.app_tag),
    "hops": lambda batch: pa.array((batch.layout.user_flags & UserFlags.HOP_COUNT.value).astype(np.int32)),
    "authenticated": _Batch.all_false,
    "encrypted": _Batch.all_false,
    "sender_id": _Batch.all_null,
    "first_in_transaction": lambda batch: batch.transaction_flag(TransactionFlags.FIRST),
    "last_in_transaction": lambda batch: batch.transaction_flag(TransactionFlags.LAST),
    "transaction_id": _Batch.transaction_ids,
    "authentication_level": lambda batch: pa.array(np.zeros(len(batch.layout.rows), np.int32)),
    "hash": _Batch.all_null,
    "cipher": _Batch.all_null,
    ERROR: _Batch.all_null,
}


def _joined(found: dict[str, Any], packets: Any, rows: Ints, reasons: Ints) -> dict[str, Any]:
    """Joins the columns of plain messages with those of the others, in the order of the packets."""
    others = np.ones(len(packets), bool)
    others[rows] = False
    other_rows = np.flatnonzero(others)
    described = [_decode_alone(packets[row].as_py(), int(reasons[row])) for row in other_rows.tolist()]
    order = np.empty(len(packets), np.int64)
    order[rows] = np.arange(len(rows))
    order[other_rows] = len(rows) + np.arange(len(other_rows))
    joined = {}
    for name, column in found.items():
        values = pa.array([each.get(name) for each in described], ARROW_TYPES[name])
        joined[name] = pa.concat_arrays([column, values]).take(pa.array(order))
    return joined


def _decode_alone(packet: bytes | None, reason: int) -> dict[str, object]:
    """Decodes one packet through its JSON form."""
    if packet is None:
        return {}
    try:
        view = MessageView(packet)
    except RemoteProtocolError as fault:
        return {ERROR: str(fault)}
    text = None if view.encrypted else body_text(view.body, view.body_type)
    message_class = reason or view.message_class
    return message_json(view) | {
        "class": message_class,
        "class_name": class_name(message_class),
        "body": view.body,
        "body_text": None if text is None else whole_text(text),
        "extension": view.extension,
        "sent_at": view.sent_time * _MICROSECONDS,
    }


# The positions of all fields in many packets at once, with the layout of [MS-MQMQ] 2.2.20 and wire/view.py's checks.
#
# This handles only plain messages: without security, tracing, SOAP, several destinations or a session; a
# TransactionHeader is allowed. Other messages, and malformed ones, are decoded one by one.


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
