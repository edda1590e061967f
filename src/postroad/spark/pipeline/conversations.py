"""Gold: requests and their answers, chains of answers, and who sends what. Pure functions on DataFrames.

A request is a message that names a response queue. An answer has the id of its request as its correlation id. An
acknowledgment from a manager is not an answer. A send is known to the second, by the sender's clock, so times between
two sends are intervals.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from postroad.spark.pipeline.frames import local

LONGEST = 100  # chains in the table
MOST = 50  # labels in the table, senders, and message types


def exchanges(delivered: DataFrame) -> DataFrame:
    """The requests and answers among all messages."""
    kept = ("day", "id", "correlation_id", "label", "source", "destination", "queue", "response_queue", "sent_at")
    more = ("state", "sent_until", "in_queue")
    return delivered.where("correlation_id is not null or response_queue is not null").select(*kept, *more)


def conversations(exchanged: DataFrame, journals: DataFrame) -> DataFrame:
    """One row for each request, with its first answer and the seconds until that was sent.

    `journals` has the format names of queues, in lower case, whose journals the pipeline reads. A request without an
    answer that did not die is `unanswered` if its response queue is one of them, or if the request was not taken from
    its queue. Otherwise the answer may have come and gone, and whether there is one is `unknown`.
    """
    answers = exchanged.where("correlation_id is not null").groupBy(f.col("correlation_id").alias("id"))
    first = f.min(
        f.when(
            f.col("sent_at").isNotNull(), f.struct("sent_at", f.col("id").alias("answer_id"), "source", "sent_until")
        )
    )
    answered = answers.agg(f.count("*").alias("answers"), first.alias("first")).select(
        "id",
        "answers",
        f.col("first.sent_at").alias("answered_at"),
        f.col("first.sent_until").alias("answered_until"),
        "first.answer_id",
        f.col("first.source").alias("answered_by"),
    )
    kept = ("id", "label", "source", "destination", "queue", "response_queue", "sent_at", "state")
    asked = exchanged.where("response_queue is not null").select(*kept, "sent_until", "in_queue")
    seen = journals.select(f.col("format_name").alias("response_key"), f.lit(True).alias("seen")).distinct()
    requests = asked.withColumn("response_key", f.lower("response_queue")).join(answered, "id", "left")
    requests = requests.join(f.broadcast(seen), "response_key", "left")
    waits = f.col("seen") | f.col("in_queue") | (f.col("state") == "outgoing")
    is_open = f.col("answers").isNull() & (f.col("state") != "dead")
    return requests.select(
        *kept,
        f.coalesce("answers", f.lit(0)).alias("answers"),
        "answered_at",
        "answer_id",
        "answered_by",
        _between("sent_at", "answered_until").alias("response_s"),
        (is_open & f.coalesce(waits, f.lit(False))).alias("unanswered"),
        _between("sent_until", "answered_at").alias("response_least_s"),
        (is_open & ~f.coalesce(waits, f.lit(False))).alias("unknown"),
    )


def _between(since: str, until: str) -> Column:
    span = f.round((f.unix_micros(until) - f.unix_micros(since)) / 1_000_000, 3)
    return f.when(span.isNotNull(), f.greatest(span, f.lit(0.0)))


def pairs(requests: DataFrame) -> DataFrame:
    """Who asks whom: the requests from a manager to a queue, their answers, and how long the answers took."""
    waiting = f.when(f.col("unanswered"), f.col("sent_at"))
    return requests.groupBy("source", "queue").agg(
        f.count("*").alias("messages"),
        f.sum((f.col("answers") > 0).cast("bigint")).alias("answered"),
        f.sum(f.col("unanswered").cast("bigint")).alias("unanswered"),
        f.sum(((f.col("answers") == 0) & (f.col("state") == "dead")).cast("bigint")).alias("died"),
        f.min(waiting).alias("oldest_unanswered_at"),
        f.min(f.when(waiting.isNotNull(), f.struct("sent_at", "id")))["id"].alias("oldest_unanswered"),
        f.max("answered_by").alias("answered_by"),
        *(_percentile("", share) for share in (0.5, 0.9, 0.99)),
        f.max("response_s").alias("response_max_s"),
        f.sum(f.col("unknown").cast("bigint")).alias("unknown"),
        *(_percentile("least_", share) for share in (0.5, 0.9, 0.99)),
        f.max("response_least_s").alias("response_max_least_s"),
    )


def _percentile(bound: str, share: float) -> Column:
    of = f.percentile(f"response_{bound}s", f.lit(share))
    return f.round(of, 3).alias(f"response_p{share * 100:.0f}_{bound}s")


def chains(exchanged: DataFrame, delivered: DataFrame) -> DataFrame:
    """The longest chains of answers to answers: the first known message of each, how many follow, and how long the
    chain took. Messages that lead into a circle are in no chain, because that has no first message.

    One process follows them, because Spark would need a join for each doubling of their length. It needs about 200
    bytes for each message of `exchanged`.
    """
    spark = delivered.sparkSession
    columns = ("id", "label", "source", "sent_at", "sent_until")
    known = exchanged.select(*columns, "correlation_id").toArrow()
    to_itself = pc.equal(known["id"], known["correlation_id"])
    known = known.append_column("follows", pc.if_else(to_itself, None, known["correlation_id"]))
    # Most messages here answer a request. The others need a search in all messages, so only they are searched for.
    asked = pc.unique(known["follows"].drop_null())
    others = asked.filter(pc.invert(pc.is_in(asked, known["id"])))
    if len(others):
        wanted = spark.createDataFrame(pa.table({"id": others}))
        first = delivered.select(*columns).join(f.broadcast(wanted), "id", "left_semi").toArrow()
        known = pa.concat_tables([known, first], promote_options="default")
    above = _places(known["follows"], known["id"])
    root, steps = _roots(above)
    follows = (above >= 0) & (above[root] < 0)
    rows = pa.table({"root": root, "steps": steps}).append_column("sent_at", known["sent_at"])
    rows = rows.append_column("sent_until", known["sent_until"]).filter(pa.array(follows))
    sums = [("steps", "max"), ("steps", "count"), ("sent_at", "max"), ("sent_until", "max")]
    found = rows.group_by("root").aggregate(sums)
    names = {"steps": "steps_max", "followers": "steps_count", "last_at": "sent_at_max", "last_until": "sent_until_max"}
    firsts = known.select(columns).take(found["root"])
    for name, column in names.items():
        firsts = firsts.append_column(name, found[column])
    found = firsts.sort_by([("steps", "descending"), ("followers", "descending"), ("id", "ascending")]).slice(
        0, LONGEST
    )
    return local(spark, (_chain(row) for row in found.to_pylist()), CHAIN)


CHAIN = (
    "id string, followers bigint, steps int, last_at timestamp, label string, source string, sent_at timestamp, "
    "seconds double, least_seconds double"
)


def _chain(row: dict[str, Any]) -> tuple[Any, ...]:
    def span(since: str, until: str) -> float | None:
        ends = row[since], row[until]
        return None if None in ends else max(0.0, round((ends[1] - ends[0]).total_seconds(), 3))

    kept = (row[name] for name in ("id", "followers", "steps", "last_at", "label", "source", "sent_at"))
    return (*kept, span("sent_at", "last_until"), span("sent_until", "last_at"))


def _places(values: pa.ChunkedArray, among: pa.ChunkedArray) -> Any:
    """Where each value is among others; -1 if it is not."""
    found = pc.index_in(values, value_set=among.combine_chunks(), skip_nulls=True)
    return found.fill_null(-1).to_numpy().astype(np.int64)


def _roots(above: Any) -> tuple[Any, Any]:
    """The last place above each place, and the steps to it. In each round, every place takes over what is known above
    it, so the steps double. In a circle they would do so for ever, but no chain is longer than there are places."""
    root = np.where(above >= 0, above, np.arange(len(above)))
    steps = (above >= 0).astype(np.int64)
    for _ in range(len(above).bit_length()):
        further = root[root]
        if np.array_equal(further, root):
            break
        root, steps = further, steps + steps[root]
    return root, steps


def counts(delivered: DataFrame) -> DataFrame:
    """Messages by day and label, by day and sender, and by day and message type.

    Digits in a label become `#`, so that labels with numbers count as one. A sender is a SID, or a manager if the SID
    is unknown. Messages that do not say their type have the type "".
    """
    label = f.regexp_replace(f.coalesce("label", f.lit("")), r"\d+", "#")
    kinds = {
        "label": f.substring(label, 1, 120),
        "sender": f.coalesce("sender_id", "source", f.lit("unknown")),
        "type": f.coalesce("message_type", f.lit("")),
    }
    each = [f.struct(f.lit(kind).alias("kind"), value.alias("value")) for kind, value in kinds.items()]
    rows = delivered.select("day", f.explode(f.array(*each)).alias("of"), "state", "size")
    return rows.groupBy("day", "of.kind", "of.value").agg(
        f.count("*").alias("messages"),
        f.sum((f.col("state") == "received").cast("bigint")).alias("received"),
        f.sum((f.col("state") == "dead").cast("bigint")).alias("died"),
        f.coalesce(f.sum("size"), f.lit(0)).alias("bytes"),
    )


def top(counted: DataFrame) -> DataFrame:
    """The labels, senders and message types with the most messages on all days together."""
    sums = [f.sum(name).alias(name) for name in ("messages", "received", "died", "bytes")]
    place = f.row_number().over(Window.partitionBy("kind").orderBy(f.desc("messages"), "value"))
    found = counted.groupBy("kind", "value").agg(*sums).withColumn("place", place)
    return found.where(f.col("place") <= MOST).orderBy("kind", "place").drop("place")


def hours(delivered: DataFrame) -> DataFrame:
    """Each hour of a queue: the messages sent to it, and the median of the seconds until they were received.

    Rows with a reason count the messages that died of it in that hour. There is one such row for each day on which
    these messages were sent, so add them up.
    """
    sent = delivered.where("sent_at is not null").groupBy(
        "day", f.date_trunc("hour", "sent_at").alias("hour"), "queue", f.lit(None).cast("string").alias("reason")
    )
    died = delivered.where("state = 'dead'").groupBy(
        "day", f.date_trunc("hour", "dead_at").alias("hour"), "queue", "reason"
    )
    median = f.round(f.percentile("receive_s", f.lit(0.5)), 3)
    return sent.agg(f.count("*").alias("messages"), median.alias("receive_p50_s")).unionByName(
        died.agg(f.count("*").alias("messages"), f.lit(None).cast("double").alias("receive_p50_s"))
    )
