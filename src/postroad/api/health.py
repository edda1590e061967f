"""`/healthz`: the process lives. `/readyz`: the store takes writes, so that sends can be promised."""

from __future__ import annotations

from http import HTTPStatus

from starlette.responses import PlainTextResponse, Response

from postroad.errors import StorageError
from postroad.manager import IDENTITY_STATE, Manager


async def live(manager: Manager) -> Response:
    return PlainTextResponse("ok\n")


async def ready(manager: Manager) -> Response:
    """503 and the reason while the store fails, or its disk is full though small writes may still fit. It is tried
    again here: without traffic nobody else would."""
    if manager.storage_error is not None:
        try:
            manager.core.tick.set_state(IDENTITY_STATE, manager.identifier.bytes)
            await manager.durable()
        except StorageError as error:
            return PlainTextResponse(f"{error}\n", HTTPStatus.SERVICE_UNAVAILABLE)
    if (full := manager.troubles.look(manager.clock())) is not None:
        return PlainTextResponse(f"{full}\n", HTTPStatus.SERVICE_UNAVAILABLE)
    return PlainTextResponse("ready\n")
