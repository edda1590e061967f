"""The types of AMQP 1.0: every one is read, what is none is refused, and what we write is read back."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroad.amqp import codec
from postroad.amqp.codec import DEEPEST, Described, MalformedValue, read_list, read_value


def read(data: bytes) -> object:
    value, end = read_value(data, 0, len(data))
    assert end == len(data)
    return value


@pytest.mark.parametrize(
    ("octets", "value"),
    [
        ("40", None),
        ("41", True),
        ("42", False),
        ("5601", True),
        ("5600", False),
        ("50ff", 255),
        ("60ffff", 65535),
        ("70ffffffff", 0xFFFFFFFF),
        ("52ff", 255),
        ("43", 0),
        ("80ffffffffffffffff", 0xFFFFFFFFFFFFFFFF),
        ("53ff", 255),
        ("44", 0),
        ("51ff", -1),
        ("61ffff", -1),
        ("71ffffffff", -1),
        ("54ff", -1),
        ("81ffffffffffffffff", -1),
        ("55ff", -1),
        ("723f800000", 1.0),
        ("823ff0000000000000", 1.0),
        ("7400000001", bytes.fromhex("00000001")),
        ("840000000000000001", bytes.fromhex("0000000000000001")),
        ("94" + "00" * 15 + "01", bytes(15) + b"\1"),
        ("730001f600", "😀"),
        ("83000000000000000a", 10),
        ("98" + "00" * 15 + "01", UUID(int=1)),
        ("a0020102", b"\1\2"),
        ("b0000000020102", b"\1\2"),
        ("a103e282ac", "€"),
        ("b100000003e282ac", "€"),
        ("a30161", "a"),
        ("b30000000161", "a"),
        ("45", []),
        ("c003024142", [True, False]),
        ("d000000006000000024142", [True, False]),
        ("c10502a1016141", {"a": True}),
        ("d10000000800000002a1016141", {"a": True}),
        ("e0040250 0102".replace(" ", ""), [1, 2]),
        ("f00000000700000002500102", [1, 2]),
        ("005310c0020141", Described(0x10, [True])),
    ],
)
def test_every_type_is_read(octets: str, value: object) -> None:
    assert read(bytes.fromhex(octets)) == value


@pytest.mark.parametrize(
    "octets",
    [
        *("", "00", "0053", "50", "70000000", "a0", "a005", "b0ffffffff", "a101ff", "ff", "57", "5602", "7300110000"),
        *("73 0000d800".replace(" ", ""), "c0", "c0ff01", "c00102", "c0024141", "c1030141", "c10502c0010041"),
        *("e003ff4040", "f00000000500ffffff40", "e0030250", "d0ffffffffffffffff"),
    ],
)
def test_what_is_no_value_is_refused(octets: str) -> None:
    with pytest.raises(MalformedValue):
        read(bytes.fromhex(octets))


def test_depth_is_bounded() -> None:
    builders: tuple[Callable[[bytes], bytes], ...] = (codec.listed, lambda inner: codec.described(1, inner))
    for build in builders:
        value = b"\x41"
        for _ in range(DEEPEST - 1):
            value = build(value)
        read(value)
        with pytest.raises(MalformedValue, match="nested"):
            read(build(build(value)))
    with pytest.raises(MalformedValue):
        read(bytes(100_000))
    with pytest.raises(MalformedValue):
        read(b"\xf0\0\0\xff\xff\0\0\0\1" + bytes(0xFFFF - 4))


def test_the_number_of_values_is_bounded() -> None:
    inner = codec.listed(*[b"\x41"] * 200)
    middle = b"\xd0" + (len(inner) * 600 + 4).to_bytes(4, "big") + (600).to_bytes(4, "big") + inner * 600
    with pytest.raises(MalformedValue, match="more than"):
        read(middle)


SIMPLE = st.one_of(
    st.none().map(lambda value: (value, codec.NULL)),
    st.booleans().map(lambda value: (value, codec.boolean(value))),
    st.integers(0, 0xFFFFFFFF).map(lambda value: (value, codec.uint(value))),
    st.integers(0, 0xFFFFFFFFFFFFFFFF).map(lambda value: (value, codec.ulong(value))),
    st.integers(-(1 << 63), (1 << 63) - 1).map(lambda value: (value, codec.timestamp(value))),
    st.binary(max_size=300).map(lambda value: (value, codec.binary(value))),
    st.text(max_size=200).map(lambda value: (value, codec.text(value))),
    st.text(st.characters(max_codepoint=127), max_size=20).map(lambda value: (value, codec.symbol(value))),
)


@given(st.lists(SIMPLE, max_size=40))
def test_what_we_write_is_read_back(values: list[tuple[object, bytes]]) -> None:
    wanted = [value for value, _ in values]
    while wanted and wanted[-1] is None:
        wanted.pop()
    octets = codec.listed(*(each for _, each in values))
    assert read(octets) == wanted
    assert read_list(octets, 0, len(octets)) == (wanted, len(octets))


@given(st.dictionaries(st.text(st.characters(max_codepoint=127), max_size=10), SIMPLE, max_size=20))
def test_maps_are_read_back(values: dict[str, tuple[object, bytes]]) -> None:
    parts = [part for key, (_, each) in values.items() for part in (codec.symbol(key), each)]
    assert read(codec.mapped(parts)) == {key: value for key, (value, _) in values.items()}


@given(st.binary(max_size=64))
def test_any_bytes_have_an_answer(octets: bytes) -> None:
    for reader in (read_value, read_list):
        try:
            _, end = reader(octets, 0, len(octets))
        except MalformedValue:
            continue
        assert end <= len(octets)
