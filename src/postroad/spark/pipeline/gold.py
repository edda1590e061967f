"""Gold: tables made from silver, at a cost that grows with the new messages only.

gold/delivery has a row for each message. A run makes the rows again of all messages that new packets are about, and
replaces the days that have these rows. A message can change without a new packet: when it leaves its queue, the floor
of the queue rises above it.

Most summaries count by day, so a run counts only those days again. Other summaries span days. They are made as a whole,
but from such a summary, or from the few days of gold/delivery that matter. gold/backlog is made only from the looks at
the queues.

Each table records the version of its input. A table that is up to date is skipped. A table that a killed run left
behind is made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import reduce
from hashlib import sha256
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from postroad.directory.snapshot import Directory
from postroad.spark.pipeline import conversations, summaries
from postroad.spark.pipeline.fates import SEQUENCE, delivery, in_sequence, report_key
from postroad.spark.pipeline.frames import local, persisted
from postroad.spark.pipeline.lake import (
    ACKNOWLEDGMENTS,
    BACKLOG,
    CHAINS,
    CONVERSATIONS,
    COUNTS,
    DEAD_LETTERS,
    DELIVERY,
    DEPTHS,
    EXCHANGES,
    FAULTS,
    HOURS,
    LATENCY,
    LINKS,
    MESSAGES,
    OLDEST,
    PAIRS,
    REPORTS,
    SPANS,
    STATES,
    TOP,
    TRAFFIC,
    TREND,
    UNDECODABLE,
    Lake,
    fingerprint,
    ids_sent_again,
)
from postroad.spark.pipeline.locations import KnownManager, locations, message_ids, queue_names
from postroad.spark.pipeline.service_levels import latency, spans
from postroad.spark.pipeline.silver import QUEUED
from postroad.spark.pipeline.tables import DAY, Commit
from postroad.spark.pipeline.traffic import link_traffic, traffic
from postroad.spark.pipeline.trends import trend

VERSION = 7  # of the gold tables; a new number makes all tables again
_REMEMBERED = 32  # changes of gold/delivery; a summary that missed more than these is made as a whole
_FEW = 100_000  # messages that one task can write, and whose ids every task can hold
_ALL = (1 << 63) - 1  # above every arrival number
_AT_ONCE = 4
# Lets Spark merge the small tasks of a cached frame. Otherwise a few rows take 200 tasks in every step of a plan.
_SMALL_TASKS = ("spark.sql.optimizer.canChangeCachedPlanOutputPartitioning", "true")
_BY_DAY: Mapping[str, Callable[[DataFrame], DataFrame]] = {
    STATES: summaries.states,
    SPANS: spans,
    DEAD_LETTERS: summaries.dead_letters,
    TRAFFIC: traffic,
    HOURS: conversations.hours,
    EXCHANGES: conversations.exchanges,
    COUNTS: conversations.counts,
}
# Summaries that are made as a whole, each from the tables named here.
_WHOLE: Mapping[str, tuple[Callable[..., DataFrame], tuple[str, ...]]] = {
    LATENCY: (latency, (SPANS,)),
    OLDEST: (summaries.oldest, (DELIVERY,)),
    FAULTS: (summaries.undecodable, (UNDECODABLE,)),
    TREND: (trend, (DELIVERY, STATES)),
    CONVERSATIONS: (conversations.conversations, (EXCHANGES,)),
    PAIRS: (conversations.pairs, (CONVERSATIONS,)),
    CHAINS: (conversations.chains, (EXCHANGES, DELIVERY)),
    TOP: (conversations.top, (COUNTS,)),
}
# The groups run at the same time. Tables that depend on each other are in one group, in order.
_GROUPS = (
    (EXCHANGES, CONVERSATIONS, PAIRS, CHAINS),
    (STATES, TREND, OLDEST),
    (SPANS, LATENCY),
    (COUNTS, TOP),
    *((name,) for name in (DEAD_LETTERS, TRAFFIC, LINKS, FAULTS, HOURS, BACKLOG)),
)

Tell = Callable[..., None]


@dataclass(frozen=True, slots=True)
class _Inputs:
    """What gold is made from.

    `bronze` and `looks` are the last commits of packets and of looks at the queues. A change in `basis` makes all
    tables again.
    """

    lake: Lake
    bronze: Commit
    looks: Commit | None
    directory: Directory | None
    basis: Mapping[str, Any]
    replays: str | None

    @property
    def floors(self) -> Mapping[str, int]:
        """For each queue, the arrival number below which it holds no messages."""
        return {} if self.looks is None else self.looks.facts["floors"]

    @property
    def journals(self) -> list[str]:
        """The format names of the queues whose journals the pipeline reads, in lower case."""
        return [] if self.looks is None else sorted(name.lower() for name in self.looks.facts.get("journals", ()))


def update_gold(lake: Lake, bronze: Commit, looks: Commit | None, directory: Directory | None, tell: Tell) -> None:
    """Brings every gold table up to date with silver."""
    lake.session.conf.set(*_SMALL_TASKS)
    managers = sorted((each["id"], each["name"]) for each in bronze.facts["managers"])
    basis = {"version": VERSION, "directory": _fingerprint(directory), "managers": digest(managers)}
    given = _Inputs(lake, bronze, looks, directory, basis, fingerprint(lake.replays))
    _update_delivery(given)
    tell(DELIVERY)

    def make(*names: str) -> None:
        for name in names:
            if name == BACKLOG:
                _update_backlog(given)
            else:
                _summarize(given, name)
            tell(name)

    in_parallel(lambda names: make(*names), _GROUPS)


def forget(lake: Lake, first: str) -> None:
    """Removes the messages before a day from gold/delivery. The next update brings the summaries up to date."""
    table = lake.table(DELIVERY)
    last = table.last()
    days = [day for day in table.days() if day < first]
    if last is not None and days:
        batch = last.batch + 1
        table.drop(days, batch, dict(last.facts) | {"changes": _changes(last, batch, days)})


def in_parallel(make: Callable[[Any], None], names: Iterable[Any]) -> None:
    """Runs small jobs in parallel, because they mostly wait. Raises the first error after all jobs have ended."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for done in [pool.submit(make, name) for name in names]:
            done.result()


# gold/delivery


def _update_delivery(given: _Inputs) -> None:
    table = given.lake.table(DELIVERY)
    before = table.last()
    facts: dict[str, Any] = {"batch": given.bronze.batch, "replays": given.replays}
    facts |= {"basis": given.basis, "queues": given.bronze.facts["queues"], "floors": dict(given.floors)}
    if before is None or before.facts.get("basis") != given.basis:
        batch = 1 if before is None else before.batch + 1
        frame = _without_removed_days(
            given, _delivery_rows(given, *(given.lake.read(name) for name in (MESSAGES, ACKNOWLEDGMENTS, REPORTS)))
        )
        table.replace(frame, batch, facts | {"changes": [[batch, None]]})
    elif any(before.facts.get(name) != facts[name] for name in ("batch", "replays", "queues", "floors")):
        _update(given, before, facts)


def _update(given: _Inputs, before: Commit, facts: dict[str, Any]) -> None:
    """Makes the rows of gold/delivery again that something new is about."""
    lake = given.lake
    table = lake.table(DELIVERY)
    batch = before.batch + 1
    with ExitStack() as stack:
        touched = stack.enter_context(persisted(_changed_ids(given, before.facts)))
        count = touched.count()
        only_floors = all(before.facts[name] == facts[name] for name in ("batch", "replays", "queues"))
        if only_floors and not count:  # floors also rise where there are no messages
            return
        # Spark does not know that these are few. Without the hint it sorts everything in the lake to find them.
        small = f.broadcast if count < _FEW else _unchanged
        ids = small(touched)
        known = lake.read(DELIVERY).join(ids, "id", "left_semi")
        days = sorted(str(row[0]) for row in known.select(DAY).distinct().collect())
        silver = {name: lake.read(name) for name in (MESSAGES, ACKNOWLEDGMENTS, REPORTS)}
        if days or "retained_from" in given.bronze.facts:
            messages = silver[MESSAGES].join(ids, "id", "left_semi")
            about = small(touched.withColumnRenamed("id", "about"))
            acknowledgments = silver[ACKNOWLEDGMENTS].join(about, "about", "left_semi")
        else:  # these messages were unknown, so everything that silver has about them is new
            messages, acknowledgments = (
                silver[name].where(f"batch > {before.facts['batch']}") for name in (MESSAGES, ACKNOWLEDGMENTS)
            )
        if count < _FEW:
            messages = messages.drop("body", "body_text", "headers")
            messages = stack.enter_context(persisted(messages))  # it is read three times
        wanted = small(in_sequence(messages).select(*SEQUENCE).distinct())
        sequences = silver[MESSAGES].join(wanted, list(SEQUENCE), "left_semi")
        keys = small(touched.select(report_key(f.col("id")).alias("about")))
        reports = silver[REPORTS].join(keys, "about", "left_semi")
        rows = _without_removed_days(given, _delivery_rows(given, messages, acknowledgments, reports, sequences))
        rows = stack.enter_context(persisted(rows))
        found = {str(row[0]): row[1] for row in rows.groupBy(DAY).count().collect()}
        fresh = rows.coalesce(1) if sum(found.values()) < _FEW else rows
        facts["changes"] = _changes(before, batch, sorted({*days, *found}))
        if not days:
            table.append(fresh, batch, facts)
            return
        others = table.read(days)
        assert others is not None
        table.update(others.join(ids, "id", "left_anti").unionByName(fresh), days, batch, facts)


def _unchanged(frame: DataFrame) -> DataFrame:
    return frame


def _changed_ids(given: _Inputs, before: Mapping[str, Any]) -> DataFrame:
    """The ids of the messages whose rows may have changed."""
    lake, spark = given.lake, given.lake.session
    new = {name: lake.read(name).where(f"batch > {before['batch']}") for name in (MESSAGES, ACKNOWLEDGMENTS, REPORTS)}
    ids = [new[MESSAGES].select("id"), new[ACKNOWLEDGMENTS].select(f.col("about").alias("id"))]
    delivered = lake.read(DELIVERY)
    if not new[REPORTS].isEmpty():
        about = new[REPORTS].select("about").distinct()
        keyed = delivered.select("id").withColumn("about", report_key(f.col("id")))
        ids.append(keyed.join(about, "about", "left_semi").select("id"))
    if before["replays"] != given.replays:
        again = message_ids(spark, ids_sent_again(lake.replays))
        ids.append(delivered.where("not replayed").select("id").join(again, "id", "left_semi"))
    called = given.bronze.facts["queues"]
    renamed = [name.lower() for name, queue in called.items() if before["queues"].get(name) != queue]
    if renamed:
        names = local(spark, [(name,) for name in renamed], "name string")
        keyed = delivered.select("id", f.lower("destination_queue").alias("name"))
        ids.append(keyed.join(names, "name", "left_semi").select("id"))
    if moved := _moved_floors(before["floors"], given.floors):
        rows = local(spark, moved, "manager_id string, queue string, low bigint, high bigint")
        low, high = min(row[2] for row in moved), max(row[3] for row in moved)
        queued = lake.read(MESSAGES).where(f"role = '{QUEUED}' and arrival >= {low} and arrival < {high}")
        between = queued.join(f.broadcast(rows), ["manager_id", "queue"]).where("arrival >= low and arrival < high")
        ids.append(between.select("id"))
    return reduce(DataFrame.union, ids).distinct()


def _moved_floors(before: Mapping[str, int], now: Mapping[str, int]) -> list[tuple[str, str, int, int]]:
    """The queues whose floor has changed, with the arrival numbers between the two floors.

    If one of the floors is unknown, these are all arrival numbers.
    """
    found = []
    for key in {*before, *now}:
        one, other = before.get(key), now.get(key)
        if one != other:
            manager, queue = key.split("|", 1)
            between = (0, _ALL) if one is None or other is None else (min(one, other), max(one, other))
            found.append((manager, queue, *between))
    return found


def _delivery_rows(
    given: _Inputs,
    messages: DataFrame,
    acknowledgments: DataFrame,
    reports: DataFrame,
    sequences: DataFrame | None = None,
) -> DataFrame:
    spark, facts = given.lake.session, given.bronze.facts
    known = locations(spark, (KnownManager(**each) for each in facts["managers"]), given.directory)
    called = queue_names(spark, facts["queues"])
    again = message_ids(spark, ids_sent_again(given.lake.replays))
    there = summaries.floor_rows(spark, given.floors)
    if "message_type" not in messages.columns:  # silver of an older version, without a batch since
        messages = messages.withColumn("message_type", f.lit(None).cast("string"))
    return delivery(messages, acknowledgments, reports, known, called, again, there, sequences)


def _without_removed_days(given: _Inputs, frame: DataFrame) -> DataFrame:
    """The rows without the days that `postroad pipeline retain` has removed."""
    first = given.bronze.facts.get("retained_from")
    return frame if first is None else frame.where(f"{DAY} >= date'{first}'")


def _changes(before: Commit, batch: int, days: list[str]) -> list[Any]:
    return [*before.facts["changes"], [batch, days]][-_REMEMBERED:]


# Summaries


def _summarize(given: _Inputs, name: str) -> None:
    lake = given.lake
    table = lake.table(name)
    before = table.last()
    delivered = lake.table(DELIVERY).last()
    assert delivered is not None
    facts: dict[str, Any] = {"basis": given.basis, "batch": given.bronze.batch, "of": delivered.batch}
    if name == FAULTS:
        facts["of"] = digest([file.path for file in lake.table(UNDECODABLE).files()])
    if name in (CONVERSATIONS, PAIRS):
        facts["journals"] = digest(given.journals)
    if before is not None and before.facts == facts:
        return
    batch = 1 if before is None else before.batch + 1
    days = None  # all days
    if before is not None and before.facts.get("basis") == given.basis:
        if name != FAULTS:
            days = _changed_days(delivered, before.facts["of"])
        elif before.facts["of"] == facts["of"]:
            days = []
        if before.facts.get("journals") != facts.get("journals"):
            days = None
    sources = _oldest_days(lake) if name == OLDEST else None
    if days is not None and (not days or (name == LINKS and given.directory is None)):
        table.drop((), batch, facts)  # its rows do not change
    elif name in _WHOLE:
        make, of = _WHOLE[name]
        read = [lake.read(each, sources) for each in of]
        if name == CONVERSATIONS:
            read.append(local(lake.session, [(each,) for each in given.journals], "format_name string"))
        frame = make(*read)
        table.replace(frame if name == CONVERSATIONS else frame.coalesce(1), batch, facts)
    else:
        rows = lake.read(DELIVERY, days)
        is_links = name == LINKS
        frame = link_traffic(lake.session, traffic(rows), given.directory) if is_links else _BY_DAY[name](rows)
        if days is None:
            table.replace(frame.repartition(DAY), batch, facts)
        else:
            table.update(frame.coalesce(1), days, batch, facts)


def _oldest_days(lake: Lake) -> list[str]:
    """The days of the oldest unexplained messages. gold/states knows how many each day has."""
    counts = lake.read(STATES).groupBy(DAY).agg(f.sum("unexplained")).collect()
    return summaries.days_of_oldest({str(row[0]): row[1] for row in counts})


def _update_backlog(given: _Inputs) -> None:
    lake, looks = given.lake, given.looks
    table = lake.table(BACKLOG)
    before = table.last()
    facts: dict[str, Any] = {"version": VERSION, "looks": 0 if looks is None else looks.batch}
    facts["retained_from"] = given.bronze.facts.get("retained_from")
    if before is None or before.facts != facts:
        seen = local(lake.session, (), summaries.DEPTHS) if looks is None else lake.read(DEPTHS)
        table.replace(summaries.backlog(seen).coalesce(1), 1 if before is None else before.batch + 1, facts)


def _changed_days(delivered: Commit, since: int) -> list[str] | None:
    """The days of gold/delivery that have changed since a batch. None if all may have changed."""
    changes = [(batch, days) for batch, days in delivered.facts["changes"] if batch > since]
    if len(changes) != delivered.batch - since or any(days is None for _, days in changes):
        return None
    return sorted({day for _, days in changes for day in days})


def _fingerprint(directory: Directory | None) -> str | None:
    """A text that is the same for directories with the same content."""
    if directory is None:
        return None
    return digest((directory.sites, directory.links, directory.managers, directory.queues))


def digest(value: object) -> str:
    return sha256(repr(value).encode()).hexdigest()[:16]
