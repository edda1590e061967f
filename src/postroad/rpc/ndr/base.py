"""NDR types of a fixed size: integers, floating-point numbers, enumerations, GUIDs and context handles.

A type says how its value is written and read in either syntax; it holds no value itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from struct import Struct
from typing import Any, Final
from uuid import UUID

from postroad.errors import LocalProtocolError, RemoteProtocolError
from postroad.rpc.ndr.streams import Format, Reader, Scope, Writer


class NdrType:
    """What every type can do. A value with pointers is written and read in two steps, [C706] 14.3.12.3:

    `encode` and `decode` handle what stands in place, `encode_deferred` and `finish` the referents that follow the
    outermost construction. `decode` may return a state that only `finish` turns into the value.
    """

    __slots__ = ()

    deferring = False  # there are pointers inside
    conformant = False  # its maximum count stands before the structure that it ends

    def alignment(self, layout: Format) -> int:
        raise NotImplementedError

    def least(self, layout: Format) -> int:
        """The fewest octets that a value takes: what a count is held against before anything is allocated."""
        raise NotImplementedError

    def encode(self, writer: Writer, value: Any, scope: Scope) -> None:
        raise NotImplementedError

    def decode(self, reader: Reader, scope: Scope) -> Any:
        raise NotImplementedError

    def encode_deferred(self, writer: Writer, value: Any, scope: Scope) -> None:
        """The referents of `value`; nothing where there are no pointers."""

    def finish(self, reader: Reader, state: Any, scope: Scope) -> Any:
        """The value, with the referents read."""
        return state

    def encode_max_count(self, writer: Writer, value: Any, scope: Scope) -> None:
        """The maximum count of a conformant array, wherever it has to stand."""

    def decode_max_count(self, reader: Reader) -> int:
        return 0


def _forms(code: str) -> dict[str, Struct]:
    return {order: Struct(order + code) for order in ("<", ">")}


class Integer(NdrType):
    """An integer of 1, 2, 4 or 8 octets, within `low` to `high`."""

    __slots__ = ("code", "forms", "high", "low", "name", "size")

    def __init__(self, name: str, code: str, low: int, high: int) -> None:
        self.name = name
        self.code = code
        self.low = low
        self.high = high
        self.forms = _forms(code)
        self.size = self.forms["<"].size

    def range(self, low: int, high: int) -> Integer:
        """[MS-RPCE] 2.2.4.14.1: the same integer within narrower bounds, both included."""
        return Integer(self.name, self.code, low, high)

    def alignment(self, layout: Format) -> int:
        return self.size

    def least(self, layout: Format) -> int:
        return self.size

    def encode(self, writer: Writer, value: Any, scope: Scope) -> None:
        if not self.low <= value <= self.high:
            raise LocalProtocolError(f"{value} is not within {self.low} to {self.high}, as {self.name} has it here")
        writer.align(self.size)
        writer.data += self.forms["<"].pack(value)

    def decode(self, reader: Reader, scope: Scope) -> int:
        reader.align(self.size)
        found = int(reader.unpack(self.forms[reader.order])[0])
        if not self.low <= found <= self.high:
            raise RemoteProtocolError(f"{found} is not within {self.low} to {self.high}", reader.offset - self.size)
        return found


@dataclass(frozen=True)
class Integer3264(NdrType):
    """[MS-RPCE] 2.2.4.1.2 __int3264: 4 octets in NDR, 8 in NDR64."""

    narrow: Integer
    wide: Integer

    def alignment(self, layout: Format) -> int:
        return layout.value

    def least(self, layout: Format) -> int:
        return layout.value

    def encode(self, writer: Writer, value: Any, scope: Scope) -> None:
        (self.wide if writer.wide else self.narrow).encode(writer, value, scope)

    def decode(self, reader: Reader, scope: Scope) -> int:
        return (self.wide if reader.wide else self.narrow).decode(reader, scope)


class Real(NdrType):
    """An IEEE number of 4 or 8 octets; PDUs in other floating-point formats are refused before they come here."""

    __slots__ = ("forms", "size")

    def __init__(self, code: str) -> None:
        self.forms = _forms(code)
        self.size = self.forms["<"].size

    def alignment(self, layout: Format) -> int:
        return self.size

    def least(self, layout: Format) -> int:
        return self.size

    def encode(self, writer: Writer, value: Any, scope: Scope) -> None:
        writer.align(self.size)
        writer.data += self.forms["<"].pack(value)

    def decode(self, reader: Reader, scope: Scope) -> float:
        reader.align(self.size)
        return float(reader.unpack(self.forms[reader.order])[0])


@dataclass(frozen=True)
class Boolean(NdrType):
    """One octet: 0 is false, everything else true."""

    def alignment(self, layout: Format) -> int:
        return 1

    def least(self, layout: Format) -> int:
        return 1

    def encode(self, writer: Writer, value: Any, scope: Scope) -> None:
        writer.data.append(1 if value else 0)

    def decode(self, reader: Reader, scope: Scope) -> bool:
        return reader.take(1) != b"\0"


@dataclass(frozen=True)
class Enumeration(NdrType):
    """An enum: 2 octets in NDR (4 with `v1_enum`), 4 in NDR64, [MS-RPCE] 2.2.4.6 and 2.2.5.2.

    A number that the enumeration does not name is invalid, unless `kind` is None: then it is a plain integer.
    """

    kind: type[IntEnum] | None
    v1_enum: bool = False

    def _integer(self, wide: bool) -> Integer:
        return enum4 if wide or self.v1_enum else enum2

    def alignment(self, layout: Format) -> int:
        return self._integer(layout is Format.NDR64).size

    def least(self, layout: Format) -> int:
        return self._integer(layout is Format.NDR64).size

    def encode(self, writer: Writer, value: Any, scope: Scope) -> None:
        self._integer(writer.wide).encode(writer, value, scope)

    def decode(self, reader: Reader, scope: Scope) -> int:
        found = self._integer(reader.wide).decode(reader, scope)
        if self.kind is None:
            return found
        try:
            return self.kind(found)
        except ValueError:
            raise RemoteProtocolError(f"{found} is no {self.kind.__name__}", reader.offset) from None


@dataclass(frozen=True)
class Guid(NdrType):
    """A UUID: ulong, ushort, ushort and eight octets, so that it is aligned to 4."""

    def alignment(self, layout: Format) -> int:
        return 4

    def least(self, layout: Format) -> int:
        return 16

    def encode(self, writer: Writer, value: Any, scope: Scope) -> None:
        writer.align(4)
        writer.data += value.bytes_le

    def decode(self, reader: Reader, scope: Scope) -> UUID:
        reader.align(4)
        data = reader.take(16)
        return UUID(bytes_le=data) if reader.order == "<" else UUID(bytes=data)


@dataclass(frozen=True, slots=True)
class Handle:
    """[C706] N ndr_context_handle: what a server gives for a context, opaque to the client. Null is 20 zero octets."""

    attributes: int
    uuid: UUID

    def __bool__(self) -> bool:
        return bool(self.attributes or self.uuid.int)


NULL_HANDLE: Final = Handle(0, UUID(int=0))


@dataclass(frozen=True)
class ContextHandle(NdrType):
    """`[context_handle]`: `kind` is the IDL's type name, which a handle keeps from the call that made it.

    [MS-RPCE] 3.1.1.5.3.3.1.1: a handle of another kind is rejected. `strict` refuses null, as an `[in]` handle has it.
    """

    kind: str
    strict: bool = False

    def alignment(self, layout: Format) -> int:
        return 4

    def least(self, layout: Format) -> int:
        return 20

    def encode(self, writer: Writer, value: Any, scope: Scope) -> None:
        writer.align(4)
        writer.data += value.attributes.to_bytes(4, "little")
        writer.data += value.uuid.bytes_le

    def decode(self, reader: Reader, scope: Scope) -> Handle:
        attributes = ulong.decode(reader, scope)
        return Handle(attributes, guid.decode(reader, scope))


small = Integer("small", "b", -0x80, 0x7F)
usmall = Integer("unsigned small", "B", 0, 0xFF)
short = Integer("short", "h", -0x8000, 0x7FFF)
ushort = Integer("unsigned short", "H", 0, 0xFFFF)
long = Integer("long", "i", -0x80000000, 0x7FFFFFFF)
ulong = Integer("unsigned long", "I", 0, 0xFFFFFFFF)
hyper = Integer("hyper", "q", -(1 << 63), (1 << 63) - 1)
uhyper = Integer("unsigned hyper", "Q", 0, (1 << 64) - 1)
byte = Integer("byte", "B", 0, 0xFF)
char = Integer("char", "B", 0, 0xFF)
wchar = Integer("wchar_t", "H", 0, 0xFFFF)
enum2 = Integer("enum", "h", 0, 0x7FFF)  # [MS-RPCE] 2.2.4.11: values of 0 to 32767
enum4 = Integer("v1_enum", "i", -0x80000000, 0x7FFFFFFF)
int3264 = Integer3264(long, hyper)
uint3264 = Integer3264(ulong, uhyper)
real = Real("f")
double = Real("d")
boolean = Boolean()
guid = Guid()
