"""Converts hex text to bytes: plain hex, and dumps with an offset before the bytes and their characters after them.

All bytes of a file are one stream. Packets have a length of their own, so blank lines and line ends mean nothing. An
offset that starts again at zero begins a new stream. `#` begins a comment, except among the characters of a dump.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TextIO

# Room for the largest packet on one line with a separator after each byte, and as much again.
MAX_LINE = 32 * 1_048_576
# The most bytes that one `*` may stand for. A dump with more equal rows than the largest packet is no dump of packets.
MAX_REPEATED = 8 * 1_048_576

_OFFSET = re.compile(r"(?:0x)?([0-9A-Fa-f]{3,16})(:?)(?:[ \t]+|$)(.*)")
_PAIRS = re.compile(r"(?:0x)?((?:[0-9A-Fa-f]{2})+)", re.IGNORECASE)
_SEPARATORS = re.compile(r"[\s,:;-]+")
# digits of an offset without a colon: hexdump writes 8 and Wireshark 4; xxd writes 8 and a colon
_LONGEST_BARE_OFFSET = 8
_SHORTEST_BARE_OFFSET = 4


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes that follow the previous ones, and their line."""

    line: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Break:
    """A break in the stream: the bytes after it do not follow those before. `reason` is None if nothing is wrong."""

    line: int
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class _Row:
    """One line of a dump."""

    line: int
    offset: int
    data: bytes


class _NotHex(Exception):
    """The line cannot be read, for this reason."""


def read_hex(text: TextIO) -> Iterator[Piece | Break]:
    """Yields the bytes of a text. Adjacent lines that are not hex give one Break."""
    return _HexText(text).pieces()


class _HexText:
    def __init__(self, text: TextIO) -> None:
        self._text = text
        self._row: _Row | None = None  # the last row of a dump, whose length the next offset tells
        self._repeat = False  # a `*` follows that row
        self._bad: tuple[int, int, str] | None = None  # first and last line of those that cannot be read, and why

    def pieces(self) -> Iterator[Piece | Break]:
        for number, line in self._lines():
            try:
                if line is None:
                    raise _NotHex(f"is longer than {MAX_LINE} characters")
                parsed = parse_line(line, number, in_dump=self._row is not None)
            except _NotHex as fault:
                yield from self._end_row(None)
                first = self._bad[0] if self._bad else number
                self._bad = (first, number, str(fault))
                continue
            if parsed is None:
                continue
            yield from self._report_bad()
            if isinstance(parsed, _Row):
                yield from self._end_row(parsed)
                self._row = parsed
            elif isinstance(parsed, Piece):
                yield from self._end_row(None)
                yield parsed
            else:
                self._repeat = True
        yield from self._end_row(None)
        yield from self._report_bad()

    def _lines(self) -> Iterator[tuple[int, str | None]]:
        """Yields numbered lines. A line that is too long is None."""
        number = 0
        while line := self._text.readline(MAX_LINE):
            number += 1
            if len(line) < MAX_LINE or line.endswith("\n"):
                yield number, line
                continue
            while (more := self._text.readline(MAX_LINE)) and not more.endswith("\n"):
                pass
            yield number, None

    def _report_bad(self) -> Iterator[Break]:
        if self._bad is None:
            return
        first, last, why = self._bad
        self._bad = None
        yield Break(first, f"line {first} {why}" if first == last else f"lines {first} to {last} are not hex")

    def _end_row(self, following: _Row | None) -> Iterator[Piece | Break]:
        """Returns the waiting row, now that the next row is known."""
        row, self._row = self._row, None
        repeat, self._repeat = self._repeat, False
        if row is None:
            return
        step = following.offset - row.offset if following is not None else 0
        # The next row's offset removes characters after the last byte that look like hex.
        data = row.data[:step] if step > 0 else row.data
        yield Piece(row.line, data)
        if following is None or following.offset == 0:
            yield Break(row.line)
        elif repeat and len(data) < step <= MAX_REPEATED:
            yield Piece(row.line, (data * (step // len(data) + 1))[: step - len(data)] if data else b"")
        elif step != len(data):
            yield Break(
                following.line,
                f"line {following.line} must have the offset {row.offset + len(data):#x}, got {following.offset:#x}",
            )


class _Repeat:
    """A lone `*`: it repeats the previous row up to the next offset."""


def parse_line(line: str, number: int, in_dump: bool) -> _Row | Piece | _Repeat | None:
    """The content of one line. None if it is blank or a comment."""
    line = line.strip()
    if not line or line.startswith("#"):
        return None
    if line == "*" and in_dump:
        return _Repeat()
    match = _OFFSET.fullmatch(line)
    if match is not None:
        row = _parse_row(match, number, in_dump)
        if row is not None:
            return row
    line = line.partition("#")[0]
    try:
        return Piece(number, bytes.fromhex(line))
    except ValueError:
        return Piece(number, _separated_bytes(line))


def _separated_bytes(line: str) -> bytes:
    """Reads pairs of digits separated by commas, colons, hyphens or 0x."""
    data = bytearray()
    for word in _SEPARATORS.split(line.strip()):
        pairs = _PAIRS.fullmatch(word)
        if pairs is not None:
            data += bytes.fromhex(pairs[1])
        elif word:
            odd = len(word) % 2 and re.fullmatch("[0-9A-Fa-f]+", word)
            raise _NotHex("holds half a byte" if odd else "is not hex")
    return bytes(data)


def _parse_row(match: re.Match[str], number: int, in_dump: bool) -> _Row | None:
    """Reads a line of a dump. None if its first word is not an offset."""
    digits, colon, rest = match.groups()
    offset = int(digits, 16)
    if colon:
        # In dumps of xxd and tcpdump, two spaces end the bytes.
        return _Row(number, offset, _leading_bytes(re.split(r"\s{2,}|\t", rest, maxsplit=1)[0]))
    if not _SHORTEST_BARE_OFFSET <= len(digits) <= _LONGEST_BARE_OFFSET:
        return None
    if not rest:
        return _Row(number, offset, b"") if in_dump else None  # hexdump's last line, which has only the length
    # Dumps of hexdump -C and Wireshark have single bytes, at times with a wider space in the middle.
    words = re.split(r"\s{3,}|\|", rest, maxsplit=1)[0].split()
    if not words or len(words[0]) != 2:
        if words and len(digits) % 2 and len(words[0]) == 4:
            raise _NotHex("is a dump of 16-bit words; use xxd or hexdump -C, which print bytes")
        return None
    return _Row(number, offset, _leading_bytes(" ".join(words)))


def _leading_bytes(text: str) -> bytes:
    data = bytearray()
    for word in text.split():
        pairs = _PAIRS.fullmatch(word)
        if pairs is None:
            break
        data += bytes.fromhex(pairs[1])
    return bytes(data)
