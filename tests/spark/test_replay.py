"""Dead letters sent again: each once, whatever is killed. The original is removed only afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from postroad.client.opening import connect
from postroad.client.sync.queue import Queue
from postroad.describe.received import ReceivedMessage, new_message
from postroad.errors import InvalidArgument, ManagerUnavailable, PipelineError
from postroad.message import Message
from postroad.spark.pipeline import replay as module
from postroad.spark.pipeline.replay import message_json, read_message, replay
from tests.spark.packets import sent

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from postroad.client.sync.manager import QueueManager
    from tests.served import Served

ORDERS, RESCUED = r"private$\orders", r"private$\rescued"


@pytest.fixture
def manager(alpha: Served) -> Iterator[QueueManager]:
    """A manager with five dead letters, the third with another label, and a transactional one."""
    with connect(f"http://{alpha.server.host}:{alpha.server.port}") as found:
        orders = found.queue(ORDERS)
        for label in ("order 1", "order 2", "note", "order 3", "order 4"):
            orders.send(Message(f"{label}, spoilt", label=label, recoverable=True, dead_letter=True, app_tag=7))
        orders.purge()
        bills = found.create_queue(r"private$\bills", transactional=True)
        bills.send(Message("a bill", label="bill", dead_letter=True), transactional=True)
        bills.purge()
        found.create_queue(RESCUED)
        yield found


@pytest.fixture
def api(alpha: Served) -> str:
    return f"http://{alpha.server.host}:{alpha.server.port}"


def labels(queue: Queue) -> list[str]:
    return [message.label for message in queue.messages()]


def dead_letters(manager: QueueManager) -> list[str]:
    return labels(manager.queue(";deadletter"))


def repaired(letter: ReceivedMessage, message: Message) -> Message | None:
    assert letter.class_name == "nack-q-purged"
    if message.label == "order 2":
        return None
    text = letter.text
    assert text is not None
    message.body = text.removesuffix(", spoilt")
    return message


def test_chosen_letters_go_again_as_they_were_and_the_others_stay(
    spark: SparkSession, manager: QueueManager, api: str, tmp_path: Path
) -> None:
    seen = replay(spark, api, "label like 'order%'", plans=tmp_path, dry_run=True)
    assert (seen.selected, seen.sent, len(seen.planned)) == (4, 0, 4)
    assert dead_letters(manager) == ["order 1", "order 2", "note", "order 3", "order 4"]
    done = replay(spark, api, "reason = 'nack-q-purged' and label like 'order%'", plans=tmp_path)
    assert (done.selected, done.sent, done.removed) == (4, 4, 4)
    assert dead_letters(manager) == ["note"]
    found = list(manager.queue(ORDERS).messages())
    assert [message.label for message in found] == ["order 1", "order 2", "order 3", "order 4"]
    assert {(message.text, message.app_tag) for message in found} >= {("order 1, spoilt", 7)}
    assert manager.queue(";deadletter").holds() == []
    assert {file.suffix or file.name for file in tmp_path.glob("*.*")} == {".lock", ".sent"}


def test_a_function_repairs_them_and_may_leave_some(
    spark: SparkSession, manager: QueueManager, api: str, tmp_path: Path
) -> None:
    done = replay(spark, api, "label like 'order%'", plans=tmp_path, to=RESCUED, repair=repaired)
    assert (done.selected, done.sent) == (3, 3)
    assert [message.text for message in manager.queue(RESCUED).messages()] == ["order 1", "order 3", "order 4"]
    assert dead_letters(manager) == ["order 2", "note"]


def test_a_transactional_letter_goes_in_a_transaction(
    spark: SparkSession, manager: QueueManager, api: str, tmp_path: Path
) -> None:
    assert replay(spark, api, "queue = ';deadxact'", plans=tmp_path).sent == 1
    assert labels(manager.queue(r"private$\bills")) == ["bill"]
    assert manager.queue(";deadxact").info().messages == 0


@pytest.mark.parametrize("verb", ["submit", "commit_hold", "release"])
@pytest.mark.parametrize("after", [False, True])
def test_a_killed_replay_continues_and_sends_nothing_twice(
    spark: SparkSession,
    manager: QueueManager,
    api: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    verb: str,
    after: bool,
) -> None:
    """The replay is killed at the second call of a verb, before or after the manager has done it."""
    calls = 0
    honest = getattr(Queue, verb)

    def killed(*given: object, **named: object) -> object:
        nonlocal calls
        calls += 1
        if calls == 2 and not after:
            raise ManagerUnavailable(api, "it was killed")
        answer = honest(*given, **named)
        if calls == 2:
            raise ManagerUnavailable(api, "it was killed")
        return answer

    monkeypatch.setattr(module, "RUN_MESSAGES", 1)
    with monkeypatch.context() as patch:
        patch.setattr(Queue, verb, killed)
        with pytest.raises(ManagerUnavailable):
            replay(spark, api, "label like 'order%'", plans=tmp_path, to=RESCUED)
    replay(spark, api, "label like 'order%'", plans=tmp_path, to=RESCUED)
    assert labels(manager.queue(RESCUED)) == ["order 1", "order 2", "order 3", "order 4"]
    assert dead_letters(manager) == ["note"]
    assert manager.queue(";deadletter").holds() == []


def test_letters_that_somebody_else_holds_are_left_alone(
    spark: SparkSession, manager: QueueManager, api: str, tmp_path: Path
) -> None:
    manager.queue(";deadletter").hold("somebody", 0)
    assert replay(spark, api, "true", plans=tmp_path, queues=[";deadletter"]).selected == 0
    manager.queue(";deadletter").release("somebody")
    assert len(dead_letters(manager)) == 5


def test_a_destination_that_refuses_keeps_the_letters(
    spark: SparkSession, manager: QueueManager, api: str, tmp_path: Path
) -> None:
    with pytest.raises(PipelineError, match=r"private\$\\nowhere refused the dead letter"):
        replay(spark, api, "label like 'order%'", plans=tmp_path, to=r"private$\nowhere")
    assert len(dead_letters(manager)) == 5
    assert manager.queue(";deadletter").holds() == []
    assert replay(spark, api, "label = 'order 1'", plans=tmp_path).sent == 1


def test_a_wrong_expression_is_reported(spark: SparkSession, manager: QueueManager, api: str, tmp_path: Path) -> None:
    for wrong in ("colour = 'red'", "label like", "label = ", "label"):
        with pytest.raises(InvalidArgument, match=r"^where: [A-Z]((?!SQLSTATE).){10,}$"):
            replay(spark, api, wrong, plans=tmp_path)


def test_a_wrong_expression_is_reported_without_dead_letters(
    spark: SparkSession, alpha: Served, api: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(InvalidArgument, match=r"^where: .* `reasn` cannot be resolved"):
        replay(spark, api, "reasn = 'x'", plans=tmp_path)
    assert capfd.readouterr().err == ""
    assert replay(spark, api, "reason = 'x' and queue = ';deadletter'", plans=tmp_path).selected == 0


def test_a_dead_letter_becomes_the_same_message_even_through_json() -> None:
    wishes: dict[str, Any] = {
        "recoverable": True,
        "journal": True,
        "dead_letter": True,
        "ack": "full",
        "time_to_be_received": 60,
    }
    packet = sent(1, priority=6, app_tag=3, extension=b"\0\1", admin_queue=r"DIRECT=OS:a\private$\b", **wishes)
    message = new_message(ReceivedMessage(packet, 1, 0))
    assert (message.label, message.body, message.priority, message.app_tag) == ("message 1", b"body 1", 6, 3)
    assert (message.recoverable, message.journal, message.dead_letter) == (True, True, True)
    assert (message.extension, message.time_to_be_received, message.ack) == (b"\0\1", 60, 15)
    assert message.admin_queue == r"DIRECT=OS:a\private$\b"
    assert read_message(message_json(message)) == message
