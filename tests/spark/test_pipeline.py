"""The pipeline on a real manager: new messages are read once, whatever is killed, and the tables tell what happened."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from postroad.client.opening import connect
from postroad.errors import InvalidArgument, PipelineError
from postroad.message import Message
from postroad.spark.pipeline import run as running
from postroad.spark.pipeline.advice import advice
from postroad.spark.pipeline.facts import gather
from postroad.spark.pipeline.lake import ACKNOWLEDGMENTS, BRONZE, DELIVERY, DEPTHS, TABLES, Lake
from postroad.spark.pipeline.lake_files import LocalFiles
from postroad.spark.pipeline.replay import replay
from postroad.spark.pipeline.run import run
from postroad.spark.pipeline.silver import DEAD, QUEUED, RECEIVED, SENT
from postroad.spark.pipeline.sources import sources, unmatched

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.served import Served

ORDERS, ANSWERS = r"private$\orders", r"private$\answers"


def address(alpha: Served) -> str:
    return f"http://{alpha.server.host}:{alpha.server.port}"


def send(alpha: Served, *labels: str, **properties: Any) -> None:
    with connect(address(alpha)) as manager:
        asked = {"ack": "reach-queue,receive", "admin_queue": manager.queue(ANSWERS).info().format_name}
        manager.send(ORDERS, [Message("body", label=label, journal=True, **(asked | properties)) for label in labels])


@pytest.fixture
def filled(alpha: Served) -> Served:
    """A manager with a journaled queue and a queue for acknowledgments, with messages in both."""
    with connect(address(alpha)) as manager:
        manager.queue(ORDERS).change(journal=True)
        manager.create_queue(ANSWERS)
        send(alpha, "one", "two", recoverable=True)
        manager.queue(ORDERS).receive(timeout=5)
    return alpha


def states(lake: Lake) -> dict[str, str]:
    return {row["label"]: row["state"] for row in lake.rows(DELIVERY)}


def test_the_queues_of_a_manager_have_their_roles(filled: Served) -> None:
    found = {source.queue: source.role for source in sources(address(filled))}
    assert found == {
        ";journal": SENT,
        ";deadletter": DEAD,
        ";deadxact": DEAD,
        ORDERS: QUEUED,
        f"{ORDERS};journal": RECEIVED,
        ANSWERS: QUEUED,
        f"{ANSWERS};journal": RECEIVED,
    }
    chosen = sources(address(filled), patterns=[r"private$\A*", ";dead*"])
    assert {source.queue for source in chosen} == {ANSWERS, f"{ANSWERS};journal", ";deadletter", ";deadxact"}


def test_a_queue_is_known_by_every_name_that_messages_can_have(filled: Served) -> None:
    (orders,) = sources(address(filled), patterns=[ORDERS])
    with connect(address(filled)) as manager:
        private = manager.queue(ORDERS).info().format_name
    assert orders.called == rf"alpha: {ORDERS}"
    assert orders.names == [private, rf"DIRECT=OS:alpha\{ORDERS}", rf"DIRECT=TCP:127.0.0.1\{ORDERS}"]
    (journal,) = sources(address(filled), patterns=[f"{ORDERS};journal"])
    assert journal.names == []


def test_a_run_reads_only_new_messages(spark: SparkSession, filled: Served, tmp_path: Path) -> None:
    lake = Lake(spark, tmp_path)
    told: list[tuple[str, int, int]] = []
    first = run(lake, sources(address(filled)), None, lambda *step: told.append(step))
    # two in the manager's journal, one in the queue, one in its journal, and three acknowledgments
    assert (first.batch, first.packets) == (1, 7)
    assert [done for _, done, _ in told] == list(range(1, len(TABLES) + 2))
    assert states(lake) == {"one": "received", "two": "reached"}
    assert len(lake.rows(ACKNOWLEDGMENTS)) == 3
    waiting = {row["queue"]: row["messages"] for row in gather(lake).queues if row["role"] == QUEUED}
    assert waiting == {ORDERS: 1, ANSWERS: 3}

    made = lake.table(DELIVERY).last()
    assert run(lake, sources(address(filled))).packets == 0
    assert len(lake.rows(BRONZE)) == 7
    assert sum(";" not in row["queue"] for row in lake.rows(DEPTHS)) == 4  # two queues, two looks
    assert lake.table(DELIVERY).last() == made  # there is nothing new, so it is not made again

    with connect(address(filled)) as manager:
        manager.queue(ORDERS).receive(timeout=5)
    send(filled, "three", dead_letter=True)
    with connect(address(filled)) as manager:
        manager.queue(ORDERS).purge()
    second = run(lake, sources(address(filled)))
    assert second.batch == 2
    assert states(lake) == {"one": "received", "two": "received", "three": "dead"}
    facts = gather(Lake(None, tmp_path))
    assert facts.by_state == {"received": 2, "dead": 1}
    assert facts.reasons == {"nack-q-purged": 1}
    assert facts.total("duplicates") == facts.total("unexplained") == 0
    with connect(address(filled)) as manager:
        assert facts.by_state["dead"] == manager.queue(";deadletter").info().messages


@pytest.mark.parametrize("killed_at", [BRONZE, DELIVERY])
def test_a_run_that_was_killed_is_finished_by_the_next(
    spark: SparkSession, filled: Served, tmp_path: Path, killed_at: str
) -> None:
    lake = Lake(spark, tmp_path)
    found = sources(address(filled))

    def kill(what: str, *_: object) -> None:
        if what == killed_at:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(lake, found, None, kill)
    send(filled, "three")
    run(lake, sources(address(filled)))
    packets = [(row["manager_id"], row["queue"], row["lookup_id"]) for row in lake.rows(BRONZE)]
    assert len(packets) == len(set(packets))
    assert states(lake) == {"one": "received", "two": "reached", "three": "reached"}


@pytest.mark.parametrize("killed", [False, True])
def test_consumed_messages_leave_once_they_are_in_the_tables(
    spark: SparkSession, filled: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed: bool
) -> None:
    lake = Lake(spark, tmp_path)
    emptied = ["*;journal", ANSWERS]
    if killed:  # between the commit and the removal
        with monkeypatch.context() as patch:
            patch.setattr(running, "remove_consumed", lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                run(lake, sources(address(filled), consume=emptied))
        with connect(address(filled)) as manager:
            assert manager.queue(";journal").info().messages == 2
            assert list(manager.queue(";journal").messages()) == []  # held
    outcome = run(lake, sources(address(filled), consume=emptied))
    assert outcome.removed == 6
    assert len(lake.rows(BRONZE)) == 7
    with connect(address(filled)) as manager:
        left = {queue.path: queue.messages for queue in manager.queues() if queue.messages}
        assert left == {ORDERS: 1}
        assert manager.queue(";journal").holds() == []


def test_a_directory_keeps_its_format(spark: SparkSession, tmp_path: Path) -> None:
    assert Lake(spark, tmp_path, "delta").form == "delta"
    assert Lake(spark, tmp_path).form == "delta"
    with pytest.raises(PipelineError, match="the format must be delta, that of its tables, got iceberg"):
        Lake(spark, tmp_path, "iceberg")
    with pytest.raises(InvalidArgument, match="must be one of parquet, delta, iceberg, got 'csv'"):
        Lake(spark, tmp_path, "csv")
    with pytest.raises(PipelineError, match="has no table gold/states yet"):
        gather(Lake(None, tmp_path))


def test_dead_letters_that_were_sent_again_are_known(spark: SparkSession, filled: Served, tmp_path: Path) -> None:
    send(filled, "three", "four", dead_letter=True)
    with connect(address(filled)) as manager:
        manager.queue(ORDERS).purge()
    lake = Lake(spark, tmp_path)
    run(lake, sources(address(filled)))
    (told,) = advice(gather(lake))
    replays = f"--lake {tmp_path} --api {address(filled)}"
    assert told.commands == (f"postroad pipeline replay {replays} --where \"reason = 'nack-q-purged'\"",)

    assert replay(spark, address(filled), "label = 'three'", plans=lake.replays).sent == 1
    run(lake, [])  # there is nothing new in any queue that is read
    facts = gather(lake)
    assert (facts.reasons, facts.replayed) == ({"nack-q-purged": 2}, {"nack-q-purged": 1})
    assert {row["label"] for row in lake.rows(DELIVERY) if row["replayed"]} == {"three"}

    assert replay(spark, address(filled), "reason = 'nack-q-purged'", plans=lake.replays).sent == 1
    run(lake, sources(address(filled)))
    facts = gather(lake)
    assert (facts.by_state["dead"], facts.replayed.total(), advice(facts)) == (2, 2, [])


def test_a_directory_that_cannot_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for wrong in (tmp_path / "file", tmp_path / "file" / "lake"):
        with pytest.raises(PipelineError, match=re.escape(f"{wrong} cannot be used for tables: ")):
            Lake(None, wrong)
        with pytest.raises(PipelineError, match=re.escape(f"{wrong} cannot be written: ")), LocalFiles(wrong).lock():
            pass


def test_a_pattern_that_names_no_queue_is_found(filled: Served) -> None:
    patterns = [r"PRIVATE$\Orders", r"private$\nosuch", ";dead*"]
    assert unmatched(sources(address(filled), patterns=patterns), patterns) == [r"private$\nosuch"]


def test_a_manager_without_messages_makes_no_batch(spark: SparkSession, alpha: Served, tmp_path: Path) -> None:
    assert run(Lake(spark, tmp_path), sources(address(alpha))).batch == 0
