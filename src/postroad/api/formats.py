"""The formats of answers with messages: JSON, records or Arrow, chosen by `Accept`, sent whole or streamed by page."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import cache, lru_cache
from http import HTTPStatus
from importlib import import_module
from typing import Any, Protocol, TypeVar

from postroad.api.calls import Call, Parameter
from postroad.api.problems import HttpFault
from postroad.describe.received import ReceivedMessage, encode_records
from postroad.errors import InvalidArgument
from postroad.message import MAX_PRIORITY
from postroad.net.exchange import Response
from postroad.reports.offsets import Selection
from postroad.reports.operations import RECORDS_TYPE
from postroad.store.interface import ARRIVAL_MASK
from postroad.validation.kinds import TEXT, FieldFault, Kind, whole

# Messages as Arrow: record batches in the IPC stream format. The columns are those of postroad/columns.


ARROW = "application/vnd.apache.arrow.stream"


async def load_arrow() -> None:
    """Imports pyarrow and its users, which takes a second or more. Other calls go on meanwhile. Does nothing if pyarrow
    is not installed."""
    await asyncio.shield(asyncio.wrap_future(_loading()))


@cache
def _loading() -> Future[None]:
    """One import for all callers, in its own thread, so that it blocks no other thread."""
    threads = ThreadPoolExecutor(1, "postroad-arrow")
    loading = threads.submit(_import_all)
    threads.shutdown(wait=False)
    return loading


def _import_all() -> None:
    with suppress(ImportError):
        for module in ("sending", "ranges"):
            import_module(f"postroad.columns.{module}")


def columns_room() -> Any:
    """The module that writes messages. Raises HttpFault, 406, if pyarrow or numpy is missing."""
    return _room("ranges", HTTPStatus.NOT_ACCEPTABLE, "Accept: the server cannot write Arrow")


def sending_room() -> Any:
    """The module that reads messages to send. Raises HttpFault, 415, if pyarrow or numpy is missing."""
    return _room("sending", HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "Content-Type: the server cannot read Arrow")


def _room(module: str, status: HTTPStatus, fault: str) -> Any:
    try:
        import pyarrow  # noqa: F401

        return import_module(f"postroad.columns.{module}")
    except ImportError:
        remedy = "run pip install postroad[arrow] there and restart it"
        raise HttpFault(status, InvalidArgument(f"{fault}; {remedy}")) from None


class ArrowWriter:
    """Writes one stream: call `start`, `batch` any number of times, and `end`. Raises HttpFault, 406, if pyarrow is
    missing."""

    def __init__(self, *, packet: bool = False) -> None:
        self._columns = columns_room()
        self._schema = self._columns.schema_of(self._columns.listed(packet=packet))

    def start(self) -> bytes:
        return bytes(self._schema.serialize())

    def batch(self, messages: Sequence[ReceivedMessage]) -> bytes:
        """One record batch, or nothing if there are no messages."""
        if not messages:
            return b""
        rows = self._columns.Rows.of(
            [message.lookup_id for message in messages],
            [message.arrived_ms for message in messages],
            [message.aborts for message in messages],
            [message.reason for message in messages],
            [message.packet for message in messages],
        )
        return bytes(rows.batch(self._schema).serialize())

    def end(self) -> bytes:
        return bytes(self._columns.END_OF_STREAM)


JSON = "application/json"
RECORDS = RECORDS_TYPE
SUPPORTED = (JSON, RECORDS, ARROW)
KNOWN_HEADERS = 64  # parsed values of Accept to keep
_ANY = frozenset({"*/*", "application/*"})


class Format(Protocol):
    """Writes pages of messages as one answer. The body is all pieces joined."""

    media_type: str
    in_thread: bool  # whether pages take so long that the event loop must not write them

    def start(self) -> bytes: ...

    def page(self, messages: Sequence[ReceivedMessage]) -> bytes: ...

    def end(self) -> bytes: ...


class _Json:
    media_type = JSON

    def __init__(self, *, decode: bool = False) -> None:
        self.in_thread = decode
        self._comma = b""

    def start(self) -> bytes:
        return b'{"messages":['

    def page(self, messages: Sequence[ReceivedMessage]) -> bytes:
        if not messages:
            return b""
        text = json.dumps(
            [message.describe(decode=self.in_thread) for message in messages], separators=(",", ":")
        ).encode()
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
    in_thread = False

    def start(self) -> bytes:
        return b""

    def page(self, messages: Sequence[ReceivedMessage]) -> bytes:
        return encode_records(messages)

    def end(self) -> bytes:
        return b""


class _Arrow:
    media_type = ARROW
    in_thread = False

    def __init__(self, *, packet: bool) -> None:
        self._writer = ArrowWriter(packet=packet)
        self.start = self._writer.start
        self.page = self._writer.batch
        self.end = self._writer.end


def choose(accept: str, *, one: bool = False, packet: bool = False, decode: bool = False) -> Format:
    """The format for an Accept header. Raises HttpFault, 406, if it accepts none of ours, or Arrow without pyarrow."""
    media_type = negotiate(accept)
    if decode and media_type != JSON:
        raise InvalidArgument(f"decode: needs Accept: {JSON}")
    if media_type == RECORDS:
        return _Records()
    if media_type == ARROW:
        return _Arrow(packet=packet)
    return _OneJson(decode=decode) if one else _Json(decode=decode)


@lru_cache(KNOWN_HEADERS)
def negotiate(accept: str) -> str:
    """[RFC 9110] 12.5.1: the media type with the highest quality; among equals, the first in the header. A range with
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
    best = max(qualities, key=lambda each: qualities[each])  # the first among equals
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
            yield await asyncio.to_thread(form.page, page) if form.in_thread else form.page(page)
        yield form.end()

    return await streamed(pieces(), form.media_type)


async def streamed(pieces: AsyncIterator[bytes | memoryview], media_type: str) -> Response:
    """An answer in pieces. Makes the beginning and the first page now, while an error can still be the answer."""
    first = [piece for piece in (await anext(pieces, b""), await anext(pieces, b"")) if piece]

    async def all_pieces() -> AsyncGenerator[bytes | memoryview, None]:
        for piece in first:
            yield piece
        async for piece in pieces:
            yield piece

    return Response(media_type=media_type, pieces=all_pieces())


# Streams messages of a range in order of arrival. The caller selects rows by filters, and columns by name.


T = TypeVar("T")
_ARRIVAL = whole(0, ARRIVAL_MASK)


def _columns(value: object) -> tuple[str, ...]:
    names = tuple(TEXT.check(value).split(","))
    if len(set(names)) != len(names):
        raise FieldFault("must not name a column twice")
    return names


RANGE = (
    Parameter("from", _ARRIVAL, "the first arrival number; the answer is then in order of arrival"),
    Parameter("to", _ARRIVAL, "the arrival number after the last; if absent, all that has arrived"),
    Parameter("hold", TEXT, "the name of a hold; the answer then includes the messages it holds"),
    Parameter(
        "columns",
        Kind("names of columns, separated by commas", {"type": "string"}, _columns),
        "the columns of an Arrow answer; all if absent",
    ),
    Parameter("priority", whole(0, MAX_PRIORITY), "only messages of this priority"),
    Parameter("class", whole(0, 0xFFFF), "only messages of this class"),
    Parameter("label", TEXT, "only messages with this label"),
)


def is_range(call: Call) -> bool:
    return any(call.query[each.name] is not None for each in RANGE)


async def answer_range(call: Call, limit: int | None) -> Response:
    """A stream in order of arrival, with the requested columns and the rows that pass the filters."""
    query = call.query
    if query["to"] is not None and query["from"] is not None and query["to"] < query["from"]:
        raise InvalidArgument(f"to: must be at least {query['from']}, the start of the range, got {query['to']}")
    media_type = negotiate(call.header(b"accept"))
    columns = query["columns"]
    if media_type == ARROW:
        if query["decode"]:
            raise InvalidArgument(f"decode: needs Accept: {JSON}")
        columns = columns or columns_room().listed(packet=bool(query["packet"]))
    elif columns is not None:
        raise InvalidArgument(f"columns: needs Accept: {ARROW}")
    selection = Selection(
        query["from"] or 0,
        query["to"],
        None if query["hold"] is None else call.owned(query["hold"]),
        limit,
        columns,
        query["priority"],
        query["class"],
        query["label"],
    )
    if media_type == ARROW:
        return await streamed(_permitted(call, call.manager.offsets.arrow(call.queue, selection)), ARROW)
    form = choose(call.header(b"accept"), decode=query["decode"])
    return await streamed_answer(form, _permitted(call, call.manager.offsets.pages(call.queue, selection)))


async def _permitted(call: Call, pages: AsyncIterator[T]) -> AsyncIterator[T]:
    """Yields each page only if the caller may still read: the right may be gone by then, or another queue may have the
    name."""
    async for page in pages:
        call.authorize()
        yield page
