"""Our RPC client and our RPC server: calls, faults, fragments, handles, cancelling, and what a lost client leaves."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from postroad.errors import RpcFault, RpcUnavailable
from postroad.rpc.calls import Call, Caller, Later, Limits
from postroad.rpc.client import RpcClient, connect
from postroad.rpc.constants import FaultStatus
from postroad.rpc.interface import Interface, Nothing, Operation
from postroad.rpc.ndr import NULL_HANDLE, Format
from postroad.rpc.server import RpcServer
from tests.unit.rpc import parcels
from tests.unit.rpc.counter import HOST, Counter, counter
from tests.unit.rpc.parcels import PARCELS, Colour, Parcel

LAYOUTS = [(Format.NDR,), (Format.NDR64,), (Format.NDR, Format.NDR64)]


def parcel(size: int) -> Parcel:
    return Parcel(1, size, Colour.GREEN, bytes(range(256)) * (size // 256) + bytes(size % 256))


async def until(condition: Callable[[], object]) -> None:
    for _ in range(5000):
        if condition():
            return
        await asyncio.sleep(0.002)
    raise AssertionError("it never came to that")


async def client_of(it: Counter, **options: object) -> RpcClient:
    return await connect(HOST, it.port, PARCELS, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("layouts", LAYOUTS)
@pytest.mark.parametrize("size", [0, 1, 1000, 65494, 65495, 300_000, 1 << 20])
def test_a_call_of_any_size_in_both_syntaxes(layouts: tuple[Format, ...], size: int) -> None:
    async def run() -> None:
        async with counter() as it:
            client = await client_of(it, layouts=layouts)
            reply = await client.call(parcels.ECHO, parcels.Echo(parcel(size)))
            assert reply == parcels.EchoReply(parcel(size), 0)
            await client.close()

    asyncio.run(run())


def test_a_handlers_fault_an_unknown_operation_and_a_bad_stub() -> None:
    missing: Operation[Nothing, Any] = Operation(8, "Missing", Nothing, Nothing)
    short: Operation[Nothing, Any] = Operation(0, "Echo", Nothing, parcels.EchoReply)
    missing.interface = short.interface = PARCELS

    async def run() -> None:
        async with counter() as it:
            client = await client_of(it)
            assert await fault_of(client, parcels.FAIL, Nothing()) == 0xC00E0007
            assert await fault_of(client, missing, Nothing()) == FaultStatus.NCA_OP_RANGE_ERROR
            assert await fault_of(client, short, Nothing()) == FaultStatus.BAD_STUB_DATA
            assert (await client.call(parcels.EMPTY, Nothing())) == Nothing()
            await client.close()

    asyncio.run(run())


def test_an_interface_or_version_that_is_not_served_is_refused() -> None:
    async def run() -> None:
        async with counter() as it:
            for uuid, version in (("5c7b1c2e-6f37-4b0e-9f6e-6d3a1c5f7e11", (1, 0)), (str(PARCELS.uuid), (2, 0))):
                with pytest.raises(RpcUnavailable, match="abstract syntax not supported"):
                    await connect(HOST, it.port, Interface("other", uuid, version))

    asyncio.run(run())


def test_a_blocked_call_blocks_no_other_on_its_connection() -> None:
    async def run() -> None:
        async with counter() as it:
            client = await client_of(it)
            blocked = [asyncio.create_task(client.call(parcels.WAIT, parcels.Wait(n))) for n in range(100)]
            await until(lambda: len(it.waiting) == 100)
            assert (await client.call(parcels.ECHO, parcels.Echo(parcel(3)))).status == 0
            for n in reversed(range(100)):
                await client.call(parcels.CALL_OFF, parcels.Wait(n))
            assert [reply.status for reply in await asyncio.gather(*blocked)] == list(range(100))
            await client.close()

    asyncio.run(run())


def test_a_call_that_is_given_up_ends_at_the_server_and_leaves_the_connection() -> None:
    async def run() -> None:
        async with counter() as it:
            client = await client_of(it)
            while not it.cancelled:  # on a busy machine the call may be given up before the server begins it
                with pytest.raises(TimeoutError):
                    await client.call(parcels.WAIT, parcels.Wait(1), timeout=0.02)
                await open_shelf(client)
            assert not it.waiting
            assert (await client.call(parcels.USE, parcels.Use((await open_shelf(client)).shelf))).status == 7
            await client.close()

    asyncio.run(run())


def test_a_server_that_never_answers_a_bind_is_given_up() -> None:
    async def run() -> None:
        never = asyncio.Event()

        async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with closing(writer):
                await never.wait()

        server = await asyncio.start_server(listen, HOST, 0)
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(RpcUnavailable, match=r"did not answer within 0\.05 seconds"):
            await connect(HOST, port, PARCELS, timeout=0.05)
        client = await connect(HOST, port)
        with pytest.raises(TimeoutError):
            await client.call(parcels.EMPTY, Nothing(), timeout=0.05)
        with pytest.raises(RpcUnavailable, match="was cancelled"):
            await client.call(parcels.EMPTY, Nothing(), timeout=0.05)
        await client.close()
        never.set()
        server.close()

    asyncio.run(run())


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\5\0\x0c\3\x10\0\0\0\x10\0\0\0\1\0\0\0"])
def test_a_server_that_speaks_something_else_is_told_apart(answer: bytes) -> None:
    async def run() -> None:
        async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with closing(writer):
                writer.write(answer)
                await reader.read()

        server = await asyncio.start_server(listen, HOST, 0)
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(RpcUnavailable, match="does not speak RPC"):
            await connect(HOST, port, PARCELS)
        server.close()

    asyncio.run(run())


def test_nobody_listens() -> None:
    async def run() -> None:
        with pytest.raises(RpcUnavailable, match=r"cannot connect to 127\.0\.60\.9:1: Connection refused"):
            await connect("127.0.60.9", 1, PARCELS)

    asyncio.run(run())


def test_a_cancelled_call_is_answered_with_its_fault() -> None:
    async def run() -> None:
        async with counter() as it:
            client = await client_of(it)
            call = asyncio.create_task(client.call(parcels.WAIT, parcels.Wait(1)))
            await until(lambda: 1 in it.waiting)
            client.cancel_calls()
            with pytest.raises(RpcFault) as caught:
                await call
            assert caught.value.fault_status == FaultStatus.NCA_FAULT_CANCEL
            await client.close()

    asyncio.run(run())


def later_replies(it: Counter) -> dict[int, Later[parcels.Status]]:
    """Waits without a task. The test gives the reply."""
    replies: dict[int, Later[parcels.Status]] = {}

    def wait(call: Call, request: parcels.Wait) -> Later[parcels.Status]:
        later = replies[request.ticket] = Later()
        if not request.ticket:
            later.give(parcels.Status(17))
        return later

    it.server.on(parcels.WAIT, wait)
    return replies


def test_a_handler_replies_at_once_or_later_without_a_task() -> None:
    async def run() -> None:
        async with counter() as it:
            replies = later_replies(it)
            client = await client_of(it)
            assert (await client.call(parcels.WAIT, parcels.Wait(0))).status == 17
            calls = [asyncio.create_task(client.call(parcels.WAIT, parcels.Wait(n))) for n in (1, 2)]
            await until(lambda: len(replies) == 3)
            (link,) = it.server.links
            assert link.tasks == {}
            client.cancel_calls()  # which comes too late: the reply alone is missing
            await client.call(parcels.EMPTY, Nothing())
            for ticket in (2, 1):
                replies[ticket].give(parcels.Status(ticket))
            assert [reply.status for reply in await asyncio.gather(*calls)] == [1, 2]
            await client.close()

    asyncio.run(run())


def test_a_late_reply_to_a_call_that_was_given_up_or_whose_client_has_gone_is_dropped() -> None:
    async def run() -> None:
        async with counter() as it:
            replies = later_replies(it)
            client = await client_of(it)
            await open_shelf(client)
            while 1 not in replies:  # on a busy machine the call may be given up before the server begins it
                with pytest.raises(TimeoutError):
                    await client.call(parcels.WAIT, parcels.Wait(1), timeout=0.02)
            (link,) = it.server.links
            connection = link.connection
            assert connection is not None
            await until(lambda: not connection.calls)
            replies[1].give(parcels.Status(1))
            call = asyncio.create_task(client.call(parcels.WAIT, parcels.Wait(2)))
            await until(lambda: 2 in replies)
            assert not it.run_down
            await client.close()
            with pytest.raises(RpcUnavailable):
                await call
            await until(lambda: it.run_down)
            replies[2].give(parcels.Status(2))
            assert not len(it.server.endpoint.associations)

    asyncio.run(run())


async def open_shelf(client: RpcClient) -> parcels.OpenReply:
    return await client.call(parcels.OPEN, parcels.Open(parcels.Address(3, 0, 0, "cellar")))


async def fault_of(client: RpcClient, operation: Operation[Any, Any], request: object) -> int:
    with pytest.raises(RpcFault) as caught:
        await client.call(operation, request)
    return caught.value.fault_status


class CountedWrites:
    """A transport that counts what is written."""

    def __init__(self, transport: asyncio.Transport | None) -> None:
        self._transport = transport
        self.writes = 0

    def write(self, data: bytes) -> None:
        assert self._transport is not None
        self.writes += 1
        self._transport.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


def test_calls_that_are_made_together_leave_together_and_so_do_their_replies() -> None:
    async def run() -> None:
        async with counter() as it:
            replies = later_replies(it)
            client = await client_of(it)
            (link,) = it.server.links
            asked = client._link.transport = CountedWrites(client._link.transport)  # type: ignore[assignment]
            answered = link.transport = CountedWrites(link.transport)  # type: ignore[assignment]
            calls = [asyncio.create_task(client.call(parcels.WAIT, parcels.Wait(n))) for n in range(1, 51)]
            await until(lambda: len(replies) == 50)
            assert asked.writes == 2  # the first call cannot know of others
            for n, reply in replies.items():
                reply.give(parcels.Status(n))
            assert [reply.status for reply in await asyncio.gather(*calls)] == list(range(1, 51))
            assert answered.writes == 1
            await client.close()

    asyncio.run(run())


def test_no_two_context_handles_are_alike() -> None:
    servers = [RpcServer(), RpcServer()]
    associations = [each.endpoint.associations.join(0, "", each) for each in servers]
    handles = [each.open("shelf", None, Caller()) for each in associations if each is not None for _ in range(600)]
    assert len({handle.octets for handle in handles}) == len(handles) == 1200
    assert {len(handle.octets) for handle in handles} == {16}


def test_the_life_of_a_context_handle() -> None:
    async def run() -> None:
        async with counter() as it:
            client = await client_of(it)
            shelf = (await open_shelf(client)).shelf
            assert shelf
            assert [each.place for each in it.open] == ["cellar"]
            assert (await client.call(parcels.USE, parcels.Use(shelf))).status == 7
            # A handle of one type is not a handle of another. Null is a handle only if the interface says so.
            mismatch = FaultStatus.NCA_CONTEXT_MISMATCH
            assert await fault_of(client, parcels.COUNT, parcels.Count(shelf)) == mismatch
            assert await fault_of(client, parcels.USE, parcels.Use(NULL_HANDLE)) == FaultStatus.IN_NULL_CONTEXT
            assert await fault_of(client, parcels.CLOSE, parcels.Close(NULL_HANDLE)) == mismatch
            assert (await client.call(parcels.CLOSE, parcels.Close(shelf))).shelf == NULL_HANDLE
            assert not it.open
            assert await fault_of(client, parcels.USE, parcels.Use(shelf)) == mismatch
            await client.close()
            assert it.run_down == []

    asyncio.run(run())


@pytest.mark.spec("QP-2.2.1.1-04")
def test_handles_belong_to_the_association() -> None:
    async def run() -> None:
        async with counter() as it:
            first = await client_of(it)
            shelf = (await open_shelf(first)).shelf
            stranger = await client_of(it)
            assert await fault_of(stranger, parcels.USE, parcels.Use(shelf)) == FaultStatus.NCA_CONTEXT_MISMATCH
            second = await client_of(it, association=first.association)
            assert (await second.call(parcels.USE, parcels.Use(shelf))).status == 7
            await first.close()
            assert (await second.call(parcels.USE, parcels.Use(shelf))).status == 7
            assert it.run_down == []
            await second.close()
            await until(lambda: it.run_down and not it.open)
            await stranger.close()

    asyncio.run(run())


def test_an_association_is_joined_only_from_its_own_address() -> None:
    async def run() -> None:
        async with counter() as it:
            client = await client_of(it, local_host="127.0.60.2")
            for association, host in ((client.association, "127.0.60.3"), (client.association ^ 1, "127.0.60.2")):
                with pytest.raises(RpcUnavailable, match="refused the bind: not specified"):
                    await client_of(it, association=association, local_host=host)
            await client.close()

    asyncio.run(run())


def test_a_client_that_dies_in_a_call_is_cleaned_up() -> None:
    async def run() -> None:
        async with counter() as it:
            client = await client_of(it)
            await open_shelf(client)
            call = asyncio.create_task(client.call(parcels.WAIT, parcels.Wait(5)))
            await until(lambda: 5 in it.waiting)
            transport = client._link.transport
            assert transport is not None
            transport.abort()
            with pytest.raises(RpcUnavailable):
                await call
            await until(lambda: it.run_down and it.cancelled == [5])
            assert not it.server.links
            assert not len(it.server.endpoint.associations)

    asyncio.run(run())


def test_a_server_that_stops_ends_calls_and_handles() -> None:
    async def run() -> None:
        async with counter() as it:
            client = await client_of(it)
            await open_shelf(client)
            call = asyncio.create_task(client.call(parcels.WAIT, parcels.Wait(5)))
            await until(lambda: 5 in it.waiting)
            await it.server.stop()
            assert it.run_down
            assert it.cancelled == [5]
            with pytest.raises(RpcUnavailable, match="closed the connection"):
                await call
            await client.close()

    asyncio.run(run())


def test_a_request_that_is_too_large_is_refused_before_it_is_complete() -> None:
    async def run() -> None:
        async with counter(limits=Limits(max_request=100_000)) as it:
            client = await client_of(it)
            assert await fault_of(client, parcels.ECHO, parcels.Echo(parcel(300_000))) == FaultStatus.ACCESS_DENIED
            assert (await client.call(parcels.ECHO, parcels.Echo(parcel(90_000)))).status == 0
            assert it.server.endpoint.gathering == 0
            await client.close()

    asyncio.run(run())


def test_calls_in_flight_are_bounded() -> None:
    async def run() -> None:
        async with counter(limits=Limits(max_calls=3)) as it:
            client = await client_of(it)
            calls = [asyncio.create_task(client.call(parcels.WAIT, parcels.Wait(n))) for n in range(3)]
            await until(lambda: len(it.waiting) == 3)
            assert await fault_of(client, parcels.WAIT, parcels.Wait(9)) == FaultStatus.NCA_SERVER_TOO_BUSY
            for call in calls:
                call.cancel()
            await asyncio.gather(*calls, return_exceptions=True)
            await client.close()

    asyncio.run(run())


def test_thousands_of_half_open_connections_are_bounded_and_hold_up_nobody() -> None:
    async def run() -> None:
        async with counter(limits=Limits(max_half_open=50, bind_timeout_s=60)) as it:
            client = await client_of(it)
            idle = []
            for _ in range(2000):
                connection = socket.socket()
                connection.setblocking(False)
                await asyncio.get_running_loop().sock_connect(connection, (HOST, it.port))
                idle.append(connection)
                if len(idle) == 200:
                    for each in idle[:100]:
                        each.close()
                    del idle[:100]
            await asyncio.sleep(0.05)
            assert len(it.server.half_open) <= 50
            assert len(it.server.links) <= 52
            assert (await client.call(parcels.ECHO, parcels.Echo(parcel(9)))).status == 0
            newcomer = await client_of(it)
            await newcomer.close()
            for each in idle:
                each.close()
            await client.close()

    asyncio.run(run())


def test_a_connection_that_never_binds_is_closed_in_time() -> None:
    async def run() -> None:
        async with counter(limits=Limits(bind_timeout_s=0.01)) as it:
            reader, writer = await asyncio.open_connection(HOST, it.port)
            assert await reader.read() == b""
            writer.close()

    asyncio.run(run())


def test_connections_are_bounded() -> None:
    async def run() -> None:
        async with counter(limits=Limits(max_connections=2)) as it:
            clients = [await client_of(it) for _ in range(2)]
            with pytest.raises(RpcUnavailable):
                await client_of(it)
            await clients.pop().close()
            await until(lambda: len(it.server.links) == 1)
            clients.append(await client_of(it))
            for client in clients:
                await client.close()

    asyncio.run(run())


def test_a_port_that_is_taken_is_probed_in_steps_of_eleven() -> None:
    async def run() -> None:
        async with counter() as it:
            port = await it.server.listen(HOST, it.port, probe=True)
            assert (port - it.port) % 11 == 0
            assert port > it.port

    asyncio.run(run())
