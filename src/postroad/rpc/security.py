"""Security contexts of a connection: the client's identity, and the protection of PDUs, [MS-RPCE] 3.3.1.5.2.

Providers (NTLM, SPNEGO, Kerberos) are separate modules; nothing here knows their tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from postroad.errors import AuthenticationFailed
from postroad.rpc.constants import WHOLE, AuthLevel, PacketFlag, PacketType
from postroad.rpc.pdu import (
    HEADER_SIZE,
    REQUEST_HEADER_SIZE,
    REQUESTS,
    RESPONSES,
    TRAILER_SIZE,
    Auth3,
    Bind,
    Request,
    Response,
    SecTrailer,
    header,
    whole_call,
)

# Cutting a stub into fragments, for requests and responses alike, [C706] 12.6.2.


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
    """The fragments of a stub, of at most `largest` octets. After the header come the allocation hint, which is the
    size of the rest ([MS-RPCE] 2.2.2.6), and the two numbers `following` it in a PDU of this type."""
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
    """(flags, size of the rest, part) of each fragment."""
    size = len(stub)
    for start in range(0, size, room):
        first = _FIRST_FRAGMENT if start == 0 else 0
        last = _LAST_FRAGMENT if start + room >= size else 0
        yield first | last, size - start, stub[start : start + room]


MAX_CONTEXTS: Final = 64  # a client may build 2000, [MS-RPCE] 3.3.1.5.4; none that we know builds many
_STUB_ALIGNMENT: Final = 16  # [MS-RPCE] 2.2.2.11: the trailer is 16-aligned from the start of the body
_EFFECTIVE: Final[dict[int, int]] = {AuthLevel.DEFAULT: AuthLevel.CONNECT, AuthLevel.CALL: AuthLevel.PACKET}


class Negotiation(Protocol):
    """A context of a security provider: tokens are exchanged until `complete`, then PDUs can be protected."""

    @property
    def complete(self) -> bool: ...

    @property
    def identity(self) -> str | None:
        """The client's authenticated name, once complete."""

    @property
    def signature_size(self) -> int: ...

    def step(self, token: bytes) -> bytes:
        """The next token to send, empty if there is none. AuthenticationFailed ends it."""

    def protect(self, head: bytes, body: bytes, tail: bytes, *, seal: bool, header_sign: bool) -> tuple[bytes, bytes]:
        """(the body to send, the signature). `head` and `tail` are signed too if `header_sign` was agreed."""

    def unprotect(
        self, head: bytes, body: bytes, tail: bytes, signature: bytes, *, seal: bool, header_sign: bool
    ) -> bytes:
        """The original body; AuthenticationFailed if anything was changed."""


class Provider(Protocol):
    """A registered security provider, [MS-RPCE] 3.1.3.1.1."""

    def accept(self) -> Negotiation: ...


def effective_level(level: int) -> int:
    """[MS-RPCE] 2.2.1.1.8: call level counts as packet level, and the default as connect level."""
    return _EFFECTIVE.get(level, level)


@dataclass(slots=True)
class SecurityContext:
    """One row of a connection's table of security contexts."""

    auth_type: int
    auth_level: int
    context_id: int
    negotiation: Negotiation
    failed: bool = False

    @property
    def ready(self) -> bool:
        return self.negotiation.complete and not self.failed

    @property
    def identity(self) -> str | None:
        return self.negotiation.identity if self.ready else None

    @property
    def signs(self) -> bool:
        """At packet level we sign as at integrity level: more than required, but common in other implementations."""
        return self.auth_level >= AuthLevel.PACKET

    @property
    def seals(self) -> bool:
        return self.auth_level == AuthLevel.PRIVACY

    def room(self, room: int) -> int:
        """How much of a stub fits in `room` octets of a fragment."""
        if self.signs:
            room -= TRAILER_SIZE + self.negotiation.signature_size
            room -= room % _STUB_ALIGNMENT
        return room

    def trailer(self, token: bytes, pad_length: int = 0) -> SecTrailer:
        return SecTrailer(self.auth_type, self.auth_level, self.context_id, token, pad_length)

    def protect(self, ptype: int, flags: int, call_id: int, fixed: bytes, stub: bytes, *, header_sign: bool) -> bytes:
        """A whole fragment of `stub` after the `fixed` fields of its type."""
        pad = -len(stub) % _STUB_ALIGNMENT
        body = stub + bytes(pad)
        size = self.negotiation.signature_size
        tail = self.trailer(b"", pad).header()
        whole = HEADER_SIZE + len(fixed) + len(body) + len(tail) + size
        head = header(ptype, flags, whole, size, call_id) + fixed
        sent, signature = self.negotiation.protect(head, body, tail, seal=self.seals, header_sign=header_sign)
        return head + sent + tail + signature

    def unprotect(self, pdu: Request | Response, *, header_sign: bool) -> bytes:
        """The stub of a received fragment, without its padding."""
        trailer = pdu.trailer
        if trailer is None:
            raise AuthenticationFailed("the PDU lacks the agreed protection")
        body = pdu.stub
        if self.signs:
            start = pdu.stub_offset
            end = start + len(body)
            head, tail = pdu.frame[:start], pdu.frame[end : end + TRAILER_SIZE]
            body = self.negotiation.unprotect(head, body, tail, trailer.token, seal=self.seals, header_sign=header_sign)
        if trailer.pad_length > len(body):
            raise AuthenticationFailed(f"must have at most {len(body)} octets of padding, got {trailer.pad_length}")
        return body[: len(body) - trailer.pad_length]


class SecurityContexts:
    """The contexts that a server builds with one client on one connection."""

    def __init__(self, providers: Mapping[int, Provider]) -> None:
        self._providers = providers
        self._table: dict[int, SecurityContext] = {}
        self._building: SecurityContext | None = None
        self._failed = False
        self.header_sign = False

    @property
    def unfinished(self) -> bool:
        """A context is being built: the next octets may contain the proof of a password."""
        return self._building is not None

    def known(self, trailer: SecTrailer | None) -> bool:
        """There is no authentication, or its provider is registered."""
        return trailer is None or trailer.auth_type in self._providers

    def step(self, pdu: Bind | Auth3) -> tuple[SecTrailer | None, SecurityContext | None]:
        """One leg of building a context: the trailer of the answer, and the context once it is built.

        AuthenticationFailed makes it unusable, and this connection can build no further ones.
        """
        trailer = pdu.trailer
        if trailer is None:
            return None, None
        context = self._table.get(trailer.context_id)
        if context is None:
            context = self._begin(pdu, trailer)
        elif not self._continues(context, trailer):
            self._fail(context)
            raise AuthenticationFailed("the authentication leg must belong to the security context being built")
        try:
            token = context.negotiation.step(trailer.token)
        except AuthenticationFailed:
            self._fail(context)
            raise
        if context.ready:
            self._building = None
        return context.trailer(token) if token else None, context if context.ready else None

    def _fail(self, context: SecurityContext) -> None:
        context.failed = True
        self._failed = True
        self._building = None

    def _begin(self, pdu: Bind | Auth3, trailer: SecTrailer) -> SecurityContext:
        level = effective_level(trailer.auth_level)
        if isinstance(pdu, Auth3) or not self.known(trailer):
            raise AuthenticationFailed("unexpected last leg: no security context was begun")
        if not AuthLevel.CONNECT <= level <= AuthLevel.PRIVACY:
            raise AuthenticationFailed(f"unknown authentication level {trailer.auth_level}")
        if len(self._table) >= MAX_CONTEXTS:
            raise AuthenticationFailed(f"a connection must have at most {MAX_CONTEXTS} security contexts")
        # One password at a time, and one guess for each connection; otherwise guesses could not be slowed down.
        if self._building is not None or self._failed:
            raise AuthenticationFailed("a new security context before the last one was complete")
        if not self._table:
            self.header_sign = bool(pdu.flags & PacketFlag.SUPPORT_HEADER_SIGN)
        context = SecurityContext(
            trailer.auth_type, level, trailer.context_id, self._providers[trailer.auth_type].accept()
        )
        self._table[trailer.context_id] = self._building = context
        return context

    def _continues(self, context: SecurityContext, trailer: SecTrailer) -> bool:
        return (
            not context.failed
            and not context.negotiation.complete
            and (context.auth_type, context.auth_level) == (trailer.auth_type, effective_level(trailer.auth_level))
        )

    def of(self, pdu: Request) -> SecurityContext | None:
        """The context of a request; AuthenticationFailed if it may not use it."""
        if pdu.trailer is None:
            return self._unnamed()
        context = self._table.get(pdu.trailer.context_id)
        if context is None or not context.ready:
            raise AuthenticationFailed("the security context is not complete")
        if (context.auth_type, context.auth_level) != (pdu.trailer.auth_type, effective_level(pdu.trailer.auth_level)):
            raise AuthenticationFailed("the provider and level must be those of the security context")
        return context

    def _unnamed(self) -> SecurityContext | None:
        """[MS-RPCE] 3.3.1.5.4: at connect level, the only context also covers requests that name none."""
        if not self._table:
            return None
        context = next(iter(self._table.values()))
        if len(self._table) > 1 or context.auth_level != AuthLevel.CONNECT or not context.ready:
            raise AuthenticationFailed("the request lacks the agreed protection")
        return context
