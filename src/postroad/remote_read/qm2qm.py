"""The qm2qm interface, [MS-MQQP] 6: its eleven methods. Their rules are in service.py."""

from __future__ import annotations

from postroad.remote_read import structures as forms
from postroad.remote_read.fast_stubs import EndIn, EndOut, LookupIn, StartIn, StartOut
from postroad.rpc.interface import Interface, Nothing, Operation

START_RECEIVE = Operation(0, "RemoteQMStartReceive", forms.StartReceiveIn, forms.StartReceiveOut)
END_RECEIVE = Operation(1, "RemoteQMEndReceive", EndIn(forms.EndReceiveIn), EndOut(forms.EndReceiveOut))
OPEN_QUEUE = Operation(2, "RemoteQMOpenQueue", forms.OpenQueueIn, forms.OpenQueueOut)
CLOSE_QUEUE = Operation(3, "RemoteQMCloseQueue", forms.CloseQueueIn, forms.CloseQueueOut)
CLOSE_CURSOR = Operation(4, "RemoteQMCloseCursor", forms.CloseCursorIn, forms.Result)
CANCEL_RECEIVE = Operation(5, "RemoteQMCancelReceive", forms.CancelReceiveIn, forms.Result)
PURGE_QUEUE = Operation(6, "RemoteQMPurgeQueue", forms.PurgeQueueIn, forms.Result)
GET_SERVER_PORT = Operation(7, "RemoteQMGetQMQMServerPort", forms.GetPortIn, forms.Result)
GET_VERSION = Operation(8, "RemoteQmGetVersion", Nothing, forms.GetVersionOut)
START_RECEIVE2 = Operation(9, "RemoteQMStartReceive2", StartIn(forms.StartReceive2In), StartOut(forms.StartReceive2Out))
START_RECEIVE_BY_LOOKUP_ID = Operation(
    10, "RemoteQMStartReceiveByLookupId", LookupIn(forms.StartReceiveByLookupIdIn), StartOut(forms.StartReceive2Out)
)

QM2QM = Interface(
    "qm2qm",
    "1088a980-eae5-11d0-8d9b-00a02453c337",
    (1, 0),
    *(START_RECEIVE, END_RECEIVE, OPEN_QUEUE, CLOSE_QUEUE, CLOSE_CURSOR, CANCEL_RECEIVE, PURGE_QUEUE),
    *(GET_SERVER_PORT, GET_VERSION, START_RECEIVE2, START_RECEIVE_BY_LOOKUP_ID),
)
