"""A stranger can do nothing with a reader's handles. impacket is both the reader and the stranger."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from postroad.client.remote import RemoteBackend
from postroad.remote_read import qm2qm, structures
from postroad.rpc.client import connect
from postroad.rpc.constants import AuthLevel
from tests.remote.station import OTHER_USER, PASSWORD, USER, Station, station
from tests.remote.stranger import Reply, Stranger, StrangeReader, label, stranger

NAME = r"OS:alpha\private$\orders"
INFINITE = 0xFFFFFFFF
RECEIVE, LOOKUP_RECEIVE_NEXT, ACK = 0, 0x40000021, 2
ACCESS_DENIED, INVALID_PARAMETER, INVALID_HANDLE = 0xC00E0025, 0xC00E0006, 0xC00E0007
FAULT_DENIED, CONTEXT_MISMATCH = 5, 0x1C00001A
OWNER: dict[str, Any] = {"user": USER, "password": PASSWORD, "level": 6}
INTEGRITY: dict[str, Any] = {**OWNER, "level": 5}
STRANGERS: dict[str, dict[str, Any]] = {
    "anonymous": {},
    "another user": {"user": OTHER_USER, "password": PASSWORD, "level": 6},
    "the same user in another association": OWNER,
    "the same user at a lower level": INTEGRITY,
}


@pytest.fixture
def running() -> Iterator[Station]:
    with station(authenticate=True) as running:
        yield running


@pytest.fixture
def client() -> Iterator[Stranger]:
    with stranger() as made:
        yield made


def attacks(reader: StrangeReader, cursor: int) -> dict[str, dict[str, Any]]:
    """Every call of qm2qm that names the reader's queue handle."""
    handle = reader.handle
    fields = {"queue_handle": handle, "queue": handle, "action": RECEIVE, "request_id": 77}
    return {
        "open_queue": {"queue": handle},
        "start": fields,
        "start2": fields,
        "lookup": {"lookup_id": 0, **fields, "action": LOOKUP_RECEIVE_NEXT},
        "cancel": {"handle": handle, "request_id": 1},
        "purge": {"handle": handle},
        "close_cursor": {"handle": handle, "cursor": cursor},
    }


def connected(running: Station, client: Stranger, **options: Any) -> Callable[..., Reply]:
    """Calls over a connection for each of the two interfaces."""
    host, port = running.address
    for interface in ("qmcomm", "qm2qm"):
        client.call(f"stranger {interface}", "connect", host=host, port=port, interface=interface, **options)
    return lambda interface, verb, **fields: client.call(f"stranger {interface}", verb, **fields)


@pytest.mark.parametrize("kind", STRANGERS)
def test_nobody_else_uses_what_a_user_has_opened(running: Station, client: Stranger, kind: str) -> None:
    running.send("one", "two", "three")
    reader = StrangeReader(client, running.address, NAME, **OWNER)
    cursor = reader.cursor()
    read = reader.read(RECEIVE)
    assert label(read) == "one"
    session = reader.call("qm2qm", "open_queue", queue=reader.handle, keep="again")["context"]
    call = connected(running, client, **STRANGERS[kind])
    for verb, fields in attacks(reader, cursor).items():
        unknown = INVALID_HANDLE if verb in ("cancel", "purge", "close_cursor") else INVALID_PARAMETER
        assert call("qm2qm", verb, **fields)["status"] == (ACCESS_DENIED if kind == "anonymous" else unknown), verb
    for verb, fields in {"end": {"context": read["context"], "ack": ACK}, "close_queue": {"context": session}}.items():
        assert call("qm2qm", verb, **fields)["fault"] == CONTEXT_MISMATCH, verb
    made = call("qmcomm", "create_cursor", handle=reader.handle)["status"]
    # A client's connection for qmcomm belongs to another association than the one for qm2qm.
    assert made == {"anonymous": ACCESS_DENIED, "the same user in another association": 0}.get(kind, INVALID_HANDLE)
    assert running.count() == 3
    assert reader.end(ACK)["status"] == 0  # all of it still works for its owner
    assert running.labels() == ["two", "three"]
    assert reader.call("qm2qm", "close_cursor", handle=reader.handle, cursor=cursor)["status"] == 0


@pytest.mark.parametrize("kind", ["anonymous", "another user", "the same user in another association"])
def test_nobody_else_ends_a_read_that_waits(running: Station, client: Stranger, kind: str) -> None:
    reader = StrangeReader(client, running.address, NAME, **OWNER)
    waiting = reader.start("qm2qm", "start2", **reader.fields(RECEIVE, timeout=INFINITE))
    running.wait_until("waiting", 1)
    call = connected(running, client, **STRANGERS[kind])
    assert call("qm2qm", "cancel", handle=reader.handle, request_id=1)["status"] >= 0x80000000
    assert call("qm2qm", "purge", handle=reader.handle)["status"] >= 0x80000000
    running.send("one")
    assert label(waiting.result(30)) == "one"


def test_a_lower_level_is_refused_on_the_owners_own_association(running: Station, client: Stranger) -> None:
    running.send("one")
    reader = StrangeReader(client, running.address, NAME, **OWNER)
    read = reader.read(RECEIVE)
    host, port = running.address
    client.call(
        "lower", "connect", host=host, port=port, interface="qm2qm", association=reader.association, **INTEGRITY
    )
    assert client.call("lower", "end", context=read["context"], ack=ACK)["fault"] == CONTEXT_MISMATCH
    assert client.call("lower", "purge", handle=reader.handle)["status"] == INVALID_HANDLE
    assert reader.end(ACK)["status"] == 0


def test_a_second_connection_of_the_owner_shares_its_handles(running: Station, client: Stranger) -> None:
    running.send("one")
    reader = StrangeReader(client, running.address, NAME, **OWNER)
    read = reader.read(RECEIVE)
    waiting = reader.start("qm2qm", "start2", **reader.fields(RECEIVE, timeout=INFINITE))
    running.wait_until("waiting", 1)
    host, port = running.address
    client.call("second", "connect", host=host, port=port, interface="qm2qm", association=reader.association, **OWNER)
    assert client.call("second", "cancel", handle=reader.handle, request_id=2)["status"] == 0
    assert waiting.result(30)["status"] == 0x400E03E9
    assert client.call("second", "end", context=read["context"], ack=ACK)["status"] == 0
    assert running.count() == 0


# Associations


def test_a_stranger_cannot_join_a_users_association(running: Station, client: Stranger) -> None:
    reader = StrangeReader(client, running.address, NAME, **OWNER)
    host, port = running.address
    place: dict[str, Any] = {"host": host, "port": port, "interface": "qm2qm", "association": reader.association}
    assert "text" in client.call("anonymous", "connect", **place)
    client.call("other", "connect", **place, **STRANGERS["another user"])
    assert client.call("other", "version")["fault"] == FAULT_DENIED


def test_a_stranger_who_tries_to_join_does_not_hold_up_the_rundown(running: Station, client: Stranger) -> None:
    running.send("one")
    host, port = running.address
    with stranger() as dying:
        reader = StrangeReader(dying, running.address, NAME, **OWNER)
        assert label(reader.read(RECEIVE)) == "one"
        assert running.labels() == []
        place = {"host": host, "port": port, "interface": "qm2qm", "association": reader.association}
        client.call("joiner", "connect", **place, **STRANGERS["another user"])
        dying.kill()
    running.wait_until("readers", 0)
    assert running.labels() == ["one"]


# Callers without a name are told apart by their address


def test_an_anonymous_handle_is_of_its_address() -> None:
    with station() as running, stranger() as client:
        running.send("one")
        reader = StrangeReader(client, running.address, NAME)

        async def purge() -> int:
            other = await connect(*running.address, qm2qm.QM2QM, local_host="127.0.70.66")
            purged = await other.call(qm2qm.PURGE_QUEUE, structures.PurgeQueueIn(reader.handle))
            await other.close()
            return purged.result

        assert asyncio.run(purge()) == INVALID_HANDLE
        assert running.labels() == ["one"]
        assert reader.call("qm2qm", "purge", handle=reader.handle)["status"] == 0


# Levels


@pytest.mark.parametrize("level", [2, 5, 6])  # at packet level impacket does not sign
@pytest.mark.parametrize("minimum", [AuthLevel.CONNECT, AuthLevel.INTEGRITY, AuthLevel.PRIVACY])
def test_every_call_is_protected_at_the_minimum_level(client: Stranger, minimum: AuthLevel, level: int) -> None:
    with station(authenticate=True, minimum_level=minimum) as running:
        running.send("one")
        options = {**OWNER, "level": level}
        if level < minimum:
            call = connected(running, client, **options)
            assert call("qmcomm", "open", name=NAME)["fault"] == FAULT_DENIED
            assert call("qm2qm", "version")["fault"] == FAULT_DENIED
        else:
            reader = StrangeReader(client, running.address, NAME, **options)
            assert label(reader.read(RECEIVE)) == "one"
            assert reader.end(ACK)["status"] == 0
        assert running.count() == (1 if level < minimum else 0)


def test_our_own_client_is_private_where_it_has_a_user() -> None:
    async def scene(running: Station) -> None:
        reader = RemoteBackend(running.address[0], running.address[1], user=USER, password=PASSWORD)
        assert len(await reader.receive(r"private$\orders", 1, 5, None)) == 1
        await reader.close()

    with station(authenticate=True, minimum_level=AuthLevel.PRIVACY) as running:
        running.send("one")
        asyncio.run(scene(running))
