"""The formats of answers with messages: JSON, records or Arrow, chosen by `Accept`; whole, or streamed by page."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from functools import lru_cache
from http import HTTPStatus
from typing import Protocol

from starlette.responses import Response, StreamingResponse

from postroad.api import arrow
from postroad.api.problems import HttpFault
from postroad.errors import InvalidArgument
from postroad.received import ReceivedMessage, encode_records
from postroad.values.reading import RECORDS_TYPE

JSON = "application/json"
RECORDS = RECORDS_TYPE
ARROW = arrow.MEDIA_TYPE
SUPPORTED = (JSON, RECORDS, ARROW)
KNOWN_HEADERS = 64  # values of Accept that are kept as they were read
_ANY = frozenset({"*/*", "application/*"})


class Format(Protocol):
    """Writes pages of messages as one answer. The body is the pieces, joined."""

    media_type: str

    def start(self) -> bytes: ...

    def page(self, messages: Sequence[ReceivedMessage]) -> bytes: ...

    def end(self) -> bytes: ...


class _Json:
    media_type = JSON

    def __init__(self) -> None:
        self._comma = b""

    def start(self) -> bytes:
        return b'{"messages":['

    def page(self, messages: Sequence[ReceivedMessage]) -> bytes:
        if not messages:
            return b""
        text = json.dumps([message.describe() for message in messages], separators=(",", ":")).encode()
        comma, self._comma = self._comma, b","
        return comma + text[1:-1]

    def end(self) -> bytes:
        return b"]}"


class _OneJson(_Json):
    """Writes a single message as the whole answer."""

    def start(self) -> bytes:
        return b""

    def end(self) -> bytes:
        return b""


class _Records:
    media_type = RECORDS

    def start(self) -> bytes:
        return b""

    def page(self, messages: Sequence[ReceivedMessage]) -> bytes:
        return encode_records(messages)

    def end(self) -> bytes:
        return b""


class _Arrow:
    media_type = ARROW

    def __init__(self, *, packet: bool) -> None:
        self._writer = arrow.ArrowWriter(packet=packet)
        self.start = self._writer.start
        self.page = self._writer.batch
        self.end = self._writer.end


def choose(accept: str, *, one: bool = False, packet: bool = False) -> Format:
    """The format for an Accept header; HttpFault, 406, if it accepts none of ours, or Arrow without pyarrow."""
    media_type = negotiate(accept)
    if media_type == RECORDS:
        return _Records()
    if media_type == ARROW:
        return _Arrow(packet=packet)
    return _OneJson() if one else _Json()


@lru_cache(KNOWN_HEADERS)
def negotiate(accept: str) -> str:
    """[RFC 9110] 12.5.1: the media type with the highest quality. Of equal ones, the first in the header. A range with
    `*` means JSON, unless JSON itself is named."""
    if not accept:
        return JSON
    qualities: dict[str, float] = {}
    any_quality = 0.0
    for part in accept.lower().split(","):
        media_range, *parameters = (each.strip() for each in part.split(";"))
        if media_range in SUPPORTED:
            qualities[media_range] = _quality(parameters)
        elif media_range in _ANY:
            any_quality = max(any_quality, _quality(parameters))
    qualities.setdefault(JSON, any_quality)
    best = max(qualities, key=lambda each: qualities[each])  # the first of equal ones
    if not qualities[best]:
        sentence = f"Accept: must allow {', '.join(SUPPORTED[:-1])} or {SUPPORTED[-1]}, got {accept}"
        raise HttpFault(HTTPStatus.NOT_ACCEPTABLE, InvalidArgument(sentence))
    return best


def _quality(parameters: Sequence[str]) -> float:
    for parameter in parameters:
        if parameter.startswith("q="):
            try:
                return min(1.0, max(0.0, float(parameter[2:])))
            except ValueError:
                return 0.0
    return 1.0


def whole_answer(form: Format, messages: Sequence[ReceivedMessage]) -> Response:
    return Response(form.start() + form.page(messages) + form.end(), media_type=form.media_type)


async def streamed_answer(form: Format, pages: AsyncIterator[Sequence[ReceivedMessage]]) -> Response:
    """Reads and sends one page at a time."""

    async def pieces() -> AsyncIterator[bytes]:
        yield form.start()
        async for page in pages:
            yield form.page(page)
        yield form.end()

    return await streamed(pieces(), form.media_type)


async def streamed(pieces: AsyncIterator[bytes | memoryview], media_type: str) -> Response:
    """An answer in pieces. Its beginning and its first page are made now, while what they meet can be the answer."""
    first = [piece for piece in (await anext(pieces, b""), await anext(pieces, b"")) if piece]

    async def all_pieces() -> AsyncIterator[bytes | memoryview]:
        for piece in first:
            yield piece
        async for piece in pieces:
            yield piece

    return StreamingResponse(all_pieces(), media_type=media_type)
