"""Reads queues in a stream: ranges of arrival numbers of one or several queues, and what was lost on the way.

Planning runs in one process of the driver, which lives as long as the query. `read` runs in workers, which know only
their partition.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from shlex import quote
from typing import Any
from uuid import uuid4

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from postroad.errors import InvalidArgument, MessagesGone, QueueNotFound, SharingViolation
from postroad.reports.info import counted
from postroad.reports.offsets import Mark, Part, Plan
from postroad.spark.checkpoint import QueueOffset, StreamOffset, allotted, in_proportion, parts_of, shares
from postroad.spark.manager_api import ManagerApi, Patience
from postroad.spark.options import Mode, ReadOptions, Start, is_wanted
from postroad.spark.reading import (
    FIRST_S,
    LEAST_MESSAGES,
    PARTITIONS,
    Range,
    Ranges,
    find_queues,
    joined,
    requested_columns,
    require_queues,
    rows,
)
from postroad.spark.schema import named
from postroad.spark.tracebacks import iterator_without_traceback, without_traceback

IDLE_S = 0.05  # otherwise Spark asks for new messages a hundred times a second
LIST_S = 1.0  # between two searches for new queues that match a pattern
CHECKS = 3  # before messages count as lost; a reader may lock one and put it back
SETTLED_S = 1.0  # to wait for a moment at which no message is on its way into a queue
GO_ON = "set the option failOnDataLoss=false to continue with the rest"
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Step:
    """The next batch in one queue: what it takes, how it is divided, and what was lost before it."""

    offset: QueueOffset
    messages: int
    parts: tuple[Part, ...]
    lost: int
    next_arrived_ms: int | None


@dataclass(frozen=True, slots=True)
class _Bounds:
    """How much of a queue a batch may take, and into how many parts at most."""

    rows: int | None
    most_bytes: int | None
    parts: int


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads new messages of the queues, in ranges of arrival numbers.

    Spark asks for the latest offset with the end of the last completed batch, after it has written that batch to its
    commit log. So the messages before that end are acknowledged there, which includes the very last batch. Spark calls
    `commit` only one batch later.
    """

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._columns = named(schema)
        self._manager = ManagerApi(options.place)
        self._apis: dict[str, ManagerApi] = {}
        self._first: StreamOffset | None = None
        self._target: dict[str, Mark] | None = None  # where a query with availableNow ends
        self._committed: dict[str, int] = {}
        self._seen: dict[str, Mark] = {}
        self._planned: dict[str, tuple[QueueOffset, tuple[Part, ...]]] = {}
        self._listed: tuple[float, list[str]] | None = None
        self._waiting_since: float | None = None
        self._report: dict[str, Any] = {}

    def stop(self) -> None:
        self._manager.close()

    def _api(self, queue: str) -> ManagerApi:
        if queue not in self._apis:
            self._apis[queue] = self._manager.at(queue)
        return self._apis[queue]

    def _read(self, value: Mapping[str, Any]) -> StreamOffset:
        return StreamOffset.read(value, self._options.only_queue)

    # The start

    @without_traceback
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        if self._first is None:
            options = self._options
            with ManagerApi(options.place, timeout_s=FIRST_S) as api:
                queues = require_queues(find_queues(api, options.queues), options.queues)
            hold = None
            if options.mode is Mode.CONSUME:
                hold = options.hold or f"spark-{uuid4()}"
            self._first = StreamOffset({queue: self._begin(queue) for queue in queues}, hold)
        return self._first.json()

    def _begin(self, queue: str, *, joining: bool = False) -> QueueOffset:
        """The first position in a queue. A queue that is `joining` a running stream is read from its first message."""
        start = Start.EARLIEST if joining else self._options.start_of(queue)
        with ManagerApi(replace(self._options.place, queue=queue), timeout_s=FIRST_S) as api:
            mark = self._settled_mark(api)
            if isinstance(start, int):
                arrival = start
            elif start is Start.LATEST:
                arrival = mark.arrival
            else:
                arrival = mark.arrival if mark.oldest is None else min(mark.oldest, mark.arrival)
            if self._options.start_ms is not None and not joining:
                arrival = api.plan(arrival, mark.arrival, limit=1, since_ms=self._options.start_ms).start
            return self._with_counts(api, QueueOffset.first(arrival), mark)

    def _settled_mark(self, api: ManagerApi) -> Mark:
        """A mark at a moment when the counts are exact. After SETTLED_S, any mark."""
        end = time.monotonic() + SETTLED_S
        while not (mark := api.mark()).settled and time.monotonic() < end:
            time.sleep(IDLE_S)
        return mark

    @staticmethod
    def _with_counts(api: ManagerApi, offset: QueueOffset, mark: Mark) -> QueueOffset:
        """The offset, with all earlier messages accounted for if they can be counted now."""
        if not mark.settled:
            return replace(offset, run=mark.run, queue=mark.queue)
        return offset.counted_from(mark, api.plan(min(offset.arrival, mark.arrival), mark.arrival, everything=True))

    # Offsets

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self._options.max_rows) if self._options.max_rows else ReadAllAvailable()

    @without_traceback
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = {}
        for queue in self._present(at_once=True):
            with suppress(QueueNotFound):  # the next call of latestOffset reports it
                self._target[queue] = self._settled_mark(self._api(queue))

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        return self._report or None

    @without_traceback
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        began = time.monotonic()
        begin = self._read(start)
        self._acknowledge(begin)
        positions, marks, lost = self._positions(begin)
        pending = {queue: self._pending(queue, positions[queue], marks[queue], begin.hold) for queue in positions}
        if self._too_few(sum(pending.values())):
            return self._idle(start, begin.lost, positions, {}, began)
        rows_each = allotted(pending, limit.max_rows) if isinstance(limit, ReadMaxRows) else None
        bytes_each = None if self._options.max_bytes is None else in_proportion(pending, self._options.max_bytes)
        most = self._options.partitions or PARTITIONS
        parts = parts_of(rows_each or pending, most, LEAST_MESSAGES)
        steps: dict[str, _Step] = {}
        for queue, position in positions.items():
            if rows_each is not None and pending[queue] and not rows_each[queue]:
                continue  # its turn comes later
            bounds = _Bounds(
                None if rows_each is None or not pending[queue] else rows_each[queue],
                None if bytes_each is None or not pending[queue] else bytes_each[queue],
                max(1, parts[queue]),
            )
            step = self._step(queue, position, marks[queue], begin.hold, bounds, pending[queue])
            if step is not None:
                steps[queue] = step
        lost += begin.lost + sum(step.lost for step in steps.values())
        left_out = {queue: each for queue, each in begin.queues.items() if not self._wants(queue)}
        gone = begin.queues.keys() - positions.keys() - left_out.keys()
        if not gone and lost == begin.lost and not any(step.messages for step in steps.values()):
            return self._idle(start, begin.lost, positions, steps, began)
        self._waiting_since = None
        ends = {queue: position.resting() for queue, position in (left_out | positions).items()}
        for queue, step in steps.items():
            ends[queue] = step.offset
            self._planned[queue] = step.offset, step.parts
        self._store_report(ends, steps, lost)
        tasks = shares(sum(step.messages for step in steps.values()), most, LEAST_MESSAGES)
        return replace(begin, queues=ends, lost=lost, tasks=tasks).json()

    def _wants(self, queue: str) -> bool:
        """Whether the options, which the user may have changed, still name a queue. If not, its position is kept."""
        return is_wanted(queue, self._options.queues)

    def _positions(self, begin: StreamOffset) -> tuple[dict[str, QueueOffset], dict[str, Mark], int]:
        """The position in each queue, new queues included; the mark up to which to read; and the messages lost with
        queues.

        Raises MessagesGone if a queue was deleted and the options forbid lost messages.
        """
        if begin.queues and not any(map(self._wants, begin.queues)):
            raise InvalidArgument(
                f"queue: the checkpoint is for {', '.join(begin.queues)}, but the option names none of them; name them "
                "as before, or start with a new checkpoint"
            )
        spelled = {queue.lower(): queue for queue in begin.queues}
        found = {spelled.get(queue.lower(), queue) for queue in self._present()}
        positions, marks, lost = {}, {}, 0
        for queue in sorted(found.union(filter(self._wants, begin.queues))):
            before = begin.queues.get(queue)
            try:
                mark = self._current_mark(queue, before)
                position = self._new_position(queue, mark) if before is None else self._checked(queue, before, mark)
            except QueueNotFound:
                lost += self._lost_with_queue(queue, before)
                continue
            if position is not None:
                positions[queue], marks[queue] = position, self._read_limit(queue, mark)
        return positions, marks, lost

    def _new_position(self, queue: str, mark: Mark) -> QueueOffset | None:
        """The start of a new queue. None while it has no messages, or if this query ends before it."""
        if not mark.messages or (self._target is not None and queue not in self._target):
            return None
        return self._begin(queue, joining=True)

    def _present(self, *, at_once: bool = False) -> list[str]:
        now = time.monotonic()
        if at_once or self._listed is None or now - self._listed[0] > LIST_S:
            self._listed = now, find_queues(self._manager, self._options.queues)
        return self._listed[1]

    def _lost_with_queue(self, queue: str, position: QueueOffset | None) -> int:
        """How many unread messages a deleted queue had, as far as a mark counted them."""
        if position is None:
            return 0  # it was created and deleted between two batches
        if self._options.fail_on_data_loss:
            raise MessagesGone(
                f"{queue}: the queue was deleted together with its unread messages; {GO_ON}, or create the "
                "queue again and start with a new checkpoint"
            ) from None
        _LOG.warning("%s: the queue was deleted while the stream was reading it", queue)
        seen = self._seen.get(queue)
        return 0 if seen is None else position.pending(seen) or 0

    def _checked(self, queue: str, position: QueueOffset, mark: Mark) -> QueueOffset:
        """The position, with counts if they were unknown. Raises MessagesGone if the name now belongs to another
        queue."""
        if mark.arrived < position.arrival:
            raise MessagesGone(
                f"{queue}: the stream is ahead of the queue: it is at {position.arrival}, but the manager has only "
                f"reached {mark.arrived}; its data may be an older copy. Start with a new checkpoint"
            )
        if position.queue not in ("", mark.queue):
            if self._options.fail_on_data_loss:
                raise MessagesGone(
                    f"{queue}: the queue was deleted and created again, and its unread messages are gone; {GO_ON}"
                )
            position = replace(position, added=None)
        if position.pending(mark) is None:
            return self._with_counts(self._api(queue), position, mark)
        return position

    def _current_mark(self, queue: str, position: QueueOffset | None) -> Mark:
        """The current mark. The previous one is remembered as long as it counts express messages that a restart
        dropped.
        """
        mark = self._api(queue).mark()
        if position is None or not position.dropped(mark, self._seen.get(queue)):
            self._seen[queue] = mark
        return mark

    def _read_limit(self, queue: str, mark: Mark) -> Mark:
        """The mark up to which this query may read. Where the options stop it earlier, its counts are not used."""
        target = None if self._target is None else self._target.get(queue, mark)
        if target is not None and target.arrival <= mark.arrival:
            mark = target
        end = self._end(queue, mark)
        return mark if end is None or end >= mark.arrival else replace(mark, arrival=end, settled=False)

    def _end(self, queue: str, mark: Mark) -> int | None:
        """The arrival number at which the options stop the stream. None if they do not, or not yet."""
        since_ms = self._options.end_ms
        if since_ms is None:
            return self._options.end_of(queue)
        return self._api(queue).plan(0, mark.arrival, limit=1, since_ms=since_ms).start

    def _pending(self, queue: str, position: QueueOffset, mark: Mark, hold: str | None) -> int:
        """About how many messages there are to read."""
        if position.arrival >= mark.arrival:
            return 0
        is_whole = self._options.end_of(queue) is None and self._options.end_ms is None
        known = position.pending(mark) if is_whole else None
        if known is None:
            return self._api(queue).plan(position.arrival, mark.arrival, hold=hold).messages
        return known

    def _too_few(self, messages: int) -> bool:
        """Whether to wait for more messages, as minOffsetsPerTrigger asks."""
        if self._options.min_rows is None or self._target is not None or messages >= self._options.min_rows:
            return False
        now = time.monotonic()
        if self._waiting_since is None or not messages:
            self._waiting_since = now
        return not messages or now - self._waiting_since < self._options.max_delay_s

    def _step(
        self,
        queue: str,
        position: QueueOffset,
        mark: Mark,
        hold: str | None,
        bounds: _Bounds,
        pending: int,
    ) -> _Step | None:
        """The next batch in a queue. None if nothing arrived and nothing was lost."""
        dropped = position.dropped(mark, self._seen.get(queue))
        if not pending and not dropped:
            return None
        api = self._api(queue)
        for attempt in range(CHECKS):
            if attempt:
                time.sleep(IDLE_S)  # a reader may have put one of them back just now
            plan = self._plan(api, position, mark.arrival, hold, bounds)
            stop = api.mark().arrival
            if stop < plan.end:  # a reader has started to receive one of them
                plan = self._plan(api, position, stop, hold, bounds)
            end = position.to(plan, mark)
            missing = end.pending(mark) or 0 if plan.end == mark.arrival and mark.settled else 0
            if not missing:
                break
        lost = dropped + missing
        if missing:
            end = end.without_lost(mark)
        if lost and self._options.fail_on_data_loss:
            raise self._loss(api, queue, position, mark, plan.messages + lost, lost, hold)
        if lost:
            _LOG.warning("%s: %d messages are lost", queue, lost)
        if not lost and not plan.messages:
            return None
        end = replace(end, partitions=len(plan.parts))
        return _Step(end, plan.messages, plan.parts, lost, plan.next_arrived_ms)

    @staticmethod
    def _plan(api: ManagerApi, position: QueueOffset, end: int, hold: str | None, bounds: _Bounds) -> Plan:
        begin, end = position.arrival, max(position.arrival, end)
        return api.plan(begin, end, hold=hold, limit=bounds.rows, most_bytes=bounds.most_bytes, parts=bounds.parts)

    def _loss(
        self, api: ManagerApi, queue: str, position: QueueOffset, mark: Mark, came: int, lost: int, hold: str | None
    ) -> MessagesGone:
        holders = ", ".join(each["name"] for each in api.holds() if each["name"] != hold)
        verb = "is" if lost == 1 else "are"
        some = f"{queue}: {lost} of {counted(came, 'message')} between {position.arrival} and {mark.arrival} {verb}"
        if holders:
            return MessagesGone(
                f"{some} held by {holders}: let that stream finish, or, if it never will, release them: "
                f"postroad queue release {quote(queue)} {quote(holders.partition(',')[0])}"
            )
        return MessagesGone(
            f"{some} lost: others have received them, or they were purged or have expired, or were express and the "
            f"manager was restarted; {GO_ON}"
        )

    def _idle(
        self,
        start: dict[str, Any],
        lost: int,
        positions: Mapping[str, QueueOffset],
        steps: Mapping[str, _Step],
        began: float,
    ) -> dict[str, Any]:
        """Ends a turn without a batch. It pauses as long as the turn took, so that many queues do not keep the manager
        busy.
        """
        self._store_report(positions, steps, lost)
        if self._target is None:
            time.sleep(max(IDLE_S, time.monotonic() - began))
        return start

    def _store_report(self, ends: Mapping[str, QueueOffset], steps: Mapping[str, _Step], lost: int) -> None:
        """Stores the figures for the query's progress.

        Spark 4.3 lets a Python source report its latest offset, but no metrics. So this is the latest offset.
        """
        now_ms, oldest_ms = int(time.time() * 1000), None
        queues: dict[str, dict[str, int]] = {}
        for queue, end in sorted(ends.items()):
            mark = self._seen.get(queue)
            left = 0 if mark is None else end.pending(mark) or 0
            if left and queue in steps:
                found = steps[queue].next_arrived_ms
            else:
                found = self._api(queue).plan(end.arrival, end.arrival).next_arrived_ms if left else None
            if found is not None:
                oldest_ms = found if oldest_ms is None else min(oldest_ms, found)
            arrival = end.arrival if mark is None else mark.arrival
            queues[queue] = {"arrival": arrival, "backlog": left, "oldestAgeMs": _age_ms(found, now_ms)}
        backlog = sum(each["backlog"] for each in queues.values())
        self._report = {"backlog": backlog, "oldestAgeMs": _age_ms(oldest_ms, now_ms), "lost": lost, "queues": queues}

    # Batches

    @without_traceback
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        if start == end:
            return []
        batch = self._read(end)
        made = {queue: self._ranges(queue, each, batch.hold) for queue, each in batch.queues.items() if each.messages}
        return [
            Ranges([made[queue][number] for queue, number in group if number < len(made[queue])])
            for group in batch.groups()
        ]

    def _ranges(self, queue: str, batch: QueueOffset, hold: str | None) -> list[Range]:
        if hold is not None:
            self._hold(queue, hold, batch.begin, batch.arrival)
        planned, parts = self._planned.pop(queue, (None, ()))
        if planned != batch:  # a second run, by a process that did not plan the batch
            parts = self._api(queue).plan(batch.begin, batch.arrival, hold=hold, parts=max(1, batch.partitions)).parts
            # If messages of a held range are missing, this stream has received them, so their batch is complete.
            if hold is None:
                self._require(queue, batch.begin, batch.arrival, batch.messages, sum(part.messages for part in parts))
        return [Range(queue, part.start, part.end, None if hold else part.messages, hold) for part in parts]

    def _hold(self, queue: str, name: str, begin: int, end: int) -> None:
        """Holds a whole range. Waits for messages that others are receiving, because they may put them back."""
        self._commit(queue, name, begin)  # a batch starts at `begin`, so the one before is complete
        patience = Patience(self._options.place.timeout_s)
        api = self._api(queue)
        while begin < end and (passed_over := api.hold(name, begin, end)):
            api.release(name)
            patience.wait(
                SharingViolation(
                    f"{queue}: other readers still have {counted(passed_over, 'message')} between {begin} and {end} "
                    "locked; start the stream again later"
                )
            )

    @iterator_without_traceback
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with ManagerApi(self._options.place) as manager:
            for part in Ranges.of(partition):
                yield from self._read_part(manager.at(part.queue), part)

    def _read_part(self, api: ManagerApi, part: Range) -> Iterator[pa.RecordBatch]:
        equal = self._options.selection.equal
        messages = 0
        found = api.messages(part.begin, part.end, requested_columns(self._columns), hold=part.hold, equal=equal)
        for batch in joined(found):
            messages += batch.num_rows
            yield from rows(batch, self._columns, part.queue, decoding=self._options.decode)
        if equal and part.messages is not None:  # messages that do not match must still be there too
            messages = api.plan(part.begin, part.end, hold=part.hold).messages
        if part.messages is not None:
            self._require(part.queue, part.begin, part.end, part.messages, messages)

    def _require(self, queue: str, begin: int, end: int, wanted: int, found: int) -> None:
        if found < wanted and self._options.fail_on_data_loss:
            raise MessagesGone(
                f"{queue}: only {found} of {counted(wanted, 'message')} between {begin} and {end} are left; "
                f"others have received or are receiving them, or they were purged or have expired; {GO_ON}"
            )

    # Acknowledging

    @without_traceback
    def commit(self, end: dict[str, Any]) -> None:
        self._acknowledge(self._read(end))

    def _acknowledge(self, done: StreamOffset) -> None:
        if done.hold is not None:
            for queue, each in done.queues.items():
                self._commit(queue, done.hold, each.arrival)

    def _commit(self, queue: str, hold: str, end: int) -> None:
        if end > self._committed.get(queue, -1):
            try:
                self._api(queue).commit(hold, end)
            except QueueNotFound:
                return  # the queue was deleted, so nothing is left to receive
            self._committed[queue] = end


def _age_ms(arrived_ms: int | None, now_ms: int) -> int:
    return 0 if arrived_ms is None else max(0, now_ms - arrived_ms)
