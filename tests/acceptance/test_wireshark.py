"""The dissector of packaging/wireshark in tshark: its values are those of `postroad decode`."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests import frames, strategies, vectors
from tests.captures import FOLDER, SYN, pcap, ping_frame, segment
from tests.dissected import decoded, differences, dissected, troubles, unavailable
from tests.packets import patched

if (_why := unavailable()) is not None:
    pytest.skip(_why, allow_module_level=True)

FEW = settings(
    max_examples=3, deadline=None, phases=(Phase.explicit, Phase.generate), suppress_health_check=list(HealthCheck)
)
SPECIMENS = (*frames.SESSION_PACKETS, vectors.V1, vectors.V2)


def stream(packets: list[bytes], size: int = 1400) -> list[bytes]:
    """The packets in one TCP stream, cut into segments of a size without regard to where packets end."""
    data = b"".join(packets)
    parts = [segment(data[at : at + size], 100 + at) for at in range(0, len(data), size)]
    return [segment(sequence=99, flags=SYN), *parts]


def agree(file: Path, count: int) -> None:
    found, wanted = dissected(file), decoded(file)
    assert len(found) == len(wanted) == count
    faults = {number: differences(*pair) for number, pair in enumerate(zip(found, wanted, strict=True), 1)}
    assert {number: each for number, each in faults.items() if each} == {}
    assert troubles(file) == []


@pytest.mark.parametrize("size", [7, 1400])
def test_the_packets_of_the_specification_and_every_header(tmp_path: Path, size: int) -> None:
    file = tmp_path / "specimens.pcap"
    pings = [ping_frame(each) for each in frames.PINGS]
    file.write_bytes(pcap([*stream(list(SPECIMENS), size), *pings]))
    agree(file, len(SPECIMENS) + len(pings))


@pytest.mark.parametrize("capture", sorted(FOLDER.glob("*.pcap*")), ids=lambda file: file.name)
def test_a_capture_of_real_traffic(capture: Path) -> None:
    agree(capture, len(decoded(capture)))


@FEW
@given(st.lists(strategies.packets, min_size=20, max_size=60))
def test_any_packets(packets: list[bytes]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "any.pcap"
        file.write_bytes(pcap(stream(packets)))
        agree(file, len(packets))


@FEW
@given(st.lists(strategies.damaged_packets, min_size=20, max_size=60), st.lists(st.binary(max_size=40)))
def test_damage_is_no_error_of_the_dissector(packets: list[bytes], datagrams: list[bytes]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "damaged.pcap"
        parts = [segment(each[:60000], 100, source=("10.0.0.1", 4000 + port)) for port, each in enumerate(packets)]
        file.write_bytes(pcap([*parts, *map(ping_frame, datagrams)]))
        assert troubles(file, "-Y", "_ws.malformed or _ws.lua.error") == []


def test_a_fault_is_told_in_words(tmp_path: Path) -> None:
    file = tmp_path / "faults.pcap"
    label = patched(vectors.V1, 89, b"\xfb")
    file.write_bytes(pcap([segment(label, 100), segment(b"GET / HTTP/1.1\r\n\r\n", 9, source=("10.0.0.1", 4000))]))
    first, second = troubles(file)
    assert "is cut off" in first
    assert "18 bytes without a BaseHeader" in second
