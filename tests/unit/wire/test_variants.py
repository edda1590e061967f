"""PROPVARIANT and VARENUM, [MS-MQMQ] 2.2.12 to 2.2.14, as far as no pointers are involved."""

from __future__ import annotations

import pytest

from postroad.errors import LocalProtocolError, RemoteProtocolError
from postroad.wire.constants import BodyType
from postroad.wire.variants import Item, PropVariant, Value, has_arm
from tests.packets import OTHER, patched, u16, u32

PREFIX = 8
INTEGERS = {
    "VT_I1": (16, 1, True),
    "VT_UI1": (17, 1, False),
    "VT_I2": (2, 2, True),
    "VT_UI2": (18, 2, False),
    "VT_I4": (3, 4, True),
    "VT_UI4": (19, 4, False),
    "VT_I8": (20, 8, True),
    "VT_UI8": (21, 8, False),
}
VECTORS: dict[int, tuple[Item, ...]] = {
    0x1011: (0, 255),
    0x1012: (0, 65535),
    0x1003: (-1, 1),
    0x1013: (0, 0xFFFFFFFF),
    0x1015: (0, 0xFFFFFFFFFFFFFFFF),
    0x1048: (OTHER,),
    0x101F: ("a", ""),
    0x100C: (PropVariant(3, 1), PropVariant(31, "text")),
}


@pytest.mark.spec("MQ-2.2.12-01")
@pytest.mark.parametrize(("name", "vt"), [("VT_EMPTY", 0), ("VT_NULL", 1)])
def test_empty_and_null_carry_no_data(name: str, vt: int) -> None:
    assert BodyType[name] == vt
    assert PropVariant(vt).encode() == u16(vt) + bytes(6)
    assert PropVariant.decode(u16(vt) + bytes(6)) == PropVariant(vt)
    with pytest.raises(RemoteProtocolError, match="0 bytes, got 4"):
        PropVariant.decode(u16(vt) + bytes(10))
    with pytest.raises(LocalProtocolError):
        PropVariant(vt, 0)


@pytest.mark.spec("MQ-2.2.12-02")
@pytest.mark.parametrize("name", INTEGERS)
def test_an_integer_has_its_width_and_sign(name: str) -> None:
    vt, size, signed = INTEGERS[name]
    assert BodyType[name] == vt
    bits = 8 * size
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    for value in (low, 1, high):
        wire = PropVariant(vt, value).encode()
        assert wire[PREFIX:] == value.to_bytes(size, "little", signed=signed)
        assert PropVariant.decode(wire) == PropVariant(vt, value)
    for value in (low - 1, high + 1):
        with pytest.raises(LocalProtocolError):
            PropVariant(vt, value)
    for wrong in (size - 1, size + 1):
        with pytest.raises(RemoteProtocolError):
            PropVariant.decode(u16(vt) + bytes(6 + wrong))


@pytest.mark.spec("MQ-2.2.12-03")
@pytest.mark.parametrize(
    ("name", "vt", "good", "bad"),
    [
        ("VT_BOOL", 11, True, 1),
        ("VT_LPWSTR", 0x1F, "text", b"text"),
        ("VT_BLOB", 0x41, b"bytes", "bytes"),
        ("VT_CLSID", 0x48, OTHER, OTHER.bytes_le),
        ("VT_VARIANT", 12, None, None),
    ],
)
def test_the_other_types(name: str, vt: int, good: Value, bad: Value) -> None:
    assert BodyType[name] == vt
    if vt == 12:  # has an arm in vectors alone
        inner = PropVariant(0x1000 | vt, (PropVariant(3, 1),))
        assert inner.value == (PropVariant(3, 1),)
        vt |= 0x1000
        bad = (1,)
    else:
        assert PropVariant(vt, good).value == good
    with pytest.raises(LocalProtocolError, match="cannot hold"):
        PropVariant(vt, bad)


@pytest.mark.spec("MQ-2.2.12-04", "MQ-2.2.13.1-04")
@pytest.mark.parametrize("vt", VECTORS)
def test_a_vector_is_a_counted_array_of_its_type(vt: int) -> None:
    items = VECTORS[vt]
    assert PropVariant(vt, items).value == items
    assert PropVariant(vt, ()).value == ()
    with pytest.raises(LocalProtocolError, match="counted array"):
        PropVariant(vt, items[0])
    stranger: Item = OTHER if not isinstance(items[0], type(OTHER)) else "text"
    with pytest.raises(LocalProtocolError, match="cannot hold"):
        PropVariant(vt, (*items, stranger))


@pytest.mark.spec("MQ-2.2.12-04")
def test_a_variant_stands_only_in_a_vector() -> None:
    assert BodyType(0x1000) is BodyType.VT_VECTOR
    assert has_arm(0x100C)
    with pytest.raises(LocalProtocolError, match="cannot hold type 0x000c"):
        PropVariant(12, PropVariant(3, 1))
    with pytest.raises(RemoteProtocolError, match="cannot hold type 0x000c"):
        PropVariant.decode(u16(12) + bytes(6))


@pytest.mark.spec("MQ-2.2.13.1-04")
def test_every_type_that_has_an_arm() -> None:
    scalars = {0, 1, 2, 3, 11, 16, 17, 18, 19, 20, 21, 31, 65, 72}
    assert {vt for vt in range(0x10000) if has_arm(vt)} == scalars | set(VECTORS)


@pytest.mark.spec("MQ-2.2.13.1-04")
@pytest.mark.parametrize("vt", [0x1002, 0x1000, 0x100B, 0x1010, 0x1014, 0x1041, 4, 8, 30, 0x2003, 0xFFFF])
def test_a_type_without_an_arm_is_refused(vt: int) -> None:
    with pytest.raises(LocalProtocolError):
        PropVariant(vt, ())
    with pytest.raises(RemoteProtocolError) as caught:
        PropVariant.decode(u16(vt) + bytes(6))
    assert caught.value.offset == 0


@pytest.mark.spec("MQ-2.2.13.1-01", "MQ-2.2.13.1-02")
def test_the_layout() -> None:
    wire = PropVariant(BodyType.VT_UI4, 0x04030201).encode()
    assert wire == bytes.fromhex("1300 00 00 00000000 01020304")


@pytest.mark.spec("MQ-2.2.13.1-03")
@pytest.mark.parametrize("at", range(2, 8))
def test_the_reserved_fields_are_ignored(at: int) -> None:
    wire = u16(19) + bytes(6) + u32(7)
    assert PropVariant.decode(patched(wire, at, b"\xff")) == PropVariant(19, 7)


@pytest.mark.spec("MQ-2.2.14-01")
def test_a_boolean_is_all_ones_or_all_zeros() -> None:
    assert PropVariant(11, True).encode()[PREFIX:] == b"\xff\xff"
    assert PropVariant(11, False).encode()[PREFIX:] == b"\0\0"
    assert PropVariant.decode(u16(11) + bytes(6) + b"\xff\xff").value is True
    assert PropVariant.decode(u16(11) + bytes(6) + b"\0\0").value is False
    for number in (1, 0x00FF, 0xFFFE):
        with pytest.raises(RemoteProtocolError, match="must be 0x0000 or 0xffff"):
            PropVariant.decode(u16(11) + bytes(6) + u16(number))


@pytest.mark.parametrize(("vt", "value"), [(31, "text"), (65, b"blob"), (72, OTHER), (0x1013, (1, 2))])
def test_what_holds_a_pointer_is_left_to_rpc(vt: int, value: Value) -> None:
    with pytest.raises(LocalProtocolError, match="RPC"):
        PropVariant(vt, value).encode()
    with pytest.raises(RemoteProtocolError, match="pointer"):
        PropVariant.decode(u16(vt) + bytes(6))


def test_a_variant_that_is_cut_off() -> None:
    for size in range(8):
        with pytest.raises(RemoteProtocolError, match="at least 8 bytes"):
            PropVariant.decode(bytes(size))
