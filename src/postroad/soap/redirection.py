"""Redirections of URLs, [MC-MQSRM] 3.1.1.1.7 to 3.1.1.1.10: what an administrator maps to something else.

Only values and matching. Who is sent where because of it is the sender's and the receiver's business.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from postroad.net.ports import HTTP, HTTPS

ORDER_QUEUE_PATH = "/MSMQ/PRIVATE$/order_queue$"  # 3.1.7.2.4, with the slash that the text forgets
_DEFAULT_PORTS = {"http": HTTP, "https": HTTPS}


def matches(url: str, pattern: str) -> bool:
    """3.1.1.1.10: a trailing asterisk stands for anything from there on, nothing included; elsewhere it is itself.

    Case makes no difference, nor does the kind of slash: a queue's name has one meaning in all its spellings.
    """
    url, pattern = _plain(url), _plain(pattern)
    return url.startswith(pattern[:-1]) if pattern.endswith("*") else url == pattern


def _plain(url: str) -> str:
    return url.lower().replace("\\", "/")


@dataclass(frozen=True, slots=True)
class Redirection:
    """3.1.1.1.10: `source` is From, `target` is To."""

    source: str
    target: str


@dataclass(frozen=True, slots=True)
class Redirections:
    """Everything that the configuration says about URLs. It is read at each start, and so is as lasting as its file."""

    store_and_forward: bool = False  # TransparentStoreAndForward
    inbound: tuple[Redirection, ...] = ()  # InboundRedirectionCollection
    outbound: tuple[Redirection, ...] = ()  # OutboundRedirectionCollection
    outbound_exceptions: tuple[str, ...] = ()  # OutboundRedirectionExceptionCollection
    receipts: tuple[Redirection, ...] = ()  # StreamReceiptURLReplacementCollection
    default_receipts: str = ""  # DefaultStreamReceiptURLReplacement

    def inbound_target(self, url: str) -> str | None:
        """3.1.5.1.3: where a message to a local URL goes instead."""
        return _target(url, self.inbound)

    def outbound_target(self, url: str) -> str | None:
        """3.1.7.9: the URL whose host is connected to instead, unless the destination is an exception."""
        target = _target(url, self.outbound)
        if target is None or any(matches(url, each) for each in self.outbound_exceptions):
            return None
        return target

    def receipts_url(self, destination: str, computer: str, ports: dict[str, int]) -> str:
        """3.1.7.2.4 sendReceiptsTo: what is configured for the destination, the default, or our own order queue.

        `ports` are those that we listen on, by scheme; the standard ones go without saying.
        """
        replaced = _target(destination, self.receipts) or self.default_receipts
        return replaced or own_url(destination, computer, ports) + ORDER_QUEUE_PATH


def own_url(destination: str, computer: str, ports: dict[str, int]) -> str:
    """How a peer that is reached by this scheme finds us: `https://alpha`, and a port that is not the standard one."""
    scheme = "https" if destination.lower().startswith("https:") else "http"
    port = ports.get(scheme, _DEFAULT_PORTS[scheme])
    shown = "" if port == _DEFAULT_PORTS[scheme] else f":{port}"
    return f"{scheme}://{computer}{shown}"


def _target(url: str, redirections: Iterable[Redirection]) -> str | None:
    return next((each.target for each in redirections if matches(url, each.source)), None)
