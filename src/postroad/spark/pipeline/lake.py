"""The directory of a pipeline: its tables, and their format."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import uuid4

from pyarrow.parquet import read_table
from pyspark.sql import DataFrame, SparkSession

from postroad.errors import InvalidArgument, PipelineError
from postroad.spark.pipeline.lakes import DeltaTable, IcebergTable
from postroad.spark.pipeline.tables import ParquetTable, Table, rows_of

BRONZE, DEPTHS = "bronze/packets", "bronze/depths"
MESSAGES, ACKNOWLEDGMENTS, REPORTS, UNDECODABLE = (
    f"silver/{name}" for name in ("messages", "acknowledgments", "reports", "undecodable")
)
DELIVERY, STATES, LATENCY, TRAFFIC, LINKS, DEAD_LETTERS, OLDEST, FAULTS = (
    f"gold/{name}"
    for name in ("delivery", "states", "latency", "traffic", "links", "dead_letters", "oldest", "undecodable")
)
BACKLOG, TREND, CONVERSATIONS, PAIRS, CHAINS, TOP, HOURS = (
    f"gold/{name}" for name in ("backlog", "trend", "conversations", "pairs", "chains", "top", "hours")
)
SILVER = (MESSAGES, ACKNOWLEDGMENTS, REPORTS, UNDECODABLE)
GOLD = (
    *(DELIVERY, STATES, LATENCY, TRAFFIC, LINKS, DEAD_LETTERS, OLDEST, FAULTS),
    *(BACKLOG, TREND, CONVERSATIONS, PAIRS, CHAINS, TOP, HOURS),
)
TABLES = (BRONZE, DEPTHS, *SILVER, *GOLD)
FORMATS: dict[str, type[Table]] = {"parquet": ParquetTable, "delta": DeltaTable, "iceberg": IcebergTable}
DEFAULT_FORMAT = "parquet"


class Lake:
    """A directory that this machine and Spark's workers see under the same path.

    `form` is for a new directory; an existing one keeps its own. PipelineError if the two differ, or the directory
    cannot be created. Small tables can be read without a session.
    """

    def __init__(self, spark: SparkSession | None, path: Path | str, form: str | None = None) -> None:
        self._spark = spark
        self.path = Path(path).absolute()
        self.form = _settled(self.path, form)

    @property
    def name(self) -> str:
        """An id that no other directory has, and that stays: managers know the directory's holds by it."""
        file = self.path / "name"
        if not file.exists():
            file.write_text(f"pipeline-{uuid4().hex[:12]}")
        return file.read_text()

    @property
    def replays(self) -> Path:
        """Where replays of these tables' dead letters keep their plans, and what they have sent."""
        return self.path / "replays"

    @property
    def session(self) -> SparkSession:
        if self._spark is None:
            raise PipelineError(f"{self.path}: this needs a Spark session")
        return self._spark

    def table(self, name: str) -> Table:
        return FORMATS[self.form](self._spark, self.path, name)

    def rows(self, name: str) -> list[dict[str, Any]]:
        """All rows of a small table, without Spark. PipelineError for one that no run has made yet."""
        table = self.table(name)
        last = table.last()
        if last is None:
            raise _missing(self.path, name)
        found = [row for file in table.files() for row in read_table(file, partitioning=None).to_pylist()]
        return [{column: row.get(column) for column in last.schema.names} for row in found]

    def read(self, name: str) -> DataFrame:
        """PipelineError for a table that no run has made yet."""
        frame = self.table(name).read()
        if frame is None:
            raise _missing(self.path, name)
        return frame


def kept_packets(path: Path, form: str | None = None) -> int:
    """How many packets a directory has in bronze; none if it is new."""
    if not (path / "format").is_file():
        return 0
    return sum(rows_of(Path(file)) for file in Lake(None, path, form).table(BRONZE).files())


def _missing(path: Path, name: str) -> PipelineError:
    return PipelineError(f"{path} has no table {name} yet; run `postroad pipeline run`")


def check_format(form: str | None) -> None:
    """InvalidArgument for an unknown format."""
    if form is not None and form not in FORMATS:
        raise InvalidArgument(f"format: must be one of {', '.join(FORMATS)}, got {form!r}")


def _settled(path: Path, form: str | None) -> str:
    check_format(form)
    file = path / "format"
    try:
        if not file.exists():
            path.mkdir(parents=True, exist_ok=True)
            file.write_text(form or DEFAULT_FORMAT)
        kept = file.read_text().strip()
    except OSError as fault:
        raise PipelineError(f"{path} cannot be used for tables: {fault.strerror}") from None
    if kept not in FORMATS or form not in (None, kept):
        raise PipelineError(f"{path}: the format must be {kept}, that of its tables, got {form or DEFAULT_FORMAT}")
    return kept
