"""The client's side of one connection without I/O: binds, requests into fragments, replies out of fragments.

Octets come in, events come out; [MS-RPCE] 3.3.2.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

from postroad.errors import AuthenticationFailed, LocalProtocolError, RemoteProtocolError
from postroad.rpc import pdu as pdus
from postroad.rpc.constants import (
    FEATURES,
    MUST_RECEIVE_FRAGMENT,
    WHOLE,
    AuthType,
    ContextResult,
    PacketFlag,
    PacketType,
    ProviderReason,
    RejectReason,
)
from postroad.rpc.interface import Interface
from postroad.rpc.ndr import Format
from postroad.rpc.pdu import Pdu, PresentationContext, SyntaxId, fragments
from postroad.rpc.security import SecurityContext

MAX_FRAGMENT: Final = 0xFFF8
MAX_REPLY: Final = 64 << 20  # octets that a server can make this client hold for one call
_KEEP_ON_ORPHAN: Final = 0x02


@dataclass(frozen=True, slots=True)
class Bound:
    """The bind or alter_context succeeded, and its interface can be called."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The server refused the bind or the interface. After a refused bind the connection cannot be used."""

    why: str
    offered: bool = True  # whether it has the interface, as far as is known


@dataclass(slots=True)
class Replied:
    call_id: int
    stub: bytes
    order: str


@dataclass(frozen=True, slots=True)
class Faulted:
    call_id: int
    status: int


Event = Bound | Refused | Replied | Faulted


class State(Enum):
    FRESH = auto()
    BINDING = auto()
    BOUND = auto()
    CLOSED = auto()


@dataclass(slots=True)
class _Waiting:
    """An answer that is not complete."""

    parts: list[bytes] = field(default_factory=list)
    size: int = 0


class ClientConnection:
    """Call `bind` first, then `call`. Send `data_to_send` after each of them, and after `receive`."""

    def __init__(
        self,
        *,
        association: int = 0,
        security: SecurityContext | None = None,
        layouts: tuple[Format, ...] = (Format.NDR, Format.NDR64),
    ) -> None:
        """A nonzero `association` joins an existing association of the server, with its context handles."""
        self.state = State.FRESH
        self.association = association
        self.keeps_orphans = False  # the connection outlives an orphaned call
        self.waiting: dict[int, _Waiting | None] = {}  # by call id; None until the first part of the answer comes
        self._security = security
        self._header_sign = security is not None and security.signs
        self._layouts = layouts
        self._framer = pdus.Framer()
        self._out: list[bytes] = []
        self._contexts: dict[Interface, tuple[int, Format]] = {}
        self._binding: Interface | None = None
        self._proposed: tuple[PresentationContext, ...] = ()
        self._next_context = 0
        self._next_call = 1
        self._max_xmit = MUST_RECEIVE_FRAGMENT

    @property
    def has_data(self) -> bool:
        """Whether there are octets to send."""
        return bool(self._out)

    def data_to_send(self) -> bytes:
        out, self._out = self._out, []
        return out[0] if len(out) == 1 else b"".join(out)

    @property
    def closed(self) -> bool:
        return self.state is State.CLOSED

    # Binds

    def bind(self, interface: Interface) -> None:
        """Begins to bind an interface. Only one bind runs at a time. The answer is Bound or Refused."""
        if self.state not in (State.FRESH, State.BOUND):
            raise LocalProtocolError(f"cannot bind in state {self.state.name.lower()}")
        first = self.state is State.FRESH
        self._binding, abstract = interface, syntax_of(interface)
        transfers = [pdus.SYNTAXES[layout] for layout in self._layouts]
        if first:
            transfers.append(pdus.feature_syntax(FEATURES))
        self._proposed = tuple(
            [PresentationContext(self._next_context + n, abstract, (each,)) for n, each in enumerate(transfers)]
        )
        self._next_context += len(transfers)
        self.state = State.BINDING
        token = self._security.negotiation.step(b"") if first and self._security is not None else b""
        self._propose(pdus.Bind if first else pdus.AlterContext, token)

    def _propose(self, kind: type[pdus.Bind], token: bytes) -> None:
        flags = WHOLE | PacketFlag.CONC_MPX
        trailer = None
        if token and self._security is not None:
            trailer = self._security.trailer(token)
            if self._header_sign:
                flags |= PacketFlag.SUPPORT_HEADER_SIGN
        pdu = kind(
            call_id=self._call_id(),
            flags=flags,
            trailer=trailer,
            max_xmit_frag=MAX_FRAGMENT,
            max_recv_frag=MAX_FRAGMENT,
            assoc_group_id=self.association,
            contexts=self._proposed,
        )
        self._out.append(pdu.encode())

    def _call_id(self) -> int:
        found, self._next_call = self._next_call, self._next_call + 1
        return found

    def layout(self, interface: Interface) -> Format | None:
        """The transfer syntax of the interface; None while it is not bound."""
        found = self._contexts.get(interface)
        return None if found is None else found[1]

    # Calls

    def call(self, interface: Interface, opnum: int, stub: bytes) -> int:
        """Sends a request, and returns the call id that its answer will carry."""
        if self.state not in (State.BOUND, State.BINDING):
            raise LocalProtocolError(f"cannot call in state {self.state.name.lower()}")
        context_id, _ = self._contexts[interface]
        call_id = self._call_id()
        self._out += fragments(
            PacketType.REQUEST, call_id, (context_id, opnum), stub, self._max_xmit, self._security, self._header_sign
        )
        self.waiting[call_id] = None
        return call_id

    def cancel(self, call_id: int) -> None:
        """Asks the server to end the call, and still waits for its answer."""
        if call_id in self.waiting:
            self._out.append(pdus.CoCancel(call_id=call_id).encode())

    def orphan(self, call_id: int) -> None:
        """Abandons the call. The connection closes too, unless the server keeps it: [MS-RPCE] 3.3.1.5.10."""
        if call_id in self.waiting:
            del self.waiting[call_id]
            self._out.append(pdus.Orphaned(call_id=call_id).encode())
            if not self.keeps_orphans:
                self.state = State.CLOSED

    # Answers

    def receive(self, data: bytes) -> list[Event]:
        """Takes octets and returns their events. After RemoteProtocolError or AuthenticationFailed the connection
        cannot be used."""
        events: list[Event] = []
        for frame in self._framer.feed(data):
            event = self._received(pdus.decode(frame))
            if event is not None:
                events.append(event)
        return events

    def _received(self, pdu: Pdu) -> Event | None:
        if isinstance(pdu, pdus.Response):
            return self._response(pdu)
        if isinstance(pdu, pdus.Fault):
            return self._fault(pdu)
        if isinstance(pdu, pdus.BindAck) and self.state is State.BINDING:
            return self._acknowledged(pdu)
        if isinstance(pdu, pdus.BindNak) and self.state is State.BINDING:
            self.state = State.CLOSED
            return Refused(f"the server refused the bind: {_reason(pdu.reason)}")
        if isinstance(pdu, pdus.Shutdown):
            return None  # [C706] 12.6.4.11: only advice; the client closes after its last call
        raise RemoteProtocolError(f"unexpected {pdu.ptype.name.lower()} in state {self.state.name.lower()}")

    def _acknowledged(self, pdu: pdus.BindAck) -> Event | None:
        if not isinstance(pdu, pdus.AlterContextResponse):
            self.association = pdu.assoc_group_id
            self._max_xmit = max(min(pdu.max_recv_frag, MAX_FRAGMENT), MUST_RECEIVE_FRAGMENT)
            if self._security is not None and not pdu.flags & PacketFlag.SUPPORT_HEADER_SIGN:
                self._header_sign = False
        if len(pdu.results) != len(self._proposed):
            raise RemoteProtocolError(f"must have {len(self._proposed)} results, got {len(pdu.results)}")
        refusal = self._settle(pdu)
        if self._security is not None and not self._security.negotiation.complete:
            token = self._security.negotiation.step(pdu.trailer.token if pdu.trailer is not None else b"")
            if token and self._security.auth_type == AuthType.NTLM:
                self._out.append(pdus.Auth3(call_id=self._call_id(), trailer=self._security.trailer(token)).encode())
            elif token:
                self._propose(pdus.AlterContext, token)
                return None
            if not self._security.negotiation.complete:
                raise AuthenticationFailed("the server ended the authentication before it was complete")
        self.state = State.BOUND
        return refusal or Bound()

    def _settle(self, pdu: pdus.BindAck) -> Refused | None:
        assert self._binding is not None
        accepted = False
        why = "no transfer syntax"
        for context, answer in zip(self._proposed, pdu.results, strict=True):
            layout = _LAYOUTS.get(answer.transfer)
            if answer.result == ContextResult.ACCEPTANCE and layout is not None and not accepted:
                self._contexts[self._binding] = (context.context_id, layout)
                accepted = True
            elif answer.result == ContextResult.NEGOTIATE_ACK:
                self.keeps_orphans = bool(answer.reason & _KEEP_ON_ORPHAN)
            elif answer.result != ContextResult.ACCEPTANCE and answer.reason in list(ProviderReason):
                why = ProviderReason(answer.reason).name.lower().replace("_", " ")
        return None if accepted else Refused(f"the server does not offer the interface: {why}", offered=False)

    def _response(self, pdu: pdus.Response) -> Event | None:
        stub = pdu.stub
        if self._security is not None and self._security.signs:
            stub = self._security.unprotect(pdu, header_sign=self._header_sign)
        elif pdu.trailer is not None:
            stub = stub[: len(stub) - min(pdu.trailer.pad_length, len(stub))]
        if pdu.call_id not in self.waiting:
            return None  # for an orphaned call
        waiting = self.waiting[pdu.call_id]
        if waiting is None and pdu.last:
            del self.waiting[pdu.call_id]
            return Replied(pdu.call_id, stub, pdu.order)
        if waiting is None:
            waiting = self.waiting[pdu.call_id] = _Waiting()
        waiting.parts.append(stub)
        waiting.size += len(stub)
        if waiting.size > MAX_REPLY:
            raise RemoteProtocolError(f"a reply must have at most {MAX_REPLY} octets")
        if not pdu.last:
            return None
        del self.waiting[pdu.call_id]
        return Replied(pdu.call_id, b"".join(waiting.parts), pdu.order)

    def _fault(self, pdu: pdus.Fault) -> Event | None:
        if self.state is State.BINDING and pdu.call_id not in self.waiting:
            self.state = State.CLOSED
            return Refused(f"the server refused the bind with the fault 0x{pdu.status:08X}")
        if pdu.call_id not in self.waiting:
            return None
        del self.waiting[pdu.call_id]
        return Faulted(pdu.call_id, pdu.status)


_LAYOUTS: Final = {syntax: layout for layout, syntax in pdus.SYNTAXES.items()}


def syntax_of(interface: Interface) -> SyntaxId:
    return SyntaxId(interface.uuid, *interface.version)


def _reason(reason: int) -> str:
    try:
        return RejectReason(reason).name.lower().replace("_", " ")
    except ValueError:
        return f"reason {reason}"
