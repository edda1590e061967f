"""Tables in Delta Lake and Apache Iceberg, by their Python libraries: Spark's tasks write files, the driver commits.

Spark needs no jars for it. Every engine that knows the format can read the tables.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote
from uuid import uuid4

from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from postroad.errors import PipelineError
from postroad.spark.pipeline.tables import DAY, Commit, Table, rows_of

_APP = "postroad"  # the writer's name in a table's log
_NAMESPACE = "postroad"
_BATCH, _FACTS, _SCHEMA = "postroad.batch", "postroad.facts", "postroad.schema"


class DeltaTable(Table):
    """The batch is the version of an application's transaction, which Delta itself keeps and compares."""

    def last(self) -> Commit | None:
        table = self._table()
        if table is None:
            return None
        for entry in table.history():
            if _BATCH in entry:
                return _kept(entry)
        return None

    def files(self) -> list[str]:
        table = self._table()
        return [] if table is None else [_path(each) for each in table.file_uris()]

    def _table(self) -> Any:
        deltalake = _library("deltalake", "delta")
        return deltalake.DeltaTable(str(self.root)) if deltalake.DeltaTable.is_deltatable(str(self.root)) else None

    def _commit(self, frame: DataFrame, commit: Commit, *, whole: bool) -> None:
        deltalake = _library("deltalake", "delta")
        from deltalake.transaction import AddAction

        self.root.mkdir(parents=True, exist_ok=True)
        files = self._write_files(frame, _new_directory(self.root, commit))
        schema = deltalake.Schema.from_json(commit.schema.json())  # Delta's own JSON of a schema is Spark's
        days = [DAY] if DAY in commit.schema.names else []
        table = self._table()
        if table is None:
            table = deltalake.DeltaTable.create(str(self.root), schema, partition_by=days)
        else:
            known = {field.name for field in table.schema().fields}
            added = [field for field in schema.fields if field.name not in known]
            if added:
                table.alter.add_columns(added)
        actions = [
            AddAction(
                quote(str(file.relative_to(self.root)), safe="/="),
                file.stat().st_size,
                {DAY: _day(file)} if days else {},
                int(file.stat().st_mtime * 1000),
                True,
                json.dumps({"numRecords": rows_of(file)}),
            )
            for file in files
        ]
        table.create_write_transaction(
            actions,
            "overwrite" if whole else "append",
            schema,
            days,
            commit_properties=deltalake.CommitProperties(
                custom_metadata=_keeping(commit), app_transactions=[deltalake.Transaction(_APP, commit.batch)]
            ),
        )


class IcebergTable(Table):
    """In its own catalog, `catalog.db` beside the tables. The snapshot's summary has the batch."""

    def last(self) -> Commit | None:
        table = self._table()
        snapshot = None if table is None else table.current_snapshot()
        if snapshot is None or snapshot.summary is None:
            return None
        return _kept(snapshot.summary.additional_properties)

    def files(self) -> list[str]:
        table = self._table()
        if table is None or table.current_snapshot() is None:
            return []
        return [_path(task.file.file_path) for task in table.scan().plan_files()]

    @property
    def _identifier(self) -> str:
        return f"{_NAMESPACE}.{self.name.replace('/', '_')}"

    def _catalog(self) -> Any:
        _library("pyiceberg", "iceberg")
        from pyiceberg.catalog.sql import SqlCatalog

        self.lake.mkdir(parents=True, exist_ok=True)
        catalog = SqlCatalog(_APP, uri=f"sqlite:///{self.lake / 'catalog.db'}", warehouse=f"file://{self.lake}")
        catalog.create_namespace_if_not_exists(_NAMESPACE)
        return catalog

    def _table(self) -> Any:
        catalog = self._catalog()
        return catalog.load_table(self._identifier) if catalog.table_exists(self._identifier) else None

    def _commit(self, frame: DataFrame, commit: Commit, *, whole: bool) -> None:
        from pyiceberg.expressions import AlwaysTrue

        files = self._write_files(frame, _new_directory(self.root, commit), keep_day=True)
        files = [file for file in files if rows_of(file)]
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
            if whole and table.current_snapshot() is not None:
                transaction.delete(AlwaysTrue())
            paths = [f"file://{file}" for file in files]
            transaction.add_files(paths, snapshot_properties=_keeping(commit))


def _library(name: str, extra: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        raise PipelineError(f"{name} is not installed; run pip install 'postroad[{extra}]'") from None


def _new_directory(root: Path, commit: Commit) -> Path:
    """Named like Spark's partitions, or Spark could not read several of them together."""
    return root / f"part={commit.batch:08}-{uuid4().hex[:8]}"


def _keeping(commit: Commit) -> dict[str, str]:
    return {_BATCH: str(commit.batch), _FACTS: json.dumps(commit.facts), _SCHEMA: commit.schema.json()}


def _kept(properties: Mapping[str, Any]) -> Commit | None:
    if _BATCH not in properties:
        return None
    schema = StructType.fromJson(json.loads(properties[_SCHEMA]))
    return Commit(int(properties[_BATCH]), json.loads(properties[_FACTS]), schema)


def _day(file: Path) -> str | None:
    """The day in the name of a file's directory; None if the column is null."""
    value = unquote(file.parent.name.partition("=")[2])
    return None if value == "__HIVE_DEFAULT_PARTITION__" else value


def _path(uri: str) -> str:
    return uri.removeprefix("file://")
