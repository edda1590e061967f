"""Every capture in tests/captures says what the .toml beside it expects, and is read and written without a change."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from postroad.describe.capture import CaptureFile, DecodedPacket
from postroad.wire import Ping, UserMessage, decode_packet
from postroad.wire.view import MessageView
from tests.captures import FOLDER, pcap, segment
from tests.captures.expectations import Expectation, decoded, draft
from tests.vectors import V1

CAPTURES = sorted(FOLDER.glob("*.pcap*"))


def expectation(text: str) -> Expectation:
    read = tomllib.loads(text)
    return Expectation(read.pop("about"), read.pop("packets"), read.pop("packet", []), **read)


@pytest.mark.parametrize("capture", CAPTURES, ids=lambda file: file.name)
def test_a_capture_says_what_is_expected(capture: Path) -> None:
    file = capture.with_suffix(".toml")
    assert file.exists(), f"{file.name} is missing: python -m tests.captures {capture} writes a draft"
    expected = expectation(file.read_text(encoding="utf-8"))
    assert expected.about, f"{file.name}: `about` must say what was recorded"
    assert expected.faults(decoded(capture)) == []


@pytest.mark.parametrize("capture", CAPTURES, ids=lambda file: file.name)
def test_packets_of_a_capture_are_written_as_they_were(capture: Path) -> None:
    with capture.open("rb") as stream:
        packets = [item for item in CaptureFile(stream).items() if isinstance(item, DecodedPacket)]
    for item in packets:
        if isinstance(item.packet, Ping):
            assert item.packet.encode() == item.data
            continue
        whole = UserMessage.decode(item.data) if is_message(item.data) else decode_packet(item.data)
        assert not isinstance(whole, MessageView)
        assert whole.encode() == item.data


def is_message(data: bytes) -> bool:
    return not data[2] & 0x08  # BaseHeader.Flags.IN


def test_every_expectation_has_its_capture() -> None:
    assert {file.stem for file in FOLDER.glob("*.toml")} == {file.stem for file in CAPTURES}


def test_a_difference_is_told(tmp_path: Path) -> None:
    capture = tmp_path / "one.pcap"
    capture.write_bytes(pcap([segment(V1, 100)]))
    text = draft(capture)
    found = decoded(capture)
    assert expectation(text).faults(found) == []
    wrong = expectation(
        text.replace("UserMessage = 1", "UserMessage = 2\nPing = 1")
        + '[[packet]]\nnumber = 1\n"headers.user_header.message_id" = -1\n"headers.nothing.at" = 5\n'
        + "[[packet]]\nnumber = 7\n"
    ).faults(found)
    message_id = found[0]["headers"]["user_header"]["message_id"]
    assert wrong == [
        "Ping: 0 found, 1 expected",
        "UserMessage: 1 found, 2 expected",
        f"packet 1: headers.user_header.message_id is {message_id}, expected -1",
        "packet 1: headers.nothing.at is None, expected 5",
        "packet 7 is missing",
    ]
