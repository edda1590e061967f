"""The server's side of one connection without I/O: binds, requests out of fragments, replies into fragments.

Octets and `now` come in, calls come out. Replies and faults go in, octets come out. [MS-RPCE] 3.3.3.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from struct import Struct
from typing import Final
from uuid import UUID

from postroad.errors import AuthenticationFailed, RemoteProtocolError, RpcFault
from postroad.rpc import pdu as pdus
from postroad.rpc.calls import Association, Call, CallCancelled, Caller, CallReceived, Endpoint, Event, LoginRefused
from postroad.rpc.constants import (
    FEATURES,
    FORBIDDEN_STATUSES,
    MUST_RECEIVE_FRAGMENT,
    WHOLE,
    AuthLevel,
    ContextResult,
    FaultStatus,
    PacketFlag,
    PacketType,
    ProviderReason,
    RejectReason,
)
from postroad.rpc.interface import Interface
from postroad.rpc.ndr import Format, Reader
from postroad.rpc.pdu import (
    NDR,
    NDR64,
    NO_SYNTAX,
    AlterContext,
    Auth3,
    Bind,
    CoCancel,
    ContextAnswer,
    Orphaned,
    Pdu,
    PresentationContext,
    Request,
    SecTrailer,
    SyntaxId,
    features_of,
    fragments,
)
from postroad.rpc.security import SecurityContext, SecurityContexts

# [MS-RPCE] 2.2.2.13 Verification trailer: a client repeats facts about its call within the protected stub.


SIGNATURE: Final = bytes.fromhex("8ae3137102f43671")
_COMMAND: Final = Struct("<HH")
_TRAILER_HEADER2: Final = Struct("<BxxxIIHH")
_BITMASK, _PCONTEXT, _TRAILER_HEADER = 1, 2, 3
_END, _MUST_PROCESS, _TYPE = 0x4000, 0x8000, 0x3FFF
_TRAILER_FORMAT: Final = 0x10
_SUPPORTS_HEADER_SIGNING: Final = 1


def check_verification(
    rest: bytes, *, abstract: SyntaxId, transfer: SyntaxId, call_id: int, context_id: int, opnum: int, header_sign: bool
) -> None:
    """Checks the trailer that may follow a request's parameters. A trailer that disagrees with the call is a fault."""
    start = rest.find(SIGNATURE)
    if start < 0:
        return
    offset = start + len(SIGNATURE)
    more = True
    while more:
        if offset + _COMMAND.size > len(rest):
            raise _refused("it is incomplete")
        command, length = _COMMAND.unpack_from(rest, offset)
        body = rest[offset + _COMMAND.size : offset + _COMMAND.size + length]
        if len(body) != length or length % 4:
            raise _refused(f"a command has a wrong length of {length} octets")
        kind = command & _TYPE
        if kind == _PCONTEXT:
            if body != abstract.encode() + transfer.encode():
                raise _refused("it names another presentation context")
        elif kind == _TRAILER_HEADER:
            repeated = _TRAILER_HEADER2.unpack(body) if length == _TRAILER_HEADER2.size else None
            if repeated != (PacketType.REQUEST, _TRAILER_FORMAT, call_id, context_id, opnum):
                raise _refused("it names another header")
        elif kind == _BITMASK:
            if length != 4 or (body[0] & _SUPPORTS_HEADER_SIGNING and not header_sign):
                raise _refused("it asks for header signing, but the bind did not")
        elif command & _MUST_PROCESS:
            raise _refused(f"unknown command {kind}")
        offset += _COMMAND.size + length
        more = not command & _END


def _refused(fault: str) -> RpcFault:
    return RpcFault(FaultStatus.ACCESS_DENIED, f"the verification trailer: {fault}")


# Presentation contexts: the interface and transfer syntax of each context id, [MS-RPCE] 3.3.1.5.6.


MAX_CONTEXTS: Final = 256  # for one connection; [MS-RPCE] 3.3.3.5.5 lets a server hold 4000 for each interface
_PREFERENCE: Final = ((NDR, Format.NDR), (NDR64, Format.NDR64))  # NDR first: it needs fewer octets


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
        self.accepted: dict[int, Presentation] = {}  # by context id

    @property
    def full(self) -> bool:
        return len(self.accepted) > MAX_CONTEXTS

    def negotiate(self, proposed: tuple[PresentationContext, ...]) -> tuple[ContextAnswer, ...]:
        """Returns one answer for each proposal, in order. Accepts one transfer syntax for each interface."""
        wanted: dict[SyntaxId, set[SyntaxId]] = {}
        for context in proposed:
            wanted.setdefault(context.abstract, set()).update(context.transfers)
        best = {abstract: self._best(abstract, transfers) for abstract, transfers in wanted.items()}
        taken: set[SyntaxId] = set()
        return tuple([self._answer(context, best[context.abstract], taken) for context in proposed])

    def _best(self, abstract: SyntaxId, transfers: set[SyntaxId]) -> SyntaxId | None:
        """The transfer syntax to take of those offered. None if the interface has none of them."""
        interface = self._interfaces.get(abstract.uuid)
        for each, layout in _PREFERENCE:
            if each in transfers and (interface is None or layout in interface.layouts):
                return each
        return None

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
        self.accepted[context.context_id] = Presentation(
            abstract, transfer, interface, Format.NDR if transfer == NDR else Format.NDR64
        )
        return ContextAnswer(ContextResult.ACCEPTANCE, 0, transfer)


def _rejected(reason: ProviderReason) -> ContextAnswer:
    return ContextAnswer(ContextResult.PROVIDER_REJECTION, reason, NO_SYNTAX)


MAX_CALL_ID: Final = 0x7FFFFFFF  # [MS-RPCE] note 123
OLD_CALLS: Final = 150  # [MS-RPCE] 3.3.3.5.6
NOT_ADMITTED: Final = "the association belongs to another client"


class State(Enum):
    ESTABLISHED = auto()
    NEGOTIATED = auto()
    CLOSED = auto()


@dataclass(slots=True)
class _Gathering:
    """A request that is not complete."""

    first: Request
    security: SecurityContext | None
    deadline: float
    parts: list[bytes] = field(default_factory=list)
    size: int = 0


class ServerConnection:
    """Call `receive` with input; it returns events. Send `data_to_send` after it, and after `reply` and `fault`."""

    def __init__(self, endpoint: Endpoint, address: str, now: float, local: tuple[str, int] = ("", 0)) -> None:
        """`address` is the client's. `local` is the address and port that the client called."""
        self.endpoint = endpoint
        self.address = address
        self.local = local
        self.state = State.ESTABLISHED
        self.closed = False
        self.logging_in = False  # the next input may be the proof of a password
        self.association: Association | None = None
        self.calls: dict[int, Call] = {}
        self.fault_text = ""  # why this side closed the connection
        self._limits = endpoint.limits
        self._bind_deadline = now + self._limits.bind_timeout_s
        self._framer = pdus.Framer()
        self._out: list[bytes] = []
        self._presentations = Presentations(endpoint.interfaces)
        self._security = SecurityContexts(endpoint.providers)
        self._callers: dict[int | None, Caller] = {}  # by the id of the caller's security context
        self._gathering: _Gathering | None = None
        self._discarding: int | None = None  # the call id of a request that was answered before all of it had come
        self._max_xmit = self._max_recv = MUST_RECEIVE_FRAGMENT
        self._last_call_id = -1
        self._actions = _ACTIONS[State.ESTABLISHED]

    # State for the server

    @property
    def half_open(self) -> bool:
        """Whether the client has yet to bind, or to finish its login."""
        return self.state is State.ESTABLISHED or self.logging_in

    @property
    def deadline(self) -> float | None:
        """When the wait for a bind, for a login, or for the rest of a request has lasted too long."""
        if self.half_open:
            return self._bind_deadline
        return self._gathering.deadline if self._gathering is not None else None

    @property
    def unfinished(self) -> int:
        """Octets held for incomplete fragments and requests."""
        return self._framer.buffered + (self._gathering.size if self._gathering is not None else 0)

    def data_to_send(self) -> bytes:
        if not self._out:
            return b""
        out, self._out = self._out, []
        self.endpoint.pdus_out += len(out)
        return out[0] if len(out) == 1 else b"".join(out)

    def disconnected(self) -> None:
        """The transport is gone. The connection leaves its association once no call is in flight."""
        self._drop_gathering()
        self.state, self.closed = State.CLOSED, True
        self._leave()

    def _leave(self) -> None:
        if self.association is not None and not self.calls:
            self.endpoint.associations.leave(self.association, self)

    # Input

    def receive(self, data: bytes, now: float) -> list[Event]:
        """Takes octets and returns their events. A protocol error closes the connection; calls that came before it are
        still returned."""
        events: list[Event] = []
        try:
            for frame in self._framer.feed(data):
                if self.closed:
                    break
                self.endpoint.pdus_in += 1
                event = self._received(pdus.decode(frame), now)
                if event is not None:
                    events.append(event)
        except RemoteProtocolError as error:
            if self.half_open and self._framer.foreign is not None:
                reason = RejectReason.PROTOCOL_VERSION_NOT_SUPPORTED
                self._out.append(pdus.BindNak(call_id=self._framer.foreign, reason=reason).encode())
            self._close(str(error))
        return events

    def _received(self, pdu: Pdu, now: float) -> Event | None:
        action = self._actions.get(type(pdu))
        if action is None:
            raise RemoteProtocolError(f"unexpected {pdu.ptype.name.lower()} in state {self.state.name.lower()}")
        return action(self, pdu, now)

    def has_user(self, users: Collection[str]) -> bool:
        """Whether one of these users has logged in here."""
        return any(caller.user in users for caller in self._callers.values())

    def end(self, why: str) -> None:
        """Ends the connection. No further octet is read."""
        self._close(why)

    def _close(self, why: str) -> None:
        self.fault_text = why
        self._drop_gathering()
        self.state, self.closed = State.CLOSED, True

    # Binds

    def _bind(self, pdu: Pdu, now: float) -> Event | None:
        assert isinstance(pdu, Bind)
        if not self._security.known(pdu.trailer):
            return self._reject(pdu, RejectReason.AUTHENTICATION_TYPE_NOT_RECOGNIZED)
        self.association = self.endpoint.associations.join(pdu.assoc_group_id, self.address, self)
        if self.association is None:
            return self._reject(pdu, RejectReason.NOT_SPECIFIED)
        largest = self._limits.max_fragment
        self._max_xmit = max(min(pdu.max_recv_frag, largest), MUST_RECEIVE_FRAGMENT)
        self._max_recv = max(min(pdu.max_xmit_frag, largest), MUST_RECEIVE_FRAGMENT)
        try:
            trailer, built = self._step(pdu)
        except AuthenticationFailed as error:
            self._reject(pdu, RejectReason.INVALID_CHECKSUM, str(error))
            return LoginRefused(error.who)
        if (pdu.trailer is None or built is not None) and self._caller(built) is None:
            return self._reject(pdu, RejectReason.NOT_SPECIFIED)
        answers = self._presentations.negotiate(pdu.contexts)
        if self._presentations.full:
            return self._reject(pdu, RejectReason.LOCAL_LIMIT_EXCEEDED)
        self.state = State.NEGOTIATED
        self._actions = _ACTIONS[State.NEGOTIATED]
        self._acknowledge(pdus.BindAck, pdu, answers, trailer)
        return None

    def _step(self, pdu: Bind | Auth3) -> tuple[SecTrailer | None, SecurityContext | None]:
        try:
            return self._security.step(pdu)
        finally:
            self.logging_in = self._security.unfinished

    def _alter_context(self, pdu: Pdu, now: float) -> Event | None:
        assert isinstance(pdu, AlterContext)
        if not self.logging_in:
            self._bind_deadline = now + self._limits.bind_timeout_s
        try:
            trailer, built = self._step(pdu)
        except AuthenticationFailed as error:
            # A security context that is not complete must not be used, so the connection ends with it.
            self._refuse(pdu, str(error))
            return LoginRefused(error.who)
        if built is not None and self._caller(built) is None:
            return self._refuse(pdu, NOT_ADMITTED)
        answers = self._presentations.negotiate(pdu.contexts)
        if self._presentations.full:
            return self._reject(pdu, RejectReason.LOCAL_LIMIT_EXCEEDED)
        self._acknowledge(pdus.AlterContextResponse, pdu, answers, trailer)
        return None

    def _auth3(self, pdu: Pdu, now: float) -> Event | None:
        """Takes an rpc_auth_3, which has no answer. The next request reports its failure, [MS-RPCE] 3.3.1.5.2.1."""
        assert isinstance(pdu, Auth3)
        try:
            _, built = self._step(pdu)
        except AuthenticationFailed as error:
            self.fault_text = str(error)
            return LoginRefused(error.who)
        if built is not None:
            self._caller(built)
        return None

    def _refuse(self, pdu: Pdu, why: str) -> Event | None:
        self._fault_pdu(pdu.call_id, 0, FaultStatus.ACCESS_DENIED)
        self._close(why)
        return None

    def _caller(self, security: SecurityContext | None) -> Caller | None:
        """The caller of a security context; None if it may not use the association of this connection."""
        key = None if security is None else security.context_id
        found = self._callers.get(key)
        if found is None:
            assert self.association is not None
            user = None if security is None else security.identity or None  # a provider may give no name
            if not self.endpoint.associations.admit(self.association, self, user):
                return None
            level = AuthLevel.NONE if security is None else security.auth_level
            account = None if security is None else security.account
            found = self._callers[key] = Caller(self.address, user, level, self.association.identifier, account)
        return found

    def _reject(self, pdu: Bind, reason: RejectReason, why: str = "") -> Event | None:
        self._out.append(pdus.BindNak(call_id=pdu.call_id, reason=reason).encode())
        self._close(why or f"the bind was refused: {reason.name.lower()}")
        return None

    def _acknowledge(
        self, kind: type[pdus.BindAck], pdu: Bind, answers: tuple[pdus.ContextAnswer, ...], trailer: SecTrailer | None
    ) -> None:
        assert self.association is not None
        flags = WHOLE | pdu.flags & PacketFlag.CONC_MPX
        if pdu.trailer is not None and self._security.header_sign:
            flags |= PacketFlag.SUPPORT_HEADER_SIGN
        ack = kind(
            call_id=pdu.call_id,
            flags=flags,
            trailer=trailer,
            max_xmit_frag=self._max_xmit,
            max_recv_frag=self._max_recv,
            assoc_group_id=self.association.identifier,
            secondary_address=str(self.local[1]) if kind is pdus.BindAck else "",
            results=answers,
        )
        self._out.append(ack.encode())

    # Requests

    def _request(self, pdu: Pdu, now: float) -> Event | None:
        assert isinstance(pdu, Request)
        gathering = self._gathering
        first = pdu.first
        if first:
            # A request must be complete before the next one begins, [MS-RPCE] 3.3.1.5.8. Of 3.3.3.5.2 only one rule is
            # applied, that two calls in flight have different ids: clients that alter the context count ids for each
            # interface.
            if gathering is not None or pdu.call_id in self.calls or pdu.call_id > MAX_CALL_ID:
                return self._protocol_error(pdu, "a request must not begin before the last one is complete")
        elif gathering is None or gathering.first.call_id != pdu.call_id:
            return self._stray(pdu)
        try:
            security = self._security.of(pdu)
            if gathering is not None and security is not gathering.security:
                raise AuthenticationFailed("all fragments of a request must use one security context")
            stub = pdu.stub
            if security is not None and pdu.trailer is not None:
                stub = security.unprotect(pdu, header_sign=self._security.header_sign)
        except AuthenticationFailed as error:
            self._fault_pdu(pdu.call_id, pdu.context_id, FaultStatus.ACCESS_DENIED, executed=False)
            self._close(str(error))
            return None
        if first:
            self._last_call_id = max(self._last_call_id, pdu.call_id)
            self._discarding = None
            if pdu.last:
                return self._dispatch(pdu, stub, security)
        return self._gather(pdu, stub, security, now)

    def _stray(self, pdu: Request) -> Event | None:
        """A later fragment whose request is unknown, [MS-RPCE] 3.3.3.5.6."""
        if pdu.call_id == self._discarding or 0 < self._last_call_id - pdu.call_id < OLD_CALLS:
            return None
        return self._protocol_error(pdu, "a fragment without the start of its request")

    def _gather(self, pdu: Request, stub: bytes, security: SecurityContext | None, now: float) -> Event | None:
        gathering = self._gathering
        if gathering is None:
            gathering = self._gathering = _Gathering(pdu, security, now + self._limits.fragment_timeout_s)
        if (pdu.context_id, pdu.opnum) != (gathering.first.context_id, gathering.first.opnum):
            return self._protocol_error(pdu, "all fragments of a request must name one operation")
        gathering.parts.append(stub)
        gathering.size += len(stub)
        self.endpoint.gathering += len(stub)
        # [MS-RPCE] 3.3.3.5.8: the answer does not wait for the remaining fragments.
        if gathering.size > self._limits.max_request:
            return self._give_up(pdu, FaultStatus.ACCESS_DENIED)
        if self.endpoint.gathering > self._limits.max_gathering:
            return self._give_up(pdu, FaultStatus.NCA_SERVER_TOO_BUSY)
        if not pdu.last:
            return None
        self._drop_gathering()
        return self._dispatch(gathering.first, b"".join(gathering.parts), security)

    def _give_up(self, pdu: Request, status: FaultStatus) -> Event | None:
        self._drop_gathering()
        self._discarding = pdu.call_id
        self._fault_pdu(pdu.call_id, pdu.context_id, status, executed=False)
        return None

    def _drop_gathering(self) -> None:
        if self._gathering is not None:
            self.endpoint.gathering -= self._gathering.size
            self._gathering = None

    def _protocol_error(self, pdu: Request, why: str) -> Event | None:
        """Answers and ends the connection, because nothing that follows can be trusted: [MS-RPCE] 3.3.3.5.7."""
        self._fault_pdu(pdu.call_id, pdu.context_id, FaultStatus.NCA_PROTOCOL_ERROR, executed=False)
        self._close(why)
        return None

    def _dispatch(self, pdu: Request, stub: bytes, security: SecurityContext | None) -> Event | None:
        try:
            call = self._call(pdu, stub, security)
        except RpcFault as error:
            self._fault_pdu(pdu.call_id, pdu.context_id, error.fault_status, executed=False)
            return None
        except RemoteProtocolError:
            self._fault_pdu(pdu.call_id, pdu.context_id, FaultStatus.BAD_STUB_DATA, executed=False)
            return None
        self.calls[pdu.call_id] = call
        return CallReceived(call)

    def _call(self, pdu: Request, stub: bytes, security: SecurityContext | None) -> Call:
        presentation = self._presentations.accepted.get(pdu.context_id)
        if presentation is None:
            raise RpcFault(FaultStatus.NCA_UNKNOWN_INTERFACE)
        operation = presentation.interface.operations.get(pdu.opnum)
        if operation is None:
            raise RpcFault(FaultStatus.NCA_OP_RANGE_ERROR)
        caller = self._caller(security)
        if caller is None:
            raise RpcFault(FaultStatus.ACCESS_DENIED, NOT_ADMITTED)
        if security is not None and caller.level < self.endpoint.minimum_level:
            raise RpcFault(FaultStatus.ACCESS_DENIED, "the call must have the protection that this server requires")
        if len(self.calls) >= self._limits.max_calls:
            raise RpcFault(FaultStatus.NCA_SERVER_TOO_BUSY)
        # [MS-RPCE] 2.2.2.6: a hint larger than the stub means that something is missing.
        if pdu.alloc_hint > len(stub):
            raise RpcFault(FaultStatus.NCA_PROTOCOL_ERROR)
        layout = presentation.layout
        reader = Reader(stub, layout, pdu.order if layout is Format.NDR else "<")
        request = operation.request.decode_from(reader)
        if rest := stub[reader.offset :]:
            self._verify(rest, pdu, presentation)
        assert self.association is not None
        for name, expected in operation.request.handles:
            self.association.check(expected, getattr(request, name), caller)
        return Call(self, pdu.call_id, pdu.context_id, operation, request, layout, security, caller)

    def _verify(self, rest: bytes, pdu: Request, presentation: Presentation) -> None:
        check_verification(
            rest,
            abstract=presentation.abstract,
            transfer=presentation.transfer,
            call_id=pdu.call_id,
            context_id=pdu.context_id,
            opnum=pdu.opnum,
            header_sign=self._security.header_sign,
        )

    def _co_cancel(self, pdu: Pdu, now: float) -> Event | None:
        call = self.calls.get(pdu.call_id)
        return None if call is None else CallCancelled(call, orphaned=False)

    def _orphaned(self, pdu: Pdu, now: float) -> Event | None:
        if self._gathering is not None and self._gathering.first.call_id == pdu.call_id:
            self._drop_gathering()
            self._discarding = pdu.call_id
        call = self.calls.get(pdu.call_id)
        return None if call is None else CallCancelled(call, orphaned=True)

    # Answers

    def reply(self, call: Call, reply: object) -> None:
        """Answers a call with its `[out]` parameters. Does nothing if the client is gone."""
        stub = call.operation.reply.encode(reply, call.layout, call.request)
        self._forget(call)
        if self.closed:
            return
        ids, sign = (call.context_id, 0), self._security.header_sign
        self._out += fragments(PacketType.RESPONSE, call.call_id, ids, stub, self._max_xmit, call.security, sign)

    def fault(self, call: Call, status: int, *, executed: bool = True) -> None:
        """Answers a call with a fault."""
        self._forget(call)
        if not self.closed:
            self._fault_pdu(call.call_id, call.context_id, status, executed=executed)

    def drop(self, call: Call) -> None:
        """Ends a call without an answer, because the client orphaned it or is gone."""
        self._forget(call)

    def _forget(self, call: Call) -> None:
        if self.calls.get(call.call_id) is call:
            del self.calls[call.call_id]
        if self.closed:
            self._leave()

    def _fault_pdu(self, call_id: int, context_id: int, status: int, *, executed: bool = True) -> None:
        if status in FORBIDDEN_STATUSES:
            status = FaultStatus.NCA_FAULT_UNSPECIFIED
        flags = WHOLE if executed else WHOLE | PacketFlag.DID_NOT_EXECUTE
        self._out.append(pdus.Fault(call_id=call_id, flags=flags, context_id=context_id, status=status).encode())


Action = Callable[[ServerConnection, Pdu, float], Event | None]

# [MS-RPCE] 3.3.3: what a server accepts in each state. Everything else is a protocol error.
_ACTIONS: Final[dict[State, dict[type[Pdu], Action]]] = {
    State.ESTABLISHED: {Bind: ServerConnection._bind},
    State.NEGOTIATED: {
        AlterContext: ServerConnection._alter_context,
        Auth3: ServerConnection._auth3,
        Request: ServerConnection._request,
        CoCancel: ServerConnection._co_cancel,
        Orphaned: ServerConnection._orphaned,
    },
    State.CLOSED: {},
}
