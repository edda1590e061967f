"""Gold: requests and their answers, chains of answers, and who sends what. Pure functions on DataFrames.

A request is a message that names a response queue. An answer has the id of its request as its correlation id. An
acknowledgment from a manager is not an answer. A send is known to the second, by the sender's clock, so times between
two sends are intervals.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from postroad.spark.pipeline.frames import arrow_rows
from postroad.spark.pipeline.passes import (
    Summary,
    bins,
    count,
    first_of,
    nullable,
    numbered,
    ones,
    percentiles,
    with_columns,
)

LONGEST = 100  # chains in the table
MOST = 50  # labels in the table, senders, and message types


EXCHANGED = (
    *("day", "id", "correlation_id", "label", "source", "destination", "queue", "response_queue", "sent_at"),
    *("state", "sent_until", "in_queue"),
)


def exchanges(delivered: DataFrame) -> DataFrame:
    """The requests and answers among all messages."""
    return delivered.where("correlation_id is not null or response_queue is not null").select(*EXCHANGED)


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
    requests = requests.join(seen, "response_key", "left")
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


PAIRED = (
    *("source", "queue", "id", "sent_at", "state", "answers", "unanswered", "unknown", "answered_by"),
    *("response_s", "response_least_s"),
)
_SHARES = (0.5, 0.9, 0.99)


def pairs(requests: pa.Table) -> pa.Table:
    """Who asks whom: the requests from a manager to a queue, their answers, and how long the answers took.

    `requests` has the columns PAIRED of gold/conversations.
    """
    keys = ["source", "queue"]
    answered = pc.greater(requests["answers"], 0)
    died = pc.and_(pc.invert(answered), pc.equal(requests["state"], "dead"))
    rows = with_columns(requests, messages=ones(requests), answered=count(answered), died=count(died))
    rows = with_columns(rows, unanswered=count(rows["unanswered"]), unknown=count(rows["unknown"]))
    sums = [
        *((name, "sum") for name in ("messages", "answered", "unanswered", "died", "unknown")),
        ("answered_by", "max"),
    ]
    sums += [(name, "max") for name in ("response_s", "response_least_s")]
    names = [name for name, _ in sums[:6]] + ["response_max_s", "response_max_least_s"]
    found = rows.group_by(keys, use_threads=False).aggregate(sums).rename_columns([*keys, *names])
    waiting = rows.filter(requests["unanswered"]).sort_by([("sent_at", "ascending"), ("id", "ascending")])
    first = waiting.group_by(keys, use_threads=False).aggregate([("sent_at", "first"), ("id", "first")])
    first = {(row["source"], row["queue"]): (row["sent_at_first"], row["id_first"]) for row in first.to_pylist()}
    oldest = [first.get((row["source"], row["queue"]), (None, None)) for row in found.select(keys).to_pylist()]
    found = with_columns(
        found,
        oldest_unanswered_at=pa.array([at for at, _ in oldest], requests.schema.field("sent_at").type),
        oldest_unanswered=pa.array([name for _, name in oldest], pa.string()),
    )
    groups, numbers = numbered(rows, keys)
    for bound in ("s", "least_s"):
        took = rows[f"response_{bound}"].to_numpy()
        there = ~np.isnan(took)
        ones_of = np.ones(int(there.sum()), np.int64)
        shares = percentiles(numbers[there], took[there], ones_of, len(groups), _SHARES)
        columns = {f"response_p{share * 100:.0f}_{bound}": nullable(shares[:, n]) for n, share in enumerate(_SHARES)}
        groups = with_columns(groups, **columns)
    by_key = {(row["source"], row["queue"]): row for row in groups.to_pylist()}
    timed = [by_key[row["source"], row["queue"]] for row in found.select(keys).to_pylist()]
    for name in groups.column_names[2:]:
        found = with_columns(found, **{name: pa.array([row[name] for row in timed], pa.float64())})
    most, least = ([f"response_p{share * 100:.0f}_{bound}" for share in _SHARES] for bound in ("s", "least_s"))
    counts = ["messages", "answered", "unanswered", "died", "oldest_unanswered_at", "oldest_unanswered", "answered_by"]
    ends = [*most, "response_max_s", "unknown", *least, "response_max_least_s"]
    return found.select([*keys, *counts, *ends])


CHAIN_COLUMNS = ("id", "label", "source", "sent_at", "sent_until")
CHAINED = (*CHAIN_COLUMNS, "correlation_id")


def chains(known: pa.Table, others: Callable[[Any], pa.Table]) -> pa.Table:
    """The longest chains of answers to answers: the first known message of each, how many follow, and how long the
    chain took. Messages that lead into a circle are in no chain, because that has no first message.

    `known` has the columns CHAINED of gold/exchanges. `others` finds those of messages that are not there. One process
    follows all chains, because Spark would need a join for each doubling of their length. It needs about 200 bytes for
    each message of `known`.
    """
    to_itself = pc.equal(known["id"], known["correlation_id"])
    known = with_columns(known, follows=pc.if_else(to_itself, None, known["correlation_id"]))
    # Most messages here answer a request. The others need a search in all messages, so only they are searched for.
    asked = pc.unique(known["follows"]).drop_null()
    asked = asked.filter(pc.invert(pc.is_in(asked, pc.unique(known["id"]))))
    if len(asked):
        known = pa.concat_tables([known, others(asked)], promote_options="default")
    above = _places(known["follows"], known["id"])
    root, steps = _roots(above)
    follows = (above >= 0) & (above[root] < 0)
    rows = pa.table({"root": root, "steps": steps}).append_column("sent_at", known["sent_at"])
    rows = rows.append_column("sent_until", known["sent_until"]).filter(pa.array(follows))
    sums = [("steps", "max"), ("steps", "count"), ("sent_at", "max"), ("sent_until", "max")]
    found = rows.group_by("root").aggregate(sums)
    names = {"steps": "steps_max", "followers": "steps_count", "last_at": "sent_at_max", "last_until": "sent_until_max"}
    firsts = known.select(list(CHAIN_COLUMNS)).take(found["root"])
    for name, column in names.items():
        firsts = firsts.append_column(name, found[column])
    found = firsts.sort_by([("steps", "descending"), ("followers", "descending"), ("id", "ascending")]).slice(
        0, LONGEST
    )
    return arrow_rows((_chain(row) for row in found.to_pylist()), CHAIN)


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


def _count_rows(rows: pa.Table) -> pa.Table:
    label = pc.replace_substring_regex(pc.fill_null(rows["label"], ""), r"\d+", "#")
    kinds = {
        "label": pc.utf8_slice_codeunits(label, 0, 120),
        "sender": pc.fill_null(first_of(rows, "sender_id", "source"), "unknown"),
        "type": pc.fill_null(rows["message_type"], ""),
    }
    sums = {"messages": ones(rows), "received": count(pc.equal(rows["state"], "received"))}
    sums |= {"died": count(pc.equal(rows["state"], "dead")), "bytes": pc.fill_null(rows["size"].cast(pa.int64()), 0)}
    return pa.concat_tables(
        [with_columns(rows.select(["day"]), kind=kind, value=value, **sums) for kind, value in kinds.items()]
    )


_SUMS = ("messages", "received", "died", "bytes")
# Messages by day and label, by day and sender, and by day and message type. Digits in a label become `#`, so that
# labels with numbers count as one. A sender is a SID, or a manager if the SID is unknown. Messages that do not say
# their type have the type "".
counts = Summary(
    columns=("day", "label", "sender_id", "source", "message_type", "state", "size"),
    shape=_count_rows,
    keys=("day", "kind", "value"),
    sums=_SUMS,
)


def top(counted: pa.Table) -> pa.Table:
    """The labels, senders and message types with the most messages on all days together."""
    sums = counted.group_by(["kind", "value"], use_threads=False).aggregate([(name, "sum") for name in _SUMS])
    found = sums.rename_columns(["kind", "value", *_SUMS])
    found = found.sort_by([("kind", "ascending"), ("messages", "descending"), ("value", "ascending")])
    return pa.concat_tables(
        [found.filter(pc.equal(found["kind"], kind)).slice(0, MOST) for kind in pc.unique(found["kind"])] or [found]
    )


def _hour_rows(rows: pa.Table) -> pa.Table:
    sent, died = rows.filter(pc.is_valid(rows["sent_at"])), rows.filter(pc.equal(rows["state"], "dead"))
    kept = ["day", "queue"]
    hour = {"hour": pc.floor_temporal(sent["sent_at"], unit="hour"), "reason": pa.nulls(len(sent), pa.string())}
    times = {"bin": bins(sent["receive_s"]), "max_s": sent["receive_s"].cast(pa.float64())}
    of_sent = with_columns(sent.select(kept), **hour, **times, messages=ones(sent))
    hour = {"hour": pc.floor_temporal(died["dead_at"], unit="hour"), "reason": died["reason"]}
    times = {"bin": pa.nulls(len(died), pa.int32()), "max_s": pa.nulls(len(died), pa.float64())}
    return pa.concat_tables([of_sent, with_columns(died.select(kept), **hour, **times, messages=ones(died))])


def _hour_table(joined: pa.Table) -> pa.Table:
    keys, numbers = numbered(joined, ("day", "hour", "queue", "reason"))
    messages = np.bincount(numbers, joined["messages"].to_numpy(), len(keys)).astype(np.int64)
    timed = joined["bin"].is_valid().to_numpy()
    values, weights = (joined[name].to_numpy() for name in ("max_s", "messages"))
    median = percentiles(numbers[timed], values[timed], weights[timed], len(keys), (0.5,))
    return with_columns(keys, messages=pa.array(messages), receive_p50_s=nullable(median[:, 0]))


# Each hour of a queue: the messages sent to it, and the median of the seconds until they were received. Rows with a
# reason count the messages that died of it in that hour. There is one such row for each day on which these messages
# were sent, so add them up.
hours = Summary(
    columns=("day", "queue", "sent_at", "state", "dead_at", "reason", "receive_s"),
    shape=_hour_rows,
    keys=("day", "hour", "queue", "reason", "bin"),
    sums=("messages",),
    greatest=("max_s",),
    finish=_hour_table,
)
