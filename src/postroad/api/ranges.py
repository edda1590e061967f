"""Messages of a range in order of arrival, streamed. The caller chooses rows by filters, and columns by name."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TypeVar

from starlette.responses import Response

from postroad.api.arrow import columns_room
from postroad.api.calls import Call, Parameter
from postroad.api.formats import ARROW, choose, negotiate, streamed, streamed_answer
from postroad.errors import InvalidArgument
from postroad.fields.kinds import TEXT, FieldFault, Kind, whole
from postroad.message import MAX_PRIORITY
from postroad.store.interface import ARRIVAL_MASK
from postroad.values.offsets import Selection

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
    """A stream in order of arrival, with the columns that were asked for and the rows that pass the filters."""
    query = call.query
    if query["to"] is not None and query["from"] is not None and query["to"] < query["from"]:
        raise InvalidArgument(f"to: must be at least {query['from']}, the start of the range, got {query['to']}")
    media_type = negotiate(call.header(b"accept"))
    columns = query["columns"]
    if media_type == ARROW:
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
    form = choose(call.header(b"accept"))
    return await streamed_answer(form, _permitted(call, call.manager.offsets.pages(call.queue, selection)))


async def _permitted(call: Call, pages: AsyncIterator[T]) -> AsyncIterator[T]:
    """Each page only if the caller may still read: meanwhile the right may be gone, or another queue have the name."""
    async for page in pages:
        call.authorize()
        yield page
