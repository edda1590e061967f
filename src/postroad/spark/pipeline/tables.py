"""Tables of the pipeline: each batch is added or replaces rows exactly once, even if a run is killed.

A table records its last batch with the data, so data and checkpoint are one commit. This module has the interface, and
tables of plain Parquet. Delta and Iceberg are in lakes.py.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from pyarrow.parquet import read_metadata
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from postroad.errors import PipelineError
from postroad.spark.pipeline.frames import local
from postroad.spark.pipeline.lake_files import File, Files

DAY = "day"  # the column that divides the files, if there is one
COMPACT_AFTER = 16  # files of a day; a run that finds more merges them
LARGE_BYTES = 128 << 20  # larger files are not faster to read
_COMMIT = "_commit.json"
_PART = re.compile(r"part=(\d+)-(\d+)")
_DAY_DIRECTORY = re.compile(rf"/(?:of_)?{DAY}=([^/]+)/")
_STATUS_CALLS = "10000"  # files that Spark may look up one by one, without starting a job


@dataclass(frozen=True, slots=True)
class Commit:
    """The last batch of a table, the facts recorded with it, and the schema after it."""

    batch: int
    facts: Mapping[str, Any]
    schema: StructType


@dataclass(frozen=True, slots=True)
class DataFile:
    """A Parquet file of a table. `day` is None if the table has no such column."""

    path: str
    size: int
    day: str | None


class Table(ABC):
    """A table with one writer at a time: see `Files.lock`. Readers always see whole batches.

    Days are text, such as 2024-05-17.
    """

    def __init__(self, spark: SparkSession | None, lake: Files, name: str) -> None:
        self._spark = spark
        self.lake = lake
        self.name = name
        self.rows_written: int | None = None  # by the last batch; None if only Spark can count them

    @property
    def spark(self) -> SparkSession:
        if self._spark is None:
            raise PipelineError(f"{self.name}: reading or writing this table needs a Spark session")
        return self._spark

    @abstractmethod
    def last(self) -> Commit | None:
        """The last commit. None for a table without a batch."""

    @abstractmethod
    def files(self) -> list[DataFile]:
        """The Parquet files of all batches."""

    def parts(self) -> int:
        """The number of pieces. Reading is fastest with one for each day."""
        return len(self.files())

    @abstractmethod
    def _commit(self, frame: DataFrame | None, commit: Commit, replaced: Sequence[str] | None) -> None:
        """Adds all of `frame` to the table and removes the replaced days, or all rows if `replaced` is None.

        Either all of this happens or nothing does.
        """

    def append(self, frame: DataFrame, batch: int, facts: Mapping[str, Any] | None = None) -> bool:
        """Adds a batch. Returns False and changes nothing if the table already has it. Batches must come in rising
        order.
        """
        return self._write(frame, batch, facts, ())

    def replace(self, frame: DataFrame, batch: int, facts: Mapping[str, Any] | None = None) -> bool:
        """Replaces all rows by this batch. Returns False and changes nothing if the table has this batch or a later
        one.
        """
        return self._write(frame, batch, facts, None)

    def update(self, frame: DataFrame, days: Iterable[str], batch: int, facts: Mapping[str, Any] | None = None) -> bool:
        """Replaces all rows of some days by this batch. Its rows of other days are added."""
        return self._write(frame, batch, facts, sorted(days))

    def drop(self, days: Iterable[str], batch: int, facts: Mapping[str, Any]) -> None:
        """Removes all rows of these days. `batch` may be the last batch again."""
        last = self.last()
        if last is not None:
            self._commit(None, Commit(batch, dict(facts), last.schema), sorted(days))

    def days(self) -> list[str]:
        return sorted({file.day for file in self.files() if file.day is not None})

    def compact(self, most: int = 1) -> bool:
        """Merges the files of each day that has more than `most` small files. Returns False if there is nothing to
        do."""
        last = self.last()
        small: dict[str | None, int] = {}
        for file in self.files():
            small[file.day] = small.get(file.day, 0) + (file.size < LARGE_BYTES)
        days = {day for day, count in small.items() if count > most}
        if last is None or not days:
            return False
        frame = self._read(last, [file for file in self.files() if file.day in days])
        if None in days:
            self._commit(frame.coalesce(1), last, None)
        else:
            self._commit(frame.repartition(len(days), DAY), last, sorted(day for day in days if day is not None))
        return True

    def read(self, days: Iterable[str] | None = None) -> DataFrame | None:
        """All rows, or the rows of some days. None for a table without a batch.

        Columns that an older batch lacks are null in its rows.
        """
        last = self.last()
        if last is None:
            return None
        wanted = None if days is None else set(days)
        return self._read(last, [file for file in self.files() if wanted is None or file.day in wanted])

    def _read(self, last: Commit, files: Sequence[DataFile]) -> DataFrame:
        if not files:
            return local(self.spark, (), last.schema)
        if self.lake.is_local:
            self.spark.conf.set("spark.sql.sources.parallelPartitionDiscovery.threshold", _STATUS_CALLS)
        reader = self.spark.read.schema(last.schema).option("basePath", self.lake.url(self.name))
        return reader.parquet(*(file.path for file in files)).select(*last.schema.names)

    def _write(
        self, frame: DataFrame, batch: int, facts: Mapping[str, Any] | None, replaced: Sequence[str] | None
    ) -> bool:
        last = self.last()
        if last is not None and batch <= last.batch:
            return False
        schema = grown(self.name, None if last is None else last.schema, frame.schema)
        self._commit(_with_columns(frame, schema), Commit(batch, dict(facts or {}), schema), replaced)
        return True

    def _write_files(self, frame: DataFrame, directory: str, *, keep_day: bool = False) -> list[File]:
        """Lets Spark's tasks write the frame. Returns the Parquet files."""
        self.spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")  # every reader knows this type
        partition = DAY
        if keep_day and DAY in frame.columns:
            partition = f"of_{DAY}"
            frame = frame.withColumn(partition, frame[DAY])
        writer = frame.write.mode("error").option("compression", "zstd")
        if partition in frame.columns:
            writer = writer.partitionBy(partition)
        writer.parquet(self.lake.url(directory))
        files = [file for file in self.lake.walk(directory) if file.path.endswith(".parquet")]
        if self.lake.is_local:
            self.rows_written = sum(rows_of(self.lake.url(file.path)) for file in files)
        return files


@dataclass(frozen=True, slots=True)
class _Part:
    """A directory `part=FIRST-LAST` with the changes FIRST to LAST of a table. It counts once it has a commit."""

    first: int
    last: int
    name: str
    files: tuple[File, ...]
    counts: bool


class ParquetTable(Table):
    """A table of directories with Parquet files.

    The commit of the newest directory lists the days in older ones that have been replaced since. Any program can read
    the table as Parquet. While a change is being published, and between a crash and the next run, such a program may
    see replaced rows beside the new ones.
    """

    def last(self) -> Commit | None:
        kept = self._manifest(self._parts())
        return None if kept is None else Commit(kept["batch"], kept["facts"], StructType.fromJson(kept["schema"]))

    def files(self) -> list[DataFile]:
        parts = self._parts()
        gone = self._dropped(parts)
        return [
            DataFile(self.lake.url(file.path), file.size, day)
            for part in parts
            for file in part.files
            if file.path.endswith(".parquet") and (day := day_of(file.path)) not in gone.get(part.name, ())
        ]

    def parts(self) -> int:
        return len(self._parts())

    def _all_parts(self) -> list[_Part]:
        found: dict[str, list[File]] = {}
        for file in self.lake.walk(self.name):
            found.setdefault(file.path.removeprefix(f"{self.name}/").partition("/")[0], []).append(file)
        parts = []
        for name, files in found.items():
            if numbers := _PART.fullmatch(name):
                committed = any(file.path == f"{self.name}/{name}/{_COMMIT}" for file in files)
                parts.append(_Part(int(numbers[1]), int(numbers[2]), name, tuple(files), committed))
        return sorted(parts, key=lambda part: (part.first, -part.last))

    def _parts(self) -> list[_Part]:
        """The parts that count, in order. A part within another one does not count."""
        whole: list[_Part] = []
        for part in self._all_parts():
            if part.counts and (not whole or part.last > whole[-1].last):
                whole.append(part)
        return whole

    def _manifest(self, parts: Sequence[_Part]) -> Any:
        """The content of the newest commit."""
        if not parts:
            return None
        path = f"{self.name}/{parts[-1].name}/{_COMMIT}"
        try:
            kept = json.loads(self.lake.read_text(path) or "")
            return kept | {"batch": int(kept["batch"]), "facts": kept["facts"], "schema": kept["schema"]}
        except (ValueError, LookupError, TypeError) as fault:
            raise PipelineError(
                f"{self.lake.url(path)} cannot be read: {fault}; this program did not write it"
            ) from None

    def _dropped(self, parts: Sequence[_Part]) -> dict[str, list[str]]:
        kept = self._manifest(parts)
        return {} if kept is None else dict(kept.get("dropped", {}))

    def _commit(self, frame: DataFrame | None, commit: Commit, replaced: Sequence[str] | None) -> None:
        number = 1 + max((part.last for part in self._all_parts()), default=0)
        parts = self._parts()
        gone = {} if replaced is None else self._dropped(parts)
        for part in () if replaced is None else parts:
            days = {day_of(file.path) for file in part.files}
            gone[part.name] = sorted({*gone.get(part.name, ()), *(day for day in replaced or () if day in days)})
        place = f"{self.name}/part={0 if replaced is None else number:08}-{number:08}"
        draft = self.lake.draft(place)
        if frame is not None:
            self._write_files(frame, draft)
        kept = {"batch": commit.batch, "facts": commit.facts, "schema": commit.schema.jsonValue()}
        kept["dropped"] = {part.name: gone[part.name] for part in parts if gone.get(part.name)}
        self.lake.publish(draft, place, _COMMIT, json.dumps(kept))
        self.clean()

    def clean(self) -> None:
        """Deletes what a killed run left behind, and what later parts have replaced."""
        parts = self._parts()
        counted = {part.name for part in parts}
        gone = self._dropped(parts)
        for part in self._all_parts():
            left = [file for file in part.files if file.path.endswith(".parquet")]
            left = [file for file in left if day_of(file.path) not in gone.get(part.name, ())]
            if part.name not in counted or (part != parts[-1] and not left):
                self.lake.delete(f"{self.name}/{part.name}")
                continue
            for day in {day_of(file.path) for file in part.files} & set(gone.get(part.name, ())):
                self.lake.delete(f"{self.name}/{part.name}/{DAY}={day}")


def rows_of(file: str) -> int:
    """The number of rows in a local Parquet file, from its footer."""
    return int(read_metadata(file).num_rows)


def day_of(path: str) -> str | None:
    """The day in the name of a file's directory."""
    found = _DAY_DIRECTORY.search(path)
    return unquote(found[1]) if found else None


def grown(table: str, known: StructType | None, new: StructType) -> StructType:
    """The schema with the new columns added. Known columns keep their place and type. Every value may be null."""
    new = new.toNullable()
    if known is None:
        return new
    types = {field.name: field.dataType for field in known.toNullable()}
    for field in new:
        if field.name in types and field.dataType != types[field.name]:
            raise PipelineError(
                f"{table}: the column {field.name} must have the type {types[field.name].simpleString()}, got "
                f"{field.dataType.simpleString()}; columns can be added, but not changed"
            )
    return StructType([*known.fields, *(field for field in new if field.name not in types)])


def _with_columns(frame: DataFrame, schema: StructType) -> DataFrame:
    there = set(frame.columns)
    return frame.select(
        *(
            frame[field.name] if field.name in there else f.lit(None).cast(field.dataType).alias(field.name)
            for field in schema
        )
    )
