"""What keeps other web pages out of the console: the host, the origin, a token in every form, and headers. And where a
request comes from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hmac import compare_digest
from ipaddress import IPv4Network, IPv6Network, ip_address

from postroad.net.endpoints import is_address, plain_address

Networks = Iterable[IPv4Network | IPv6Network]

# Only files of the console itself: no inline script or style, nothing from elsewhere, in no frame.
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
    "Cache-Control": "no-store",
}
_SAFE = frozenset({"GET", "HEAD"})
_OWN_PAGES = frozenset({"same-origin", "none"})


class Guard:
    """`names` are the hosts that the console may be called by, besides addresses and localhost."""

    def __init__(self, names: frozenset[str]) -> None:
        self._names = names

    def refusal(self, method: str, headers: Mapping[str, str]) -> str | None:
        """Why a request is refused; None if it is not. A foreign name may resolve to this server, so it counts too."""
        host = headers.get("host", "")
        if not self._is_ours(_without_port(host)):
            return f"Host: {host} must be an address, localhost or a name that --name lists"
        if method in _SAFE:
            return None
        origin = headers.get("origin")
        if origin is not None and origin.partition("://")[2].lower() != host.lower():
            return f"Origin: {origin} is another page, and only the console's own pages may change something"
        site = headers.get("sec-fetch-site")
        if site is not None and site not in _OWN_PAGES:
            return f"Sec-Fetch-Site: {site}: only the console's own pages may change something"
        return None

    @staticmethod
    def is_browser(headers: Mapping[str, str]) -> bool:
        """Browsers say where a request comes from; other programs do not."""
        return "sec-fetch-site" in headers

    def _is_ours(self, name: str) -> bool:
        if name == "localhost" or name.endswith(".localhost") or name in self._names:
            return True
        try:
            ip_address(name)
        except ValueError:
            return False
        return True


def same(given: str, expected: str) -> bool:
    return compare_digest(given.encode(), expected.encode())


def client_address(peer: str, forwarded: str, proxies: Networks) -> str:
    """The address of a browser: the one that the connection comes from, or, from a proxy, the last one in
    `X-Forwarded-For` that is no proxy. What stands before that is only a claim."""
    address = plain_address(peer)
    for each in reversed(forwarded.split(",")):
        if not is_address(each.strip()) or not any(ip_address(address) in proxy for proxy in proxies):
            break
        address = plain_address(each.strip())
    return address


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].lower()
