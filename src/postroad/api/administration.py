"""Calls for operators: a backup of the whole manager, its users, and how much it logs."""

from __future__ import annotations

import asyncio
import logging
from http import HTTPStatus

from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from postroad.api.calls import Answer, Body, Call, Needs, Operations, Parameter, json_answer
from postroad.api.formats import JSON
from postroad.api.schema import QUEUE
from postroad.config import LogLevel
from postroad.errors import AccessDenied
from postroad.fields.kinds import choice
from postroad.fields.tables import Property, read_object
from postroad.manager.backup import Backup
from postroad.manager.manager import DESCRIBED_AT_ONCE
from postroad.net.endpoints import is_loopback
from postroad.queues.access import Action
from postroad.runtime.logs import level_name, set_level
from postroad.values.info import CallerInfo, UserInfo

BACKUP = "application/vnd.postroad.backup"

LOG_LEVEL = {
    "level": Property("level", "level", choice(LogLevel), "the least urgent events that are logged", required=True)
}

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
    "GET /whoami",
    "Show who calls, and what the caller may do",
    Answer(description="the caller, with the rights on each queue that the caller may see", content={JSON: "WhoAmI"}),
    parameters=(Parameter("queue", QUEUE, "only the rights on this queue"),),
    needs=Needs.NOTHING,
)
async def whoami(call: Call) -> Response:
    access, token, asked = call.manager.core.access, call.token, call.query["queue"]
    found = None if asked is None else call.manager.core.queues.find(asked)
    queues = list(call.manager.core.queues) if asked is None else [] if found is None else [found]
    rights: dict[str, tuple[str, ...]] = {}
    for queue in queues:
        if access.allows(queue, token, Action.GET_PROPERTIES):
            rights[queue.properties.path] = access.words(queue, token)
        if not len(rights) % DESCRIBED_AT_ONCE:
            await asyncio.sleep(0)
    role = "administrator" if token.everything else "monitor" if token.watches else "user"
    name, creates, sees = call.caller.who, access.may_create(token), access.may_see_manager(token)
    return json_answer(CallerInfo(name, role, creates, sees, rights))


@OPERATIONS.add(
    "GET /users",
    "List the users of the configuration, without their passwords",
    Answer(description="the users", content={JSON: "Users"}),
    needs=Needs.MONITOR,
)
async def list_users(call: Call) -> Response:
    users = [
        UserInfo(each.name, str(each.sid), tuple(sorted(map(str, each.groups))), each.administrator, each.monitor)
        for each in call.manager.core.access.users
    ]
    return json_answer({"users": users})


@OPERATIONS.add(
    "GET /log-level",
    "Show how much the manager logs",
    Answer(description="the level", content={JSON: "LogLevel"}),
    needs=Needs.MONITOR,
)
async def show_log_level(call: Call) -> Response:
    return json_answer({"level": level_name()})


@OPERATIONS.add(
    "PUT /log-level",
    "Change how much the manager logs, until it stops or reads its configuration again",
    Answer(description="the level", content={JSON: "LogLevel"}),
    body=Body({JSON: "LogLevel"}),
    audited="change log level",
    needs=Needs.ADMINISTRATOR,
)
async def set_log_level(call: Call) -> Response:
    level: LogLevel = read_object(await call.json_object(), LOG_LEVEL)["level"]
    call.facts["level"] = level.value
    set_level(logging.getLevelNamesMapping()[level.value.upper()])
    return json_answer({"level": level_name()})


SCHEMAS = {"LogLevel": LOG_LEVEL}


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
