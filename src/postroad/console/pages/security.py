"""Security: who can reach the manager, its users, what people changed, refused logins, and access lists."""

from __future__ import annotations

from postroad.console.visit import Visit
from postroad.net.exchange import Response

EVENTS = 200
DONE = "done"  # any other outcome is the reason why nothing changed


async def show(visit: Visit) -> Response:
    client = await visit.client()
    exposure = await client.exposure()
    users = await client.users()
    audit = await client.audit(EVENTS)
    info = await client.info()
    locks = await client.locks(None)
    transactions = await client.transactions()
    queues = [queue for queue in await visit.queues() if queue.type in ("private", "public")]
    return visit.show(
        "security.html",
        names=await client.names(sid for user in users for sid in user.groups),
        exposure=exposure,
        users=users,
        refused=[each for each in audit.events if each.get("outcome") != DONE],
        changes=[each for each in audit.events if each.get("outcome") == DONE],
        audit=audit,
        info=info,
        locks=locks,
        transactions=transactions,
        guarded=sorted(queues, key=lambda queue: queue.path.lower())[:50],
        total=len(queues),
    )
