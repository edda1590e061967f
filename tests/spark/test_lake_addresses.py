"""Lakes that are not on this machine's disk: they use Hadoop's file systems, and are refused without one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

import pytest

from postroad.client.opening import connect
from postroad.errors import PipelineError
from postroad.spark.pipeline import lake_files
from postroad.spark.pipeline.facts import gather
from postroad.spark.pipeline.lake import BRONZE, DELIVERY, Lake
from postroad.spark.pipeline.lake_files import HadoopFiles, open_files
from postroad.spark.pipeline.run import compact, run
from postroad.spark.pipeline.service_levels import ServiceLevel, attained
from postroad.spark.pipeline.sources import sources
from postroad.spark.pipeline.tables import ParquetTable
from tests.spark.test_pipeline import ORDERS, address, filled, send, states
from tests.spark.test_tables import numbers, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.served import Served

__all__ = ["filled"]


@pytest.fixture
def mounted(spark: SparkSession, tmp_path: Path) -> Iterator[str]:
    """An address of Hadoop's view file system, which only Hadoop can resolve, here to a directory of the test."""
    (tmp_path / "disk").mkdir()
    key = "fs.viewfs.mounttable.lakes.link./lake"
    spark.conf.set(key, f"file://{tmp_path / 'disk'}")
    yield "viewfs://lakes/lake"
    spark.conf.unset(key)


def test_a_run_on_an_address_of_hadoops(
    spark: SparkSession, filled: Served, mounted: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(lake_files, "SETTLE_S", 0.0)
    lake = Lake(spark, f"{mounted}/one")
    assert run(lake, sources(address(filled))).packets == 7
    assert states(lake) == {"one": "received", "two": "reached"}
    with connect(address(filled)) as manager:
        manager.queue(ORDERS).receive(timeout=5)
    send(filled, "three")
    run(lake, sources(address(filled)))
    assert states(lake) == {"one": "received", "two": "received", "three": "reached"}
    levels = [ServiceLevel(ORDERS, 3600.0), ServiceLevel("*", 0.0), ServiceLevel("no such queue", 1.0)]
    facts = gather(lake, levels)
    assert [(each.in_time, each.waiting) for each in facts.levels if each.limit_s == 3600.0] == [(2, 1)]
    assert facts.levels == attained(Lake(None, tmp_path / "disk" / "one"), levels, facts.as_of)  # without Spark
    assert facts.by_state == {"received": 2, "reached": 1}
    assert facts.lake == f"{mounted}/one"
    assert compact(lake)
    assert states(lake) == {"one": "received", "two": "received", "three": "reached"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["disk"]  # there must be no directory called `viewfs:`


def test_a_part_without_its_last_file_does_not_count(spark: SparkSession, mounted: str) -> None:
    """The process is killed after Spark has written and before the commit. An object store has no rename."""
    files = open_files(f"{mounted}/two", spark)
    table = ParquetTable(spark, files, BRONZE)
    table.append(rows(spark, 1), 1)
    unfinished = table.files()[0].path.rpartition("/day=")[0].replace("00000001", "00000002")
    rows(spark, 7).write.partitionBy("day").parquet(unfinished)
    again = ParquetTable(spark, open_files(f"{mounted}/two", spark), BRONZE)
    assert numbers(again) == [1]
    assert again.append(rows(spark, 2), 2)
    assert numbers(again) == [1, 2]
    assert not any("00000002" in file.path for file in files.walk(BRONZE))


def test_one_run_at_a_time_and_the_lease_of_a_killed_one_ends(
    spark: SparkSession, mounted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lake_files, "SETTLE_S", 0.0)
    one, other = (open_files(f"{mounted}/three", spark) for _ in range(2))
    assert isinstance(one, HadoopFiles)
    with one.lock(), pytest.raises(PipelineError, match="another run of the pipeline uses"), other.lock():
        raise AssertionError
    with other.lock():
        pass
    one._overwrite("_lock", "a run that was killed")
    with pytest.raises(PipelineError, match="60 s after it was killed"), other.lock():
        raise AssertionError
    monkeypatch.setattr(time, "time", lambda: 1e12)
    with other.lock():
        pass


def test_a_run_that_has_lost_its_lease_publishes_nothing(
    spark: SparkSession, mounted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lake_files, "SETTLE_S", 0.0)
    monkeypatch.setattr(lake_files, "RENEW_S", 0.05)
    files = open_files(f"{mounted}/four", spark)
    assert isinstance(files, HadoopFiles)
    table = ParquetTable(spark, files, BRONZE)
    with files.lock():
        table.append(rows(spark, 1), 1)
        while not files._lease_is_lost:  # a renewal that was under way may have overwritten it
            files._overwrite("_lock", "another run")
            time.sleep(0.01)
        with pytest.raises(PipelineError, match="has taken"):
            table.append(rows(spark, 2), 2)
    assert numbers(table) == [1]
    assert files.read_text("_lock") == "another run"


def test_a_lease_survives_a_fault_and_is_lost_by_faults_that_last(
    spark: SparkSession, mounted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lake_files, "SETTLE_S", 0.0)
    monkeypatch.setattr(lake_files, "RENEW_S", 0.01)
    files = open_files(f"{mounted}/leased", spark)
    assert isinstance(files, HadoopFiles)
    renewals, faults, faulty = [0], [0], Event()
    overwrite, read_text = files._overwrite, files.read_text

    def renew(path: str, text: str) -> None:
        overwrite(path, text)
        renewals[0] += 1

    def read(path: str) -> str | None:
        if faulty.is_set():
            faults[0] += 1
            raise PipelineError("the network is down")
        return read_text(path)

    def wait_for(condition: Callable[[], bool]) -> None:
        while not condition():
            time.sleep(0.01)

    monkeypatch.setattr(files, "_overwrite", renew)
    monkeypatch.setattr(files, "read_text", read)
    with files.lock():
        faulty.set()
        wait_for(lambda: faults[0] > 1)
        faulty.clear()
        before = renewals[0]
        wait_for(lambda: renewals[0] > before)
        assert not files._lease_is_lost
        monkeypatch.setattr(lake_files, "LEASE_S", 0.0)
        faulty.set()
        wait_for(lambda: files._lease_is_lost)


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("s3a://bucket/x", "add --conf spark.jars.packages=org.apache.hadoop:hadoop-aws:"),
        ("abfss://container@account/x", "add --conf spark.jars.packages=org.apache.hadoop:hadoop-azure:"),
        ("s3://bucket/x", "s3://bucket/x: Hadoop's name for S3 is s3a, as in s3a://bucket/x"),
        ("nosuch://host/x", "nosuch://host/x: Spark has no file system for nosuch"),
        ("s3a:bucket/x", "s3a:bucket/x cannot be used for tables: "),
        ("http://127.0.0.1:9/x", "http://127.0.0.1:9/x cannot be used for tables: "),
    ],
)
def test_an_address_that_spark_cannot_write_is_refused(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PipelineError) as refused:
        Lake(spark, path)
    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value)
    assert not list(tmp_path.iterdir())


def test_what_only_a_local_lake_can_do_is_refused(spark: SparkSession, mounted: str) -> None:
    with pytest.raises(PipelineError, match="the format must be parquet, got delta"):
        Lake(spark, f"{mounted}/five", "delta")
    with pytest.raises(PipelineError, match="reading a lake on viewfs needs a Spark session"):
        Lake(None, f"{mounted}/five")
    assert not open_files(mounted, spark).walk("five")


def test_a_file_address_is_a_local_lake(tmp_path: Path) -> None:
    Lake(None, f"file://{tmp_path}/a lake")
    assert (tmp_path / "a lake" / "format").read_text() == "parquet"
    assert DELIVERY not in {file.path for file in open_files(tmp_path, None).walk("a lake")}
