"""The octets of qm2qm and qmcomm, in NDR and in NDR64: where each value is, and what is refused before a method
runs."""

from __future__ import annotations

from dataclasses import replace
from struct import pack
from typing import Any
from uuid import UUID

import pytest

from postroad.errors import RemoteProtocolError
from postroad.names import MessageId, QueueFormat, parse_format_name
from postroad.remote_read import qm2qm, qmcomm, structures
from postroad.remote_read.qm2qm import QM2QM
from postroad.remote_read.qmcomm import (
    CreateCursorArm,
    ObjectIdStructure,
    ReceiveArm,
    SendArm,
    TransferBuffer,
)
from postroad.remote_read.structures import RemoteReadDesc, RemoteReadDesc2
from postroad.rpc.interface import Nothing, Operation
from postroad.rpc.ndr import NULL_HANDLE, ContextHandle, Format, Handle, Pointer

NDR, NDR64 = Format.NDR, Format.NDR64
GUID = UUID("00112233-4455-6677-8899-aabbccddeeff")
HANDLE = Handle(0, GUID.bytes_le)
HANDLE_OCTETS = bytes(4) + GUID.bytes_le
# Every member has a different value.
DESC = RemoteReadDesc(0x11, 0x12, 0x13, 0x14, 0, 0x16, 0x17, 0x18, 0x19, 0x1A, None)
DESC_OCTETS = pack("<9IHxxI", 0x11, 0x12, 0x13, 0x14, 0, 0x16, 0x17, 0x18, 0x19, 0x1A, 0)
DESC_OCTETS64 = pack("<10IQ", 0x11, 0x12, 0x13, 0x14, 0, 0x16, 0x17, 0x18, 0x19, 0x1A, 0)
FULL = RemoteReadDesc(0x11, 0x12, 0x13, 0x14, 5, 0x16, 0x17, 1, 0x19, 0, b"abcde")
BOTH = pytest.mark.parametrize("layout", [NDR, NDR64])
REFERENT = pack("<I", 0x20000)


def request(operation: Operation[Any, Any], value: object, layout: Format = NDR) -> bytes:
    octets = operation.request.encode(value, layout)
    assert operation.request.decode(octets, layout) == value
    return octets


def reply(operation: Operation[Any, Any], value: object, layout: Format = NDR) -> bytes:
    octets = operation.reply.encode(value, layout)
    assert operation.reply.decode(octets, layout) == value
    return octets


@pytest.mark.spec("QP-1.9-01", "QP-1.9-02", "QP-3.1.4-03", "QP-6-01")
def test_the_interface_and_its_eleven_methods() -> None:
    assert QM2QM.uuid == UUID("1088a980-eae5-11d0-8d9b-00a02453c337")
    assert QM2QM.version == (1, 0)
    assert [QM2QM.operations[number].name for number in sorted(QM2QM.operations)] == [
        "RemoteQMStartReceive",
        "RemoteQMEndReceive",
        "RemoteQMOpenQueue",
        "RemoteQMCloseQueue",
        "RemoteQMCloseCursor",
        "RemoteQMCancelReceive",
        "RemoteQMPurgeQueue",
        "RemoteQMGetQMQMServerPort",
        "RemoteQmGetVersion",
        "RemoteQMStartReceive2",
        "RemoteQMStartReceiveByLookupId",
    ]
    assert set(QM2QM.operations) == set(range(11))


# Structures


@pytest.mark.spec("QP-2.2.2.1-01", "QP-2.2.2.1-02", "QP-2.2.1.3-02", "QP-6-03")
def test_a_descriptor_without_a_buffer_is_44_octets_in_ndr() -> None:
    octets = request(qm2qm.START_RECEIVE, structures.StartReceiveIn(DESC))
    assert octets == DESC_OCTETS
    assert len(octets) == 44
    assert octets[36:40] == b"\x1a\0\0\0"  # eAckNack and its padding


@pytest.mark.spec("QP-2.2.2.1-03", "QP-2.2.1.3-02")
def test_a_descriptor_without_a_buffer_is_48_octets_in_ndr64() -> None:
    octets = request(qm2qm.START_RECEIVE, structures.StartReceiveIn(DESC), NDR64)
    assert octets == DESC_OCTETS64
    assert len(octets) == 48


@pytest.mark.spec("QP-2.2.2.1-23", "QP-2.2.2.1-15")
def test_a_buffer_is_an_array_with_both_counts_behind_its_descriptor() -> None:
    octets = reply(qm2qm.START_RECEIVE, structures.StartReceiveOut(HANDLE, FULL, 0))
    assert octets[:20] == HANDLE_OCTETS
    assert octets[20 + 40 : 20 + 44] == REFERENT
    assert octets[64:76] == pack("<III", 5, 0, 5)
    assert octets[76:] == b"abcde\0\0\0" + bytes(4)
    wide = reply(qm2qm.START_RECEIVE, structures.StartReceiveOut(HANDLE, FULL, 0), NDR64)
    assert wide[24 + 48 : 24 + 48 + 24] == pack("<QQQ", 5, 0, 5)


@pytest.mark.spec("QP-2.2.2.1-13", "QP-3.1.4-04")
@BOTH
def test_a_buffer_has_at_most_0x420000_octets(layout: Format) -> None:
    largest = RemoteReadDesc(1, 0, 0, 0, 0x420000, 1, 1, buffer=bytes(0x420000))
    octets = request(qm2qm.START_RECEIVE, structures.StartReceiveIn(largest), layout)
    with pytest.raises(RemoteProtocolError):
        qm2qm.START_RECEIVE.request.decode(octets[:16] + pack("<I", 0x420001) + octets[20:], layout)


@pytest.mark.spec("QP-3.1.4-01")
@BOTH
def test_counts_that_contradict_each_other_are_refused(layout: Format) -> None:
    value = structures.StartReceiveIn(FULL)
    octets = qm2qm.START_RECEIVE.request.encode(value, layout)
    start = 44 if layout is NDR else 48
    for place in range(3):
        changed = bytearray(octets)
        changed[start + place * layout.value] += 1
        with pytest.raises(RemoteProtocolError):
            qm2qm.START_RECEIVE.request.decode(bytes(changed), layout)


@pytest.mark.spec("QP-2.2.2.2-01", "QP-2.2.2.2-02", "QP-6-02")
def test_a_second_descriptor_points_to_a_first() -> None:
    with_desc = structures.StartReceive2In(RemoteReadDesc2(DESC, 0x1234567890))
    octets = request(qm2qm.START_RECEIVE2, with_desc)
    assert octets == REFERENT + bytes(4) + pack("<Q", 0x1234567890) + DESC_OCTETS
    assert len(octets) == 60
    without = structures.StartReceive2In(RemoteReadDesc2(None, 7))
    assert request(qm2qm.START_RECEIVE2, without) == bytes(8) + pack("<Q", 7)


# Methods


@pytest.mark.spec("QP-3.1.4.1-01", "QP-3.1.4.1-02", "QP-2.2.1.2-01", "QP-6-02")
def test_start_receive() -> None:
    assert len(request(qm2qm.START_RECEIVE, structures.StartReceiveIn(DESC))) == 44
    failure = reply(qm2qm.START_RECEIVE, structures.StartReceiveOut(NULL_HANDLE, DESC, 0xC00E001B))
    assert failure == bytes(20) + DESC_OCTETS + pack("<I", 0xC00E001B)
    assert len(failure) == 68


@pytest.mark.spec("QP-3.1.4.2-01", "QP-3.1.4.2-02")
def test_end_receive() -> None:
    assert request(qm2qm.END_RECEIVE, structures.EndReceiveIn(HANDLE, 2)) == HANDLE_OCTETS + pack("<I", 2)
    assert reply(qm2qm.END_RECEIVE, structures.EndReceiveOut(NULL_HANDLE, 0)) == bytes(24)


@pytest.mark.spec("QP-3.1.4.3-01", "QP-3.1.4.3-02", "QP-2.2.1.1-01", "QP-6-02")
def test_open_queue() -> None:
    opened = structures.OpenQueueIn(lic_guid=GUID, mqs=1, queue_handle=2, queue=3, open_context=4)
    octets = request(qm2qm.OPEN_QUEUE, opened)
    assert octets == GUID.bytes_le + pack("<4I", 1, 2, 3, 4)
    assert len(octets) == 32
    assert reply(qm2qm.OPEN_QUEUE, structures.OpenQueueOut(HANDLE, 0)) == HANDLE_OCTETS + bytes(4)


@pytest.mark.spec("QP-3.1.4.4-01")
def test_close_queue() -> None:
    assert request(qm2qm.CLOSE_QUEUE, structures.CloseQueueIn(HANDLE)) == HANDLE_OCTETS
    assert len(reply(qm2qm.CLOSE_QUEUE, structures.CloseQueueOut(NULL_HANDLE, 0))) == 24


@pytest.mark.spec("QP-3.1.4.5-01")
def test_close_cursor() -> None:
    assert request(qm2qm.CLOSE_CURSOR, structures.CloseCursorIn(1, 2)) == pack("<2I", 1, 2)
    assert len(reply(qm2qm.CLOSE_CURSOR, structures.Result(0))) == 4


@pytest.mark.spec("QP-3.1.4.6-01")
def test_cancel_receive() -> None:
    assert request(qm2qm.CANCEL_RECEIVE, structures.CancelReceiveIn(1, 2, 3)) == pack("<3I", 1, 2, 3)
    assert len(reply(qm2qm.CANCEL_RECEIVE, structures.Result(0))) == 4


@pytest.mark.spec("QP-3.1.4.7-01")
def test_purge_queue() -> None:
    assert request(qm2qm.PURGE_QUEUE, structures.PurgeQueueIn(1)) == pack("<I", 1)
    assert len(reply(qm2qm.PURGE_QUEUE, structures.Result(0))) == 4


@pytest.mark.spec("QP-3.1.4.8-01")
def test_get_server_port() -> None:
    assert request(qm2qm.GET_SERVER_PORT, structures.GetPortIn(1)) == pack("<I", 1)
    assert reply(qm2qm.GET_SERVER_PORT, structures.Result(2105)) == pack("<I", 2105)


@pytest.mark.spec("QP-3.1.4.9-01", "QP-3.1.4.9-02")
def test_get_version() -> None:
    assert request(qm2qm.GET_VERSION, Nothing()) == b""
    assert reply(qm2qm.GET_VERSION, structures.GetVersionOut(6, 1, 7600)) == b"\x06\x01" + pack("<H", 7600)


@pytest.mark.spec("QP-3.1.4.10-01", "QP-3.1.4.10-02")
def test_start_receive_2() -> None:
    full = RemoteReadDesc2(FULL, 0x12)
    octets = reply(qm2qm.START_RECEIVE2, structures.StartReceive2Out(HANDLE, full, 0))
    assert octets[:24] == HANDLE_OCTETS + bytes(4)
    assert octets[24:28] == REFERENT
    assert octets[32:40] == pack("<Q", 0x12)
    assert octets[40:44] == pack("<I", 0x11)
    assert octets[84:96] == pack("<III", 5, 0, 5)
    assert octets[96:] == b"abcde\0\0\0" + bytes(4)


@pytest.mark.spec("QP-3.1.4.11-01", "QP-3.1.4.11-02")
def test_start_receive_by_lookup_id() -> None:
    value = structures.StartReceiveByLookupIdIn(0x1122334455667788, RemoteReadDesc2(DESC, 9))
    octets = request(qm2qm.START_RECEIVE_BY_LOOKUP_ID, value)
    assert octets == pack("<Q", 0x1122334455667788) + REFERENT + bytes(4) + pack("<Q", 9) + DESC_OCTETS
    assert len(octets) == 68


@pytest.mark.spec("QP-3.1.4-04")
@pytest.mark.parametrize(
    ("operation", "octets"),
    [
        pytest.param(qm2qm.END_RECEIVE, HANDLE_OCTETS + pack("<I", 0), marks=pytest.mark.spec("QP-3.1.4.2-05")),
        pytest.param(qm2qm.END_RECEIVE, HANDLE_OCTETS + pack("<I", 3), marks=pytest.mark.spec("QP-3.1.4.2-05")),
        pytest.param(
            qm2qm.OPEN_QUEUE, GUID.bytes_le + pack("<4I", 17, 1, 1, 1), marks=pytest.mark.spec("QP-3.1.4.3-07")
        ),
        (qm2qm.GET_SERVER_PORT, pack("<I", 4)),
    ],
)
def test_a_stub_with_a_value_out_of_range_is_not_valid(operation: Operation[Any, Any], octets: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        operation.request.decode(octets, NDR)


@pytest.mark.spec("QP-6-04")
def test_a_context_handle_may_be_null_on_its_way_in() -> None:
    assert qm2qm.END_RECEIVE.request.decode(bytes(20) + pack("<I", 2), NDR).context == NULL_HANDLE
    directions: dict[str, set[int]] = {"in": set(), "out": set()}
    for number, operation in QM2QM.operations.items():
        directions["in"] |= {number for _, kind in operation.request.handles if not kind.strict}
        directions["out"] |= {number for _, _ in operation.reply.handles}
    assert directions == {"in": {1, 3}, "out": {0, 1, 2, 3, 9, 10}}


@pytest.mark.spec("QP-6-05")
def test_the_interface_needs_no_more_than_handles_numbers_and_one_array() -> None:
    kinds = {
        type(kind)
        for operation in QM2QM.operations.values()
        for parameters in (operation.request, operation.reply)
        for _, kind in parameters.members
    }
    assert {kind.__name__ for kind in kinds} == {"ContextHandle", "Guid", "Integer", "Structure"}
    assert ContextHandle in kinds
    assert Pointer not in kinds  # at the top level all are ref


# qmcomm


def test_open_remote_queue() -> None:
    value = QueueFormat.from_format_name(parse_format_name(r"DIRECT=OS:alpha\private$\orders"))
    structure = qmcomm.queue_format_structure(value)
    octets = request(qmcomm.OPEN_REMOTE_QUEUE, qmcomm.OpenRemoteQueueIn(structure, 0, 1, 0, GUID, 0x500))
    text = "OS:alpha\\private$\\orders\0"
    size = len(text)
    assert octets[:16] == REFERENT + b"\x03\0\0\0\x03\0\0\0" + pack("<I", 0x20004)
    assert octets[16:28] == pack("<III", size, 0, size)
    tail = pack("<3I", 0, 1, 0) + GUID.bytes_le + pack("<I", 0x500)
    assert octets.endswith(tail)
    answer = qmcomm.OpenRemoteQueueOut(HANDLE, 5, 5, 5, 0)
    assert reply(qmcomm.OPEN_REMOTE_QUEUE, answer) == HANDLE_OCTETS + pack("<4I", 5, 5, 5, 0)


@pytest.mark.spec("MQ-2.2.7-15")
@BOTH
@pytest.mark.parametrize(
    "name",
    [
        r"DIRECT=OS:alpha\private$\orders",
        r"DIRECT=TCP:127.0.0.1\private$\orders;poison",
        f"PUBLIC={GUID}",
        f"PRIVATE={GUID}\\0000000f",
        f"MACHINE={GUID};DEADLETTER",
        f"CONNECTOR={GUID}",
        f"DL={GUID}@example.org",
        "MULTICAST=234.1.1.1:8001",
    ],
)
def test_every_format_name_travels(name: str, layout: Format) -> None:
    value = QueueFormat.from_format_name(parse_format_name(name))
    structure = qmcomm.queue_format_structure(value)
    request(qmcomm.OPEN_REMOTE_QUEUE, qmcomm.OpenRemoteQueueIn(structure, 1, 2, 3, GUID, 4), layout)
    assert QueueFormat(*qmcomm.queue_format_parts(structure)) == value


@pytest.mark.spec("MQ-2.2.7-01", "MQ-2.2.7-11")
def test_a_queue_format_begins_with_its_type_its_suffix_and_two_octets_of_padding() -> None:
    value = QueueFormat.from_format_name(parse_format_name(f"PUBLIC={GUID};JOURNAL"))
    structure = qmcomm.queue_format_structure(value)
    octets = request(qmcomm.OPEN_REMOTE_QUEUE, qmcomm.OpenRemoteQueueIn(structure, 0, 1, 0, GUID, 0x500))
    # The pointer, the four octets, the discriminant of the union and its arm.
    assert octets[:28] == REFERENT + b"\x01\x81\0\0" + b"\x01\0\0\0" + GUID.bytes_le


@BOTH
@pytest.mark.spec("MQ-2.2.7-12")
def test_the_padding_of_a_queue_format_changes_nothing(layout: Format) -> None:
    value = QueueFormat.from_format_name(parse_format_name(f"PUBLIC={GUID}"))
    structure = replace(qmcomm.queue_format_structure(value), m_reserved=0xFFFF)
    request(qmcomm.OPEN_REMOTE_QUEUE, qmcomm.OpenRemoteQueueIn(structure, 0, 1, 0, GUID, 0x500), layout)
    assert QueueFormat(*qmcomm.queue_format_parts(structure)) == value


@pytest.mark.spec("MQ-2.2.9-01")
def test_a_distribution_list_is_a_guid_and_a_pointer_to_its_domain() -> None:
    def octets(name: str) -> bytes:
        structure = qmcomm.queue_format_structure(QueueFormat.from_format_name(parse_format_name(name)))
        return request(qmcomm.OPEN_REMOTE_QUEUE, qmcomm.OpenRemoteQueueIn(structure, 0, 1, 0, GUID, 0x500))

    domain = "example.org\0"
    assert octets(f"DL={GUID}@example.org")[12:44] == GUID.bytes_le + pack("<4I", 0x20004, 12, 0, 12)
    assert octets(f"DL={GUID}@example.org")[44:68] == domain.encode("utf-16-le")
    assert octets(f"DL={GUID}")[12:32] == GUID.bytes_le + bytes(4)


@pytest.mark.spec("MQ-2.2.8-01", "MQ-2.2.8-02")
def test_an_object_id_has_the_20_bytes_of_a_message_id() -> None:
    value = QueueFormat.from_format_name(parse_format_name(f"PRIVATE={GUID}\\1020304"))
    structure = qmcomm.queue_format_structure(value)
    octets = request(qmcomm.OPEN_REMOTE_QUEUE, qmcomm.OpenRemoteQueueIn(structure, 0, 1, 0, GUID, 0x500))
    assert octets[12:32] == bytes.fromhex("3322110055447766") + GUID.bytes[8:] + b"\4\3\2\1"
    assert octets[12:32] == MessageId(GUID, 0x01020304).to_bytes()


@pytest.mark.spec("MQ-2.2.10-01")
def test_a_multicast_id_is_an_address_and_a_port() -> None:
    value = QueueFormat.from_format_name(parse_format_name("MULTICAST=234.1.2.3:8001"))
    structure = qmcomm.queue_format_structure(value)
    octets = request(qmcomm.OPEN_REMOTE_QUEUE, qmcomm.OpenRemoteQueueIn(structure, 0, 1, 0, GUID, 0x500))
    assert octets[8:20] == b"\x07\0\0\0" + bytes([234, 1, 2, 3]) + pack("<I", 8001)


def test_close_remote_queue_context() -> None:
    assert request(qmcomm.CLOSE_REMOTE_QUEUE_CONTEXT, qmcomm.CloseContext(HANDLE)) == HANDLE_OCTETS


def test_create_remote_cursor_carries_228_zeroes_first() -> None:
    octets = request(qmcomm.CREATE_REMOTE_CURSOR, qmcomm.CreateRemoteCursorIn(TransferBuffer(), 0x77))
    assert octets == bytes(228) + pack("<I", 0x77)
    assert len(reply(qmcomm.CREATE_REMOTE_CURSOR, qmcomm.CreateRemoteCursorOut(1, 0))) == 8


@BOTH
@pytest.mark.parametrize(
    "buffer",
    [
        TransferBuffer(),
        TransferBuffer(1, ReceiveArm(1, 2, 3, 4, 2, (65, 66), 2)),
        TransferBuffer(2, CreateCursorArm(1, 2, 3)),
        TransferBuffer(
            0,
            SendArm(),
            message_class=3,
            message_id=ObjectIdStructure(GUID, 4),
            correlation_id=bytes(20),
            priority=4,
            body=b"abc",
            body_buffer_size=3,
            alloc_body_buffer=8,
            sender_id=b"12",
            sender_id_len=2,
            source_manager=GUID,
            unit_of_work=bytes(16),
            version=5,
        ),
    ],
)
def test_a_transfer_buffer_is_read_past_whatever_it_holds(buffer: TransferBuffer, layout: Format) -> None:
    value = qmcomm.CreateRemoteCursorIn(buffer, 0x77)
    assert request(qmcomm.CREATE_REMOTE_CURSOR, value, layout)[-4:] == pack("<I", 0x77)
