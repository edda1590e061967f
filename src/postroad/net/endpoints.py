"""Hosts, addresses and ports: how people and URLs write them, who can reach them, and which of several addresses of one
manager is called first. Nothing here resolves names.

Also the header in which a console tells the API the address of the person it calls for.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from functools import lru_cache
from ipaddress import IPv6Address, ip_address

KNOWN_ADDRESSES = 1024  # kept as they were read, because each request asks for its own


def endpoint(host: str, port: int | None) -> str:
    """`127.0.0.1:8180`, `alpha:1801`, `[::1]:8180`"""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@lru_cache(KNOWN_ADDRESSES)
def plain_address(address: str) -> str:
    """The one spelling of an address: without a zone, and IPv4 for IPv4 within IPv6. A name stays as it is."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return address.lower()
    return str((found.ipv4_mapped or found) if isinstance(found, IPv6Address) else found)


def is_address(host: str) -> bool:
    """Whether a host is an address rather than a name."""
    try:
        ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


def is_loopback(address: str) -> bool:
    """Whether only this computer can reach an IP address. 0.0.0.0 and :: are open to all."""
    return ip_address(plain_address(address)).is_loopback


# A process that was stopped, or whose machine hangs, still accepts connections. This long without a word that it owes,
# the other addresses of the manager are tried.
SILENT_S = 5.0
MAX_RANKED = 10_000  # addresses; the one that was noted first is forgotten first


class AddressOrder:
    """Which address of several to call first: of those that answered the last one, then those never tried, then those
    that failed. A manager whose store survives its machine answers at one address at a time."""

    def __init__(self) -> None:
        self._ranks: dict[str, int] = {}
        self._count = 0

    def answered(self, address: str) -> None:
        self._note(address, 1)

    def failed(self, address: str) -> None:
        """Notes that a connection was made there, and nobody answered."""
        self._note(address, -1)

    def _note(self, address: str, sign: int) -> None:
        self._count += 1
        address = plain_address(address)
        self._ranks.pop(address, None)
        self._ranks[address] = sign * self._count
        if len(self._ranks) > MAX_RANKED:
            del self._ranks[next(iter(self._ranks))]

    def place(self, address: str) -> int:
        """A key to sort by. Addresses that are alike keep their order."""
        return -self._ranks.get(plain_address(address), 0)


CALLED_FOR = "Postroad-For"


def called_for(key: bytes, address: str) -> str:
    """The value of `CALLED_FOR`. Only a holder of the key can make it."""
    return f"{address} {hmac.digest(key, address.encode(), 'sha256').hex()}"


def vouched_address(value: str, keys: Iterable[bytes]) -> str | None:
    """The address in a `CALLED_FOR`; None unless one of the keys made the value."""
    address = value.partition(" ")[0]
    if any(hmac.compare_digest(value.encode(), called_for(key, address).encode()) for key in keys):
        return address
    return None
