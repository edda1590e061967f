"""Gold: made from silver, at the cost of what is new.

gold/delivery has a row for each message. A run makes the rows of those messages again that new packets are about, and
replaces the days in which these rows were. Summaries count by the day, so they only count those days again. A table
keeps the version of its input: one that is up to date is not made again, and one that a killed run has left is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import reduce
from hashlib import sha256
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from postroad.directory.snapshot import Directory
from postroad.spark.pipeline import summaries
from postroad.spark.pipeline.delivery import SEQUENCE, delivery, in_sequence, report_key
from postroad.spark.pipeline.lake import (
    ACKNOWLEDGMENTS,
    DEAD_LETTERS,
    DELIVERY,
    FAULTS,
    LATENCY,
    LINKS,
    MESSAGES,
    OLDEST,
    REPORTS,
    SPANS,
    STATES,
    TRAFFIC,
    UNDECODABLE,
    Lake,
)
from postroad.spark.pipeline.latency import latency, spans
from postroad.spark.pipeline.locations import KnownManager, locations, message_ids, queue_names
from postroad.spark.pipeline.sent_again import fingerprint, ids_sent_again
from postroad.spark.pipeline.tables import DAY, Commit
from postroad.spark.pipeline.traffic import link_traffic, traffic

VERSION = 3  # of the gold tables: a change makes all of them again
_REMEMBERED = 32  # changes of gold/delivery; a summary that has missed more is made again as a whole
_FEW = 100_000  # messages that one task writes
_AT_ONCE = 4

Tell = Callable[..., None]


@dataclass(frozen=True, slots=True)
class _Inputs:
    """What gold is made from: the last bronze commit, what a change of makes all tables again, and the rest."""

    lake: Lake
    bronze: Commit
    directory: Directory | None
    basis: Mapping[str, Any]
    replays: str | None


def update_gold(lake: Lake, bronze: Commit, directory: Directory | None, tell: Tell) -> None:
    """Brings every gold table up to date with silver."""
    managers = sorted((each["id"], each["name"]) for each in bronze.facts["managers"])
    basis = {"version": VERSION, "directory": _fingerprint(directory), "managers": digest(managers)}
    given = _Inputs(lake, bronze, directory, basis, fingerprint(lake.replays))
    _deliver(given)
    tell(DELIVERY)

    def make(*names: str) -> None:
        for name in names:
            _summarize(given, name)
            tell(name)

    in_parallel(
        lambda names: make(*names),
        [(SPANS, LATENCY), (STATES,), (DEAD_LETTERS,), (OLDEST,), (TRAFFIC,), (LINKS,), (FAULTS,)],
    )


def forget(lake: Lake, first: str) -> None:
    """Removes the rows of messages before a day from gold/delivery. The next update brings the summaries up to date."""
    table = lake.table(DELIVERY)
    last = table.last()
    days = [day for day in table.days() if day < first]
    if last is not None and days:
        batch = last.batch + 1
        table.drop(days, batch, dict(last.facts) | {"changes": _log(last, batch, days)})


def in_parallel(make: Callable[[Any], None], names: Iterable[Any]) -> None:
    """Small jobs mostly wait for each other. Raises the first fault once all have ended."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for done in [pool.submit(make, name) for name in names]:
            done.result()


# gold/delivery


def _deliver(given: _Inputs) -> None:
    table = given.lake.table(DELIVERY)
    before = table.last()
    facts: dict[str, Any] = {"batch": given.bronze.batch, "replays": given.replays}
    facts |= {"basis": given.basis, "queues": given.bronze.facts["queues"]}
    if before is None or before.facts.get("basis") != given.basis:
        batch = 1 if before is None else before.batch + 1
        frame = _retained(given, _of(given, *(given.lake.read(name) for name in (MESSAGES, ACKNOWLEDGMENTS, REPORTS))))
        table.replace(frame, batch, facts | {"changes": [[batch, None]]})
    elif any(before.facts.get(name) != facts[name] for name in ("batch", "replays", "queues")):
        _update(given, before, facts)


def _update(given: _Inputs, before: Commit, facts: dict[str, Any]) -> None:
    """Makes the rows again that something new is about."""
    lake = given.lake
    table = lake.table(DELIVERY)
    batch = before.batch + 1
    touched = _touched(given, before.facts).persist()
    rows: DataFrame | None = None
    try:
        known = lake.read(DELIVERY).join(touched, "id", "left_semi")
        days = sorted(str(row[0]) for row in known.select(DAY).distinct().collect())
        silver = {name: lake.read(name) for name in (MESSAGES, ACKNOWLEDGMENTS, REPORTS)}
        if days or "retained_from" in given.bronze.facts:
            messages = silver[MESSAGES].join(touched, "id", "left_semi")
            about = touched.withColumnRenamed("id", "about")
            acknowledgments = silver[ACKNOWLEDGMENTS].join(about, "about", "left_semi")
        else:  # nothing was known of these messages, so all that silver has about them is new
            messages, acknowledgments = (
                silver[name].where(f"batch > {before.facts['batch']}") for name in (MESSAGES, ACKNOWLEDGMENTS)
            )
        wanted = in_sequence(messages).select(*SEQUENCE).distinct()
        sequences = silver[MESSAGES].join(wanted, list(SEQUENCE), "left_semi")
        keys = touched.select(report_key(f.col("id")).alias("about"))
        reports = silver[REPORTS].join(keys, "about", "left_semi")
        rows = _retained(given, _of(given, messages, acknowledgments, reports, sequences)).persist()
        found = {str(row[0]): row[1] for row in rows.groupBy(DAY).count().collect()}
        fresh = rows.coalesce(1) if sum(found.values()) < _FEW else rows
        facts["changes"] = _log(before, batch, sorted({*days, *found}))
        if not days:
            table.append(fresh, batch, facts)
            return
        kept = table.read(days)
        assert kept is not None
        table.update(kept.join(touched, "id", "left_anti").unionByName(fresh), days, batch, facts)
    finally:
        touched.unpersist()
        if rows is not None:
            rows.unpersist()


def _touched(given: _Inputs, before: Mapping[str, Any]) -> DataFrame:
    """The ids of the messages whose rows may differ from what they were."""
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
        names = spark.createDataFrame([(name,) for name in renamed], "name string")
        keyed = delivered.select("id", f.lower("destination_queue").alias("name"))
        ids.append(keyed.join(names, "name", "left_semi").select("id"))
    return reduce(DataFrame.union, ids).distinct()


def _of(
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
    return delivery(messages, acknowledgments, reports, known, called, again, sequences)


def _retained(given: _Inputs, frame: DataFrame) -> DataFrame:
    """Without the days that `postroad pipeline retain` has removed."""
    first = given.bronze.facts.get("retained_from")
    return frame if first is None else frame.where(f"{DAY} >= date'{first}'")


def _log(before: Commit, batch: int, days: list[str]) -> list[Any]:
    return [*before.facts["changes"], [batch, days]][-_REMEMBERED:]


# Summaries


def _summarize(given: _Inputs, name: str) -> None:
    lake = given.lake
    table = lake.table(name)
    before = table.last()
    source = lake.table(SPANS if name == LATENCY else DELIVERY).last()
    assert source is not None
    facts = {"basis": given.basis, "batch": given.bronze.batch, "of": source.batch}
    if before is not None and before.facts == facts:
        return
    batch = 1 if before is None else before.batch + 1
    if name in (LATENCY, OLDEST, FAULTS):
        table.replace(_whole(lake, name).coalesce(1), batch, facts)
        return
    days = None if before is None or before.facts.get("basis") != given.basis else _changed(source, before.facts["of"])
    if days == []:
        table.drop((), batch, facts)
        return
    delivered = lake.table(DELIVERY).read(days)
    assert delivered is not None
    made = {STATES: summaries.states, SPANS: spans, DEAD_LETTERS: summaries.dead_letters, TRAFFIC: traffic}
    frame = link_traffic(lake.session, traffic(delivered), given.directory) if name == LINKS else made[name](delivered)
    if days is None:
        table.replace(frame.repartition(DAY), batch, facts)
    else:
        table.update(frame.coalesce(1), days, batch, facts)


def _whole(lake: Lake, name: str) -> DataFrame:
    if name == LATENCY:
        return latency(lake.read(SPANS))
    return summaries.oldest(lake.read(DELIVERY)) if name == OLDEST else summaries.undecodable(lake.read(UNDECODABLE))


def _changed(delivered: Commit, since: int) -> list[str] | None:
    """The days in which gold/delivery has changed after a batch; None if that may be all."""
    changes = [(batch, days) for batch, days in delivered.facts["changes"] if batch > since]
    if len(changes) != delivered.batch - since or any(days is None for _, days in changes):
        return None
    return sorted({day for _, days in changes for day in days})


def _fingerprint(directory: Directory | None) -> str | None:
    """The same for directories with the same content."""
    if directory is None:
        return None
    return digest((directory.sites, directory.links, directory.managers, directory.queues))


def digest(value: object) -> str:
    return sha256(repr(value).encode()).hexdigest()[:16]
