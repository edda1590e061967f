"""What survives a restart and what does not, [MS-MQDMPR] 3.1.1 and 3.1.3; and what is made of a damaged store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from uuid import uuid4

import pytest

from postroad.errors import QueueNotFound, StorageError
from postroad.manager import Manager
from postroad.message import Message
from postroad.queues.local import LocalQueueManager
from postroad.queues.properties import QueuePrivacy, QueueProperties
from postroad.queues.tick import ARRIVAL_BLOCK, COUNTERS_STATE, MESSAGE_ID_BLOCK, Counters
from postroad.store.interface import Batch, Key
from postroad.store.memory import MemoryStore
from tests.unit.queues.office import (
    DEADLETTER,
    DEADXACT,
    ELSEWHERE,
    IDENTIFIER,
    JOURNAL,
    LEDGER,
    NAME,
    ORDERS,
    OTHER,
    Office,
)

# What survives


@pytest.mark.spec("DM-3.1.1-01", "DM-3.1.1.2-01", "DM-3.1.1.2-09")
def test_every_property_of_a_queue_survives(office: Office) -> None:
    office.create(
        r"private$\all",
        label="label",
        transactional=True,
        journaling=True,
        quota_kb=7,
        journal_quota_kb=8,
        authenticate=True,
        privacy=QueuePrivacy.BODY,
        abort_limit=3,
        multicast_address="234.1.1.1:8001",
    )
    office.manager.queues.change(office.manager.tick, office.queue(r"private$\all"), int(office.now) + 9, label="new")
    office.manager.queues.subqueue(office.manager.tick, office.queue(r"private$\all"), "aside", int(office.now))
    office.send(ELSEWHERE, "a")
    before = {queue.number: asdict(queue.properties) for queue in office.manager.queues}
    office.restart()
    assert {queue.number: asdict(queue.properties) for queue in office.manager.queues} == before
    queue = office.queue(r"private$\all")
    assert queue.journal is office.queue(r"private$\all;journal")
    assert queue.subqueues == {"aside": office.queue(r"private$\all;aside")}


@pytest.mark.spec("DM-3.1.1-01", "DM-3.1.1.12-01", "DM-3.1.1.11-04", "MQ-2.2.19.2-13")
def test_a_recoverable_message_survives_with_all_that_is_known_of_it(office: Office) -> None:
    office.send(ORDERS, Message(b"body", label="a", priority=5, recoverable=True, time_to_be_received=99))
    office.send_transactional(LEDGER, "b")
    office.send(ELSEWHERE, "c")
    names = (ORDERS, LEDGER, ELSEWHERE)
    before = [list(office.queue(name).everything()) for name in names]
    office.restart()
    assert [list(office.queue(name).everything()) for name in names] == before
    assert office.receive(ORDERS) == ["a"]


@pytest.mark.spec("DM-3.1.1-03", "MQ-2.2.19.2-14")
def test_an_express_message_is_gone(office: Office) -> None:
    office.send(ORDERS, Message(label="express"), "recoverable")
    office.send(ELSEWHERE, Message(label="express"))
    office.restart()
    assert (office.labels(ORDERS), office.labels(ELSEWHERE)) == (["recoverable"], [])
    assert [office.queue(name).express_bytes for name in (ORDERS, ELSEWHERE)] == [0, 0]


@pytest.mark.spec("DM-3.1.1-03")
def test_descriptors_cursors_and_waiting_reads_are_gone(office: Office) -> None:
    descriptor = office.open(ORDERS)
    office.manager.open_cursor(descriptor)
    office.ask(descriptor)
    office.restart()
    assert office.manager.descriptors == {}
    assert (office.queue(ORDERS).descriptors, office.queue(ORDERS).waiting) == ([], [])


@pytest.mark.spec("DM-3.1.3-11", "DM-3.1.1-03")
def test_a_transaction_that_was_open_is_aborted(office: Office) -> None:
    office.send_transactional(LEDGER, "a", "b")
    transaction = office.manager.begin()
    office.read(LEDGER, transaction=transaction)
    office.send(LEDGER, "never", transaction=transaction)
    office.restart()
    assert office.manager.transactions == {}
    assert office.labels(LEDGER) == ["a", "b"]
    assert office.queue(LEDGER).used_bytes == office.queue(LEDGER).stored_bytes


def test_what_was_promised_and_not_committed_never_was(office: Office) -> None:
    office.promise(ORDERS, "a")
    office.manager.create_queue(r"private$\late", office.now)
    office.restart()
    assert office.labels(ORDERS) == []
    with pytest.raises(QueueNotFound):
        office.queue(r"private$\late")


# Numbers that only grow


@pytest.mark.spec("DM-3.1.1.1-12")
def test_lookup_ids_and_message_ids_go_on_upwards(office: Office) -> None:
    office.send(ORDERS, "a")
    for _ in range(3):
        office.restart()
        office.send(ORDERS, "b")
    lookup_ids = [record.lookup_id for record in office.queue(ORDERS).available(9)]
    assert lookup_ids == sorted(set(lookup_ids))
    message_ids = [view.message_id for view in office.messages(ORDERS)]
    assert message_ids == sorted(set(message_ids))


@pytest.mark.spec("MQ-2.2.19.2-09", "DM-3.1.1.1-12")
def test_ids_that_only_express_messages_used_are_not_given_again(office: Office) -> None:
    for _ in range(10):
        (last,) = office.manager.send(ORDERS, [Message(label="express")], office.now)
        last = office.manager.counters.take_message_ids(MESSAGE_ID_BLOCK // 4) + MESSAGE_ID_BLOCK // 4
        office.manager.run_timers(office.now)  # as a running manager does all the time
        office.tick()
    arrival = office.manager.counters.last_arrival
    office.restart()
    assert office.send(ORDERS, "a")[0] > last
    assert office.manager.counters.last_arrival > arrival


@pytest.mark.parametrize("used", [ARRIVAL_BLOCK // 2 + 1, MESSAGE_ID_BLOCK // 2 + 1])
def test_a_ceiling_that_could_not_be_written_is_written_again(office: Office, used: int) -> None:
    for _ in range(used):
        office.manager.counters.next_arrival()
    office.manager.counters.take_message_ids(used)
    office.promise(ORDERS, "lost")
    office.fail()
    for _ in range(ARRIVAL_BLOCK // 2):
        office.manager.counters.next_arrival()
    office.manager.counters.take_message_ids(MESSAGE_ID_BLOCK // 2)
    (last,) = office.send(ORDERS, "a")
    arrival = office.manager.counters.last_arrival
    office.restart()
    assert office.send(ORDERS, "b")[0] > last
    assert office.manager.counters.last_arrival > arrival


# The manager's own queues


@pytest.mark.spec("DM-3.1.3-08")
def test_the_managers_own_queues_are_made_once(office: Office) -> None:
    before = [office.queue(name).properties.identifier for name in (JOURNAL, DEADLETTER, DEADXACT)]
    count = len(list(office.manager.queues))
    office.restart()
    assert [office.queue(name).properties.identifier for name in (JOURNAL, DEADLETTER, DEADXACT)] == before
    assert len(list(office.manager.queues)) == count


def test_queue_numbers_may_wrap_around(office: Office) -> None:
    definition = office.store.state()[f"queue/{office.queue(ORDERS).number}"]
    owner = QueueProperties.decode(definition, "orders")
    owner.path = r"private$\last"
    journal = QueueProperties.decode(definition, "orders")
    journal.path, journal.owner = r"private$\last;journal", 65535
    journal.queue_type = office.queue(rf"{ORDERS};journal").properties.queue_type
    free = max(queue.number for queue in office.manager.queues) + 1
    office.store.set_state("queue/65535", owner.encode())
    office.store.set_state(f"queue/{free}", journal.encode())
    office.restart()
    assert office.queue(r"private$\last").journal is office.manager.queues.by_number[free]
    office.create(r"private$\next")


# A damaged store


class DamagedStore(MemoryStore):
    """Some of its state cannot be read any more."""

    def __init__(self, store: MemoryStore, damaged: Iterable[str]) -> None:
        super().__init__()
        self.__dict__.update(vars(store))
        self._unreadable: dict[Key | str, str] = dict.fromkeys(damaged, "the checksum fails")

    def state(self, prefix: str = "") -> Mapping[str, bytes]:
        return {name: value for name, value in super().state(prefix).items() if name not in self._unreadable}

    @property
    def damaged(self) -> Mapping[Key | str, str]:
        return dict(self._unreadable)


def restart_damaged(office: Office, *names: str) -> None:
    office.store = DamagedStore(office.store, names)
    office.restart()


def test_a_queue_whose_counts_are_damaged_is_counted(office: Office) -> None:
    office.send(ORDERS, "a", "b")
    queue = office.queue(ORDERS)
    count, size = queue.count, queue.total_bytes
    restart_damaged(office, f"count/{queue.number}")
    queue = office.queue(ORDERS)
    assert (queue.count, queue.total_bytes, office.labels(ORDERS)) == (count, size, ["a", "b"])


def test_messages_keep_their_places_though_the_counters_are_damaged(office: Office) -> None:
    office.send(ORDERS, "a", "b")
    used = {view.message_id for view in office.messages(ORDERS)}
    restart_damaged(office, "counters")
    assert office.send(ORDERS, "c")[0] not in used
    assert office.labels(ORDERS) == ["a", "b", "c"]


def test_a_queue_whose_definition_is_damaged_gives_its_number_to_nobody(office: Office) -> None:
    queue = office.create(r"private$\last", journaling=True)
    office.send(r"private$\last", "kept on disk")
    restart_damaged(office, f"queue/{queue.number}")
    with pytest.raises(QueueNotFound):
        office.queue(r"private$\last")
    assert office.labels(ORDERS) == []
    new = office.create(r"private$\new")
    assert (new.number != queue.number, new.available(9)) == (True, [])
    assert office.store.scan(queue.number) != []


def test_a_definition_that_says_nothing_is_an_error_that_names_it(office: Office) -> None:
    number = office.queue(OTHER).number
    office.store.set_state(f"queue/{number}", b"{}")
    with pytest.raises(StorageError, match=f"queue {number}"):
        LocalQueueManager(NAME, IDENTIFIER, office.store, new_id=uuid4).start(office.now)


def test_a_definition_of_a_later_version_is_read_as_far_as_it_is_known(office: Office) -> None:
    number = office.queue(OTHER).number
    definition = office.store.state()[f"queue/{number}"]
    office.store.set_state(f"queue/{number}", definition[:-1] + b',"colour":"red"}')
    office.restart()
    assert office.queue(OTHER).number == number


def test_a_new_store_counts_message_ids_from_the_number_that_it_is_given() -> None:
    counters = Counters(None, 77)
    assert [counters.next_message_id() for _ in range(2)] == [77, 78]
    batch = Batch()
    counters.settle(batch)
    stored = batch.state[COUNTERS_STATE]
    assert stored is not None
    assert Counters(stored, 5).next_message_id() == 79


def test_managers_begin_at_different_numbers() -> None:
    """Whoever could guess the ids of a manager's messages could speak of them."""
    first = {Manager("alpha", MemoryStore()).core.counters.next_message_id() for _ in range(5)}
    assert len(first) == 5
    assert min(first) > 0
