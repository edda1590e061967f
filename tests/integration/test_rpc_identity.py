"""Who owns a context handle if users share a connection or an association, and how failed logins are slowed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext

import pytest

from postroad.errors import BindRefused, PostroadError, RpcFault
from postroad.rpc import pdu as pdus
from postroad.rpc.calls import Limits
from postroad.rpc.client import RpcClient, connect
from postroad.rpc.constants import WHOLE, AuthLevel, AuthType, FaultStatus
from postroad.rpc.gss import initiator, providers
from postroad.rpc.ndr import Handle
from postroad.rpc.security import SecurityContext
from postroad.security.attempts import FREE_FAILURES, MAX_DELAY_S
from tests.unit.rpc import parcels
from tests.unit.rpc.counter import HOST, Counter, counter
from tests.unit.rpc.parcels import PARCELS

USERS = providers({"Anna": "geheim", "Bert": "auch geheim"}, "POSTROAD")
PASSWORDS = {"Anna": "geheim", "Bert": "auch geheim"}
MISMATCH, DENIED = FaultStatus.NCA_CONTEXT_MISMATCH, FaultStatus.ACCESS_DENIED
SECOND_CONTEXT = 2
GUESSER, HONEST = "127.0.60.66", "127.0.60.2"


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(6000):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it never came to that")


def security(user: str, level: AuthLevel = AuthLevel.PRIVACY, password: str | None = None) -> SecurityContext:
    return initiator(user, password or PASSWORDS[user], host=HOST, auth_type=AuthType.NTLM, level=level)


async def client_of(it: Counter, user: str | None = None, **options: object) -> RpcClient:
    level = options.pop("level", AuthLevel.PRIVACY)
    assert isinstance(level, AuthLevel)
    context = None if user is None else security(user, level)
    return await connect(HOST, it.port, PARCELS, security=context, **options)  # type: ignore[arg-type]


async def shelf_of(client: RpcClient) -> Handle:
    return (await client.call(parcels.OPEN, parcels.Open(None))).shelf


async def status_of(client: RpcClient, shelf: Handle) -> int:
    try:
        return (await client.call(parcels.USE, parcels.Use(shelf))).status
    except RpcFault as fault:
        return fault.fault_status


@asynccontextmanager
async def with_second_user(client: RpcClient, user: str) -> AsyncIterator[None]:
    """The client calls as another user, with a second security context on the same connection."""
    core, own = client._core, client._core._security
    context = security(user)
    context.context_id = SECOND_CONTEXT
    core._security = context
    alter = pdus.AlterContext(
        call_id=core._call_id(),
        flags=WHOLE,
        trailer=context.trailer(context.negotiation.step(b"")),
        max_xmit_frag=4280,
        max_recv_frag=4280,
        assoc_group_id=core.association,
        contexts=core._proposed,
    )
    transport = client._link.transport
    assert transport is not None
    answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    client._binding = answered
    core.state = type(core.state).BINDING
    transport.write(alter.encode())
    await answered
    client._binding = None
    yield
    core._security = own


def test_users_who_share_a_connection_do_not_share_handles() -> None:
    async def run() -> None:
        async with counter(providers=USERS) as it:
            client = await client_of(it, "Anna")
            annas = await shelf_of(client)
            async with with_second_user(client, "Bert"):
                berts = await shelf_of(client)
                assert await status_of(client, berts) == 7
                assert await status_of(client, annas) == MISMATCH
                with pytest.raises(RpcFault):
                    await client.call(parcels.CLOSE, parcels.Close(annas))
            assert await status_of(client, annas) == 7
            assert await status_of(client, berts) == MISMATCH
            assert len(it.open) == 2
            await client.close()

    asyncio.run(run())


def test_a_handle_is_not_used_at_a_lower_level_than_it_was_opened_at() -> None:
    async def run() -> None:
        async with counter(providers=USERS) as it:
            client = await client_of(it, "Anna")
            shelf = await shelf_of(client)
            lower = await client_of(it, "Anna", level=AuthLevel.INTEGRITY, association=client.association)
            assert await status_of(lower, shelf) == MISMATCH
            assert await status_of(client, await shelf_of(lower)) == 7
            await lower.close()
            await client.close()

    asyncio.run(run())


def test_an_association_takes_further_connections_of_its_users_alone() -> None:
    async def run() -> None:
        async with counter(providers=USERS) as it:
            anna, nobody = await client_of(it, "Anna"), await client_of(it)
            with pytest.raises(BindRefused):
                await client_of(it, association=anna.association)
            for guessed in (anna.association, nobody.association):
                bert = await client_of(it, "Bert", association=guessed)
                with pytest.raises(RpcFault) as caught:
                    await shelf_of(bert)
                assert caught.value.fault_status == DENIED
                await bert.close()
            second = await client_of(it, "Anna", association=anna.association)
            shelf = await shelf_of(second)
            await second.close()
            assert await status_of(anna, shelf) == 7  # the association lives with its other connection
            await anna.close()
            await until(lambda: not it.open)
            assert len(it.run_down) == 1
            await nobody.close()

    asyncio.run(run())


def test_a_second_connection_keeps_the_handles_when_the_first_goes_before_it_called() -> None:
    async def run() -> None:
        async with counter(providers=USERS) as it:
            first = await client_of(it, "Anna")
            shelf = await shelf_of(first)
            second = await client_of(it, "Anna", association=first.association)
            (association,) = it.server.endpoint.associations._table.values()
            await until(lambda: len(association.connections) == 2)  # its rpc_auth_3 is under way
            await first.close()
            assert await status_of(second, shelf) == 7
            await second.close()

    asyncio.run(run())


@pytest.mark.parametrize(("minimum", "taken"), [(AuthLevel.CONNECT, True), (AuthLevel.INTEGRITY, False)])
def test_a_request_without_a_verifier_speaks_for_the_user_at_connect_level_only(
    minimum: AuthLevel, taken: bool
) -> None:
    """Somebody who injects octets into a connection can do no more than [MS-RPCE] allows at connect level."""

    async def run() -> None:
        async with counter(providers=USERS, minimum_level=minimum) as it:
            client = await client_of(it, "Anna", level=AuthLevel.CONNECT)
            with nullcontext() if taken else pytest.raises(RpcFault):
                await shelf_of(client)  # at this level our client sends no verifier
            assert len(it.open) == (1 if taken else 0)
            await client.close()

    asyncio.run(run())


# Failed logins


class Clock:
    """Stands still until a test moves it."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


async def guess(it: Counter, password: str = "a guess", local_host: str = GUESSER) -> list[str | None]:
    """Logs in with this password. Returns the user that the server sees."""
    context = security("Anna", password=password)
    before = len(it.identities)
    try:
        client = await connect(HOST, it.port, PARCELS, security=context, local_host=local_host)
        await client.call(parcels.ECHO, parcels.Echo(parcels.Parcel(1, 0, parcels.Colour.RED, b"")))
        await client.close()
    except PostroadError:
        pass
    return it.identities[before:]


def test_after_failed_logins_the_next_from_that_address_waits_and_nobody_else_does() -> None:
    async def run() -> None:
        clock = Clock()
        async with counter(providers=USERS, clock=clock, limits=Limits(bind_timeout_s=1e6)) as it:
            logins = it.server.logins
            for _ in range(FREE_FAILURES + 1):
                assert await guess(it) == []
            assert logins.total == FREE_FAILURES + 1
            assert logins.delay(GUESSER, clock()) > 0
            slow = [asyncio.ensure_future(guess(it)) for _ in range(2)]
            slow.append(asyncio.ensure_future(guess(it, PASSWORDS["Anna"])))
            await until(lambda: sum(link._waking is not None for link in it.server.links) == 3)
            assert await guess(it, PASSWORDS["Anna"], HONEST) == ["Anna"]
            anonymous = await connect(HOST, it.port, PARCELS, local_host=GUESSER)
            assert await status_of(anonymous, await shelf_of(anonymous)) == 7  # nothing to guess
            await anonymous.close()
            assert not any(each.done() for each in slow)
            assert logins.total == FREE_FAILURES + 1
            # Simultaneous tries are checked one by one: each failure makes the others wait again.
            for failures in range(FREE_FAILURES + 2, FREE_FAILURES + 4):
                clock.now += MAX_DELAY_S
                await until(lambda failures=failures: logins.total == failures)  # type: ignore[misc]
            clock.now += MAX_DELAY_S
            await asyncio.gather(*slow)
            assert it.identities == ["Anna", "Anna"]

    asyncio.run(run())


def test_one_connection_has_one_guess() -> None:
    async def run() -> None:
        async with counter(providers=USERS) as it:
            client = await connect(HOST, it.port, PARCELS, security=security("Anna", password="a guess"))
            with pytest.raises(PostroadError):
                async with with_second_user(client, "Bert"):
                    pass
            assert it.server.logins.total == 2
            await client.close()

    asyncio.run(run())
