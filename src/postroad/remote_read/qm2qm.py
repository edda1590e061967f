"""The qm2qm interface, [MS-MQQP] 6: its eleven methods. Their rules are in service.py."""

from __future__ import annotations

from postroad.remote_read.fast_stubs import EndIn, EndOut, LookupIn, StartIn, StartOut
from postroad.remote_read.structures import (
    CancelReceiveIn,
    CloseCursorIn,
    CloseQueueIn,
    CloseQueueOut,
    EndReceiveIn,
    EndReceiveOut,
    GetPortIn,
    GetVersionOut,
    OpenQueueIn,
    OpenQueueOut,
    PurgeQueueIn,
    Result,
    StartReceive2In,
    StartReceive2Out,
    StartReceiveByLookupIdIn,
    StartReceiveIn,
    StartReceiveOut,
)
from postroad.rpc.interface import Interface, Nothing, Operation

START_RECEIVE = Operation(0, "RemoteQMStartReceive", StartReceiveIn, StartReceiveOut)
END_RECEIVE = Operation(1, "RemoteQMEndReceive", EndIn(EndReceiveIn), EndOut(EndReceiveOut))
OPEN_QUEUE = Operation(2, "RemoteQMOpenQueue", OpenQueueIn, OpenQueueOut)
CLOSE_QUEUE = Operation(3, "RemoteQMCloseQueue", CloseQueueIn, CloseQueueOut)
CLOSE_CURSOR = Operation(4, "RemoteQMCloseCursor", CloseCursorIn, Result)
CANCEL_RECEIVE = Operation(5, "RemoteQMCancelReceive", CancelReceiveIn, Result)
PURGE_QUEUE = Operation(6, "RemoteQMPurgeQueue", PurgeQueueIn, Result)
GET_SERVER_PORT = Operation(7, "RemoteQMGetQMQMServerPort", GetPortIn, Result)
GET_VERSION = Operation(8, "RemoteQmGetVersion", Nothing, GetVersionOut)
START_RECEIVE2 = Operation(9, "RemoteQMStartReceive2", StartIn(StartReceive2In), StartOut(StartReceive2Out))
START_RECEIVE_BY_LOOKUP_ID = Operation(
    10, "RemoteQMStartReceiveByLookupId", LookupIn(StartReceiveByLookupIdIn), StartOut(StartReceive2Out)
)

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
