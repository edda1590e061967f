"""The directory of a pipeline: which tables there are, and in which format."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from postroad.errors import PipelineError
from postroad.spark.pipeline.lakes import DeltaTable, IcebergTable
from postroad.spark.pipeline.tables import ParquetTable, Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BRONZE = "bronze/packets"
MESSAGES, ACKNOWLEDGMENTS, REPORTS, UNDECODABLE = (
    f"silver/{name}" for name in ("messages", "acknowledgments", "reports", "undecodable")
)
DELIVERY, LATENCY, TRAFFIC, LINKS, DEAD_LETTERS = (
    f"gold/{name}" for name in ("delivery", "latency", "traffic", "links", "dead_letters")
)
TABLES = (
    BRONZE,
    *(MESSAGES, ACKNOWLEDGMENTS, REPORTS, UNDECODABLE),
    *(DELIVERY, LATENCY, TRAFFIC, LINKS, DEAD_LETTERS),
)
FORMATS: dict[str, type[Table]] = {"parquet": ParquetTable, "delta": DeltaTable, "iceberg": IcebergTable}
DEFAULT_FORMAT = "parquet"


class Lake:
    """A directory that this machine and Spark's workers see under the same path.

    `form` is for a directory that is new; one that is there keeps its own. PipelineError where the two differ.
    """

    def __init__(self, spark: SparkSession, path: Path | str, form: str | None = None) -> None:
        self.spark = spark
        self.path = Path(path).absolute()
        self.form = _settled(self.path, form)

    def table(self, name: str) -> Table:
        return FORMATS[self.form](self.spark, self.path, name)

    def read(self, name: str) -> DataFrame:
        """PipelineError for a table that no run has made yet."""
        frame = self.table(name).read()
        if frame is None:
            raise PipelineError(f"{self.path} has no table {name} yet: `postroad pipeline run` makes it")
        return frame


def _settled(path: Path, form: str | None) -> str:
    if form is not None and form not in FORMATS:
        raise PipelineError(f"format: {form!r} is not one of {', '.join(FORMATS)}")
    file = path / "format"
    if not file.exists():
        path.mkdir(parents=True, exist_ok=True)
        file.write_text(form or DEFAULT_FORMAT)
    kept = file.read_text().strip()
    if kept not in FORMATS or form not in (None, kept):
        raise PipelineError(f"{path}: its tables are in the format {kept}, not in {form or DEFAULT_FORMAT}")
    return kept
