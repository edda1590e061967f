"""PGM packets: known bytes, round trips, and garbage, which is refused."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroad.errors import LocalProtocolError
from postroad.pgm.packet import (
    MAX_NAK_LIST,
    Data,
    Fragment,
    Kind,
    MalformedPgm,
    Nak,
    Packet,
    Spm,
    Tsi,
    after,
    checksum,
    decode,
    distance,
    encode,
)

TSI = Tsi(bytes.fromhex("0a0b0c0d0e0f"), 0x1234)
VECTORS: list[tuple[str, Packet]] = [
    (
        "12341f4100009f910a0b0c0d0e0f0000000000000000006400000063000100000a090001",
        Spm(TSI, 8001, 0, 100, 99, "10.9.0.1"),
    ),
    (
        "12341f41040061c40a0b0c0d0e0f0005000000640000006468656c6c6f",
        Data(Kind.ODATA, TSI, 8001, 100, 100, b"hello"),
    ),
    (
        "12341f410401c2a30a0b0c0d0e0f0002000000650000006400040014811000000000006500000000000000046162",
        Data(Kind.ODATA, TSI, 8001, 101, 100, b"ab", Fragment(101, 0, 4)),
    ),
    (
        "1f4112340803256f0a0b0c0d0e0f000000000064000100000a09000100010000ef0101010004000c8208000000000066",
        Nak(Kind.NAK, TSI, 8001, (100, 102), "10.9.0.1", "239.1.1.1"),
    ),
]

numbers = st.integers(0, 0xFFFFFFFF)
ports = st.integers(0, 0xFFFF)
signs = st.booleans()
addresses = st.ip_addresses(v=4).map(str)
tsis = st.builds(Tsi, st.binary(min_size=6, max_size=6), ports)
joins = st.none() | numbers
packets = st.one_of(
    st.builds(Spm, tsis, ports, numbers, numbers, numbers, addresses, joins, signs, signs, signs),
    st.builds(
        Data,
        st.sampled_from([Kind.ODATA, Kind.RDATA]),
        tsis,
        ports,
        numbers,
        numbers,
        st.binary(max_size=2000),
        st.none() | st.builds(Fragment, numbers, numbers, numbers),
        joins,
        signs,
        signs,
        signs,
    ),
    st.builds(
        Nak,
        st.sampled_from([Kind.NAK, Kind.NCF]),
        tsis,
        ports,
        st.lists(numbers, min_size=1, max_size=MAX_NAK_LIST + 1).map(tuple),
        addresses,
        addresses,
    ),
)


@pytest.mark.parametrize(("text", "packet"), VECTORS)
def test_known_bytes(text: str, packet: Packet) -> None:
    assert encode(packet).hex() == text
    assert decode(bytes.fromhex(text)) == packet


@given(packets)
def test_what_is_written_is_read_again(packet: Packet) -> None:
    assert decode(encode(packet)) == packet


@given(st.binary(max_size=200))
def test_garbage_is_malformed_or_of_no_use(data: bytes) -> None:
    with suppress(MalformedPgm):
        decode(data)


@given(packets, st.data())
def test_damage_behind_the_checksum_never_raises_anything_else(packet: Packet, data: st.DataObject) -> None:
    """The checksum is corrected, so that every check after it is reached."""
    found = bytearray(encode(packet))
    for _ in range(data.draw(st.integers(1, 4))):
        found[data.draw(st.integers(0, len(found) - 1))] = data.draw(st.integers(0, 255))
    found = found[: data.draw(st.integers(16, len(found)))]
    found[6:8] = b"\0\0"
    found[6:8] = checksum(bytes(found)).to_bytes(2)
    with suppress(MalformedPgm):
        decode(bytes(found))


@given(packets, st.data())
def test_one_wrong_bit_is_found(packet: Packet, data: st.DataObject) -> None:
    found = bytearray(encode(packet))
    place = data.draw(st.integers(8, len(found) - 1))
    found[place] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(MalformedPgm, match="checksum"):
        decode(bytes(found))


def test_no_checksum_is_allowed_outside_of_data() -> None:
    found = bytearray.fromhex(VECTORS[0][0])
    found[6:8] = b"\0\0"
    assert decode(bytes(found)) == VECTORS[0][1]
    found = bytearray.fromhex(VECTORS[1][0])
    found[6:8] = b"\0\0"
    with pytest.raises(MalformedPgm, match="must have a checksum"):
        decode(bytes(found))


def test_a_checksum_of_zero_is_sent_as_ones() -> None:
    assert checksum(b"\xff\xff") == 0xFFFF
    assert checksum(b"\x12\x34\xed") == 0xFFFF - (0x1234 + 0xED00) % 0xFFFF


def _with_options(data: bytes, options: str, flags: int = 1) -> bytes:
    found = bytearray(data)
    found[5] = flags
    found[24:24] = bytes.fromhex(options)
    found[6:8] = b"\0\0"
    found[6:8] = checksum(bytes(found)).to_bytes(2)
    return bytes(found)


@pytest.mark.spec("SRM-2.1.3-01")
@pytest.mark.parametrize("kind", [0x01, 0x02, 0x09, 0x0C, 0x0D])
def test_packets_of_network_elements_and_others_are_passed_over(kind: int) -> None:
    """POLL, POLR, NNAK, SPMR and unknown types."""
    found = bytearray.fromhex(VECTORS[0][0])
    found[4] = kind
    assert decode(bytes(found)) is None


@pytest.mark.spec("SRM-2.1.3-01")
def test_parity_is_passed_over() -> None:
    data = bytes.fromhex(VECTORS[1][0])
    assert decode(_with_options(data, "", flags=0x80)) is None
    packet = decode(_with_options(data, "0004000c 8808 0000 00000008"))  # OPT_PARITY_PRM
    assert packet == VECTORS[1][1]


def test_an_unknown_option_may_forbid_to_use_the_packet() -> None:
    data = bytes.fromhex(VECTORS[1][0])
    assert decode(_with_options(data, "00040008 f0040000")) == VECTORS[1][1]
    assert decode(_with_options(data, "00040008 f0040200")) is None


@pytest.mark.parametrize(
    "options",
    [
        "",
        "0004",
        "01040008 8e040000",
        "00050008 8e040000",
        "00040004",
        "00040020 8e040000",
        "00040008 0e040000",  # no end bit
        "0004000c 8e040000 00000000",  # more behind the last
        "00040008 8e030000",
        "00040008 81040000",  # OPT_FRAGMENT that is too short
        "00040008 82040000",  # OPT_NAK_LIST without numbers
        "0004000a 82060000 0000",
        "00040008 83040000",
    ],
)
def test_bad_options_are_malformed(options: str) -> None:
    with pytest.raises(MalformedPgm):
        decode(_with_options(bytes.fromhex(VECTORS[1][0]), options))


def test_a_nak_list_has_its_most() -> None:
    with pytest.raises(LocalProtocolError, match="at most 63"):
        encode(Nak(Kind.NAK, TSI, 8001, tuple(range(MAX_NAK_LIST + 2)), "10.9.0.1", "239.1.1.1"))


def test_addresses_are_of_ipv4() -> None:
    found = bytearray.fromhex(VECTORS[0][0])
    found[6:8] = b"\0\0"
    found[29] = 2
    with pytest.raises(MalformedPgm, match="IPv4"):
        decode(bytes(found))


@given(numbers, st.integers(-(1 << 31), (1 << 31) - 1))
def test_numbers_go_round(start: int, steps: int) -> None:
    assert distance(start, after(start, steps)) == steps
