"""Summaries of gold/delivery that are made together, in one pass over its rows.

A summary is made from parts of the rows, and its parts can be joined. So the driver makes it for the rows that it has,
and Spark's tasks make it for many rows, each for its own: the same function, and one job for all summaries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

_JOIN_ROWS = 200_000  # of the parts that a task keeps before it joins them
_PARTS = "summary string, part binary"
WIDTH = 1.02  # of the bins of times
_NO_TIME = -10_000  # the bin for 0 s, below all other bins
MOST_S, LEAST_S = "most", "least"  # the bounds of a time


@dataclass(frozen=True, slots=True)
class Summary:
    """Groups of messages.

    `shape` makes, from rows of gold/delivery, rows with the keys and the columns that are added up. Then rows with the
    same keys are joined: the sums of some columns, the least and the greatest values of others. `finish` makes the
    table's columns.
    """

    columns: tuple[str, ...]
    shape: Callable[[pa.Table], pa.Table]
    keys: tuple[str, ...]
    sums: tuple[str, ...] = ()
    least: tuple[str, ...] = ()
    greatest: tuple[str, ...] = ()
    finish: Callable[[pa.Table], pa.Table] = lambda joined: joined

    def part(self, rows: pa.Table) -> pa.Table:
        return self.joined([self.shape(rows)])

    def joined(self, parts: Sequence[pa.Table]) -> pa.Table:
        added = [(name, how) for names, how in self._ways() for name in names]
        grouped = pa.concat_tables(parts).group_by(list(self.keys), use_threads=False).aggregate(added)
        return grouped.rename_columns([*self.keys, *(name for name, _ in added)])

    def _ways(self) -> Iterator[tuple[tuple[str, ...], str]]:
        yield from ((self.sums, "sum"), (self.least, "min"), (self.greatest, "max"))


def in_driver(rows: pa.Table, summaries: Mapping[str, Summary]) -> dict[str, pa.Table]:
    return {name: each.finish(each.part(rows)) for name, each in summaries.items()}


def in_tasks(delivered: DataFrame, summaries: Mapping[str, Summary]) -> dict[str, pa.Table]:
    """One job. Each task sends its parts of all summaries."""
    columns = list(dict.fromkeys(column for each in summaries.values() for column in each.columns))
    kinds = to_arrow_schema(StructType([delivered.schema[name] for name in columns]), timezone="UTC")

    def work(batches: Iterable[Any]) -> Iterator[Any]:
        parts: dict[str, list[pa.Table]] = {name: [] for name in summaries}
        for batch in batches:
            rows = pa.Table.from_batches([batch]).cast(kinds)
            for name, summary in summaries.items():
                kept = parts[name]
                kept.append(summary.part(rows))
                if len(kept) > 1 and sum(part.num_rows for part in kept) > _JOIN_ROWS:
                    parts[name] = [summary.joined(kept)]
        found = {name: _packed(summaries[name].joined(kept)) for name, kept in parts.items() if kept}
        yield pa.RecordBatch.from_pydict({"summary": list(found), "part": pa.array(found.values(), pa.binary())})

    received: dict[str, list[pa.Table]] = {name: [each.part(kinds.empty_table())] for name, each in summaries.items()}
    for row in delivered.select(*columns).mapInArrow(work, _PARTS).collect():
        received[row["summary"]].append(_unpacked(row["part"]))
    return {name: each.finish(each.joined(received[name])) for name, each in summaries.items()}


def _packed(part: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, part.schema) as writer:
        writer.write_table(part)
    return bytes(sink.getvalue())


def _unpacked(data: bytes) -> pa.Table:
    with pa.ipc.open_stream(pa.py_buffer(bytes(data))) as reader:
        return reader.read_all()


# Columns


def with_columns(rows: pa.Table, **columns: Any) -> pa.Table:
    """The rows with more columns, or other values in known ones. A value that is no array is the same in every row."""
    for name, value in columns.items():
        column = value if isinstance(value, pa.Array | pa.ChunkedArray) else pa.repeat(value, rows.num_rows)
        there = rows.schema.get_field_index(name)
        rows = rows.append_column(name, column) if there < 0 else rows.set_column(there, name, column)
    return rows


def typed(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """The columns of a schema, in its order and with its types."""
    return pa.Table.from_arrays([rows[kind.name].cast(kind.type) for kind in schema], schema=schema)


def first_of(rows: pa.Table, *names: str) -> Any:
    return pc.coalesce(*(rows[name] for name in names))


def count(flags: Any) -> Any:
    """1 for true, 0 for false and null."""
    return pc.fill_null(flags, False).cast(pa.int64())


def ones(rows: pa.Table) -> Any:
    return pa.repeat(1, rows.num_rows)


# Times in bins, and percentiles


def bins(seconds: Any) -> Any:
    """The bin of each time: N for 1.02^(N-1) to 1.02^N seconds. Null for no time."""
    values = seconds.cast(pa.float64()).to_numpy(zero_copy_only=False)
    found = np.full(len(values), _NO_TIME, np.int64)
    there = values > 0
    found[there] = np.ceil(np.log(values[there]) / np.log(WIDTH))
    return pa.array(found, pa.int32(), mask=np.isnan(values))


def percentiles(groups: Any, values: Any, weights: Any, count: int, shares: Sequence[float]) -> Any:
    """A row for each of `count` groups, a column for each share; NaN for a group without values. A value counts as
    often as its weight."""
    order = np.lexsort((values, groups))
    groups, values, weights = groups[order], values[order], weights[order]
    total = np.bincount(groups, weights, count).astype(np.int64)
    ends = np.cumsum(weights)
    before = np.concatenate(([0], np.cumsum(total)[:-1]))
    found = np.full((count, len(shares)), np.nan)
    there = total > 0
    for column, share in enumerate(shares):
        place = share * (total[there] - 1)
        low, high = (
            values[np.searchsorted(ends, before[there] + rank.astype(np.int64), side="right")]
            for rank in (np.floor(place), np.ceil(place))
        )
        found[there, column] = np.round(low + (high - low) * (place - np.floor(place)), 3)
    return found


def numbered(rows: pa.Table, names: Sequence[str]) -> tuple[pa.Table, Any]:
    """The distinct values of some columns, and for each row the number of its values among them."""
    codes = np.stack(
        [pc.dictionary_encode(rows[name].combine_chunks(), null_encoding="encode").indices.to_numpy() for name in names]
    )
    _, first, numbers = np.unique(codes, axis=1, return_index=True, return_inverse=True)
    return rows.select(list(names)).take(pa.array(first)), numbers.reshape(-1)


def nullable(values: Any) -> Any:
    """Numbers as a column; NaN is null."""
    return pa.array(values, pa.float64(), from_pandas=True)
