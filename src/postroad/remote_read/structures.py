"""Parameters and results of qm2qm's methods, [MS-MQQP] 2.2.2 and 6, in their wire form.

Pointers at the top level are `ref` and leave no octets; pointers inside structures are `unique`. Nobody changes a
value. The values of every read are not frozen, because a frozen one takes three times as long to make.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from postroad.rpc import ndr

MAX_BUFFER = 0x00420000  # of dwSize: the largest lpBuffer

SessionHandle = Annotated[ndr.Handle, ndr.context_handle("PCTX_RRSESSION_HANDLE_TYPE")]
ReadHandle = Annotated[ndr.Handle, ndr.context_handle("PCTX_REMOTEREAD_HANDLE_TYPE")]


@dataclass(slots=True)
class RemoteReadDesc:
    """REMOTEREADDESC, 2.2.2.1. `ack_nack` is reserved: nobody reads it."""

    remote_queue: ndr.Dword
    cursor: ndr.Dword
    action: ndr.Dword
    timeout: ndr.Dword
    size: Annotated[int, ndr.ulong.range(0, MAX_BUFFER)]
    queue: ndr.Dword
    request_id: ndr.Dword
    reserved: ndr.Dword = 0
    arrive_time: ndr.Dword = 0
    ack_nack: Annotated[int, ndr.enum(None)] = 0
    buffer: Annotated[bytes | None, ndr.unique(ndr.array(ndr.byte, size_is="size", length_is="size"))] = None


@dataclass(slots=True)
class RemoteReadDesc2:
    """REMOTEREADDESC2, 2.2.2.2"""

    remote_read_desc: Annotated[RemoteReadDesc | None, ndr.unique(ndr.struct(RemoteReadDesc))]
    sequential_id: ndr.Ulonglong = 0


@dataclass(frozen=True, slots=True)
class StartReceiveIn:
    remote_read_desc: RemoteReadDesc


@dataclass(frozen=True, slots=True)
class StartReceiveOut:
    context: ReadHandle
    remote_read_desc: RemoteReadDesc
    result: ndr.Hresult


@dataclass(slots=True)
class EndReceiveIn:
    context: ReadHandle
    ack: Annotated[int, ndr.ulong.range(1, 2)]


@dataclass(slots=True)
class EndReceiveOut:
    context: ReadHandle
    result: ndr.Hresult


@dataclass(frozen=True, slots=True)
class OpenQueueIn:
    lic_guid: ndr.GUID
    mqs: Annotated[int, ndr.ulong.range(0, 16)]
    queue_handle: ndr.Dword  # hQueue
    queue: ndr.Dword  # pQueue
    open_context: ndr.Dword  # dwpContext


@dataclass(frozen=True, slots=True)
class OpenQueueOut:
    context: SessionHandle
    result: ndr.Hresult


@dataclass(frozen=True, slots=True)
class CloseQueueIn:
    context: SessionHandle


@dataclass(frozen=True, slots=True)
class CloseQueueOut:
    context: SessionHandle
    result: ndr.Hresult


@dataclass(frozen=True, slots=True)
class CloseCursorIn:
    queue_handle: ndr.Dword
    cursor: ndr.Dword


@dataclass(frozen=True, slots=True)
class CancelReceiveIn:
    queue_handle: ndr.Dword  # hQueue
    queue: ndr.Dword  # pQueue
    request_id: ndr.Dword


@dataclass(frozen=True, slots=True)
class PurgeQueueIn:
    queue_handle: ndr.Dword


@dataclass(frozen=True, slots=True)
class GetPortIn:
    port_type: Annotated[int, ndr.ulong.range(0, 3)]


@dataclass(frozen=True, slots=True)
class Result:
    """A return value alone: an HRESULT, or a port."""

    result: ndr.Hresult


@dataclass(frozen=True, slots=True)
class GetVersionOut:
    major: Annotated[int, ndr.uchar]
    minor: Annotated[int, ndr.uchar]
    build_number: ndr.Ushort


@dataclass(slots=True)
class StartReceive2In:
    remote_read_desc2: RemoteReadDesc2


@dataclass(slots=True)
class StartReceive2Out:
    context: ReadHandle
    remote_read_desc2: RemoteReadDesc2
    result: ndr.Hresult


@dataclass(frozen=True, slots=True)
class StartReceiveByLookupIdIn:
    lookup_id: ndr.Ulonglong
    remote_read_desc2: RemoteReadDesc2
