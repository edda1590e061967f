"""Associations (association groups) and the context handles in their scope, [MS-RPCE] 3.3.1.1.1 and 3.3.1.4.1.

No I/O. Connections join and leave an association. When the last one leaves, its context handles are run down.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar
from uuid import UUID

from postroad.errors import RpcFault
from postroad.rpc.constants import AuthLevel, ContextResult, FaultStatus, ProviderReason
from postroad.rpc.interface import Interface
from postroad.rpc.ndr import NULL_HANDLE, ContextHandle, Format, Handle
from postroad.rpc.pdu import NDR, NDR64, NO_SYNTAX, ContextAnswer, PresentationContext, SyntaxId, features_of

# Presentation contexts: the interface and transfer syntax of each context id, [MS-RPCE] 3.3.1.5.6.


MAX_CONTEXTS: Final = 256  # for one connection; [MS-RPCE] 3.3.3.5.5 lets a server hold 4000 for each interface
FEATURES: Final = 0x03  # security context multiplexing, and keeping the connection after an orphaned PDU
_PREFERENCE: Final = (NDR, NDR64)  # NDR first: it needs fewer octets


@dataclass(frozen=True, slots=True)
class Presentation:
    abstract: SyntaxId
    transfer: SyntaxId
    interface: Interface

    layout: Format


class Presentations:
    """The negotiated contexts of one connection."""

    def __init__(self, interfaces: Mapping[UUID, Interface]) -> None:
        self._interfaces = interfaces
        self._table: dict[int, Presentation] = {}

    def get(self, context_id: int) -> Presentation | None:
        return self._table.get(context_id)

    @property
    def full(self) -> bool:
        return len(self._table) > MAX_CONTEXTS

    def negotiate(self, proposed: tuple[PresentationContext, ...]) -> tuple[ContextAnswer, ...]:
        """Returns one answer for each proposal, in order. Accepts one transfer syntax for each interface."""
        wanted: dict[SyntaxId, set[SyntaxId]] = {}
        for context in proposed:
            wanted.setdefault(context.abstract, set()).update(context.transfers)
        best = {
            abstract: next((each for each in _PREFERENCE if each in transfers), None)
            for abstract, transfers in wanted.items()
        }
        taken: set[SyntaxId] = set()
        return tuple([self._answer(context, best[context.abstract], taken) for context in proposed])

    def _answer(self, context: PresentationContext, transfer: SyntaxId | None, taken: set[SyntaxId]) -> ContextAnswer:
        features = features_of(context.transfers[0]) if len(context.transfers) == 1 else None
        if features is not None:
            return ContextAnswer(ContextResult.NEGOTIATE_ACK, features & FEATURES, NO_SYNTAX)
        abstract = context.abstract
        interface = self._interfaces.get(abstract.uuid)
        # The major versions must be equal, and the client's minor version at most ours: [C706] 6.1.2.
        if interface is None or abstract.major != interface.version[0] or abstract.minor > interface.version[1]:
            return _rejected(ProviderReason.ABSTRACT_SYNTAX_NOT_SUPPORTED)
        if transfer is None or transfer not in context.transfers or abstract in taken:
            return _rejected(ProviderReason.PROPOSED_TRANSFER_SYNTAXES_NOT_SUPPORTED)
        taken.add(abstract)
        self._table[context.context_id] = Presentation(
            abstract, transfer, interface, Format.NDR if transfer == NDR else Format.NDR64
        )
        return ContextAnswer(ContextResult.ACCEPTANCE, 0, transfer)


def _rejected(reason: ProviderReason) -> ContextAnswer:
    return ContextAnswer(ContextResult.PROVIDER_REJECTION, reason, NO_SYNTAX)


# Who makes a call, and whether it may use what another caller has opened.


@dataclass(frozen=True, slots=True)
class Caller:
    """What the server knows of a client. Each security context of a connection has one; calls share it."""

    address: str = ""
    user: str | None = None  # the authenticated name; None for an anonymous client
    level: int = AuthLevel.NONE
    association: int = 0

    def may_use(self, owner: Caller) -> bool:
        """Whether this caller may use what `owner` opened: it must be the same user, at no lower level. Callers without
        a name are told apart by their address."""
        if self is owner:
            return True
        if self.user is None:
            return owner.user is None and self.address == owner.address
        return self.user == owner.user and self.level >= owner.level


_log = logging.getLogger(__name__)

Kind = TypeVar("Kind")
Rundown = Callable[[Any], None]


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
        if not handle:
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
