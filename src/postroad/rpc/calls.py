"""A server's view of its clients' calls: the endpoint they use, the calls in flight, and the limits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from uuid import UUID

from postroad.rpc.association import Association, Associations, Caller, Rundown
from postroad.rpc.constants import AuthLevel
from postroad.rpc.interface import Interface, Operation
from postroad.rpc.ndr import Format, Handle
from postroad.rpc.security import Provider, SecurityContext

if TYPE_CHECKING:
    from postroad.rpc.server_connection import ServerConnection

Kind = TypeVar("Kind")
Out = TypeVar("Out")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much memory and time clients can make the server spend."""

    max_fragment: int = 0xFFF8
    max_request: int = 4 << 20  # [MS-RPCE] 3.3.3.5.4
    max_gathering: int = 64 << 20  # unfinished requests of all connections together
    max_calls: int = 1024  # in flight on one connection
    max_handles: int = 65536  # open in one association
    max_connections: int = 4096
    max_half_open: int = 512  # connections that have not bound yet
    max_unsent: int = 64 << 20  # octets for one connection that its client has not read
    bind_timeout_s: float = 30.0
    fragment_timeout_s: float = 60.0  # from a request's first fragment to its last


@dataclass(slots=True)
class Endpoint:
    """What all connections of one server share: interfaces, associations and security providers."""

    associations: Associations
    limits: Limits = field(default_factory=Limits)
    interfaces: dict[UUID, Interface] = field(default_factory=dict)
    providers: Mapping[int, Provider] = field(default_factory=dict)
    minimum_level: int = AuthLevel.CONNECT  # for every call of an authenticated client
    gathering: int = 0  # octets of unfinished requests
    calls_in: int = 0  # since the start, like the counters below
    pdus_in: int = 0
    pdus_out: int = 0


@dataclass(slots=True, eq=False)
class Call:
    """One call in flight: the decoded request, its caller, and the context handles of the client's association."""

    connection: ServerConnection
    call_id: int
    context_id: int
    operation: Operation[Any, Any]
    request: Any
    layout: Format
    security: SecurityContext | None
    caller: Caller

    @property
    def address(self) -> str:
        """The client's address."""
        return self.connection.address

    @property
    def local_address(self) -> str:
        """The local address that the client called."""
        return self.connection.local[0]

    @property
    def identity(self) -> str | None:
        """The client's authenticated name; None for an anonymous client."""
        return self.caller.user

    @property
    def auth_level(self) -> AuthLevel:
        return AuthLevel(self.caller.level)

    @property
    def association(self) -> Association:
        association = self.connection.association
        assert association is not None
        return association

    def open_context(self, kind: str, value: object, rundown: Rundown | None = None) -> Handle:
        """Opens a context handle for `value`. `rundown(value)` runs if the client leaves without closing it."""
        return self.association.open(kind, value, self.caller, rundown)

    def context(self, handle: Handle, kind: type[Kind]) -> Kind:
        """The value of a context handle, after a check of its IDL type and its owner. Null is a fault here."""
        return self.association.find(handle, kind)

    def close_context(self, handle: Handle) -> Handle:
        """Removes the handle without a rundown, and returns the null handle for the answer."""
        return self.association.close(handle)


class Later(Generic[Out]):
    """A reply that the handler gives later, from a callback, without a task. A client cannot cancel it: the work is
    already done, and only the reply waits."""

    __slots__ = ("_given", "_then")

    def __init__(self) -> None:
        self._given: list[Out] = []
        self._then: Callable[[Out], None] | None = None

    def give(self, reply: Out) -> None:
        """Gives the reply. Call it once."""
        if self._then is None:
            self._given.append(reply)
        else:
            self._then(reply)

    def then(self, take: Callable[[Out], None]) -> None:
        """Calls `take` with the reply as soon as it is there."""
        self._then = take
        for reply in self._given:
            take(reply)


@dataclass(slots=True)
class CallReceived:
    call: Call


@dataclass(frozen=True, slots=True)
class CallCancelled:
    """The client cancels the call. With `orphaned`, it does not want the answer either."""

    call: Call
    orphaned: bool


@dataclass(frozen=True, slots=True)
class LoginRefused:
    """A client failed to authenticate. `who` is the name that it gave, if it gave one."""

    who: str | None


Event = CallReceived | CallCancelled | LoginRefused
