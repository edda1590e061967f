"""`make test` installs no Spark: the tests that it runs are found without what it leaves out."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROGRAM = """
import sys, pytest
for name in ("altair", "deltalake", "playwright", "py4j", "pyiceberg", "pyspark", "scipy"):
    sys.modules[name] = None  # an import fails, as where it is not installed
sys.exit(pytest.main(["--collect-only", "-q", "-m", "not slow", "-p", "no:cacheprovider"]))
"""


def test_the_fast_tests_are_collected_without_spark() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    assert "tests/unit/test_rooms.py" in done.stdout
    assert "tests/unit/test_lake_files.py" not in done.stdout
