"""The pipeline's tables in every format: each batch is there exactly once, whatever is killed, and columns only
grow."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from postroad.errors import PipelineError
from postroad.spark.pipeline.lake_files import File, LocalFiles, open_files
from postroad.spark.pipeline.lakes import DeltaTable, IcebergTable
from postroad.spark.pipeline.tables import ParquetTable, Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KINDS: tuple[type[Table], ...] = (ParquetTable, DeltaTable, IcebergTable)
every_kind = pytest.mark.parametrize("kind", KINDS)
ROWS = "number bigint, text string, day date"


def rows(spark: SparkSession, *numbers: int, day: str = "2024-05-17") -> DataFrame:
    return spark.sql(
        "select * from values " + ", ".join(f"({each}L, 'row {each}', date'{day}')" for each in numbers)
    ).toDF("number", "text", "day")


def numbers(table: Table) -> list[int]:
    frame = table.read()
    return [] if frame is None else sorted(row["number"] for row in frame.collect())


@every_kind
def test_a_batch_is_stored_once_with_its_facts(spark: SparkSession, tmp_path: Path, kind: type[Table]) -> None:
    table = kind(spark, LocalFiles(tmp_path), "bronze/packets")
    assert table.last() is None
    assert table.read() is None
    assert table.append(rows(spark, 1, 2), 1, {"offsets": {"a": 7}})
    assert not table.append(rows(spark, 1, 2), 1, {"offsets": {"a": 7}})
    assert table.append(rows(spark, 3, day="2024-05-18"), 2, {"offsets": {"a": 9}})
    again = kind(spark, LocalFiles(tmp_path), "bronze/packets")
    last = again.last()
    assert last is not None
    assert (last.batch, last.facts) == (2, {"offsets": {"a": 9}})
    assert numbers(again) == [1, 2, 3]
    frame = again.read()
    assert frame is not None
    assert [str(row["day"]) for row in frame.where("number = 3").collect()] == ["2024-05-18"]


@every_kind
def test_a_new_column_is_null_in_older_batches_and_no_column_changes(
    spark: SparkSession, tmp_path: Path, kind: type[Table]
) -> None:
    table = kind(spark, LocalFiles(tmp_path), "silver/messages")
    table.append(rows(spark, 1), 1)
    table.append(rows(spark, 2).selectExpr("*", "number * 10 as tenfold"), 2)
    table.append(rows(spark, 3), 3)
    frame = table.read()
    assert frame is not None
    assert [(row["number"], row["tenfold"]) for row in frame.orderBy("number").collect()] == [
        (1, None),
        (2, 20),
        (3, None),
    ]
    with pytest.raises(PipelineError, match="number must have the type bigint, got string"):
        table.append(rows(spark, 4).selectExpr("cast(number as string) number", "text", "day"), 4)
    assert numbers(table) == [1, 2, 3]


@every_kind
def test_a_batch_without_null_fits_one_with_null(spark: SparkSession, tmp_path: Path, kind: type[Table]) -> None:
    table = kind(spark, LocalFiles(tmp_path), "gold/states")
    table.append(rows(spark, 1).selectExpr("*", "array(1L) as some"), 1)
    table.append(rows(spark, 2).selectExpr("*", "array(cast(null as bigint)) as some"), 2)
    table.append(rows(spark, 3).selectExpr("*", "array(3L) as some"), 3)
    frame = table.read()
    assert frame is not None
    assert [row["some"] for row in frame.orderBy("number").collect()] == [[1], [None], [3]]


@every_kind
def test_a_batch_without_rows_keeps_the_others(spark: SparkSession, tmp_path: Path, kind: type[Table]) -> None:
    table = kind(spark, LocalFiles(tmp_path), "silver/messages")
    table.append(rows(spark, 1), 1)
    table.drop((), 2, {"of": 7})
    table.append(rows(spark, 2), 3)
    table.drop((), 4, {"of": 8})
    last = table.last()
    assert last is not None
    assert (last.batch, last.facts) == (4, {"of": 8})
    assert numbers(table) == [1, 2]


@every_kind
def test_compaction_keeps_the_rows_the_batch_and_the_facts(
    spark: SparkSession, tmp_path: Path, kind: type[Table]
) -> None:
    table = kind(spark, LocalFiles(tmp_path), "bronze/packets")
    for batch in (1, 2, 3):
        table.append(rows(spark, batch), batch, {"at": batch})
    parts = table.parts()
    assert table.compact()
    assert table.parts() < parts
    assert not table.compact()
    last = table.last()
    assert last is not None
    assert (last.batch, last.facts, numbers(table)) == (3, {"at": 3}, [1, 2, 3])
    assert not table.append(rows(spark, 3), 3)
    assert table.append(rows(spark, 4), 4)
    assert numbers(table) == [1, 2, 3, 4]


@every_kind
def test_a_table_can_be_replaced_by_a_later_batch(spark: SparkSession, tmp_path: Path, kind: type[Table]) -> None:
    table = kind(spark, LocalFiles(tmp_path), "gold/delivery")
    assert table.replace(rows(spark, 1, 2), 1)
    assert table.replace(rows(spark, 3), 2)
    assert not table.replace(rows(spark, 4), 2)
    assert numbers(table) == [3]
    assert table.replace(rows(spark, 3).where("false"), 3)
    assert numbers(table) == []
    empty = kind(spark, LocalFiles(tmp_path), "gold/links")
    assert empty.replace(rows(spark, 3).where("false"), 1, {"made": "of nothing"})
    last = empty.last()
    assert last is not None
    assert (last.batch, last.facts, numbers(empty)) == (1, {"made": "of nothing"}, [])


@every_kind
def test_files_without_a_commit_do_not_count(
    spark: SparkSession, tmp_path: Path, kind: type[Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process is killed after Spark's tasks have written and before the commit."""
    table = kind(spark, LocalFiles(tmp_path), "bronze/packets")
    table.append(rows(spark, 1), 1)

    def killed(*given: Any, **named: Any) -> list[File]:
        written(*given, **named)
        raise KeyboardInterrupt

    written = table._write_files
    with monkeypatch.context() as patch:
        patch.setattr(table, "_write_files", killed)
        with pytest.raises(KeyboardInterrupt):
            table.append(rows(spark, 2), 2)
    again = kind(spark, LocalFiles(tmp_path), "bronze/packets")
    assert numbers(again) == [1]
    assert again.append(rows(spark, 2, 3), 2)
    assert numbers(again) == [1, 2, 3]


def test_a_compaction_that_was_killed_before_it_cleaned_up_shows_no_row_twice(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = ParquetTable(spark, LocalFiles(tmp_path), "bronze/packets")
    table.append(rows(spark, 1), 1)
    table.append(rows(spark, 2), 2)
    with monkeypatch.context() as patch:
        patch.setattr(table, "clean", lambda: None)
        table.compact()
    assert len(list((tmp_path / table.name).glob("part=*"))) == 3
    assert numbers(table) == [1, 2]
    assert table.append(rows(spark, 3), 3)
    assert len(list((tmp_path / table.name).glob("part=*"))) == 2
    assert spark.read.parquet(str(tmp_path / table.name)).count() == 3  # as any other program would read it


def test_a_part_whose_commit_is_damaged_is_named(spark: SparkSession, tmp_path: Path) -> None:
    table = ParquetTable(spark, LocalFiles(tmp_path), "bronze/packets")
    table.append(rows(spark, 1), 1)
    commit = next((tmp_path / table.name).glob("part=*/_commit.json"))
    commit.write_text(json.dumps({"batch": 1})[:5])
    with pytest.raises(PipelineError, match=str(commit)):
        table.last()


def test_one_run_at_a_time(tmp_path: Path) -> None:
    files = LocalFiles(tmp_path)
    with files.lock(), pytest.raises(PipelineError, match="another run"), open_files(tmp_path, None).lock():
        raise AssertionError
    with files.lock():
        pass
