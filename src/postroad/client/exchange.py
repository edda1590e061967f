"""One request to an HTTP API and its answer: keep-alive connections, what a failure means, and nothing of queues."""

from __future__ import annotations

import getpass
import json
import os
import re
import socket
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import aiohttp
from yarl import URL

from postroad.client.tls import client_context
from postroad.errors import InvalidArgument, ManagerUnavailable, PostroadError, RemoteProtocolError, rebuild_error
from postroad.received import RECORDS_TYPE as RECORDS
from postroad.version import __version__

API = "/api/v1"
CONNECT_S = 10.0
ANSWER_S = 60.0  # for an answer that does not wait for a message: a commit on a busy disk takes far less
KEEP_ALIVE_S = 30.0  # less than the server's, so that no request goes into a connection that is being closed
STREAM_BUFFER = 1 << 20  # bytes of a streamed answer that are read ahead
_PROBLEM = "application/problem+json"
_PROBLEM_MEMBERS = frozenset({"type", "title", "status", "detail", "instance", "hresult", "code", "error"})
_NO_CONTENT = 204
_PASSWORD = re.compile(r"//[^/]*@")
_NOT_TLS = frozenset({"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"})  # what a plain answer looks like to OpenSSL


class Exchange:
    """Requests to the manager at `url`, on as many connections as there are requests at a time.

    The URL may end in the API's own path, as those of its pages do. `certificate` and `key` are PEM files that prove to
    the manager who calls; the key may stand in the certificate's file.
    """

    def __init__(
        self, url: str, token: str | None, certificate: str | Path | None = None, key: str | Path | None = None
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            shown = _PASSWORD.sub("//...@", url)
            raise InvalidArgument(f"url: {shown!r} is not the address of an HTTP API, as in http://127.0.0.1:8180")
        self._base = url.rstrip("/").removesuffix(API).rstrip("/")
        self.url = _PASSWORD.sub("//...@", self._base)  # as errors show it
        self._tls = client_context(certificate, key) if parts.scheme == "https" else None
        self._headers = {
            "User-Agent": f"postroad/{__version__}",
            "Accept": f"{RECORDS}, application/json;q=0.5",
            "Postroad-Client": _own_name(),
        }
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def json(self, method: str, path: str, value: object = None, *, member: str | None = None) -> Any:
        """The answer to a request that brings a JSON value, if any: all of it, or one member of it."""
        return self.parsed(
            await self.request(method, path, body=None if value is None else json.dumps(value).encode()), member
        )

    def parsed(self, answer: bytes, member: str | None = None) -> Any:
        """JSON, or one member of it; None where there is nothing."""
        try:
            value: Any = json.loads(answer) if answer else None
            return value if member is None else value[member]
        except (ValueError, TypeError, LookupError):
            wanted = "JSON" if member is None else f"JSON with {member!r}"
            raise RemoteProtocolError(f"the answer of {self.url} is not {wanted}: it is no queue manager's") from None

    async def request(
        self,
        method: str,
        path: str,
        query: Mapping[str, object] | None = None,
        *,
        body: bytes | None = None,
        media_type: str = "application/json",
        wait: float | None = 0.0,
    ) -> bytes:
        """The answer's bytes, none where there is nothing in it. Raises the error that the manager tells of.

        `wait` is how long the manager may wait for a message, in seconds; None for ever.
        """
        return (await self.answer(method, path, query, body=body, media_type=media_type, wait=wait))[0]

    async def answer(
        self,
        method: str,
        path: str,
        query: Mapping[str, object] | None = None,
        *,
        body: bytes | None = None,
        media_type: str = "application/json",
        wait: float | None = 0.0,
    ) -> tuple[bytes, Mapping[str, str]]:
        """The same, with the answer's headers."""
        headers = {} if body is None else {"Content-Type": media_type}
        with self._explained():
            async with self._started().request(
                method,
                self._target(path, query),
                data=body,
                headers=headers,
                timeout=_timeout(wait),
                allow_redirects=False,
            ) as answer:
                content = await answer.read()
                status, kind = answer.status, answer.content_type
        if status < 300:
            return b"" if status == _NO_CONTENT else content, answer.headers
        raise self._error(status, kind, content)

    async def stream(self, path: str, query: Mapping[str, object], accept: str) -> AsyncIterator[bytes]:
        """The answer to a GET in pieces, as they come; an answer that breaks off raises ManagerUnavailable."""
        with self._explained():
            async with self._started().get(
                self._target(path, query),
                headers={"Accept": accept},
                timeout=_timeout(0.0),
                allow_redirects=False,
                read_bufsize=STREAM_BUFFER,
            ) as answer:
                if answer.status >= 300:
                    raise self._error(answer.status, answer.content_type, await answer.read())
                async for piece in answer.content.iter_any():
                    yield piece

    def _target(self, path: str, query: Mapping[str, object] | None) -> URL:
        given = {name: value for name, value in (query or {}).items() if value is not None}
        return URL(f"{self._base}{API}{path}{'?' if given else ''}{urlencode(given)}", encoded=True)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Says what it means for the caller that a request did not come through."""
        try:
            yield
        except aiohttp.ClientConnectorCertificateError as fault:
            reason = f"its certificate is not to be trusted: {fault.certificate_error}"
            raise ManagerUnavailable(self.url, reason) from None
        except aiohttp.ClientConnectorSSLError as fault:
            raise ManagerUnavailable(self.url, self._tls_reason(fault.os_error)) from None
        except aiohttp.ClientConnectorError as fault:
            raise ManagerUnavailable(self.url, _reason(fault.os_error)) from None
        except aiohttp.ConnectionTimeoutError:
            raise ManagerUnavailable(self.url, f"no connection within {CONNECT_S:.0f} seconds") from None
        except (aiohttp.ClientError, TimeoutError, OSError) as fault:
            told = "no answer in time" if isinstance(fault, TimeoutError) else "the connection broke"
            if self._base.startswith("https") and not isinstance(fault, TimeoutError):
                told += f" (an API with client_ca breaks it to whom it does not know: {self._certificate_hint})"
            raise ManagerUnavailable(self.url, f"{told}, and whether the call was done is not known") from fault

    @property
    def _certificate_hint(self) -> str:
        if self._tls is None:
            return "set POSTROAD_CLIENT_CERT and POSTROAD_CLIENT_KEY, or client_certificate in Python"
        return "see that it vouches for this client's certificate"

    def _tls_reason(self, fault: OSError) -> str:
        reason = getattr(fault, "reason", None) or str(fault)
        if reason in _NOT_TLS:
            place = urlsplit(self.url).netloc.rpartition("@")[2]
            return f"{place} does not speak TLS; write http://{place}"
        return f"TLS fails: {reason}"

    def _started(self) -> aiohttp.ClientSession:
        """The session, made at the first request because it belongs to the event loop that runs then."""
        if self._session is None:
            trust = True if self._tls is None else self._tls
            connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_S, ssl=trust)
            self._session = aiohttp.ClientSession(connector=connector, headers=self._headers, auto_decompress=True)
        return self._session

    def _error(self, status: int, kind: str, content: bytes) -> PostroadError:
        problem = self.parsed(content) if kind == _PROBLEM else None
        if not isinstance(problem, dict):
            return ManagerUnavailable(
                self.url, f"the answer there has the status {status} and is not of a queue manager"
            )
        try:
            code = int(str(problem.get("hresult", "0")), 16)
        except ValueError:
            code = 0
        members = {name: value for name, value in problem.items() if name not in _PROBLEM_MEMBERS}
        return rebuild_error(str(problem.get("error", "")), code, str(problem.get("detail", "")), members)


def _own_name() -> str:
    """Who we are, for whoever asks the manager who holds a message: `ann@host (pid 123)`."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a user id without a name
        user = str(os.getuid())
    name = f"{user}@{socket.gethostname()} (pid {os.getpid()})"
    return name.encode("ascii", "replace").decode()


def _timeout(wait: float | None) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(
        sock_connect=CONNECT_S, sock_read=None if wait is None else ANSWER_S + wait, total=None
    )


def _reason(fault: OSError) -> str:
    """In the system's words where there is a number for it: the event loop's own say less."""
    if fault.errno and not isinstance(fault, socket.gaierror):
        return os.strerror(fault.errno)
    return fault.strerror or str(fault)
