"""What the manager remembers of messages that have left."""

from __future__ import annotations

import pytest

from postroad.carriers.flights import leave_all
from postroad.message import Message
from postroad.queues.outcomes import Departure
from postroad.queues.outgoing_queues import NextHop
from postroad.reports.trace import TraceState
from postroad.wire.constants import MessageClass
from postroad.wire.view import MessageView
from tests.unit.queues.harness import ELSEWHERE, IDENTIFIER, ORDERS, Harness


def identifier(packet: bytes) -> bytes:
    return IDENTIFIER.bytes_le + MessageView(packet).message_id.to_bytes(4, "little")


def test_a_message_that_the_next_hop_has_taken_is_known(harness: Harness) -> None:
    harness.send(ELSEWHERE, *(Message(b"", recoverable=True) for _ in range(3)))
    harness.wait(1)
    queue = harness.queue(ELSEWHERE)
    first, second, third = queue.available(3)
    for record in (first, second):
        harness.manager.delivery.lock(queue, record.lookup_id)
    hop = NextHop(IDENTIFIER, "10.0.0.9")
    leave_all(harness.manager, queue, [first, second], harness.now, hop)
    harness.tick()
    find = harness.manager.departures.find
    for record in (first, second):
        assert find(identifier(record.packet)) == [Departure(harness.now, queue.name, TraceState.HANDED_OVER, hop=hop)]
    assert find(identifier(third.packet)) == []


def test_only_the_newest_are_remembered(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("postroad.queues.outcomes.KEPT", 3)
    harness.send(ORDERS, *(Message(b"") for _ in range(4)))
    records = harness.queue(ORDERS).available(4)
    for record in records:
        harness.manager.departures.removed(harness.queue(ORDERS), [record], MessageClass.ACK_RECEIVE, harness.now)
    found = [harness.manager.departures.find(identifier(record.packet)) for record in records]
    assert [len(each) for each in found] == [0, 1, 1, 1]
    assert found[1] == [Departure(harness.now, ORDERS, TraceState.RECEIVED, MessageClass.ACK_RECEIVE)]
