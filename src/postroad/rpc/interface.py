"""Interface definitions: the parameters and results of each operation, defined once for client and server stubs.

An operation's request is a dataclass of its `[in]` parameters. Its reply is a dataclass of its `[out]` parameters and,
last, its return value. `[in, out]` parameters are in both. Nothing here does I/O or makes a call.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import error as StructError  # noqa: N812
from typing import Any, Generic, TypeVar
from uuid import UUID

from postroad.errors import LocalProtocolError
from postroad.rpc.ndr import ContextHandle, Format, Reader, Scope, Writer, members_of, read, write
from postroad.rpc.ndr.octets import FORMATS

In = TypeVar("In")
Out = TypeVar("Out")
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Nothing:
    """No parameters, or nothing returned."""


class Parameters(Generic[Value]):
    """The parameters of one direction. Each is a separate construction, so its referents follow it directly."""

    __slots__ = ("handles", "kind", "members")

    def __init__(self, kind: type[Value]) -> None:
        self.kind = kind
        self.members = members_of(kind)
        # The context handles among the parameters, each with its type.
        self.handles = tuple((name, member) for name, member in self.members if isinstance(member, ContextHandle))

    def encode(self, value: Value, layout: Format, request: object = None) -> bytes:
        """Returns the stub data. A reply may need counts that only its `request` contains."""
        if not isinstance(value, self.kind):
            raise LocalProtocolError(f"must be {self.kind.__name__}, got {value!r}")
        writer = Writer(layout)
        scope = Scope(value, Scope(request))
        for name, member in self.members:
            write(writer, member, getattr(value, name), scope)
        return bytes(writer.data)

    def decode(self, stub: bytes, layout: Format, order: str = "<", request: object = None) -> Value:
        """Returns the parameters. Stub data that does not contain them is a RemoteProtocolError."""
        return self.decode_from(Reader(stub, layout, order), request)

    def decode_from(self, reader: Reader, request: object = None) -> Value:
        """Reads the parameters and stops after the last one: padding and a verification trailer may follow."""
        states: dict[str, Any] = {}
        scope = Scope(states, Scope(request))
        for name, member in self.members:
            states[name] = read(reader, member, scope)
        if scope.checks:
            scope.settle(reader.offset)
        return self.kind(*states.values())


class FastParameters(Parameters[Value]):
    """Encodes and decodes in one step if it can, else member by member. Octets and values are the same."""

    __slots__ = ()

    def encode(self, value: Value, layout: Format, request: object = None) -> bytes:
        try:
            octets = self.pack(value, layout)
        except StructError:  # a number is too large; the definitions say which one
            octets = None
        return super().encode(value, layout, request) if octets is None else octets

    def decode_from(self, reader: Reader, request: object = None) -> Value:
        value = self.unpack(reader) if reader.order == "<" else None
        return super().decode_from(reader, request) if value is None else value

    def pack(self, value: Value, layout: Format) -> bytes | None:
        raise NotImplementedError

    def unpack(self, reader: Reader) -> Value | None:
        """Reads the value and moves the reader past it. Returns None if the octets have another form."""
        raise NotImplementedError


class Operation(Generic[In, Out]):
    """One method of an interface."""

    __slots__ = ("interface", "name", "opnum", "reply", "request")

    interface: Interface  # set by the interface that it belongs to

    def __init__(
        self, opnum: int, name: str, request: type[In] | Parameters[In], reply: type[Out] | Parameters[Out]
    ) -> None:
        """Takes the operation's own `Parameters` if they have a codec that is faster than member by member."""
        self.opnum = opnum
        self.name = name
        self.request = request if isinstance(request, Parameters) else Parameters(request)
        self.reply = reply if isinstance(reply, Parameters) else Parameters(reply)

    def __repr__(self) -> str:
        return f"<{self.name} (opnum {self.opnum})>"


class Interface:
    """A UUID, a version, and the operations by number. A number without an operation is out of range. `layouts` are the
    transfer syntaxes that it has."""

    __slots__ = ("layouts", "name", "operations", "uuid", "version")

    def __init__(
        self,
        name: str,
        uuid: str,
        version: tuple[int, int],
        *operations: Operation[Any, Any],
        layouts: tuple[Format, ...] = FORMATS,
    ) -> None:
        self.name = name
        self.layouts = layouts
        self.uuid = UUID(uuid)
        self.version = version
        self.operations = {operation.opnum: operation for operation in operations}
        if len(self.operations) != len(operations):
            raise LocalProtocolError(f"{name} must not have two operations with one number")
        for operation in operations:
            operation.interface = self

    def __repr__(self) -> str:
        return f"<{self.name} {self.uuid} {self.version[0]}.{self.version[1]}>"
