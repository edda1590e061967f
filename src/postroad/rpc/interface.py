"""Interface definitions: what an interface's operations take and give, written once for client and server stubs.

An operation's request is a frozen dataclass of its `[in]` parameters, its reply one of its `[out]` parameters and at
last its return value; `[in, out]` parameters stand in both. No I/O here, and no call.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from uuid import UUID

from postroad.errors import LocalProtocolError
from postroad.rpc.ndr import ContextHandle, Format, Handle, Reader, Scope, Writer, members_of, read, write

In = TypeVar("In")
Out = TypeVar("Out")
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Nothing:
    """No parameters, or nothing returned."""


class Parameters(Generic[Value]):
    """The parameters of one direction: each is a construction of its own, so its referents follow it directly."""

    __slots__ = ("handles", "kind", "members")

    def __init__(self, kind: type[Value]) -> None:
        self.kind = kind
        self.members = members_of(kind)
        self.handles = tuple((name, member) for name, member in self.members if isinstance(member, ContextHandle))

    def encode(self, value: Value, layout: Format, request: object = None) -> bytes:
        """The stub data. `request` is where a reply's counts are found that the request alone holds."""
        if not isinstance(value, self.kind):
            raise LocalProtocolError(f"{value!r} stands where {self.kind.__name__} belongs")
        writer = Writer(layout)
        scope = Scope(value, Scope(request))
        for name, member in self.members:
            write(writer, member, getattr(value, name), scope)
        return bytes(writer.data)

    def decode(self, stub: bytes, layout: Format, order: str = "<", request: object = None) -> Value:
        """The parameters; RemoteProtocolError for a stub that does not hold them."""
        return self.decode_from(Reader(stub, layout, order), request)

    def decode_from(self, reader: Reader, request: object = None) -> Value:
        """Leaves the reader behind the last parameter: padding and a verification trailer may follow."""
        states: dict[str, Any] = {}
        scope = Scope(states, Scope(request))
        for name, member in self.members:
            states[name] = read(reader, member, scope)
        if scope.checks:
            scope.settle(reader.offset)
        return self.kind(*states.values())

    def context_handles(self, value: Value) -> list[tuple[ContextHandle, Handle]]:
        """The context handles among the parameters, each with its type."""
        return [(member, getattr(value, name)) for name, member in self.handles]


class Operation(Generic[In, Out]):
    """One method of an interface."""

    __slots__ = ("interface", "name", "opnum", "reply", "request")

    interface: Interface  # which it belongs to; an operation is of one interface

    def __init__(
        self, opnum: int, name: str, request: type[In] | Parameters[In], reply: type[Out] | Parameters[Out]
    ) -> None:
        """`Parameters` of its own where an operation has a faster codec than its members."""
        self.opnum = opnum
        self.name = name
        self.request = request if isinstance(request, Parameters) else Parameters(request)
        self.reply = reply if isinstance(reply, Parameters) else Parameters(reply)

    def __repr__(self) -> str:
        return f"<{self.name} (opnum {self.opnum})>"


class Interface:
    """A UUID, a version and the operations by their numbers. A number without an operation is out of range."""

    __slots__ = ("name", "operations", "uuid", "version")

    def __init__(self, name: str, uuid: str, version: tuple[int, int], *operations: Operation[Any, Any]) -> None:
        self.name = name
        self.uuid = UUID(uuid)
        self.version = version
        self.operations = {operation.opnum: operation for operation in operations}
        if len(self.operations) != len(operations):
            raise LocalProtocolError(f"{name} has two operations of one number")
        for operation in operations:
            operation.interface = self

    def __repr__(self) -> str:
        return f"<{self.name} {self.uuid} {self.version[0]}.{self.version[1]}>"
