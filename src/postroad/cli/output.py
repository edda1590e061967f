"""What commands print: JSON lines for programs; tables, messages and sizes for people.

Text from a message never reaches a terminal unchanged: characters that are not printable are escaped.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING

from postroad.cli.terminal import hex_lines, shown

if TYPE_CHECKING:
    from postroad import ReceivedMessage

MAX_HEX_BYTES = 256  # of a body that is no text: enough to recognise it; --json and --raw have all of it
MAX_NAME = 60  # characters of a queue's name in a table
_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")
_BLOCK_ROWS = 1000  # of a table that goes to a file or a pipe: what is held before it is printed


def print_json(value: object) -> None:
    """Dataclasses are objects."""
    import json

    from postroad.values.plain import to_json

    sys.stdout.write(json.dumps(value, default=to_json) + "\n")


def print_line(text: str) -> None:
    """One line for people; what is not printable is escaped."""
    sys.stdout.write(shown(text) + "\n")


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, numbers: Sequence[str] = ()) -> None:
    """Rows under their titles; the columns named in `numbers` stand at the right, and are never folded.

    To a file or a pipe rows go as they come, however many there are.
    """
    if not sys.stdout.isatty():
        _print_plain(columns, rows, numbers)
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in columns:
        number = column in numbers
        table.add_column(column, justify="right" if number else "left", no_wrap=number, overflow="fold")
    for row in rows:
        table.add_row(*(Text(shown(cell_text(cell))) for cell in row))
    Console(file=sys.stdout, highlight=False).print(table)


def _print_plain(columns: Sequence[str], rows: Iterable[Sequence[object]], numbers: Sequence[str]) -> None:
    """Columns are as wide as the widest cell so far; of the first rows, all are looked at before one is printed."""
    aligned: list[Callable[[str, int], str]] = [str.rjust if each in numbers else str.ljust for each in columns]
    widths = [0] * len(columns)
    lines = chain([columns], ([shown(cell_text(cell)) for cell in row] for row in rows))
    while block := list(islice(lines, _BLOCK_ROWS)):
        widths = [max(width, *map(len, column)) for width, *column in zip(widths, *block, strict=True)]
        for line in block:
            cells = (align(cell, width) for align, cell, width in zip(aligned, line, widths, strict=True))
            sys.stdout.write("  ".join(cells).rstrip() + "\n")


def cell_text(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


def size_text(size: int) -> str:
    """`1.5 MiB`"""
    power = min(max(size.bit_length() - 1, 0) // 10, len(_UNITS) - 1)
    return f"{size / 1024**power:.1f} {_UNITS[power]}" if power else f"{size} bytes"


def shortened(name: str, width: int = MAX_NAME) -> str:
    """A long name without its middle: its beginning says where the queue is, its end which one it is."""
    if len(name) <= width:
        return name
    end = width // 2
    return f"{name[: width - end - 3]}...{name[-end:]}"


def count_text(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


class MessagePrinter:
    """Messages one after the other: as JSON lines, as bodies alone (`raw`), or as a header line and the body."""

    def __init__(self, *, as_json: bool, raw: bool = False) -> None:
        self._as_json = as_json
        self._raw = raw
        self.count = 0

    def print(self, message: ReceivedMessage) -> None:
        self.count += 1
        if self._as_json:
            print_json(message.describe())
        elif self._raw:
            sys.stdout.buffer.write(message.body)
        else:
            self._print_for_people(message)

    def print_all(self, messages: Iterable[ReceivedMessage]) -> None:
        """Returns once all of them are out; OSError where they cannot be."""
        for message in messages:
            self.print(message)
        sys.stdout.flush()

    def _print_for_people(self, message: ReceivedMessage) -> None:
        if self.count > 1:
            sys.stdout.write("\n")
        sys.stdout.write(header_line(message) + "\n")
        text = message.text_or_none
        lines = _hex_lines(message.body) if text is None else text.splitlines()
        for line in lines:
            sys.stdout.write(shown(line) + "\n")


def header_line(message: ReceivedMessage) -> str:
    """The message in one line: label, class, kind, size, time, ids."""
    facts = [
        shown(message.label) or "(no label)",
        *([message.class_name] if message.message_class else []),
        f"{message.delivery}, priority {message.priority}",
        count_text(len(message.body), "byte"),
        f"sent {message.sent_at:%Y-%m-%d %H:%M:%S}Z",
        message.id,
        f"lookup {message.lookup_id}",
    ]
    return "-- " + " | ".join(facts)


def _hex_lines(body: bytes) -> list[str]:
    lines = hex_lines(body[:MAX_HEX_BYTES])
    if len(body) > MAX_HEX_BYTES:
        lines.append(f"... {len(body)} bytes; --json or --raw print all")
    return lines
