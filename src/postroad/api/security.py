"""Calls about who may use the manager: its users, and the audit log."""

from __future__ import annotations

from itertools import islice

from starlette.responses import Response

from postroad.api.calls import Answer, Call, Needs, Operations, Parameter, json_answer
from postroad.api.formats import JSON
from postroad.fields.kinds import whole
from postroad.security.audit import MAX_RECENT
from postroad.values.info import UserInfo

OPERATIONS = Operations()


@OPERATIONS.add(
    "GET /users",
    "List the users who can log in",
    Answer(description="the users of the configuration, without passwords", content={JSON: "Users"}),
    needs=Needs.ADMINISTRATOR,
)
async def list_users(call: Call) -> Response:
    users = [
        UserInfo(each.name, str(each.sid), tuple(map(str, sorted(each.groups, key=str))), each.administrator)
        for each in call.manager.core.access.users
    ]
    return json_answer({"users": users})


@OPERATIONS.add(
    "GET /audit",
    "List changes by people and refused logins, the newest first",
    Answer(description="the last events since the start, and the file that has all of them", content={JSON: "Audit"}),
    parameters=(Parameter("limit", whole(1, MAX_RECENT), "how many at most", 100),),
    needs=Needs.ADMINISTRATOR,
)
async def list_audit(call: Call) -> Response:
    audit = call.manager.audit
    events = list(islice(audit.recent, call.query["limit"]))
    return json_answer({"file": None if audit.file is None else str(audit.file), "events": events})
