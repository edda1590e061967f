"""Record batches of messages: the requested columns, from packets and from the values stored with them.

A range of a queue is read in order of arrival: pages of several sources are merged, and hidden rows are left out. It
runs on any thread. The caller provides the pages: a source gives the numbers and packets of records in the form of
postroad.store.interface.Columns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from postroad.columns.decoding import decode
from postroad.columns.schema import ARROW_TYPES, ERROR, KNOWN, MESSAGE, PACKET, PROPERTIES
from postroad.columns.texts import Ints, Mask, binary, offsets_of
from postroad.errors import InvalidArgument

END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"  # the end mark of the Arrow format: a message of length 0
ARRIVAL_MASK = (1 << 56) - 1
BATCH_BYTES = 2 << 20  # of packets in a batch, about; this fits a reader's memory and a processor's cache
FIRST_ROWS = 1000  # in the first page, when the sizes are still unknown
MOST_ROWS = 65_536
_WIDTH = 8  # numbers in a record
_LOOKUP_ID, _SIZE, _ARRIVED, _EXPIRES, _ABORTS, _REASON = range(6)

# Reads the numbers and packets of records with `after` < lookup id <= `last`. The arguments are after, last, how many
# records, and how many bytes.
Read = Callable[[int, int, int, int], tuple[bytes, bytes]]


def listed(*, packet: bool) -> tuple[str, ...]:
    """The columns of an answer whose caller chose none."""
    return (*MESSAGE, PACKET) if packet else MESSAGE


def schema_of(columns: Sequence[str]) -> Any:
    """The schema of these columns. Raises InvalidArgument for an unknown column."""
    for name in columns:
        if name not in KNOWN:
            close = get_close_matches(name, KNOWN, n=1)
            hint = f"did you mean {close[0]}?" if close else f"known are {', '.join(KNOWN)}"
            raise InvalidArgument(f"columns: there is no column {name!r}; {hint}")
    return pa.schema([(name, ARROW_TYPES[name]) for name in columns])


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Messages of a batch before decoding: each number is a column, and the packets are a binary array."""

    lookup_ids: Ints
    arrived_ms: Ints
    aborts: Ints
    reasons: Ints
    packets: Any

    @classmethod
    def of(cls, *columns: Sequence[Any]) -> Rows:
        """Makes rows from plain values, in the order of the fields."""
        *numbers, packets = columns
        lookup_ids, arrived_ms, aborts, reasons = (np.array(each, np.int64) for each in numbers)
        return cls(lookup_ids, arrived_ms, aborts, reasons, pa.array(packets, pa.binary()))

    def __len__(self) -> int:
        return len(self.lookup_ids)

    def take(self, indices: Ints) -> Rows:
        """The rows at these indices."""
        numbers = (self.lookup_ids, self.arrived_ms, self.aborts, self.reasons)
        lookup_ids, arrived_ms, aborts, reasons = (each[indices] for each in numbers)
        return Rows(lookup_ids, arrived_ms, aborts, reasons, self.packets.take(pa.array(indices)))

    def decode(self, columns: Sequence[str]) -> dict[str, Any]:
        return decode(self.packets, reason=pa.array(self.reasons), columns=columns)

    def batch(self, schema: Any) -> Any:
        """The record batch for a schema from `schema_of`."""
        decoded = [name for name in schema.names if name in PROPERTIES or name == ERROR]
        found = self.decode(decoded) if decoded else {}
        arrays = [found[name] if name in found else self._place(name) for name in schema.names]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _place(self, name: str) -> Any:
        match name:
            case "lookup_id":
                return pa.array(self.lookup_ids)
            case "arrived_at":
                return pa.array(self.arrived_ms * 1000).cast(ARROW_TYPES[name])
            case "aborts":
                return pa.array(self.aborts.astype(np.int32))
            case "reason":
                return pa.array(self.reasons.astype(np.int32))
        assert name == PACKET
        return self.packets


@dataclass(frozen=True, slots=True)
class Span:
    """The range of a hold, and the messages in it that the hold does not have."""

    start: int
    end: int
    passed_over: Sequence[int]

    def mask(self, lookup_ids: Ints) -> tuple[Mask, Mask]:
        """Which rows are in the range, and which of these the hold does not have."""
        arrivals = lookup_ids & ARRIVAL_MASK
        inside: Mask = (arrivals >= self.start) & (arrivals < self.end)
        if not self.passed_over:
            return inside, np.zeros(len(inside), bool)
        return inside, inside & np.isin(lookup_ids, np.array(self.passed_over, np.int64))


@dataclass(frozen=True, slots=True)
class Shown:
    """The rows that a reader can see at one moment: not locked, not held by others, not expired."""

    locked: Sequence[int]
    own: Span | None
    others: Sequence[Span]
    now_s: int

    def mask(self, lookup_ids: Ints, expires_s: Ints) -> Mask:
        shown: Mask = (expires_s == 0) | (expires_s >= self.now_s)
        if self.own is not None:
            inside, passed_over = self.own.mask(lookup_ids)
            shown = np.where(inside, ~passed_over, shown)
        for other in self.others:
            inside, passed_over = other.mask(lookup_ids)
            shown &= ~inside | passed_over
        if self.locked:
            shown &= ~np.isin(lookup_ids, np.array(self.locked, np.int64))
        return shown


@dataclass(slots=True)
class _Source:
    """One ordered run of records, with the part that was read but not yet returned."""

    read: Read
    position: int
    last: int
    done: bool = False
    numbers: Ints = field(default_factory=lambda: np.zeros((0, _WIDTH), np.int64))
    packets: Any = None
    rows: int = FIRST_ROWS

    def fill(self) -> None:
        numbers, packets = self.read(self.position, self.last, self.rows, BATCH_BYTES)
        self.numbers = np.frombuffer(numbers, ">i8").astype(np.int64).reshape(-1, _WIDTH)
        if not len(self.numbers):
            self.done = True
            return
        bounds = np.concatenate(([0], np.cumsum(self.numbers[:, _SIZE])))
        self.packets = binary(np.frombuffer(packets, np.uint8), bounds, pa.binary())
        self.position = int(self.numbers[-1, _LOOKUP_ID])
        self.done = self.position >= self.last
        mean = len(packets) // len(self.numbers) + 1
        self.rows = max(1, min(BATCH_BYTES // mean, MOST_ROWS))

    def cut(self, bound: int) -> tuple[Ints, Any]:
        """Removes and returns the rows up to an arrival number."""
        count = int(np.searchsorted(self.numbers[:, _LOOKUP_ID] & ARRIVAL_MASK, bound, "right"))
        numbers, packets = self.numbers[:count], self.packets[:count]
        self.numbers, self.packets = self.numbers[count:], self.packets[count:]
        return numbers, packets


class RangeReader:
    """Returns a range batch by batch: the requested columns of the visible messages that pass the filters."""

    def __init__(
        self,
        sources: Sequence[tuple[Read, int, int]],
        columns: Sequence[str],
        *,
        limit: int | None = None,
        equal: dict[str, object] | None = None,
    ) -> None:
        """Prepares the range.

        `sources` has for each run a function that reads it, and its first and last lookup id. `equal` has the values
        that columns must have.
        """
        self.schema = schema_of(columns)
        self._sources = [_Source(read, first - 1, last) for read, first, last in sources]
        self._left = limit
        self._equal = equal or {}

    def pages(self, shown: Shown) -> list[memoryview] | None:
        """The next record batches, serialized. None at the end; an empty list if no row was visible.

        `shown` must have been made before this call, so that a message that a reader then had is not returned.
        """
        rows = None if self._left == 0 else self._next()
        if rows is None:
            return None
        found = self._chosen(*rows, shown)
        if self._left is not None:
            self._left -= len(found)
        return [memoryview(each.serialize()) for each in _pieces(found, self.schema)]

    def _next(self) -> tuple[Ints, Any] | None:
        """The next rows in order of arrival, visible or not."""
        for source in self._sources:
            if not source.done and not len(source.numbers):
                source.fill()
        live = [source for source in self._sources if len(source.numbers)]
        if not live:
            return None
        bound = min((source.position & ARRIVAL_MASK for source in live if not source.done), default=ARRIVAL_MASK)
        parts = [part for part in (source.cut(bound) for source in live) if len(part[0])]
        if len(parts) == 1:
            return parts[0]
        numbers = np.concatenate([part[0] for part in parts])
        order = np.argsort(numbers[:, _LOOKUP_ID] & ARRIVAL_MASK, kind="stable")
        return numbers[order], pa.concat_arrays([part[1] for part in parts]).take(pa.array(order))

    def _chosen(self, numbers: Ints, packets: Any, shown: Shown) -> Rows:
        rows = Rows(
            np.ascontiguousarray(numbers[:, _LOOKUP_ID]),
            numbers[:, _ARRIVED],
            numbers[:, _ABORTS],
            numbers[:, _REASON],
            packets,
        )
        mask = shown.mask(rows.lookup_ids, numbers[:, _EXPIRES])
        if not mask.all():
            rows = rows.take(np.flatnonzero(mask))
        if self._equal and len(rows):
            mask = np.ones(len(rows), bool)
            for name, column in rows.decode(tuple(self._equal)).items():
                equal = pc.fill_null(pc.equal(column, pa.scalar(self._equal[name], column.type)), False)
                mask &= equal.to_numpy(zero_copy_only=False)
            rows = rows.take(np.flatnonzero(mask))
        if self._left is not None and len(rows) > self._left:
            rows = rows.take(np.arange(self._left))
        return rows


def _pieces(rows: Rows, schema: Any) -> list[Any]:
    """The rows as record batches, none with much more than BATCH_BYTES of packets."""
    batch = rows.batch(schema)
    bounds = offsets_of(rows.packets).astype(np.int64)
    pieces = []
    start = 0
    while start < len(rows):
        stop = int(np.searchsorted(bounds, bounds[start] + BATCH_BYTES, "right")) - 1
        stop = max(stop, start + 1)
        pieces.append(batch.slice(start, stop - start))
        start = stop
    return pieces
