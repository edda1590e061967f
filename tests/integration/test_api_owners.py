"""What callers of the HTTP API have begun belongs to them, is limited, and ends with their rights."""

from __future__ import annotations

import asyncio
import http.client
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from postroad.api.formats import ARROW
from postroad.queues.owners import DEFAULTS, Held
from postroad.security.descriptors import Sid
from postroad.security.users import User, Users
from tests.served import API, ORDERS, PASSWORD, Served, basic, served

ANN = User("ann", Sid.parse("S-1-5-21-1-2-3-1001"))
BOB = User("bob", Sid.parse("S-1-5-21-1-2-3-1002"))
EVERYTHING = "D:(A;;0xf003f;;;WD)"
OPENING = {"queue": r"private$\orders", "access": "receive"}
MESSAGES = {"messages": [{"body": "a"}, {"body": "b"}]}


@pytest.fixture
def api() -> Iterator[Served]:
    with served(users=[ANN, BOB]) as running:
        running.create()
        running.send("one", "two", "three", recoverable=True)
        share(running, EVERYTHING)
        yield running


def share(api: Served, sddl: str) -> None:
    assert api.call("PATCH", f"{ORDERS}/acl", {"sddl": sddl}).status == 200


def as_user(api: Served, user: User, method: str, path: str, value: object = None) -> Any:
    return api.call(method, path, value, headers=basic(user.name))


def keep(api: Served, *users: User) -> None:
    """Reloads with these users only, as after SIGHUP."""

    async def change() -> None:
        api.server.set_credentials(None, {each.name: PASSWORD for each in users})
        api.manager.core.use(replace(api.manager.core.settings, users=Users(users)), api.manager.clock())
        await api.manager.write_identifier()

    api.run(change())


def held(api: Served) -> dict[str, int]:
    async def look() -> dict[str, int]:
        figures = api.manager.core.owners.figures
        return {name: each["current"] for name, each in figures.items() if each["current"]}

    return api.run(look())


# Submissions and holds


def test_a_submission_is_of_no_use_to_another_user(api: Served) -> None:
    path = f"{ORDERS}/submissions/job"
    assert as_user(api, ANN, "POST", f"{path}/0/0", MESSAGES).json == {"sent": 2, "dropped": 0}
    assert as_user(api, BOB, "GET", f"{path}/0").json["parts"] == []
    assert as_user(api, BOB, "POST", f"{path}/0/commit").status == 204
    assert as_user(api, BOB, "DELETE", path).status == 204
    assert as_user(api, BOB, "POST", f"{path}/0/0/take-over", {"run": "r", "rows": 2, "digest": "d"}).status == 409
    more = {"messages": [*MESSAGES["messages"], {"body": "c"}]}
    assert as_user(api, ANN, "POST", f"{path}/0/0", more).json == {"sent": 1, "dropped": 2}
    assert api.bodies() == ["one", "two", "three", "a", "b", "c"]
    assert api.call("GET", f"{path}/0").json["parts"] == []  # an administrator's own
    theirs = f"{ORDERS}/submissions/{ANN.sid}:job"
    assert api.call("GET", f"{theirs}/0").json["parts"][0]["rows"] == 3
    assert api.call("DELETE", theirs).status == 204
    assert as_user(api, ANN, "GET", f"{path}/0").json["parts"] == []


def test_a_hold_is_of_no_use_to_another_user(api: Served) -> None:
    path = f"{ORDERS}/holds/job"
    assert as_user(api, ANN, "PUT", path, {"from": 0}).json["name"] == "job"
    assert as_user(api, BOB, "POST", f"{path}/commit", {"to": 1 << 40}).json == {"removed": 0}
    assert as_user(api, BOB, "DELETE", path).status == 204
    refused = as_user(api, BOB, "PUT", path, {"from": 0})
    assert refused.status == 409
    assert "job" not in refused.json["detail"]
    assert [each["name"] for each in as_user(api, BOB, "GET", f"{ORDERS}/holds").json["holds"]] == ["somebody else"]
    assert as_user(api, BOB, "GET", ORDERS).json["holds"][0]["name"] == "somebody else"
    assert as_user(api, BOB, "GET", f"{ORDERS}/messages?from=0&hold=job").json["messages"] == []
    assert len(as_user(api, ANN, "GET", f"{ORDERS}/messages?from=0&hold=job").json["messages"]) == 3
    assert as_user(api, ANN, "GET", ORDERS).json["holds"][0]["name"] == "job"
    assert api.call("GET", f"{ORDERS}/holds").json["holds"][0]["name"] == f"{ANN.sid}:job"
    assert api.call("DELETE", f"{ORDERS}/holds/{ANN.sid}:job").status == 204
    assert len(api.bodies()) == 3


# Limits


def begin(api: Served, kind: Held, number: int) -> int:
    """ANN begins one more of a kind. Returns the status."""
    calls: dict[Held, tuple[str, str, object]] = {
        Held.TRANSACTIONS: ("POST", f"{API}/transactions", None),
        Held.LOCKED_MESSAGES: ("POST", f"{ORDERS}/lock?timeout=0", None),
        Held.LOCKED_MB: ("POST", f"{ORDERS}/lock?timeout=0", None),
        Held.OPEN_QUEUES: ("POST", f"{API}/handles", OPENING),
        Held.HOLDS: ("PUT", f"{ORDERS}/holds/{number}", {"from": number, "to": number}),
        Held.SUBMISSIONS: ("POST", f"{ORDERS}/submissions/{number}/0/0", MESSAGES),
    }
    if kind is Held.CURSORS:
        handle = as_user(api, ANN, "POST", f"{API}/handles", OPENING).json["handle"]
        return int(as_user(api, ANN, "POST", f"{API}/handles/{handle}/cursors").status)
    return int(as_user(api, ANN, *calls[kind]).status)


def at_most(api: Served, kind: Held, most: int) -> None:
    """One owner may have so many of the kind."""

    async def use() -> None:
        core = api.manager.core
        core.use(replace(core.settings, held={**DEFAULTS, kind: most}), api.manager.clock())

    api.run(use())


@pytest.mark.parametrize("kind", [each for each in Held if each is not Held.WAITING_READS])
def test_an_owner_has_so_much_of_each_kind(api: Served, kind: Held) -> None:
    at_most(api, kind, 100 if kind is Held.LOCKED_MB else 2)
    statuses = [begin(api, kind, number) for number in range(3)]
    refused = 507 if kind in (Held.HOLDS, Held.SUBMISSIONS) else 429
    taken = 1 if kind is Held.LOCKED_MB else 2
    assert statuses[taken:] == [refused] * (3 - taken)
    assert all(each < 300 for each in statuses[:taken])
    figures = api.manager.info().limits[kind.setting.replace("_mb_", "_bytes_")]
    assert figures["reached"] == 3 - taken
    metrics = api.call("GET", "/metrics").body.decode()
    assert f'postroad_limit_reached_total{{limit="{kind.setting.replace("_mb_", "_bytes_")}"}} {3 - taken}' in metrics
    at_most(api, kind, 1000)
    assert begin(api, kind, 2) < 300
    keep(api, BOB)
    assert held(api) == {}


def test_so_many_reads_wait_for_one_owner(api: Served) -> None:
    at_most(api, Held.WAITING_READS, 1)
    api.create("private$/empty")
    api.call("PATCH", f"{API}/queues/private$/empty/acl", {"sddl": EVERYTHING})
    path = f"{API}/queues/private$/empty/receive?timeout=20"
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(as_user, api, ANN, "POST", path)
        wait_for_reader(api)
        assert as_user(api, ANN, "POST", path).status == 429
        assert as_user(api, BOB, "POST", path.replace("=20", "=0.01")).status == 204
        api.call("POST", f"{API}/queues/private$/empty/messages", {"body": "x"})
        assert first.result().status == 200
    assert held(api) == {}


def wait_for_reader(api: Served) -> None:
    async def look() -> None:
        while not api.manager.queue(r"private$\empty").waiting:  # noqa: ASYNC110  # no event says who waits
            await asyncio.sleep(0.005)

    api.run(look())


def test_transactions_that_have_ended_do_not_count(api: Served) -> None:
    at_most(api, Held.TRANSACTIONS, 2)
    for _ in range(20):
        identifier = as_user(api, ANN, "POST", f"{API}/transactions").json["id"]
        assert as_user(api, ANN, "POST", f"{API}/transactions/{identifier}/commit").status == 204


# The end of rights


def everything(api: Served, user: User) -> None:
    """The user begins one of each."""
    as_user(api, user, "POST", f"{ORDERS}/lock?timeout=0")
    transaction = as_user(api, user, "POST", f"{API}/transactions").json["id"]
    as_user(api, user, "POST", f"{API}/handles", OPENING)
    begin(api, Held.CURSORS, 0)
    arrived = api.call("GET", f"{ORDERS}/mark").json["arrived"]
    assert as_user(api, user, "PUT", f"{ORDERS}/holds/job", {"from": 0, "to": arrived}).status == 200
    as_user(api, user, "POST", f"{ORDERS}/submissions/job/0/0", MESSAGES)
    sent = as_user(api, user, "POST", f"{ORDERS}/messages?transaction={transaction}", {"body": "x"})
    assert sent.status == 409  # the queue is not transactional
    assert set(held(api)) == {f"{each.value}_per_user".replace("_mb_", "_bytes_") for each in Held} - {
        "waiting_reads_per_user"
    }


def test_what_a_removed_user_began_ends(api: Served) -> None:
    everything(api, ANN)
    assert api.bodies() == ["a", "b"]
    connection = http.client.HTTPConnection(api.server.host, api.server.port, timeout=20)
    connection.request("GET", f"{ORDERS}/messages", headers=basic("ann"))
    assert connection.getresponse().read()
    keep(api, BOB)
    assert held(api) == {}
    assert api.bodies() == ["one", "two", "three", "a", "b"]
    assert api.call("GET", f"{API}/transactions").json == {"transactions": []}
    connection.request("GET", f"{ORDERS}/messages", headers=basic("ann"))
    assert connection.getresponse().status == 401  # the connection stayed open
    connection.close()
    keep(api, ANN, BOB)
    assert as_user(api, ANN, "GET", f"{ORDERS}/submissions/job/0").json["parts"] == []


def test_what_needs_a_right_that_is_revoked_ends(api: Served) -> None:
    everything(api, ANN)
    share(api, f"{EVERYTHING}(A;;0xf003f;;;{BOB.sid})".replace("(A;;0xf003f;;;WD)", ""))
    api.run(api.manager.write_identifier())
    assert set(held(api)) == {
        "transactions_per_user",
        "submissions_per_user",
        "open_queues_per_user",
        "cursors_per_user",
    }
    assert api.bodies() == ["one", "two", "three", "a", "b"]


def test_a_handle_without_rights_excludes_nobody(api: Served) -> None:
    exclusive = {**OPENING, "share": "deny-receive"}
    assert as_user(api, ANN, "POST", f"{API}/handles", exclusive).status == 201
    assert api.call("POST", f"{ORDERS}/receive?timeout=0").status == 409
    share(api, f"D:(A;;0xf003f;;;{BOB.sid})")
    assert api.call("POST", f"{ORDERS}/receive?timeout=0").status == 200


def test_a_group_that_changes_counts_for_what_was_begun(api: Served) -> None:
    group = Sid.parse("S-1-5-21-1-2-3-2001")
    keep(api, User("ann", ANN.sid, frozenset({group})), BOB)
    share(api, f"D:(A;;0xf003f;;;{group})")
    as_user(api, ANN, "POST", f"{ORDERS}/lock?timeout=0&count=3")
    assert api.bodies() == []
    keep(api, ANN, BOB)
    assert api.bodies() == ["one", "two", "three"]


@pytest.mark.parametrize("call", ["receive", "peek", "lock"])
def test_a_read_that_waits_ends_with_its_user(api: Served, call: str) -> None:
    api.create("private$/empty")
    api.call("PATCH", f"{API}/queues/private$/empty/acl", {"sddl": EVERYTHING})
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(as_user, api, ANN, "POST", f"{API}/queues/private$/empty/{call}?timeout=20")
        wait_for_reader(api)
        keep(api, BOB)
        api.call("POST", f"{API}/queues/private$/empty/messages", {"body": "x"})
        assert waiting.result().status == 403
    assert api.bodies(f"{API}/queues/private$/empty") == ["x"]


@pytest.mark.parametrize("accept", ["application/json", ARROW])
def test_a_stream_ends_with_the_right_of_its_user(api: Served, accept: str, caplog: pytest.LogCaptureFixture) -> None:
    body = "x" * 20_000
    for _ in range(8):
        api.send(*[body] * 500)
    connection = http.client.HTTPConnection(api.server.host, api.server.port, timeout=20)
    connection.request("GET", f"{ORDERS}/messages?from=0", headers={**basic("ann"), "Accept": accept})
    answer = connection.getresponse()
    assert answer.status == 200
    assert len(answer.read(100_000)) == 100_000
    keep(api, BOB)
    with pytest.raises((http.client.IncompleteRead, ConnectionError)):
        answer.read()
    connection.close()
    assert "answer broken off" in caplog.messages
    assert "Traceback" not in caplog.text


def test_a_token_that_is_replaced_ends_what_waits_with_it() -> None:
    with served(token="old") as api:
        old, new = ({"Authorization": f"Bearer {each}"} for each in ("old", "new"))
        assert api.call("POST", f"{API}/queues", {"path": "private$/empty"}, headers=old).status == 201
        with ThreadPoolExecutor(1) as pool:
            path = f"{API}/queues/private$/empty/receive?timeout=20"
            waiting = pool.submit(api.call, "POST", path, headers=old)
            wait_for_reader(api)

            async def change() -> None:
                api.server.set_credentials("new", {})
                api.manager.core.use(replace(api.manager.core.settings, users=Users()), api.manager.clock())

            api.run(change())
            sent = api.call("POST", f"{API}/queues/private$/empty/messages", {"body": "x"}, headers=new)
            assert (sent.status, waiting.result().status) == (201, 403)
