"""One run of the pipeline: what is new in the queues becomes a bronze batch, then silver, then gold.

Every table says by itself which batch it has, so that a run that was killed anywhere is finished by the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from postroad.directory.snapshot import Directory
from postroad.spark.pipeline import bronze, silver
from postroad.spark.pipeline.delivery import dead_letters, delivery, latency
from postroad.spark.pipeline.lake import (
    ACKNOWLEDGMENTS,
    BRONZE,
    DEAD_LETTERS,
    DELIVERY,
    LATENCY,
    LINKS,
    MESSAGES,
    REPORTS,
    TABLES,
    TRAFFIC,
    UNDECODABLE,
    Lake,
)
from postroad.spark.pipeline.places import KnownManager, places, queue_names
from postroad.spark.pipeline.sources import Source, new_ranges
from postroad.spark.pipeline.tables import COMPACT_AFTER, Commit, writing
from postroad.spark.pipeline.traffic import link_traffic, traffic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Progress = Callable[[str, int, int], None]  # what is being done, steps done, steps in all

_SILVER = {
    MESSAGES: silver.messages,
    ACKNOWLEDGMENTS: silver.acknowledgments,
    REPORTS: silver.reports,
    UNDECODABLE: silver.undecodable,
}
_STEPS = 1 + len(_SILVER) + 5 + 1


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run has done: the last bronze batch, and how many packets are new in it."""

    batch: int
    packets: int
    sources: int
    compacted: tuple[str, ...]


def run(
    lake: Lake,
    found: Sequence[Source],
    directory: Directory | None = None,
    progress: Progress = lambda what, done, steps: None,
) -> Outcome:
    """Reads what is new in the sources, and brings every table up to it.

    Nothing is removed from a queue. With a `directory`, managers have sites, and links their traffic.
    """
    steps = iter(range(_STEPS + 1))

    def tell(what: str) -> None:
        progress(what, next(steps, _STEPS), _STEPS)

    with writing(lake.path):
        tell("reading queues")
        packets = _bronze(lake, found)
        last = lake.table(BRONZE).last()
        if last is None:
            progress("nothing to read", _STEPS, _STEPS)
            return Outcome(0, 0, len(found), ())
        _silver(lake, last.batch, tell)
        _gold(lake, last, directory, tell)
        tell("compacting")
        compacted = tuple(name for name in TABLES if _compact(lake, name))
        progress("done", _STEPS, _STEPS)
    return Outcome(last.batch, packets, len(found), compacted)


def _bronze(lake: Lake, found: Sequence[Source]) -> int:
    """How many packets are new."""
    table = lake.table(BRONZE)
    last = table.last()
    facts = {} if last is None else dict(last.facts)
    offsets: dict[str, int] = dict(facts.get("offsets", {}))
    ranges = list(new_ranges(found, offsets))
    if not ranges:
        return 0
    batch = 1 if last is None else last.batch + 1
    offsets |= {each.source.key: each.end for each in ranges}
    managers = {each["id"]: each for each in facts.get("managers", [])}
    managers |= {each.manager.id: _as_fact(each.manager) for each in found}
    queues = facts.get("queues", {}) | {each.format_name: f"{each.manager.name}: {each.queue}" for each in found}
    kept = {"offsets": offsets, "managers": list(managers.values()), "queues": queues}
    table.append(bronze.read(lake.spark, ranges, batch), batch, kept)
    written = lake.read(BRONZE).where(f"batch = {batch}")
    return written.count()


def _silver(lake: Lake, batch: int, tell: Callable[[str], None]) -> None:
    from pyspark import StorageLevel

    tables = {name: lake.table(name) for name in _SILVER}
    done = {name: -1 if (last := table.last()) is None else last.batch for name, table in tables.items()}
    first = min(done.values())
    decoded = silver.decode(lake.read(BRONZE).where(f"batch > {first}")).persist(StorageLevel.DISK_ONLY)
    try:
        for name, shape in _SILVER.items():
            tell(name)
            if done[name] < batch:
                tables[name].append(shape(decoded).where(f"batch > {done[name]}"), batch)
    finally:
        decoded.unpersist()


def _gold(lake: Lake, last: Commit, directory: Directory | None, tell: Callable[[str], None]) -> None:
    """Gold tables are made anew, each from silver or from the one before it. What a table was made of is kept with it,
    so that one that is up to date stays as it is."""
    spark = lake.spark

    def of_messages() -> DataFrame:
        known = places(spark, (KnownManager(**each) for each in last.facts["managers"]), directory)
        silver_tables = [lake.read(name) for name in (MESSAGES, ACKNOWLEDGMENTS, REPORTS)]
        return delivery(*silver_tables, known, queue_names(spark, last.facts["queues"]))

    makers: dict[str, Callable[[], DataFrame]] = {
        DELIVERY: of_messages,
        LATENCY: lambda: latency(lake.read(DELIVERY)),
        DEAD_LETTERS: lambda: dead_letters(lake.read(DELIVERY)),
        TRAFFIC: lambda: traffic(lake.read(DELIVERY)),
        LINKS: lambda: link_traffic(spark, lake.read(TRAFFIC), directory),
    }
    made_of = {"batch": last.batch, "directory": _fingerprint(directory)}
    for name, make in makers.items():
        tell(name)
        table = lake.table(name)
        before = table.last()
        if before is None or before.facts != made_of:
            table.replace(make(), 1 if before is None else before.batch + 1, made_of)


def _compact(lake: Lake, name: str) -> bool:
    table = lake.table(name)
    return table.parts() > COMPACT_AFTER and table.compact()


def _as_fact(manager: KnownManager) -> dict[str, Any]:
    return {"id": manager.id, "name": manager.name, "address": manager.address}


def _fingerprint(directory: Directory | None) -> str | None:
    """The same for directories that say the same."""
    if directory is None:
        return None
    told = repr((directory.sites, directory.links, directory.managers, directory.queues))
    return sha256(told.encode()).hexdigest()[:16]
