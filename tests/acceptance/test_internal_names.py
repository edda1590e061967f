"""Users' queues with names like those of the manager's own queues. Nothing confuses them."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pytest

from postroad import Message, QueueManager, connect
from postroad.errors import AccessDenied, QueueExists
from tests.commands import Outcome, ServerProcess, postroad, serving

MINE = (r"private$\my_queue$", r"alpha\order_queue$", r"private$\queue$")
INTERNAL = r"private$\order_queue$"
CONFIG = """
[manager]
name = "{name}"
data = "{name}"
[listen]
host = "127.0.70.20"
binary = false
ping = false
http = false
rpc = 0
api = 0
"""
ARROW = "application/vnd.apache.arrow.stream"


def start(directory: Path, name: str) -> Any:
    file = directory / f"{name}.toml"
    file.write_text(CONFIG.format(name=name), encoding="utf-8")
    return serving(file)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with start(tmp_path_factory.mktemp("alpha"), "alpha") as running:
        yield running


@pytest.fixture
def manager(server: ServerProcess) -> Iterator[QueueManager]:
    """A server with only these queues. Each of them has one message."""
    with connect(server.api) as manager:
        for path in MINE:
            if path in [each.path for each in manager.queues()]:
                manager.queue(path).delete()
            manager.create_queue(path, journal=True).send(Message(path, label="one", recoverable=True))
        yield manager


def answer(server: ServerProcess, path: str, accept: str = "application/json") -> tuple[int, bytes]:
    """The whole answer to a GET. An answer that breaks off raises an error."""
    asked = urllib.request.Request(f"{server.api}/api/v1{path}", headers={"Accept": accept})
    try:
        with urllib.request.urlopen(asked, timeout=20) as reply:
            return reply.status, reply.read()
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, refused.read()


def run(server: ServerProcess, *arguments: str) -> Outcome:
    return postroad(*arguments, api=server.api)


@pytest.mark.parametrize("path", MINE)
def test_a_users_queue_is_like_any_other(manager: QueueManager, path: str) -> None:
    queue = manager.queue(path)
    assert (queue.info().path, queue.info().is_internal) == (path, False)
    assert queue.peek(0).label == "one"
    assert [each.label for each in queue.messages()] == ["one"]
    end = queue.mark().arrival
    assert queue.hold("pipeline", 0, end).messages == 1
    queue.release("pipeline")
    assert queue.submit(["again"], "sender", 1, 0).sent == 1
    assert queue.change(label="mine").label == "mine"
    assert [each.body for each in queue.receive_many(2, 0)] == [path.encode(), b"again"]
    assert next(each.label for each in manager.queue(f"{path};journal").messages()) == "one"


@pytest.mark.parametrize("path", MINE)
def test_a_range_of_a_users_queue_is_answered_to_its_end(
    server: ServerProcess, manager: QueueManager, path: str
) -> None:
    url = f"/queues/{quote(path, safe='')}/messages?from=0"
    status, body = answer(server, url)
    assert (status, [each["label"] for each in json.loads(body)["messages"]]) == (200, ["one"])
    status, body = answer(server, url, ARROW)
    assert status == 200
    with pa.ipc.open_stream(body) as reader:
        assert reader.read_all()["label"].to_pylist() == ["one"]


def test_what_is_the_managers_own_is_refused_whole_and_at_once(server: ServerProcess, manager: QueueManager) -> None:
    queue = manager.queue(INTERNAL)
    with pytest.raises(QueueExists):
        manager.create_queue(INTERNAL)
    for use in (
        lambda: queue.send("x"),
        lambda: queue.peek(0),
        lambda: queue.receive(0),
        lambda: queue.mark(),
        lambda: list(queue.arrow()),
        lambda: queue.hold("pipeline", 0, 1),
        lambda: queue.submit(["x"], "sender", 1, 0),
        lambda: queue.delete(),
    ):
        with pytest.raises(AccessDenied):
            use()
    for accept in ("application/json", ARROW):
        status, body = answer(server, f"/queues/{quote(INTERNAL, safe='')}/messages?from=0", accept)
        assert (status, json.loads(body)["error"]) == (403, "AccessDenied")
    assert queue.info().is_internal


def test_commands_list_export_and_send_again(server: ServerProcess, manager: QueueManager, tmp_path: Path) -> None:
    listed = [each["path"] for each in run(server, "queue", "list", "--json").objects]
    assert set(MINE) <= set(listed)
    assert INTERNAL not in [line.split()[0] for line in run(server, "queue", "list").lines if line]
    assert manager.info().queues == len(MINE)
    for number, path in enumerate(MINE):
        file = str(tmp_path / f"{number}.packets")
        assert run(server, "export", path, file, "--keep").code == 0
        assert run(server, "import", path, file).code == 0
        assert [each.label for each in manager.queue(path).messages()] == ["one", "one"]
        manager.queue(path).receive(0)
        assert run(server, "resend", f"{path};journal", "--all").code == 0
        assert len(list(manager.queue(path).messages())) == 2


def test_definitions_have_what_a_user_made_and_nothing_else(
    server: ServerProcess, manager: QueueManager, tmp_path: Path
) -> None:
    file = str(tmp_path / "definitions.toml")
    assert run(server, "definitions", "export", file).code == 0
    text = Path(file).read_text()
    assert text.count("[[queue]]") == len(MINE)
    with start(tmp_path, "beta") as beta:
        assert run(beta, "queue", "create", r"beta\order_queue$").code == 0  # no directory makes the public one
        assert run(beta, "definitions", "import", file).code == 0
        with connect(beta.api) as other:
            made = {each.path for each in other.queues() if each.type in ("private", "public") and not each.is_internal}
    assert made == {path.replace("alpha", "beta") for path in MINE}


def test_remote_read(server: ServerProcess, manager: QueueManager) -> None:
    host = server.ready["listen"]["rpc"]
    for path in (r"private$\my_queue$", r".\order_queue$"):
        for verb in ("peek", "receive"):
            read = postroad("remote", verb, host, path, "--json", "--timeout", "0")
            assert [each["label"] for each in read.objects] == ["one"], read.errors
    refused = postroad("remote", "peek", host, INTERNAL, "--timeout", "0")
    assert (refused.code, "denies" in refused.last_error) == (1, True)
