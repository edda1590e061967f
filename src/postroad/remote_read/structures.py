"""Parameters and results of qm2qm's methods, [MS-MQQP] 2.2.2 and 6, in their wire form.

Pointers at the top level are `ref` and leave no trace; those inside structures are `unique`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from postroad.rpc.ndr import (
    GUID,
    Dword,
    Handle,
    Hresult,
    Ulonglong,
    Ushort,
    array,
    byte,
    context_handle,
    enum,
    struct,
    uchar,
    ulong,
    unique,
)

MAX_BUFFER = 0x00420000  # of dwSize: the largest lpBuffer

SessionHandle = Annotated[Handle, context_handle("PCTX_RRSESSION_HANDLE_TYPE")]
ReadHandle = Annotated[Handle, context_handle("PCTX_REMOTEREAD_HANDLE_TYPE")]


@dataclass(frozen=True, slots=True)
class RemoteReadDesc:
    """REMOTEREADDESC, 2.2.2.1. `ack_nack` is reserved: neither side reads it."""

    remote_queue: Dword
    cursor: Dword
    action: Dword
    timeout: Dword
    size: Annotated[int, ulong.range(0, MAX_BUFFER)]
    queue: Dword
    request_id: Dword
    reserved: Dword = 0
    arrive_time: Dword = 0
    ack_nack: Annotated[int, enum(None)] = 0
    buffer: Annotated[bytes | None, unique(array(byte, size_is="size", length_is="size"))] = None


@dataclass(frozen=True, slots=True)
class RemoteReadDesc2:
    """REMOTEREADDESC2, 2.2.2.2"""

    remote_read_desc: Annotated[RemoteReadDesc | None, unique(struct(RemoteReadDesc))]
    sequential_id: Ulonglong = 0


@dataclass(frozen=True, slots=True)
class StartReceiveIn:
    remote_read_desc: RemoteReadDesc


@dataclass(frozen=True, slots=True)
class StartReceiveOut:
    context: ReadHandle
    remote_read_desc: RemoteReadDesc
    result: Hresult


@dataclass(frozen=True, slots=True)
class EndReceiveIn:
    context: ReadHandle
    ack: Annotated[int, ulong.range(1, 2)]


@dataclass(frozen=True, slots=True)
class EndReceiveOut:
    context: ReadHandle
    result: Hresult


@dataclass(frozen=True, slots=True)
class OpenQueueIn:
    lic_guid: GUID
    mqs: Annotated[int, ulong.range(0, 16)]
    queue_handle: Dword  # hQueue
    queue: Dword  # pQueue
    open_context: Dword  # dwpContext


@dataclass(frozen=True, slots=True)
class OpenQueueOut:
    context: SessionHandle
    result: Hresult


@dataclass(frozen=True, slots=True)
class CloseQueueIn:
    context: SessionHandle


@dataclass(frozen=True, slots=True)
class CloseQueueOut:
    context: SessionHandle
    result: Hresult


@dataclass(frozen=True, slots=True)
class CloseCursorIn:
    queue_handle: Dword
    cursor: Dword


@dataclass(frozen=True, slots=True)
class CancelReceiveIn:
    queue_handle: Dword  # hQueue
    queue: Dword  # pQueue
    request_id: Dword


@dataclass(frozen=True, slots=True)
class PurgeQueueIn:
    queue_handle: Dword


@dataclass(frozen=True, slots=True)
class GetPortIn:
    port_type: Annotated[int, ulong.range(0, 3)]


@dataclass(frozen=True, slots=True)
class Result:
    """Only a return value: an HRESULT, or a port."""

    result: Hresult


@dataclass(frozen=True, slots=True)
class GetVersionOut:
    major: Annotated[int, uchar]
    minor: Annotated[int, uchar]
    build_number: Ushort


@dataclass(frozen=True, slots=True)
class StartReceive2In:
    remote_read_desc2: RemoteReadDesc2


@dataclass(frozen=True, slots=True)
class StartReceive2Out:
    context: ReadHandle
    remote_read_desc2: RemoteReadDesc2
    result: Hresult


@dataclass(frozen=True, slots=True)
class StartReceiveByLookupIdIn:
    lookup_id: Ulonglong
    remote_read_desc2: RemoteReadDesc2
