"""Calls about local transactions. What is part of one says so by `?transaction=ID` in its own call."""

from __future__ import annotations

from http import HTTPStatus
from urllib.parse import unquote
from uuid import UUID

from starlette.responses import Response

from postroad.api.calls import Answer, Call, Operation, json_answer, no_content
from postroad.api.formats import JSON
from postroad.api.schema import info_json
from postroad.fields.kinds import GUID
from postroad.fields.tables import read_text


def _identifier(call: Call) -> UUID:
    return read_text(GUID, unquote(call.request.path_params["id"]), "id")


async def begin(call: Call) -> Response:
    identifier = call.manager.begin(call.holder)
    lease_s = call.manager.leases.times.transaction_s
    return json_answer({"id": str(identifier), "lease_s": lease_s}, HTTPStatus.CREATED)


async def commit(call: Call) -> Response:
    await call.manager.commit(_identifier(call))
    return no_content()


async def abort(call: Call) -> Response:
    await call.manager.abort(_identifier(call))
    return no_content()


async def list_transactions(call: Call) -> Response:
    return json_answer({"transactions": [info_json(each) for each in call.manager.leases.transactions()]})


async def abort_transaction(call: Call) -> Response:
    identifier = _identifier(call)
    call.facts["transaction"] = identifier
    await call.manager.leases.abort(identifier)
    return no_content()


OPERATIONS = (
    Operation(
        "POST",
        "/transactions",
        begin,
        "Begin a transaction",
        (Answer(HTTPStatus.CREATED, "its identifier", {JSON: "Transaction"}),),
    ),
    Operation(
        "GET",
        "/transactions",
        list_transactions,
        "The open transactions of clients, the oldest first",
        (Answer(content={JSON: "Transactions"}),),
    ),
    Operation(
        "DELETE",
        "/transactions/{id}",
        abort_transaction,
        "Abort somebody's transaction, as an operator",
        (Answer(HTTPStatus.NO_CONTENT, "messages are back in their places"),),
        errors=(HTTPStatus.CONFLICT,),
        audited="abort transaction",
    ),
    Operation(
        "POST",
        "/transactions/{id}/commit",
        commit,
        "Make everything that is part of a transaction happen",
        (Answer(HTTPStatus.NO_CONTENT, "it has happened, and is durable"),),
        errors=(HTTPStatus.CONFLICT,),
    ),
    Operation(
        "POST",
        "/transactions/{id}/abort",
        abort,
        "Make nothing of a transaction happen",
        (Answer(HTTPStatus.NO_CONTENT, "messages are back in their places"),),
        errors=(HTTPStatus.CONFLICT,),
    ),
)
