"""Several `postroad serve` on one database: one is active, the others stand by and take over."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.clusters import Cluster, Clusters, free_port, new_schema

LEASE_S = 2
PATIENCE_S = 60
QUEUE = "/api/v1/queues/private$/orders"


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    text: str
    headers: dict[str, str]

    @property
    def json(self) -> Any:
        return json.loads(self.text)


class Process:
    """One `postroad serve`. Each has an API of its own; all share the address of the binary protocol."""

    def __init__(self, directory: Path, name: str, url: str, schema: str, more: str = "") -> None:
        self.api, self.schema = free_port(), schema
        file = directory / f"{name}.toml"
        file.write_text(f"""
[manager]
name = "alpha"
data = "{name}"
[store]
url = "{url}"
schema = "{schema}"
lease_s = {LEASE_S}
{more}
[listen]
api = {self.api}
binary = {_shared_port(directory)}
ping = false
http = false
rpc = false
epm = false
console = false
[[queue]]
path = 'private$\\orders'
""")
        self.log = directory / f"{name}.log"
        with self.log.open("ab") as log:
            command = [sys.executable, "-m", "postroad", "serve", "-c", str(file)]
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log)

    def line(self) -> dict[str, Any]:
        """The next line that it prints."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.log.read_text()
        found: dict[str, Any] = json.loads(line)
        return found

    def call(self, path: str, value: object = None, timeout: float = PATIENCE_S) -> Answer:
        request = urllib.request.Request(f"http://127.0.0.1:{self.api}{path}")
        if value is not None:
            request.data = json.dumps(value).encode()
            request.add_header("content-type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                return Answer(answer.status, answer.read().decode(), {})
        except urllib.error.HTTPError as refused:
            with refused:
                return Answer(
                    refused.code,
                    refused.read().decode(),
                    {name.lower(): value for name, value in refused.headers.items()},
                )

    def send(self, *bodies: str) -> int:
        messages = [{"body": body, "recoverable": True} for body in bodies]
        return self.call(f"{QUEUE}/messages", {"messages": messages}).status

    def bodies(self) -> list[str]:
        return [each["body"] for each in self.call(f"{QUEUE}/messages").json["messages"]]

    @property
    def store(self) -> dict[str, Any]:
        found: dict[str, Any] = self.call("/api/v1/manager").json["store"]
        return found

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "postroad", "--api", f"http://127.0.0.1:{self.api}", *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)

    def end(self) -> None:
        self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


Start = Callable[..., Process]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    schema = new_schema()
    started: list[Process] = []

    def begin(cluster: Cluster, name: str, more: str = "") -> Process:
        started.append(Process(tmp_path, name, cluster.url, schema, more))
        return started[-1]

    yield begin
    for each in started:
        each.end()


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_standby_says_who_is_active_and_serves_nothing_else(cluster: Cluster, start: Start) -> None:
    active = start(cluster, "a")
    ready = active.line()
    assert ready["ready"]
    standby = start(cluster, "b")
    line = standby.line()
    assert (line["standby"], line["name"]) == (True, "alpha")
    assert line["active"].endswith(f":{active.process.pid}")
    until(lambda: standby.call("/healthz").status == 200)
    answer = standby.call("/readyz")
    assert (answer.status, line["active"] in answer.text) == (503, True)
    answer = standby.call(QUEUE)
    assert (answer.status, line["active"] in answer.json["detail"]) == (503, True)
    assert "postroad_active 0.0" in standby.call("/metrics").text
    assert "postroad_active 1.0" in active.call("/metrics").text
    assert json.loads(standby.command("status", "--json").stdout)["store"]["role"] == "standby"
    until(lambda: active.store["standbys"] != [])
    store = json.loads(active.command("status", "--json").stdout)["store"]
    assert (store["kind"], store["role"], store["epoch"], store["synchronous"]) == ("postgresql", "active", 1, False)
    assert store["standbys"][0].endswith(f":{standby.process.pid}")


def test_a_standby_takes_over_after_a_kill_with_everything(cluster: Cluster, start: Start) -> None:
    active = start(cluster, "a")
    identifier = active.line()["id"]
    keys = active.command("keys", "show", "--json").stdout
    standby = start(cluster, "b")
    assert standby.line()["standby"]
    assert active.send("one", "two") == 201
    active.process.kill()
    assert standby.line()["id"] == identifier
    assert standby.bodies() == ["one", "two"]
    assert standby.command("keys", "show", "--json").stdout == keys
    assert standby.store["epoch"] == 2


def test_sigterm_hands_over_and_exits_0(cluster: Cluster, start: Start) -> None:
    active = start(cluster, "a")
    active.line()
    standby = start(cluster, "b")
    standby.line()
    assert active.send("one") == 201
    active.process.terminate()
    assert active.process.wait(PATIENCE_S) == 0
    assert standby.line()["ready"]
    assert standby.bodies() == ["one"]


def test_failover_changes_the_roles(cluster: Cluster, start: Start) -> None:
    first = start(cluster, "a")
    first.line()
    alone = first.command("failover")
    assert (alone.returncode, "no other process stands by" in alone.stderr) == (1, True)
    assert first.send("one") == 201
    second = start(cluster, "b")
    second.line()
    until(lambda: first.store["standbys"] != [])
    done = first.command("failover")
    assert done.returncode == 0, done.stderr
    assert second.line()["ready"]
    assert first.line()["active"].endswith(f":{second.process.pid}")
    assert second.bodies() == ["one"]
    assert first.store["role"] == "standby"


def test_a_handover_looks_for_a_standby_that_has_just_come(cluster: Cluster, start: Start) -> None:
    active = start(cluster, "a")
    active.line()
    cluster.execute(f"INSERT INTO {active.schema}.standby VALUES (gen_random_uuid(), 'other:1', clock_timestamp())")
    assert active.call("/api/v1/manager/failover", {}).status == 202


def test_a_paused_active_answers_nothing_after_it_was_deposed(cluster: Cluster, start: Start) -> None:
    paused = start(cluster, "a")
    paused.line()
    standby = start(cluster, "b")
    standby.line()
    paused.process.send_signal(signal.SIGSTOP)
    until(lambda: _status(standby, "/readyz") == 200)  # it waits for the port of the binary protocol
    with pytest.raises(OSError, match="timed out"):
        paused.call(f"{QUEUE}/messages", {"messages": [{"body": "lost", "recoverable": True}]}, timeout=0.5)
    paused.process.send_signal(signal.SIGCONT)
    assert paused.process.wait(PATIENCE_S) == 4
    assert f":{standby.process.pid} has taken over" in paused.log.read_text().splitlines()[-1]
    assert standby.line()["ready"]
    assert standby.bodies() == []


def test_a_database_that_is_away_delays_and_loses_nothing(new_cluster: Clusters, start: Start) -> None:
    cluster = new_cluster()
    active = start(cluster, "a")
    active.line()
    assert active.send("one") == 201
    cluster.stop("immediate")
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(active.send, "two")  # it has no time-out
        until(lambda: active.call("/readyz").status == 503)
        answer = active.call(f"{QUEUE}/receive?timeout=0.2", {})
        assert (answer.status, answer.headers["retry-after"]) == (503, "2")
        assert not waiting.done()
        cluster.start()
        assert waiting.result() == 201
    until(lambda: active.call("/readyz").status == 200)
    assert active.bodies() == ["one", "two"]
    assert active.process.poll() is None


def test_a_database_that_hangs_does_not_hold_up_the_process(new_cluster: Clusters, start: Start) -> None:
    cluster = new_cluster()
    active = start(cluster, "a")
    active.line()
    assert active.send("one") == 201
    cluster.pause()
    try:
        until(lambda: active.call("/readyz").status == 503)
        end = time.monotonic() + PATIENCE_S
        for _ in range(20):
            assert active.call("/healthz").status == 200
        assert time.monotonic() < end
    finally:
        cluster.resume()
    assert active.send("two") == 201
    assert active.bodies() == ["one", "two"]


def test_a_start_waits_for_a_database_that_is_away(new_cluster: Clusters, start: Start) -> None:
    cluster = new_cluster()
    cluster.stop()
    waiting = start(cluster, "a")
    until(lambda: _status(waiting, "/readyz") == 503)
    assert "cannot reach the database" in waiting.call("/readyz").text
    cluster.start()
    assert waiting.line()["ready"]


def test_private_keys_can_be_encrypted_in_the_database(cluster: Cluster, start: Start, tmp_path: Path) -> None:
    key = tmp_path / "store.key"
    key.write_text("a secret\n")
    more = f'key_file = "{key}"'
    first = start(cluster, "a", more)
    first.line()
    keys = first.command("keys", "show", "--json").stdout
    first.process.terminate()
    first.process.wait(PATIENCE_S)
    without = start(cluster, "b")
    assert without.process.wait(PATIENCE_S) == 2
    assert "store.key_file: is missing" in without.log.read_text().splitlines()[-1]
    again = start(cluster, "c", more)
    again.line()
    assert again.command("keys", "show", "--json").stdout == keys


def test_the_console_and_status_name_the_role_and_the_epoch(cluster: Cluster, start: Start) -> None:
    pytest.importorskip("jinja2")
    active = start(cluster, "a")
    active.line()
    standby = start(cluster, "b")
    standby.line()
    until(lambda: active.store["standbys"] != [])
    lines = active.command("status").stdout.splitlines()
    assert any(line.startswith("store: PostgreSQL") and "active, epoch 1" in line for line in lines)
    until(lambda: _status(standby, "/readyz") == 503)
    said = standby.command("status").stdout
    assert f":{active.process.pid} is active, epoch 1" in said
    port = free_port()
    command = [sys.executable, "-m", "postroad", "console", "--port", str(port)]
    for each in (active, standby):
        command += ["--api", f"http://127.0.0.1:{each.api}"]
    console = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        page = ""

        def shows(words: str) -> bool:
            nonlocal page
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=PATIENCE_S) as answer:
                    page = answer.read().decode()
            except OSError:
                return False
            return words in page

        until(lambda: shows("This process stands by; "))
        assert "Store in PostgreSQL: active, epoch 1; " in page
    finally:
        console.kill()
        console.wait()


def test_a_standby_serves_with_the_configuration_that_it_read_last(cluster: Cluster, start: Start) -> None:
    """The one of a SIGHUP while it stood by, and after a handover the one of a SIGHUP while it was active."""
    first = start(cluster, "a")
    first.line()
    second = start(cluster, "b")
    second.line()
    until(lambda: first.store["standbys"] != [])

    def reload(process: Process, queue: str) -> None:
        file = process.log.with_suffix(".toml")
        before, read = file.read_text(), process.log.read_text().count("configuration read again")
        file.write_text(f"{before}[[queue]]\npath = 'private$\\{queue}'\n")
        process.process.send_signal(signal.SIGHUP)
        until(lambda: process.log.read_text().count("configuration read again") > read)
        file.write_text(before)  # nothing but the signal makes it read the file

    reload(first, "while-active")
    reload(second, "while-standby")
    assert first.command("failover").returncode == 0
    assert second.line()["ready"]
    assert second.call("/api/v1/queues/private$/while-standby").status == 200
    assert second.call("/api/v1/queues/private$/while-active").status == 200
    assert second.command("queue", "delete", r"private$\while-active").returncode == 0
    until(lambda: second.store["standbys"] != [])
    assert first.line()["standby"]
    assert second.command("failover").returncode == 0
    assert first.line()["ready"]
    assert first.call("/api/v1/queues/private$/while-active").status == 200


def test_a_standby_refuses_a_faulty_configuration(cluster: Cluster, start: Start) -> None:
    active = start(cluster, "a")
    active.line()
    standby = start(cluster, "b")
    standby.line()
    file = standby.log.with_suffix(".toml")
    file.write_text(file.read_text() + "[log]\nlevel = 'loud'\n")
    standby.process.send_signal(signal.SIGHUP)
    until(lambda: "configuration not taken" in standby.log.read_text())
    active.process.terminate()
    assert standby.line()["ready"]


@pytest.mark.parametrize("options", [(), ("--check",)], ids=["start", "check"])
@pytest.mark.parametrize(
    ("user", "owner", "sentence"),
    [
        ("postroad_may:wrong", "postroad_may", "the server refuses the login"),
        ("postroad_may", "postroad_may", "the server refuses the login"),
        ("postroad_may:right word", "postroad_may", "the URL of the database must be"),
        ("postroad_may:right", None, "user postroad_may: rights are missing"),
        ("postroad_may:right", "postgres", "user postroad_may: rights are missing"),
    ],
    ids=["wrong password", "no password", "unreadable URL", "may not create the schema", "does not own the schema"],
)
def test_a_login_or_right_that_does_not_suffice_is_named_at_once(
    cluster: Cluster, tmp_path: Path, options: tuple[str, ...], user: str, owner: str | None, sentence: str
) -> None:
    if not cluster.execute("SELECT 1 FROM pg_roles WHERE rolname = 'postroad_may'"):
        cluster.execute("CREATE ROLE postroad_may LOGIN PASSWORD 'right'")
    schema = new_schema()
    if owner is not None:
        cluster.execute(f"CREATE SCHEMA {schema} AUTHORIZATION {owner}")
        cluster.execute(f"GRANT USAGE ON SCHEMA {schema} TO postroad_may")
    url = f"postgresql://{user}@127.0.0.1:{cluster.port}/postgres"
    file = tmp_path / "a.toml"
    file.write_text(f"""
[manager]
name = "alpha"
data = "a"
[store]
url = "{url}"
schema = "{schema}"
[listen]
api = 0
binary = false
ping = false
http = false
rpc = false
epm = false
console = false
""")
    command = [sys.executable, "-m", "postroad", "serve", "-c", str(file), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    last = done.stderr.splitlines()[-1]
    assert (done.returncode, sentence in last, "store.url" in last) == (2, True, True), done.stderr
    assert "right word" not in done.stderr


def _status(process: Process, path: str) -> int:
    try:
        return process.call(path).status
    except OSError:
        return 0


def _shared_port(directory: Path) -> int:
    """The port that all processes of a test share."""
    file = directory / "port"
    if not file.exists():
        file.write_text(str(free_port()))
    return int(file.read_text())
