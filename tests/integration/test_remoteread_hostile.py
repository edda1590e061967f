"""Attacks on the RemoteRead interface: handles of others, floods, ends that come twice, and readers and servers that
are killed."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

import postroad
from postroad.errors import PostroadError
from postroad.queues.owners import DEFAULTS, Held
from postroad.remote_read import remoteread as wire
from postroad.remote_read.remoteread import MAX_SECTION, REMOTE_READ
from postroad.rpc import pdu as pdus
from postroad.rpc.constants import AuthLevel
from postroad.rpc.ndr import Handle
from postroad.rpc.pdu import NDR, PresentationContext, SyntaxId
from postroad.security.descriptors import Sid
from postroad.security.users import User, Users
from postroad.store import open_store
from tests.commands import ServerProcess, serving
from tests.remote.calls import ACK, INFINITE, NACK, PEEK, RECEIVE, calling, label, lookup_id
from tests.remote.station import DIRECT, ORDERS, OTHER_USER, PATIENCE_S, USER, Station, station
from tests.served import FailingStore

MISMATCH, INVALID_HANDLE, FULL, DENIED = 0x1C00001A, 0xC00E0007, 0xC00E0027, 0xC00E0025
READER = User(USER, Sid.parse("S-1-5-21-1-2-3-1001"))
SECOND = User(OTHER_USER, Sid.parse("S-1-5-21-1-2-3-1002"))


@pytest.fixture
def running() -> Iterator[Station]:
    with station(authenticate=True) as running:
        use(running)
        yield running


def use(running: Station, **held: int) -> None:
    async def change() -> None:
        core = running.manager.core
        limits = {**DEFAULTS, **{Held(name): value for name, value in held.items()}}
        core.use(replace(core.settings, users=Users([READER, SECOND]), held=limits), running.manager.clock())

    running.run(change())


def allow(running: Station, right: str, *users: User) -> None:
    for each in users:
        running.run(running.manager.access_lists.edit(ORDERS, "grant", str(each.sid), [right]))


# Handles of others


def test_a_stolen_handle_is_of_no_use(running: Station) -> None:
    """A second user joins nothing of the first one, even with every number of his in hand."""
    allow(running, "full", READER, SECOND)
    running.send("one", "two")
    with calling(running, user=USER) as owner, calling(running, user=OTHER_USER) as thief:
        reader = owner.open()
        assert label(reader.start(request_id=1)) == "one"
        context, _ = owner.target(DIRECT + ";sub")
        stolen = thief.using(reader.handle)
        for request in (stolen.request(PEEK), stolen.request(RECEIVE)):
            assert thief.fault(wire.START_RECEIVE, request) == MISMATCH
        assert thief.fault(wire.END_RECEIVE, wire.EndReceiveIn(reader.handle, ACK, 1)) == MISMATCH
        assert thief.fault(wire.CLOSE_QUEUE, wire.OneQueue(reader.handle)) == MISMATCH
        own = thief.open()
        second = lookup_id(own.start(PEEK))
        assert own.move(context, second) == INVALID_HANDLE  # the target is somebody else's
        assert own.end(ACK, 1) == INVALID_HANDLE
        assert reader.move(context, second) == 0
        assert reader.end(ACK, 1) == 0
    assert running.labels() == []


def test_the_same_user_at_a_lower_level_is_somebody_else(running: Station) -> None:
    allow(running, "full", READER)
    with calling(running, user=USER, level=AuthLevel.PRIVACY) as owner:
        context, _ = owner.target(DIRECT + ";sub")
        with calling(running, user=USER, level=AuthLevel.INTEGRITY) as lower:
            running.send("one")
            own = lower.open()
            assert own.move(context, lookup_id(own.start(PEEK))) == INVALID_HANDLE
    assert running.labels() == ["one"]


@pytest.mark.spec("RR-2.1-06", "RR-3.1.4.2-16", "RR-3.1.4.7-37")
def test_the_callers_rights_decide(running: Station) -> None:
    running.send("one")
    allow(running, "full", READER)
    allow(running, "peek", SECOND)
    with calling(running, user=OTHER_USER) as caller:
        assert caller.refused(access=1) == DENIED
        assert caller.fault(wire.OPEN_QUEUE_FOR_MOVE, caller.opening(DIRECT + ";mine", 4)) == DENIED
        assert label(caller.open(access=0x20).start(PEEK)) == "one"
        allow(running, "receive", SECOND)
        reader = caller.open()
        assert label(reader.start()) == "one"
        held = reader.last
        running.run(running.manager.access_lists.edit(ORDERS, "revoke", str(SECOND.sid), ["receive"]))
        assert running.labels() == ["one"]  # what the reader held is back
        assert reader.end(ACK, held) == INVALID_HANDLE
        assert reader.status(RECEIVE) == DENIED
        assert reader.purge() == DENIED
    assert not running.manager.core.queues.get(ORDERS).subqueues
    assert running.labels() == ["one"]


# Floods


def test_a_flood_of_waiting_receives_ends_at_the_limit(running: Station) -> None:
    allow(running, "full", READER, SECOND)
    use(running, waiting_reads=20)
    with calling(running, user=USER) as caller, calling(running, user=OTHER_USER) as other:
        reader = caller.open()
        blocked = [reader.start_later() for _ in range(20)]
        running.wait_until("waiting", 20)
        assert reader.status(timeout=INFINITE) == FULL
        assert reader.status(timeout=0) == 0xC00E001B
        fine = other.open().start_later()
        running.wait_until("waiting", 21)
        assert reader.cancel(1) == 0
        assert blocked[0].result(PATIENCE_S).result == 0xC00E0008
        again = reader.start_later()
        running.wait_until("waiting", 21)
        assert not again.done()
        assert not fine.done()
    running.wait_until("readers", 0)
    assert all(not each["current"] for each in running.manager.core.owners.figures.values())


def test_more_calls_than_a_connection_may_have_are_refused(running: Station) -> None:
    allow(running, "full", READER)
    with calling(running, user=USER) as caller:
        reader = caller.open()
        most = running.server.rpc.limits.max_calls
        blocked = [reader.start_later() for _ in range(most)]
        running.wait_until("waiting", most)
        assert caller.fault(wire.START_RECEIVE, reader.request()) == 0x1C010014
        running.send("one")
        assert sum(each.done() for each in blocked) <= 1


def test_locked_messages_opens_and_cursors_have_limits(running: Station) -> None:
    allow(running, "full", READER)
    running.send("one", "two", "three")
    use(running, locked_messages=2, open_queues=3, cursors=2)
    with calling(running, user=USER) as caller:
        reader = caller.open()
        assert [label(reader.start()) for _ in range(2)] == ["one", "two"]
        assert reader.status() == FULL
        assert label(reader.start(PEEK)) == "three"
        assert reader.end(NACK, 1) == 0
        assert [reader.cursor() for _ in range(2)]
        assert caller.call(wire.CREATE_CURSOR, wire.OneQueue(reader.handle)).result == FULL
        caller.open()
        caller.target(DIRECT + ";a")
        assert caller.refused() == FULL
        assert caller.fault(wire.OPEN_QUEUE_FOR_MOVE, caller.opening(DIRECT + ";b", 4)) == FULL
        assert [*running.manager.core.queues.get(ORDERS).subqueues] == ["a"]
    running.wait_until("readers", 0)
    assert running.labels() == ["one", "two", "three"]


# Wrong sizes


def test_any_body_size_is_a_size(running: Station) -> None:
    allow(running, "full", READER)
    running.send("one")
    with calling(running, user=USER) as caller:
        reader = caller.open()
        for size in (0, 1, 2, 3, 4, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF):
            answer = reader.start(PEEK, max_body_size=size, max_compound_message_size=size)
            assert answer.number_of_sections == (2 if size < 3 else 1)
            assert sum(each.size for each in answer.sections or ()) <= MAX_SECTION


@pytest.mark.spec("RR-3.1.4-01")
@pytest.mark.parametrize("opnum", sorted(REMOTE_READ.operations))
def test_stubs_that_are_cut_or_garbage_are_faults_and_the_server_lives(opnum: int) -> None:
    """By hand, because no client of ours sends such a thing."""
    with station() as running:
        running.send("one")
        with calling(running) as caller:
            reader = caller.open()
            assert label(reader.start(request_id=1)) == "one"
            running.run(garbage(running, opnum, reader.handle))
            assert reader.end(NACK, 1) == 0
        assert running.labels() == ["one"]


async def garbage(running: Station, opnum: int, handle: Handle) -> None:
    host, port = running.address
    stream, sink = await asyncio.open_connection(host, port)
    contexts = (PresentationContext(0, SyntaxId(REMOTE_READ.uuid, 1), (NDR,)),)
    bind = pdus.Bind(call_id=1, max_xmit_frag=4280, max_recv_frag=4280, assoc_group_id=0, contexts=contexts)
    sink.write(bind.encode())
    octets = handle.attributes.to_bytes(4, "little") + handle.octets
    stubs = [b"", b"\xff", octets, octets + b"\xff" * 7, b"\xff" * 300, bytes(300), octets + bytes(200)]
    for number, stub in enumerate(stubs):
        request = pdus.Request(call_id=2 + number, flags=3, alloc_hint=0, context_id=0, opnum=opnum, stub=stub)
        sink.write(request.encode())
    framer = pdus.Framer()
    seen: list[pdus.Pdu] = []
    async with asyncio.timeout(PATIENCE_S):
        while len(seen) < 1 + len(stubs):
            seen += [pdus.decode(frame) for frame in framer.feed(await stream.read(65536))]
    assert isinstance(seen[0], pdus.BindAck)
    assert all(isinstance(each, pdus.Fault | pdus.Response) for each in seen[1:])
    sink.close()
    await sink.wait_closed()


# The disk


def test_a_subqueue_that_could_not_be_stored_is_not_open() -> None:
    store = FailingStore()
    with station(store) as running, calling(running) as caller:
        running.send("one")
        store.full = True
        assert caller.fault(wire.OPEN_QUEUE_FOR_MOVE, caller.opening(DIRECT + ";sub", 4)) == 0xE00E0001
        assert running.server.readers() == []
        assert not running.server.mqrr.targets
        store.full = False
        context, _ = caller.target(DIRECT + ";sub")
        reader = caller.open()
        assert reader.move(context, lookup_id(reader.start(PEEK))) == 0
        assert running.labels(ORDERS + ";sub") == ["one"]


def test_an_acknowledgment_or_a_move_that_could_not_be_stored_is_an_error_and_changes_nothing() -> None:
    store = FailingStore()
    with station(store) as running, calling(running) as caller:
        running.send("one", "two")
        reader = caller.open()
        context, _ = caller.target(DIRECT + ";sub")
        second = lookup_id(reader.start(0x40000012, lookup_id=(1 << 64) - 1))
        assert label(reader.start()) == "one"
        held = reader.last
        store.full = True
        assert reader.move(context, second) == 0xE00E0001
        assert reader.end(ACK, held) == 0xE00E0001
        store.full = False
        assert sorted(running.labels()) == ["one", "two"]
        assert running.labels(ORDERS + ";sub") == []
        assert reader.move(context, second) == 0
        assert running.labels(ORDERS + ";sub") == ["two"]


def test_a_moved_message_is_in_its_subqueue_after_a_restart(tmp_path: Path) -> None:
    with station(open_store(tmp_path)) as running, calling(running) as caller:
        running.send("one", "two")
        context, _ = caller.target(DIRECT + ";sub")
        reader = caller.open()
        first = lookup_id(reader.start(PEEK))
        assert reader.move(context, first) == 0
    with station(open_store(tmp_path), queues=()) as running, calling(running) as caller:
        moved = caller.open(DIRECT + ";sub").start(PEEK)
        assert (label(moved), lookup_id(moved)) == ("one", first)
        assert running.labels() == ["two"]


# Killed


CONFIG = rf"""
[manager]
name = "alpha"
[listen]
host = "127.0.70.31"
binary = false
ping = false
http = false
rpc = 0
api = 0
[[queue]]
path = '{ORDERS}'
"""
MESSAGES = 300


def test_what_was_acknowledged_stays_gone_when_the_server_is_killed(tmp_path: Path) -> None:
    """Four readers receive and acknowledge until the server dies. An acknowledgment that was answered is a promise;
    a message without one is there again."""
    file = tmp_path / "alpha.toml"
    file.write_text(CONFIG, encoding="utf-8")
    taken: list[str] = []
    doubtful: list[str] = []

    def read(server: ServerProcess) -> None:
        host, _, port = server.ready["listen"]["rpc"].rpartition(":")
        with postroad.remote(host, port=int(port), protocol="mqrr") as manager:
            queue = manager.queue(ORDERS)
            try:
                while True:
                    with queue.receiving(5) as message:
                        doubtful.append(message.label)
                    taken.append(message.label)
                    if len(taken) == MESSAGES // 3:
                        os.kill(server.pid, signal.SIGKILL)
            except PostroadError:
                return

    with serving(file) as server:
        with postroad.connect(server.api) as manager:
            labels = [str(number) for number in range(MESSAGES)]
            manager.queue(ORDERS).send([postroad.Message(label=each, recoverable=True) for each in labels])
        with ThreadPoolExecutor(4) as readers:
            list(readers.map(read, [server] * 4))
    with serving(file) as server, postroad.connect(server.api) as manager:
        left = [message.label for message in manager.queue(ORDERS).messages()]
    assert len(set(taken)) == len(taken) >= MESSAGES // 3
    assert not set(taken) & set(left)
    assert set(labels) - set(taken) - set(left) <= set(doubtful) - set(taken)
    assert len(set(left)) == len(left)
    assert left == sorted(left, key=int)
