"""AMQP 1.0 as Qpid Proton's client speaks it: send, receive, and every outcome of a message."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip(
    "proton", reason="the AMQP client python-qpid-proton is not installed: pip install postroad[amqp-test]"
)

from proton import Delivery, Message
from proton.utils import BlockingConnection, LinkDetached, SendException

from tests.amqp_door import ORDERS, PATIENCE_S, TX, AmqpDoor, amqp_door


@pytest.fixture(name="door")
def _door() -> Iterator[AmqpDoor]:
    with amqp_door() as door:
        yield door


@pytest.fixture(name="client")
def _client(door: AmqpDoor) -> Iterator[BlockingConnection]:
    connection = BlockingConnection(door.address, timeout=PATIENCE_S, allowed_mechs="ANONYMOUS")
    yield connection
    connection.close()


def fail(receiver: Any, *, undeliverable: bool = False) -> None:
    """Settles the message in hand as modified, with delivery-failed."""
    local = receiver.fetcher.unsettled[0].local
    local.failed, local.undeliverable = True, undeliverable
    receiver.settle(Delivery.MODIFIED)


def test_a_message_comes_as_it_was_sent(door: AmqpDoor, client: BlockingConnection) -> None:
    client.create_sender("private$/orders").send(Message(body=b"hello", subject="order 1", durable=True, inferred=True))
    [stored] = door.messages()
    assert (stored.body, stored.label, stored.delivery) == (b"hello", "order 1", "recoverable")
    receiver = client.create_receiver(ORDERS, credit=1)
    message = receiver.receive(timeout=PATIENCE_S)
    assert (bytes(message.body), message.subject, message.durable, message.delivery_count) == (
        *(b"hello", "order 1", True, 0),
    )
    assert message.id == message.annotations["x-opt-msmq-id"] == stored.id
    assert door.bodies() == []  # nobody else sees it
    receiver.accept()
    receiver.close()
    assert door.count() == 0


def test_a_transfer_to_a_transactional_queue_is_a_transaction_of_its_own(
    door: AmqpDoor, client: BlockingConnection
) -> None:
    sender = client.create_sender(TX)
    for number in range(3):
        sender.send(Message(body=b"%d" % number, inferred=True))
    found = [each.describe() for each in door.messages(TX)]
    assert [each["delivery"] for each in found] == ["transactional"] * 3
    assert len({each["transaction_id"] for each in found}) == 3
    assert all(each["first_in_transaction"] and each["last_in_transaction"] for each in found)


def test_what_is_released_comes_again_and_is_not_counted(door: AmqpDoor, client: BlockingConnection) -> None:
    door.send(b"one")
    receiver = client.create_receiver(ORDERS, credit=1)
    assert receiver.receive(timeout=PATIENCE_S).delivery_count == 0
    receiver.release(delivered=False)
    assert receiver.receive(timeout=PATIENCE_S).delivery_count == 0


def test_what_failed_comes_again_with_a_count(door: AmqpDoor, client: BlockingConnection) -> None:
    door.send(b"one")
    receiver = client.create_receiver(ORDERS, credit=1)
    receiver.receive(timeout=PATIENCE_S)
    receiver.release(delivered=True)  # modified, and not failed
    assert receiver.receive(timeout=PATIENCE_S).delivery_count == 0
    fail(receiver)
    assert receiver.receive(timeout=PATIENCE_S).delivery_count == 1


@pytest.mark.parametrize(("queue", "letters"), [(ORDERS, ";deadletter"), (TX, ";deadxact")])
def test_what_is_rejected_becomes_a_dead_letter(
    door: AmqpDoor, client: BlockingConnection, queue: str, letters: str
) -> None:
    door.send(b"one", queue=queue)
    receiver = client.create_receiver(queue, credit=1)
    receiver.receive(timeout=PATIENCE_S)
    receiver.reject()
    receiver.close()
    [letter] = door.messages(letters)
    assert (letter.body, letter.class_name) == (b"one", "nack-receive-rejected")
    assert door.bodies(queue) == []


def test_a_link_that_ends_gives_back_what_it_holds(door: AmqpDoor, client: BlockingConnection) -> None:
    door.send(b"one", b"two")
    receiver = client.create_receiver(ORDERS, credit=2)
    receiver.receive(timeout=PATIENCE_S)
    receiver.close()
    assert door.bodies() == [b"one", b"two"]
    assert [each.aborts for each in door.messages()] == [0, 0]


def test_an_unknown_queue_refuses_the_link(client: BlockingConnection) -> None:
    for attach in (client.create_sender, client.create_receiver):
        with pytest.raises(LinkDetached, match=r"amqp:not-found.*there is no queue"):
            attach("private$/nothing")


def test_a_message_over_4_mib_is_rejected_and_the_connection_stays(door: AmqpDoor, client: BlockingConnection) -> None:
    sender = client.create_sender(ORDERS)
    for size in (5 << 20, 4 << 20):
        with pytest.raises(SendException) as caught:
            sender.send(Message(body=b"x" * size, inferred=True))
        assert caught.value.state == Delivery.REJECTED
    sender.send(Message(body=b"y" * (3 << 20), inferred=True))
    assert [len(each) for each in door.bodies()] == [3 << 20]
