"""`spark.read.format("delta")` and `format("iceberg")` in our session, without the jars of either format."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from postroad.spark.pipeline.lake_files import LocalFiles
from postroad.spark.pipeline.lakes import DeltaTable, IcebergTable
from tests.spark.test_tables import rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from postroad.spark.pipeline.tables import Table

FORMATS: dict[str, type[Table]] = {"delta": DeltaTable, "iceberg": IcebergTable}


@pytest.mark.parametrize("name", FORMATS)
def test_spark_reads_the_table_by_the_name_of_its_format(spark: SparkSession, tmp_path: Path, name: str) -> None:
    table = FORMATS[name](spark, LocalFiles(tmp_path), "silver/messages")
    table.append(rows(spark, 1, 2), 1)
    table.append(rows(spark, 3, day="2024-05-18").selectExpr("*", "timestamp'2024-05-18 10:00' as at"), 2)
    table.update(rows(spark, 4), ["2024-05-17"], 3)
    found = spark.read.format(name).load(str(tmp_path / "silver/messages"))
    ours = table.read()
    assert ours is not None
    assert found.schema.simpleString() == ours.schema.simpleString()
    columns = ("number", "text", "cast(day as string)", "cast(at as string)")
    expected = [(3, "row 3", "2024-05-18", "2024-05-18 10:00:00"), (4, "row 4", "2024-05-17", None)]
    assert [tuple(row) for row in found.orderBy("number").selectExpr(*columns).collect()] == expected
    assert [tuple(row) for row in ours.orderBy("number").selectExpr(*columns).collect()] == expected


def test_an_older_version_of_a_delta_table(spark: SparkSession, tmp_path: Path) -> None:
    table = DeltaTable(spark, LocalFiles(tmp_path), "gold/states")
    table.append(rows(spark, 1), 1)
    table.append(rows(spark, 2), 2)
    path = str(tmp_path / "gold/states")
    assert spark.read.format("delta").load(path).count() == 2
    assert spark.read.format("delta").option("versionAsOf", 1).load(path).count() == 1


@pytest.mark.parametrize("name", FORMATS)
def test_a_path_without_a_table_is_named(spark: SparkSession, tmp_path: Path, name: str) -> None:
    with pytest.raises(PySparkException, match=str(tmp_path)):
        spark.read.format(name).load(str(tmp_path)).count()
    with pytest.raises(PySparkException, match="the path of a table is missing"):
        spark.read.format(name).load().count()
