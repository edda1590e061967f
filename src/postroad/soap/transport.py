"""HTTP for the SOAP protocol: passes on the requests of others, and makes our own with aiohttp.

The rules are in service.py.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache, partial
from http import HTTPStatus
from operator import attrgetter
from typing import Protocol
from urllib.parse import unquote

import aiohttp
from aiohappyeyeballs import AddrInfoType
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from postroad.carriers.flights import TransferWatcher
from postroad.describe.packets import destination_text
from postroad.errors import StorageError
from postroad.names import MessageId
from postroad.net.endpoints import AddressOrder, endpoint, is_address, plain_address
from postroad.net.exchange import Request, Response
from postroad.net.http import App
from postroad.net.reaching import find
from postroad.queues.durability import Durability
from postroad.queues.outgoing_queues import ConnectionStatus
from postroad.runtime.logs import RateLimitedLog, RateLimitedLogs
from postroad.security.audit import MESSAGE_REFUSED, AuditLog
from postroad.security.refusals import Refused
from postroad.soap.multipart import MAX_ENTITY_SIZE
from postroad.soap.receiver import BAD_REQUEST, SERVER_ERROR, Incoming, Outcome
from postroad.soap.service import Peer, Post, SoapService
from postroad.wire.patch import brought_by
from postroad.wire.view import MessageView

log = logging.getLogger(__name__)

ROOT = "/msmq/"
METHOD_NOT_ALLOWED, SERVICE_UNAVAILABLE = 405, 503
CONNECT_TIMEOUT_S = 20.0
ANSWER_TIMEOUT_S = 90.0  # for a peer whose disk is busy
MOVED_TIMEOUT_S = 15.0  # for one with several addresses; a manager recognizes what is sent again
KEEP_ALIVE_S = 30.0  # shorter than servers keep idle connections, so that no request meets a closing one
MAX_FOUND = 10_000  # hosts whose addresses are remembered; the least recently found leaves first
_WILDCARDS = ("", "0.0.0.0", "::")

# The hosts at which the manager of this name may be, by the directory. Empty for a name that it does not know.
Lookup = Callable[[str], Sequence[str]]
Done = Callable[[Post, int], None]
Failed = Callable[[Post, ConnectionStatus, str], None]


class SoapManager(Protocol):
    """What the transport needs from its queue manager."""

    clock: Callable[[], float]
    audit: AuditLog
    durability: Durability


def leads_here(path: str) -> bool:
    """Whether a path belongs to SOAP. It may have escapes."""
    return unquote(path, "latin-1")[: len(ROOT)].lower() == ROOT


class SoapApp(App):
    """The HTTP side of the SOAP protocol: reads whole bodies and answers with only a status; a bad request gets 400.

    Requests need no task: the callback that has read a whole request hands it over, and the callback that has the
    answer writes it.
    """

    def refusal(self, request: Request) -> int | None:
        """The status for a request that is refused by its head; None if its body is wanted."""
        raise NotImplementedError

    def incomplete(self, request: Request) -> None:
        """Notes that the body is too large, or that its sender left before the end."""
        raise NotImplementedError

    def take(self, incoming: Incoming, answer: Callable[[int], None]) -> None:
        """Takes a whole request. Calls `answer` with the status, now or later."""
        raise NotImplementedError

    def begin(self, request: Request) -> None:
        status = self.refusal(request)
        if status is not None:
            _refuse(request, status)
        elif request.complete:
            self._collected(request)
        else:
            request.collect(MAX_ENTITY_SIZE, partial(self._collected, request))

    def _collected(self, request: Request) -> None:
        if not request.complete or request.size > MAX_ENTITY_SIZE:
            self.incomplete(request)
            _refuse(request, BAD_REQUEST)
            return
        peer, content_type = request.connection, request.headers.get(b"content-type", "")
        incoming = Incoming(content_type, request.take(), plain_address(peer.peer), peer.local)
        self.take(incoming, partial(_answer, request))

    def refuse(self, status: HTTPStatus, sentence: str) -> Response:
        # A sender gives a message up if the answer is 400, and tries it again if the fault is ours.
        return Response(status=status if status >= HTTPStatus.INTERNAL_SERVER_ERROR else BAD_REQUEST)


def _refuse(request: Request, status: int) -> None:
    """Refuses a request by its head, and closes the connection: the body that follows must not be read as a request."""
    request.keep_alive = False
    _answer(request, status)


def _answer(request: Request, status: int) -> None:
    request.connection.answer(request, _response(status))


@lru_cache
def _response(status: int) -> Response:
    return Response(status=status, headers={"allow": "POST"} if status == METHOD_NOT_ALLOWED else None)


class SoapTransport(SoapApp):
    """The Driver of a SoapService on an event loop. It asks `known` for hosts before it asks the name service.

    Call `serve` before a listener uses this as its app, and `start` once all listeners accept.
    """

    def __init__(self, manager: SoapManager, options: ClientOptions, known: Lookup = lambda host: ()) -> None:
        self.manager = manager
        self.service: SoapService
        self._options = options
        self._known = known
        self._client: SoapClient | None = None
        self._commit_soon = manager.durability.soon  # for changes of an event
        self._refusals = RateLimitedLog(log, "SOAP request refused")
        self._notices = RateLimitedLogs(log, burst=5)
        self.watcher = TransferWatcher(refused=self._note_refusal, suspicious=self._notice)

    def serve(self, service: SoapService) -> None:
        self.service = service

    def start(self) -> None:
        service = self.service
        self._client = SoapClient(self._options, self._known, self._answered, self._request_failed)
        service.start(self.manager.clock())
        self._commit_soon()

    async def stop(self) -> None:
        if self._client is not None:
            await self._client.stop()

    def use_tls(self, context: ssl.SSLContext) -> None:
        """New connections use this context."""
        if self._client is not None:
            self._client.tls = context

    # Driver

    def post(self, post: Post) -> None:
        assert self._client is not None  # nothing is sent before `start`
        self._client.post(post)

    def close(self, peer: Peer) -> None:
        if self._client is not None:
            self._client.close(peer)

    def addresses_of(self, host: str) -> Collection[str]:
        return () if self._client is None else self._client.addresses_of(host)

    def _answered(self, post: Post, status: int) -> None:
        self.service.answered(post, status, self.manager.clock())
        self._commit_soon()

    def _request_failed(self, post: Post, status: ConnectionStatus, error: str) -> None:
        self.service.failed(post, status, error, self.manager.clock())
        self._commit_soon()

    # Requests of others

    def refusal(self, request: Request) -> int | None:
        if request.method != "POST":
            return METHOD_NOT_ALLOWED
        if not self.service.core.connection_active:
            return SERVICE_UNAVAILABLE
        if request.path[: len(ROOT)].lower() != ROOT and not leads_here(request.path):
            self._tell(request, f"the path must start with {ROOT}, got {request.path[:80]!r}")
            return BAD_REQUEST
        if request.length is not None and request.length > MAX_ENTITY_SIZE:
            self._tell(request, f"its Content-Length must be at most {MAX_ENTITY_SIZE} bytes")
            return BAD_REQUEST
        return None

    def incomplete(self, request: Request) -> None:
        self._tell(request, f"it must be complete in time, with at most {MAX_ENTITY_SIZE} bytes")

    def take(self, incoming: Incoming, answer: Callable[[int], None]) -> None:
        """[MC-MQSRM] 3.1.7.2.5: a 200 says that the message is in its place, and durable if it must be."""
        manager = self.manager

        def done(outcome: Outcome, error: StorageError | None) -> None:
            if outcome.status == BAD_REQUEST:
                self._refused(incoming.address, outcome.fault)
            answer(outcome.status if error is None else SERVER_ERROR)  # otherwise the sender keeps the message

        try:
            manager.durability.change_then(
                lambda: self.service.received(incoming, manager.clock()), done, attrgetter("repeated")
            )
        except StorageError:
            answer(SERVER_ERROR)
        except Exception:  # a bug: the sender keeps its message, and the log has the error
            log.exception("request not taken")
            answer(SERVER_ERROR)
        finally:
            self._commit_soon()

    def _tell(self, request: Request, reason: str) -> None:
        self._refused(plain_address(request.connection.peer), reason)

    def _refused(self, address: str, reason: str | None) -> None:
        """Logs what was wrong with a request, because the answer does not say it."""
        self._refusals.warn(self.manager.clock(), {"peer": address, "reason": reason})

    def _note_refusal(self, view: MessageView, refused: Refused) -> None:
        if refused.of_security:
            queue, identifier = destination_text(view), MessageId(view.source_queue_manager, view.message_id)
            address = brought_by(view.data) or None
            self.manager.audit(MESSAGE_REFUSED, address=address, queue=queue, id=identifier, why=refused.reason)

    def _notice(self, event: str, facts: Mapping[str, object]) -> None:
        """Logs an event that needs attention. Strangers can cause it as often as they like, so the number of lines is
        limited."""
        self._notices.warn(event, self.manager.clock(), facts)


# Requests to other queue managers


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """Requests come from the address `host`. `tls` decides which servers they trust. They go to hosts in `no_proxy`
    directly."""

    host: str = ""
    tls: ssl.SSLContext = field(default_factory=ssl.create_default_context)
    proxy: str | None = field(default=None, repr=False)  # it may contain a password
    no_proxy: frozenset[str] = frozenset()
    posts_per_host: int = 8


class _Resolver(AbstractResolver):
    """Asks the directory, then the computer's own name service."""

    def __init__(self, known: Lookup, order: AddressOrder) -> None:
        self._known = known
        self._order = order
        self.found: dict[str, frozenset[str]] = {}  # the addresses at which each host was last found

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        places = await find(self._known(host) or [host], lambda host: port, self._order, family)
        self.found.pop(host.lower(), None)
        self.found[host.lower()] = frozenset(each.address for each in places)
        if len(self.found) > MAX_FOUND:
            del self.found[next(iter(self.found))]
        return [
            ResolveResult(
                hostname=host, host=str(address[0]), port=port, family=kind, proto=protocol, flags=socket.AI_NUMERICHOST
            )
            for kind, _, protocol, _, address in (each.found for each in places)
        ]

    async def close(self) -> None:
        pass


class SoapClient:
    """Makes requests. `post` reports the result by `done` or `failed`. Create it on a running loop."""

    def __init__(self, options: ClientOptions, known: Lookup, done: Done, failed: Failed) -> None:
        self._options = options
        self._order = AddressOrder()
        self._resolver = _Resolver(known, self._order)
        self._called: dict[Peer, str] = {}  # the address that each was last connected to
        self._done = done
        self._failed = failed
        self.tls = options.tls
        self._sessions: dict[Peer, aiohttp.ClientSession] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def post(self, post: Post) -> None:
        task = asyncio.get_running_loop().create_task(self._post(post))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def addresses_of(self, host: str) -> Collection[str]:
        """The addresses at which the host was found when it was last called by name."""
        return self._resolver.found.get(host.lower(), ())

    def close(self, peer: Peer) -> None:
        self._called.pop(peer, None)
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
                # Connect from our own address, so that the peer sees the address that it would connect to.
                local_addr=None if host in _WILDCARDS else (host, 0),
                ttl_dns_cache=10,
                socket_factory=partial(self._dial, peer),
            )
            session = self._sessions[peer] = aiohttp.ClientSession(
                connector=connector, cookie_jar=aiohttp.DummyCookieJar(), trust_env=False
            )
        return session

    def _dial(self, peer: Peer, place: AddrInfoType) -> socket.socket:
        """Addresses are tried one after the other, so the last one is most likely the one that accepts."""
        family, kind, protocol, _, there = place
        self._called[peer] = str(there[0])
        return socket.socket(family, kind, protocol)

    def _move_on(self, peer: Peer) -> bool:
        """Nobody answered a request. Returns whether another address of the host is worth a try."""
        called = self._called.get(peer)
        if called is None or len(self.addresses_of(peer.address.host)) < 2:
            return False
        self._order.failed(called)
        self.close(peer)  # its other connections lead to the same place
        return True

    async def _post(self, post: Post) -> None:
        host, peer = post.peer.address.host, post.peer
        try:
            session = self._session(peer)
            try:
                status = await self._exchange(post)
            except aiohttp.ClientConnectorError:
                raise
            except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError, TimeoutError) as error:
                # The peer recognizes a repeat. Most likely the connection was idle, or another request has moved on.
                disconnected = isinstance(error, aiohttp.ServerDisconnectedError)
                moved = self._sessions.get(peer) is not session or self._move_on(peer)
                if not (moved or disconnected):
                    raise
                status = await self._exchange(post)
            if status >= SERVER_ERROR and self._move_on(peer):
                pass  # it cannot store anything; another process of the manager may have taken over
            elif peer in self._called:
                self._order.answered(self._called[peer])
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
            if not isinstance(error, aiohttp.ClientError | OSError | ValueError):  # a bug; the message is sent again
                log.exception("request not made", extra={"peer": host})
            self._failed(post, ConnectionStatus.SEND_FAILURE, f"no answer from {host}: {error}")
        else:
            self._done(post, status)

    def _timeout(self, host: str) -> aiohttp.ClientTimeout:
        """Shorter if the manager may have moved: the address that it left may accept, and never answer."""
        several = len(self.addresses_of(host)) > 1
        total_s = MOVED_TIMEOUT_S if several else ANSWER_TIMEOUT_S
        return aiohttp.ClientTimeout(total=total_s, connect=min(total_s, CONNECT_TIMEOUT_S))

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
        if not (proxied or is_address(address.host) or self.addresses_of(address.host)):
            with suppress(OSError, UnicodeError):  # the request says what is wrong
                await self._resolver.resolve(address.host, address.port)
        async with self._session(post.peer).post(
            url,
            data=request.body,
            headers=request.headers,
            allow_redirects=False,
            proxy=self._options.proxy if proxied else None,
            ssl=self.tls,
            server_hostname=request.server_name if address.secure else None,
            timeout=self._timeout(address.host),
        ) as answer:
            return answer.status


def _words(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):  # its number is no system error
        return f"TLS fails, {error.reason or error}"
    return os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)


def _certificate_words(error: aiohttp.ClientConnectorCertificateError) -> str:
    cause = error.certificate_error
    return cause.verify_message if isinstance(cause, ssl.SSLCertVerificationError) else str(cause)
