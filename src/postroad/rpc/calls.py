"""What a server knows of its clients' calls: the endpoint that they come to, the calls in flight, and the limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from postroad.rpc.association import Association, Associations, Rundown
from postroad.rpc.caller import Caller
from postroad.rpc.constants import AuthLevel
from postroad.rpc.interface import Interface, Operation
from postroad.rpc.ndr import Format, Handle
from postroad.rpc.security import Provider, SecurityContext

if TYPE_CHECKING:
    from postroad.rpc.server_connection import ServerConnection

Kind = TypeVar("Kind")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What clients can make the server hold. Each is a bound on memory or on time."""

    max_fragment: int = 0xFFF8
    max_request: int = 4 << 20  # [MS-RPCE] 3.3.3.5.4
    max_gathering: int = 64 << 20  # unfinished requests of all connections together
    max_calls: int = 1024  # in flight on one connection
    max_handles: int = 65536  # open in one association
    max_connections: int = 4096
    max_half_open: int = 512  # connected, and no bind yet
    max_unsent: int = 64 << 20  # written to one connection, and not taken by the client
    bind_timeout_s: float = 30.0
    fragment_timeout_s: float = 60.0  # from a request's first fragment to its last


@dataclass(slots=True)
class Endpoint:
    """What the connections of one server share: its interfaces, its associations and its security providers."""

    associations: Associations
    limits: Limits = field(default_factory=Limits)
    interfaces: dict[UUID, Interface] = field(default_factory=dict)
    providers: Mapping[int, Provider] = field(default_factory=dict)
    minimum_level: int = AuthLevel.CONNECT  # of every call of a client that authenticates
    gathering: int = 0  # octets of unfinished requests
    calls_in: int = 0  # since the start, as are the others
    pdus_in: int = 0
    pdus_out: int = 0


class Call:
    """One call in flight: the decoded request, who asks, and the context handles of the client's association."""

    __slots__ = ("call_id", "caller", "connection", "context_id", "layout", "operation", "request", "security")

    def __init__(
        self,
        connection: ServerConnection,
        call_id: int,
        context_id: int,
        operation: Operation[Any, Any],
        request: Any,
        layout: Format,
        security: SecurityContext | None,
        caller: Caller,
    ) -> None:
        self.connection = connection
        self.call_id = call_id
        self.context_id = context_id
        self.operation = operation
        self.request = request
        self.layout = layout
        self.security = security
        self.caller = caller

    @property
    def address(self) -> str:
        """Where the client is."""
        return self.connection.address

    @property
    def local_address(self) -> str:
        """Which of our own addresses the client called."""
        return self.connection.local[0]

    @property
    def identity(self) -> str | None:
        """Who the client has proved to be; None for one that did not say."""
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
        """A new context handle for `value`; `rundown(value)` is called if the client goes without closing it."""
        return self.association.open(kind, value, self.caller, rundown)

    def context(self, handle: Handle, kind: type[Kind]) -> Kind:
        """What a context handle stands for. Its IDL type and its owner have been checked; null is a fault here."""
        return self.association.find(handle, kind)

    def close_context(self, handle: Handle) -> Handle:
        """Forgets the handle without a rundown; gives the null handle to answer with."""
        return self.association.close(handle)


@dataclass(frozen=True, slots=True)
class CallReceived:
    call: Call


@dataclass(frozen=True, slots=True)
class CallCancelled:
    """The client does not want the call any more; with `orphaned` it does not want the answer either."""

    call: Call
    orphaned: bool


@dataclass(frozen=True, slots=True)
class LoginRefused:
    """A client did not prove who it is. `who` is the name that it gave, where it got as far as that."""

    who: str | None


Event = CallReceived | CallCancelled | LoginRefused
