"""The HTTP listener of the SOAP protocol. Every bad request gets 400 and no body."""

from __future__ import annotations

from http import HTTPStatus

from postroad.net.http import BoundedHttpProtocol, HttpListener

_BAD_REQUEST = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


class SoapProtocol(BoundedHttpProtocol):
    """A peer that trickles a request, or never ends it, loses its connection and nothing else."""

    def refuse(self, status: HTTPStatus, sentence: str) -> None:
        self.transport.write(_BAD_REQUEST)
        self.transport.close()


class Listener(HttpListener):
    """One port, with a certificate for HTTPS."""

    protocol = SoapProtocol
    task = "listener"
    table = "srmp"
