"""Authentication between our own client (pyspnego) and server: NTLM and SPNEGO at each level, and refusals."""

from __future__ import annotations

import asyncio
import sys

import pytest

from postroad.errors import AuthenticationFailed, RpcFault, RpcUnavailable
from postroad.rpc.client import RpcClient, connect
from postroad.rpc.client_connection import ClientConnection
from postroad.rpc.constants import AuthLevel, AuthType, FaultStatus
from postroad.rpc.gss import initiator, kerberos_initiator, providers
from postroad.rpc.ndr import Format
from postroad.rpc.security import SecurityContext
from tests.unit.rpc import parcels
from tests.unit.rpc.counter import HOST, Counter, counter
from tests.unit.rpc.parcels import PARCELS, Colour, Parcel

USERS = providers({"Anna": "geheim"}, "POSTROAD")
TYPES = [AuthType.NTLM, AuthType.SPNEGO]
LEVELS = [AuthLevel.CONNECT, AuthLevel.PACKET, AuthLevel.INTEGRITY, AuthLevel.PRIVACY]


def security(kind: AuthType, level: AuthLevel, user: str = "anna", password: str = "geheim") -> SecurityContext:
    return initiator(user, password, host=HOST, auth_type=kind, level=level)


async def client_of(it: Counter, context: SecurityContext) -> RpcClient:
    return await connect(HOST, it.port, PARCELS, security=context)


async def echo(client: RpcClient, size: int) -> None:
    parcel = Parcel(1, size, Colour.RED, bytes(n & 0xFF for n in range(size)))
    assert await client.call(parcels.ECHO, parcels.Echo(parcel)) == parcels.EchoReply(parcel, 0)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kind", TYPES)
def test_calls_of_all_sizes(kind: AuthType, level: AuthLevel) -> None:
    async def run() -> None:
        async with counter(providers=USERS) as it:
            client = await client_of(it, security(kind, level))
            for size in (0, 3, 65400, 65500, 300_000):
                await echo(client, size)
            await asyncio.gather(*(echo(client, size) for size in range(50)))
            assert set(it.identities) == {"Anna"}
            await client.close()

    asyncio.run(run())


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize(("user", "password"), [("anna", "falsch"), ("bert", "geheim")])
def test_who_cannot_prove_it_is_refused(kind: AuthType, level: AuthLevel, user: str, password: str) -> None:
    async def run() -> None:
        async with counter(providers=USERS) as it:
            context = security(kind, level, user, password)
            if kind is AuthType.SPNEGO:
                with pytest.raises(RpcUnavailable, match="fault 0x00000005"):
                    await client_of(it, context)
            else:  # nobody answers an rpc_auth_3: the first call learns of it
                client = await client_of(it, context)
                with pytest.raises(RpcFault) as caught:
                    await echo(client, 3)
                assert caught.value.fault_status == FaultStatus.ACCESS_DENIED
            assert it.identities == []
            assert it.server.endpoint.gathering == 0

    asyncio.run(run())


def test_without_users_nobody_can_authenticate() -> None:
    async def run() -> None:
        async with counter() as it:
            with pytest.raises(RpcUnavailable, match="authentication type not recognized"):
                await client_of(it, security(AuthType.NTLM, AuthLevel.CONNECT))

    asyncio.run(run())


@pytest.mark.parametrize("level", [AuthLevel.INTEGRITY, AuthLevel.PRIVACY])
@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("place", [5, 20, 22, 30, -1, -12, -17, -20])
def test_one_changed_bit_ends_the_connection(kind: AuthType, level: AuthLevel, place: int) -> None:
    """In the header, the stub, the trailer or the signature. The call is not made."""

    async def run() -> None:
        async with counter(providers=USERS) as it:
            client = await client_of(it, security(kind, level))
            await echo(client, 3)
            core = client._core
            stub = parcels.ECHO.request.encode(parcels.Echo(Parcel(1, 3, Colour.RED, b"abc")), Format.NDR)
            core.call(PARCELS, 0, stub)
            data = bytearray(core.data_to_send())
            data[place] ^= 0x01
            transport = client._link.transport
            assert transport is not None
            transport.write(bytes(data))
            await client._link.gone.wait()
            assert it.identities == ["Anna"]

    asyncio.run(run())


@pytest.mark.parametrize("level", [AuthLevel.INTEGRITY, AuthLevel.PRIVACY])
def test_a_request_without_its_protection_is_refused(level: AuthLevel) -> None:
    async def run() -> None:
        async with counter(providers=USERS) as it:
            client = await client_of(it, security(AuthType.NTLM, level))
            core: ClientConnection = client._core
            core._security = None
            with pytest.raises(RpcFault) as caught:
                await echo(client, 3)
            assert caught.value.fault_status == FaultStatus.ACCESS_DENIED
            assert it.identities == []
            await client.close()

    asyncio.run(run())


def test_a_replayed_request_is_refused() -> None:
    async def run() -> None:
        async with counter(providers=USERS) as it:
            client = await client_of(it, security(AuthType.NTLM, AuthLevel.INTEGRITY))
            core = client._core
            stub = parcels.ECHO.request.encode(parcels.Echo(Parcel(1, 3, Colour.RED, b"abc")), Format.NDR)
            core.call(PARCELS, 0, stub)
            data = core.data_to_send()
            transport = client._link.transport
            assert transport is not None
            transport.write(data + data)
            await client._link.gone.wait()
            assert it.identities == ["Anna"]

    asyncio.run(run())


def test_kerberos_without_its_library_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", None)
    with pytest.raises(AuthenticationFailed, match=r"run pip install 'postroad\[domain\]'"):
        kerberos_initiator(HOST)
