"""How a message names its response queue: by our address if no directory knows us."""

from __future__ import annotations

import pytest

from postroad.message import Message
from postroad.names import parse_format_name
from postroad.queues.collection import AnswerAddresses
from postroad.wire.queue_names import admin_name, response_name
from postroad.wire.view import MessageView
from tests.unit.queues.harness import ACKS, ELSEWHERE, IDENTIFIER, ORDERS, Harness

HTTP = "DIRECT=HTTP://beta/msmq/private$/orders"
PRIVATE = rf"PRIVATE={IDENTIFIER}\8"
BOTH = AnswerAddresses("TCP:10.0.0.5", "HTTP://10.0.0.5:8080/msmq")
BY_TCP, BY_HTTP = r"DIRECT=TCP:10.0.0.5\private$\orders", "DIRECT=HTTP://10.0.0.5:8080/msmq/private$/orders"


@pytest.mark.parametrize(
    ("addresses", "destination", "wanted"),
    [
        (BOTH, ELSEWHERE, BY_TCP),
        (BOTH, r"DIRECT=TCP:10.0.0.6\private$\orders", BY_TCP),
        (BOTH, HTTP, BY_HTTP),
        (AnswerAddresses(binary=BOTH.binary), HTTP, BY_TCP),
        (AnswerAddresses(http=BOTH.http), ELSEWHERE, BY_HTTP),
        (AnswerAddresses("TCP:fe80::1", "HTTP://[fe80::1]:80/msmq"), ELSEWHERE, r"DIRECT=TCP:fe80::1\private$\orders"),
        (AnswerAddresses(), ELSEWHERE, PRIVATE),
        (BOTH, rf"PRIVATE={'1' * 8}-1111-1111-1111-{'1' * 12}\7", PRIVATE),
    ],
)
def test_a_response_queue_is_named_by_our_address(addresses: AnswerAddresses, destination: str, wanted: str) -> None:
    harness = Harness()
    harness.create(ORDERS)
    harness.manager.queues.use_answers(addresses)
    harness.manager.send(destination, [Message("x", response_queue=ORDERS)], harness.now)
    (queue,) = harness.manager.queues.outgoing.values()
    (record,) = queue.everything()
    assert response_name(MessageView(record.packet)) == parse_format_name(wanted)


def test_other_names_stay_as_they_are(harness: Harness) -> None:
    harness.manager.queues.use_answers(BOTH)
    orders = harness.manager.queues.format_name(harness.manager.queues.get(ORDERS))
    messages = [
        Message("x", response_queue=orders),
        Message("x", response_queue=ACKS, admin_queue=ACKS, ack="full"),
        Message("x", response_queue=r"gamma\private$\replies"),
    ]
    harness.manager.send(ELSEWHERE, messages, harness.now)
    harness.manager.send(ORDERS, [Message("x", response_queue=ORDERS)], harness.now)
    (queue,) = harness.manager.queues.outgoing.values()
    explicit, both, third = (MessageView(record.packet) for record in queue.everything())
    (here,) = (MessageView(record.packet) for record in harness.manager.queues.get(ORDERS).everything())
    acks = harness.manager.queues.format_name(harness.manager.queues.get(ACKS))
    assert response_name(explicit) == response_name(here) == orders
    assert (response_name(both), admin_name(both)) == (
        parse_format_name(r"DIRECT=TCP:10.0.0.5\private$\acks"),
        acks,  # an acknowledgment comes back at once, the way that the message went
    )
    assert response_name(third) == parse_format_name(r"DIRECT=OS:gamma\private$\replies")
