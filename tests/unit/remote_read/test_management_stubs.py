"""The octets of qmmgmt, [MS-MQMR] 2.2 and 3.1.4: objects, property values and both methods."""

from __future__ import annotations

from struct import pack, unpack
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroad.errors import LocalProtocolError, RemoteProtocolError, VendorStatus
from postroad.names import QueueFormat, parse_format_name
from postroad.queues.outgoing_queues import ConnectionStatus
from postroad.remote_read.qmcomm import queue_format_structure
from postroad.remote_read.qmmgmt import (
    ACTION,
    GET_INFO,
    MACHINE,
    NULL,
    QMMGMT,
    ActionIn,
    GetInfoIn,
    GetInfoOut,
    MgmtObject,
    MgmtObjectType,
    PropVariant,
    QueueProperty,
    VarType,
    blob,
    get_info_of,
    i4,
    python_value,
    sequence_info,
    table,
    text,
    ui4,
    vector,
)
from postroad.rpc.ndr import Format

PRIVATE = r"PRIVATE=a1b2c3d4-0003-4000-8000-00000000a1fa\8"
DIRECT = r"DIRECT=TCP:10.0.0.5\private$\orders"
NULL_OCTETS = bytes.fromhex("01000000000000000100")


def named(name: str) -> MgmtObject:
    found = queue_format_structure(QueueFormat.from_format_name(parse_format_name(name)))
    return MgmtObject(MgmtObjectType.MGMT_QUEUE, found)


def request(value: GetInfoIn) -> bytes:
    octets = GET_INFO.request.encode(value, Format.NDR)
    assert GET_INFO.request.decode(octets, Format.NDR) == value
    return octets


def refused(octets: bytes) -> RemoteProtocolError:
    with pytest.raises(RemoteProtocolError) as caught:
        GET_INFO.request.decode(octets, Format.NDR)
    return caught.value


# The worked examples


@pytest.mark.spec("MR-2.2.1.2-01", "MR-2.2.2.1-01", "MR-3.1.4.1-03", "MQ-2.3-01")
def test_a_machine_and_one_property() -> None:
    octets = request(get_info_of(MACHINE, [4]))
    assert octets == bytes.fromhex("0100010000000000 01000000 0100000004000000 01000000") + NULL_OCTETS


@pytest.mark.spec("MR-2.2.1.2-01", "MR-2.2.1.2-04")
def test_a_queue_follows_the_object_before_the_next_parameter() -> None:
    octets = request(get_info_of(named(PRIVATE), [QueueProperty.MESSAGE_COUNT]))
    queue = bytes.fromhex("02000000 02000000 d4c3b2a103000040800000000000a1fa 08000000")
    counts = bytes.fromhex("01000000 01000000 07000000 01000000 00000000")
    assert octets == bytes.fromhex("0200020000000200") + queue + counts + NULL_OCTETS


def test_a_reply_with_a_number_and_a_text() -> None:
    asked = get_info_of(MACHINE, [4, 5])
    octets = GET_INFO.reply.encode(GetInfoOut((ui4(3), text("NO")), 0), Format.NDR, asked)
    number = bytes.fromhex("1300000000000000 13000000 03000000")
    string = bytes.fromhex("1f00000000000000 1f000000 00000200")
    tail = bytes.fromhex("03000000 00000000 03000000 4e004f000000 0000")
    assert octets == bytes.fromhex("02000000 00000000") + number + string + tail + bytes(4)
    assert GET_INFO.reply.decode(octets, Format.NDR, request=asked).values == (ui4(3), text("NO"))


@pytest.mark.spec("MR-3.1.4.2-02", "MR-2.2.1.2-04")
def test_an_action_is_a_string_with_its_terminator() -> None:
    name = "TCP:10.0.0.5\\private$\\orders\0".encode("utf-16-le") + bytes(2)
    head = bytes.fromhex("0200020000000200 03000000 03000000 04000200 1d000000 00000000 1d000000")
    tail = bytes.fromhex("06000000 00000000 06000000 500041005500530045000000")
    assert ACTION.request.encode(ActionIn(named(DIRECT), "PAUSE"), Format.NDR) == head + name + tail
    tidy = bytes.fromhex("0100010000000000 05000000 00000000 05000000 54004900440059000000")
    assert ACTION.request.encode(ActionIn(MACHINE, "TIDY"), Format.NDR) == tidy


# What is refused with the fault 0x6F7


@pytest.mark.spec("MR-2.2.1.2-02", "MR-3.1.4-01")
@pytest.mark.parametrize("kind", ["0400 0400", "0000 0000", "0100 0200", "0200 0100", "ffff ffff"])
def test_an_object_of_an_unknown_type_or_with_another_tag(kind: str) -> None:
    refused(bytes.fromhex(kind) + request(get_info_of(MACHINE, [4]))[4:])


@pytest.mark.spec("MR-3.1.4.1-01", "MR-3.1.4-01")
@pytest.mark.parametrize("count", [0, 129, 0xFFFFFFFF])
def test_the_number_of_properties(count: int) -> None:
    many = pack("<2I", count, count) + bytes(4 * min(count, 129)) + pack("<I", count)
    refused(bytes.fromhex("0100010000000000") + many + NULL_OCTETS * min(count, 129))
    with pytest.raises(LocalProtocolError):
        get_info_of(MACHINE, [1] * (count and 129))


@pytest.mark.spec("MR-3.1.4.1-02", "MR-3.1.4-01", "MQ-2.3-01")
@pytest.mark.parametrize("place", [12, 20])
def test_both_arrays_have_the_length_that_the_call_says(place: int) -> None:
    octets = bytearray(request(get_info_of(MACHINE, [4])))
    octets[place] = 2
    refused(bytes(octets) + bytes(40))


@pytest.mark.spec("MR-3.1.4-01")
def test_a_request_that_is_too_short() -> None:
    octets = request(get_info_of(named(DIRECT), [1, 2, 3]))
    for end in range(len(octets)):
        refused(octets[:end])


@pytest.mark.spec("MR-3.1.4-02")
@pytest.mark.parametrize("vt", ["4100", "1f10", "0c10"])
def test_a_null_pointer_to_elements(vt: str) -> None:
    value = bytes.fromhex(f"{vt} 0000 00000000 {vt} 0000 04000000 00000000")
    refused(request(get_info_of(MACHINE, [4]))[:24] + value)


@pytest.mark.spec("MR-3.1.4-01")
@pytest.mark.parametrize("vt", [24, 0x0FFF, 0x100D, 0x4001])
def test_a_value_of_an_unknown_type(vt: int) -> None:
    refused(request(get_info_of(MACHINE, [4]))[:24] + pack("<HHIHH", vt, 0, 0, vt, 0) + bytes(40))


def test_a_vector_of_variants_holds_no_other_vector_of_variants() -> None:
    inner = bytes.fromhex("0c10 0000 00000000 0c10 0000 00000000 00000000")
    outer = bytes.fromhex("0c10 0000 00000000 0c10 0000 01000000 00000200 01000000")
    refused(request(get_info_of(MACHINE, [4]))[:24] + outer + inner)


# Every type of value


GUID = UUID("a1b2c3d4-0003-4000-8000-00000000a1fa")
words = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
u32 = st.integers(0, 0xFFFFFFFF)
columns = st.sampled_from(
    [
        (VarType.LPWSTR, words),
        (VarType.CLSID, st.uuids()),
        (VarType.UI8, st.integers(0, (1 << 64) - 1)),
        (VarType.UI4, u32),
        (VarType.I4, st.integers(-(1 << 31), (1 << 31) - 1)),
    ]
).flatmap(lambda kind: st.tuples(st.just(kind[0]), st.lists(kind[1], max_size=5)))
values = st.one_of(
    st.just(NULL),
    st.builds(text, words),
    st.builds(ui4, u32),
    st.builds(i4, u32),
    st.builds(blob, st.binary(max_size=40)),
    st.builds(lambda value: PropVariant(VarType.I8, value=value), st.integers(-(1 << 63), (1 << 63) - 1)),
    st.builds(lambda column: vector(*column), columns),
    st.builds(table, st.lists(columns, max_size=6)),
)


@given(st.lists(values, min_size=1, max_size=12))
def test_every_value_survives_the_wire(found: list[PropVariant]) -> None:
    asked = get_info_of(MACHINE, [1] * len(found))
    octets = GET_INFO.reply.encode(GetInfoOut(tuple(found), 0), Format.NDR, asked)
    answer = GET_INFO.reply.decode(octets, Format.NDR, request=asked)
    assert answer.values == tuple(found)
    assert [python_value(each) for each in answer.values] == [python_value(each) for each in found]


@given(st.binary(max_size=200), st.sampled_from([MACHINE, named(DIRECT)]), st.integers(0, 200))
def test_any_octets_are_a_request_or_refused(junk: bytes, mgmt_object: MgmtObject, start: int) -> None:
    octets = request(get_info_of(mgmt_object, [1, 24, 25]))
    for operation in (GET_INFO, ACTION):
        try:
            decoded: Any = operation.request.decode(octets[:start] + junk, Format.NDR)
        except RemoteProtocolError:
            continue
        assert isinstance(decoded, operation.request.kind)


@pytest.mark.spec("MQ-2.3.12.13-01", "MR-3.1.4.1-30")
def test_a_sequence_has_16_octets() -> None:
    value = sequence_info(-2, 7, 6)
    assert (value.vt, value.value.size) == (65, 16)
    assert value.value.data == pack("<qII", -2, 7, 6)
    assert python_value(value) == {"sequence_id": -2, "number": 7, "previous": 6}


def test_numbers_that_do_not_fit_are_the_largest_or_signed() -> None:
    assert ui4(1 << 40).value == 0xFFFFFFFF
    assert i4(0xC00E0069).value == -1072824215
    assert python_value(vector(VarType.CLSID, [GUID])) == [str(GUID)]


@pytest.mark.spec("MR-1.9-01", "MR-1.9-02")
def test_the_interface() -> None:
    assert (str(QMMGMT.uuid), QMMGMT.version) == ("41208ee0-e970-11d1-9b9e-00e02c064c39", (1, 0))
    assert QMMGMT.layouts == (Format.NDR,)


@pytest.mark.spec("MR-1.8-01")
def test_our_own_codes_have_the_customer_bit() -> None:
    assert all(each & 0x20000000 for each in VendorStatus)


@pytest.mark.spec("MQ-2.3.12.25-01", "MQ-2.3.12.25-02")
def test_the_codes_of_the_connection_history() -> None:
    failures = ["UNKNOWN_FAILURE", "PING_FAILURE", "CREATE_SOCKET_FAILURE", "BIND_SOCKET_FAILURE"]
    failures += ["CONNECT_SOCKET_FAILURE", "TCP_NOT_ENABLED", "SEND_FAILURE", "NOT_READY", "NAME_RESOLUTION_FAILURE"]
    failures += ["INVALID_SERVER_CERTIFICATE", "CONNECTION_LIMIT_REACHED", "CONNECTION_REFUSED"]
    failures += ["ROUTING_DATA_UNAVAILABLE", "LOW_RESOURCE"]
    names = {0: "IN_PROCESS", 1: "ESTABLISH_PACKET_RECEIVED", 2: "ESTABLISHED"}
    names |= {0x80000000 + number: name for number, name in enumerate(failures)}
    assert {each.value: each.name for each in ConnectionStatus} == names
    history = table([(VarType.UI4, list(names))])
    octets = GET_INFO.reply.encode(GetInfoOut((history,), 0), Format.NDR, get_info_of(MACHINE, [4]))
    assert last_numbers(octets, len(names)) == list(names)


def last_numbers(octets: bytes, count: int) -> list[int]:
    """The last numbers of a reply, before its HRESULT."""
    return list(unpack(f"<{count}I", octets[-4 - 4 * count : -4]))
