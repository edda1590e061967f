"""Streams by Spark itself: several queues in one checkpoint, their metrics in the query's progress, and errors."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import postroad.spark
from tests.served import ORDERS, Served
from tests.spark.driver import options


def stream(spark: SparkSession, manager: Served, **given: object) -> DataFrame:
    return spark.readStream.format("postroad").options(**options(manager, **given)).load()


def drain(frame: DataFrame, directory: Path) -> StreamingQuery:
    """Runs the query until it has read everything. Its rows are in files."""
    writer = frame.writeStream.format("parquet").option("path", str(directory / "rows"))
    query = writer.option("checkpointLocation", str(directory / "state")).trigger(availableNow=True).start()
    query.awaitTermination(120)
    return query


def metrics(query: StreamingQuery, name: str) -> list[int]:
    return [postroad.spark.metrics(progress)[0][name] for progress in query.recentProgress]


def test_progress_has_the_metrics_of_the_source(spark: SparkSession, alpha: Served, tmp_path: Path) -> None:
    alpha.create(r"private$\others")
    alpha.send(*(str(number) for number in range(6)))
    alpha.call("POST", "/api/v1/queues/private$/others/messages", {"messages": [{"body": "x"}] * 4})
    frame = stream(spark, alpha, queue=r"private$\o*", maxMessagesPerBatch=4, failOnDataLoss=False)
    query = drain(frame.select("queue", "body_text"), tmp_path)
    rows = [(row["queue"], row["body_text"]) for row in spark.read.parquet(str(tmp_path / "rows")).collect()]
    assert sorted(rows) == sorted(
        [(r"private$\orders", str(number)) for number in range(6)] + [(r"private$\others", "x")] * 4
    )
    assert [backlog for backlog in metrics(query, "backlog") if backlog] == [6, 2]
    assert metrics(query, "backlog")[-1] == 0
    assert query.lastProgress is not None
    (last,) = postroad.spark.metrics(query.lastProgress)
    assert {queue: each["backlog"] for queue, each in last["queues"].items()} == {
        r"private$\orders": 0,
        r"private$\others": 0,
    }
    assert last.items() >= {"backlog": 0, "lost": 0}.items()
    assert query.lastProgress["sources"][0]["metrics"] == {"backlog": "0", "oldestAgeMs": "0", "lost": "0"}
    ages = metrics(query, "oldestAgeMs")
    assert ages[0] > 0
    assert ages[-1] == 0
    alpha.send("purged", "purged")
    alpha.call("POST", f"{ORDERS}/purge")
    alpha.send("last")
    query = drain(frame.select("queue", "body_text"), tmp_path)
    assert metrics(query, "lost")[-1] == 2, "those that were read before are not lost"


def test_a_purge_under_a_stream_ends_it_with_our_sentence(spark: SparkSession, alpha: Served, tmp_path: Path) -> None:
    alpha.send("a")
    frame = stream(spark, alpha)
    drain(frame, tmp_path)
    alpha.send("b", "c")
    alpha.call("POST", f"{ORDERS}/purge")
    with pytest.raises(StreamingQueryException, match=r"of 2 messages .* failOnDataLoss=false"):
        drain(frame, tmp_path)
