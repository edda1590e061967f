"""HTTP/1.1 for the doors that speak it: one connection, from its bytes to requests and from answers to bytes.

A connection answers its requests one after the other, in their order. An `App` decides what the answers are.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from contextlib import aclosing
from http import HTTPStatus

import httptools

from postroad.errors import PostroadError
from postroad.net.exchange import ClientLeft, Request, Response, text
from postroad.net.limits import REQUEST_S, Admission
from postroad.net.listening import Connection, Listener
from postroad.net.tls import ServerContext, subject

log = logging.getLogger(__name__)

MAX_HEAD = 0x8000  # bytes of a request line and its headers, and about as many around the body
MAX_HEADERS = 200
MAX_PIPELINED = 16  # requests that may wait behind earlier ones
MAX_UNREAD = 0x10000  # bytes of a body, or of waiting requests, that the application has not asked for yet
KEEP_ALIVE_S = 75  # longer than clients keep idle connections, so no client sends while we close
BYTES_PER_S = 0x10000  # a large request gets one more second for each time that many bytes have arrived

_BODILESS = (204, 304)
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_METHODS = {each.encode(): each for each in ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS")}
_TOO_LONG = f"the headers must have at most {MAX_HEAD} bytes"
_Fault = tuple[HTTPStatus, str]
_INVALID: _Fault = (HTTPStatus.BAD_REQUEST, "must be a valid HTTP request")
_STOPPING: _Fault = (HTTPStatus.SERVICE_UNAVAILABLE, "the server stops; try again later")
_TOO_MUCH: _Fault = (
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    f"a client may send at most {MAX_UNREAD} bytes while it waits for a message",
)


class App:
    """Serves requests. It answers each one once, with the connection's `answer` or `stream`."""

    def begin(self, request: Request) -> None:
        """Called when the head has arrived and all earlier requests are answered. The body may still be on the way."""
        raise NotImplementedError

    def refuse(self, status: HTTPStatus, sentence: str) -> Response:
        """The answer to input that is no valid request. The connection closes after it."""
        return text(f"{sentence}\n", status)


class TaskApp(App):
    """An app that runs each request in a task of its own."""

    def __init__(self) -> None:
        self._serving: set[asyncio.Task[None]] = set()

    async def respond(self, request: Request) -> Response:
        """The answer to a request. Raises ClientLeft if the client is gone; any other exception is a bug."""
        raise NotImplementedError

    def failed(self) -> Response:
        """The answer after a bug. The log has the details."""
        return text("the server failed\n", HTTPStatus.INTERNAL_SERVER_ERROR)

    async def finish(self, grace_s: float) -> None:
        """Waits up to `grace_s` for requests whose clients are gone. Call it once the listener has stopped."""
        if self._serving:
            _, late = await asyncio.wait(self._serving, timeout=grace_s)
            for task in late:
                task.cancel()

    def begin(self, request: Request) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(request))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _serve(self, request: Request) -> None:
        try:
            response = await self.respond(request)
        except ClientLeft:
            response = Response()
        except Exception:
            log.exception("request failed", extra={"path": request.path})
            response = self.failed()
        try:
            if response.pieces is None:
                request.connection.answer(request, response)
            else:
                await request.connection.stream(request, response)
        except ClientLeft:
            pass
        except PostroadError as error:
            log.warning("answer broken off", extra={"path": request.path, "reason": str(error)})
        except Exception:
            log.exception("answer broken off", extra={"path": request.path})
            request.connection.transport.close()


class HttpConnection(Connection):
    """One HTTP connection. It closes if the peer sends a request too slowly, never completes it, or reads no answer."""

    def __init__(self, app: App, listener: Listener, admission: Admission) -> None:
        super().__init__(listener, admission)
        self.app = app
        self.peer = self.local = ""  # addresses
        self.secure = False
        self.subject: str | None = None  # of the client's certificate
        self.own_certificate: bytes | None = None  # the server's, in DER
        self.lost = False
        self._watchers: set[Callable[[], object]] = set()  # what to call when the connection ends
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self._target = b""
        self._fields: list[tuple[bytes, bytes]] = []
        self._head = 0  # bytes of the target and the headers
        self._lines = 0  # headers and trailers
        self._known: tuple[list[tuple[bytes, bytes]], dict[bytes, str]] = ([], {})  # the last head: most are the same
        self._waiting: deque[Request] = deque()  # behind earlier requests
        self._coming: Request | None = None  # its head has arrived, its body is incomplete
        self._current: Request | None = None  # it is being answered
        self._fault: _Fault | None = None  # nothing after it is readable
        self._resuming = False  # the parser is reading a head that we made up
        self._last = False  # no more requests are taken
        self._stopping = False
        self._deaf = False  # reading is paused until the input that is here is used: no end is noticed
        self._full = False  # the peer does not take our output
        self._drained: asyncio.Future[None] | None = None
        self._going = False
        self._begun = False  # a part of a request has arrived
        self._in_head = True
        self._size = 0  # bytes of the incomplete request
        self._bare = 0  # of these, those since the last piece of its body: headers, sizes of chunks, trailers
        self._used = 0  # of these, those that the application is done with
        self._due = 0.0  # when the next request must be complete
        self._watch: asyncio.TimerHandle | None = None  # may fire before `_due`: then it is set again

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.peer = str(transport.get_extra_info("peername")[0])
        self.local = str(transport.get_extra_info("sockname")[0])
        tls = transport.get_extra_info("sslcontext")
        self.secure = tls is not None
        self.own_certificate = tls.certificate if isinstance(tls, ServerContext) else None
        certificate = transport.get_extra_info("peercert")
        if certificate:
            self.subject = subject(certificate)
        self._expect(REQUEST_S)
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.lost = True
        if self._watch is not None:
            self._watch.cancel()
        del self._parser  # it refers back to this connection
        self._waiting.clear()
        coming, self._coming = self._coming, None
        if coming is not None:
            coming.end(lost=True)
        self._wake()
        for callback in tuple(self._watchers):
            callback()

    def watch(self, left: Callable[[], object]) -> None:
        """Calls `left` when the connection ends. Until `unwatch` reading is never paused, because only a read notices
        the end."""
        self._watchers.add(left)
        self._listen()

    def unwatch(self, left: Callable[[], object]) -> None:
        self._watchers.discard(left)
        self._listen()

    def shutdown(self) -> None:
        self._stopping = True
        if self._current is None:
            self.transport.close()
        elif self._current is self._coming and not self._current.answered:  # nobody was promised anything yet
            self._break(_STOPPING)

    # Input

    def data_received(self, data: bytes) -> None:
        if self._last or self._fault is not None:
            return  # nothing is read after the last request
        self._size += len(data)
        self._bare += len(data)
        try:
            while data:
                try:
                    self._parser.feed_data(data)
                    break
                except httptools.HttpParserUpgrade as upgrade:
                    data = self._without_upgrade() + data[upgrade.args[0] :]
        except httptools.HttpParserError:
            if not self._last:
                self._break(self._fault or _INVALID)
        if not self._begun:
            self._size = self._used = self._bare = 0
            if self.admission.held:
                self.admission.hold(0)
        elif self._bare > MAX_HEAD:  # the parser keeps them, whatever becomes of the request
            self._break((HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, _TOO_LONG))
        elif self._coming is None or not self._coming.answered:  # the rest of an answered request is dropped
            self.admission.hold(self._size - self._used)
        self._go_on()

    def _without_upgrade(self) -> bytes:
        """[RFC 9110] 7.8: we support no upgrade, so we ignore the request for one. But the parser has stopped before
        the body. A new parser reads the body, behind a head that we make up."""
        self._parser = httptools.HttpRequestParser(self)
        request = self._coming
        if request is None:
            return b""
        self._resuming = True
        length = b"transfer-encoding: chunked" if request.length is None else b"content-length: %d" % request.length
        return b"POST / HTTP/1.1\r\n%b\r\n\r\n" % length

    def on_message_begin(self) -> None:
        if self._resuming:
            return
        if self._last:
            raise ValueError("no more requests are taken")
        if len(self._waiting) + (self._current is not None) > MAX_PIPELINED:
            self._fault = (HTTPStatus.BAD_REQUEST, "too many requests sent before their answers")
            raise ValueError(self._fault[1])
        self._begun = self._in_head = True
        self._expect(REQUEST_S)
        self._target = b""
        self._fields = []
        self._head = self._lines = 0

    def on_url(self, url: bytes) -> None:
        if not self._resuming:
            self._target += url
            self._head += len(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._resuming:
            return
        self._lines += 1
        if self._lines > MAX_HEADERS:
            raise ValueError("too many headers")
        if self._in_head:  # trailers are dropped
            self._fields.append((name.lower(), value))
            self._head += len(name) + len(value) + 4

    def on_headers_complete(self) -> None:
        if self._resuming:
            self._resuming = False
            return
        self._in_head = False
        parser, fields, target = self._parser, self._fields, self._target
        known, headers = self._known
        if fields != known or self._head > MAX_HEAD:
            headers = self._read_headers(fields)
            self._known = (fields, headers)
        if target[:1] != b"/":
            target, headers = _from_absolute(target, headers)
        version = parser.get_http_version()
        if version not in ("1.1", "1.0"):
            self._fault = (HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "the version must be 1.1")
            raise ValueError(self._fault[1])
        method = parser.get_method()
        length: int | None = int(headers.get(b"content-length", 0))
        coding = headers.get(b"transfer-encoding")
        if coding is not None:
            length = None
            if version == "1.0":  # [RFC 9112] 6.1: a relay on the way must have added it
                raise ValueError("chunks in HTTP/1.0")
            if coding.lower() != "chunked":
                self._fault = (HTTPStatus.NOT_IMPLEMENTED, "Transfer-Encoding: must be chunked")
                raise ValueError(self._fault[1])
        self._coming = request = Request(
            self,
            _METHODS.get(method) or method.decode("latin-1"),
            target,
            fields,
            headers,
            length,
            chunks=version == "1.1",
            keep_alive=version == "1.1" and parser.should_keep_alive(),
            head_size=self._head,
        )
        self._waiting.append(request)

    def _read_headers(self, fields: list[tuple[bytes, bytes]]) -> dict[bytes, str]:
        if self._head > MAX_HEAD:
            self._fault = (HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, _TOO_LONG)
            raise ValueError(_TOO_LONG)
        if sum([name == b"host" for name, _ in fields]) > 1:  # [RFC 9112] 3.2: two readers could pick different ones
            raise ValueError("two hosts")
        return {name: value.decode("latin-1") for name, value in reversed(fields)}

    def on_body(self, body: bytes) -> None:
        self._bare = 0
        request = self._coming
        if request is not None and not request.answered:
            request.receive(body)

    def on_message_complete(self) -> None:
        self._begun = False
        self._size = self._used = self._bare = 0
        request = self._coming
        assert request is not None
        if self._parser.should_upgrade() and request.has_body:
            return  # the body follows
        self._coming = None
        self._last = not request.keep_alive
        if not request.answered:
            self.admission.busy()
            request.end()

    def used(self, size: int) -> None:
        """The application is done with `size` more bytes of the body: they no longer count as unfinished input."""
        if self._begun:
            self._used = min(self._used + size, self._size)

    def invite(self, request: Request) -> None:
        """The application waits for the body. A client that expects `100 Continue` gets it, [RFC 9110] 10.1.1."""
        if request.expects:
            request.expects = False
            if not request.size and not self.transport.is_closing():
                self.transport.write(_CONTINUE)
        self._listen()

    def _listen(self) -> None:
        """Pauses reading while too much input waits for the application, or refuses it if somebody watches for the end
        of the connection."""
        if self._current is not None and self._current is self._coming:
            kept = self._current.unread
        else:
            kept = sum([each.head_size + each.size for each in self._waiting])
        if kept > MAX_UNREAD and self._watchers and self._fault is None:
            self._break(_TOO_MUCH)
        much = kept > MAX_UNREAD or len(self._waiting) >= MAX_PIPELINED
        deaf = much and not self._watchers and self._fault is None  # after a fault nothing more is kept
        if deaf is not self._deaf and not self.lost and not self.transport.is_closing():
            self._deaf = deaf
            if deaf:
                self.transport.pause_reading()
            else:
                self.transport.resume_reading()

    def _break(self, fault: _Fault) -> None:
        """The newest input cannot be read. Earlier requests still get their answers."""
        self._fault = fault
        request, self._coming = self._coming, None
        if request is None:
            return
        if self._waiting and self._waiting[-1] is request:
            self._waiting.pop()
        elif not request.answered:
            self._refuse(fault)
            request.end(lost=True)

    def _refuse(self, fault: _Fault) -> None:
        """Answers a fault and closes the connection."""
        response = self.app.refuse(*fault)
        ending = b"content-length: %d\r\nconnection: close\r\n" % len(response.body)
        self.transport.write(response.head(ending) + response.body)
        self.transport.close()

    # Output

    def _go_on(self) -> None:
        """Begins the next request, unless one is being answered or the peer does not read its answers."""
        if self._going:  # the application answered within `begin`
            return
        self._going = True
        try:
            while self._waiting and self._current is None and not self._full and not self.transport.is_closing():
                self._current = self._waiting.popleft()
                self.app.begin(self._current)
        finally:
            self._going = False
        if self._fault is not None and self._current is None and not self._waiting and not self.transport.is_closing():
            self._refuse(self._fault)
        self._listen()

    def answer(self, request: Request, response: Response) -> None:
        """Sends a whole answer in one write. Does nothing if the client is gone."""
        assert response.pieces is None
        if not self.transport.is_closing() and self._current is request:
            body, bodiless = response.body, response.status in _BODILESS
            ending = b"" if bodiless else b"content-length: %d\r\n" % len(body)
            closes = self._closes(request)
            head = response.head(ending + b"connection: close\r\n" if closes else ending)
            self.transport.write(head if bodiless or request.method == "HEAD" else head + body)
            self._answered(request, closes)
        elif self._current is request:
            self._current = None
        if response.over is not None:
            response.over()

    async def stream(self, request: Request, response: Response) -> None:
        """Sends an answer in pieces, as fast as the client reads them. An exception of `pieces` breaks it off."""
        assert response.pieces is not None
        chunked, closes = request.chunks, self._closes(request)
        request.answered = True  # if it is not complete, the rest is dropped
        try:
            async with aclosing(response.pieces) as pieces:
                ending = b"transfer-encoding: chunked\r\n" if chunked else b""
                data = response.head(ending + b"connection: close\r\n" if closes else ending)
                if request.method != "HEAD":
                    async for piece in pieces:
                        if piece:
                            framed = (b"%x\r\n" % len(piece), piece, b"\r\n") if chunked else (piece,)
                            await self._write(b"".join((data, *framed)))
                            data = b""
                    data += b"0\r\n\r\n" if chunked else b""
                await self._write(data)
            self._answered(request, closes or self._stopping)
        except BaseException:
            self._current = None
            self.transport.close()
            raise
        finally:
            if response.over is not None:
                response.over()

    async def _write(self, data: bytes) -> None:
        if self._full and not self.lost:
            self._drained = self._loop.create_future()
            await self._drained
        if self.transport.is_closing():
            raise ClientLeft
        self.transport.write(data)

    def _closes(self, request: Request) -> bool:
        """Whether the connection closes after this answer. It closes if a client still waits for `100 Continue`: the
        client may or may not send the body, so nobody could tell what comes next."""
        return not request.keep_alive or self._stopping or (request.expects and not request.complete)

    def _answered(self, request: Request, closes: bool) -> None:
        request.answered = True
        self._current = None
        if closes:
            self.transport.close()
            return
        if self._begun:  # answered before it was complete, so the rest is dropped
            self._size = self._used = 0
            self.admission.hold(0)
            request.take()
        if self._begun:
            self._expect(REQUEST_S)
        elif not self._waiting:
            self._expect(KEEP_ALIVE_S)
        if not self._waiting:
            self.admission.idle()
        self._go_on()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._full = True

    def resume_writing(self) -> None:
        super().resume_writing()
        self._full = False
        self._wake()
        self._go_on()

    def _wake(self) -> None:
        """Resumes a task that waits for the peer to read our output."""
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    # Time

    def _expect(self, seconds: float) -> None:
        self._due = self._loop.time() + seconds

    def _look(self) -> None:
        if self._current is not None and self._current is not self._coming:
            wait = REQUEST_S
        else:
            wait = self._due + (self._size / BYTES_PER_S if self._begun else 0) - self._loop.time()
        if wait > 0:
            self._watch = self._loop.call_later(wait, self._look)
        elif self._begun:
            self.listener.limits.requests.hit(address=self.admission.address, bytes=self._size)
            self._break((HTTPStatus.REQUEST_TIMEOUT, "the request was not complete in time"))
            self._go_on()
        else:
            self.transport.close()


def _from_absolute(target: bytes, headers: dict[bytes, str]) -> tuple[bytes, dict[bytes, str]]:
    """[RFC 9112] 3.2.2: the host in an absolute URL replaces the one in the header."""
    if b"://" not in target:
        return target, headers  # `*`, or the host of a CONNECT: no path that we serve
    url = httptools.parse_url(target)
    host = (url.host or b"").decode("latin-1")
    host = f"[{host}]" if ":" in host else host
    path = (url.path or b"/") + (b"?" + url.query if url.query is not None else b"")
    return path, headers | {b"host": f"{host}:{url.port}" if url.port else host}
