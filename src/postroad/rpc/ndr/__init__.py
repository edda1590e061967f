"""NDR and NDR64 marshalling from Python types close to the IDL, [C706] 14 and [MS-RPCE] 2.2.4 and 2.2.5. No I/O.

Types: `ulong`, `ulong.range(0, 16)`, `wstring`, `guid`, `array(byte, size_is="size")`, `unique(...)`, `struct(Class)`.
Hints for the members of structures and for parameters: `Dword`, `Ushort`, `GUID`, or `Annotated[int, ulong]`.
"""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from postroad.rpc.ndr.arrays import array, fixed, string, varying_string, wstring
from postroad.rpc.ndr.base import (
    NULL_HANDLE,
    ContextHandle,
    Handle,
    NdrType,
    byte,
    char,
    guid,
    hyper,
    long,
    short,
    uchar,
    uhyper,
    ulong,
    ushort,
    wchar,
)
from postroad.rpc.ndr.base import Enumeration as enum  # noqa: N813
from postroad.rpc.ndr.constructed import Pointer, full, members_of, read, struct, union, unique, write
from postroad.rpc.ndr.octets import Format, Reader, Scope, Writer

context_handle = ContextHandle

Ushort = Annotated[int, ushort]
Long = Annotated[int, long]
Ulong = Annotated[int, ulong]
Dword = Ulong  # what the IDL calls the same under other names
Hresult = Ulong
Ulonglong = Annotated[int, uhyper]
GUID = Annotated[UUID, guid]

__all__ = ["GUID", "Dword", "Hresult", "Long", "Ulong", "Ulonglong", "Ushort"]
__all__ += ["byte", "char", "context_handle", "enum", "guid", "hyper", "long", "short", "uchar", "uhyper", "ulong"]
__all__ += ["array", "fixed", "full", "string", "struct", "union", "unique", "varying_string", "wchar", "wstring"]
__all__ += ["NULL_HANDLE", "ContextHandle", "Format", "Handle", "NdrType", "Pointer", "Reader", "Scope", "Writer"]
__all__ += ["members_of", "read", "ushort", "write"]
