"""The methods of the qmcomm interface, [MS-MQMP] 3.1.4, that remote read needs, in their wire form.

The others belong to a supporting server, which this is not; qmcomm2 is missing for the same reason.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from postroad.names.ids import ObjectId
from postroad.names.queue_format import Arm, DlId, MulticastId, QueueFormat
from postroad.remote_read.structures import Result
from postroad.remote_read.transfer_buffer import (
    DlIdStructure,
    MulticastIdStructure,
    ObjectIdStructure,
    QueueFormatPointer,
    QueueFormatStructure,
    TransferBuffer,
)
from postroad.rpc.interface import Interface, Operation
from postroad.rpc.ndr import GUID, Dword, Handle, Hresult, context_handle, full, wstring

OpenHandle = Annotated[Handle, context_handle("PCTX_OPENREMOTE_HANDLE_TYPE")]


@dataclass(frozen=True, slots=True)
class GetRemoteQueueNameIn:
    queue: Dword
    remote_queue_name: Annotated[str | None, full(wstring)]


@dataclass(frozen=True, slots=True)
class GetRemoteQueueNameOut:
    remote_queue_name: Annotated[str | None, full(wstring)]
    result: Hresult


@dataclass(frozen=True, slots=True)
class OpenRemoteQueueIn:
    queue_format: QueueFormatPointer
    calling_process_id: Dword
    desired_access: Dword
    share_mode: Dword
    lic_guid: GUID
    mqs: Dword


@dataclass(frozen=True, slots=True)
class OpenRemoteQueueOut:
    context: OpenHandle
    open_context: Dword  # pdwContext
    queue: Dword  # dwpQueue
    queue_handle: Dword  # phQueue
    result: Hresult


@dataclass(frozen=True, slots=True)
class CloseContext:
    context: OpenHandle


@dataclass(frozen=True, slots=True)
class CreateRemoteCursorIn:
    transfer_buffer: TransferBuffer
    queue_handle: Dword


@dataclass(frozen=True, slots=True)
class CreateRemoteCursorOut:
    cursor: Dword
    result: Hresult


@dataclass(frozen=True, slots=True)
class GetServerPortIn:
    """fIP: without a range, unlike dwPortType of qm2qm."""

    port_type: Dword


GET_REMOTE_QUEUE_NAME = Operation(1, "R_QMGetRemoteQueueName", GetRemoteQueueNameIn, GetRemoteQueueNameOut)
OPEN_REMOTE_QUEUE = Operation(2, "R_QMOpenRemoteQueue", OpenRemoteQueueIn, OpenRemoteQueueOut)
CLOSE_REMOTE_QUEUE_CONTEXT = Operation(3, "R_QMCloseRemoteQueueContext", CloseContext, CloseContext)
CREATE_REMOTE_CURSOR = Operation(4, "R_QMCreateRemoteCursor", CreateRemoteCursorIn, CreateRemoteCursorOut)
GET_SERVER_PORT = Operation(31, "R_QMGetRTQMServerPort", GetServerPortIn, Result)

QMCOMM = Interface(
    "qmcomm",
    "fdb3a030-065f-11d1-bb9b-00a024ea5525",
    (1, 0),
    *(GET_REMOTE_QUEUE_NAME, OPEN_REMOTE_QUEUE, CLOSE_REMOTE_QUEUE_CONTEXT, CREATE_REMOTE_CURSOR, GET_SERVER_PORT),
)


def queue_format_parts(structure: QueueFormatStructure) -> tuple[int, int, Arm]:
    """m_qft, m_SuffixAndFlags and the arm, as a QueueFormat takes them."""
    arm = structure.arm
    match arm:
        case ObjectIdStructure():
            arm = ObjectId(arm.lineage, arm.uniquifier)
        case DlIdStructure():
            arm = DlId(arm.dl_guid, arm.domain)
        case MulticastIdStructure():
            arm = MulticastId(arm.address, arm.port)
    return structure.m_qft, structure.m_suffix_and_flags, arm


def queue_format_structure(value: QueueFormat) -> QueueFormatStructure:
    """The inverse, for a name that a queue can be read by."""
    arm: object = value.arm
    match value.arm:
        case ObjectId(lineage, uniquifier):
            arm = ObjectIdStructure(lineage, uniquifier)
        case DlId(dl_guid, domain):
            arm = DlIdStructure(dl_guid, domain)
        case MulticastId(address, port):
            arm = MulticastIdStructure(address, port)
    return QueueFormatStructure(value.m_qft, value.m_suffix_and_flags, 0, arm)
