"""What bodies and extensions say in the tables of the pipeline: bodies that .NET wrote, in every format, and lakes of
the version before."""

from __future__ import annotations

import shutil
from base64 import b64decode
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from postroad.bodies import outline
from postroad.spark.pipeline import gold, silver
from postroad.spark.pipeline import run as running
from postroad.spark.pipeline.conversations import MOST
from postroad.spark.pipeline.facts import gather
from postroad.spark.pipeline.fates import LONGEST_TYPE, MOST_TYPES
from postroad.spark.pipeline.lake import COUNTS, DELIVERY, FORMATS, MESSAGES, Lake
from postroad.spark.pipeline.tables import ParquetTable, Table
from tests.spark.packets import ROME, Copy, bronze, sent
from tests.spark.test_incremental_gold import QUEUE, arrive, finish
from tests.spark.test_tables import every_kind
from tests.unit.bodies.test_samples import samples

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NEW = ("message_type", "headers")
BODIES = [
    (b64decode(each["body_base64"]), each["body_type"], b64decode(each["extension_base64"] or ""), each["app_tag"])
    for each in samples()
]


def packet(number: int) -> bytes:
    """A message with the body of a sample."""
    body, body_type, extension, app_tag = BODIES[number]
    return sent(number + 1, body=body, body_type=body_type, extension=extension, app_tag=app_tag)


def queued(*numbers: int, batch: int = 1) -> list[Copy]:
    return [Copy(ROME, QUEUE, silver.QUEUED, packet(number), number, batch=batch) for number in numbers]


def said(number: int) -> tuple[str | None, dict[str, str]]:
    body, body_type, extension, app_tag = BODIES[number]
    found = outline(body, body_type, extension, app_tag=app_tag)
    return found.message_type, dict(found.headers)


def kept(table: Table) -> dict[int, tuple[str | None, dict[str, str] | None]]:
    frame = table.read()
    assert frame is not None
    return {int(row["id"].rpartition("\\")[2]) - 1: (row[1], row[2]) for row in frame.select("id", *NEW).collect()}


@every_kind
def test_headers_are_kept_in_every_format(spark: SparkSession, tmp_path: Path, kind: type[Table]) -> None:
    first, second = [number for number in range(len(BODIES)) if said(number)[1]][:2]
    name = next(name for name, each in FORMATS.items() if each is kind)
    table = Lake(spark, tmp_path, name).table(MESSAGES)
    table.append(rows(spark, first, 1).drop(*NEW), 1)  # as the version before has written them
    table.append(rows(spark, second, 2), 2)
    expected = {first: (None, None), second: said(second)}
    assert kept(table) == expected
    if kind is not ParquetTable:
        found = spark.read.format(name).load(str(tmp_path / MESSAGES)).select(*NEW).collect()
        assert sorted(map(tuple, found), key=str) == sorted(expected.values(), key=str)


def rows(spark: SparkSession, number: int, batch: int) -> DataFrame:
    return silver.messages(silver.decode(bronze(spark, queued(number, batch=batch), batch)))


def as_before(lake: Lake, name: str) -> None:
    """Makes a table as the version before has written it."""
    table = lake.table(name)
    last, frame = table.last(), table.read()
    assert last is not None
    assert frame is not None
    facts = dict(last.facts)
    if "basis" in facts:
        facts["basis"] = facts["basis"] | {"version": gold.VERSION - 1}
    made = lake.session.createDataFrame(frame.drop(*NEW).toArrow())
    shutil.rmtree(Path(lake.path, name))
    table.append(made, last.batch, facts)


def test_a_lake_of_the_version_before_goes_on_with_bodies_of_dotnet(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(spark, tmp_path)
    whole = range(len(BODIES))
    first = [number for number in whole if said(number)[0] and said(number)[1]][:2]
    arrive(lake, queued(*first), 1)
    running._silver(lake, 1, lambda *_: None)
    as_before(lake, MESSAGES)
    finish(lake)  # nothing new has come with this version
    assert [row["message_type"] for row in lake.rows(DELIVERY)] == [None, None]
    as_before(lake, DELIVERY)

    others = [number for number in whole if number not in first]
    arrive(lake, queued(*others, batch=2), 3)
    finish(lake)
    expected = {number: said(number) for number in others}
    assert kept(lake.table(MESSAGES)) == dict.fromkeys(first, (None, None)) | expected
    types = Counter((name or "")[:LONGEST_TYPE] for name, _ in expected.values())
    types[""] += len(first)
    assert len(types) > MOST
    counted = {row["value"]: row["messages"] for row in lake.rows(COUNTS) if row["kind"] == "type"}
    assert counted == types
    facts = gather(Lake(None, tmp_path))
    assert len(facts.types) == MOST + 1
    assert {row["value"]: row["messages"] for row in facts.types[:3]} == dict(types.most_common(3))
    assert facts.types[-1]["value"] is None
    assert sum(row["messages"] for row in facts.types) == len(BODIES)
    assert len(facts.speed("type", "reach")) == MOST_TYPES
