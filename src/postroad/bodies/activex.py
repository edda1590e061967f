"""Bodies of ActiveX components and .NET's ActiveXMessageFormatter: one value, whose type the body type names."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

from postroad.bodies.bounds import check_values
from postroad.bodies.values import decimal, guid, moment, scaled, single
from postroad.errors import RemoteProtocolError
from postroad.wire.constants import BodyType

ARRAY = 0x2000  # VT_ARRAY
BYTE_VECTORS = frozenset({ARRAY | BodyType.VT_UI1, BodyType.VT_VECTOR | BodyType.VT_UI1})
_DECIMAL, _INT, _UINT, _FILETIME = 14, 22, 23, 64  # more of VARENUM than [MS-MQMQ] 2.2.12 lists
_DAY_ZERO = datetime(1899, 12, 30)
_FURTHEST_DAY = 3_000_000.0
_SMALLEST_DAY = 1e-9  # a date is a number of days; anything smaller but 0 is no date, and is read as ticks
_FILETIME_ZERO = 504_911_232_000_000_000  # 1601-01-01 in ticks since the year 1


def is_activex(body_type: int) -> bool:
    """Whether a body of this type is one value, or several of one type. Text is read by its own types."""
    return body_type in _VALUES or body_type == BodyType.VT_NULL or body_type & ~(ARRAY | BodyType.VT_VECTOR) in _VALUES


def activex_value(body: bytes, body_type: int) -> Any:
    """A number, a truth, a time, text, bytes, or a list of them; RemoteProtocolError if the body is not of its type."""
    if body_type == BodyType.VT_NULL:
        return None
    if body_type in BYTE_VECTORS:
        return body
    if body_type in _VALUES:
        return _value(body, body_type)
    element = body_type & ~(ARRAY | BodyType.VT_VECTOR)
    size = _SIZES[element][-1]
    if len(body) % size:
        raise RemoteProtocolError(
            f"a body with values of type {_type_name(element)} must be a multiple of {size} bytes"
        )
    check_values(len(body) // size)
    return [_value(body[start : start + size], element) for start in range(0, len(body), size)]


def _value(body: bytes, body_type: int) -> Any:
    if len(body) not in _SIZES[body_type]:
        sizes = " or ".join(map(str, _SIZES[body_type]))
        name = _type_name(body_type)
        raise RemoteProtocolError(f"a body of type {name} must have {sizes} bytes, got {len(body)}")
    value = _VALUES[body_type](body)
    if value is None:
        raise RemoteProtocolError(f"a body of type {_type_name(body_type)} must have a value, got {body.hex()}")
    return value


def _type_name(body_type: int) -> str:
    try:
        return BodyType(body_type).name
    except ValueError:
        return str(body_type)


def _unpacked(form: str) -> Callable[[bytes], Any]:
    return lambda body: struct.unpack(form, body)[0]


def _date(body: bytes) -> str | None:
    """Components write days since 1899-12-30, where the part of a day counts forwards, also before that. .NET writes
    ticks since the year 1 under the same type: as a number of days these would be next to nothing."""
    (days,), (ticks,) = struct.unpack("<d", body), struct.unpack("<q", body)
    if days == 0 or _SMALLEST_DAY <= abs(days) <= _FURTHEST_DAY:
        whole = int(days)
        try:
            return (_DAY_ZERO + timedelta(days=whole) + timedelta(days=abs(days - whole))).isoformat()
        except OverflowError:
            return None
    return moment(ticks)


def _file_time(body: bytes) -> str | None:
    return moment(_FILETIME_ZERO + struct.unpack("<Q", body)[0], "Z")


def _currency(body: bytes) -> str:
    (units,) = struct.unpack("<q", body)
    return scaled(abs(units), 4, negative=units < 0)


_VALUES: Mapping[int, Callable[[bytes], Any]] = {
    BodyType.VT_I1: _unpacked("<b"),
    BodyType.VT_UI1: _unpacked("<B"),
    BodyType.VT_I2: _unpacked("<h"),
    BodyType.VT_UI2: _unpacked("<H"),
    BodyType.VT_I4: _unpacked("<i"),
    BodyType.VT_UI4: _unpacked("<I"),
    BodyType.VT_I8: _unpacked("<q"),
    BodyType.VT_UI8: _unpacked("<Q"),
    _INT: _unpacked("<i"),
    _UINT: _unpacked("<I"),
    BodyType.VT_R4: lambda body: single(struct.unpack("<f", body)[0]),
    BodyType.VT_R8: _unpacked("<d"),
    BodyType.VT_BOOL: any,
    BodyType.VT_CY: _currency,
    BodyType.VT_DATE: _date,
    BodyType.VT_CLSID: guid,
    _DECIMAL: decimal,
    _FILETIME: _file_time,
}
# How many bytes a value has; .NET writes a truth as one, components as two.
_SIZES: Mapping[int, tuple[int, ...]] = {
    **dict.fromkeys((BodyType.VT_I1.value, BodyType.VT_UI1.value), (1,)),
    **dict.fromkeys((BodyType.VT_I2.value, BodyType.VT_UI2.value), (2,)),
    **dict.fromkeys((BodyType.VT_I4.value, BodyType.VT_UI4.value, BodyType.VT_R4.value, _INT, _UINT), (4,)),
    **dict.fromkeys((BodyType.VT_I8.value, BodyType.VT_UI8.value, BodyType.VT_R8.value), (8,)),
    **dict.fromkeys((BodyType.VT_CY.value, BodyType.VT_DATE.value, _FILETIME), (8,)),
    **dict.fromkeys((BodyType.VT_CLSID.value, _DECIMAL), (16,)),
    BodyType.VT_BOOL.value: (1, 2),
}
