"""One run of the pipeline: new messages become a bronze batch, then silver, then gold.

Every table records its last batch, so the next run finishes one that was killed anywhere.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from threading import Lock
from uuid import uuid4

from pyspark import StorageLevel
from pyspark.sql import DataFrame

from postroad.directory.snapshot import Directory
from postroad.errors import PipelineError
from postroad.spark.pipeline import bronze, silver, summaries
from postroad.spark.pipeline.delivery import delivery
from postroad.spark.pipeline.lake import (
    ACKNOWLEDGMENTS,
    BRONZE,
    DEAD_LETTERS,
    DELIVERY,
    FAULTS,
    LATENCY,
    LINKS,
    MESSAGES,
    OLDEST,
    REPORTS,
    STATES,
    TABLES,
    TRAFFIC,
    UNDECODABLE,
    Lake,
)
from postroad.spark.pipeline.locations import KnownManager, locations, message_ids, queue_names
from postroad.spark.pipeline.sent_again import fingerprint, ids_sent_again
from postroad.spark.pipeline.sources import Source, consumed, new_ranges
from postroad.spark.pipeline.tables import COMPACT_AFTER, Commit
from postroad.spark.pipeline.traffic import link_traffic, traffic

Progress = Callable[[str, int, int], None]  # the current step, steps done, steps in all

Tell = Callable[..., None]

_SHAPES = {
    MESSAGES: silver.messages,
    ACKNOWLEDGMENTS: silver.acknowledgments,
    REPORTS: silver.reports,
    UNDECODABLE: silver.undecodable,
}
_STEPS = len(TABLES) + 1
_AT_ONCE = 4


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a run: the last bronze batch, its number of new packets, and how many left their queues."""

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
    """Reads new messages from the sources, and updates every table.

    Messages stay in their queues, except for sources to consume: these are received once they are in bronze. With a
    `directory`, managers have sites, and links their traffic.
    """
    done = 0
    lock = Lock()

    def tell(*finished: str) -> None:
        nonlocal done
        with lock:
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
        _silver(lake, last.batch, tell)
        _gold(lake, last, directory, tell)
        compacted = tuple(name for name in TABLES if lake.table(name).compact(COMPACT_AFTER))
        tell("compaction")
    return Outcome(last.batch, packets, removed, len(found), compacted)


def compact(lake: Lake) -> list[str]:
    """Writes the small files of each day of each table as one; returns the tables that had several."""
    with lake.files.lock():
        return [name for name in TABLES if lake.table(name).compact()]


def _check_shared(lake: Lake) -> None:
    """PipelineError if a worker of a cluster does not see a local lake: its files would be lost."""
    context = lake.session.sparkContext
    if not lake.files.is_local or str(context.master).startswith("local"):
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
    """How many packets are new."""
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
    kept = {"offsets": offsets, "managers": list(managers.values()), "queues": queues}
    table.append(bronze.read(lake.session, ranges, batch), batch, kept)
    if table.rows_written is None:
        return lake.read(BRONZE).where(f"batch = {batch}").count()
    return table.rows_written


def _consume(lake: Lake, found: Sequence[Source]) -> int:
    """Also finishes what a killed run has left."""
    last = lake.table(BRONZE).last()
    return 0 if last is None else consumed(found, last.facts["offsets"], lake.name)


def _silver(lake: Lake, batch: int, tell: Tell) -> None:
    """Decodes new bronze rows once for all tables; each takes those it lacks."""
    tables = {name: lake.table(name) for name in _SHAPES}
    done = {name: -1 if (last := table.last()) is None else last.batch for name, table in tables.items()}
    if min(done.values()) >= batch:
        return tell(*_SHAPES)
    fresh = lake.read(BRONZE).where(f"batch > {min(done.values())}")
    decoded = silver.decode(fresh).persist(StorageLevel.DISK_ONLY)

    def make(name: str) -> None:
        if done[name] < batch:
            tables[name].append(_SHAPES[name](decoded).where(f"batch > {done[name]}"), batch)
        tell(name)

    try:
        decoded.count()  # once, before the tables are made from it in parallel
        _side_by_side(make, _SHAPES)
    finally:
        decoded.unpersist()
    return None


def _gold(lake: Lake, last: Commit, directory: Directory | None, tell: Tell) -> None:
    """Makes gold tables again, each from silver or from gold/delivery. A table keeps the version of its input, so one
    that is up to date is not made again."""
    spark = lake.session
    made_of = {"batch": last.batch, "directory": _fingerprint(directory), "replays": fingerprint(lake.replays)}

    def of_messages() -> DataFrame:
        known = locations(spark, (KnownManager(**each) for each in last.facts["managers"]), directory)
        called = queue_names(spark, last.facts["queues"])
        again = message_ids(spark, ids_sent_again(lake.replays))
        return delivery(lake.read(MESSAGES), lake.read(ACKNOWLEDGMENTS), lake.read(REPORTS), known, called, again)

    makers: dict[str, Callable[[], DataFrame]] = {
        DELIVERY: of_messages,
        STATES: lambda: summaries.states(lake.read(DELIVERY)),
        LATENCY: lambda: summaries.latency(lake.read(DELIVERY)),
        DEAD_LETTERS: lambda: summaries.dead_letters(lake.read(DELIVERY)),
        OLDEST: lambda: summaries.oldest(lake.read(DELIVERY)),
        TRAFFIC: lambda: traffic(lake.read(DELIVERY)),
        LINKS: lambda: link_traffic(spark, traffic(lake.read(DELIVERY)), directory),
        FAULTS: lambda: summaries.undecodable(lake.read(UNDECODABLE)),
    }

    def make(name: str) -> None:
        table = lake.table(name)
        before = table.last()
        if before is None or before.facts != made_of:
            frame = makers[name]()
            frame = frame if name in (DELIVERY, TRAFFIC) else frame.coalesce(1)
            table.replace(frame, 1 if before is None else before.batch + 1, made_of)
        tell(name)

    make(DELIVERY)
    _side_by_side(make, [name for name in makers if name != DELIVERY])


def _side_by_side(make: Callable[[str], None], names: Iterable[str]) -> None:
    """Small jobs mostly wait for each other. Raises the first fault once all have ended."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for done in [pool.submit(make, name) for name in names]:
            done.result()


def _fingerprint(directory: Directory | None) -> str | None:
    """The same for directories with the same content."""
    if directory is None:
        return None
    content = repr((directory.sites, directory.links, directory.managers, directory.queues))
    return sha256(content.encode()).hexdigest()[:16]
