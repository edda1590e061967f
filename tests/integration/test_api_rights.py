"""What users may do by the HTTP API: every operation is called without its right, and with only its right."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from uuid import UUID, uuid4

import pytest

from postroad.api import build_app
from postroad.api.app import OPERATIONS
from postroad.api.calls import Needs, Operation, Operations
from postroad.config import default_configuration
from postroad.manager import build_manager
from postroad.queues.permissions import ACTION_WORDS, Action
from postroad.runtime.logs import level_name
from postroad.security.access import default_manager_descriptor
from postroad.security.descriptors import Ace, AceType, Acl, SecurityDescriptor, Sid
from postroad.security.rights import QUEUE_RIGHT_WORDS
from postroad.security.users import User
from postroad.store import MemoryStore
from tests.served import API, ORDERS, PASSWORD, Served, basic, served

ANN = User("ann", Sid.parse("S-1-5-21-1-2-3-1001"))
BOB = User("bob", Sid.parse("S-1-5-21-1-2-3-1002"))
EYE = User("eye", Sid.parse("S-1-5-21-1-2-3-1004"), monitor=True)
ROOT = User("root", Sid.parse("S-1-5-21-1-2-3-1003"), administrator=True)
OTHER = f"{API}/queues/private$/other"
NO_ONE = "O:BAD:"  # an empty list
FULL = QUEUE_RIGHT_WORDS["full"]
WORDS = ACTION_WORDS
# For each operation a request, body and query, that would work for an administrator.
REQUESTS: dict[str, tuple[object, str]] = {
    "POST /queues/{queue}/messages": ({"body": "x"}, ""),
    "GET /queues/{queue}/messages": (None, ""),
    "POST /queues/{queue}/receive": (None, "?timeout=0"),
    "POST /queues/{queue}/peek": (None, "?timeout=0"),
    "POST /queues/{queue}/lock": (None, "?timeout=0"),
    "POST /queues/{queue}/settle": ({"lookup_ids": [], "delete": True}, ""),
    "GET /queues/{queue}/messages/{lookup_id}": (None, ""),
    "DELETE /queues/{queue}/messages/{lookup_id}": (None, ""),
    "POST /queues/{queue}/move": ({"to": r"private$\other"}, ""),
    "GET /queues/{queue}/packets": (None, ""),
    "POST /queues/{queue}/packets": (None, ""),
    "POST /transactions": (None, ""),
    "POST /transactions/{id}/commit": (None, ""),
    "POST /transactions/{id}/abort": (None, ""),
    "GET /transactions": (None, ""),
    "DELETE /transactions/{id}": (None, ""),
    "POST /leases/renew": ({"leases": []}, ""),
    "GET /locks": (None, ""),
    "POST /queues/{queue}/release": ({}, ""),
    "GET /queues/{queue}/mark": (None, ""),
    "GET /queues/{queue}/holds": (None, ""),
    "PUT /queues/{queue}/holds/{name}": ({"from": 0}, ""),
    "GET /queues/{queue}/plan": (None, ""),
    "POST /queues/{queue}/holds/{name}/commit": ({"to": 1}, ""),
    "DELETE /queues/{queue}/holds/{name}": (None, ""),
    "POST /queues/{queue}/submissions/{name}/{epoch}/commit": (None, ""),
    "POST /queues/{queue}/submissions/{name}/{epoch}/{partition}": ({"messages": [{"body": "x"}]}, ""),
    "GET /queues/{queue}/submissions/{name}/{epoch}": (None, ""),
    "POST /queues/{queue}/submissions/{name}/{epoch}/{partition}/take-over": (
        {"run": "r", "rows": 0, "digest": "d"},
        "",
    ),
    "DELETE /queues/{queue}/submissions/{name}": (None, ""),
    "POST /handles": ({"queue": r"private$\orders", "access": "receive"}, ""),
    "DELETE /handles/{handle}": (None, ""),
    "POST /handles/{handle}/cursors": (None, ""),
    "DELETE /handles/{handle}/cursors/{cursor}": (None, ""),
    "POST /handles/{handle}/cursors/{cursor}/peek": (None, "?timeout=0"),
    "POST /handles/{handle}/cursors/{cursor}/peek-next": (None, "?timeout=0"),
    "POST /handles/{handle}/cursors/{cursor}/receive": (None, "?timeout=0"),
    "GET /manager": (None, ""),
    "GET /status": (None, ""),
    "GET /queues": (None, ""),
    "POST /queues": ({"path": r"private$\new"}, ""),
    "GET /queues/{queue}": (None, ""),
    "PATCH /queues/{queue}": ({"label": "changed"}, ""),
    "DELETE /queues/{queue}": (None, ""),
    "POST /queues/{queue}/purge": (None, ""),
    "POST /queues/{queue}/pause": (None, ""),
    "POST /queues/{queue}/resume": (None, ""),
    "GET /queues/{queue}/acl": (None, ""),
    "PATCH /queues/{queue}/acl": ({"sddl": "D:(A;;0xf003f;;;WD)"}, ""),
    "POST /queues/{queue}/acl": ({"grant": {"who": "ann", "rights": ["full"]}}, ""),
    "GET /backup": (None, ""),
    "POST /queues/{queue}/resend": ({"lookup_ids": []}, ""),
    "POST /queues/{queue}/messages/{lookup_id}/resend": ({"to": r"private$\other"}, ""),
    "GET /users": (None, ""),
    "GET /names": (None, ""),
    "GET /whoami": (None, ""),
    "POST /login": (None, ""),
    "GET /log-level": (None, ""),
    "PUT /log-level": ({"level": "info"}, ""),
    "GET /keys": (None, ""),
    "POST /keys/rotate": (None, ""),
    "POST /manager/failover": (None, ""),
    "POST /resolve": ({"destination": r"private$\orders"}, ""),
    "GET /route": (None, "?to=alpha"),
    "GET /route/table": (None, ""),
    "GET /directory": (None, ""),
    "GET /directory/export": (None, ""),
    "GET /directory/check": (None, ""),
    "GET /audit": (None, ""),
    "GET /sessions": (None, ""),
    "GET /readers": (None, ""),
    "GET /exposure": (None, ""),
    "GET /trace/{message_id}": (None, ""),
}


def key(operation: Operation) -> str:
    return f"{operation.method} {operation.path}"


@pytest.fixture
def api() -> Iterator[Served]:
    with served(users=[ANN, BOB, EYE, ROOT]) as running:
        running.create()
        running.create("private$/other")
        running.send("one", "two", "three")
        yield running


def allow(api: Served, mask: int, who: User = ANN, queue: str = ORDERS) -> None:
    sddl = f"{NO_ONE}(A;;0x{mask:x};;;{who.sid})" if mask else NO_ONE
    assert api.call("PATCH", f"{queue}/acl", {"sddl": sddl}).status == 200


class Held:
    """What an administrator holds: a locked message, a transaction, a handle with a cursor."""

    def __init__(self, api: Served, who: Mapping[str, str] | None = None) -> None:
        locked = api.call("POST", f"{ORDERS}/lock?timeout=0", headers=who)
        self.lease = locked.headers["postroad-lease"]
        self.locked = locked.json["messages"][0]["lookup_id"]
        self.transaction = api.call("POST", f"{API}/transactions", headers=who).json["id"]
        opened = {"queue": r"private$\orders", "access": "receive"}
        self.handle = api.call("POST", f"{API}/handles", opened, headers=who).json["handle"]
        self.cursor = api.call("POST", f"{API}/handles/{self.handle}/cursors", headers=who).json["cursor"]
        self.lookup_id = api.call("GET", f"{ORDERS}/messages", headers=who).json["messages"][0]["lookup_id"]

    def path(self, operation: Operation) -> str:
        values = {
            "queue": "private$/orders",
            "lookup_id": self.lookup_id,
            "id": self.transaction,
            "handle": self.handle,
            "cursor": self.cursor,
            "name": "job",
            "epoch": 0,
            "partition": 0,
            "message_id": f"{UUID(int=1)}\\1".replace("\\", "%5C"),
        }
        return API + operation.path.format(**values)


def state(api: Served) -> Any:
    """Everything that a call could have changed."""

    async def look() -> Any:
        manager = api.manager
        queues = list(manager.core.queues)
        return (
            [(queue.name, queue.properties, queue.count, dict(queue.positions), dict(queue.holds)) for queue in queues],
            [[record.packet for record in queue.everything()] for queue in queues],
            [(lock.owner, lock.lookup_ids, lock.kind) for lock in manager.leases.locks()],
            dict(manager.core.store.state("")) | {"counters": b""},
            {name: each["current"] for name, each in manager.core.owners.figures.items()},
            list(manager.core.access.users),
            manager.keys.describe(),
            level_name(),
            sorted(manager.core.transactions),
            sorted(manager.core.descriptors),
            [sorted(each.cursors) for each in manager.core.descriptors.values()],
        )

    return api.run(look())


def ask(api: Served, operation: Operation, held: Held, who: User = ANN) -> int:
    body, query = REQUESTS[key(operation)]
    return api.call(operation.method, held.path(operation) + query, body, headers=basic(who.name)).status


def test_every_operation_has_a_request_here() -> None:
    assert {key(each) for each in OPERATIONS} == set(REQUESTS)
    needs = {each: {key(one) for one in OPERATIONS if one.needs is each} for each in Needs}
    assert needs[Needs.NOTHING] | {"POST /leases/renew"} == FOR_ALL
    assert needs[Needs.NAMED] == set(NAMED)
    assert needs[Needs.MONITOR] <= WATCHED


def test_an_operation_must_say_what_it_needs() -> None:
    with pytest.raises(TypeError, match="needs"):
        Operations().add("GET /new", "New")  # type: ignore[call-arg]
    assert all(isinstance(each.needs, Action | Needs) for each in OPERATIONS)
    others = {"/", "/docs", "/metrics", "/healthz", "/readyz", f"{API}/openapi.json"}
    routes = {each.template for each in build_app(build_manager(default_configuration("alpha"), MemoryStore())).routes}
    assert routes == others | {API + each.path for each in OPERATIONS}


@pytest.mark.spec("DM-3.1.1.2-07", "DM-3.1.1.1-05")
def test_without_a_right_no_operation_succeeds_and_nothing_changes(api: Served) -> None:
    held = Held(api)
    allow(api, 0)
    allow(api, 0, queue=OTHER)
    api.manager.core.access.manager_descriptor = SecurityDescriptor(dacl=Acl(()))
    before = state(api)
    for operation in OPERATIONS:
        if operation.needs is Needs.NOTHING or key(operation) == "POST /leases/renew":
            continue  # they answer, with nothing of others: see below
        status = ask(api, operation, held)
        own = {409} if "{id}" in operation.path else {404} if "{handle}" in operation.path else {403}
        assert status in (own if operation.needs is Needs.OWN else {403}), key(operation)
        assert state(api) == before, key(operation)
    assert api.call("GET", "/metrics", headers=basic("ann")).status == 403
    seen = {each["path"] for each in api.call("GET", f"{API}/queues", headers=basic("ann")).json["queues"]}
    assert not [path for path in seen if "order_queue$" not in path and path.startswith(r"private$\o")]
    assert api.call("GET", f"{API}/locks", headers=basic("ann")).json == {"locks": []}
    assert api.call("GET", f"{API}/locks").json["locks"]
    renewed = api.call("POST", f"{API}/leases/renew", {"leases": [held.lease]}, headers=basic("ann"))
    assert renewed.json == {"renewed": [], "gone": [held.lease]}


def test_with_all_other_rights_an_operation_still_needs_its_own(api: Served) -> None:
    held = Held(api)
    for operation in OPERATIONS:
        if isinstance(operation.needs, Action):
            allow(api, FULL & ~QUEUE_RIGHT_WORDS[WORDS[operation.needs]])
            before = state(api)
            assert ask(api, operation, held) == 403, key(operation)
            assert state(api) == before, key(operation)


@pytest.mark.parametrize("operation", [each for each in OPERATIONS if isinstance(each.needs, Action)], ids=key)
def test_its_own_right_is_enough_for_an_operation(api: Served, operation: Operation) -> None:
    held = Held(api)
    assert isinstance(operation.needs, Action)
    allow(api, QUEUE_RIGHT_WORDS[WORDS[operation.needs]])
    status = ask(api, operation, held)
    if operation.path.endswith(("/pause", "/resume")):
        assert status == 400  # only outgoing queues can pause
    else:
        assert status in (200, 201, 204)


# What belongs to another user, and who may learn it: the rights on the queue that show it.
SECRETS: dict[str, tuple[Action, ...]] = {
    "secret-body": (Action.PEEK, Action.RECEIVE),
    "secret-label": (Action.PEEK, Action.RECEIVE),
    "secret-property": (Action.GET_PROPERTIES, Action.SET_PROPERTIES),  # of the queue
    "secret-client": (Action.PEEK,),  # who has locked a message
    "secret-hold": (),
    "secret-job": (),
    "secret-queue": (),  # a queue without any right
}
# Calls that need no right: they return what belongs to the caller, or what everybody may see.
FOR_ALL = {"GET /queues", "GET /locks", "GET /whoami", "POST /leases/renew", "POST /transactions"}
NAMED = {"POST /handles": Action.RECEIVE, "POST /resolve": Action.SEND}  # which right the requests above need
CALLERS: dict[str, tuple[User | None, Action | None]] = {
    "nobody": (None, None),
    "a user without rights": (ANN, None),
    "a monitor": (EYE, None),
    **{f"a user who may {word}": (ANN, action) for action, word in ACTION_WORDS.items()},
}


class Theirs(Held):
    """The same of another user, with a hold, a submission and a queue that only this user may see."""

    def __init__(self, api: Served) -> None:
        allow(api, FULL, BOB)
        bob = {**basic("bob"), "Postroad-Client": "secret-client"}
        super().__init__(api, bob)
        named = {"from": 0, "to": api.call("GET", f"{ORDERS}/mark", headers=bob).json["arrived"]}
        assert api.call("PUT", f"{ORDERS}/holds/secret-hold", named, headers=bob).status == 200
        sent = {"messages": [{"body": "secret-body", "label": "secret-label"}]}
        assert api.call("POST", f"{ORDERS}/submissions/secret-job/0/0", sent, headers=bob).status == 200
        assert api.call("PATCH", ORDERS, {"label": "secret-property"}, headers=bob).status == 200


@pytest.mark.parametrize("name", ["secret-hold", "secret-job"])
@pytest.mark.parametrize("who", CALLERS)
def test_every_operation_does_and_tells_no_more_than_the_right_allows(api: Served, who: str, name: str) -> None:
    """All operations, with objects of somebody else."""
    user, right = CALLERS[who]
    api.call("POST", f"{ORDERS}/purge")
    api.send("secret-body", "secret-body", label="secret-label")
    api.create("private$/secret-queue")
    allow(api, 0, queue=f"{API}/queues/private$/secret-queue")
    theirs = Theirs(api)
    mask = 0 if right is None else QUEUE_RIGHT_WORDS[WORDS[right]]
    sddl = f"{NO_ONE}(A;;0x{FULL:x};;;{BOB.sid})" + (f"(A;;0x{mask:x};;;{ANN.sid})" if mask else "")
    assert api.call("PATCH", f"{ORDERS}/acl", {"sddl": sddl}).status == 200
    api.manager.core.access.manager_descriptor = SecurityDescriptor(dacl=Acl(()))
    if user is None:
        passwords = {each.name: PASSWORD for each in (ANN, BOB, EYE, ROOT)}
        api.run(as_coroutine(lambda: api.server.set_credentials("a token", passwords)))
    held = {*([] if right is None else [right])} | ({Action.PEEK} if right is Action.RECEIVE else set())
    before = state(api)
    for operation in OPERATIONS:
        body, query = REQUESTS[key(operation)]
        path = theirs.path(operation).replace("/job", f"/{name}") + query
        if operation.needs in held or NAMED.get(key(operation)) in held:  # what it does is its right
            if "{name}" in operation.path and user is not None:  # but only with names of its own
                kept = records_of(api, BOB)
                assert len(kept) == 2
                api.call(operation.method, path, body, headers=basic(user.name))
                assert records_of(api, BOB) == kept, key(operation)
                before = state(api)
            continue
        answer = api.call(operation.method, path, body, headers={} if user is None else basic(user.name))
        sees = user is EYE and key(operation) in WATCHED
        if user is None:
            assert answer.status == 401, key(operation)
        elif not sees and not (user is ANN and key(operation) in FOR_ALL):
            assert answer.status in (403, 404, 409), key(operation)
        told = {secret for secret in SECRETS if secret.encode() in answer.body and secret not in path}
        may = {secret for secret, rights in SECRETS.items() if held & {*rights}}
        if user is EYE:
            may = {*SECRETS} - {"secret-body", "secret-label"} if sees else set()
        assert told <= may, key(operation)
        if key(operation) == "POST /transactions" and user is ANN:
            api.call("DELETE", f"{API}/transactions/{answer.json['id']}")  # one of their own, of so many
        assert state(api) == before, key(operation)


def records_of(api: Served, user: User) -> dict[str, bytes]:
    """What the disk has of a user's holds and submissions."""

    async def look() -> dict[str, bytes]:
        await api.manager.write_identifier()
        return {name: value for name, value in api.manager.core.store.state("").items() if str(user.sid) in name}

    return api.run(look())


async def as_coroutine(change: Callable[[], object]) -> None:
    change()


# What a monitor may see, besides what needs no right.
WATCHED = {
    f"GET {path}"
    for path in (
        *("/status", "/sessions", "/readers", "/exposure", "/transactions", "/trace/{message_id}", "/users", "/audit"),
        *("/keys", "/log-level", "/manager", "/directory", "/directory/export", "/route"),
        *("/route/table", "/queues", "/queues/{queue}"),
        *("/queues/{queue}/acl", "/locks", "/whoami", "/names"),
    )
}


@pytest.mark.parametrize("mask", [0, FULL], ids=["without rights", "with every right in the list"])
def test_a_monitor_sees_the_manager_reads_no_message_and_changes_nothing(api: Served, mask: int) -> None:
    held = Held(api)
    for queue in (ORDERS, OTHER):
        allow(api, mask, EYE, queue)
    before = state(api)
    for operation in OPERATIONS:
        body, query = REQUESTS[key(operation)]
        answer = api.call(operation.method, held.path(operation) + query, body, headers=basic("eye"))
        if key(operation) in WATCHED:
            assert answer.status in (200, 404), key(operation)  # 404: no directory knows the manager
        else:
            assert answer.status == 403, key(operation)
        assert state(api) == before, key(operation)
        assert not {b'"one"', b'"two"'} & set(re.findall(rb'"[^"]*"', answer.body)), key(operation)
    assert api.call("GET", "/metrics", headers=basic("eye")).status == 200
    assert api.call("GET", f"{API}/locks", headers=basic("eye")).json["locks"]
    elsewhere = f"{API}/queues/DIRECT=OS:nowhere%5Cprivate$%5Cx/messages"
    assert api.call("POST", elsewhere, {"body": "x"}, headers=basic("eye")).status == 403
    assert state(api) == before


def test_callers_are_told_who_they_are_and_what_they_may_do(api: Served) -> None:
    allow(api, QUEUE_RIGHT_WORDS["receive"] | QUEUE_RIGHT_WORDS["get-properties"])
    allow(api, QUEUE_RIGHT_WORDS["full"] & ~QUEUE_RIGHT_WORDS["get-properties"], queue=OTHER)

    def told(who: dict[str, str], query: str = "") -> Any:
        return api.call("GET", f"{API}/whoami{query}", headers=who).json

    ann = told(basic("ann"))
    assert (ann["name"], ann["role"], ann["create_queues"]) == ("ann", "user", False)
    assert ann["queues"][r"private$\orders"] == ["peek", "receive", "get-properties"]
    assert r"private$\other" not in ann["queues"]  # without get-properties its name is not told
    assert told(basic("ann"), "?queue=private$/orders")["queues"] == {
        r"private$\orders": ["peek", "receive", "get-properties"]
    }
    assert told(basic("ann"), "?queue=private$/other")["queues"] == {}
    eye = told(basic("eye"))
    assert (eye["role"], eye["see_manager"], eye["create_queues"]) == ("monitor", True, False)
    assert {tuple(each) for each in eye["queues"].values()} == {("get-properties", "get-permissions")}
    for who in ({}, basic("root")):
        root = told(who)
        assert (root["role"], root["create_queues"]) == ("administrator", True)
        assert set(root["queues"][r"private$\orders"]) == set(WORDS.values())


def test_administrators_need_no_right(api: Served) -> None:
    allow(api, 0)
    for who in ({}, basic("root")):
        assert api.call("GET", f"{ORDERS}/messages", headers=who).status == 200
        assert api.call("GET", f"{API}/status", headers=who).status == 200


@pytest.mark.spec("MQ-2.2.24-01")
def test_a_user_without_write_cannot_send(api: Served) -> None:
    allow(api, FULL & ~4)
    refused = api.call("POST", f"{ORDERS}/messages", {"body": "x"}, headers=basic("ann"))
    assert (refused.status, refused.json["hresult"]) == (403, "0xC00E0025")
    assert refused.json["detail"] == (
        r"no right to send to private$\orders: an administrator grants it with `postroad queue acl grant`"
    )
    listed = api.call(
        "POST",
        f"{API}/queues/DIRECT=OS:.%5Cprivate$%5Cother,DIRECT=OS:.%5Cprivate$%5Corders/messages",
        {"body": "x"},
        headers=basic("ann"),
    )
    assert listed.status == 403
    assert api.bodies(OTHER) == []
    allow(api, 4)
    assert api.call("POST", f"{ORDERS}/messages", {"body": "x"}, headers=basic("ann")).status == 201


def test_the_list_shows_what_the_user_may_see(api: Served) -> None:
    def paths(who: dict[str, str]) -> set[str]:
        return {each["path"] for each in api.call("GET", f"{API}/queues", headers=who).json["queues"]}

    everything = paths({})
    assert paths(basic("ann")) == everything  # the default lets everyone see the properties
    allow(api, FULL & ~0x20)
    hidden = {r"private$\orders", r"private$\orders;journal"}
    assert paths(basic("ann")) == everything - hidden
    assert paths({}) == everything


def test_a_move_needs_send_on_the_target(api: Served) -> None:
    allow(api, FULL)
    allow(api, FULL & ~4, queue=OTHER)
    order = {"to": r"private$\other"}
    assert api.call("POST", f"{ORDERS}/move", order, headers=basic("ann")).status == 403
    assert api.bodies() == ["one", "two", "three"]
    allow(api, 4, queue=OTHER)
    assert api.call("POST", f"{ORDERS}/move", order, headers=basic("ann")).status == 200


@pytest.mark.parametrize("system", ["DEADLETTER", "DEADXACT", "JOURNAL"])
def test_dead_letters_and_the_journal_need_the_managers_rights(api: Served, system: str) -> None:
    queue = f"{API}/queues/MACHINE={api.manager.identifier};{system}"
    assert api.call("GET", f"{queue}/messages", headers=basic("ann")).status == 403
    peek, receive = (0x80, 0xC0) if system == "JOURNAL" else (0x2, 0x3)
    for mask, allowed in ((peek, 403), (receive, 200)):
        entry = Ace(AceType.ALLOW, mask, ANN.sid)
        api.manager.core.access.manager_descriptor = SecurityDescriptor(dacl=Acl((entry,)))
        assert api.call("GET", f"{queue}/messages", headers=basic("ann")).status == 200
        assert api.call("POST", f"{queue}/purge", headers=basic("ann")).status == allowed


def test_a_journal_has_the_list_of_its_queue(api: Served) -> None:
    journal = f"{API}/queues/private$/orders;journal"
    allow(api, QUEUE_RIGHT_WORDS["receive"])
    assert api.call("GET", f"{journal}/messages", headers=basic("ann")).status == 200
    assert api.call("POST", f"{journal}/purge", headers=basic("ann")).status == 403
    allow(api, QUEUE_RIGHT_WORDS["receive-journal"])
    assert api.call("POST", f"{journal}/purge", headers=basic("ann")).status == 200
    assert api.call("PATCH", f"{journal}/acl", {"sddl": NO_ONE}).status == 400


# What one user holds


def test_transactions_leases_and_handles_belong_to_who_began_them(api: Served) -> None:
    api.call("PATCH", f"{ORDERS}/acl", {"sddl": "D:(A;;0xf003f;;;WD)"})
    ann, bob = basic("ann"), basic("bob")
    transaction = api.call("POST", f"{API}/transactions", headers=ann).json["id"]
    unknown = api.call("POST", f"{API}/transactions/{uuid4()}/commit", headers=bob)
    for path in (
        f"{API}/transactions/{transaction}/commit",
        f"{API}/transactions/{transaction}/abort",
        f"{ORDERS}/receive?timeout=0&transaction={transaction}",
    ):
        refused = api.call("POST", path, headers=bob)
        assert (refused.status, refused.json["code"]) == (unknown.status, unknown.json["code"])
    sent = api.call("POST", f"{ORDERS}/messages?transaction={transaction}", {"body": "x"}, headers=bob)
    assert sent.status == 409
    locked = api.call("POST", f"{ORDERS}/lock?timeout=0", headers=ann)
    lease, lookup_id = locked.headers["postroad-lease"], locked.json["messages"][0]["lookup_id"]
    assert api.call("POST", f"{API}/leases/renew", {"leases": [lease]}, headers=bob).json["gone"] == [lease]
    settlement = {"lookup_ids": [lookup_id], "delete": True}
    assert api.call("POST", f"{ORDERS}/settle", settlement, headers=bob).status == 403
    assert api.call("POST", f"{ORDERS}/settle", settlement | {"leases": [lease]}, headers=bob).status == 403
    opening = {"queue": r"private$\orders", "access": "receive"}
    handle = api.call("POST", f"{API}/handles", opening, headers=ann).json["handle"]
    assert api.call("POST", f"{API}/handles/{handle}/cursors", headers=bob).status == 404
    assert api.call("DELETE", f"{API}/handles/{handle}", headers=bob).status == 404
    # Their owner and administrators can use all of it.
    assert api.call("POST", f"{API}/leases/renew", {"leases": [lease]}, headers=ann).json["renewed"] == [lease]
    assert api.call("POST", f"{ORDERS}/settle", settlement, headers=ann).status == 204
    assert api.call("POST", f"{API}/handles/{handle}/cursors", headers=ann).status == 201
    assert api.call("DELETE", f"{API}/handles/{handle}", headers=basic("root")).status == 204
    assert api.call("POST", f"{API}/transactions/{transaction}/commit", headers=ann).status == 204


def test_a_list_that_changes_counts_for_an_open_handle(api: Served) -> None:
    allow(api, FULL)
    ann = basic("ann")
    handle = api.call("POST", f"{API}/handles", {"queue": r"private$\orders", "access": "receive"}, headers=ann).json
    cursors = f"{API}/handles/{handle['handle']}/cursors"
    cursor = f"{cursors}/{api.call('POST', cursors, headers=ann).json['cursor']}"
    assert api.call("POST", f"{cursor}/peek?timeout=0", headers=ann).status == 200
    allow(api, QUEUE_RIGHT_WORDS["peek"])
    assert api.call("POST", f"{cursor}/receive?timeout=0", headers=ann).status == 403
    allow(api, 0)
    assert api.call("POST", f"{cursor}/peek?timeout=0", headers=ann).status == 403
    assert api.call("DELETE", f"{API}/handles/{handle['handle']}", headers=ann).status == 204


# Queues that come and go


@pytest.mark.spec("DM-3.1.7.1.3.1-01")
def test_who_creates_a_queue_owns_it(api: Served) -> None:
    new, queue = {"path": r"private$\new"}, f"{API}/queues/private$/new"
    assert api.call("POST", f"{API}/queues", new, headers=basic("ann")).status == 403
    api.manager.core.access.manager_descriptor = default_manager_descriptor(foreign=True)  # everyone creates queues
    assert api.call("POST", f"{API}/queues", new, headers=basic("ann")).status == 201
    assert api.call("GET", f"{queue}/acl").json["sddl"] == (
        f"O:{ANN.sid}D:(A;;0x20024;;;WD)(A;;0x4;;;AN)(A;;0xf003f;;;{ANN.sid})"
    )
    assert api.call("GET", f"{queue}/messages", headers=basic("ann")).status == 200
    assert api.call("GET", f"{queue}/messages", headers=basic("bob")).status == 403


def test_a_queue_made_again_has_the_rights_of_the_new_one(api: Served) -> None:
    allow(api, FULL)
    ann = basic("ann")
    opened = api.call("POST", f"{API}/handles", {"queue": r"private$\orders", "access": "peek"}, headers=ann).json
    cursors = f"{API}/handles/{opened['handle']}/cursors"
    assert api.call("DELETE", ORDERS).status == 204
    assert api.call("GET", f"{ORDERS}/messages", headers=ann).status == 404
    api.create()
    api.send("secret")
    for path in ("receive?timeout=0", "purge", "lock?timeout=0"):
        assert api.call("POST", f"{ORDERS}/{path}", headers=ann).status == 403
    assert api.call("POST", cursors, headers=ann).status == 410  # of the deleted queue
    assert api.bodies() == ["secret"]


def test_a_queue_that_is_replaced_while_the_body_comes_is_checked_again(api: Served) -> None:
    allow(api, FULL)
    body = json.dumps({"to": r"private$\other"}).encode()
    connection = api.connect()
    connection.putrequest("POST", f"{ORDERS}/move")
    for name, value in {**basic("ann"), "Content-Length": str(len(body))}.items():
        connection.putheader(name, value)
    connection.endheaders(body[:5])
    api.call("PATCH", f"{OTHER}/acl", {"sddl": "O:BA"})  # everybody may send there
    assert api.call("GET", ORDERS, headers=basic("ann")).status == 200  # the first request has begun
    allow(api, 0)
    connection.send(body[5:])
    assert connection.getresponse().status == 403
    connection.close()
    assert api.bodies() == ["one", "two", "three"]
