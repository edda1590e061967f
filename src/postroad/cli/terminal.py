"""Lines for people: coloured on a terminal, plain anywhere else, and never raw text from a stranger.

What the lines say is for the commands to decide.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import TextIO

Span = tuple[str, str]  # text and its style, "" for none
Line = list[Span]

HEX_WIDTH = 16
TITLE, HEADING, FAINT, FAULT, PLAIN = "bold cyan", "bold", "dim", "bold red", ""


def shown(text: str) -> str:
    r"""The text with everything that is not printable as \x1b, \u202e and so on: no terminal obeys it."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def hex_lines(data: bytes) -> list[str]:
    """Sixteen bytes a line, with the characters beside them."""
    lines = []
    for start in range(0, len(data), HEX_WIDTH):
        row = data[start : start + HEX_WIDTH]
        characters = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in row)
        lines.append(f"{start:04x}  {row.hex(' '):<{3 * HEX_WIDTH}} {characters}")
    return lines


def block_writer(output: TextIO) -> Callable[[Iterable[Line]], None]:
    """Writes some lines and an empty one a call. `rich` is loaded only where its colours will be seen."""
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
