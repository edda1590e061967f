"""The dead-letter queue that a message names for itself: ApplicationDeadletterQueue, [MS-MQDMPR] 3.1.1.12."""

from __future__ import annotations

import pytest

from postroad.errors import InvalidMessage
from postroad.message import Message
from postroad.wire.constants import MessageClass
from tests.unit.queues.office import ACKS, DEADLETTER, DEADXACT, ELSEWHERE, JOURNAL, LEDGER, ORDERS, Office

DEAD = r"private$\dead"


def dying(name: str | None = DEAD) -> Message:
    return Message(b"body", label="a", recoverable=True, time_to_be_received=5, dead_letter_queue=name)


@pytest.mark.spec("DM-3.1.1.12-05")
@pytest.mark.parametrize("destination", [ORDERS, ELSEWHERE])
@pytest.mark.parametrize("name", [DEAD, rf".\{DEAD}", rf"DIRECT=OS:.\{DEAD}"])
def test_a_message_that_dies_goes_to_the_queue_that_it_names(office: Office, destination: str, name: str) -> None:
    office.create(DEAD)
    office.send(destination, dying(name))
    office.restart()
    office.wait(7)
    assert (office.labels(DEAD), office.labels(DEADLETTER)) == (["a"], [])
    (reason,) = office.classes(DEAD)
    assert reason in (MessageClass.NACK_RECEIVE_TIMEOUT, MessageClass.NACK_REACH_QUEUE_TIMEOUT)


@pytest.mark.spec("DM-3.1.1.12-05")
def test_a_transactional_message_goes_to_a_transactional_queue(office: Office) -> None:
    office.create(DEAD, transactional=True)
    office.send_transactional(LEDGER, dying())
    office.wait(7)
    assert (office.labels(DEAD), office.labels(DEADXACT)) == (["a"], [])


def test_a_message_that_names_none_goes_to_the_system_queue(office: Office) -> None:
    office.create(DEAD)
    office.send(ORDERS, Message(label="a", dead_letter=True, time_to_be_received=5), dying(None))
    office.wait(7)
    assert (office.labels(DEAD), office.labels(DEADLETTER)) == ([], ["a"])


@pytest.mark.parametrize(
    "name", [DEAD, rf"beta\{DEAD}", rf"DIRECT=OS:beta\{DEAD}", rf"{ORDERS};journal", r"private$\order_queue$"]
)
def test_the_system_queue_takes_what_the_named_one_cannot(office: Office, name: str) -> None:
    office.send(ORDERS, dying(name))
    office.wait(7)
    assert office.labels(DEADLETTER) == ["a"]


@pytest.mark.parametrize("transactional", [True, False])
def test_a_named_queue_of_the_other_kind_is_not_used(office: Office, transactional: bool) -> None:
    office.create(DEAD, transactional=not transactional)
    if transactional:
        office.send_transactional(LEDGER, dying())
    else:
        office.send(ORDERS, dying())
    office.wait(7)
    assert (office.labels(DEAD), office.labels(DEADXACT if transactional else DEADLETTER)) == ([], ["a"])


def test_a_full_queue_leaves_the_dead_letter_to_the_system_queue(office: Office) -> None:
    office.create(DEAD, quota_kb=0)
    office.send(ORDERS, dying())
    office.wait(7)
    assert (office.labels(DEAD), office.labels(DEADLETTER)) == ([], ["a"])
    assert office.manager.delivery.overflows == {}


def test_the_end_of_a_dead_letter_is_told_once(office: Office) -> None:
    """Whether an application reads it or purges it: that is no end of the message that died."""
    office.create(DEAD)
    acknowledged = Message(
        label="a", journal=True, time_to_be_received=5, dead_letter_queue=DEAD, admin_queue=ACKS, ack="full"
    )
    for _ in range(2):
        office.send(ORDERS, acknowledged)
    office.wait(7)
    told = office.classes(ACKS)
    assert office.receive(DEAD) == ["a"]
    office.purge(DEAD)
    assert (office.labels(DEAD), office.labels(DEADLETTER), office.classes(ACKS)) == ([], [], told)
    assert len(office.labels(JOURNAL)) == 2  # when they had arrived


def test_a_dead_letter_that_is_moved_to_a_queue_is_a_message_again(office: Office) -> None:
    office.create(DEAD)
    office.send(ORDERS, dying())
    office.wait(7)
    dead = office.queue(DEAD)
    office.manager.move(dead, office.queue(ORDERS), dead.available(1), office.now)
    office.tick()
    office.purge(ORDERS)
    assert office.labels(DEAD) == ["a"]


def test_its_name_must_be_one(office: Office) -> None:
    with pytest.raises(InvalidMessage, match="dead_letter_queue"):
        office.send(ORDERS, dying("nonsense="))


def test_naming_it_asks_for_dead_letters(office: Office) -> None:
    office.send(ORDERS, dying())
    (view,) = office.messages(ORDERS)
    assert (view.negative_journaling, view.dead_letter_queue) == (True, rf".\{DEAD}")
