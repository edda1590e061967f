"""Gold made from random pieces with kills in between equals gold made at once, row by row."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from postroad.names import MessageId
from postroad.spark.pipeline import run as running
from postroad.spark.pipeline import silver, summaries
from postroad.spark.pipeline.gold import update_gold
from postroad.spark.pipeline.lake import (
    ACKNOWLEDGMENTS,
    BACKLOG,
    BRONZE,
    CONVERSATIONS,
    COUNTS,
    DELIVERY,
    DEPTHS,
    EXCHANGES,
    FAULTS,
    GOLD,
    MESSAGES,
    SILVER,
    STATES,
    UNDECODABLE,
    Lake,
    record_sent,
)
from postroad.spark.pipeline.lake_files import LocalFiles
from postroad.spark.pipeline.run import compact, retain
from postroad.wire.constants import MessageClass
from tests.enterprises import client, directory, link, server, site
from tests.spark.packets import (
    LONDON,
    NAMES,
    NOON_S,
    ORDERS,
    ROME,
    Copy,
    acknowledgment,
    bronze,
    in_sequence,
    report,
    sent,
)

if TYPE_CHECKING:
    from pyspark import SparkJobInfo
    from pyspark.sql import SparkSession

MESSAGES_SENT = 60
DAY_S = 86_400
QUEUE, JOURNAL, ANSWERS, TRACES = r"private$\orders", r"private$\orders;journal", r"private$\answers", r"london\reports"
FIRST_DAY = datetime.fromtimestamp(NOON_S, UTC).date()
ENTERPRISE = directory(
    site("uk"),
    site("italy"),
    link("uk", "italy", 1, "gate-uk gate-it"),
    server("gate-uk", "uk"),
    server("gate-it", "italy"),
    client("london", "uk"),
    client("rome", "italy"),
)


def traces(chance: Random, number: int) -> Iterator[Copy]:
    """The traces of one message in the order of time: copies, acknowledgments, reports. Any may be missing."""
    at = chance.randrange(4) * DAY_S + chance.randrange(1000)
    asked: dict[str, Any] = {"ack": "reach-queue,receive", "admin_queue": rf"PRIVATE={LONDON}\2"}
    if number % 2:
        asked["response_queue"] = rf"PRIVATE={LONDON}\3"
    if number % 3 == 0:  # an answer, sometimes to a message that is no request, or in a chain
        asked["correlation_id"] = LONDON.bytes_le + (number - chance.randrange(1, 4)).to_bytes(4, "little")
    packet = in_sequence(number, chance.randrange(1, 40), at) if number % 4 == 0 else sent(number, at_s=at, **asked)
    took = chance.randrange(1, 2 * DAY_S)
    steps = (
        Copy(LONDON, ";journal", silver.SENT, packet, at + 1.5),
        Copy(LONDON, TRACES, silver.QUEUED, report(number, 0, LONDON, at), at + 2.0),
        Copy(ROME, QUEUE, silver.QUEUED, packet, at + 3.25),
        Copy(LONDON, ANSWERS, silver.QUEUED, acknowledgment(number, MessageClass.ACK_REACH_QUEUE, at_s=at + 3), at + 4),
        Copy(LONDON, TRACES, silver.QUEUED, report(number, 1, ROME, at + 4), at + 5.0),
        Copy(ROME, JOURNAL, silver.RECEIVED, packet, at + took),
        Copy(ROME, JOURNAL, silver.RECEIVED, packet, at + took + 1),
        Copy(
            LONDON,
            ANSWERS,
            silver.QUEUED,
            acknowledgment(number, MessageClass.ACK_RECEIVE, at_s=at + took),
            at + took + 2,
        ),
        Copy(LONDON, ";deadletter", silver.DEAD, packet, at + took, MessageClass.NACK_REACH_QUEUE_TIMEOUT),
        Copy(LONDON, ANSWERS, silver.QUEUED, b"no packet at all", at + took),
    )
    chances = (0.8, 0.2, 0.8, 0.7, 0.2, 0.5, 0.1, 0.5, 0.2, 0.1)
    yield from (step for step, likely in zip(steps, chances, strict=True) if chance.random() < likely)


def pieces(chance: Random, count: int) -> list[list[Copy]]:
    """All traces ordered by time, except for some that are very late, cut at random places. Each piece is a batch."""
    found = [copy for number in range(1, MESSAGES_SENT + 1) for copy in traces(chance, number)]
    found.sort(key=lambda copy: copy.at_s + (chance.random() < 0.1) * chance.randrange(5 * DAY_S))
    cuts = [0, *sorted(chance.sample(range(1, len(found)), count - 1)), len(found)]
    return [
        [replace(copy, batch=batch) for copy in found[start:end]]
        for batch, (start, end) in enumerate(pairwise(cuts), 1)
    ]


def arrive(lake: Lake, copies: Sequence[Copy], first: int, *, named: bool = True) -> None:
    """A bronze batch, as a run would write it."""
    managers = [{"id": str(guid), "name": name} for guid, name in NAMES.items()]
    queues = {ORDERS: r"rome: private$\orders"} if named else {}
    facts = {"offsets": {}, "managers": managers, "queues": queues}
    lake.table(BRONZE).append(bronze(lake.session, copies, first), copies[0].batch, facts)


def look(lake: Lake, floor: int) -> None:
    """A look at the queue of orders, which has no messages below this arrival number."""
    last = lake.table(DEPTHS).last()
    number = 1 if last is None else last.batch + 1
    noon = datetime.fromtimestamp(NOON_S + number * DAY_S, UTC)
    counts = (7, 700, 1, noon - timedelta(minutes=number), False, None)
    row = (number, noon, "rome", str(ROME), QUEUE, rf"rome: {QUEUE}", silver.QUEUED, *counts, noon.date(), 5)
    frame = lake.session.createDataFrame([row], summaries.DEPTHS)
    lake.table(DEPTHS).append(
        frame, number, {"floors": {f"{ROME}|{QUEUE}": floor}, "journals": [ORDERS] if number > 2 else []}
    )


def finish(lake: Lake) -> None:
    """The rest of a run: silver and gold."""
    last = lake.table(BRONZE).last()
    assert last is not None
    running._silver(lake, last.batch, lambda *_: None)
    update_gold(lake, last, lake.table(DEPTHS).last(), ENTERPRISE, lambda *_: None)


def rows(lake: Lake, name: str) -> Counter[str]:
    return Counter(repr(sorted(row.items())) for row in lake.rows(name))


def assert_equals_a_rebuild(lake: Lake, place: Path) -> None:
    shutil.copytree(lake.path, place, ignore=shutil.ignore_patterns("gold"))
    rebuilt = Lake(lake.session, place)
    last = rebuilt.table(BRONZE).last()
    assert last is not None
    update_gold(rebuilt, last, rebuilt.table(DEPTHS).last(), ENTERPRISE, lambda *_: None)
    for name in GOLD:
        ours, theirs = rows(lake, name), rows(rebuilt, name)
        assert ours - theirs == theirs - ours == Counter(), name
    assert rows(lake, DELIVERY)


class Killer:
    """Ends a run like a kill would: before or after the n-th change of a table becomes visible."""

    def __init__(self, patch: pytest.MonkeyPatch, number: int, *, before: bool) -> None:
        publish = LocalFiles.publish
        self.left = number

        def killed(files: LocalFiles, *given: str) -> None:
            self.left -= 1
            if self.left <= 0 and before:
                raise KeyboardInterrupt
            publish(files, *given)
            if self.left <= 0:
                raise KeyboardInterrupt

        patch.setattr(LocalFiles, "publish", killed)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", [2])
def test_pieces_and_kills_make_the_same_tables_as_one_rebuild(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    chance = Random(seed)
    lake = Lake(spark, tmp_path / "lake")
    arrived = 0
    for number, piece in enumerate(pieces(chance, 5)):
        arrive(lake, piece, arrived + 1, named=number > 1)
        arrived += len(piece)
        if number:
            look(lake, chance.randrange(arrived))
        if number in (1, 3):
            with monkeypatch.context() as patch:
                Killer(patch, chance.randrange(1, 14), before=chance.random() < 0.5)
                with pytest.raises(KeyboardInterrupt):
                    finish(lake)
        if number == 2:
            record_sent(lake.replays, "replay-1", [str(MessageId(LONDON, each)) for each in range(1, 30)])
        if number != 3:  # the fourth is finished together with the fifth
            finish(lake)
        if number == 2:
            assert_equals_a_rebuild(lake, tmp_path / "rebuilt-2")
    assert_equals_a_rebuild(lake, tmp_path / "rebuilt")
    before = {name: rows(lake, name) for name in GOLD}
    compact(lake)
    assert {name: rows(lake, name) for name in GOLD} == before
    for name in (DELIVERY, STATES, MESSAGES):
        table = lake.table(name)
        assert len(table.files()) == len(table.days())


@pytest.fixture(scope="module")
def two_days(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished lake. Its queue has three messages of the first day, and then message 9 of the second."""
    lake = Lake(spark, tmp_path_factory.mktemp("two-days"))
    early = [Copy(ROME, QUEUE, silver.QUEUED, sent(number), 1.0) for number in range(1, 4)]
    later = [Copy(ROME, QUEUE, silver.QUEUED, sent(9, at_s=DAY_S), DAY_S + 1.0)]
    arrive(lake, [*early, *later], 1)
    finish(lake)
    return Path(lake.path)


@pytest.fixture
def lake(spark: SparkSession, two_days: Path, tmp_path: Path) -> Lake:
    """A copy of the lake of two days."""
    return Lake(spark, shutil.copytree(two_days, tmp_path / "lake"))


def test_new_messages_change_only_their_days(lake: Lake) -> None:
    files = {name: {(file.day, file.path) for file in lake.table(name).files()} for name in (DELIVERY, STATES)}
    new = [Copy(ROME, JOURNAL, silver.RECEIVED, sent(9, at_s=DAY_S), DAY_S + 5.0, batch=2)]
    arrive(lake, new, 5)
    finish(lake)
    for name, before in files.items():
        now = {(file.day, file.path) for file in lake.table(name).files()}
        assert {day for day, _ in before - now} == {str(FIRST_DAY + timedelta(days=1))}, name
        assert {day for day, _ in before & now} == {str(FIRST_DAY)}, name
    states = {row["id"].rpartition("\\")[2]: row["state"] for row in lake.rows(DELIVERY)}
    assert states == {"1": "reached", "2": "reached", "3": "reached", "9": "received"}


def test_a_new_message_rewrites_no_file(lake: Lake) -> None:
    before = {file.path for file in lake.table(DELIVERY).files()}
    arrive(lake, [Copy(ROME, QUEUE, silver.QUEUED, sent(4), 2.0, batch=2)], 5)
    finish(lake)
    assert before < {file.path for file in lake.table(DELIVERY).files()}
    assert len(lake.rows(DELIVERY)) == 5


def test_a_lake_of_an_older_version_gets_the_tables_that_it_lacks(lake: Lake, tmp_path: Path) -> None:
    for name in (EXCHANGES, COUNTS):
        shutil.rmtree(Path(lake.path, name))
    question = sent(4, response_queue=ORDERS)
    arrive(lake, [Copy(ROME, QUEUE, silver.QUEUED, question, 2.0, batch=2)], 5)
    finish(lake)
    assert len(lake.rows(CONVERSATIONS)) == 1
    assert_equals_a_rebuild(lake, tmp_path / "rebuilt")


def test_a_table_without_news_writes_no_file(lake: Lake) -> None:
    unchanged = (ACKNOWLEDGMENTS, UNDECODABLE, FAULTS)
    before = {name: [file.path for file in lake.table(name).files()] for name in unchanged}
    arrive(lake, [Copy(ROME, QUEUE, silver.QUEUED, sent(4), 2.0, batch=2)], 5)
    finish(lake)
    assert {name: [file.path for file in lake.table(name).files()] for name in unchanged} == before
    for name in (ACKNOWLEDGMENTS, UNDECODABLE):
        last = lake.table(name).last()
        assert last is not None
        assert last.batch == 2


def test_few_messages_take_few_tasks(lake: Lake) -> None:
    """With the settings for large lakes, steps of a plan have many tasks unless Spark knows that there are few rows."""
    large = {"spark.sql.adaptive.enabled": "true", "spark.sql.shuffle.partitions": "100"}
    context, conf = lake.session.sparkContext, lake.session.conf
    before = {key: str(conf.get(key)) for key in large}
    arrive(lake, [Copy(ROME, JOURNAL, silver.RECEIVED, sent(9, at_s=DAY_S), DAY_S + 5.0, batch=2)], 5)
    for key, value in large.items():
        conf.set(key, value)
    context.setJobGroup("few", "gold of one message")
    try:
        finish(lake)
    finally:
        context.setJobGroup("", "")
        for key, value in before.items():
            conf.set(key, value)
    tracker = context.statusTracker()
    stages = [stage for job in tracker.getJobIdsForGroup("few") for stage in _stages(tracker.getJobInfo(job))]
    tasks = sum(info.numCompletedTasks for stage in set(stages) if (info := tracker.getStageInfo(stage)) is not None)
    assert 0 < tasks <= 12


def test_without_news_a_run_starts_no_spark(lake: Lake) -> None:
    def never() -> SparkSession:
        raise AssertionError("Spark was started")

    before = {name: lake.table(name).last() for name in (*SILVER, *GOLD)}
    running.run(Lake(never, lake.path, on_cluster=False), [], ENTERPRISE)
    assert {name: lake.table(name).last() for name in (*SILVER, *GOLD)} == before
    for _ in range(3):
        look(lake, 1)
    finish(lake)
    look(lake, 1)
    assert running.run(Lake(never, lake.path, on_cluster=False), [], ENTERPRISE).packets == 0
    assert [row["looks"] for row in lake.rows(BACKLOG)] == [1, 1, 1, 1]


def _stages(job: SparkJobInfo | None) -> Sequence[int]:
    return () if job is None else job.stageIds


def test_a_message_that_has_left_its_queue_without_a_packet_is_seen(lake: Lake, tmp_path: Path) -> None:
    def there() -> dict[str, bool | None]:
        return {row["id"].rpartition("\\")[2]: row["in_queue"] for row in lake.rows(DELIVERY)}

    assert there() == {"1": None, "2": None, "3": None, "9": None}
    look(lake, 1)
    finish(lake)
    assert there() == {"1": True, "2": True, "3": True, "9": True}
    files = {(file.day, file.path) for file in lake.table(DELIVERY).files()}
    look(lake, 2)
    finish(lake)
    assert there() == {"1": False, "2": True, "3": True, "9": True}
    now = {(file.day, file.path) for file in lake.table(DELIVERY).files()}
    assert {day for day, _ in files - now} == {str(FIRST_DAY)}
    assert_equals_a_rebuild(lake, tmp_path / "rebuilt")

    look(lake, 5)
    finish(lake)
    made = lake.table(DELIVERY).last()
    look(lake, 9)
    finish(lake)
    assert lake.table(DELIVERY).last() == made  # there was no message between the floors


def test_rows_older_than_the_retained_days_leave_every_table(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(spark, tmp_path / "lake")
    copies = [
        Copy(ROME, JOURNAL, silver.RECEIVED, sent(number, at_s=number * DAY_S), number * DAY_S + 5.0)
        for number in range(6)
    ]
    arrive(lake, copies, 1)
    for _ in range(5):
        look(lake, 1)
    finish(lake)
    today: date = FIRST_DAY + timedelta(days=6)
    first = retain(lake, 3, ENTERPRISE, today)
    assert first == str(FIRST_DAY + timedelta(days=3))
    assert sorted(row["id"].rpartition("\\")[2] for row in lake.rows(DELIVERY)) == ["3", "4", "5"]
    assert sum(row["messages"] for row in lake.rows(STATES)) == 3
    assert min(lake.table(DEPTHS).days()) == first
    assert len(lake.rows(BACKLOG)) == 3
    for name in (BRONZE, MESSAGES):  # one more day
        assert min(lake.table(name).days()) == str(FIRST_DAY + timedelta(days=2))
    assert_equals_a_rebuild(lake, tmp_path / "rebuilt")

    # A late acknowledgment of a removed message does not bring it back, and the offsets are still known.
    late = Copy(
        LONDON, ANSWERS, silver.QUEUED, acknowledgment(2, MessageClass.ACK_RECEIVE, at_s=DAY_S), 6 * DAY_S, batch=2
    )
    last = lake.table(BRONZE).last()
    assert last is not None
    lake.table(BRONZE).append(bronze(spark, [late], 7), 2, last.facts)
    finish(lake)
    assert len(lake.rows(DELIVERY)) == 3
    assert_equals_a_rebuild(lake, tmp_path / "rebuilt-2")
    assert all(lake.table(name).last() is not None for name in SILVER)
