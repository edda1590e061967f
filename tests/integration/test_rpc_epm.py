"""The endpoint mapper: impacket and our own client ask it, and other processes of the machine register with it."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import pytest
from impacket.dcerpc.v5 import epm as impacket_epm
from impacket.dcerpc.v5 import transport
from impacket.dcerpc.v5.rpcrt import RPC_C_AUTHN_LEVEL_PKT_PRIVACY
from impacket.uuid import uuidtup_to_bin

from postroad.errors import RpcUnavailable
from postroad.rpc import epm
from postroad.rpc import epm_interface as ept
from postroad.rpc.client import connect
from postroad.rpc.epm import Registration
from postroad.rpc.epm_interface import Tower
from postroad.rpc.gss import providers
from postroad.rpc.interface import Interface
from postroad.rpc.ndr import NULL_HANDLE
from postroad.rpc.pdu import SyntaxId
from tests.commands import PATIENCE_S
from tests.unit.rpc import parcels
from tests.unit.rpc.counter import HOST, counter
from tests.unit.rpc.parcels import PARCELS

THIRD = Interface("third", "5c7b1c2e-6f37-4b0e-9f6e-6d3a1c5f7e12", (1, 0))
OTHER = Interface("other", "5c7b1c2e-6f37-4b0e-9f6e-6d3a1c5f7e11", (2, 3))


def ask_impacket(port: int, function: str, *arguments: Any, **options: Any) -> Any:
    rpc = transport.DCERPCTransportFactory(f"ncacn_ip_tcp:{HOST}[{port}]").get_dce_rpc()
    rpc.connect()
    try:
        return getattr(impacket_epm, function)(*arguments, dce=rpc, **options)
    finally:
        rpc.disconnect()


def test_impacket_finds_a_port() -> None:
    async def run() -> None:
        offer = await epm.offer([Registration.of(PARCELS, "0.0.0.0", 4711, "parcels")], HOST, 0)
        interface = uuidtup_to_bin((str(PARCELS.uuid), "1.0"))
        binding = await asyncio.to_thread(
            ask_impacket, offer.port, "hept_map", HOST, interface, protocol="ncacn_ip_tcp"
        )
        assert binding == f"ncacn_ip_tcp:{HOST}[4711]"
        entries = await asyncio.to_thread(ask_impacket, offer.port, "hept_lookup", HOST)
        assert [entry["annotation"] for entry in entries] == [b"parcels\0"]
        await offer.stop()

    asyncio.run(run())


def test_impacket_asks_the_mapper_under_a_name() -> None:
    """A client may authenticate although it need not."""

    def ask(port: int) -> Any:
        rpc = transport.DCERPCTransportFactory(f"ncacn_ip_tcp:{HOST}[{port}]").get_dce_rpc()
        rpc.set_credentials("ann", "secret")
        rpc.set_auth_level(RPC_C_AUTHN_LEVEL_PKT_PRIVACY)
        rpc.connect()
        try:
            return impacket_epm.hept_lookup(HOST, dce=rpc)
        finally:
            rpc.disconnect()

    async def run() -> None:
        offer = await epm.offer(
            [Registration.of(PARCELS, HOST, 4711, "parcels")], HOST, 0, providers=providers({"ann": "secret"}, "alpha")
        )
        entries = await asyncio.to_thread(ask, offer.port)
        assert [entry["annotation"] for entry in entries] == [b"parcels\0"]
        await offer.stop()

    asyncio.run(run())


def test_impacket_reads_many_entries_by_pages() -> None:
    async def run() -> None:
        many = [Registration(SyntaxId(UUID(int=n), 1), n, HOST) for n in range(1, 1201)]
        offer = await epm.offer(many, HOST, 0)
        entries = await asyncio.to_thread(ask_impacket, offer.port, "hept_lookup", HOST)
        assert len(entries) == 1200
        await offer.stop()

    asyncio.run(run())


def test_a_client_connects_by_the_mapper() -> None:
    async def run() -> None:
        async with counter() as it:
            offer = await epm.offer([Registration.of(PARCELS, HOST, it.port)], HOST, 0)
            client = await connect(HOST, await epm.resolve(HOST, PARCELS, port=offer.port), PARCELS)
            assert (await client.call(parcels.CALL_OFF, parcels.Wait(1))).status == 1
            with pytest.raises(RpcUnavailable, match="does not list the interface other"):
                await epm.resolve(HOST, OTHER, port=offer.port)
            await client.close()
            await offer.stop()

    asyncio.run(run())


def test_a_second_process_registers_with_the_mapper_that_runs() -> None:
    async def run() -> None:
        first = await epm.offer([Registration.of(PARCELS, HOST, 4711)], HOST, 0)
        second = await epm.offer([Registration.of(OTHER, HOST, 4712)], HOST, first.port)
        assert second.port == first.port
        assert await epm.resolve(HOST, OTHER, port=first.port) == 4712
        await second.stop()
        # What a process registered goes when the process closes or is killed.
        for _ in range(1000):
            try:
                await epm.resolve(HOST, OTHER, port=first.port)
            except RpcUnavailable:
                break
        else:
            raise AssertionError("the registration is still there")
        assert await epm.resolve(HOST, PARCELS, port=first.port) == 4711
        await first.stop()

    asyncio.run(run())


async def listed(interface: Interface, port: int, wanted: int) -> None:
    """Waits until the mapper has the interface at the wanted port. Meanwhile there may be no mapper."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                if await epm.resolve(HOST, interface, port=port) == wanted:
                    return
            except RpcUnavailable:
                await asyncio.sleep(0.01)


def test_another_process_takes_the_port_of_a_mapper_that_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(epm, "AGAIN_S", 0.01)

    async def run() -> None:
        first = await epm.offer([Registration.of(PARCELS, HOST, 4711)], HOST, 0)
        port = first.port
        second = await epm.offer([Registration.of(OTHER, HOST, 4712)], HOST, port)
        third = await epm.offer([Registration.of(THIRD, HOST, 4713)], HOST, port)
        await first.stop()
        await listed(OTHER, port, 4712)
        await listed(THIRD, port, 4713)
        with pytest.raises(RpcUnavailable):
            await epm.resolve(HOST, PARCELS, port=port)
        again = await epm.offer([Registration.of(PARCELS, HOST, 4714)], HOST, port)
        await listed(PARCELS, port, 4714)
        for each in (second, third, again):  # whichever of them has the port
            await each.stop()
        with pytest.raises(RpcUnavailable, match="cannot connect"):
            await connect(HOST, port, ept.EPMAPPER)

    asyncio.run(run())


def test_a_registration_is_a_tower_of_ours_and_ones_own_to_delete() -> None:
    async def run() -> None:
        offer = await epm.offer([], HOST, 0)
        client = await connect(HOST, offer.port, ept.EPMAPPER)
        entry = Registration.of(OTHER, HOST, 1).entry(HOST)
        foreign = ept.Entry(UUID(int=0), ept.Twr.of(b"\x01\x00\x00\x00\x00\x00"), "")
        assert (await client.call(ept.EPT_INSERT, ept.Insert(1, (foreign,), 0))).status == ept.CANNOT_PERFORM
        assert (await client.call(ept.EPT_DELETE, ept.Delete(1, (entry,)))).status == ept.NOT_REGISTERED
        assert (await client.call(ept.EPT_INSERT, ept.Insert(1, (entry,), 0))).status == 0
        assert (await client.call(ept.EPT_DELETE, ept.Delete(1, (entry,)))).status == 0
        await client.close()
        await offer.stop()

    asyncio.run(run())


def test_a_page_handle_is_freed() -> None:
    async def run() -> None:
        offer = await epm.offer([Registration.of(PARCELS, HOST, port) for port in (1, 2, 3)], HOST, 0)
        client = await connect(HOST, offer.port, ept.EPMAPPER)
        tower = ept.Twr.of(Tower(SyntaxId(PARCELS.uuid, 1), 0).encode())
        page = await client.call(ept.EPT_MAP, ept.Map(None, tower, NULL_HANDLE, 2))
        assert page.num_towers == 2
        assert page.entry_handle
        freed = await client.call(ept.EPT_LOOKUP_HANDLE_FREE, ept.HandleFree(page.entry_handle))
        assert freed == ept.HandleFreeReply(NULL_HANDLE, 0)
        await client.close()
        await offer.stop()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("option", "version", "found"),
    [
        (epm.Versions.ALL, (9, 9), True),
        (epm.Versions.COMPATIBLE, (2, 3), True),
        (epm.Versions.COMPATIBLE, (2, 4), False),
        (epm.Versions.COMPATIBLE, (1, 0), False),
        (epm.Versions.EXACT, (2, 3), True),
        (epm.Versions.EXACT, (2, 2), False),
        (epm.Versions.MAJOR_ONLY, (2, 9), True),
        (epm.Versions.MAJOR_ONLY, (3, 3), False),
        (epm.Versions.UP_TO, (3, 0), True),
        (epm.Versions.UP_TO, (2, 2), False),
        (6, (2, 3), False),
    ],
)
def test_the_versions_that_a_lookup_asks_for(option: int, version: tuple[int, int], found: bool) -> None:
    async def run() -> None:
        offer = await epm.offer([Registration.of(OTHER, HOST, 1)], HOST, 0)
        client = await connect(HOST, offer.port, ept.EPMAPPER)
        wanted = ept.InterfaceId(OTHER.uuid, *version)
        request = ept.Lookup(epm.Inquiry.BY_INTERFACE, None, wanted, option, NULL_HANDLE, 10)
        reply = await client.call(ept.EPT_LOOKUP, request)
        assert (reply.num_ents, reply.status) == ((1, 0) if found else (0, ept.NOT_REGISTERED))
        await client.close()
        await offer.stop()

    asyncio.run(run())
