"""Tables of the pipeline: each batch is added or replaces rows exactly once, even if a run is killed.

A table records its last batch with the data, so data and checkpoint are one commit. This module has the interface, and
tables of plain Parquet. Delta and Iceberg are in lakes.py.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import unquote
from uuid import uuid4

import pyarrow
import pyarrow.compute as pc
from pyarrow.dataset import ParquetFileFormat
from pyarrow.fs import LocalFileSystem
from pyarrow.parquet import read_metadata, read_table, write_table
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from postroad.errors import PipelineError
from postroad.spark.pipeline.frames import frame_of, local
from postroad.spark.pipeline.lake_files import File, Files

DAY = "day"  # the column that divides the files, if there is one
Rows: TypeAlias = DataFrame | Any  # rows for Spark to compute, or a pyarrow.Table, which the driver has
NO_DAY = "__HIVE_DEFAULT_PARTITION__"  # how Spark writes a null in the name of a directory
COMPACT_AFTER = 16  # files of a day; a run that finds more merges them
LARGE_BYTES = 128 << 20  # larger files are not faster to read
_FEW_BYTES = 32 << 20  # of files that the driver joins
_ROW_BYTES = 30  # of a compressed row, at least
_COMMIT = "_commit.json"
_PARQUET = ParquetFileFormat()
_PART = re.compile(r"part=(\d+)-(\d+)")
_DAY_DIRECTORY = re.compile(rf"/(?:of_)?{DAY}=([^/]+)/")
_STATUS_CALLS = "10000"  # files that Spark may look up one by one, without starting a job


Start: TypeAlias = SparkSession | Callable[[], SparkSession] | None  # a session, or what starts one when it is needed


def started(spark: Start, what: str) -> SparkSession:
    """The session, which this may start."""
    if spark is None:
        raise PipelineError(f"{what}: this needs a Spark session")
    return spark() if callable(spark) else spark


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

    def __init__(self, spark: Start, lake: Files, name: str) -> None:
        self._spark = spark
        self.lake = lake
        self.name = name
        self.rows_written: int | None = None  # by the last batch; None if only Spark can count them

    @property
    def spark(self) -> SparkSession:
        return started(self._spark, self.name)

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
    def _commit(self, frame: Rows | None, commit: Commit, replaced: Sequence[str] | None) -> None:
        """Adds all of `frame` to the table and removes the replaced days, or all rows if `replaced` is None.

        Either all of this happens or nothing does.
        """

    def append(self, frame: Rows, batch: int, facts: Mapping[str, Any] | None = None) -> bool:
        """Adds a batch. Returns False and changes nothing if the table already has it. Batches must come in rising
        order.
        """
        return self._write(frame, batch, facts, ())

    def replace(self, frame: Rows, batch: int, facts: Mapping[str, Any] | None = None) -> bool:
        """Replaces all rows by this batch. Returns False and changes nothing if the table has this batch or a later
        one.
        """
        return self._write(frame, batch, facts, None)

    def update(self, frame: Rows, days: Iterable[str], batch: int, facts: Mapping[str, Any] | None = None) -> bool:
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
        files = [file for file in self.files() if file.day in days]
        if self.lake.is_local and sum(file.size for file in files) < _FEW_BYTES:
            rows = self._rows(last, files, last.schema.names, None)
            self._commit(rows, last, None if None in days else sorted(day for day in days if day is not None))
            return True
        frame = self._read(last, files)
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

    def _write(self, frame: Rows, batch: int, facts: Mapping[str, Any] | None, replaced: Sequence[str] | None) -> bool:
        last = self.last()
        if last is not None and batch <= last.batch:
            return False
        there = from_arrow_schema(frame.schema) if isinstance(frame, pyarrow.Table) else frame.schema
        schema = grown(self.name, None if last is None else last.schema, there)
        self._commit(_with_columns(frame, schema), Commit(batch, dict(facts or {}), schema), replaced)
        return True

    def _write_files(self, frame: Rows, directory: str, *, keep_day: bool = False) -> list[File]:
        """Lets Spark's tasks write the frame, or writes what the driver has. Returns the Parquet files."""
        if isinstance(frame, pyarrow.Table):
            if self.lake.is_local:
                return self._write_rows(frame, directory, keep_day=keep_day)
            frame = frame_of(self.spark, frame).coalesce(1)
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

    def _write_rows(self, rows: pyarrow.Table, directory: str, *, keep_day: bool) -> list[File]:
        """Writes as Spark would, one file for each day. Spark would need some jobs for it."""
        self.rows_written = rows.num_rows
        parts: dict[str, pyarrow.Table] = {"": rows} if rows.num_rows else {}
        if DAY in rows.column_names:
            column = rows[DAY].cast(pyarrow.string())
            parts = {
                f"{'of_' if keep_day else ''}{DAY}={_day_name(day)}/": _of_day(rows, column, day)
                for day in pc.unique(column)
            }
        for place, part in parts.items():
            path = Path(self.lake.url(f"{directory}/{place}part-{uuid4().hex[:12]}.zstd.parquet"))
            path.parent.mkdir(parents=True, exist_ok=True)
            kept = part if keep_day or not place else part.drop_columns([DAY])
            write_table(kept, path, compression="zstd", coerce_timestamps="us")
        return [file for file in self.lake.walk(directory) if file.path.endswith(".parquet")]

    def columns(self) -> list[str]:
        last = self.last()
        return [] if last is None else list(last.schema.names)

    def count(self, days: Iterable[str] | None = None) -> int:
        """The number of rows, from the footers of files; for a lake that is not local, an estimate from their size."""
        files = self._files(days)
        return sum(rows_of(file.path) if self.lake.is_local else file.size // _ROW_BYTES for file in files)

    def rows(self, days: Iterable[str] | None = None, columns: Sequence[str] | None = None) -> Any:
        """The rows in the driver's memory: of a local lake without Spark. None for a table without a batch."""
        last = self.last()
        return None if last is None else self._rows(last, self._files(days), columns or last.schema.names, None)

    def some(self, where: pc.Expression | None, columns: Sequence[str]) -> pyarrow.Table:
        """The rows in the driver's memory that meet a condition. Files that cannot have any are not read."""
        last = self.last()
        assert last is not None
        return self._rows(last, self._files(None), columns, where)

    def most(self, where: pc.Expression) -> int:
        """At most so many rows of a local lake meet a condition, from the footers of files."""
        found = 0
        for file in self._files(None):
            fragment = _PARQUET.make_fragment(file.path, filesystem=LocalFileSystem())
            found += sum(group.num_rows for part in fragment.split_by_row_group(where) for group in part.row_groups)
        return found

    def matching(self, column: str, values: Any, columns: Sequence[str]) -> dict[str | None, pyarrow.Table]:
        """The rows by day whose value in a column is one of these, in the driver's memory."""
        last = self.last()
        assert last is not None
        kinds = to_arrow_schema(StructType([last.schema[name] for name in columns]), timezone="UTC")
        found: dict[str | None, list[pyarrow.Table]] = {None: [kinds.empty_table()]}
        if self.lake.is_local and len(values):
            for file in self._files(None):
                rows = pc.is_in(read_table(file.path, columns=[column], partitioning=None)[column], values)
                if pc.any(rows).as_py():
                    found.setdefault(file.day, []).append(_read_file(file, kinds).filter(rows))
        elif len(values):
            wanted = f.broadcast(frame_of(self.spark, pyarrow.table({column: values})))
            read = self._read(last, self._files(None)).join(wanted, column, "left_semi")
            days = read[DAY].cast("string").alias("_day")
            rows = read.select(*columns, days).toArrow()
            for day in pc.unique(rows["_day"]).to_pylist():
                its = rows.filter(pc.equal(rows["_day"], day)).select(list(columns)).cast(kinds)
                found.setdefault(day, []).append(its)
        return {day: pyarrow.concat_tables(parts) for day, parts in found.items()}

    def _files(self, days: Iterable[str] | None) -> list[DataFile]:
        wanted = None if days is None else set(days)
        return [file for file in self.files() if wanted is None or file.day in wanted]

    def _rows(self, last: Commit, files: Sequence[DataFile], columns: Sequence[str], where: Any) -> pyarrow.Table:
        kinds = to_arrow_schema(StructType([last.schema[name] for name in columns]), timezone="UTC")
        if not files:
            return kinds.empty_table()
        if self.lake.is_local:
            return pyarrow.concat_tables([_read_file(file, kinds, where) for file in files])
        frame = self._read(last, files)
        if where is not None:
            needed = to_arrow_schema(last.schema, timezone="UTC").names
            names = [name for name in needed if f"{name}" in str(where) or name in columns]
            return frame.select(*names).toArrow().filter(where).select(list(columns)).cast(kinds)
        return frame.select(*columns).toArrow().cast(kinds)


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

    def _commit(self, frame: Rows | None, commit: Commit, replaced: Sequence[str] | None) -> None:
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


def _of_day(rows: pyarrow.Table, column: pyarrow.ChunkedArray, day: pyarrow.Scalar) -> pyarrow.Table:
    return rows.filter(pc.equal(column, day) if day.is_valid else pc.is_null(column))


def _day_name(day: pyarrow.Scalar) -> str:
    return day.as_py() if day.is_valid else NO_DAY


def _read_file(file: DataFile, kinds: pyarrow.Schema, where: pc.Expression | None = None) -> pyarrow.Table:
    """A file's columns with these names and types. A column that it lacks is null, and its day is in its path."""
    there = read_metadata(file.path).schema.to_arrow_schema().names
    known = [name for name in kinds.names if name in there]
    found = read_table(file.path, columns=known, partitioning=None, filters=where)
    columns = []
    for field in kinds:
        if field.name in there:
            columns.append(found[field.name].cast(field.type))
        elif field.name == DAY and file.day not in (None, NO_DAY):
            day = pyarrow.scalar(file.day).cast(pyarrow.date32()).cast(field.type)
            columns.append(pyarrow.chunked_array([pyarrow.repeat(day, found.num_rows)]))
        else:
            columns.append(pyarrow.chunked_array([pyarrow.nulls(found.num_rows, field.type)]))
    return pyarrow.Table.from_arrays(columns, schema=kinds)


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


def _with_columns(frame: Rows, schema: StructType) -> Rows:
    if isinstance(frame, pyarrow.Table):
        kinds = to_arrow_schema(schema, timezone="UTC")
        known = set(frame.column_names)
        columns = [
            frame[kind.name].cast(kind.type) if kind.name in known else pyarrow.nulls(frame.num_rows, kind.type)
            for kind in kinds
        ]
        return pyarrow.Table.from_arrays(columns, schema=kinds)
    there = set(frame.columns)
    return frame.select(
        *(
            frame[field.name] if field.name in there else f.lit(None).cast(field.dataType).alias(field.name)
            for field in schema
        )
    )
