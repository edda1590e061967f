"""NDR structures, unions and pointers, [C706] 14.3.5 to 14.3.12, [MS-RPCE] 2.2.5.3.4 and 2.2.5.3.5.

A structure is a frozen dataclass whose members carry their types: `size: Annotated[int, ulong]`.
"""

from __future__ import annotations

import struct as octets
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import IntEnum
from operator import attrgetter
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from postroad.errors import LocalProtocolError, RemoteProtocolError
from postroad.rpc.ndr.base import Enumeration, Integer, Item, NdrType
from postroad.rpc.ndr.octets import FORMATS, Expression, Format, Reader, Scope, Writer


class _Run:
    """The members at the start of a structure that have fixed places: one `struct` format covers all of them."""

    __slots__ = ("forms", "members", "names", "special", "values")

    def __init__(self, members: tuple[tuple[str, NdrType], ...], layout: Format) -> None:
        taken = []
        codes = ""
        offset = 0
        for name, member in members:
            code = member.code(layout)
            if code is None:
                break
            gap = -offset % member.alignment(layout)
            codes += f"{gap}x{code}"
            offset += gap + member.least(layout)
            taken.append((name, member))
        self.members = tuple(taken)
        self.names = tuple([name for name, _ in taken])
        self.special = tuple([(n, name, member) for n, (name, member) in enumerate(taken) if not member.plain])
        self.forms = {order: octets.Struct(order + codes) for order in "<>"}
        self.values = attrgetter(*self.names) if len(taken) > 1 else None  # attrgetter of one name gives no tuple


class Structure(NdrType):
    """A structure of named members, in the order of the dataclass `kind`."""

    __slots__ = (
        *("_alignments", "_last", "_least", "_pointing", "_rests", "_runs"),
        *("conformant", "correlated", "deferring", "kind", "members"),
    )

    def __init__(self, kind: type) -> None:
        self.kind = kind
        self.members = members_of(kind)
        self._pointing = tuple([(name, member) for name, member in self.members if member.deferring])
        self.deferring = bool(self._pointing)
        self.correlated = any(member.correlated for _, member in self.members)
        self._last = self.members[-1][1] if self.members else None
        self.conformant = self._last is not None and self._last.conformant
        if any(member.conformant for _, member in self.members[:-1]):
            raise LocalProtocolError(f"{kind.__name__}: only the last member can be a conformant array")
        self._alignments = {
            layout.value: max((member.alignment(layout) for _, member in self.members), default=1) for layout in FORMATS
        }
        self._least = {layout: sum(member.least(layout) for _, member in self.members) for layout in FORMATS}
        self._runs = {layout.value: _Run(self.members, layout) for layout in FORMATS}
        self._rests = {size: self.members[len(run.members) :] for size, run in self._runs.items()}

    def alignment(self, layout: Format) -> int:
        return self._alignments[layout.value]

    def least(self, layout: Format) -> int:
        return self._least[layout]

    # Writing

    def encode_max_count(self, writer: Writer, value: Any, scope: Scope) -> None:
        if self.conformant and self._last is not None:
            inner = Scope(value, scope)
            self._last.encode_max_count(writer, getattr(value, self.members[-1][0]), inner)

    def encode(self, writer: Writer, value: Any, scope: Scope) -> None:
        if not isinstance(value, self.kind):
            raise LocalProtocolError(f"must be a {self.kind.__name__}, got {value!r}")
        inner = Scope(value, scope) if self.correlated else scope
        alignment = self._alignments[writer.word]
        writer.align(alignment)
        self._encode_run(writer, value, inner)
        for name, member in self._rests[writer.word]:
            if member.conformant and writer.wide:
                writer.align(alignment)
            member.encode(writer, getattr(value, name), inner)
        if writer.wide and not self.conformant:
            writer.align(alignment)  # [MS-RPCE] 2.2.5.3.4.1: the size is a multiple of the alignment

    def _encode_run(self, writer: Writer, value: Any, inner: Scope) -> None:
        run = self._runs[writer.word]
        if run.values is None:
            for name, member in run.members:
                member.encode(writer, getattr(value, name), inner)
            return
        items = list(run.values(value))
        for n, _, member in run.special:
            items[n] = member.dump(writer, items[n], inner)
        try:
            writer.data += run.forms["<"].pack(*items)
        except octets.error:
            for (name, member), item in zip(run.members, items, strict=True):  # find the member that is wrong
                if member.plain and not (isinstance(item, int) and member.fits(item)):
                    raise LocalProtocolError(f"{self.kind.__name__}.{name} must not be {item!r}") from None
            raise

    def encode_deferred(self, writer: Writer, value: Any, scope: Scope) -> None:
        if not self.deferring:
            return
        inner = Scope(value, scope) if self.correlated else scope
        for name, member in self._pointing:
            member.encode_deferred(writer, getattr(value, name), inner)

    # Reading

    def decode_max_count(self, reader: Reader) -> int:
        return self._last.decode_max_count(reader) if self._last is not None and self.conformant else 0

    def decode(self, reader: Reader, scope: Scope, max_count: int | None = None) -> Any:
        if max_count is None and self.conformant:
            max_count = self.decode_max_count(reader)
        alignment = self._alignments[reader.word]
        reader.align(alignment)
        run = self._runs[reader.word]
        values = list(reader.unpack(run.forms[reader.order]))
        for n, _, member in run.special:
            values[n] = member.load(reader, values[n])
        rest = self._rests[reader.word]
        if not rest and not self.deferring:
            if reader.wide:
                reader.align(alignment)
            return self.kind(*values)
        states = dict(zip(run.names, values, strict=True))
        inner = Scope(states, scope)
        for name, member in rest:
            if member.conformant:
                if reader.wide:
                    reader.align(alignment)
                states[name] = member.decode(reader, inner, max_count)  # type: ignore[call-arg]
            else:
                states[name] = member.decode(reader, inner)
        if reader.wide and not self.conformant:
            reader.align(alignment)
        return inner if self.deferring else self._built(reader, inner)

    def finish(self, reader: Reader, state: Any, scope: Scope) -> Any:
        if not self.deferring:
            return state
        states = state.source
        for name, member in self._pointing:
            states[name] = member.finish(reader, states[name], state)
        return self._built(reader, state)

    def _built(self, reader: Reader, inner: Scope) -> Any:
        if inner.checks:
            inner.settle(reader.offset)
        assert isinstance(inner.source, dict)
        return self.kind(*inner.source.values())  # in the order of the members


class Pointer(Item):
    """A pointer inside a construction, or a parameter that may be null. None is null. Two `full` pointers may share a
    referent.

    A `ref` parameter has no octets in the stream. Leave it out of the parameter's type.
    """

    __slots__ = ("_full", "_size_is", "correlated", "target")

    deferring = True

    def __init__(self, target: NdrType, *, full: bool) -> None:
        self.target = target
        self._full = full
        self.correlated = target.correlated
        size_is = getattr(target, "size_is", None)
        self._size_is = size_is if isinstance(size_is, str) else None

    def code(self, layout: Format) -> str:
        return "I" if layout is Format.NDR else "Q"

    def dump(self, writer: Writer, value: Any, scope: Scope) -> int:
        if value is not None:
            return writer.referent()
        if self._is_missing(scope):
            raise LocalProtocolError("the pointer to an array with elements must not be null")
        return 0

    def encode_deferred(self, writer: Writer, value: Any, scope: Scope) -> None:
        if value is not None:
            write(writer, self.target, value, scope)

    def finish(self, reader: Reader, state: Any, scope: Scope) -> Any:
        if not state:
            if self._is_missing(scope):
                raise RemoteProtocolError("the pointer to an array with elements must not be null", reader.offset)
            return None
        if not self._full:
            return read(reader, self.target, scope)
        if state not in reader.full:
            reader.full[state] = (self.target, read(reader, self.target, scope))
        target, value = reader.full[state]
        if target is not self.target:
            raise RemoteProtocolError("two pointers to one referent must have one type", reader.offset)
        return value

    def _is_missing(self, scope: Scope) -> bool:
        """Whether a conformant array is null although its size is above 0, [MS-RPCE] 3.1.1.5.3.3.1.2."""
        return self._size_is is not None and (scope.evaluate(self._size_is) or 0) > 0


class Union(NdrType):
    """`[switch_is(...)] union`. Its value is the value of the selected arm, None for an empty arm. The tag is repeated
    inside the union."""

    __slots__ = ("_alignments", "arms", "deferring", "switch_is", "tag")

    correlated = True

    def __init__(self, tag: Integer | Enumeration, arms: Mapping[int, NdrType | None], switch_is: Expression) -> None:
        self.tag = tag
        self.arms = dict(arms)
        self.switch_is = switch_is
        present = [arm for arm in self.arms.values() if arm is not None]
        if any(arm.conformant for arm in present):
            raise LocalProtocolError("a union's arm must not be a conformant array")
        self.deferring = any(arm.deferring for arm in present)
        self._alignments = {layout: max((arm.alignment(layout) for arm in present), default=1) for layout in FORMATS}

    def alignment(self, layout: Format) -> int:
        return max(self._alignments[layout], self.tag.alignment(layout))

    def least(self, layout: Format) -> int:
        return self.tag.least(layout)

    def _arm(self, tag: int | None, error: type[LocalProtocolError] | type[RemoteProtocolError]) -> NdrType | None:
        if tag is None or tag not in self.arms:
            raise error(f"{tag} selects no arm of the union")
        return self.arms[tag]

    def encode(self, writer: Writer, value: Any, scope: Scope) -> None:
        tag = scope.evaluate(self.switch_is)
        arm = self._arm(tag, LocalProtocolError)
        if writer.wide:
            writer.align(self._alignments[Format.NDR64])  # [MS-RPCE] 2.2.5.3.4.4
        self.tag.encode(writer, tag, scope)
        if writer.wide:
            writer.align(self._alignments[Format.NDR64])
        if arm is not None:
            arm.encode(writer, value, scope)

    def encode_deferred(self, writer: Writer, value: Any, scope: Scope) -> None:
        if self.deferring:
            arm = self._arm(scope.evaluate(self.switch_is), LocalProtocolError)
            if arm is not None and arm.deferring:
                arm.encode_deferred(writer, value, scope)

    def decode(self, reader: Reader, scope: Scope) -> Any:
        if reader.wide:
            reader.align(self._alignments[Format.NDR64])
        tag = self.tag.decode(reader, scope)
        scope.expect(self.switch_is, tag, "the union's tag", reader.offset)
        if reader.wide:
            reader.align(self._alignments[Format.NDR64])
        arm = self._arm(tag, RemoteProtocolError)
        state = None if arm is None else arm.decode(reader, scope)
        return (tag, state) if self.deferring else state

    def finish(self, reader: Reader, state: Any, scope: Scope) -> Any:
        if not self.deferring:
            return state
        tag, inner = state
        arm = self._arm(tag, RemoteProtocolError)
        return arm.finish(reader, inner, scope) if arm is not None and arm.deferring else inner


def write(writer: Writer, kind: NdrType, value: Any, scope: Scope) -> None:
    """Writes one whole construction: its maximum count, its value in place, then its referents."""
    if kind.conformant:
        kind.encode_max_count(writer, value, scope)
    kind.encode(writer, value, scope)
    if kind.deferring:
        kind.encode_deferred(writer, value, scope)


def read(reader: Reader, kind: NdrType, scope: Scope) -> Any:
    state = kind.decode(reader, scope)
    return kind.finish(reader, state, scope) if kind.deferring else state


def unique(target: NdrType) -> Pointer:
    return Pointer(target, full=False)


def full(target: NdrType) -> Pointer:
    """`[ptr]`"""
    return Pointer(target, full=True)


def union(tag: Integer | Enumeration, arms: Mapping[int, NdrType | None], *, switch_is: Expression) -> Union:
    return Union(tag, arms, switch_is)


_STRUCTURES: dict[type, Structure] = {}


def struct(kind: type) -> Structure:
    """The structure that a dataclass describes. Its hints must resolve in its own module."""
    found = _STRUCTURES.get(kind)
    if found is None:
        found = _STRUCTURES[kind] = Structure(kind)
    return found


def members_of(kind: type) -> tuple[tuple[str, NdrType], ...]:
    """Returns (name, type) for each member: the type in `Annotated`, or the structure or enumeration of the hint."""
    if not is_dataclass(kind):
        raise LocalProtocolError(f"{kind.__name__} must be a dataclass")
    hints = get_type_hints(kind, include_extras=True)
    return tuple((field.name, _type_of(kind, field.name, hints[field.name])) for field in fields(kind))


def _type_of(kind: type, name: str, hint: Any) -> NdrType:
    if get_origin(hint) is Annotated:
        found = [extra for extra in get_args(hint)[1:] if isinstance(extra, NdrType)]
        if found:
            return found[-1]
    if isinstance(hint, type) and is_dataclass(hint):
        return struct(hint)
    if isinstance(hint, type) and issubclass(hint, IntEnum):
        return Enumeration(hint)
    raise LocalProtocolError(f"{kind.__name__}.{name} must have an NDR type")
