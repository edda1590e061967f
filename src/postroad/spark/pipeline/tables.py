"""Tables of the pipeline: each batch is added or replaces the table exactly once, even if a run is killed.

A table records its last batch and keeps facts beside it, so data and checkpoint are one commit. This module has the
interface, and tables of plain Parquet; Delta and Iceberg are in lakes.py.
"""

from __future__ import annotations

import json
import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from pyarrow.parquet import read_metadata
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StructField, StructType

from postroad.errors import PipelineError

DAY = "day"  # the column that divides the files, if there is one
COMPACT_AFTER = 16  # parts: a run that finds more writes them as one
_STAGING = "_staging"  # Spark reads no directory whose name starts like this
_COMMIT = "_commit.json"
_PREFIX = "part="


@dataclass(frozen=True, slots=True)
class Commit:
    """The last batch of a table, the facts beside it, and the schema since then."""

    batch: int
    facts: Mapping[str, Any]
    schema: StructType


class Table(ABC):
    """One writer at a time: see `writing`. Readers always see whole batches."""

    def __init__(self, spark: SparkSession | None, lake: Path, name: str) -> None:
        self._spark = spark
        self.lake = lake
        self.name = name
        self.root = lake / name
        self.rows_written = 0  # by the last batch

    @property
    def spark(self) -> SparkSession:
        if self._spark is None:
            raise PipelineError(f"{self.name}: reading or writing this table needs a Spark session")
        return self._spark

    @abstractmethod
    def last(self) -> Commit | None:
        """None for a table without a batch."""

    @abstractmethod
    def files(self) -> list[str]:
        """The Parquet files of all batches."""

    def parts(self) -> int:
        """The number of pieces; one is best to read."""
        return len(self.files())

    @abstractmethod
    def _commit(self, frame: DataFrame, commit: Commit, *, whole: bool) -> None:
        """All of `frame` becomes a part of the table, or with `whole` the table; or nothing does."""

    def append(self, frame: DataFrame, batch: int, facts: Mapping[str, Any] | None = None) -> bool:
        """Adds a batch; False, without a change, if the table has it already. Batches come in rising order."""
        return self._write(frame, batch, facts, whole=False)

    def replace(self, frame: DataFrame, batch: int, facts: Mapping[str, Any] | None = None) -> bool:
        """Replaces the table by this batch; False, without a change, if it has this or a later one already."""
        return self._write(frame, batch, facts, whole=True)

    def compact(self) -> bool:
        """Joins many small parts into one with the same rows; False if there is nothing to do."""
        last = self.last()
        frame = self.read()
        if last is None or frame is None or self.parts() < 2:
            return False
        gathered = frame.repartition(DAY) if DAY in frame.columns else frame.coalesce(1)  # few large files
        self._commit(gathered, last, whole=True)
        return True

    def read(self) -> DataFrame | None:
        """None for a table without a batch. Columns that older batches lack are null in them."""
        last = self.last()
        files = self.files()
        if last is None:
            return None
        if not files:
            return self.spark.createDataFrame([], last.schema)
        reader = self.spark.read.schema(last.schema).option("basePath", str(self.root))
        return reader.parquet(*files).select(*last.schema.names)

    def _write(self, frame: DataFrame, batch: int, facts: Mapping[str, Any] | None, *, whole: bool) -> bool:
        last = self.last()
        if last is not None and batch <= last.batch:
            return False
        schema = grown(self.name, None if last is None else last.schema, frame.schema)
        self._commit(_with_columns(frame, schema), Commit(batch, dict(facts or {}), schema), whole=whole)
        return True

    def _write_files(self, frame: DataFrame, directory: Path, *, keep_day: bool = False) -> list[Path]:
        """Spark's tasks write; returns the paths of the files, all of them on disk."""
        self.spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")  # every reader knows it
        partition = DAY
        if keep_day and DAY in frame.columns:
            partition = f"of_{DAY}"
            frame = frame.withColumn(partition, frame[DAY])
        writer = frame.write.mode("error").option("compression", "zstd")
        if partition in frame.columns:
            writer = writer.partitionBy(partition)
        writer.parquet(str(directory))
        files = sorted(directory.rglob("*.parquet"))
        for file in files:
            _sync(file)
        self.rows_written = sum(map(rows_of, files))
        return files


class ParquetTable(Table):
    """A directory `part=FIRST-LAST` for the batches FIRST to LAST, made elsewhere and then renamed.

    Any program can read the directory as Parquet. Only between a crash during a compaction and the next run would it
    see rows twice. Here a part within another one does not count.
    """

    def last(self) -> Commit | None:
        whole = [last for _, last, _ in self._parts()]
        if not whole:
            return None
        path = max(self._parts(), key=lambda part: part[1])[2]
        try:
            kept = json.loads((path / _COMMIT).read_text())
            return Commit(kept["batch"], kept["facts"], StructType.fromJson(kept["schema"]))
        except (OSError, ValueError, LookupError) as fault:
            raise PipelineError(f"{path / _COMMIT} cannot be read: {fault}; it is no part of ours") from None

    def files(self) -> list[str]:
        return [str(file) for _, _, path in self._parts() for file in sorted(path.rglob("*.parquet"))]

    def parts(self) -> int:
        return len(self._parts())

    def _parts(self) -> list[tuple[int, int, Path]]:
        """(first batch, last batch, directory) of the parts that count, in order."""
        found = []
        for path in self.root.glob(f"{_PREFIX}*-*"):
            first, _, last = path.name.removeprefix(_PREFIX).partition("-")
            if first.isdigit() and last.isdigit():
                found.append((int(first), int(last), path))
        found.sort(key=lambda part: (part[0], -part[1]))
        whole: list[tuple[int, int, Path]] = []
        for part in found:
            if not whole or part[1] > whole[-1][1]:
                whole.append(part)
        return whole

    def _commit(self, frame: DataFrame, commit: Commit, *, whole: bool) -> None:
        staged = self.root / _STAGING / uuid4().hex
        self._write_files(frame, staged)
        kept = {"batch": commit.batch, "facts": commit.facts, "schema": commit.schema.jsonValue()}
        (staged / _COMMIT).write_text(json.dumps(kept))
        _sync(staged / _COMMIT)
        place = self.root / f"{_PREFIX}{0 if whole else commit.batch:08}-{commit.batch:08}"
        if place.exists():  # compacted before, without a batch since
            raise PipelineError(f"{place} already exists")
        os.rename(staged, place)
        _sync(self.root)
        self.clean()

    def compact(self) -> bool:
        parts = self._parts()
        if len(parts) == 1 and parts[0][0] == 0:
            return False
        return super().compact()

    def clean(self) -> None:
        """Deletes what a killed run has left, and parts that others replace."""
        shutil.rmtree(self.root / _STAGING, ignore_errors=True)
        counted = {path for _, _, path in self._parts()}
        for path in self.root.glob(f"{_PREFIX}*-*"):
            if path not in counted:
                shutil.rmtree(path, ignore_errors=True)


@contextmanager
def writing(lake: Path) -> Iterator[None]:
    """One run at a time in a directory; PipelineError if another one runs, or the directory is not writable."""
    import fcntl

    try:
        lake.mkdir(parents=True, exist_ok=True)
        lock = (lake / ".lock").open("a")
    except OSError as fault:
        raise PipelineError(f"{lake} cannot be written: {fault.strerror}") from None
    with lock as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise PipelineError(f"another run of the pipeline uses {lake}; wait until it ends") from None
        yield


def grown(table: str, known: StructType | None, new: StructType) -> StructType:
    """The schema with the new columns; known columns stay and keep their types."""
    if known is None:
        return StructType([StructField(field.name, field.dataType, True) for field in new])
    types = {field.name: field.dataType for field in known}
    for field in new:
        if field.name in types and field.dataType != types[field.name]:
            raise PipelineError(
                f"{table}: the column {field.name} must have the type {types[field.name].simpleString()}, got "
                f"{field.dataType.simpleString()}; columns can be added, but not changed"
            )
    added = [StructField(field.name, field.dataType, True) for field in new if field.name not in types]
    return StructType([*known.fields, *added])


def _with_columns(frame: DataFrame, schema: StructType) -> DataFrame:
    there = set(frame.columns)
    return frame.select(
        *(
            frame[field.name] if field.name in there else f.lit(None).cast(field.dataType).alias(field.name)
            for field in schema
        )
    )


def rows_of(file: Path) -> int:
    """The number of rows of a Parquet file, from its footer."""
    return int(read_metadata(file).num_rows)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
