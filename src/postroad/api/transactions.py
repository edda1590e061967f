"""Calls about local transactions. A send or receive joins one with `?transaction=ID`."""

from __future__ import annotations

from http import HTTPStatus
from uuid import UUID

from starlette.responses import Response

from postroad.api.calls import Answer, Call, Needs, Operations, json_answer, no_content
from postroad.api.formats import JSON
from postroad.fields.kinds import GUID
from postroad.fields.tables import read_text

OPERATIONS = Operations()


def _identifier(call: Call) -> UUID:
    return read_text(GUID, call.segment("id"), "id")


def _own(call: Call) -> UUID:
    identifier = _identifier(call)
    call.own_transaction(identifier)
    return identifier


@OPERATIONS.add(
    "POST /transactions",
    "Begin a transaction",
    Answer(HTTPStatus.CREATED, "its identifier", {JSON: "Transaction"}),
    needs=Needs.NOTHING,
)
async def begin(call: Call) -> Response:
    identifier = call.manager.begin(call.holder)
    lease_s = call.manager.leases.times.transaction_s
    return json_answer({"id": str(identifier), "lease_s": lease_s}, HTTPStatus.CREATED)


@OPERATIONS.add(
    "POST /transactions/{id}/commit",
    "Commit a transaction",
    Answer(HTTPStatus.NO_CONTENT, "the transaction is committed and durable"),
    errors=(HTTPStatus.CONFLICT,),
    needs=Needs.OWN,
)
async def commit(call: Call) -> Response:
    await call.manager.commit(_own(call))
    return no_content()


@OPERATIONS.add(
    "POST /transactions/{id}/abort",
    "Abort a transaction",
    Answer(HTTPStatus.NO_CONTENT, "the transaction is aborted, and its messages are back in their queues"),
    errors=(HTTPStatus.CONFLICT,),
    needs=Needs.OWN,
)
async def abort(call: Call) -> Response:
    await call.manager.abort(_own(call))
    return no_content()


@OPERATIONS.add(
    "GET /transactions",
    "List the open transactions of clients, the oldest first",
    Answer(content={JSON: "Transactions"}),
    needs=Needs.MONITOR,
)
async def list_transactions(call: Call) -> Response:
    return json_answer({"transactions": call.manager.leases.transactions()})


@OPERATIONS.add(
    "DELETE /transactions/{id}",
    "Abort a client's transaction as an operator",
    Answer(HTTPStatus.NO_CONTENT, "the transaction is aborted, and its messages are back in their queues"),
    errors=(HTTPStatus.CONFLICT,),
    audited="abort transaction",
    needs=Needs.ADMINISTRATOR,
)
async def abort_transaction(call: Call) -> Response:
    identifier = _identifier(call)
    call.facts["transaction"] = identifier
    await call.manager.leases.abort(identifier)
    return no_content()
