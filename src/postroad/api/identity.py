"""Who calls: an administrator or a user, as rights and the audit log need it; the subject of a TLS certificate."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from postroad.net.http import BoundedHttpProtocol
from postroad.security.access import Token

TOKEN: Final = "token"
LOCAL: Final = "local"
ANONYMOUS: Final = "anonymous"
CALLER, HEADERS = "caller", "headers"  # keys in the state of a request's scope; the first header of each name counts
_NO_USERS = frozenset({TOKEN, LOCAL, ANONYMOUS, "configuration"})
_TLS: Final = "tls"  # the name of the ASGI extension
_NAME: Final = "client_cert_name"
_SHORT: Mapping[str, str] = {
    "commonName": "CN",
    "organizationalUnitName": "OU",
    "organizationName": "O",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "countryName": "C",
    "domainComponent": "DC",
    "userId": "UID",
}
_ESCAPED = str.maketrans({each: f"\\{each}" for each in '\\,+"<>;='})


@dataclass(frozen=True, slots=True)
class Caller:
    """`who` is "token", the subject of a certificate, a user, or "local" for a caller that needs no credentials.

    `right` says what the caller may do now: a user may be removed, and a token replaced, while a call waits.
    """

    who: str
    address: str
    right: Callable[[], Token]

    @property
    def token(self) -> Token:
        return self.right()


def user_name(name: str) -> str:
    """A user's name in the audit log, which no other kind of caller can have."""
    return f"user:{name}" if "=" in name or name.casefold() in _NO_USERS else name


class NamingProtocol(BoundedHttpProtocol):
    """HTTP whose requests carry the subject of the client's certificate, if there is one."""

    _subject: str | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        certificate = transport.get_extra_info("peercert")
        if certificate:
            self._subject = subject(certificate)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if self._subject is not None:
            self.scope["extensions"] = {_TLS: {_NAME: self._subject}}


def certificate_name(scope: Mapping[str, Any]) -> str | None:
    name: str | None = scope.get("extensions", {}).get(_TLS, {}).get(_NAME)
    return name


def subject(certificate: Mapping[str, Any]) -> str:
    """`CN=ann,O=Example`, the last part first as in [RFC 4514], from the names that `ssl` gives."""
    parts = [
        "+".join(f"{_SHORT.get(name, name)}={value.translate(_ESCAPED)}" for name, value in part)
        for part in certificate.get("subject", ())
    ]
    return ",".join(reversed(parts)) or "a certificate without a subject"
