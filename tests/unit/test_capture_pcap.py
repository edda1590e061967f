"""The frames of pcap and pcapng files, in both byte orders, and where the reader must give up."""

from __future__ import annotations

from io import BytesIO
from struct import pack

import pytest

from postroad.describe.capture.items import Skipped
from postroad.describe.capture.pcap import MAX_FRAME_SIZE, Frame, read_pcap, read_pcapng
from tests.captures import (
    ETHERNET,
    RAW,
    TIME_S,
    block,
    enhanced,
    interface,
    option,
    pcap,
    section_header,
    simple,
)

ORDERS = pytest.mark.parametrize("order", ["<", ">"])
NS = 1_000_000_000


def frames_of(data: bytes) -> list[Frame | Skipped]:
    read = read_pcapng if data[:4] == b"\x0a\x0d\x0d\x0a" else read_pcap
    return list(read(BytesIO(data)))


def frame_data(data: bytes) -> list[bytes]:
    return [frame.data for frame in frames_of(data) if isinstance(frame, Frame)]


def stop(data: bytes) -> Skipped:
    """What is reported at the end of a file that breaks off."""
    last = frames_of(data)[-1]
    assert isinstance(last, Skipped)
    assert last.reason.endswith("; the rest of the file cannot be read")
    return last


@ORDERS
@pytest.mark.parametrize(("nanoseconds", "fraction_ns"), [(False, 123_456_000), (True, 123_456)])
def test_pcap(order: str, nanoseconds: bool, fraction_ns: int) -> None:
    data = pcap([b"one", b"", b"three"], RAW, order=order, nanoseconds=nanoseconds)
    assert frames_of(data) == [
        Frame(1, 24, RAW, (TIME_S + 1) * NS + fraction_ns, b"one"),
        Frame(2, 43, RAW, (TIME_S + 2) * NS + fraction_ns, b""),
        Frame(3, 59, RAW, (TIME_S + 3) * NS + fraction_ns, b"three"),
    ]


def test_a_pcap_without_frames() -> None:
    assert frames_of(pcap([])) == []


def test_the_upper_bits_of_the_link_type_are_about_checksums() -> None:
    (frame,) = frames_of(pcap([b"x"], 0x14000000 | ETHERNET))
    assert isinstance(frame, Frame)
    assert frame.link_type == ETHERNET


@pytest.mark.parametrize(
    ("cut", "offset", "says"),
    [
        (10, 0, "the file header of 24 bytes breaks off after 10"),
        (24 + 7, 24, "in the header of frame 1"),
        (24 + 16 + 2, 24, "in frame 1: 2 of 3 bytes are here"),
        (24 + 19 + 5, 43, "in the header of frame 2"),
    ],
)
def test_a_pcap_that_breaks_off(cut: int, offset: int, says: str) -> None:
    end = stop(pcap([b"one", b"two"])[:cut])
    assert end.origin.offset == offset
    assert says in end.reason


def test_a_frame_longer_than_any_network_has() -> None:
    data = pcap([b"one"]) + pack("<IIII", 0, 0, MAX_FRAME_SIZE + 1, MAX_FRAME_SIZE + 1)
    assert frame_data(data) == [b"one"]
    assert f"frame 2 must have at most 262144 bytes, got {MAX_FRAME_SIZE + 1}" in stop(data).reason


@ORDERS
def test_pcapng(order: str) -> None:
    data = section_header(order) + interface(RAW, order) + enhanced(b"one", order=order) + simple(b"three", order)
    assert frames_of(data) == [
        Frame(1, 48, RAW, TIME_S * NS, b"one"),
        Frame(2, 84, RAW, None, b"three"),
    ]


def test_blocks_of_other_kinds_are_passed_over() -> None:
    others = block(5, b"statistics") + block(0x0BAD, b"\xff" * 100_000) + block(4, b"")
    data = section_header() + others + interface() + others + enhanced(b"one") + others
    assert frame_data(data) == [b"one"]


def test_a_new_section_may_have_another_byte_order_and_has_its_own_interfaces() -> None:
    first = section_header("<") + interface(ETHERNET, "<") + enhanced(b"one", order="<")
    second = section_header(">") + interface(RAW, ">") + enhanced(b"two", order=">")
    frames = frames_of(first + second)
    assert [(frame.link_type, frame.data) for frame in frames if isinstance(frame, Frame)] == [
        (ETHERNET, b"one"),
        (RAW, b"two"),
    ]
    (_, nobodys) = frames_of(first + section_header(">") + enhanced(b"two", order=">"))
    assert isinstance(nobodys, Skipped)
    assert nobodys.reason == "frame 2 belongs to interface 0, which the file does not describe"


@ORDERS
@pytest.mark.parametrize(
    ("resolution", "ticks", "time_ns"),
    [
        (9, TIME_S * NS + 5, TIME_S * NS + 5),
        (0, TIME_S, TIME_S * NS),
        (0x80 | 10, TIME_S * 1024 + 512, TIME_S * NS + NS // 2),
        (12, 5_000, 5),
    ],
)
def test_the_resolution_of_times(order: str, resolution: int, ticks: int, time_ns: int) -> None:
    options = option(2, b"eth0", order) + option(9, bytes([resolution]), order) + option(0, b"", order)
    data = section_header(order) + interface(RAW, order, options) + enhanced(b"x", ticks, order)
    (frame,) = frames_of(data)
    assert isinstance(frame, Frame)
    assert frame.time_ns == time_ns


@ORDERS
def test_the_offset_of_times(order: str) -> None:
    options = option(14, pack(f"{order}q", -3600), order)
    (frame,) = frames_of(section_header(order) + interface(RAW, order, options) + enhanced(b"x", order=order))
    assert isinstance(frame, Frame)
    assert frame.time_ns == (TIME_S - 3600) * NS


def test_a_simple_packet_is_cut_at_the_snap_length() -> None:
    body = pack("<I", 1500) + b"0123456789ab"
    data = section_header() + interface(RAW, snap_length=10) + block(3, body)
    assert frame_data(data) == [b"0123456789"]


@pytest.mark.parametrize(
    ("tail", "says"),
    [
        (b"\x06\0\0", "in the header of a block"),
        (enhanced(b"two")[:-8], "inside a block"),
        (block(0x0BAD, bytes(400))[:-300], "inside a block"),
        (pack("<II", 6, 30), "a block of kind 0x6 has a wrong size of 30 bytes"),
        (pack("<II", 6, 12) + pack("<I", 12), "a block of kind 0x6 has a wrong size of 12 bytes"),
        (pack("<II", 0x0BAD, 0), "a block of kind 0xbad has a wrong size of 0 bytes"),
        (pack("<II", 6, 0x7FFFFFFC), "a block of kind 0x6 must have at most"),
        (enhanced(b"two")[:-4] + pack("<I", 99), "at its end, got 99"),
        (b"\x0a\x0d\x0d\x0a" + bytes(24), "must have a byte-order magic"),
    ],
)
def test_a_pcapng_that_cannot_be_followed(tail: bytes, says: str) -> None:
    data = section_header() + interface() + enhanced(b"one")
    assert frame_data(data + tail) == [b"one"]
    end = stop(data + tail)
    assert says in end.reason
    assert end.origin.offset == len(data)


def test_a_frame_that_claims_more_than_its_block_holds() -> None:
    wrong = block(6, pack("<IIIII", 0, 0, 0, 100, 100) + b"short")
    items = frames_of(section_header() + interface() + wrong + enhanced(b"two"))
    assert isinstance(items[0], Skipped)
    assert items[0].reason == "frame 1 must have 100 bytes, got 8 in its block"
    assert isinstance(items[1], Frame)
    assert (items[1].number, items[1].data) == (2, b"two")


def test_a_frame_before_any_interface() -> None:
    (item,) = frames_of(section_header() + simple(b"x"))
    assert isinstance(item, Skipped)
    assert item.reason == "frame 1 comes before any interface is described"
