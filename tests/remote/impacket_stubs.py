"""qm2qm, qmcomm and RemoteRead in impacket's own words: another implementation of the same IDL, to hold ours against.

Written from the IDL of [MS-MQQP] 6, [MS-MQMP] 6 and [MS-MQRR] 6 alone; nothing of Postroad is imported.
"""

# ruff: noqa: N801, N802, N815, RUF012  (names and shapes are the IDL's and impacket's)

from __future__ import annotations

from typing import Any

from impacket.dcerpc.v5.dtypes import DWORD, GUID, LPWSTR, UCHAR, ULONGLONG, USHORT
from impacket.dcerpc.v5.enum import Enum
from impacket.dcerpc.v5.ndr import (
    NDRCALL,
    NDRENUM,
    NDRPOINTER,
    NDRSTRUCT,
    NDRUNION,
    NDRUniConformantArray,
    NDRUniConformantVaryingArray,
)
from impacket.uuid import uuidtup_to_bin

QM2QM = uuidtup_to_bin(("1088a980-eae5-11d0-8d9b-00a02453c337", "1.0"))
QMCOMM = uuidtup_to_bin(("fdb3a030-065f-11d1-bb9b-00a024ea5525", "1.0"))
NDR = ("8a885d04-1ceb-11c9-9fe8-08002b104860", "2.0")
NDR64 = ("71710533-beba-4937-8319-b5dbef9ccc36", "1.0")
NULL_CONTEXT = bytes(20)


class CONTEXT(NDRSTRUCT):  # type: ignore[misc]
    structure = (("Data", "20s=b''"),)

    def getAlignment(self) -> int:
        return 4


class REMOTEREADACK(NDRENUM):  # type: ignore[misc]
    class enumItems(Enum):  # type: ignore[misc]
        RR_UNKNOWN = 0
        RR_NACK = 1
        RR_ACK = 2


class BUFFER(NDRUniConformantVaryingArray):  # type: ignore[misc]
    item = "c"


class PBUFFER(NDRPOINTER):  # type: ignore[misc]
    referent = (("Data", BUFFER),)


class REMOTEREADDESC(NDRSTRUCT):  # type: ignore[misc]
    structure = (
        ("hRemoteQueue", DWORD),
        ("hCursor", DWORD),
        ("ulAction", DWORD),
        ("ulTimeout", DWORD),
        ("dwSize", DWORD),
        ("dwQueue", DWORD),
        ("dwRequestID", DWORD),
        ("Reserved", DWORD),
        ("dwArriveTime", DWORD),
        ("eAckNack", REMOTEREADACK),
        ("lpBuffer", PBUFFER),
    )


class PREMOTEREADDESC(NDRPOINTER):  # type: ignore[misc]
    referent = (("Data", REMOTEREADDESC),)


class REMOTEREADDESC2(NDRSTRUCT):  # type: ignore[misc]
    structure = (("pRemoteReadDesc", PREMOTEREADDESC), ("SequentialId", ULONGLONG))


class RemoteQMStartReceive(NDRCALL):  # type: ignore[misc]
    opnum = 0
    structure = (("lpRemoteReadDesc", REMOTEREADDESC),)


class RemoteQMStartReceiveResponse(NDRCALL):  # type: ignore[misc]
    structure = (("pphContext", CONTEXT), ("lpRemoteReadDesc", REMOTEREADDESC), ("Status", DWORD))


class RemoteQMEndReceive(NDRCALL):  # type: ignore[misc]
    opnum = 1
    structure = (("pphContext", CONTEXT), ("dwAck", DWORD))


class RemoteQMEndReceiveResponse(NDRCALL):  # type: ignore[misc]
    structure = (("pphContext", CONTEXT), ("Status", DWORD))


class RemoteQMOpenQueue(NDRCALL):  # type: ignore[misc]
    opnum = 2
    structure = (
        ("pLicGuid", GUID),
        ("dwMQS", DWORD),
        ("hQueue", DWORD),
        ("pQueue", DWORD),
        ("dwpContext", DWORD),
    )


class RemoteQMOpenQueueResponse(NDRCALL):  # type: ignore[misc]
    structure = (("phContext", CONTEXT), ("Status", DWORD))


class RemoteQMCloseQueue(NDRCALL):  # type: ignore[misc]
    opnum = 3
    structure = (("pphContext", CONTEXT),)


class RemoteQMCloseQueueResponse(NDRCALL):  # type: ignore[misc]
    structure = (("pphContext", CONTEXT), ("Status", DWORD))


class RemoteQMCloseCursor(NDRCALL):  # type: ignore[misc]
    opnum = 4
    structure = (("hQueue", DWORD), ("hCursor", DWORD))


class RemoteQMCloseCursorResponse(NDRCALL):  # type: ignore[misc]
    structure = (("Status", DWORD),)


class RemoteQMCancelReceive(NDRCALL):  # type: ignore[misc]
    opnum = 5
    structure = (("hQueue", DWORD), ("pQueue", DWORD), ("dwRequestID", DWORD))


class RemoteQMCancelReceiveResponse(NDRCALL):  # type: ignore[misc]
    structure = (("Status", DWORD),)


class RemoteQMPurgeQueue(NDRCALL):  # type: ignore[misc]
    opnum = 6
    structure = (("hQueue", DWORD),)


class RemoteQMPurgeQueueResponse(NDRCALL):  # type: ignore[misc]
    structure = (("Status", DWORD),)


class RemoteQMGetQMQMServerPort(NDRCALL):  # type: ignore[misc]
    opnum = 7
    structure = (("dwPortType", DWORD),)


class RemoteQMGetQMQMServerPortResponse(NDRCALL):  # type: ignore[misc]
    structure = (("Port", DWORD),)


class RemoteQmGetVersion(NDRCALL):  # type: ignore[misc]
    opnum = 8
    structure: tuple[Any, ...] = ()


class RemoteQmGetVersionResponse(NDRCALL):  # type: ignore[misc]
    structure = (("pMajor", UCHAR), ("pMinor", UCHAR), ("pBuildNumber", USHORT))


class RemoteQMStartReceive2(NDRCALL):  # type: ignore[misc]
    opnum = 9
    structure = (("lpRemoteReadDesc2", REMOTEREADDESC2),)


class RemoteQMStartReceive2Response(NDRCALL):  # type: ignore[misc]
    structure = (("pphContext", CONTEXT), ("lpRemoteReadDesc2", REMOTEREADDESC2), ("Status", DWORD))


class RemoteQMStartReceiveByLookupId(NDRCALL):  # type: ignore[misc]
    opnum = 10
    structure = (("LookupId", ULONGLONG), ("lpRemoteReadDesc2", REMOTEREADDESC2))


class RemoteQMStartReceiveByLookupIdResponse(NDRCALL):  # type: ignore[misc]
    structure = (("pphContext", CONTEXT), ("lpRemoteReadDesc2", REMOTEREADDESC2), ("Status", DWORD))


class RemoteQMBeyond(NDRCALL):  # type: ignore[misc]
    """An opnum that there is not."""

    opnum = 11
    structure: tuple[Any, ...] = ()


class RemoteQMBeyondResponse(NDRCALL):  # type: ignore[misc]
    structure: tuple[Any, ...] = ()


# qmcomm


class QUEUE_FORMAT_UNION(NDRUNION):  # type: ignore[misc]
    commonHdr = (("tag", UCHAR),)
    union = {3: ("m_pDirectID", LPWSTR), 8: ("m_pDirectSubqueueID", LPWSTR)}


class QUEUE_FORMAT(NDRSTRUCT):  # type: ignore[misc]
    structure = (
        ("m_qft", UCHAR),
        ("m_SuffixAndFlags", UCHAR),
        ("m_reserved", USHORT),
        ("u", QUEUE_FORMAT_UNION),
    )


class PQUEUE_FORMAT(NDRPOINTER):  # type: ignore[misc]
    referent = (("Data", QUEUE_FORMAT),)


class R_QMOpenRemoteQueue(NDRCALL):  # type: ignore[misc]
    opnum = 2
    structure = (
        ("pQueueFormat", PQUEUE_FORMAT),
        ("dwCallingProcessID", DWORD),
        ("dwDesiredAccess", DWORD),
        ("dwShareMode", DWORD),
        ("pLicGuid", GUID),
        ("dwMQS", DWORD),
    )


class R_QMOpenRemoteQueueResponse(NDRCALL):  # type: ignore[misc]
    structure = (
        ("pphContext", CONTEXT),
        ("pdwContext", DWORD),
        ("dwpQueue", DWORD),
        ("phQueue", DWORD),
        ("Status", DWORD),
    )


class R_QMCloseRemoteQueueContext(NDRCALL):  # type: ignore[misc]
    opnum = 3
    structure = (("pphContext", CONTEXT),)


class R_QMCloseRemoteQueueContextResponse(NDRCALL):  # type: ignore[misc]
    structure = (("pphContext", CONTEXT),)


class ZEROES(NDRSTRUCT):  # type: ignore[misc]
    """A CACTransferBufferV1 of zeroes, in NDR."""

    structure = (("Data", "228s=b''"),)

    def getAlignment(self) -> int:
        return 4


class R_QMCreateRemoteCursor(NDRCALL):  # type: ignore[misc]
    opnum = 4
    structure = (("ptb1", ZEROES), ("hQueue", DWORD))


class R_QMCreateRemoteCursorResponse(NDRCALL):  # type: ignore[misc]
    structure = (("phCursor", DWORD), ("Status", DWORD))


class R_QMGetRTQMServerPort(NDRCALL):  # type: ignore[misc]
    opnum = 31
    structure = (("fIP", DWORD),)


class R_QMGetRTQMServerPortResponse(NDRCALL):  # type: ignore[misc]
    structure = (("Port", DWORD),)


class R_QMGetRemoteQueueName(NDRCALL):  # type: ignore[misc]
    opnum = 1
    structure = (("pQueue", DWORD), ("lplpRemoteQueueName", LPWSTR))


class R_QMGetRemoteQueueNameResponse(NDRCALL):  # type: ignore[misc]
    structure = (("lplpRemoteQueueName", LPWSTR), ("Status", DWORD))


# RemoteRead, [MS-MQRR] 6


REMOTE_READ = uuidtup_to_bin(("1a9134dd-7b39-45ba-ad88-44d01ca47f28", "1.0"))


class SECTION_TYPE(NDRENUM):  # type: ignore[misc]
    class enumItems(Enum):  # type: ignore[misc]
        stFullPacket = 0
        stBinaryFirstSection = 1
        stBinarySecondSection = 2
        stSrmpFirstSection = 3
        stSrmpSecondSection = 4


class OCTETS(NDRUniConformantArray):  # type: ignore[misc]
    item = "c"


class POCTETS(NDRPOINTER):  # type: ignore[misc]
    referent = (("Data", OCTETS),)


class SECTION_BUFFER(NDRSTRUCT):  # type: ignore[misc]
    structure = (
        ("SectionBufferType", SECTION_TYPE),
        ("SectionSizeAlloc", DWORD),
        ("SectionSize", DWORD),
        ("pSectionBuffer", POCTETS),
    )


class SECTION_BUFFERS(NDRUniConformantArray):  # type: ignore[misc]
    item = SECTION_BUFFER


class PSECTION_BUFFERS(NDRPOINTER):  # type: ignore[misc]
    referent = (("Data", SECTION_BUFFERS),)


class XACTUOW(NDRSTRUCT):  # type: ignore[misc]
    structure = (("Data", "16s=b''"),)

    def getAlignment(self) -> int:
        return 1


OPENING = (
    ("pQueueFormat", QUEUE_FORMAT),
    ("dwAccess", DWORD),
    ("dwShareMode", DWORD),
    ("pClientId", GUID),
    ("fNonRoutingServer", DWORD),
    ("Major", UCHAR),
    ("Minor", UCHAR),
    ("BuildNumber", USHORT),
    ("fWorkgroup", DWORD),
)
STATUS = (("Status", DWORD),)


class R_GetServerPort(NDRCALL):  # type: ignore[misc]
    opnum = 0
    structure: tuple[Any, ...] = ()


class R_GetServerPortResponse(NDRCALL):  # type: ignore[misc]
    structure = (("Port", DWORD),)


class R_OpenQueue(NDRCALL):  # type: ignore[misc]
    opnum = 2
    structure = OPENING


class R_OpenQueueResponse(NDRCALL):  # type: ignore[misc]
    structure = (("pphContext", CONTEXT),)


class R_CloseQueue(NDRCALL):  # type: ignore[misc]
    opnum = 3
    structure = (("pphContext", CONTEXT),)


class R_CloseQueueResponse(NDRCALL):  # type: ignore[misc]
    structure = (("pphContext", CONTEXT), ("Status", DWORD))


class R_CreateCursor(NDRCALL):  # type: ignore[misc]
    opnum = 4
    structure = (("phContext", CONTEXT),)


class R_CreateCursorResponse(NDRCALL):  # type: ignore[misc]
    structure = (("phCursor", DWORD), ("Status", DWORD))


class R_CloseCursor(NDRCALL):  # type: ignore[misc]
    opnum = 5
    structure = (("phContext", CONTEXT), ("hCursor", DWORD))


class R_CloseCursorResponse(NDRCALL):  # type: ignore[misc]
    structure = STATUS


class R_PurgeQueue(NDRCALL):  # type: ignore[misc]
    opnum = 6
    structure = (("phContext", CONTEXT),)


class R_PurgeQueueResponse(NDRCALL):  # type: ignore[misc]
    structure = STATUS


class R_StartReceive(NDRCALL):  # type: ignore[misc]
    opnum = 7
    structure = (
        ("phContext", CONTEXT),
        ("LookupId", ULONGLONG),
        ("hCursor", DWORD),
        ("ulAction", DWORD),
        ("ulTimeout", DWORD),
        ("dwRequestId", DWORD),
        ("dwMaxBodySize", DWORD),
        ("dwMaxCompoundMessageSize", DWORD),
    )


class R_StartReceiveResponse(NDRCALL):  # type: ignore[misc]
    structure = (
        ("pdwArriveTime", DWORD),
        ("pSequenceId", ULONGLONG),
        ("pdwNumberOfSections", DWORD),
        ("ppPacketSections", PSECTION_BUFFERS),
        ("Status", DWORD),
    )


class R_CancelReceive(NDRCALL):  # type: ignore[misc]
    opnum = 8
    structure = (("phContext", CONTEXT), ("dwRequestId", DWORD))


class R_CancelReceiveResponse(NDRCALL):  # type: ignore[misc]
    structure = STATUS


class R_EndReceive(NDRCALL):  # type: ignore[misc]
    opnum = 9
    structure = (("phContext", CONTEXT), ("dwAck", DWORD), ("dwRequestId", DWORD))


class R_EndReceiveResponse(NDRCALL):  # type: ignore[misc]
    structure = STATUS


class R_MoveMessage(NDRCALL):  # type: ignore[misc]
    opnum = 10
    structure = (
        ("phContextFrom", CONTEXT),
        ("ullContextTo", ULONGLONG),
        ("LookupId", ULONGLONG),
        ("pTransactionId", XACTUOW),
    )


class R_MoveMessageResponse(NDRCALL):  # type: ignore[misc]
    structure = STATUS


class R_OpenQueueForMove(NDRCALL):  # type: ignore[misc]
    opnum = 11
    structure = OPENING


class R_OpenQueueForMoveResponse(NDRCALL):  # type: ignore[misc]
    structure = (("pMoveContext", ULONGLONG), ("pphContext", CONTEXT))


class R_SetUserAcknowledgementClass(NDRCALL):  # type: ignore[misc]
    opnum = 14
    structure = (("phContext", CONTEXT), ("LookupId", ULONGLONG), ("usClass", USHORT))


class R_SetUserAcknowledgementClassResponse(NDRCALL):  # type: ignore[misc]
    structure = STATUS
