"""The directory of a pipeline: its tables, and their format."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from postroad.errors import InvalidArgument, PipelineError
from postroad.spark.pipeline.lake_files import Files, open_files, scheme_of
from postroad.spark.pipeline.lakes import DeltaTable, IcebergTable
from postroad.spark.pipeline.tables import ParquetTable, Start, Table, rows_of, started

BRONZE, DEPTHS = "bronze/packets", "bronze/depths"
MESSAGES, ACKNOWLEDGMENTS, REPORTS, UNDECODABLE = (
    f"silver/{name}" for name in ("messages", "acknowledgments", "reports", "undecodable")
)
DELIVERY, STATES, LATENCY, TRAFFIC, LINKS, DEAD_LETTERS, OLDEST, FAULTS = (
    f"gold/{name}"
    for name in ("delivery", "states", "latency", "traffic", "links", "dead_letters", "oldest", "undecodable")
)
BACKLOG, TREND, CONVERSATIONS, PAIRS, CHAINS, TOP, HOURS, SPANS = (
    f"gold/{name}" for name in ("backlog", "trend", "conversations", "pairs", "chains", "top", "hours", "spans")
)
EXCHANGES, COUNTS = "gold/exchanges", "gold/counts"
SILVER = (MESSAGES, ACKNOWLEDGMENTS, REPORTS, UNDECODABLE)
GOLD = (
    *(DELIVERY, STATES, SPANS, LATENCY, TRAFFIC, LINKS, DEAD_LETTERS, OLDEST, FAULTS),
    *(BACKLOG, TREND, EXCHANGES, CONVERSATIONS, PAIRS, CHAINS, COUNTS, TOP, HOURS),
)
TABLES = (BRONZE, DEPTHS, *SILVER, *GOLD)
FORMATS: dict[str, type[Table]] = {"parquet": ParquetTable, "delta": DeltaTable, "iceberg": IcebergTable}
DEFAULT_FORMAT = "parquet"
REPLAYS = "replays"


class Lake:
    """A directory that Spark's driver and workers see under the same path or address.

    `form` is the format of a new directory; an existing one keeps its format. Raises PipelineError if the two differ,
    or if the directory cannot be created. Small tables of a local lake can be read without a session.
    """

    def __init__(self, spark: Start, path: Path | str, form: str | None = None, *, on_cluster: bool = True) -> None:
        check_format(form)
        self._spark = spark
        self.on_cluster = on_cluster
        remote = scheme_of(path) not in (None, "file")
        self.files = open_files(path, started(spark, str(path)) if remote and spark is not None else None)
        self.path = self.files.root
        self.form = self._checked_format(form)

    @property
    def name(self) -> str:
        """The unique and lasting name of the directory. Managers know the directory's holds by it."""
        name = self.files.read_text("name")
        if name is None:
            name = f"pipeline-{uuid4().hex[:12]}"
            self.files.write_text("name", name)
        return name

    @property
    def replays(self) -> Files:
        """Where replays of these tables' dead letters keep their plans and record what they have sent."""
        return plans_of(self.path, None if self.files.is_local else self.session)

    @property
    def session(self) -> SparkSession:
        return started(self._spark, self.path)

    def table(self, name: str) -> Table:
        return FORMATS[self.form](self._spark, self.files, name)

    def rows(self, name: str) -> list[dict[str, Any]]:
        """All rows of a small table. For a local lake, this needs no Spark. Raises PipelineError if no run has made it
        yet.
        """
        return list(self.arrow(name).to_pylist())

    def arrow(self, name: str, days: Iterable[str] | None = None, columns: Sequence[str] | None = None) -> pa.Table:
        """The rows in the driver's memory. Raises PipelineError if no run has made the table yet."""
        found = self.table(name).rows(days, columns)
        if found is None:
            raise _missing(self.path, name)
        return found

    def read(self, name: str, days: Iterable[str] | None = None) -> DataFrame:
        """All rows, or the rows of some days. Raises PipelineError if no run has made the table yet."""
        frame = self.table(name).read(days)
        if frame is None:
            raise _missing(self.path, name)
        return frame

    def _checked_format(self, form: str | None) -> str:
        kept = self.files.read_text("format")
        if kept is None:
            if not self.files.is_local and form not in (None, DEFAULT_FORMAT):
                raise PipelineError(
                    f"{self.path}: the format must be {DEFAULT_FORMAT}, got {form}; the libraries for delta and "
                    "iceberg write to local paths only"
                )
            kept = form or DEFAULT_FORMAT
            self.files.write_text("format", kept)
        kept = kept.strip()
        if kept not in FORMATS or form not in (None, kept):
            raise PipelineError(
                f"{self.path}: the format must be {kept}, that of its tables, got {form or DEFAULT_FORMAT}"
            )
        return kept


def has_tables(path: Path | str, spark: SparkSession | None = None) -> bool:
    """Whether there is a lake. Does not create one."""
    return open_files(path, spark).read_text("format") is not None


def plans_of(path: Path | str, spark: SparkSession | None) -> Files:
    """The directory for a lake's replays, even if the lake has no tables yet."""
    return open_files(open_files(path, spark).url(REPLAYS), spark)


def kept_packets(lake: Lake) -> int:
    """How many packets bronze has, in a local lake."""
    return sum(rows_of(file.path) for file in lake.table(BRONZE).files())


def _missing(path: str, name: str) -> PipelineError:
    return PipelineError(f"{path} has no table {name} yet; run `postroad pipeline run`")


def check_format(form: str | None) -> None:
    """Raises InvalidArgument for an unknown format."""
    if form is not None and form not in FORMATS:
        raise InvalidArgument(f"format: must be one of {', '.join(FORMATS)}, got {form!r}")


# The dead letters that replays have sent again: one file for each replay, with the ids of the messages.


_SUFFIX = ".sent"


def record_sent(plans: Files, replay: str, ids: Iterable[str]) -> None:
    """Records the ids that a replay has sent, and replaces its earlier record."""
    name = f"{replay}{_SUFFIX}"
    plans.delete(name)
    plans.write_text(name, json.dumps(list(ids)))


def ids_sent_again(plans: Files) -> set[str]:
    return {each for name in _names(plans) for each in json.loads(plans.read_text(name) or "[]")}


def fingerprint(plans: Files) -> str | None:
    """A text that changes with every replay that has sent something. None if none has."""
    names = _names(plans)
    return sha256("\n".join(names).encode()).hexdigest()[:16] if names else None


def _names(plans: Files) -> list[str]:
    return [file.path for file in plans.walk("") if file.path.endswith(_SUFFIX)]
