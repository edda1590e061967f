"""Who may read from another computer: every call of a remote reader without the right, and with it."""

from __future__ import annotations

import pytest

from postroad.errors import Status
from postroad.remote_read.mqqp import Mqqp
from postroad.remote_read.service import RemoteReadService
from postroad.remote_read.values import Ack, Action, DesiredAccess, ReadRequest
from postroad.rpc.calls import Caller
from postroad.rpc.constants import AuthLevel
from postroad.security.descriptors import Sid
from postroad.security.rights import QUEUE_RIGHT_WORDS
from postroad.security.users import User, Users, derive_sid
from tests.unit.queues.harness import ORDERS
from tests.unit.remote_read.harness import CLIENT, NOBODY, OK, SOMEBODY, Harness, Reader, parts

SID = Sid.parse("S-1-5-21-1-2-3-1001")
DENIED = Status.ACCESS_DENIED
FULL = 0xF003F
RECEIVES = (Action.RECEIVE, Action.LOOKUP_RECEIVE_CURRENT, Action.LOOKUP_RECEIVE_NEXT, Action.LOOKUP_RECEIVE_PREV)


def know(harness: Harness, sid: Sid = SID, *, administrator: bool = False) -> None:
    """The configuration gives SOMEBODY this SID."""
    users = Users([User("reader", sid, administrator=administrator)])
    harness.queues.use(users=users)


def allow(harness: Harness, mask: int | None, sid: Sid | str = SID, queue: str = ORDERS) -> None:
    """With `mask` None, removes the list."""
    manager = harness.queues.manager
    acl = None if mask is None else f"O:BAD:(A;;0x{mask:x};;;{sid})" if mask else "O:BAD:"
    manager.change_queue(manager.queues.get(queue), harness.queues.now, acl=acl)


def opened(harness: Harness, access: int = DesiredAccess.RECEIVE, caller: Caller = SOMEBODY, name: str = ORDERS) -> int:
    return harness.mqqp.open_remote_queue(parts(name), access, 0, harness.queues.now, caller)[0]


@pytest.mark.parametrize(
    ("right", "peek", "receive"),
    [
        ("peek", OK, DENIED),
        ("receive", OK, OK),
        ("write", DENIED, DENIED),
        ("full", OK, OK),
        ("receive-journal", OK, DENIED),
    ],
)
def test_opening_needs_the_right_for_what_the_reader_wants(
    harness: Harness, right: str, peek: int, receive: int
) -> None:
    know(harness)
    allow(harness, QUEUE_RIGHT_WORDS[right])
    assert opened(harness, DesiredAccess.PEEK) == peek
    assert opened(harness, DesiredAccess.RECEIVE) == receive
    assert DENIED == 0xC00E0025


def test_every_call_is_refused_once_the_right_is_gone(harness: Harness) -> None:
    know(harness)
    allow(harness, FULL)
    harness.send("one", "two", "three")
    reader = harness.reader(ORDERS)
    read = reader.ask(Action.RECEIVE)
    _, cursor = harness.mqqp.create_remote_cursor(reader.handle, SOMEBODY)
    mqqp, now = harness.mqqp, harness.queues.now
    allow(harness, 0)
    before = harness.queues.queue(ORDERS).count
    for action in (Action.RECEIVE, Action.PEEK_CURRENT):
        assert reader.ask(action).status == DENIED
        assert reader.ask(action, cursor=cursor).status == DENIED
        assert reader.ask(action, 5000).status == DENIED  # it does not wait
    assert reader.ask(Action.PEEK_NEXT, cursor=cursor).status == DENIED
    for number, action in enumerate(each for each in Action if "LOOKUP" in each.name):
        request = ReadRequest(reader.handle, reader.handle, action, 100 + number, 0, 0)
        assert mqqp.start_receive_by_lookup_id(0, request, now, SOMEBODY).status == DENIED, action
    assert mqqp.purge_queue(reader.handle, now, SOMEBODY) == (DENIED, False)
    assert mqqp.create_remote_cursor(reader.handle, SOMEBODY) == (DENIED, 0)
    assert mqqp.open_queue(CLIENT, reader.handle, reader.handle, SOMEBODY) == (DENIED, None)
    assert (opened(harness, DesiredAccess.PEEK), opened(harness, DesiredAccess.RECEIVE)) == (DENIED, DENIED)
    assert harness.queues.queue(ORDERS).count == before
    # Messages that were handed out are back already. What only gives back stays possible.
    assert mqqp.end_receive(read.entry, Ack.RR_ACK, now) == Status.TRANSACTION_SEQUENCE
    assert not harness.queues.queue(ORDERS).positions
    assert mqqp.close_cursor(reader.handle, cursor, SOMEBODY) == OK
    assert mqqp.close_queue(reader.session, now) == OK


def test_a_reader_with_peek_alone_removes_nothing(harness: Harness) -> None:
    know(harness)
    allow(harness, FULL)
    harness.send("one")
    reader = harness.reader(ORDERS)
    allow(harness, QUEUE_RIGHT_WORDS["peek"])
    assert reader.ask(Action.PEEK_CURRENT).label == "one"
    assert reader.ask(Action.RECEIVE).status == DENIED
    for number, action in enumerate(RECEIVES[1:]):
        request = ReadRequest(reader.handle, reader.handle, action, 100 + number, 0, 0)
        status = harness.mqqp.start_receive_by_lookup_id(0, request, harness.queues.now, SOMEBODY).status
        assert status == DENIED
    assert harness.mqqp.purge_queue(reader.handle, harness.queues.now, SOMEBODY) == (DENIED, False)
    assert harness.queues.queue(ORDERS).count == 1


def test_without_a_list_those_without_a_sid_read_as_before(harness: Harness) -> None:
    assert opened(harness) == OK  # a name that only the listener knows
    assert opened(harness, caller=NOBODY) == OK
    identifier = harness.queues.manager.identifier
    know(harness, derive_sid(identifier, "reader"))
    assert opened(harness) == OK
    know(harness)
    assert opened(harness) == DENIED  # the default list gives receive to administrators only
    know(harness, administrator=True)
    assert opened(harness) == OK


def test_a_list_binds_everybody(harness: Harness) -> None:
    allow(harness, FULL)
    assert opened(harness) == DENIED
    assert opened(harness, caller=NOBODY) == DENIED
    derived = derive_sid(harness.queues.manager.identifier, "reader")
    know(harness, derived)
    assert opened(harness) == DENIED
    for who, somebody, nobody in ((derived, OK, DENIED), ("AU", OK, DENIED), ("AN", DENIED, OK), ("WD", OK, OK)):
        allow(harness, FULL, who)
        assert (opened(harness), opened(harness, caller=NOBODY)) == (somebody, nobody), who
    allow(harness, None)
    assert opened(harness, caller=NOBODY) == OK


def test_a_journal_and_dead_letters_have_masks_of_their_own(harness: Harness) -> None:
    know(harness)
    journal, machine = f"{ORDERS};journal", f"MACHINE={harness.queues.manager.identifier}"
    allow(harness, QUEUE_RIGHT_WORDS["receive"])
    assert (opened(harness, DesiredAccess.PEEK, name=journal), opened(harness, name=journal)) == (OK, DENIED)
    allow(harness, QUEUE_RIGHT_WORDS["receive-journal"])
    assert opened(harness, name=journal) == OK
    for suffix in (";DEADLETTER", ";DEADXACT", ";JOURNAL"):
        assert opened(harness, DesiredAccess.PEEK, name=machine + suffix) == DENIED
        assert opened(harness, caller=NOBODY, name=machine + suffix) == OK  # as before there were lists


def test_a_listener_with_logins_says_nothing_of_lists_to_others(harness: Harness) -> None:
    mqqp = Mqqp(RemoteReadService(harness.queues.manager, authenticate=True), iter(range(1, 9)).__next__)
    allow(harness, FULL, "WD")
    statuses = {
        name: mqqp.open_remote_queue(parts(name), DesiredAccess.PEEK, 0, 0.0, NOBODY)[0]
        for name in (ORDERS, r"private$\nowhere")
    }
    assert set(statuses.values()) == {DENIED}


def test_a_queue_made_again_has_the_rights_of_the_new_one(harness: Harness) -> None:
    know(harness)
    allow(harness, FULL)
    reader = harness.reader(ORDERS)
    manager = harness.queues.manager
    manager.delete_queue(manager.queues.get(ORDERS), harness.queues.now)
    manager.create_queue(ORDERS, harness.queues.now)
    assert reader.ask(Action.RECEIVE).status == Status.QUEUE_NOT_AVAILABLE
    assert opened(harness) == DENIED


def test_another_user_with_the_right_still_has_no_use_of_the_handle(harness: Harness) -> None:
    allow(harness, FULL, "WD")
    reader = Reader(harness, harness.open(ORDERS))
    other = Caller("127.0.70.9", "other", AuthLevel.INTEGRITY, 2)
    assert reader.ask(Action.PEEK_CURRENT, caller=other).status == Status.INVALID_PARAMETER
