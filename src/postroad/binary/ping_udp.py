"""UDP for pings: answers them, and asks before a session is opened. The rules are in ping.py."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from uuid import UUID

from postroad.binary.ping import PING_RESPONSE_S, Pinger, PingResult, answer, ping_cookies
from postroad.binary.service import BinaryService
from postroad.net.endpoints import endpoint, is_address
from postroad.net.reaching import Place, first_good


class PingResponder(asyncio.DatagramProtocol):
    """Answers pings, [MS-MQQB] 3.1.7.7, and ignores anything else on this port. Without a service, the answer refuses
    sessions."""

    def __init__(self, identifier: UUID, service: BinaryService | None, host: str, port: int) -> None:
        self._identifier = identifier
        self._service = service
        self.host = host
        self.port = port
        self._transport: asyncio.DatagramTransport | None = None

    @property
    def address(self) -> str:
        return endpoint(self.host, self.port)

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_datagram_endpoint(lambda: self, local_addr=(self.host, self.port))
        self._transport = transport
        self.port = transport.get_extra_info("sockname")[1]

    def stop(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def datagram_received(self, data: bytes, address: tuple[str, int]) -> None:
        service = self._service
        refused = service is None or service.full
        response = answer(data, self._identifier, refused=refused)
        if response is not None and self._transport is not None:
            self._transport.sendto(response, address)


class PingClient:
    """Pings peers of one queue manager, any number at a time. `ports` gives the ping port of a host."""

    def __init__(self, identifier: UUID, ports: Callable[[str], int]) -> None:
        self.identifier = identifier
        self._ports = ports
        self._cookies = ping_cookies()

    async def choose(self, places: Sequence[Place], local: tuple[str, int] | None = None) -> tuple[Place, str | None]:
        """Pings all places. Returns the first one in their order that would accept a session. If there is none, also
        why not."""
        number, fault = await first_good(self.ask(each.host, local, each.address) for each in places)
        return places[number], fault

    async def ask(self, host: str, local: tuple[str, int] | None = None, address: str = "") -> str | None:
        """Pings a host, at one of its addresses. Returns None if it would accept a session, and otherwise why it would
        not."""
        there = (host if is_address(host) else address, self._ports(host))
        loop = asyncio.get_running_loop()
        pinger = Pinger(self.identifier, self._cookies)
        try:
            transport, waiting = await loop.create_datagram_endpoint(
                lambda: _Waiting(pinger), local_addr=local, remote_addr=there
            )
        except OSError as fault:
            return f"cannot send a ping to {host}: {fault.strerror}"
        transport.sendto(pinger.request(loop.time()))
        try:
            result = await asyncio.wait_for(waiting.result, PING_RESPONSE_S)
        except TimeoutError:
            return f"{host} did not answer a ping"
        finally:
            transport.close()
        return None if result.accepts else f"{host} would refuse a session: its answer to a ping says so"


class _Waiting(asyncio.DatagramProtocol):
    """One waiting request."""

    def __init__(self, pinger: Pinger) -> None:
        self._pinger = pinger
        self._loop = asyncio.get_running_loop()
        self.result: asyncio.Future[PingResult] = self._loop.create_future()

    def datagram_received(self, data: bytes, address: tuple[str, int]) -> None:
        result = self._pinger.receive(data, self._loop.time())
        if result is not None and not self.result.done():
            self.result.set_result(result)
