"""Delta and Iceberg tables as sources of Spark's, `format("delta")` and `format("iceberg")`, by their Python libraries.

They are for sessions without the formats' own jars, and only read. Each data file is a partition.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from postroad.errors import InvalidArgument

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A class of the jars, and the library that reads the format without them.
_FORMATS = {
    "delta": ("org.apache.spark.sql.delta.sources.DeltaDataSource", "deltalake"),
    "iceberg": ("org.apache.iceberg.spark.source.IcebergSource", "pyiceberg"),
}


def register_formats(spark: SparkSession) -> None:
    """Registers each format whose library is installed and whose jars are not."""
    machine: Any = getattr(spark, "_jvm", None)
    if machine is None:  # Spark Connect
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


class _FileReader(DataSourceReader):
    def __init__(self, path: str, schema: StructType) -> None:
        self._path = path
        self._schema = schema

    @abstractmethod
    def arrow(self) -> pyarrow.Schema:
        """The columns of the table."""

    @abstractmethod
    def files(self) -> int:
        """How many data files the table has, in an order that stays."""

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
            raise InvalidArgument(f"delta: {self.path} is no table: there is no _delta_log in it")
        version = DeltaTable(self.path).version()  # every task reads the same one
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
    """The metadata file of a table's directory, or the file itself if the path is one."""
    if path.endswith(".json"):
        return path
    directory = Path(path.removeprefix("file://"), "metadata")
    found = sorted(directory.glob("*.metadata.json"), key=lambda file: (file.stat().st_mtime_ns, file.name))
    if not found:
        raise InvalidArgument(f"iceberg: {path} is no table: there is no metadata/*.metadata.json in it")
    return str(found[-1])
