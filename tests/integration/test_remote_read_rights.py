"""Remote readers who log in with NTLM, and the access lists that apply to them. A change counts for open queues too."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

import pytest

import postroad
from postroad.errors import AccessDenied, AuthenticationFailed, PostroadError, Status
from postroad.message import Message
from postroad.names import DirectName, QueueFormat
from postroad.remote_read import qm2qm, qmcomm, structures
from postroad.remote_read import remoteread as wire
from postroad.remote_read.mqqp_handlers import READ_KIND, SESSION_KIND
from postroad.remote_read.mqrr import MOVE_ACCESS
from postroad.remote_read.qm2qm import QM2QM
from postroad.remote_read.qmcomm import QMCOMM, TransferBuffer
from postroad.remote_read.remoteread import REMOTE_READ
from postroad.remote_read.service import RemoteQueue
from postroad.remote_read.structures import RemoteReadDesc, RemoteReadDesc2
from postroad.remote_read.values import Ack, Action, DesiredAccess
from postroad.rpc.client import connect
from postroad.rpc.constants import AuthLevel, AuthType
from postroad.rpc.gss import initiator
from postroad.rpc.interface import Nothing, Operation
from postroad.rpc.ndr import Handle
from postroad.rpc.ntlm import NtlmProvider
from postroad.security.descriptors import Sid
from postroad.security.users import User, Users
from tests.remote.calls import calling
from tests.remote.station import DIRECT, HOST, ORDERS, OTHER, OTHER_USER, PASSWORD, USER, Station, station

READER = User(USER, Sid.parse("S-1-5-21-1-2-3-1001"))


@pytest.fixture
def running() -> Iterator[Station]:
    with station(authenticate=True) as running:
        running.manager.core.use(replace(running.manager.core.settings, users=Users([READER])), running.manager.clock())
        yield running


PROTOCOL = {"protocol": "auto"}  # that of the test


@pytest.fixture(autouse=True, params=["mqrr", "mqqp"])
def protocol(request: pytest.FixtureRequest) -> Iterator[None]:
    PROTOCOL["protocol"] = request.param
    yield
    PROTOCOL["protocol"] = "auto"


def remote(running: Station, user: str | None = USER, protocol: str | None = None) -> postroad.QueueManager:
    host, port = running.address
    protocol = protocol or PROTOCOL["protocol"]
    return postroad.remote(host, port=port, user=user, password=PASSWORD if user else None, protocol=protocol)


def allow(running: Station, *rights: str, who: str = USER) -> None:
    running.run(running.manager.access_lists.edit(ORDERS, "grant", who, rights))


def test_a_user_with_a_sid_needs_the_right(running: Station) -> None:
    running.send("one", "two")
    with remote(running) as manager:
        queue = manager.queue(ORDERS)
        with pytest.raises(AccessDenied) as refused:
            queue.receive(0)
        assert refused.value.status == 0xC00E0025
        allow(running, "peek")
        assert queue.peek(0).label == "one"
        with pytest.raises(AccessDenied):
            queue.receive(0)
        with pytest.raises(AccessDenied):
            queue.purge()
        allow(running, "receive")
        assert queue.receive(0).label == "one"
        running.run(running.manager.access_lists.set(ORDERS, None))
        with pytest.raises(AccessDenied):  # the queue is still open
            queue.receive(0)
        with pytest.raises(AccessDenied):
            queue.purge()
    assert running.labels() == ["two"]


@pytest.mark.parametrize("right", ["peek", "receive"])
def test_a_waiting_read_ends_when_its_reader_loses_the_right(running: Station, right: str) -> None:
    allow(running, right)

    async def revoke() -> None:
        while not running.manager.queue(ORDERS).waiting:  # noqa: ASYNC110  # the manager has no event for who waits
            await asyncio.sleep(0.005)
        await running.manager.access_lists.edit(ORDERS, "revoke", USER, [right])
        await running.manager.send(ORDERS, [Message(label="one")])

    with remote(running) as manager, ThreadPoolExecutor(1) as later:
        revoked = later.submit(running.run, revoke())
        with pytest.raises(AccessDenied):
            getattr(manager.queue(ORDERS), right)(20)
        revoked.result()
    assert running.labels() == ["one"]


def test_a_list_binds_a_user_without_a_sid_too(running: Station) -> None:
    running.send("one")
    with remote(running, OTHER_USER) as manager:
        assert manager.queue(ORDERS).peek(0).label == "one"
        allow(running, "receive", who=USER)
        with pytest.raises(AccessDenied):
            manager.queue(ORDERS).peek(0)
        running.send("other", queue=OTHER)
        assert manager.queue(OTHER).peek(0).label == "other"


def test_an_anonymous_reader_is_bound_by_a_list_alone() -> None:
    with station() as running:
        running.send("one")
        with remote(running, None) as manager:
            assert manager.queue(ORDERS).peek(0).label == "one"
            allow(running, "full", who=str(READER.sid))
            with pytest.raises(AccessDenied):
                manager.queue(ORDERS).receive(0)
            allow(running, "receive", who="anonymous")
            assert manager.queue(ORDERS).receive(0).label == "one"


# A user who is removed


def keep(running: Station, *users: User) -> None:
    """Reloads with these users only, as after SIGHUP."""

    async def change() -> None:
        assert running.server.set_passwords({each.name: PASSWORD for each in users})
        running.manager.core.use(replace(running.manager.core.settings, users=Users(users)), running.manager.clock())

    running.run(change())


@pytest.mark.parametrize("call", ["receive", "peek", "purge"])
def test_a_removed_user_has_nothing_on_a_connection_that_is_open(running: Station, call: str) -> None:
    """A queue without a list of its own also gives nothing to somebody who used to be a user."""
    running.send("one", "two")
    with remote(running) as manager:
        queue = manager.queue(ORDERS)
        with pytest.raises(AccessDenied):
            queue.peek(0)
        keep(running)
        with pytest.raises(PostroadError):
            getattr(queue, call)(*([] if call == "purge" else [0]))
    assert running.labels() == ["one", "two"]


def test_what_a_removed_user_was_given_goes_back(running: Station) -> None:
    running.send("one", "two")
    allow(running, "receive")
    with remote(running) as manager:
        queue = manager.queue(ORDERS)
        receiving = queue.receiving(0)
        assert receiving.__enter__().label == "one"
        keep(running)
        assert running.labels() == ["one", "two"]
        with pytest.raises(PostroadError):
            receiving.__exit__(None, None, None)
    assert running.labels() == ["one", "two"]
    running.wait_until("readers")


def test_a_read_that_waits_ends_with_its_user(running: Station) -> None:
    allow(running, "receive")

    async def waits() -> None:
        while not running.manager.queue(ORDERS).waiting:  # noqa: ASYNC110  # the manager has no event for who waits
            await asyncio.sleep(0.005)

    with remote(running) as manager, ThreadPoolExecutor(1) as later:
        waiting = later.submit(manager.queue(ORDERS).receive, 20)
        running.run(waits())
        keep(running)
        with pytest.raises(PostroadError):
            waiting.result()
    running.send("one")
    assert running.labels() == ["one"]


def test_a_login_under_way_ends_when_its_user_is_removed(running: Station) -> None:
    ntlm = running.server.rpc.endpoint.providers[AuthType.NTLM]
    assert isinstance(ntlm, NtlmProvider)
    accepting = ntlm.accept()
    client = initiator(USER, PASSWORD, host=HOST, auth_type=AuthType.NTLM, level=AuthLevel.PRIVACY).negotiation
    proof = client.step(accepting.step(client.step(b"")))
    keep(running)
    with pytest.raises(AuthenticationFailed):
        accepting.step(proof)


# Every operation, called by somebody without any right to it


@dataclass(frozen=True, slots=True)
class Owned:
    """What a reader has by each protocol: an open queue with a cursor, and an unacknowledged message; and a queue that
    is open for moves."""

    handle: int
    cursor: int
    session: Handle
    read: Handle
    queue: Handle
    cursor_queue: Handle
    queue_cursor: int
    request_id: int
    move_context: int
    lookup_id: int


def described(owned: Owned, action: Action, cursor: int = 0) -> RemoteReadDesc:
    return RemoteReadDesc(owned.handle, cursor, action, 0, 0, owned.handle, 99)


def asked_for(access: DesiredAccess) -> qmcomm.OpenRemoteQueueIn:
    name = QueueFormat.from_format_name(DirectName.from_wire(DIRECT))
    return qmcomm.OpenRemoteQueueIn(qmcomm.queue_format_structure(name), 0, access, 0, uuid4(), 0x500)


def opening(access: int, suffix: str = "") -> wire.OpenQueueIn:
    name = QueueFormat.from_format_name(DirectName.from_wire(DIRECT + suffix))
    return wire.OpenQueueIn(qmcomm.queue_format_structure(name), access, 0, uuid4(), 1, 6, 1, 7601, 1)


CALLS: dict[Operation[Any, Any], Callable[[Owned], Any]] = {
    qmcomm.GET_REMOTE_QUEUE_NAME: lambda owned: qmcomm.GetRemoteQueueNameIn(owned.handle, None),
    qmcomm.OPEN_REMOTE_QUEUE: lambda owned: asked_for(DesiredAccess.RECEIVE),
    qmcomm.CLOSE_REMOTE_QUEUE_CONTEXT: lambda owned: qmcomm.CloseContext(owned.session),
    qmcomm.CREATE_REMOTE_CURSOR: lambda owned: qmcomm.CreateRemoteCursorIn(TransferBuffer(), owned.handle),
    qmcomm.GET_SERVER_PORT: lambda owned: qmcomm.GetServerPortIn(0),
    qm2qm.START_RECEIVE: lambda owned: structures.StartReceiveIn(described(owned, Action.RECEIVE)),
    qm2qm.END_RECEIVE: lambda owned: structures.EndReceiveIn(owned.read, Ack.RR_ACK),
    qm2qm.OPEN_QUEUE: lambda owned: structures.OpenQueueIn(uuid4(), 0, owned.handle, owned.handle, owned.handle),
    qm2qm.CLOSE_QUEUE: lambda owned: structures.CloseQueueIn(owned.session),
    qm2qm.CLOSE_CURSOR: lambda owned: structures.CloseCursorIn(owned.handle, owned.cursor),
    qm2qm.CANCEL_RECEIVE: lambda owned: structures.CancelReceiveIn(owned.handle, owned.handle, 1),
    qm2qm.PURGE_QUEUE: lambda owned: structures.PurgeQueueIn(owned.handle),
    qm2qm.GET_SERVER_PORT: lambda owned: structures.GetPortIn(1),
    qm2qm.GET_VERSION: lambda owned: Nothing(),
    qm2qm.START_RECEIVE2: lambda owned: structures.StartReceive2In(
        RemoteReadDesc2(described(owned, Action.PEEK_CURRENT, owned.cursor))
    ),
    qm2qm.START_RECEIVE_BY_LOOKUP_ID: lambda owned: structures.StartReceiveByLookupIdIn(
        0, RemoteReadDesc2(described(owned, Action.LOOKUP_PEEK_NEXT))
    ),
}
CALLS |= {
    wire.GET_SERVER_PORT: lambda owned: Nothing(),
    wire.OPEN_QUEUE: lambda owned: opening(DesiredAccess.RECEIVE),
    wire.CLOSE_QUEUE: lambda owned: wire.OneQueue(owned.queue),
    wire.CREATE_CURSOR: lambda owned: wire.OneQueue(owned.queue),
    wire.CLOSE_CURSOR: lambda owned: wire.CloseCursorIn(owned.cursor_queue, owned.queue_cursor),
    wire.PURGE_QUEUE: lambda owned: wire.OneQueue(owned.queue),
    wire.START_RECEIVE: lambda owned: wire.StartReceiveIn(owned.queue, 0, 0, Action.RECEIVE, 0, 99, 0, 0),
    wire.CANCEL_RECEIVE: lambda owned: wire.CancelReceiveIn(owned.queue, owned.request_id),
    wire.END_RECEIVE: lambda owned: wire.EndReceiveIn(owned.queue, Ack.RR_ACK, owned.request_id),
    wire.MOVE_MESSAGE: lambda owned: wire.MoveMessageIn(
        owned.queue, owned.move_context, owned.lookup_id, wire.NO_TRANSACTION
    ),
    wire.OPEN_QUEUE_FOR_MOVE: lambda owned: opening(MOVE_ACCESS, ";made"),
    wire.SET_USER_ACKNOWLEDGEMENT_CLASS: lambda owned: wire.SetClassIn(owned.queue, owned.lookup_id, 0xC004),
}
# Ports and the version: anybody may know them.
PUBLIC = {qmcomm.GET_SERVER_PORT, qm2qm.GET_SERVER_PORT, qm2qm.GET_VERSION, wire.GET_SERVER_PORT}
STRANGER = User(OTHER_USER, Sid.parse("S-1-5-21-1-2-3-1002"))
STRANGERS: dict[str, tuple[User | None, tuple[str, ...]]] = {
    "nobody": (None, ()),
    "a user without rights": (STRANGER, ()),
    "a user who may peek": (STRANGER, ("peek",)),
    "a user who may write": (STRANGER, ("write",)),
    "a monitor": (User(OTHER_USER, STRANGER.sid, monitor=True), ("full",)),
    "a user who was removed": (STRANGER, ("full",)),
}


async def everything(running: Station) -> Any:
    """Everything that a call could have changed."""
    core, service = running.manager.core, running.server.service
    queues = [(each.name, each.properties, each.count, dict(each.positions), [*each.subqueues]) for each in core.queues]
    opened = [(id(each), each.cursors, len(each.unacknowledged), [*each.waiting]) for each in service.opened]
    held = {name: each["current"] for name, each in core.owners.figures.items()}
    return queues, opened, sorted(core.descriptors), held, service.received, service.returned


@contextmanager
def owner(running: Station) -> Iterator[Owned]:
    with ExitStack() as stack:
        for protocol in ("mqqp", "mqrr"):
            queue = stack.enter_context(remote(running, protocol=protocol)).queue(ORDERS)
            stack.enter_context(queue.receiving(0))
            stack.enter_context(queue.cursor()).peek(0)
        with calling(running, user=USER) as caller:
            context, _ = caller.target(DIRECT + ";sub")

            async def look() -> Owned:
                (opened,) = [
                    each for each in running.server.mqqp.mqqp.remote_queues.values() if each.remote.descriptor.cursors
                ]
                contexts: list[tuple[Handle, str]] = [
                    (handle, context.kind)
                    for link in running.server.rpc.links
                    if link.connection is not None and link.connection.association is not None
                    for handle, context in link.connection.association.contexts.items()
                ]
                session, read = (
                    next(handle for handle, kind in contexts if kind == wanted) for wanted in (SESSION_KIND, READ_KIND)
                )
                by_mqrr = [
                    (handle, context.value)
                    for link in running.server.rpc.links
                    if link.connection is not None and link.connection.association is not None
                    for handle, context in link.connection.association.contexts.items()
                    if isinstance(context.value, RemoteQueue)
                ]
                queue, request_id = next(
                    (each, next(iter(one.unacknowledged))) for each, one in by_mqrr if one.unacknowledged
                )
                other, made = next((each, next(iter(one.descriptor.cursors))) for each, one in by_mqrr if one.cursors)
                cursor = next(iter(opened.remote.descriptor.cursors))
                first = running.manager.core.queues.get(ORDERS).available(1)[0].lookup_id
                return Owned(opened.handle, cursor, session, read, queue, other, made, request_id, context, first)

            yield running.run(look())


def test_every_operation_has_a_call_here() -> None:
    assert set(CALLS) == {each for one in (QM2QM, QMCOMM, REMOTE_READ) for each in one.operations.values()}


@pytest.mark.parametrize("kind", STRANGERS)
def test_no_operation_does_or_tells_anything_beyond_the_callers_rights(running: Station, kind: str) -> None:
    stranger, rights = STRANGERS[kind]
    keep(running, READER, *([] if stranger is None else [stranger]))
    running.send("secret one", "secret two", "secret three", "secret four")
    allow(running, "receive")
    if rights:
        allow(running, *rights, who=str(STRANGER.sid))
    host, port = running.address

    async def ask(owned: Owned) -> None:
        security = None
        if stranger is not None:
            security = initiator(OTHER_USER, PASSWORD, host=HOST, auth_type=AuthType.NTLM, level=AuthLevel.PRIVACY)
        client = await connect(host, port, QMCOMM, QM2QM, REMOTE_READ, security=security)
        if kind.endswith("removed"):
            assert running.server.set_passwords({USER: PASSWORD})
            running.manager.core.use(
                replace(running.manager.core.settings, users=Users([READER])), running.manager.clock()
            )
        try:
            for operation, request in CALLS.items():
                before = await everything(running)
                try:
                    answer = await client.call(operation, request(owned), 20)
                except PostroadError:  # a fault, or the connection has ended
                    answer = None
                assert answer is None or operation in PUBLIC or answer.result != Status.OK, operation
                assert answer is None or not kind.endswith("removed"), operation
                assert "secret" not in repr(answer).replace("\\x00", ""), operation
                assert await everything(running) == before, operation
        finally:
            await client.close()

    with owner(running) as owned:
        running.run(ask(owned))
    assert len(running.labels()) == 2  # the owner has received one by each protocol, as ever
