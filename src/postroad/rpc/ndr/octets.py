"""Octet streams of NDR and NDR64: alignment, counts, referents, and the scope in which correlated counts are found.

This module knows no types. A stream that is too short raises RemoteProtocolError before anything is allocated.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from struct import Struct
from typing import Any, Final

from postroad.errors import LocalProtocolError, RemoteProtocolError

MAX_COUNT: Final = 0x7FFFFFFF  # [MS-RPCE] 3.1.1.5.3.2.2.1: at most 2**31 - 1 elements in each dimension


class Format(Enum):
    """A transfer syntax. Its value is the size of pointers, counts and offsets."""

    NDR = 4
    NDR64 = 8


FORMATS: Final = tuple(Format)
_ORDERS: Final = ("<", ">")
_WORDS: Final = {
    (size, order, count): Struct(f"{order}{count}{'I' if size == 4 else 'Q'}")
    for size in (4, 8)
    for order in _ORDERS
    for count in (1, 2, 3)
}

Expression = int | str | Callable[["Scope"], int]
MISSING: Final = object()


class Scope:
    """Where `size_is`, `length_is` and `switch_is` find their values: the members of a structure or the parameters of a
    call.

    `source` is the value to write, or the members read so far.
    """

    __slots__ = ("checks", "outer", "source")

    def __init__(self, source: object, outer: Scope | None = None) -> None:
        self.source = source
        self.outer = outer
        self.checks: list[tuple[Expression, int, str]] = []

    def find(self, name: str) -> Any:
        """The value of a member; MISSING if it has not been read yet."""
        source = self.source
        found = source.get(name, MISSING) if isinstance(source, dict) else getattr(source, name, MISSING)
        return self.outer.find(name) if found is MISSING and self.outer is not None else found

    def __getitem__(self, name: str) -> Any:
        found = self.find(name)
        if found is MISSING:
            raise KeyError(name)
        return found

    def evaluate(self, expression: Expression) -> int | None:
        """The value of the expression; None if it names a member that has not been read yet."""
        if isinstance(expression, str):
            found = self.find(expression)
            return found if isinstance(found, int) else None
        if isinstance(expression, int):
            return expression
        try:
            return expression(self)
        except KeyError:
            return None

    def expect(self, expression: Expression, found: int, what: str, offset: int) -> None:
        """Requires that the stream agrees with the correlated member, now or once it is read: [MS-RPCE] 3.1.1.5.3.1."""
        value = self.evaluate(expression)
        if value is None:
            self.checks.append((expression, found, what))
        elif value != found:
            raise RemoteProtocolError(f"{what} must be {value}, from its correlated member, got {found}", offset)

    def settle(self, offset: int) -> None:
        """Checks what had to wait, now that every member is read. Expressions over other members go to the outer
        scope."""
        checks, self.checks = self.checks, []
        for expression, found, what in checks:
            value = self.evaluate(expression)
            if value is not None and value != found:
                raise RemoteProtocolError(f"{what} must be {value}, from its correlated member, got {found}", offset)
            if value is None and self.outer is not None:
                self.outer.checks.append((expression, found, what))


class Reader:
    """Reads one octet stream from its start. Checks every read against its end."""

    __slots__ = ("data", "full", "layout", "offset", "order", "size", "wide", "word")

    def __init__(self, data: bytes, layout: Format = Format.NDR, order: str = "<") -> None:
        self.data = data
        self.layout = layout
        self.wide = layout is Format.NDR64
        self.word = 8 if self.wide else 4  # the size of pointers and counts
        self.order = order
        self.offset = 0
        self.size = len(data)
        self.full: dict[int, tuple[object, Any]] = {}  # (type, value) of full pointers' referents: they may be shared

    @property
    def remaining(self) -> int:
        return self.size - self.offset

    def align(self, alignment: int) -> None:
        """Skips to the next multiple. The content of the gap is ignored, [MS-RPCE] 3.1.1.5.3.2.2.6."""
        self.offset += -self.offset % alignment

    def unpack(self, form: Struct) -> tuple[Any, ...]:
        start = self.offset
        end = start + form.size
        if end > self.size:
            raise RemoteProtocolError(f"must have {form.size} more octets, got {max(self.size - start, 0)}", start)
        self.offset = end
        return form.unpack_from(self.data, start)

    def take(self, size: int) -> bytes:
        start = self.offset
        end = start + size
        if end > self.size:
            raise RemoteProtocolError(f"must have {size} more octets, got {max(self.size - start, 0)}", start)
        self.offset = end
        return self.data[start:end]

    def counts(self, count: int) -> tuple[int, ...]:
        """Reads the maximum counts, offsets and actual counts that follow each other."""
        self.align(self.word)
        found = self.unpack(_WORDS[self.word, self.order, count])
        if max(found) > MAX_COUNT:
            raise RemoteProtocolError(
                f"must have at most {MAX_COUNT} elements, got {max(found)}", self.offset - self.word * count
            )
        return found

    def referent(self) -> int:
        """Reads the representation of a pointer: 0 for null."""
        self.align(self.word)
        return int(self.unpack(_WORDS[self.word, self.order, 1])[0])

    def require(self, count: int, each: int) -> None:
        """Requires that `count` elements of at least `each` octets follow. Call it before you make a list of them."""
        if count * max(each, 1) > self.remaining:
            raise RemoteProtocolError(
                f"{count} elements of {each} octets must follow, got {self.remaining} octets", self.offset
            )


class Writer:
    """Writes one octet stream, little-endian."""

    __slots__ = ("_next_referent", "data", "layout", "wide", "word")

    def __init__(self, layout: Format = Format.NDR) -> None:
        self.data = bytearray()
        self.layout = layout
        self.wide = layout is Format.NDR64
        self.word = 8 if self.wide else 4
        self._next_referent = 0x00020000  # Windows' numbering; any value but 0 would do

    def align(self, alignment: int) -> None:
        gap = -len(self.data) % alignment
        if gap:
            self.data += bytes(gap)

    def counts(self, *values: int) -> None:
        if max(values) > MAX_COUNT:
            raise LocalProtocolError(f"must have at most {MAX_COUNT} elements, got {max(values)}")
        self.align(self.word)
        self.data += _WORDS[self.word, "<", len(values)].pack(*values)

    def referent(self) -> int:
        """Writes the representation of a pointer to the next referent, which is not 0."""
        found = self._next_referent
        self._next_referent += 4
        return found
