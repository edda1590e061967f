"""Messages of a range by order of arrival, streamed: which of them, and which columns, the caller chooses."""

from __future__ import annotations

from starlette.responses import Response, StreamingResponse

from postroad.api.arrow import columns_room
from postroad.api.calls import Call, Parameter
from postroad.api.formats import ARROW, choose, negotiate, streamed_answer
from postroad.errors import InvalidArgument
from postroad.fields.kinds import TEXT, FieldFault, Kind, whole
from postroad.message import MAX_PRIORITY
from postroad.store.interface import ARRIVAL_MASK
from postroad.values.offsets import Selection

_ARRIVAL = whole(0, ARRIVAL_MASK)


def _columns(value: object) -> tuple[str, ...]:
    names = tuple(TEXT.check(value).split(","))
    if len(set(names)) != len(names):
        raise FieldFault("must not name a column twice")
    return names


RANGE = (
    Parameter("from", _ARRIVAL, "the arrival number to begin at: the order is that of arrival then"),
    Parameter("to", _ARRIVAL, "the arrival number to end before; what has arrived by now if absent"),
    Parameter("hold", TEXT, "whose hold it is read with: what this name holds is shown too"),
    Parameter(
        "columns",
        Kind("names of columns, separated by commas", {"type": "string"}, _columns),
        "which columns Arrow has; all if absent",
    ),
    Parameter("priority", whole(0, MAX_PRIORITY), "messages of this priority alone"),
    Parameter("class", whole(0, 0xFFFF), "messages of this class alone"),
    Parameter("label", TEXT, "messages with this label alone"),
)


def is_range(call: Call) -> bool:
    return any(call.query[each.name] is not None for each in RANGE)


def answer_range(call: Call, limit: int | None) -> Response:
    """A stream in the order of arrival; its columns are those asked for, its rows those that pass the filters."""
    query = call.query
    if query["to"] is not None and query["from"] is not None and query["to"] < query["from"]:
        raise InvalidArgument(f"to: must be at least {query['from']}, where the range begins, got {query['to']}")
    media_type = negotiate(call.request.headers.get("accept"))
    columns = query["columns"]
    if media_type == ARROW:
        columns = columns or columns_room().listed(packet=bool(query["packet"]))
    elif columns is not None:
        raise InvalidArgument(f"columns: only answers of the type {ARROW} have columns")
    selection = Selection(
        query["from"] or 0,
        query["to"],
        query["hold"],
        limit,
        columns,
        query["priority"],
        query["class"],
        query["label"],
    )
    if media_type == ARROW:
        return StreamingResponse(call.manager.offsets.arrow(call.queue, selection), media_type=ARROW)
    call.manager.queue(call.queue)  # raises, as long as there can be another answer
    form = choose(call.request.headers.get("accept"))
    return streamed_answer(form, call.manager.offsets.pages(call.queue, selection))
