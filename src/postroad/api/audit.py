"""The call for what people have changed."""

from __future__ import annotations

from starlette.responses import Response

from postroad.api.calls import Answer, Call, Needs, Operations, Parameter, json_answer
from postroad.api.formats import JSON
from postroad.fields.kinds import whole
from postroad.security.audit import MAX_RECENT

OPERATIONS = Operations()


@OPERATIONS.add(
    "GET /audit",
    "List changes by people, and what was refused, the newest first",
    Answer(description="the last events since the start, and the file that has all of them", content={JSON: "Audit"}),
    parameters=(Parameter("limit", whole(1, MAX_RECENT), "how many at most", 100),),
    needs=Needs.MONITOR,
)
async def list_audit(call: Call) -> Response:
    audit = call.manager.audit
    events = audit.latest(call.query["limit"])
    return json_answer({"file": None if audit.file is None else str(audit.file), "events": events})
