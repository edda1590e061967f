"""Gold: the fate of every message, from all its copies, acknowledgments and reports in silver.

Pure functions on DataFrames. A packet says the second of its send, not more, and so does an acknowledgment. So every
latency is an interval: `reach_s` and `receive_s` are its upper bounds, `reach_least_s` and `receive_least_s` its lower
ones. They are as good as the clocks: between two managers, the difference of their clocks is in both bounds.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from postroad.spark.pipeline.locations import destination_key
from postroad.spark.pipeline.silver import DEAD, OUTGOING, QUEUED, RECEIVED, SENT
from postroad.wire.constants import MessageClass, class_name

# The states of a message, the furthest first.
STATES = ("received", "dead", "reached", "outgoing", "sent", "mentioned")

SEQUENCE = ("manager_id", "queue", "source_manager", "sequence_id")  # identifies the sequence of a copy, in its queue

# Senders choose message types, so gold has bounds: characters of one, and how many a report compares.
LONGEST_TYPE = 200
MOST_TYPES = 50

_REACH, _RECEIVE = MessageClass.ACK_REACH_QUEUE.value, MessageClass.ACK_RECEIVE.value
_FIRST_NACK = MessageClass.NACK_BAD_DST_Q.value


def delivery(
    messages: DataFrame,
    acknowledgments: DataFrame,
    reports: DataFrame,
    locations: DataFrame,
    queues: DataFrame,
    replayed: DataFrame,
    floors: DataFrame,
    sequences: DataFrame | None = None,
) -> DataFrame:
    """One row for each known message.

    `state` is the furthest state that is known: `received`; `dead`, with the reason; `reached` its queue; `outgoing`,
    still in an outgoing queue; `sent`, passed to the next hop; or only `mentioned` by an acknowledgment or a report. A
    message is `unexplained` if it is transactional or asked for an acknowledgment, and left no later trace.

    `replayed` has the ids of messages that died and were sent again as new messages. `floors` has, for each queue, the
    arrival number below which it holds no messages; with it, `in_queue` says whether a message is still there.

    To make the rows of some messages only, pass everything that silver has about these messages. `sequences` must then
    have all copies of their sequences.
    """
    late = _disorder(messages if sequences is None else sequences)
    known = (
        _from_copies(messages, floors)
        .join(_from_acknowledgments(acknowledgments), "id", "full")
        .join(late, "id", "left")
    )
    known = known.withColumn("mentioned_only", f.col("delivery").isNull())
    known = known.withColumn("destination_queue", f.coalesce("destination_queue", "reported_destination"))
    known = known.withColumns({"about": report_key(f.col("id")), "target": f.lower("destination_queue")})
    known = known.join(_reporters(reports, locations), ["about", "target"], "left")
    known = known.withColumn("label", f.coalesce("label", "reported_label"))
    received_at = f.coalesce(
        "journal_at", "receive_ack_at", f.when(f.col("delivery") == "transactional", f.col("left_at"))
    )
    reached_at = f.coalesce("queued_at", "reach_ack_at")
    dead_at = f.coalesce("dead_letter_at", "nack_at")
    known = known.withColumns({"received_at": received_at, "reached_at": reached_at, "dead_at": dead_at})
    known = known.withColumns(_bounds())
    known = _with_queue_name(_with_places(known, locations), queues)
    known = known.join(replayed.select("id", f.lit(True).alias("replayed")), "id", "left")
    return known.select(
        "id",
        "label",
        f.substring("message_type", 1, LONGEST_TYPE).alias("message_type"),
        "delivery",
        "priority",
        "size",
        "sent_at",
        "sent_until",
        "source",
        "source_site",
        "destination",
        "destination_site",
        "destination_queue",
        "queue",
        _state().alias("state"),
        "left_at",
        "reached_at",
        "received_at",
        "dead_at",
        f.when(f.col("received_at").isNull(), f.coalesce("dead_letter_reason", "nack")).alias("reason"),
        _seconds("sent_at", "reached_until").alias("reach_s"),
        _seconds("sent_at", "received_until").alias("receive_s"),
        _seconds("sent_until", "reached_since").alias("reach_least_s"),
        _seconds("sent_until", "received_since").alias("receive_least_s"),
        "hops",
        f.coalesce("way", f.array().cast("array<string>")).alias("way"),
        f.coalesce("duplicates", f.lit(0)).alias("duplicates"),
        f.coalesce("out_of_order", f.lit(False)).alias("out_of_order"),
        (f.col("received_at").isNotNull() & f.col("dead_at").isNotNull()).alias("contradicted"),
        _wanted_acknowledgments().alias("asked"),
        _unexplained().alias("unexplained"),
        "in_queue",
        "correlation_id",
        "response_queue",
        "sender_id",
        "dead_in",
        f.coalesce("replayed", f.lit(False)).alias("replayed"),
        f.coalesce(
            f.to_date(f.coalesce("sent_at", "received_at", "reached_at", "dead_at")), "seen_day", "reported_day"
        ).alias("day"),
    )


# What each silver table tells


def _from_copies(messages: DataFrame, floors: DataFrame) -> DataFrame:
    """What the copies of a message tell: its properties, when each role first had it, and whether it is still
    queued."""

    def first(role: str) -> Column:
        return f.min(f.when(f.col("role") == role, f.col("arrived_at")))

    # Of several candidates take the earliest. Otherwise two runs could choose differently.
    death = f.min(f.when(f.col("role") == DEAD, f.struct("arrived_at", "reason", "manager")))
    there = f.min(f.when(f.col("role").isin(RECEIVED, QUEUED), f.struct("arrived_at", "manager", "queue")))
    same = ("label", "message_type", "delivery", "priority", "size", "sent_at", "source_manager", "destination_queue")
    more = ("correlation_id", "response_queue", "sender_id")
    asked = ("asked_reach", "asked_receive")
    still = f.when(f.col("role") == QUEUED, f.col("arrival") >= f.col("floor"))
    # a copy at the message's own manager, by the same clock as the send
    at_home = (f.lower("manager_id") == f.lower("source_manager")) & (f.col("arrived_at") >= f.col("sent_at"))
    placed = messages.join(floors, ["manager_id", "queue"], "left")
    found = placed.groupBy("id").agg(
        *(f.min(name).alias(name) for name in (*same, *more, *asked)),
        f.max("hops").alias("hops"),
        f.min("day").alias("seen_day"),
        f.min(f.when(at_home, f.col("arrived_at"))).alias("home_at"),
        first(SENT).alias("left_at"),
        first(RECEIVED).alias("journal_at"),
        first(QUEUED).alias("queued_at"),
        first(OUTGOING).alias("outgoing_at"),
        death.alias("death"),
        there.alias("there"),
        f.max(still).alias("in_queue"),
    )
    found = found.withColumns(
        {
            "dead_letter_at": f.col("death.arrived_at"),
            "dead_letter_reason": _class_names(f.col("death.reason")),
            "dead_in": f.col("death.manager"),
            "holder": f.col("there.manager"),
            "held_in": f.col("there.queue"),
        }
    ).drop("death", "there")
    return found.join(_duplicates(messages), "id", "left")


def _duplicates(messages: DataFrame) -> DataFrame:
    """Messages with surplus copies: several in one journal, or several in one queue at the same time.

    A message that was moved is no duplicate.
    """
    seen = messages.where(f.col("role").isin(RECEIVED, QUEUED))
    moment = f.when(f.col("role") == QUEUED, f.col("batch"))
    copies = seen.groupBy("id", "manager_id", "queue", "role", moment.alias("moment")).agg(
        (f.countDistinct("arrival") - 1).alias("more")
    )
    return copies.groupBy("id").agg(f.max("more").alias("duplicates")).where("duplicates > 0")


def in_sequence(messages: DataFrame) -> DataFrame:
    return messages.where(f.col("role").isin(RECEIVED, QUEUED) & f.col("sequence_id").isNotNull())


def _disorder(messages: DataFrame) -> DataFrame:
    """Messages that come after a later one of their sequence, in a queue or in the order of receiving."""
    sequence = Window.partitionBy(*SEQUENCE).orderBy("arrival")
    earlier = sequence.rowsBetween(Window.unboundedPreceding, -1)
    placed = in_sequence(messages)
    late = f.col("sequence_number") < f.max("sequence_number").over(earlier)
    found = placed.withColumn("late", late).where("late").select("id").distinct()
    return found.withColumn("out_of_order", f.lit(True))


def _from_acknowledgments(acknowledgments: DataFrame) -> DataFrame:
    def first(wanted: Column) -> Column:
        return f.min(f.when(wanted, f.col("acknowledged_at")))

    kind = f.col("class")
    refusal = f.min(f.when(kind >= _FIRST_NACK, f.struct("acknowledged_at", "class_name")))
    found = acknowledgments.groupBy(f.col("about").alias("id")).agg(
        first(kind == _REACH).alias("reach_ack_at"),
        first(kind == _RECEIVE).alias("receive_ack_at"),
        refusal.alias("refusal"),
        f.min("label").alias("reported_label"),
        f.min("destination_queue").alias("reported_destination"),
        f.min("day").alias("reported_day"),
    )
    refused = {"nack_at": f.col("refusal.acknowledged_at"), "nack": f.col("refusal.class_name")}
    return found.withColumns(refused).drop("refusal")


def _reporters(reports: DataFrame, locations: DataFrame) -> DataFrame:
    """The managers that reported a message, ordered by its hops at that time, and then by time."""
    names = locations.select(f.col("key").alias("by"), f.col("name").alias("by_name"))
    reported = reports.join(names, "by", "left")
    step = f.struct("hops", "reported_at", f.coalesce("by_name", "by").alias("by"))
    by_message = reported.groupBy("about", f.lower("target_queue").alias("target"))
    steps = by_message.agg(f.array_sort(f.collect_set(step)).alias("steps"))
    way = f.array_distinct(f.transform("steps", lambda each: each["by"]))
    return steps.select("about", "target", way.alias("way"))


def report_key(message_id: Column) -> Column:
    """How a trace report names a message: four digits of its source's GUID, and its number."""
    digits = f.lower(f.regexp_extract(message_id, r"^\{?([0-9A-Fa-f]{4})", 1))
    return f.concat(digits, f.lit(":"), f.regexp_extract(message_id, r"(\d+)$", 1))


def _with_places(known: DataFrame, locations: DataFrame) -> DataFrame:
    """Adds source and destination by name and site. Where a copy was found, that place counts, not the address."""
    source_key = f.lower(f.coalesce("source_manager", f.regexp_extract("id", r"^\{?([0-9A-Fa-f-]{36})", 1)))
    keyed = known.withColumns(
        {
            "source_key": source_key,
            "destination_key": f.coalesce(f.lower("holder"), destination_key(f.col("destination_queue"))),
        }
    )
    for end in ("source", "destination"):
        end_locations = locations.select(
            f.col("key").alias(f"{end}_key"), f.col("name").alias(end), f.col("site").alias(f"{end}_site")
        )
        keyed = keyed.join(end_locations, f"{end}_key", "left")
        keyed = keyed.withColumn(end, f.coalesce(end, f"{end}_key"))
    return keyed


def _with_queue_name(known: DataFrame, queues: DataFrame) -> DataFrame:
    """Adds the name of the destination queue that people use: where a copy was found, or the name at its manager."""
    found = f.concat_ws(": ", "holder", f.regexp_replace("held_in", ";journal$", ""))
    named = known.withColumn("format_name", f.lower("destination_queue")).join(queues, "format_name", "left")
    return named.withColumn(
        "queue", f.coalesce(f.when(f.col("holder").isNotNull(), found), "queue", "destination_queue")
    )


def _state() -> Column:
    return (
        f.when(f.col("received_at").isNotNull(), "received")
        .when(f.col("dead_at").isNotNull(), "dead")
        .when(f.col("reached_at").isNotNull(), "reached")
        .when(f.col("outgoing_at").isNotNull() & f.col("left_at").isNull(), "outgoing")
        .when(~f.col("mentioned_only"), "sent")
        .otherwise("mentioned")
    )


def _wanted_acknowledgments() -> Column:
    """Which acknowledgments the sender wanted: `reach` its queue, `receive`, or both."""
    reach = f.when(f.col("asked_reach"), "reach")
    receive = f.when(f.col("asked_receive") | (f.col("delivery") == "transactional"), "receive")
    return f.concat_ws(",", reach, receive)


def _unexplained() -> Column:
    return f.coalesce((_state() == "sent") & (_wanted_acknowledgments() != ""), f.lit(False))


def _bounds() -> dict[str, Column]:
    """The bounds of each time. Copies have milliseconds, packets the second that has begun.

    A transactional message without other trace was received at some time before its sender knew it.
    """
    second = f.expr("interval 1 second")
    acknowledged = f.col("journal_at").isNull() & f.col("receive_ack_at").isNotNull()
    told = f.col("journal_at").isNull() & f.col("receive_ack_at").isNull()
    since = f.least(f.coalesce("reached_at", "sent_at"), "received_at")
    reached_by_report = f.col("queued_at").isNull()
    return {
        "sent_until": f.least(f.col("sent_at") + second, "home_at"),
        "reached_since": f.col("reached_at"),
        "reached_until": f.when(reached_by_report, f.col("reached_at") + second).otherwise(f.col("reached_at")),
        "received_since": f.when(told & f.col("received_at").isNotNull(), since).otherwise(f.col("received_at")),
        "received_until": f.when(acknowledged, f.col("received_at") + second).otherwise(f.col("received_at")),
    }


def _seconds(since: str, until: str) -> Column:
    """The seconds between two times. Never negative, even if the clocks disagree."""
    span = f.round((f.unix_micros(until) - f.unix_micros(since)) / 1_000_000, 3)
    return f.when(span.isNotNull(), f.greatest(span, f.lit(0.0)))


def _class_names(number: Column) -> Column:
    """Class names as in [MS-MQMQ] 2.2.18.1.6."""
    names = f.create_map(*(f.lit(each) for member in MessageClass for each in (member.value, class_name(member.value))))
    unknown = f.concat(f.lit("class-0x"), f.lower(f.lpad(f.hex(number), 4, "0")))
    return f.when(number.isNotNull(), f.coalesce(names[number], unknown))
