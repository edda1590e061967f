"""The RemoteRead interface in octets, [MS-MQRR] 6: requests and replies in NDR and NDR64, member by member and fast."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroad.errors import LocalProtocolError, RemoteProtocolError
from postroad.remote_read import remoteread as wire
from postroad.remote_read.qmcomm import CreateRemoteCursorOut, ObjectIdStructure, QueueFormatStructure
from postroad.remote_read.remoteread import REMOTE_READ, SectionBuffer
from postroad.remote_read.structures import Result
from postroad.rpc.interface import FastParameters, Nothing, Parameters
from postroad.rpc.ndr import NULL_HANDLE, Format, Handle

HANDLE = Handle(0, UUID("00112233-4455-6677-8899-aabbccddeeff").bytes_le)
HANDLE_OCTETS = "00000000" + "33221100554477668899aabbccddeeff"
CLIENT = UUID("0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0")
NAME = "OS:a\\private$\\q"
TEXT = "4f0053003a0061005c00700072006900760061007400650024005c0071000000"
REST = "01000000000000003c2d1e0f5a4b78698796a5b4c3d2e1f0010000000601b11d01000000"
DIRECT = wire.OpenQueueIn(QueueFormatStructure(3, 0, 0, NAME), 1, 0, CLIENT, 1, 6, 1, 7601, 1)
SECTIONS = (SectionBuffer(1, 10, 6, b"HEADbo"), SectionBuffer(2, 5, 5, b"TRAIL"))


def octets(*parts: str) -> bytes:
    return bytes.fromhex("".join(parts).replace(" ", ""))


EXAMPLES: list[tuple[Parameters[Any], Format, Any, bytes]] = [
    (
        wire.OPEN_QUEUE.request,
        Format.NDR,
        DIRECT,
        octets("03 00 0000 03 000000 00000200", "10000000 00000000 10000000", TEXT, REST),
    ),
    (
        wire.OPEN_QUEUE.request,
        Format.NDR64,
        DIRECT,
        octets(
            "03 00 0000 00000000 03 00000000000000 0000020000000000",
            "1000000000000000 0000000000000000 1000000000000000",
            TEXT,
            REST,
        ),
    ),
    *[
        (
            wire.START_RECEIVE.request,
            layout,
            wire.StartReceiveIn(HANDLE, 0x0400000000000001, 0, 0x40000020, 0, 7, 100, 0xFFFFFFFF),
            octets(
                HANDLE_OCTETS,
                "00000000 0100000000000004 00000000 20000040 00000000 07000000 64000000 ffffffff",
            ),
        )
        for layout in Format
    ],
    (
        wire.START_RECEIVE.reply,
        Format.NDR,
        wire.StartReceiveOut(0x65000000, 1, 2, SECTIONS, 0),
        octets(
            "00000065 00000000 0100000000000000 02000000 00000200 02000000",
            "0100 0000 0a000000 06000000 04000200 0200 0000 05000000 05000000 08000200",
            "06000000 48454144626f 0000 05000000 545241494c 000000 00000000",
        ),
    ),
    (
        wire.START_RECEIVE.reply,
        Format.NDR64,
        wire.StartReceiveOut(0x65000000, 1, 2, SECTIONS, 0),
        octets(
            "00000065 00000000 0100000000000000 02000000 00000000 0000020000000000 0200000000000000",
            "01000000 0a000000 06000000 00000000 0400020000000000",
            "02000000 05000000 05000000 00000000 0800020000000000",
            "0600000000000000 48454144626f 0000 0500000000000000 545241494c 000000 00000000",
        ),
    ),
    (
        wire.START_RECEIVE.reply,
        Format.NDR,
        wire.StartReceiveOut(0, 0, 0, None, 0xC00E001B),
        octets("00000000 00000000 0000000000000000 00000000 00000000 1b000ec0"),
    ),
    (
        wire.START_RECEIVE.reply,
        Format.NDR64,
        wire.StartReceiveOut(0, 0, 0, None, 0xC00E001B),
        octets("00000000 00000000 0000000000000000 00000000 00000000 0000000000000000 1b000ec0"),
    ),
]


@pytest.mark.spec(
    "RR-2.2.2-01", "RR-3.1.4.2-13", "RR-3.1.4.7-41", "RR-3.1.4.7-42", "RR-2.2.6-01", "RR-2.2.7-02", "RR-2.2.4-02"
)
@pytest.mark.parametrize(("parameters", "layout", "value", "expected"), EXAMPLES, ids=range(len(EXAMPLES)))
def test_an_example_in_octets(parameters: Parameters[Any], layout: Format, value: Any, expected: bytes) -> None:
    assert parameters.encode(value, layout).hex() == expected.hex()
    assert Parameters.encode(parameters, value, layout).hex() == expected.hex()
    assert parameters.decode(expected, layout) == value
    assert parameters.decode(expected, layout) == Parameters.decode(parameters, expected, layout)


@pytest.mark.spec("RR-2.2.4-02", "RR-2.2.8-01", "RR-3.1.4.1-04", "RR-3.1.4.14-05", "RR-3.1.4.7-41")
@pytest.mark.parametrize("layout", Format)
def test_requests_and_replies_have_the_sizes_of_the_interface(layout: Format) -> None:
    def size(parameters: Parameters[Any], value: Any) -> int:
        return len(parameters.encode(value, layout))

    assert size(wire.GET_SERVER_PORT.request, Nothing()) == 0
    assert size(wire.GET_SERVER_PORT.reply, Result(2103)) == 4
    assert size(wire.OPEN_QUEUE.reply, wire.OpenQueueOut(HANDLE)) == 20
    assert size(wire.CLOSE_QUEUE.request, wire.OneQueue(HANDLE)) == 20
    assert size(wire.CLOSE_QUEUE.reply, wire.CloseQueueOut(NULL_HANDLE, 0)) == 24
    assert size(wire.CREATE_CURSOR.reply, CreateRemoteCursorOut(1, 0)) == 8
    assert size(wire.CLOSE_CURSOR.request, wire.CloseCursorIn(HANDLE, 1)) == 24
    assert size(wire.CANCEL_RECEIVE.request, wire.CancelReceiveIn(HANDLE, 1)) == 24
    assert size(wire.END_RECEIVE.request, wire.EndReceiveIn(HANDLE, 1, 1)) == 28
    assert size(wire.MOVE_MESSAGE.request, wire.MoveMessageIn(HANDLE, 1, 1, wire.NO_TRANSACTION)) == 56
    assert size(wire.OPEN_QUEUE_FOR_MOVE.reply, wire.OpenQueueForMoveOut(1, HANDLE)) == 28
    assert size(wire.SET_USER_ACKNOWLEDGEMENT_CLASS.request, wire.SetClassIn(HANDLE, 1, 0xC004)) == 34


@pytest.mark.spec("RR-2.2.3-01", "RR-3.1.4.2-13")
@pytest.mark.parametrize(
    ("kind", "arm", "ndr", "ndr64"),
    [
        (2, ObjectIdStructure(CLIENT, 9), 28, 40),  # NDR64: 4 octets of padding after the number
        (1, CLIENT, 24, 32),
        (4, CLIENT, 24, 32),
        (0, None, 8, 16),
    ],
)
def test_every_kind_of_name_has_its_arm(kind: int, arm: object, ndr: int, ndr64: int) -> None:
    request = wire.OpenQueueIn(QueueFormatStructure(kind, 0x81, 0, arm), 1, 0, CLIENT, 1, 6, 1, 7601, 1)
    for layout, size in ((Format.NDR, ndr), (Format.NDR64, ndr64)):
        written = wire.OPEN_QUEUE.request.encode(request, layout)
        assert written[size:] == octets(REST)
        assert wire.OPEN_QUEUE.request.decode(written, layout) == request


@pytest.mark.spec("RR-3.1.4-01", "RR-3.1.4-02")
@pytest.mark.parametrize("layout", Format)
def test_what_contradicts_itself_is_refused(layout: Format) -> None:
    request = wire.OPEN_QUEUE.request.encode(DIRECT, layout)
    tag_at = 4 if layout is Format.NDR else 8
    for place, octet in ((tag_at, 1), (tag_at, 9), (0, 2)):
        wrong = bytearray(request)
        wrong[place] = octet
        with pytest.raises(RemoteProtocolError):
            wire.OPEN_QUEUE.request.decode(bytes(wrong), layout)
    for end in range(len(request)):
        with pytest.raises(RemoteProtocolError):
            wire.OPEN_QUEUE.request.decode(request[:end], layout)
    word = layout.value
    reply = wire.START_RECEIVE.reply.encode(
        wire.StartReceiveOut(1, 1, 1, (SectionBuffer(0, 4, 4, b"abcd"),), 0), layout
    )
    for place in range(16, len(reply) - 8, word):  # every count and pointer, and the sizes
        wrong = bytearray(reply)
        wrong[place] ^= 0xFF
        try:
            found = wire.START_RECEIVE.reply.decode(bytes(wrong), layout)
        except RemoteProtocolError:
            continue
        assert found.sections is not None  # only a referent id, the type of the section or its size_alloc has changed
        assert [(each.size, each.section) for each in found.sections] == [(4, b"abcd")]
    null = bytearray(reply)
    pointer_at = {Format.NDR: 40, Format.NDR64: 56}[layout]
    null[pointer_at : pointer_at + word] = bytes(word)  # SectionSize 4, and no octets
    with pytest.raises(RemoteProtocolError):
        wire.START_RECEIVE.reply.decode(bytes(null), layout)


dwords = st.integers(0, 0xFFFFFFFF)
handles = st.builds(Handle, st.sampled_from([0, 1]), st.binary(min_size=16, max_size=16))


@st.composite
def replies(draw: st.DrawFn) -> wire.StartReceiveOut:
    sections = draw(st.none() | st.lists(st.tuples(st.integers(0, 4), dwords, st.binary(max_size=9)), max_size=2))
    found = None if sections is None else tuple([SectionBuffer(a, b, len(c), c) for a, b, c in sections])
    return wire.StartReceiveOut(draw(dwords), draw(st.integers(0, 2**64 - 1)), len(found or ()), found, draw(dwords))


FAST: list[tuple[Parameters[Any], st.SearchStrategy[Any]]] = [
    (
        wire.START_RECEIVE.request,
        st.builds(wire.StartReceiveIn, handles, st.integers(0, 2**64 - 1), *[dwords] * 6),
    ),
    (wire.START_RECEIVE.reply, replies()),
    (wire.END_RECEIVE.request, st.builds(wire.EndReceiveIn, handles, st.integers(1, 2), dwords)),
    (wire.END_RECEIVE.reply, st.builds(Result, dwords)),
]


@pytest.mark.parametrize("layout", Format)
@given(data=st.data())
def test_fast_stubs_agree_with_the_definitions(layout: Format, data: st.DataObject) -> None:
    parameters, values = data.draw(st.sampled_from(FAST))
    assert isinstance(parameters, FastParameters)
    value = data.draw(values)
    written = parameters.encode(value, layout)
    assert written == Parameters.encode(parameters, value, layout)
    assert parameters.decode(written, layout) == value
    cut = data.draw(st.binary(max_size=len(written))) if data.draw(st.booleans()) else written[:-1]
    slow: Any
    fast: Any
    try:
        fast = parameters.decode(cut, layout)
    except RemoteProtocolError:
        fast = None
    try:
        slow = Parameters.decode(parameters, cut, layout)
    except RemoteProtocolError:
        slow = None
    assert fast == slow


@pytest.mark.parametrize("layout", Format)
def test_fast_stubs_write_nothing_that_the_definitions_refuse(layout: Format) -> None:
    wrong = [
        wire.StartReceiveOut(0, 0, 1, (SectionBuffer(0, 4, 5, b"abcd"),), 0),
        wire.StartReceiveOut(0, 0, 1, (SectionBuffer(0, 4, 4, None),), 0),
        wire.StartReceiveOut(0, 0, 2, (SectionBuffer(0, 4, 4, b"abcd"),), 0),
        wire.StartReceiveOut(0, 0, 1, None, 0),
        wire.StartReceiveOut(1 << 32, 0, 0, None, 0),
    ]
    for value in wrong:
        with pytest.raises(LocalProtocolError):
            wire.START_RECEIVE.reply.encode(value, layout)
    for ack in (0, 3):
        with pytest.raises(LocalProtocolError):
            wire.END_RECEIVE.request.encode(wire.EndReceiveIn(HANDLE, ack, 1), layout)


@pytest.mark.spec("RR-1.9-01", "RR-1.9-02", "RR-3.1.4-03", "RR-3.1.4-04")
def test_the_interface_has_its_name_and_numbers() -> None:
    assert REMOTE_READ.uuid == UUID("1A9134DD-7B39-45BA-AD88-44D01CA47F28")
    assert REMOTE_READ.version == (1, 0)
    assert sorted(REMOTE_READ.operations) == [0, *range(2, 12), 14]
