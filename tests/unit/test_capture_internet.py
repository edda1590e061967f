"""From a captured frame to its TCP segment or UDP datagram, over every supported link layer."""

from __future__ import annotations

from struct import pack

import pytest

from postroad.describe.capture.pcap import (
    Datagram,
    Ports,
    Segment,
    Unusable,
    is_known_link,
    read_frame,
)
from tests.captures import (
    CLIENT,
    ETHERNET,
    LOOP,
    NULL,
    PING_CLIENT,
    PING_SERVER,
    RAW,
    SERVER,
    SLL,
    SLL2,
    SYN,
    ethernet,
    ipv4,
    ipv6,
    ping_frame,
    segment,
    tcp,
    udp,
)

PORTS = Ports()
IP = ipv4(tcp(b"payload", 7))
IP6 = ipv6(tcp(b"payload", 7))


def payload(link_type: int, frame: bytes) -> bytes | None:
    found = read_frame(link_type, frame, PORTS)
    assert found is None or isinstance(found, Segment)
    return None if found is None else found.payload


@pytest.mark.parametrize(
    ("link_type", "frame"),
    [
        (ETHERNET, ethernet(IP)),
        (ETHERNET, ethernet(IP6, 0x86DD)),
        (ETHERNET, ethernet(IP, tags=pack(">HH", 0x8100, 7))),
        (ETHERNET, ethernet(IP6, 0x86DD, tags=pack(">HHHH", 0x88A8, 3, 0x8100, 7))),
        (ETHERNET, ethernet(IP) + bytes(6)),  # the padding of a short frame
        (RAW, IP),
        (RAW, IP6),
        (12, IP),
        (228, IP),
        (229, IP6),
        (SLL, bytes(14) + b"\x08\x00" + IP),
        (SLL, bytes(14) + b"\x86\xdd" + IP6),
        (SLL, bytes(14) + b"\x81\x00\x00\x07\x08\x00" + IP),
        (SLL2, b"\x08\x00" + bytes(18) + IP),
        (SLL2, b"\x86\xdd" + bytes(18) + IP6),
        (NULL, pack("<I", 2) + IP),
        (NULL, pack(">I", 2) + IP),
        (NULL, pack("<I", 30) + IP6),
        (NULL, pack("<I", 23) + IP6),
        (LOOP, pack(">I", 2) + IP),
    ],
)
def test_a_segment_over_every_link_layer(link_type: int, frame: bytes) -> None:
    assert is_known_link(link_type)
    assert payload(link_type, frame) == b"payload"


def test_other_link_layers_are_not_known() -> None:
    assert not is_known_link(105)


def test_a_segment_says_where_it_belongs() -> None:
    found = read_frame(ETHERNET, segment(b"x", 0xFFFFFFFF, flags=SYN), PORTS)
    assert isinstance(found, Segment)
    assert (found.sequence, found.syn, found.payload) == (0xFFFFFFFF, True, b"x")
    assert (found.endpoints.source_text, found.endpoints.destination_text) == ("10.0.0.1:49759", "10.0.0.2:1801")
    found = read_frame(RAW, IP6, PORTS)
    assert isinstance(found, Segment)
    assert found.endpoints.destination_text == "[fe80::2]:1801"


@pytest.mark.parametrize(
    "ip",
    [
        ipv4(tcp(b"payload"), options=bytes(8)),
        ipv4(tcp(b"payload", options=bytes(12))),
        ipv4(tcp(b"payload"), total=0),  # cut up later, by the network card
        ipv6(tcp(b"payload"), length=0),
        ipv6(b"\x2b\x00" + bytes(6) + b"\x06\x01" + bytes(14) + tcp(b"payload"), 0),
        ipv6(b"\x06\x04" + bytes(22) + tcp(b"payload"), 51),
        ipv6(b"\x06\x00\x00\x00" + bytes(4) + tcp(b"payload"), 44),  # an atomic fragment is whole
    ],
)
def test_options_and_extension_headers(ip: bytes) -> None:
    assert payload(RAW, ip) == b"payload"


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        ethernet(b"", 0x0806),
        ethernet(ipv4(b"\x08\x00", 1)),
        ethernet(ipv4(tcp(destination=("10.0.0.2", 445)))),
        ethernet(ipv4(udp(b"", ("10.0.0.1", 53), ("10.0.0.2", 1801)), 17)),
        ethernet(b"\x30" + IP[1:]),
        ethernet(b"\x44" + IP[1:]),
        ethernet(IP[:19]),
        ethernet(IP[:23]),
        ethernet(IP6[:39], 0x86DD),
        ethernet(ipv6(b"\x06", 0), 0x86DD),
        ethernet(ipv6(tcp(), 50), 0x86DD),
        bytes(12) + b"\x81\x00" * 20,
    ],
)
def test_frames_that_hold_nothing_of_ours(frame: bytes) -> None:
    assert read_frame(ETHERNET, frame, PORTS) is None


def test_other_ports_can_be_ours() -> None:
    ip = ipv4(tcp(b"x", destination=("10.0.0.2", 11801)))
    assert read_frame(RAW, ip, PORTS) is None
    assert isinstance(read_frame(RAW, ip, Ports(frozenset({1801, 11801}))), Segment)


def test_both_directions_are_ours() -> None:
    frame = segment(b"x", source=SERVER, destination=CLIENT)
    assert isinstance(read_frame(ETHERNET, frame, PORTS), Segment)


def test_a_datagram() -> None:
    found = read_frame(ETHERNET, ping_frame(b"ping") + bytes(10), PORTS)
    assert isinstance(found, Datagram)
    assert found.payload == b"ping"
    assert found.endpoints.source_text == f"{PING_CLIENT[0]}:{PING_CLIENT[1]}"
    assert found.endpoints.destination_text == f"{PING_SERVER[0]}:{PING_SERVER[1]}"


@pytest.mark.parametrize(
    "first",
    [
        ipv4(tcp(b"x"), fragment=0x2000),
        ipv6(b"\x06\x00\x00\x01" + bytes(4) + tcp(b"x"), 44),
    ],
)
def test_the_first_fragment_is_reported(first: bytes) -> None:
    found = read_frame(RAW, first, PORTS)
    assert isinstance(found, Unusable)
    assert "fragment" in found.reason


@pytest.mark.parametrize(
    "later",
    [
        ipv4(tcp(b"x"), fragment=0x0002),  # whatever stands here, it is no TCP header
        ipv6(b"\x06\x00\x00\x10" + bytes(4) + tcp(b"x"), 44),
    ],
)
def test_a_later_fragment_is_not(later: bytes) -> None:
    assert read_frame(RAW, later, PORTS) is None


@pytest.mark.parametrize(
    ("ip", "says"),
    [
        (IP[:-8], "inside its TCP header"),
        (ipv4(tcp()[:12] + b"\x10" + tcp()[13:]), "a TCP header must have at least 20 bytes, got 4"),
        (ipv4(udp(b""), 17)[:-2], "inside its UDP header"),
    ],
)
def test_frames_of_ours_that_cannot_be_read(ip: bytes, says: str) -> None:
    found = read_frame(RAW, ip, PORTS)
    assert isinstance(found, Unusable)
    assert says in found.reason


def test_a_segment_cut_short_by_the_capture_is_what_there_is() -> None:
    assert payload(RAW, IP[:-3]) == b"payl"
