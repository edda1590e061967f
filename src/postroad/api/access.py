"""Who may call: checks the token, and refuses web pages of other sites. It runs before the router.

It also gives each request its canonical path, because that must happen before the router too.
"""

from __future__ import annotations

from collections.abc import Callable
from hmac import compare_digest
from http import HTTPStatus
from ipaddress import ip_address
from typing import Final

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from postroad.api.identity import LOCAL, TOKEN, Caller, certificate_name
from postroad.api.paths import canonical_path
from postroad.api.problems import problem
from postroad.api.waits import Waits
from postroad.errors import AccessDenied
from postroad.security.attempts import FailedLogins

OPEN_PATHS = frozenset({"/", "/docs", "/healthz", "/readyz"})
MAX_DELAYED: Final = 1024  # delayed answers to wrong tokens at one time; beyond that the server answers at once
_CHALLENGE = {"WWW-Authenticate": "Bearer"}
_HOW_TO_SEND_IT = "send Authorization: Bearer TOKEN, or use --token or POSTROAD_TOKEN for commands, token= in Python"
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_OWN_PAGES = frozenset({"same-origin", "none"})  # values of Sec-Fetch-Site: our own page, or the user of the browser


class Gate:
    """ASGI middleware. Without a token, callers must name this server by an address or one of `names`. `certificates`
    lifts that rule, because TLS then admits only clients with a certificate.

    The answer to a wrong token is delayed, longer each time. A right token never waits.
    """

    def __init__(
        self,
        app: ASGIApp,
        token: str | None,
        names: frozenset[str],
        logins: FailedLogins,
        clock: Callable[[], float],
        waits: Waits,
        certificates: bool = False,
    ) -> None:
        self._app = app
        self._token = None if token is None else token.encode()
        self._names = names
        self._logins = logins
        self._clock = clock
        self._waits = waits
        self._certificates = certificates
        self._delayed = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        scope["path"] = canonical_path(scope["raw_path"].decode("latin-1"))
        refusal = self._refusal(scope["method"], headers)
        if refusal is not None:
            await problem(AccessDenied(refusal))(scope, receive, send)
        elif self._token is not None and scope["path"] not in OPEN_PATHS and not self._has_token(headers):
            fault = "a token is required"
            if "authorization" in headers:
                fault = "the token is wrong"
                await self._slow_down(_address(scope))
            sentence = f"{fault}: {_HOW_TO_SEND_IT}"
            await problem(AccessDenied(sentence), HTTPStatus.UNAUTHORIZED, _CHALLENGE)(scope, receive, send)
        else:
            who = certificate_name(scope) or (LOCAL if self._token is None else TOKEN)
            scope.setdefault("state", {})["caller"] = Caller(who, _address(scope))
            await self._app(scope, receive, send)

    def _has_token(self, headers: Headers) -> bool:
        scheme, _, token = headers.get("authorization", "").partition(" ")
        return scheme.lower() == "bearer" and compare_digest(token.strip().encode("latin-1"), self._token or b"")

    async def _slow_down(self, address: str) -> None:
        now = self._clock()
        self._logins.failed(address, now, door="api", who=None)
        wait = self._logins.delay(address, now)
        if wait and self._delayed < MAX_DELAYED:
            self._delayed += 1
            try:
                await self._waits.pause(wait)
            finally:
                self._delayed -= 1

    def _refusal(self, method: str, headers: Headers) -> str | None:
        """A browser says which page a request comes from. A foreign name may also resolve to this server."""
        host = headers.get("host", "")
        origin = headers.get("origin")
        if origin is not None and origin.partition("://")[2].lower() != host.lower():
            return f"Origin: {origin} is not this server: pages of other origins may not call it"
        site = headers.get("sec-fetch-site")
        if method not in _SAFE and site is not None and site.lower() not in _OWN_PAGES:
            return f"Sec-Fetch-Site: {site}: only this server's own web pages may call it"
        if self._token is None and not self._certificates and host and not self._is_ours(_without_port(host)):
            return f"Host: {host} must be an address or this server's name; set api.token to use other names"
        return None

    def _is_ours(self, name: str) -> bool:
        if name in self._names or name.endswith(".localhost"):
            return True
        try:
            ip_address(name)
        except ValueError:
            return False
        return True


def _address(scope: Scope) -> str:
    client = scope.get("client")
    return client[0] if client else "unknown"


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].lower()
