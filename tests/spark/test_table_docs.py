"""The page about the pipeline's tables has every column of every table, with its type, in the table's order."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from postroad.spark.pipeline.lake import TABLES, Lake
from postroad.spark.pipeline.run import run
from postroad.spark.pipeline.sources import sources

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.served import Served

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "tables.md"
ROW = re.compile(r"^\| `(\w+)` \| (\S+) \| .+ \|$", re.MULTILINE)


def documented() -> dict[str, list[tuple[str, str]]]:
    sections = re.split(r"^## (\S+)\n", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    return {
        name: [(row[1], row[2]) for row in ROW.finditer(text)]
        for name, text in zip(sections[::2], sections[1::2], strict=True)
    }


def test_the_page_and_the_tables_have_the_same_columns(spark: SparkSession, alpha: Served, tmp_path: Path) -> None:
    alpha.send("one", label="order")
    lake = Lake(spark, tmp_path / "lake")
    run(lake, sources(f"http://{alpha.server.host}:{alpha.server.port}"))
    real = {}
    for name in TABLES:
        last = lake.table(name).last()
        assert last is not None, name
        real[name] = [(field.name, field.dataType.simpleString()) for field in last.schema]
    assert documented() == real
