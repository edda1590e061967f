"""What a reader by [MS-MQRR] does not acknowledge in time goes back, 3.1.2.2 and 3.1.5.1. The clock is the test's."""

from __future__ import annotations

import pytest

from postroad.queues.core_settings import LeaseTimes
from postroad.remote_read.service import MISSED_RENEWALS, MQRR, Answer, RemoteQueue
from postroad.remote_read.values import Ack, Action
from postroad.reports.operations import QueueAccess, ShareMode
from tests.unit.queues.harness import ORDERS
from tests.unit.remote_read.harness import OK, SOMEBODY, Harness, parts

STEP_S = 0.5
RECEIVE_S = 2.0
TIME_S = RECEIVE_S * MISSED_RENEWALS


def opened(harness: Harness) -> RemoteQueue:
    now = harness.queues.now
    status, remote = harness.service.open(MQRR, parts(ORDERS), QueueAccess.RECEIVE, ShareMode.DENY_NONE, now, SOMEBODY)
    assert status == OK
    assert remote is not None
    return remote


def receive(harness: Harness, remote: RemoteQueue, request_id: int) -> None:
    answer = harness.service.read(remote, Action.RECEIVE, request_id, 0, 0, harness.queues.now, SOMEBODY)
    assert isinstance(answer, Answer)
    assert answer.status == OK


def wait(harness: Harness, seconds: float) -> int:
    """Lets the clock go on, with a clean-up every half second. Returns how many messages went back."""
    returned = 0
    for _ in range(int(seconds / STEP_S)):
        harness.queues.now += STEP_S
        returned += len(harness.service.clean_up(harness.queues.now))
        harness.queues.tick()
    return returned


@pytest.fixture
def timed() -> Harness:
    harness = Harness()
    harness.queues.use(leases=LeaseTimes(receive_s=RECEIVE_S))
    harness.send("one", "two", "three")
    wait(harness, STEP_S)
    return harness


@pytest.mark.spec("RR-3.1.2.2-01", "RR-3.1.5.1-01")
def test_each_message_goes_back_when_its_own_time_is_over(timed: Harness) -> None:
    remote = opened(timed)
    receive(timed, remote, 1)
    wait(timed, 1)
    receive(timed, remote, 2)
    assert wait(timed, TIME_S - 1.5) == 0
    assert timed.labels() == ["three"]
    assert wait(timed, STEP_S) == 1
    assert timed.labels() == ["one", "three"]
    assert list(remote.unacknowledged) == [2]
    assert wait(timed, 1) == 1
    assert timed.labels() == ["one", "two", "three"]
    assert not remote.unacknowledged
    assert timed.service.returned == 2
    receive(timed, remote, 1)  # the id is free


@pytest.mark.spec("RR-3.1.5.1-01")
def test_what_was_ended_has_no_timer(timed: Harness) -> None:
    remote = opened(timed)
    receive(timed, remote, 1)
    receive(timed, remote, 2)
    assert timed.service.end(remote.unacknowledged[1], Ack.RR_ACK, timed.queues.now) == OK
    timed.service.close(remote, timed.queues.now)
    assert wait(timed, 2 * TIME_S) == 0
    assert timed.labels() == ["two", "three"]


def test_the_time_by_default_is_five_minutes() -> None:
    assert LeaseTimes().receive_s * MISSED_RENEWALS == 300


def test_a_clock_that_was_set_takes_nothing_back(timed: Harness) -> None:
    remote = opened(timed)
    receive(timed, remote, 1)
    timed.queues.now += 86_400
    assert timed.service.clean_up(timed.queues.now) == []
    assert list(remote.unacknowledged) == [1]


def test_a_reader_by_mqqp_has_all_the_time_there_is(timed: Harness) -> None:
    reader = timed.reader()
    read = reader.receive()
    assert wait(timed, 2 * TIME_S) == 0
    assert reader.end(read, Ack.RR_ACK) == OK
