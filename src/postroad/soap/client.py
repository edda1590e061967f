"""Requests to other queue managers: aiohttp, one set of connections for each peer, reused until it has been idle."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from postroad.net.endpoints import endpoint, plain_address
from postroad.queues.outgoing import ConnectionStatus
from postroad.soap.service import Peer, Post

log = logging.getLogger(__name__)

CONNECT_TIMEOUT_S = 20.0
ANSWER_TIMEOUT_S = 90.0  # for a peer whose disk is busy
KEEP_ALIVE_S = 30.0  # shorter than servers keep idle connections, so that no request goes into one that is closing
MAX_FOUND = 10_000  # hosts whose addresses are remembered; the one that was looked for longest ago is forgotten
_WILDCARDS = ("", "0.0.0.0", "::")

# The address of a host that the directory knows, or None.
Lookup = Callable[[str], str | None]
Done = Callable[[Post, int], None]
Failed = Callable[[Post, ConnectionStatus, str], None]


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """`host` is the address that requests come from. Hosts in `no_proxy` are called without the proxy."""

    host: str = ""
    ca_certificates: str | None = None
    proxy: str | None = field(default=None, repr=False)  # it may hold a password
    no_proxy: frozenset[str] = frozenset()
    posts_per_host: int = 8


class _Resolver(AbstractResolver):
    """The computer's own name service, and the directory before it."""

    def __init__(self, known: Lookup) -> None:
        self._known = known
        self.found: dict[str, frozenset[str]] = {}  # by host: the addresses that it was last found at

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        results = await self._ask(self._known(host) or host, host, port, family)
        self.found.pop(host.lower(), None)
        self.found[host.lower()] = frozenset(plain_address(each["host"]) for each in results)
        if len(self.found) > MAX_FOUND:
            del self.found[next(iter(self.found))]
        return results

    async def _ask(self, name: str, host: str, port: int, family: socket.AddressFamily) -> list[ResolveResult]:
        found = await asyncio.get_running_loop().getaddrinfo(name, port, type=socket.SOCK_STREAM, family=family)
        return [
            ResolveResult(
                hostname=host, host=str(address[0]), port=port, family=kind, proto=protocol, flags=socket.AI_NUMERICHOST
            )
            for kind, _, protocol, _, address in found
        ]

    async def close(self) -> None:
        pass


class SoapClient:
    """`post` makes a request and tells how it went, by `done` or by `failed`; made on a running loop."""

    def __init__(self, options: ClientOptions, known: Lookup, done: Done, failed: Failed) -> None:
        """ssl.SSLError or OSError where the certificates to trust cannot be read."""
        self._options = options
        self._resolver = _Resolver(known)
        self._done = done
        self._failed = failed
        self._tls = ssl.create_default_context(cafile=options.ca_certificates)
        self._sessions: dict[Peer, aiohttp.ClientSession] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def post(self, post: Post) -> None:
        task = asyncio.get_running_loop().create_task(self._post(post))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def addresses_of(self, host: str) -> Collection[str]:
        """Where the host was found when it was last called by its name."""
        return self._resolver.found.get(host.lower(), ())

    def close(self, peer: Peer) -> None:
        session = self._sessions.pop(peer, None)
        if session is not None:
            task = asyncio.get_running_loop().create_task(session.close())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        for session in self._sessions.values():
            await session.close()
        self._sessions.clear()

    def _session(self, peer: Peer) -> aiohttp.ClientSession:
        session = self._sessions.get(peer)
        if session is None:
            host = self._options.host
            connector = aiohttp.TCPConnector(
                resolver=self._resolver,
                limit=self._options.posts_per_host,
                keepalive_timeout=KEEP_ALIVE_S,
                # From our own address, so that the peer knows the caller by the address it would call.
                local_addr=None if host in _WILDCARDS else (host, 0),
                ssl=self._tls,
                ttl_dns_cache=10,
            )
            timeout = aiohttp.ClientTimeout(total=ANSWER_TIMEOUT_S, connect=CONNECT_TIMEOUT_S)
            session = self._sessions[peer] = aiohttp.ClientSession(
                connector=connector, timeout=timeout, cookie_jar=aiohttp.DummyCookieJar(), trust_env=False
            )
        return session

    async def _post(self, post: Post) -> None:
        host = post.peer.address.host
        try:
            try:
                status = await self._exchange(post)
            except aiohttp.ServerDisconnectedError:  # while it was idle, most likely: a repeated message is known
                status = await self._exchange(post)
        except aiohttp.ClientConnectorCertificateError as error:
            fault = f"the certificate of {host} is not to be trusted: {_certificate_words(error)}"
            self._failed(post, ConnectionStatus.INVALID_SERVER_CERTIFICATE, fault)
        except aiohttp.ClientConnectorDNSError as error:
            fault = f"{host} cannot be found: {error.os_error.strerror or error.os_error}"
            self._failed(post, ConnectionStatus.NAME_RESOLUTION_FAILURE, fault)
        except aiohttp.ClientConnectorError as error:
            fault = f"cannot connect to {endpoint(error.host, error.port)}: {_words(error.os_error)}"
            self._failed(post, ConnectionStatus.CONNECT_SOCKET_FAILURE, fault)
        except aiohttp.ClientHttpProxyError as error:
            fault = f"the proxy did not connect to {host}: {error.status} {error.message}"
            self._failed(post, ConnectionStatus.CONNECTION_REFUSED, fault)
        except TimeoutError:
            self._failed(post, ConnectionStatus.CONNECT_SOCKET_FAILURE, f"{host} did not answer in time")
        except Exception as error:
            if not isinstance(error, aiohttp.ClientError | OSError | ValueError):  # a bug: the message is sent again
                log.exception("request not made", extra={"peer": host})
            self._failed(post, ConnectionStatus.SEND_FAILURE, f"no answer from {host}: {error}")
        else:
            self._done(post, status)

    async def _exchange(self, post: Post) -> int:
        address, request = post.peer.address, post.request
        path, question, query = request.target.partition("?")
        url = URL.build(
            scheme="https" if address.secure else "http",
            host=address.host,
            port=address.port,
            path=path,
            query_string=query if question else "",
            encoded=True,
        )
        proxied = self._options.proxy is not None and address.host.lower() not in self._options.no_proxy
        async with self._session(post.peer).post(
            url,
            data=request.body,
            headers=request.headers,
            allow_redirects=False,
            proxy=self._options.proxy if proxied else None,
            server_hostname=request.server_name if address.secure else None,
        ) as answer:
            return answer.status


def _words(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):  # its number is not one of the system's
        return f"TLS fails, {error.reason or error}"
    return os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)


def _certificate_words(error: aiohttp.ClientConnectorCertificateError) -> str:
    cause = error.certificate_error
    return cause.verify_message if isinstance(cause, ssl.SSLCertVerificationError) else str(cause)
