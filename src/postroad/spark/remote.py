"""Reads a queue of any MSMQ server by MS-MQRR or MS-MQQP, with blocking calls that are repeated while it restarts.

Messages are found by their lookup ids. Where the ids are known, many calls run at a time.
"""

from __future__ import annotations

import asyncio
import time
from base64 import b64decode, b64encode
from binascii import Error
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import Enum
from itertools import pairwise
from typing import Any, TypeVar
from zlib import compress, crc32, decompress, error

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from postroad.client.blocking import LoopThread
from postroad.client.payloads import as_action, next_page
from postroad.client.remote import RemoteBackend
from postroad.columns.schema import INT, LONG, PACKET, TIME
from postroad.describe.received import ReceivedMessage
from postroad.errors import (
    InvalidArgument,
    InvalidHandle,
    MessageAlreadyReceived,
    MessageNotFound,
    MessagesGone,
    PostroadError,
    RpcUnavailable,
    SharingViolation,
    TransactionSequence,
    TransactionUsage,
)
from postroad.reports.info import counted
from postroad.spark.checkpoint import VERSION, check_version, shares, with_more
from postroad.spark.manager_api import ANSWER_S, Patience, read_secret
from postroad.spark.options import ARRIVAL_MASK, Place, ReadOptions, Rpc
from postroad.spark.reading import (
    FIRST_S,
    LEAST_MESSAGES,
    PARTITIONS,
    Range,
    joined,
    other_partition,
    rows,
)
from postroad.spark.schema import named
from postroad.spark.streaming import GO_ON, IDLE_S
from postroad.spark.tracebacks import iterator_without_traceback, without_traceback

T = TypeVar("T")
FIRST_PAGE = 8  # messages, until their size is known; each may have 4 MiB
TOGETHER = 256  # messages that are looked at in one step
REMOVED_TOGETHER = 1024
LAST_LOOKUP_ID = (1 << 63) - 1
PROBES = 64  # lookup ids to try when searching for a message
_CURRENT, _FIRST, _LAST = as_action("current"), as_action("first"), as_action("last")
_NOT_THERE = (MessageNotFound, MessageAlreadyReceived)
_BROKEN = (RpcUnavailable, InvalidHandle)


class Fate(Enum):
    """What happened to a message that is not in its place."""

    TAKEN = "taken"  # we received it
    GONE = "gone"
    LOCKED = "locked"  # another reader is receiving it, and may put it back


_Result = ReceivedMessage | Fate | PostroadError


def _answer_of(answer: ReceivedMessage | PostroadError) -> _Result:
    if isinstance(answer, _NOT_THERE):
        return Fate.GONE
    return Fate.LOCKED if isinstance(answer, TransactionUsage) else answer


class RemoteQueue:
    """Calls about one queue. While the server does not answer, a call is repeated until the time-out of the place.

    Every call can be repeated without harm. A received message is not there a second time. A message whose receive was
    not acknowledged returns to its place when the connection ends.
    """

    def __init__(self, place: Place, rpc: Rpc, *, timeout_s: float | None = None) -> None:
        self._queue = place.queue
        self._timeout_s = place.timeout_s if timeout_s is None else min(timeout_s, place.timeout_s)
        self._rpc = rpc
        self._thread = LoopThread()
        self._backend = self._thread.run(self._start())

    async def _start(self) -> RemoteBackend:
        rpc = self._rpc
        password = rpc.password if rpc.password_file is None else read_secret("passwordFile", rpc.password_file)
        return RemoteBackend(rpc.host, rpc.port, user=rpc.user, password=password, protocol=rpc.protocol)

    def close(self) -> None:
        try:
            self._thread.run(self._backend.close())
        finally:
            self._thread.stop()

    # Looking

    def ends(self) -> tuple[int, int] | None:
        """The lookup ids of the first and the last message. None if the queue is empty."""

        async def look() -> tuple[int, int] | None:
            try:
                first = await self._backend.lookup(self._queue, 0, _FIRST, False, None)
                last = await self._backend.lookup(self._queue, 0, _LAST, False, None)
            except MessageNotFound:
                return None
            return first.lookup_id, last.lookup_id

        return self._retried(look)

    def at(self, lookup_id: int) -> ReceivedMessage | None:
        """The message with this lookup id. None if it is gone or another reader has locked it."""

        async def look() -> ReceivedMessage | None:
            (found,) = await self._look((lookup_id,))
            return None if isinstance(found, Fate) else found

        return self._retried(look)

    def near(self, lookup_id: int, end: int) -> int | None:
        """The lookup id of a message at or shortly after `lookup_id` and below `end`. None if there is none.

        The protocol can find the next message only from an existing one, so this tries one lookup id after another.
        """
        for first in range(lookup_id, min(lookup_id + PROBES, end), FIRST_PAGE):
            tried = range(first, min(first + FIRST_PAGE, end))

            async def look(tried: range = tried) -> list[ReceivedMessage | Fate]:
                return await self._look(tried)

            for found in self._retried(look):
                if not isinstance(found, Fate):
                    return found.lookup_id
        return None

    def walk(self, after: int = 0, end: int | None = None, *, bodies: bool = True) -> Iterator[list[ReceivedMessage]]:
        """Yields the messages with after < lookup id < end that no other reader has locked, in queue order, page by
        page. Without `bodies`, servers that can leave them out do.

        The protocol finds one message at a time, the next one after a known one. While lookup ids are dense, this
        guesses the next ids and looks at all of them at once: a wrong guess costs less than waiting for each answer.
        """
        count, known, guess = FIRST_PAGE, after, None
        while True:
            tried = range(0)
            if guess is not None:
                # stay in the same priority
                last = min(guess + count, (known | ARRIVAL_MASK) + 1, end or LAST_LOOKUP_ID)
                tried = range(guess, last)
            page = self._guessed(tried, bodies) if tried else self._page(known, count, bodies)
            inside = page if end is None else [each for each in page if each.lookup_id < end]
            if inside:
                yield inside
                known = inside[-1].lookup_id
            if tried:
                guess = tried.stop if 2 * len(page) >= len(tried) else None
            elif len(page) < count or len(inside) < len(page):
                return
            elif known - page[0].lookup_id < 2 * len(page):
                guess = known + 1
            count = min(next_page(page), TOGETHER) if page else FIRST_PAGE

    def _page(self, after: int, count: int, bodies: bool = True) -> list[ReceivedMessage]:
        async def look() -> list[ReceivedMessage]:
            return await self._backend.page(self._queue, after, count, bodies=bodies)

        return self._retried(look)

    def _guessed(self, tried: range, bodies: bool = True) -> list[ReceivedMessage]:
        async def look() -> list[ReceivedMessage | Fate]:
            return await self._look(tried, bodies=bodies)

        return [each for each in self._retried(look) if isinstance(each, ReceivedMessage)]

    def peek(self, batch: Sequence[Seen]) -> Iterator[list[ReceivedMessage]]:
        """Yields the given messages that still exist, page by page. Raises SharingViolation if another reader keeps one
        locked.
        """
        place, count = 0, FIRST_PAGE
        while place < len(batch):
            answers = self._results(batch[place : place + count], self._look_for)
            place += count
            page = [each for each in answers if isinstance(each, ReceivedMessage)]
            if page:
                yield page
                count = min(next_page(page), TOGETHER)

    async def _look(self, lookup_ids: Sequence[int], *, bodies: bool = True) -> list[ReceivedMessage | Fate]:
        answers = [_answer_of(each) for each in await self._backend.look_all(self._queue, lookup_ids, bodies=bodies)]
        for each in answers:
            if isinstance(each, PostroadError):
                raise each
        return [each for each in answers if not isinstance(each, PostroadError)]

    async def _look_for(self, batch: Sequence[Seen], *, bodies: bool = True) -> list[_Result]:
        """The messages of the batch, those that are still there."""
        answers = await self._backend.look_all(self._queue, [each.lookup_id for each in batch], bodies=bodies)
        return [
            Fate.GONE if isinstance(found, ReceivedMessage) and Seen.of(found) != seen else found
            for seen, found in zip(batch, map(_answer_of, answers), strict=True)
        ]

    # Taking

    def remove(self, batch: Sequence[Seen]) -> int:
        """Receives exactly these messages. Returns how many of them were gone."""
        gone = 0
        for place in range(0, len(batch), REMOVED_TOGETHER):
            answers = self._results(batch[place : place + REMOVED_TOGETHER], self._take)
            gone += sum(each is Fate.GONE for each in answers)
        return gone

    async def _take(self, batch: Sequence[Seen]) -> list[_Result]:
        seen = frozenset(batch)
        lookup_ids = [each.lookup_id for each in batch]
        answers = await self._backend.receive_all_if(self._queue, lookup_ids, lambda found: Seen.of(found) in seen)
        taken: list[_Result] = [
            (Fate.TAKEN if each else Fate.GONE) if isinstance(each, bool) else each for each in answers
        ]
        # Servers also report a locked message as not found. If it is there now, try again.
        unclear = [n for n, each in enumerate(taken) if isinstance(each, (*_NOT_THERE, TransactionSequence))]
        found = await self._look_for([batch[n] for n in unclear], bodies=False) if unclear else ()
        for n, each in zip(unclear, found, strict=True):
            taken[n] = Fate.LOCKED if isinstance(each, ReceivedMessage) else each
        return taken

    # Asking

    def _retried(self, work: Callable[[], Awaitable[T]]) -> T:
        patience = Patience(self._timeout_s)
        while True:
            try:
                return self._thread.run(self._with_timeout(work()))
            except _BROKEN as fault:
                failure = fault
            patience.wait(failure)

    async def _with_timeout(self, work: Awaitable[T]) -> T:
        try:
            async with asyncio.timeout(ANSWER_S):
                return await work
        except TimeoutError:
            raise RpcUnavailable(f"{self._rpc} did not answer within {ANSWER_S:g} seconds") from None

    def _results(
        self, batch: Sequence[Seen], ask: Callable[[Sequence[Seen]], Awaitable[list[_Result]]]
    ) -> list[ReceivedMessage | Fate]:
        """What `ask` says about each message. Those that fail for now are asked again."""
        patience = Patience(self._timeout_s)
        settled: dict[Seen, ReceivedMessage | Fate] = {}
        while left := [each for each in batch if each not in settled]:
            fault: PostroadError | None = None
            try:
                answers = self._thread.run(self._with_timeout(ask(left)))
            except _BROKEN as broken:
                fault, answers = broken, []
            for each, answer in zip(left, answers, strict=False):
                if isinstance(answer, _BROKEN):
                    fault = answer
                elif isinstance(answer, PostroadError):
                    raise answer
                elif answer is Fate.LOCKED:
                    fault = fault or self._still_locked(each)
                else:
                    settled[each] = answer
            if fault is not None:
                patience.wait(fault)
        return [settled[each] for each in batch]

    def _still_locked(self, seen: Seen) -> SharingViolation:
        return SharingViolation(
            f"{self._queue}: another reader still has the message with lookup id {seen.lookup_id} locked; "
            "start the stream again later"
        )


# The batches of a stream by `rpc`, as Spark keeps them in a checkpoint. Values only: no Spark, no server.
#
# The protocol has no mark and no hold, so the end of a batch lists its messages. Each has its lookup id and a checksum
# of its identifier, because a server may use a lookup id twice.


@dataclass(frozen=True, slots=True)
class Seen:
    """A message that was seen in a queue. `check` tells it from another message with the same lookup id."""

    lookup_id: int
    check: int

    @classmethod
    def of(cls, message: ReceivedMessage) -> Seen:
        view = message.view
        return cls(
            message.lookup_id, crc32(view.message_id.to_bytes(4, "little"), crc32(view.source_queue_manager.bytes))
        )


@dataclass(frozen=True, slots=True)
class RemoteOffset:
    """The end of a batch: its messages, and its number of partitions.

    `gone` counts the messages of earlier batches that were missing when they were to be removed. `more` keeps the
    fields of a later version.
    """

    messages: int
    partitions: int
    lookup_ids: str
    checks: str
    gone: int
    more: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(
        cls, batch: Sequence[Seen], partitions: int, gone: int, more: Mapping[str, Any] | None = None
    ) -> RemoteOffset:
        lookup_ids = np.array([each.lookup_id for each in batch], np.int64)
        checks = np.array([each.check for each in batch], np.uint32)
        packed = _packed(np.diff(lookup_ids, prepend=0)), _packed(checks)
        return cls(len(batch), partitions, *packed, gone, more or {})

    @classmethod
    def first(cls) -> RemoteOffset:
        """The start of a stream: the end of an empty batch."""
        return cls.of((), 0, 0)

    def json(self) -> dict[str, Any]:
        own = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "more"}
        return {"version": VERSION, **own, **self.more}

    @classmethod
    def read(cls, value: Mapping[str, Any]) -> RemoteOffset:
        check_version(value.get("version", VERSION))  # the first version had the same fields and no number
        try:
            return with_more(cls, {name: each for name, each in value.items() if name != "version"})
        except TypeError:
            raise _unknown(value) from None

    def batch(self) -> list[Seen]:
        try:
            lookup_ids = np.cumsum(_unpacked(self.lookup_ids, np.int64)).tolist()
            checks = _unpacked(self.checks, np.uint32).tolist()
            return [Seen(lookup_id, check) for lookup_id, check in zip(lookup_ids, checks, strict=True)]
        except (Error, error, ValueError, AttributeError):
            raise _unknown(self.json()) from None


def shared(batch: Sequence[Seen], parts: int) -> list[list[Seen]]:
    """Divides the batch into `parts` nearly equal parts, or fewer if it is small. None of them is empty."""
    parts = max(1, min(parts, len(batch)))
    bounds = [len(batch) * part // parts for part in range(parts + 1)]
    return [list(batch[low:high]) for low, high in pairwise(bounds) if low < high]


def without(batch: Iterable[Seen], others: Iterable[Seen]) -> list[Seen]:
    left_out = frozenset(others)
    return [each for each in batch if each not in left_out]


def _packed(numbers: npt.NDArray[Any]) -> str:
    little = numbers.astype(numbers.dtype.newbyteorder("<"))
    return b64encode(compress(little.tobytes())).decode()


def _unpacked(text: str, kind: type[np.generic]) -> npt.NDArray[Any]:
    return np.frombuffer(decompress(b64decode(text)), np.dtype(kind).newbyteorder("<"))


def _unknown(value: Mapping[str, Any]) -> InvalidArgument:
    return InvalidArgument(
        f"checkpoint: an offset with {', '.join(value)} is from another version or another source; "
        "start with a new checkpoint"
    )


# Readers of messages by `rpc`: a batch by ranges of lookup ids, and a stream that removes what it has read.
#
# A lock belongs to a connection, and each of Spark's processes has its own. So tasks peek, and the driver receives the
# messages of a batch by lookup id once the batch is complete.


MAX_ROWS = 10_000  # in a batch by default; the driver looks at each message
_CUTS_EACH = 8  # lookup ids to try in each priority, because the number of messages in a priority is unknown
_RANK_SHIFT = ARRIVAL_MASK.bit_length()


class SeenMessages(InputPartition):
    """The messages of one task, listed one by one."""

    def __init__(self, messages: list[Seen]) -> None:
        super().__init__(messages)
        self.messages = messages


class RemoteBatchReader(DataSourceReader):
    """Reads all messages in the queue, except those that other readers are receiving.

    Ranges are ranges of lookup ids. Each starts with the lookup id of a message.
    """

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
                return [Range(name, 0, 0)]  # without a partition, Spark would make one itself
            first, last = sorted(ends)  # sorted, because the queue may change between the two calls
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
            yield from _batches(_range(queue, part.begin, part.end), self._columns, part.queue, self._options.decode)
        finally:
            queue.close()


def _between(queue: RemoteQueue, first: int, last: int, most: int) -> list[int]:
    """Lookup ids of messages that divide the queue into nearly equal parts, or fewer parts where no message is near a
    cut.

    The top octet of a lookup id is the priority; the rest grows with each arrival.
    """
    ranks = range(first >> _RANK_SHIFT, (last >> _RANK_SHIFT) + 1)
    arrivals = [first & ARRIVAL_MASK, last & ARRIVAL_MASK]
    if len(ranks) > 1:  # the first message is the oldest of its priority only, and the last the newest of its priority
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
    """The lookup id of a message of the same priority, as far away as steps of doubled length find one."""
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
    """Reads the queue batch by batch, and removes each batch once it is complete.

    Spark asks for the latest offset with the end of the last completed batch, after it has written that batch to its
    commit log. So that batch is removed there, before the search for the next one.
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
            queue.ends()  # so that a wrong address fails at once
        finally:
            queue.close()
        return RemoteOffset.first().json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self._options.max_rows or MAX_ROWS)

    @without_traceback
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = [Seen.of(message) for page in self._queue().walk(bodies=False) for message in page]

    @without_traceback
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        done = RemoteOffset.read(start)
        gone = self._remove(done)
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else MAX_ROWS
        batch = self._next_messages(done.batch(), most)
        if not batch:
            if self._target is None:
                time.sleep(IDLE_S)
            return start
        parts = shares(len(batch), self._options.partitions or PARTITIONS, LEAST_MESSAGES)
        return RemoteOffset.of(batch, parts, gone, done.more).json()

    def _next_messages(self, done: list[Seen], most: int) -> list[Seen]:
        """The messages of the next batch."""
        if self._target is not None:
            self._target = without(self._target, done)
            return self._target[:most]
        found: list[Seen] = []
        before = frozenset(done)
        # another reader had locked these when they were to be removed, which not every server reports
        returned: list[Seen] = []
        for page in self._queue().walk(bodies=False):
            for message in page:
                seen = Seen.of(message)
                (returned if seen in before else found).append(seen)
            if len(found) >= most:
                break
        if returned:
            self._queue().remove(returned)
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
            for batch in _batches(
                queue.peek(partition.messages), self._columns, self._options.place.queue, self._options.decode
            ):
                found += batch.num_rows
                yield batch
        finally:
            queue.close()
        wanted = len(partition.messages)
        if found < wanted and self._options.fail_on_data_loss:
            raise MessagesGone(
                f"{self._options.place.queue}: only {found} of the batch's {counted(wanted, 'message')} are left: "
                f"others have received them, or they were purged or have expired; {GO_ON}"
            )

    # Removing

    @without_traceback
    def commit(self, end: dict[str, Any]) -> None:
        self._remove(RemoteOffset.read(end))

    def _remove(self, done: RemoteOffset) -> int:
        """Removes a completed batch. Returns how many messages of the stream were gone in all."""
        if self._removed is None or self._removed[0] != done:
            self._removed = done, done.gone + self._queue().remove(done.batch())
        return self._removed[1]


def _batches(
    pages: Iterable[list[ReceivedMessage]], columns: Sequence[str], queue: str, decoding: bool
) -> Iterator[pa.RecordBatch]:
    for batch in joined(map(_answer, pages)):
        yield from rows(batch, columns, queue, decoding=decoding)


def _answer(messages: list[ReceivedMessage]) -> pa.RecordBatch:
    """The messages as a manager would answer. Remote readers are not told aborts or the reason of a dead letter."""
    return pa.RecordBatch.from_pydict(
        {
            "lookup_id": pa.array([message.lookup_id for message in messages], LONG),
            "arrived_at": pa.array([message.arrived_ms * 1000 for message in messages], LONG).cast(TIME),
            "aborts": pa.nulls(len(messages), INT),
            "reason": pa.nulls(len(messages), INT),
            PACKET: pa.array([message.packet for message in messages], pa.binary()),
        }
    )
