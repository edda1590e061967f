"""`postroad lock` and `postroad transaction`, and what other commands show of locked messages."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

import postroad as client
from tests.commands import Outcome, postroad, serving

ME = f"(pid {os.getpid()}) from 127.0.0.1"
_numbers = count(1)


class Commands:
    """The server, a client of it that locks messages, and commands that go to it."""

    def __init__(self, api: str, manager: client.QueueManager) -> None:
        self.api = api
        self.manager = manager

    def run(self, *arguments: str) -> Outcome:
        return postroad(*arguments, api=self.api)

    def done(self, *arguments: str) -> Outcome:
        outcome = self.run(*arguments)
        assert (outcome.code, outcome.errors) == (0, "")
        return outcome

    def queue(self, *bodies: str, transactional: bool = False) -> client.Queue:
        queue = self.manager.create_queue(rf"private$\q{next(_numbers)}", transactional=transactional)
        queue.send(list(bodies), transactional=transactional)
        return queue


@pytest.fixture(scope="module")
def alpha(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Commands]:
    file = tmp_path_factory.mktemp("alpha") / "alpha.toml"
    file.write_text('[manager]\nname = "alpha"\n[listen]\nbinary = 0\nping = 0\napi = 0\n', encoding="utf-8")
    with serving(file) as server, client.connect(server.api) as manager:
        yield Commands(server.api, manager)


def test_who_has_locked_messages(alpha: Commands) -> None:
    queue = alpha.queue("a", "b", "c")
    assert alpha.done("lock", "list", queue.name).lines == ["no locked messages"]
    locked = queue.lock(2, timeout=0)
    (told,) = alpha.done("lock", "list", queue.name, "--json").objects
    assert (told["queue"], told["kind"], told["messages"]) == (queue.name, "receive", 2)
    assert told["owner"].endswith(ME)
    assert told["lookup_ids"] == [message.lookup_id for message in locked]
    assert told["age_s"] >= 0
    assert told in [{**each, "age_s": told["age_s"], "silent_s": told["silent_s"]} for each in _locks(alpha)]
    for command in (("lock", "list"), ("lock", "list", queue.name), ("status", "--all")):
        (line,) = [each for each in alpha.done(*command).lines if each.startswith(queue.name) and ME in each]
        assert str(locked[0].lookup_id) in line
    queue.settle(locked, delete=False)
    assert alpha.done("lock", "list", queue.name, "--json").lines == []


def _locks(alpha: Commands) -> list[dict[str, object]]:
    (status,) = alpha.done("status", "--json").objects
    return list(status["locks"])


def test_locks_are_released_one_or_all(alpha: Commands) -> None:
    queue = alpha.queue("a", "b", "c")
    locked = queue.lock(3, timeout=0)
    first = locked[0].lookup_id
    assert alpha.done("lock", "release", queue.name, "--lookup", str(first)).lines == [
        f"released 1 message of {queue.name}"
    ]
    refused = alpha.run("lock", "release", queue.name, "--lookup", str(first))
    assert (refused.code, refused.last_error) == (1, f"postroad: message {first} of {queue.name} is not locked")
    assert alpha.done("lock", "release", queue.name, "--json").objects == [
        {"released": [message.lookup_id for message in locked[1:]], "locked": 0}
    ]
    assert alpha.done("lock", "release", queue.name).lines == [f"released 0 messages of {queue.name}"]
    assert len(list(queue.messages())) == 3
    with pytest.raises(client.errors.LeaseEnded, match="it was released at"):
        queue.settle(locked, delete=True)
    assert alpha.run("lock", "release", r"private$\none").code == 1
    assert alpha.run("lock", "list", r"private$\none").code == 1


def test_transactions_are_listed_and_aborted(alpha: Commands) -> None:
    queue = alpha.queue("a", "b", transactional=True)
    assert alpha.done("transaction", "list").lines == ["no open transactions"]
    tx = alpha.manager.begin()
    queue.receive(0, tx)
    queue.send("c", tx)
    (told,) = alpha.done("transaction", "list", "--json").objects
    assert (told["id"], told["messages"], told["received"], told["sent"]) == (str(tx.id), 2, 1, 1)
    assert told["owner"].endswith(ME)
    (status,) = alpha.done("status", "--json").objects
    assert [each["id"] for each in status["transactions"]] == [str(tx.id)]
    assert any(line.startswith(str(tx.id)) and ME in line for line in alpha.done("status", "--all").lines)
    (held,) = alpha.done("lock", "list", queue.name, "--json").objects
    assert (held["kind"], held["transaction"]) == ("transaction", str(tx.id))
    kept = alpha.run("lock", "release", queue.name)
    assert (kept.code, kept.lines) == (0, [f"released 0 messages of {queue.name}"])
    assert "1 message is still locked, by transactions or remote readers" in kept.last_error
    refused = alpha.run("lock", "release", queue.name, "--lookup", str(held["lookup_ids"][0]))
    assert refused.last_error.endswith(f"is held by the transaction {tx.id}: abort that")
    assert alpha.done("transaction", "abort", str(tx.id)).lines == [f"aborted {tx.id}"]
    assert alpha.done("transaction", "list", "--json").lines == []
    with pytest.raises(client.errors.LeaseEnded, match="by an operator"):
        tx.commit()
    assert [message.text for message in queue.messages()] == ["a", "b"]
    assert alpha.run("transaction", "abort", str(tx.id)).code == 1
    assert alpha.run("transaction", "abort", str(uuid.uuid4())).code == 1
    assert alpha.run("transaction", "abort", "x").code == 2


def test_commands_that_pass_over_locked_messages_say_how_many(alpha: Commands, tmp_path: Path) -> None:
    queue, target = alpha.queue("a", "b", "c"), alpha.queue()
    locked = queue.lock(2, timeout=0)
    hint = f"postroad lock list '{queue.name}'"
    locked_words = f"2 messages of {queue.name} that others have locked; see {hint}"
    for became, command in (
        ("not shown", ("browse", queue.name)),
        ("not shown", ("browse", queue.name, "--json")),
        ("not shown", ("peek", queue.name, "--count", "9", "--timeout", "0")),
        ("not exported", ("export", queue.name, str(tmp_path / "copy.packets"))),
        ("would not be moved", ("move", queue.name, target.name, "--all", "--dry-run")),
        ("not moved", ("move", queue.name, target.name, "--all")),
    ):
        outcome = alpha.run(*command)
        assert (outcome.code, outcome.errors) == (0, f"postroad: {became}: {locked_words}\n")
    assert len(list(target.messages())) == 1
    empty = alpha.run("receive", queue.name, "--timeout", "0")
    assert empty.code == 3
    assert f"not received: {locked_words}" in empty.errors
    for option in ((), ("--json",)):
        purged = alpha.run("queue", "purge", queue.name, *option)
        assert f"purged when their readers release them: {locked_words}" in purged.errors
    assert purged.objects == [{"purged": 0, "locked": 2}]
    queue.settle(locked, delete=False)
    assert queue.info().messages == 0


def test_messages_on_their_way_are_not_called_locked_by_a_reader(alpha: Commands) -> None:
    name = r"DIRECT=TCP:127.0.0.9\private$\orders"
    alpha.manager.send(name, "a")
    outcome = alpha.run("browse", name)
    assert (outcome.code, outcome.errors) == (0, "")


def test_nothing_is_said_where_nothing_is_locked(alpha: Commands, tmp_path: Path) -> None:
    queue, target = alpha.queue("a"), alpha.queue()
    for command in (
        ("browse", queue.name),
        ("peek", queue.name),
        ("export", queue.name, str(tmp_path / "copy.packets")),
        ("move", queue.name, target.name, "--all"),
        ("queue", "purge", target.name),
    ):
        alpha.done(*command)
