"""Who may call: the token, and no web page that a browser was lured to. Stands before the router, and decides alone.

Also gives each request its canonical path, since that has to happen before the router too.
"""

from __future__ import annotations

from hmac import compare_digest
from http import HTTPStatus
from ipaddress import ip_address

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from postroad.api.paths import canonical_path
from postroad.api.problems import problem
from postroad.errors import AccessDenied

OPEN_PATHS = frozenset({"/", "/docs", "/healthz", "/readyz"})
_CHALLENGE = {"WWW-Authenticate": "Bearer"}
_HOW_TO_GIVE_IT = "Authorization: Bearer TOKEN in HTTP, --token or POSTROAD_TOKEN for commands, token= in Python"


class Gate:
    """ASGI middleware. Without a token, callers must name this server by an address or one of `names`."""

    def __init__(self, app: ASGIApp, token: str | None, names: frozenset[str]) -> None:
        self._app = app
        self._token = None if token is None else token.encode()
        self._names = names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        scope["path"] = canonical_path(scope["raw_path"].decode("latin-1"))
        refusal = self._refusal(headers)
        if refusal is not None:
            await problem(AccessDenied(refusal))(scope, receive, send)
        elif self._token is not None and scope["path"] not in OPEN_PATHS and not self._has_token(headers):
            fault = "the token is not this server's" if "authorization" in headers else "this server wants a token"
            sentence = f"{fault}: {_HOW_TO_GIVE_IT}"
            await problem(AccessDenied(sentence), HTTPStatus.UNAUTHORIZED, _CHALLENGE)(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _has_token(self, headers: Headers) -> bool:
        scheme, _, token = headers.get("authorization", "").partition(" ")
        return scheme.lower() == "bearer" and compare_digest(token.strip().encode("latin-1"), self._token or b"")

    def _refusal(self, headers: Headers) -> str | None:
        """A browser says which page a request comes from, and a name that leads here need not be ours."""
        host = headers.get("host", "")
        origin = headers.get("origin")
        if origin is not None and origin.partition("://")[2].lower() != host.lower():
            return f"Origin: {origin} is not this server: web pages of other origins cannot call it"
        if self._token is None and host and not self._is_ours(_without_port(host)):
            return f"Host: {host} is neither an address nor this server's name; configure a token to use other names"
        return None

    def _is_ours(self, name: str) -> bool:
        if name in self._names or name.endswith(".localhost"):
            return True
        try:
            ip_address(name)
        except ValueError:
            return False
        return True


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].lower()
