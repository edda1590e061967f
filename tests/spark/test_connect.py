"""The examples for Spark Connect and Declarative Pipelines, as the reference has them, in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from postroad.spark.session import prepare
from tests.served import ORDERS, Served
from tests.spark.driver import options
from tests.spark.test_docs import BLOCK, REFERENCE

pytestmark = pytest.mark.skipif(find_spec("grpc") is None, reason="needs pip install 'pyspark[pipelines]'")
COPIES = "/api/v1/queues/private$/copies"
CLIENT = """
import postroad.spark
from pyspark.sql import SparkSession
{example}
given = {given!r}
assert [row.body_text for row in spark.read.format("postroad").options(**given).load().collect()] == ["a"]
stream = spark.readStream.format("postroad").options(**given, mode="consume").load().select("body")
writer = stream.writeStream.format("postroad").options(**given | {{"queue": r"private$\\copies"}})
query = writer.option("checkpointLocation", {checkpoint!r}).trigger(availableNow=True).start()
query.awaitTermination()
assert postroad.spark.metrics(query.lastProgress)[0]["backlog"] == 0
for name, value, sentence in (
    ("subscribe", "x", "subscribe: there is no such option; use `queue`"),
    ("queue", r"private$\\nowhere", "there is no queue"),
):
    try:
        spark.read.format("postroad").options(**given | {{name: value}}).load().collect()
        raise SystemExit("must fail")
    except Exception as fault:
        assert sentence in str(fault), fault
        assert len(str(fault).splitlines()) < 24, fault
"""
SPECIFICATION = """
name: copies
storage: file://{directory}/storage
libraries:
  - glob:
      include: definitions/**
"""


def example(word: str) -> str:
    """The block of the reference with a word."""
    (found,) = (block[1] for block in BLOCK.finditer(REFERENCE.read_text(encoding="utf-8")) if word in block[1])
    return found


def run(directory: Path, *command: str) -> None:
    prepare()
    done = subprocess.run(command, cwd=directory, env=os.environ, capture_output=True, text=True, check=False)
    # The client of pyspark 4.3.0 does not know an answer of its own server about Python sources.
    assert done.returncode == 0 or "[UNKNOWN_RESPONSE]" in done.stdout, done.stdout + done.stderr


@pytest.fixture(autouse=True)
def _message(alpha: Served) -> None:
    alpha.create(r"private$\copies")
    alpha.send("a", recoverable=True)


def test_a_client_of_a_server(alpha: Served, tmp_path: Path) -> None:
    program = tmp_path / "client.py"
    connected = example("serverStacktrace").replace("sc://server", "local[2]")
    given = options(alpha)
    program.write_text(CLIENT.format(example=connected, given=given, checkpoint=str(tmp_path / "checkpoint")))
    run(tmp_path, sys.executable, str(program))
    assert (alpha.bodies(COPIES), alpha.bodies()) == (["a"], [])


def test_a_declarative_pipeline(alpha: Served, tmp_path: Path) -> None:
    (tmp_path / "definitions").mkdir()
    definitions = example("dp.create_sink").replace("queue=r", f"api={options(alpha)['api']!r}, queue=r")
    definitions = definitions.replace('{"queue"', f'{{"api": {options(alpha)["api"]!r}, "queue"')
    (tmp_path / "definitions" / "copies.py").write_text(definitions)
    (tmp_path / "spark-pipeline.yml").write_text(SPECIFICATION.format(directory=tmp_path))
    command = str(Path(sys.executable).parent / "spark-pipelines")
    run(tmp_path, command, "run", "--conf", "spark.ui.enabled=false")
    assert alpha.bodies(COPIES) == ["a"]
    assert alpha.call("GET", ORDERS).json["messages"] in (0, 1), "the last batch is received at the next run"
