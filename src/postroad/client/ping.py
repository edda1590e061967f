"""`ping`: asks a computer by UDP whether a queue manager there would accept a session. Needs no manager here."""

from __future__ import annotations

import math
import socket
import time
from dataclasses import asdict, dataclass
from typing import Any
from uuid import uuid4

from postroad.binary.ping import Pinger, PingResult
from postroad.errors import InvalidArgument, PostroadError
from postroad.net import ports
from postroad.net.endpoints import endpoint

DEFAULT_TIMEOUT_S = 3.0  # three tries, because a datagram may be lost
_DATAGRAM = 2048  # more than a ping has, so that a longer datagram is recognized

ACCEPTS, REFUSES, GARBAGE, NOTHING = "accepts", "refuses", "garbage", "nothing"


@dataclass(frozen=True, slots=True)
class PingAnswer:
    """The result of a ping. `answer` is accepts, refuses, garbage (the answer is not a ping) or nothing.

    `manager` is the GUID of the manager that answered, and `seconds` how long that took. `sentence` says everything in
    words.
    """

    host: str
    address: str
    port: int
    answer: str
    manager: str | None
    seconds: float | None
    sentence: str

    def json(self) -> dict[str, object]:
        return asdict(self)


def ping(host: str, *, port: int = ports.PING, timeout: float = DEFAULT_TIMEOUT_S) -> PingAnswer:
    """Asks once a second until there is an answer or `timeout` seconds are over. Several addresses of a host share that
    time, and the first one that accepts counts. Raises PostroadError for an unknown host."""
    if not 0 < timeout < math.inf:
        raise InvalidArgument(f"timeout: {timeout:g} seconds is not a time to wait for an answer")
    try:
        places = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
    except OSError as fault:
        raise PostroadError(f"{host} cannot be found: {fault.strerror}") from None
    for family, _, _, _, found in places:
        answer = _ping(host, family, found, timeout / len(places))
        if answer.answer == ACCEPTS:
            break
    return answer


def _ping(host: str, family: int, found: tuple[Any, ...], timeout: float) -> PingAnswer:
    address, port = str(found[0]), int(found[1])
    place = endpoint(address, port)
    pinger = Pinger(uuid4())
    silence = f"no answer from {place} within {timeout:g} s"
    with socket.socket(family, socket.SOCK_DGRAM) as connection:
        try:
            # so that only datagrams from there arrive, and the error that no process listens there
            connection.connect(found)
            result = _ask(connection, pinger, time.monotonic() + timeout)
        except ConnectionRefusedError:
            result, silence = None, f"nothing listens for pings at {place}"
        except OSError as fault:
            result, silence = None, f"{place} cannot be reached: {fault.strerror}"
    if result is None:
        if pinger.ignored is None:
            return PingAnswer(host, address, port, NOTHING, None, None, silence)
        sentence = f"what {place} answers is no answer to a ping: {pinger.ignored}"
        return PingAnswer(host, address, port, GARBAGE, None, None, sentence)
    word, would = (ACCEPTS, "would accept") if result.accepts else (REFUSES, "would refuse")
    sentence = f"{result.manager} at {place} {would} a session; it answered in {result.seconds * 1000:.1f} ms"
    return PingAnswer(host, address, port, word, str(result.manager), result.seconds, sentence)


def _ask(connection: socket.socket, pinger: Pinger, end: float) -> PingResult | None:
    """Sends one request after the other, and waits a second for each answer."""
    while (now := time.monotonic()) < end:
        connection.send(pinger.request(now))
        result = _wait(connection, pinger, end)
        if result is not None:
            return result
    return None


def _wait(connection: socket.socket, pinger: Pinger, end: float) -> PingResult | None:
    """Waits for the answer to the current request. None when its time is over."""
    while (now := time.monotonic()) < end and pinger.on_timer(now) is None:
        assert pinger.deadline is not None
        connection.settimeout(max(0.001, min(pinger.deadline, end) - now))
        try:
            data = connection.recv(_DATAGRAM)
        except TimeoutError:
            continue
        result = pinger.receive(data, time.monotonic())
        if result is not None:
            return result
    return None
