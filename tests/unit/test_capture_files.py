"""Files of packets: recognized by their content, and read to their end whatever they contain."""

from __future__ import annotations

import io
from gzip import compress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroad.describe import describe_headers, packet_json
from postroad.describe.capture import (
    CaptureFile,
    DamagedPacket,
    DecodedPacket,
    FileKind,
    Item,
    Ports,
    Skipped,
)
from postroad.describe.capture.files import HEAD_SIZE, recognise
from tests.captures import (
    RAW,
    SERVER,
    SYN,
    enhanced,
    ethernet,
    interface,
    ipv4,
    pcap,
    pcapng,
    ping_frame,
    section_header,
    segment,
    tcp,
)
from tests.frames import EVERY_HEADER, FRAME_1, FRAME_2, FRAME_3, FRAME_5, ORDER_ACK
from tests.vectors import FRAME_7, FRAME_8, V1, V2

PACKETS = [FRAME_3, FRAME_5, FRAME_7, V1, V2, ORDER_ACK, EVERY_HEADER]
STREAM = b"".join(PACKETS)


def read(data: bytes, ports: Ports | None = None) -> list[Item]:
    stream = io.BytesIO(data)
    return list((CaptureFile(stream) if ports is None else CaptureFile(stream, ports)).items())


def whole(items: list[Item]) -> list[bytes]:
    return [item.data for item in items if isinstance(item, DecodedPacket)]


def segments(size: int = 1000) -> list[bytes]:
    """The stream as Ethernet frames, from its SYN on."""
    frames = [segment(sequence=99, flags=SYN)]
    return frames + [segment(STREAM[at : at + size], 100 + at) for at in range(0, len(STREAM), size)]


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        (pcap([]), FileKind.PCAP),
        (pcap([], order=">"), FileKind.PCAP),
        (pcap([], nanoseconds=True), FileKind.PCAP),
        (pcap([], order=">", nanoseconds=True), FileKind.PCAP),
        (section_header(), FileKind.PCAPNG),
        (V1.hex().encode(), FileKind.HEX),
        (b"# caf\xc3\xa9\r\n\t10 00", FileKind.HEX),
        ("# café 10 00".encode()[:6], FileKind.HEX),  # the head may end inside a character
        (b"\xef\xbb\xbf10 00", FileKind.HEX),
        ("10 00".encode("utf-16"), FileKind.HEX),
        (b"", FileKind.HEX),
        (V1, FileKind.RAW),
        (FRAME_1, FileKind.RAW),
        (b"10 00 \x00", FileKind.RAW),
        (b"caf\xe9 10", FileKind.RAW),
        (bytes(20), FileKind.RAW),
    ],
)
def test_the_content_tells_what_a_file_is(head: bytes, kind: FileKind) -> None:
    assert recognise(head) is kind


@pytest.mark.parametrize(
    "data",
    [
        STREAM,
        STREAM.hex().encode(),
        STREAM.hex(" ").encode("utf-16"),
        b"\xef\xbb\xbf" + STREAM.hex(" ").encode(),
        pcap(segments()),
        pcap(segments(), order=">"),
        pcapng(segments()),
        pcapng(segments(), ">"),
        pcap([ipv4(tcp(STREAM[at : at + 700], at)) for at in range(0, len(STREAM), 700)], RAW),
    ],
    ids=["raw", "hex", "UTF-16", "UTF-8 with a mark", "pcap", "pcap >", "pcapng", "pcapng >", "raw IP"],
)
def test_every_form_gives_the_same_packets(data: bytes) -> None:
    items = read(data)
    assert whole(items) == PACKETS
    assert len(items) == len(PACKETS)


def test_a_file_is_read_as_it_comes() -> None:
    class Slow(io.RawIOBase):
        """Returns a few bytes at a time, as a pipe may."""

        def __init__(self) -> None:
            self._left = STREAM

        def readable(self) -> bool:
            return True

        def readinto(self, buffer: object) -> int:
            view = memoryview(buffer)  # type: ignore[arg-type]
            part, self._left = self._left[:7], self._left[7:]
            view[: len(part)] = part
            return len(part)

    assert whole(list(CaptureFile(io.BufferedReader(Slow(), 7)).items())) == PACKETS


def test_raw_packets_longer_than_the_head() -> None:
    data = V1 * 100
    assert len(data) > HEAD_SIZE
    items = read(data)
    assert whole(items) == [V1] * 100
    assert items[-1].origin.offset == 99 * len(V1)


def test_hex_text_knows_its_lines() -> None:
    items = read(f"# two packets\n{FRAME_8.hex()}\n\n{V1.hex()}\n".encode())
    assert [(item.origin.line, item.origin.offset) for item in items] == [(2, 0), (4, 36)]


def test_a_line_that_is_not_hex_parts_the_stream() -> None:
    items = read(f"{V1[:50].hex()}\noops\n{V1[50:].hex()}\n{V2.hex()}".encode())
    assert [type(item) for item in items] == [DamagedPacket, Skipped, Skipped, DecodedPacket]
    assert isinstance(items[1], Skipped)
    assert (items[1].reason, items[1].origin.line) == ("line 2 is not hex", 2)
    assert isinstance(items[2], Skipped)
    assert items[2].size == 102


def test_captured_packets_know_frame_time_and_addresses() -> None:
    (item,) = read(pcap([segment(V1, 5)]))
    origin = item.origin
    assert (origin.frame, origin.time_ns) == (1, 1_700_000_001_123_456_000)
    assert (origin.source, origin.destination, origin.line) == ("10.0.0.1:49759", "10.0.0.2:1801", None)


def test_pings_in_a_capture() -> None:
    items = read(pcap([ping_frame(FRAME_1), ping_frame(b"no ping"), ping_frame(FRAME_2)]))
    assert whole(items) == [FRAME_1, FRAME_2]
    assert isinstance(items[1], Skipped)
    assert (items[1].reason, items[1].origin.frame) == ("a Ping must have 24 bytes, got 7", 2)


def test_pings_in_other_files() -> None:
    assert whole(read(FRAME_1 + V1 + FRAME_2)) == [FRAME_1, V1, FRAME_2]
    assert whole(read((FRAME_1 + V1 + FRAME_2).hex().encode())) == [FRAME_1, V1, FRAME_2]


def test_other_ports() -> None:
    data = pcap([segment(V1, destination=("10.0.0.2", 11801))])
    assert read(data) == []
    assert whole(read(data, Ports(frozenset({1801, 11801})))) == [V1]


def test_fragments_are_told_and_left_out() -> None:
    fragment = ethernet(ipv4(tcp(V1[:40], 0), fragment=0x2000))
    items = read(pcap([fragment, segment(V2, 0)]))
    assert isinstance(items[0], Skipped)
    assert "fragment" in items[0].reason
    assert whole(items) == [V2]


def test_a_link_layer_that_is_not_understood_is_told_once() -> None:
    wifi = section_header() + interface(105) + interface() + enhanced(b"wifi") * 3
    items = read(wifi + enhanced(segment(V1), interface_id=1))
    assert isinstance(items[0], Skipped)
    assert items[0].reason == "unknown link type 105"
    assert whole(items) == [V1]
    assert len(items) == 2


def test_frames_are_counted() -> None:
    capture = CaptureFile(io.BytesIO(pcap([b"not", b"ours"])))
    assert list(capture.items()) == []
    assert (capture.frames, capture.kind, capture.empty) == (2, FileKind.PCAP, False)


def test_a_compressed_file_is_told_to_be_one() -> None:
    (item,) = read(compress(pcap(segments())))
    assert isinstance(item, Skipped)
    assert item.reason == "the file is compressed; unpack it first"


def test_an_empty_file() -> None:
    capture = CaptureFile(io.BytesIO())
    assert capture.empty
    assert list(capture.items()) == []


SEEDS = [
    STREAM,
    STREAM.hex(" ").encode(),
    pcap(segments(300)),
    pcap([*segments(300)[::-1], ping_frame(FRAME_1)], order=">"),
    pcapng(segments(300)),
    SERVER[0].encode(),
]


@st.composite
def damaged_files(draw: st.DrawFn) -> bytes:
    """A good file with bytes changed, removed, doubled or put in."""
    data = bytearray(draw(st.sampled_from(SEEDS)))
    for _ in range(draw(st.integers(0, 8))):
        at = draw(st.integers(0, len(data)))
        size = draw(st.integers(0, 40))
        match draw(st.sampled_from(["change", "remove", "double", "insert"])):
            case "change":
                data[at : at + size] = draw(st.binary(min_size=size, max_size=size))
            case "remove":
                del data[at : at + size]
            case "double":
                data[at:at] = data[at : at + size]
            case _:
                data[at:at] = draw(st.binary(max_size=40))
    return bytes(data)


def check_readable(data: bytes) -> None:
    """Whatever comes out can be shown, and nothing is raised."""
    for item in read(data):
        match item:
            case DecodedPacket():
                packet_json(item.data, item.packet)
            case DamagedPacket():
                describe_headers(item.data, item.fault)
            case Skipped():
                assert item.reason


@given(damaged_files())
def test_no_damage_breaks_the_reader(data: bytes) -> None:
    check_readable(data)


@given(
    st.sampled_from([b"", V1[:8], b"\x10\0\x08\0LIOR", section_header(), pcap([]), b"10 00 "]),
    st.binary(max_size=600),
)
def test_no_bytes_break_the_reader(head: bytes, rest: bytes) -> None:
    check_readable(head + rest)
