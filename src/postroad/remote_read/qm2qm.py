"""The qm2qm interface, [MS-MQQP] 6: its structures and its eleven methods, as the wire has them.

Pointers at the top level are `ref` and leave no trace; those inside structures are `unique`. What the methods do is in
service.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from postroad.remote_read.values import MAX_BUFFER
from postroad.rpc.interface import Interface, Nothing, Operation
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

SessionHandle = Annotated[Handle, context_handle("PCTX_RRSESSION_HANDLE_TYPE")]
ReadHandle = Annotated[Handle, context_handle("PCTX_REMOTEREAD_HANDLE_TYPE")]


@dataclass(frozen=True, slots=True)
class RemoteReadDesc:
    """REMOTEREADDESC, 2.2.2.1. `ack_nack` is reserved: neither side looks at it."""

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
    """A return value alone: an HRESULT, or a port."""

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


START_RECEIVE = Operation(0, "RemoteQMStartReceive", StartReceiveIn, StartReceiveOut)
END_RECEIVE = Operation(1, "RemoteQMEndReceive", EndReceiveIn, EndReceiveOut)
OPEN_QUEUE = Operation(2, "RemoteQMOpenQueue", OpenQueueIn, OpenQueueOut)
CLOSE_QUEUE = Operation(3, "RemoteQMCloseQueue", CloseQueueIn, CloseQueueOut)
CLOSE_CURSOR = Operation(4, "RemoteQMCloseCursor", CloseCursorIn, Result)
CANCEL_RECEIVE = Operation(5, "RemoteQMCancelReceive", CancelReceiveIn, Result)
PURGE_QUEUE = Operation(6, "RemoteQMPurgeQueue", PurgeQueueIn, Result)
GET_SERVER_PORT = Operation(7, "RemoteQMGetQMQMServerPort", GetPortIn, Result)
GET_VERSION = Operation(8, "RemoteQmGetVersion", Nothing, GetVersionOut)
START_RECEIVE2 = Operation(9, "RemoteQMStartReceive2", StartReceive2In, StartReceive2Out)
START_RECEIVE_BY_LOOKUP_ID = Operation(10, "RemoteQMStartReceiveByLookupId", StartReceiveByLookupIdIn, StartReceive2Out)

QM2QM = Interface(
    "qm2qm",
    "1088a980-eae5-11d0-8d9b-00a02453c337",
    (1, 0),
    START_RECEIVE,
    END_RECEIVE,
    OPEN_QUEUE,
    CLOSE_QUEUE,
    CLOSE_CURSOR,
    CANCEL_RECEIVE,
    PURGE_QUEUE,
    GET_SERVER_PORT,
    GET_VERSION,
    START_RECEIVE2,
    START_RECEIVE_BY_LOOKUP_ID,
)
