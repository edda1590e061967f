"""A client's Kerberos ticket for one login at an HTTP API, [RFC 4559]. Loaded only where somebody logs in so."""

from __future__ import annotations

from base64 import b64decode, b64encode

from postroad.errors import AccessDenied, AuthenticationFailed
from postroad.security.kerberos import end_point_binding, initiate, proceed

SCHEME = "Negotiate"


class Ticket:
    """A ticket for `HTTP/host`, bound to the server's TLS certificate (DER), if there is one. Whoever ends TLS between
    client and server has another certificate, and cannot use the ticket.

    Raises AccessDenied with a sentence if there is no ticket to be had.
    """

    def __init__(self, host: str, certificate: bytes | None) -> None:
        self._host = host
        end_point = None if certificate is None else end_point_binding(certificate)
        try:
            self._context, token = initiate(host, "HTTP", end_point=end_point, spnego=True)
        except AuthenticationFailed as fault:
            raise AccessDenied(str(fault)) from None
        self.authorization = f"{SCHEME} {b64encode(token).decode()}"

    def check(self, answer: str) -> None:
        """Checks the server's WWW-Authenticate. Raises AccessDenied if it does not prove that it is `host`."""
        scheme, _, proof = answer.partition(" ")
        try:
            if scheme.lower() == SCHEME.lower() and not self._context.complete:
                proceed(self._context, b64decode(proof), self._host)
        except (AuthenticationFailed, ValueError) as fault:
            raise AccessDenied(str(fault)) from None
        if not self._context.complete:
            raise AccessDenied(f"{self._host} does not prove by Kerberos who it is")
