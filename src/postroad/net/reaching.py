"""Calls a host at the first of its addresses that answers. Every caller of other managers uses it; the order is that of
`AddressOrder`."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from aiohappyeyeballs import start_connection

from postroad.net.endpoints import AddressOrder, plain_address

NEXT_ADDRESS_S = 0.25  # without an answer, after which another address is tried too

_Found = tuple[Any, Any, int, str, tuple[Any, ...]]  # as getaddrinfo gives it


@dataclass(frozen=True, slots=True)
class Place:
    """An address and a port at which a host was found."""

    host: str
    found: _Found

    @property
    def address(self) -> str:
        return plain_address(str(self.found[4][0]))

    @property
    def port(self) -> int:
        return int(self.found[4][1])


async def find(
    hosts: Sequence[str], port_of: Callable[[str], int], order: AddressOrder, family: int = socket.AF_UNSPEC
) -> list[Place]:
    """The addresses of all hosts, in the order to try them. If no host is found: raises gaierror, or UnicodeError for
    a text that cannot be a host's name."""
    loop = asyncio.get_running_loop()
    # getaddrinfo takes no members of an enumeration, such as our standard ports.
    looking = (loop.getaddrinfo(host, int(port_of(host)), type=socket.SOCK_STREAM, family=family) for host in hosts)
    answers = await asyncio.gather(*looking, return_exceptions=True)
    places: dict[object, Place] = {}
    for host, answer in zip(hosts, answers, strict=True):
        if isinstance(answer, BaseException):
            if not isinstance(answer, OSError | UnicodeError):
                raise answer
        else:
            for found in answer:
                places.setdefault(found[4], Place(host, found))
    if not places:
        raise next(each for each in answers if isinstance(each, BaseException))
    return sorted(places.values(), key=lambda place: order.place(place.address))


async def open_connection(
    factory: Callable[[], asyncio.Protocol], places: Sequence[Place], local_host: str | None = None
) -> None:
    """Connects to the first place that accepts. Each is tried as soon as the one before it refuses, or is slow to
    answer. Raises OSError if all fail."""
    loop = asyncio.get_running_loop()
    local: list[_Found] | None = None
    if local_host is not None:
        local = [*await loop.getaddrinfo(local_host, 0, type=socket.SOCK_STREAM)]
    found = [place.found for place in places]
    connection = await start_connection(found, local_addr_infos=local, happy_eyeballs_delay=NEXT_ADDRESS_S)
    try:
        await loop.create_connection(factory, sock=connection)
    except BaseException:
        connection.close()
        raise


async def first_good(attempts: Iterable[Awaitable[str | None]]) -> tuple[int, str | None]:
    """Makes all attempts at once. Each says what failed, or None. Returns the number of the first one in their order
    that did not fail, or else what failed in the first."""
    tasks = [asyncio.ensure_future(each) for each in attempts]
    faults: list[str] = []
    try:
        for number, task in enumerate(tasks):
            fault = await task
            if fault is None:
                return number, None
            faults.append(fault)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return 0, faults[0]
