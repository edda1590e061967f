"""PROPVARIANT, [MS-MQMQ] 2.2.12 to 2.2.14: the value of a property together with its type.

This makes only the bytes of the structure itself. `rpc` adds the pointers of strings, blobs and arrays, and the second
copy of the type before the union.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import TypeAlias
from uuid import UUID

from postroad.errors import LocalProtocolError, RemoteProtocolError
from postroad.wire.constants import BodyType

Item: TypeAlias = "int | str | UUID | PropVariant"
Value: TypeAlias = "Item | bytes | tuple[Item, ...] | None"

VARIANT_TRUE = 0xFFFF
VARIANT_FALSE = 0x0000

_PREFIX = Struct("<HBBI")  # vt and three reserved fields; the union follows
_VECTOR = BodyType.VT_VECTOR.value
_WITHOUT_DATA = frozenset({BodyType.VT_EMPTY.value, BodyType.VT_NULL.value})
_INTEGERS: dict[int, Struct] = {
    BodyType.VT_I1: Struct("<b"),
    BodyType.VT_UI1: Struct("<B"),
    BodyType.VT_I2: Struct("<h"),
    BodyType.VT_UI2: Struct("<H"),
    BodyType.VT_I4: Struct("<i"),
    BodyType.VT_UI4: Struct("<I"),
    BodyType.VT_I8: Struct("<q"),
    BodyType.VT_UI8: Struct("<Q"),
}
_BOOL = Struct("<H")
_POINTED: dict[int, type[str | bytes | UUID]] = {
    BodyType.VT_LPWSTR: str,
    BodyType.VT_BLOB: bytes,
    BodyType.VT_CLSID: UUID,
}
# 2.2.13.1: only these types have an arm for a counted array.
_VECTORS = frozenset(
    {
        BodyType.VT_UI1.value,
        BodyType.VT_UI2.value,
        BodyType.VT_I4.value,
        BodyType.VT_UI4.value,
        BodyType.VT_UI8.value,
        BodyType.VT_CLSID.value,
        BodyType.VT_LPWSTR.value,
        BodyType.VT_VARIANT.value,
    }
)


def has_arm(vt: int) -> bool:
    """Whether 2.2.13.1 has an arm for values of this type."""
    if vt & _VECTOR:
        return vt & ~_VECTOR in _VECTORS
    return vt in _WITHOUT_DATA or vt in _INTEGERS or vt in _POINTED or vt == BodyType.VT_BOOL


@dataclass(frozen=True, slots=True)
class PropVariant:
    """A value and its type. A counted array is a tuple.

    Raises LocalProtocolError if the type has no arm, or the value does not fit it.
    """

    vt: int
    value: Value = None

    def __post_init__(self) -> None:
        if not has_arm(self.vt):
            raise LocalProtocolError(f"a PROPVARIANT cannot hold type {self.vt:#06x}")
        if self.vt & _VECTOR:
            if not isinstance(self.value, tuple):
                raise LocalProtocolError(f"a PROPVARIANT of type {self.vt:#06x} holds a counted array")
            for item in self.value:
                self._check(self.vt & ~_VECTOR, item)
        else:
            self._check(self.vt, self.value)

    def _check(self, vt: int, value: Value) -> None:
        if vt in _WITHOUT_DATA:
            fits = value is None
        elif vt in _INTEGERS:
            fits = type(value) is int and _in_range(vt, value)
        elif vt in _POINTED:
            fits = isinstance(value, _POINTED[vt])
        elif vt == BodyType.VT_BOOL:
            fits = isinstance(value, bool)
        else:
            fits = isinstance(value, PropVariant)
        if not fits:
            raise LocalProtocolError(f"a PROPVARIANT of type {self.vt:#06x} cannot hold {value!r}")

    @classmethod
    def decode(cls, data: bytes) -> PropVariant:
        """The inverse of `encode`, for the same types. Ignores the reserved fields."""
        if len(data) < _PREFIX.size:
            raise RemoteProtocolError(f"a PROPVARIANT must have at least {_PREFIX.size} bytes, got {len(data)}", 0)
        vt: int = _PREFIX.unpack_from(data)[0]
        union = data[_PREFIX.size :]
        if not has_arm(vt):
            raise RemoteProtocolError(f"a PROPVARIANT cannot hold type {vt:#06x}", 0)
        layout = _layout(vt)
        if layout is None and vt not in _WITHOUT_DATA:
            raise RemoteProtocolError(f"a PROPVARIANT of type {vt:#06x} holds a pointer, not a value", _PREFIX.size)
        size = 0 if layout is None else layout.size
        if len(union) != size:
            raise RemoteProtocolError(f"type {vt:#06x} must have {size} bytes, got {len(union)}", _PREFIX.size)
        if layout is None:
            return cls(vt)
        (number,) = layout.unpack(union)
        if vt != BodyType.VT_BOOL:
            return cls(vt, number)
        if number not in (VARIANT_TRUE, VARIANT_FALSE):
            raise RemoteProtocolError(f"VARIANT_BOOL must be 0x0000 or 0xffff, got {number:#06x}", _PREFIX.size)
        return cls(vt, number == VARIANT_TRUE)

    def encode(self) -> bytes:
        """Encodes eight bytes and the union. Raises LocalProtocolError for a type whose union holds a pointer."""
        prefix = _PREFIX.pack(self.vt, 0, 0, 0)
        if self.vt in _WITHOUT_DATA:
            return prefix
        layout = _layout(self.vt)
        if layout is None:
            raise LocalProtocolError(f"a PROPVARIANT of type {self.vt:#06x} holds a pointer: RPC writes it")
        if self.vt == BodyType.VT_BOOL:
            return prefix + layout.pack(VARIANT_TRUE if self.value else VARIANT_FALSE)
        return prefix + layout.pack(self.value)


def _layout(vt: int) -> Struct | None:
    return _BOOL if vt == BodyType.VT_BOOL else _INTEGERS.get(vt)


def _in_range(vt: int, value: int) -> bool:
    layout = _INTEGERS[vt]
    bits = 8 * layout.size
    signed = layout.format[-1].islower()
    return -(1 << bits - 1) <= value < 1 << bits - 1 if signed else 0 <= value < 1 << bits
