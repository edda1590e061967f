"""What every decoder of bodies keeps to. Bodies come from strangers: a small one must not become a large answer."""

from __future__ import annotations

from postroad.errors import RemoteProtocolError

LIMIT = 1 << 20  # characters of readable text that a caller gets without asking for less
MOST_VALUES = 100_000  # in one body: elements, attributes, fields, numbers
DEEPEST = 64  # levels
MOST_HEADERS = 1000
MOST_BYTES = 8 << 20  # that compressed or binary XML may become


def check_values(count: int) -> None:
    if count > MOST_VALUES:
        raise RemoteProtocolError(f"the body must have at most {MOST_VALUES:,} values")


def check_depth(depth: int) -> None:
    if depth > DEEPEST:
        raise RemoteProtocolError(f"the body must not be nested more than {DEEPEST} times")
