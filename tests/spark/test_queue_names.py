"""Queues whose names have spaces, Unicode, and characters that mean something elsewhere: in options, patterns, lists,
checkpoints, sinks and remote reads."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.remote.station import station
from tests.served import Served
from tests.spark.driver import options
from tests.spark.test_remote_readers import options as by_rpc
from tests.spark.test_streams import drain

PLAIN = r"private$\two words"
UNICODE = r"private$\Aufträge für 東京 🚚"
ODD = r"private$\100% of [a]=b? #1 {x} & 'y'"
NAMES = (PLAIN, UNICODE, ODD)


@pytest.fixture
def filled(alpha: Served) -> Served:
    for name in NAMES:
        alpha.create(name)
        put(alpha, name, "first", "second")
    return alpha


def put(manager: Served, name: str, *bodies: str) -> None:
    path = quote(name.replace("\\", "/"), safe="/$")
    sent = manager.call("POST", f"/api/v1/queues/{path}/messages", {"messages": [{"body": each} for each in bodies]})
    assert sent.status < 300, sent.body


def texts(frame: DataFrame) -> list[str]:
    return sorted(row["body_text"] for row in frame.select("body_text").collect())


def told(frame: DataFrame) -> list[tuple[str, str]]:
    return sorted((row["queue"], row["body_text"]) for row in frame.select("queue", "body_text").collect())


def rows(*names: str, bodies: tuple[str, ...] = ("first", "second")) -> list[tuple[str, str]]:
    return sorted((name, body) for name in names for body in bodies)


def batch(spark: SparkSession, given: dict[str, str]) -> DataFrame:
    return spark.read.format("postroad").options(**given).load()


def test_a_batch_reads_them(spark: SparkSession, filled: Served) -> None:
    for name in NAMES:
        assert texts(batch(spark, options(filled, queue=name))) == ["first", "second"]
    assert told(batch(spark, options(filled, queue=" , ".join(NAMES)))) == rows(*NAMES)
    assert told(batch(spark, options(filled, queue=r"private$\*für 東*"))) == rows(UNICODE)
    assert told(batch(spark, options(filled, queue=r"private$\1*[a]=*"))) == rows(ODD)


@pytest.mark.parametrize("mode", ["peek", "consume"])
def test_a_stream_goes_on_from_its_checkpoint(spark: SparkSession, filled: Served, tmp_path: Path, mode: str) -> None:
    given = options(filled, queue=",".join(NAMES), mode=mode)
    directory = tmp_path / "two words für 東京"
    frame = spark.readStream.format("postroad").options(**given).load().select("queue", "body_text")
    drain(frame, directory)
    for name in NAMES:
        put(filled, name, "third")
    drain(frame, directory)
    found = told(spark.read.parquet(str(directory / "rows")))
    assert found == rows(*NAMES, bodies=("first", "second", "third"))


def test_rows_are_sent_to_them(spark: SparkSession, filled: Served) -> None:
    for name in NAMES:
        frame = spark.createDataFrame([("sent",)], "body string")
        frame.write.format("postroad").mode("append").options(**options(filled, queue=name)).save()
        assert texts(batch(spark, options(filled, queue=name))) == ["first", "second", "sent"]


def test_a_remote_stream_consumes_them(spark: SparkSession, tmp_path: Path) -> None:
    with station(host="127.0.80.5", queues=NAMES) as server:
        for number, name in enumerate(NAMES):
            server.send("first", "second", queue=name)
            assert texts(batch(spark, by_rpc(server, queue=name))) == ["first", "second"]
            stream = spark.readStream.format("postroad").options(**by_rpc(server, queue=name, mode="consume")).load()
            drain(stream.select("body_text"), tmp_path / str(number))
            assert texts(spark.read.parquet(str(tmp_path / str(number) / "rows"))) == ["first", "second"]
            assert server.count(name) == 0
