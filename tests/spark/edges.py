"""Generated traffic with every edge that makes a number untrue: clocks apart, lost acknowledgments, several copies,
expiry, chains and circles of answers, replays, queues without a journal, packets that are none.

Each packet comes with what its sender knows of it, so an expectation needs no decoder.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from random import Random
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pyarrow

from postroad.message import Composer, Message
from postroad.names import MessageId, PublicName, parse_name
from postroad.spark.pipeline.lake import BRONZE, DEPTHS, Lake, record_sent
from postroad.spark.pipeline.run import run
from postroad.spark.pipeline.summaries import DEPTHS as DEPTH_COLUMNS
from postroad.wire.constants import MessageClass, class_name
from postroad.wire.headers import TxSequenceId
from postroad.wire.patch import stamp_transaction
from tests.enterprises import client, directory, link, server, site
from tests.spark.generated import bronze_batch

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from postroad.directory.snapshot import Directory

LONDON, ROME, PARIS = (
    UUID(f"{digits}0000-0000-0000-0000-00000000000{n}") for n, digits in enumerate(("aaaa", "bbbb", "cccc"))
)
NAMES = {LONDON: "london", ROME: "rome", PARIS: "paris"}
SITES = {"london": "uk", "rome": "italy", "paris": "france"}
LINKS = {("uk", "france"): 1, ("france", "italy"): 2, ("uk", "italy"): 9}
MIDNIGHT_MS = 1_700_006_400_000
DAY_MS, HOUR_MS = 86_400_000, 3_600_000
BATCHES = 2
# Queues by manager and name, with the number in their format name. Those in JOURNALS copy what is received.
QUEUES = {(ROME, "orders"): 1, (ROME, "audit"): 2, (PARIS, "questions"): 3, (LONDON, "replies"): 4, (PARIS, "blind"): 5}
JOURNALS = {(ROME, "orders"), (PARIS, "questions")}
TYPED = {"orders": "Shop.Order", "questions": "Shop.Question"}
NEGATIVE = (
    MessageClass.NACK_REACH_QUEUE_TIMEOUT,
    MessageClass.NACK_RECEIVE_TIMEOUT,
    MessageClass.NACK_Q_EXCEED_QUOTA,
    MessageClass.NACK_Q_PURGED,
)


@dataclass(frozen=True, slots=True)
class Letter:
    """A message as its sender made it, in the second `sent_s` of its clock. `sequence` is the name and the place of a
    transactional one in its sequence."""

    number: int
    source: UUID
    manager: UUID
    queue: str
    to: str
    sent_ms: int
    sent_s: int
    delivery: str
    priority: int
    label: str
    asked: str
    reply_to: str | None
    correlation: str | None
    message_type: str | None
    sequence: tuple[int, int] | None
    packet: bytes = field(repr=False)

    @property
    def id(self) -> str:
        return str(MessageId(self.source, self.number))


@dataclass(frozen=True, slots=True)
class Found:
    """A packet in a queue. `of` is the letter, or what an acknowledgment or a report says about one; None for a packet
    that cannot be decoded."""

    manager: UUID
    queue: str
    role: str
    at_ms: int
    packet: bytes = field(repr=False)
    of: Letter | Said | None = None
    reason: MessageClass | None = None
    arrival: int = 0
    batch: int = 0


@dataclass(frozen=True, slots=True)
class Said:
    """What an acknowledgment says about a letter, in the second `at_s` of the clock of `by`; with `hops`, a report."""

    about: Letter
    by: UUID
    at_s: int
    kind: MessageClass
    hops: int = 0


@dataclass(frozen=True, slots=True)
class Look:
    """What a run finds in a queue. `floor` is the number below which it has no messages."""

    number: int
    at_ms: int
    manager: UUID
    queue: str
    messages: int
    readers: int
    departed: int
    oldest_ms: int | None
    floor: int


@dataclass(frozen=True, slots=True)
class Traffic:
    found: list[Found]
    looks: list[Look]
    journals: list[str]
    again: list[str]

    @property
    def queues(self) -> dict[str, str]:
        """The names for people of the queues that the pipeline reads, by format name."""
        return {format_name(*key): called(*key) for key in QUEUES if key[1] != "blind"}


def format_name(manager: UUID, queue: str) -> str:
    return rf"PRIVATE={manager}\{QUEUES[manager, queue]}"


def called(manager: UUID, queue: str) -> str:
    return rf"{NAMES[manager]}: private$\{queue}"


def enterprise() -> Directory:
    return directory(
        *map(site, SITES.values()),
        *(link(one, other, cost, f"gate-{one} gate-{other}") for (one, other), cost in LINKS.items()),
        *(server(f"gate-{each}", each) for each in SITES.values()),
        *(client(name, each) for name, each in SITES.items()),
    )


class Generator:
    def __init__(self, seed: int, count: int) -> None:
        self._chance = chance = Random(seed)
        self._clocks = {each: chance.choice((0, chance.randrange(-3000, 3000))) for each in NAMES}
        self._answers = JOURNALS | {(LONDON, "replies")} if seed % 2 else JOURNALS
        self._letters: list[Letter] = []
        self._places = 0
        self.count = count

    def traffic(self) -> Traffic:
        chance = self._chance
        found: list[Found] = []
        for _ in range(self.count):
            found += self._fate(self._letter())
        found += self._chain(chance.choice((1, 3, 17, 40)))
        found += self._circle(chance.randrange(1, 4))
        for number in range(chance.randrange(3)):
            found.append(
                Found(ROME, r"private$\orders", "queued", self._at(ROME, MIDNIGHT_MS + number), b"no packet at all")
            )
        found.sort(key=lambda each: each.at_ms + (chance.random() < 0.1) * chance.randrange(2 * DAY_MS))
        cut = chance.randrange(len(found) // 2, len(found))
        placed = [replace(each, arrival=number, batch=1 + (number > cut)) for number, each in enumerate(found, 1)]
        dead = sorted({each.of.id for each in placed if each.role == "dead" and isinstance(each.of, Letter)})
        journals = [format_name(*key) for key in QUEUES if key in self._answers]
        return Traffic(placed, list(self._looks(len(placed))), journals, dead[: len(dead) // 2])

    def _at(self, manager: UUID, at_ms: int) -> int:
        """What the clock of a manager shows at a time."""
        return at_ms + self._clocks[manager]

    def _letter(self, **given: Any) -> Letter:
        chance, number = self._chance, len(self._letters) + 1
        manager, queue = chance.choice(list(QUEUES))
        true_ms = MIDNIGHT_MS + chance.randrange(4) * DAY_MS + chance.randrange(3 * HOUR_MS)
        fields: dict[str, Any] = {
            "source": chance.choice(list(NAMES)),
            "manager": manager,
            "queue": queue,
            "sent_ms": true_ms,
            "delivery": chance.choice(("express", "recoverable", "transactional")),
            "priority": chance.choice((3, 3, 7)),
            "asked": chance.choice(("", "", "reach", "receive", "reach,receive")),
            "reply_to": format_name(LONDON, "replies") if chance.random() < 0.3 else None,
            "correlation": chance.choice(self._letters).id if self._letters and chance.random() < 0.2 else None,
        } | given
        manager, queue = fields["manager"], fields["queue"]
        by_name = fields["delivery"] != "transactional" and chance.random() < 0.2
        to = rf"DIRECT=OS:{NAMES[manager]}\private$\{queue}" if by_name else format_name(manager, queue)
        label = f"{queue} {number}"
        sequence = None
        if fields["delivery"] == "transactional":
            self._places += 1
            sequence = (1, self._places)
            fields["priority"] = 0  # [MS-MQDMPR] 3.1.7.1.32
        fields["sent_s"] = self._at(fields["source"], fields["sent_ms"]) // 1000
        more: dict[str, Any] = {"to": to, "label": label, "message_type": TYPED.get(queue), "sequence": sequence}
        made = Letter(number, packet=b"", **fields, **more)
        made = replace(made, packet=self._packet(made))
        self._letters.append(made)
        return made

    def _packet(self, letter: Letter) -> bytes:
        more: dict[str, Any] = {}
        if letter.asked:
            wanted = {"reach": "reach-queue", "receive": "receive", "reach,receive": "reach-queue,receive"}[
                letter.asked
            ]
            more |= {"ack": wanted, "admin_queue": rf"PRIVATE={letter.source}\9"}
        if letter.reply_to is not None:
            more["response_queue"] = letter.reply_to
        if letter.correlation is not None:
            more["correlation_id"] = _correlation(letter.correlation)
        if letter.message_type is not None:
            more["extension"] = json.dumps(
                {"rbs2-msg-type": f"{letter.message_type}, Shop", "rbs2-msg-id": "1"}
            ).encode()
        more["recoverable"] = letter.delivery != "express"
        message = Message(f"body {letter.number}", label=letter.label, priority=letter.priority, **more)
        composer = Composer(letter.source, parse_name(letter.to))  # type: ignore[arg-type]
        packet = composer.compose(message, letter.number, letter.sent_s, transactional=letter.sequence is not None)
        if letter.sequence is not None:
            place = letter.sequence[1]
            packet = stamp_transaction(packet, TxSequenceId(1, 9), place, place - 1, 5, first=True, last=True)
        return packet

    def _fate(self, letter: Letter) -> Iterator[Found]:
        """The traces of a letter; any may be missing."""
        chance, at = self._chance, letter.sent_ms
        reached = at + chance.choice((chance.randrange(900), chance.randrange(5000)))
        received = reached + chance.choice((0, chance.randrange(1500), chance.randrange(2 * DAY_MS)))
        journaled = (letter.manager, letter.queue) in self._answers
        blind = letter.queue == "blind"
        path = rf"private$\{letter.queue}"
        silent = chance.random() < 0.1  # only acknowledgments tell of it

        def seen(manager: UUID, queue: str, role: str, when: int, likely: float, reason: Any = None) -> Iterator[Found]:
            if chance.random() < likely and not silent:
                yield Found(manager, queue, role, self._at(manager, when), letter.packet, letter, reason)

        def said(kind: MessageClass, by: UUID, when: int, likely: float) -> Iterator[Found]:
            if chance.random() < likely or silent:
                yield self._acknowledgment(letter, kind, by, when)

        yield from seen(letter.source, letter.to, "outgoing", at + chance.randrange(50), 0.2)
        late = letter.delivery == "transactional"
        yield from seen(letter.source, ";journal", "sent", (received if late else at) + chance.randrange(200), 0.4)
        expired = chance.random() < 0.2
        if not expired or chance.random() < 0.1:
            if not blind:
                yield from seen(letter.manager, path, "queued", reached, 0.7)
                yield from seen(letter.manager, path, "queued", reached + 20, 0.05)
                yield from seen(letter.manager, r"private$\audit", "queued", reached + 40, 0.05)
            if journaled:
                yield from seen(letter.manager, f"{path};journal", "received", received, 0.7)
                yield from seen(letter.manager, f"{path};journal", "received", received + 500, 0.07)
            if "reach" in letter.asked:
                yield from said(MessageClass.ACK_REACH_QUEUE, letter.manager, reached, 0.7)
            if "receive" in letter.asked:
                yield from said(MessageClass.ACK_RECEIVE, letter.manager, received, 0.6)
        if expired:
            why = chance.choice(NEGATIVE)
            keeper = chance.choice((letter.source, letter.manager))
            yield from seen(keeper, ";deadletter", "dead", received, 0.7, why)
            yield from said(why, keeper, received, 0.6)
        for hops, by in enumerate((letter.source, letter.manager)):
            if chance.random() < 0.15:
                yield self._report(letter, by, at + 1000 * hops, hops)

    def _acknowledgment(self, about: Letter, kind: MessageClass, by: UUID, when: int) -> Found:
        at_s = self._at(by, when) // 1000
        message = Message(
            b"", label=about.label, message_class=kind, correlation_id=_correlation(about.id), response_queue=about.to
        )
        composer = Composer(by, parse_name(rf"PRIVATE={about.source}\9"))  # type: ignore[arg-type]
        packet = composer.compose(message, 10_000 + about.number * 10 + int(kind) % 10, at_s)
        arrived = self._at(about.source, when + self._chance.randrange(300))
        return Found(about.source, r"private$\answers", "queued", arrived, packet, Said(about, by, at_s, kind))

    def _report(self, about: Letter, by: UUID, when: int, hops: int) -> Found:
        """[MS-MQQB] 3.1.5.8.9"""
        at_s = self._at(by, when) // 1000
        label = f"{str(about.source)[:4].upper()}:{about.number:08X}:{hops:02X} received by {by} at noon"
        body = f"<MESSAGE ID>{about.number:08X}</MESSAGE ID>\r\n<TARGET QUEUE>{about.to}</TARGET QUEUE>\r\n"
        message = Message(body.encode("utf-16-le"), label=label, message_class=MessageClass.REPORT)
        packet = Composer(by, PublicName(LONDON)).compose(message, 50_000 + 10 * about.number + hops, at_s)
        arrived = self._at(LONDON, when + 100)
        said = Said(about, by, at_s, MessageClass.REPORT, hops)
        return Found(LONDON, r"london\reports", "queued", arrived, packet, said)

    def _chain(self, length: int) -> Iterator[Found]:
        """A message, and answers to answers."""
        before = self._letter(manager=ROME, queue="orders", source=LONDON, correlation=None, delivery="express")
        yield self._received(before)
        for _ in range(length):
            after = before.sent_ms + self._chance.randrange(5000)
            more = {"correlation": before.id, "sent_ms": after, "delivery": "express", "source": ROME}
            before = self._letter(manager=PARIS, queue="questions", **more)
            yield self._received(before)

    def _circle(self, length: int) -> Iterator[Found]:
        """Messages that answer each other, which nobody honest sends, and one that answers the first."""
        first = len(self._letters) + 1
        ids = [str(MessageId(LONDON, first + number)) for number in range(length)]
        for number in range(length + 1):
            more: dict[str, Any] = {"correlation": ids[(number + 1) % length] if number < length else ids[0]}
            yield self._received(self._letter(manager=ROME, queue="orders", source=LONDON, delivery="express", **more))

    def _received(self, letter: Letter) -> Found:
        path = rf"private$\{letter.queue};journal"
        return Found(
            letter.manager, path, "received", self._at(letter.manager, letter.sent_ms + 700), letter.packet, letter
        )

    def _looks(self, arrived: int) -> Iterator[Look]:
        chance = self._chance
        for number in range(1, 2 * BATCHES + 1):
            at = MIDNIGHT_MS + 5 * DAY_MS + number * HOUR_MS // 2
            for manager, queue in QUEUES:
                if queue != "blind" and (number > 1 or queue != "replies"):
                    count = chance.randrange(50)
                    oldest = at - chance.randrange(DAY_MS) if count else None
                    ends = (manager, queue, count, chance.randrange(3), chance.randrange(99), oldest)
                    yield Look(number, at, *ends, chance.randrange(arrived * number // (2 * BATCHES) + 1))


def _correlation(message_id: str) -> bytes:
    guid, _, number = message_id.partition("\\")
    return UUID(guid.strip("{}")).bytes_le + int(number).to_bytes(4, "little")


def generated(seed: int, count: int = 60) -> Traffic:
    return Generator(seed, count).traffic()


def at(ms: int) -> datetime:
    return datetime.fromtimestamp(ms // 1000, UTC).replace(microsecond=ms % 1000 * 1000)


def made_lake(spark: SparkSession, path: Path, traffic: Traffic) -> Lake:
    """A lake that has this traffic from two runs."""
    lake = Lake(spark, path)
    managers = [{"id": str(each), "name": name, "address": None, "api": None} for each, name in NAMES.items()]
    facts = {"offsets": {}, "managers": managers, "queues": traffic.queues}
    for batch in range(1, BATCHES + 1):
        rows = [
            (
                *(batch, NAMES[each.manager], str(each.manager), each.queue, each.role, each.arrival, each.arrival),
                *(at(each.at_ms), 0, None if each.reason is None else int(each.reason), each.packet),
                at(each.at_ms).date(),
            )
            for each in traffic.found
            if each.batch == batch
        ]
        lake.table(BRONZE).append(spark.createDataFrame(pyarrow.Table.from_batches([bronze_batch(rows)])), batch, facts)
        if batch == BATCHES and traffic.again:
            record_sent(lake.replays, "replay-1", traffic.again)
        for number in (2 * batch - 1, 2 * batch):
            seen = [each for each in traffic.looks if each.number == number]
            frame = spark.createDataFrame([_depth(each) for each in seen], DEPTH_COLUMNS)
            known = {
                rf"{each.manager}|private$\{each.queue}": each.floor for each in traffic.looks if each.number <= number
            }
            lake.table(DEPTHS).append(frame, number, {"floors": known, "journals": traffic.journals})
        run(lake, [], enterprise())
    return lake


def _depth(each: Look) -> tuple[Any, ...]:
    path, oldest = rf"private$\{each.queue}", None if each.oldest_ms is None else at(each.oldest_ms)
    ends = (each.number, at(each.at_ms), NAMES[each.manager], str(each.manager), path, called(each.manager, each.queue))
    counts = (
        each.messages,
        100 * each.messages,
        each.readers,
        oldest,
        False,
        None,
        at(each.at_ms).date(),
        each.departed,
    )
    return (*ends, "queued", *counts)


def why(reason: MessageClass | None) -> str | None:
    return None if reason is None else class_name(reason)
