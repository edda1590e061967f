"""A server's view of its clients: who they are, their associations (association groups, [MS-RPCE] 3.3.1.1.1) with the
context handles in their scope (3.3.1.4.1), their calls in flight, and the limits.

No I/O. Connections join and leave an association. When the last one leaves, its context handles are run down.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from uuid import UUID

from postroad.errors import RpcFault
from postroad.rpc.constants import AuthLevel, FaultStatus
from postroad.rpc.interface import Interface, Operation
from postroad.rpc.ndr import NULL_HANDLE, ContextHandle, Format, Handle
from postroad.rpc.security import Provider, SecurityContext
from postroad.security.users import User

if TYPE_CHECKING:
    from postroad.rpc.server_connection import ServerConnection

_log = logging.getLogger(__name__)

Kind = TypeVar("Kind")
Out = TypeVar("Out")
Rundown = Callable[[Any], None]


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


# Who makes a call, and whether it may use what another caller has opened.


@dataclass(frozen=True, slots=True)
class Caller:
    """What the server knows of a client. Each security context of a connection has one; calls share it."""

    address: str = ""
    user: str | None = None  # the authenticated name; None for an anonymous client
    level: int = AuthLevel.NONE
    association: int = 0
    account: User | None = None  # of `user`, if it is not a user of the configuration

    def may_use(self, owner: Caller) -> bool:
        """Whether this caller may use what `owner` opened: it must be the same user, at no lower level. Callers without
        a name are told apart by their address."""
        if self is owner:
            return True
        if self.user is None:
            return owner.user is None and self.address == owner.address
        return self.user == owner.user and self.level >= owner.level


@dataclass(slots=True)
class Context:
    """The content of a handle: the IDL's type name, the server's object, its owner, and the rundown for a client that
    never closes it."""

    kind: str
    value: object
    owner: Caller
    rundown: Rundown | None


class Association:
    """A client's connections to this server, and the context handles that they share.

    `users` are the users who have called on the connection that created it (None: without a name). They may join with
    further connections. A handle belongs to the user who opened it.
    """

    def __init__(self, identifier: int, address: str, max_handles: int, new_octets: Callable[[], bytes]) -> None:
        self.identifier = identifier
        self.address = address
        self.connections: set[object] = set()
        self.users: set[str | None] = set()
        self.contexts: dict[Handle, Context] = {}
        self.ended = False
        self._max_handles = max_handles
        self._new_octets = new_octets

    def open(self, kind: str, value: object, owner: Caller, rundown: Rundown | None = None) -> Handle:
        """Opens a new handle for `value`. If the client is already gone, runs `value` down at once."""
        handle = Handle(0, self._new_octets())
        context = Context(kind, value, owner, rundown)
        if self.ended:
            _run_down(context)
            return handle
        if len(self.contexts) >= self._max_handles:
            _run_down(context)
            raise RpcFault(FaultStatus.NCA_OUT_OF_MEMORY, f"must hold at most {self._max_handles} context handles")
        self.contexts[handle] = context
        return handle

    def find(self, handle: Handle, kind: type[Kind]) -> Kind:
        """Returns the value of a handle. A null handle, another caller's handle, or one of another class is a fault."""
        context = self.contexts.get(handle)
        if context is None or not isinstance(context.value, kind):
            raise RpcFault(FaultStatus.NCA_CONTEXT_MISMATCH, "there is no such context handle")
        return context.value

    def close(self, handle: Handle) -> Handle:
        """Removes a handle without a rundown, and returns the null handle for the answer."""
        self.contexts.pop(handle, None)
        return NULL_HANDLE

    def check(self, expected: ContextHandle, handle: Handle, caller: Caller) -> None:
        """[MS-RPCE] 3.1.1.5.3.3.1.1: the handle must belong to this association and have the type that the call
        expects. Another caller's handle gets the same answer as one that was never opened."""
        if handle == NULL_HANDLE:
            if expected.strict:
                raise RpcFault(FaultStatus.IN_NULL_CONTEXT, "the context handle must not be null")
            return
        context = self.contexts.get(handle)
        if context is None or not caller.may_use(context.owner):
            raise RpcFault(FaultStatus.NCA_CONTEXT_MISMATCH, "there is no such context handle")
        if context.kind != expected.kind:
            raise RpcFault(
                FaultStatus.NCA_CONTEXT_MISMATCH, f"the handle must be a {expected.kind}, got a {context.kind}"
            )

    def end(self) -> None:
        """Ends the association: its last connection is gone, [MS-RPCE] 3.3.3.7.1."""
        self.ended = True
        contexts, self.contexts = self.contexts, {}
        for context in contexts.values():
            _run_down(context)


def _run_down(context: Context) -> None:
    if context.rundown is None:
        return
    try:
        context.rundown(context.value)
    except Exception:  # a failed rundown must not stop the others
        _log.exception("context handle rundown failed", extra={"type": context.kind})


class Associations:
    """[MS-RPCE] 3.3.1.1.5 Table of Associations. `random` gives 32 bits, `new_octets` 16 octets that no one can
    guess."""

    def __init__(self, random: Callable[[], int], new_octets: Callable[[], bytes], max_handles: int) -> None:
        self._random = random
        self._new_octets = new_octets
        self._max_handles = max_handles
        self._table: dict[int, Association] = {}

    def __len__(self) -> int:
        return len(self._table)

    def join(self, identifier: int, address: str, connection: object) -> Association | None:
        """Returns the association that a bind asks for; for id 0, a new one. None if this client may not join it.

        [MS-RPCE] 3.3.1.5.7: the connection must come from the address that created the association. It joins once
        `admit` knows the caller.
        """
        if identifier:
            found = self._table.get(identifier)
            return found if found is not None and found.address == address else None
        found = Association(self._new_identifier(), address, self._max_handles, self._new_octets)
        self._table[found.identifier] = found
        found.connections.add(connection)
        return found

    def admit(self, association: Association, connection: object, user: str | None) -> bool:
        """Whether the user may call in the association on this connection.

        Without this check, a stranger who guesses the association's id could delay its rundown and use up its
        handles.
        """
        if connection not in association.connections:
            if association.ended or user not in association.users:
                return False
            association.connections.add(connection)
        association.users.add(user)
        return True

    def leave(self, association: Association, connection: object) -> None:
        association.connections.discard(connection)
        if not association.connections and self._table.pop(association.identifier, None) is not None:
            association.end()

    def _new_identifier(self) -> int:
        while True:
            found = self._random() & 0xFFFFFFFF
            if found and found not in self._table:
                return found


# Calls


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

    @property
    def given(self) -> Out | Later[Out]:
        """The reply if it is there already, else this object."""
        return self._given[0] if self._given else self

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
