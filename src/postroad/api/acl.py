"""Calls about access lists: show one, replace it, and grant, deny or revoke rights."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from starlette.responses import Response

from postroad.api.calls import Answer, Body, Call, Operations, json_answer
from postroad.api.formats import JSON
from postroad.errors import InvalidArgument
from postroad.fields.kinds import FieldFault, Kind, items, line, nullable, text
from postroad.fields.tables import Properties, Property, read_object
from postroad.manager.access_lists import EDITS
from postroad.queues.access import Action
from postroad.security.rights import QUEUE_RIGHT_WORDS

MAX_SDDL = 65_535
_SET = {
    "sddl": Property(
        "sddl", "sddl", nullable(text(MAX_SDDL)), "the security descriptor; null for the default one", required=True
    )
}
_RIGHTS = {
    "who": Property("who", "who", line(256), "everyone, anonymous, the name of a user or a SID", required=True),
    "rights": Property(
        "rights", "rights", items(line(32), least=1, most=len(QUEUE_RIGHT_WORDS)), "words of rights", required=True
    ),
}


def _entry(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError
    try:
        return read_object(value, _RIGHTS)
    except InvalidArgument as fault:
        raise FieldFault(str(fault)) from None


_ENTRY = Kind(
    "an object with who and rights",
    {
        "type": "object",
        "properties": {
            "who": {"type": "string"},
            "rights": {"type": "array", "items": {"type": "string", "enum": list(QUEUE_RIGHT_WORDS)}},
        },
        "required": ["who", "rights"],
    },
    _entry,
)
_EDIT: Properties = {word: Property(word, word, _ENTRY, f"the rights to {word}, and whose") for word in EDITS}
_ACL = Answer(description="the access list", content={JSON: "Acl"})
_NOT_FOUND = (HTTPStatus.NOT_FOUND,)

OPERATIONS = Operations()


@OPERATIONS.add(
    "GET /queues/{queue}/acl",
    "Show the access list of a queue",
    _ACL,
    errors=_NOT_FOUND,
    needs=Action.GET_PERMISSIONS,
)
async def show_acl(call: Call) -> Response:
    return json_answer({"sddl": call.manager.acl(call.queue)})


@OPERATIONS.add(
    "PATCH /queues/{queue}/acl",
    "Replace the access list of a queue",
    _ACL,
    body=Body({JSON: "AclChange"}),
    errors=_NOT_FOUND,
    audited="change access",
    needs=Action.SET_PERMISSIONS,
)
async def set_acl(call: Call) -> Response:
    values = read_object(await call.json_object(), _SET)
    sddl = await call.manager.set_acl(call.queue, values["sddl"], call.token)
    call.facts["sddl"] = sddl
    return json_answer({"sddl": sddl})


@OPERATIONS.add(
    "POST /queues/{queue}/acl",
    "Grant, deny or revoke rights on a queue",
    _ACL,
    body=Body({JSON: "AclEdit"}),
    errors=_NOT_FOUND,
    audited="change access",
    needs=Action.SET_PERMISSIONS,
)
async def edit_acl(call: Call) -> Response:
    values = read_object(await call.json_object(), _EDIT)
    if len(values) != 1:
        raise InvalidArgument(f"body: must have one of {', '.join(EDITS)}, got {', '.join(values) or 'none'}")
    ((edit, entry),) = values.items()
    call.facts |= {edit: entry["who"], "rights": " ".join(entry["rights"])}
    sddl = await call.manager.edit_acl(call.queue, edit, entry["who"], entry["rights"])
    call.facts["sddl"] = sddl
    return json_answer({"sddl": sddl})


SCHEMAS = {"AclChange": _SET, "AclEdit": _EDIT}
