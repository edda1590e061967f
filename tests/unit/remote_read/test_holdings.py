"""What one reader can make the server hold, and that handles are their opener's."""

from __future__ import annotations

import pytest

from postroad.errors import Status
from postroad.remote_read import service as service_module
from postroad.remote_read.holdings import MAX_CURSORS, MAX_QUEUES, MAX_READS
from postroad.remote_read.values import INFINITE_MS, Ack, Action
from postroad.rpc.caller import Caller
from postroad.rpc.constants import AuthLevel
from tests.unit.remote_read.desk import CLIENT, NOBODY, OK, SOMEBODY, Desk

FULL = Status.INSUFFICIENT_RESOURCES
ELSEWHERE = Caller(SOMEBODY.address, SOMEBODY.user, SOMEBODY.level, 2)
LOWER = Caller(SOMEBODY.address, SOMEBODY.user, AuthLevel.CONNECT, SOMEBODY.association)
OTHER = Caller(SOMEBODY.address, "somebody else", SOMEBODY.level, SOMEBODY.association)
STRANGERS = {"elsewhere": ELSEWHERE, "lower": LOWER, "other": OTHER, "nobody": NOBODY}


def test_a_reader_opens_so_many_queues_and_others_are_not_concerned(desk: Desk) -> None:
    opened = [desk.open() for _ in range(MAX_QUEUES)]
    assert desk.try_open() == (FULL, None)
    assert desk.try_open(caller=ELSEWHERE) == (FULL, None)  # the same user
    assert desk.try_open(caller=NOBODY)[0] == OK
    desk.service.close_remote_queue_context(opened[0])
    assert desk.try_open()[0] == OK
    assert len(desk.office.queue(opened[0].path).descriptors) == MAX_QUEUES + 1


def test_a_reader_makes_so_many_cursors(desk: Desk) -> None:
    reader, second = desk.reader(), desk.reader()
    cursors = [reader.cursor() for _ in range(MAX_CURSORS - 1)]
    second.cursor()
    assert desk.service.create_remote_cursor(second.handle, SOMEBODY) == (FULL, 0)
    assert desk.service.close_cursor(reader.handle, cursors[0], SOMEBODY) == OK
    second.cursor()
    reader.close()
    assert second.remote.holdings.cursors == 2


def test_a_reader_has_so_many_reads_that_wait(desk: Desk) -> None:
    reader, second = desk.reader(), desk.reader()
    holdings = reader.remote.holdings
    for _ in range(10):
        reader.wait()
    holdings.reads = MAX_READS
    assert second.ask(Action.RECEIVE, INFINITE_MS).status == FULL
    assert second.ask(Action.RECEIVE, 0).status == Status.IO_TIMEOUT
    holdings.reads = 10
    desk.send("one")
    assert holdings.reads == 9
    reader.close()
    assert holdings.reads == 0


def test_a_reader_is_given_no_more_than_so_many_octets_without_an_acknowledgment(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.send("one", "two", "three")
    reader, second = desk.reader(), desk.reader()
    first = reader.receive()
    monkeypatch.setattr(service_module, "MAX_UNACKNOWLEDGED_OCTETS", reader.remote.holdings.octets - 1)
    assert second.receive().status == FULL
    assert second.lookup(Action.LOOKUP_RECEIVE_NEXT, 0).status == FULL
    assert second.peek().label == "two"
    assert reader.end(first, Ack.RR_ACK) == OK
    assert reader.remote.holdings.octets == 0
    assert second.receive().label == "two"


def test_readers_who_hold_nothing_are_forgotten(desk: Desk) -> None:
    reader = desk.reader()
    reader.cursor()
    reader.wait()
    assert len(desk.service.holdings) == 1
    reader.close()
    assert len(desk.service.holdings) == 0


@pytest.mark.parametrize("kind", STRANGERS)
def test_what_is_open_is_of_no_use_to_anybody_else(desk: Desk, kind: str) -> None:
    caller = STRANGERS[kind]
    desk.send("one")
    reader = desk.reader()
    cursor = reader.cursor()
    assert reader.ask(caller=caller).status == Status.INVALID_PARAMETER
    assert reader.lookup(Action.LOOKUP_RECEIVE_NEXT, 0, caller=caller).status == Status.INVALID_PARAMETER
    assert reader.purge(caller) == Status.INVALID_HANDLE
    assert desk.service.open_queue(CLIENT, reader.handle, reader.handle, caller) == (Status.INVALID_PARAMETER, None)
    assert desk.service.close_cursor(reader.handle, cursor, caller) == Status.INVALID_HANDLE
    assert reader.take() == "one"
    reader.wait(request_id=50)
    assert reader.cancel(50, caller=caller) == Status.INVALID_HANDLE
    assert reader.cancel(50) == OK


def test_a_queue_that_only_qmcomm_has_opened_is_for_its_opener_to_read(desk: Desk) -> None:
    remote = desk.open()
    for caller in (LOWER, OTHER, NOBODY):
        assert desk.service.open_queue(CLIENT, remote.handle, remote.handle, caller)[0] == Status.INVALID_PARAMETER
    # qmcomm and qm2qm are reached by connections of different associations.
    assert desk.service.open_queue(CLIENT, remote.handle, remote.handle, ELSEWHERE)[0] == OK
    assert desk.service.open_queue(CLIENT, remote.handle, remote.handle, SOMEBODY)[0] == Status.INVALID_PARAMETER
