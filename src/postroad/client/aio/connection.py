"""One HTTP connection on an event loop: a request, then its whole answer, then the next request."""

from __future__ import annotations

import asyncio

from postroad.client.replies import END, MAX_HEAD, BadAnswer, Head, chunk_size, read_head

EARLY_END = "the connection ended before the answer did"


class Connection(asyncio.Protocol):
    """For one request at a time. It cannot be used again once `ended`, or after `ask` has raised."""

    def __init__(self) -> None:
        self.ended = False
        self._transport: asyncio.Transport
        self._reply: asyncio.Future[tuple[Head, bytes]] | None = None  # what the caller of `ask` waits for
        self._buffer = bytearray()  # read, and not used yet
        self._head: Head | None = None
        self._chunks: list[bytes] = []
        self._heard = 0.0  # when the server was last heard

    async def ask(self, request: bytes, timeout: float | None) -> tuple[Head, bytes]:
        """OSError if there is no whole answer; TimeoutError if the server is silent for longer than `timeout`."""
        if self.ended:
            raise BadAnswer(EARLY_END)
        loop = asyncio.get_running_loop()
        reply: asyncio.Future[tuple[Head, bytes]] = loop.create_future()
        self._reply = reply
        self._transport.write(request)
        alarm = None
        if timeout is not None:
            self._heard = loop.time()
            alarm = loop.call_later(timeout, self._look, reply, timeout)
        try:
            return await reply
        finally:
            self._reply = self._head = None
            if alarm is not None:
                alarm.cancel()

    def _look(self, reply: asyncio.Future[tuple[Head, bytes]], timeout: float) -> None:
        """Runs as long as the reply is awaited."""
        if reply.done():
            return
        loop = asyncio.get_running_loop()
        left = self._heard + timeout - loop.time()
        if left > 0:
            loop.call_later(left, self._look, reply, timeout)
        else:
            reply.set_exception(TimeoutError())

    def close(self) -> None:
        self.ended = True
        self._transport.abort()

    # What the event loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        reply = self._reply
        if reply is None or reply.done():
            self.close()  # behind an answer, a server says only that it closes the connection
            return
        self._buffer += data
        self._heard = asyncio.get_running_loop().time()
        try:
            content = self._content()
        except BadAnswer as fault:
            self.close()
            reply.set_exception(fault)
            return
        if content is not None:
            assert self._head is not None
            reply.set_result((self._head, content))
            if self._buffer:
                self.close()

    def connection_lost(self, fault: Exception | None) -> None:
        self.ended = True
        reply, head = self._reply, self._head
        if reply is None or reply.done():
            return
        if fault is None and head is not None and head.length is None and not head.chunked:
            reply.set_result((head, bytes(self._buffer)))
        else:
            reply.set_exception(fault if isinstance(fault, OSError) else BadAnswer(EARLY_END))

    # The answer

    def _content(self) -> bytes | None:
        """The body of the answer; None as long as a part of it is missing."""
        while self._head is None:
            end = self._buffer.find(END)
            if max(end, len(self._buffer) if end < 0 else 0) > MAX_HEAD:
                raise BadAnswer(f"the head of the answer must have at most {MAX_HEAD} bytes")
            if end < 0:
                return None
            head = read_head(bytes(self._buffer[:end]))
            del self._buffer[: end + len(END)]
            if head.status >= 200:
                self._head = head
        if self._head.chunked:
            return self._chunked()
        length = self._head.length
        if length is None or len(self._buffer) < length:
            return None
        content = bytes(self._buffer[:length])
        del self._buffer[:length]
        return content

    def _chunked(self) -> bytes | None:
        while (end := self._buffer.find(b"\r\n")) >= 0:
            size = chunk_size(bytes(self._buffer[:end]))
            if not size:
                last = self._buffer.find(END, end)  # behind the trailers
                if last < 0:
                    break
                del self._buffer[: last + len(END)]
                content = b"".join(self._chunks)
                self._chunks.clear()
                return content
            if len(self._buffer) < end + size + 4:
                return None
            self._chunks.append(bytes(self._buffer[end + 2 : end + 2 + size]))
            del self._buffer[: end + size + 4]
        if len(self._buffer) > MAX_HEAD:
            raise BadAnswer("a line of the answer is too long")
        return None
