"""What commands print: JSON lines for programs; tables, messages and sizes for people.

Text from a message never reaches a terminal unchanged. Characters that are not printable are escaped.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from itertools import chain, islice
from types import TracebackType
from typing import TYPE_CHECKING, NoReturn, Self, TextIO

import typer

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from postroad import ReceivedMessage


MAX_HEX_BYTES = 256  # of a body that is not text; enough to recognise it, and --json and --raw show all
MAX_NAME = 60  # characters of a queue's name in a table
_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")
_BLOCK_ROWS = 1000  # of a table for a file or a pipe, which are held back to measure the columns


def print_json(value: object) -> None:
    """Prints a value as one line of JSON. Dataclasses become objects."""
    import json

    from postroad.reports.plain import to_json

    sys.stdout.write(json.dumps(value, default=to_json) + "\n")


def print_line(text: str) -> None:
    """Prints one line for people. Characters that are not printable are escaped."""
    sys.stdout.write(printable(text) + "\n")


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, numbers: Sequence[str] = ()) -> None:
    """Prints a table. The columns in `numbers` are aligned right and never folded.

    Rows for a file or a pipe are printed as they come, so there can be any number of them.
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
        table.add_row(*(Text(printable(cell_text(cell))) for cell in row))
    Console(file=sys.stdout, highlight=False).print(table)


def _print_plain(columns: Sequence[str], rows: Iterable[Sequence[object]], numbers: Sequence[str]) -> None:
    """Prints columns as wide as the widest cell so far. It looks at all of the first rows before it prints one."""
    aligned: list[Callable[[str, int], str]] = [str.rjust if each in numbers else str.ljust for each in columns]
    widths = [0] * len(columns)
    lines = chain([columns], ([printable(cell_text(cell)) for cell in row] for row in rows))
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
    """A size such as `1.5 MiB`."""
    power = min(max(size.bit_length() - 1, 0) // 10, len(_UNITS) - 1)
    return f"{size / 1024**power:.1f} {_UNITS[power]}" if power else f"{size} bytes"


def shortened(name: str, width: int = MAX_NAME) -> str:
    """A long name without its middle. The start tells where the queue is, and the end which queue it is."""
    if len(name) <= width:
        return name
    end = width // 2
    return f"{name[: width - end - 3]}...{name[-end:]}"


def count_text(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


class MessagePrinter:
    """Prints messages as JSON lines, as bodies only (`raw`), or as a header line and the body. With `decode`, it also
    prints what bodies and extensions say."""

    def __init__(self, *, as_json: bool, raw: bool = False, decode: bool = False) -> None:
        self._as_json = as_json
        self._decode = decode
        self._raw = raw
        self.count = 0

    def print(self, message: ReceivedMessage) -> None:
        self.count += 1
        if self._as_json:
            print_json(message.describe(decode=self._decode))
        elif self._raw:
            sys.stdout.buffer.write(message.body)
        else:
            self._print_for_people(message)

    def print_all(self, messages: Iterable[ReceivedMessage]) -> None:
        """Prints all messages. Returns once they are written. Raises OSError if they cannot be."""
        for message in messages:
            self.print(message)
        sys.stdout.flush()

    def _print_for_people(self, message: ReceivedMessage) -> None:
        if self.count > 1:
            sys.stdout.write("\n")
        sys.stdout.write(header_line(message) + "\n")
        text = message.text_or_none
        if self._decode:
            text = message.decoded()["body_text"]
            for line in _decoded_lines(message):
                sys.stdout.write(printable(line) + "\n")
        lines = _hex_lines(message.body) if text is None else text.splitlines()
        for line in lines:
            sys.stdout.write(printable(line) + "\n")


def header_line(message: ReceivedMessage) -> str:
    """One line about a message: label, class, kind, size, time, ids."""
    facts = [
        printable(message.label) or "(no label)",
        *([message.class_name] if message.message_class else []),
        f"{message.delivery}, priority {message.priority}",
        count_text(len(message.body), "byte"),
        f"sent {message.sent_at:%Y-%m-%d %H:%M:%S}Z",
        message.id,
        f"lookup {message.lookup_id}",
    ]
    return "-- " + " | ".join(facts)


def _decoded_lines(message: ReceivedMessage) -> list[str]:
    """What wrote the message, its type and its headers, one a line."""
    found = message.decoded()
    facts = [
        ("body", found["body_kind"]),
        *((name, found[name]) for name in ("system", "message_type") if name in found),
    ]
    if "body_text_cut" in found:
        facts.append(("body_text", "cut"))
    return [f"{name}: {value}" for name, value in (*facts, *found["headers"].items())] + [""]


def _hex_lines(body: bytes) -> list[str]:
    lines = hex_lines(body[:MAX_HEX_BYTES])
    if len(body) > MAX_HEX_BYTES:
        lines.append(f"... {len(body)} bytes; --json or --raw print all")
    return lines


# Lines for people: coloured on a terminal, plain elsewhere, and never with raw text from outside.
#
# The commands decide what the lines say.


Span = tuple[str, str]  # text and its style, "" for none
Line = list[Span]

HEX_WIDTH = 16
TITLE, HEADING, FAINT, FAULT, PLAIN = "bold cyan", "bold", "dim", "bold red", ""


def printable(text: str) -> str:
    r"""The text with unprintable characters written as \x1b, \u202e and so on, so that no terminal acts on them."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def hex_lines(data: bytes) -> list[str]:
    """Lines of sixteen bytes in hex, with their characters."""
    lines = []
    for start in range(0, len(data), HEX_WIDTH):
        row = data[start : start + HEX_WIDTH]
        characters = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in row)
        lines.append(f"{start:04x}  {row.hex(' '):<{3 * HEX_WIDTH}} {characters}")
    return lines


def block_writer(output: TextIO) -> Callable[[Iterable[Line]], None]:
    """A function that writes a block of lines and an empty line. `rich` is imported only if its colours will be
    seen."""
    if output.isatty() or os.environ.get("FORCE_COLOR"):
        return _rich_writer(output)

    def write(lines: Iterable[Line]) -> None:
        for line in lines:
            output.write("".join(text for text, _ in line).rstrip() + "\n")
        output.write("\n")

    return write


def _rich_writer(output: TextIO) -> Callable[[Iterable[Line]], None]:
    from rich.console import Console
    from rich.text import Text

    console = Console(file=output, highlight=False, soft_wrap=True)

    def write(lines: Iterable[Line]) -> None:
        block = Text()
        for line in lines:
            for text, style in line:
                block.append(text, style)
            block.append("\n")
        console.print(block)

    return write


# How a command ends: exit codes, and one line on stderr that says why.


class ExitCode(IntEnum):
    """The exit codes that scripts can rely on."""

    DONE = 0
    FAILED = 1  # the operation failed, or succeeded only in part
    USAGE = 2  # the command line or the configuration is wrong
    TIMEOUT = 3  # no message came in time
    ALERT = 4  # done, and a figure is above a threshold that was given


def report(sentence: str) -> None:
    """Prints one line on stderr."""
    print(f"postroad: {printable(' '.join(sentence.split()))}", file=sys.stderr)


def fail(sentence: str, code: ExitCode) -> NoReturn:
    report(sentence)
    raise typer.Exit(code)


# A progress bar on stderr. It appears only on a terminal, and only for work that takes longer than a second.


PATIENCE_S = 1.0


class Bar:
    """A progress bar: `with Bar("moving", total) as bar: ... bar.advance(n)`. A total of None is unknown."""

    def __init__(self, what: str, total: int | None) -> None:
        self.done = 0
        self._what = what
        self.total = total
        self._started = time.monotonic()
        self._progress: Progress | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._progress is not None:
            self._progress.stop()

    def advance(self, count: int) -> None:
        self.done += count
        if self._progress is None and time.monotonic() - self._started > PATIENCE_S and sys.stderr.isatty():
            self._show()
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, completed=self.done)

    def _show(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=Console(file=sys.stderr),
            transient=True,
        )
        self._task = self._progress.add_task(self._what, total=self.total)
        self._progress.start()
