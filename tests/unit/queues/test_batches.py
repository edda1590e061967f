"""Messages that are sent, received or acknowledged together end like single ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroad.errors import QuotaExceeded
from postroad.message import Composer, Message
from postroad.names import DirectName, parse_format_name
from postroad.queues import queue as queue_module
from postroad.queues.local import PURGE_MORE
from postroad.queues.queue import Queue
from postroad.store.interface import PRIORITY_SHIFT, Record
from tests.unit.queues.harness import ELSEWHERE, IDENTIFIER, LEDGER, ORDERS, Harness, labels

FAR = r"DIRECT=TCP:10.0.0.2\private$\orders"
MESSAGES = st.builds(
    Message,
    st.one_of(st.binary(max_size=9), st.sampled_from([b"same", b"size", "text", "größer"])),
    label=st.sampled_from(["", "a", "b"]),
    priority=st.integers(0, 7),
    recoverable=st.booleans(),
    body_type=st.sampled_from([0, 8, 31]),
    app_tag=st.sampled_from([0, 7]),
    correlation_id=st.sampled_from([None, bytes(range(20))]),
    response_queue=st.sampled_from([None, FAR]),
    admin_queue=st.sampled_from([None, FAR]),
    ack=st.sampled_from([0, "full"]),
    time_to_reach_queue=st.sampled_from([None, 0, 60]),
    time_to_be_received=st.sampled_from([None, 0, 60]),
    journal=st.booleans(),
    dead_letter=st.booleans(),
    dead_letter_queue=st.sampled_from([None, r"private$\dead"]),
    trace=st.sampled_from([None, UUID(int=5)]),
    extension=st.sampled_from([b"", b"more"]),
    connector_type=st.sampled_from([None, UUID(int=6)]),
    message_class=st.sampled_from([0, 0x0100]),
)


@given(st.lists(MESSAGES, max_size=12), st.booleans(), st.booleans())
def test_a_batch_is_composed_like_its_messages(messages: list[Message], twice: bool, transactional: bool) -> None:
    if twice:  # so there are some that share what is written once
        messages = [
            each
            for message in messages
            for each in (message, message, replace(message, label="größer 𝄞", body=b"another"))
        ]
    destination = parse_format_name(FAR)
    assert isinstance(destination, DirectName)
    ids = range(100, 100 + len(messages))
    packets = Composer(IDENTIFIER, destination).compose_all(messages, ids, 1_700_000_000, transactional=transactional)
    single = Composer(IDENTIFIER, destination)
    assert packets == [
        single.compose(message, number, 1_700_000_000, transactional=transactional)
        for message, number in zip(messages, ids, strict=True)
    ]


def everything(harness: Harness) -> dict[str, list[Record]]:
    """In queue order, without their arrival numbers, because copies of a batch come after it."""
    return {
        queue.name: [each._replace(lookup_id=each.lookup_id >> PRIORITY_SHIFT) for each in queue.everything()]
        for queue in harness.manager.queues
    }


def available(queue: Queue) -> list[Record]:
    """By a look into the stores."""
    return [record for record in queue.everything() if queue.is_available(record.lookup_id)]


@given(st.lists(MESSAGES, min_size=1, max_size=8), st.sampled_from([ELSEWHERE, ORDERS, LEDGER]))
def test_a_batch_is_stored_like_its_messages(messages: list[Message], name: str) -> None:
    if name == ORDERS:  # an acknowledgment takes the next message id
        messages = [replace(message, ack=0) for message in messages]
    together, one_by_one = Harness(), Harness()
    for harness in (together, one_by_one):
        harness.create(ORDERS)
        harness.create(LEDGER, transactional=True)
        transaction = harness.manager.begin() if name == LEDGER else None
        for batch in [messages] if harness is together else [[message] for message in messages]:
            harness.promise(name, *batch, transaction=transaction)
        if transaction is not None:
            harness.manager.commit(transaction, harness.now)
        harness.tick()
    assert everything(together) == everything(one_by_one)
    assert [queue.used_bytes for queue in together.manager.queues] == [
        queue.used_bytes for queue in one_by_one.manager.queues
    ]
    assert together.manager.delivery.tally == one_by_one.manager.delivery.tally


@given(st.lists(MESSAGES, max_size=8), st.integers(1, 4))
def test_a_batch_is_received_like_its_messages(messages: list[Message], count: int) -> None:
    together, one_by_one = Harness(), Harness()
    for harness in (together, one_by_one):
        harness.create(ORDERS, journal=True)
        harness.send(ORDERS, *messages)
        harness.now += 1
        size = len(harness.manager.delivery.fresh(harness.queue(ORDERS), count, harness.now))
        harness.tick()
        for _ in range(1 if harness is together else size):
            if size:
                harness.read(ORDERS, count=size if harness is together else 1)
    assert everything(together) == everything(one_by_one)
    assert together.manager.delivery.tally == one_by_one.manager.delivery.tally


@pytest.mark.parametrize("recoverable", [True, False])
def test_a_quota_that_is_reached_within_a_batch_refuses_all_of_it(harness: Harness, recoverable: bool) -> None:
    harness.send(ELSEWHERE, "first")
    queue = harness.queue(ELSEWHERE)
    harness.use(quota_kb=2)
    used = queue.used_bytes
    with pytest.raises(QuotaExceeded):
        harness.promise(ELSEWHERE, *[Message(bytes(600), recoverable=recoverable)] * 3)
    assert (queue.used_bytes, queue.count) == (used, 1)
    assert not harness.manager.tick
    assert labels(queue.available(10)) == ["first"]


class TestFront:
    def test_what_was_just_stored_is_not_read_back(self, harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
        harness.send(ELSEWHERE, "a")
        queue = harness.queue(ELSEWHERE)
        assert labels(queue.available(10)) == ["a"]
        _forbid(harness, monkeypatch)
        harness.send(ELSEWHERE, "b", "c")
        harness.send(ELSEWHERE, Message(b"", label="urgent", priority=7, recoverable=True))
        assert labels(queue.available(10)) == ["urgent", "a", "b", "c"]
        assert labels(queue.available(2)) == ["urgent", "a"]

    def test_express_messages_that_come_in_between_keep_their_place(self, harness: Harness) -> None:
        harness.send(ELSEWHERE, "a")
        queue = harness.queue(ELSEWHERE)
        assert labels(queue.available(10)) == ["a"]
        harness.promise(ELSEWHERE, "b", Message(b"", label="c"))
        assert labels(queue.available(10)) == ["a", "c"]
        harness.tick()
        assert labels(queue.available(10)) == ["a", "b", "c"]

    @pytest.mark.parametrize("taken", range(4))
    def test_a_record_that_is_seen_before_its_commit_is_heard_of_is_there_once(
        self, harness: Harness, taken: int
    ) -> None:
        harness.send(ELSEWHERE, "a")
        queue = harness.queue(ELSEWHERE)
        queue.available(10)
        harness.promise(ELSEWHERE, "b", "c")
        tick = harness.seal()
        harness.store.commit([tick.batch])
        queue.changed()  # so it looks again
        seen = queue.available(10)
        assert labels(seen) == ["a", "b", "c"]
        harness.manager.delivery.lock_all(queue, [record.lookup_id for record in seen[:taken]])
        harness.manager.ticks.committed(tick, harness.now)
        assert queue.available(10) == seen[taken:]

    def test_a_lost_tick_leaves_no_trace(self, harness: Harness) -> None:
        harness.send(ELSEWHERE, "a", "b")
        queue = harness.queue(ELSEWHERE)
        a, b = queue.available(10)
        harness.promise(ELSEWHERE, "lost")
        harness.manager.delivery.discard_all(queue, [a, b])
        assert queue.available(10) == []
        harness.fail()
        assert queue.available(10) == [a, b]
        harness.send(ELSEWHERE, "c")
        assert labels(queue.available(10)) == ["a", "b", "c"]

    def test_a_message_that_comes_back_is_first_again(self, harness: Harness) -> None:
        harness.send(ELSEWHERE, "a", "b", "c")
        queue = harness.queue(ELSEWHERE)
        a, b, c = queue.available(10)
        harness.manager.delivery.lock_all(queue, [a.lookup_id, b.lookup_id])
        assert queue.available(10) == [c]
        harness.manager.delivery.unlock(queue, b.lookup_id)
        assert queue.available(10) == [b, c]
        harness.manager.delivery.unlock(queue, a.lookup_id)
        assert queue.available(10) == [a, b, c]

    def test_an_abort_that_is_counted_is_seen(self, harness: Harness) -> None:
        harness.send_transactional(LEDGER, "a")
        queue = harness.queue(LEDGER)
        transaction = harness.manager.begin()
        harness.read(LEDGER, transaction=transaction)
        harness.manager.abort(transaction, harness.now)
        assert [record.aborts for record in queue.available(10)] == [0]  # until it is durable
        harness.tick()
        assert [record.aborts for record in queue.available(10)] == [1]

    def test_it_is_bounded(self, harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(queue_module, "KEPT_BYTES", 1000)
        monkeypatch.setattr(queue_module, "ALL_KEPT_BYTES", 1500)
        names = [ELSEWHERE, FAR]
        for turn in range(3):
            for name in names:
                harness.send(name, *(str(turn * 5 + number) for number in range(5)))
                harness.queue(name).available(2)
                assert harness.queue(name)._front_bytes <= 1000
        usage = harness.manager.queues.usage
        assert 0 < usage.kept_bytes == sum(queue._front_bytes for queue in harness.manager.queues) <= 1500
        for name in names:
            queue = harness.queue(name)
            taken: list[str] = []
            while records := queue.available(2):
                taken += labels(records)
                harness.manager.delivery.discard_all(queue, records)
                harness.tick()
            assert taken == [str(number) for number in range(15)]
        assert usage.kept_bytes == 0

    @given(st.lists(st.tuples(st.sampled_from("sbxlurdaf"), st.integers(0, 7), st.integers(1, 4)), max_size=25))
    def test_it_is_what_a_look_into_the_stores_finds(self, steps: list[tuple[str, int, int]]) -> None:
        harness = Harness()
        harness.send(ELSEWHERE, "first")
        queue, delivery = harness.queue(ELSEWHERE), harness.manager.delivery
        locked: list[Record] = []
        for action, number, count in steps:
            _act(harness, queue, locked, action, number, count)
            assert queue.available(count) == available(queue)[:count]
        harness.tick()
        assert queue.available(1000) == available(queue)
        assert delivery.queues.usage.kept_bytes == sum(each._front_bytes for each in harness.manager.queues)
        assert queue._front_bytes == sum(len(record.packet) for record in queue._front)


def _act(harness: Harness, queue: Queue, locked: list[Record], action: str, number: int, count: int) -> None:
    delivery = harness.manager.delivery
    match action:
        case "s" | "x":  # recoverable and express messages of some priority
            message = Message(b"body", label="m", priority=number, recoverable=action == "s")
            harness.promise(ELSEWHERE, *[message] * count)
        case "b":
            kinds = [Message(b"", priority=number ^ each, recoverable=bool(each & 1)) for each in range(count)]
            harness.promise(ELSEWHERE, *kinds)
        case "l":
            records = available(queue)[number : number + count] if number > 3 else queue.available(count)
            delivery.lock_all(queue, [record.lookup_id for record in records])
            locked += records
        case "u" if locked:
            delivery.unlock(queue, locked.pop(number % len(locked)).lookup_id)
        case "r" if locked:
            delivery.discard_all(queue, [locked.pop(0) for _ in range(min(count, len(locked)))])
        case "d":
            delivery.discard_all(queue, available(queue)[number : number + count])
        case "a":
            harness.tick()
        case "f" if harness.manager.tick:
            harness.fail()


def _forbid(harness: Harness, patch: pytest.MonkeyPatch) -> None:
    def scan(*arguments: Any) -> list[Record]:
        raise AssertionError("the queue was read from the store")

    patch.setattr(harness.store, "scan", scan)


def test_readers_of_a_deep_queue_rarely_look_into_the_store(harness: Harness) -> None:
    harness.send(ORDERS, *(str(number) for number in range(200)))
    queue = harness.queue(ORDERS)
    queue.changed()  # nothing of it is in memory, as after a restart
    scans = []
    scan = harness.store.scan
    harness.store.scan = lambda *arguments: scans.append(arguments) or scan(*arguments)  # type: ignore[method-assign,func-returns-value]
    found = [label for _ in range(20) for label in harness.receive(ORDERS, 10)]
    assert found == [str(number) for number in range(200)]
    assert len(scans) < 5


# Messages that differ much in size: their mean says nothing of those at the head


def read_sizes(monkeypatch: pytest.MonkeyPatch, store: object) -> list[int]:
    """The bytes of each look into a store, as they come."""
    sizes: list[int] = []
    scan = store.scan  # type: ignore[attr-defined]

    def counting(*arguments: Any) -> list[Record]:
        records: list[Record] = scan(*arguments)
        sizes.append(sum(len(record.packet) for record in records))
        return records

    monkeypatch.setattr(store, "scan", counting)
    return sizes


@pytest.mark.parametrize("count", [1, 5, 1000])
def test_a_read_takes_no_more_bytes_than_it_may(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr(queue_module, "LARGE_BYTES", 20_000)
    monkeypatch.setattr(queue_module, "KEPT_BYTES", 10_000)
    harness = Harness()
    queue = harness.create(ORDERS)
    harness.send(ORDERS, *(Message(bytes(1000), label="large", recoverable=True) for _ in range(100)))
    harness.send(ORDERS, *(Message(label="small", recoverable=True) for _ in range(2000)))
    sizes = read_sizes(monkeypatch, queue._durable)
    most = 20_000
    found = queue.available(count, most_bytes=most)
    one = len(found[0].packet)
    assert len(found) == min(count, -(-most // one))
    assert sum(sizes) <= most + queue_module.SCAN_LARGE * one
    everything, after = [], -1
    while page := queue.available(count, after, most):  # and nothing is left out
        everything += labels(page)
        after = page[-1].lookup_id
    assert everything == ["large"] * 100 + ["small"] * 2000


def test_a_purge_goes_on_to_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_module, "LARGE_BYTES", 20_000)
    monkeypatch.setattr("postroad.queues.local.READ_BYTES", 20_000)
    harness = Harness()
    queue = harness.create(ORDERS)
    harness.send(ORDERS, *(Message(bytes(1000), recoverable=True) for _ in range(100)))
    steps: list[int] = []
    while not steps or steps[-1] >= PURGE_MORE:
        steps.append(harness.manager.purge(queue, harness.now))
        harness.tick()
    assert sum(steps) == 100
    assert max(steps) < 50
