"""`/healthz`: the process answers. `/readyz`: the store takes writes, and every background task runs."""

from __future__ import annotations

from http import HTTPStatus

from starlette.responses import PlainTextResponse, Response

from postroad.errors import StorageError
from postroad.manager import Manager


async def live(manager: Manager) -> Response:
    return PlainTextResponse("ok\n")


async def ready(manager: Manager) -> Response:
    """503 and the reasons while the store fails, its disk is full (small writes may still fit), or a background task is
    down. Each call tries the store again, because without traffic nothing else does."""
    reasons = [f"the background task {name} is down: {why}" for name, why in manager.supervisor.down.items()]
    if manager.storage_error is not None:
        try:
            await manager.write_identifier()
        except StorageError as error:
            reasons.append(str(error))
    if (full := manager.troubles.look(manager.clock())) is not None:
        reasons.append(full)
    if reasons:
        text = "".join(f"{each}\n" for each in dict.fromkeys(reasons))
        return PlainTextResponse(text, HTTPStatus.SERVICE_UNAVAILABLE)
    return PlainTextResponse("ready\n")
