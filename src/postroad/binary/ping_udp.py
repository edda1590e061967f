"""UDP for pings: who answers them, and who asks before a session is opened. The rules are in ping.py."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from uuid import UUID

from postroad.binary.ping import PING_RESPONSE_S, Pinger, PingResult, answer, ping_cookies
from postroad.binary.service import BinaryService
from postroad.net.endpoints import endpoint


class PingResponder(asyncio.DatagramProtocol):
    """Answers pings, [MS-MQQB] 3.1.7.7; anything else on this port is ignored. Without a service nobody is taken."""

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
    """Asks peers of one queue manager, any number at a time; `ports` says where a host listens for pings."""

    def __init__(self, identifier: UUID, ports: Callable[[str], int]) -> None:
        self.identifier = identifier
        self._ports = ports
        self._cookies = ping_cookies()

    async def ask(self, host: str, local: tuple[str, int] | None = None) -> str | None:
        """None if it would take a session; else why it would not, in words."""
        loop = asyncio.get_running_loop()
        pinger = Pinger(self.identifier, self._cookies)
        try:
            transport, waiting = await loop.create_datagram_endpoint(
                lambda: _Waiting(pinger), local_addr=local, remote_addr=(host, self._ports(host))
            )
        except (OSError, UnicodeError) as fault:  # UnicodeError: no host can have such a name
            words = fault.strerror if isinstance(fault, OSError) else str(fault)
            return f"cannot send a ping to {host}: {words}"
        transport.sendto(pinger.request(loop.time()))
        try:
            result = await asyncio.wait_for(waiting.result, PING_RESPONSE_S)
        except TimeoutError:
            return f"{host} did not answer a ping"
        finally:
            transport.close()
        return None if result.accepts else f"{host} would refuse a session: its answer to a ping says so"


class _Waiting(asyncio.DatagramProtocol):
    """What comes of one request."""

    def __init__(self, pinger: Pinger) -> None:
        self._pinger = pinger
        self._loop = asyncio.get_running_loop()
        self.result: asyncio.Future[PingResult] = self._loop.create_future()

    def datagram_received(self, data: bytes, address: tuple[str, int]) -> None:
        result = self._pinger.receive(data, self._loop.time())
        if result is not None and not self.result.done():
            self.result.set_result(result)
