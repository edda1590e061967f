"""Hex text as people and tools write it, and the bytes that it means."""

from __future__ import annotations

import shutil
import subprocess
from io import StringIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroad.describe.capture import hex_text
from postroad.describe.capture.hex_text import Break, Piece, read_hex
from tests.vectors import FRAME_7, FRAME_8, V1

# Text that looks like hex beside the bytes, a bar and a hash among the characters, equal rows.
TRICKY = b"abcdef 01 |#| be ad 12" + b"face" * 20 + b"*" * 70 + bytes(100) + b"cafe"


def spelled(text: str) -> list[bytes]:
    """The bytes of each stretch between two breaks."""
    stretches = [b""]
    for piece in read_hex(StringIO(text)):
        if isinstance(piece, Piece):
            stretches[-1] += piece.data
        else:
            stretches.append(b"")
    return [stretch for stretch in stretches if stretch]


def reasons(text: str) -> list[str]:
    return [piece.reason for piece in read_hex(StringIO(text)) if isinstance(piece, Break) and piece.reason]


def spaced(data: bytes, group: int = 1) -> str:
    return "\n".join(data[start : start + 16].hex(" ", group) for start in range(0, len(data), 16))


def dump(data: bytes, row: str) -> str:
    """A dump whose rows are written by `row`, a format with `at`, `hex` and `text`."""
    lines = []
    for at in range(0, len(data), 16):
        part = data[at : at + 16]
        text = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in part)
        lines.append(row.format(at=at, hex=part.hex(" "), text=text))
    return "\n".join(lines)


WIRESHARK = "{at:04x}   {hex:<47}   {text}"
HEXDUMP = "{at:08x}  {hex:<48} |{text}|"
XXD = "{at:08x}: {hex:<47}  {text}"


@pytest.mark.parametrize(
    "text",
    [
        V1.hex(),
        V1.hex().upper(),
        spaced(V1),
        spaced(V1, 2),
        spaced(V1, 4),
        spaced(V1).replace("\n", "\n\n"),  # as the specification prints it
        spaced(V1).replace("\n", "\r\n"),
        "\n".join("\t  " + line + "  " for line in spaced(V1).split("\n")),
        V1.hex(":"),
        V1.hex("-"),
        ", ".join(f"0x{byte:02X}" for byte in V1),
        ",\n".join(f"0x{byte:02x}" for byte in V1) + ",\n",
        "# a message\n" + spaced(V1).replace("\n", "  # a row\n", 3) + "\n# its end\n",
    ],
)
def test_plain_hex(text: str) -> None:
    assert spelled(text) == [V1]


@pytest.mark.parametrize("row", [WIRESHARK, HEXDUMP, XXD, "{at:06x} {hex}", "\t0x{at:04x}:  {hex:<47}  {text}"])
@pytest.mark.parametrize("data", [V1, FRAME_7, FRAME_8, TRICKY], ids=["V1", "frame 7", "frame 8", "tricky"])
def test_dumps_with_offsets(row: str, data: bytes) -> None:
    assert spelled(dump(data, row)) == [data]


@pytest.mark.parametrize(
    "command",
    [
        ["xxd"],
        ["xxd", "-g1"],
        ["xxd", "-g4", "-c", "32"],
        ["xxd", "-a"],
        ["xxd", "-u"],
        ["xxd", "-p"],
        ["xxd", "-i"],
        ["hexdump", "-C"],
        ["hexdump", "-vC"],
        ["od", "-A", "x", "-t", "x1"],
        ["od", "-A", "x", "-t", "x1z", "-v"],
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("data", [V1, FRAME_7, FRAME_8, TRICKY], ids=["V1", "frame 7", "frame 8", "tricky"])
def test_what_the_tools_really_write(command: list[str], data: bytes, tmp_path: Path) -> None:
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed here")
    file = tmp_path / "packet.bin"
    file.write_bytes(data)
    run = subprocess.run([*command, str(file)], capture_output=True, text=True, check=True)
    text = "\n".join(line for line in run.stdout.split("\n") if not line.startswith(("unsigned", "}")))
    assert spelled(text) == [data]


def test_blank_lines_do_not_part_packets() -> None:
    assert spelled(f"{FRAME_8.hex()}\n\n\n{V1.hex()}") == [FRAME_8 + V1]


def test_an_offset_of_zero_begins_anew() -> None:
    assert spelled(dump(FRAME_8, WIRESHARK) + "\n\n" + dump(V1, WIRESHARK)) == [FRAME_8, V1]
    assert spelled(dump(FRAME_8[:10], XXD) + "\n" + dump(V1[:10], XXD)) == [FRAME_8[:10], V1[:10]]
    assert reasons(dump(FRAME_8, WIRESHARK) + "\n\n" + dump(V1, WIRESHARK)) == []


def test_a_dump_may_begin_anywhere() -> None:
    text = "\n".join(dump(V1, HEXDUMP).split("\n")[2:])
    assert spelled(text) == [V1[32:]]
    assert reasons(text) == []


def test_a_row_that_is_missing() -> None:
    rows = dump(V1, WIRESHARK).split("\n")
    text = "\n".join(rows[:3] + rows[4:])
    assert spelled(text) == [V1[:48], V1[64:]]
    assert reasons(text) == ["line 4 must have the offset 0x30, got 0x40"]


def test_a_star_that_stands_for_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "00000000  " + "00 " * 16 + "\n*\n00001000  01\n"
    assert spelled(text) == [bytes(4096) + b"\1"]
    monkeypatch.setattr(hex_text, "MAX_REPEATED", 4095)
    assert spelled(text) == [bytes(16), b"\1"]
    assert reasons(text) == ["line 3 must have the offset 0x10, got 0x1000"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("10 00\nthis is not\n03 00", "line 2 is not hex"),
        ("10 00\nthis\n\n# or\nthat\n03 00", "lines 2 to 5 are not hex"),
        ("10 00\n10 0\n03 00", "line 2 holds half a byte"),
        ("10 00\n*\n03 00", "line 2 is not hex"),
        (
            "10 00\n0000000 0010 0003 494c\n03 00",
            "line 2 is a dump of 16-bit words; use xxd or hexdump -C, which print bytes",
        ),
    ],
)
def test_lines_that_cannot_be_read_are_told_and_part_the_bytes(text: str, said: str) -> None:
    assert spelled(text) == [b"\x10\0", b"\x03\0"]
    assert reasons(text) == [said]


def test_lines_are_numbered() -> None:
    pieces = list(read_hex(StringIO("# first\n\n10\n\n00 # fifth")))
    assert pieces == [Piece(3, b"\x10"), Piece(5, b"\0")]


def test_a_line_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hex_text, "MAX_LINE", 10)
    assert spelled("00\n" + "11" * 30 + "\n22\n") == [b"\0", b"\x22"]
    assert reasons("00\n" + "11" * 30 + "\n22\n") == ["line 2 is longer than 10 characters"]


@given(st.binary(min_size=1, max_size=300), st.sampled_from([WIRESHARK, HEXDUMP, XXD]))
def test_any_bytes_survive_a_dump(data: bytes, row: str) -> None:
    assert spelled(dump(data, row)) == [data]


@given(st.text(st.sampled_from("0123456789abcdefxg:|*# \n\t,-")))
def test_no_text_breaks_the_reader(text: str) -> None:
    for piece in read_hex(StringIO(text)):
        assert piece.line >= 1
