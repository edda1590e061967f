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
from postroad.rpc.ndr import (
    GUID,
    Dword,
    Long,
    NdrType,
    Pointer,
    Ushort,
    array,
    byte,
    fixed,
    guid,
    struct,
    uchar,
    ulong,
    union,
    unique,
    ushort,
    wchar,
    wstring,
)

Uchar = Annotated[int, uchar]
UcharPointer = Annotated[int | None, unique(uchar)]
UshortPointer = Annotated[int | None, unique(ushort)]
DwordPointer = Annotated[int | None, unique(ulong)]
GuidPointer = Annotated[UUID | None, unique(unique(guid))]
NameLength = Annotated[int, ulong.range(0, 1024)]
CORRELATION_SIZE = 20


def _octets(size: str | int, length: str | int | None = None) -> Pointer:
    """`[size_is(,size), length_is(,length)] unsigned char**`"""
    return unique(unique(array(byte, size_is=size, length_is=length)))


def _characters(size: str, length: str | None = None) -> Pointer:
    return unique(unique(array(wchar, size_is=size, length_is=length)))


@dataclass(frozen=True, slots=True)
class ObjectIdStructure:
    """OBJECTID, [MS-MQMQ] 2.2.8"""

    lineage: GUID
    uniquifier: Dword


@dataclass(frozen=True, slots=True)
class DlIdStructure:
    """DL_ID, [MS-MQMQ] 2.2.9"""

    dl_guid: GUID
    domain: Annotated[str | None, unique(wstring)]


@dataclass(frozen=True, slots=True)
class MulticastIdStructure:
    """MULTICAST_ID, [MS-MQMQ] 2.2.10"""

    address: Dword
    port: Dword


_ARMS: Mapping[int, NdrType | None] = {
    QueueFormatType.UNKNOWN: None,
    QueueFormatType.PUBLIC: guid,
    QueueFormatType.PRIVATE: struct(ObjectIdStructure),
    QueueFormatType.DIRECT: unique(wstring),
    QueueFormatType.MACHINE: guid,
    QueueFormatType.CONNECTOR: guid,
    QueueFormatType.DL: struct(DlIdStructure),
    QueueFormatType.MULTICAST: struct(MulticastIdStructure),
    QueueFormatType.SUBQUEUE: unique(wstring),
}


@dataclass(frozen=True, slots=True)
class QueueFormatStructure:
    """QUEUE_FORMAT, [MS-MQMQ] 2.2.7"""

    m_qft: Uchar
    m_suffix_and_flags: Uchar
    m_reserved: Ushort
    arm: Annotated[Any, union(uchar, _ARMS, switch_is="m_qft")]


QueueFormatPointer = Annotated[QueueFormatStructure | None, unique(struct(QueueFormatStructure))]


@dataclass(frozen=True, slots=True)
class SendArm:
    admin_queue_format: QueueFormatPointer = None
    response_queue_format: QueueFormatPointer = None


@dataclass(frozen=True, slots=True)
class ReceiveArm:
    request_timeout: Dword = 0
    action: Dword = 0
    asynchronous: Dword = 0
    cursor: Dword = 0
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

    cursor: Dword = 0
    server_queue: Dword = 0
    client_queue: Dword = 0


_TRANSFERS: Mapping[int, NdrType | None] = {
    0: struct(SendArm),
    1: struct(ReceiveArm),
    2: struct(CreateCursorArm),
}


@dataclass(frozen=True, slots=True)
class TransferBuffer:
    """The defaults are what Windows sends: a buffer of zeroes."""

    transfer_type: Annotated[int, ulong.range(0, 2)] = 0
    transfer: Annotated[Any, union(ulong, _TRANSFERS, switch_is="transfer_type")] = SendArm()
    message_class: UshortPointer = None
    message_id: Annotated[Any, unique(unique(struct(ObjectIdStructure)))] = None
    correlation_id: Annotated[Any, _octets(CORRELATION_SIZE, CORRELATION_SIZE)] = None
    sent_time: DwordPointer = None
    arrived_time: DwordPointer = None
    priority: UcharPointer = None
    delivery: UcharPointer = None
    acknowledge: UcharPointer = None
    auditing: UcharPointer = None
    application_tag: DwordPointer = None
    body: Annotated[Any, _octets("alloc_body_buffer", "body_buffer_size")] = None
    body_buffer_size: Dword = 0
    alloc_body_buffer: Dword = 0
    body_size: DwordPointer = None
    title: Annotated[Any, _characters("title_buffer_size", "title_buffer_size")] = None
    title_buffer_size: Dword = 0
    title_buffer_size_prop: DwordPointer = None
    absolute_time_to_queue: Dword = 0
    relative_time_to_queue: DwordPointer = None
    relative_time_to_live: Dword = 0
    relative_time_to_live_prop: DwordPointer = None
    trace: UcharPointer = None
    sender_id_type: DwordPointer = None
    sender_id: Annotated[Any, _octets("sender_id_len")] = None
    sender_id_len_prop: DwordPointer = None
    priv_level: DwordPointer = None
    auth_level: Dword = 0
    authenticated_prop: UcharPointer = None
    hash_alg: DwordPointer = None
    encrypt_alg: DwordPointer = None
    sender_cert: Annotated[Any, _octets("sender_cert_len")] = None
    sender_cert_len: Dword = 0
    sender_cert_len_prop: DwordPointer = None
    provider_name: Annotated[Any, _characters("provider_name_len")] = None
    provider_name_len: Dword = 0
    provider_name_len_prop: DwordPointer = None
    provider_type: DwordPointer = None
    default_provider: Long = 0
    symm_keys: Annotated[Any, _octets("symm_keys_size")] = None
    symm_keys_size: Dword = 0
    symm_keys_size_prop: DwordPointer = None
    encrypted: Uchar = 0
    authenticated: Uchar = 0
    sender_id_len: Ushort = 0
    signature: Annotated[Any, _octets("signature_size")] = None
    signature_size: Dword = 0
    signature_size_prop: DwordPointer = None
    source_manager: GuidPointer = None
    unit_of_work: Annotated[bytes | None, unique(fixed(byte, 16))] = None  # XACTUOW
    message_extension: Annotated[Any, _octets("message_extension_size", "message_extension_size")] = None
    message_extension_size: Dword = 0
    message_extension_size_prop: DwordPointer = None
    connector_type: GuidPointer = None
    body_type: DwordPointer = None
    version: DwordPointer = None
