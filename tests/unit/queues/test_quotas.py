"""Quotas and sizes, [MS-MQDMPR] 3.1.7.1.9, 3.1.7.2.1 and 3.1.7.2.2: what is full, and that every count stays right."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postroad.errors import NoMessage, QuotaExceeded
from postroad.message import Message
from postroad.queues.open_queue import Transaction
from postroad.queues.tick import Tick
from postroad.reports.operations import SeekAction
from tests.unit.queues.harness import DEADLETTER, DEADXACT, ELSEWHERE, JOURNAL, LEDGER, ORDERS, OTHER, Harness

SMALL = r"private$\small"
KILOBYTE = 1024


def filling(harness: Harness, name: str, size: int, *, recoverable: bool = True) -> Message:
    """A message whose packet has exactly this size."""
    harness.send(name, Message(label="a", recoverable=recoverable))
    (record,) = harness.queue(name).everything()
    harness.purge(name)
    return Message(bytes(size - len(record.packet)), label="a", recoverable=recoverable)


@pytest.mark.spec("DM-3.1.7.1.9-02", "DM-3.1.1.2-04", "MQ-2.3.1.5-01", "DM-3.1.7.1.27-01")
@pytest.mark.parametrize("recoverable", [True, False])
def test_a_queue_of_one_kilobyte_takes_1024_bytes_and_no_more(harness: Harness, recoverable: bool) -> None:
    queue = harness.create(SMALL, quota_kb=1)
    half = filling(harness, SMALL, KILOBYTE // 2, recoverable=recoverable)
    harness.send(SMALL, half, half)
    assert queue.total_bytes == KILOBYTE
    with pytest.raises(QuotaExceeded, match="quota_kb of private") as caught:
        harness.send(SMALL, Message(recoverable=recoverable))
    assert (caught.value.limit_bytes, caught.value.current_bytes, caught.value.status) == (1024, 1024, 0xC00E0027)
    assert queue.count == 2
    harness.receive(SMALL)
    harness.send(SMALL, half)


@pytest.mark.spec("DM-3.1.7.1.9-02", "DM-3.1.7.1.27-01")
def test_messages_that_do_not_all_fit_are_refused_together(harness: Harness) -> None:
    queue = harness.create(SMALL, quota_kb=1)
    message = filling(harness, SMALL, 600)
    with pytest.raises(QuotaExceeded):
        harness.send(SMALL, message, message)
    assert (queue.count, queue.used_bytes) == (0, 0)


@pytest.mark.spec("MQ-2.3.1.5-01")
def test_a_queue_without_a_quota_takes_what_comes(harness: Harness) -> None:
    harness.send(ORDERS, *[Message(bytes(1 << 20), recoverable=True)] * 5)
    assert harness.queue(ORDERS).count == 5


@pytest.mark.spec("DM-3.1.7.1.9-01")
def test_the_quota_of_the_manager_is_for_all_queues_and_comes_first(harness: Harness) -> None:
    harness.create(SMALL, quota_kb=0)
    harness.use(quota_kb=1)
    harness.send(ORDERS, Message(bytes(500), recoverable=True))
    for name in (ORDERS, OTHER, SMALL, ELSEWHERE):
        with pytest.raises(QuotaExceeded, match="the queue manager is full"):
            harness.send(name, Message(bytes(500), recoverable=True))


@pytest.mark.spec("DM-3.1.7.2.5-01", "DM-3.1.7.1.9-01")
def test_flow_control_refuses_everything_while_it_lasts(harness: Harness) -> None:
    harness.create(SMALL, quota_kb=0)
    harness.manager.throttle(on=True)
    for name in (ORDERS, SMALL):
        with pytest.raises(QuotaExceeded, match="the queue manager"):
            harness.send(name, "a")
    harness.manager.throttle(on=False)
    harness.send(ORDERS, "a")
    assert harness.labels(ORDERS) == ["a"]


def test_what_is_promised_counts(harness: Harness) -> None:
    harness.create(SMALL, quota_kb=1)
    harness.promise(SMALL, Message(bytes(700), recoverable=True))
    with pytest.raises(QuotaExceeded):
        harness.promise(SMALL, Message(bytes(700), recoverable=True))


def test_what_an_open_transaction_sends_counts(harness: Harness) -> None:
    queue = harness.create(SMALL, quota_kb=1, transactional=True)
    transaction = harness.manager.begin()
    harness.send(SMALL, Message(bytes(700)), transaction=transaction)
    with pytest.raises(QuotaExceeded):
        harness.send(SMALL, Message(bytes(700)), transaction=transaction)
    assert (queue.reserved_bytes > 700, queue.total_bytes) == (True, 0)
    harness.manager.abort(transaction, harness.now)
    assert queue.used_bytes == 0


def test_a_full_queue_lets_a_commit_that_was_promised_room_in(harness: Harness) -> None:
    queue = harness.create(SMALL, quota_kb=1, transactional=True)
    transaction = harness.manager.begin()
    harness.send(SMALL, Message(bytes(700), label="a"), transaction=transaction)
    harness.manager.queues.change(harness.manager.tick, queue, 0, quota_kb=0)
    harness.manager.commit(transaction, harness.now)
    harness.tick()
    assert harness.labels(SMALL) == ["a"]


def test_nine_tenths_of_a_quota_are_nearly_all_of_it(harness: Harness) -> None:
    queue = harness.create(SMALL, quota_kb=1)
    message = filling(harness, SMALL, KILOBYTE // 2)
    harness.send(SMALL, message)
    assert not queue.nearly_full
    harness.send(SMALL, message)
    assert queue.nearly_full
    assert not harness.queue(ORDERS).nearly_full


@pytest.mark.parametrize("name", [JOURNAL, DEADLETTER, DEADXACT, rf"{ORDERS};journal"])
def test_journals_and_dead_letters_have_a_quota_without_anybody_setting_one(harness: Harness, name: str) -> None:
    assert harness.queue(name).quota_bytes == 1 << 30


def test_a_store_from_before_the_default_has_it_too(harness: Harness) -> None:
    number = harness.queue(DEADLETTER).number
    definition = json.loads(harness.store.state()[f"queue/{number}"])
    harness.store.set_state(f"queue/{number}", json.dumps(definition | {"quota_kb": None}).encode())
    harness.restart()
    assert harness.queue(DEADLETTER).quota_bytes == 1 << 30


def test_a_journal_can_be_set_to_have_no_limit(harness: Harness) -> None:
    harness.create(SMALL, journal_quota_kb=0xFFFFFFFF)
    harness.restart()
    assert harness.queue(rf"{SMALL};journal").quota_bytes is None
    queue = harness.queue(SMALL)
    harness.manager.queues.change(harness.manager.tick, queue, 0, journal_quota_kb=None)
    assert (queue.properties.journal_quota_kb, harness.queue(rf"{SMALL};journal").quota_bytes) == (1 << 20, 1 << 30)


def test_dead_letters_and_journals_count_against_the_quota_of_the_manager(harness: Harness) -> None:
    harness.use(quota_kb=1)
    harness.send(ORDERS, Message(bytes(500), recoverable=True, dead_letter=True))
    harness.purge(ORDERS)
    assert harness.labels(DEADLETTER) == [""]
    with pytest.raises(QuotaExceeded, match=r"raise quota_kb in \[manager\]"):
        harness.send(ORDERS, Message(bytes(500), recoverable=True))


# Sizes


@pytest.mark.spec("DM-3.1.7.2.2-01", "DM-3.1.7.2.1-01")
@pytest.mark.parametrize("recoverable", [True, False])
def test_the_size_of_a_queue_is_that_of_its_packets(harness: Harness, recoverable: bool) -> None:
    queue = harness.queue(ORDERS)
    harness.send(ORDERS, *(Message(bytes(size), recoverable=recoverable) for size in (0, 1, 100)))
    sizes = [len(record.packet) for record in queue.everything()]
    assert (queue.total_bytes, queue.count) == (sum(sizes), 3)
    harness.receive(ORDERS)
    assert queue.total_bytes == sum(sizes[1:])
    harness.purge(ORDERS)
    assert (queue.total_bytes, queue.count, queue.used_bytes) == (0, 0, 0)


def test_sizes_are_right_after_a_restart(harness: Harness) -> None:
    harness.send(ORDERS, "a", "b", Message(label="express"))
    harness.receive(ORDERS)
    before = harness.queue(ORDERS).stored_bytes
    harness.restart()
    queue = harness.queue(ORDERS)
    assert (queue.count, queue.total_bytes, before) == (1, before, sum(len(each.packet) for each in queue.everything()))


ACTIONS = ("send", "express", "receive", "lock", "purge", "move", "transact", "wait", "delete", "deadletter")


ENDINGS = ("land", "lose", "send off", "wait for more")


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(ACTIONS), st.sampled_from(ENDINGS)), max_size=15))
def test_every_path_leaves_the_sizes_right(steps: list[tuple[str, str]]) -> None:
    """Whatever happens while a tick is on its way, and however the tick ends."""
    harness = Harness()
    for name in (ORDERS, OTHER):
        harness.create(name, journal=True, quota_kb=2, journal_quota_kb=1)
    harness.create(LEDGER, transactional=True, abort_limit=2)
    open_transactions: list[Transaction] = []
    on_its_way: Tick | None = None
    for action, ending in steps:
        _act(harness, action, open_transactions)
        if ending in ("land", "lose") and on_its_way is not None:
            (harness.land if ending == "land" else harness.lose)(on_its_way)
            on_its_way = None
        if ending != "wait for more" and on_its_way is None:
            on_its_way = harness.manager.ticks.seal()
    if on_its_way is not None:
        harness.land(on_its_way)
    for transaction in open_transactions:
        harness.manager.abort(transaction, harness.now)
    harness.tick()
    for queue in harness.manager.queues:
        packets = [len(record.packet) for record in queue.everything()]
        assert queue.reserved_bytes == 0, queue
        assert (queue.count, queue.total_bytes, queue.used_bytes) == (len(packets), sum(packets), sum(packets)), queue
    assert harness.manager.queues.usage.used_bytes == sum(queue.used_bytes for queue in harness.manager.queues)
    stored = {queue.number: (queue.stored_count, queue.stored_bytes) for queue in harness.manager.queues}
    harness.restart()
    assert harness.manager.queues.usage.used_bytes == sum(size for _, size in stored.values())
    assert {queue.number: (queue.count, queue.total_bytes) for queue in harness.manager.queues} == stored
    known = {queue.number for queue in harness.manager.queues}
    assert all(harness.store.scan(number) == [] for number in range(1, 200) if number not in known)


def _act(harness: Harness, action: str, open_transactions: list[Transaction]) -> None:
    """One action without its commit. An impossible action does nothing."""
    manager, now = harness.manager, harness.now
    queue = harness.queue(ORDERS)
    try:
        match action:
            case "send" | "express" | "deadletter":
                message = Message(
                    bytes(300),
                    recoverable=action != "express",
                    dead_letter=action == "deadletter",
                    time_to_be_received=5,
                )
                manager.send(ORDERS, [message], now)
            case "receive":
                manager.delivery.receive(queue, manager.delivery.fresh(queue, 2, now), now)
            case "lock":
                for record in manager.delivery.fresh(queue, 1, now):
                    manager.reading.read_by_lookup_id(
                        harness.open(ORDERS), record.lookup_id, SeekAction.CURRENT, now, peek=False, two_phase=True
                    )
                    manager.reading.end(queue, record, now, delete=False)
            case "purge":
                manager.purge(queue, now)
            case "move":
                manager.move(queue, harness.queue(OTHER), manager.delivery.fresh(queue, 2, now), now)
            case "transact":
                transaction = manager.begin()
                open_transactions.append(transaction)
                manager.send(LEDGER, [Message(bytes(300))], now, transaction)
                if len(open_transactions) > 2:
                    manager.commit(open_transactions.pop(0), now)
                for record in manager.delivery.fresh(harness.queue(LEDGER), 1, now):
                    manager.reading.read_by_lookup_id(
                        harness.open(LEDGER),
                        record.lookup_id,
                        SeekAction.CURRENT,
                        now,
                        peek=False,
                        transaction=transaction,
                    )
            case "wait":
                harness.now += 3
                manager.run_timers(harness.now)
            case "delete":
                manager.delete_queue(queue, now)
                manager.create_queue(ORDERS, now, journal=True, quota_kb=2)
                manager.delete_queue(harness.queue(LEDGER), now)
                manager.create_queue(LEDGER, now, transactional=True, abort_limit=2)
    except (QuotaExceeded, NoMessage):
        pass


def test_dead_letters_have_the_size_of_what_died(harness: Harness) -> None:
    harness.send(ORDERS, Message(b"x", recoverable=True, dead_letter=True))
    size = harness.queue(ORDERS).total_bytes
    harness.purge(ORDERS)
    assert harness.queue(DEADLETTER).total_bytes == size
