"""Adds the batches of a user's own stream to a Delta table, each exactly once, with the lake's writer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from postroad.errors import InvalidArgument, SparkUnavailable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_QUERY = "sql.streaming.queryId"


def lake_sink(path: str | Path, name: str | None = None) -> Callable[[DataFrame, int], None]:
    """A function for `foreachBatch` that adds each batch to the Delta table at a path of this machine.

    Spark's tasks write the files, and one commit adds them, together with the number of the batch. So a batch that runs
    again, after any crash, adds nothing twice. `name` is the name of the stream in the table; by default, it is the id
    of the query, which its checkpoint keeps. It must be given with Spark Connect. Raises InvalidArgument for another
    scheme.
    """
    parts = urlsplit(str(path))
    if parts.scheme not in ("", "file") or parts.netloc:
        raise InvalidArgument(f"path: must be on this machine, got {path}")
    place = Path(unquote(parts.path) if parts.scheme else path).absolute()

    def add(frame: DataFrame, batch: int) -> None:
        from postroad.spark.pipeline.lake_files import open_files
        from postroad.spark.pipeline.lakes import DeltaTable

        table = DeltaTable(frame.sparkSession, open_files(place.parent, None), place.name)
        table.append_once(frame, name or _query_of(frame), batch)

    return add


def _query_of(frame: DataFrame) -> str:
    """The id of the query whose batch is being handled."""
    session = frame.sparkSession
    found = session.sparkContext.getLocalProperty(_QUERY) if hasattr(session, "_sc") else None
    if found is None:
        raise SparkUnavailable("name: must be given, because Spark does not say which query this batch is of")
    return found
