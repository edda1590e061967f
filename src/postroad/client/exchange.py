"""An HTTP API as its clients see it: its address, the client's credentials, and what answers and errors mean.

This does no I/O: client/aio/transport.py and client/sync/transport.py send the requests.
"""

from __future__ import annotations

import json
import os
import re
import socket
import ssl
from base64 import b64encode
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote, urlencode, urlsplit

from postroad.errors import InvalidArgument, ManagerUnavailable, PostroadError, RemoteProtocolError, rebuild_error
from postroad.reports.operations import RECORDS_TYPE
from postroad.runtime.version import __version__

API = "/api/v1"
JSON = "application/json"
CONNECT_S = 10.0
ANSWER_S = 60.0  # to wait for an answer that does not wait for a message; a commit on a busy disk takes far less
FAILOVER_S = 60.0  # for which a request waits, while one process has stopped and another has not taken over yet
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 1.0  # before the next try to find who serves
KEEP_ALIVE_S = 30.0  # less than the server's, so that no request uses a connection that the server is closing
_PROBLEM = "application/problem+json"
_PROBLEM_MEMBERS = frozenset({"type", "title", "status", "detail", "instance", "hresult", "code", "error"})
_COMMA = re.compile(r",\s*(?=https?://)")  # between two URLs; a password may have commas
_PASSWORD = re.compile(r"//[^/]*@")
# OpenSSL's codes for a certificate that is self-signed or from an unknown authority
_UNKNOWN_ISSUER = frozenset({18, 19, 20, 21})
_NOT_TLS = frozenset({"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"})  # OpenSSL's reasons for an answer without TLS


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer that reports no error. The names of its headers are in lower case."""

    status: int
    content: bytes
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class WholeReply:
    """A whole answer, which may report an error. The names of its headers are in lower case."""

    status: int
    media_type: str
    headers: dict[str, str]
    content: bytes


class LoginTicket(Protocol):
    """A Kerberos ticket for one login: the value of Authorization, and the check of the server's answer."""

    authorization: str

    def check(self, answer: str) -> None: ...


class Address:
    """The address of an API and the credentials for it. `url` may end in the API's own path, like the URLs of its
    pages. It may be several URLs, separated by commas, of processes of which one serves at a time; `others` are all but
    the first.

    `certificate` and `key` are PEM files that identify the client. The key may be in the certificate's file. `ca_file`
    is a PEM file with the issuers of the server's certificate; if it is None, the machine's issuers count. `user`
    logs in with `password`. Without a user and a token, the user and password in the URL are used. With `kerberos`, a
    ticket is exchanged for the token of a session, before the first request and whenever the session has ended.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        certificate: str | Path | None = None,
        key: str | Path | None = None,
        user: str | None = None,
        password: str | None = None,
        *,
        kerberos: bool = False,
        ca_file: str | Path | None = None,
    ) -> None:
        url, *others = _COMMA.split(url)
        self.others = [Address(each, token, certificate, key, user, password, kerberos=kerberos) for each in others]
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            parts = None
        if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidArgument(
                f"url: must be the address of an HTTP API, such as http://127.0.0.1:8180, got {_public_url(url)!r}"
            )
        if token is not None and not token.isprintable():
            raise InvalidArgument("token: must be one line of printable characters")
        self.host = parts.hostname
        self.port = port or (443 if parts.scheme == "https" else 80)
        self.url = _public_url(url.rstrip("/").removesuffix(API).rstrip("/"))  # for error texts
        self.origin = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
        self._prefix = f"{parts.path.rstrip('/').removesuffix(API).rstrip('/')}{API}"
        self.tls: ssl.SSLContext | None = None
        self._has_certificate = False
        if parts.scheme == "https":
            own = client_context(certificate, key, ca_file)
            self._has_certificate = own is not None
            self.tls = own or default_context(ca_file)
        self.headers = {
            "User-Agent": f"postroad/{__version__}",
            "Accept": f"{RECORDS_TYPE}, {JSON};q=0.5",
            "Postroad-Client": _own_name(),
        }
        # cached heads of requests, of which there are few kinds
        self._starts: dict[tuple[tuple[str, str], ...], bytes] = {}
        self._kerberos = kerberos
        if kerberos and not (token is None and user is None):
            raise InvalidArgument("kerberos: must not be set together with token or user")
        if user is not None:
            _check_login(user, password, token)
        elif parts.username is not None and not kerberos:
            user, password = unquote(parts.username), unquote(parts.password or "")
        if token is not None:
            self.headers["Authorization"] = f"Bearer {token}"
        elif user is not None:
            self.headers["Authorization"] = f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}"

    # Logins by Kerberos

    @property
    def wants_login(self) -> bool:
        """Whether a session must begin before the next request."""
        return self._kerberos and "Authorization" not in self.headers

    def ended(self, status: int) -> bool:
        """Whether an answer with this status says that the session has ended. Then another one must begin."""
        if not self._kerberos or status != 401:
            return False
        self._authorize(None)
        return True

    def begin_login(self, certificate: bytes | None) -> LoginTicket:
        """A ticket for the server, bound to its certificate. Blocks, because a domain controller may be asked."""
        from postroad.client.ticket import Ticket

        return Ticket(self.host, certificate)

    def login(self, ticket: LoginTicket) -> bytes:
        """The request that exchanges a ticket for a session."""
        headers = {**self.headers, "Authorization": ticket.authorization}
        given = "".join(f"{name}: {value}\r\n" for name, value in {"Host": self._place, **headers}.items())
        return f"POST {self._prefix}/login HTTP/1.1\r\n{given}Content-Length: 0\r\n\r\n".encode()

    def logged_in(self, ticket: LoginTicket, reply: WholeReply) -> None:
        """Takes the session, after the server has proved who it is."""
        if reply.status >= 300:
            raise self.error(reply.status, reply.media_type, reply.content)
        ticket.check(reply.headers.get("www-authenticate", ""))
        self._authorize(str(self.parsed(reply.content, "token")))

    def _authorize(self, token: str | None) -> None:
        self.headers.pop("Authorization", None)
        if token is not None:
            self.headers["Authorization"] = f"Bearer {token}"
        self._starts.clear()

    @property
    def _place(self) -> str:
        return self.origin.partition("//")[2]

    def request(self, method: str, target: str, headers: Mapping[str, str], body: bytes | None) -> bytes:
        """A whole request as bytes."""
        key = tuple(headers.items())
        start = self._starts.get(key)
        if start is None:
            given = {"Host": self._place, **self.headers, **headers}
            start = "".join(f"{name}: {value}\r\n" for name, value in given.items()).encode()
            self._starts[key] = start
        size = b"" if body is None and method == "GET" else b"Content-Length: %d\r\n" % len(body or b"")
        return b"".join((f"{method} {target} HTTP/1.1\r\n".encode(), start, size, b"\r\n", body or b""))

    def target(self, path: str, query: Mapping[str, object] | None) -> str:
        """The target of a request for a path of the API. Values of None are omitted."""
        if query is None:
            return self._prefix + path
        given = {name: value for name, value in query.items() if value is not None}
        return f"{self._prefix}{path}{'?' if given else ''}{urlencode(given)}"

    def parsed(self, answer: bytes, member: str | None = None) -> Any:
        """The JSON of an answer, or one member of it. None if the answer is empty."""
        try:
            value: Any = json.loads(answer) if answer else None
            return value if member is None else value[member]
        except (ValueError, TypeError, LookupError, RecursionError):
            wanted = "JSON" if member is None else f"JSON with {member!r}"
            raise RemoteProtocolError(
                f"the answer of {self.url} must be {wanted}: the server there is not a queue manager"
            ) from None

    def error(self, status: int, media_type: str, content: bytes) -> PostroadError:
        """The error that an answer reports."""
        problem = self.parsed(content) if media_type == _PROBLEM else None
        if not isinstance(problem, dict):
            return ManagerUnavailable(
                self.url, f"the server there answers with the status {status} and is not a queue manager"
            )
        return self.rebuilt(problem)

    def rebuilt(self, problem: Mapping[str, Any]) -> PostroadError:
        """The error that a problem document describes."""
        try:
            code = int(str(problem.get("hresult", "0")), 16)
        except ValueError:
            code = 0
        members = {name: value for name, value in problem.items() if name not in _PROBLEM_MEMBERS}
        return rebuild_error(str(problem.get("error", "")), code, str(problem.get("detail", "")), members)

    def stands_by(self, reply: WholeReply) -> bool:
        """Whether the answer is that of a process which leaves the work to another one."""
        if reply.status != 503 or reply.media_type != _PROBLEM:
            return False
        problem = self.parsed(reply.content)
        return isinstance(problem, dict) and "active" in problem

    # Why there is no answer

    def not_connected(self, fault: OSError) -> ManagerUnavailable:
        """The error for a connection that failed. The manager has received nothing."""
        return ManagerUnavailable(self.url, self._connect_reason(fault))

    def _connect_reason(self, fault: OSError) -> str:
        if isinstance(fault, TimeoutError):
            return f"no connection within {CONNECT_S:.0f} seconds"
        if self.tls is not None:
            import ssl

            if isinstance(fault, ssl.SSLCertVerificationError):
                hint = (
                    ": set SSL_CERT_FILE, or caFile in Spark, to a PEM file with its issuer"
                    if fault.verify_code in _UNKNOWN_ISSUER
                    else ""
                )
                return f"its certificate is not trusted ({fault.verify_message.rstrip('.')}){hint}"
            if isinstance(fault, ssl.SSLError):
                return self._tls_reason(fault)
        if fault.errno and not isinstance(fault, socket.gaierror):
            return os.strerror(fault.errno)  # the event loop's own text says less
        return fault.strerror or str(fault)

    def _tls_reason(self, fault: OSError) -> str:
        reason = getattr(fault, "reason", None) or str(fault)
        if reason in _NOT_TLS:
            place = self.origin.partition("//")[2]
            return f"{place} does not speak TLS; write http://{place}"
        return f"TLS fails: {reason}"

    def not_answered(self, fault: Exception) -> ManagerUnavailable:
        """The error for a request that was sent, at least in part, and got no whole answer."""
        if isinstance(fault, TimeoutError):
            return ManagerUnavailable(
                self.url, "no answer in time, and it is not known whether the call was done", asked=True
            )
        reason = "the connection broke, and it is not known whether the call was done"
        if self.tls is not None:
            hint = (
                "check that the API's client_ca issued this client's certificate"
                if self._has_certificate
                else "set POSTROAD_CLIENT_CERT and POSTROAD_CLIENT_KEY, or client_certificate in Python"
            )
            reason += f" (an API with client_ca closes connections without a certificate that it knows: {hint})"
        return ManagerUnavailable(self.url, reason, asked=True)


class Reply(Protocol):
    """An answer whose content is still to be read. The names of its headers are in lower case."""

    status: int
    media_type: str
    headers: dict[str, str]

    async def read(self) -> bytes: ...

    def pieces(self) -> AsyncIterator[bytes]: ...


class Transport(Protocol):
    """Connections to one API. A connection that is silent for longer than a request may take is closed."""

    async def close(self) -> None: ...

    def beside(self, address: Address) -> Transport:
        """The same kind of connections to another API."""

    async def pause(self, seconds: float) -> None: ...

    async def ask(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes | None, wait: float | None
    ) -> WholeReply:
        """Sends one request. Raises ManagerUnavailable if there is no answer, or only a part of one."""

    def asking(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes | None, wait: float | None
    ) -> AbstractAsyncContextManager[Reply]:
        """Sends one request and gives an answer that is read in pieces."""


class Exchange:
    """Requests to one API, over as many connections as there are concurrent requests.

    Of an address with several URLs, it asks the process that serves. If none does, it waits for a while: another one
    may be about to take over.
    """

    def __init__(self, address: Address, transport: Transport) -> None:
        self._address = address
        # The one that served last comes first.
        self._places = [(address, transport), *((each, transport.beside(each)) for each in address.others)]
        self._served = False

    @property
    def several(self) -> bool:
        return len(self._places) > 1

    async def close(self) -> None:
        for _, transport in self._places:
            await transport.close()

    async def _ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, object] | None,
        headers: Mapping[str, str],
        body: bytes | None,
        wait: float | None,
    ) -> tuple[Address, WholeReply]:
        """Asks the places until one serves. A request that may have reached a place that then broke off goes to the
        next one only if it changes nothing."""
        waited_s, pause_s = 0.0, FIRST_PAUSE_S
        while True:
            fault: ManagerUnavailable | None = None
            for place in list(self._places):
                address, transport = place
                try:
                    reply = await transport.ask(method, address.target(path, query), headers, body, wait)
                except ManagerUnavailable as error:
                    self._leave(place)
                    if not self.several or (error.asked and method != "GET"):
                        raise
                    fault = error
                    continue
                if not self.several or not address.stands_by(reply):
                    self._served = True
                    return place[0], reply
                self._leave(place)
                self._served = True  # somebody will
            if waited_s >= FAILOVER_S or not self._served:
                if fault is None:
                    return address, reply
                raise fault
            await self._places[0][1].pause(pause_s)
            waited_s += pause_s
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    def _leave(self, place: tuple[Address, Transport]) -> None:
        """Puts a place that does not serve behind the others."""
        self._places = [*(each for each in self._places if each is not place), place]

    async def json(
        self,
        method: str,
        path: str,
        value: object = None,
        *,
        query: Mapping[str, object] | None = None,
        member: str | None = None,
        wait: float | None = 0.0,
    ) -> Any:
        """Sends a JSON value, if given. Returns the JSON of the answer, or one member of it."""
        body = None if value is None else json.dumps(value).encode()
        answer = await self.request(method, path, query, body=body, wait=wait)
        return self._address.parsed(answer.content, member)

    async def request(
        self,
        method: str,
        path: str,
        query: Mapping[str, object] | None = None,
        *,
        body: bytes | None = None,
        media_type: str = JSON,
        wait: float | None = 0.0,
    ) -> Answer:
        """Sends a request and returns its answer. Raises the error that the manager reports.

        `wait` is how many seconds the manager may wait for a message. None is no limit.
        """
        headers = {} if body is None else {"Content-Type": media_type}
        address, reply = await self._ask(method, path, query, headers, body, wait)
        if reply.status >= 300:
            raise address.error(reply.status, reply.media_type, reply.content)
        return Answer(reply.status, reply.content, reply.headers)

    async def stream(self, path: str, query: Mapping[str, object], accept: str) -> AsyncGenerator[bytes, None]:
        """The answer to a GET, in pieces as they arrive. Raises ManagerUnavailable if the answer breaks off."""
        if self.several:  # finds the one that serves
            await self._ask("GET", "/sessions", None, {}, None, 0.0)
        address, transport = self._places[0]
        target = address.target(path, query)
        renewed = False
        while True:
            async with transport.asking("GET", target, {"Accept": accept}, None, 0.0) as reply:
                if address.ended(reply.status) and not renewed:
                    renewed = True
                    continue
                if reply.status >= 300:
                    raise address.error(reply.status, reply.media_type, await reply.read())
                async for piece in reply.pieces():
                    yield piece
                return


def _check_login(user: str, password: str | None, token: str | None) -> None:
    if not user or ":" in user or not user.isprintable():
        raise InvalidArgument(f"user: must be the name of a user, without a colon, got {user!r}")
    if token is not None:
        raise InvalidArgument("user: must not be set together with token")
    if password is None:
        raise InvalidArgument("password: is missing")


def _public_url(url: str) -> str:
    """The URL without its password."""
    return _PASSWORD.sub("//...@", url)


def _own_name() -> str:
    """The name of this client for operators who ask who holds a message, such as `ann@host (pid 123)`."""
    import getpass

    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # the user id has no name
        user = str(os.getuid())
    name = f"{user}@{socket.gethostname()} (pid {os.getpid()})"
    return name.encode("ascii", "replace").decode()


# The heads of HTTP answers, and how their bodies end, [RFC 9112]. No I/O: sync/transport.py reads the bytes.


MAX_HEAD = 0x10000  # bytes
MAX_ANSWER = 1 << 30  # bytes of an answer that is not streamed; a receive of 64 MiB takes far less in every format
KNOWN_HEADS = 64  # heads that are kept as they were read: small answers of the same second have equal ones
END = b"\r\n\r\n"


class BadAnswer(ConnectionError):
    """The answer is not HTTP, it is too large, or it ends too early."""


def check_size(size: int) -> None:
    """Raises BadAnswer for an answer that would fill the memory."""
    if size > MAX_ANSWER:
        raise BadAnswer(f"the answer must have at most {MAX_ANSWER} bytes")


@dataclass(frozen=True, slots=True)
class Head:
    """The head of an answer. The names of headers are in lower case.

    `length` is None for a body that marks its own end: by its last chunk, or by the end of the connection.
    """

    status: int
    headers: dict[str, str]
    length: int | None
    chunked: bool
    keep_alive: bool

    @property
    def media_type(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()


@lru_cache(KNOWN_HEADS)
def read_head(data: bytes) -> Head:
    """Reads the head of an answer, without the empty line at its end. Equal answers share the result: do not change
    it."""
    try:
        first, *lines = data.decode("latin-1").split("\r\n")
        version, _, rest = first.partition(" ")
        status = int(rest[:3])
        headers: dict[str, str] = {}
        for line in lines:
            name, colon, value = line.partition(":")
            if not colon:
                raise ValueError
            headers[name.lower()] = value.strip()
        if not version.startswith("HTTP/1."):
            raise ValueError
        chunked = headers.get("transfer-encoding", "").lower().endswith("chunked")
        length: int | None = None
        if status in (204, 304) or status < 200:
            length, chunked = 0, False
        elif not chunked and "content-length" in headers:
            length = _size(headers["content-length"], 10)
    except ValueError:
        raise BadAnswer("the answer is not HTTP") from None
    closes = "close" in headers.get("connection", "").lower() or version == "HTTP/1.0"
    return Head(status, headers, length, chunked, not closes and (chunked or length is not None))


def chunk_size(line: bytes) -> int:
    """The size in a line such as `1f4;extension`."""
    try:
        return _size(line.decode("latin-1").partition(";")[0].strip(), 16)
    except ValueError:
        raise BadAnswer("the size of a chunk must be hexadecimal") from None


def _size(text: str, base: int) -> int:
    if not text.isalnum():  # `int` would also accept signs and underscores
        raise ValueError
    return int(text, base)


# The certificate that identifies a client, from files named by the caller or by the environment.


CERTIFICATE, KEY = "POSTROAD_CLIENT_CERT", "POSTROAD_CLIENT_KEY"


def client_context(
    certificate: str | Path | None = None, key: str | Path | None = None, ca_file: str | Path | None = None
) -> ssl.SSLContext | None:
    """TLS settings with the client's certificate, from PEM files. The key may be in the certificate's file.

    None if neither the caller nor the environment names a certificate. Raises InvalidArgument if it cannot be used.
    """
    name = "client_certificate"
    if certificate is None:
        name, certificate, key = CERTIFICATE, os.environ.get(CERTIFICATE), os.environ.get(KEY)
    if not certificate:
        return None
    context = default_context(ca_file)
    try:
        context.load_cert_chain(certificate, key or None, password=_no_password)
    except (OSError, ValueError) as fault:
        reason = getattr(fault, "reason", None) or getattr(fault, "strerror", None) or str(fault)
        files = (
            f"{certificate} with {key}" if key else f"{certificate}, which must hold the key too where none is named,"
        )
        raise InvalidArgument(f"{name}: {files} cannot be used: {reason}") from None
    return context


def pinned_context(certificate: str) -> ssl.SSLContext:
    """TLS settings that accept only the server with this certificate (PEM), whatever its issuer and names."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # its issuer may be unknown
    context.load_verify_locations(cadata=certificate)
    return context


def default_context(ca_file: str | Path | None = None) -> ssl.SSLContext:
    """TLS settings without a client certificate. The system must trust the server's certificate, or the issuers in a
    PEM file if one is given. Raises InvalidArgument if it cannot be used."""
    try:
        return ssl.create_default_context(cafile=ca_file)
    except (OSError, ValueError) as fault:
        code = fault.errno if isinstance(fault, OSError) and not isinstance(fault, ssl.SSLError) else None
        reason = os.strerror(code) if code else "it must have certificates in PEM form"
        raise InvalidArgument(f"ca_file: {ca_file} cannot be used: {reason}") from None


def _no_password() -> str:
    raise ValueError("its key is encrypted; decrypt it, as in `openssl pkey -in KEY -out PLAIN`")
