"""Holds: which messages they keep from whom, how they widen, narrow and end, and what a restart or a lost tick
leaves."""

from __future__ import annotations

import pytest

from postroad.errors import InvalidArgument, MessageNotFound, NoMessage, SharingViolation, TransactionSequence
from postroad.message import Message
from postroad.queues.holds import Hold
from postroad.reports.operations import ReadCall, SeekAction
from postroad.store.interface import ARRIVAL_MASK
from tests.unit.queues.harness import DEADLETTER, JOURNAL, LEDGER, ORDERS, Harness, labels

END = 1 << 40


def hold(harness: Harness, name: str, start: int = 0, end: int | None = None, queue: str = ORDERS) -> Hold:
    manager, held = harness.manager, harness.queue(queue)
    stop = manager.ticks.mark(held) if end is None else end
    made = manager.holding.put(held, name, start, stop, manager.ticks.arrived(held), harness.now)
    harness.tick()
    return made


def commit(harness: Harness, name: str, end: int = END, queue: str = ORDERS) -> int:
    removed = harness.manager.holding.commit(harness.queue(queue), name, end, harness.now)
    harness.tick()
    return removed


def release(harness: Harness, name: str) -> bool:
    released = harness.manager.holding.release(harness.queue(ORDERS), name, harness.now)
    harness.tick()
    return released


def seen(harness: Harness, name: str | None = None, start: int = 0, end: int = END) -> list[str]:
    queue = harness.queue(ORDERS)
    own = None if name is None else queue.holds.get(name)
    return labels(queue.by_arrival(start, end, 1000, own))


def arrivals(harness: Harness, queue: str = ORDERS) -> list[int]:
    return sorted(record.lookup_id & ARRIVAL_MASK for record in harness.queue(queue).everything())


def test_a_hold_keeps_messages_of_every_priority_from_every_reader(harness: Harness) -> None:
    for priority in (7, 3, 0):
        harness.send(ORDERS, Message(b"", label=f"p{priority}", priority=priority, recoverable=True))
    hold(harness, "a")
    harness.send(ORDERS, "later")
    assert harness.labels(ORDERS) == ["later"]
    assert harness.peek(ORDERS, 10) == ["later"]
    assert harness.receive(ORDERS, 10) == ["later"]
    with pytest.raises(NoMessage):
        harness.receive(ORDERS)
    cursor_reader = harness.open(ORDERS)
    cursor = harness.manager.open_cursor(cursor_reader)
    with pytest.raises(NoMessage):
        harness.read(cursor_reader, ReadCall.PEEK, cursor=cursor)
    first = next(harness.queue(ORDERS).everything())
    with pytest.raises(MessageNotFound, match="locked"):
        harness.manager.reading.seek(harness.queue(ORDERS), first.lookup_id, SeekAction.CURRENT, peek=False)
    assert harness.purge(ORDERS) == 0
    assert seen(harness, "a") == ["p7", "p3", "p0"]
    assert seen(harness) == []


def test_express_messages_are_held_too_and_gone_after_a_restart(harness: Harness) -> None:
    harness.send(ORDERS, Message(b"", label="express"), "stored")
    hold(harness, "a")
    assert harness.labels(ORDERS) == []
    harness.restart()
    assert harness.labels(ORDERS) == []
    assert seen(harness, "a") == ["stored"]
    assert commit(harness, "a") == 1


def test_what_is_held_does_not_expire_until_it_is_released(harness: Harness) -> None:
    harness.send(ORDERS, Message(b"", label="short", recoverable=True, time_to_be_received=5, dead_letter=True))
    hold(harness, "a")
    harness.send(ORDERS, Message(b"", label="other", recoverable=True, time_to_be_received=5, dead_letter=True))
    harness.wait(60)
    assert harness.labels(DEADLETTER) == ["other"]
    assert seen(harness, "a") == ["short"]
    release(harness, "a")
    harness.wait(1)
    assert harness.labels(DEADLETTER) == ["other", "short"]


def test_a_commit_is_a_receive_with_all_that_follows_from_it(harness: Harness) -> None:
    harness.manager.queues.change(harness.manager.tick, harness.queue(ORDERS), 0, journal=True)
    harness.send(ORDERS, "a", "b")
    hold(harness, "s")
    assert commit(harness, "s") == 2
    assert harness.labels(f"{ORDERS};journal") == ["a", "b"]
    assert harness.queue(ORDERS).count == 0
    assert harness.labels(JOURNAL) == []


def test_a_commit_in_steps_narrows_the_hold_at_its_end(harness: Harness) -> None:
    harness.send(ORDERS, "a", "b", "c")
    made = hold(harness, "s")
    third = arrivals(harness)[2]
    queue = harness.queue(ORDERS)
    assert harness.manager.holding.commit(queue, "s", third, harness.now, 1) == 1
    harness.tick()
    assert queue.holds["s"] is made
    assert commit(harness, "s", third) == 1
    assert (queue.holds["s"].start, queue.holds["s"].end) == (third, made.end)
    assert seen(harness, "s") == ["c"]
    assert commit(harness, "s", third) == 0
    assert commit(harness, "s") == 1
    assert queue.holds == {}
    assert commit(harness, "s") == 0


def test_another_name_cannot_hold_the_same(harness: Harness) -> None:
    harness.send(ORDERS, "a", "b")
    first, second = arrivals(harness)
    hold(harness, "a", 0, second)
    with pytest.raises(SharingViolation, match="are held by a"):
        hold(harness, "b", first, second + 1)
    assert hold(harness, "b", second, second + 1).covers(harness.queue(ORDERS).tail)
    assert harness.labels(ORDERS) == []


def test_a_hold_widens_under_its_own_name(harness: Harness) -> None:
    harness.send(ORDERS, "a", "b", "c", "d")
    one, two, three, four = arrivals(harness)
    hold(harness, "s", two, three)
    assert harness.labels(ORDERS) == ["a", "c", "d"]
    hold(harness, "s", two, three)
    hold(harness, "s", three, four)
    hold(harness, "s", one, two)
    assert seen(harness, "s", one, four) == ["a", "b", "c"]
    assert harness.labels(ORDERS) == ["d"]
    with pytest.raises(TransactionSequence, match="does not touch"):
        hold(harness, "s", four + 1, four + 1)


@pytest.mark.parametrize(("start", "end"), [(5, 4), (-1, 4), (0, 1 << 50)])
def test_ranges_that_cannot_be_held(harness: Harness, start: int, end: int) -> None:
    with pytest.raises(InvalidArgument):
        hold(harness, "s", start, end)


@pytest.mark.parametrize("name", ["", "x" * 201, "a\nb"])
def test_names_that_nobody_has(harness: Harness, name: str) -> None:
    with pytest.raises(InvalidArgument, match="name"):
        hold(harness, name)


def test_what_others_have_locked_is_passed_over_for_good(harness: Harness) -> None:
    harness.send(ORDERS, "locked", "free")
    (record,) = harness.lock(ORDERS)
    queue = harness.queue(ORDERS)
    assert harness.manager.ticks.mark(queue) == record.lookup_id & ARRIVAL_MASK
    hold(harness, "s", 0, harness.manager.ticks.arrived(queue))
    harness.end(ORDERS, record, delete=False)
    assert harness.labels(ORDERS) == ["locked"]
    assert seen(harness, "s") == ["free"]
    harness.restart()
    assert (seen(harness, "s"), harness.labels(ORDERS)) == (["free"], ["locked"])
    assert commit(harness, "s") == 1
    assert harness.receive(ORDERS) == ["locked"]


def test_a_reader_waits_for_a_release(harness: Harness) -> None:
    harness.send(ORDERS, "a")
    hold(harness, "s")
    answer = harness.ask(harness.open(ORDERS))
    assert answer.waits
    assert release(harness, "s")
    assert answer.labels == ["a"]
    assert not release(harness, "s")


def test_a_hold_survives_a_restart_and_a_release_that_was_lost(harness: Harness) -> None:
    harness.send(ORDERS, "a")
    hold(harness, "s")
    harness.restart()
    assert harness.labels(ORDERS) == []
    harness.manager.holding.release(harness.queue(ORDERS), "s", harness.now)
    assert harness.labels(ORDERS) == []
    harness.fail()
    assert harness.labels(ORDERS) == []
    harness.manager.holding.release(harness.queue(ORDERS), "s", harness.now)
    harness.restart()
    assert seen(harness, "s") == ["a"]
    release(harness, "s")
    harness.restart()
    assert harness.labels(ORDERS) == ["a"]


def test_a_hold_whose_tick_is_lost_never_was(harness: Harness) -> None:
    harness.send(ORDERS, "a", "b")
    _, second = arrivals(harness)
    queue = harness.queue(ORDERS)
    harness.manager.holding.put(queue, "s", 0, second, second + 1, harness.now)
    assert harness.labels(ORDERS) == ["b"]
    harness.fail()
    assert harness.labels(ORDERS) == ["a", "b"]
    hold(harness, "s", 0, second)
    harness.manager.holding.put(queue, "s", second, second + 1, second + 1, harness.now)
    harness.fail()
    assert (harness.labels(ORDERS), seen(harness, "s", 0, second)) == (["b"], ["a"])


def test_a_commit_whose_tick_is_lost_is_made_again(harness: Harness) -> None:
    harness.send(ORDERS, "a", "b")
    hold(harness, "s")
    harness.manager.holding.commit(harness.queue(ORDERS), "s", END, harness.now)
    harness.fail()
    assert (seen(harness, "s"), harness.labels(ORDERS)) == (["a", "b"], [])
    assert commit(harness, "s") == 2


def test_a_hold_made_again_before_its_release_has_landed(harness: Harness) -> None:
    harness.send(ORDERS, "a")
    hold(harness, "s")
    queue = harness.queue(ORDERS)
    harness.manager.holding.release(queue, "s", harness.now)
    hold(harness, "s")
    assert harness.labels(ORDERS) == []
    harness.restart()
    assert harness.labels(ORDERS) == []


def test_holds_go_with_their_queue(harness: Harness) -> None:
    harness.send(ORDERS, "a")
    hold(harness, "s")
    harness.delete(ORDERS)
    assert not harness.store.state("hold/")
    harness.create(ORDERS)
    harness.send(ORDERS, "b")
    assert harness.labels(ORDERS) == ["b"]


def test_a_receiver_steps_over_a_long_hold_at_once(harness: Harness) -> None:
    harness.send(ORDERS, *[f"held {number}" for number in range(3000)])
    hold(harness, "s")
    harness.send(ORDERS, "free")
    scans = []
    scan = harness.store.scan
    harness.store.scan = lambda *arguments: scans.append(arguments) or scan(*arguments)  # type: ignore[method-assign,func-returns-value]
    assert harness.receive(ORDERS) == ["free"]
    assert len(scans) < 10


# Marks


def test_a_mark_stands_before_what_is_on_its_way(harness: Harness) -> None:
    queue = harness.queue(ORDERS)
    harness.send(ORDERS, "a")
    (first,) = arrivals(harness)
    assert harness.manager.ticks.mark(queue) == first + 1
    harness.promise(ORDERS, "b")
    assert harness.manager.ticks.mark(queue) == first + 1
    tick = harness.seal()
    harness.promise(ORDERS, "c")
    assert harness.manager.ticks.mark(queue) == first + 1
    harness.land(tick)
    assert harness.manager.ticks.mark(queue) == first + 2
    harness.fail()
    assert harness.manager.ticks.mark(queue) > first + 2


def test_a_late_transaction_comes_after_the_mark(harness: Harness) -> None:
    queue = harness.queue(LEDGER)
    transaction = harness.manager.begin()
    harness.promise(LEDGER, "late", transaction=transaction)
    harness.send_transactional(LEDGER, "early")
    mark = harness.manager.ticks.mark(queue)
    harness.manager.commit(transaction, harness.now)
    harness.tick()
    assert labels(queue.by_arrival(0, mark, 10)) == ["early"]
    assert labels(queue.by_arrival(mark, END, 10)) == ["late"]


def test_a_mark_stands_before_what_can_return(harness: Harness) -> None:
    queue = harness.queue(ORDERS)
    harness.send(ORDERS, "a", "b")
    (record,) = harness.lock(ORDERS)
    assert harness.manager.ticks.mark(queue) == arrivals(harness)[0]
    harness.end(ORDERS, record, delete=True)
    assert harness.manager.ticks.mark(queue) == arrivals(harness)[-1] + 1


def test_added_counts_what_ever_came(harness: Harness) -> None:
    queue = harness.queue(ORDERS)
    harness.send(ORDERS, "a", "b", Message(b"", label="express"))
    assert queue.stored_added == 2
    harness.receive(ORDERS, 2)
    harness.promise(ORDERS, "lost")
    harness.fail()
    assert (queue.stored_added, queue.stored_count) == (2, 0)
    harness.restart()
    assert harness.queue(ORDERS).stored_added == 2
    harness.send(ORDERS, "c")
    assert harness.queue(ORDERS).stored_added == 3
