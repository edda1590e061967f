"""Remote readers who log in with NTLM, and the access lists that bind them; a change counts for open queues."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

import postroad
from postroad.errors import AccessDenied
from postroad.message import Message
from postroad.security.sid import Sid
from postroad.security.users import User, Users
from tests.remote.station import ORDERS, OTHER, OTHER_USER, PASSWORD, USER, Station, station

READER = User(USER, Sid.parse("S-1-5-21-1-2-3-1001"))


@pytest.fixture
def running() -> Iterator[Station]:
    with station(authenticate=True) as running:
        running.manager.core.access.users = Users([READER])
        yield running


def remote(running: Station, user: str | None = USER) -> postroad.QueueManager:
    host, port = running.address
    return postroad.remote(host, port=port, user=user, password=PASSWORD if user else None)


def allow(running: Station, *rights: str, who: str = USER) -> None:
    running.run(running.manager.edit_acl(ORDERS, "grant", who, rights))


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
        running.run(running.manager.set_acl(ORDERS, None))
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
        await running.manager.edit_acl(ORDERS, "revoke", USER, [right])
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
