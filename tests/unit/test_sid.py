"""Security identifiers as bytes and as text, [MS-DTYP] 2.4.2."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroad.errors import IllegalIdentifier, LocalProtocolError, RemoteProtocolError
from postroad.security import Sid

# The sender of frame 7, [MS-MQQB] 4.1.7.
SENDER = bytes.fromhex("010500000000000515000000ad4a9ebd36d9fa3d63a656dae8030000")

sids = st.builds(
    Sid,
    st.integers(0, 0xFFFFFFFFFFFF),
    st.lists(st.integers(0, 0xFFFFFFFF), min_size=1, max_size=15).map(tuple),
)


def test_a_captured_sid() -> None:
    sid = Sid.decode(SENDER)
    assert sid == Sid(5, (21, 3181267629, 1039849782, 3663111779, 1000))
    assert str(sid) == "S-1-5-21-3181267629-1039849782-3663111779-1000"
    assert sid.encode() == SENDER


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("S-1-1-0", "010100000000000100000000"),
        ("S-1-5-18", "010100000000000512000000"),
        ("S-1-4294967295-1", "01010000ffffffff01000000"),
        ("S-1-0x000100000000-1", "010100010000000001000000"),
        ("S-1-0xFFFFFFFFFFFF-4294967295", "0101ffffffffffffffffffff"),
    ],
)
def test_authorities_above_32_bits_are_written_in_hex(text: str, data: str) -> None:
    assert str(Sid.decode(bytes.fromhex(data))) == text
    assert Sid.parse(text).encode().hex() == data


@given(sids)
def test_bytes_and_text_lead_back(sid: Sid) -> None:
    assert Sid.decode(sid.encode()) == sid
    assert Sid.parse(str(sid)) == sid


@pytest.mark.parametrize(
    ("data", "offset"),
    [
        (b"", 0),
        (SENDER[:7], 7),
        (b"\x02" + SENDER[1:], 0),
        (SENDER[:1] + b"\x00" + SENDER[2:8], 1),
        (SENDER[:1] + b"\x10" + SENDER[2:8] + bytes(64), 1),
        (SENDER[:-1], 1),
        (SENDER + b"\0", 1),
    ],
)
def test_bytes_that_are_no_sid(data: bytes, offset: int) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        Sid.decode(data)
    assert caught.value.offset == offset


@pytest.mark.parametrize(
    "text",
    [
        "",
        "S-1-5",
        "S-1-5-",
        "S-2-5-18",
        "S-1-5-18 ",
        "S-1-5-4294967296",
        "S-1-4294967296-1",
        "S-1-0x5-18",
        "S-1-5--18",
        "S-1-5-١",
        "S-1-5" + "-1" * 16,
    ],
)
def test_text_that_is_no_sid(text: str) -> None:
    with pytest.raises(IllegalIdentifier):
        Sid.parse(text)


@pytest.mark.parametrize(
    ("authority", "parts"), [(-1, (1,)), (1 << 48, (1,)), (5, ()), (5, (1,) * 16), (5, (1 << 32,))]
)
def test_numbers_that_no_sid_can_hold(authority: int, parts: tuple[int, ...]) -> None:
    with pytest.raises(LocalProtocolError):
        Sid(authority, parts)
