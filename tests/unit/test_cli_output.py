"""Tables for people: to a file or a pipe they are plain lines, which come out while rows still come in."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import redirect_stdout
from io import StringIO

from postroad.cli.output import print_table


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
