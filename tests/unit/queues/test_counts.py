"""How many messages came into a queue and left it since the start."""

from __future__ import annotations

from postroad.message import Message
from tests.unit.queues.harness import ORDERS, OTHER, Harness


def counts(harness: Harness, name: str = ORDERS) -> tuple[int, int]:
    queue = harness.queue(name)
    return queue.messages_in, queue.messages_out


def test_every_message_counts_once_however_it_comes_and_goes(harness: Harness) -> None:
    harness.send(ORDERS, Message("x", label="express"), Message("x", label="kept", recoverable=True))
    assert counts(harness) == (2, 0)
    harness.receive(ORDERS)
    assert counts(harness) == (2, 1)
    (record,) = harness.lock(ORDERS)
    assert counts(harness) == (2, 1)
    harness.end(ORDERS, record, delete=False)
    assert counts(harness) == (2, 1)
    harness.purge(ORDERS)
    assert counts(harness) == (2, 2)
    assert counts(harness, OTHER) == (0, 0)


def test_a_start_begins_at_nothing_so_a_rate_has_no_peak(harness: Harness) -> None:
    harness.send(ORDERS, *(Message("x", recoverable=True) for _ in range(5)))
    harness.receive(ORDERS, 2)
    harness.send(ORDERS, Message("x"))
    harness.restart()
    assert counts(harness) == (0, 0)
    harness.receive(ORDERS)
    harness.send(ORDERS, Message("x", recoverable=True))
    assert counts(harness) == (1, 1)
    assert harness.queue(ORDERS).count == 3


def test_a_tick_that_is_lost_counts_nothing(harness: Harness) -> None:
    harness.promise(ORDERS, Message("x", recoverable=True))
    harness.fail()
    assert counts(harness) == (0, 0)
