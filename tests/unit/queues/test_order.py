"""Order and identity: the place of a message in its queue, and its numbers."""

from __future__ import annotations

from random import Random

import pytest

from postroad.message import Message
from postroad.names import MessageId
from postroad.queues.queue import PositionState
from postroad.store.interface import Record
from postroad.store.memory import MemoryStore
from postroad.wire.view import MessageView
from tests.unit.queues.harness import ELSEWHERE, IDENTIFIER, LEDGER, ORDERS, OTHER, Harness, labels

ARRIVAL = (1 << 56) - 1


def priorities(*values: int, recoverable: bool = True) -> list[Message]:
    return [
        Message(label=f"{value}-{place}", priority=value, recoverable=recoverable) for place, value in enumerate(values)
    ]


@pytest.mark.spec("DM-3.1.7.1.9-06", "DM-3.1.1.2-10", "MQ-2.2.19.1-06")
def test_priority_comes_first_and_arrival_after(harness: Harness) -> None:
    harness.send(ORDERS, *priorities(3, 5, 3, 0, 7, 5))
    assert harness.receive(ORDERS, 6) == ["7-4", "5-1", "5-5", "3-0", "3-2", "0-3"]


@pytest.mark.spec("DM-3.1.1.2-10")
def test_express_and_recoverable_messages_stand_in_one_order(harness: Harness) -> None:
    for place, (priority, recoverable) in enumerate([(3, True), (3, False), (5, False), (3, True), (5, True)]):
        harness.send(ORDERS, Message(label=str(place), priority=priority, recoverable=recoverable))
    assert harness.labels(ORDERS) == ["2", "4", "0", "1", "3"]
    assert labels(harness.queue(ORDERS).available_before(5)) == ["3", "1", "0", "4", "2"]


@pytest.mark.spec("DM-3.1.1.12-02")
def test_lookup_ids_ascend_along_the_queue_and_never_repeat(harness: Harness) -> None:
    """By the ids alone, whatever store the records come from. The queue's order is priority, then arrival."""
    random = Random(7)
    sent = [(random.randrange(8), number) for number in range(50)]
    for priority, number in sent:
        harness.send(ORDERS, Message(label=str(number), priority=priority, recoverable=random.random() < 0.5))
    by_id = {record.lookup_id: MessageView(record.packet).label for record in harness.queue(ORDERS).available(100)}
    assert len(by_id) == 50
    assert [by_id[lookup_id] for lookup_id in sorted(by_id)] == [
        str(number) for _, number in sorted(sent, key=lambda each: (-each[0], each[1]))
    ]
    assert all(0 <= lookup_id < 1 << 64 for lookup_id in by_id)


def test_a_range_is_read_only_where_it_has_messages(harness: Harness) -> None:
    """Each run has one store and one priority; together they have every message of the range once, and none is
    empty."""
    random = Random(11)
    for number in range(40):
        recoverable = random.random() < 0.5
        harness.send(ORDERS, Message(label=str(number), priority=random.choice((0, 3, 6, 7)), recoverable=recoverable))
    queue = harness.queue(ORDERS)
    arrivals = {record.lookup_id & ARRIVAL: record for record in queue.everything()}
    first = min(arrivals)
    assert queue.first_arrival == first
    for start, end in ((0, first + 100), (first, first + 1), (first + 7, first + 9), (first + 40, first + 99), (5, 5)):
        found = []
        for run in queue.runs(start, end):
            records = run.store.scan(queue.number, run.first - 1, 100)
            inside = [record for record in records if record.lookup_id <= run.last]
            assert inside
            assert all(MessageView(record.packet).recoverable is not run.is_express for record in inside)
            found += [record.lookup_id & ARRIVAL for record in inside]
        assert sorted(found) == [arrival for arrival in sorted(arrivals) if start <= arrival < end]


@pytest.mark.spec("DM-3.1.7.1.9-04")
def test_each_arrival_is_one_more_in_the_low_seven_bytes(harness: Harness) -> None:
    harness.send(ORDERS, *priorities(3, 7))
    harness.send(OTHER, *priorities(3, recoverable=False))
    harness.send_transactional(LEDGER, "in a transaction")
    records = [harness.queue(name).available(9) for name in (ORDERS, OTHER, LEDGER)]
    arrivals = sorted(record.lookup_id & ARRIVAL for found in records for record in found)
    assert arrivals == list(range(arrivals[0], arrivals[0] + 4))


def test_the_high_byte_of_a_lookup_id_is_7_less_the_priority(harness: Harness) -> None:
    harness.send(ORDERS, *priorities(0, 3, 7))
    assert [record.lookup_id >> 56 for record in harness.queue(ORDERS).available(9)] == [0, 4, 7]
    harness.send_transactional(LEDGER, Message(priority=6))
    assert [record.lookup_id >> 56 for record in harness.queue(LEDGER).available(9)] == [7]


@pytest.mark.spec("DM-3.1.1.12-06")
def test_a_message_arrives_when_it_enters_the_queue_not_when_it_is_sent(harness: Harness) -> None:
    transaction = harness.manager.begin()
    harness.send(LEDGER, "a", transaction=transaction)
    sent = harness.now
    harness.now += 60
    harness.manager.commit(transaction, harness.now)
    harness.tick()
    (record,) = harness.queue(LEDGER).available(1)
    assert record.arrived_ms == int(harness.now * 1000)
    assert harness.messages(LEDGER)[0].sent_time == int(sent)


@pytest.mark.spec("DM-3.1.1.12-03", "MQ-2.2.18.1.3-02", "MQ-2.2.18.1.3-03", "MQ-2.2.19.2-09")
def test_every_message_of_a_manager_has_an_id_of_its_own(harness: Harness) -> None:
    for _ in range(250):
        harness.send(ORDERS, "a", Message(label="express"))
        harness.send(ELSEWHERE, "away")
    harness.send(rf"{ELSEWHERE},DIRECT=OS:gamma\private$\orders", "two copies")
    for _ in range(249):
        harness.send_transactional(LEDGER, "in a transaction")
    names = (ORDERS, ELSEWHERE, r"DIRECT=OS:gamma\private$\orders", LEDGER)
    identifiers = [MessageId.from_bytes(view.identifier) for name in names for view in harness.messages(name)]
    assert len(identifiers) == len(set(identifiers)) == 1001
    assert {identifier.guid for identifier in identifiers} == {IDENTIFIER}


def test_message_ids_start_again_when_32_bits_are_used_up(harness: Harness) -> None:
    harness.manager.counters.take_message_ids((1 << 32) - harness.manager.counters.take_message_ids(1) - 3)
    assert harness.send(ORDERS, "a", "b", "c", "d") == [(1 << 32) - 2, (1 << 32) - 1, 0, 1]
    assert [view.message_id for view in harness.messages(ORDERS)] == [(1 << 32) - 2, (1 << 32) - 1, 0, 1]


def test_what_is_taken_from_the_front_is_looked_at_once(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    harness.send(ORDERS, *map(str, range(100)))
    looked_at: list[int] = []
    scan = MemoryStore.scan

    def watched(store: MemoryStore, queue: int, after: int, limit: int) -> list[Record]:
        found = scan(store, queue, after, limit)
        looked_at.extend(record.lookup_id for record in found)
        return found

    monkeypatch.setattr(MemoryStore, "scan", watched)
    taken = [record for _ in range(10) for record in harness.lock(ORDERS, 10)]
    assert labels(taken) == [str(each) for each in range(100)]
    assert len(looked_at) == len(set(looked_at)) == 100


def test_a_reader_that_comes_again_and_again_has_more_read_ahead(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.send(ORDERS, *map(str, range(300)))
    looks: list[int] = []
    scan = MemoryStore.scan

    def watched(store: MemoryStore, queue: int, after: int, limit: int) -> list[Record]:
        looks.append(limit)
        return scan(store, queue, after, limit)

    monkeypatch.setattr(MemoryStore, "scan", watched)
    taken = [record for _ in range(110) for record in harness.lock(ORDERS, 1)]
    assert looks == [8, 16, 32, 64]
    harness.end(ORDERS, taken[0], delete=False)  # what was read ahead is of no use
    assert labels([record for _ in range(9) for record in harness.lock(ORDERS, 1)])[:2] == ["0", "110"]
    assert looks[4] == 8


def test_what_comes_back_or_comes_before_stands_in_front_again(harness: Harness) -> None:
    harness.send(ORDERS, *map(str, range(6)))
    first, second, *_ = harness.lock(ORDERS, 4)
    harness.end(ORDERS, second, delete=False)
    assert harness.labels(ORDERS) == ["1", "4", "5"]
    harness.send(ORDERS, Message(label="urgent", priority=7))
    assert labels(harness.lock(ORDERS, 2)) == ["urgent", "1"]
    harness.end(ORDERS, first, delete=False)
    assert harness.labels(ORDERS) == ["0", "4", "5"]


def test_what_comes_back_between_two_that_were_seen_is_not_passed_over(harness: Harness) -> None:
    harness.send(ORDERS, *map(str, range(4)))
    queue = harness.queue(ORDERS)
    middle = queue.available(4)[1]
    queue.mark(middle.lookup_id, PositionState.LOCKED)
    seen = queue.available(4)
    assert labels(seen) == ["0", "2", "3"]
    harness.end(ORDERS, middle, delete=False)
    for record in seen[:2]:
        queue.mark(record.lookup_id, PositionState.LOCKED)
    assert harness.labels(ORDERS) == ["1", "3"]
