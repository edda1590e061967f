"""`postroad remote` reads the queues of another computer. Both are processes of their own."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from postroad import Message, connect
from tests.commands import POSTROAD, Outcome, ServerProcess, postroad, serving

HOST = "127.0.70.10"
QUEUE = r"private$\orders"
CONFIG = rf"""
[manager]
name = "alpha"
[listen]
host = "{HOST}"
binary = false
ping = false
http = false
rpc = 0
api = 0
epm = 0
[rpc]
authenticate = {{authenticate}}
[[user]]
name = "reader"
password = "a secret"
[[queue]]
path = '{QUEUE}'
"""


def write(directory: Path, *, authenticate: bool = False) -> Path:
    file = directory / "alpha.toml"
    file.write_text(CONFIG.format(authenticate=str(authenticate).lower()), encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with serving(write(tmp_path_factory.mktemp("remote"))) as running:
        yield running


@pytest.fixture
def orders(server: ServerProcess) -> ServerProcess:
    """The server, with an empty queue."""
    with connect(server.api) as manager:
        manager.queue(QUEUE).purge()
    return server


def send(server: ServerProcess, *bodies: str) -> None:
    with connect(server.api) as manager:
        manager.queue(QUEUE).send([Message(body, label=body, recoverable=True) for body in bodies])


def remote(server: ServerProcess, verb: str, *options: str, queue: str = QUEUE) -> Outcome:
    return postroad("remote", verb, server.ready["listen"]["rpc"], queue, *options)


def labels(outcome: Outcome) -> list[str]:
    return [each["label"] for each in outcome.objects]


def left(server: ServerProcess) -> list[str]:
    with connect(server.api) as manager:
        return [message.label for message in manager.queue(QUEUE).messages()]


def test_the_ready_line_names_the_listeners(server: ServerProcess) -> None:
    listen = server.ready["listen"]
    assert set(listen) == {"rpc", "epm", "api"}
    assert all(address.startswith(f"{HOST}:") for address in listen.values())


def test_peek_leaves_the_messages(orders: ServerProcess) -> None:
    send(orders, "one", "two", "three")
    assert labels(remote(orders, "peek", "--json")) == ["one"]
    assert labels(remote(orders, "peek", "--json", "--count", "5")) == ["one", "two", "three"]
    assert left(orders) == ["one", "two", "three"]


def test_receive_takes_them(orders: ServerProcess) -> None:
    send(orders, "one", "two", "three")
    outcome = remote(orders, "receive", "--json")
    assert outcome.code == 0
    assert labels(outcome) == ["one"]
    shown = remote(orders, "receive", "--count", "5", "--timeout", "0.1")
    assert shown.code == 0
    assert "two" in shown.text
    assert "three" in shown.text
    assert left(orders) == []


def test_what_bodies_and_extensions_say(orders: ServerProcess) -> None:
    headers = b'{"rbs2-msg-type": "Shop.Order, Shop"}'
    with connect(orders.api) as manager:
        manager.queue(QUEUE).send([Message(b'{"id":1}', extension=headers), Message(b"\0\1")])
    first, second = remote(orders, "peek", "--count", "2", "--decode", "--json").objects
    assert (first["body_kind"], first["message_type"], first["system"]) == ("json", "Shop.Order", "rebus")
    assert (second["body_kind"], second["body_text"]) == ("bytes", None)
    assert remote(orders, "receive", "--decode", "--raw").code == 2
    shown = remote(orders, "receive", "--decode").lines
    assert shown[1:5] == ["body: json", "system: rebus", "message_type: Shop.Order", "rbs2-msg-type: Shop.Order, Shop"]
    assert "body_kind" not in remote(orders, "receive", "--json").objects[0]


def test_nothing_in_time_is_3_and_anything_else_1(orders: ServerProcess) -> None:
    assert remote(orders, "receive", "--timeout", "0.1").code == 3
    assert remote(orders, "peek", "--timeout", "0").code == 3
    missing = remote(orders, "receive", "--timeout", "0", queue=r"private$\nowhere")
    assert missing.code == 1
    assert "there is no such queue" in missing.last_error
    nobody = postroad("remote", "peek", "127.0.70.99:1", QUEUE)
    assert nobody.code == 1
    assert "127.0.70.99:1" in nobody.last_error
    assert remote(orders, "peek", "--place", "next").code == 2
    assert postroad("remote", "peek", f"{HOST}:none", QUEUE).code == 2
    assert remote(orders, "peek", "--user", "reader").code == 2


def test_a_first_contact_that_fails_says_what_host_has_to_be(server: ServerProcess) -> None:
    port = "HOST[:PORT] is the port of qmcomm, usually 2103"
    for place, fault in (
        (server.ready["listen"]["api"], "does not speak RPC"),
        (f"{HOST}:1", "cannot connect to"),
        ("nobody.invalid", "cannot be found"),
    ):
        run = postroad("remote", "peek", place, QUEUE, "--timeout", "0")
        assert (run.code, fault in run.last_error, run.last_error.endswith(port)) == (1, True, True), run.last_error
    url = postroad("remote", "peek", f"http://{HOST}:2103", QUEUE)
    assert (url.code, url.last_error) == (
        2,
        f"postroad: HOST: must be a name or address, such as 10.0.0.5:2103, got 'http://{HOST}:2103'",
    )


def test_a_user_where_there_are_none(tmp_path: Path) -> None:
    file = write(tmp_path)
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace('[[user]]\nname = "reader"\npassword = "a secret"\n', ""), encoding="utf-8")
    with serving(file) as server:
        run = remote(server, "peek", "--user", "reader", "--password", "a secret")
    assert run.code == 1
    assert "authentication type not recognized; a Postroad server accepts only users that [[user]]" in run.last_error


def test_messages_are_looked_up(orders: ServerProcess) -> None:
    send(orders, "one", "two", "three", "four")
    everything = remote(orders, "peek", "--json", "--count", "9").objects
    second = str(everything[1]["lookup_id"])
    assert labels(remote(orders, "peek", "--json", "--lookup", second)) == ["two"]
    assert labels(remote(orders, "peek", "--json", "--lookup", second, "--count", "9")) == ["two", "three", "four"]
    assert labels(remote(orders, "peek", "--json", "--lookup", second, "--place", "next")) == ["three"]
    assert labels(remote(orders, "peek", "--json", "--place", "last", "--count", "2")) == ["four", "three"]
    assert labels(remote(orders, "receive", "--json", "--lookup", second)) == ["two"]
    assert labels(remote(orders, "receive", "--json", "--place", "first")) == ["one"]
    assert remote(orders, "receive", "--lookup", second).code == 1
    assert left(orders) == ["three", "four"]


@pytest.mark.spec("RR-3.2.4.1-02")
@pytest.mark.parametrize("protocol", ["mqrr", "mqqp", "auto"])
def test_every_command_takes_a_protocol(orders: ServerProcess, protocol: str) -> None:
    send(orders, "one", "two")
    chosen = ("--protocol", protocol)
    assert labels(remote(orders, "peek", "--json", *chosen)) == ["one"]
    assert labels(remote(orders, "receive", "--json", *chosen)) == ["one"]
    assert remote(orders, "purge", *chosen).code == 0
    assert left(orders) == []
    assert remote(orders, "peek", "--protocol", "soap").code == 2


def test_purge(orders: ServerProcess) -> None:
    send(orders, "one", "two")
    assert remote(orders, "purge", "--json").objects == [
        {"purged": True, "queue": QUEUE, "host": orders.ready["listen"]["rpc"]}
    ]
    assert left(orders) == []


def test_ports_from_the_endpoint_mapper_and_from_a_configuration(orders: ServerProcess, tmp_path: Path) -> None:
    send(orders, "one")
    mapper = orders.ready["listen"]["epm"].rpartition(":")[2]
    assert labels(postroad("remote", "peek", HOST, QUEUE, "--endpoint-mapper", mapper, "--json")) == ["one"]
    port = orders.ready["listen"]["rpc"].rpartition(":")[2]
    file = tmp_path / "peers.toml"
    file.write_text(f'[manager]\nname = "beta"\n[peers]\n"{HOST}" = {{ rpc = {port} }}\n', encoding="utf-8")
    assert labels(postroad("remote", "peek", HOST, QUEUE, "-c", str(file), "--json")) == ["one"]


def test_readers_show_in_the_status(orders: ServerProcess) -> None:
    with subprocess.Popen(
        [*POSTROAD, "remote", "receive", orders.ready["listen"]["rpc"], QUEUE, "--timeout", "inf"],
        stdout=subprocess.DEVNULL,
    ) as reader:
        try:
            for _ in range(100):
                status = json.loads(postroad("status", "--json", api=orders.api).output)
                if any(each["waiting"] for each in status["readers"]):
                    break
            (shown,) = status["readers"]
            assert (shown["queue"], shown["access"], shown["user"]) == (QUEUE, "receive", None)
            assert "remote reader" in postroad("status", api=orders.api).text
        finally:
            reader.send_signal(signal.SIGKILL)
    send(orders, "one")
    assert left(orders) == ["one"]  # the reader that was killed took nothing


def test_only_users_may_read_where_that_is_asked_for(tmp_path: Path) -> None:
    with serving(write(tmp_path, authenticate=True)) as hardened:
        send(hardened, "one")
        refused = remote(hardened, "peek", "--timeout", "0")
        assert refused.code == 1
        assert "denies" in refused.last_error
        wrong = remote(hardened, "peek", "--user", "reader", "--password", "a guess")
        assert wrong.code == 1
        allowed = remote(hardened, "receive", "--json", "--user", "reader", "--password", "a secret")
        assert labels(allowed) == ["one"]
        code, _ = hardened.end()
        assert code == 0


def test_what_was_received_stays_received_after_a_kill(tmp_path: Path) -> None:
    config = write(tmp_path)
    with serving(config) as first:
        send(first, "one", "two", "three")
        assert labels(remote(first, "receive", "--json")) == ["one"]
        first.end(signal.SIGKILL)
    with serving(config) as second:
        assert left(second) == ["two", "three"]
