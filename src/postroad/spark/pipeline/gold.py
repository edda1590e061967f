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
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from postroad.directory.snapshot import Directory
from postroad.spark.pipeline import conversations, summaries
from postroad.spark.pipeline.fates import SEQUENCE, delivery
from postroad.spark.pipeline.frames import arrow_rows, frame_of, local, one_part, one_task
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
from postroad.spark.pipeline.passes import Summary, in_driver, in_tasks
from postroad.spark.pipeline.service_levels import latency, spans
from postroad.spark.pipeline.silver import QUEUED, RECEIVED
from postroad.spark.pipeline.tables import DAY, Commit, Rows, Table
from postroad.spark.pipeline.traffic import link_traffic, traffic
from postroad.spark.pipeline.trends import Periods, trend

VERSION = 7  # of the gold tables; a new number makes all tables again
_REMEMBERED = 32  # changes of gold/delivery; a summary that missed more than these is made as a whole
_MANY = 2_000_000  # messages with something new: so many are not worth looking for, and gold is made at once
_FEW = 100_000  # messages that one task makes, from rows that the driver has
IN_DRIVER = 500_000  # rows of gold/delivery that the driver reads to make summaries
_ALL = (1 << 63) - 1  # above every arrival number
# Lets Spark merge the small tasks of a cached frame. Otherwise a few rows take 200 tasks in every step of a plan.
_SMALL_TASKS = ("spark.sql.optimizer.canChangeCachedPlanOutputPartitioning", "true")
_BY_DAY: Mapping[str, Summary] = {
    STATES: summaries.states,
    SPANS: spans,
    DEAD_LETTERS: summaries.dead_letters,
    TRAFFIC: traffic,
    HOURS: conversations.hours,
    COUNTS: conversations.counts,
}
# Each is made as a whole, from the tables before it.
_REST = (LINKS, LATENCY, TREND, OLDEST, FAULTS, EXCHANGES, CONVERSATIONS, PAIRS, CHAINS, TOP, BACKLOG)

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
    given = _inputs(lake, bronze, looks, directory)
    _update_delivery(given)
    tell(DELIVERY)
    _update_days(given)
    for name in _BY_DAY:
        tell(name)
    for name in _REST:
        _update_backlog(given) if name == BACKLOG else _update_rest(given, name)
        tell(name)


def _inputs(lake: Lake, bronze: Commit, looks: Commit | None, directory: Directory | None) -> _Inputs:
    managers = sorted((each["id"], each["name"]) for each in bronze.facts["managers"])
    basis = {"version": VERSION, "directory": _fingerprint(directory), "managers": digest(managers)}
    return _Inputs(lake, bronze, looks, directory, basis, fingerprint(lake.replays))


def forget(lake: Lake, first: str) -> None:
    """Removes the messages before a day from gold/delivery. The next update brings the summaries up to date."""
    table = lake.table(DELIVERY)
    last = table.last()
    days = [day for day in table.days() if day < first]
    if last is not None and days:
        batch = last.batch + 1
        table.drop(days, batch, dict(last.facts) | {"changes": _changes(last, batch, days)})


# gold/delivery


def _update_delivery(given: _Inputs) -> None:
    table = given.lake.table(DELIVERY)
    before = table.last()
    facts: dict[str, Any] = {"batch": given.bronze.batch, "replays": given.replays}
    facts |= {"basis": given.basis, "queues": given.bronze.facts["queues"], "floors": dict(given.floors)}
    if before is not None and before.facts.get("basis") == given.basis:
        if all(before.facts.get(name) == facts[name] for name in ("batch", "replays", "queues", "floors")):
            return None
        ids = _changed_ids(given, before.facts)
        if not len(ids) and all(before.facts[name] == facts[name] for name in ("batch", "replays", "queues")):
            return None  # floors also rise where there are no messages
        if len(ids) < _MANY:
            return _update(given, before, facts, ids)
    batch = 1 if before is None else before.batch + 1
    given.lake.session.conf.set(*_SMALL_TASKS)
    silver = (given.lake.read(name) for name in (MESSAGES, ACKNOWLEDGMENTS, REPORTS))
    frame = _without_removed_days(given, _delivery_rows(given, *silver))
    table.replace(frame, batch, facts | {"changes": [[batch, None]]})
    return None


def _update(given: _Inputs, before: Commit, facts: dict[str, Any], ids: Any) -> None:
    """Makes the rows of gold/delivery again that something new is about."""
    lake = given.lake
    table = lake.table(DELIVERY)
    batch = before.batch + 1
    known = table.matching("id", ids, ["id"])
    days = sorted({day for day, rows in known.items() if rows.num_rows and day is not None})
    messages, acknowledgments, reports = (lake.table(name) for name in (MESSAGES, ACKNOWLEDGMENTS, REPORTS))
    about = pc.unique(_report_keys(ids))
    columns = [name for name in messages.columns() if name not in ("body", "body_text", "headers")]
    its = _joined(messages.matching("id", ids, columns))
    placed = its.filter(pc.and_(pc.is_in(its["role"], pa.array([RECEIVED, QUEUED])), pc.is_valid(its["sequence_id"])))
    wanted = placed.select(list(SEQUENCE)).group_by(list(SEQUENCE)).aggregate([])
    of_sequence = [*SEQUENCE, "id", "role", "sequence_number", "arrival"]
    sequences = _joined(messages.matching("sequence_id", pc.unique(wanted["sequence_id"]), of_sequence))
    sequences = sequences.join(wanted, list(SEQUENCE), join_type="left semi")
    few = (
        its,
        _joined(acknowledgments.matching("about", ids, acknowledgments.columns())),
        _joined(reports.matching("about", about, reports.columns())),
        sequences,
    )
    if len(ids) < _FEW:
        with one_task(lake.session):
            frame = _delivery_rows(given, *(one_part(lake.session, each) for each in few))
            fresh = _without_removed_days(given, frame).toArrow()
    else:
        lake.session.conf.set(*_SMALL_TASKS)
        frame = _delivery_rows(given, *(frame_of(lake.session, each) for each in few))
        fresh = _without_removed_days(given, frame).toArrow()
    found = {str(day) for day in pc.unique(fresh[DAY]).to_pylist()}
    facts["changes"] = _changes(before, batch, sorted({*days, *found}))
    if not days:
        table.append(fresh, batch, facts)
    elif table.count(days) < IN_DRIVER:
        others = table.rows(days)
        others = others.filter(pc.invert(pc.is_in(others["id"], ids)))
        fresh = fresh.select(others.column_names).cast(others.schema)
        table.update(pa.concat_tables([others, fresh]), days, batch, facts)
    else:
        there = table.read(days)
        assert there is not None
        touched = f.broadcast(frame_of(lake.session, pa.table({"id": ids})))
        others = there.join(touched, "id", "left_anti")
        table.update(others.unionByName(frame_of(lake.session, fresh)), days, batch, facts)


def _joined(parts: Mapping[str | None, pa.Table]) -> pa.Table:
    return pa.concat_tables(parts.values())


def _report_keys(ids: Any) -> Any:
    """How trace reports name these messages, as `report_key` does."""
    found = pc.extract_regex(ids, r"^\{?(?P<source>[0-9A-Fa-f]{4}).*?(?P<number>[0-9]+)$")
    parts = (pc.struct_field(found, name) for name in ("source", "number"))
    return pc.binary_join_element_wise(pc.utf8_lower(next(parts)), next(parts), ":")


def _changed_ids(given: _Inputs, before: Mapping[str, Any]) -> Any:
    """The ids of the messages whose rows may have changed."""
    lake = given.lake
    is_new = pc.field("batch") > before["batch"]
    silver = {name: lake.table(name) for name in (MESSAGES, ACKNOWLEDGMENTS, REPORTS)}
    found = [silver[MESSAGES].some(is_new, ["id"])["id"], silver[ACKNOWLEDGMENTS].some(is_new, ["about"])["about"]]
    delivered = lake.table(DELIVERY)
    about = silver[REPORTS].some(is_new, ["about"])["about"]
    if len(about):
        known = delivered.some(None, ["id"])["id"]
        found.append(known.filter(pc.is_in(_report_keys(known), pc.unique(about))))
    if before["replays"] != given.replays:
        again = pa.array(ids_sent_again(lake.replays), pa.string())
        found.append(delivered.some(~pc.field("replayed") & pc.field("id").isin(again), ["id"])["id"])
    called = given.bronze.facts["queues"]
    renamed = [name.lower() for name, queue in called.items() if before["queues"].get(name) != queue]
    if renamed:
        known = delivered.some(None, ["id", "destination_queue"])
        of = pc.is_in(pc.utf8_lower(known["destination_queue"]), pa.array(renamed))
        found.append(known["id"].filter(of))
    if moved := _moved_floors(before["floors"], given.floors):
        low, high = min(each[2] for each in moved), max(each[3] for each in moved)
        between = (pc.field("role") == QUEUED) & (pc.field("arrival") >= low) & (pc.field("arrival") < high)
        queued = silver[MESSAGES].some(between, ["id", "manager_id", "queue", "arrival"])
        for manager, queue, start, end in moved:
            its = pc.and_(pc.equal(queued["manager_id"], manager), pc.equal(queued["queue"], queue))
            there = pc.and_(pc.greater_equal(queued["arrival"], start), pc.less(queued["arrival"], end))
            found.append(queued["id"].filter(pc.and_(its, there)))
    return pc.unique(pa.chunked_array([chunk for each in found for chunk in each.chunks], pa.string())).drop_null()


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


def _facts(given: _Inputs, delivered: Commit, name: str) -> dict[str, Any]:
    facts: dict[str, Any] = {"basis": given.basis, "batch": given.bronze.batch, "of": delivered.batch}
    if name == FAULTS:
        facts["of"] = digest([file.path for file in given.lake.table(UNDECODABLE).files()])
    if name in (CONVERSATIONS, PAIRS):
        facts["journals"] = digest(given.journals)
    return facts


def _changed(before: Commit | None, delivered: Commit, facts: Mapping[str, Any]) -> list[str] | None:
    """The days that a summary lacks. None if it lacks all."""
    if before is None or before.facts.get("basis") != facts["basis"]:
        return None
    return _changed_days(delivered, before.facts["of"])


def _update_days(given: _Inputs) -> None:
    """Makes the summaries of the days that have changed, all that lack the same days in one pass."""
    lake = given.lake
    delivered = lake.table(DELIVERY).last()
    assert delivered is not None
    groups: dict[tuple[str, ...] | None, list[str]] = {}
    for name in _BY_DAY:
        before = lake.table(name).last()
        facts = _facts(given, delivered, name)
        if before is None or before.facts != facts:
            changed = _changed(before, delivered, facts)
            groups.setdefault(None if changed is None else tuple(changed), []).append(name)
    for days, names in groups.items():
        wanted = {name: _BY_DAY[name] for name in names}
        made = {} if days == () else _summaries(lake, wanted, days)
        for name in names:
            table, facts = lake.table(name), _facts(given, delivered, name)
            if days is None:
                table.replace(made[name], _next(table), facts)
            elif not days:
                table.drop((), _next(table), facts)  # its rows do not change
            else:
                table.update(made[name], days, _next(table), facts)


def _summaries(lake: Lake, wanted: Mapping[str, Summary], days: Iterable[str] | None) -> dict[str, pa.Table]:
    """Summaries of some days of gold/delivery, or of all: by the driver for a few rows, else by Spark's tasks."""
    table = lake.table(DELIVERY)
    if table.count(days) < IN_DRIVER:
        columns = list(dict.fromkeys(column for each in wanted.values() for column in each.columns))
        return in_driver(table.rows(days, columns), wanted)
    return in_tasks(lake.read(DELIVERY, days), wanted)


def _next(table: Table) -> int:
    before = table.last()
    return 1 if before is None else before.batch + 1


def _update_rest(given: _Inputs, name: str) -> None:
    """Makes a table as a whole, from other tables. Only gold/exchanges and gold/links go by day."""
    lake = given.lake
    table = lake.table(name)
    before, delivered = table.last(), lake.table(DELIVERY).last()
    assert delivered is not None
    facts = _facts(given, delivered, name)
    if before is not None and before.facts == facts:
        return
    batch = _next(table)
    if name == FAULTS:
        days: list[str] | None
        same = before is not None and all(before.facts.get(each) == facts[each] for each in ("basis", "of"))
        days = [] if same else None
    else:
        days = _changed(before, delivered, facts)
    if before is not None and before.facts.get("journals") != facts.get("journals"):
        days = None
    if days is not None and (not days or (name == LINKS and given.directory is None)):
        table.drop((), batch, facts)  # its rows do not change
    elif name in (LINKS, EXCHANGES):
        rows = _links(given, days) if name == LINKS else _exchanges(lake, days)
        table.replace(rows, batch, facts) if days is None else table.update(rows, days, batch, facts)
    else:
        table.replace(_whole(given, name), batch, facts)


def _links(given: _Inputs, days: list[str] | None) -> pa.Table:
    return link_traffic(given.lake.arrow(TRAFFIC, days), given.directory)


def _exchanges(lake: Lake, days: list[str] | None) -> Rows:
    table = lake.table(DELIVERY)
    if table.count(days) < IN_DRIVER:
        rows = table.rows(days, conversations.EXCHANGED)
        return rows.filter(pc.or_(pc.is_valid(rows["correlation_id"]), pc.is_valid(rows["response_queue"])))
    return conversations.exchanges(lake.read(DELIVERY, days)).repartition(DAY)


def _whole(given: _Inputs, name: str) -> Rows:
    lake = given.lake
    if name == LATENCY:
        return latency(lake.arrow(SPANS))
    if name == TOP:
        return conversations.top(lake.arrow(COUNTS))
    if name == FAULTS:
        return summaries.undecodable(lake.arrow(UNDECODABLE))
    if name == OLDEST:
        days = summaries.days_of_oldest(_unexplained(lake.arrow(STATES)))
        return _summaries(lake, {name: summaries.oldest}, days)[name]
    if name == TREND:
        states = lake.arrow(STATES)
        periods = Periods.of(states)
        return _summaries(lake, {name: trend(periods)}, periods.days(states) if periods else [])[name]
    if name == CHAINS:
        known = lake.arrow(EXCHANGES, columns=conversations.CHAINED)
        return conversations.chains(known, partial(_first_of_chains, lake))
    if name == PAIRS:
        return conversations.pairs(lake.arrow(CONVERSATIONS, columns=conversations.PAIRED))
    journals = local(lake.session, [(each,) for each in given.journals], "format_name string")
    if lake.table(EXCHANGES).count() >= IN_DRIVER:
        return conversations.conversations(lake.read(EXCHANGES), journals)
    with one_task(lake.session):
        return conversations.conversations(lake.read(EXCHANGES).coalesce(1), journals).toArrow()


def _first_of_chains(lake: Lake, ids: Any) -> pa.Table:
    return _joined(lake.table(DELIVERY).matching("id", ids, conversations.CHAIN_COLUMNS))


def _unexplained(states: pa.Table) -> dict[str, int]:
    found: dict[str, int] = {}
    for row in states.select(["day", "unexplained"]).to_pylist():
        found[str(row["day"])] = found.get(str(row["day"]), 0) + row["unexplained"]
    return found


def _update_backlog(given: _Inputs) -> None:
    lake, looks = given.lake, given.looks
    table = lake.table(BACKLOG)
    before = table.last()
    facts: dict[str, Any] = {"version": VERSION, "looks": 0 if looks is None else looks.batch}
    facts["retained_from"] = given.bronze.facts.get("retained_from")
    if before is None or before.facts != facts:
        seen = arrow_rows((), summaries.DEPTHS) if looks is None else lake.arrow(DEPTHS)
        table.replace(summaries.backlog(seen), _next(table), facts)


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
