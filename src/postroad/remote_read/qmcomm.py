"""The methods of the qmcomm interface, [MS-MQMP] 3.1.4, that remote read needs, in their wire form.

The other methods belong to a supporting server, which Postroad is not. qmcomm2 is missing for the same reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any
from uuid import UUID

from postroad.names.grammar import QueueFormatType
from postroad.names.ids import ObjectId
from postroad.names.queue_format import Arm, DlId, MulticastId, QueueFormat
from postroad.remote_read.structures import Result
from postroad.rpc import ndr
from postroad.rpc.interface import Interface, Operation
from postroad.rpc.ndr import GUID, Dword, Handle, Hresult, context_handle, full, wstring

# CACTransferBufferV1, [MS-MQMP] 2.2.3.2, and QUEUE_FORMAT, [MS-MQMQ] 2.2.7, which is part of it. R_QMCreateRemoteCursor
# carries the buffer, and its content is ignored. Windows sends zeroes, but a server must be able to read past any
# content.


Uchar = Annotated[int, ndr.uchar]
UcharPointer = Annotated[int | None, ndr.unique(ndr.uchar)]
UshortPointer = Annotated[int | None, ndr.unique(ndr.ushort)]
DwordPointer = Annotated[int | None, ndr.unique(ndr.ulong)]
GuidPointer = Annotated[UUID | None, ndr.unique(ndr.unique(ndr.guid))]
NameLength = Annotated[int, ndr.ulong.range(0, 1024)]
CORRELATION_SIZE = 20


def _octets(size: str | int, length: str | int | None = None) -> ndr.Pointer:
    """`[size_is(,size), length_is(,length)] unsigned char**`"""
    return ndr.unique(ndr.unique(ndr.array(ndr.byte, size_is=size, length_is=length)))


def _characters(size: str, length: str | None = None) -> ndr.Pointer:
    return ndr.unique(ndr.unique(ndr.array(ndr.wchar, size_is=size, length_is=length)))


@dataclass(frozen=True, slots=True)
class ObjectIdStructure:
    """OBJECTID, [MS-MQMQ] 2.2.8"""

    lineage: ndr.GUID
    uniquifier: ndr.Dword


@dataclass(frozen=True, slots=True)
class DlIdStructure:
    """DL_ID, [MS-MQMQ] 2.2.9"""

    dl_guid: ndr.GUID
    domain: Annotated[str | None, ndr.unique(ndr.wstring)]


@dataclass(frozen=True, slots=True)
class MulticastIdStructure:
    """MULTICAST_ID, [MS-MQMQ] 2.2.10"""

    address: ndr.Dword
    port: ndr.Dword


_ARMS: Mapping[int, ndr.NdrType | None] = {
    QueueFormatType.UNKNOWN: None,
    QueueFormatType.PUBLIC: ndr.guid,
    QueueFormatType.PRIVATE: ndr.struct(ObjectIdStructure),
    QueueFormatType.DIRECT: ndr.unique(ndr.wstring),
    QueueFormatType.MACHINE: ndr.guid,
    QueueFormatType.CONNECTOR: ndr.guid,
    QueueFormatType.DL: ndr.struct(DlIdStructure),
    QueueFormatType.MULTICAST: ndr.struct(MulticastIdStructure),
    QueueFormatType.SUBQUEUE: ndr.unique(ndr.wstring),
}


@dataclass(frozen=True, slots=True)
class QueueFormatStructure:
    """QUEUE_FORMAT, [MS-MQMQ] 2.2.7"""

    m_qft: Uchar
    m_suffix_and_flags: Uchar
    m_reserved: ndr.Ushort
    arm: Annotated[Any, ndr.union(ndr.uchar, _ARMS, switch_is="m_qft")]


QueueFormatPointer = Annotated[QueueFormatStructure | None, ndr.unique(ndr.struct(QueueFormatStructure))]


@dataclass(frozen=True, slots=True)
class SendArm:
    admin_queue_format: QueueFormatPointer = None
    response_queue_format: QueueFormatPointer = None


@dataclass(frozen=True, slots=True)
class ReceiveArm:
    request_timeout: ndr.Dword = 0
    action: ndr.Dword = 0
    asynchronous: ndr.Dword = 0
    cursor: ndr.Dword = 0
    response_format_name_len: NameLength = 0
    response_format_name: Annotated[Any, _characters("response_format_name_len")] = None
    response_format_name_len_prop: DwordPointer = None
    admin_format_name_len: NameLength = 0
    admin_format_name: Annotated[Any, _characters("admin_format_name_len")] = None
    admin_format_name_len_prop: DwordPointer = None
    dest_format_name_len: NameLength = 0
    dest_format_name: Annotated[Any, _characters("dest_format_name_len")] = None
    dest_format_name_len_prop: DwordPointer = None
    ordering_format_name_len: NameLength = 0
    ordering_format_name: Annotated[Any, _characters("ordering_format_name_len")] = None
    ordering_format_name_len_prop: DwordPointer = None


@dataclass(frozen=True, slots=True)
class CreateCursorArm:
    """CACCreateRemoteCursor, 2.2.3.4"""

    cursor: ndr.Dword = 0
    server_queue: ndr.Dword = 0
    client_queue: ndr.Dword = 0


_TRANSFERS: Mapping[int, ndr.NdrType | None] = {
    0: ndr.struct(SendArm),
    1: ndr.struct(ReceiveArm),
    2: ndr.struct(CreateCursorArm),
}


@dataclass(frozen=True, slots=True)
class TransferBuffer:
    """The defaults are what Windows sends: a buffer of zeroes."""

    transfer_type: Annotated[int, ndr.ulong.range(0, 2)] = 0
    transfer: Annotated[Any, ndr.union(ndr.ulong, _TRANSFERS, switch_is="transfer_type")] = SendArm()
    message_class: UshortPointer = None
    message_id: Annotated[Any, ndr.unique(ndr.unique(ndr.struct(ObjectIdStructure)))] = None
    correlation_id: Annotated[Any, _octets(CORRELATION_SIZE, CORRELATION_SIZE)] = None
    sent_time: DwordPointer = None
    arrived_time: DwordPointer = None
    priority: UcharPointer = None
    delivery: UcharPointer = None
    acknowledge: UcharPointer = None
    auditing: UcharPointer = None
    application_tag: DwordPointer = None
    body: Annotated[Any, _octets("alloc_body_buffer", "body_buffer_size")] = None
    body_buffer_size: ndr.Dword = 0
    alloc_body_buffer: ndr.Dword = 0
    body_size: DwordPointer = None
    title: Annotated[Any, _characters("title_buffer_size", "title_buffer_size")] = None
    title_buffer_size: ndr.Dword = 0
    title_buffer_size_prop: DwordPointer = None
    absolute_time_to_queue: ndr.Dword = 0
    relative_time_to_queue: DwordPointer = None
    relative_time_to_live: ndr.Dword = 0
    relative_time_to_live_prop: DwordPointer = None
    trace: UcharPointer = None
    sender_id_type: DwordPointer = None
    sender_id: Annotated[Any, _octets("sender_id_len")] = None
    sender_id_len_prop: DwordPointer = None
    priv_level: DwordPointer = None
    auth_level: ndr.Dword = 0
    authenticated_prop: UcharPointer = None
    hash_alg: DwordPointer = None
    encrypt_alg: DwordPointer = None
    sender_cert: Annotated[Any, _octets("sender_cert_len")] = None
    sender_cert_len: ndr.Dword = 0
    sender_cert_len_prop: DwordPointer = None
    provider_name: Annotated[Any, _characters("provider_name_len")] = None
    provider_name_len: ndr.Dword = 0
    provider_name_len_prop: DwordPointer = None
    provider_type: DwordPointer = None
    default_provider: ndr.Long = 0
    symm_keys: Annotated[Any, _octets("symm_keys_size")] = None
    symm_keys_size: ndr.Dword = 0
    symm_keys_size_prop: DwordPointer = None
    encrypted: Uchar = 0
    authenticated: Uchar = 0
    sender_id_len: ndr.Ushort = 0
    signature: Annotated[Any, _octets("signature_size")] = None
    signature_size: ndr.Dword = 0
    signature_size_prop: DwordPointer = None
    source_manager: GuidPointer = None
    unit_of_work: Annotated[bytes | None, ndr.unique(ndr.fixed(ndr.byte, 16))] = None  # XACTUOW
    message_extension: Annotated[Any, _octets("message_extension_size", "message_extension_size")] = None
    message_extension_size: ndr.Dword = 0
    message_extension_size_prop: DwordPointer = None
    connector_type: GuidPointer = None
    body_type: DwordPointer = None
    version: DwordPointer = None


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
    """fIP has no range here, unlike dwPortType of qm2qm."""

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
    """Returns m_qft, m_SuffixAndFlags and the arm, in the form that a QueueFormat takes."""
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
    """The inverse, for a name by which a queue can be read."""
    arm: object = value.arm
    match value.arm:
        case ObjectId(lineage, uniquifier):
            arm = ObjectIdStructure(lineage, uniquifier)
        case DlId(dl_guid, domain):
            arm = DlIdStructure(dl_guid, domain)
        case MulticastId(address, port):
            arm = MulticastIdStructure(address, port)
    return QueueFormatStructure(value.m_qft, value.m_suffix_and_flags, 0, arm)
