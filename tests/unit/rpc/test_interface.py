"""Requests and replies of whole operations as octets, in NDR and NDR64."""

from __future__ import annotations

from uuid import UUID

import pytest

from postroad.errors import LocalProtocolError, RemoteProtocolError
from postroad.rpc.ndr import Format, Handle
from tests.unit.rpc.parcels import ECHO, EMPTY, OPEN, Address, Colour, Echo, EchoReply, Open, OpenReply, Parcel

KEY = UUID("12345678-1234-5678-9abc-def012345678")


def test_a_reply_with_an_array_in_ndr() -> None:
    reply = EchoReply(Parcel(7, 3, Colour.BLUE, b"abc"), 0xC00E0003)
    octets = ECHO.reply.encode(reply, Format.NDR)
    assert octets.hex() == (
        "07000000" "03000000" "02000000" "00000200"  # number, size, a 2-octet enum and its gap, the pointer
        "03000000" "00000000" "03000000" "616263" "00"  # maximum count, offset, actual count, octets, gap
        "03000ec0"
    )  # fmt: skip
    assert ECHO.reply.decode(octets, Format.NDR) == reply


def test_the_same_reply_in_ndr64() -> None:
    reply = EchoReply(Parcel(7, 3, Colour.BLUE, b"abc"), 0xC00E0003)
    octets = ECHO.reply.encode(reply, Format.NDR64)
    assert octets.hex() == (
        "07000000" "03000000" "02000000" "00000000" "0000020000000000"
        "0300000000000000" "0000000000000000" "0300000000000000" "616263" "00"
        "03000ec0"
    )  # fmt: skip
    assert ECHO.reply.decode(octets, Format.NDR64) == reply


def test_a_null_pointer_and_a_union_with_a_string() -> None:
    assert OPEN.request.encode(Open(None), Format.NDR).hex() == "00000000"
    request = Open(Address(3, 0, 0, "a"))
    octets = OPEN.request.encode(request, Format.NDR)
    assert octets.hex() == (
        "00000200" "03000000" "03000000" "04000200" "02000000" "00000000" "02000000" "61000000"
    )  # fmt: skip
    assert OPEN.request.decode(octets, Format.NDR) == request


def test_a_context_handle_is_twenty_octets() -> None:
    octets = OPEN.reply.encode(OpenReply(Handle(0, KEY.bytes_le), 0), Format.NDR64)
    assert octets == bytes(4) + KEY.bytes_le + bytes(4)


def test_no_parameters_are_no_octets() -> None:
    assert EMPTY.request.encode(EMPTY.request.decode(b"", Format.NDR), Format.NDR) == b""


@pytest.mark.parametrize("layout", list(Format))
@pytest.mark.parametrize(
    "request_",
    [
        Echo(Parcel(1, 0, Colour.RED, None)),
        Echo(Parcel(1, 0, Colour.RED, b"")),
        Echo(Parcel(2, 5, Colour.GREEN, b"12345")),
    ],
)
def test_a_request_comes_back_as_it_was(layout: Format, request_: Echo) -> None:
    assert ECHO.request.decode(ECHO.request.encode(request_, layout), layout) == request_


@pytest.mark.parametrize(
    ("octets", "fault"),
    [
        ("07000000", "must have 16 more octets"),
        ("07000000" "01001000" "00000000" "00000000", "must be between 0 and 1048576, got 1048577"),
        ("07000000" "03000000" "03000000" "00000000", "unknown value of Colour: 3"),
        ("07000000" "03000000" "02000000" "00000000", "the pointer to an array with elements must not be null"),
        ("07000000" "03000000" "02000000" "00000200" "04000000" "00000000" "03000000" "616263", "got 4"),
        ("07000000" "03000000" "02000000" "00000200" "03000000" "00000000" "02000000" "616263", "got 2"),
        ("07000000" "03000000" "02000000" "00000200" "03000000" "01000000" "03000000" "616263", "offset"),
        ("07000000" "03000000" "02000000" "00000200" "03000000" "00000000" "03000000" "6162", "3 more octets"),
        ("07000000" "03000000" "02000000" "00000200" "ffffffff" "00000000" "03000000" "616263", "at most 2147483647"),
    ],
)  # fmt: skip
def test_what_the_definition_forbids_is_refused(octets: str, fault: str) -> None:
    with pytest.raises(RemoteProtocolError, match=fault):
        ECHO.request.decode(bytes.fromhex(octets), Format.NDR)


def test_a_caller_that_contradicts_itself_is_told() -> None:
    with pytest.raises(LocalProtocolError, match="must have 4 elements, from length_is"):
        ECHO.request.encode(Echo(Parcel(1, 4, Colour.RED, b"abc")), Format.NDR)
