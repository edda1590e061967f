"""Readers of messages: a batch reads a snapshot of the queue, a stream reads ranges of arrival numbers.

Planning runs in processes of the driver, `read` in workers that share only the partition with them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any
from uuid import uuid4

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from postroad.errors import MessagesGone, SharingViolation
from postroad.spark.manager import ManagerApi, Mark, Patience
from postroad.spark.offsets import Offset, shares, split, split_evenly
from postroad.spark.options import ARRIVAL_MASK, Mode, ReadOptions, Start
from postroad.spark.rows import asked, joined, rows
from postroad.spark.schema import named
from postroad.spark.tracebacks import iterator_without_traceback, without_traceback

PARTITIONS = 4  # the default
LEAST_MESSAGES = 1000  # the least for a separate task
FIRST_S = 5.0  # to reach a manager for the first time: the address may be wrong
IDLE_S = 0.05  # Spark asks a hundred times a second whether there is something new


class Range(InputPartition):
    """The messages of one task. `messages` is how many there were when the task was made, None if not counted."""

    def __init__(self, begin: int, end: int, messages: int | None = None, hold: str | None = None) -> None:
        super().__init__((begin, end))
        self.begin = begin
        self.end = end
        self.messages = messages
        self.hold = hold


class BatchReader(DataSourceReader):
    """All messages in the queue, except those that others are receiving.

    It takes none of Spark's filters (`pushFilters`): Spark 4.3 keeps the filters of one query, and applies them to the
    next query of the same DataFrame, and to other parts of the same query.
    """

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._columns = named(schema)

    @without_traceback
    def partitions(self) -> Sequence[InputPartition]:
        api = ManagerApi(self._options.place, timeout_s=FIRST_S)
        mark = api.mark()
        api.close()
        selection = self._options.selection
        begin = max(selection.begin, mark.arrived if mark.oldest is None else mark.oldest)
        end = min(selection.end, mark.arrived)
        if begin >= end:
            return [Range(0, 0)]  # without one, Spark would make one itself
        most = self._options.partitions or PARTITIONS
        return [Range(*each) for each in split_evenly(begin, end, shares(mark.messages, most, LEAST_MESSAGES))]

    @iterator_without_traceback
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Range)
        api = ManagerApi(self._options.place)
        wanted = asked(self._columns)
        found = api.messages(partition.begin, partition.end, wanted, equal=self._options.selection.equal)
        for batch in joined(found):
            yield rows(batch, self._columns)
        api.close()


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """New messages of the queue, in ranges.

    Spark asks for the latest offset with the end of the last completed batch, whose commit log is written. So all
    messages before that are acknowledged right there, also those of the very last batch. `commit` comes a batch later.
    """

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._columns = named(schema)
        self._api = ManagerApi(options.place)
        self._first: Offset | None = None
        self._target: Mark | None = None
        self._committed = -1
        self._counted: tuple[int, int, npt.NDArray[np.int64]] | None = None
        self._latest: Mark | None = None

    # Offsets

    @without_traceback
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        if self._first is None:
            api = ManagerApi(self._options.place, timeout_s=FIRST_S)
            self._first = self._begin(api.mark())
            api.close()
        return self._first.json()

    def _begin(self, mark: Mark) -> Offset:
        hold = None
        if self._options.mode is Mode.CONSUME:
            hold = self._options.hold or f"spark-{uuid4()}"
        start = self._options.start
        if start is Start.LATEST:
            return Offset.first(mark.arrival, mark.added, hold)
        if start is Start.EARLIEST:
            gone = mark.added - mark.messages  # all present ones come later: there is none before the oldest
            return Offset.first(mark.arrival if mark.oldest is None else mark.oldest, gone, hold)
        assert isinstance(start, int)
        return Offset.first(start, None, hold)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self._options.max_rows) if self._options.max_rows else ReadAllAvailable()

    @without_traceback
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = self._mark()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        return None if self._latest is None else {"arrival": self._latest.arrival}

    @without_traceback
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        begin = Offset.read(start)
        self._acknowledge(begin)
        bound = self._bound()
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        arrivals = self._arrivals(begin.arrival, bound.arrival, most, begin.hold)
        stop = min(bound.arrival, self._mark().arrival)  # a reader may be receiving one of them by now
        whole = bound.whole and stop == bound.arrival and (most is None or len(arrivals) < most)
        missing = self._missing(begin, bound, len(arrivals)) if whole else 0
        arrivals = arrivals[arrivals < stop]
        if not len(arrivals):
            return self._idle(start)
        parts = shares(len(arrivals), self._options.partitions or PARTITIONS, LEAST_MESSAGES)
        if whole:
            offset = begin.to_mark(stop, len(arrivals), parts, bound.added, missing)
        else:
            offset = begin.to(int(arrivals[-1]) + 1, len(arrivals), parts)
        self._counted = (offset.begin, offset.arrival, arrivals)
        return offset.json()

    def _bound(self) -> Mark:
        """How far this query may read now."""
        mark = self._mark()
        return mark if self._target is None or mark.arrival < self._target.arrival else self._target

    def _idle(self, start: dict[str, Any]) -> dict[str, Any]:
        if self._target is None:
            time.sleep(IDLE_S)
        return start

    def _missing(self, begin: Offset, bound: Mark, messages: int) -> int:
        """How many messages came since `begin` and are gone; MessagesGone if any and the options forbid it."""
        missing = begin.missing(messages, bound.added)
        if missing:  # a reader may have put one of them back just now
            time.sleep(IDLE_S)
            messages = len(self._arrivals(begin.arrival, bound.arrival, None, begin.hold))
            missing = begin.missing(messages, bound.added)
        if missing and self._options.fail_on_data_loss:
            holders = ", ".join(each["name"] for each in self._api.holds() if each["name"] != begin.hold)
            why = (
                f"{holders} holds them" if holders else "others have received them, or they were purged or have expired"
            )
            raise MessagesGone(
                f"{self._options.place.queue}: {missing + messages} messages came between {begin.arrival} and "
                f"{bound.arrival}, and {missing} of them cannot be read: {why}; {GO_ON}"
            )
        return missing

    def _mark(self) -> Mark:
        self._latest = self._api.mark()
        return self._latest

    def _arrivals(self, begin: int, end: int, most: int | None, hold: str | None) -> npt.NDArray[np.int64]:
        found = [
            batch.column("lookup_id").to_numpy(zero_copy_only=False) & ARRIVAL_MASK
            for batch in self._api.messages(begin, end, ("lookup_id",), limit=most, hold=hold)
        ]
        return np.concatenate(found) if found else np.empty(0, np.int64)

    # Batches

    @without_traceback
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        if start == end:
            return []
        batch = Offset.read(end)
        if batch.hold is not None:
            self._hold(batch.hold, batch.begin, batch.arrival)
        counted, self._counted = self._counted, None
        if counted is not None and counted[:2] == (batch.begin, batch.arrival):
            arrivals = counted[2]
        else:  # a second run, by a process that has not counted it
            arrivals = self._arrivals(batch.begin, batch.arrival, None, batch.hold)
        # What is missing of a held range, this stream has received: its batch is complete.
        if batch.hold is None:
            self._demand(batch.begin, batch.arrival, batch.messages, len(arrivals))
        if not len(arrivals):
            return []
        return [
            Range(low, high, None if batch.hold else messages, batch.hold)
            for low, high, messages in split(batch.begin, batch.arrival, arrivals, batch.partitions)
        ]

    def _hold(self, name: str, begin: int, end: int) -> None:
        """Holds a whole range. Waits for messages that others are receiving, because they may put them back."""
        self._commit(name, begin)  # there is a batch from `begin` on: the one before is complete
        patience = Patience(self._options.place.timeout_s)
        while begin < end and (passed_over := self._api.hold(name, begin, end)):
            self._api.release(name)
            patience.wait(
                SharingViolation(
                    f"{self._options.place.queue}: other readers still have {passed_over} messages between {begin} "
                    f"and {end} locked; start the stream again later"
                )
            )

    @iterator_without_traceback
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Range)
        api = ManagerApi(self._options.place)
        messages = 0
        found = api.messages(partition.begin, partition.end, asked(self._columns), hold=partition.hold)
        for batch in joined(found):
            messages += batch.num_rows
            yield rows(batch, self._columns)
        api.close()
        if partition.messages is not None:
            self._demand(partition.begin, partition.end, partition.messages, messages)

    def _demand(self, begin: int, end: int, wanted: int, found: int) -> None:
        if found < wanted and self._options.fail_on_data_loss:
            raise MessagesGone(
                f"{self._options.place.queue}: only {found} of {wanted} messages between {begin} and {end} are left: "
                f"others have received or are receiving them, or they were purged or have expired; {GO_ON}"
            )

    # Acknowledging

    @without_traceback
    def commit(self, end: dict[str, Any]) -> None:
        self._acknowledge(Offset.read(end))

    def _acknowledge(self, done: Offset) -> None:
        if done.hold is not None:
            self._commit(done.hold, done.arrival)

    def _commit(self, hold: str, end: int) -> None:
        if end > self._committed:
            self._api.commit(hold, end)
            self._committed = end


GO_ON = "set the option failOnDataLoss=false to continue with the rest"
