"""A call of the API: one row of a table that the router, the parameter checks and OpenAPI all read.

The rows are in queues.py, messages.py, transactions.py and the other modules of this room.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import lru_cache
from http import HTTPStatus
from typing import Any, TypeVar
from urllib.parse import parse_qsl, unquote
from uuid import UUID

from postroad.api.gate import Caller
from postroad.api.json_values import (
    MAX_JSON_BYTES,
    check_structure,
    json_object,
    queue_name,
)
from postroad.api.waits import Waits
from postroad.errors import AccessDenied, InvalidArgument, InvalidHandle, MessageTooLarge, TooManyHeld
from postroad.manager import Manager
from postroad.net.exchange import BodyTooLarge, Request, Response
from postroad.queues.leases import Holder
from postroad.queues.owners import SOMEBODY_ELSE, Held, name_in, owned_name, owner_in
from postroad.queues.permissions import Action
from postroad.queues.transactions import unknown_transaction
from postroad.reports.info import QueueInfo
from postroad.reports.plain import to_json
from postroad.security.access import Token
from postroad.validation.kinds import LOOKUP_ID, Kind, read_text, suggestion

API = "/api/v1"
KNOWN_PATHS = 1024  # cached results: a client calls the same few paths over and over
MAX_REQUEST_BYTES = 1 << 20  # of a request without messages: room for ten thousand lookup ids
MAX_PARAMETERS = 64
KNOWN_QUERIES = 64  # of one call
SHORT_QUERY = 200
CLIENT = b"postroad-client"  # the header that names the client
MAX_CLIENT = 200
_NOT_ANY_MORE = "the credentials of this call are no longer valid"
T = TypeVar("T")
_LOOKING = frozenset({Action.GET_PROPERTIES, Action.GET_PERMISSIONS})
_ENCODER = json.JSONEncoder(separators=(",", ":"), default=to_json)


@dataclass(frozen=True, slots=True)
class Parameter:
    """A query parameter; `default` is its value if it is absent."""

    name: str
    kind: Kind[Any]
    description: str
    default: object = None


@dataclass(frozen=True, slots=True)
class Body:
    """The body of a request: the name of its schema by media type, None for bytes."""

    content: Mapping[str, str | None]
    required: bool = True


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of a call: the names of its schemas by media type. Empty if it has no body."""

    status: HTTPStatus = HTTPStatus.OK
    description: str = "done"
    content: Mapping[str, str | None] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)


Handler = Callable[["Call"], Awaitable[Response]]
AtOnce = Callable[["Call", Callable[[Response], None]], bool]  # see Endpoint in application.py


class Needs(Enum):
    """What a caller needs for a call, other than an `Action` on the queue in the path."""

    TICKET = "a Kerberos ticket"  # the handler looks; monitors may, too
    NOTHING = "nothing"  # the answer shows only what the caller may see
    NAMED = "a right on the queue that the request names"  # the handler asks `Call.require`
    OWN = "that the caller began it"  # the handler asks `Call.own_...`
    MANAGER = "get-machine-properties"
    CREATE = "create-queue"
    MONITOR = "monitor or administrator"
    ADMINISTRATOR = "administrator"


@dataclass(frozen=True, slots=True)
class Operation:
    """A row of the table. `path` follows /api/v1. Its {names} are keys of PATH_PARAMETERS in openapi.py."""

    method: str
    path: str
    handler: Handler
    summary: str
    answers: tuple[Answer, ...]
    parameters: tuple[Parameter, ...]
    body: Body | None
    errors: tuple[HTTPStatus, ...]
    audited: str | None  # its action in the audit log; None if it is not logged
    needs: Action | Needs  # from callers other than administrators
    at_once: AtOnce | None = None

    def speaks(self, media_type: str) -> bool:
        """Whether a request or an answer can have this media type."""
        return any(media_type in each.content for each in (*self.answers, self.body) if each is not None)


class Operations(list[Operation]):
    """A part of the table. `add` decorates a handler and makes its row. `request` is like `GET /queues`."""

    def add(
        self,
        request: str,
        summary: str,
        *answers: Answer,
        needs: Action | Needs,
        parameters: tuple[Parameter, ...] = (),
        body: Body | None = None,
        errors: tuple[HTTPStatus, ...] = (),
        audited: str | None = None,
        at_once: AtOnce | None = None,
    ) -> Callable[[Handler], Handler]:
        method, path = request.split(" ")

        def register(handler: Handler) -> Handler:
            self.append(
                Operation(method, path, handler, summary, answers, parameters, body, errors, audited, needs, at_once)
            )
            return handler

        return register


class Call:
    """One request, with parameters read and checked. `facts` are extra entries for the audit log."""

    __slots__ = ("caller", "facts", "manager", "needs", "query", "request", "segments", "waits")

    def __init__(
        self,
        request: Request,
        caller: Caller,
        segments: Mapping[str, str],
        manager: Manager,
        waits: Waits,
        operation: Operation,
        query: dict[str, Any],
    ) -> None:
        self.request = request
        self.caller = caller
        self.segments = segments  # parts of the path, as they were sent
        self.manager = manager
        self.waits = waits
        self.needs = operation.needs
        self.facts: dict[str, object] = {}
        self.query = query

    def segment(self, name: str) -> str:
        """The part of the path for {name}, decoded."""
        return unquote(self.segments[name])

    @property
    def queue(self) -> str:
        return _queue_name(self.segments["queue"])

    def header(self, name: bytes) -> str:
        """The value of a header; empty if the request does not have it. `name` must be in lower case."""
        return self.request.headers.get(name, "")

    def names(self, media_type: str) -> bool:
        """Whether the request has this media type, or accepts it for the answer."""
        return any(media_type in self.header(each).lower() for each in (b"accept", b"content-type"))

    @property
    def lookup_id(self) -> int:
        return read_text(LOOKUP_ID, self.segment("lookup_id"), "lookup_id")

    @property
    def holder(self) -> Holder:
        """Who calls: the name the client gives itself, and its address."""
        address = self.caller.address
        name = self.header(CLIENT)[:MAX_CLIENT]
        owner = f"{name} from {address}" if name.strip() and name.isprintable() else address
        return Holder(owner, user=self.token.user, address=address, token=self.caller.right)

    async def wait(self, read: Coroutine[Any, Any, T]) -> T:
        """The result of a read that may wait. See Waits.run."""
        owners, owner = self.manager.core.owners, self.holder.key
        try:
            owners.check(Held.WAITING_READS, owner)
        except TooManyHeld:
            read.close()
            raise
        owners.take(Held.WAITING_READS, owner)
        try:
            return await self.waits.run(self.request, read)
        finally:
            owners.give(Held.WAITING_READS, owner)

    def owned(self, name: str) -> str:
        """The full name for a name that the caller chose, so that names of different users do not collide.
        Administrators use full names."""
        token = self.token
        if token.everything:
            return name
        if token.user is None:
            raise AccessDenied(_NOT_ANY_MORE)
        return owned_name(name, token.user)

    def shown(self, info: QueueInfo) -> QueueInfo:
        """The description of a queue as the caller may see it, without the names of other users' holds."""
        if not info.holds or self.token.everything:
            return info
        return replace(info, holds=tuple({**each, "name": self.shown_name(str(each["name"]))} for each in info.holds))

    def shown_name(self, name: str) -> str:
        """The inverse of `owned`. Hides the names of other users."""
        if self.token.everything or self.token.watches:
            return name
        return name_in(name) if owner_in(name) == self.token.user else SOMEBODY_ELSE

    # Rights

    @property
    def token(self) -> Token:
        return self.caller.token

    def authorize(self) -> None:
        """Raises AccessDenied if the caller lacks what the operation needs. For a queue that does not exist no right is
        needed: the handler reports it."""
        needs, token, access = self.needs, self.token, self.manager.core.access
        if token.everything:
            return
        looks = self.request.method in ("GET", "HEAD") or needs is Needs.TICKET
        if token.only is not None and not (token.watches and looks):
            raise AccessDenied("a monitor may only look" if token.watches else _NOT_ANY_MORE)
        if isinstance(needs, Action):
            self.require(needs, self.queue)
        elif needs is Needs.ADMINISTRATOR or (needs is Needs.MONITOR and not token.watches):
            raise AccessDenied(f"only {'monitors and ' * (needs is Needs.MONITOR)}administrators may make this call")
        elif needs is Needs.MANAGER and not access.may_see_manager(token):
            raise AccessDenied("no right to see the properties of the queue manager")
        elif needs is Needs.CREATE and not access.may_create(token):
            raise AccessDenied("no right to create queues: only administrators have it")

    def permitted(self) -> bool:
        """Whether `authorize` still admits the call."""
        try:
            self.authorize()
        except AccessDenied:
            return False
        return True

    def require(self, action: Action, name: str) -> None:
        queue = self.manager.core.queues.find(name)
        if queue is None:
            if self.token.only is not None and action not in _LOOKING:
                raise AccessDenied(f"no right to {action.value} {name}: a monitor may only look")
        else:
            self.manager.core.access.require(queue, self.token, action)

    def may(self, action: Action, name: str) -> bool:
        queue = self.manager.core.queues.find(name)
        return queue is not None and self.manager.core.access.allows(queue, self.token, action)

    def owns(self, holder: Holder | None) -> bool:
        """Whether the caller may use what the holder began. For other users it does not exist."""
        return self.token.everything or (holder is not None and holder.user == self.token.user)

    def own_transaction(self, identifier: UUID | None) -> UUID | None:
        if identifier is not None and not self.owns(self.manager.leases.core.holder(identifier)):
            raise unknown_transaction(identifier)
        return identifier

    @property
    def handle(self) -> int | None:
        """The open queue that the query names, if any. It must be the caller's own."""
        handle: int | None = self.query["handle"]
        if handle is not None and not self.owns(self.manager.leases.core.handle_holder(handle)):
            raise InvalidHandle(f"there is no open queue {handle}")
        return handle

    # The body

    async def body(self, limit: int) -> bytes:
        """The whole body. Raises MessageTooLarge as soon as it is known to be longer than `limit`."""
        try:
            body = await self.request.body(limit)
        except BodyTooLarge:
            raise MessageTooLarge(
                f"the body of this request must have at most {limit} bytes: send less at once"
            ) from None
        # Authorize again: while the body arrived, somebody may have replaced the queue or changed its access list.
        self.authorize()
        return body

    async def json(self, limit: int = MAX_JSON_BYTES) -> bytes:
        """A body with messages in JSON, checked for its number of values."""
        data = await self.body(limit)
        for _ in check_structure(data):
            await asyncio.sleep(0)
        return data

    async def json_object(self) -> dict[str, object]:
        return json_object(await self.body(MAX_REQUEST_BYTES))


@lru_cache(KNOWN_PATHS)
def _queue_name(segment: str) -> str:
    return queue_name(unquote(segment, errors="surrogateescape"))


def query_reader(parameters: Sequence[Parameter]) -> Callable[[bytes], dict[str, Any]]:
    """`read_query` for one call. It caches short queries, because clients repeat a few of them."""
    known = lru_cache(KNOWN_QUERIES)(lambda query: read_query(query, parameters))
    return lambda query: dict(known(query)) if len(query) <= SHORT_QUERY else read_query(query, parameters)


def read_query(query: bytes, parameters: Sequence[Parameter]) -> dict[str, Any]:
    """All parameters by name, absent ones with their defaults. Raises InvalidArgument on the first fault."""
    values = {each.name: each.default for each in parameters}
    if not query:
        return values
    known = {each.name: each for each in parameters}
    seen: set[str] = set()
    try:
        pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True, max_num_fields=MAX_PARAMETERS)
    except ValueError:
        raise InvalidArgument(f"query: must have at most {MAX_PARAMETERS} parameters") from None
    for name, text in pairs:
        parameter = known.get(name)
        if parameter is None:
            raise InvalidArgument(f"{name}: this call has no such parameter{suggestion(name, known)}")
        if name in seen:
            raise InvalidArgument(f"{name}: must be given once, got it twice")
        seen.add(name)
        values[name] = read_text(parameter.kind, text, name)
    return values


def json_answer(content: object, status: HTTPStatus = HTTPStatus.OK) -> Response:
    return Response(_ENCODER.encode(content).encode(), status, "application/json")


def no_content() -> Response:
    return Response(status=HTTPStatus.NO_CONTENT)
