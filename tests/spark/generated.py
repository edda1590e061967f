"""A generated history of two days, with the fate of every message: as a ledger, and as the packets of a lake."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow

from postroad.message import Composer, Message
from postroad.names import MessageId, parse_name
from postroad.spark.pipeline import silver
from postroad.spark.pipeline.bronze import BRONZE as BRONZE_COLUMNS
from postroad.spark.pipeline.lake import BRONZE, DEPTHS, Lake
from postroad.spark.pipeline.run import run
from postroad.spark.pipeline.summaries import DEPTHS as DEPTH_COLUMNS
from postroad.wire.constants import MessageClass, class_name
from tests.spark.packets import LONDON, NAMES, ROME

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START_S = 1_700_006_400  # midnight
HOURS = 48
END_S = START_S + HOURS * 3600
NUMBERS = {"orders": 1, "invoices": 2, "audit": 3, "questions": 4, "replies": 5, "unread": 6}
APIS = {LONDON: "http://127.0.0.1:8180", ROME: "http://127.0.0.2:8180"}
TYPES = {"orders": "Shop.Order", "invoices": "Invoice", "audit": "Shop.Audited"}  # all others say no type
REASONS = (MessageClass.NACK_Q_EXCEED_QUOTA, MessageClass.NACK_REACH_QUEUE_TIMEOUT)
BURST_HOURS = 8  # before the end: the hour in which audit gets many times its usual messages
BURST_HOUR = HOURS - BURST_HOURS
STOP_S = 3600 * 3  # before the end: when the receiver of invoices stops
_ARROW_TYPES = {
    "bigint": pyarrow.int64(),
    "int": pyarrow.int32(),
    "string": pyarrow.string(),
    "binary": pyarrow.binary(),
    "timestamp": pyarrow.timestamp("us", "UTC"),
    "date": pyarrow.date32(),
}


@dataclass(frozen=True, slots=True)
class Sent:
    """A message from london to a queue of rome. `fate` is received, dead, waiting, left (its queue, without a trace),
    unexplained or outgoing; `after_s` is the time from the send until then."""

    number: int
    queue: str
    sent_s: int
    fate: str
    after_s: int
    priority: int
    label: str
    reason: MessageClass | None = None
    answer_to: int | None = None

    @property
    def called(self) -> str:
        return called(self.queue)

    @property
    def id(self) -> str:
        return str(MessageId(LONDON, self.number))

    @property
    def state(self) -> str:
        return {"waiting": "reached", "left": "reached", "unexplained": "sent"}.get(self.fate, self.fate)

    @property
    def why(self) -> str | None:
        return None if self.reason is None else class_name(self.reason)

    @property
    def message_type(self) -> str:
        return TYPES.get(self.queue, "")

    def packet(self) -> bytes:
        """The packet of a message, which asks for whatever makes its fate known. Orders say their type as Rebus does,
        invoices are XML, and audit is JSON with a type."""
        more: dict[str, Any] = {}
        body = f"body of {self.number}"
        if self.queue == "orders":
            more["extension"] = json.dumps({"rbs2-msg-type": "Shop.Order, Shop", "rbs2-msg-id": body}).encode()
        elif self.queue == "invoices":
            body = f"<Invoice><Text>{body}</Text></Invoice>"
        elif self.queue == "audit":
            body = json.dumps({"$type": "Shop.Audited, Shop", "text": body})
        if self.fate == "unexplained":
            more |= {"ack": "full", "admin_queue": rf"PRIVATE={LONDON}\9"}
        if self.queue == "questions":
            more["response_queue"] = rf"PRIVATE={ROME}\{NUMBERS['replies']}"
        if self.answer_to is not None:
            more["correlation_id"] = LONDON.bytes_le + self.answer_to.to_bytes(4, "little")
        message = Message(body, label=self.label, priority=self.priority, **more)
        return _composer(self.queue).compose(message, self.number, self.sent_s)


@cache
def _composer(queue: str) -> Composer:
    return Composer(LONDON, parse_name(rf"PRIVATE={ROME}\{NUMBERS[queue]}"))  # type: ignore[arg-type]


def called(queue: str) -> str:
    return rf"rome: private$\{queue}"


def history(
    count: int, seed: int = 1, *, first: int = 1, start_s: int = START_S, hours: int = HOURS, end_s: int = END_S
) -> list[Sent]:
    """About `count` messages, less than twice as many; the same for the same seed. `first` is the number of the first
    one, so several histories can be one. The receiver of invoices stops before `end_s`."""
    chance = Random(seed)
    made: list[Sent] = []
    burst_hour = max(hours - BURST_HOURS, 0)

    def add(queue: str, sent_s: int, **more: Any) -> None:
        fate, after_s, reason = _fate(queue, sent_s, end_s, chance)
        number = first + len(made)
        given: dict[str, Any] = {
            "fate": fate,
            "after_s": after_s,
            "reason": reason,
            "priority": chance.choice((3, 3, 3, 7)),
        } | more
        made.append(Sent(number, queue, sent_s, label=f"{queue} {number}", **given))

    for place in range(count):
        queue = chance.choices(("orders", "invoices", "audit", "questions", "unread"), (40, 15, 15, 10, 20))[0]
        hour = burst_hour if queue == "audit" and chance.random() < 0.3 else place % hours
        sent_s = start_s + hour * 3600 + chance.randrange(3600)
        add(queue, sent_s)
        if queue == "questions" and made[-1].fate == "received" and chance.random() < 0.8:
            asked = made[-1]
            sent_s = asked.sent_s + asked.after_s + chance.randrange(20)
            add("replies", sent_s, answer_to=asked.number, fate="received", after_s=chance.randrange(3), reason=None)
    return made


def _fate(queue: str, sent_s: int, end_s: int, chance: Random) -> tuple[str, int, MessageClass | None]:
    if queue == "unread":
        return "waiting", 1, None
    if queue == "invoices" and sent_s > end_s - STOP_S:
        return "waiting", 1, None
    kind = chance.choices(("received", "dead", "left", "unexplained", "outgoing"), (85, 6, 4, 3, 2))[0]
    if kind == "dead":
        return kind, chance.randrange(60, 90), chance.choice(REASONS)
    return kind, min(int(chance.expovariate(1 / 20)), 600) if kind == "received" else 1, None


def copies(sent: Sequence[Sent]) -> Iterator[tuple[Any, ...]]:
    """Bronze rows. Messages that have left their queue come before all that wait, because a floor separates them."""
    ordered = sorted(sent, key=lambda each: each.fate != "left")
    for arrival, each in enumerate(ordered, 1):
        path = rf"private$\{each.queue}"
        manager, queue, role = {
            "received": (ROME, f"{path};journal", silver.RECEIVED),
            "dead": (LONDON, ";deadletter", silver.DEAD),
            "unexplained": (LONDON, ";journal", silver.SENT),
            "outgoing": (LONDON, rf"PRIVATE={ROME}\{NUMBERS[each.queue]}", silver.OUTGOING),
        }.get(each.fate, (ROME, path, silver.QUEUED))
        at = datetime.fromtimestamp(each.sent_s + each.after_s, UTC)
        found = (1, NAMES[manager], str(manager), queue, role, arrival, arrival, at, 0)
        yield (*found, None if each.reason is None else int(each.reason), each.packet(), at.date())


def depth(sent: Sequence[Sent], queue: str, until_s: int) -> list[Sent]:
    """The messages that wait in a queue at a time."""
    return [each for each in sent if each.queue == queue and each.fate == "waiting" and each.sent_s < until_s]


def bronze_batch(rows: Sequence[tuple[Any, ...]]) -> pyarrow.RecordBatch:
    """Bronze rows as columns, with the types of the table."""
    fields = [column.split() for column in BRONZE_COLUMNS.split(", ")]
    columns = [
        pyarrow.array([row[place] for row in rows], _ARROW_TYPES[kind]) for place, (_, kind) in enumerate(fields)
    ]
    return pyarrow.RecordBatch.from_arrays(columns, [name for name, _ in fields])


def bronze_facts() -> dict[str, Any]:
    """Both managers, and the queues of rome by name."""
    managers = [{"id": str(each), "name": NAMES[each], "address": None, "api": APIS[each]} for each in NAMES]
    queues = {rf"PRIVATE={ROME}\{number}": called(queue) for queue, number in NUMBERS.items()}
    return {"offsets": {}, "managers": managers, "queues": queues}


def look(lake: Lake, number: int, at_s: int, waiting: Mapping[str, tuple[int, int | None]], floor: int) -> None:
    """A look at the queues of rome: how many messages wait in each, and when the first of them arrived."""
    at = datetime.fromtimestamp(at_s, UTC)
    seen = []
    for queue, (count, first_s) in waiting.items():
        oldest = None if first_s is None else datetime.fromtimestamp(first_s, UTC)
        ends = (number, at, "rome", str(ROME), rf"private$\{queue}", called(queue), silver.QUEUED)
        seen.append((*ends, count, 100 * count, 0, oldest, False, None, at.date(), 0))
    floors = {rf"{ROME}|private$\{queue}": floor for queue in waiting}
    journals = [rf"PRIVATE={ROME}\{NUMBERS[queue]}" for queue in waiting]
    facts = {"floors": floors, "journals": journals}
    lake.table(DEPTHS).append(lake.session.createDataFrame(seen, DEPTH_COLUMNS), number, facts)


def made_lake(spark: SparkSession, path: Path, sent: Sequence[Sent]) -> Lake:
    """A lake of this history with two looks at the queues: one an hour before the end, one at the end."""
    lake = Lake(spark, path)
    frame = spark.createDataFrame(pyarrow.Table.from_batches([bronze_batch(list(copies(sent)))]))
    lake.table(BRONZE).append(frame, 1, bronze_facts())
    left = sum(each.fate == "left" for each in sent)
    for number, until_s in ((1, END_S - 3600), (2, END_S)):
        waiting = {queue: depth(sent, queue, until_s) for queue in NUMBERS}
        look(
            lake,
            number,
            until_s,
            {
                queue: (len(some), min((each.sent_s + each.after_s for each in some), default=None))
                for queue, some in waiting.items()
            },
            1 + left,
        )
    run(lake, [])
    return lake
