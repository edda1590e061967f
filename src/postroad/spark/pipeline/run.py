"""One run of the pipeline: new messages become a bronze batch, then silver, then gold.

Every table records its last batch. So the next run finishes a run that was killed, wherever it stopped.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime, timedelta
from functools import reduce
from pathlib import Path
from uuid import uuid4

import pyarrow.compute as pc
from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from postroad.directory.snapshot import Directory
from postroad.errors import PipelineError
from postroad.spark.pipeline import bronze, silver, summaries
from postroad.spark.pipeline.frames import one_part, one_task, persisted
from postroad.spark.pipeline.gold import forget, update_gold
from postroad.spark.pipeline.lake import ACKNOWLEDGMENTS, BRONZE, DEPTHS, MESSAGES, REPORTS, TABLES, UNDECODABLE, Lake
from postroad.spark.pipeline.sources import Source, journals, new_ranges, remove_consumed
from postroad.spark.pipeline.tables import COMPACT_AFTER, Commit, Table

Progress = Callable[[str, int, int], None]  # the current step, the steps done, and all steps

Tell = Callable[..., None]

_SHAPES = {
    MESSAGES: silver.messages,
    ACKNOWLEDGMENTS: silver.acknowledgments,
    REPORTS: silver.reports,
    UNDECODABLE: silver.undecodable,
}
_STEPS = len(TABLES) + 1
_FEW = 5_000  # packets that the driver reads and decodes while Spark would start its tasks
_SKEW = timedelta(days=1)  # the most by which the clocks of managers may differ


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a run: the last bronze batch, its number of new packets, and how many messages left their
    queues."""

    batch: int
    packets: int
    removed: int
    sources: int
    compacted: tuple[str, ...]


def run(
    lake: Lake,
    found: Sequence[Source],
    directory: Directory | None = None,
    progress: Progress = lambda what, done, steps: None,
) -> Outcome:
    """Reads new messages from the sources and updates every table.

    Messages stay in their queues, except in sources to consume: the run receives these once they are in bronze. With a
    `directory`, the tables also know the sites of managers and the traffic on links.
    """
    done = 0

    def tell(*finished: str) -> None:
        nonlocal done
        done += len(finished)
        progress(finished[-1], done, _STEPS)

    with lake.files.lock():
        _check_shared(lake)
        packets = _bronze(lake, found)
        removed = _consume(lake, found)
        tell(BRONZE)
        last = lake.table(BRONZE).last()
        if last is None:
            return Outcome(0, 0, 0, len(found), ())
        looks = _record_depths(lake, found)
        tell(DEPTHS)
        _silver(lake, last.batch, tell)
        update_gold(lake, last, looks, directory, tell)
        compacted = tuple(name for name in TABLES if lake.table(name).compact(COMPACT_AFTER))
        tell("compaction")
    return Outcome(last.batch, packets, removed, len(found), compacted)


def compact(lake: Lake) -> list[str]:
    """Merges the small files of each day of each table. Returns the tables that had several."""
    with lake.files.lock():
        return [name for name in TABLES if lake.table(name).compact()]


def retain(lake: Lake, days: int, directory: Directory | None = None, today: date | None = None) -> str:
    """Removes messages that were sent more than `days` days ago from every table. Returns the first day that stays.

    Packets and silver stay for one more day, because the clocks of two managers may differ. Raises PipelineError if the
    last run was not finished.
    """
    first = (today or datetime.now(UTC).date()) - timedelta(days=days)
    with lake.files.lock():
        table = lake.table(BRONZE)
        last = table.last()
        if last is None:
            raise PipelineError(f"{lake.path} has no packets yet; run `postroad pipeline run`")
        if any((made := lake.table(name).last()) is None or made.batch < last.batch for name in _SHAPES):
            raise PipelineError(f"{lake.path} has a run that was not finished; run `postroad pipeline run` first")
        facts = dict(last.facts) | {"retained_from": max(str(first), last.facts.get("retained_from", ""))}
        table.drop(_before(table.days(), first - _SKEW), last.batch, facts)
        for name in _SHAPES:
            silver_table = lake.table(name)
            made = silver_table.last()
            assert made is not None
            silver_table.drop(_before(silver_table.days(), first - _SKEW), made.batch, made.facts)
        looks = lake.table(DEPTHS)
        if (look := looks.last()) is not None:
            looks.drop(_before(looks.days(), first), look.batch, look.facts)
        forget(lake, str(first))
        kept = table.last()
        assert kept is not None
        update_gold(lake, kept, looks.last(), directory, lambda *_: None)
    return str(first)


def _before(days: Sequence[str], first: date) -> list[str]:
    return [day for day in days if day < str(first)]


def _check_shared(lake: Lake) -> None:
    """Raises PipelineError if a worker of a cluster cannot see a local lake, because its files would be lost."""
    if not lake.files.is_local or not lake.on_cluster:
        return
    context = lake.session.sparkContext
    if str(context.master).startswith("local"):
        return
    mark = f"{lake.path}/.seen-{uuid4().hex}"
    Path(mark).touch()
    try:
        tasks = 4 * context.defaultParallelism
        seen = context.parallelize(range(tasks), tasks).map(lambda _: os.path.exists(mark)).collect()
    finally:
        Path(mark).unlink()
    if not all(seen):
        raise PipelineError(
            f"{lake.path} is not on every worker of {context.master}; the lake must be on a file system that all of "
            "them see, such as hdfs:// or s3a://"
        )


def _bronze(lake: Lake, found: Sequence[Source]) -> int:
    """Adds the new packets to bronze. Returns how many they are."""
    table = lake.table(BRONZE)
    last = table.last()
    facts = {} if last is None else dict(last.facts)
    offsets: dict[str, int] = dict(facts.get("offsets", {}))
    ranges = list(new_ranges(found, offsets, lake.name))
    if not ranges:
        return 0
    batch = 1 if last is None else last.batch + 1
    for each in ranges:
        offsets[each.source.key] = max(each.end, offsets.get(each.source.key, 0))
    managers = {each["id"]: each for each in facts.get("managers", [])}
    managers |= {each.manager.id: asdict(each.manager) for each in found}
    queues = facts.get("queues", {}) | {name: each.called for each in found for name in each.names}
    kept = facts | {"offsets": offsets, "managers": list(managers.values()), "queues": queues}
    few = sum(each.end - each.start for each in ranges) <= _FEW
    table.append(bronze.few(ranges, batch) if few else bronze.read(lake.session, ranges, batch), batch, kept)
    if table.rows_written is None:
        return lake.read(BRONZE).where(f"batch = {batch}").count()
    return table.rows_written


def _consume(lake: Lake, found: Sequence[Source]) -> int:
    """Receives what is in bronze, including what a killed run left behind."""
    last = lake.table(BRONZE).last()
    return 0 if last is None else remove_consumed(found, last.facts["offsets"], lake.name)


def _record_depths(lake: Lake, found: Sequence[Source]) -> Commit | None:
    """Records how full the queues are. Returns the last record."""
    table = lake.table(DEPTHS)
    last = table.last()
    if found:
        look = 1 if last is None else last.batch + 1
        known = {} if last is None else dict(last.facts["floors"])
        frame = summaries.depth_rows(found, look, datetime.now(UTC))
        facts = {"floors": known | summaries.floors(found), "journals": journals(found)}
        table.append(frame, look, facts)
        last = table.last()
    return last


def _silver(lake: Lake, batch: int, tell: Tell) -> None:
    """Decodes the new bronze rows once for all tables. Each table takes the rows that it lacks."""
    tables = {name: lake.table(name) for name in _SHAPES}
    done = {name: -1 if (last := table.last()) is None else last.batch for name, table in tables.items()}
    if min(done.values()) >= batch:
        return _each(tell)
    fresh = pc.field("batch") > min(done.values())
    if lake.files.is_local and lake.table(BRONZE).most(fresh) <= _FEW:
        _few(lake, batch, tables, done)
        return _each(tell)
    fresh = lake.read(BRONZE).where(f"batch > {min(done.values())}")
    # Decode once for all tables.
    with persisted(silver.decode(fresh), StorageLevel.DISK_ONLY) as decoded:
        shapes = [shape(decoded).select(f.lit(name)) for name, shape in _SHAPES.items()]
        found = {row[0] for row in reduce(DataFrame.union, shapes).distinct().collect()}
        for name, table in tables.items():
            if done[name] < batch:
                if done[name] < 0 or name in found:
                    table.append(_SHAPES[name](decoded).where(f"batch > {done[name]}"), batch)
                else:
                    table.drop((), batch, {})  # there is nothing new for this table
            tell(name)
    return None


def _each(tell: Tell) -> None:
    for name in _SHAPES:
        tell(name)


def _few(lake: Lake, batch: int, tables: dict[str, Table], done: dict[str, int]) -> None:
    """The driver decodes a few packets by itself. Spark makes the tables from them in one task each."""
    new = lake.table(BRONZE).some(pc.field("batch") > min(done.values()), lake.table(BRONZE).columns())
    decoded = silver.decode_rows(new)
    with one_task(lake.session):
        frame = one_part(lake.session, decoded)
        for name, table in tables.items():
            if done[name] < batch:
                rows = _SHAPES[name](frame).where(f"batch > {done[name]}").toArrow()
                if done[name] < 0 or rows.num_rows:
                    table.append(rows, batch)
                else:
                    table.drop((), batch, {})  # there is nothing new for this table
