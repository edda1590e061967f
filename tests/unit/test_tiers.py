"""What `make test` leaves out, and what it must include."""

from __future__ import annotations

import pytest

from tests import tiers
from tests.tiers import LONG, LONGEST, SLOW, SPARK, TESTS, is_slow, order, scope

DAILY = ("acceptance/test_serve.py", "acceptance/test_network.py", "integration/test_kill.py", "unit/test_tiers.py")


@pytest.mark.parametrize("name", SLOW)
def test_every_line_of_the_table_names_tests_and_says_why(name: str) -> None:
    assert (TESTS / name).exists()
    assert SLOW[name]
    assert is_slow(TESTS / name)


@pytest.mark.parametrize("name", LONG)
def test_every_long_test_is_there(name: str) -> None:
    file, _, function = name.partition("::")
    assert f"def {function}(" in (TESTS / file).read_text(encoding="utf-8")
    assert LONG[name]


def test_a_directory_stands_for_its_files() -> None:
    assert is_slow(TESTS / "spark" / "test_tables.py")


@pytest.mark.parametrize("name", DAILY)
def test_the_promises_of_processes_are_checked_daily(name: str) -> None:
    assert (TESTS / name).exists()
    assert not is_slow(TESTS / name)


@pytest.mark.parametrize("name", LONGEST)
def test_the_longest_files_start_first(name: str) -> None:
    assert is_slow(TESTS / name)
    assert order(TESTS / name) < order(TESTS / "acceptance" / "test_api.py") == order(TESTS.parent / "test_other.py")


def test_files_that_use_the_spark_session_go_to_one_worker() -> None:
    assert scope("tests/spark/test_session.py") == scope("tests/spark/test_pipeline.py")
    alone = ("tests/spark/test_cluster.py", "tests/spark/test_report.py", "tests/unit/test_tiers.py")
    assert [scope(file) for file in alone] == list(alone)


def test_a_parallel_run_asks_for_the_scopes(pytester: pytest.Pytester) -> None:
    pytester.makeconftest("""
        import pytest
        pytest_plugins = ["tests.tiers"]

        @pytest.hookimpl(wrapper=True, tryfirst=True)
        def pytest_xdist_make_scheduler():
            made = yield
            print(made._split_scope("tests/spark/test_session.py::test_a"))
            return made
    """)
    pytester.makepyfile("def test_a() -> None: ...")
    run = pytester.runpytest_inprocess("-n", "1", "--dist", "loadfile", "-s")
    run.assert_outcomes(passed=1)
    run.stdout.fnmatch_lines([scope("tests/spark/test_session.py")])


def test_a_slow_test_carries_the_mark(pytestconfig: pytest.Config) -> None:
    assert pytestconfig.pluginmanager.has_plugin(tiers.__name__)


def test_without_spark_what_imports_it_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    assert all((TESTS / name).exists() for name in SPARK)
    monkeypatch.setattr(tiers, "HAS_SPARK", False)
    assert all(tiers.pytest_ignore_collect(TESTS / name) for name in SPARK)
    assert not tiers.pytest_ignore_collect(TESTS / "unit/test_tiers.py")
    assert "make install" in (tiers.pytest_report_header() or "")
