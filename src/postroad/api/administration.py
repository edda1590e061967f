"""Calls for operators: a backup of the whole manager, and its users."""

from __future__ import annotations

from http import HTTPStatus

from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from postroad.api.calls import Answer, Call, Needs, Operations, json_answer
from postroad.api.formats import JSON
from postroad.errors import AccessDenied
from postroad.manager.backup import Backup
from postroad.net.endpoints import is_loopback
from postroad.values.info import UserInfo

BACKUP = "application/vnd.postroad.backup"

OPERATIONS = Operations()


@OPERATIONS.add(
    "GET /backup",
    "Back up the manager: its queues and messages, its state and its private keys, all of one moment",
    Answer(description="the backup, which `postroad restore` reads", content={BACKUP: None}),
    errors=(HTTPStatus.CONFLICT,),
    audited="back up",
    needs=Needs.ADMINISTRATOR,
)
async def back_up(call: Call) -> Response:
    if call.request.scope["scheme"] != "https" and not is_loopback(call.caller.address):
        raise AccessDenied(
            "a backup has the manager's private keys, so it needs TLS: use https and set api.tls_certificate, or run "
            "it on the manager's own computer"
        )
    return _Download(await call.manager.backups.begin())


@OPERATIONS.add(
    "GET /users",
    "List the users of the configuration, without their passwords",
    Answer(description="the users", content={JSON: "Users"}),
    needs=Needs.ADMINISTRATOR,
)
async def list_users(call: Call) -> Response:
    users = [
        UserInfo(each.name, str(each.sid), tuple(sorted(map(str, each.groups))), each.administrator)
        for each in call.manager.core.access.users
    ]
    return json_answer({"users": users})


class _Download(StreamingResponse):
    """Closes the backup, however the client leaves."""

    def __init__(self, backup: Backup) -> None:
        super().__init__(backup.pieces(), media_type=BACKUP)
        self._backup = backup

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._backup.close()
