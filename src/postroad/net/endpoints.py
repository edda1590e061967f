"""Hosts, addresses and ports: how people and URLs write them, and who can reach them. No names are resolved here.

Also the header in which a console tells the API for which address it calls.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from functools import lru_cache
from ipaddress import IPv6Address, ip_address

KNOWN_ADDRESSES = 1024  # that are kept as they were read: each request asks for its own


def endpoint(host: str, port: int | None) -> str:
    """`127.0.0.1:8180`, `alpha:1801`, `[::1]:8180`"""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@lru_cache(KNOWN_ADDRESSES)
def plain_address(address: str) -> str:
    """One spelling for each address: without its zone, and IPv4 within IPv6 as IPv4. A name stays as it is."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return address.lower()
    return str((found.ipv4_mapped or found) if isinstance(found, IPv6Address) else found)


def is_address(host: str) -> bool:
    """Whether a host is an address, not a name."""
    try:
        ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


def is_loopback(address: str) -> bool:
    """Whether only this computer can reach an IP address; 0.0.0.0 and :: are open to all."""
    return ip_address(plain_address(address)).is_loopback


CALLED_FOR = "Postroad-For"


def called_for(key: bytes, address: str) -> str:
    """The value of `CALLED_FOR`. Only who has the key can make it."""
    return f"{address} {hmac.digest(key, address.encode(), 'sha256').hex()}"


def vouched_address(value: str, keys: Iterable[bytes]) -> str | None:
    """The address in a `CALLED_FOR`, if one of the keys has made it."""
    address = value.partition(" ")[0]
    if any(hmac.compare_digest(value.encode(), called_for(key, address).encode()) for key in keys):
        return address
    return None
