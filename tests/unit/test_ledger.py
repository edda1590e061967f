"""The ledger plugin, run on small suites of its own: which rows it calls covered, and which mistakes it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.ledger import read_ledger
from tests.ledger_page import Entry, Row, Verdict, render

HEADER = "id,section,level,role,requirement,check"
INI = "[pytest]\nmarkers = spec(*ids): rows\naddopts = --strict-markers\n"


class Suite:
    """A project with a ledger of four rows in two specifications, and the tests of one case."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        self.pytester = pytester
        pytester.makeini(INI)
        self.write(
            "mqqb.csv",
            HEADER,
            'QB-2.1-01,2.1,MUST,codec,"A first, plain rule.",look',
            "QB-2.1-02,2.1,SHOULD,sender,A | rule of <to> and a_b.,look",
            "QB-3.1.5.8.1-01,3.1.5.8.1,MUST,sender,A deep rule.,look",
        )
        self.write("mqbr.csv", HEADER, "BR-1.3-01,1.3,MUST,router,A routing rule.,look")
        self.write("waived.csv", "id,reason")

    def write(self, name: str, *lines: str) -> None:
        path = self.pytester.path / "conformance" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")

    def run(self, source: str, *arguments: str) -> pytest.RunResult:
        self.pytester.makepyfile(test_it="import pytest\n" + source)
        return self.pytester.runpytest_inprocess("-p", "tests.ledger", "--conformance=out/page.md", *arguments)

    @property
    def page(self) -> Path:
        return self.pytester.path / "out" / "page.md"

    def line(self, row_id: str) -> str:
        return next(line for line in self.page.read_text(encoding="utf-8").splitlines() if f"| {row_id} |" in line)


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Suite:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))  # of runs in processes of their own
    return Suite(pytester)


def marked(row_id: str, name: str, body: str, *decorators: str) -> str:
    return "\n".join([*decorators, f'@pytest.mark.spec("{row_id}")', f"def {name}():", f"    {body}", ""])


def test_a_row_is_covered_by_a_passing_test_and_the_page_names_it(suite: Suite) -> None:
    result = suite.run(marked("QB-2.1-01", "test_plain", "pass"))
    assert result.ret == pytest.ExitCode.OK
    assert suite.line("QB-2.1-01") == "| QB-2.1-01 | MUST | A first, plain rule. | `test_it.py::test_plain` |"
    assert suite.line("QB-2.1-02").endswith("| open |")


def test_a_row_is_open_unless_every_test_that_carries_it_passed(suite: Suite) -> None:
    result = suite.run(
        marked("QB-2.1-01", "test_good", "pass") + marked("QB-2.1-01", "test_bad", "assert False"),
    )
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert suite.line("QB-2.1-01").endswith("| open |")
    assert "**Tests failed in the run that wrote this page**" in suite.page.read_text(encoding="utf-8")
    assert "`test_it.py::test_bad`" in suite.page.read_text(encoding="utf-8")
    result.stdout.fnmatch_lines(["1 tests failed: the rows they carry count as open"])


@pytest.mark.parametrize(
    ("decorator", "body"),
    [
        ("@pytest.mark.skip", "pass"),
        ("@pytest.mark.xfail", "assert False"),
        ("@pytest.mark.xfail", "pass"),
        ("@pytest.mark.usefixtures('breaks_at_the_end')", "pass"),
    ],
)
def test_skipped_expected_and_late_failures_cover_nothing(suite: Suite, decorator: str, body: str) -> None:
    fixture = "@pytest.fixture\ndef breaks_at_the_end():\n    yield\n    raise ValueError\n"
    suite.run(fixture + marked("QB-2.1-01", "test_plain", body, decorator))
    assert suite.line("QB-2.1-01").endswith("| open |")


@pytest.mark.parametrize(("body", "outcome"), [("pytest.skip('no domain controller')", 0), ("assert False", 1)])
def test_a_page_is_compared_also_where_a_component_is_missing(suite: Suite, body: str, outcome: int) -> None:
    suite.run(marked("QB-2.1-01", "test_plain", "pass"))
    suite.pytester.makepyfile(test_it="import pytest\n" + marked("QB-2.1-01", "test_plain", body))
    result = suite.pytester.runpytest_inprocess("-p", "tests.ledger", "--conformance-check=out/page.md")
    assert result.ret == outcome


def test_a_test_that_was_not_selected_leaves_its_row_open(suite: Suite) -> None:
    suite.run(marked("QB-2.1-01", "test_one", "pass") + marked("QB-2.1-01", "test_two", "pass"), "-k", "one")
    assert suite.line("QB-2.1-01").endswith("| open |")


def test_the_cases_of_one_test_are_named_once_and_must_all_pass(suite: Suite) -> None:
    cases = "@pytest.mark.parametrize('n', [1, 2])"
    source = f'{cases}\n@pytest.mark.spec("QB-2.1-01", "BR-1.3-01")\ndef test_case(n):\n    assert n'
    suite.run(source)
    assert suite.line("QB-2.1-01").endswith("| `test_it.py::test_case` |")
    assert suite.line("BR-1.3-01").endswith("| `test_it.py::test_case` |")
    suite.run(source + " == 1")
    assert suite.line("QB-2.1-01").endswith("| open |")


def test_a_waived_row_shows_its_reason(suite: Suite) -> None:
    suite.write("waived.csv", "id,reason", '"QB-2.1-01","no such hardware, here"')
    suite.run("def test_nothing(): pass")
    assert suite.line("QB-2.1-01").endswith("| waived: no such hardware, here |")


def test_a_row_that_deviates_shows_its_reason_and_its_tests_have_to_pass(suite: Suite) -> None:
    suite.write("deviations.csv", "id,reason", '"QB-2.1-01","one session is enough"', "BR-1.3-01,why")
    suite.run(marked("QB-2.1-01", "test_instead", "pass"))
    assert suite.line("QB-2.1-01").endswith("| deviates: one session is enough |")
    assert suite.line("BR-1.3-01").endswith("| deviates: why |")
    suite.run(marked("QB-2.1-01", "test_instead", "assert False"))
    assert suite.line("QB-2.1-01").endswith("| open |")


def test_counts_per_specification_and_role_on_the_page_and_the_terminal(suite: Suite) -> None:
    suite.write("waived.csv", "id,reason", "QB-2.1-02,why")
    suite.write("deviations.csv", "id,reason", "BR-1.3-01,why")
    result = suite.run(marked("QB-2.1-01", "test_plain", "pass"))
    text = suite.page.read_text(encoding="utf-8")
    assert "| **MS-MQQB** | **all** | 3 | 1 | 0 | 1 | 1 | 33.3 |" in text
    assert "|  | codec | 1 | 1 | 0 | 0 | 0 | 100.0 |" in text
    assert "|  | sender | 2 | 0 | 0 | 1 | 1 | 0.0 |" in text
    assert "| **all** | **all** | 4 | 1 | 1 | 1 | 1 | 25.0 |" in text
    result.stdout.fnmatch_lines(
        [
            "MS-MQQB *1 of *3 covered (33.3 %), 0 deviates, 1 waived, 1 open",
            "MS-MQBR *0 of *1 covered (0.0 %), 1 deviates, 0 waived, 0 open",
            "all *1 of *4 covered (25.0 %), 1 deviates, 1 waived, 1 open",
            "written to out/page.md",
        ]
    )


def test_without_the_option_nothing_is_written_or_printed(suite: Suite) -> None:
    suite.pytester.makepyfile(test_it="def test_nothing(): pass")
    result = suite.pytester.runpytest_inprocess("-p", "tests.ledger")
    assert result.ret == pytest.ExitCode.OK
    result.stdout.no_fnmatch_line("*conformance*")
    assert not suite.page.exists()


def test_two_runs_write_the_same_bytes(suite: Suite) -> None:
    source = marked("QB-2.1-01", "test_plain", "pass") + marked("QB-2.1-01", "test_again", "pass")
    suite.run(source)
    first = suite.page.read_bytes()
    suite.run(source, "-p", "no:randomly")
    assert suite.page.read_bytes() == first
    assert suite.line("QB-2.1-01").endswith("| `test_it.py::test_again` and 1 more |")


def test_an_unknown_id_stops_the_run_and_names_the_test(suite: Suite) -> None:
    result = suite.run(marked("QB-9-99", "test_stray", "pass"))
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*test_it.py::test_stray: 'QB-9-99' is no row of conformance/[*].csv"])


@pytest.mark.parametrize("arguments", ["", "1", "id='QB-2.1-01'", "['QB-2.1-01']"])
def test_a_mark_holds_ids_and_nothing_else(suite: Suite, arguments: str) -> None:
    result = suite.run(f"@pytest.mark.spec({arguments})\ndef test_odd(): pass")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*test_it.py::test_odd: *"])


def test_a_waived_row_may_not_be_carried(suite: Suite) -> None:
    suite.write("waived.csv", "id,reason", "QB-2.1-01,why")
    result = suite.run(marked("QB-2.1-01", "test_plain", "pass"))
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*test_it.py::test_plain: QB-2.1-01 is waived*"])


@pytest.mark.parametrize(
    ("name", "lines", "fault"),
    [
        ("waived.csv", ["id,reason", "QB-9-99,why"], "waived.csv:2: 'QB-9-99' is no row of"),
        ("waived.csv", ["id,reason", "QB-2.1-01,why", "QB-2.1-01,why"], "waived.csv:3: QB-2.1-01 is there twice"),
        ("waived.csv", ["id,reason", "QB-2.1-01,"], "waived.csv:2: QB-2.1-01 has no reason"),
        ("waived.csv", ["id;reason"], "waived.csv:1: the columns must be id,reason"),
        ("deviations.csv", ["id,reason", "QB-9-99,why"], "deviations.csv:2: 'QB-9-99' is no row of"),
        ("deviations.csv", ["id,reason", "BR-1.3-01,why"], "BR-1.3-01 is in waived.csv and in deviations.csv"),
        ("mqxx.csv", [HEADER, "QB-2.1-01,2.1,MUST,codec,rule,look"], "mqxx.csv:2: QB-2.1-01 is there twice"),
        ("mqxx.csv", [HEADER, ",2.1,MUST,codec,rule,look"], "mqxx.csv:2: a row without an id"),
        ("mqxx.csv", [HEADER, "XX-1,2.1,MUST,codec,rule"], "mqxx.csv:2: 5 cells where there must be 6"),
    ],
)
def test_a_ledger_that_does_not_add_up_is_refused(suite: Suite, name: str, lines: list[str], fault: str) -> None:
    suite.write("waived.csv", "id,reason", "BR-1.3-01,why")
    suite.write(name, *lines)
    with pytest.raises(pytest.UsageError) as caught:
        read_ledger(suite.pytester.path / "conformance")
    assert fault in str(caught.value)
    assert suite.run("def test_nothing(): pass").ret == pytest.ExitCode.USAGE_ERROR


def test_a_run_that_cannot_read_its_tests_writes_no_page(suite: Suite) -> None:
    result = suite.run("raise ValueError")
    assert not suite.page.exists()
    result.stdout.fnmatch_lines(["out/page.md is not written: the run did not complete"])


@pytest.mark.parametrize("workers", [(), ("-n", "2")])
def test_a_check_passes_while_the_page_is_that_of_the_run(suite: Suite, workers: tuple[str, ...]) -> None:
    suite.run(marked("QB-2.1-01", "test_plain", "pass"))
    before = suite.page.read_bytes()
    result = suite.pytester.runpytest_subprocess("-p", "tests.ledger", "--conformance-check=out/page.md", *workers)
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["out/page.md is up to date", "*1 passed in *"])
    assert suite.page.read_bytes() == before


@pytest.mark.parametrize("workers", [(), ("-n", "2")])
def test_a_check_fails_where_the_page_differs_and_shows_the_rows(suite: Suite, workers: tuple[str, ...]) -> None:
    suite.run(marked("QB-2.1-01", "test_plain", "pass"))
    before = suite.page.read_bytes()
    suite.pytester.makepyfile(test_it="import pytest\n" + marked("QB-2.1-02", "test_other", "pass"))
    result = suite.pytester.runpytest_subprocess("-p", "tests.ledger", "--conformance-check=out/page.md", *workers)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["-| QB-2.1-01 |*", "+| QB-2.1-01 |*| open |", "ERROR: out/page.md is out of date.*"])
    result.stdout.fnmatch_lines(["*1 passed in *"])
    assert suite.page.read_bytes() == before


def test_runs_of_parts_of_the_tests_can_be_joined(suite: Suite) -> None:
    source = marked("QB-2.1-01", "test_one", "pass") + marked("QB-2.1-01", "test_two", "pass")
    for name, ending in (("one", "| open |"), ("two", "| `test_it.py::test_one` and 1 more |")):
        suite.run(source, "-k", name, "--conformance-passed=passed.txt")
        assert suite.line("QB-2.1-01").endswith(ending)
    suite.run(source.replace("pass", "assert False"), "-k", "one", "--conformance-passed=passed.txt")
    assert suite.line("QB-2.1-01").endswith("| open |")
    assert suite.pytester.path.joinpath("passed.txt").read_text() == "test_it.py::test_two\n"


def test_a_check_fails_without_a_page(suite: Suite) -> None:
    suite.pytester.makepyfile(test_it="def test_nothing(): pass")
    result = suite.pytester.runpytest_inprocess("-p", "tests.ledger", "--conformance-check=out/page.md")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert not suite.page.exists()


def test_a_run_either_writes_the_page_or_checks_it(suite: Suite) -> None:
    result = suite.run("def test_nothing(): pass", "--conformance-check=out/page.md")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--conformance and --conformance-check exclude each other"])


def entries_of(*sections: str) -> list[Entry]:
    rows = (Row(f"QB-{section}-01", "mqqb", section, "MUST", "codec", "rule") for section in sections)
    return [Entry(row, Verdict.OPEN) for row in rows]


def test_sections_stand_in_the_order_of_the_book_three_levels_deep() -> None:
    text = render(entries_of("3.1.5.10", "3.1.5.9.2", "2.2", "3.1.6"), [])
    assert [line for line in text.splitlines() if line.startswith("<summary>")] == [
        "<summary>2.2: 1 open</summary>",
        "<summary>3.1.5: 2 open</summary>",
        "<summary>3.1.6: 1 open</summary>",
    ]
    assert text.index("QB-3.1.5.9.2-01") < text.index("QB-3.1.5.10-01")


def test_what_a_table_cell_would_swallow_is_escaped_and_a_long_rule_is_cut_at_a_word() -> None:
    def cell(requirement: str) -> str:
        row = Row("QB-2.1-01", "mqqb", "2.1", "MUST", "codec", requirement)
        return next(line for line in render([Entry(row, Verdict.OPEN)], []).splitlines() if "QB-2.1-01" in line)

    assert cell(r"A | rule of <to> in .\private$\a_b.") == (
        r"| QB-2.1-01 | MUST | A \| rule of &lt;to&gt; in .\\private$\\a\_b. | open |"
    )
    assert cell("word, " * 40) == "| QB-2.1-01 | MUST | " + ", ".join(["word"] * 13) + " … | open |"


def test_the_page_of_this_project_stays_small_even_when_every_row_is_covered() -> None:
    ledger = read_ledger(Path(__file__).parents[2] / "conformance")
    name = "tests/unit/test_some_topic.py::test_a_name_of_the_usual_length_that_says_what"
    text = render([Entry(row, Verdict.COVERED, (name,)) for row in ledger.rows.values()], [])
    assert len(ledger.rows) > 2000
    assert len(text.encode()) < 400_000


def test_rows_are_covered_whichever_process_ran_their_tests(suite: Suite) -> None:
    tests = [marked("QB-2.1-01", f"test_{number}", "pass") for number in range(4)]
    suite.pytester.makepyfile(test_it="import pytest\n" + "\n".join(tests))
    suite.pytester.runpytest_subprocess("-p", "tests.ledger", "--conformance=out/page.md", "-n", "2").assert_outcomes(
        passed=4
    )
    assert suite.line("QB-2.1-01").endswith("and 3 more |")
