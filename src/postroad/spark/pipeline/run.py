"""One run of the pipeline: new messages become a bronze batch, then silver, then gold.

Every table records its last batch, so the next run finishes one that was killed anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from hashlib import sha256
from threading import Lock

from pyspark import StorageLevel
from pyspark.sql import DataFrame

from postroad.directory.snapshot import Directory
from postroad.spark.pipeline import bronze, conversations, depths, silver, summaries
from postroad.spark.pipeline.delivery import delivery
from postroad.spark.pipeline.lake import (
    ACKNOWLEDGMENTS,
    BACKLOG,
    BRONZE,
    CHAINS,
    CONVERSATIONS,
    DEAD_LETTERS,
    DELIVERY,
    DEPTHS,
    FAULTS,
    HOURS,
    LATENCY,
    LINKS,
    MESSAGES,
    OLDEST,
    PAIRS,
    REPORTS,
    STATES,
    TABLES,
    TOP,
    TRAFFIC,
    TREND,
    UNDECODABLE,
    Lake,
)
from postroad.spark.pipeline.locations import KnownManager, locations, message_ids, queue_names
from postroad.spark.pipeline.sent_again import fingerprint, ids_sent_again
from postroad.spark.pipeline.sources import Source, consumed, new_ranges
from postroad.spark.pipeline.tables import COMPACT_AFTER, Commit, writing
from postroad.spark.pipeline.traffic import link_traffic, traffic
from postroad.spark.pipeline.trends import trend

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
_VERSION = 2  # of the gold tables: a change makes all of them again


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

    with writing(lake.path):
        packets = _bronze(lake, found)
        removed = _consume(lake, found)
        tell(BRONZE)
        last = lake.table(BRONZE).last()
        if last is None:
            return Outcome(0, 0, 0, len(found), ())
        looks = _look(lake, found)
        tell(DEPTHS)
        _silver(lake, last.batch, tell)
        _gold(lake, last, looks, directory, tell)
        compacted = tuple(name for name in TABLES if _compact(lake, name))
        tell("compaction")
    return Outcome(last.batch, packets, removed, len(found), compacted)


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
    return table.rows_written


def _consume(lake: Lake, found: Sequence[Source]) -> int:
    """Also finishes what a killed run has left."""
    last = lake.table(BRONZE).last()
    return 0 if last is None else consumed(found, last.facts["offsets"], lake.name)


def _look(lake: Lake, found: Sequence[Source]) -> Commit | None:
    """Records how full the queues are; returns the last record."""
    table = lake.table(DEPTHS)
    last = table.last()
    if found:
        look = 1 if last is None else last.batch + 1
        known = {} if last is None else dict(last.facts["floors"])
        frame = depths.looked(lake.session, found, look, datetime.now(UTC))
        table.append(frame, look, {"floors": known | depths.floors(found)})
        last = table.last()
    return last


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


def _gold(lake: Lake, last: Commit, looks: Commit | None, directory: Directory | None, tell: Tell) -> None:
    """Makes gold tables again, each from silver or from gold/delivery. A table keeps the version of its input, so one
    that is up to date is not made again."""
    spark = lake.session
    floors: Mapping[str, int] = {} if looks is None else looks.facts["floors"]
    made_of = {"version": _VERSION, "batch": last.batch, "directory": _fingerprint(directory)}
    made_of |= {"replays": fingerprint(lake.replays), "floors": _digest(sorted(floors.items()))}
    of_looks = {"version": _VERSION, "looks": 0 if looks is None else looks.batch}

    def of_messages() -> DataFrame:
        known = locations(spark, (KnownManager(**each) for each in last.facts["managers"]), directory)
        called = queue_names(spark, last.facts["queues"])
        again = message_ids(spark, ids_sent_again(lake.replays))
        there = depths.floor_rows(spark, floors)
        silvers = (lake.read(MESSAGES), lake.read(ACKNOWLEDGMENTS), lake.read(REPORTS))
        return delivery(*silvers, known, called, again, there)

    makers: dict[str, Callable[[], DataFrame]] = {
        DELIVERY: of_messages,
        STATES: lambda: summaries.states(lake.read(DELIVERY)),
        LATENCY: lambda: summaries.latency(lake.read(DELIVERY)),
        DEAD_LETTERS: lambda: summaries.dead_letters(lake.read(DELIVERY)),
        OLDEST: lambda: summaries.oldest(lake.read(DELIVERY)),
        TRAFFIC: lambda: traffic(lake.read(DELIVERY)),
        LINKS: lambda: link_traffic(spark, traffic(lake.read(DELIVERY)), directory),
        FAULTS: lambda: summaries.undecodable(lake.read(UNDECODABLE)),
        TREND: lambda: trend(lake.read(DELIVERY)),
        CONVERSATIONS: lambda: conversations.conversations(lake.read(DELIVERY)),
        PAIRS: lambda: conversations.pairs(lake.read(CONVERSATIONS)),
        CHAINS: lambda: conversations.chains(lake.read(DELIVERY)),
        TOP: lambda: conversations.top(lake.read(DELIVERY)),
        HOURS: lambda: conversations.hours(lake.read(DELIVERY)),
        BACKLOG: lambda: depths.backlog(
            spark.createDataFrame([], depths.DEPTHS) if looks is None else lake.read(DEPTHS)
        ),
    }

    def make(name: str) -> None:
        table = lake.table(name)
        before = table.last()
        source = of_looks if name == BACKLOG else made_of
        if before is None or before.facts != source:
            frame = makers[name]()
            frame = frame if name in (DELIVERY, TRAFFIC, CONVERSATIONS) else frame.coalesce(1)
            table.replace(frame, 1 if before is None else before.batch + 1, source)
        tell(name)

    make(DELIVERY)
    make(CONVERSATIONS)
    _side_by_side(make, [name for name in makers if name not in (DELIVERY, CONVERSATIONS)])


def _side_by_side(make: Callable[[str], None], names: Iterable[str]) -> None:
    """Small jobs mostly wait for each other. Raises the first fault once all have ended."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for done in [pool.submit(make, name) for name in names]:
            done.result()


def _compact(lake: Lake, name: str) -> bool:
    table = lake.table(name)
    return table.parts() > COMPACT_AFTER and table.compact()


def _fingerprint(directory: Directory | None) -> str | None:
    """The same for directories with the same content."""
    if directory is None:
        return None
    return _digest((directory.sites, directory.links, directory.managers, directory.queues))


def _digest(value: object) -> str:
    return sha256(repr(value).encode()).hexdigest()[:16]
