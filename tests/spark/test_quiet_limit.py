"""A query that wants a few of many rows prints no traceback, neither in the driver's log nor in a worker's."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.served import Served
from tests.spark.conftest import FAST, MASTER
from tests.spark.driver import options

MESSAGES, BODY = 300, 200_000  # more than Spark takes before it has ten rows

PROGRAM = """
import json, sys
from postroad.spark import session
given, settings, master = (json.loads(text) for text in sys.argv[1:])
spark = session("limit", master, settings=settings | {"spark.log.level": "WARN"})
frame = spark.read.format("postroad").options(**given).load()
frame.limit(10).show()
spark.stop()
"""


def test_a_limit_prints_no_traceback(alpha: Served, tmp_path: Path) -> None:
    for _ in range(0, MESSAGES, 20):
        alpha.send(*["x" * BODY] * 20)
    directories = {"spark.local.dir": str(tmp_path / "local"), "spark.sql.warehouse.dir": str(tmp_path / "warehouse")}
    arguments = [json.dumps(each) for each in (options(alpha, partitions=1), {**FAST, **directories}, MASTER)]
    done = subprocess.run([sys.executable, "-c", PROGRAM, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("|") > 10
    for word in ("Traceback", "BrokenPipe", "Exception"):
        assert word not in done.stderr, done.stderr
