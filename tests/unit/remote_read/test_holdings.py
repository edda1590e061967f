"""What one reader can make the server hold. Handles belong to whoever opened them."""

from __future__ import annotations

import pytest

from postroad.errors import Status
from postroad.queues.owners import DEFAULTS, Held
from postroad.remote_read.values import INFINITE_MS, Ack, Action
from postroad.rpc.calls import Caller
from postroad.rpc.constants import AuthLevel
from tests.unit.remote_read.harness import CLIENT, NOBODY, OK, SOMEBODY, Harness

FULL = Status.INSUFFICIENT_RESOURCES
ELSEWHERE = Caller(SOMEBODY.address, SOMEBODY.user, SOMEBODY.level, 2)
LOWER = Caller(SOMEBODY.address, SOMEBODY.user, AuthLevel.CONNECT, SOMEBODY.association)
OTHER = Caller(SOMEBODY.address, "somebody else", SOMEBODY.level, SOMEBODY.association)
MAX_QUEUES, MAX_CURSORS, MAX_READS = (DEFAULTS[each] for each in (Held.OPEN_QUEUES, Held.CURSORS, Held.WAITING_READS))
STRANGERS = {"elsewhere": ELSEWHERE, "lower": LOWER, "other": OTHER, "nobody": NOBODY}


def held(harness: Harness, kind: Held) -> int:
    """The number that the owner with the most holds."""
    return harness.service.owners.figures[kind.setting.replace("_mb_", "_bytes_")]["current"]


def test_a_reader_opens_so_many_queues_and_others_are_not_concerned(harness: Harness) -> None:
    opened = [harness.open() for _ in range(MAX_QUEUES)]
    assert harness.try_open() == (FULL, None)
    assert harness.try_open(caller=ELSEWHERE) == (FULL, None)  # the same user
    assert harness.try_open(caller=NOBODY)[0] == OK
    harness.mqqp.close_remote_queue_context(opened[0], harness.queues.now)
    assert harness.try_open()[0] == OK
    assert len(harness.queues.queue(opened[0].remote.path).descriptors) == MAX_QUEUES + 1


def test_a_reader_makes_so_many_cursors(harness: Harness) -> None:
    reader, second = harness.reader(), harness.reader()
    cursors = [reader.cursor() for _ in range(MAX_CURSORS - 1)]
    second.cursor()
    assert harness.mqqp.create_remote_cursor(second.handle, SOMEBODY) == (FULL, 0)
    assert harness.mqqp.close_cursor(reader.handle, cursors[0], SOMEBODY) == OK
    second.cursor()
    reader.close()
    assert held(harness, Held.CURSORS) == 2


def test_a_reader_has_so_many_reads_that_wait(harness: Harness) -> None:
    reader, second = harness.reader(), harness.reader()
    owners, owner = harness.service.owners, reader.remote.owner
    for _ in range(10):
        reader.wait()
    owners.take(Held.WAITING_READS, owner, MAX_READS - 10)
    assert second.ask(Action.RECEIVE, INFINITE_MS).status == FULL
    assert second.ask(Action.RECEIVE, 0).status == Status.IO_TIMEOUT
    owners.give(Held.WAITING_READS, owner, MAX_READS - 10)
    harness.send("one")
    assert held(harness, Held.WAITING_READS) == 9
    reader.close()
    assert held(harness, Held.WAITING_READS) == 0


def test_a_reader_is_given_no_more_than_so_many_octets_without_an_acknowledgment(
    harness: Harness,
) -> None:
    harness.send("one", "two", "three")
    reader, second = harness.reader(), harness.reader()
    first = reader.receive()
    harness.queues.use(held={**DEFAULTS, Held.LOCKED_MB: held(harness, Held.LOCKED_MB)})
    assert second.receive().status == FULL
    assert second.lookup(Action.LOOKUP_RECEIVE_NEXT, 0).status == FULL
    assert second.peek().label == "two"
    assert reader.end(first, Ack.RR_ACK) == OK
    assert held(harness, Held.LOCKED_MB) == 0
    assert second.receive().label == "two"


def test_readers_who_hold_nothing_are_forgotten(harness: Harness) -> None:
    reader = harness.reader()
    reader.cursor()
    reader.wait()
    assert held(harness, Held.OPEN_QUEUES) == held(harness, Held.CURSORS) == held(harness, Held.WAITING_READS) == 1
    reader.close()
    assert not any(each["current"] for each in harness.service.owners.figures.values())


@pytest.mark.parametrize("kind", STRANGERS)
def test_what_is_open_is_of_no_use_to_anybody_else(harness: Harness, kind: str) -> None:
    caller = STRANGERS[kind]
    harness.send("one")
    reader = harness.reader()
    cursor = reader.cursor()
    assert reader.ask(caller=caller).status == Status.INVALID_PARAMETER
    assert reader.lookup(Action.LOOKUP_RECEIVE_NEXT, 0, caller=caller).status == Status.INVALID_PARAMETER
    assert reader.purge(caller) == Status.INVALID_HANDLE
    assert harness.mqqp.open_queue(CLIENT, reader.handle, reader.handle, caller) == (Status.INVALID_PARAMETER, None)
    assert harness.mqqp.close_cursor(reader.handle, cursor, caller) == Status.INVALID_HANDLE
    assert reader.take() == "one"
    reader.wait(request_id=50)
    assert reader.cancel(50, caller=caller) == Status.INVALID_HANDLE
    assert reader.cancel(50) == OK


def test_a_queue_that_only_qmcomm_has_opened_is_for_its_opener_to_read(harness: Harness) -> None:
    remote = harness.open()
    for caller in (LOWER, OTHER, NOBODY):
        assert harness.mqqp.open_queue(CLIENT, remote.handle, remote.handle, caller)[0] == Status.INVALID_PARAMETER
    # qmcomm and qm2qm are reached by connections of different associations.
    assert harness.mqqp.open_queue(CLIENT, remote.handle, remote.handle, ELSEWHERE)[0] == OK
    assert harness.mqqp.open_queue(CLIENT, remote.handle, remote.handle, SOMEBODY)[0] == Status.INVALID_PARAMETER
