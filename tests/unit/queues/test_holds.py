"""Holds: who keeps what from whom, how they widen, narrow and end, and what a restart or a lost tick leaves of them."""

from __future__ import annotations

import pytest

from postroad.errors import InvalidArgument, MessageNotFound, NoMessage, SharingViolation, TransactionSequence
from postroad.message import Message
from postroad.queues.holds import Hold
from postroad.queues.reading import SeekAction
from postroad.queues.waiting import ReadCall
from postroad.store.interface import ARRIVAL_MASK
from tests.unit.queues.office import DEADLETTER, JOURNAL, LEDGER, ORDERS, Office, labels

END = 1 << 40


def hold(office: Office, name: str, start: int = 0, end: int | None = None, queue: str = ORDERS) -> Hold:
    manager, held = office.manager, office.queue(queue)
    stop = manager.mark(held) if end is None else end
    made = manager.holding.put(held, name, start, stop, manager.ticks.arrived(held), office.now)
    office.tick()
    return made


def commit(office: Office, name: str, end: int = END, queue: str = ORDERS) -> int:
    removed = office.manager.holding.commit(office.queue(queue), name, end, office.now)
    office.tick()
    return removed


def release(office: Office, name: str) -> bool:
    released = office.manager.holding.release(office.queue(ORDERS), name, office.now)
    office.tick()
    return released


def seen(office: Office, name: str | None = None, start: int = 0, end: int = END) -> list[str]:
    queue = office.queue(ORDERS)
    own = None if name is None else queue.holds.get(name)
    return labels(queue.by_arrival(start, end, 1000, own))


def arrivals(office: Office, queue: str = ORDERS) -> list[int]:
    return sorted(record.lookup_id & ARRIVAL_MASK for record in office.queue(queue).everything())


def test_a_hold_keeps_messages_of_every_priority_from_every_reader(office: Office) -> None:
    for priority in (7, 3, 0):
        office.send(ORDERS, Message(b"", label=f"p{priority}", priority=priority, recoverable=True))
    hold(office, "a")
    office.send(ORDERS, "later")
    assert office.labels(ORDERS) == ["later"]
    assert office.peek(ORDERS, 10) == ["later"]
    assert office.receive(ORDERS, 10) == ["later"]
    with pytest.raises(NoMessage):
        office.receive(ORDERS)
    cursor_reader = office.open(ORDERS)
    cursor = office.manager.open_cursor(cursor_reader)
    with pytest.raises(NoMessage):
        office.read(cursor_reader, ReadCall.PEEK, cursor=cursor)
    first = next(office.queue(ORDERS).everything())
    with pytest.raises(MessageNotFound, match="locked"):
        office.manager.reading.seek(office.queue(ORDERS), first.lookup_id, SeekAction.CURRENT, peek=False)
    assert office.purge(ORDERS) == 0
    assert seen(office, "a") == ["p7", "p3", "p0"]
    assert seen(office) == []


def test_express_messages_are_held_too_and_gone_after_a_restart(office: Office) -> None:
    office.send(ORDERS, Message(b"", label="express"), "stored")
    hold(office, "a")
    assert office.labels(ORDERS) == []
    office.restart()
    assert office.labels(ORDERS) == []
    assert seen(office, "a") == ["stored"]
    assert commit(office, "a") == 1


def test_what_is_held_does_not_expire_until_it_is_released(office: Office) -> None:
    office.send(ORDERS, Message(b"", label="short", recoverable=True, time_to_be_received=5, dead_letter=True))
    hold(office, "a")
    office.send(ORDERS, Message(b"", label="other", recoverable=True, time_to_be_received=5, dead_letter=True))
    office.wait(60)
    assert office.labels(DEADLETTER) == ["other"]
    assert seen(office, "a") == ["short"]
    release(office, "a")
    office.wait(1)
    assert office.labels(DEADLETTER) == ["other", "short"]


def test_a_commit_is_a_receive_with_all_that_follows_from_it(office: Office) -> None:
    office.manager.queues.change(office.manager.tick, office.queue(ORDERS), 0, journaling=True)
    office.send(ORDERS, "a", "b")
    hold(office, "s")
    assert commit(office, "s") == 2
    assert office.labels(f"{ORDERS};journal") == ["a", "b"]
    assert office.queue(ORDERS).count == 0
    assert office.labels(JOURNAL) == []


def test_a_commit_in_steps_narrows_the_hold_at_its_end(office: Office) -> None:
    office.send(ORDERS, "a", "b", "c")
    made = hold(office, "s")
    third = arrivals(office)[2]
    queue = office.queue(ORDERS)
    assert office.manager.holding.commit(queue, "s", third, office.now, 1) == 1
    office.tick()
    assert queue.holds["s"] is made
    assert commit(office, "s", third) == 1
    assert (queue.holds["s"].start, queue.holds["s"].end) == (third, made.end)
    assert seen(office, "s") == ["c"]
    assert commit(office, "s", third) == 0
    assert commit(office, "s") == 1
    assert queue.holds == {}
    assert commit(office, "s") == 0


def test_another_name_cannot_hold_the_same(office: Office) -> None:
    office.send(ORDERS, "a", "b")
    first, second = arrivals(office)
    hold(office, "a", 0, second)
    with pytest.raises(SharingViolation, match="are held by a"):
        hold(office, "b", first, second + 1)
    assert hold(office, "b", second, second + 1).covers(office.queue(ORDERS).tail)
    assert office.labels(ORDERS) == []


def test_a_hold_widens_under_its_own_name(office: Office) -> None:
    office.send(ORDERS, "a", "b", "c", "d")
    one, two, three, four = arrivals(office)
    hold(office, "s", two, three)
    assert office.labels(ORDERS) == ["a", "c", "d"]
    hold(office, "s", two, three)
    hold(office, "s", three, four)
    hold(office, "s", one, two)
    assert seen(office, "s", one, four) == ["a", "b", "c"]
    assert office.labels(ORDERS) == ["d"]
    with pytest.raises(TransactionSequence, match="does not touch"):
        hold(office, "s", four + 1, four + 1)


@pytest.mark.parametrize(("start", "end"), [(5, 4), (-1, 4), (0, 1 << 50)])
def test_ranges_that_cannot_be_held(office: Office, start: int, end: int) -> None:
    with pytest.raises(InvalidArgument):
        hold(office, "s", start, end)


@pytest.mark.parametrize("name", ["", "x" * 201, "a\nb"])
def test_names_that_nobody_has(office: Office, name: str) -> None:
    with pytest.raises(InvalidArgument, match="name"):
        hold(office, name)


def test_what_others_have_locked_is_passed_over_for_good(office: Office) -> None:
    office.send(ORDERS, "locked", "free")
    (record,) = office.lock(ORDERS)
    queue = office.queue(ORDERS)
    assert office.manager.mark(queue) == record.lookup_id & ARRIVAL_MASK
    hold(office, "s", 0, office.manager.ticks.arrived(queue))
    office.end(ORDERS, record, delete=False)
    assert office.labels(ORDERS) == ["locked"]
    assert seen(office, "s") == ["free"]
    office.restart()
    assert (seen(office, "s"), office.labels(ORDERS)) == (["free"], ["locked"])
    assert commit(office, "s") == 1
    assert office.receive(ORDERS) == ["locked"]


def test_a_reader_waits_for_a_release(office: Office) -> None:
    office.send(ORDERS, "a")
    hold(office, "s")
    answer = office.ask(office.open(ORDERS))
    assert answer.waits
    assert release(office, "s")
    assert answer.labels == ["a"]
    assert not release(office, "s")


def test_a_hold_survives_a_restart_and_a_release_that_was_lost(office: Office) -> None:
    office.send(ORDERS, "a")
    hold(office, "s")
    office.restart()
    assert office.labels(ORDERS) == []
    office.manager.holding.release(office.queue(ORDERS), "s", office.now)
    assert office.labels(ORDERS) == []
    office.fail()
    assert office.labels(ORDERS) == []
    office.manager.holding.release(office.queue(ORDERS), "s", office.now)
    office.restart()
    assert seen(office, "s") == ["a"]
    release(office, "s")
    office.restart()
    assert office.labels(ORDERS) == ["a"]


def test_a_hold_whose_tick_is_lost_never_was(office: Office) -> None:
    office.send(ORDERS, "a", "b")
    _, second = arrivals(office)
    queue = office.queue(ORDERS)
    office.manager.holding.put(queue, "s", 0, second, second + 1, office.now)
    assert office.labels(ORDERS) == ["b"]
    office.fail()
    assert office.labels(ORDERS) == ["a", "b"]
    hold(office, "s", 0, second)
    office.manager.holding.put(queue, "s", second, second + 1, second + 1, office.now)
    office.fail()
    assert (office.labels(ORDERS), seen(office, "s", 0, second)) == (["b"], ["a"])


def test_a_commit_whose_tick_is_lost_is_made_again(office: Office) -> None:
    office.send(ORDERS, "a", "b")
    hold(office, "s")
    office.manager.holding.commit(office.queue(ORDERS), "s", END, office.now)
    office.fail()
    assert (seen(office, "s"), office.labels(ORDERS)) == (["a", "b"], [])
    assert commit(office, "s") == 2


def test_a_hold_made_again_before_its_release_has_landed(office: Office) -> None:
    office.send(ORDERS, "a")
    hold(office, "s")
    queue = office.queue(ORDERS)
    office.manager.holding.release(queue, "s", office.now)
    hold(office, "s")
    assert office.labels(ORDERS) == []
    office.restart()
    assert office.labels(ORDERS) == []


def test_holds_go_with_their_queue(office: Office) -> None:
    office.send(ORDERS, "a")
    hold(office, "s")
    office.delete(ORDERS)
    assert not office.store.state("hold/")
    office.create(ORDERS)
    office.send(ORDERS, "b")
    assert office.labels(ORDERS) == ["b"]


def test_a_receiver_steps_over_a_long_hold_at_once(office: Office) -> None:
    office.send(ORDERS, *[f"held {number}" for number in range(3000)])
    hold(office, "s")
    office.send(ORDERS, "free")
    scans = []
    scan = office.store.scan
    office.store.scan = lambda *arguments: scans.append(arguments) or scan(*arguments)  # type: ignore[method-assign,func-returns-value]
    assert office.receive(ORDERS) == ["free"]
    assert len(scans) < 10


# Marks


def test_a_mark_stands_before_what_is_on_its_way(office: Office) -> None:
    queue = office.queue(ORDERS)
    office.send(ORDERS, "a")
    (first,) = arrivals(office)
    assert office.manager.mark(queue) == first + 1
    office.promise(ORDERS, "b")
    assert office.manager.mark(queue) == first + 1
    tick = office.seal()
    office.promise(ORDERS, "c")
    assert office.manager.mark(queue) == first + 1
    office.land(tick)
    assert office.manager.mark(queue) == first + 2
    office.fail()
    assert office.manager.mark(queue) > first + 2


def test_a_late_transaction_comes_after_the_mark(office: Office) -> None:
    queue = office.queue(LEDGER)
    transaction = office.manager.begin()
    office.promise(LEDGER, "late", transaction=transaction)
    office.send_transactional(LEDGER, "early")
    mark = office.manager.mark(queue)
    office.manager.commit(transaction, office.now)
    office.tick()
    assert labels(queue.by_arrival(0, mark, 10)) == ["early"]
    assert labels(queue.by_arrival(mark, END, 10)) == ["late"]


def test_a_mark_stands_before_what_can_return(office: Office) -> None:
    queue = office.queue(ORDERS)
    office.send(ORDERS, "a", "b")
    (record,) = office.lock(ORDERS)
    assert office.manager.mark(queue) == arrivals(office)[0]
    office.end(ORDERS, record, delete=True)
    assert office.manager.mark(queue) == arrivals(office)[-1] + 1


def test_added_counts_what_ever_came(office: Office) -> None:
    queue = office.queue(ORDERS)
    office.send(ORDERS, "a", "b", Message(b"", label="express"))
    assert queue.stored_added == 2
    office.receive(ORDERS, 2)
    office.promise(ORDERS, "lost")
    office.fail()
    assert (queue.stored_added, queue.stored_count) == (2, 0)
    office.restart()
    assert office.queue(ORDERS).stored_added == 2
    office.send(ORDERS, "c")
    assert office.queue(ORDERS).stored_added == 3
