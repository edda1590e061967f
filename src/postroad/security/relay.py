"""Which hosts this manager may call because of messages of unknown senders: to forward, acknowledge, report or send
receipts.

This module only decides. Code that makes an outgoing queue for such a message asks here first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network

MAX_NAMED_HOSTS = 100_000  # hosts that local applications named; the least recently named is forgotten first


@dataclass(frozen=True, slots=True)
class RelayRule:
    """One item of `[relay] allow`: a network, or a pattern of host names in lower case."""

    network: IPv4Network | IPv6Network | None
    pattern: str = ""

    @classmethod
    def parse(cls, text: str) -> RelayRule:
        """`10.0.0.0/8`, `10.0.0.5`, `fd00::/8`, `*.corp.local`, `*`. Raises ValueError for other text."""
        try:
            return cls(ip_network(text))
        except ValueError as fault:
            if "/" in text or text.replace(".", "").isdecimal() or ":" in text:
                raise ValueError(f"must be a network, got {text!r}: {fault}") from None
        if not text.replace("*", "a").replace("-", "a").replace(".", "a").replace("_", "a").isalnum():
            raise ValueError(f"must be a network (10.0.0.0/8) or a host pattern (*.corp.local), got {text!r}")
        return cls(None, text.lower())

    def covers(self, host: str) -> bool:
        if self.network is None:
            return fnmatchcase(host, self.pattern)
        try:
            return ip_address(host.partition("%")[0]) in self.network
        except ValueError:
            return False  # a name; it is not resolved here


ANY_HOST = RelayRule(None, "*")


class Relay:
    """A host is a name or an address. `known` are the managers of the directory and of `[peers]`."""

    def __init__(self, rules: Iterable[RelayRule] = (), known: Callable[[str], bool] = lambda host: False) -> None:
        self._rules = tuple(rules)
        self._known = known
        self._named: dict[str, None] = {}

    def use(self, rules: Iterable[RelayRule]) -> None:
        """Other rules. Who was named stays so."""
        self._rules = tuple(rules)

    @property
    def everything(self) -> bool:
        """Whether `*` is on the list, so that any host may be called."""
        return any(rule.pattern == "*" for rule in self._rules)

    def lists(self, host: str) -> bool:
        """Whether the configured list allows the host. Known hosts do not count."""
        host = host.lower()
        return any(rule.covers(host) for rule in self._rules)

    def name(self, host: str) -> None:
        """Records that a local application or the configuration has named this host as a destination."""
        host = host.lower()
        self._named.pop(host, None)
        self._named[host] = None
        if len(self._named) > MAX_NAMED_HOSTS:
            del self._named[next(iter(self._named))]

    def allows(self, host: str, origin: str | None = None) -> bool:
        """Whether a message that came from the address `origin` may make this manager call `host`."""
        host = host.lower()
        if origin is not None and host == origin.partition("%")[0].lower():
            return True
        return host in self._named or self.trusts(host)

    def names(self, host: str) -> bool:
        """Whether the directory, `[peers]` or a local application has named the host."""
        host = host.lower()
        return host in self._named or self._known(host)

    def trusts(self, address: str) -> bool:
        """Whether the host is in the directory, `[peers]` or `[relay] allow`. A host that was only named is not
        trusted."""
        return self._known(address.lower()) or self.lists(address)
