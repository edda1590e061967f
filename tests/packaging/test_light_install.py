"""`make test` installs no Spark: the tests that it runs are found without it."""

from __future__ import annotations

import subprocess
import sys

from tests.packaging.checkers import ROOT

PROGRAM = """
import sys, pytest
sys.modules["pyspark"] = None  # an import fails, as where it is not installed
sys.exit(pytest.main(["--collect-only", "-q", "-m", "not slow", "-p", "no:cacheprovider"]))
"""


def test_the_fast_tests_are_collected_without_spark() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    assert "tests/unit/test_rooms.py" in done.stdout
    assert "tests/unit/test_lake_files.py" not in done.stdout
