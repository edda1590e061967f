"""The ledger, a pytest plugin: which rows of conformance/*.csv are covered by tests that pass.

It reads rows, waivers, deviations and marks, judges them after the run, and prints the totals. It does not know what a
row means, and only `tests.ledger_page` knows the form of the page. `--conformance` writes the page.
`--conformance-check` compares it with the run, and fails the run if they differ. `--conformance-passed` joins several
runs, each with a part of the tests.
"""

from __future__ import annotations

import csv
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import unified_diff
from pathlib import Path

import pytest

from tests.ledger_page import Entry, Row, Verdict, render, totals_lines

ROW_COLUMNS = ("id", "section", "level", "role", "requirement", "check")
REASON_COLUMNS = ("id", "reason")
WAIVERS = "waived.csv"  # rules that do not apply to us
DEVIATIONS = "deviations.csv"  # rules that apply, and that we break on purpose
DIFFERENCES_SHOWN = 40


@dataclass(frozen=True, slots=True)
class Ledger:
    """What the conformance directory holds."""

    rows: dict[str, Row]
    waivers: dict[str, str]
    deviations: dict[str, str]


def read_ledger(directory: Path) -> Ledger:
    """Reads every row, waiver and deviation. Raises one UsageError that lists everything that is wrong."""
    rows: dict[str, Row] = {}
    faults: list[str] = []
    for path in sorted(directory.glob("*.csv")):
        if path.name in (WAIVERS, DEVIATIONS):
            continue
        for place, cells in _read_csv(path, ROW_COLUMNS):
            if not cells["id"]:
                faults.append(f"{place}: a row without an id")
            elif cells["id"] in rows:
                faults.append(f"{place}: {cells['id']} is there twice")
            else:
                rows[cells["id"]] = Row(spec=path.stem, **{key: cells[key] for key in ROW_COLUMNS[:-1]})
    waivers = _read_reasons(directory / WAIVERS, rows, faults)
    deviations = _read_reasons(directory / DEVIATIONS, rows, faults)
    faults.extend(f"{row_id} is in {WAIVERS} and in {DEVIATIONS}" for row_id in waivers if row_id in deviations)
    _raise_if_any(faults)
    return Ledger(rows, waivers, deviations)


def _read_reasons(path: Path, rows: Container[str], faults: list[str]) -> dict[str, str]:
    reasons: dict[str, str] = {}
    for place, cells in _read_csv(path, REASON_COLUMNS) if path.exists() else ():
        if cells["id"] not in rows:
            faults.append(f"{place}: {cells['id']!r} is no row of conformance/*.csv")
        elif cells["id"] in reasons:
            faults.append(f"{place}: {cells['id']} is there twice")
        elif not cells["reason"]:
            faults.append(f"{place}: {cells['id']} has no reason")
        else:
            reasons[cells["id"]] = cells["reason"]
    return reasons


def _read_csv(path: Path, columns: Sequence[str]) -> Iterator[tuple[str, dict[str, str]]]:
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.reader(file)
        if tuple(next(reader, ())) != tuple(columns):
            raise pytest.UsageError(f"{path.name}:1: the columns must be {','.join(columns)}")
        for cells in reader:
            place = f"{path.name}:{reader.line_num}"
            if len(cells) != len(columns):
                raise pytest.UsageError(f"{place}: {len(cells)} cells where there must be {len(columns)}")
            yield place, {column: cell.strip() for column, cell in zip(columns, cells, strict=True)}


def _raise_if_any(faults: Sequence[str]) -> None:
    if faults:
        raise pytest.UsageError("the conformance ledger does not add up:\n  " + "\n  ".join(faults))


def read_marks(items: Iterable[pytest.Item], ledger: Ledger) -> dict[str, list[str]]:
    """The tests that carry each row, by node id. Raises one UsageError that lists every bad mark."""
    carriers: dict[str, list[str]] = {}
    faults: list[str] = []
    for item in items:
        for mark in item.iter_markers("spec"):
            if not mark.args or mark.kwargs:
                faults.append(f"{item.nodeid}: a spec mark takes the ids of rows, and nothing else")
            for row_id in mark.args:
                if not isinstance(row_id, str) or row_id not in ledger.rows:
                    faults.append(f"{item.nodeid}: {row_id!r} is no row of conformance/*.csv")
                elif row_id in ledger.waivers:
                    faults.append(f"{item.nodeid}: {row_id} is waived in {WAIVERS}, so no test may carry it")
                elif item.nodeid not in carriers.setdefault(row_id, []):
                    carriers[row_id].append(item.nodeid)
    _raise_if_any(faults)
    return carriers


def judge(ledger: Ledger, carriers: dict[str, list[str]], passed: set[str]) -> list[Entry]:
    """One entry for each row, in the ledger's order. A row is covered only if every test that carries it passed.

    A row that we break on purpose may have tests of what we do instead. These must pass too.
    """
    entries = []
    for row in ledger.rows.values():
        tests = carriers.get(row.id, [])
        if row.id in ledger.waivers:
            entries.append(Entry(row, Verdict.WAIVED, (ledger.waivers[row.id],)))
        elif row.id in ledger.deviations and passed.issuperset(tests):
            entries.append(Entry(row, Verdict.DEVIATES, (ledger.deviations[row.id],)))
        elif tests and passed.issuperset(tests):
            entries.append(Entry(row, Verdict.COVERED, tuple(sorted({_without_parameters(test) for test in tests}))))
        else:
            entries.append(Entry(row, Verdict.OPEN))
    return entries


def _without_parameters(nodeid: str) -> str:
    return nodeid.partition("[")[0]


class LedgerPlugin:
    """Lives for one run: collects the marks, records the outcomes, and writes the page at the end."""

    def __init__(self, config: pytest.Config) -> None:
        self.ledger = read_ledger(config.rootpath / "conformance")
        self.carriers: dict[str, list[str]] = {}
        self.passed: set[str] = set()
        self.failed: set[str] = set()
        self.unreadable: set[str] = set()
        written, checked = config.getoption("--conformance"), config.getoption("--conformance-check")
        if written is not None and checked is not None:
            raise pytest.UsageError("--conformance and --conformance-check exclude each other")
        self.checks = checked is not None
        self.option: str | None = checked if self.checks else written
        self.page = None if self.option is None else config.invocation_params.dir / self.option
        earlier: str | None = config.getoption("--conformance-passed")
        self.earlier = None if earlier is None else config.invocation_params.dir / earlier
        if self.earlier is not None and self.earlier.exists():
            self.passed.update(self.earlier.read_text(encoding="utf-8").splitlines())
        # A page is written where every component is installed, such as a domain controller. Where one is missing, the
        # page is still compared: a skipped test counts as passed, as when the page was written.
        self.lenient = self.checks or (self.earlier is not None and written is None)
        self.differences: list[str] = []
        self.complete = False
        # xdist collects in its workers, and each reports what it found when it ends.
        self.told: dict[str, object] | None = getattr(config, "workeroutput", None)

    # Run first, so that tests that -k or -m removes still count as carriers that did not pass.
    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        self.carriers = read_marks(items, self.ledger)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object) -> None:
        self.carriers = getattr(node, "workeroutput", {}).get("carriers", self.carriers)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.unreadable.add(report.nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.add(report.nodeid)
        elif hasattr(report, "wasxfail"):
            pass
        elif (report.when == "call" and report.passed) or (report.skipped and self.lenient):
            self.passed.add(report.nodeid)

    def entries(self) -> list[Entry]:
        return judge(self.ledger, self.carriers, self.passed - self.failed)

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if self.told is not None:
            self.told["carriers"] = self.carriers
            return
        # An interrupted run does not know which rows are open.
        self.complete = exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED) and not self.unreadable
        if self.earlier is not None and self.complete:
            self.earlier.write_text(
                "".join(f"{each}\n" for each in sorted(self.passed - self.failed)), encoding="utf-8"
            )
        if self.page is None or not self.complete:
            return
        text = render(self.entries(), sorted({_without_parameters(test) for test in self.failed}))
        if self.checks:
            self.differences = _differences(self.page, text)
            if self.differences:
                session.exitstatus = pytest.ExitCode.TESTS_FAILED
        else:
            self.page.parent.mkdir(parents=True, exist_ok=True)
            self.page.write_text(text, encoding="utf-8", newline="\n")

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.page is None:
            return
        terminalreporter.section("conformance")
        if not self.complete:
            done = "compared" if self.checks else "written"
            terminalreporter.write_line(f"{self.option} is not {done}: the run did not complete")
            return
        for line in totals_lines(self.entries()):
            terminalreporter.write_line(line)
        if self.failed:
            terminalreporter.write_line(f"{len(self.failed)} tests failed: the rows they carry count as open")
        if not self.checks:
            terminalreporter.write_line(f"written to {self.option}")
        elif not self.differences:
            terminalreporter.write_line(f"{self.option} is up to date")
        else:
            for line in self.differences[:DIFFERENCES_SHOWN]:
                terminalreporter.write_line(line)
            if len(self.differences) > DIFFERENCES_SHOWN:
                terminalreporter.write_line(f"... and {len(self.differences) - DIFFERENCES_SHOWN} more lines")
            terminalreporter.write_line(f"ERROR: {self.option} is out of date. Run `make conformance` and commit it.")


def _differences(page: Path, wanted: str) -> list[str]:
    """The lines that differ, as `diff -U0` prints them. Empty if the page is up to date."""
    found = page.read_text(encoding="utf-8") if page.exists() else ""
    return list(unified_diff(found.splitlines(), wanted.splitlines(), str(page), "this run", lineterm="", n=0))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--conformance", metavar="PATH", help="write the conformance ledger to PATH after the run")
    parser.addoption("--conformance-check", metavar="PATH", help="fail if the ledger in PATH is not that of this run")
    parser.addoption(
        "--conformance-passed",
        metavar="PATH",
        help="count the tests listed in PATH as passed, and add those of this run",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(LedgerPlugin(config), "postroad-ledger")
