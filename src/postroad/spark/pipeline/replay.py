"""Sends dead letters again, each exactly once. Spark SQL selects them, and a function may repair them.

A replay holds its dead letters, so other readers cannot take them. It writes all messages to disk before it sends any,
and the manager drops messages that it has already sent. So a killed replay continues where it stopped.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import reduce
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import pyarrow
from pyspark.errors import AnalysisException
from pyspark.logger import PySparkLogger
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StringType

from postroad.client.arrow import batches
from postroad.client.opening import connect
from postroad.describe.received import ReceivedMessage, new_message
from postroad.errors import InvalidArgument, ManagerUnavailable, PipelineError, PostroadError, StorageError
from postroad.message import Message
from postroad.reports.info import counted
from postroad.spark.options import ARRIVAL_MASK
from postroad.spark.pipeline.frames import local
from postroad.spark.pipeline.lake import record_sent
from postroad.spark.pipeline.lake_files import Files, open_files
from postroad.spark.pipeline.run import Progress
from postroad.spark.schema import choose, spark_schema

if TYPE_CHECKING:
    from postroad.client.sync.manager import QueueManager


# Messages as JSON: a replay stores them in this form.


_BYTES = ("body", "correlation_id", "extension")


def message_json(message: Message) -> dict[str, Any]:
    """The message as values that JSON can represent. `read_message` is the inverse."""
    found: dict[str, Any] = {}
    for name in (each.name for each in fields(Message)):
        value = getattr(message, name)
        if isinstance(value, bytes):
            value = {"base64": b64encode(value).decode()}
        elif isinstance(value, tuple):
            value = ",".join(value)
        elif value is not None and not isinstance(value, str | int | bool):
            value = str(value)
        found[name] = value
    return found


def read_message(values: Mapping[str, Any]) -> Message:
    given: dict[str, Any] = {
        name: b64decode(value["base64"]) if isinstance(value, Mapping) else value for name, value in values.items()
    }
    for name in ("trace", "connector_type"):
        if isinstance(given[name], str) and "=" not in given[name]:
            given[name] = UUID(given[name])
    return Message(**given)


Repair = Callable[[ReceivedMessage, Message], Message | None]

DEAD_LETTER_QUEUES = (";deadletter", ";deadxact")
RUN_MESSAGES = 100  # that are held, sent and removed together
_COLUMNS = (
    "id string, queue string, lookup_id bigint, arrival bigint, reason string, label string, destination string, "
    "transactional boolean, message string"
)
_EPOCH = 0
_SPARK_CODES = re.compile(r"^\[[A-Z_.]+\] | SQLSTATE: .*$")  # what Spark puts around the text of its errors


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A dead letter, and the message to send in its place."""

    id: str
    queue: str
    lookup_id: int
    arrival: int
    destination: str
    transactional: bool
    message: str


@dataclass(frozen=True, slots=True)
class Replayed:
    """The result of a replay. `planned` has a row for each dead letter: queue, lookup id, reason, label and
    destination.
    """

    selected: int
    sent: int
    removed: int
    planned: tuple[tuple[str, int, str, str, str], ...] = ()


def replay(
    spark: SparkSession,
    api: str,
    where: str,
    *,
    plans: Files | Path | str,
    to: str | None = None,
    repair: Repair | None = None,
    queues: Sequence[str] = DEAD_LETTER_QUEUES,
    token: str | None = None,
    dry_run: bool = False,
    progress: Progress = lambda what, done, steps: None,
) -> Replayed:
    """Sends the dead letters that match the SQL again: to `to`, or to their old destination.

    The columns are those of a message, `reason` and `queue`. `repair` runs in Spark's workers. It gets a dead letter
    and the new message, and returns the message to send, or None to skip this dead letter. Unfinished replays in the
    directory `plans` are finished first.

    Raises InvalidArgument if the SQL is wrong, even if there are no dead letters. Raises PipelineError if the manager
    refuses a message. In that case, the messages before it have been sent, and the other dead letters stay.
    """
    _check(spark, where)
    plans = plans if isinstance(plans, Files) else open_files(plans, spark)
    with plans.lock(), connect(api, token=token) as manager:
        done = Replayed(0, 0, 0) if dry_run else _finish(manager, plans, progress)
        dead_letters = _dead_letters(spark, manager, api, token, where, queues, repair or _unchanged, to)
        if dry_run:
            rows = dead_letters.select("queue", "lookup_id", "reason", "label", "destination").collect()
            return Replayed(len(rows), 0, 0, tuple(tuple(row) for row in rows))
        found = dead_letters.orderBy("queue", "arrival").select(*DeadLetter.__dataclass_fields__).toLocalIterator()
        chosen = [DeadLetter(*row) for row in found]
        if not chosen:
            return done
        plan = _Plan.made(manager, plans, chosen)
        sent, removed = plan.carry_out(manager, progress)
    return Replayed(done.selected + len(chosen), done.sent + sent, done.removed + removed)


def _unchanged(letter: ReceivedMessage, message: Message) -> Message:
    return message


# Selection


def _check(spark: SparkSession, where: str) -> None:
    columns = spark_schema(choose(None, body=True, packet=True))
    dead_letters = local(spark, (), columns.add("queue", StringType()).add("reason", StringType()))
    try:
        with _silent():
            dead_letters.where(where)
    except AnalysisException as fault:
        text = next(line for line in str(fault).splitlines() if line)
        raise InvalidArgument(f"where: {_SPARK_CODES.sub('', text)}") from None


@contextmanager
def _silent() -> Iterator[None]:
    """Silences PySpark's logger, which prints the error of an expression as a line of JSON before PySpark raises it."""
    logger = PySparkLogger.getLogger("SQLQueryContextLogger")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


def _dead_letters(
    spark: SparkSession,
    manager: QueueManager,
    api: str,
    token: str | None,
    where: str,
    queues: Sequence[str],
    repair: Repair,
    to: str | None,
) -> DataFrame:
    options = {"api": api, "packet": "true"} | ({} if token is None else {"token": token})
    frames = [
        spark.read.format("postroad").options(queue=queue, **options).load().withColumn("queue", f.lit(queue))
        for queue in queues
        if manager.queue(queue).info().messages
    ]
    if not frames:
        return local(spark, (), _COLUMNS)
    every = reduce(lambda one, other: one.unionByName(other), frames).withColumn("reason", f.col("class_name"))
    chosen = every.where(where).select("id", "queue", "lookup_id", "arrival", "arrived_at", "class", "packet")
    kind = _is_transactional(manager, to)

    def work(given: Iterable[Any]) -> Iterator[Any]:
        for batch in given:
            rows = [_repaired(row, repair, to, kind) for row in batch.to_pylist()]
            names = [column.split()[0] for column in _COLUMNS.split(", ")]
            kept = [row for row in rows if row is not None]
            types = {"lookup_id": pyarrow.int64(), "arrival": pyarrow.int64(), "transactional": pyarrow.bool_()}
            columns = [pyarrow.array([row[name] for row in kept], types.get(name, pyarrow.string())) for name in names]
            yield pyarrow.RecordBatch.from_arrays(columns, names=names)

    return chosen.mapInArrow(work, _COLUMNS)


def _is_transactional(manager: QueueManager, to: str | None) -> bool | None:
    """Whether the queue is transactional. None if unknown: the message is then sent as the dead letter was."""
    if to is None:
        return None
    try:
        info = manager.queue(to).info()
    except PostroadError:
        return None
    return None if info.type == "outgoing" else info.transactional


def _repaired(row: dict[str, Any], repair: Repair, to: str | None, kind: bool | None) -> dict[str, Any] | None:
    letter = ReceivedMessage(
        row["packet"], row["lookup_id"], int(row["arrived_at"].timestamp() * 1000), 0, row["class"]
    )
    message = repair(letter, new_message(letter))
    destination = to or letter.destination_queue
    if message is None or destination is None:
        return None
    return {
        "id": row["id"],
        "queue": row["queue"],
        "lookup_id": row["lookup_id"],
        "arrival": row["arrival"],
        "reason": letter.class_name,
        "label": message.label,
        "destination": destination,
        "transactional": letter.delivery == "transactional" if kind is None else kind,
        "message": json.dumps(message_json(message)),
    }


# Sending


@dataclass(frozen=True, slots=True)
class _Run:
    """Adjacent dead letters in a queue that go to the same destination: one hold, one submission."""

    number: int
    first_row: int  # in the submission for its destination
    dead_letters: tuple[DeadLetter, ...]

    @property
    def queue(self) -> str:
        return self.dead_letters[0].queue

    @property
    def start(self) -> int:
        return self.dead_letters[0].arrival

    @property
    def end(self) -> int:
        return self.dead_letters[-1].arrival + 1


class _Plan:
    """A replay as two files.

    `NAME.holds` lists the ranges to hold and is written before they are held. `NAME.letters` has the messages to send
    and is written before any is sent. The files of a finished plan are deleted; the ids of its dead letters stay.
    """

    def __init__(self, plans: Files, name: str, runs: Sequence[_Run]) -> None:
        self.plans = plans
        self.name = name
        self.runs = runs

    @classmethod
    def made(cls, manager: QueueManager, plans: Files, chosen: Sequence[DeadLetter]) -> _Plan:
        """Holds the dead letters and plans those that it could hold."""
        name = f"replay-{uuid4().hex[:12]}"
        identifier = manager.info().id
        wanted = list(_runs(manager, chosen))
        holds = [{"queue": run.queue, "name": f"{name}-{run.number}"} for run in wanted]
        plans.write_text(f"{name}.holds", json.dumps({"manager": identifier, "holds": holds}))
        try:
            held = [letter for run in wanted for letter in _hold(manager, run, f"{name}-{run.number}")]
        except BaseException:
            _release(manager, plans, name)
            raise
        runs = [_Run(run.number, 0, tuple(each for each in run.dead_letters if each in held)) for run in wanted]
        plan = cls(plans, name, _numbered(run for run in runs if run.dead_letters))
        lines = [json.dumps({"manager": identifier})]
        for run in plan.runs:
            for letter in run.dead_letters:
                values = {each: getattr(letter, each) for each in DeadLetter.__dataclass_fields__}
                lines.append(json.dumps({"run": run.number, **values}))
        plans.write_text(f"{name}.letters", "\n".join(lines))
        return plan

    @classmethod
    def read(cls, plans: Files, name: str) -> _Plan:
        _, *lines = [json.loads(line) for line in _text(plans, f"{name}.letters").splitlines()]
        runs = [
            _Run(
                number,
                0,
                tuple(DeadLetter(**{key: value for key, value in line.items() if key != "run"}) for line in some),
            )
            for number, some in groupby(lines, key=lambda line: int(line["run"]))
        ]
        return cls(plans, name, _numbered(runs))

    def carry_out(self, manager: QueueManager, progress: Progress) -> tuple[int, int]:
        """Sends everything. Returns how many messages were sent, and how many dead letters were removed."""
        sent = removed = 0
        total = sum(len(run.dead_letters) for run in self.runs)
        done: list[str] = []
        for run in self.runs:
            progress("sending again", len(done), total)
            try:
                sent += self._send(manager, run)
            except (ManagerUnavailable, StorageError):
                raise  # the result is unknown, so the plan stays and the next replay continues it
            except PostroadError as fault:
                self._end(manager, done)
                first = run.dead_letters[0]
                raise PipelineError(
                    f"{first.destination} refused the dead letter {first.lookup_id} of {first.queue}: {fault}; "
                    f"{counted(sent, 'message')} before it {'was' if sent == 1 else 'were'} sent again, and the other "
                    "dead letters stay"
                ) from None
            removed += manager.queue(run.queue).commit_hold(f"{self.name}-{run.number}", run.end)
            done += [letter.id for letter in run.dead_letters]
            progress("sending again", len(done), total)
        self._end(manager, done)
        return sent, removed

    def _send(self, manager: QueueManager, run: _Run) -> int:
        first = run.dead_letters[0]
        messages = [read_message(json.loads(letter.message)) for letter in run.dead_letters]
        partition = int(first.transactional)
        found = manager.queue(first.destination).submit(
            messages, self.name, _EPOCH, partition, run.first_row, transactional=first.transactional
        )
        return found.sent

    def _end(self, manager: QueueManager, done: Sequence[str]) -> None:
        """Records what was sent, deletes the file, and then lets the manager forget the submission."""
        if done:
            record_sent(self.plans, self.name, done)
        self.plans.delete(f"{self.name}.letters")
        _release(manager, self.plans, self.name)
        for destination in dict.fromkeys(run.dead_letters[0].destination for run in self.runs):
            manager.queue(destination).forget_submission(self.name)


def _runs(manager: QueueManager, chosen: Sequence[DeadLetter]) -> Iterator[_Run]:
    number = 0
    for queue, dead_letters in groupby(chosen, key=lambda letter: letter.queue):
        there = [each.lookup_id & ARRIVAL_MASK for each in manager.queue(queue).messages()]
        following = dict(zip(sorted(there), sorted(there)[1:], strict=False))
        run: list[DeadLetter] = []
        for letter in dead_letters:
            joins = run and (
                following.get(run[-1].arrival) == letter.arrival
                and (run[-1].destination, run[-1].transactional) == (letter.destination, letter.transactional)
                and len(run) < RUN_MESSAGES
            )
            if run and not joins:
                yield _Run(number, 0, tuple(run))
                number += 1
                run = []
            run.append(letter)
        yield _Run(number, 0, tuple(run))
        number += 1


def _numbered(runs: Iterable[_Run]) -> list[_Run]:
    """Numbers the first row of each run. Each destination has its own count."""
    rows: dict[tuple[str, bool], int] = {}
    found = []
    for run in runs:
        key = (run.dead_letters[0].destination, run.dead_letters[0].transactional)
        found.append(_Run(run.number, rows.get(key, 0), run.dead_letters))
        rows[key] = rows.get(key, 0) + len(run.dead_letters)
    return found


def _hold(manager: QueueManager, run: _Run, name: str) -> Iterator[DeadLetter]:
    """Holds a run. Yields the dead letters that are still there."""
    queue = manager.queue(run.queue)
    queue.hold(name, run.start, run.end)
    pieces = queue.arrow(run.start, run.end, columns=("lookup_id",), hold=name)
    there = {each for batch in batches(pieces) for each in batch.column("lookup_id").to_pylist()}
    yield from (letter for letter in run.dead_letters if letter.lookup_id in there)


def _finish(manager: QueueManager, plans: Files, progress: Progress) -> Replayed:
    """Finishes earlier replays from this manager."""
    identifier = manager.info().id
    selected = sent = removed = 0
    for name in _names(plans, ".letters"):
        if json.loads(_text(plans, f"{name}.letters").splitlines()[0])["manager"] == identifier:
            plan = _Plan.read(plans, name)
            more, gone = plan.carry_out(manager, progress)
            selected += sum(len(run.dead_letters) for run in plan.runs)
            sent, removed = sent + more, removed + gone
    for name in _names(plans, ".holds"):  # these were held but not planned, so nothing was sent
        if json.loads(_text(plans, f"{name}.holds"))["manager"] == identifier:
            _release(manager, plans, name)
    return Replayed(selected, sent, removed)


def _names(plans: Files, suffix: str) -> list[str]:
    return [file.path.removesuffix(suffix) for file in plans.walk("") if file.path.endswith(suffix)]


def _text(plans: Files, file: str) -> str:
    text = plans.read_text(file)
    if text is None:
        raise PipelineError(f"{plans.url(file)} is missing; another program has deleted it")
    return text


def _release(manager: QueueManager, plans: Files, name: str) -> None:
    file = f"{name}.holds"
    for hold in json.loads(_text(plans, file))["holds"]:
        manager.queue(hold["queue"]).release(hold["name"])
    plans.delete(file)
