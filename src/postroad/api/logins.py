"""Logins by Kerberos: `Authorization: Negotiate` of [RFC 4559], and the sessions that follow them.

A ticket counts once, and checking it takes longer than many calls. So clients exchange one for a session's token, which
ends with the ticket. Passwords and the API's own token are in gate.py.
"""

from __future__ import annotations

import asyncio
import secrets
from base64 import b64decode, b64encode
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from typing import Final

from postroad.errors import AuthenticationFailed
from postroad.net.exchange import Request
from postroad.rpc.gss import KerberosAcceptor
from postroad.rpc.negotiate import KERBEROS, MS_KERBEROS, SPNEGO, Mechanism, SpnegoAcceptor
from postroad.rpc.tickets import Owner, Principals
from postroad.runtime.bounded import BoundedTable, Standing, owner_of
from postroad.security.kerberos import MAX_TOKEN, Acceptor, end_point_binding

SCHEME: Final = "Negotiate"
SESSION_PREFIX: Final = "session-"  # no configured token needs it, and it tells an ended session from a wrong token
SESSION_S: Final = 3600.0  # at most; then the client shows a ticket again, so that new groups count
MAX_SESSIONS: Final = 10_000
_MAX_PROOF: Final = MAX_TOKEN * 4 // 3 + 4  # characters
_OID_WITHIN: Final = 16  # octets of a first token that contain the name of its mechanism
_NTLM_SIGNATURE: Final = b"NTLMSSP\0"


@dataclass(frozen=True, slots=True)
class Login:
    """Somebody who has shown a ticket. `answer` proves to the client who the server is."""

    owner: Owner
    answer: str
    lifetime_s: float


@dataclass(frozen=True, slots=True)
class Session:
    """A login that goes on."""

    owner: Owner
    ends_at: float


@dataclass(frozen=True, slots=True)
class KerberosSettings:
    """`require_binding` refuses tickets that are not bound to their TLS connection."""

    acceptor: Acceptor
    principals: Principals
    require_binding: bool = False


class KerberosLogins:
    """The tickets and the sessions of one API."""

    def __init__(self, settings: KerberosSettings, clock: Callable[[], float]) -> None:
        self._settings = settings
        self._clock = clock
        self._sessions: BoundedTable[bytes, Session] = BoundedTable(MAX_SESSIONS)

    def use(self, settings: KerberosSettings) -> None:
        """Takes another keytab. Sessions go on."""
        self._settings = settings

    async def check(self, proof: str, request: Request) -> Login:
        """Checks a ticket. Raises AuthenticationFailed with a sentence. It runs in a thread, because it writes the
        replay cache."""
        if len(proof) > _MAX_PROOF:
            raise AuthenticationFailed(f"a Negotiate token must have at most {_MAX_PROOF} characters")
        try:
            token = b64decode(proof, validate=True)
        except ValueError:
            raise AuthenticationFailed("Authorization: Negotiate must be followed by a token in base64") from None
        if token.startswith(_NTLM_SIGNATURE):
            raise AuthenticationFailed(
                "the client tries NTLM, and only Kerberos counts here: run kinit, and use the host name for which the "
                "server has a service principal"
            )
        certificate = request.connection.own_certificate
        end_point = None if certificate is None else _end_point(certificate)
        return await asyncio.to_thread(self._check, token, end_point)

    def _check(self, token: bytes, end_point: bytes | None) -> Login:
        settings = self._settings
        context = settings.acceptor.begin(end_point)
        kerberos = KerberosAcceptor(context, settings.principals)
        mechanism: Mechanism | SpnegoAcceptor = kerberos
        if SPNEGO in token[:_OID_WITHIN]:
            mechanism = SpnegoAcceptor(dict.fromkeys((KERBEROS, MS_KERBEROS), _Single(kerberos)))
        answer = mechanism.step(token)
        if not mechanism.complete:
            raise AuthenticationFailed("Kerberos must be the client's first choice, with its ticket in the first token")
        if settings.require_binding and end_point is not None and not context.ticket.bound:
            raise AuthenticationFailed(
                "the ticket must be bound to the TLS connection (api.require_channel_binding), and this client does not"
            )
        return Login(kerberos.owner, b64encode(answer).decode(), context.ticket.lifetime_s)

    # Sessions

    def begin_session(self, login: Login, address: str) -> tuple[str, float]:
        """Returns the token of a new session, and for how many seconds it counts. The oldest one of those who have most
        leaves if there are too many."""
        lasts = max(min(login.lifetime_s, SESSION_S), 0.0)
        token = SESSION_PREFIX + secrets.token_urlsafe(32)
        session = Session(login.owner, self._clock() + lasts)
        self._sessions.put(_digest(token), session, f"{owner_of(address)} {login.owner.name}", Standing.PROVEN)
        return token, lasts

    def session(self, token: str) -> Session | None:
        """The session of a token; None if it has ended."""
        key = _digest(token)
        found = self._sessions.get(key)
        if found is not None and found.ends_at <= self._clock():
            self._sessions.pop(key)
            return None
        return found


class _Single:
    """A provider of one mechanism, which one client uses once."""

    def __init__(self, mechanism: Mechanism) -> None:
        self._mechanism = mechanism

    def accept(self) -> Mechanism:
        return self._mechanism


@lru_cache(8)
def _end_point(certificate: bytes) -> bytes:
    return end_point_binding(certificate)


def _digest(token: str) -> bytes:
    return sha256(token.encode("utf-8", "surrogatepass")).digest()
