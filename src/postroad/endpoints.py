"""A host and a port as people and URLs write them."""

from __future__ import annotations


def endpoint(host: str, port: int | None) -> str:
    """`127.0.0.1:8180`, `alpha:1801`, `[::1]:8180`"""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
