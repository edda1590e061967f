"""Connection-oriented PDUs, [C706] 12.6 and [MS-RPCE] 2.2.2: one dataclass for each type, with its octets.

Encode and decode stand side by side. Any octets decode to a PDU or raise RemoteProtocolError. No state is kept here.
Nobody changes a PDU. It is not frozen, because a frozen dataclass takes three times as long to make.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from struct import Struct
from typing import TYPE_CHECKING, Any, ClassVar, Final
from uuid import UUID

from postroad.errors import LocalProtocolError, RemoteProtocolError
from postroad.rpc.constants import WHOLE, PacketFlag, PacketType
from postroad.rpc.ndr.octets import Format

if TYPE_CHECKING:
    from postroad.rpc.security import SecurityContext

HEADER_SIZE: Final = 16
REQUEST_HEADER_SIZE: Final = 24
TRAILER_SIZE: Final = 8
_VERSION: Final = 5
_VERSION_OCTETS: Final = bytes([_VERSION, 0])
_LITTLE_ENDIAN: Final = b"\x10\0\0\0"
_MAX_FRAGMENT: Final = 0xFFFF

# Plain numbers, because they are used for every PDU: an operator of IntFlag costs a microsecond.
_FIRST: Final = int(PacketFlag.FIRST_FRAG)
_LAST: Final = int(PacketFlag.LAST_FRAG)
_OBJECT: Final = int(PacketFlag.OBJECT_UUID)
_REQUEST: Final = int(PacketType.REQUEST)
_RESPONSE: Final = int(PacketType.RESPONSE)

_HEADERS: Final = {order: Struct(order + "BBBB4sHHI") for order in "<>"}
_HEADER: Final = _HEADERS["<"]
_CALL: Final = Struct("<BBBB4sHHIIHH")  # the header, and what a request or response has before its stub
REQUESTS: Final = {order: Struct(order + "IHH") for order in "<>"}
RESPONSES: Final = {order: Struct(order + "IHBx") for order in "<>"}
_FAULTS: Final = {order: Struct(order + "IHBBI") for order in "<>"}
_BINDS: Final = {order: Struct(order + "HHI") for order in "<>"}
_TRAILERS: Final = {order: Struct(order + "BBBxI") for order in "<>"}
_VERSIONS: Final = {order: Struct(order + "HH") for order in "<>"}
_CONTEXTS: Final = {order: Struct(order + "HBx") for order in "<>"}
_SHORTS: Final = {order: Struct(order + "H") for order in "<>"}


@dataclass(frozen=True, slots=True)
class SyntaxId:
    """p_syntax_id_t: an interface or a transfer syntax, with its version."""

    uuid: UUID
    major: int
    minor: int = 0

    def encode(self) -> bytes:
        return self.uuid.bytes_le + _VERSIONS["<"].pack(self.major, self.minor)


NDR: Final = SyntaxId(UUID("8a885d04-1ceb-11c9-9fe8-08002b104860"), 2)
NDR64: Final = SyntaxId(UUID("71710533-beba-4937-8319-b5dbef9ccc36"), 1)
NO_SYNTAX: Final = SyntaxId(UUID(int=0), 0)
SYNTAXES: Final = {Format.NDR: NDR, Format.NDR64: NDR64}

# [MS-RPCE] 3.3.1.5.3: a transfer syntax whose UUID begins like this carries a bitmask of features.
_FEATURES: Final = UUID("6cb71c2c-9812-4540-0000-000000000000").bytes_le[:8]


def feature_syntax(bits: int) -> SyntaxId:
    return SyntaxId(UUID(bytes_le=_FEATURES + bytes([bits]) + bytes(7)), 1)


def features_of(syntax: SyntaxId) -> int | None:
    """The features that a proposed syntax asks for; None for a real transfer syntax."""
    octets = syntax.uuid.bytes_le
    return octets[8] if octets[:8] == _FEATURES and syntax.major == 1 else None


@dataclass(frozen=True, slots=True)
class PresentationContext:
    """p_cont_elem_t: a client's proposal under one context id."""

    context_id: int
    abstract: SyntaxId
    transfers: tuple[SyntaxId, ...]


@dataclass(frozen=True, slots=True)
class ContextAnswer:
    """p_result_t"""

    result: int
    reason: int
    transfer: SyntaxId


@dataclass(frozen=True, slots=True)
class SecTrailer:
    """[MS-RPCE] 2.2.2.11 sec_trailer and the token after it."""

    auth_type: int
    auth_level: int
    context_id: int
    token: bytes
    pad_length: int = 0

    def header(self) -> bytes:
        return _TRAILERS["<"].pack(self.auth_type, self.auth_level, self.pad_length, self.context_id)


@dataclass(slots=True, eq=False)
class _Cursor:
    """Reads the part between the header and the trailer of a PDU."""

    data: bytes
    order: str
    flags: int
    end: int
    trailer: SecTrailer | None
    offset: int = HEADER_SIZE

    def unpack(self, forms: dict[str, Struct]) -> tuple[int, ...]:
        form = forms[self.order]
        return form.unpack(self.take(form.size))

    def take(self, size: int) -> bytes:
        start, self.offset = self.offset, self.offset + size
        if self.offset > self.end:
            raise RemoteProtocolError("the PDU is incomplete", start)
        return self.data[start : self.offset]

    def stub(self) -> dict[str, Any]:
        """Reads all that is left. For a protected PDU, the whole fragment comes with it."""
        return {"stub": self.data[self.offset : self.end], "frame": b"" if self.trailer is None else self.data}

    def align(self) -> None:
        self.take(-self.offset % 4)

    def uuid(self) -> UUID:
        octets = self.take(16)
        return UUID(bytes_le=octets) if self.order == "<" else UUID(bytes=octets)

    def syntax(self) -> SyntaxId:
        uuid = self.uuid()
        major, minor = self.unpack(_VERSIONS)
        return SyntaxId(uuid, major, minor)


@dataclass(slots=True, kw_only=True)
class Pdu:
    """What every PDU has. `order` is the byte order of the sender's integers."""

    ptype: ClassVar[PacketType]

    call_id: int
    flags: int = WHOLE
    trailer: SecTrailer | None = None
    order: str = "<"

    def body(self) -> bytes:
        return b"" if self.trailer is None else bytes(4)

    @classmethod
    def fields(cls, cursor: _Cursor) -> dict[str, Any]:
        """Writes the fields that only this type of PDU has; the inverse of `body`."""
        return {}

    def encode(self) -> bytes:
        """Returns the whole fragment, with the trailer aligned to 4. Protected stubs are built in security.py."""
        body = self.body()
        if self.trailer is None:
            return header(self.ptype, self.flags, HEADER_SIZE + len(body), 0, self.call_id) + body
        pad = -len(body) % 4
        trailer = replace(self.trailer, pad_length=pad)
        size = HEADER_SIZE + len(body) + pad + TRAILER_SIZE + len(trailer.token)
        head = header(self.ptype, self.flags, size, len(trailer.token), self.call_id)
        return head + body + bytes(pad) + trailer.header() + trailer.token

    @property
    def first(self) -> bool:
        return self.flags & _FIRST != 0

    @property
    def last(self) -> bool:
        return self.flags & _LAST != 0


def header(ptype: int, flags: int, size: int, auth_length: int, call_id: int) -> bytes:
    if size > _MAX_FRAGMENT:
        raise LocalProtocolError(f"a PDU must have at most {_MAX_FRAGMENT} octets, got {size}")
    return _HEADER.pack(_VERSION, 0, ptype, flags, _LITTLE_ENDIAN, size, auth_length, call_id)


@dataclass(slots=True, kw_only=True)
class _Binding(Pdu):
    """What a bind and its answer have in common."""

    max_xmit_frag: int
    max_recv_frag: int
    assoc_group_id: int

    def body(self) -> bytes:
        return _BINDS["<"].pack(self.max_xmit_frag, self.max_recv_frag, self.assoc_group_id)

    @classmethod
    def fields(cls, cursor: _Cursor) -> dict[str, Any]:
        return dict(zip(("max_xmit_frag", "max_recv_frag", "assoc_group_id"), cursor.unpack(_BINDS), strict=True))


@dataclass(slots=True, kw_only=True)
class Bind(_Binding):
    ptype: ClassVar[PacketType] = PacketType.BIND

    contexts: tuple[PresentationContext, ...]

    def body(self) -> bytes:
        parts = [_Binding.body(self), bytes([len(self.contexts), 0, 0, 0])]
        for context in self.contexts:
            parts.append(_CONTEXTS["<"].pack(context.context_id, len(context.transfers)))
            parts.append(context.abstract.encode())
            parts.extend(transfer.encode() for transfer in context.transfers)
        return b"".join(parts)

    @classmethod
    def fields(cls, cursor: _Cursor) -> dict[str, Any]:
        head = _Binding.fields(cursor)
        contexts = []
        for _ in range(cursor.take(4)[0]):
            context_id, transfers = cursor.unpack(_CONTEXTS)
            abstract = cursor.syntax()
            syntaxes = tuple([cursor.syntax() for _ in range(transfers)])
            contexts.append(PresentationContext(context_id, abstract, syntaxes))
        return head | {"contexts": tuple(contexts)}


@dataclass(slots=True, kw_only=True)
class AlterContext(Bind):
    ptype: ClassVar[PacketType] = PacketType.ALTER_CONTEXT


@dataclass(slots=True, kw_only=True)
class BindAck(_Binding):
    ptype: ClassVar[PacketType] = PacketType.BIND_ACK

    secondary_address: str
    results: tuple[ContextAnswer, ...]

    def body(self) -> bytes:
        head = _Binding.body(self)
        address = self.secondary_address.encode("ascii") + b"\0" if self.secondary_address else b""
        address = _SHORTS["<"].pack(len(address)) + address
        parts = [head, address, bytes(-len(address) % 4), bytes([len(self.results), 0, 0, 0])]
        parts += [_VERSIONS["<"].pack(each.result, each.reason) + each.transfer.encode() for each in self.results]
        return b"".join(parts)

    @classmethod
    def fields(cls, cursor: _Cursor) -> dict[str, Any]:
        head = _Binding.fields(cursor)
        (length,) = cursor.unpack(_SHORTS)
        address = cursor.take(length).partition(b"\0")[0].decode("ascii", "replace")
        cursor.align()
        results = []
        for _ in range(cursor.take(4)[0]):
            result, reason = cursor.unpack(_VERSIONS)
            results.append(ContextAnswer(result, reason, cursor.syntax()))
        return head | {"secondary_address": address, "results": tuple(results)}


@dataclass(slots=True, kw_only=True)
class AlterContextResponse(BindAck):
    ptype: ClassVar[PacketType] = PacketType.ALTER_CONTEXT_RESP


@dataclass(slots=True, kw_only=True)
class BindNak(Pdu):
    ptype: ClassVar[PacketType] = PacketType.BIND_NAK

    reason: int
    versions: tuple[tuple[int, int], ...] = ((5, 0),)

    def body(self) -> bytes:
        versions = bytes(part for version in self.versions for part in version)
        body = _SHORTS["<"].pack(self.reason) + bytes([len(self.versions)]) + versions
        return body + bytes(-len(body) % 4)

    @classmethod
    def fields(cls, cursor: _Cursor) -> dict[str, Any]:
        (reason,) = cursor.unpack(_SHORTS)
        # Windows omits the versions unless they are the fault.
        count = cursor.take(1)[0] if cursor.offset < cursor.end else 0
        versions = tuple([(major, minor) for major, minor in (cursor.take(2) for _ in range(count))])
        return {"reason": reason, "versions": versions}


@dataclass(slots=True, kw_only=True)
class Auth3(Pdu):
    """[MS-RPCE] 2.2.2.10: the third leg of an authentication. It has no answer."""

    ptype: ClassVar[PacketType] = PacketType.AUTH3

    def body(self) -> bytes:
        return bytes(4)

    @classmethod
    def fields(cls, cursor: _Cursor) -> dict[str, Any]:
        if cursor.trailer is None:
            raise RemoteProtocolError("an rpc_auth_3 must have a token", 10)
        return {}


@dataclass(slots=True, kw_only=True)
class Request(Pdu):
    """One fragment of a request. `stub` still contains the authentication padding; `frame` is the fragment as
    received."""

    ptype: ClassVar[PacketType] = PacketType.REQUEST

    alloc_hint: int
    context_id: int
    opnum: int
    object: UUID | None = None
    stub: bytes
    frame: bytes = b""

    @property
    def stub_offset(self) -> int:
        return REQUEST_HEADER_SIZE + (16 if self.object is not None else 0)

    def body(self) -> bytes:
        head = REQUESTS["<"].pack(self.alloc_hint, self.context_id, self.opnum)
        return head + (b"" if self.object is None else self.object.bytes_le) + self.stub

    @classmethod
    def fields(cls, cursor: _Cursor) -> dict[str, Any]:
        alloc_hint, context_id, opnum = cursor.unpack(REQUESTS)
        target = cursor.uuid() if cursor.flags & _OBJECT else None
        return {"alloc_hint": alloc_hint, "context_id": context_id, "opnum": opnum, "object": target} | cursor.stub()


@dataclass(slots=True, kw_only=True)
class Response(Pdu):
    ptype: ClassVar[PacketType] = PacketType.RESPONSE

    alloc_hint: int
    context_id: int
    cancel_count: int = 0
    stub: bytes
    frame: bytes = b""

    @property
    def stub_offset(self) -> int:
        return REQUEST_HEADER_SIZE

    def body(self) -> bytes:
        return RESPONSES["<"].pack(self.alloc_hint, self.context_id, self.cancel_count) + self.stub

    @classmethod
    def fields(cls, cursor: _Cursor) -> dict[str, Any]:
        alloc_hint, context_id, cancel_count = cursor.unpack(RESPONSES)
        return {"alloc_hint": alloc_hint, "context_id": context_id, "cancel_count": cancel_count} | cursor.stub()


@dataclass(slots=True, kw_only=True)
class Fault(Pdu):
    """[MS-RPCE] 2.2.2.8. The error is in `status`. Stub data is never sent, and ignored when received."""

    ptype: ClassVar[PacketType] = PacketType.FAULT

    context_id: int = 0
    cancel_count: int = 0
    status: int

    def body(self) -> bytes:
        return _FAULTS["<"].pack(32, self.context_id, self.cancel_count, 0, self.status) + bytes(4)

    @classmethod
    def fields(cls, cursor: _Cursor) -> dict[str, Any]:
        _, context_id, cancel_count, _, status = cursor.unpack(_FAULTS)
        return {"context_id": context_id, "cancel_count": cancel_count, "status": status}


@dataclass(slots=True, kw_only=True)
class CoCancel(Pdu):
    ptype: ClassVar[PacketType] = PacketType.CO_CANCEL


@dataclass(slots=True, kw_only=True)
class Orphaned(Pdu):
    ptype: ClassVar[PacketType] = PacketType.ORPHANED


@dataclass(slots=True, kw_only=True)
class Shutdown(Pdu):
    ptype: ClassVar[PacketType] = PacketType.SHUTDOWN


class Framer:
    """Cuts a stream into fragments. It holds at most one incomplete fragment."""

    __slots__ = ("_buffer", "buffered", "foreign")

    def __init__(self) -> None:
        self._buffer = b""
        self.buffered = 0  # octets of the incomplete fragment
        self.foreign: int | None = None  # the call id in a header of another protocol version

    def feed(self, data: bytes) -> list[bytes]:
        """Returns the fragments that are now complete. After a RemoteProtocolError the stream cannot be read
        further."""
        if self._buffer:
            data = self._buffer + data
        elif _is_whole(data):
            return [data]
        frames = []
        start, end = 0, len(data)
        while end - start >= HEADER_SIZE:
            if data[start : start + 2] != _VERSION_OCTETS:
                self.foreign = int.from_bytes(data[start + 12 : start + 16], "little")
            size = fragment_size(data, start)
            if end - start < size:
                break
            frames.append(data[start : start + size])
            start += size
        self._buffer = data[start:]
        self.buffered = len(self._buffer)
        return frames


def _is_whole(data: bytes) -> bool:
    """Whether this is one little-endian fragment with nothing behind it. Nearly all fragments arrive so."""
    return (
        len(data) >= HEADER_SIZE
        and data[:2] == _VERSION_OCTETS
        and data[4] == _LITTLE_ENDIAN[0]
        and int.from_bytes(data[8:10], "little") == len(data)
    )


def fragment_size(data: bytes, start: int) -> int:
    """Checks the common header and returns the size of the fragment."""
    order = _order(data[start + 4], start)
    major, minor, _, _, _, size, _, _ = _HEADERS[order].unpack_from(data, start)
    if (major, minor) != (_VERSION, 0):  # [MS-RPCE] 3.3.1.5.1
        raise RemoteProtocolError(f"the protocol version must be 5.0, got {major}.{minor}", start)
    if size < HEADER_SIZE:
        raise RemoteProtocolError(f"a fragment must be longer than its header, got {size} octets", start)
    return int(size)


def _order(label: int, start: int) -> str:
    """The byte order of integers, from the octet that also has the character set: [C706] 14.1."""
    if label not in (0x00, 0x10):
        raise RemoteProtocolError(f"unknown data representation 0x{label:02x}", start + 4)
    return "<" if label == 0x10 else ">"


def whole_call(ptype: int, call_id: int, following: tuple[int, int], stub: bytes) -> bytes:
    """Builds a request or response in one fragment, without a token. `following` are the two numbers after the hint."""
    size = REQUEST_HEADER_SIZE + len(stub)
    return _CALL.pack(_VERSION, 0, ptype, WHOLE, _LITTLE_ENDIAN, size, 0, call_id, len(stub), *following) + stub


def decode(frame: bytes) -> Pdu:
    """Returns the PDU of one whole fragment."""
    return _decode_call(frame) or _decode_any(frame)


def _decode_call(frame: bytes) -> Pdu | None:
    """Decodes a common request or response in one step: little-endian, without a token and without an object."""
    if len(frame) < REQUEST_HEADER_SIZE:
        return None
    major, minor, ptype, flags, form, size, auth_length, call_id, hint, context, last = _CALL.unpack_from(frame)
    if major != _VERSION or minor or form != _LITTLE_ENDIAN or size != len(frame) or auth_length:
        return None
    stub = frame[REQUEST_HEADER_SIZE:]
    if ptype == _REQUEST and not flags & _OBJECT:
        return Request(call_id=call_id, flags=flags, alloc_hint=hint, context_id=context, opnum=last, stub=stub)
    if ptype == _RESPONSE:
        count = last & 0xFF  # a reserved octet follows
        return Response(
            call_id=call_id, flags=flags, alloc_hint=hint, context_id=context, cancel_count=count, stub=stub
        )
    return None


def _decode_any(frame: bytes) -> Pdu:
    if len(frame) < HEADER_SIZE:
        raise RemoteProtocolError(f"a fragment must have at least {HEADER_SIZE} octets, got {len(frame)}", 0)
    size = fragment_size(frame, 0)
    if size != len(frame):
        raise RemoteProtocolError(f"the fragment must have {size} octets, got {len(frame)}", 8)
    order = "<" if frame[4] else ">"
    _, _, ptype, flags, representation, _, auth_length, call_id = _HEADERS[order].unpack_from(frame)
    if representation[1]:
        raise RemoteProtocolError("the floating-point format must be IEEE", 5)
    end, trailer = _split_trailer(frame, auth_length, order)
    kind = _KINDS.get(ptype)
    if kind is None:
        raise RemoteProtocolError(f"unknown PDU type {ptype}", 2)
    fields = kind.fields(_Cursor(frame, order, flags, end, trailer))
    return kind(call_id=call_id, flags=flags, trailer=trailer, order=order, **fields)


def _split_trailer(frame: bytes, auth_length: int, order: str) -> tuple[int, SecTrailer | None]:
    if not auth_length:
        return len(frame), None
    start = len(frame) - auth_length - TRAILER_SIZE
    if start < HEADER_SIZE:
        raise RemoteProtocolError(f"the fragment is too short for an authentication token of {auth_length} octets", 10)
    auth_type, level, pad, context_id = _TRAILERS[order].unpack_from(frame, start)
    if pad > start - HEADER_SIZE:
        raise RemoteProtocolError(f"must have at most {start - HEADER_SIZE} octets of padding, got {pad}", start + 2)
    return start, SecTrailer(auth_type, level, context_id, frame[start + TRAILER_SIZE :], pad)


_TYPES: Final[tuple[type[Pdu], ...]] = (
    *(Request, Response, Fault, Bind, BindAck, BindNak, AlterContext, AlterContextResponse, Auth3),
    *(Shutdown, CoCancel, Orphaned),
)
_KINDS: Final = {int(kind.ptype): kind for kind in _TYPES}


# A stub is cut into fragments in the same way for requests and responses, [C706] 12.6.2.


_FIRST_FRAGMENT = int(PacketFlag.FIRST_FRAG)
_LAST_FRAGMENT = int(PacketFlag.LAST_FRAG)


def fragments(
    ptype: PacketType,
    call_id: int,
    following: tuple[int, int],
    stub: bytes,
    largest: int,
    security: SecurityContext | None,
    header_sign: bool,
) -> list[bytes]:
    """Cuts a stub into fragments of at most `largest` octets. After each header comes the allocation hint, which is the
    size of the rest ([MS-RPCE] 2.2.2.6), and then the two numbers `following`."""
    room = largest - REQUEST_HEADER_SIZE
    signing = security if security is not None and security.signs else None
    if signing is not None:
        room = signing.room(room)
    elif len(stub) <= room:
        return [whole_call(ptype, call_id, following, stub)]
    form = (REQUESTS if ptype is PacketType.REQUEST else RESPONSES)["<"]
    found = []
    for flags, hint, part in ((WHOLE, len(stub), stub),) if len(stub) <= room else _parts(stub, room):
        fixed = form.pack(hint, *following)
        if signing is not None:
            found.append(signing.protect(ptype, flags, call_id, fixed, part, header_sign=header_sign))
        else:
            found.append(header(ptype, flags, REQUEST_HEADER_SIZE + len(part), 0, call_id) + fixed + part)
    return found


def _parts(stub: bytes, room: int) -> Iterator[tuple[int, int, bytes]]:
    """Returns (flags, size of the rest, part) for each fragment."""
    size = len(stub)
    for start in range(0, size, room):
        first = _FIRST_FRAGMENT if start == 0 else 0
        last = _LAST_FRAGMENT if start + room >= size else 0
        yield first | last, size - start, stub[start : start + room]
