"""CACTransferBufferV1, [MS-MQMP] 2.2.3.2: R_QMCreateRemoteCursor carries it, and its content is ignored.

Windows sends zeroes, but a server must be able to read past any content. QUEUE_FORMAT, [MS-MQMQ] 2.2.7, is here too,
because it is a part of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any
from uuid import UUID

from postroad.names.base import QueueFormatType
from postroad.rpc import ndr

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
