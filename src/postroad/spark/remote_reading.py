"""Readers of messages by MS-MQQP: a batch by ranges of lookup ids, a stream that removes what it has read.

Locks belong to a connection, and Spark's processes have one each. So tasks peek, and once a batch is complete, the
driver receives its messages by lookup id.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from postroad.columns.schema import INT, LONG, PACKET, TIME
from postroad.errors import MessagesGone
from postroad.received import ReceivedMessage
from postroad.spark.offsets import shares
from postroad.spark.options import ARRIVAL_MASK, ReadOptions, Rpc
from postroad.spark.reading import FIRST_S, LEAST_MESSAGES, PARTITIONS, Range, other_partition
from postroad.spark.remote import PROBES, RemoteQueue
from postroad.spark.remote_offsets import RemoteOffset, Seen, shared, without
from postroad.spark.rows import joined, rows
from postroad.spark.schema import named
from postroad.spark.streaming import GO_ON, IDLE_S
from postroad.spark.tracebacks import iterator_without_traceback, without_traceback

MAX_ROWS = 10_000  # of a batch by default: the driver looks at each of them
_CUTS_EACH = 8  # ids to try in each priority at least: their numbers of messages are unknown
_RANK_SHIFT = ARRIVAL_MASK.bit_length()


class SeenMessages(InputPartition):
    """The messages of one task, one by one."""

    def __init__(self, messages: list[Seen]) -> None:
        super().__init__(messages)
        self.messages = messages


class RemoteBatchReader(DataSourceReader):
    """All messages in the queue, except those that others are receiving. Ranges are of lookup ids; each begins with the
    id of a message."""

    def __init__(self, options: ReadOptions, rpc: Rpc, schema: StructType) -> None:
        self._options = options
        self._rpc = rpc
        self._columns = named(schema)

    @without_traceback
    def partitions(self) -> Sequence[InputPartition]:
        queue, name = RemoteQueue(self._options.place, self._rpc, timeout_s=FIRST_S), self._options.place.queue
        try:
            ends = queue.ends()
            if ends is None:
                return [Range(name, 0, 0)]  # without one, Spark would make one itself
            first, last = sorted(ends)  # they are asked for one after the other
            bounds = [first, *_between(queue, first, last, self._options.partitions or PARTITIONS), last + 1]
            return [Range(name, begin, end) for begin, end in pairwise(bounds)]
        finally:
            queue.close()

    @iterator_without_traceback
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        part = Range.of(partition)
        if part.begin == part.end:
            return
        queue = RemoteQueue(self._options.place, self._rpc)
        try:
            yield from _batches(_range(queue, part.begin, part.end), self._columns, part.queue)
        finally:
            queue.close()


def _between(queue: RemoteQueue, first: int, last: int, most: int) -> list[int]:
    """Lookup ids of messages that divide the queue into nearly equal parts: by priority, which is the top octet of a
    lookup id, and then by arrival. Fewer if there is no message near a cut."""
    ranks = range(first >> _RANK_SHIFT, (last >> _RANK_SHIFT) + 1)
    arrivals = [first & ARRIVAL_MASK, last & ARRIVAL_MASK]
    if len(ranks) > 1:  # the first arrived before others of its priority, the last after others
        arrivals += [_farthest(queue, first, 1) & ARRIVAL_MASK, _farthest(queue, last, -1) & ARRIVAL_MASK]
    low, high = min(arrivals), max(arrivals)
    parts = shares(high - low + 1, most, LEAST_MESSAGES)
    if parts == 1:
        return []
    each = parts if len(ranks) == 1 else max(-(-parts // len(ranks)), _CUTS_EACH)
    ids = [rank << _RANK_SHIFT | low + (high + 1 - low) * part // each for rank in ranks for part in range(each)]
    found = {queue.near(place, last) for place in ids if first < place < last}
    cuts = sorted(cut for cut in found if cut is not None)
    wanted = min(parts - 1, len(cuts))
    return [cuts[(len(cuts) + 1) * (cut + 1) // (wanted + 1) - 1] for cut in range(wanted)]


def _farthest(queue: RemoteQueue, lookup_id: int, direction: int) -> int:
    """The lookup id of a message of the same priority, far from this one in steps that double while they meet some."""
    rank, found, step = lookup_id >> _RANK_SHIFT, lookup_id, PROBES
    while True:
        place = max(lookup_id + direction * step, rank << _RANK_SHIFT)
        met = queue.near(place, min(place + PROBES, rank + 1 << _RANK_SHIFT))
        if met is None or met == found:
            return found
        found, step = met, step * 2


def _range(queue: RemoteQueue, begin: int, end: int) -> Iterator[list[ReceivedMessage]]:
    message = queue.at(begin)
    if message is not None:
        yield [message]
    yield from queue.walk(begin, end)


class RemoteStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The messages in the queue, batch by batch; each batch is removed when it is complete.

    Spark asks for the latest offset with the end of the last completed batch, whose commit log is written. So that
    batch is removed right there, before the next one is searched. The rest of the queue has then not been read.
    """

    def __init__(self, options: ReadOptions, rpc: Rpc, schema: StructType) -> None:
        self._options = options
        self._rpc = rpc
        self._columns = named(schema)
        self._opened: RemoteQueue | None = None
        self._target: list[Seen] | None = None
        self._removed: tuple[RemoteOffset, int] | None = None

    def _queue(self) -> RemoteQueue:
        if self._opened is None:
            self._opened = RemoteQueue(self._options.place, self._rpc)
        return self._opened

    def stop(self) -> None:
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    # Offsets

    @without_traceback
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        queue = RemoteQueue(self._options.place, self._rpc, timeout_s=FIRST_S)
        try:
            queue.ends()  # fails at once for a wrong address
        finally:
            queue.close()
        return RemoteOffset.first().json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self._options.max_rows or MAX_ROWS)

    @without_traceback
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = [Seen.of(message) for page in self._queue().walk() for message in page]

    @without_traceback
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        done = RemoteOffset.read(start)
        gone = self._remove(done)
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else MAX_ROWS
        batch = self._left(done.batch(), most)
        if not batch:
            if self._target is None:
                time.sleep(IDLE_S)
            return start
        parts = shares(len(batch), self._options.partitions or PARTITIONS, LEAST_MESSAGES)
        return RemoteOffset.of(batch, parts, gone, done.more).json()

    def _left(self, done: list[Seen], most: int) -> list[Seen]:
        """The next batch."""
        if self._target is not None:
            self._target = without(self._target, done)
            return self._target[:most]
        found: list[Seen] = []
        before = frozenset(done)
        back: list[Seen] = []  # another reader had them when they were to be removed; not every server reports that
        for page in self._queue().walk():
            for message in page:
                seen = Seen.of(message)
                (back if seen in before else found).append(seen)
            if len(found) >= most:
                break
        if back:
            self._queue().remove(back)
        return found[:most]

    # Batches

    @without_traceback
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        if start == end:
            return []
        batch = RemoteOffset.read(end)
        return [SeenMessages(part) for part in shared(batch.batch(), batch.partitions)]

    @iterator_without_traceback
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, SeenMessages):
            raise other_partition(partition)
        queue = RemoteQueue(self._options.place, self._rpc)
        found = 0
        try:
            for batch in _batches(queue.peek(partition.messages), self._columns, self._options.place.queue):
                found += batch.num_rows
                yield batch
        finally:
            queue.close()
        wanted = len(partition.messages)
        if found < wanted and self._options.fail_on_data_loss:
            raise MessagesGone(
                f"{self._options.place.queue}: only {found} of the batch's {wanted} messages are left: "
                f"others have received them, or they were purged or have expired; {GO_ON}"
            )

    # Removing

    @without_traceback
    def commit(self, end: dict[str, Any]) -> None:
        self._remove(RemoteOffset.read(end))

    def _remove(self, done: RemoteOffset) -> int:
        """Removes a completed batch; returns how many messages were gone in all."""
        if self._removed is None or self._removed[0] != done:
            self._removed = done, done.gone + self._queue().remove(done.batch())
        return self._removed[1]


def _batches(pages: Iterable[list[ReceivedMessage]], columns: Sequence[str], queue: str) -> Iterator[pa.RecordBatch]:
    for batch in joined(map(_answer, pages)):
        yield rows(batch, columns, queue)


def _answer(messages: list[ReceivedMessage]) -> pa.RecordBatch:
    """As a manager would answer. MS-MQQP does not report aborts and the reason of a dead letter."""
    return pa.RecordBatch.from_pydict(
        {
            "lookup_id": pa.array([message.lookup_id for message in messages], LONG),
            "arrived_at": pa.array([message.arrived_ms * 1000 for message in messages], LONG).cast(TIME),
            "aborts": pa.nulls(len(messages), INT),
            "reason": pa.nulls(len(messages), INT),
            PACKET: pa.array([message.packet for message in messages], pa.binary()),
        }
    )
