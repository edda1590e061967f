"""The OpenAPI 3.1 description, generated from the tables of calls and of properties that the server itself uses."""

from __future__ import annotations

import types
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from html import escape
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin, get_type_hints

from postroad.api import administration, holdings, messages, offsets, queues
from postroad.api.calls import API, Answer, Operation, Parameter
from postroad.api.json_values import MAX_BATCH_MESSAGES, MESSAGE_PROPERTIES, TRANSACTIONAL
from postroad.api.problems import MEDIA_TYPE as PROBLEM
from postroad.bodies import BodyKind
from postroad.net.exchange import HTML, Response
from postroad.queues.permissions import Action
from postroad.reports.enterprise import DirectoryInfo, JoinCheck, Route, Table
from postroad.reports.info import (
    CallerInfo,
    KeyInfo,
    KeysInfo,
    ListenerInfo,
    LockInfo,
    LoginInfo,
    ManagerInfo,
    QueueInfo,
    ReaderInfo,
    SessionInfo,
    TransactionInfo,
    UserInfo,
)
from postroad.reports.offsets import HoldInfo, Mark, Part, Plan, Submission, SubmissionState
from postroad.reports.operations import Resent, Resolution
from postroad.reports.plain import key_of
from postroad.reports.trace import Finding, Trace, TraceHop
from postroad.runtime.version import __version__
from postroad.validation.kinds import LOOKUP_ID, Properties

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


Json = dict[str, Any]

PATH_PARAMETERS: Mapping[str, tuple[str, Json]] = {
    "queue": (
        "the queue's name, percent-encoded; a local path may have slashes, as in private$/orders",
        {"type": "string"},
    ),
    "lookup_id": ("the message's lookup id", dict(LOOKUP_ID.schema)),
    "id": ("the transaction", {"type": "string", "format": "uuid"}),
    "handle": ("the open queue", {"type": "integer"}),
    "cursor": ("the cursor of this handle", {"type": "integer"}),
    "name": ("the name of the hold or submission", {"type": "string"}),
    "epoch": ("the epoch's number", dict(offsets.EPOCH.schema)),
    "partition": ("the partition's number", dict(offsets.EPOCH.schema)),
    "message_id": (r"{guid}\ordinal, percent-encoded; the braces are optional", {"type": "string"}),
}
# Errors that every call can answer with.
COMMON_ERRORS = (
    HTTPStatus.BAD_REQUEST,
    HTTPStatus.UNAUTHORIZED,
    HTTPStatus.FORBIDDEN,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    HTTPStatus.INTERNAL_SERVER_ERROR,
    HTTPStatus.SERVICE_UNAVAILABLE,
)
_TEXT, _NUMBER, _SWITCH = {"type": "string"}, {"type": "integer"}, {"type": "boolean"}
_GUID = {"type": "string", "format": "uuid"}
_NULLABLE_TEXT, _NULLABLE_NUMBER = {"type": ["string", "null"]}, {"type": ["integer", "null"]}
_TIME = {"type": ["string", "null"], "format": "date-time"}
_NAMES = {"type": "array", "items": _TEXT}

# A message as read. A missing property is null. Exactly one of `body` and `body_base64` is present.
MESSAGE: Mapping[str, Json] = {
    "id": _TEXT,
    "lookup_id": _NUMBER,
    "class": _NUMBER,
    "class_name": _TEXT,
    "label": _TEXT,
    "body": _TEXT,
    "body_base64": {"type": "string", "contentEncoding": "base64"},
    "body_type": _NUMBER,
    "priority": _NUMBER,
    "delivery": {"type": "string", "enum": ["express", "recoverable", "transactional"]},
    "correlation_id": _NULLABLE_TEXT,
    "sent_at": _TIME,
    "arrived_at": _TIME,
    "source_manager": _TEXT,
    "destination_queue": _NULLABLE_TEXT,
    "admin_queue": _NULLABLE_TEXT,
    "response_queue": _NULLABLE_TEXT,
    "dead_letter_queue": _NULLABLE_TEXT,
    "extension_base64": _NULLABLE_TEXT,
    "app_tag": _NUMBER,
    "hops": _NUMBER,
    "authenticated": _SWITCH,
    "encrypted": _SWITCH,
    "sender_id": _NULLABLE_TEXT,
    "first_in_transaction": _SWITCH,
    "last_in_transaction": _SWITCH,
    "transaction_id": _NULLABLE_NUMBER,
    "aborts": _NUMBER,
    "authentication_level": {"type": "integer", "enum": [0, 1, 3, 5, 9]},
    "hash": _NULLABLE_TEXT,
    "cipher": _NULLABLE_TEXT,
}
# What `decode` adds.
DECODED: Mapping[str, Json] = {
    "body_kind": {"type": "string", "enum": list(BodyKind)},
    "body_text": _NULLABLE_TEXT,
    "body_text_cut": _SWITCH,
    "headers": {"type": "object", "additionalProperties": _TEXT},
    "system": _TEXT,
    "message_type": _TEXT,
}
_PROBLEM: Mapping[str, Json] = {
    "title": _TEXT,
    "status": _NUMBER,
    "detail": _TEXT,
    "hresult": {"type": "string", "pattern": "^0x[0-9A-F]{8}$"},
    "code": _TEXT,
    "error": _TEXT,
    "limit_bytes": _NUMBER,
    "current_bytes": _NUMBER,
    "setting": _TEXT,
}
# Schemas of answers that are dataclasses, and of lists of them: the schema, its member, and the dataclass of the items.
_DATACLASSES: Mapping[type[DataclassInstance], str] = {
    LockInfo: "Lock",
    Mark: "Mark",
    Part: "PlanPart",
    Plan: "Plan",
    HoldInfo: "Hold",
    Submission: "Submission",
    SubmissionState: "SubmissionState",
    QueueInfo: "Queue",
    ManagerInfo: "Manager",
    SessionInfo: "Session",
    ReaderInfo: "Reader",
    ListenerInfo: "Listener",
    KeyInfo: "Key",
    KeysInfo: "Keys",
    Finding: "Finding",
    Trace: "Trace",
    TraceHop: "TraceHop",
    Resent: "ResentMessage",
    Resolution: "Resolution",
    Route: "Route",
    Table: "RouteTable",
    DirectoryInfo: "Directory",
    JoinCheck: "JoinCheck",
    UserInfo: "User",
    CallerInfo: "WhoAmI",
    LoginInfo: "Login",
    TransactionInfo: "OpenTransaction",
}
_LISTS = (
    ("Messages", "messages", "Message"),
    ("Queues", "queues", "Queue"),
    ("Sessions", "sessions", "Session"),
    ("Readers", "readers", "Reader"),
    ("Exposure", "exposure", "Listener"),
    ("Locks", "locks", "Lock"),
    ("Transactions", "transactions", "OpenTransaction"),
    ("Holds", "holds", "Hold"),
    ("Users", "users", "User"),
)
_STATUS = ("Queues", "Sessions", "Readers", "Exposure", "Locks", "Transactions")


def document(operations: Iterable[Operation]) -> Json:
    """The whole description, as values for JSON."""
    paths: dict[str, Json] = {}
    for operation in operations:
        paths.setdefault(f"{API}{operation.path}", {})[operation.method.lower()] = _operation(operation)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Postroad", "version": __version__, "license": {"name": "Apache-2.0"}},
        "paths": paths,
        "components": {
            "schemas": schemas(),
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "user": {"type": "http", "scheme": "basic"},
                "certificate": {"type": "mutualTLS"},
            },
        },
        # No security on a loopback address; otherwise the token or a user, a client certificate, or both, as
        # configured.
        "security": [
            {},
            *({name: []} for name in ("token", "user", "certificate")),
            *({name: [], "certificate": []} for name in ("token", "user")),
        ],
    }


def _operation(operation: Operation) -> Json:
    described: Json = {
        "operationId": operation_id(operation),
        "summary": operation.summary,
        "description": f"Needs {_needs(operation)}.",
        "parameters": [*map(_path_parameter, path_names(operation.path)), *map(_parameter, operation.parameters)],
        "responses": {str(answer.status.value): _answer(answer) for answer in operation.answers}
        | {str(status.value): _error(status) for status in sorted({*COMMON_ERRORS, *operation.errors})},
    }
    if operation.body is not None:
        described["requestBody"] = {
            "required": operation.body.required,
            "content": _content(operation.body.content),
        }
    return described


def _needs(operation: Operation) -> str:
    """In words, what a caller needs who is no administrator."""
    needs = operation.needs
    return f"the right to {needs.value} the queue" if isinstance(needs, Action) else needs.value


def path_names(path: str) -> list[str]:
    """The {names} in a path, in order."""
    return [part[1:-1] for part in path.split("/") if part.startswith("{")]


def operation_id(operation: Operation) -> str:
    """For example `post_queues_queue_messages`. It changes only if the path does."""
    words = operation.path.replace("{", "").replace("}", "").replace("-", "_").strip("/").split("/")
    return "_".join([operation.method.lower(), *words])


def _path_parameter(name: str) -> Json:
    description, schema = PATH_PARAMETERS[name]
    return {"name": name, "in": "path", "required": True, "description": description, "schema": schema}


def _parameter(parameter: Parameter) -> Json:
    schema = dict(parameter.kind.schema)
    if isinstance(parameter.default, bool | int | float | str):
        schema["default"] = parameter.default
    return {"name": parameter.name, "in": "query", "description": parameter.description, "schema": schema}


def _answer(answer: Answer) -> Json:
    described: Json = {"description": answer.description}
    if answer.content:
        described["content"] = _content(answer.content)
    if answer.headers:
        described["headers"] = {
            name: {"description": description, "schema": _TEXT} for name, description in answer.headers.items()
        }
    return described


def _error(status: HTTPStatus) -> Json:
    return {"description": status.phrase, "content": _content({PROBLEM: "Problem"})}


def _content(content: Mapping[str, str | None]) -> Json:
    return {media_type: {} if name is None else {"schema": _reference(name)} for media_type, name in content.items()}


def _reference(name: str) -> Json:
    return {"$ref": f"#/components/schemas/{name}"}


# Schemas


def schemas() -> dict[str, Json]:
    """All schemas by name. The server refuses keys that an object does not list."""
    rooms = (queues, administration, messages, holdings, offsets)
    tables = {name: table for room in rooms for name, table in room.SCHEMAS.items()}
    new_message = _closed(MESSAGE_PROPERTIES)
    one = _closed(MESSAGE_PROPERTIES)
    one["properties"][TRANSACTIONAL] = _SWITCH
    several = {
        "type": "object",
        "properties": {
            "messages": _list(_reference("NewMessage")) | {"maxItems": MAX_BATCH_MESSAGES},
            TRANSACTIONAL: _SWITCH,
        },
        "required": ["messages"],
        "additionalProperties": False,
    }
    return {
        **{name: _closed(table) for name, table in tables.items()},
        "NewMessage": new_message,
        "Sending": {"oneOf": [one, several]},
        "Message": _open({**MESSAGE, **DECODED}, [name for name in MESSAGE if not name.startswith("body")]),
        "Ids": _open({"ids": _list(_TEXT)}),
        "Outcomes": _open({"outcomes": _list(_open({"id": _TEXT, "problem": _reference("Problem")}, []))}),
        "LookupIds": _open({"lookup_ids": _list(_NUMBER)}),
        "Resent": _open({"resent": _list(_reference("ResentMessage")), "locked": _NUMBER}),
        "Moved": _open({"moved": _list(_NUMBER), "locked": _NUMBER}),
        "Purged": _open({"purged": _NUMBER, "locked": _NUMBER}),
        "Renewed": _open({"renewed": _list(_GUID), "gone": _list(_GUID)}),
        **{name: _of_dataclass(kind) for kind, name in _DATACLASSES.items()},
        **{name: _open({member: _list(_reference(of))}) for name, member, of in _LISTS},
        "Released": _open({"released": _list(_NUMBER), "locked": _NUMBER}),
        "Acl": _open({"sddl": _TEXT}),
        "Names": _open({"names": _of_type(dict[str, str])}),
        "Audit": _open({"file": _NULLABLE_TEXT, "events": _list({"type": "object"})}),
        "Removed": _open({"removed": _NUMBER}),
        "ManagerStatus": _open(
            {
                "manager": _reference("Manager"),
                **{member: _list(_reference(of)) for name, member, of in _LISTS if name in _STATUS},
                "multicast": _of_type(dict[str, object] | None),
                "amqp": _of_type(dict[str, object] | None),
                "attention": _list(_TEXT),
            }
        ),
        "Transaction": _open({"id": _GUID, "lease_s": {"type": "number"}}),
        "Handle": _open({"handle": _NUMBER}),
        "Cursor": _open({"cursor": _NUMBER}),
        "Problem": _open(_PROBLEM, ["title", "status", "detail", "hresult", "code", "error"]),
    }


def _list(items: Json) -> Json:
    return {"type": "array", "items": items}


def _open(properties: Mapping[str, Json], required: list[str] | None = None) -> Json:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties) if required is None else required,
    }


def _closed(table: Properties) -> Json:
    properties = {each.name: dict(each.kind.schema) | {"description": each.description} for each in table.values()}
    required = [each.name for each in table.values() if each.required]
    return _open(properties, required) | {"additionalProperties": False}


def _of_dataclass(kind: type[DataclassInstance]) -> Json:
    hints = get_type_hints(kind)
    return _open({key_of(each): _of_type(hints[each.name]) for each in fields(kind)})


_TYPES: Mapping[object, str] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    types.NoneType: "null",
    dict: "object",
}


def _of_type(hint: Any) -> Json:
    origin = get_origin(hint)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return {"type": "string", "enum": [each.value for each in hint]}
    if origin in (Union, types.UnionType):
        return {"type": [_TYPES[get_origin(each) or each] for each in get_args(hint)]}
    if origin is tuple:
        return _list(_of_type(get_args(hint)[0]))
    if hint in _DATACLASSES:
        return _reference(_DATACLASSES[hint])
    if isinstance(hint, type) and is_dataclass(hint):
        return _of_dataclass(hint)
    return {"type": _TYPES[origin or hint]}


# Two plain pages for browsers: the start page at `/`, and every call at `/docs`. No scripts.


_HEADERS = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'", "X-Frame-Options": "DENY"}
_PAGE = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{title}</title>
<style>
:root {{ color-scheme: light dark }}
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }}
code {{ font-family: ui-monospace, monospace; overflow-wrap: anywhere }}
td, th {{ text-align: left; vertical-align: top; padding: .25rem 1rem .25rem 0 }}
</style></head>
<body>
<h1>{title}</h1>
{content}
</body>
</html>
"""
_LINKS = (
    ("/docs", "every call of the HTTP API"),
    (f"{API}/openapi.json", "the same for programs, as OpenAPI"),
    (f"{API}/status", "the manager, its queues and what needs attention"),
    ("/metrics", "metrics for Prometheus"),
    ("/healthz", "whether the process answers"),
    ("/readyz", "whether the store takes writes and every background task runs"),
)


def _page(title: str, content: str) -> Response:
    return Response(_PAGE.format(title=escape(title), content=content).encode(), media_type=HTML, headers=_HEADERS)


def front_page(name: str | None, console: ListenerInfo | None = None) -> Response:
    """The start page. `name` is None if strangers can see the page but not call the API; the page then leaves out name
    and version."""
    links = "\n".join(f'<li><a href="{path}"><code>{path}</code></a>: {what}</li>' for path, what in _LINKS)
    if console is not None:
        url = escape(f"http{'s' if console.encryption == 'tls' else ''}://{console.address}/")
        links = f'<li><a href="{url}"><code>{url}</code></a>: the web console</li>\n{links}'
    if name is None:
        return _page("A Postroad queue manager", f"<ul>\n{links}\n</ul>")
    return _page(f"{name}, a Postroad queue manager", f"<p>Version {__version__}.</p>\n<ul>\n{links}\n</ul>")


def reference_page(operations: Iterable[Operation]) -> Response:
    rows = "\n".join(
        f"<tr><td><code>{each.method}</code></td><td><code>{escape(API + each.path)}</code></td>"
        f"<td>{escape(each.summary)}</td><td>{_parameters(each)}</td></tr>"
        for each in operations
    )
    head = "<tr><th>method</th><th>path</th><th>does</th><th>query</th></tr>"
    return _page("Postroad HTTP API", f'<p><a href="/">back</a></p>\n<table>\n{head}\n{rows}\n</table>')


def _parameters(operation: Operation) -> str:
    return ", ".join(f"<code>{escape(each.name)}</code>" for each in operation.parameters)
