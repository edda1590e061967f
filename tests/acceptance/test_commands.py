"""The commands and a real server: what they print, what they leave behind, and how they end."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import pytest

import postroad as client
from tests.commands import Outcome, postroad, serving

GUID = "8f3c6a52-0d1e-4b7a-9c55-2f1f0f6f7a10"
MESSAGE_KEYS = """
    id lookup_id class class_name label body body_type priority delivery correlation_id sent_at arrived_at
    source_manager destination_queue admin_queue response_queue dead_letter_queue extension_base64 app_tag hops
    authenticated encrypted sender_id first_in_transaction last_in_transaction transaction_id
    authentication_level hash cipher
"""
FULL_DISK = Path("/dev/full")
Damage = Callable[[bytes], bytes]
_numbers = count(1)


class Commands:
    """The server, a client of it, and commands that go to it."""

    def __init__(self, api: str, manager: client.QueueManager) -> None:
        self.api = api
        self.manager = manager

    def run(self, *arguments: str, given: bytes = b"") -> Outcome:
        return postroad(*arguments, given=given, api=self.api)

    def done(self, *arguments: str, given: bytes = b"") -> Outcome:
        """Runs a command that has to work, and to write nothing to stderr."""
        outcome = self.run(*arguments, given=given)
        assert (outcome.code, outcome.errors) == (0, "")
        return outcome

    def queue(self, transactional: bool = False) -> client.Queue:
        return self.manager.create_queue(rf"private$\q{next(_numbers)}", transactional=transactional)


@pytest.fixture(scope="module")
def alpha(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Commands]:
    file = tmp_path_factory.mktemp("alpha") / "alpha.toml"
    file.write_text('[manager]\nname = "alpha"\n[listen]\nbinary = 0\nping = 0\napi = 0\n', encoding="utf-8")
    with serving(file) as server, client.connect(server.api) as manager:
        yield Commands(server.api, manager)


def bodies(queue: client.Queue) -> list[bytes]:
    return [message.body for message in queue.messages()]


# Queues


def test_a_queue_from_its_creation_to_its_end(alpha: Commands) -> None:
    path = r"private$\life"
    created = alpha.done(
        *("queue", "create", path, "--transactional", "--journal", "--quota-kb", "64", "--journal-quota-kb", "32"),
        *("--authenticate", "--privacy", "body", "--label", "a life", "--abort-limit", "3"),
    )
    assert created.lines == [path]
    (shown,) = alpha.done("queue", "show", rf"alpha\{path}", "--json").objects
    identity = alpha.manager.info().id
    assert shown["path"] == path
    assert shown["format_name"].startswith(f"PRIVATE={identity}\\")
    assert (shown["transactional"], shown["journal"], shown["authenticate"]) == (True, True, True)
    assert (shown["quota_kb"], shown["journal_quota_kb"], shown["abort_limit"]) == (64, 32, 3)
    assert (shown["privacy"], shown["label"], shown["messages"]) == ("body", "a life", 0)
    (changed,) = alpha.done(
        *("queue", "set", shown["format_name"], "--quota-kb", "none", "--no-journal", "--label", "", "--json")
    ).objects
    assert (changed["quota_kb"], changed["journal"], changed["label"]) == (None, False, "")
    assert changed["abort_limit"] == 3
    again = alpha.run("queue", "create", path)
    assert (again.code, again.output) == (1, b"")
    assert "exists already" in again.last_error
    alpha.done("queue", "delete", path)
    with pytest.raises(client.QueueNotFound):
        alpha.manager.queue(path).info()


def test_a_public_queue_has_a_base_priority_and_a_private_one_has_not(alpha: Commands) -> None:
    path = r"alpha\urgent"
    alpha.done("queue", "create", path, "--base-priority", "-32768")
    assert alpha.done("queue", "show", path, "--json").objects[0]["base_priority"] == -32768
    (changed,) = alpha.done("queue", "set", path, "--base-priority", "7", "--json").objects
    assert changed["base_priority"] == 7
    refused = alpha.run("queue", "create", r"private$\urgent", "--base-priority", "7")
    assert refused.code == 2
    assert "only a public queue has a base priority" in refused.last_error
    assert alpha.run("queue", "set", path, "--base-priority", "32768").code == 2


@pytest.mark.parametrize("path", [r"alpha\pub", r"alpha\private$\seen", r".\Pub2"])
def test_every_name_that_is_printed_is_one_that_commands_take(alpha: Commands, path: str) -> None:
    """Also for a public queue, whose path includes its computer, and for its journal and subqueue."""
    (printed,) = alpha.done("queue", "create", path, "--journal", "--abort-limit", "1").lines
    alpha.done("send", printed, "--body", "x")
    alpha.done("receive", printed)
    names = {info["path"] for info in alpha.done("queue", "list", "--json").objects}
    assert {printed, f"{printed};journal"} <= names
    assert {alpha.manager.queue(name).info().path for name in names} == names
    assert len(alpha.done("browse", f"{printed};journal", "--json").lines) == 1
    alpha.done("queue", "delete", printed)


def test_lists_for_people_and_for_programs(alpha: Commands) -> None:
    queue = alpha.queue()
    queue.send([b"a", b"b"])
    everything = alpha.done("queue", "list", "--json").objects
    found = {each["path"]: each["messages"] for each in everything}
    assert found[queue.name] == 2
    assert {"system$;journal", "system$;deadletter", "system$;deadxact"} <= set(found)
    (line,) = [line for line in alpha.done("queue", "list").lines if line.startswith(f"{queue.name} ")]
    assert line.split()[1] == "2"
    (status,) = alpha.done("status", "--json").objects
    assert (status["manager"]["name"], len(status["queues"])) == ("alpha", len(everything))
    assert queue.name in alpha.done("status", "--all").text


def test_status_is_short(alpha: Commands) -> None:
    queues = [alpha.manager.create_queue(rf"private$\many{number:02}") for number in range(14)]
    long = alpha.manager.create_queue(rf"private$\{'long-' * 20}end")
    for number, queue in enumerate([*queues, long], 100):
        queue.send([b"x"] * number)
    lines = alpha.done("status").lines
    shown = [line.split()[0] for line in lines if line.startswith("private$")]
    assert len(shown) == 10
    assert re.fullmatch(r"private\$\\long-.*\.\.\..*-long-end", shown[0])
    assert len(shown[0]) == 60
    assert shown[1:4] == [rf"private$\many{number}" for number in (13, 12, 11)]
    assert any(re.fullmatch(r"\d+ more queues with \d+ messages: postroad status --all", line) for line in lines)
    assert not any(line.startswith("listener") for line in lines)
    everything = alpha.done("status", "--all").lines
    assert len([line for line in everything if line.startswith(r"private$\many")]) == 14
    assert any(line.startswith("listener") for line in everything)
    (found,) = [each for each in alpha.done("status", "--json").objects[0]["queues"] if each["path"] == long.name]
    assert found["messages"] == 114
    for queue in [*queues, long]:
        queue.delete()


def test_status_names_the_worst_of_many_outgoing_queues_and_counts_the_others(alpha: Commands) -> None:
    names = [rf"DIRECT=TCP:10.0.0.{number}\private$\far" for number in range(1, 31)]
    for name in names:
        alpha.manager.queue(name).send(client.Message("x", recoverable=True))
    lines = alpha.done("status", "--all").lines
    shown = [line for line in lines if line.startswith("DIRECT=TCP:10.0.0.")]
    assert len(shown) == 20
    assert "10 more outgoing queues with 10 messages: postroad queue list" in lines
    assert len([line for line in lines if line.startswith("! ") and "10.0.0." in line]) <= 20
    assert len([line for line in alpha.done("queue", "list").lines if line.startswith("DIRECT=TCP:10.0.0.")]) == 30
    for name in names:
        alpha.manager.queue(name).delete()


def test_status_counts_the_queues_that_people_made_and_names_a_full_journal(alpha: Commands) -> None:
    queue = alpha.manager.create_queue(r"private$\full", journal=True, journal_quota_kb=0)
    queue.send("x")
    queue.receive(0)
    made = [info for info in alpha.manager.queues() if info.type in ("private", "public")]
    own = [info for info in made if info.path.endswith("_queue$")]
    status = alpha.done("status").lines
    assert status[0].startswith("! ")
    assert [line for line in status if re.search(rf"^up .*, {len(made) - len(own)} queues?, ", line)]
    assert r"! 1 copy dropped, because a journal or dead-letter queue is full: private$\full;journal" in status
    queue.delete()


def test_purge(alpha: Commands) -> None:
    queue = alpha.queue()
    queue.send([b"a", b"b", b"c"])
    assert alpha.done("queue", "purge", queue.name, "--json").objects == [{"purged": 3}]
    assert bodies(queue) == []


def test_what_a_pipeline_holds_is_shown_and_released(alpha: Commands) -> None:
    queue = alpha.queue()
    queue.send([b"a", b"b"])
    hold = queue.hold("nightly", 0)
    assert f"nightly: 0 to {hold.end}" in alpha.done("queue", "show", queue.name).text
    (shown,) = alpha.done("queue", "show", queue.name, "--json").objects
    assert [(each["name"], each["to"]) for each in shown["holds"]] == [("nightly", hold.end)]
    unknown = alpha.run("queue", "release", queue.name, "daily")
    assert (unknown.code, "it must be one of nightly" in unknown.errors) == (1, True)
    released = alpha.done("queue", "release", queue.name, "nightly", "--json").objects
    assert released == [{"released": "nightly", "messages": 2}]
    assert bodies(queue) == [b"a", b"b"]


def test_outgoing_queues_pause_and_resume_by_their_format_name(alpha: Commands) -> None:
    name = r"DIRECT=OS:beta\private$\far"
    alpha.done("send", name, "--body", "x")
    assert alpha.done("queue", "pause", name, "--json").objects[0]["state"] == "ONHOLD"
    assert alpha.done("queue", "resume", name, "--json").objects[0]["state"] != "ONHOLD"


@pytest.mark.parametrize(
    "command",
    [
        ["queue", "purge"],
        ["send"],
        ["receive", "--timeout", "0"],
        ["browse"],
        ["export", "-", "--keep"],
    ],
    ids=lambda command: command[0] if command[0] != "queue" else command[1],
)
def test_a_queue_that_is_not_there(alpha: Commands, command: list[str]) -> None:
    at = 2 if command[0] == "queue" else 1
    outcome = alpha.run(*command[:at], r"private$\nowhere", *command[at:])
    assert (outcome.code, outcome.output) == (1, b"")
    assert "there is no queue" in outcome.last_error
    assert outcome.errors.count("\n") == 1


@pytest.mark.parametrize(
    "command",
    [
        ["send", r"private$\q", "--label", "x" * 250],
        ["send", r"private$\q", "--admin-queue", "orders", "--ack", "full"],
        ["send", r"private$\q", "--response-queue", "DIRECT=nowhere"],
        ["queue", "create", "orders"],
        ["queue", "create", r"beta\private$\q"],
        ["queue", "create", r"private$\q", "--label", "x" * 125],
        ["move", ";deadletter", ";deadletter", "--all"],
        ["trace", "17"],
    ],
    ids=" ".join,
)
def test_what_the_manager_can_only_refuse_is_wrong_usage(alpha: Commands, command: list[str]) -> None:
    refused = alpha.run(*command)
    assert (refused.code, refused.output) == (2, b"")
    assert refused.errors.count("\n") == 1


def test_an_administration_queue_without_acknowledgments_is_no_fault(alpha: Commands) -> None:
    queue = alpha.queue()
    alpha.done("send", queue.name, "--admin-queue", queue.name)
    alpha.done("send", queue.name, "--ack", "none")


def test_a_manager_that_is_not_there() -> None:
    outcome = postroad("status", "--api", "http://127.0.0.1:1")
    assert (outcome.code, outcome.output) == (1, b"")
    assert "http://127.0.0.1:1" in outcome.last_error


# Sending


def test_every_property_of_a_message(alpha: Commands) -> None:
    queue, admin = alpha.queue(), alpha.queue()
    identifier = f"{{{GUID}}}\\17"
    sent = alpha.done(
        *("send", queue.name, "--body", "grüße", "--label", "Größe", "--priority", "6", "--recoverable"),
        *("--ttrq", "100", "--ttbr", "200", "--admin-queue", admin.name, "--ack", "reach-queue,nack-receive"),
        *("--response-queue", r"DIRECT=OS:beta\private$\answers", "--correlation", identifier, "--journal"),
        *(
            "--dead-letter-queue",
            r"private$\dead",
            "--trace",
            f"PUBLIC={GUID}",
            "--body-type",
            "8",
            "--app-tag",
            "7",
            "--json",
        ),
    )
    message = queue.peek(0)
    assert sent.objects == [{"id": str(message.id)}]
    assert message.body == "grüße".encode("utf-16-le")
    (found,) = alpha.done("peek", queue.name, "--timeout", "0", "--json").objects
    assert not set(MESSAGE_KEYS.split()) - set(found)
    assert (found["id"], found["lookup_id"]) == (str(message.id), message.lookup_id)
    assert (found["label"], found["body"], found["body_type"]) == ("Größe", "grüße", 8)
    assert (found["priority"], found["delivery"], found["app_tag"]) == (6, "recoverable", 7)
    assert (found["class"], found["correlation_id"]) == (0, identifier)
    assert found["response_queue"] == r"DIRECT=OS:beta\private$\answers"
    assert found["admin_queue"] == admin.info().format_name
    assert found["dead_letter_queue"] == r".\private$\dead"
    view = message.view
    assert (view.time_to_reach_queue, view.time_to_be_received) == (100, 200)
    assert view.ack_flags == 0x01 | 0x08
    assert (view.positive_journaling, view.negative_journaling) == (True, True)
    (acknowledgment,) = alpha.done("receive", admin.name, "--timeout", "0", "--json").objects
    assert (acknowledgment["class_name"], acknowledgment["correlation_id"]) == ("ack-reach-queue", str(message.id))


def test_bodies_from_files_and_from_standard_input(alpha: Commands, tmp_path: Path) -> None:
    queue = alpha.queue()
    (tmp_path / "body").write_bytes(b"\x00\xff\x10 bytes")
    alpha.done("send", queue.name, "--file", str(tmp_path / "body"))
    alpha.done("send", queue.name, "-", given=b"from a pipe\n")
    alpha.done("send", queue.name, "-", "--body-type", "8", given="ä".encode())
    alpha.done("send", queue.name, "-", "--body-type", "8", given="b".encode("utf-16-le"))
    alpha.done("send", queue.name)
    assert bodies(queue) == [b"\x00\xff\x10 bytes", b"from a pipe\n", b"\xe4\x00", b"b\x00", b""]


def test_headers_and_extensions(alpha: Commands, tmp_path: Path) -> None:
    queue = alpha.queue()
    headers = ("--header", "NServiceBus.EnclosedMessageTypes=Shop.Order, Shop", "--header", "note=a=b <c>")
    alpha.done("send", queue.name, "--body", "{}", *headers)
    (found,) = alpha.done("peek", queue.name, "--decode", "--json").objects
    assert found["headers"] == {"NServiceBus.EnclosedMessageTypes": "Shop.Order, Shop", "note": "a=b <c>"}
    assert (found["system"], found["message_type"]) == ("nservicebus", "Shop.Order")
    file = tmp_path / "extension"
    file.write_bytes(b"\0\xff own")
    alpha.done("send", queue.name, "--extension", str(file), "--count", "2")
    alpha.done("send", queue.name, "--body", "x", "--extension", "-", given=b"from a pipe")
    assert [each.extension for each in queue.messages()][1:] == [b"\0\xff own", b"\0\xff own", b"from a pipe"]


@pytest.mark.parametrize(
    ("options", "code", "fault"),
    [
        (["--header", "a=b", "--extension", "FILE"], 2, "use only one of --header and --extension"),
        (["--header", "a"], 2, "--header: must be NAME=VALUE, got 'a'"),
        (["--header", "=b"], 2, "--header: a header must have a name"),
        (["--header", "a=b", "--header", "a=c"], 2, "--header: a is given twice"),
        (["--header", "a=x\x01y"], 2, "--header: 'a' must not have the character U+0001, which XML cannot say"),
        (["--extension", "no-such-file"], 2, "--extension: no-such-file: cannot be read: No such file or directory"),
        (["--extension", "/"], 2, "--extension: /: cannot be read: Is a directory"),
        (["--extension", "/dev/zero"], 1, "--extension: /dev/zero: a message must have at most 4194304 bytes (4 MiB)"),
        (["--extension", "-", "-"], 2, "--extension: standard input is the body already"),
    ],
)
def test_headers_that_cannot_be_sent(alpha: Commands, options: list[str], code: int, fault: str) -> None:
    queue = alpha.queue()
    outcome = alpha.run("send", queue.name, *options)
    assert (outcome.code, outcome.last_error) == (code, f"postroad: {fault}")
    assert bodies(queue) == []


def test_many_alike_have_consecutive_ids(alpha: Commands) -> None:
    queue = alpha.queue()
    ids = [each["id"] for each in alpha.done("send", queue.name, "--body", "x", "--count", "25", "--json").objects]
    first = int(ids[0].rpartition("\\")[2])
    assert [int(each.rpartition("\\")[2]) for each in ids] == list(range(first, first + 25))
    assert [str(message.id) for message in queue.messages()] == ids


def test_a_transaction_of_its_own(alpha: Commands) -> None:
    queue = alpha.queue(transactional=True)
    refused = alpha.run("send", queue.name, "--body", "x")
    assert refused.code == 1
    assert "is transactional" in refused.last_error
    alpha.done("send", queue.name, "--body", "x", "--transactional", "--count", "3")
    found = [
        (each.describe()["first_in_transaction"], each.describe()["last_in_transaction"]) for each in queue.messages()
    ]
    assert found == [(True, False), (False, False), (False, True)]


def test_a_send_of_the_wrong_kind_names_the_option(alpha: Commands) -> None:
    queues = alpha.queue(transactional=True).name, alpha.queue().name
    add, leave_out = alpha.run("send", queues[0]), alpha.run("send", queues[1], "--transactional")
    assert (add.code, leave_out.code) == (1, 1)
    assert add.last_error.endswith("add --transactional")
    assert leave_out.last_error.endswith("leave out --transactional")


def test_more_than_one_request_holds_is_still_one_transaction(alpha: Commands, tmp_path: Path) -> None:
    queue = alpha.queue(transactional=True)
    (tmp_path / "large").write_bytes(bytes(4_000_000))
    sent = alpha.done("send", queue.name, "--file", str(tmp_path / "large"), "--transactional", "--count", "9")
    assert "sent 9 messages" in sent.text
    assert len({each.describe()["transaction_id"] for each in queue.messages()}) == 1
    queue.delete()


# Reading


def test_receive_takes_and_peek_leaves(alpha: Commands) -> None:
    queue = alpha.queue()
    queue.send([client.Message("low", priority=1), client.Message("high", priority=7), client.Message("mid")])
    peeked = alpha.done("peek", queue.name, "--count", "2", "--timeout", "0", "--json").objects
    assert [each["body"] for each in peeked] == ["high", "mid"]
    taken = alpha.done("receive", queue.name, "--count", "9", "--timeout", "0", "--json").objects
    assert [each["body"] for each in taken] == ["high", "mid", "low"]
    for command in ("peek", "receive"):
        empty = alpha.run(command, queue.name, "--timeout", "0")
        assert (empty.code, empty.output) == (3, b"")
        assert "there was no message" in empty.last_error


def test_receive_waits_for_as_many_as_were_asked_for(alpha: Commands) -> None:
    queue = alpha.queue()
    with ThreadPoolExecutor(1) as pool:
        receiving = pool.submit(alpha.done, "receive", queue.name, "--count", "2", "--timeout", "60", "--json")
        for body in ("first", "second"):
            while not queue.info().waiting:
                assert not receiving.done()
                time.sleep(0.05)
            queue.send(body)
        assert [each["body"] for each in receiving.result().objects] == ["first", "second"]


def test_messages_on_their_way_are_for_the_other_machine_to_receive(alpha: Commands, tmp_path: Path) -> None:
    peer = r"DIRECT=TCP:127.0.20.99\private$\far"
    alpha.done("send", peer, "--body", "on its way")
    for command in (("receive", peer, "--timeout", "0"), ("export", peer, str(tmp_path / "taken"), "--remove")):
        refused = alpha.run(*command)
        assert refused.code == 1
        assert "here" in refused.last_error
    assert r"postroad remote receive 127.0.20.99 'private$\far'" in alpha.run("receive", peer).last_error
    assert not (tmp_path / "taken").exists()
    assert [each["body"] for each in alpha.done("peek", peer, "--json").objects] == ["on its way"]
    assert "on its way" in alpha.done("browse", peer).text
    alpha.done("export", peer, str(tmp_path / "copy"))
    rescued = alpha.queue()
    alpha.done("move", peer, rescued.name, "--all")
    assert bodies(rescued) == [b"on its way"]
    alpha.done("queue", "delete", peer)


def test_what_people_see(alpha: Commands) -> None:
    queue = alpha.queue()
    red = client.Message("two\nlines \x1b[31m", label="red \x1b", body_type=8)
    queue.send([red, client.Message(b"\x00\x01\xff")])
    header, first, second, empty, binary_header, row = alpha.done("receive", queue.name, "--count", "2").lines
    assert (first, second, empty) == ("two", r"lines \x1b[31m", "")
    assert r"red \x1b" in header
    assert "3 bytes" in binary_header
    assert "00 01 ff" in row


def test_raw_prints_the_body_and_nothing_else(alpha: Commands) -> None:
    queue = alpha.queue()
    queue.send(b"\x00\xff\n")
    assert alpha.done("receive", queue.name, "--raw", "--timeout", "0").output == b"\x00\xff\n"


def test_messages_that_another_reader_holds_are_not_shown(alpha: Commands) -> None:
    queue = alpha.queue()
    queue.send([b"held", b"free"])
    with queue.receiving(0) as held:
        assert held.body == b"held"
        found = alpha.run("peek", queue.name, "--count", "5", "--timeout", "0", "--json")
    assert [each["body"] for each in found.objects] == ["free"]
    assert found.errors.startswith(f"postroad: not shown: 1 message of {queue.name} that others have locked; see ")


def test_one_message_by_its_lookup_id(alpha: Commands) -> None:
    queue = alpha.queue()
    queue.send([b"a", b"b", b"c"])
    wanted = list(queue.messages())[1].lookup_id
    assert alpha.done("peek", queue.name, "--lookup", str(wanted), "--json").objects[0]["body"] == "b"
    assert alpha.done("receive", queue.name, "--lookup", str(wanted), "--json").objects[0]["body"] == "b"
    assert bodies(queue) == [b"a", b"c"]
    assert alpha.run("receive", queue.name, "--lookup", str(wanted)).code == 1


def test_transactional_queues_are_read_with_and_without_a_transaction(alpha: Commands) -> None:
    queue, plain = alpha.queue(transactional=True), alpha.queue()
    queue.send([b"a", b"b", b"c"], transactional=True)
    assert len(alpha.done("receive", queue.name, "--json").objects) == 1
    taken = alpha.done("receive", queue.name, "--transactional", "--count", "2", "--json").objects
    assert [each["body"] for each in taken] == ["b", "c"]
    assert bodies(queue) == []
    plain.send(b"x")
    assert alpha.run("receive", plain.name, "--transactional", "--timeout", "0").code == 1
    assert bodies(plain) == [b"x"]


def test_what_cannot_be_printed_is_not_taken(alpha: Commands) -> None:
    queue = alpha.queue()
    queue.send(b"precious")
    if not FULL_DISK.exists():
        pytest.skip("this system has no disk that is always full")
    with FULL_DISK.open("wb") as full:
        outcome = postroad("receive", queue.name, "--timeout", "0", api=alpha.api, output=full)
    assert outcome.code == 1
    assert bodies(queue) == [b"precious"]


def test_browse_lists_everything_and_finds_what_matches(alpha: Commands) -> None:
    queue = alpha.queue()
    queue.send([client.Message(f"body {number}", label=f"order {number}") for number in range(30)])
    assert [line.split()[-1] for line in alpha.done("browse", queue.name).lines[1:]] == [str(n) for n in range(30)]
    found = alpha.done("browse", queue.name, "--where", 'label.endswith("7") or "9" in body', "--json").objects
    assert [each["label"] for each in found] == [f"order {number}" for number in (7, 9, 17, 19, 27, 29)]


def test_what_bodies_and_extensions_say(alpha: Commands, tmp_path: Path) -> None:
    queue = alpha.queue()
    headers = b'{"rbs2-msg-type": "Shop.Order, Shop", "rbs2-msg-id": "7"}'
    queue.send([client.Message(b'{"id": 1}', extension=headers), client.Message(b"\0\1")])
    first, second = alpha.done("peek", queue.name, "--count", "2", "--decode", "--json").objects
    assert (first["body_kind"], first["body_text"]) == ("json", '{\n  "id": 1\n}')
    assert first["headers"] == {"rbs2-msg-type": "Shop.Order, Shop", "rbs2-msg-id": "7"}
    assert (first["system"], first["message_type"]) == ("rebus", "Shop.Order")
    assert (second["body_kind"], second["body_text"]) == ("bytes", None)
    shown = alpha.done("peek", queue.name, "--decode").lines
    assert shown[1:] == [
        *("body: json", "system: rebus", "message_type: Shop.Order"),
        *("rbs2-msg-type: Shop.Order, Shop", "rbs2-msg-id: 7", "", "{", '  "id": 1', "}"),
    ]
    assert alpha.done("browse", queue.name, "--decode").lines[1].split()[-5:] == ["Shop.Order", "{", '"id":', "1", "}"]
    assert alpha.done("browse", queue.name, "--decode", "--json").objects[0]["system"] == "rebus"
    file = tmp_path / "decoded.jsonl"
    alpha.done("export", queue.name, str(file), "--decode")
    assert [json.loads(line)["body_kind"] for line in file.read_text().splitlines()] == ["json", "bytes"]
    refused = alpha.run("export", queue.name, str(file), "--decode", "--remove", "--force")
    assert refused.code == 2
    assert "--decode writes no packets" in refused.last_error
    assert alpha.run("peek", queue.name, "--decode", "--raw").code == 2
    received = alpha.done("receive", queue.name, "--decode", "--json").objects[0]
    assert received["message_type"] == "Shop.Order"


def test_what_headers_and_bodies_say_chooses_messages(alpha: Commands) -> None:
    queue, other = alpha.queue(), alpha.queue()
    for number, total in enumerate((5, 50, 500)):
        body = json.dumps({"order": {"total": total}})
        alpha.done("send", queue.name, "--body", body, "--header", f"shop-number={number}", "--label", str(total))

    def labels(expression: str) -> list[str]:
        return [each["label"] for each in alpha.done("browse", queue.name, "--json", "--where", expression).objects]

    assert labels("body.order.total > 5") == ["50", "500"]
    assert labels('headers["shop-number"] == 0 or headers["shop-number"] == "2"') == ["5", "500"]
    assert labels("message_type == null") == ["5", "50", "500"]
    alpha.done("move", queue.name, other.name, "--where", "body.order.total == 50")
    assert [each.label for each in other.messages()] == ["50"]
    wrong = alpha.run("browse", queue.name, "--where", "true and headers == 1")
    assert wrong.code == 2
    assert "--where: " in wrong.last_error
    assert "character 10: headers must have the name of one" in wrong.last_error


# Rescue


def test_move_what_matches(alpha: Commands) -> None:
    source, target = alpha.queue(), alpha.queue()
    source.send([client.Message(f"{number}", priority=number % 8, label="x") for number in range(16)])
    expression = 'label == "x" and priority > 5 and not body == "7"'
    rehearsal = alpha.done("move", source.name, target.name, "--where", expression, "--dry-run", "--json").objects
    assert [each["body"] for each in rehearsal] == ["15", "6", "14"]
    assert bodies(target) == []
    assert alpha.done("move", source.name, target.name, "--where", expression, "--json").objects == [{"moved": 3}]
    assert (bodies(target), len(bodies(source))) == ([b"15", b"6", b"14"], 13)
    wanted = target.peek(0).lookup_id
    alpha.done("move", target.name, source.name, "--lookup", str(wanted))
    assert (bodies(target), len(bodies(source))) == ([b"6", b"14"], 14)
    assert "moved 14 messages" in alpha.done("move", source.name, target.name, "--all").text
    assert (len(bodies(target)), bodies(source)) == (16, [])


def test_move_to_a_queue_that_is_not_there_moves_nothing(alpha: Commands) -> None:
    source = alpha.queue()
    source.send(b"x")
    assert alpha.run("move", source.name, r"private$\nowhere", "--all").code == 1
    assert bodies(source) == [b"x"]


@pytest.mark.parametrize("transactional", [False, True])
def test_export_and_import_are_byte_for_byte(alpha: Commands, tmp_path: Path, transactional: bool) -> None:
    source, target = alpha.queue(transactional), alpha.queue(transactional)
    messages = [client.Message(bytes([n]) * n * 50, label=f"n{n}", priority=n % 8) for n in range(40)]
    source.send(messages, transactional=transactional)
    packets = [message.packet for message in source.messages()]
    file = tmp_path / "queue.packets"
    assert alpha.done("export", source.name, str(file), "--json").objects == [{"exported": 40, "file": str(file)}]
    assert file.read_bytes() == b"".join(packets)
    assert len(bodies(source)) == 40
    alpha.done("import", target.name, str(file))
    assert [message.packet for message in target.messages()] == packets


def test_export_may_remove_and_import_may_read_a_pipe(alpha: Commands, tmp_path: Path) -> None:
    queue = alpha.queue()
    queue.send([b"a", b"b", b"c"])
    packets = [message.packet for message in queue.messages()]
    file = tmp_path / "packets"
    file.touch()
    exists = alpha.run("export", queue.name, str(file), "--remove")
    assert (exists.code, len(bodies(queue))) == (2, 3)
    assert "--force" in exists.last_error
    alpha.done("export", queue.name, str(file), "--remove", "--force")
    assert (file.read_bytes(), bodies(queue)) == (b"".join(packets), [])
    alpha.done("import", queue.name, "-", given=file.read_bytes())
    assert [message.packet for message in queue.messages()] == packets


@pytest.mark.parametrize(
    ("damage", "fault"),
    [
        (lambda data: data[:-1], "the last packet is cut off"),
        (lambda data: data + b"garbage, and more than a header", "at byte"),
    ],
    ids=["cut", "garbage"],
)
def test_nothing_of_a_damaged_file_is_imported(alpha: Commands, tmp_path: Path, damage: Damage, fault: str) -> None:
    source, target = alpha.queue(), alpha.queue()
    source.send([b"a", b"b"])
    (tmp_path / "damaged").write_bytes(damage(b"".join(message.packet for message in source.messages())))
    outcome = alpha.run("import", target.name, str(tmp_path / "damaged"))
    assert (outcome.code, outcome.output) == (1, b"")
    assert fault in outcome.last_error
    assert bodies(target) == []


def test_a_file_of_the_other_kind_is_refused(alpha: Commands, tmp_path: Path) -> None:
    source, target = alpha.queue(transactional=True), alpha.queue()
    source.send([b"a"], transactional=True)
    alpha.done("export", source.name, str(tmp_path / "packets"))
    outcome = alpha.run("import", target.name, str(tmp_path / "packets"))
    assert outcome.code == 1
    assert "is not transactional" in outcome.last_error
