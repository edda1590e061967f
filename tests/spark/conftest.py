"""One fast-starting Spark session for all tests that need one, and managers to read from and send to."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from postroad.spark import session
from tests.served import Served, served

HERE = Path(__file__).parent
# A failed task is retried up to three times. Plain local[2] never retries.
MASTER = "local[2,3]"
FAST = {
    "spark.ui.enabled": "false",
    # The tables have some hundred rows, for which a second task in each step costs more than it saves.
    "spark.sql.shuffle.partitions": "1",
    "spark.default.parallelism": "1",
    # They are also too small for compiled code. `postroad pipeline` uses the same settings for them.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.memory": "1g",
    "spark.log.level": "OFF",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
# Spark's defaults, for large tables.
LARGE = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.codegen.factoryMode": "FALLBACK",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Ignores unclosed sockets, because PySpark leaves those of its results to the garbage collector, which runs in
    later tests."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))


@pytest.fixture(scope="module", autouse=True)
def _no_socket_outlives_its_file() -> Iterator[None]:
    yield
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "unclosed <socket", ResourceWarning)
        gc.collect()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    scratch = tmp_path_factory.mktemp("spark")
    directories = {"spark.local.dir": str(scratch / "local"), "spark.sql.warehouse.dir": str(scratch / "warehouse")}
    running = session("tests", MASTER, settings={**FAST, **directories})
    yield running
    for query in running.streams.active:
        query.stop()
    running.stop()


@pytest.fixture(scope="module")
def as_if_large(spark: SparkSession) -> Iterator[None]:
    """For the tests of a file: compiles code for each query, and divides the rows of each step into two parts."""
    for key, value in LARGE.items():
        spark.conf.set(key, value)
    yield
    for key in LARGE:
        spark.conf.set(key, FAST[key])


@pytest.fixture
def alpha() -> Iterator[Served]:
    with served() as running:
        running.create(r"private$\orders")
        yield running


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    return str(tmp_path / "checkpoint")
