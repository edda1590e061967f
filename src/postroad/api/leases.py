"""Calls about locked messages: clients renew their leases, operators list and release locks."""

from __future__ import annotations

from http import HTTPStatus

from starlette.responses import Response

from postroad.api.calls import Answer, Body, Call, Needs, Operations, Parameter, json_answer
from postroad.api.formats import JSON
from postroad.api.schema import MAX_BATCH_MESSAGES, QUEUE
from postroad.fields.kinds import GUID, LOOKUP_ID, items
from postroad.fields.tables import Property, read_object
from postroad.queues.access import Action

_LEASES = items(GUID, most=MAX_BATCH_MESSAGES, distinct=True, first=0)
_LOOKUP_IDS = items(LOOKUP_ID, most=MAX_BATCH_MESSAGES, distinct=True, first=0)
_RENEWAL = {
    "leases": Property("leases", "leases", _LEASES, "leases of locked messages, and ids of transactions", required=True)
}
_RELEASE = {
    "lookup_ids": Property(
        "lookup_ids", "lookup_ids", _LOOKUP_IDS, "the messages to release; all locked ones if absent"
    )
}

OPERATIONS = Operations()


@OPERATIONS.add(
    "POST /leases/renew",
    "Renew the leases of locked messages and transactions",
    Answer(description="the leases that were renewed, and those that have ended", content={JSON: "Renewed"}),
    body=Body({JSON: "Renewal"}),
    needs=Needs.OWN,
)
async def renew(call: Call) -> Response:
    values = read_object(await call.json_object(), _RENEWAL)
    leases = call.manager.leases
    own = [each for each in values["leases"] if call.owns(leases.core.holder(each))]
    gone = {*values["leases"]} - {*own} | {*leases.renew(own)}
    return json_answer(
        {
            "renewed": [str(each) for each in values["leases"] if each not in gone],
            "gone": [str(each) for each in values["leases"] if each in gone],
        }
    )


@OPERATIONS.add(
    "GET /locks",
    "List the messages that clients have locked, the oldest first",
    Answer(content={JSON: "Locks"}),
    parameters=(Parameter("queue", QUEUE, "only messages of this queue"),),
    errors=(HTTPStatus.NOT_FOUND,),
    needs=Needs.NOTHING,
)
async def list_locks(call: Call) -> Response:
    locks = call.manager.leases.locks(call.query["queue"])
    return json_answer({"locks": [each for each in locks if call.token.watches or call.may(Action.PEEK, each.queue)]})


@OPERATIONS.add(
    "POST /queues/{queue}/release",
    "Release locked messages as an operator, even if their client still works",
    Answer(description="the lookup ids released, and how many are still locked", content={JSON: "Released"}),
    body=Body({JSON: "Release"}),
    errors=(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT),
    audited="release locks",
    needs=Needs.ADMINISTRATOR,
)
async def release(call: Call) -> Response:
    values = read_object(await call.json_object(), _RELEASE)
    released = await call.manager.leases.release(call.queue, values.get("lookup_ids"))
    call.facts["messages"] = len(released)
    return json_answer({"released": released, "locked": call.manager.leases.locked(call.queue)})


SCHEMAS = {"Renewal": _RENEWAL, "Release": _RELEASE}
