"""The dead-letter queue that a message names for itself: ApplicationDeadletterQueue, [MS-MQDMPR] 3.1.1.12."""

from __future__ import annotations

import pytest

from postroad.errors import InvalidMessage
from postroad.message import Message
from postroad.queues.outgoing_queues import Watcher
from postroad.wire.constants import MessageClass
from tests.unit.queues.harness import ACKS, DEADLETTER, DEADXACT, ELSEWHERE, JOURNAL, LEDGER, ORDERS, Harness

DEAD = r"private$\dead"


def dying(name: str | None = DEAD) -> Message:
    return Message(b"body", label="a", recoverable=True, time_to_be_received=5, dead_letter_queue=name)


@pytest.mark.spec("DM-3.1.1.12-05")
@pytest.mark.parametrize("destination", [ORDERS, ELSEWHERE])
@pytest.mark.parametrize("name", [DEAD, rf".\{DEAD}", rf"DIRECT=OS:.\{DEAD}"])
def test_a_message_that_dies_goes_to_the_queue_that_it_names(harness: Harness, destination: str, name: str) -> None:
    harness.create(DEAD)
    harness.send(destination, dying(name))
    harness.restart()
    harness.wait(7)
    assert (harness.labels(DEAD), harness.labels(DEADLETTER)) == (["a"], [])
    (reason,) = harness.classes(DEAD)
    assert reason in (MessageClass.NACK_RECEIVE_TIMEOUT, MessageClass.NACK_REACH_QUEUE_TIMEOUT)


@pytest.mark.spec("DM-3.1.1.12-05")
def test_a_transactional_message_goes_to_a_transactional_queue(harness: Harness) -> None:
    harness.create(DEAD, transactional=True)
    harness.send_transactional(LEDGER, dying())
    harness.wait(7)
    assert (harness.labels(DEAD), harness.labels(DEADXACT)) == (["a"], [])


def test_a_message_that_names_none_goes_to_the_system_queue(harness: Harness) -> None:
    harness.create(DEAD)
    harness.send(ORDERS, Message(label="a", dead_letter=True, time_to_be_received=5), dying(None))
    harness.wait(7)
    assert (harness.labels(DEAD), harness.labels(DEADLETTER)) == ([], ["a"])


@pytest.mark.parametrize(
    "name", [DEAD, rf"beta\{DEAD}", rf"DIRECT=OS:beta\{DEAD}", rf"{ORDERS};journal", r"private$\order_queue$"]
)
def test_the_system_queue_takes_what_the_named_one_cannot(harness: Harness, name: str) -> None:
    harness.send(ORDERS, dying(name))
    harness.wait(7)
    assert harness.labels(DEADLETTER) == ["a"]


@pytest.mark.parametrize("transactional", [True, False])
def test_a_named_queue_of_the_other_kind_is_not_used(harness: Harness, transactional: bool) -> None:
    harness.create(DEAD, transactional=not transactional)
    if transactional:
        harness.send_transactional(LEDGER, dying())
    else:
        harness.send(ORDERS, dying())
    harness.wait(7)
    assert (harness.labels(DEAD), harness.labels(DEADXACT if transactional else DEADLETTER)) == ([], ["a"])


def test_a_full_queue_leaves_the_dead_letter_to_the_system_queue(harness: Harness) -> None:
    harness.create(DEAD, quota_kb=0)
    harness.send(ORDERS, dying())
    harness.wait(7)
    assert (harness.labels(DEAD), harness.labels(DEADLETTER)) == ([], ["a"])
    assert harness.manager.delivery.overflows == {}


def test_the_end_of_a_dead_letter_is_told_once(harness: Harness) -> None:
    """An application reads or purges the dead letter. This is not another end of the message that died."""
    harness.create(DEAD)
    acknowledged = Message(
        label="a", journal=True, time_to_be_received=5, dead_letter_queue=DEAD, admin_queue=ACKS, ack="full"
    )
    for _ in range(2):
        harness.send(ORDERS, acknowledged)
    harness.wait(7)
    told = harness.classes(ACKS)
    assert harness.receive(DEAD) == ["a"]
    harness.purge(DEAD)
    assert (harness.labels(DEAD), harness.labels(DEADLETTER), harness.classes(ACKS)) == ([], [], told)
    assert len(harness.labels(JOURNAL)) == 2  # when they had arrived


def test_a_dead_letter_that_is_moved_to_a_queue_is_a_message_again(harness: Harness) -> None:
    harness.create(DEAD)
    harness.send(ORDERS, dying())
    harness.wait(7)
    dead = harness.queue(DEAD)
    harness.manager.move(dead, harness.queue(ORDERS), dead.available(1), harness.now)
    harness.tick()
    harness.purge(ORDERS)
    assert harness.labels(DEAD) == ["a"]


def test_its_name_must_be_one(harness: Harness) -> None:
    with pytest.raises(InvalidMessage, match="dead_letter_queue"):
        harness.send(ORDERS, dying("nonsense="))


def test_naming_it_asks_for_dead_letters(harness: Harness) -> None:
    harness.send(ORDERS, dying())
    (view,) = harness.messages(ORDERS)
    assert (view.negative_journaling, view.dead_letter_queue) == (True, rf".\{DEAD}")


def deaths(harness: Harness) -> list[tuple[str | None, int, str | None, bool]]:
    """What is reported for each message that dies: where, of what, where its dead letter goes, and whether that is
    lost."""
    told: list[tuple[str | None, int, str | None, bool]] = []
    harness.manager.watch(
        Watcher(died=lambda queue, packet, reason, letter, lost: told.append((queue, reason, letter, lost)))
    )
    return told


@pytest.mark.parametrize(
    ("letter", "place"), [(None, None), ("system", "system$;deadletter"), (DEAD, DEAD)], ids=["none", "system", "named"]
)
def test_each_death_is_reported_once(harness: Harness, letter: str | None, place: str | None) -> None:
    told = deaths(harness)
    harness.create(DEAD)
    name = letter if letter == DEAD else None
    message = Message(label="a", dead_letter=letter is not None, dead_letter_queue=name, time_to_be_received=5)
    harness.send(ORDERS, message)
    harness.wait(7)
    assert told == [(ORDERS, MessageClass.NACK_RECEIVE_TIMEOUT, place, False)]


def test_a_dead_letter_of_our_own_is_not_lost_without_a_word(harness: Harness) -> None:
    told = deaths(harness)
    harness.manager.queues.change(harness.manager.tick, harness.queue(DEADLETTER), 0, quota_kb=0)
    harness.send(ORDERS, Message(label="a", dead_letter=True, time_to_be_received=5))
    harness.purge(ORDERS)
    assert told == [(ORDERS, MessageClass.NACK_Q_PURGED, "system$;deadletter", True)]


def test_what_somebody_has_received_or_purged_has_not_died(harness: Harness) -> None:
    told = deaths(harness)
    harness.send(ORDERS, "a", "b")
    harness.receive(ORDERS)
    harness.purge(ORDERS)
    assert told == []
