"""Timing and tables that the benchmarks share."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from rich.console import Console
from rich.table import Table

ROUNDS = 20
ROUND_S = 0.02


def best_of(function: Callable[[], object], rounds: int = ROUNDS, round_s: float = ROUND_S) -> float:
    """Seconds per call in the best round: noise on a shared machine only ever adds time.

    A round takes about `round_s`. The garbage collector is off meanwhile, as in `timeit`.
    """
    calls = 1
    while (elapsed := _time(function, calls)) < round_s / 4:
        calls *= 2
    calls = max(1, round(calls * round_s / elapsed))
    collecting = gc.isenabled()
    gc.disable()
    try:
        return min(_time(function, calls) for _ in range(rounds)) / calls
    finally:
        if collecting:
            gc.enable()


def _time(function: Callable[[], object], calls: int) -> float:
    repeat = range(calls)
    start = time.perf_counter()
    for _ in repeat:
        function()
    return time.perf_counter() - start


def process_cpu_s(pid: int) -> float:
    """Processor time of all threads that a process has now, in seconds."""
    found = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError):  # the thread has ended
            found += int((task / "schedstat").read_text().split()[0])
    return found / 1e9


def microseconds(seconds: float) -> str:
    return f"{seconds * 1e6:.2f}"


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], caption: str = "") -> None:
    """Prints a table. The first column is text, the others are numbers."""
    table = Table(title=title, caption=caption or None, title_justify="left", caption_justify="left")
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left", no_wrap=not number)
    for row in rows:
        table.add_row(*row)
    Console().print(table)
