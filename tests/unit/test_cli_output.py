"""Tables for people. In a file or a pipe they are plain lines, which come out while rows still come in."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import redirect_stdout
from io import StringIO

import pytest

from postroad.cli import main
from postroad.cli.output import ExitCode, print_table
from postroad.cli.queue import print_queues
from postroad.reports.info import QueueInfo


def printed(columns: Sequence[str], rows: Iterable[Sequence[object]], numbers: Sequence[str] = ()) -> list[str]:
    with redirect_stdout(StringIO()) as output:
        print_table(columns, rows, numbers=numbers)
    return output.getvalue().splitlines()


def test_columns_are_as_wide_as_their_cells_and_numbers_stand_at_the_right() -> None:
    assert printed(("name", "size"), [("a", 5), ("longer", None), ("esc\x1b", True)], numbers=("size",)) == [
        "name     size",
        "a           5",
        "longer      -",
        "esc\\x1b   yes",
    ]


def test_a_table_without_rows_has_its_titles() -> None:
    assert printed(("name", "size"), []) == ["name  size"]


def test_rows_are_printed_while_others_are_still_to_come() -> None:
    seen = 0

    def rows() -> Iterator[tuple[int]]:
        nonlocal seen
        for number in range(5000):
            assert isinstance(sys.stdout, StringIO)
            seen = sys.stdout.getvalue().count("\n")
            yield (number,)

    assert printed(("number",), rows()) == ["number", *map(str, range(5000))]
    assert seen >= 4000


def test_the_list_of_queues_does_not_repeat_the_name_of_an_outgoing_queue() -> None:
    name = r"DIRECT=TCP:10.0.0.5\private$\orders"
    outgoing = QueueInfo(
        path=name, format_name=name, id="", type="outgoing", label=name, messages=0, bytes=0, locked=0, readers=0,
        waiting=0, nearly_full=False, damaged=0, created_at_s=0, oldest_arrived_ms=None,
    )  # fmt: skip
    with redirect_stdout(StringIO()) as output:
        print_queues([outgoing])
    assert output.getvalue().count(name) == 1


def test_a_word_that_is_no_choice_is_told_with_the_choices(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["log-level", "nonsense"]) == ExitCode.USAGE
    told = "'nonsense' is not one of 'debug', 'info', 'warning', 'error'."
    assert capsys.readouterr().err == f"postroad: Invalid value for '[LEVEL]': {told}\n"
