"""Transactions and receives in two phases through the Python API: what happens together, and what is taken back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import postroad
from postroad import errors
from postroad.describe.received import ReceivedMessage
from tests.faces import FACES, opened


@pytest.fixture(params=FACES)
def qm(request: pytest.FixtureRequest) -> Iterator[postroad.QueueManager]:
    with opened(request.param) as manager:
        yield manager


@pytest.fixture
def orders(qm: postroad.QueueManager) -> postroad.Queue:
    return qm.create_queue(r"private$\orders", transactional=True)


@pytest.fixture
def bills(qm: postroad.QueueManager) -> postroad.Queue:
    return qm.create_queue(r"private$\bills", transactional=True)


def texts(queue: postroad.Queue) -> list[str | None]:
    return [message.text for message in queue.messages()]


class Trouble(Exception):
    """What goes wrong in a block."""


def test_what_is_sent_in_a_transaction_appears_at_its_end(qm: postroad.QueueManager, orders: postroad.Queue) -> None:
    with qm.transaction() as tx:
        orders.send(postroad.Message("one", label="order 1"), tx)
        orders.send(["two", "three"], tx)
        assert texts(orders) == []
        assert qm.info().transactions == 1
    assert texts(orders) == ["one", "two", "three"]
    assert orders.receive(0).delivery == "transactional"
    assert (tx.ended, qm.info().transactions) == (True, 0)


def test_a_block_that_raises_leaves_nothing_behind(
    qm: postroad.QueueManager, orders: postroad.Queue, bills: postroad.Queue
) -> None:
    orders.send("order", transactional=True)

    def fail() -> None:
        with qm.transaction() as tx:
            order = orders.receive(0, tx)
            bills.send(f"bill for {order.text}", tx)
            assert texts(orders) == []
            raise Trouble

    with pytest.raises(Trouble):
        fail()
    assert (texts(orders), texts(bills)) == (["order"], [])
    assert orders.peek(0).aborts == 1


def test_a_transaction_joins_queues(qm: postroad.QueueManager, orders: postroad.Queue, bills: postroad.Queue) -> None:
    orders.send(["a", "b"], transactional=True)
    with qm.transaction() as tx:
        for order in orders.receive_many(2, 0, tx):
            bills.send(f"bill for {order.text}", tx)
    assert (texts(orders), texts(bills)) == ([], ["bill for a", "bill for b"])


def test_a_message_is_received_by_its_id_within_a_transaction(
    qm: postroad.QueueManager, orders: postroad.Queue
) -> None:
    orders.send(["a", "b"], transactional=True)
    second = list(orders.messages())[1]
    tx = qm.begin()
    assert orders.receive_by_id(second.lookup_id, tx=tx).text == "b"
    assert texts(orders) == ["a"]
    tx.abort()
    assert texts(orders) == ["a", "b"]


def test_a_transaction_is_ended_by_hand_once(qm: postroad.QueueManager, orders: postroad.Queue) -> None:
    kept, dropped = qm.begin(), qm.begin()
    orders.send("kept", kept)
    orders.send("dropped", dropped)
    qm.commit(kept)
    qm.abort(dropped)
    assert texts(orders) == ["kept"]
    for again in (kept.commit, kept.abort, dropped.commit, lambda: orders.send("late", kept)):
        with pytest.raises(errors.TransactionSequence):
            again()


def test_a_block_may_end_its_transaction_itself(qm: postroad.QueueManager, orders: postroad.Queue) -> None:
    def commit_and_fail() -> None:
        with qm.transaction() as tx:
            tx.commit()
            raise Trouble

    with qm.transaction() as tx:
        orders.send("dropped", tx)
        tx.abort()
    with qm.transaction() as tx:
        orders.send("kept", tx)
        tx.commit()
    with pytest.raises(Trouble):
        commit_and_fail()
    assert texts(orders) == ["kept"]


def test_the_queue_and_the_call_must_agree(qm: postroad.QueueManager, orders: postroad.Queue) -> None:
    plain = qm.create_queue(r"private$\plain")
    with pytest.raises(errors.TransactionUsage, match="transactional"):
        orders.send("without")
    with qm.transaction() as tx:
        for refused in (lambda: plain.send("within", tx), lambda: plain.receive(0, tx)):
            with pytest.raises(errors.TransactionUsage, match="not transactional"):
                refused()
        with pytest.raises(errors.InvalidArgument, match="transactional"):
            orders.send("both", tx, transactional=True)
    with pytest.raises(errors.TransactionUsage):
        plain.send("within", transactional=True)
    assert (texts(orders), texts(plain)) == ([], [])


def test_a_transaction_of_its_own(qm: postroad.QueueManager, orders: postroad.Queue) -> None:
    alone = orders.send("alone", transactional=True)
    several = qm.send(orders.name, ["a", "b"], transactional=True)
    found = orders.receive_many(3, 0)
    assert [str(message.id) for message in found] == [alone, *several]
    marks = [
        (shown["first_in_transaction"], shown["last_in_transaction"]) for shown in map(ReceivedMessage.describe, found)
    ]
    assert marks == [(True, True), (True, False), (False, True)]


def test_a_message_that_fails_too_often_is_put_aside(qm: postroad.QueueManager) -> None:
    queue = qm.create_queue(r"private$\fragile", transactional=True, abort_limit=2)
    queue.send("poison", transactional=True)

    def fail() -> None:
        with qm.transaction() as tx:
            queue.receive(0, tx)
            raise Trouble

    for _ in range(2):
        with pytest.raises(Trouble):
            fail()
    assert texts(queue) == []
    assert texts(qm.queue(r"private$\fragile;poison")) == ["poison"]


# Two phases


@pytest.fixture
def work(qm: postroad.QueueManager) -> postroad.Queue:
    queue = qm.create_queue(r"private$\work")
    queue.send(["a", "b", "c"])
    return queue


def test_a_message_is_nobody_elses_within_the_block_and_gone_after(work: postroad.Queue) -> None:
    with work.receiving(0) as message:
        assert message.text == "a"
        assert texts(work) == ["b", "c"]
        assert work.info().locked == 1
    assert (texts(work), work.info().messages) == (["b", "c"], 2)


def test_a_message_is_back_in_its_place_if_the_block_raises(work: postroad.Queue) -> None:
    with pytest.raises(Trouble), work.receiving(0):
        raise Trouble
    assert texts(work) == ["a", "b", "c"]


def test_several_messages_go_or_return_together(work: postroad.Queue) -> None:
    def fail() -> None:
        with work.receiving_many(2, 0) as messages:
            assert [message.text for message in messages] == ["a", "b"]
            raise Trouble

    with pytest.raises(Trouble):
        fail()
    assert texts(work) == ["a", "b", "c"]
    with work.receiving_many(2, 0):
        pass
    assert texts(work) == ["c"]


def test_locked_messages_are_settled_one_by_one(work: postroad.Queue) -> None:
    a, b = work.lock(2, 0)
    work.settle([a], delete=True)
    work.settle([b.lookup_id], delete=False)
    assert texts(work) == ["b", "c"]
    with pytest.raises(errors.TransactionSequence):
        work.settle([a], delete=True)


def test_nothing_in_time_means_no_block(qm: postroad.QueueManager) -> None:
    queue = qm.create_queue(r"private$\empty")
    with pytest.raises(errors.NoMessage), queue.receiving(0):
        pytest.fail("there was no message")
