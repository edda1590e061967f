"""Queues whose names have spaces and any Unicode, through every door of two real managers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import quote, urlencode
from urllib.request import urlopen

import pytest

import postroad as client
from postroad.errors import IllegalPathName
from tests.commands import PATIENCE_S, ServerProcess, postroad

NAMES = [
    "two words",
    " both ends ",
    "Größe œuvre",
    "заказы на сегодня",
    "注文 キュー",
    "طلبات",
    "می‌خواهم",  # with a joiner that belongs to the word
    "📦 parcels 👩‍👩‍👧",
    "50% off",
    "a%20b",
    "what? #1 [x] {y} <z> & 'q' = 1|2^3`~",
    "slash/inside",
    "gpj.\u202eexe",  # turns the order of what follows
    "ord\u200bers",
    "é",
    "e\u0301",  # looks the same, and is another queue
    "İstanbul ẞ ΟΔΟΣ",
    "\u4100", "\u6100",  # their octets are the letters A and a
    "\x7f",
    "x" * 124,
    "🂡" * 62,  # 124 units of UTF-16
]  # fmt: skip
CONFIGURATION = """
[manager]
name = "{name}"
data = "data/{name}"
[listen]
host = "{address}"
binary = 18065
ping = false
http = 18066
rpc = 18067
epm = false
api = 0
console = 0
[peers]
"127.0.65.11" = {{ binary = 18065, rpc = 18067 }}
"127.0.65.12" = {{ binary = 18065, rpc = 18067 }}
"""
ALPHA, BETA = "127.0.65.11", "127.0.65.12"


@pytest.fixture(scope="module")
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("names")


def start(folder: Path, stack: ExitStack, name: str, address: str) -> ServerProcess:
    file = folder / f"{name}.toml"
    file.write_text(CONFIGURATION.format(name=name, address=address), encoding="utf-8")
    server = ServerProcess(file)
    stack.callback(server.close)
    return server


@pytest.fixture(scope="module")
def alpha(folder: Path, stack: ExitStack) -> ServerProcess:
    return start(folder, stack, "alpha", ALPHA)


@pytest.fixture(scope="module")
def beta(folder: Path, stack: ExitStack) -> ServerProcess:
    server = start(folder, stack, "beta", BETA)
    with client.connect(server.api) as manager:
        for name in NAMES:
            manager.create_queue(f"private$\\{name}")
            manager.create_queue(f"private$\\{name[:60]}.t", transactional=True)
    return server


def paths_of(server: ServerProcess) -> set[str]:
    with client.connect(server.api) as manager:
        return {each.path for each in manager.queues()}


def labels(beta: ServerProcess, path: str, count: int) -> list[str]:
    found: list[str] = []
    with client.connect(beta.api) as manager:
        while len(found) < count:
            found += [each.label for each in manager.queue(path).receive_many(100, timeout=PATIENCE_S)]
    return found


def test_messages_arrive_by_each_protocol(alpha: ServerProcess, beta: ServerProcess) -> None:
    with client.connect(alpha.api) as manager:
        for number, name in enumerate(NAMES):
            manager.send(f"DIRECT=TCP:{BETA}\\private$\\{name}", client.Message(label=f"tcp {number}"))
            url = f"HTTP://{BETA}:18066/msmq/private$/"
            written = name.replace("%", "%25").replace("?", "%3f")  # what means something else in a URL
            manager.send(f"DIRECT={url}{written}", client.Message(label=f"http {number}"))
            manager.send(f"DIRECT={url}{quote(name, safe='')}", client.Message(label=f"escaped {number}"))
    for number, name in enumerate(NAMES):
        expected = {f"tcp {number}", f"http {number}", f"escaped {number}"}
        assert set(labels(beta, f"private$\\{name}", 3)) == expected


def test_streams_to_names_that_differ_in_one_bit_stay_apart(alpha: ServerProcess, beta: ServerProcess) -> None:
    queues = [f"{name[:60]}.t" for name in NAMES]
    with client.connect(alpha.api) as manager:
        for round_number in range(3):
            for name in queues:
                with manager.transaction() as transaction:
                    manager.send(
                        f"DIRECT=TCP:{BETA}\\private$\\{name}", client.Message(label=f"{round_number}"), transaction
                    )
    for name in queues:
        assert labels(beta, f"private$\\{name}", 3) == ["0", "1", "2"]


def test_answers_find_a_response_queue_with_any_name(alpha: ServerProcess, beta: ServerProcess) -> None:
    with client.connect(alpha.api) as here, client.connect(beta.api) as there:
        there.create_queue(r"private$\asked")
        for name in NAMES:
            here.create_queue(f"private$\\{name}")
            for way in (f"TCP:{BETA}\\private$\\asked", f"HTTP://{BETA}:18066/msmq/private$/asked"):
                here.send(f"DIRECT={way}", client.Message(response_queue=f"private$\\{name}"))
                asked = there.queue(r"private$\asked").receive(timeout=PATIENCE_S)
                assert asked.response_queue is not None
                there.send(asked.response_queue, client.Message(label=name[:50]))
                assert here.queue(f"private$\\{name}").receive(timeout=PATIENCE_S).label == name[:50]


def test_remote_readers_and_commands_take_the_name(alpha: ServerProcess, beta: ServerProcess) -> None:
    with client.remote(BETA, port=18067) as manager:
        for name in NAMES:
            with client.connect(beta.api) as local:
                local.send(f"private$\\{name}", client.Message(label="read me"))
            assert manager.queue(f"private$\\{name}").receive(timeout=PATIENCE_S).label == "read me"


@pytest.mark.parametrize("name", ["two words", "注文 キュー", "gpj.\u202eexe", "what? #1 [x] {y} <z> & 'q' = 1|2^3`~"])
def test_commands(beta: ServerProcess, name: str) -> None:
    path = f"private$\\{name}"
    assert postroad("send", path, "--body", "x", "--label", "by command", api=beta.api).code == 0
    shown = postroad("queue", "show", path, "--json", api=beta.api)
    assert (shown.objects[0]["path"], shown.objects[0]["messages"]) == (path, 1)
    assert postroad("receive", path, "--json", api=beta.api).objects[0]["label"] == "by command"
    listed = postroad("queue", "list", api=beta.api).text
    assert "\u202e" not in listed
    assert "\u200b" not in listed
    assert name in listed or r"gpj.\u202eexe" in listed


def test_pages_show_what_nobody_would_see_and_link_to_the_queue(beta: ServerProcess) -> None:
    base = f"http://{beta.ready['listen']['console']}"
    for name in NAMES:
        given = urlencode({"name": f"private$\\{name}"})
        with urlopen(f"{base}/0/queue?{given}", timeout=PATIENCE_S) as answer:
            page = answer.read().decode()
        assert "\u202e" not in page.partition("<h1")[2].partition("</h1>")[0]
        assert f"/0/messages?{given}" in page
    with urlopen(f"{base}/0/queues", timeout=PATIENCE_S) as answer:
        page = answer.read().decode()
    assert r"gpj.\u202eexe" in page
    assert r"ord\u200bers" in page
    assert "می‌خواهم" in page  # the joiner belongs to the word
    assert "&lt;z&gt; &amp;" in page


def test_metrics_and_the_log_keep_to_their_lines(beta: ServerProcess) -> None:
    with urlopen(f"{beta.api}/metrics", timeout=PATIENCE_S) as answer:
        lines = answer.read().decode().splitlines()
    for name in NAMES:
        label = f'queue="private$\\\\{name}"'
        assert any(label in line for line in lines)
    assert all(line.startswith(("#", "postroad_", "process_", "python_")) for line in lines if line)
    for line in beta.log.splitlines():
        assert line.startswith(("20", "  ")), line  # an event, or a row of its table
        assert line.isascii()


def test_definitions_backup_and_a_restart_keep_the_names(folder: Path, beta: ServerProcess) -> None:
    assert postroad("definitions", "export", str(folder / "defs.toml"), api=beta.api).code == 0
    other = folder / "gamma.toml"
    other.write_text(
        '[manager]\nname = "gamma"\ndata = "data/gamma"\n[listen]\n'
        "binary = false\nping = false\nrpc = false\nepm = false\napi = 0\n"
    )
    kept = folder / "kept"
    assert postroad("backup", str(kept), api=beta.api).code == 0
    with ExitStack() as stack:
        gamma = ServerProcess(other)
        stack.callback(gamma.close)
        outcome = postroad("definitions", "import", str(folder / "defs.toml"), api=gamma.api)
        assert outcome.code == 0, outcome.errors
        paths = paths_of(gamma)
        assert {f"private$\\{name}" for name in NAMES} <= paths
        gamma.end()
        gamma = ServerProcess(other)
        stack.callback(gamma.close)
        assert paths_of(gamma) == paths
    assert postroad("restore", str(kept), "--data", str(folder / "restored")).code == 0


def test_names_that_no_queue_can_have(beta: ServerProcess) -> None:
    with client.connect(beta.api) as manager:
        for name in ("a\nb", "a\rb", "a\tb", "a\0b", "a\x85b", "a\ud800b", 'a"b', "a+b", "a,b", "x" * 125, "🂡" * 63):
            with pytest.raises(IllegalPathName, match="a queue name"):
                manager.create_queue(f"private$\\{name}")
    for segment in ("%FF", "%C3", "a%00b", "a%0Ab"):
        with pytest.raises(HTTPError, match="400"):
            urlopen(f"{beta.api}/api/v1/queues/private$/{segment}", timeout=PATIENCE_S)
