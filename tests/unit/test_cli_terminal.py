"""Lines for people: plain in a pipe, coloured on a terminal, and harmless on both."""

from __future__ import annotations

from io import StringIO

import pytest

from postroad.cli.output import FAINT, FAULT, PLAIN, block_writer, printable

LINES = [[("1  ", FAINT), ("[bold]:smile:[/bold]", FAULT)], [("   field ", FAINT), ("value", PLAIN), ("  ", PLAIN)]]


@pytest.mark.parametrize(
    ("text", "harmless"),
    [
        ("plain, é and 😀", "plain, é and 😀"),
        ("\x1b[2J", "\\x1b[2J"),
        ("a\nb\tc\r", "a\\nb\\tc\\r"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("\x9b31m", "\\x9b31m"),
        ("\ud800", "\\ud800"),
    ],
)
def test_what_is_not_printable_is_escaped(text: str, harmless: str) -> None:
    assert printable(text) == harmless


def test_a_pipe_gets_plain_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    output = StringIO()
    block_writer(output)(LINES)
    assert output.getvalue() == "1  [bold]:smile:[/bold]\n   field value\n\n"


def test_a_terminal_gets_colours_and_no_markup_of_a_strangers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    output = StringIO()
    block_writer(output)(LINES)
    assert "\x1b[1;31m[bold]:smile:[/bold]\x1b[0m" in output.getvalue()
