"""Silver and gold on real packets: the fate of every message, from copies, acknowledgments and reports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow
import pyarrow.compute as pc
import pytest
from pyspark.sql import functions as f

from postroad.names import MessageId
from postroad.spark.pipeline import silver, summaries
from postroad.spark.pipeline.conversations import CHAIN_COLUMNS, chains, counts, hours
from postroad.spark.pipeline.fates import delivery
from postroad.spark.pipeline.locations import KnownManager, locations, message_ids, queue_names
from postroad.spark.pipeline.passes import Summary, in_driver, in_tasks
from postroad.spark.pipeline.service_levels import latency, spans
from postroad.spark.pipeline.summaries import floor_rows
from postroad.spark.pipeline.traffic import link_traffic, traffic
from postroad.spark.pipeline.trends import Periods, trend
from postroad.wire.constants import MessageClass
from tests.enterprises import client, directory, link, server, site
from tests.spark.packets import (
    LONDON,
    NAMES,
    NOON_S,
    ORDERS,
    ROME,
    Copy,
    acknowledgment,
    bronze,
    in_sequence,
    report,
    sent,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from postroad.directory.snapshot import Directory

ADMIN = rf"PRIVATE={LONDON}\2"
pytestmark = pytest.mark.usefixtures("as_if_large")
JOURNAL, QUEUE = r"private$\orders;journal", r"private$\orders"
ASKED: dict[str, Any] = {"ack": "reach-queue,receive", "admin_queue": ADMIN}


COPIES = (
    # 1: sent, traced, received; 2: received twice; 3: dead; 4: reached, by its acknowledgment alone
    Copy(LONDON, ";journal", silver.SENT, sent(1, priority=7), 1.0),
    Copy(ROME, JOURNAL, silver.RECEIVED, sent(1, priority=7), 2.5),
    Copy(LONDON, r"london\reports", silver.QUEUED, report(1, 1, ROME, 2), 3.0),
    Copy(LONDON, r"london\reports", silver.QUEUED, report(1, 0, LONDON, 1), 3.0),
    Copy(ROME, JOURNAL, silver.RECEIVED, sent(2), 1.0),
    Copy(ROME, JOURNAL, silver.RECEIVED, sent(2), 4.0),
    Copy(LONDON, ";deadletter", silver.DEAD, sent(3), 61.0, reason=MessageClass.NACK_REACH_QUEUE_TIMEOUT),
    Copy(LONDON, r"private$\answers", silver.QUEUED, acknowledgment(4, MessageClass.ACK_REACH_QUEUE, at_s=4), 5.0),
    # 5: asked to be acknowledged, and was not; 6: did not ask
    Copy(LONDON, ";journal", silver.SENT, sent(5, **ASKED), 1.0),
    Copy(LONDON, ";journal", silver.SENT, sent(6), 1.0),
    # 7: still in an outgoing queue; 8: in its queue at one reading, received at the next
    Copy(LONDON, ORDERS, silver.OUTGOING, sent(7), 1.0),
    Copy(ROME, QUEUE, silver.QUEUED, sent(8), 1.0),
    Copy(ROME, JOURNAL, silver.RECEIVED, sent(8), 9.0, batch=2),
    # 9, 10, 11: a sequence in which the second overtook the first; the third has been acknowledged as received
    Copy(ROME, JOURNAL, silver.RECEIVED, in_sequence(10, 2), 1.0),
    Copy(ROME, JOURNAL, silver.RECEIVED, in_sequence(9, 1), 2.0),
    Copy(LONDON, ";journal", silver.SENT, in_sequence(11, 3), 3.0),
    # 12: its sender was told that it died, and its receiver has it
    Copy(ROME, JOURNAL, silver.RECEIVED, sent(12), 5.0),
    Copy(LONDON, r"private$\answers", silver.QUEUED, acknowledgment(12, MessageClass.NACK_RECEIVE_TIMEOUT), 6.0),
    # 13: refused, as only an acknowledgment says
    Copy(LONDON, r"private$\answers", silver.QUEUED, acknowledgment(13, MessageClass.NACK_Q_EXCEED_QUOTA, at_s=7), 8.0),
    Copy(ROME, QUEUE, silver.QUEUED, b"no packet at all", 5.0),
    Copy(ROME, QUEUE, silver.QUEUED, sent(14)[:-4], 6.0),
    # 15: still in its queue, which has no messages below FLOOR
    Copy(ROME, QUEUE, silver.QUEUED, sent(15), 1.0),
)
FLOOR = len(COPIES)  # the arrival number of the last copy


def enterprise() -> Directory:
    return directory(
        site("uk"),
        site("france"),
        site("italy"),
        link("uk", "france", 1, "gate-uk gate-fr"),
        link("france", "italy", 2, "gate-fr gate-it"),
        server("gate-uk", "uk"),
        server("gate-fr", "france"),
        server("gate-it", "italy"),
        client("london", "uk"),
        client("rome", "italy"),
    )


@dataclass(frozen=True, slots=True)
class Told:
    decoded: DataFrame
    gold: DataFrame
    rows: dict[int, dict[str, Any]]


@pytest.fixture(scope="module")
def told(spark: SparkSession, as_if_large: None) -> Iterator[Told]:
    decoded = silver.decode(bronze(spark, COPIES)).persist()
    where = locations(spark, [KnownManager(str(guid), name) for guid, name in NAMES.items()], enterprise())
    called = queue_names(spark, {ORDERS: r"rome: private$\orders"})
    tables = (silver.messages(decoded), silver.acknowledgments(decoded), silver.reports(decoded))
    again = message_ids(spark, [str(MessageId(LONDON, 3))])
    floors = floor_rows(spark, {f"{ROME}|{QUEUE}": FLOOR})
    gold = delivery(*tables, where, called, again, floors).persist()
    rows = {int(row["id"].rpartition("\\")[2]): row.asDict() for row in gold.collect()}
    yield Told(decoded, gold, rows)
    gold.unpersist()
    decoded.unpersist()


def test_every_message_has_the_most_that_is_known_of_it(told: Told) -> None:
    assert {number: row["state"] for number, row in told.rows.items()} == {
        1: "received",
        2: "received",
        3: "dead",
        4: "reached",
        5: "sent",
        6: "sent",
        7: "outgoing",
        8: "received",
        9: "received",
        10: "received",
        11: "received",
        12: "received",
        13: "dead",
        15: "reached",
    }


def test_a_message_has_its_ends_by_name_and_site_and_its_queue_as_people_call_it(told: Told) -> None:
    for number in (1, 3, 4, 7):
        row = told.rows[number]
        assert (row["source"], row["source_site"]) == ("london", "uk")
        assert (row["destination"], row["destination_site"]) == ("rome", "italy")
        assert row["queue"] == r"rome: private$\orders"


def test_times_and_the_seconds_between_them(told: Told) -> None:
    row = told.rows[1]
    assert row["sent_at"] == datetime.fromtimestamp(NOON_S, UTC).replace(tzinfo=None)
    assert (row["receive_s"], row["reach_s"]) == (2.5, None)
    assert told.rows[8]["reach_s"] == 1.0
    assert told.rows[8]["receive_s"] == 9.0
    assert (row["receive_least_s"], row["reach_least_s"]) == (1.5, None)  # sent at noon, or later in that second


def test_the_way_lists_the_reporting_managers_by_hops(told: Told) -> None:
    assert told.rows[1]["way"] == ["london", "rome"]
    assert told.rows[2]["way"] == []


def test_dead_messages_have_the_reason_of_the_dead_letter_or_of_the_acknowledgment(told: Told) -> None:
    assert told.rows[3]["reason"] == "nack-reach-queue-timeout"
    assert told.rows[13]["reason"] == "nack-q-exceed-quota"
    assert told.rows[1]["reason"] is None


def test_a_message_that_was_received_twice_is_a_duplicate_and_one_that_was_seen_before_is_not(told: Told) -> None:
    assert {number: row["duplicates"] for number, row in told.rows.items() if row["duplicates"]} == {2: 1}


def test_a_message_behind_a_later_one_of_its_sequence_is_out_of_order(told: Told) -> None:
    assert [number for number, row in told.rows.items() if row["out_of_order"]] == [9]


def test_a_message_without_its_requested_acknowledgment_is_unexplained(told: Told) -> None:
    assert [number for number, row in told.rows.items() if row["unexplained"]] == [5]
    assert told.rows[5]["asked"] == "reach,receive"
    assert told.rows[11]["asked"] == "receive"


def test_a_message_both_received_and_dead_is_contradicted(told: Told) -> None:
    assert [number for number, row in told.rows.items() if row["contradicted"]] == [12]


def test_whether_a_message_is_still_in_its_queue_is_known_where_the_queue_was_looked_at(told: Told) -> None:
    assert {number: row["in_queue"] for number, row in told.rows.items() if row["in_queue"] is not None} == {
        8: False,
        15: True,
    }
    (reached,) = [
        row for row in made(told, summaries.states) if row["state"] == "reached" and row["delivery"] is not None
    ]
    assert (reached["messages"], reached["in_queue"], reached["left_queue"]) == (1, 1, 0)


def test_undecodable_packets_are_kept_with_the_error_and_first_bytes(told: Told) -> None:
    rows = silver.undecodable(told.decoded).orderBy("arrival").collect()
    assert [row["head"] for row in rows] == [b"no packet at all".hex(), sent(14)[:64].hex()]
    assert all(row["error"] for row in rows)
    counted = summaries.undecodable(silver.undecodable(told.decoded).toArrow()).to_pylist()
    assert sum(row["packets"] for row in counted) == 2


def test_the_summaries_add_up(told: Told) -> None:
    states = made(told, summaries.states)
    assert sum(row["messages"] for row in states) == len(told.rows)
    for until in ("reach", "receive"):
        counted = sum(sum(row[f"{until}_spread"]) for row in states)
        assert counted == sum(row[f"{until}_s"] is not None for row in told.rows.values())
    dead = made(told, summaries.dead_letters)
    columns = ("reason", "source", "dead_in", "messages", "replayed")
    assert {tuple(row[column] for column in columns) for row in dead} == {
        ("nack-reach-queue-timeout", "london", "london", 1, 1),
        ("nack-q-exceed-quota", "london", None, 1, 0),  # only an acknowledgment tells
    }
    assert [row["id"].rpartition("\\")[2] for row in made(told, summaries.oldest)] == ["5"]


def test_latency_is_counted_in_all_and_by_queue_route_and_priority(told: Told) -> None:
    rows = {(row["by"], row["value"], row["until"]): row for row in latency(table(told, spans)).to_pylist()}
    seconds = sorted(row["receive_s"] for row in told.rows.values() if row["receive_s"] is not None)
    everything = rows["all", "all", "receive"]
    assert (everything["messages"], everything["max_s"]) == (len(seconds), 9.0)
    assert everything["p50_s"] == seconds[len(seconds) // 2]
    assert rows["priority", "7", "receive"]["p99_s"] == 2.5
    assert rows["route", "london -> rome", "receive"]["messages"] == len(seconds)
    assert rows["queue", r"rome: private$\orders", "reach"]["p50_s"] == 1.0


def test_traffic_is_counted_by_minute_and_by_link(told: Told) -> None:
    by_minute = table(told, traffic)
    size = sum(row["size"] or 0 for row in told.rows.values())
    assert (sum(by_minute["messages"].to_pylist()), sum(by_minute["bytes"].to_pylist())) == (len(told.rows), size)
    sums: Counter[tuple[str, str]] = Counter()
    for row in link_traffic(by_minute, enterprise()).to_pylist():
        sums[row["site_a"], row["site_b"]] += row["messages"]
    assert sums == {("france", "uk"): len(told.rows), ("france", "italy"): len(told.rows)}
    assert link_traffic(by_minute, None).num_rows == 0


def table(told: Told, summary: Summary) -> pyarrow.Table:
    return in_driver(told.gold.toArrow(), {"it": summary})["it"]


def made(told: Told, summary: Summary) -> list[dict[str, Any]]:
    return list(table(told, summary).to_pylist())


def test_tasks_make_the_same_summaries_as_the_driver(told: Told) -> None:
    wanted = {"states": summaries.states, "spans": spans, "traffic": traffic, "dead": summaries.dead_letters}
    wanted |= {"hours": hours, "counts": counts, "oldest": summaries.oldest}
    ours, theirs = (make(of, wanted) for make, of in ((in_driver, told.gold.toArrow()), (in_tasks, told.gold)))
    for name in wanted:
        rows = [Counter(repr(sorted(row.items())) for row in each[name].to_pylist()) for each in (ours, theirs)]
        assert rows[0] == rows[1], name
        assert ours[name].num_rows


def trend_of(delivered: DataFrame) -> list[dict[str, Any]]:
    rows = delivered.toArrow()
    periods = Periods.of(in_driver(rows, {"states": summaries.states})["states"])
    return list(in_driver(rows, {"trend": trend(periods)})["trend"].to_pylist())


def test_two_periods_are_compared_if_the_data_covers_both(told: Told) -> None:
    """The first message was sent at noon and the last one died 61 s later, which is less than two minutes."""
    assert trend_of(told.gold) == []
    later = told.gold.where("label = 'message 3'").withColumn("dead_at", f.expr("dead_at + interval 61 seconds"))
    rows = {(row["period"], row["by"]): row for row in trend_of(told.gold.where("id not like '%3'").union(later))}
    now, before = rows["now", "all"], rows["before", "all"]
    assert (now["until"] - now["since"]).total_seconds() == 60
    assert before["until"] == now["since"]
    assert (now["sent"], now["received"], now["died"]) == (0, 0, 1)
    received = [row for number, row in told.rows.items() if row["state"] == "received"]
    assert before["received"] == sum(row["received_at"].replace(tzinfo=UTC) >= before["since"] for row in received)
    assert (now["receive_p90_s"], rows["now", "route"]["value"]) == (None, "london -> rome")


def test_a_queue_without_messages_in_both_periods_is_not_compared(told: Told) -> None:
    """There are messages of the day before, and a period is six hours long."""
    day = f.expr("interval 1 day")
    events = {name: f.col(name) - day for name in ("sent_at", "reached_at", "received_at", "dead_at")}
    rows = trend_of(told.gold.union(told.gold.withColumns(events | {"queue": f.lit("quiet")})))
    assert {row["value"] for row in rows if row["by"] == "queue"} == {r"rome: private$\orders"}
    sent = {row["period"]: row["sent"] for row in rows if row["by"] == "all"}
    assert sent == {"now": sum(row["sent_at"] is not None for row in told.rows.values()), "before": 0}


@pytest.mark.parametrize(
    ("answers", "chain"),
    [
        ({1: None, 2: None}, None),
        ({1: None, 2: 1}, ("1", 1, 1)),
        ({n: n - 1 or None for n in range(1, 42)}, ("1", 40, 40)),
        ({1: 2, 2: 3, 3: 1, 4: 1, 5: 4}, None),  # 4 and 5 lead into a circle
    ],
)
def test_chains_end_where_no_answer_has_one(answers: dict[int, int | None], chain: tuple[str, int, int] | None) -> None:
    assert [(row["id"], row["steps"], row["followers"]) for row in _chains(answers)] == [chain] * bool(chain)


def _chains(answers: dict[int, int | None]) -> list[dict[str, Any]]:
    """The chains of messages that answer each other. The first one is no exchange."""
    at = pyarrow.array([(NOON_S + n) * 1_000_000 for n in answers], pyarrow.timestamp("us", "UTC"))
    until = pyarrow.array([(NOON_S + n + 1) * 1_000_000 for n in answers], pyarrow.timestamp("us", "UTC"))
    names = {"id": list(map(str, answers)), "label": [f"m{n}" for n in answers], "source": ["london"] * len(answers)}
    to = pyarrow.array([None if to is None else str(to) for to in answers.values()], pyarrow.string())
    rows = pyarrow.table(names | {"sent_at": at, "sent_until": until, "correlation_id": to})

    def others(ids: pyarrow.Array) -> pyarrow.Table:
        return rows.filter(pc.is_in(rows["id"], ids)).select(list(CHAIN_COLUMNS))

    return list(chains(rows.filter(pc.is_valid(rows["correlation_id"])), others).to_pylist())


def test_chains_of_answers_are_followed_to_their_first_message() -> None:
    """1 is answered by 2 and 3, 3 by 4, and 4 by 5. 6 answers an unknown message, and 7 answers itself."""
    answers = {1: None, 2: 1, 3: 1, 4: 3, 5: 4, 6: 99, 7: 7}
    found = _chains(answers)
    assert [(row["id"], row["steps"], row["followers"], row["seconds"]) for row in found] == [("1", 3, 4, 5.0)]
    assert found[0]["least_seconds"] == 3.0
