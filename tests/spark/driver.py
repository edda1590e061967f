"""Calls a stream's reader in Spark's order, without Spark: offset log, commits, tasks and restarts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadLimit

from postroad.spark.data_source import MessageSource
from postroad.spark.reading import Range, Ranges
from postroad.spark.remote import RemoteStreamReader
from postroad.spark.streaming import StreamReader
from tests.served import Served

ORDERS = r"private$\orders"
AnyReader = StreamReader | RemoteStreamReader


def options(manager: Served | str, **given: object) -> dict[str, str]:
    api = manager if isinstance(manager, str) else f"http://{manager.server.host}:{manager.server.port}"
    return {"api": api, "queue": ORDERS, "timeout": "10", **words(given)}


def words(given: Mapping[str, object]) -> dict[str, str]:
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in given.items()}


def stream_reader(given: Mapping[str, str]) -> AnyReader:
    source = MessageSource(dict(given))
    return source.streamReader(source.schema())


def bodies(reader: AnyReader, parts: Sequence[InputPartition]) -> list[str]:
    """What tasks read in a process that knows nothing of the reader so far."""
    return [text for part in parts for batch in reader.read(part) for text in batch.column("body_text").to_pylist()]


@dataclass
class Query:
    """A checkpoint and the query that runs on it: first `start`, then one `batch` after the other."""

    given: dict[str, str]
    offset_log: list[str] = field(default_factory=list)
    commit_log: int = 0  # batches whose end was written

    def start(self, *, available_now: bool = False) -> None:
        """Starts in a new process, which knows nothing that the last one knew."""
        self.reader = stream_reader(self.given)
        if available_now:
            self.reader.prepareForTriggerAvailableNow()
        self.limit: ReadLimit = self.reader.getDefaultReadLimit()

    def construct(self) -> bool:
        """Writes the next batch to the offset log, if there is one."""
        if len(self.offset_log) > self.commit_log:
            return True  # it was constructed before a crash
        start = self.offset_log[-1] if self.offset_log else json.dumps(self.reader.initialOffset())
        end = json.dumps(self.reader.latestOffset(json.loads(start), self.limit))
        if self.offset_log and end == start:
            return False
        self.offset_log.append(end)
        if len(self.offset_log) > 1:
            self.reader.commit(json.loads(start))
        return True

    def planned(self) -> Sequence[InputPartition]:
        """Plans the batch that was constructed last."""
        start = self.offset_log[-2] if len(self.offset_log) > 1 else json.dumps(self.reader.initialOffset())
        return self.reader.partitions(json.loads(start), json.loads(self.offset_log[-1]))

    def parts(self) -> list[Range]:
        """The parts of the last batch of a stream by the HTTP API, task after task."""
        return [part for task in self.planned() for part in Ranges.of(task)]

    def batch(self) -> list[str] | None:
        """Runs one batch. None if there is nothing new."""
        if not self.construct():
            return None
        found = bodies(stream_reader(self.given), self.planned())
        self.commit_log = len(self.offset_log)
        return found

    def offset(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.offset_log[-1])
        return found


def query(manager: Served | str, **given: object) -> Query:
    made = Query(options(manager, **given))
    made.start()
    return made
