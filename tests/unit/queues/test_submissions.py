"""Submissions: rows are sent once, however often they come, whatever is lost and whoever restarts."""

from __future__ import annotations

import pytest

from postroad.errors import InvalidArgument, TransactionSequence
from postroad.queues.submissions import Part, Progress, Sender, Submissions
from tests.unit.queues.harness import ORDERS, Harness

SENDER = Sender("private$\\a/b %", "query/1")


def part(epoch: int = 0, partition: int = 0) -> Part:
    return Part(SENDER, epoch, partition)


def note(harness: Harness, place: Part, next_row: int) -> None:
    """With a message in the same tick."""
    harness.promise(ORDERS, f"{place.epoch} {place.partition} {next_row}")
    harness.manager.submissions.note(place, next_row)


@pytest.fixture
def submissions(harness: Harness) -> Submissions:
    return harness.manager.submissions


def test_rows_before_the_next_are_dropped(harness: Harness, submissions: Submissions) -> None:
    assert submissions.sent(part(), 0, 5) == 0
    note(harness, part(), 5)
    harness.tick()
    assert [submissions.sent(part(), row, 3) for row in (0, 3, 5)] == [3, 2, 0]
    assert submissions.sent(part(0, 1), 0, 3) == 0
    with pytest.raises(TransactionSequence, match="the next one of query/1, epoch 0, partition 0 is 5, not 6"):
        submissions.sent(part(), 6, 1)


def test_a_restart_remembers_what_was_sent(harness: Harness) -> None:
    note(harness, part(3, 1), 5)
    harness.tick()
    harness.manager.submissions.commit(SENDER, 2)
    harness.tick()
    note(harness, part(3, 2), 9)
    harness.restart()
    remembered = harness.manager.submissions
    assert remembered.sent(part(3, 1), 0, 9) == 5
    assert remembered.sent(part(3, 2), 0, 9) == 0
    assert remembered.sent(part(2, 7), 0, 9) == 9
    assert harness.labels(ORDERS) == ["3 1 5"]


def test_a_lost_tick_sent_nothing(harness: Harness, submissions: Submissions) -> None:
    note(harness, part(), 5)
    harness.fail()
    assert submissions.sent(part(), 0, 5) == 0
    note(harness, part(), 2)
    harness.tick()
    note(harness, part(), 5)
    harness.fail()
    assert submissions.sent(part(), 0, 5) == 2
    submissions.commit(SENDER, 0)
    harness.fail()
    assert submissions.sent(part(), 0, 5) == 2
    assert harness.labels(ORDERS) == ["0 0 2"]


def test_a_committed_epoch_takes_nothing_and_keeps_one_number(harness: Harness, submissions: Submissions) -> None:
    for epoch in range(3):
        note(harness, part(epoch, epoch), 4)
    harness.tick()
    submissions.commit(SENDER, 1)
    harness.tick()
    assert len(harness.store.state("submission/")) == 2
    assert submissions.sent(part(0, 9), 0, 4) == 4
    assert submissions.sent(part(1, 1), 9, 4) == 4
    assert submissions.sent(part(2, 2), 0, 4) == 4
    assert submissions.sent(part(2, 3), 0, 4) == 0
    submissions.commit(SENDER, 0)
    assert submissions.sent(part(1, 9), 0, 4) == 4


def test_a_sender_is_forgotten(harness: Harness, submissions: Submissions) -> None:
    note(harness, part(), 4)
    harness.tick()
    submissions.commit(SENDER, 0)
    harness.tick()
    assert submissions.forget(SENDER)
    harness.fail()
    assert submissions.sent(part(), 0, 4) == 4
    assert submissions.forget(SENDER)
    harness.tick()
    assert submissions.sent(part(), 0, 4) == 0
    assert not harness.store.state("submission/")
    assert not submissions.forget(SENDER)


@pytest.mark.parametrize("name", ["", "x" * 201, "a\0"])
def test_names_that_no_sender_has(submissions: Submissions, name: str) -> None:
    with pytest.raises(InvalidArgument, match="name"):
        submissions.sent(Part(Sender("q", name), 0, 0), 0, 1)
    with pytest.raises(InvalidArgument, match="name"):
        submissions.commit(Sender("q", name), 0)


def test_a_restart_remembers_who_sent_what(harness: Harness) -> None:
    harness.manager.submissions.note(part(), 5, "run-1", "abc")
    harness.tick()
    harness.restart()
    remembered = harness.manager.submissions
    assert remembered.progress(SENDER, 0) == {0: Progress(5, "run-1", "abc")}
    with pytest.raises(TransactionSequence, match="differ"):
        remembered.take_over(part(), 5, "run-2", "abd")
    remembered.take_over(part(), 5, "run-2", "abc")
    harness.fail()
    assert remembered.progress(SENDER, 0) == {0: Progress(5, "run-1", "abc")}, "a lost tick took nothing over"


def test_an_attempt_beside_another_is_compared_where_both_have_sent(harness: Harness, submissions: Submissions) -> None:
    submissions.note(part(), 5, "run", "five")
    harness.tick()
    assert submissions.sent(part(), 0, 3, "run", "three") == 3
    assert submissions.sent(part(), 3, 2, "run", "five") == 2
    with pytest.raises(TransactionSequence, match="differ"):
        submissions.sent(part(), 3, 2, "run", "other")
    with pytest.raises(TransactionSequence, match="another attempt, up to row 5"):
        submissions.sent(part(), 3, 3, "run", "six")
    with pytest.raises(TransactionSequence, match="another run"):
        submissions.sent(part(), 5, 1, "old", "six")
    assert submissions.sent(part(), 5, 1, "run", "six") == 0


def test_a_complete_epoch_is_kept_until_the_next_one_is(harness: Harness, submissions: Submissions) -> None:
    for epoch in (1, 2):
        submissions.note(part(epoch), 5, "run", "five")
        harness.tick()
        submissions.commit(SENDER, epoch, run="run", keep=True)
        harness.tick()
        assert submissions.progress(SENDER, epoch)
    assert submissions.progress(SENDER, 1) == {}
    assert submissions.sent(part(2), 0, 5, "later", "five") == 5
    with pytest.raises(TransactionSequence, match="complete with 5 rows, but more came"):
        submissions.sent(part(2), 0, 6, "later", "six")
