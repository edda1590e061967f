"""No fault breaks a promise: every hook, encoder and store call of an operation fails once, one at a time."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from postroad.errors import StorageError, TransactionUsage
from postroad.queues.queue import PositionState
from postroad.reports.operations import QueueAccess, SeekAction, ShareMode
from postroad.wire.view import MessageView
from tests.unit.queues.faults import HTTP, Broken, House, told
from tests.unit.queues.harness import ELSEWHERE, LEDGER, ORDERS, OTHER

Operation = Callable[[], Any]


def sends_one(house: House) -> Operation:
    return lambda: house.core.send(ORDERS, [told("a")], house.now)


def sends_many(house: House) -> Operation:
    return lambda: house.core.send(ORDERS, [told("a"), told("b", express=True), told("c")], house.now)


def sends_to_readers_who_wait(house: House) -> Operation:
    house.wait_for(ORDERS)
    house.wait_for(ORDERS)
    return lambda: house.core.send(ORDERS, [told("a", express=True), told("b", express=True)], house.now)


def sends_to_several(house: House) -> Operation:
    names = rf"DIRECT=OS:alpha\{ORDERS},{ELSEWHERE},{HTTP},DIRECT=OS:alpha\{OTHER}"
    return lambda: house.core.send(names, [told("a"), told("b", express=True)], house.now)


def is_refused(house: House) -> Operation:
    """The sender asked for an acknowledgment. It stays, although the send raises an error."""

    def send() -> None:
        with suppress(TransactionUsage):
            house.core.send(LEDGER, [told("a")], house.now)

    return send


def receives_a_batch(house: House) -> Operation:
    house.send(ORDERS, "a", "b", "c")
    house.send(ORDERS, "d", express=True)
    return lambda: house.read(ORDERS, 4, deadline=house.now)


def receives_what_a_stranger_sent(house: House) -> Operation:
    house.stranger_sends("a", "b", "c")
    return lambda: house.read(LEDGER, 3, deadline=house.now)


def receives_by_lookup_id(house: House) -> Operation:
    house.send(ORDERS, "a", "b")
    lookup_id = house.queue(ORDERS).available(2)[1].lookup_id
    descriptor = house.core.open(ORDERS, QueueAccess.RECEIVE, ShareMode.DENY_NONE, house.now)
    read = house.core.reading.read_by_lookup_id
    return lambda: read(descriptor, lookup_id, SeekAction.CURRENT, house.now, peek=False)


def begins_two_phases(house: House) -> Operation:
    house.send(ORDERS, "a", "b")
    return lambda: house.read(ORDERS, 2, two_phase=True, deadline=house.now)


def _settles(house: House, *, delete: bool) -> Operation:
    house.send(ORDERS, "a", "b")
    house.send(ORDERS, "c", express=True)
    records = house.read(ORDERS, 3, two_phase=True, deadline=house.now)
    assert records is not None
    house.wait_for(ORDERS)

    def end() -> None:
        with house.core.delivery.atomic:
            for record in records:
                house.core.reading.end(house.queue(ORDERS), record, house.now, delete=delete)

    return end


def ends_two_phases(house: House) -> Operation:
    return _settles(house, delete=True)


def gives_back(house: House) -> Operation:
    return _settles(house, delete=False)


def receives_in_a_transaction(house: House) -> Operation:
    house.stranger_sends("a", "b")
    transaction = house.core.begin()
    return lambda: house.read(LEDGER, 2, transaction=transaction, deadline=house.now)


def _transaction(house: House) -> Any:
    house.core.create_queue(r"private$\second", house.now, transactional=True)
    house.stranger_sends("a", "b")
    transaction = house.core.begin()
    house.core.send(LEDGER, [told("c"), told("d")], house.now, transaction)
    house.core.send(ELSEWHERE, [told("e")], house.now, transaction)
    house.core.send(HTTP, [told("f")], house.now, transaction)
    house.read(LEDGER, 1, transaction=transaction, deadline=house.now)
    (record,) = house.queue(LEDGER).available(1)
    house.core.transacting.move(house.queue(LEDGER), house.queue(r"private$\second"), record, transaction)
    house.wait_for(LEDGER)
    house.land()
    return transaction


def commits(house: House) -> Operation:
    transaction = _transaction(house)
    return lambda: house.core.commit(transaction, house.now)


def aborts(house: House) -> Operation:
    """A message that is returned once goes to the poison subqueue."""
    transaction = _transaction(house)
    return lambda: house.core.abort(transaction, house.now)


def purges(house: House) -> Operation:
    house.send(ORDERS, "a", "b", "c")
    house.send(ORDERS, "d", express=True)
    house.read(ORDERS, 1, two_phase=True, deadline=house.now)
    return lambda: house.core.purge(house.queue(ORDERS), house.now)


def purges_what_leaves(house: House) -> Operation:
    house.send(ELSEWHERE, "a", "b")
    return lambda: house.core.purge(house.queue(ELSEWHERE), house.now)


def moves(house: House) -> Operation:
    house.send(ORDERS, "a", "b")
    house.send(ORDERS, "c", express=True)
    house.wait_for(OTHER)
    records = house.queue(ORDERS).available(3)
    return lambda: house.core.move(house.queue(ORDERS), house.queue(OTHER), records, house.now)


def inserts(house: House) -> Operation:
    house.send(ORDERS, "a")
    house.send(ORDERS, "b", express=True)
    views = [MessageView(record.packet) for record in house.queue(ORDERS).available(2)]
    house.wait_for(OTHER)
    return lambda: house.core.insert(house.queue(OTHER), views, house.now)


def creates_a_queue(house: House) -> Operation:
    return lambda: house.core.create_queue(r"private$\new", house.now)


def changes_a_queue(house: House) -> Operation:
    change = house.core.change_queue
    return lambda: change(house.queue(ORDERS), house.now, label="new", journal_quota_kb=5)


def deletes_a_queue(house: House) -> Operation:
    house.stranger_sends("a", "b")
    house.send(ORDERS, "c", "d")
    transaction = house.core.begin()
    house.read(LEDGER, 1, transaction=transaction, deadline=house.now)
    house.core.holding.put(house.queue(LEDGER), "pipeline", 0, 1, 2, house.now)
    house.core.send(LEDGER, [told("e")], house.now, transaction)
    house.read(LEDGER, 1, two_phase=True, deadline=house.now)
    house.wait_for(LEDGER)
    house.land()
    return lambda: house.core.delete_queue(house.queue(LEDGER), house.now)


def commits_a_hold(house: House) -> Operation:
    house.send(ORDERS, "a", "b", "c")
    last = house.core.ticks.arrived(house.queue(ORDERS))
    house.core.holding.put(house.queue(ORDERS), "pipeline", 0, last, last, house.now)
    house.land()
    return lambda: house.core.holding.commit(house.queue(ORDERS), "pipeline", last - 1, house.now)


OPERATIONS = (
    sends_one,
    sends_many,
    sends_to_readers_who_wait,
    sends_to_several,
    is_refused,
    receives_a_batch,
    receives_what_a_stranger_sent,
    receives_by_lookup_id,
    begins_two_phases,
    ends_two_phases,
    gives_back,
    receives_in_a_transaction,
    commits,
    aborts,
    purges,
    purges_what_leaves,
    moves,
    inserts,
    creates_a_queue,
    changes_a_queue,
    deletes_a_queue,
    commits_a_hold,
)


def run_clean(operation: Callable[[House], Operation]) -> tuple[list[str], dict[str, object], dict[str, object]]:
    """The calls that an operation makes, and what applications see before and after its commit."""
    with pytest.MonkeyPatch.context() as patch:
        house = House(patch)
        run = operation(house)
        with house.faults.armed(None):
            run()
        calls = list(house.faults.calls)
        assert house.core.delivery.tally.follow_up_errors == 0
        promised = house.main()
        house.check_fronts()
        house.land()
        house.check_fronts()
        return calls, promised, house.main()


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda each: each.__name__)
def test_a_change_stands_or_never_was(operation: Callable[[House], Operation]) -> None:
    calls, promised, durable = run_clean(operation)
    assert calls
    for number, what in enumerate(calls, 1):
        where = f"call {number}, {what}"
        with pytest.MonkeyPatch.context() as patch:
            house = House(patch)
            run = operation(house)
            before = house.snapshot()
            try:
                with house.faults.armed(number):
                    run()
            except Broken:
                assert house.snapshot() == before, where
                run()  # and it can be tried again
                assert house.core.delivery.tally.follow_up_errors == 0, where
            else:
                assert house.faults.calls[number - 1] == what
                assert house.core.delivery.tally.follow_up_errors >= 1, where
            assert house.core.tick.steps is None
            assert house.main() == promised, where
            house.land()
            assert house.main() == durable, where


def expires(house: House) -> Operation:
    house.send(ORDERS, "a", "b", time_to_be_received=1)
    house.send(ORDERS, "c", express=True, time_to_be_received=1)
    house.stranger_sends("d")
    house.wait_for(OTHER, deadline=house.now + 1)
    house.now += 10
    return lambda: house.core.run_timers(house.now)


def test_one_message_that_cannot_expire_keeps_no_other() -> None:
    calls, _, _ = run_clean(expires)
    for number, what in enumerate(calls, 1):
        where = f"call {number}, {what}"
        with pytest.MonkeyPatch.context() as patch:
            house = House(patch)
            run = expires(house)
            with house.faults.armed(number):
                if what == "store.expired":
                    with pytest.raises(Broken):
                        run()
                    run()
                else:
                    run()
                    assert house.core.delivery.tally.follow_up_errors == 1, where
            house.land()
            assert house.queue(ORDERS).count <= 1, where
            house.now += 100
            house.core.run_timers(house.now)
            house.land()
            assert house.queue(ORDERS).count == 0, where


def test_what_cannot_be_written_down_is_lost_as_a_whole() -> None:
    """A tick whose last part cannot be encoded counts as refused by the disk."""
    with pytest.MonkeyPatch.context() as patch:
        house = House(patch)
        house.send(ORDERS, "a", "b")
        before = house.main()
        house.read(ORDERS, 2, deadline=house.now)
        house.core.send(ORDERS, [told("c")], house.now)
        house.core.tick.on_seal.append(house.faults.passing("on_seal", lambda: None))
        with house.faults.armed(1), pytest.raises(StorageError):
            house.core.ticks.seal(house.now)
        assert house.main() == before
        house.land()
        assert house.main() == before
        assert PositionState.DELETED not in house.queue(ORDERS).positions.values()


@pytest.mark.parametrize("lost", [False, True], ids=["committed", "lost"])
def test_every_callback_of_a_tick_has_its_turn(lost: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        house = House(patch)
        house.send(ORDERS, "a")
        house.read(ORDERS, 1, deadline=house.now)
        told_of: list[int] = []
        for number in range(3):
            house.core.tick.on_commit.append(lambda number=number: told_of.append(number // (number - 1)))  # type: ignore[misc]
            house.core.tick.on_failure.append(lambda error, number=number: told_of.append(number // (number - 1)))  # type: ignore[misc]
        tick = house.core.ticks.seal(house.now)
        assert tick is not None
        if lost:
            house.core.ticks.failed(tick, StorageError("the disk is full"), house.now)
        else:
            house.store.commit([tick.batch])
            house.core.ticks.committed(tick, house.now)
        assert told_of == [0, 2]
        assert house.core.delivery.tally.follow_up_errors == 1


def test_a_step_back_that_fails_keeps_no_other_from_being_taken() -> None:
    with pytest.MonkeyPatch.context() as patch:
        house = House(patch)
        house.send(ORDERS, "a", "b")
        before = house.snapshot()
        with suppress(Broken), house.core.delivery.atomic:
            house.read(ORDERS, 1, deadline=house.now)
            assert house.core.tick.steps is not None
            house.core.tick.steps.append((lambda: 1 // 0,))
            house.read(ORDERS, 1, deadline=house.now)
            raise Broken("at the end")
        assert house.snapshot() == before
        assert house.core.delivery.tally.follow_up_errors == 1
