"""HTTP/1.1 of the API: what uvicorn does, with the headers read in one step."""

from __future__ import annotations

from postroad.api.gate import NamingProtocol
from postroad.net.http import MAX_HEADERS


class ApiProtocol(NamingProtocol):
    def on_header(self, name: bytes, value: bytes) -> None:
        """As its bases do it together: a request has many headers."""
        if len(self.headers) >= MAX_HEADERS:
            raise ValueError("too many headers")
        name = name.lower()
        if name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        self.headers.append((name, value))
