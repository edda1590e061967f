"""`postroad resend` sends dead letters and journaled messages again, without Spark."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

import postroad as client
from postroad.bodies import write_headers
from tests.commands import Outcome, ServerProcess, postroad, serving

ORDERS, LEDGER, OTHER = r"private$\orders", r"private$\ledger", r"private$\other"
ERROR = r"private$\error"
CONFIG = rf"""
[manager]
name = "alpha"
data = "data"
[listen]
binary = 0
ping = false
http = false
rpc = false
api = 0
[[queue]]
path = '{ORDERS}'
journal = true
[[queue]]
path = '{LEDGER}'
transactional = true
[[queue]]
path = '{OTHER}'
[[queue]]
path = '{ERROR}'
transactional = true
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with started(tmp_path) as running:
        yield running


@pytest.fixture(scope="module")
def unchanged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One for all tests that change nothing there."""
    with started(tmp_path_factory.mktemp("unchanged")) as running:
        yield running


def started(directory: Path) -> AbstractContextManager[ServerProcess]:
    config = directory / "alpha.toml"
    config.write_text(CONFIG)
    return serving(config)


def run(server: ServerProcess, *arguments: str) -> Outcome:
    return postroad(*arguments, api=server.api)


def messages(server: ServerProcess, queue: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = server.get(f"/queues/{quote(queue, safe='')}/messages")["messages"]
    return found


def make_dead_letters(server: ServerProcess) -> list[dict[str, Any]]:
    """Two that were purged from a plain queue, and one from a transactional queue."""
    with client.connect(server.api) as manager:
        orders, ledger = manager.queue(ORDERS), manager.queue(LEDGER)
        for label in ("one", "two"):
            orders.send(client.Message(f"body {label}", label=label, dead_letter=True, app_tag=7))
        ledger.send(client.Message("entry", dead_letter=True), transactional=True)
        assert (orders.purge(), ledger.purge()) == (2, 1)
    return messages(server, ";deadletter")


def test_dead_letters_return_to_where_they_were_sent(server: ServerProcess) -> None:
    dead = make_dead_letters(server)
    assert [each["label"] for each in dead] == ["one", "two"]
    done = run(server, "resend", ";deadletter", "--all", "--json")
    assert (done.code, done.objects) == (0, [{"resent": 2, "refused": []}])
    found = messages(server, ORDERS)
    assert [(each["label"], each["body"], each["app_tag"]) for each in found] == [
        ("one", "body one", 7),
        ("two", "body two", 7),
    ]
    assert not {each["id"] for each in found} & {each["id"] for each in dead}
    assert messages(server, ";deadletter") == []


def test_a_transactional_dead_letter_is_sent_in_a_transaction(server: ServerProcess) -> None:
    make_dead_letters(server)
    (dead,) = messages(server, ";deadxact")
    assert run(server, "resend", ";deadxact", "--lookup", str(dead["lookup_id"])).code == 0
    (found,) = messages(server, LEDGER)
    assert (found["body"], found["delivery"]) == ("entry", "transactional")
    assert messages(server, ";deadxact") == []


def test_where_to_and_keep(server: ServerProcess) -> None:
    make_dead_letters(server)
    chosen = ("resend", ";deadletter", "--where", 'label == "two"', "--to", OTHER)
    shown = run(server, *chosen, "--dry-run", "--json")
    assert [(each["label"], each["to"], each["reason"]) for each in shown.objects] == [("two", OTHER, "nack-q-purged")]
    text = run(server, *chosen, "--dry-run").lines
    assert text[-1] == "1 message would be sent again"
    assert messages(server, OTHER) == []
    assert run(server, *chosen, "--keep").text == rf"sent 1 message of ;deadletter again to {OTHER}" + "\n"
    assert [each["label"] for each in messages(server, OTHER)] == ["two"]
    assert [each["label"] for each in messages(server, ";deadletter")] == ["one", "two"]
    assert run(server, *chosen).code == 0
    assert [each["label"] for each in messages(server, ";deadletter")] == ["one"]


def test_a_journal_keeps_its_messages(server: ServerProcess) -> None:
    run(server, "send", ORDERS, "--body", "done", "--recoverable")
    run(server, "receive", ORDERS)
    assert run(server, "resend", f"{ORDERS};journal", "--all").code == 0
    assert [each["body"] for each in messages(server, ORDERS)] == ["done"]
    assert [each["body"] for each in messages(server, f"{ORDERS};journal")] == ["done"]


def test_a_refused_message_stays_and_the_others_go(server: ServerProcess) -> None:
    make_dead_letters(server)
    run(server, "send", OTHER, "--body", "x", "--label", "three", "--dead-letter", "--recoverable")
    run(server, "queue", "delete", OTHER)
    assert len(messages(server, ";deadletter")) == 3
    done = run(server, "resend", ";deadletter", "--all")
    assert done.code == 1
    assert "not sent: the message" in done.errors
    assert "there is no queue" in done.errors
    assert done.text == "sent 2 messages of ;deadletter again\n"
    assert [each["label"] for each in messages(server, ";deadletter")] == ["three"]


def test_messages_for_another_manager_are_sent_there(server: ServerProcess) -> None:
    make_dead_letters(server)
    to = r"DIRECT=TCP:127.0.20.99\private$\orders"
    assert run(server, "resend", ";deadletter", "--all", "--to", to).code == 0
    assert [each["label"] for each in messages(server, to)] == ["one", "two"]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ((";deadletter",), 2, "choose the messages with one of --lookup ID, --all and --where EXPR"),
        ((";deadletter", "--all", "--to", "nonsense="), 2, "nonsense="),
        ((r"private$\missing", "--all"), 1, "there is no queue"),
        ((";deadletter", "--lookup", "12345"), 1, "no message"),
        ((";deadletter", "--where", "label =="), 2, "--where"),
        ((), 2, "Missing argument 'QUEUE'"),
        ((";deadletter", "--all", "--exception", "E"), 2, "--exception: needs --failed"),
        ((";deadletter", "--all", "--type", "T"), 2, "--type: needs --failed"),
        (("--failed", "--all", "--where", "true"), 2, "choose the messages with one of"),
        ((r"private$\missing", "--failed"), 1, "there is no queue"),
    ],
)
def test_mistakes_are_named(unchanged: ServerProcess, arguments: tuple[str, ...], code: int, words: str) -> None:
    done = run(unchanged, "resend", *arguments)
    assert done.code == code
    assert words in done.last_error


def test_messages_that_others_have_locked_stay(server: ServerProcess) -> None:
    dead = make_dead_letters(server)
    with client.connect(server.api) as manager, manager.queue(";deadletter").receiving(timeout=0) as held:
        done = run(server, "resend", ";deadletter", "--all", "--json")
        assert done.objects == [{"resent": 1, "refused": [], "locked": 1}]
        by_id = run(server, "resend", ";deadletter", "--lookup", str(held.lookup_id))
        assert by_id.code == 1
    assert [each["label"] for each in messages(server, ORDERS)] == ["two"]
    assert len(dead) == 2


def test_a_dead_letter_is_listed_with_its_reason_and_destination(server: ServerProcess) -> None:
    make_dead_letters(server)
    head, first, *_ = run(server, "browse", ";deadletter").lines
    assert "reason" in head
    assert "destination" in head
    assert "nack-q-purged" in first
    assert r"DIRECT=OS:alpha\private$\orders" in first


def test_a_message_that_was_received_is_known_for_a_while(server: ServerProcess) -> None:
    (sent,) = run(server, "send", ORDERS, "--body", "x", "--json").objects
    (received,) = run(server, "receive", ORDERS, "--json").objects
    run(server, "queue", "purge", f"{ORDERS};journal")
    found = run(server, "trace", received["id"], "--json")
    assert found.code == 0
    assert [(each["kind"], each["sentence"]) for each in found.objects[0]["findings"]] == [
        ("left", rf"left {ORDERS}: it was received"),
        ("left", rf"left {ORDERS};journal: it was purged from its queue"),
    ]
    assert sent


def test_a_move_says_what_becomes_of_expired_messages(server: ServerProcess) -> None:
    run(server, "send", OTHER, "--body", "late", "--dead-letter", "--recoverable", "--ttbr", "1")
    deadline = time.monotonic() + 30
    while not messages(server, ";deadletter") and time.monotonic() < deadline:
        time.sleep(0.3)
    shown = run(server, "move", ";deadletter", OTHER, "--all", "--dry-run")
    assert "expired: 1 message will not stay in" in shown.errors
    moved = run(server, "move", ";deadletter", OTHER, "--all", "--json")
    assert moved.objects == [{"moved": 1, "expired": 1}]
    assert "and will be dead letters again" in moved.errors
    assert run(server, "resend", ";deadletter", "--all").code == 0


def test_messages_that_would_die_again_are_counted_and_can_live_longer(server: ServerProcess) -> None:
    for _ in range(2):
        run(server, "send", OTHER, "--body", "late", "--dead-letter", "--recoverable", "--ttbr", "1", "--ttrq", "1")
    deadline = time.monotonic() + 30
    while len(messages(server, ";deadletter")) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    soon = "soon, the first after 1 s: --ttbr S gives each S seconds to be received"
    shown = run(server, "resend", ";deadletter", "--all", "--dry-run", "--json")
    assert [each["lifetime_s"] for each in shown.objects] == [1, 1]
    assert f"2 messages would expire {soon}" in shown.errors
    again = run(server, "resend", ";deadletter", "--all", "--keep", "--json")
    assert (again.objects[0]["expiring"], again.objects[0]["first_expires_s"]) == (2, 1)
    assert f"2 messages expire {soon}" in again.errors
    letters = [str(each["lookup_id"]) for each in messages(server, ";deadletter")[:2]]
    longer = run(server, "resend", ";deadletter", "--lookup", letters[0], "--ttbr", "3600", "--json")
    assert (longer.objects, longer.errors) == ([{"resent": 1, "refused": []}], "")
    other = postroad("peek", OTHER, "--count", "9", "--timeout", "0", "--raw", api=server.api)
    assert other.code == 0
    far = r"DIRECT=TCP:127.0.0.99\private$\q"
    run(server, "resend", ";deadletter", "--lookup", letters[1], "--ttbr", "3600", "--to", far)
    (waiting,) = messages(server, far)
    assert (waiting["label"], waiting["delivery"]) == ("", "recoverable")


# Messages that NServiceBus gave up


def failed(queue: str, exception: str, message_type: str, label: str = "") -> client.Message:
    names = {
        "FailedQ": queue,
        "ExceptionInfo.ExceptionType": exception,
        "ExceptionInfo.Message": f"{label} failed",
        "EnclosedMessageTypes": message_type,
        "TimeOfFailure": "2026-11-19 15:31:00:654321 Z",
        "Retries": "3",
        "MessageId": label,
    }
    extension = write_headers({f"NServiceBus.{name}": value for name, value in names.items()})
    return client.Message("{}", label=label, extension=extension)


def test_failed_messages_go_back_to_where_they_failed(server: ServerProcess) -> None:
    with client.connect(server.api) as manager:
        manager.queue(ERROR).send(
            [
                failed("orders@alpha", "System.TimeoutException", "Shop.Order, Shop", "1"),
                failed("ORDERS@ALPHA", "System.TimeoutException", "Shop.Order, Shop", "2"),
                failed("ledger", "Shop.NoStock", "Shop.Order, Shop", "3"),
                failed("gone@alpha", "Shop.NoStock", "Shop.Bill, Shop", "4"),
                client.Message("not failed", label="5"),
                failed("orders@10.0.0.99", "Shop.NoStock", "Shop.Bill, Shop", "6"),
            ],
            transactional=True,
        )
    shown = run(server, "resend", "--failed", "--dry-run", "--json").objects
    assert [(each["label"], each["exception"], each["message_type"], each["to"]) for each in shown[:2]] == [
        ("1", "System.TimeoutException", "Shop.Order", r"DIRECT=OS:alpha\private$\orders"),
        ("2", "System.TimeoutException", "Shop.Order", r"DIRECT=OS:ALPHA\private$\ORDERS"),
    ]
    assert (shown[0]["exception_text"], shown[0]["failed_at"]) == ("1 failed", "2026-11-19T15:31:00Z")
    assert (shown[4]["to"], "has no header NServiceBus.FailedQ" in shown[4]["why"]) == (None, True)
    people = run(server, "resend", "--failed", "--dry-run", "--type", "Shop.Order", "--to", OTHER)
    assert people.errors == ""
    assert [line.split()[:4] for line in people.lines[1:3]] == [
        ["2", "System.TimeoutException", "Shop.Order", OTHER],
        ["1", "Shop.NoStock", "Shop.Order", OTHER],
    ]
    assert people.lines[3:] == ["3 messages would be sent again"]
    assert len(messages(server, ERROR)) == 6

    chosen = run(server, "resend", ERROR, "--failed", "--exception", "timeoutexception", "--where", 'label == "1"')
    assert (chosen.code, chosen.text) == (0, f"sent 1 message of {ERROR} again to where they failed\n")
    (first,) = server.get(f"/queues/{quote(ORDERS, safe='')}/messages?decode=true")["messages"]
    assert first["headers"] == {"NServiceBus.EnclosedMessageTypes": "Shop.Order, Shop", "NServiceBus.MessageId": "1"}

    all_others = run(server, "resend", "--failed", "--json")
    assert all_others.code == 1
    (outcome,) = all_others.objects
    assert (outcome["resent"], [each["why"][:20] for each in outcome["refused"]]) == (
        3,
        ["there is no queue DI", "the message has no h"],
    )
    assert [each["label"] for each in messages(server, ORDERS)] == ["1", "2"]
    assert [(each["label"], each["delivery"]) for each in messages(server, LEDGER)] == [("3", "transactional")]
    assert [each["label"] for each in messages(server, r"DIRECT=TCP:10.0.0.99\private$\orders")] == ["6"]
    assert [each["label"] for each in messages(server, ERROR)] == ["4", "5"]


def test_a_kill_between_loses_and_doubles_no_failed_message(tmp_path: Path) -> None:
    count = 3000
    with started(tmp_path) as server, client.connect(server.api) as manager, ThreadPoolExecutor(1) as pool:
        queue = manager.queue(ERROR)
        queue.send([failed("ledger@alpha", "E", "T", str(n)) for n in range(count)], transactional=True)
        running = pool.submit(run, server, "resend", "--failed")
        while not manager.queue(LEDGER).info().messages:
            assert not running.done()
        server.close()
        assert running.result().code == 1
    with started(tmp_path) as server, client.connect(server.api) as manager:
        sent, left = ([each.label for each in manager.queue(name).messages()] for name in (LEDGER, ERROR))
        assert sent
        assert left
        assert Counter(sent + left) == Counter(map(str, range(count)))
        assert run(server, "resend", "--failed").code == 0
        assert Counter(each.label for each in manager.queue(LEDGER).messages()) == Counter(map(str, range(count)))
