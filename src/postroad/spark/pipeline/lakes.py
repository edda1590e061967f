"""Tables in Delta Lake and Apache Iceberg, through their Python libraries. Spark's tasks write files, the driver
commits.

Spark needs no jars for this. Every engine that knows the format can read the tables.
"""

from __future__ import annotations

import json
import time
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import quote
from uuid import uuid4

import pyarrow
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    MapType,
    NullType,
    StringType,
    StructType,
    TimestampNTZType,
    VariantType,
)

from postroad.errors import InvalidArgument, PipelineError
from postroad.runtime.private_files import make_private_directory
from postroad.spark.pipeline.tables import DAY, Commit, DataFile, Rows, Table, day_of, grown, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_WRITER_VERSION = 2  # tables of later ones have constraints or other features, which Delta's own writer must keep
_APP = "postroad"  # how we appear in a table's log
_NAMESPACE = "postroad"
_BATCH, _FACTS, _SCHEMA = "postroad.batch", "postroad.facts", "postroad.schema"


class _LocalTable(Table):
    """A table on this machine's disk. The libraries cannot use Hadoop's file systems."""

    @property
    def root(self) -> Path:
        return Path(self.lake.url(self.name))

    def _draft(self, frame: Rows | None, commit: Commit, *, keep_day: bool = False) -> list[Path]:
        """Writes the frame to a new directory and returns its files.

        The directory is named like one of Spark's partitions, so that Spark can read several of them together.
        """
        make_private_directory(Path(self.lake.root))
        self.root.mkdir(parents=True, exist_ok=True)
        if frame is None:
            return []
        directory = f"{self.name}/part={commit.batch:08}-{uuid4().hex[:8]}"
        return [Path(self.lake.url(file.path)) for file in self._write_files(frame, directory, keep_day=keep_day)]

    def _replaced_files(self, replaced: Sequence[str] | None) -> list[DataFile]:
        return [file for file in self.files() if replaced is None or file.day in replaced]


class DeltaTable(_LocalTable):
    """A Delta table. The batch is the version of an application transaction, which Delta itself stores and compares."""

    def last(self) -> Commit | None:
        table = self._table()
        if table is None:
            return None
        for entry in table.history():
            if _BATCH in entry:
                return _read_commit(entry)
        return None

    def files(self) -> list[DataFile]:
        table = self._table()
        return [] if table is None else [_data_file(each) for each in table.file_uris()]

    def _table(self) -> Any:
        deltalake = _library("deltalake", "delta")
        return deltalake.DeltaTable(str(self.root)) if deltalake.DeltaTable.is_deltatable(str(self.root)) else None

    def _commit(self, frame: Rows | None, commit: Commit, replaced: Sequence[str] | None) -> None:
        deltalake = _library("deltalake", "delta")
        from deltalake.transaction import RemoveAction

        gone = self._replaced_files(replaced)
        removed_ms = time.time_ns() // 1_000_000
        files = self._draft(frame, commit)
        days = [DAY] if DAY in commit.schema.names else []
        properties = deltalake.CommitProperties(
            custom_metadata=_commit_properties(commit), app_transactions=[deltalake.Transaction(_APP, commit.batch)]
        )
        removed = [RemoveAction(self._relative(Path(file.path)), True, removed_ms, file.size) for file in gone]
        self._transact(self._opened(commit.schema, days), files, removed, commit.schema, days, properties)

    def append_once(self, frame: DataFrame, stream: str, batch: int) -> bool:
        """Adds a batch of a stream to a table of its own or of others. Returns False and changes nothing if the table
        has this batch or a later one of the stream. Other streams may write at the same time.

        The columns are those of the table and new ones. Raises PipelineError for a table that only others can write.
        """
        deltalake = _library("deltalake", "delta")
        table = self._table()
        last = None if table is None else table.transaction_version(stream)
        if last is not None and batch <= last:
            return False
        schema, days = self._grown(table, frame)
        make_private_directory(self.root)
        there = {field.name for field in frame.schema}
        missing = [f.lit(None).cast(field.dataType).alias(field.name) for field in schema if field.name not in there]
        directory = f"{self.name}/part={batch:08}-{uuid4().hex[:8]}"
        written = self._write_files(frame.select("*", *missing), directory, keep_day=not days)
        files = [file for file in (Path(self.lake.url(each.path)) for each in written) if rows_of(str(file))]
        properties = deltalake.CommitProperties(app_transactions=[deltalake.Transaction(stream, batch)])
        self._transact(self._opened(schema, days), files, [], schema, days, properties)
        return True

    def _grown(self, table: Any, frame: DataFrame) -> tuple[StructType, list[str]]:
        """The columns of the table after it took the frame, and those that divide its files."""
        for field in frame.schema:
            if not _is_plain(field.dataType):
                raise PipelineError(
                    f"{self.root}: the column {field.name} must have a type that every version of Delta knows, got "
                    f"{field.dataType.simpleString()}; cast it, a variant with to_json(...)"
                )
        if table is None:
            kind = frame.schema[DAY].dataType if DAY in frame.columns else None
            return grown(self.name, None, frame.schema), [DAY] if isinstance(kind, StringType | DateType) else []
        days = list(table.metadata().partition_columns)
        version = table.protocol().min_writer_version
        if version > _WRITER_VERSION or days not in ([], [DAY]):
            raise PipelineError(
                f"{self.root}: must be a table without constraints and features, divided by no column but {DAY}, got "
                f"writer version {version}, divided by {', '.join(days) or 'none'}; write to another path"
            )
        return grown(self.name, StructType.fromJson(json.loads(table.schema().to_json())), frame.schema), days

    def _opened(self, columns: StructType, days: list[str]) -> Any:
        """The table, made if there is none, with all of these columns."""
        deltalake = _library("deltalake", "delta")
        try:
            schema = deltalake.Schema.from_json(columns.json())  # Delta and Spark use the same JSON for schemas
        except Exception as fault:  # of the library, without a type of its own
            raise PipelineError(f"{self.root}: a column has a type that the table cannot hold: {fault}") from None
        table = self._table()
        if table is None:
            return deltalake.DeltaTable.create(str(self.root), schema, partition_by=days)
        known = {field.name for field in table.schema().fields}
        added = [field for field in schema.fields if field.name not in known]
        if added:
            table.alter.add_columns(added)
        return table

    def _transact(
        self,
        table: Any,
        files: Sequence[Path],
        removed: Sequence[Any],
        columns: StructType,
        days: list[str],
        properties: Any,
    ) -> None:
        deltalake = _library("deltalake", "delta")
        from deltalake.transaction import AddAction

        schema = deltalake.Schema.from_json(columns.json())
        added = [
            AddAction(
                self._relative(file),
                file.stat().st_size,
                {DAY: _day_value(file)} if days else {},
                int(file.stat().st_mtime * 1000),
                True,
                json.dumps({"numRecords": rows_of(str(file))}),
            )
            for file in files
        ]
        table.create_write_transaction([*added, *removed], "append", schema, days, commit_properties=properties)

    def _relative(self, file: Path) -> str:
        return quote(str(file.relative_to(self.root)), safe="/=")


def _is_plain(kind: DataType) -> bool:
    """Whether a table needs no feature for a column of this type."""
    match kind:
        case StructType():
            return all(_is_plain(field.dataType) for field in kind)
        case ArrayType():
            return _is_plain(kind.elementType)
        case MapType():
            return _is_plain(kind.keyType) and _is_plain(kind.valueType)
    return not isinstance(kind, VariantType | TimestampNTZType | NullType)


class IcebergTable(_LocalTable):
    """An Iceberg table in its own catalog, `catalog.db` beside the tables. The snapshot's summary has the batch."""

    def last(self) -> Commit | None:
        table = self._table()
        snapshot = None if table is None else table.current_snapshot()
        if snapshot is None or snapshot.summary is None:
            return None
        return _read_commit(snapshot.summary.additional_properties)

    def files(self) -> list[DataFile]:
        table = self._table()
        if table is None or table.current_snapshot() is None:
            return []
        return [_data_file(task.file.file_path) for task in table.scan().plan_files()]

    @property
    def _identifier(self) -> str:
        return f"{_NAMESPACE}.{self.name.replace('/', '_')}"

    def _catalog(self) -> Any:
        _library("pyiceberg", "iceberg")
        from pyiceberg.catalog.sql import SqlCatalog

        lake = Path(self.lake.root)
        make_private_directory(lake)
        catalog = SqlCatalog(_APP, uri=f"sqlite:///{lake / 'catalog.db'}", warehouse=f"file://{lake}")
        catalog.create_namespace_if_not_exists(_NAMESPACE)
        return catalog

    def _table(self) -> Any:
        catalog = self._catalog()
        return catalog.load_table(self._identifier) if catalog.table_exists(self._identifier) else None

    def _commit(self, frame: Rows | None, commit: Commit, replaced: Sequence[str] | None) -> None:
        expressions: Any = import_module("pyiceberg.expressions")
        files = [file for file in self._draft(frame, commit, keep_day=True) if rows_of(str(file))]
        arrow = to_arrow_schema(commit.schema, timezone="UTC")
        table = self._table()
        if table is None:
            table = self._catalog().create_table(self._identifier, arrow, location=f"file://{self.root}")
            if DAY in commit.schema.names:
                with table.update_spec() as spec:
                    spec.add_identity(DAY)
        with table.transaction() as transaction:
            with transaction.update_schema() as update:
                update.union_by_name(arrow)
            if self._replaced_files(replaced):
                every = expressions.AlwaysTrue()
                transaction.delete(every if replaced is None else expressions.In(DAY, set(replaced)))
            paths = [f"file://{file}" for file in files]
            transaction.add_files(paths, snapshot_properties=_commit_properties(commit))


def _library(name: str, extra: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        raise PipelineError(f"{name} is not installed; run pip install 'postroad[{extra}]'") from None


def _commit_properties(commit: Commit) -> dict[str, str]:
    return {_BATCH: str(commit.batch), _FACTS: json.dumps(commit.facts), _SCHEMA: commit.schema.json()}


def _read_commit(properties: Mapping[str, Any]) -> Commit | None:
    if _BATCH not in properties:
        return None
    schema = StructType.fromJson(json.loads(properties[_SCHEMA]))
    return Commit(int(properties[_BATCH]), json.loads(properties[_FACTS]), schema)


def _day_value(file: Path) -> str | None:
    """The day in a file's path. None if the column is null."""
    day = day_of(str(file))
    return None if day == "__HIVE_DEFAULT_PARTITION__" else day


def _data_file(uri: str) -> DataFile:
    path = uri.removeprefix("file://")
    return DataFile(path, Path(path).stat().st_size, day_of(path))


# Delta and Iceberg tables as Spark sources, `format("delta")` and `format("iceberg")`, through their Python libraries.
#
# They only read, and are for sessions without the jars of these formats. Each data file is a partition.


# For each format, a class of its jars, and the library that reads it without them.
_FORMATS = {
    "delta": ("org.apache.spark.sql.delta.sources.DeltaDataSource", "deltalake"),
    "iceberg": ("org.apache.iceberg.spark.source.IcebergSource", "pyiceberg"),
}


def register_formats(spark: SparkSession) -> None:
    """Registers each format whose library is installed and whose jars are missing."""
    machine: Any = getattr(spark, "_jvm", None)
    if machine is None:  # a session of Spark Connect
        return
    sources: dict[str, type[DataSource]] = {"delta": DeltaSource, "iceberg": IcebergSource}
    for name, (jar_class, library) in _FORMATS.items():
        if find_spec(library) is not None and not _is_on_class_path(machine, jar_class):
            spark.dataSource.register(sources[name])


def _is_on_class_path(machine: Any, name: str) -> bool:
    from py4j.protocol import Py4JJavaError

    try:
        machine.java.lang.Thread.currentThread().getContextClassLoader().loadClass(name)
    except Py4JJavaError:
        return False
    return True


class _FileSource(DataSource):
    @property
    def path(self) -> str:
        path = self.options.get("path")
        if not path:
            raise InvalidArgument(f'{self.name()}: the path of a table is missing; use .load("/path/of/the/table")')
        return path

    def schema(self) -> StructType:
        return from_arrow_schema(self.reader(StructType()).arrow())

    @abstractmethod
    def reader(self, schema: StructType) -> _FileReader: ...

    def writer(self, schema: StructType, overwrite: bool) -> NoReturn:
        raise InvalidArgument(
            f"{self.name()}: this session can read such tables but not write them by name, because it has no jars of "
            "the format; write to a Delta table with .writeStream.foreachBatch(postroad.spark.lake_sink(path))"
        )

    streamWriter = writer  # noqa: N815


class _FileReader(DataSourceReader):
    def __init__(self, path: str, schema: StructType) -> None:
        self._path = path
        self._schema = schema

    @abstractmethod
    def arrow(self) -> pyarrow.Schema:
        """The columns of the table."""

    @abstractmethod
    def files(self) -> int:
        """The number of data files. Their order is always the same."""

    @abstractmethod
    def batches(self, file: int) -> Iterator[pyarrow.RecordBatch]: ...

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(number) for number in range(self.files())]

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        wanted = to_arrow_schema(self._schema, timezone="UTC")
        for batch in self.batches(partition.value):
            yield from pyarrow.Table.from_batches([batch]).select(wanted.names).cast(wanted).to_batches()


class DeltaSource(_FileSource):
    @classmethod
    def name(cls) -> str:
        return "delta"

    def reader(self, schema: StructType) -> _FileReader:
        from deltalake import DeltaTable

        if not DeltaTable.is_deltatable(self.path):
            raise InvalidArgument(f"delta: {self.path} is not a table: it has no _delta_log")
        version = DeltaTable(self.path).version()  # the same version for every task
        return _DeltaReader(self.path, int(self.options.get("versionAsOf", version)), schema)


class _DeltaReader(_FileReader):
    def __init__(self, path: str, version: int, schema: StructType) -> None:
        super().__init__(path, schema)
        self._version = version

    def _dataset(self) -> Any:
        from deltalake import DeltaTable

        return DeltaTable(self._path, version=self._version).to_pyarrow_dataset()

    def _fragments(self) -> list[Any]:
        return sorted(self._dataset().get_fragments(), key=lambda fragment: str(fragment.path))

    def arrow(self) -> pyarrow.Schema:
        return self._dataset().schema

    def files(self) -> int:
        return len(self._fragments())

    def batches(self, file: int) -> Iterator[pyarrow.RecordBatch]:
        yield from self._fragments()[file].to_batches(schema=self._dataset().schema)


class IcebergSource(_FileSource):
    @classmethod
    def name(cls) -> str:
        return "iceberg"

    def reader(self, schema: StructType) -> _FileReader:
        return _IcebergReader(_newest_metadata(self.path), schema)


class _IcebergReader(_FileReader):
    def _table(self) -> Any:
        from pyiceberg.table import StaticTable

        return StaticTable.from_metadata(self._path)

    def _tasks(self) -> list[Any]:
        table = self._table()
        if table.current_snapshot() is None:
            return []
        return sorted(table.scan().plan_files(), key=lambda task: str(task.file.file_path))

    def arrow(self) -> pyarrow.Schema:
        return self._table().schema().as_arrow()

    def files(self) -> int:
        return len(self._tasks())

    def batches(self, file: int) -> Iterator[pyarrow.RecordBatch]:
        from pyiceberg.expressions import AlwaysTrue
        from pyiceberg.io.pyarrow import ArrowScan

        table = self._table()
        scan = ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue())
        yield from scan.to_record_batches([self._tasks()[file]])


def _newest_metadata(path: str) -> str:
    """The newest metadata file in a table's directory. A path of a metadata file is returned as it is."""
    if path.endswith(".json"):
        return path
    directory = Path(path.removeprefix("file://"), "metadata")
    found = sorted(directory.glob("*.metadata.json"), key=lambda file: (file.stat().st_mtime_ns, file.name))
    if not found:
        raise InvalidArgument(f"iceberg: {path} is not a table: it has no metadata/*.metadata.json")
    return str(found[-1])
