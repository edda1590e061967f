"""NDR types of a fixed size: integers, enumerations, GUIDs and context handles.

A type says how to write and read a value in both syntaxes. It holds no value itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from struct import Struct
from typing import Any, Final, NamedTuple
from uuid import UUID

from postroad.errors import LocalProtocolError, RemoteProtocolError
from postroad.rpc.ndr.octets import Format, Reader, Scope, Writer


class NdrType:
    """What all types have in common. A value with pointers is written and read in two steps, [C706] 14.3.12.3:

    `encode` and `decode` handle the value in place. `encode_deferred` and `finish` handle the referents, after the
    outermost construction. `decode` may return an intermediate state, which `finish` turns into the value.
    """

    __slots__ = ()

    deferring = False  # the type contains pointers
    conformant = False  # the maximum count comes before the structure that the type ends
    plain = False  # `dump` and `load` return what they get
    correlated = False  # the type contains counts or tags that are looked up in a scope

    def alignment(self, layout: Format) -> int:
        raise NotImplementedError

    def least(self, layout: Format) -> int:
        """The smallest size of a value. A count is checked against it before anything is allocated."""
        raise NotImplementedError

    def encode(self, writer: Writer, value: Any, scope: Scope) -> None:
        raise NotImplementedError

    def decode(self, reader: Reader, scope: Scope) -> Any:
        raise NotImplementedError

    # Types that are one item of `struct`. A structure reads and writes several of them in one step.

    def code(self, layout: Format) -> str | None:
        """The item's `struct` code; None for a type that is more than one."""
        return None

    def dump(self, writer: Writer, value: Any, scope: Scope) -> Any:
        """The item to pack for `value`."""
        return value

    def load(self, reader: Reader, item: Any) -> Any:
        """The result of `decode` for the item."""
        return item

    def fits(self, value: int) -> bool:
        """Whether this type can hold the integer."""
        return True

    def encode_deferred(self, writer: Writer, value: Any, scope: Scope) -> None:
        """Writes the referents of `value`; nothing if it has no pointers."""

    def finish(self, reader: Reader, state: Any, scope: Scope) -> Any:
        """Reads the referents and returns the value."""
        return state

    def encode_max_count(self, writer: Writer, value: Any, scope: Scope) -> None:
        """Writes the maximum count of a conformant array, which may stand before an enclosing structure."""

    def decode_max_count(self, reader: Reader) -> int:
        return 0


ENUM_MAX: Final = 0x7FFF
_FORMS: Final = {(order, code): Struct(order + code) for order in "<>" for code in "bBhHiIqQ"}
_FORMS.update({(order, code): Struct(order + code) for order in "<>" for code in ("16s", "20s")})
_SIZES: Final = {code: form.size for (_, code), form in _FORMS.items()}
_BOUNDS: Final = {
    code: (-(1 << 8 * size - 1), (1 << 8 * size - 1) - 1) if code.islower() else (0, (1 << 8 * size) - 1)
    for code, size in _SIZES.items()
    if code in "bBhHiIqQ"
}


class Item(NdrType):
    """A type that is always one item of `struct`."""

    __slots__ = ()

    def code(self, layout: Format) -> str:
        raise NotImplementedError

    def alignment(self, layout: Format) -> int:
        return _SIZES[self.code(layout)]

    def least(self, layout: Format) -> int:
        return _SIZES[self.code(layout)]

    def encode(self, writer: Writer, value: Any, scope: Scope) -> None:
        item = self.dump(writer, value, scope)
        writer.align(self.alignment(writer.layout))
        writer.data += _FORMS["<", self.code(writer.layout)].pack(item)

    def decode(self, reader: Reader, scope: Scope) -> Any:
        reader.align(self.alignment(reader.layout))
        return self.load(reader, reader.unpack(_FORMS[reader.order, self.code(reader.layout)])[0])


class Integer(Item):
    """An integer of 1, 2, 4 or 8 octets, within `low` to `high`."""

    __slots__ = ("_code", "high", "low", "name", "plain", "size")

    def __init__(self, name: str, code: str, low: int | None = None, high: int | None = None) -> None:
        least, most = _BOUNDS[code]
        self.name = name
        self.size = _SIZES[code]
        self.low = least if low is None else low
        self.high = most if high is None else high
        self.plain = (self.low, self.high) == (least, most)
        self._code = code

    @property
    def is_octet(self) -> bool:
        return self._code == "B"

    def range(self, low: int, high: int) -> Integer:
        """The same integer within narrower bounds, both included, [MS-RPCE] 2.2.4.14.1."""
        return Integer(self.name, self._code, low, high)

    def code(self, layout: Format) -> str:
        return self._code

    def fits(self, value: int) -> bool:
        return self.low <= value <= self.high

    def dump(self, writer: Writer, value: Any, scope: Scope) -> Any:
        if not self.low <= value <= self.high:
            raise LocalProtocolError(f"{self.name} must be between {self.low} and {self.high}, got {value}")
        return value

    def load(self, reader: Reader, item: Any) -> int:
        if not self.low <= item <= self.high:
            raise RemoteProtocolError(
                f"{self.name} must be between {self.low} and {self.high}, got {item}", reader.offset
            )
        return int(item)


@dataclass(frozen=True)
class Enumeration(Item):
    """An enum: 2 octets in NDR, 4 in NDR64, [MS-RPCE] 2.2.4.6 and 2.2.5.2.

    A number that the enumeration does not name is invalid. If `kind` is None, every number is valid.
    """

    kind: type[IntEnum] | None

    def code(self, layout: Format) -> str:
        return "i" if layout is Format.NDR64 else "h"

    def dump(self, writer: Writer, value: Any, scope: Scope) -> int:
        if not 0 <= value <= ENUM_MAX:  # [MS-RPCE] 2.2.4.11
            raise LocalProtocolError(f"an enum must be between 0 and {ENUM_MAX}, got {value}")
        return int(value)

    def load(self, reader: Reader, item: Any) -> int:
        if not 0 <= item <= ENUM_MAX:
            raise RemoteProtocolError(f"unknown value of an enum: {item}", reader.offset)
        if self.kind is None:
            return int(item)
        try:
            return self.kind(item)
        except ValueError:
            raise RemoteProtocolError(f"unknown value of {self.kind.__name__}: {item}", reader.offset) from None


@dataclass(frozen=True)
class Guid(Item):
    """A UUID: a ulong, two ushorts and eight octets, and therefore aligned to 4."""

    def code(self, layout: Format) -> str:
        return "16s"

    def alignment(self, layout: Format) -> int:
        return 4

    def dump(self, writer: Writer, value: Any, scope: Scope) -> bytes:
        return bytes(value.bytes_le)

    def load(self, reader: Reader, item: Any) -> UUID:
        return UUID(bytes_le=item) if reader.order == "<" else UUID(bytes=item)


class Handle(NamedTuple):
    """[C706] N ndr_context_handle: the server's name for a context, opaque to the client. Null is 20 zero octets.

    `octets` is the UUID in little-endian order, as it is sent: every call of a reader has a handle, so none is
    converted.
    """

    attributes: int
    octets: bytes


NULL_HANDLE: Final = Handle(0, bytes(16))


@dataclass(frozen=True)
class ContextHandle(Item):
    """`[context_handle]`. `kind` is the IDL's type name; a handle keeps the type that it was opened with.

    [MS-RPCE] 3.1.1.5.3.3.1.1: a handle of another kind is rejected. `strict` refuses null, as for an `[in]` handle.
    """

    kind: str
    strict: bool = False

    def code(self, layout: Format) -> str:
        return "20s"

    def alignment(self, layout: Format) -> int:
        return 4

    def dump(self, writer: Writer, value: Any, scope: Scope) -> bytes:
        return int(value.attributes).to_bytes(4, "little") + bytes(value.octets)

    def load(self, reader: Reader, item: Any) -> Handle:
        if reader.order == "<":
            return Handle(int.from_bytes(item[:4], "little"), item[4:])
        return Handle(int.from_bytes(item[:4], "big"), UUID(bytes=item[4:]).bytes_le)


uchar = Integer("unsigned small", "B")
short = Integer("short", "h")
ushort = Integer("unsigned short", "H")
long = Integer("long", "i")
ulong = Integer("unsigned long", "I")
hyper = Integer("hyper", "q")
uhyper = Integer("unsigned hyper", "Q")
byte = Integer("byte", "B")
char = Integer("char", "B")
wchar = Integer("wchar_t", "H")
guid = Guid()
