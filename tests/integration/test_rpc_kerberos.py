"""Kerberos between our client, impacket and our RPC server, with tickets of a real domain controller."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from impacket.dcerpc.v5 import transport
from impacket.dcerpc.v5.rpcrt import (
    RPC_C_AUTHN_GSS_NEGOTIATE,
    RPC_C_AUTHN_LEVEL_PKT_INTEGRITY,
    RPC_C_AUTHN_LEVEL_PKT_PRIVACY,
)
from impacket.uuid import uuidtup_to_bin

from postroad.errors import AuthenticationFailed, RpcUnavailable
from postroad.rpc.client import connect
from postroad.rpc.constants import AuthLevel, AuthType
from postroad.rpc.epm import Registration, offer
from postroad.rpc.gss import KerberosAcceptor, KerberosProvider, initiator, kerberos_initiator, providers
from postroad.rpc.ndr import NULL_HANDLE, Format
from postroad.rpc.security import Provider
from postroad.rpc.tickets import Principals
from postroad.security.descriptors import Sid
from postroad.security.kerberos import Acceptor, Keytab
from postroad.security.users import User, Users
from tests.domain import REALM
from tests.integration.test_rpc_authentication import echo
from tests.integration.test_rpc_impacket import echo as impacket_echo
from tests.kerberos import ANN, HOST, OTHER, Realm, run
from tests.unit.rpc import parcels
from tests.unit.rpc.counter import HOST as ADDRESS
from tests.unit.rpc.counter import counter
from tests.unit.rpc.parcels import PARCELS, Colour, Parcel
from tests.unit.rpc.threads import served

TYPES = [AuthType.KERBEROS, AuthType.SPNEGO]
LEVELS = [AuthLevel.CONNECT, AuthLevel.PACKET, AuthLevel.INTEGRITY, AuthLevel.PRIVACY]


def kerberos(keytab: Path, users: Users | None = None) -> KerberosProvider:
    known = Users() if users is None else users
    return KerberosProvider(Acceptor(Keytab.read(keytab)), Principals(lambda: known))


def offered(keytab: Path, *, ntlm: bool = True, users: Users | None = None) -> dict[int, Provider]:
    return providers({"Anna": "geheim"}, "POSTROAD", kerberos(keytab, users), ntlm=ntlm)


def log_in(realm: Realm, accepted: KerberosAcceptor) -> None:
    with realm.logged_in():
        client = kerberos_initiator(HOST).negotiation
        accepted.step(client.step(accepted.step(client.step(b""))))


@pytest.mark.parametrize("layout", Format)
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kind", TYPES)
def test_calls_of_all_sizes(realm: Realm, kind: AuthType, level: AuthLevel, layout: Format) -> None:
    async def body() -> None:
        async with counter(providers=offered(realm.keytab)) as it:
            security = kerberos_initiator(HOST, auth_type=kind, level=level)
            client = await connect(ADDRESS, it.port, PARCELS, security=security, layouts=(layout,))
            for size in (0, 3, 65400, 65500, 300_000):
                await echo(client, size)
            await asyncio.gather(*(echo(client, size) for size in range(50)))
            assert set(it.identities) == {ANN}
            await client.close()

    with realm.logged_in():
        asyncio.run(body())


@pytest.mark.parametrize("level", LEVELS)
def test_keys_for_rc4_work_too(realm: Realm, level: AuthLevel) -> None:
    async def body() -> None:
        async with counter(providers=offered(realm.old_keytab)) as it:
            security = kerberos_initiator(f"old.{HOST}", level=level)
            client = await connect(ADDRESS, it.port, PARCELS, security=security)
            for size in (0, 3, 65500):
                await echo(client, size)
            await client.close()

    with realm.logged_in():
        asyncio.run(body())


@pytest.mark.parametrize("level", [AuthLevel.INTEGRITY, AuthLevel.PRIVACY])
@pytest.mark.parametrize("place", [5, 20, 22, 30, -1, -12, -30])
def test_one_changed_bit_ends_the_connection(realm: Realm, level: AuthLevel, place: int) -> None:
    async def body() -> None:
        async with counter(providers=offered(realm.keytab)) as it:
            client = await connect(ADDRESS, it.port, PARCELS, security=kerberos_initiator(HOST, level=level))
            await echo(client, 3)
            stub = parcels.ECHO.request.encode(parcels.Echo(Parcel(1, 3, Colour.RED, b"abc")), Format.NDR)
            client._core.call(PARCELS, 0, stub)
            data = bytearray(client._core.data_to_send())
            data[place] ^= 0x01
            assert client._link.transport is not None
            client._link.transport.write(bytes(data))
            await client._link.gone.wait()
            assert it.identities == [ANN]

    with realm.logged_in():
        asyncio.run(body())


def test_a_repeated_request_is_refused(realm: Realm) -> None:
    async def body() -> None:
        async with counter(providers=offered(realm.keytab)) as it:
            client = await connect(ADDRESS, it.port, PARCELS, security=kerberos_initiator(HOST))
            stub = parcels.ECHO.request.encode(parcels.Echo(Parcel(1, 3, Colour.RED, b"abc")), Format.NDR)
            client._core.call(PARCELS, 0, stub)
            data = client._core.data_to_send()
            assert client._link.transport is not None
            client._link.transport.write(data)
            await asyncio.sleep(0)
            client._link.transport.write(data)
            await client._link.gone.wait()
            assert it.identities == [ANN]

    with realm.logged_in():
        asyncio.run(body())


def test_who_repeats_a_login_cannot_finish_it(realm: Realm) -> None:
    """The third leg needs the key of the session, which is not in what went over the wire."""
    acceptor = kerberos(realm.keytab)
    accepted = acceptor.accept()
    with realm.logged_in():
        security = kerberos_initiator(HOST)
        first = security.negotiation.step(b"")
        last = security.negotiation.step(accepted.step(first))
    accepted.step(last)
    assert accepted.identity == ANN
    repeated = acceptor.accept()
    repeated.step(first)
    with pytest.raises(AuthenticationFailed):
        repeated.step(last)
    assert not repeated.complete
    assert repeated.identity is None


def test_a_login_without_a_third_leg_is_refused(realm: Realm) -> None:
    from postroad.security.kerberos import initiate

    with realm.logged_in():
        _, first = initiate(HOST, "host")
    accepted = kerberos(realm.keytab).accept()
    with pytest.raises(AuthenticationFailed, match="ticket was refused"):
        accepted.step(first)
    assert not accepted.complete


def test_the_account_and_the_groups_come_from_the_ticket(realm: Realm) -> None:
    accepted = kerberos(realm.keytab).accept()
    log_in(realm, accepted)
    assert accepted.account is not None
    assert str(accepted.account.sid) == realm.sid("ann")
    assert Sid.parse(realm.sid("clerks")) in accepted.account.groups
    assert not accepted.account.administrator


@pytest.mark.parametrize(
    "user",
    [
        User("Ann", Sid.parse("S-1-5-21-1-2-3-1001")),
        User("anna", Sid.parse("S-1-5-21-1-2-3-1001"), principal=ANN),
    ],
)
def test_a_user_of_the_configuration_counts_first(realm: Realm, user: User) -> None:
    accepted = kerberos(realm.keytab, Users([user])).accept()
    log_in(realm, accepted)
    assert (accepted.identity, accepted.account) == (user.name, None)


def test_the_name_of_a_user_with_another_principal_does_not_count(realm: Realm) -> None:
    boss = User("ann", Sid.parse("S-1-5-21-1-2-3-1001"), administrator=True, principal="ann@ELSEWHERE.TEST")
    accepted = kerberos(realm.keytab, Users([boss])).accept()
    log_in(realm, accepted)
    assert accepted.identity == ANN
    assert accepted.account is not None
    assert not accepted.account.administrator


def test_a_ticket_for_another_server_is_refused(realm: Realm) -> None:
    async def body() -> None:
        async with counter(providers=offered(realm.keytab)) as it:
            with pytest.raises(RpcUnavailable, match="refused the bind"):
                await connect(ADDRESS, it.port, PARCELS, security=kerberos_initiator(OTHER))
            assert it.identities == []

    with realm.logged_in():
        asyncio.run(body())


def test_a_server_that_cannot_open_the_ticket_proves_nothing(realm: Realm) -> None:
    with realm.logged_in():
        security, other = kerberos_initiator(HOST), kerberos_initiator(OTHER)
    security.negotiation.step(b"")
    answer = kerberos(realm.other_keytab).accept().step(other.negotiation.step(b""))
    with pytest.raises(AuthenticationFailed, match="cannot prove by Kerberos who it is"):
        security.negotiation.step(answer)


def test_who_has_no_ticket_learns_what_to_do(realm: Realm) -> None:
    with realm.logged_in(None), pytest.raises(AuthenticationFailed, match=r"there is no ticket \(run kinit\)"):
        kerberos_initiator(HOST)
    with realm.logged_in(), pytest.raises(AuthenticationFailed, match="knows no such service"):
        kerberos_initiator("nobody.postroad.test")


@pytest.mark.parametrize("kind", [AuthType.NTLM, AuthType.SPNEGO])
def test_ntlm_is_refused_by_policy(realm: Realm, kind: AuthType) -> None:
    async def body() -> None:
        async with counter(providers=offered(realm.keytab, ntlm=False)) as it:
            with pytest.raises(RpcUnavailable, match=r"type not recognized|fault 0x00000005|invalid checksum"):
                await connect(
                    ADDRESS, it.port, PARCELS, security=initiator("anna", "geheim", host=HOST, auth_type=kind)
                )
            client = await connect(ADDRESS, it.port, PARCELS, security=kerberos_initiator(HOST))
            await echo(client, 3)
            await client.close()
            assert it.identities == [ANN]
        async with counter(providers=offered(realm.keytab)) as it:
            security = initiator("anna", "geheim", host=HOST, auth_type=kind)
            client = await connect(ADDRESS, it.port, PARCELS, security=security)
            await echo(client, 3)
            assert it.identities == ["Anna"]
            await client.close()

    with realm.logged_in():
        asyncio.run(body())


def test_hostile_tokens_get_a_refusal(realm: Realm) -> None:
    with realm.logged_in():
        good = kerberos_initiator(HOST).negotiation.step(b"")
    acceptor = kerberos(realm.keytab)
    tokens = [b"", b"\x60", good[:-1], good + b"x", good[:4], bytes(200), b"\x60\x84\xff\xff\xff\xff", b"\xff" * 70_000]
    tokens += [good[:place] + bytes([good[place] ^ 0xFF]) + good[place + 1 :] for place in range(0, len(good), 7)]
    tokens += [good[:2] + (len(good) - 500).to_bytes(2, "big") + good[4:-496]]
    for token in tokens:
        accepted = acceptor.accept()
        with pytest.raises(AuthenticationFailed):
            accepted.step(accepted.step(token))
        assert not accepted.complete


# impacket


def impacket_logs_in(realm: Realm, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes the ticket of the service from the cache: Samba refuses the way in which it asks for one."""
    assert run(realm, "kvno", f"host/{HOST}").returncode == 0
    monkeypatch.setenv("KRB5_CONFIG", str(realm.controller.krb5_conf))  # for our server
    monkeypatch.setenv("KRB5CCNAME", str(realm.cache()))  # impacket takes no prefix


def impacket_bound(realm: Realm, port: int, level: int, kind: int) -> Any:
    rpc = transport.DCERPCTransportFactory(f"ncacn_ip_tcp:{ADDRESS}[{port}]")
    rpc.setRemoteName(HOST)
    rpc.set_credentials("ann", "", REALM, "", "", "")
    rpc.set_kerberos(True, realm.controller.address)
    dce = rpc.get_dce_rpc()
    dce.set_auth_type(kind)
    dce.set_auth_level(level)
    dce.connect()
    dce.bind(uuidtup_to_bin((str(PARCELS.uuid), "1.0")))
    return dce


@pytest.mark.parametrize("level", [RPC_C_AUTHN_LEVEL_PKT_INTEGRITY, RPC_C_AUTHN_LEVEL_PKT_PRIVACY])
def test_impacket_with_a_ticket(realm: Realm, level: int, monkeypatch: pytest.MonkeyPatch) -> None:
    impacket_logs_in(realm, monkeypatch)
    with served(providers=offered(realm.keytab)) as it:
        rpc = impacket_bound(realm, it.port, level, RPC_C_AUTHN_GSS_NEGOTIATE)
        for size in (0, 5, 4000):
            impacket_echo(rpc, size)
        rpc.disconnect()
        assert set(it.identities) == {ANN}


def test_the_endpoint_mapper(realm: Realm) -> None:
    from postroad.rpc import epm_interface as ept

    async def body() -> None:
        found = await offer([Registration.of(PARCELS, ADDRESS, 4711)], ADDRESS, 0, providers=offered(realm.keytab))
        for kind in TYPES:
            security = kerberos_initiator(HOST, auth_type=kind)
            client = await connect(ADDRESS, found.port, ept.EPMAPPER, security=security)
            reply = await client.call(ept.EPT_LOOKUP, ept.Lookup(0, None, None, 1, NULL_HANDLE, 10))
            assert reply.num_ents == 1
            await client.close()
        await found.stop()

    with realm.logged_in():
        asyncio.run(body())
