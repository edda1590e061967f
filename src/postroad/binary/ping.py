"""Pings, [MS-MQQB] 3.1.7.6 to 3.1.7.9: whether a queue manager answers and would accept a session. No socket, no clock.

The packet is in wire/internal.py. client/ping.py and ping_udp.py send and receive the datagrams.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from uuid import UUID

from postroad.errors import RemoteProtocolError
from postroad.wire.constants import PingFlags
from postroad.wire.internal import Ping

PING_RESPONSE_S = 1.0  # Ping Response Timer, 3.1.2.9
_COOKIES = 1 << 32


def ping_cookies() -> Iterator[int]:
    """PingCookie, 3.1.1.3: starts at 0 and grows by one before each request (note 27)."""
    cookie = 0
    while True:
        cookie = (cookie + 1) % _COOKIES
        yield cookie


@dataclass(frozen=True, slots=True)
class PingResult:
    """How one Ping Request ended: who answered, and whether it would accept a session. Nobody, if the timer expired."""

    accepts: bool
    manager: UUID | None
    seconds: float


class Pinger:
    """The asking side. One request waits at a time; a new one replaces it.

    `identifier` is who asks. All pingers of one computer share `cookies`. A computer that is no server says that it is
    a client (2.2.7).
    """

    def __init__(self, identifier: UUID, cookies: Iterator[int] | None = None, *, server: bool = True) -> None:
        self.identifier = identifier
        self.flags = 0 if server else PingFlags.INDEPENDENT_CLIENT.value
        self.ping_cookie = 0
        self._cookies = ping_cookies() if cookies is None else cookies
        self.deadline: float | None = None  # for the waiting request
        self.ignored: str | None = None  # why the last ignored datagram was ignored
        self._sent_at = 0.0

    def request(self, now: float) -> bytes:
        """Send Ping Request, 3.1.7.6: returns the datagram. `receive` or `on_timer` returns how it ended."""
        self.ping_cookie = next(self._cookies)
        self._sent_at = now
        self.deadline = now + PING_RESPONSE_S
        return Ping(self.ping_cookie, self.identifier, self.flags).encode()

    def receive(self, data: bytes, now: float) -> PingResult | None:
        """Receive Ping Response, 3.1.7.8. None for a datagram that does not answer the waiting request."""
        try:
            response = Ping.decode(data)
        except RemoteProtocolError as fault:
            self.ignored = str(fault)
            return None
        if response.cookie != self.ping_cookie:
            self.ignored = f"cookie {response.cookie} is not {self.ping_cookie}, which was asked with"
            return None
        if self.deadline is None:
            self.ignored = "it came when nobody waited for it any more"
            return None
        self.deadline = None
        return PingResult(not response.refused, response.queue_manager, max(0.0, now - self._sent_at))

    def on_timer(self, now: float) -> PingResult | None:
        """Ping Response Timer Event, 3.1.6.8; None before it is due."""
        if self.deadline is None or now < self.deadline:
            return None
        self.deadline = None
        return PingResult(False, None, now - self._sent_at)


def answer(data: bytes, identifier: UUID, *, refused: bool) -> bytes | None:
    """Receive Ping Request, 3.1.7.7: the datagram to send back. None if `data` is no ping."""
    try:
        request = Ping.decode(data)
    except RemoteProtocolError:
        return None
    return request.response(identifier, refused=refused).encode()
