"""NDR and NDR64 marshalling from Python types close to the IDL, [C706] 14 and [MS-RPCE] 2.2.4 and 2.2.5. No I/O.

Types: `ulong`, `ulong.range(0, 16)`, `wstring`, `guid`, `array(byte, size_is="size")`, `unique(...)`, `struct(Class)`.
Hints for the members of structures and for parameters: `Dword`, `Ushort`, `GUID`, or `Annotated[int, ulong]`.
"""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from postroad.rpc.ndr.arrays import Array, String, array, fixed, string, varying, varying_string, wstring
from postroad.rpc.ndr.base import (
    NULL_HANDLE,
    ContextHandle,
    Enumeration,
    Handle,
    Integer,
    NdrType,
    boolean,
    byte,
    char,
    double,
    guid,
    hyper,
    int3264,
    long,
    real,
    short,
    small,
    uhyper,
    uint3264,
    ulong,
    ushort,
    usmall,
    wchar,
)
from postroad.rpc.ndr.constructed import (
    DEFAULT,
    Pointer,
    PointerKind,
    Structure,
    Union,
    full,
    members_of,
    read,
    ref,
    struct,
    union,
    unique,
    write,
)
from postroad.rpc.ndr.streams import MISSING, Expression, Format, Reader, Scope, Writer

context_handle = ContextHandle
enum = Enumeration

# What the IDL calls the same under other names.
dword = hresult = error_status = ulong
uchar = usmall
ulonglong = uhyper

Byte = Annotated[int, byte]
Ushort = Annotated[int, ushort]
Long = Annotated[int, long]
Ulong = Annotated[int, ulong]
Dword = Annotated[int, ulong]
Hresult = Annotated[int, ulong]
Ulonglong = Annotated[int, uhyper]
GUID = Annotated[UUID, guid]

__all__ = [
    "DEFAULT",
    "GUID",
    "MISSING",
    "NULL_HANDLE",
    "Array",
    "Byte",
    "ContextHandle",
    "Dword",
    "Enumeration",
    "Expression",
    "Format",
    "Handle",
    "Hresult",
    "Integer",
    "Long",
    "NdrType",
    "Pointer",
    "PointerKind",
    "Reader",
    "Scope",
    "String",
    "Structure",
    "Ulong",
    "Ulonglong",
    "Union",
    "Ushort",
    "Writer",
    "array",
    "boolean",
    "byte",
    "char",
    "context_handle",
    "double",
    "dword",
    "enum",
    "error_status",
    "fixed",
    "full",
    "guid",
    "hresult",
    "hyper",
    "int3264",
    "long",
    "members_of",
    "read",
    "real",
    "ref",
    "short",
    "small",
    "string",
    "struct",
    "uchar",
    "uhyper",
    "uint3264",
    "ulong",
    "ulonglong",
    "union",
    "unique",
    "ushort",
    "usmall",
    "varying",
    "varying_string",
    "wchar",
    "write",
    "wstring",
]
