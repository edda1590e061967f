"""Time to be received and time to reach a queue, [MS-MQDMPR] 3.1.2.4 and 3.1.7.2.7, [MS-MQMQ] 2.2.19.1 and 2.2.19.2."""

from __future__ import annotations

import pytest

from postroad.message import Message
from postroad.queues.expiry import EXPIRY_BATCH
from postroad.reports.operations import ReadCall, SeekAction
from postroad.wire.constants import INFINITE
from postroad.wire.view import MessageView
from tests.packets import patched, u32
from tests.unit.queues.harness import ACKS, DEADLETTER, DEADXACT, ELSEWHERE, LEDGER, ORDERS, Harness, refused

YEARS = 20 * 365 * 86400


def brief(seconds: int | None, *, recoverable: bool = True, label: str = "a") -> Message:
    return Message(
        label=label,
        recoverable=recoverable,
        time_to_be_received=seconds,
        admin_queue=ACKS,
        ack="nack-receive,nack-reach-queue",
        dead_letter=True,
    )


# In the queue where it is to be received


@pytest.mark.spec(
    "DM-3.1.2.4-01", "DM-3.1.7.1.9-07", "DM-3.1.7.2.7-01", "MQ-2.2.19.2-07", "DM-3.1.7.2.1-02", "MQ-2.2.19.3-10"
)
@pytest.mark.parametrize("recoverable", [True, False])
def test_a_message_goes_when_its_time_to_be_received_is_over(harness: Harness, recoverable: bool) -> None:
    harness.send(ORDERS, brief(10, recoverable=recoverable))
    harness.wait(10)
    assert harness.labels(ORDERS) == ["a"]
    harness.wait(1)
    assert (harness.queue(ORDERS).count, harness.queue(ORDERS).total_bytes) == (0, 0)
    assert (harness.classes(ACKS), harness.classes(DEADLETTER)) == ([0xC002], [0xC002])


@pytest.mark.spec("DM-3.1.2.4-01")
def test_no_time_at_all_is_over_at_once(harness: Harness) -> None:
    harness.send(ORDERS, brief(0))
    harness.wait(0)
    assert (harness.queue(ORDERS).count, harness.classes(ACKS)) == (0, [0xC002])


@pytest.mark.spec("DM-3.1.2.4-01", "DM-3.1.1.12-26", "MQ-2.2.19.2-06")
@pytest.mark.parametrize("seconds", [INFINITE, None])
def test_infinite_time_is_never_over(harness: Harness, seconds: int | None) -> None:
    harness.send(ORDERS, brief(seconds))
    assert harness.messages(ORDERS)[0].time_to_be_received == 0xFFFFFFFF
    harness.wait(YEARS)
    assert harness.labels(ORDERS) == ["a"]


@pytest.mark.spec("MQ-2.2.19.2-06")
def test_the_longest_finite_time_is_a_time(harness: Harness) -> None:
    harness.send(ORDERS, Message(label="a", recoverable=True, time_to_be_received=INFINITE - 1))
    harness.wait(INFINITE - 1)
    assert harness.labels(ORDERS) == ["a"]
    harness.wait(1)
    assert harness.labels(ORDERS) == []


@pytest.mark.spec("DM-3.1.2.4-02")
def test_nothing_happens_to_a_message_that_was_received_in_time(harness: Harness) -> None:
    harness.send(ORDERS, brief(10))
    harness.receive(ORDERS)
    harness.wait(60)
    assert (harness.classes(ACKS), harness.classes(DEADLETTER)) == ([], [])


@pytest.mark.spec("MQ-2.2.19.2-07")
@pytest.mark.parametrize("call", [ReadCall.PEEK, ReadCall.RECEIVE])
def test_no_reader_gets_it_though_no_timer_has_run(harness: Harness, call: ReadCall) -> None:
    harness.send(ORDERS, brief(5, label="old"), "new")
    harness.now += 6
    assert [MessageView(record.packet).label for record in harness.read(ORDERS, call, 9)] == ["new"]
    assert harness.classes(ACKS) == [0xC002]


def test_a_transactional_message_goes_to_the_transactional_dead_letters(harness: Harness) -> None:
    harness.send_transactional(LEDGER, brief(5))
    harness.wait(6)
    assert (harness.classes(DEADXACT), harness.classes(DEADLETTER)) == ([0xC002], [])


def test_a_message_that_somebody_reads_stays_until_that_ends(harness: Harness) -> None:
    harness.send(ORDERS, brief(5, label="received"), brief(5, label="rejected"))
    first, second = harness.lock(ORDERS, 2)
    harness.wait(60)
    assert harness.queue(ORDERS).count == 2
    harness.end(ORDERS, first, delete=True)
    harness.end(ORDERS, second, delete=False)
    harness.wait(1)
    assert harness.queue(ORDERS).count == 0
    assert harness.classes(DEADLETTER) == [0xC002]
    assert harness.labels(DEADLETTER) == ["rejected"]


def test_many_locked_messages_do_not_keep_the_others(harness: Harness) -> None:
    messages = [Message(label="locked", recoverable=True, time_to_be_received=5)] * (EXPIRY_BATCH + 10)
    harness.send(ORDERS, *messages)
    harness.lock(ORDERS, len(messages))
    harness.send(ORDERS, brief(6))
    harness.wait(60)
    assert harness.classes(ACKS) == [0xC002]


def test_a_timer_that_cannot_be_written_runs_again(harness: Harness) -> None:
    harness.send(ORDERS, brief(5))
    harness.now += 6
    harness.manager.run_timers(harness.now)
    harness.fail()
    assert (harness.queue(ORDERS).count, harness.classes(ACKS)) == (1, [])
    harness.wait(0)
    assert (harness.queue(ORDERS).count, harness.classes(ACKS)) == (0, [0xC002])


def test_times_run_on_over_a_restart(harness: Harness) -> None:
    harness.send(ORDERS, brief(10))
    harness.restart()
    harness.wait(11)
    assert harness.classes(ACKS) == [0xC002]


@pytest.mark.parametrize("seconds", [0, 10])
def test_a_sender_whose_clock_is_ahead_gives_no_extra_time(harness: Harness, seconds: int) -> None:
    harness.send(ELSEWHERE, brief(seconds))
    record = next(harness.queue(ELSEWHERE).everything())
    packet = patched(record.packet, 52, u32(int(harness.now) + 1000))
    assert MessageView(packet).sent_time == int(harness.now) + 1000
    harness.manager.insert(harness.queue(ORDERS), [MessageView(packet)], harness.now)
    harness.tick()
    harness.wait(seconds + 1)
    assert harness.queue(ORDERS).count == 0


# On the way to another manager


def leaving(seconds: int) -> Message:
    return Message(label="a", recoverable=True, time_to_reach_queue=seconds, admin_queue=ACKS, ack="nack-reach-queue")


@pytest.mark.spec("MQ-2.2.19.1-24", "MQ-2.2.19.1-25", "MQ-2.2.19.3-09")
def test_a_message_that_has_not_left_in_time_never_will(harness: Harness) -> None:
    harness.send(ELSEWHERE, leaving(10))
    harness.wait(10)
    assert harness.labels(ELSEWHERE) == ["a"]
    harness.wait(1)
    assert (harness.queue(ELSEWHERE).count, harness.classes(ACKS)) == (0, [0x8002])


@pytest.mark.spec("MQ-2.2.19.1-23")
def test_infinite_time_to_reach_a_queue_is_never_over(harness: Harness) -> None:
    harness.send(ELSEWHERE, leaving(INFINITE))
    harness.wait(YEARS)
    assert harness.labels(ELSEWHERE) == ["a"]


@pytest.mark.spec("DM-3.1.1.12-25")
def test_four_days_are_the_time_to_reach_a_queue_that_nobody_chose(harness: Harness) -> None:
    harness.send(ELSEWHERE, "a")
    assert harness.messages(ELSEWHERE)[0].time_to_reach_queue == 0x54600 == 4 * 86400
    harness.wait(0x54600)
    assert harness.labels(ELSEWHERE) == ["a"]
    harness.wait(1)
    assert harness.labels(ELSEWHERE) == []


def test_time_to_be_received_counts_on_the_way_too(harness: Harness) -> None:
    harness.send(ELSEWHERE, brief(10))
    harness.wait(11)
    assert (harness.queue(ELSEWHERE).count, harness.classes(ACKS)) == (0, [0x8002])


def test_time_to_reach_a_queue_does_not_count_in_the_queue(harness: Harness) -> None:
    harness.send(ORDERS, Message(label="a", recoverable=True, time_to_reach_queue=5))
    harness.wait(60)
    assert harness.labels(ORDERS) == ["a"]


def test_a_lookup_does_not_find_a_message_whose_time_is_over(harness: Harness) -> None:
    harness.send(ORDERS, brief(5), brief(None, label="b"))
    harness.now += 6
    descriptor = harness.open(ORDERS)
    found = harness.manager.reading.read_by_lookup_id(descriptor, 0, SeekAction.FIRST, harness.now, peek=True)
    assert MessageView(found.packet).label == "b"
    with refused(0xC00E0088):
        harness.manager.reading.read_by_lookup_id(
            descriptor, found.lookup_id, SeekAction.PREVIOUS, harness.now, peek=True
        )
