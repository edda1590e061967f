"""Security contexts of a connection: the client's identity, and the protection of PDUs, [MS-RPCE] 3.3.1.5.2.

The providers (NTLM, SPNEGO, Kerberos) are separate modules. Nothing here knows their tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from postroad.errors import AuthenticationFailed
from postroad.rpc.constants import AuthLevel, PacketFlag
from postroad.rpc.pdu import (
    HEADER_SIZE,
    TRAILER_SIZE,
    Auth3,
    Bind,
    Request,
    Response,
    SecTrailer,
    header,
)
from postroad.security.users import User

MAX_CONTEXTS: Final = 64  # a client may build 2000, [MS-RPCE] 3.3.1.5.4, but no known client builds many
_STUB_ALIGNMENT: Final = 16  # [MS-RPCE] 2.2.2.11: the trailer is aligned to 16 from the start of the body
_EFFECTIVE: Final[dict[int, int]] = {AuthLevel.DEFAULT: AuthLevel.CONNECT, AuthLevel.CALL: AuthLevel.PACKET}


class Negotiation(Protocol):
    """A security provider's context. The sides exchange tokens until it is `complete`; then it can protect PDUs."""

    @property
    def complete(self) -> bool: ...

    @property
    def identity(self) -> str | None:
        """The client's authenticated name. Valid once the context is complete."""

    @property
    def account(self) -> User | None:
        """The client's account, if it is not that of a user of the configuration."""

    def signature_size(self, *, seal: bool) -> int: ...

    def step(self, token: bytes) -> bytes:
        """Takes a token and returns the next one to send, or none. AuthenticationFailed ends the negotiation."""

    def protect(self, head: bytes, body: bytes, tail: bytes, *, seal: bool, header_sign: bool) -> tuple[bytes, bytes]:
        """Returns (the body to send, the signature), which covers `head` and `tail` too if `header_sign` was agreed."""

    def unprotect(
        self, head: bytes, body: bytes, tail: bytes, signature: bytes, *, seal: bool, header_sign: bool
    ) -> bytes:
        """Returns the original body. Raises AuthenticationFailed if anything was changed."""


class Provider(Protocol):
    """A registered security provider, [MS-RPCE] 3.1.3.1.1."""

    def accept(self) -> Negotiation: ...


def effective_level(level: int) -> int:
    """The level that counts, [MS-RPCE] 2.2.1.1.8: call level becomes packet level, default becomes connect level."""
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
    def account(self) -> User | None:
        return self.negotiation.account if self.ready else None

    @property
    def signs(self) -> bool:
        """Whether PDUs are signed. Packet level signs too: this is not required, but other implementations do it."""
        return self.auth_level >= AuthLevel.PACKET

    @property
    def seals(self) -> bool:
        return self.auth_level == AuthLevel.PRIVACY

    def room(self, room: int) -> int:
        """How many octets of a stub fit in `room` octets of a fragment."""
        if self.signs:
            room -= TRAILER_SIZE + self.negotiation.signature_size(seal=self.seals)
            room -= room % _STUB_ALIGNMENT
        return room

    def trailer(self, token: bytes, pad_length: int = 0) -> SecTrailer:
        return SecTrailer(self.auth_type, self.auth_level, self.context_id, token, pad_length)

    def protect(self, ptype: int, flags: int, call_id: int, fixed: bytes, stub: bytes, *, header_sign: bool) -> bytes:
        """Builds a whole fragment: the header, the `fixed` fields of its type, and the protected `stub`."""
        pad = -len(stub) % _STUB_ALIGNMENT
        body = stub + bytes(pad)
        size = self.negotiation.signature_size(seal=self.seals)
        tail = self.trailer(b"", pad).header()
        whole = HEADER_SIZE + len(fixed) + len(body) + len(tail) + size
        head = header(ptype, flags, whole, size, call_id) + fixed
        sent, signature = self.negotiation.protect(head, body, tail, seal=self.seals, header_sign=header_sign)
        return head + sent + tail + signature

    def unprotect(self, pdu: Request | Response, *, header_sign: bool) -> bytes:
        """Returns the stub of a received fragment, without its padding."""
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
    """The security contexts that one client builds on one connection of a server."""

    def __init__(self, providers: Mapping[int, Provider]) -> None:
        self._providers = providers
        self._table: dict[int, SecurityContext] = {}
        self._building: SecurityContext | None = None
        self._failed = False
        self.header_sign = False

    @property
    def unfinished(self) -> bool:
        """Whether a context is being built. Then the next octets may contain the proof of a password."""
        return self._building is not None

    def known(self, trailer: SecTrailer | None) -> bool:
        """Whether the client does not authenticate, or its provider is registered."""
        return trailer is None or trailer.auth_type in self._providers

    def step(self, pdu: Bind | Auth3) -> tuple[SecTrailer | None, SecurityContext | None]:
        """Takes one leg of building a context. Returns the trailer of the answer, and the context once it is complete.

        After AuthenticationFailed the context cannot be used, and this connection can build no other.
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
        # One login at a time, and one guess for each connection; otherwise guesses could not be slowed down.
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
        """The context of a request. Raises AuthenticationFailed if the request may not use it."""
        if pdu.trailer is None:
            return self._unnamed()
        context = self._table.get(pdu.trailer.context_id)
        if context is None or not context.ready:
            raise AuthenticationFailed("the security context is not complete")
        if (context.auth_type, context.auth_level) != (pdu.trailer.auth_type, effective_level(pdu.trailer.auth_level)):
            raise AuthenticationFailed("the provider and level must be those of the security context")
        return context

    def _unnamed(self) -> SecurityContext | None:
        """The context for requests that name none. At connect level a single context covers them: [MS-RPCE]
        3.3.1.5.4."""
        if not self._table:
            return None
        context = next(iter(self._table.values()))
        if len(self._table) > 1 or context.auth_level != AuthLevel.CONNECT or not context.ready:
            raise AuthenticationFailed("the request lacks the agreed protection")
        return context
