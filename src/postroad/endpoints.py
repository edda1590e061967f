"""Hosts, addresses and ports: how people and URLs write them, and who can reach them. Names are resolved elsewhere."""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address


def endpoint(host: str, port: int | None) -> str:
    """`127.0.0.1:8180`, `alpha:1801`, `[::1]:8180`"""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_loopback(address: str) -> bool:
    """Whether only this computer reaches an IP address; 0.0.0.0 and :: are reached by everybody."""
    parsed = ip_address(address.partition("%")[0])
    if isinstance(parsed, IPv6Address) and parsed.ipv4_mapped is not None:
        parsed = parsed.ipv4_mapped
    return parsed.is_loopback
