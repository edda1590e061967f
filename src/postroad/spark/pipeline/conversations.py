"""Gold: requests and their answers, chains of answers, and who sends what. Pure functions on DataFrames.

A request is a message that names a response queue. An answer has the id of its request as its correlation id. An
acknowledgment from a manager is not an answer. Times are from the senders' clocks, in whole seconds.
"""

from __future__ import annotations

from contextlib import ExitStack

from pyspark import StorageLevel
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from postroad.spark.pipeline.frames import persisted

LONGEST = 100  # chains in the table
MOST = 50  # labels in the table, senders, and message types
_ROUNDS = 4  # each doubles the length of the chains that are followed, up to 16 answers


def exchanges(delivered: DataFrame) -> DataFrame:
    """The requests and answers among all messages."""
    kept = ("day", "id", "correlation_id", "label", "source", "destination", "queue", "response_queue", "sent_at")
    return delivered.where("correlation_id is not null or response_queue is not null").select(*kept, "state")


def conversations(exchanged: DataFrame) -> DataFrame:
    """One row for each request, with its first answer and the seconds until that was sent.

    A request is `unanswered` if it has no answer and did not die.
    """
    answers = exchanged.where("correlation_id is not null").groupBy(f.col("correlation_id").alias("id"))
    first = f.min(f.when(f.col("sent_at").isNotNull(), f.struct("sent_at", f.col("id").alias("answer_id"), "source")))
    answered = answers.agg(f.count("*").alias("answers"), first.alias("first")).select(
        "id",
        "answers",
        f.col("first.sent_at").alias("answered_at"),
        "first.answer_id",
        f.col("first.source").alias("answered_by"),
    )
    kept = ("id", "label", "source", "destination", "queue", "response_queue", "sent_at", "state")
    requests = exchanged.where("response_queue is not null").select(*kept).join(answered, "id", "left")
    span = (f.unix_micros("answered_at") - f.unix_micros("sent_at")) / 1_000_000
    return requests.select(
        *kept,
        f.coalesce("answers", f.lit(0)).alias("answers"),
        "answered_at",
        "answer_id",
        "answered_by",
        f.when(span.isNotNull(), f.greatest(f.round(span, 3), f.lit(0.0))).alias("response_s"),
        (f.col("answers").isNull() & (f.col("state") != "dead")).alias("unanswered"),
    )


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
        *(
            f.round(f.percentile("response_s", f.lit(share)), 3).alias(f"response_p{share * 100:.0f}_s")
            for share in (0.5, 0.9, 0.99)
        ),
        f.max("response_s").alias("response_max_s"),
    )


def chains(exchanged: DataFrame, delivered: DataFrame) -> DataFrame:
    """The longest chains of answers to answers: the first message of each, how many follow, and how long the chain
    took.

    In each round, every message takes over the root of its root, until no root has a root itself. This needs only
    joins.
    """
    columns = ("id", "label", "source", "sent_at")
    is_link = f.coalesce(f.col("correlation_id") != f.col("id"), f.lit(False))
    links = exchanged.where(is_link).select("id", f.col("correlation_id").alias("root"), "sent_at")
    above = exchanged.select(f.col("id").alias("root"), is_link.alias("deeper"))  # whether the root has a root itself
    with ExitStack() as stack:

        def keep(frame: DataFrame) -> DataFrame:
            return stack.enter_context(persisted(frame, StorageLevel.DISK_ONLY))

        roots = keep(links.join(above, "root", "left").withColumn("steps", f.lit(1)))  # null if the root is no exchange
        known = exchanged.select(*columns)
        # Most messages here answer a request. The others need a search in all messages, so only they are searched for.
        others, roots = roots.where("deeper is null").drop("deeper"), roots.where("deeper is not null")
        if not others.isEmpty():
            asked = others.select(f.col("root").alias("id")).distinct()
            first = keep(delivered.select(*columns).join(asked, "id", "left_semi"))
            known = known.unionByName(first)
            top = first.select(f.col("id").alias("root"), f.lit(False).alias("deeper"))
            roots = roots.unionByName(others.join(top, "root"))
        for _ in range(_ROUNDS):
            if roots.where("deeper").isEmpty():
                break
            above = roots.select(
                f.col("id").alias("root"),
                f.col("root").alias("above"),
                f.col("steps").alias("more"),
                f.col("deeper").alias("deepest"),
            )
            longer = roots.join(above, "root", "left").select(
                "id",
                f.coalesce("above", "root").alias("root"),
                (f.col("steps") + f.coalesce("more", f.lit(0))).alias("steps"),
                "sent_at",
                f.coalesce("deepest", f.lit(False)).alias("deeper"),
            )
            roots = keep(longer)
        grouped = roots.groupBy(f.col("root").alias("id")).agg(
            f.count("*").alias("followers"), f.max("steps").alias("steps"), f.max("sent_at").alias("last_at")
        )
        order = (f.desc("steps"), f.desc("followers"), "id")
        took = (f.unix_micros("last_at") - f.unix_micros("sent_at")) / 1_000_000
        found = f.broadcast(grouped.orderBy(*order).limit(LONGEST)).join(known, "id")
        found = found.withColumn("seconds", f.greatest(f.round(took, 3), f.lit(0.0))).orderBy(*order)
        return delivered.sparkSession.createDataFrame(found.toArrow())


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
