"""Journals keep messages for some days. Dead letters stay for ever."""

from __future__ import annotations

import pytest

from postroad.message import Message
from postroad.queues.expiry import BATCH, DAY_S, EVERY_S, Retention
from tests.unit.queues.harness import DEADLETTER, JOURNAL, ORDERS, OTHER, Harness

KEEPING = r"private$\keeping"
KEPT = rf"{KEEPING};journal"


@pytest.fixture
def retention(harness: Harness) -> Retention:
    harness.create(KEEPING, journal=True)
    return harness.manager.retention


def run(harness: Harness, retention: Retention) -> None:
    retention.run_timers(harness.now)
    harness.tick()


def keep(harness: Harness, label: str, **options: bool | int) -> None:
    harness.send(KEEPING, Message(b"", label=label, **options))  # type: ignore[arg-type]
    harness.receive(KEEPING)


@pytest.mark.parametrize("recoverable", [True, False])
def test_messages_of_all_priorities_leave_a_journal_after_its_days(
    harness: Harness, retention: Retention, recoverable: bool
) -> None:
    harness.use(journal_days=2)
    for priority in (0, 7):
        keep(harness, f"old {priority}", priority=priority, recoverable=recoverable)
    harness.wait(DAY_S)
    for priority in (0, 7):
        keep(harness, f"new {priority}", priority=priority, recoverable=recoverable)
    run(harness, retention)
    assert sorted(harness.labels(KEPT)) == ["new 0", "new 7", "old 0", "old 7"]
    harness.wait(DAY_S + 1)
    run(harness, retention)
    assert harness.labels(KEPT) == ["new 7", "new 0"]
    assert retention.removed == 2


def test_the_managers_own_journal_too_but_no_dead_letter_and_no_queue(harness: Harness, retention: Retention) -> None:
    harness.use(journal_days=1)
    harness.send(ORDERS, Message(b"", label="stays", recoverable=True, journal=True))
    harness.send(OTHER, Message(b"", label="dead", recoverable=True, dead_letter=True, time_to_be_received=1))
    harness.wait(2)
    assert (harness.labels(JOURNAL), harness.labels(DEADLETTER)) == (["stays"], ["dead"])
    harness.wait(2 * DAY_S)
    run(harness, retention)
    assert (harness.labels(JOURNAL), harness.labels(DEADLETTER)) == ([], ["dead"])
    assert harness.labels(ORDERS) == ["stays"]


def test_without_days_everything_stays(harness: Harness, retention: Retention) -> None:
    keep(harness, "a", recoverable=True)
    harness.wait(1000 * DAY_S)
    run(harness, retention)
    assert harness.labels(KEPT) == ["a"]


def test_a_long_journal_leaves_in_batches(harness: Harness, retention: Retention) -> None:
    harness.use(journal_days=1)
    harness.send(KEEPING, *(Message(b"", label="a", recoverable=True) for _ in range(BATCH + 5)))
    while harness.queue(KEEPING).count:
        harness.receive(KEEPING)
    harness.wait(2 * DAY_S)
    run(harness, retention)
    assert harness.queue(KEPT).count == 5
    run(harness, retention)  # at once
    assert harness.queue(KEPT).count == 0
    keep(harness, "new")
    harness.now += 2 * DAY_S
    run(harness, retention)
    assert harness.queue(KEPT).count == 0
    assert EVERY_S < DAY_S
