"""Connection-oriented PDUs: the octets of each type. Random octets give a PDU or a protocol error."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from postroad.errors import LocalProtocolError, RemoteProtocolError
from postroad.rpc import pdu as pdus
from postroad.rpc.constants import ContextResult, PacketFlag, PacketType
from postroad.rpc.pdu import (
    NDR,
    NDR64,
    NO_SYNTAX,
    ContextAnswer,
    Framer,
    Pdu,
    PresentationContext,
    SecTrailer,
    SyntaxId,
    fragments,
)

IFACE = SyntaxId(UUID("1088a980-eae5-11d0-8d9b-00a02453c337"), 1)
TRAILER = SecTrailer(10, 6, 3, b"token")

syntaxes = st.builds(SyntaxId, st.uuids(), st.integers(0, 65535), st.integers(0, 65535))
contexts = st.builds(PresentationContext, st.integers(0, 65535), syntaxes, st.lists(syntaxes, max_size=3).map(tuple))
answers = st.builds(ContextAnswer, st.integers(0, 65535), st.integers(0, 65535), syntaxes)
trailers = st.none() | st.builds(
    SecTrailer, st.integers(0, 255), st.integers(0, 255), st.integers(0, 0xFFFFFFFF), st.binary(min_size=1, max_size=40)
)
ids = st.integers(0, 0xFFFFFFFF)
shorts = st.integers(0, 65535)
binds = {
    "call_id": ids,
    "trailer": trailers,
    "max_xmit_frag": shorts,
    "max_recv_frag": shorts,
    "assoc_group_id": ids,
    "contexts": st.lists(contexts, max_size=4).map(tuple),
}
acks = {
    "call_id": ids,
    "trailer": trailers,
    "max_xmit_frag": shorts,
    "max_recv_frag": shorts,
    "assoc_group_id": ids,
    "secondary_address": st.sampled_from(["", "2103", "49152", "a"]),
    "results": st.lists(answers, max_size=4).map(tuple),
}
versions = st.lists(st.tuples(st.integers(0, 255), st.integers(0, 255)), max_size=3).map(tuple)

ANY_PDU: st.SearchStrategy[Pdu] = st.one_of(
    st.builds(pdus.Bind, **binds),
    st.builds(pdus.AlterContext, **binds),
    st.builds(pdus.BindAck, **acks),
    st.builds(pdus.AlterContextResponse, **acks),
    st.builds(pdus.BindNak, call_id=ids, reason=shorts, versions=versions),
    st.builds(pdus.Auth3, call_id=ids, trailer=st.just(TRAILER)),
    st.builds(pdus.Request, call_id=ids, alloc_hint=ids, context_id=shorts, opnum=shorts, stub=st.binary(max_size=64)),
    st.builds(
        pdus.Request,
        call_id=ids,
        flags=st.just(PacketFlag.OBJECT_UUID | 3),
        alloc_hint=ids,
        context_id=shorts,
        opnum=shorts,
        object=st.uuids(),
        stub=st.binary(max_size=64),
    ),
    st.builds(pdus.Response, call_id=ids, alloc_hint=ids, context_id=shorts, stub=st.binary(max_size=64)),
    st.builds(pdus.Fault, call_id=ids, context_id=shorts, status=ids),
    st.builds(pdus.CoCancel, call_id=ids),
    st.builds(pdus.Orphaned, call_id=ids),
    st.builds(pdus.Shutdown, call_id=ids),
)


@given(ANY_PDU)
def test_every_pdu_comes_back(pdu: Pdu) -> None:
    octets = pdu.encode()
    found = pdus.decode(octets)
    assert type(found) is type(pdu)
    # The sender chooses the padding before a trailer. After one more round trip, all is equal.
    assert found.encode() == octets


def test_a_bind_as_windows_writes_it() -> None:
    bind = pdus.Bind(
        call_id=2,
        flags=PacketFlag.CONC_MPX | 3,
        max_xmit_frag=5840,
        max_recv_frag=5840,
        assoc_group_id=0,
        contexts=(
            PresentationContext(0, IFACE, (NDR,)),
            PresentationContext(1, IFACE, (NDR64,)),
            PresentationContext(2, IFACE, (pdus.feature_syntax(3),)),
        ),
    )
    interface = "80a98810e5ead0118d9b00a02453c337" "01000000"  # fmt: skip
    assert bind.encode().hex() == (
        "05000b13" "10000000" "a000" "0000" "02000000"
        "d016" "d016" "00000000" "03000000"
        "0000" "0100" + interface + "045d888aeb1cc9119fe808002b104860" "02000000"
        "0100" "0100" + interface + "33057171babe37498319b5dbef9ccc36" "01000000"
        "0200" "0100" + interface + "2c1cb76c12984045" "0300000000000000" "01000000"
    )  # fmt: skip
    assert pdus.decode(bind.encode()) == bind


def test_a_bind_ack_with_a_port_and_three_answers() -> None:
    ack = pdus.BindAck(
        call_id=2,
        max_xmit_frag=5840,
        max_recv_frag=5840,
        assoc_group_id=0x1234,
        secondary_address="2103",
        results=(
            ContextAnswer(ContextResult.ACCEPTANCE, 0, NDR),
            ContextAnswer(ContextResult.PROVIDER_REJECTION, 2, NO_SYNTAX),
            ContextAnswer(ContextResult.NEGOTIATE_ACK, 3, NO_SYNTAX),
        ),
    )
    assert ack.encode().hex() == (
        "05000c03" "10000000" "6c00" "0000" "02000000" "d016d016" "34120000"
        "0500" "3231303300" "00" "03000000"
        "00000000" "045d888aeb1cc9119fe808002b104860" "02000000"
        "02000200" + "00" * 20 + "03000300" + "00" * 20
    )  # fmt: skip


def test_a_fault_is_thirty_two_octets() -> None:
    fault = pdus.Fault(call_id=7, flags=PacketFlag.DID_NOT_EXECUTE | 3, context_id=1, status=0x1C010002)
    assert fault.encode().hex() == "0500032310000000200000000700000020000000010000000200011c00000000"


def test_big_endian_peers_are_understood() -> None:
    octets = bytes.fromhex("0500000300000000001c000000000007000000040001000261626364")
    request = pdus.decode(octets)
    assert isinstance(request, pdus.Request)
    assert (request.call_id, request.context_id, request.opnum, request.stub, request.order) == (7, 1, 2, b"abcd", ">")
    assert Framer().feed(octets * 2) == [octets] * 2


def test_a_pdu_of_more_than_sixteen_bits_cannot_be_written() -> None:
    request = pdus.Request(call_id=1, alloc_hint=0, context_id=0, opnum=0, stub=bytes(70000))
    with pytest.raises(LocalProtocolError, match="octets, got 70024"):
        request.encode()


@pytest.mark.parametrize(
    ("octets", "fault"),
    [
        ("05", "must have at least 16 octets, got 1"),
        ("04000003100000001800000001000000" + "00" * 8, "protocol version must be 5.0, got 4.0"),
        ("05010003100000001800000001000000" + "00" * 8, "protocol version must be 5.0, got 5.1"),
        ("05000003100000000800000001000000", "must be longer than its header"),
        ("05000003110000001800000001000000" + "00" * 8, "data representation 0x11"),
        ("05000003100100001800000001000000" + "00" * 8, "format must be IEEE"),
        ("05000403100000001000000001000000", "unknown PDU type 4"),
        ("05001003100000001400000001000000" + "00" * 4, "must have a token"),
        ("05000003100000001800140001000000" + "00" * 8, "too short for an authentication token"),
        ("05000003100000002100010001000000" + "00" * 8 + "0a06ff0000000000" + "61", "of padding, got 255"),
        ("05000003100000001700000001000000" + "00" * 7, "is incomplete"),
    ],
)
def test_octets_that_are_not_a_pdu(octets: str, fault: str) -> None:
    with pytest.raises(RemoteProtocolError, match=fault):
        pdus.decode(bytes.fromhex(octets))


@given(st.binary(max_size=200))
@example(bytes.fromhex("05000b0310000000") + b"\x18\0\0\0\1\0\0\0" + b"\xff" * 8)
def test_any_octets_are_a_pdu_or_the_protocol_error(octets: bytes) -> None:
    if len(octets) >= 16:
        head = bytes([5, 0, octets[2] % 20, octets[3], 0x10, 0, 0, 0]) + len(octets).to_bytes(2, "little")
        octets = head + bytes([octets[10] % 32, 0]) + octets[12:]
    try:
        pdu = pdus.decode(octets)
    except RemoteProtocolError:
        return
    assert pdus.decode(pdu.encode()).call_id == pdu.call_id


@given(ANY_PDU, st.integers(0, 23), st.integers(0, 255))
def test_the_fast_way_to_read_a_call_reads_what_the_other_reads(pdu: Pdu, at: int, octet: int) -> None:
    octets = pdu.encode()
    for changed in (octets, octets[:at] + bytes([octet]) + octets[at + 1 :]):
        fast = pdus._decode_call(changed)
        assert fast is None or fast == pdus._decode_any(changed)
    plain = isinstance(pdu, pdus.Request | pdus.Response) and not pdu.flags & PacketFlag.OBJECT_UUID
    assert (pdus._decode_call(octets) is not None) is plain


@given(st.lists(ANY_PDU, max_size=5), st.integers(1, 50))
def test_a_stream_is_cut_the_same_however_it_arrives(pdus_: list[Pdu], size: int) -> None:
    stream = b"".join(pdu.encode() for pdu in pdus_)
    framer = Framer()
    found = []
    for start in range(0, len(stream), size):
        found += framer.feed(stream[start : start + size])
        assert framer.buffered < 0xFFFF
    assert found == [pdu.encode() for pdu in pdus_]
    assert framer.buffered == 0


@given(ids, shorts, shorts, st.binary(max_size=40))
def test_a_call_in_one_fragment_is_written_as_its_pdu(call_id: int, context_id: int, opnum: int, stub: bytes) -> None:
    request = pdus.Request(call_id=call_id, alloc_hint=len(stub), context_id=context_id, opnum=opnum, stub=stub)
    written = fragments(PacketType.REQUEST, call_id, (context_id, opnum), stub, 64, None, header_sign=False)
    assert written == [request.encode()]
    response = pdus.Response(call_id=call_id, alloc_hint=len(stub), context_id=context_id, stub=stub)
    written = fragments(PacketType.RESPONSE, call_id, (context_id, 0), stub, 64, None, header_sign=False)
    assert written == [response.encode()]


@given(ANY_PDU, st.integers(0, 15), st.integers(0, 255))
def test_a_fragment_that_arrives_alone_is_checked_like_one_of_many(pdu: Pdu, at: int, octet: int) -> None:
    """Whatever its header says, a framer that gets it in two pieces finds the same."""
    data = bytearray(pdu.encode())
    data[at] = octet
    found = []
    for pieces in ([bytes(data)], [bytes(data[:10]), bytes(data[10:])]):
        framer = Framer()
        frames: list[bytes] = []
        fault = ""
        try:
            for piece in pieces:
                frames += framer.feed(piece)
        except RemoteProtocolError as error:
            fault = str(error)
        found.append((frames, fault, framer.buffered if not fault else 0, framer.foreign))
    assert found[0] == found[1]
