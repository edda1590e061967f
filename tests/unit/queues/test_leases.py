"""Leases: what goes back from silent clients and when, who may settle, and what clocks and stops do to them."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest

from postroad.errors import LeaseEnded, PostroadError, TransactionSequence
from postroad.message import Message
from postroad.queues import leases as module
from postroad.queues.leases import HANDLE_TIMEOUT_S, LONGEST_STEP_S, Holder, Leases, LeaseTimes, TakenBack
from postroad.queues.transaction import Transaction
from postroad.queues.waiting import WaitingRead
from postroad.values.reading import ReadCall
from tests.unit.queues.office import ACKS, LEDGER, ORDERS, Answer, Office

ANN = Holder("ann@desk (pid 1) from 10.0.0.1")
BOB = Holder("bob@desk (pid 2) from 10.0.0.2")
HERE = Holder("this process", lasting=True)
RECEIVE_S, TRANSACTION_S = 10.0, 20.0


class Clients:
    """Clients of an office: they lock, begin, renew and settle; `pass_time` is awake all the while."""

    def __init__(self, office: Office) -> None:
        self.office = office
        self.leases = Leases(office.manager, LeaseTimes(receive_s=RECEIVE_S, transaction_s=TRANSACTION_S))
        self.leases.expire(office.now)

    def lock(self, holder: Holder = ANN, count: int = 1) -> tuple[UUID, list[int]]:
        records = self.office.lock(ORDERS, count)
        lease = self.leases.lock(self.office.queue(ORDERS), records, holder, self.office.now)
        return lease, [record.lookup_id for record in records]

    def begin(self, holder: Holder = ANN) -> Transaction:
        transaction = self.office.manager.begin()
        self.leases.begin(transaction, holder, self.office.now)
        return transaction

    def take(self, lookup_ids: list[int], *leases: UUID) -> None:
        queue = self.office.queue(ORDERS)
        self.leases.settled(queue, self.leases.held(queue, lookup_ids, leases or None, self.office.now))

    def pass_time(self, seconds: float) -> list[TakenBack]:
        taken: list[TakenBack] = []
        for _ in range(int(seconds * 2)):
            self.office.now += 0.5
            taken += self.leases.expire(self.office.now)
        self.office.tick()
        return taken

    def jump(self, seconds: float) -> list[TakenBack]:
        """The clock is set, or the process stood still."""
        self.office.now += seconds
        return self.leases.expire(self.office.now)


@pytest.fixture
def clients(office: Office) -> Clients:
    office.send(ORDERS, "a", "b", "c")
    office.send_transactional(LEDGER, "x")
    return Clients(office)


# Messages


def test_a_lock_of_a_silent_client_goes_back_in_its_place(clients: Clients, office: Office) -> None:
    _, numbers = clients.lock(count=2)
    assert clients.pass_time(RECEIVE_S) == []
    assert office.labels(ORDERS) == ["c"]
    (taken,) = clients.pass_time(1)
    assert taken == TakenBack(ANN.owner, RECEIVE_S + 0.5, 2, ORDERS, numbers[0])
    assert office.labels(ORDERS) == ["a", "b", "c"]
    assert clients.leases.expired_locks == 2


def test_a_waiting_reader_gets_what_comes_back(clients: Clients, office: Office) -> None:
    clients.lock(count=3)
    answer = Answer()
    request = WaitingRead(office.open(ORDERS), ReadCall.RECEIVE, 1, None)
    request.satisfied, request.failed = answer.satisfied, answer.failed
    assert office.manager.reading.read(request, office.now) is None
    clients.pass_time(RECEIVE_S + 1)
    assert answer.labels == ["a"]


def test_a_renewed_lease_lasts(clients: Clients, office: Office) -> None:
    lease, numbers = clients.lock()
    for _ in range(20):
        assert clients.pass_time(RECEIVE_S - 1) == []
        assert clients.leases.renew([lease], office.now) == []
    clients.take(numbers, lease)


def test_a_settlement_of_some_renews_the_others(clients: Clients) -> None:
    lease, numbers = clients.lock(count=2)
    clients.pass_time(RECEIVE_S - 1)
    clients.take(numbers[:1], lease)
    assert clients.pass_time(RECEIVE_S - 1) == []
    clients.take(numbers[1:], lease)


def test_a_renewal_that_comes_too_late_hears_that_the_lease_is_gone(clients: Clients, office: Office) -> None:
    lease, _ = clients.lock()
    assert clients.leases.renew([lease, unknown := uuid4()], office.now) == [unknown]
    clients.pass_time(RECEIVE_S + 1)
    assert clients.leases.renew([lease], office.now) == [lease]


def test_a_settlement_that_comes_too_late_hears_why(clients: Clients) -> None:
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


def test_a_purge_meanwhile_wins_over_the_end_of_a_lease(clients: Clients, office: Office) -> None:
    office.send(ORDERS, Message(label="d", recoverable=True, admin_queue=ACKS, ack="nack-receive"))
    clients.lock(count=4)
    assert office.purge(ORDERS) == 0
    clients.pass_time(RECEIVE_S + 1)
    assert (office.queue(ORDERS).count, len(office.classes(ACKS))) == (0, 1)


def test_a_deleted_queue_takes_its_locks_with_it(clients: Clients, office: Office) -> None:
    lease, _ = clients.lock(HERE)
    office.delete(ORDERS)
    assert clients.pass_time(1) == []
    assert clients.leases.renew([lease], office.now) == [lease]


# Transactions


def test_a_transaction_of_a_silent_client_is_aborted(clients: Clients, office: Office) -> None:
    transaction = clients.begin()
    office.read(LEDGER, transaction=transaction)
    assert clients.pass_time(TRANSACTION_S) == []
    (taken,) = clients.pass_time(1)
    assert taken == TakenBack(ANN.owner, TRANSACTION_S + 0.5, 1, transaction=transaction.identifier)
    assert office.labels(LEDGER) == ["x"]
    assert office.queue(LEDGER).available(1)[0].aborts == 1
    with pytest.raises(LeaseEnded, match="its lease of 20 s ran out at 2023-11-14T22:13:40Z and it was aborted"):
        clients.leases.transaction(transaction.identifier, office.now)
    assert clients.leases.expired_transactions == 1


@pytest.mark.parametrize("how", ["use", "renewal"])
def test_a_transaction_that_is_used_or_renewed_lasts(clients: Clients, office: Office, how: str) -> None:
    transaction = clients.begin()
    for _ in range(10):
        assert clients.pass_time(TRANSACTION_S - 1) == []
        if how == "use":
            assert clients.leases.transaction(transaction.identifier, office.now) is transaction
        else:
            assert clients.leases.renew([transaction.identifier], office.now) == []


def test_a_transaction_whose_read_waits_is_not_silent(clients: Clients, office: Office) -> None:
    transaction = clients.begin()
    office.read(LEDGER, transaction=transaction)
    request = WaitingRead(office.open(LEDGER), ReadCall.RECEIVE, 1, None, transaction=transaction)
    answer = Answer()
    request.satisfied, request.failed = answer.satisfied, answer.failed
    office.manager.reading.read(request, office.now)
    assert clients.pass_time(3 * TRANSACTION_S) == []
    office.send_transactional(LEDGER, "y")
    assert answer.labels == ["y"]
    assert len(clients.pass_time(TRANSACTION_S + 1)) == 1


def test_a_transaction_that_has_ended_has_no_lease(clients: Clients, office: Office) -> None:
    transaction = clients.begin()
    office.manager.commit(transaction, office.now)
    assert clients.leases.renew([transaction.identifier], office.now) == [transaction.identifier]
    assert clients.leases.transactions(office.now) == []
    assert clients.pass_time(2 * TRANSACTION_S) == []
    with pytest.raises(TransactionSequence):
        clients.leases.transaction(transaction.identifier, office.now)


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


def test_what_a_client_sees_of_its_own_time_is_never_shortened(clients: Clients, office: Office) -> None:
    """A renewal between two runs of the timer counts from when it came."""
    lease, _ = clients.lock()
    office.now += 0.4
    clients.leases.renew([lease], office.now)
    office.now += 0.1
    assert clients.pass_time(RECEIVE_S - 0.5) == []


# Operators


def test_an_operator_releases_locks_and_their_owner_hears_of_it(clients: Clients, office: Office) -> None:
    lease, numbers = clients.lock(count=2)
    queue = office.queue(ORDERS)
    assert clients.leases.release(queue, numbers[:1], office.now) == [(ANN.owner, numbers[0])]
    assert office.labels(ORDERS) == ["a", "c"]
    with pytest.raises(LeaseEnded, match="it was released at 2023-11-14T22:13:20Z"):
        clients.take(numbers, lease)
    clients.take(numbers[1:], lease)
    clients.lock(HERE)
    assert len(clients.leases.release(queue, None, office.now)) == 1
    assert clients.leases.release(queue, None, office.now) == []


def test_what_cannot_be_released_is_told_apart(clients: Clients, office: Office) -> None:
    transaction = clients.begin()
    (record,) = office.read(LEDGER, transaction=transaction)
    office.lock(ORDERS)
    (reader,) = office.queue(ORDERS).positions
    cases = {
        (LEDGER, record.lookup_id): f"is held by the transaction {transaction.identifier}: abort that",
        (ORDERS, reader): "is held by a remote reader or a session",
        (ORDERS, 999): "is not locked",
    }
    for (name, number), sentence in cases.items():
        with pytest.raises(PostroadError, match=sentence):
            clients.leases.release(office.queue(name), [number], office.now)


def test_an_operator_aborts_a_transaction_and_its_owner_hears_of_it(clients: Clients, office: Office) -> None:
    transaction = clients.begin()
    office.read(LEDGER, transaction=transaction)
    assert clients.leases.abort(transaction.identifier, office.now) == ANN.owner
    assert office.labels(LEDGER) == ["x"]
    with pytest.raises(LeaseEnded, match=r"it was aborted at .* by an operator"):
        clients.leases.transaction(transaction.identifier, office.now)
    with pytest.raises(TransactionSequence):
        clients.leases.abort(uuid4(), office.now)


def test_who_holds_what_and_for_how_long(clients: Clients, office: Office) -> None:
    transaction = clients.begin()
    office.read(LEDGER, transaction=transaction)
    office.send(LEDGER, Message(label="y"), transaction=transaction)
    clients.pass_time(2)
    _, numbers = clients.lock(BOB, 2)
    clients.pass_time(1)
    clients.leases.transaction(transaction.identifier, office.now)
    taken, locked = clients.leases.locks(None, office.now)
    assert (taken.queue, taken.owner, taken.kind, taken.age_s, taken.silent_s, taken.messages) == (
        *(LEDGER, ANN.owner, "transaction", 3, 0, 1),
    )
    assert taken.transaction == str(transaction.identifier)
    assert (locked.queue, locked.owner, locked.kind, locked.age_s, locked.silent_s) == (
        *(ORDERS, BOB.owner, "receive", 1, 1),
    )
    assert (locked.messages, locked.lookup_ids) == (2, tuple(numbers))
    assert clients.leases.locks(office.queue(ORDERS), office.now) == [locked]
    (told,) = clients.leases.transactions(office.now)
    assert (told.owner, told.age_s, told.messages, told.received, told.sent) == (ANN.owner, 3, 2, 1, 1)


# Bounds


def test_only_so_many_ends_are_remembered(clients: Clients, office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REMEMBERED", 2)
    lease, numbers = clients.lock(count=3)
    clients.pass_time(RECEIVE_S + 1)
    kinds = []
    for number in numbers:
        with pytest.raises(TransactionSequence) as caught:
            clients.take([number], lease)
        kinds.append(type(caught.value))
    assert kinds == [TransactionSequence, LeaseEnded, LeaseEnded]


def test_thousands_of_locks_go_back_at_once(clients: Clients, office: Office) -> None:
    office.send(ORDERS, *(str(number) for number in range(5000)))
    before = office.labels(ORDERS)
    for _ in range(500):
        clients.lock(count=10)
    assert len(clients.pass_time(RECEIVE_S + 1)) == 500
    assert office.labels(ORDERS) == before


def test_a_handle_that_nobody_uses_is_closed(clients: Clients, office: Office) -> None:
    descriptor = office.open(ORDERS)
    clients.leases.use_handle(descriptor.handle, office.now)
    clients.pass_time(HANDLE_TIMEOUT_S)
    assert not descriptor.closed
    clients.pass_time(1)
    assert descriptor.closed
