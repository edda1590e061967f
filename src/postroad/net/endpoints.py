"""Hosts, addresses and ports: how people and URLs write them, and who can reach them. No names are resolved here."""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address


def endpoint(host: str, port: int | None) -> str:
    """`127.0.0.1:8180`, `alpha:1801`, `[::1]:8180`"""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


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
