"""Access lists of public queues that a directory has: when they count, and what one does that cannot be read."""

from __future__ import annotations

import pytest

from postroad.queues.queue import Queue
from postroad.security.access import Token
from postroad.security.descriptors import Sid
from postroad.security.sddl import format_sddl, parse_sddl
from tests.unit.queues.harness import NAME, Harness

ANN = Token.of_user(Sid.parse("S-1-5-21-1-2-3-1001"))
ANYBODY = Token.anonymous()


def listed(entries: str) -> bytes:
    return parse_sddl(f"D:{entries}").encode()


FOR_ANN = listed(f"(A;;0x4;;;{ANN.user})")


@pytest.fixture
def queue(harness: Harness) -> Queue:
    return harness.manager.create_queue(f"{NAME}\\orders", harness.now)


def take(harness: Harness, queue: Queue, data: bytes, *, first: bool = False) -> None:
    harness.manager.use_directory({queue.properties.identifier: data}, harness.now, first=first)
    harness.tick()


def may_send(harness: Harness, queue: Queue, token: Token) -> bool:
    return harness.manager.access.may_send(queue, token)


@pytest.mark.spec("QB-3.1.5.8.3-24")
def test_the_list_in_the_directory_replaces_the_default(harness: Harness, queue: Queue) -> None:
    assert may_send(harness, queue, ANYBODY)
    take(harness, queue, FOR_ANN)
    assert (may_send(harness, queue, ANN), may_send(harness, queue, ANYBODY)) == (True, False)
    assert harness.manager.access.has_own_list(queue)
    take(harness, queue, listed(f"(D;;0x4;;;{ANN.user})(A;;0x4;;;WD)"))
    assert (may_send(harness, queue, ANN), may_send(harness, queue, ANYBODY)) == (False, True)


def test_a_queue_that_the_directory_no_longer_has_is_as_before(harness: Harness, queue: Queue) -> None:
    take(harness, queue, FOR_ANN)
    harness.manager.use_directory({}, harness.now, first=False)
    assert may_send(harness, queue, ANYBODY)


def test_a_list_that_was_set_here_wins_unless_the_manager_publishes(harness: Harness, queue: Queue) -> None:
    harness.manager.change_queue(queue, harness.now, acl="O:BAD:(A;;0x4;;;AN)")
    take(harness, queue, FOR_ANN)
    assert may_send(harness, queue, ANYBODY)
    take(harness, queue, FOR_ANN, first=True)
    assert not may_send(harness, queue, ANYBODY)


def test_a_published_change_counts_before_the_directory_is_read_again(harness: Harness, queue: Queue) -> None:
    take(harness, queue, FOR_ANN, first=True)
    harness.manager.change_queue(queue, harness.now, acl="O:BAD:(A;;0x4;;;AN)")
    assert may_send(harness, queue, ANYBODY)
    take(harness, queue, listed("(A;;0x4;;;AN)"), first=True)
    assert may_send(harness, queue, ANYBODY)
    take(harness, queue, FOR_ANN, first=True)
    assert not may_send(harness, queue, ANYBODY)


@pytest.mark.parametrize("data", [b"", b"\1", FOR_ANN[:-4], b"\2" + FOR_ANN[1:], b"\xff" * 64], ids=range(5))
def test_a_list_that_cannot_be_read_is_for_administrators_and_one_line_in_the_log(
    harness: Harness, queue: Queue, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        take(harness, queue, data)
    assert not may_send(harness, queue, ANN)
    assert not may_send(harness, queue, ANYBODY)
    assert may_send(harness, queue, Token.administrator())
    assert [each.message for each in caplog.records] == [
        "access list in the directory cannot be read: only administrators may use the queue"
    ]


def test_a_private_queue_has_no_list_in_the_directory(harness: Harness) -> None:
    queue = harness.manager.create_queue(r"private$\mine", harness.now)
    take(harness, queue, FOR_ANN)
    assert may_send(harness, queue, ANYBODY)


def test_the_journal_has_the_list_of_its_queue(harness: Harness, queue: Queue) -> None:
    take(harness, queue, listed(f"(A;;0xb;;;{ANN.user})"))
    journal = harness.manager.queues.get(f"{NAME}\\orders;journal")
    access = harness.manager.access
    assert format_sddl(access.descriptor(journal)) == format_sddl(access.descriptor(queue))
