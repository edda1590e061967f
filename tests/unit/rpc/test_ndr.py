"""NDR and NDR64 type by type: octets by the rules of the specifications, and round trips of anything that can be
built."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroad.errors import LocalProtocolError, RemoteProtocolError
from postroad.rpc import ndr
from postroad.rpc.interface import Parameters
from postroad.rpc.ndr import Format, NdrType, Reader, Scope, Writer, read, write
from tests.unit.rpc.parcels import Address, Colour, NumberedParcel, Parcel

LAYOUTS = list(Format)
ARMS = {1: ndr.ulong, 2: None}


def encoded(kind: NdrType, value: Any, layout: Format, scope: object = None) -> bytes:
    writer = Writer(layout)
    write(writer, kind, value, Scope(scope))
    return bytes(writer.data)


def decoded(kind: NdrType, octets: bytes, layout: Format, order: str = "<", scope: object = None) -> Any:
    reader = Reader(octets, layout, order)
    found = read(reader, kind, Scope(scope))
    assert reader.remaining == 0
    return found


@dataclass(frozen=True, slots=True)
class Pair:
    number: ndr.Long
    small: Annotated[int, ndr.short]


@dataclass(frozen=True, slots=True)
class Text:
    length: Annotated[int, ndr.ushort]
    maximum: Annotated[int, ndr.ushort]
    text: Annotated[
        tuple[int, ...] | None,
        ndr.unique(
            ndr.array(ndr.ushort, size_is=lambda text: text["maximum"] // 2, length_is=lambda text: text["length"] // 2)
        ),
    ]


@dataclass(frozen=True, slots=True)
class Tail:
    count: Annotated[int, ndr.uchar]
    items: Annotated[tuple[int, ...], ndr.array(ndr.hyper, size_is="count")]


@dataclass(frozen=True, slots=True)
class Nest:
    name: Annotated[str | None, ndr.unique(ndr.wstring)]
    pair: Pair
    inner: Annotated[Parcel | None, ndr.unique(ndr.struct(Parcel))]
    last: Annotated[str, ndr.unique(ndr.string)]


@dataclass(frozen=True, slots=True)
class Shared:
    left: Annotated[str | None, ndr.full(ndr.wstring)]
    right: Annotated[str | None, ndr.full(ndr.wstring)]


@dataclass(frozen=True, slots=True)
class SizeLast:
    """The count of a parameter may come after it."""

    items: Annotated[tuple[int, ...], ndr.array(ndr.ushort, size_is="count")]
    count: ndr.Dword


@pytest.mark.parametrize(
    ("kind", "value", "narrow", "wide"),
    [
        (ndr.short, -1, "ffff", "ffff"),
        (ndr.ushort, 0x1234, "3412", "3412"),
        (ndr.long, -2, "feffffff", "feffffff"),
        (ndr.uhyper, 1, "0100000000000000", "0100000000000000"),
        (ndr.enum(Colour), Colour.BLUE, "0200", "02000000"),
        (ndr.wstring, "a", "02000000000000000200000061000000", "02" + "00" * 15 + "02" + "00" * 7 + "61000000"),
        (ndr.string, "", "01000000000000000100000000", "01" + "00" * 15 + "01" + "00" * 7 + "00"),
        (ndr.fixed(ndr.ushort, 2), (1, 2), "01000200", "01000200"),
        (ndr.fixed(ndr.byte, 2), b"ab", "6162", "6162"),
        (ndr.array(ndr.ushort, size_is=2), (1, 2), "0200000001000200", "020000000000000001000200"),
        (
            ndr.array(ndr.byte, size_is=8, length_is=2),
            b"ab",
            "0800000000000000020000006162",
            "08" + "00" * 15 + "02" + "00" * 7 + "6162",
        ),
        # [MS-RPCE] 4.8: the trailing gap of NDR64
        (ndr.struct(Pair), Pair(1, 2), "010000000200", "0100000002000000"),
        # [MS-RPCE] 4.7: UNICODE_STRING
        (
            ndr.struct(Text),
            Text(2, 4, (0x61,)),
            "02000400" "00000200" "02000000" "00000000" "01000000" "6100",
            "0200040000000000" "0000020000000000" "0200000000000000" "0000000000000000" "0100000000000000" "6100",
        ),
        # A conformant structure: its maximum count comes first.
        (
            ndr.struct(Tail),
            Tail(1, (5,)),
            "01000000" "00000000" "01" "00000000000000" "0500000000000000",
            "0100000000000000" "01" "00000000000000" "0500000000000000",
        ),
        (ndr.union(ndr.ushort, ARMS, switch_is=1), 7, "0100" "0000" "07000000", "0100" "0000" "07000000"),
        (ndr.union(ndr.ushort, ARMS, switch_is=2), None, "0200", "0200" "0000"),
    ],
)  # fmt: skip
def test_octets(kind: NdrType, value: Any, narrow: str, wide: str) -> None:
    for layout, octets in ((Format.NDR, narrow), (Format.NDR64, wide)):
        assert encoded(kind, value, layout).hex() == octets
        assert decoded(kind, bytes.fromhex(octets), layout) == value


@pytest.mark.parametrize("layout", LAYOUTS)
def test_referents_follow_the_outermost_structure_depth_first(layout: Format) -> None:
    value = Nest("n", Pair(1, 2), Parcel(3, 1, Colour.RED, b"x"), "z")
    octets = encoded(ndr.struct(Nest), value, layout)
    assert decoded(ndr.struct(Nest), octets, layout) == value
    places = [octets.index(each) for each in (b"n\0", b"x", b"z")]
    assert places == sorted(places)


def test_big_endian_integers_are_read() -> None:
    kind = ndr.struct(Parcel)
    octets = bytes.fromhex("00000007000000030002000000020000000000030000000000000003616263")
    assert decoded(kind, octets, Format.NDR, ">") == Parcel(7, 3, Colour.BLUE, b"abc")
    assert decoded(ndr.wstring, bytes.fromhex("00000002000000000000000200610000"), Format.NDR, ">") == "a"
    key = UUID("00112233-4455-6677-8899-aabbccddeeff")
    assert decoded(ndr.guid, key.bytes, Format.NDR, ">") == key


def test_full_pointers_may_share_what_they_point_to() -> None:
    text = "02000000" "00000000" "02000000" "61000000"  # fmt: skip
    assert decoded(ndr.struct(Shared), bytes.fromhex("0100000001000000" + text), Format.NDR) == Shared("a", "a")
    assert decoded(ndr.struct(Shared), bytes.fromhex("0100000000000000" + text), Format.NDR) == Shared("a", None)
    once = bytes.fromhex("0100000002000000" + text)
    with pytest.raises(RemoteProtocolError):
        decoded(ndr.struct(Shared), once, Format.NDR)


@dataclass(frozen=True, slots=True)
class Confused:
    left: Annotated[UUID | None, ndr.full(ndr.guid)]
    right: Annotated[Pair | None, ndr.full(ndr.struct(Pair))]


def test_but_not_as_something_of_another_type() -> None:
    with pytest.raises(RemoteProtocolError, match="two pointers to one referent must have one type"):
        decoded(ndr.struct(Confused), bytes.fromhex("0100000001000000") + bytes(16), Format.NDR)


def test_a_count_that_follows_its_array_is_checked_too() -> None:
    parameters = Parameters(SizeLast)
    octets = parameters.encode(SizeLast((1, 2), 2), Format.NDR)
    assert parameters.decode(octets, Format.NDR) == SizeLast((1, 2), 2)
    with pytest.raises(RemoteProtocolError, match="the maximum count must be 3, from its correlated member, got 2"):
        parameters.decode(octets[:-4] + b"\3\0\0\0", Format.NDR)


@pytest.mark.parametrize(
    ("kind", "octets", "fault"),
    [
        (ndr.wstring, "0200000000000000020000006100", "must have 4 more octets"),
        (ndr.wstring, "02000000000000000200000061006200", "must end with its terminator"),
        (ndr.wstring, "01000000000000000200000061000000", "2 characters from 0 of a string of 1"),
        (ndr.wstring, "02000000010000000100000000000000", "1 characters from 1"),
        (ndr.wstring, "000000000000000000000000", "must end with its terminator"),
        (ndr.string, "0500000000000000050000006162", "must have 5 more octets"),
        (ndr.array(ndr.ulong, size_is=0x7FFFFFFF), "ffffff7f01000000", "2147483647 elements of 4 octets"),
        (ndr.array(ndr.ulong, size_is=2), "0300000001000000", "maximum count must be 2"),
        (ndr.array(ndr.byte, size_is=2, length_is=3), "020000000000000003000000616263", "must have at most 2 elements"),
        (ndr.union(ndr.ushort, ARMS, switch_is=9), "0900", "9 selects no arm"),
        (ndr.enum(None), "ffff", "unknown value of an enum: -1"),
        (ndr.ulong.range(1, 2), "03000000", "must be between 1 and 2, got 3"),
        (ndr.union(ndr.ushort, ARMS, switch_is=1), "0200", "the union's tag must be 1"),
    ],
)  # fmt: skip
def test_streams_that_are_refused(kind: NdrType, octets: str, fault: str) -> None:
    with pytest.raises(RemoteProtocolError, match=fault):
        decoded(kind, bytes.fromhex(octets), Format.NDR)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (ndr.ulong, -1),
        (ndr.ulong.range(1, 2), 3),
        (ndr.fixed(ndr.byte, 2), b"abc"),
        (ndr.array(ndr.byte, size_is=2), b"abc"),
        (ndr.wstring, "a\0b"),
        (ndr.string, "\u20ac"),
        (ndr.varying_string(ndr.char, 3), "abc"),
        (ndr.union(ndr.ushort, ARMS, switch_is=3), 1),
        (ndr.union(ndr.ushort, ARMS, switch_is="nowhere"), 1),
        (ndr.struct(Pair), Parcel(1, 0, Colour.RED, None)),
        (ndr.struct(Pair), Pair(1 << 40, 1)),
        (ndr.struct(Parcel), Parcel(1, 1, Colour.RED, None)),
        (ndr.struct(Parcel), Parcel("1", 0, Colour.RED, None)),  # type: ignore[arg-type]
    ],
)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_values_that_no_stream_can_hold(kind: NdrType, value: Any, layout: Format) -> None:
    with pytest.raises(LocalProtocolError):
        encoded(kind, value, layout)


def test_definitions_that_cannot_be() -> None:
    with pytest.raises(LocalProtocolError, match="must have an NDR type"):
        ndr.struct(type_of_plain_int())
    with pytest.raises(LocalProtocolError, match="must be a dataclass"):
        ndr.struct(int)
    with pytest.raises(LocalProtocolError, match="must not be conformant"):
        ndr.array(ndr.wstring, size_is=1)


def type_of_plain_int() -> type:
    return PlainInt


@dataclass(frozen=True, slots=True)
class PlainInt:
    number: int


# Round trips

parcels_ = st.binary(max_size=40).flatmap(
    lambda content: st.builds(
        Parcel, st.integers(0, 0xFFFFFFFF), st.just(len(content)), st.sampled_from(Colour), st.just(content)
    )
)
empty_parcels = st.builds(Parcel, st.integers(0, 9), st.just(0), st.sampled_from(Colour), st.none())
texts = st.text(st.characters(exclude_characters="\0"), max_size=20)
latin = st.text(st.characters(max_codepoint=255, exclude_characters="\0"), max_size=20)
pairs = st.builds(Pair, st.integers(-(1 << 31), (1 << 31) - 1), st.integers(-(1 << 15), (1 << 15) - 1))
addresses = st.one_of(
    st.builds(Address, st.just(0), st.integers(0, 255), st.integers(0, 65535), st.none()),
    st.builds(Address, st.just(1), st.integers(0, 255), st.integers(0, 65535), st.uuids()),
    st.builds(Address, st.just(3), st.integers(0, 255), st.integers(0, 65535), st.none() | texts),
)
tails = st.lists(st.integers(-(1 << 63), (1 << 63) - 1), max_size=5).map(lambda items: Tail(len(items), tuple(items)))

VALUES: list[tuple[NdrType, st.SearchStrategy[Any]]] = [
    (ndr.struct(Parcel), parcels_ | empty_parcels),
    (ndr.struct(NumberedParcel), st.builds(NumberedParcel, st.none() | parcels_, st.integers(0, (1 << 64) - 1))),
    (ndr.struct(Address), addresses),
    (ndr.struct(Tail), tails),
    (ndr.struct(Nest), st.builds(Nest, st.none() | texts, pairs, st.none() | parcels_, latin)),
    (ndr.fixed(ndr.struct(Nest), 2), st.tuples(*[st.builds(Nest, texts, pairs, parcels_, latin)] * 2)),
    (ndr.unique(ndr.unique(ndr.struct(Address))), st.none() | addresses),
    (ndr.wstring, st.text(st.characters(exclude_characters="\0", codec=None))),
    (ndr.struct(Shared), st.builds(Shared, st.none() | texts, st.none() | texts)),
]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("kind", "values"), VALUES)
def test_every_value_comes_back(kind: NdrType, values: st.SearchStrategy[Any], layout: Format) -> None:
    @given(values)
    def run(value: Any) -> None:
        if isinstance(kind, ndr.Pointer) and value is None:
            assert decoded(kind, encoded(kind, None, layout), layout) is None
            return
        assert decoded(kind, encoded(kind, value, layout), layout) == value

    run()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("kind", "values"), VALUES)
def test_any_octets_are_a_value_or_the_protocol_error(
    kind: NdrType, values: st.SearchStrategy[Any], layout: Format
) -> None:
    @given(st.binary(max_size=100), st.sampled_from("<>"))
    def run(octets: bytes, order: str) -> None:
        reader = Reader(octets, layout, order)
        try:
            read(reader, kind, Scope(None))
        except RemoteProtocolError:
            return
        assert reader.offset <= len(octets) + 8  # a gap at the end may be missing

    run()


@given(parcels_, st.data())
def test_a_cut_or_changed_stream_is_a_value_or_the_protocol_error(value: Parcel, data: st.DataObject) -> None:
    octets = bytearray(encoded(ndr.struct(Parcel), value, Format.NDR))
    place = data.draw(st.integers(0, len(octets) - 1))
    octets[place] ^= data.draw(st.integers(1, 255))
    with suppress(RemoteProtocolError):
        read(Reader(bytes(octets)), ndr.struct(Parcel), Scope(None))
    cut = bytes(octets[: data.draw(st.integers(0, 11))])
    with pytest.raises(RemoteProtocolError):
        read(Reader(cut), ndr.struct(Parcel), Scope(None))
