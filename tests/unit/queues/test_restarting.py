"""What survives a restart and what does not, [MS-MQDMPR] 3.1.1 and 3.1.3; and what happens with a damaged store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace

import pytest

from postroad.config import default_configuration
from postroad.errors import QueueNotFound, StorageError
from postroad.manager import build_manager
from postroad.manager.composition import SECRET
from postroad.message import Message
from postroad.queues.local import LocalQueueManager
from postroad.queues.properties import QueueProperties, QueueType
from postroad.queues.tick import ARRIVAL_BLOCK, COUNTERS_STATE, MESSAGE_ID_BLOCK, Counters
from postroad.queues.transactions import MOST_APART
from postroad.store.interface import Batch, Key
from postroad.store.memory import MemoryStore
from postroad.validation.queue_properties import QueuePrivacy
from tests.unit.queues.harness import (
    DEADLETTER,
    DEADXACT,
    ELSEWHERE,
    IDENTIFIER,
    JOURNAL,
    LEDGER,
    NAME,
    ORDERS,
    OTHER,
    Harness,
)

# What survives


@pytest.mark.spec("DM-3.1.1-01", "DM-3.1.1.2-01", "DM-3.1.1.2-09")
def test_every_property_of_a_queue_survives(harness: Harness) -> None:
    harness.create(
        r"private$\all",
        label="label",
        transactional=True,
        journal=True,
        quota_kb=7,
        journal_quota_kb=8,
        authenticate=True,
        privacy=QueuePrivacy.BODY,
        abort_limit=3,
    )
    harness.create(r"private$\news", multicast_address="234.1.1.1:8001")
    harness.manager.queues.change(
        harness.manager.tick, harness.queue(r"private$\all"), int(harness.now) + 9, label="new"
    )
    harness.manager.queues.subqueue(harness.manager.tick, harness.queue(r"private$\all"), "aside", int(harness.now))
    harness.send(ELSEWHERE, "a")
    before = {queue.number: asdict(queue.properties) for queue in harness.manager.queues}
    harness.restart()
    assert {queue.number: asdict(queue.properties) for queue in harness.manager.queues} == before
    queue = harness.queue(r"private$\all")
    assert queue.journal is harness.queue(r"private$\all;journal")
    assert queue.subqueues == {"aside": harness.queue(r"private$\all;aside")}


@pytest.mark.spec("DM-3.1.1-01", "DM-3.1.1.12-01", "DM-3.1.1.11-04", "MQ-2.2.19.2-13")
def test_a_recoverable_message_survives_with_all_that_is_known_of_it(harness: Harness) -> None:
    harness.send(ORDERS, Message(b"body", label="a", priority=5, recoverable=True, time_to_be_received=99))
    harness.send_transactional(LEDGER, "b")
    harness.send(ELSEWHERE, "c")
    names = (ORDERS, LEDGER, ELSEWHERE)
    before = [list(harness.queue(name).everything()) for name in names]
    harness.restart()
    assert [list(harness.queue(name).everything()) for name in names] == before
    assert harness.receive(ORDERS) == ["a"]


@pytest.mark.spec("DM-3.1.1-03", "MQ-2.2.19.2-14")
def test_an_express_message_is_gone(harness: Harness) -> None:
    harness.send(ORDERS, Message(label="express"), "recoverable")
    harness.send(ELSEWHERE, Message(label="express"))
    harness.restart()
    assert (harness.labels(ORDERS), harness.labels(ELSEWHERE)) == (["recoverable"], [])
    assert [harness.queue(name).express_bytes for name in (ORDERS, ELSEWHERE)] == [0, 0]


@pytest.mark.spec("DM-3.1.1-03")
def test_descriptors_cursors_and_waiting_reads_are_gone(harness: Harness) -> None:
    descriptor = harness.open(ORDERS)
    harness.manager.open_cursor(descriptor)
    harness.ask(descriptor)
    harness.restart()
    assert harness.manager.descriptors == {}
    assert (harness.queue(ORDERS).descriptors, harness.queue(ORDERS).waiting) == ([], [])


@pytest.mark.spec("DM-3.1.3-11", "DM-3.1.1-03")
def test_a_transaction_that_was_open_is_aborted(harness: Harness) -> None:
    harness.send_transactional(LEDGER, "a", "b")
    transaction = harness.manager.begin()
    harness.read(LEDGER, transaction=transaction)
    harness.send(LEDGER, "never", transaction=transaction)
    harness.restart()
    assert harness.manager.transactions == {}
    assert harness.labels(LEDGER) == ["a", "b"]
    assert harness.queue(LEDGER).used_bytes == harness.queue(LEDGER).stored_bytes


def test_what_was_promised_and_not_committed_never_was(harness: Harness) -> None:
    harness.promise(ORDERS, "a")
    harness.manager.create_queue(r"private$\late", harness.now)
    harness.restart()
    assert harness.labels(ORDERS) == []
    with pytest.raises(QueueNotFound):
        harness.queue(r"private$\late")


# Numbers that only grow


@pytest.mark.spec("DM-3.1.1.1-12")
def test_lookup_ids_and_message_ids_go_on_upwards(harness: Harness) -> None:
    harness.send(ORDERS, "a")
    for _ in range(3):
        harness.restart()
        harness.send(ORDERS, "b")
    lookup_ids = [record.lookup_id for record in harness.queue(ORDERS).available(9)]
    assert lookup_ids == sorted(set(lookup_ids))
    message_ids = [view.message_id for view in harness.messages(ORDERS)]
    assert message_ids == sorted(set(message_ids))


@pytest.mark.spec("MQ-2.2.19.2-09", "DM-3.1.1.1-12")
def test_ids_that_only_express_messages_used_are_not_given_again(harness: Harness) -> None:
    for _ in range(10):
        (last,) = harness.manager.send(ORDERS, [Message(label="express")], harness.now)
        last = harness.manager.counters.take_message_ids(MESSAGE_ID_BLOCK // 4) + MESSAGE_ID_BLOCK // 4
        harness.manager.run_timers(harness.now)  # as a running manager does all the time
        harness.tick()
    arrival = harness.manager.counters.last_arrival
    harness.restart()
    assert harness.send(ORDERS, "a")[0] > last
    assert harness.manager.counters.last_arrival > arrival


@pytest.mark.parametrize("used", [ARRIVAL_BLOCK // 2 + 1, MESSAGE_ID_BLOCK // 2 + 1])
def test_a_ceiling_that_could_not_be_written_is_written_again(harness: Harness, used: int) -> None:
    for _ in range(used):
        harness.manager.counters.next_arrival()
    harness.manager.counters.take_message_ids(used)
    harness.promise(ORDERS, "lost")
    harness.fail()
    for _ in range(ARRIVAL_BLOCK // 2):
        harness.manager.counters.next_arrival()
    harness.manager.counters.take_message_ids(MESSAGE_ID_BLOCK // 2)
    (last,) = harness.send(ORDERS, "a")
    arrival = harness.manager.counters.last_arrival
    harness.restart()
    assert harness.send(ORDERS, "b")[0] > last
    assert harness.manager.counters.last_arrival > arrival


# The manager's own queues


@pytest.mark.spec("DM-3.1.3-08")
def test_the_managers_own_queues_are_made_once(harness: Harness) -> None:
    before = [harness.queue(name).properties.identifier for name in (JOURNAL, DEADLETTER, DEADXACT)]
    count = len(list(harness.manager.queues))
    harness.restart()
    assert [harness.queue(name).properties.identifier for name in (JOURNAL, DEADLETTER, DEADXACT)] == before
    assert len(list(harness.manager.queues)) == count


def test_queue_numbers_may_wrap_around(harness: Harness) -> None:
    definition = harness.store.state()[f"queue/{harness.queue(ORDERS).number}"]
    owner = replace(QueueProperties.decode(definition, "orders"), path=r"private$\last")
    journal = replace(owner, path=r"private$\last;journal", owner=65535, queue_type=QueueType.JOURNAL)
    free = max(queue.number for queue in harness.manager.queues) + 1
    harness.store.set_state("queue/65535", owner.encode())
    harness.store.set_state(f"queue/{free}", journal.encode())
    harness.restart()
    assert harness.queue(r"private$\last").journal is harness.manager.queues.by_number[free]
    harness.create(r"private$\next")


# A damaged store


class DamagedStore(MemoryStore):
    """Some of its state can no longer be read."""

    def __init__(self, store: MemoryStore, damaged: Iterable[str]) -> None:
        super().__init__()
        self.__dict__.update(vars(store))
        self._unreadable: dict[Key | str, str] = dict.fromkeys(damaged, "the checksum is wrong")

    def state(self, prefix: str = "") -> Mapping[str, bytes]:
        return {name: value for name, value in super().state(prefix).items() if name not in self._unreadable}

    @property
    def damaged(self) -> Mapping[Key | str, str]:
        return dict(self._unreadable)


def restart_damaged(harness: Harness, *names: str) -> None:
    harness.store = DamagedStore(harness.store, names)
    harness.restart()


def test_a_queue_whose_counts_are_damaged_is_counted(harness: Harness) -> None:
    harness.send(ORDERS, "a", "b")
    queue = harness.queue(ORDERS)
    count, size = queue.count, queue.total_bytes
    restart_damaged(harness, f"count/{queue.number}")
    queue = harness.queue(ORDERS)
    assert (queue.count, queue.total_bytes, harness.labels(ORDERS)) == (count, size, ["a", "b"])


def test_messages_keep_their_places_though_the_counters_are_damaged(harness: Harness) -> None:
    harness.send(ORDERS, "a", "b")
    used = {view.message_id for view in harness.messages(ORDERS)}
    restart_damaged(harness, "counters")
    assert harness.send(ORDERS, "c")[0] not in used
    assert harness.labels(ORDERS) == ["a", "b", "c"]


def test_a_queue_whose_definition_is_damaged_gives_its_number_to_nobody(harness: Harness) -> None:
    queue = harness.create(r"private$\last", journal=True)
    harness.send(r"private$\last", "kept on disk")
    restart_damaged(harness, f"queue/{queue.number}")
    with pytest.raises(QueueNotFound):
        harness.queue(r"private$\last")
    assert harness.labels(ORDERS) == []
    new = harness.create(r"private$\new")
    assert (new.number != queue.number, new.available(9)) == (True, [])
    assert harness.store.scan(queue.number) != []


def test_a_definition_that_says_nothing_is_an_error_that_names_it(harness: Harness) -> None:
    number = harness.queue(OTHER).number
    harness.store.set_state(f"queue/{number}", b"{}")
    with pytest.raises(StorageError, match=f"queue {number}"):
        LocalQueueManager(NAME, IDENTIFIER, harness.store, SECRET).start(harness.now)


def test_a_definition_of_a_later_version_is_read_as_far_as_it_is_known(harness: Harness) -> None:
    number = harness.queue(OTHER).number
    definition = harness.store.state()[f"queue/{number}"]
    harness.store.set_state(f"queue/{number}", definition[:-1] + b',"colour":"red"}')
    harness.restart()
    assert harness.queue(OTHER).number == number


def test_a_new_store_counts_message_ids_from_the_number_that_it_is_given() -> None:
    counters = Counters(None, 77)
    assert [counters.next_message_id() for _ in range(2)] == [77, 78]
    batch = Batch()
    counters.settle(batch)
    stored = batch.state[COUNTERS_STATE]
    assert stored is not None
    assert Counters(stored, 5).next_message_id() == 79


@pytest.mark.spec("QB-3.1.1.3-11", "QB-3.1.1.3.1-09", "QB-3.1.5.6-12")
def test_nobody_can_guess_the_numbers_of_a_manager() -> None:
    """Somebody who could guess the ids of its messages and sequences could make claims about them."""
    cores = [build_manager(default_configuration("alpha"), MemoryStore()).core for _ in range(5)]
    first = {core.counters.next_message_id() for core in cores}
    assert len(first) == 5
    assert min(first) > 0
    sequences = [[core.transacting.new_sequence().ordinal for _ in range(2)] for core in cores]
    assert len({ordinal for ordinal, _ in sequences}) == 5
    assert len({after - before for before, after in sequences}) == 5
    assert all(1 <= ordinal <= MOST_APART and 1 <= after - ordinal <= MOST_APART for ordinal, after in sequences)
