"""Open Queue and Close Queue, [MS-MQDMPR] 3.1.7.1.5 and 3.1.7.1.6: who may open what, and together with whom."""

from __future__ import annotations

from itertools import product

import pytest

from postroad.errors import AccessDenied, IllegalFormatName, InvalidHandle, SharingViolation
from postroad.names import DistributionListName, FormatName, parse_format_name
from postroad.reports.operations import QueueAccess, ReadCall, ShareMode
from tests.unit.queues.harness import (
    ELSEWHERE,
    IDENTIFIER,
    JOURNAL,
    LEDGER,
    NAME,
    ORDERS,
    OTHER,
    Harness,
    refused,
)

LIST = "DL=a0a1a2a3-a4a5-a6a7-a8a9-aaabacadaeaf"
UNKNOWN = "PUBLIC=8f3c6a52-0d1e-4b7a-9c55-2f1f0f6f7a10"
SEVERAL = rf"DIRECT=OS:{NAME}\private$\orders,DIRECT=OS:{NAME}\private$\other"
HTTP = rf"DIRECT=HTTP://{NAME}/msmq/private$/orders"
READ_ACCESS = [access for access in QueueAccess if access is not QueueAccess.SEND]
RECEIVE, PEEK, SEND = QueueAccess.RECEIVE, QueueAccess.PEEK, QueueAccess.SEND
DENY_NONE, DENY_RECEIVE = ShareMode.DENY_NONE, ShareMode.DENY_RECEIVE


# What can be opened, and for what


@pytest.mark.spec("DM-3.1.7.1.5-01")
def test_a_distribution_list_that_nobody_resolves_cannot_be_opened(harness: Harness) -> None:
    with pytest.raises(IllegalFormatName, match="distribution list"):
        harness.open(LIST, SEND)
    with pytest.raises(IllegalFormatName, match="distribution list"):
        harness.send(LIST, "a")


@pytest.mark.spec("DM-3.1.7.1.5-01")
def test_a_distribution_list_stands_for_its_members(harness: Harness) -> None:
    def resolve(name: DistributionListName) -> list[FormatName]:
        return [parse_format_name(rf"DIRECT=OS:{NAME}\{path}") for path in (ORDERS, OTHER)]

    harness.manager.resolve_list = resolve
    assert {child.queue for child in harness.open(LIST, SEND).children} == {harness.queue(ORDERS), harness.queue(OTHER)}
    harness.send(LIST, "to both")
    assert harness.labels(ORDERS) == harness.labels(OTHER) == ["to both"]


@pytest.mark.spec("DM-3.1.7.1.5-02")
@pytest.mark.parametrize("access", READ_ACCESS)
def test_several_queues_are_not_read_as_one(harness: Harness, access: QueueAccess) -> None:
    with refused(0xC00E0020):
        harness.open(SEVERAL, access)


@pytest.mark.spec("DM-3.1.7.1.5-03")
def test_several_queues_are_not_opened_exclusively(harness: Harness) -> None:
    with refused(0xC00E0045):
        harness.open(SEVERAL, SEND, DENY_RECEIVE)


@pytest.mark.spec("DM-3.1.7.1.5-04", "DM-3.1.1.16-02")
def test_several_queues_are_one_descriptor_with_a_child_each(harness: Harness) -> None:
    parent = harness.open(SEVERAL, SEND)
    assert (parent.queue, parent.access) == (None, SEND)
    assert [child.queue for child in parent.children] == [harness.queue(ORDERS), harness.queue(OTHER)]
    for child in parent.children:
        assert (child.access, child.share, child.children) == (SEND, DENY_NONE, ())


@pytest.mark.spec("DM-3.1.7.1.5-04")
def test_one_bad_name_among_several_leaves_nothing_open(harness: Harness) -> None:
    with refused(0xC00E0003):
        harness.open(rf"{SEVERAL},DIRECT=OS:{NAME}\private$\zzz", SEND)
    assert harness.manager.descriptors == {}
    assert not harness.queue(ORDERS).active


@pytest.mark.spec("DM-3.1.7.1.5-05")
@pytest.mark.parametrize(("name", "access"), list(product([HTTP, "MULTICAST=234.1.1.1:8001"], READ_ACCESS)))
def test_http_and_multicast_names_are_for_sending(harness: Harness, name: str, access: QueueAccess) -> None:
    with refused(0xC00E0020):
        harness.open(name, access)
    assert harness.open(name, SEND).queue is not None


@pytest.mark.spec("DM-3.1.7.1.5-06")
@pytest.mark.parametrize("manager", [IDENTIFIER, "a0a1a2a3-a4a5-a6a7-a8a9-aaabacadaeaf"])
@pytest.mark.parametrize("suffix", ["JOURNAL", "DEADLETTER", "DEADXACT"])
def test_nobody_sends_to_a_computers_own_queues(harness: Harness, manager: object, suffix: str) -> None:
    with refused(0xC00E0020):
        harness.open(f"MACHINE={manager};{suffix}", SEND)


@pytest.mark.parametrize("name", [rf"{ORDERS};journal", rf"DIRECT=OS:{NAME}\system$;journal", rf"{ELSEWHERE};journal"])
def test_nobody_sends_to_a_journal(harness: Harness, name: str) -> None:
    with refused(0xC00E0020):
        harness.open(name, SEND)


@pytest.mark.spec("DM-3.1.7.1.5-07")
@pytest.mark.parametrize("access", READ_ACCESS)
@pytest.mark.parametrize("name", [r"private$\missing", ELSEWHERE])
def test_there_is_nothing_to_read_where_there_is_no_queue(harness: Harness, name: str, access: QueueAccess) -> None:
    with refused(0xC00E0003):
        harness.open(name, access)


@pytest.mark.spec("DM-3.1.7.1.5-08")
@pytest.mark.parametrize(
    "name",
    [
        r"private$\missing",
        rf"DIRECT=OS:{NAME.upper()}\private$\missing",
        rf"DIRECT=HTTP://{NAME}/msmq/private$/missing",
        rf"PRIVATE={IDENTIFIER}\ff",
    ],
)
def test_a_queue_that_should_be_here_and_is_not_gets_no_outgoing_queue(harness: Harness, name: str) -> None:
    with refused(0xC00E0003):
        harness.open(name, SEND)
    with refused(0xC00E0003):
        harness.send(name, "lost")
    assert harness.manager.queues.outgoing == {}


@pytest.mark.spec("DM-3.1.3-09")
@pytest.mark.parametrize("path", [r"private$\order_queue$", r"PRIVATE$\NOTIFY_QUEUE$"])
@pytest.mark.parametrize("access", QueueAccess)
def test_the_managers_inner_queues_are_not_for_applications(harness: Harness, path: str, access: QueueAccess) -> None:
    with pytest.raises(AccessDenied):
        harness.open(path, access)
    with pytest.raises(AccessDenied):
        harness.send(path, "a")
    with pytest.raises(AccessDenied):
        harness.delete(path)


@pytest.mark.spec("DM-3.1.1.17-03")
@pytest.mark.parametrize("access", QueueAccess)
def test_what_may_be_done_depends_on_the_access(harness: Harness, access: QueueAccess) -> None:
    harness.send(ORDERS, "a")
    descriptor = harness.open(ORDERS, access)
    if access is SEND:
        with pytest.raises(AccessDenied):
            harness.read(descriptor, ReadCall.PEEK)
    else:
        assert len(harness.read(descriptor, ReadCall.PEEK)) == 1
    if access in (RECEIVE, QueueAccess.RECEIVE_ADMIN, QueueAccess.MOVE):
        assert len(harness.read(descriptor, ReadCall.RECEIVE)) == 1
    else:
        with pytest.raises(AccessDenied):
            harness.read(descriptor, ReadCall.RECEIVE)


@pytest.mark.spec("DM-3.1.1.17-03")
@pytest.mark.parametrize(("plain", "admin"), [(RECEIVE, QueueAccess.RECEIVE_ADMIN), (PEEK, QueueAccess.PEEK_ADMIN)])
def test_messages_on_their_way_are_read_by_administrators_alone(
    harness: Harness, plain: QueueAccess, admin: QueueAccess
) -> None:
    harness.send(ELSEWHERE, "on its way")
    with refused(0xC00E0003):
        harness.open(ELSEWHERE, plain)
    assert len(harness.read(harness.open(ELSEWHERE, admin), ReadCall.PEEK)) == 1


# Beside whom

READERS = (RECEIVE, PEEK, QueueAccess.PEEK_ADMIN)
COLLISIONS = {
    # an open descriptor: the ones that cannot be opened beside it
    (RECEIVE, DENY_RECEIVE): {(access, DENY_RECEIVE) for access in (*READERS, SEND)} | {(RECEIVE, DENY_NONE)},
    (PEEK, DENY_RECEIVE): {(RECEIVE, DENY_NONE), (RECEIVE, DENY_RECEIVE)},
    (QueueAccess.PEEK_ADMIN, DENY_RECEIVE): {(RECEIVE, DENY_NONE), (RECEIVE, DENY_RECEIVE)},
    (RECEIVE, DENY_NONE): {(access, DENY_RECEIVE) for access in (*READERS, SEND)},
    (PEEK, DENY_NONE): set(),
    (SEND, DENY_NONE): set(),
}


@pytest.mark.spec("DM-3.1.7.1.5-14", "DM-3.1.7.1.5-15", "DM-3.1.7.1.5-16", "DM-3.1.7.1.5-17")
@pytest.mark.parametrize(("first", "second"), list(product(COLLISIONS, product((*READERS, SEND), ShareMode))))
def test_who_can_open_a_queue_that_another_has_open(
    harness: Harness, first: tuple[QueueAccess, ShareMode], second: tuple[QueueAccess, ShareMode]
) -> None:
    harness.open(ORDERS, *first)
    if second in COLLISIONS[first]:
        with refused(0xC00E0009):
            harness.open(ORDERS, *second)
    else:
        harness.open(ORDERS, *second)


@pytest.mark.spec("DM-3.1.7.1.5-10")
def test_a_public_queue_that_nobody_knows_can_be_sent_to_and_not_read(harness: Harness) -> None:
    descriptor = harness.open(UNKNOWN, SEND)
    assert descriptor.queue is not None
    assert descriptor.queue.is_outgoing
    harness.send(UNKNOWN, "a")
    assert harness.labels(UNKNOWN) == ["a"]
    harness.restart()
    assert harness.labels(UNKNOWN) == ["a"]
    for access in (RECEIVE, PEEK):
        with refused(0xC00E0003):
            harness.open(UNKNOWN, access)


@pytest.mark.spec("MQ-2.1.7-04")
def test_a_list_is_sent_to_whether_or_not_the_directory_knows_its_queues(harness: Harness) -> None:
    harness.open(f"DIRECT=OS:{NAME}\\{ORDERS},{ELSEWHERE}", SEND)
    mixed = f"DIRECT=OS:{NAME}\\{ORDERS},{UNKNOWN}"
    harness.open(mixed, SEND)
    harness.send(mixed, "a")
    assert (harness.labels(ORDERS), harness.labels(UNKNOWN)) == (["a"], ["a"])


def test_a_queue_is_shared_again_once_it_is_closed(harness: Harness) -> None:
    exclusive = harness.open(ORDERS, RECEIVE, DENY_RECEIVE)
    with pytest.raises(SharingViolation):
        harness.open(ORDERS)
    harness.manager.close(exclusive)
    harness.open(ORDERS)


# The descriptor


@pytest.mark.spec("DM-3.1.7.1.5-18", "DM-3.1.1.16-02")
def test_a_descriptor_says_what_was_opened(harness: Harness) -> None:
    descriptor = harness.open(rf"DIRECT=OS:{NAME}\private$\orders", PEEK, DENY_RECEIVE)
    assert (descriptor.access, descriptor.share, descriptor.queue) == (PEEK, DENY_RECEIVE, harness.queue(ORDERS))
    assert descriptor.format_name == parse_format_name(rf"DIRECT=OS:{NAME}\private$\orders")
    assert descriptor.children == ()
    assert harness.queue(ORDERS).descriptors == [descriptor]
    assert harness.manager.descriptor(descriptor.handle) is descriptor


@pytest.mark.spec("DM-3.1.1.16-01", "DM-3.1.7.1.5-18")
def test_no_two_descriptors_have_one_handle(harness: Harness) -> None:
    opened = [harness.open(name, SEND) for name in (ORDERS, ORDERS, LEDGER, SEVERAL, ELSEWHERE)]
    handles = [descriptor.handle for descriptor in opened]
    harness.manager.close(opened[0])
    handles.append(harness.open(ORDERS, SEND).handle)
    assert len(set(handles)) == len(handles)


@pytest.mark.spec("DM-3.1.7.1.6-01")
def test_closing_ends_waiting_reads_and_cursors(harness: Harness) -> None:
    descriptor = harness.open(ORDERS)
    harness.manager.open_cursor(descriptor)
    other = harness.ask(harness.open(ORDERS))
    mine = harness.ask(descriptor)
    harness.manager.close(descriptor)
    assert mine.error is not None
    assert mine.error.status == 0xC00E0008
    assert descriptor.cursors == {}
    assert descriptor not in harness.queue(ORDERS).descriptors
    assert other.waits


@pytest.mark.spec("DM-3.1.7.1.6-02")
def test_closing_several_closes_each(harness: Harness) -> None:
    harness.manager.close(harness.open(SEVERAL, SEND))
    assert harness.manager.descriptors == {}
    assert not harness.queue(ORDERS).active
    assert not harness.queue(OTHER).active


@pytest.mark.spec("DM-3.1.7.1.6-02")
def test_a_descriptor_of_a_deleted_queue_can_still_be_closed(harness: Harness) -> None:
    descriptor = harness.open(ORDERS)
    harness.delete(ORDERS)
    harness.manager.close(descriptor)
    assert harness.manager.descriptors == {}


def test_a_descriptor_is_closed_once(harness: Harness) -> None:
    descriptor = harness.open(ORDERS)
    harness.manager.close(descriptor)
    with pytest.raises(InvalidHandle):
        harness.manager.close(descriptor)
    with pytest.raises(InvalidHandle):
        harness.manager.descriptor(descriptor.handle)


@pytest.mark.spec("DM-3.1.1.2-08")
def test_a_queue_is_active_while_somebody_has_it_open(harness: Harness) -> None:
    queue = harness.queue(ORDERS)
    harness.send(ORDERS, "a")
    assert not queue.active
    descriptor = harness.open(ORDERS)
    assert queue.active
    harness.manager.close(descriptor)
    assert not queue.active


def test_the_managers_journal_is_read_like_any_queue(harness: Harness) -> None:
    with refused(0xC00E001B):
        harness.receive(JOURNAL)
