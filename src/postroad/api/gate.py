"""The gate of the API: who asks, and what they may do."""

from __future__ import annotations

import secrets
from base64 import b64decode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from hashlib import sha256
from hmac import compare_digest
from http import HTTPStatus
from ipaddress import ip_address
from typing import Final

from postroad.api.logins import SCHEME, SESSION_PREFIX, KerberosLogins
from postroad.api.problems import problem
from postroad.api.waits import Waits
from postroad.errors import AccessDenied, AuthenticationFailed
from postroad.net.endpoints import CALLED_FOR, is_loopback, vouched_address
from postroad.net.exchange import Request, Response
from postroad.queues.permissions import Access
from postroad.rpc.tickets import Owner
from postroad.security.access import Token
from postroad.security.attempts import FailedLogins

# Who calls: checks the token, passwords and where requests come from, and refuses web pages of other sites. What a
# caller may do is in calls.py.


OPEN_PATHS = frozenset({"/", "/docs", "/healthz", "/readyz"})
MAX_DELAYED: Final = 1024  # delayed answers at a time; beyond that all logins, and wrong tokens, are refused at once
MAX_PROVED: Final = 4096  # right logins to remember
_HOW_TO_SEND_IT = "send Authorization: Bearer TOKEN, or use --token or POSTROAD_TOKEN for commands, token= in Python"
_TOKEN_MISSING = f"a token is required: {_HOW_TO_SEND_IT}; a user logs in with --user or POSTROAD_USER, user= in Python"
_TOKEN_WRONG = f"the token is wrong: {_HOW_TO_SEND_IT}"
_LOGIN_WRONG = "the user or the password is wrong"
_NEEDS_TLS = "a password or a ticket needs TLS, except from 127.0.0.1 and ::1: use https, and set api.tls_certificate"
_SESSION_ENDED = "the session has ended: log in again"
_SENT_TWICE = "Authorization must be sent once, got it several times"
_BUSY = "too many logins from other callers wait for their turn: try again later"
_CALLED_FOR = CALLED_FOR.lower().encode()
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_OWN_PAGES = frozenset({"same-origin", "none"})  # of Sec-Fetch-Site: one of our own pages, or the browser's user
_ADMINISTRATOR, _NOBODY = Token.administrator(), Token.nobody()


@dataclass(frozen=True, slots=True)
class _Refusal:
    fault: str
    status: HTTPStatus = HTTPStatus.UNAUTHORIZED


class Gate:
    """Without a token, callers must name this server by an address or one of `names`. With `certificates` they need
    not, because TLS then admits only clients with a certificate.

    The answer to a wrong token is delayed, longer each time. A right token never waits. A login waits for its turn
    before it is checked, because passwords can be guessed. It does not wait if the same address has used it before.

    A console calls for many people. It names a person's address, and proves with a key that it may: the manager's own
    console with `console_key`, others with the token. Delays and the audit log then go by that address.
    """

    def __init__(
        self,
        token: str | None,
        names: frozenset[str],
        logins: FailedLogins,
        clock: Callable[[], float],
        waits: Waits,
        access: Access,
        certificates: bool = False,
        credentials: Mapping[str, str] | None = None,
        console_key: str | None = None,
        kerberos: KerberosLogins | None = None,
    ) -> None:
        self.kerberos = kerberos
        self._console_key = None if console_key is None else console_key.encode()
        self._names = names
        self._logins = logins
        self._clock = clock
        self._waits = waits
        self._access = access
        self._certificates = certificates
        self._no_password = secrets.token_bytes(32)  # compared for unknown users, so that their logins take as long
        self._proved: dict[tuple[str, bytes], None] = {}
        self._delayed = 0
        self.set_credentials(token, credentials or {})

    def set_credentials(self, token: str | None, passwords: Mapping[str, str]) -> None:
        """Replaces the token and the passwords of users by name. Earlier logins are checked again."""
        self._token = None if token is None else token.encode()
        self._passwords = {name.casefold(): _digest(word) for name, word in passwords.items() if word}
        self._proved.clear()
        self._challenge = 'Bearer, Basic realm="postroad"' if passwords else "Bearer"

    def known(self, request: Request) -> Caller | None:
        """Who calls, if that needs no waiting; otherwise None, and `admit` finds out."""
        if self._refusal(request.method, request.headers) is not None:
            return None
        return self._known(request)

    async def admit(self, request: Request) -> Caller | Response:
        """Who calls, or the refusal. The path of the request must be canonical already."""
        refusal = self._refusal(request.method, request.headers)
        if refusal is not None:
            return problem(AccessDenied(refusal))
        caller = await self._caller(request)
        if isinstance(caller, _Refusal):
            challenge = self._challenges(request) if caller.status is HTTPStatus.UNAUTHORIZED else None
            return problem(AccessDenied(caller.fault), caller.status, challenge)
        return caller

    def _challenges(self, request: Request) -> dict[str, str]:
        """How callers can log in. Kerberos comes first, because clients take the first that they have."""
        by_ticket = self.kerberos is not None and self._is_protected(request)
        return {"WWW-Authenticate": f"{SCHEME}, {self._challenge}" if by_ticket else self._challenge}

    def _is_protected(self, request: Request) -> bool:
        """Whether nobody else can read the request."""
        return request.connection.secure or _is_here(request.connection.peer)

    def _known(self, request: Request) -> Caller | None:
        """A caller who needs no proof, or who has the right token."""
        if request.path in OPEN_PATHS:
            return Caller(ANONYMOUS, self._address(request), Token.anonymous)
        given, token = request.headers.get(b"authorization"), self._token
        if given is None:
            right = token is None
        elif self.kerberos is not None and (session := _session_token(given)) is not None:
            return self._by_session(request, self.kerberos, session)
        else:
            right = (
                token is not None
                and given[:7].lower() == "bearer "
                and compare_digest(given[7:].strip().encode("latin-1"), token)
                and sum(name == b"authorization" for name, _ in request.fields) == 1
            )
        if not right:
            return None
        who = request.connection.subject or (LOCAL if token is None else TOKEN)
        return Caller(who, self._address(request), lambda: _ADMINISTRATOR if self._token == token else _NOBODY)

    def _address(self, request: Request) -> str:
        return self._called_for(request.headers) or request.connection.peer

    async def _caller(self, request: Request) -> Caller | _Refusal:
        known = self._known(request)
        if known is not None:
            return known
        address = self._address(request)
        given = request.headers.get(b"authorization")
        if given is not None and sum(name == b"authorization" for name, _ in request.fields) > 1:
            return await self._wrong(address, _SENT_TWICE)
        if given is not None and self.kerberos is not None and _session_token(given) is not None:
            return _Refusal(_SESSION_ENDED)
        scheme, _, proof = (given or "").partition(" ")
        if scheme.lower() == SCHEME.lower() and self.kerberos is not None:
            return await self._by_ticket(request, self.kerberos, address, proof.strip())
        if scheme.lower() == "basic" and self._passwords:
            return await self._user(request, address, proof.strip())
        if self._token is not None:
            if given is None:
                return _Refusal(_TOKEN_MISSING)
            return await self._wrong(address, _TOKEN_WRONG)
        if scheme.lower() != "bearer":
            return await self._wrong(address, _LOGIN_WRONG)
        who = request.connection.subject or LOCAL  # an unneeded token does no harm
        return Caller(who, address, lambda: _ADMINISTRATOR if self._token is None else _NOBODY)

    def _called_for(self, headers: Mapping[bytes, str]) -> str | None:
        """The address that a console calls for. None if the caller is no console, or cannot prove to be one."""
        value = headers.get(_CALLED_FOR)
        if value is None:
            return None
        return vouched_address(value, [each for each in (self._console_key, self._token) if each is not None])

    async def _by_ticket(
        self, request: Request, kerberos: KerberosLogins, address: str, proof: str
    ) -> Caller | _Refusal:
        if not self._is_protected(request):
            return await self._wrong(address, _NEEDS_TLS)
        try:
            login = await kerberos.check(proof, request)
        except AuthenticationFailed as fault:
            # No delay as after a wrong password: tickets cannot be guessed.
            self._logins.failed(address, self._clock(), door="api", who=fault.who)
            return _Refusal(str(fault))
        return Caller(
            user_name(login.owner.name),
            address,
            partial(self._right_of, login.owner),
            answer=f"{SCHEME} {login.answer}" if login.answer else None,
            begin_session=partial(kerberos.begin_session, login, address),
        )

    def _by_session(self, request: Request, kerberos: KerberosLogins, token: str) -> Caller | None:
        session = kerberos.session(token)
        if session is None or sum(name == b"authorization" for name, _ in request.fields) > 1:
            return None
        right = partial(self._right_in, kerberos, token, session.owner)
        return Caller(user_name(session.owner.name), self._address(request), right)

    def _right_in(self, kerberos: KerberosLogins, token: str, owner: Owner) -> Token:
        return self._right_of(owner) if kerberos.session(token) is not None else _NOBODY

    def _right_of(self, owner: Owner) -> Token:
        """The rights of somebody who has shown a ticket, as of now."""
        if owner.account is not None:
            return self._access.login_token(owner.account)
        user = self._access.users.named(owner.name)
        return _NOBODY if user is None else user.token

    async def _user(self, request: Request, address: str, proof: str) -> Caller | _Refusal:
        """[RFC 7617]. An unknown user, a wrong password and a login that cannot be read get the same answer."""
        name, word = _login(proof)
        if not self._is_protected(request):
            return await self._wrong(address, _NEEDS_TLS, name)
        key = address, _digest(proof)
        if key not in self._proved and not await self._turn(address):
            return _Refusal(_BUSY, HTTPStatus.TOO_MANY_REQUESTS)
        expected = self._passwords.get(name.casefold())
        right = compare_digest(_digest(word), expected or self._no_password) and expected is not None
        user = self._access.users.named(name) if right else None
        if user is None:
            self._logins.failed(address, self._clock(), door="api", who=name)
            return _Refusal(_LOGIN_WRONG)
        self._proved[key] = None
        if len(self._proved) > MAX_PROVED:
            del self._proved[next(iter(self._proved))]
        return Caller(user_name(user.name), address, partial(self._right, user.name, expected))

    def _right(self, name: str, password: bytes | None) -> Token:
        """The rights of a user who logged in with this password, as of now."""
        users = self._access.users
        user = users.named(name)
        return _NOBODY if user is None or self._passwords.get(name.casefold()) != password else users.token(user.sid)

    async def _turn(self, address: str) -> bool:
        """Waits as long as logins of this address must. Returns False if too many wait."""
        while wait := self._logins.delay(address, self._clock()):
            if not await self._pause(wait):
                return False
        return True

    async def _wrong(self, address: str, fault: str, who: str | None = None) -> _Refusal:
        now = self._clock()
        self._logins.failed(address, now, door="api", who=who)
        await self._pause(self._logins.delay(address, now))
        return _Refusal(fault)

    async def _pause(self, seconds: float) -> bool:
        if not seconds:
            return True
        if self._delayed >= MAX_DELAYED:
            return False
        self._delayed += 1
        try:
            await self._waits.pause(seconds)
        finally:
            self._delayed -= 1
        return True

    def _refusal(self, method: str, headers: Mapping[bytes, str]) -> str | None:
        """Why a request is refused by its headers; None if it is not. Browsers say which page a request comes from. A
        foreign host name may resolve to this server."""
        host = headers.get(b"host", "")
        origin = headers.get(b"origin")
        if origin is not None and origin.partition("://")[2].lower() != host.lower():
            return f"Origin: {origin} is not this server: pages of other origins may not call it"
        site = headers.get(b"sec-fetch-site")
        if method not in _SAFE and site is not None and site.lower() not in _OWN_PAGES:
            return f"Sec-Fetch-Site: {site}: only this server's own web pages may call it"
        if self._token is None and not self._certificates and host and not self._is_ours(_without_port(host)):
            return f"Host: {host} must be an address or this server's name; set api.token to use other names"
        return None

    def _is_ours(self, name: str) -> bool:
        return name in self._names or name.endswith(".localhost") or _is_address(name)


@lru_cache(256)
def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _digest(text: str) -> bytes:
    """Has the same length for every text, so that comparing digests does not reveal the length of a password."""
    return sha256(text.encode("utf-8", "surrogatepass")).digest()


def _login(proof: str) -> tuple[str, str]:
    """The name and the password of a login. An empty name if the login cannot be read."""
    try:
        name, colon, word = b64decode(proof, validate=True).decode().partition(":")
    except ValueError:
        return "", ""
    return (name, word) if colon else ("", "")


def _is_here(address: str) -> bool:
    """Whether an address is on this computer."""
    try:
        return is_loopback(address)
    except ValueError:  # the address is not known
        return False


def _session_token(given: str) -> str | None:
    """The token of a session in the value of Authorization; None for other credentials."""
    if given[:7].lower() != "bearer ":
        return None
    token = given[7:].strip()
    return token if token.startswith(SESSION_PREFIX) else None


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].lower()


# A caller, an administrator or a user, in the form that rights and the audit log need.


TOKEN: Final = "token"
LOCAL: Final = "local"
ANONYMOUS: Final = "anonymous"
_NO_USERS = frozenset({TOKEN, LOCAL, ANONYMOUS, "configuration"})


@dataclass(frozen=True, slots=True)
class Caller:
    """`who` is "token", the subject of a certificate, a user, or "local" for a caller who needs no credentials.

    `right` returns the caller's rights as of now: while a call waits, the user may be removed or the token replaced.
    """

    who: str
    address: str
    right: Callable[[], Token]
    answer: str | None = None  # the last token of a login by Kerberos, for the client
    begin_session: Callable[[], tuple[str, float]] | None = None  # only for somebody who has just shown a ticket

    @property
    def token(self) -> Token:
        return self.right()


def user_name(name: str) -> str:
    """A user's name in the form for the audit log, which no other kind of caller can have."""
    return f"user:{name}" if "=" in name or name.casefold() in _NO_USERS else name
