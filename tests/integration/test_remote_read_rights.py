"""Remote readers who log in with NTLM, and the access lists that bind them; a change counts for open queues."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

import postroad
from postroad.errors import AccessDenied, AuthenticationFailed, PostroadError
from postroad.message import Message
from postroad.rpc.constants import AuthLevel, AuthType
from postroad.rpc.gss import initiator
from postroad.rpc.ntlm import NtlmProvider
from postroad.security.sid import Sid
from postroad.security.users import User, Users
from tests.remote.station import HOST, ORDERS, OTHER, OTHER_USER, PASSWORD, USER, Station, station

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


# A user who is removed


def keep(running: Station, *users: User) -> None:
    """As SIGHUP does with a file that has only these users."""

    async def change() -> None:
        assert running.server.set_passwords({each.name: PASSWORD for each in users})
        running.manager.core.change_users(Users(users), running.manager.clock())

    running.run(change())


@pytest.mark.parametrize("call", ["receive", "peek", "purge"])
def test_a_removed_user_has_nothing_on_a_connection_that_is_open(running: Station, call: str) -> None:
    """Neither has a queue without a list of its own anything for somebody who used to be a user."""
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
