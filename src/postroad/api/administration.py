"""Calls for operators: access lists, keys, the audit log, users, a backup of the whole manager, and the log level."""

from __future__ import annotations

import asyncio
import logging
from http import HTTPStatus
from typing import Any

from postroad.api.calls import Answer, Body, Call, Needs, Operations, Parameter, json_answer
from postroad.api.formats import JSON
from postroad.api.json_values import QUEUE
from postroad.config import LogLevel
from postroad.errors import AccessDenied, InvalidArgument
from postroad.manager.access_lists import EDITS
from postroad.manager.manager import DESCRIBED_AT_ONCE
from postroad.net.endpoints import is_loopback
from postroad.net.exchange import Response
from postroad.queues.permissions import Action
from postroad.reports.access_list import named_sids
from postroad.reports.info import CallerInfo, LoginInfo, UserInfo
from postroad.runtime.logs import level_name, set_level
from postroad.security.audit import MAX_RECENT
from postroad.security.rights import QUEUE_RIGHT_WORDS
from postroad.validation.kinds import (
    FieldFault,
    Kind,
    Properties,
    Property,
    choice,
    items,
    line,
    nullable,
    read_object,
    text,
    whole,
)

# Calls for access lists: show one, replace it, and grant, deny or revoke rights.


MAX_SDDL = 65_535
MAX_NAMED = 100  # in one call
_IDENTIFIERS = line(200 * MAX_NAMED)
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
    return await _shown(call, call.manager.access_lists.show(call.queue))


async def _shown(call: Call, sddl: str) -> Response:
    """The list as it is. In a domain, also the names of those whom it names by SID."""
    if call.manager.lookups is None:
        return json_answer({"sddl": sddl})
    return json_answer({"sddl": sddl, "names": await call.manager.names_of(named_sids(sddl))})


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
    sddl = await call.manager.access_lists.set(call.queue, values["sddl"], call.token)
    call.facts["sddl"] = sddl
    return await _shown(call, sddl)


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
    call.facts.update({edit: entry["who"], "rights": " ".join(entry["rights"])})
    sddl = await call.manager.access_lists.edit(call.queue, edit, entry["who"], entry["rights"])
    call.facts["sddl"] = sddl
    return await _shown(call, sddl)


# Calls for the manager's own keys, for administrators. Private keys never leave the manager.


@OPERATIONS.add(
    "GET /keys",
    "Show the public keys that other managers encrypt messages with",
    Answer(description="the keys to publish in the directory", content={JSON: "Keys"}),
    needs=Needs.MONITOR,
)
async def show_keys(call: Call) -> Response:
    return json_answer(call.manager.keys.describe())


@OPERATIONS.add(
    "POST /keys/rotate",
    "Make new keys; the previous ones still decrypt messages on their way",
    Answer(description="the new keys, which are on disk and in use", content={JSON: "Keys"}),
    errors=(HTTPStatus.BAD_REQUEST,),
    audited="rotate keys",
    needs=Needs.ADMINISTRATOR,
)
async def rotate_keys(call: Call) -> Response:
    keys = await call.manager.keys.rotate()
    call.facts["fingerprints"] = ",".join(each.fingerprint for each in keys.keys)
    return json_answer(keys)


# The call for changes that people made.


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


BACKUP = "application/vnd.postroad.backup"

LOG_LEVEL = {
    "level": Property("level", "level", choice(LogLevel), "the least urgent events that are logged", required=True)
}


@OPERATIONS.add(
    "GET /backup",
    "Back up the manager: its queues and messages, its state and its private keys, all of one moment",
    Answer(description="the backup, which `postroad restore` reads", content={BACKUP: None}),
    errors=(HTTPStatus.CONFLICT,),
    audited="back up",
    needs=Needs.ADMINISTRATOR,
)
async def back_up(call: Call) -> Response:
    if not call.request.connection.secure and not is_loopback(call.caller.address):
        raise AccessDenied(
            "a backup has the manager's private keys, so it needs TLS: use https and set api.tls_certificate, or run "
            "it on the manager's own computer"
        )
    backup = await call.manager.backups.begin()
    return Response(media_type=BACKUP, pieces=backup.pieces(), over=backup.close)


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
    "POST /login",
    "Exchange a Kerberos ticket (Authorization: Negotiate) for a token that later calls send as Authorization: Bearer",
    Answer(
        description="the token of a session, who has it, and for how many seconds it counts", content={JSON: "Login"}
    ),
    needs=Needs.TICKET,
)
async def log_in(call: Call) -> Response:
    if call.caller.begin_session is None:
        raise AccessDenied("Authorization: must be Negotiate with a Kerberos ticket: other credentials need no session")
    token, lasts = call.caller.begin_session()
    return json_answer(LoginInfo(call.caller.who, token, int(lasts)))


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
    "GET /names",
    "Name users, accounts of the domain and queue managers by their SIDs and GUIDs",
    Answer(description="the names by SID or GUID, without those that nobody knows", content={JSON: "Names"}),
    parameters=(Parameter("of", _IDENTIFIERS, f"SIDs and GUIDs, separated by commas, at most {MAX_NAMED}"),),
    needs=Needs.MONITOR,
)
async def show_names(call: Call) -> Response:
    asked = [each.strip() for each in (call.query["of"] or "").split(",")]
    if len(asked) > MAX_NAMED:
        raise InvalidArgument(f"of: must be at most {MAX_NAMED} SIDs and GUIDs, got {len(asked)}")
    return json_answer({"names": await call.manager.names_of(dict.fromkeys(asked))})


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


SCHEMAS = {"AclChange": _SET, "AclEdit": _EDIT, "LogLevel": LOG_LEVEL}
