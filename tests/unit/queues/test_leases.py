"""Leases: what silent clients lose and when, who may settle, and the effect of clocks and stops."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest

from postroad.errors import LeaseEnded, PostroadError, TransactionSequence
from postroad.message import Message
from postroad.queues import leases as module
from postroad.queues.core_settings import LeaseTimes
from postroad.queues.leases import HANDLE_TIMEOUT_S, LONGEST_STEP_S, Holder, Leases, TakenBack
from postroad.queues.open_queue import Transaction, WaitingRead
from postroad.reports.operations import ReadCall
from tests.unit.queues.harness import ACKS, LEDGER, ORDERS, Answer, Harness

ANN = Holder("ann@host (pid 1) from 10.0.0.1")
BOB = Holder("bob@rig (pid 2) from 10.0.0.2")
HERE = Holder("this process", lasting=True)
RECEIVE_S, TRANSACTION_S = 10.0, 20.0


class Clients:
    """Clients of a harness: they lock, begin, renew and settle. The manager is awake during `pass_time`."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        harness.use(leases=LeaseTimes(receive_s=RECEIVE_S, transaction_s=TRANSACTION_S))
        self.leases = Leases(harness.manager)
        self.leases.expire(harness.now)

    def lock(self, holder: Holder = ANN, count: int = 1) -> tuple[UUID, list[int]]:
        records = self.harness.lock(ORDERS, count)
        lease = self.leases.lock(self.harness.queue(ORDERS), records, holder, self.harness.now)
        return lease, [record.lookup_id for record in records]

    def begin(self, holder: Holder = ANN) -> Transaction:
        return self.harness.manager.transaction(self.leases.begin(holder, self.harness.now))

    def take(self, lookup_ids: list[int], *leases: UUID) -> None:
        queue = self.harness.queue(ORDERS)
        self.leases.settled(queue, self.leases.held(queue, lookup_ids, leases or None, self.harness.now))

    def pass_time(self, seconds: float) -> list[TakenBack]:
        taken: list[TakenBack] = []
        for _ in range(int(seconds * 2)):
            self.harness.now += 0.5
            taken += self.leases.expire(self.harness.now)
        self.harness.tick()
        return taken

    def jump(self, seconds: float) -> list[TakenBack]:
        """The clock is set, or the process stood still."""
        self.harness.now += seconds
        return self.leases.expire(self.harness.now)


@pytest.fixture
def clients(harness: Harness) -> Clients:
    harness.send(ORDERS, "a", "b", "c")
    harness.send_transactional(LEDGER, "x")
    return Clients(harness)


# Readers


def test_whoever_works_on_messages_reads_the_queue_and_counts_once(clients: Clients, harness: Harness) -> None:
    orders, ledger = harness.queue(ORDERS), harness.queue(LEDGER)
    assert not clients.leases.readers()
    lease, numbers = clients.lock(ANN)
    clients.lock(ANN)
    assert clients.leases.readers() == {orders: 1}
    waiting = harness.open(ORDERS)
    waiting.holder = ANN  # it fetches more, and has not finished these
    clients.lock(BOB)
    assert clients.leases.readers() == {orders: 2}
    harness.read(LEDGER, transaction=clients.begin(BOB))
    harness.send_transactional(LEDGER, "y")
    harness.manager.close(waiting)
    assert clients.leases.readers() == {orders: 2, ledger: 1}
    clients.take(numbers, lease)
    assert clients.leases.readers() == {orders: 2, ledger: 1}
    clients.pass_time(TRANSACTION_S + 1)
    assert not clients.leases.readers()


def test_an_open_handle_and_the_messages_of_its_owner_are_one_reader(clients: Clients, harness: Harness) -> None:
    handle = harness.open(ORDERS)
    clients.leases.own_handle(handle.handle, ANN)
    clients.lock(ANN)
    assert clients.leases.readers() == {harness.queue(ORDERS): 1}
    harness.open(ORDERS)
    assert clients.leases.readers() == {harness.queue(ORDERS): 2}


# Messages


def test_a_lock_of_a_silent_client_goes_back_in_its_place(clients: Clients, harness: Harness) -> None:
    _, numbers = clients.lock(count=2)
    assert clients.pass_time(RECEIVE_S) == []
    assert harness.labels(ORDERS) == ["c"]
    (taken,) = clients.pass_time(1)
    assert taken == TakenBack(ANN.owner, RECEIVE_S + 0.5, 2, ORDERS, numbers[0])
    assert harness.labels(ORDERS) == ["a", "b", "c"]
    assert clients.leases.expired_locks == 2


def test_a_waiting_reader_gets_what_comes_back(clients: Clients, harness: Harness) -> None:
    clients.lock(count=3)
    answer = Answer()
    request = WaitingRead(harness.open(ORDERS), ReadCall.RECEIVE, 1, None)
    request.satisfied, request.failed = answer.satisfied, answer.failed
    assert harness.manager.reading.read(request, harness.now) is None
    clients.pass_time(RECEIVE_S + 1)
    assert answer.labels == ["a"]


def test_a_renewed_lease_lasts(clients: Clients, harness: Harness) -> None:
    lease, numbers = clients.lock()
    for _ in range(20):
        assert clients.pass_time(RECEIVE_S - 1) == []
        assert clients.leases.renew([lease], harness.now) == []
    clients.take(numbers, lease)


def test_a_settlement_of_some_renews_the_others(clients: Clients) -> None:
    lease, numbers = clients.lock(count=2)
    clients.pass_time(RECEIVE_S - 1)
    clients.take(numbers[:1], lease)
    assert clients.pass_time(RECEIVE_S - 1) == []
    clients.take(numbers[1:], lease)


def test_a_renewal_that_comes_too_late_reports_that_the_lease_is_gone(clients: Clients, harness: Harness) -> None:
    lease, _ = clients.lock()
    assert clients.leases.renew([lease, unknown := uuid4()], harness.now) == [unknown]
    clients.pass_time(RECEIVE_S + 1)
    assert clients.leases.renew([lease], harness.now) == [lease]


def test_a_settlement_that_comes_too_late_gets_the_reason(clients: Clients) -> None:
    lease, numbers = clients.lock()
    clients.pass_time(RECEIVE_S + 1)
    for leases in ([lease], []):
        with pytest.raises(LeaseEnded) as caught:
            clients.take(numbers, *leases)
        assert f"message {numbers[0]} of {ORDERS}" in str(caught.value)
        assert "its lease of 10 s ran out at 2023-11-14T22:13:30Z and it went back" in str(caught.value)


def test_nobody_settles_a_message_that_is_another_readers_by_now(clients: Clients) -> None:
    lease, numbers = clients.lock()
    clients.pass_time(RECEIVE_S + 1)
    of_bob, again = clients.lock(BOB)
    assert again == numbers
    with pytest.raises(LeaseEnded):
        clients.take(numbers, lease)
    clients.take(numbers, of_bob)


def test_messages_are_taken_all_or_none(clients: Clients) -> None:
    lease, numbers = clients.lock(count=2)
    with pytest.raises(TransactionSequence):
        clients.take([*numbers, 12345], lease)
    clients.take(numbers, lease)


def test_what_this_process_holds_never_runs_out(clients: Clients) -> None:
    _, numbers = clients.lock(HERE)
    transaction = clients.begin(HERE)
    assert clients.pass_time(5 * TRANSACTION_S) == []
    clients.take(numbers)
    assert not transaction.ended


def test_a_purge_meanwhile_wins_over_the_end_of_a_lease(clients: Clients, harness: Harness) -> None:
    harness.send(ORDERS, Message(label="d", recoverable=True, admin_queue=ACKS, ack="nack-receive"))
    clients.lock(count=4)
    assert harness.purge(ORDERS) == 0
    clients.pass_time(RECEIVE_S + 1)
    assert (harness.queue(ORDERS).count, len(harness.classes(ACKS))) == (0, 1)


def test_a_deleted_queue_takes_its_locks_with_it(clients: Clients, harness: Harness) -> None:
    lease, _ = clients.lock(HERE)
    harness.delete(ORDERS)
    assert clients.pass_time(1) == []
    assert clients.leases.renew([lease], harness.now) == [lease]


# Transactions


def test_a_transaction_of_a_silent_client_is_aborted(clients: Clients, harness: Harness) -> None:
    transaction = clients.begin()
    harness.read(LEDGER, transaction=transaction)
    assert clients.pass_time(TRANSACTION_S) == []
    (taken,) = clients.pass_time(1)
    assert taken == TakenBack(ANN.owner, TRANSACTION_S + 0.5, 1, transaction=transaction.identifier)
    assert harness.labels(LEDGER) == ["x"]
    assert harness.queue(LEDGER).available(1)[0].aborts == 1
    with pytest.raises(LeaseEnded, match="its lease of 20 s ran out at 2023-11-14T22:13:40Z and it was aborted"):
        clients.leases.transaction(transaction.identifier, harness.now)
    assert clients.leases.expired_transactions == 1


@pytest.mark.parametrize("how", ["use", "renewal"])
def test_a_transaction_that_is_used_or_renewed_lasts(clients: Clients, harness: Harness, how: str) -> None:
    transaction = clients.begin()
    for _ in range(10):
        assert clients.pass_time(TRANSACTION_S - 1) == []
        if how == "use":
            assert clients.leases.transaction(transaction.identifier, harness.now) is transaction
        else:
            assert clients.leases.renew([transaction.identifier], harness.now) == []


def test_a_transaction_whose_read_waits_is_not_silent(clients: Clients, harness: Harness) -> None:
    transaction = clients.begin()
    harness.read(LEDGER, transaction=transaction)
    request = WaitingRead(harness.open(LEDGER), ReadCall.RECEIVE, 1, None, transaction=transaction)
    answer = Answer()
    request.satisfied, request.failed = answer.satisfied, answer.failed
    harness.manager.reading.read(request, harness.now)
    assert clients.pass_time(3 * TRANSACTION_S) == []
    harness.send_transactional(LEDGER, "y")
    assert answer.labels == ["y"]
    assert len(clients.pass_time(TRANSACTION_S + 1)) == 1


def test_a_transaction_that_has_ended_has_no_lease(clients: Clients, harness: Harness) -> None:
    transaction = clients.begin()
    harness.manager.commit(transaction, harness.now)
    assert clients.leases.renew([transaction.identifier], harness.now) == [transaction.identifier]
    assert clients.leases.transactions(harness.now) == []
    assert clients.pass_time(2 * TRANSACTION_S) == []
    with pytest.raises(TransactionSequence):
        clients.leases.transaction(transaction.identifier, harness.now)


# Clocks


@pytest.mark.parametrize("seconds", [1e6, -1e6])
def test_a_clock_that_is_set_takes_nothing_from_anybody(clients: Clients, seconds: float) -> None:
    clients.lock()
    clients.begin()
    assert clients.jump(seconds) == []
    assert clients.pass_time(RECEIVE_S - 1) == []
    assert len(clients.pass_time(2)) == 1  # nor does it keep anything for ever


def test_a_manager_that_stood_still_takes_nothing_from_clients_that_could_not_renew(clients: Clients) -> None:
    clients.lock()
    clients.pass_time(RECEIVE_S - LONGEST_STEP_S - 0.5)
    assert clients.jump(3600) == []


def test_what_a_client_sees_of_its_own_time_is_never_shortened(clients: Clients, harness: Harness) -> None:
    """A renewal between two runs of the timer counts from the moment it came."""
    lease, _ = clients.lock()
    harness.now += 0.4
    clients.leases.renew([lease], harness.now)
    harness.now += 0.1
    assert clients.pass_time(RECEIVE_S - 0.5) == []


# Operators


def test_an_operator_releases_locks_and_their_owner_learns_of_it(clients: Clients, harness: Harness) -> None:
    lease, numbers = clients.lock(count=2)
    queue = harness.queue(ORDERS)
    assert clients.leases.release(queue, numbers[:1], harness.now) == [(ANN.owner, numbers[0])]
    assert harness.labels(ORDERS) == ["a", "c"]
    with pytest.raises(LeaseEnded, match="it was released at 2023-11-14T22:13:20Z"):
        clients.take(numbers, lease)
    clients.take(numbers[1:], lease)
    clients.lock(HERE)
    assert len(clients.leases.release(queue, None, harness.now)) == 1
    assert clients.leases.release(queue, None, harness.now) == []


def test_messages_that_cannot_be_released_get_their_own_errors(clients: Clients, harness: Harness) -> None:
    transaction = clients.begin()
    (record,) = harness.read(LEDGER, transaction=transaction)
    harness.lock(ORDERS)
    (reader,) = harness.queue(ORDERS).positions
    cases = {
        (LEDGER, record.lookup_id): f"is held by the transaction {transaction.identifier}: abort that",
        (ORDERS, reader): "is held by a remote reader or a session",
        (ORDERS, 999): "is not locked",
    }
    for (name, number), sentence in cases.items():
        with pytest.raises(PostroadError, match=sentence):
            clients.leases.release(harness.queue(name), [number], harness.now)


def test_an_operator_aborts_a_transaction_and_its_owner_learns_of_it(clients: Clients, harness: Harness) -> None:
    transaction = clients.begin()
    harness.read(LEDGER, transaction=transaction)
    assert clients.leases.abort(transaction.identifier, harness.now) == ANN.owner
    assert harness.labels(LEDGER) == ["x"]
    with pytest.raises(LeaseEnded, match=r"it was aborted at .* by an operator"):
        clients.leases.transaction(transaction.identifier, harness.now)
    with pytest.raises(TransactionSequence):
        clients.leases.abort(uuid4(), harness.now)


def test_who_holds_what_and_for_how_long(clients: Clients, harness: Harness) -> None:
    transaction = clients.begin()
    harness.read(LEDGER, transaction=transaction)
    harness.send(LEDGER, Message(label="y"), transaction=transaction)
    clients.pass_time(2)
    _, numbers = clients.lock(BOB, 2)
    clients.pass_time(1)
    clients.leases.transaction(transaction.identifier, harness.now)
    taken, locked = clients.leases.locks(None, harness.now)
    assert (taken.queue, taken.owner, taken.kind, taken.age_s, taken.silent_s, taken.messages) == (
        *(LEDGER, ANN.owner, "transaction", 3, 0, 1),
    )
    assert taken.transaction == str(transaction.identifier)
    assert (locked.queue, locked.owner, locked.kind, locked.age_s, locked.silent_s) == (
        *(ORDERS, BOB.owner, "receive", 1, 1),
    )
    assert (locked.messages, locked.lookup_ids) == (2, tuple(numbers))
    assert clients.leases.locks(harness.queue(ORDERS), harness.now) == [locked]
    (told,) = clients.leases.transactions(harness.now)
    assert (told.owner, told.age_s, told.messages, told.received, told.sent) == (ANN.owner, 3, 2, 1, 1)


# Bounds


def test_only_so_many_ends_are_remembered(clients: Clients, harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REMEMBERED", 2)
    lease, numbers = clients.lock(count=3)
    clients.pass_time(RECEIVE_S + 1)
    kinds = []
    for number in numbers:
        with pytest.raises(TransactionSequence) as caught:
            clients.take([number], lease)
        kinds.append(type(caught.value))
    assert kinds == [TransactionSequence, LeaseEnded, LeaseEnded]


def test_thousands_of_locks_go_back_at_once(clients: Clients, harness: Harness) -> None:
    harness.send(ORDERS, *(str(number) for number in range(5000)))
    before = harness.labels(ORDERS)
    for _ in range(500):
        clients.lock(count=10)
    assert len(clients.pass_time(RECEIVE_S + 1)) == 500
    assert harness.labels(ORDERS) == before


def test_a_handle_that_nobody_uses_is_closed(clients: Clients, harness: Harness) -> None:
    descriptor = harness.open(ORDERS)
    clients.leases.use_handle(descriptor.handle, harness.now)
    clients.pass_time(HANDLE_TIMEOUT_S)
    assert not descriptor.closed
    clients.pass_time(1)
    assert descriptor.closed
