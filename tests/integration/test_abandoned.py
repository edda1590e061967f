"""What a client leaves behind when it dies, and what it keeps while it lives, with real managers and clients."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from urllib.request import urlopen

import pytest

import postroad
from postroad.errors import LeaseEnded, NoMessage, TransactionSequence
from tests.commands import PATIENCE_S, ServerProcess, serving

QUEUE = r"private$\orders"
OTHER = r"private$\other"
LEASE_S = 1
CONFIG = f"""
[manager]
name = "alpha"
[listen]
binary = 0
ping = 0
http = false
rpc = false
api = 0
[leases]
receive_s = {LEASE_S}
transaction_s = {LEASE_S}
[[queue]]
path = 'private$\\orders'
transactional = true
[[queue]]
path = 'private$\\other'
transactional = true
"""
# Programs of clients. Each says when it has what it wants, and waits for a line if the test has to act.
PREFACE = f"""
import asyncio, sys, time
import postroad
from postroad import aio
from postroad.errors import PostroadError
api, QUEUE, OTHER = sys.argv[1], {QUEUE!r}, {OTHER!r}
def say(word): print(word, flush=True)
"""
HOLD_A_MESSAGE = """
manager = postroad.connect(api)
try:
    with manager.queue(QUEUE).receiving(timeout=10) as message:
        say("holds " + message.label)
        sys.stdin.readline()
    say("done")
except PostroadError as error:
    say(f"{type(error).__name__}: {error}")
"""
HOLD_A_TRANSACTION = """
manager = postroad.connect(api)
try:
    with manager.transaction() as tx:
        message = manager.queue(QUEUE).receive(10, tx)
        manager.queue(OTHER).send("sent", tx)
        say("holds " + message.label)
        sys.stdin.readline()
    say("done")
except PostroadError as error:
    say(f"{type(error).__name__}: {error}")
"""
BLOCK_THE_LOOP = """
async def main():
    async with aio.connect(api) as manager, manager.queue(QUEUE).receiving(timeout=10) as message:
        say("holds " + message.label)
        sys.stdin.readline()  # nothing else runs on this loop
    say("done")
asyncio.run(main())
"""
HOLD_SEVERAL = """
manager = postroad.connect(api)
with manager.queue(QUEUE).receiving_many(5, timeout=10) as messages:
    say("holds " + messages[0].label)
    sys.stdin.readline()
say("done")
"""
CONSUME = """
manager = postroad.connect(api)
for message in manager.queue(QUEUE).consume(timeout=10):
    say("holds " + message.label)
    sys.stdin.readline()
    break
say("done")
"""
PROGRAMS = {
    "receiving": HOLD_A_MESSAGE,
    "receiving_many": HOLD_SEVERAL,
    "consume": CONSUME,
    "transaction": HOLD_A_TRANSACTION,
    "blocked loop": BLOCK_THE_LOOP,
}


class Client:
    """A client program of the manager, in a process of its own."""

    def __init__(self, api: str, program: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PREFACE + program, api], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def hear(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def go_on(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.process.pid, number)


class Running:
    def __init__(self, server: ServerProcess, manager: postroad.QueueManager) -> None:
        self.server = server
        self.manager = manager
        self.queue = manager.queue(QUEUE)
        self.other = manager.queue(OTHER)

    def metric(self, name: str) -> float:
        with urlopen(f"{self.server.api}/metrics", timeout=PATIENCE_S) as answer:
            lines = answer.read().decode().splitlines()
        return float(next(line.split()[1] for line in lines if line.startswith(f"{name} ")))

    @contextmanager
    def client(self, program: str) -> Iterator[Client]:
        client = Client(self.server.api, program)
        try:
            yield client
        finally:
            client.process.kill()
            client.process.communicate()


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    file = tmp_path / "alpha.toml"
    file.write_text(CONFIG, encoding="utf-8")
    with serving(file) as server, postroad.connect(server.api) as manager:
        yield Running(server, manager)


def eventually(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def let_leases_run_out() -> None:
    time.sleep(5 * LEASE_S)


@pytest.mark.parametrize("what", ["receiving", "transaction"])
def test_what_a_killed_client_held_is_another_ones(running: Running, what: str) -> None:
    running.queue.send(postroad.Message("1", label="first"), transactional=True)
    with running.client(PROGRAMS[what]) as client:
        assert client.hear() == "holds first"
        client.signal(signal.SIGKILL)
        eventually(lambda: running.queue.info().locked == 0)
        aborts = 1 if what == "transaction" else 0
        eventually(
            lambda: running.queue.peek(timeout=PATIENCE_S).aborts == aborts
        )  # it is counted with the next commit
        message = running.queue.receive(timeout=PATIENCE_S)
    assert (message.label, message.aborts) == ("first", aborts)
    assert list(running.other.messages()) == []
    assert running.manager.locks() == []
    assert running.manager.transactions() == []
    kind = "transactions" if what == "transaction" else "locks"
    assert running.metric(f"postroad_{kind}_taken_back_total") == 1
    (line,) = [each for each in running.server.log.splitlines() if "taken back from a silent client" in each]
    assert f"(pid {client.process.pid}) from 127.0.0.1" in line
    assert "silent_s=" in line
    assert ("transaction=" if what == "transaction" else f"queue={QUEUE}") in line


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=list(PROGRAMS))
def test_a_client_that_works_for_long_keeps_what_it_has(running: Running, program: str) -> None:
    running.queue.send(postroad.Message("1", label="first"), transactional=True)
    with running.client(program) as client:
        assert client.hear() == "holds first"
        let_leases_run_out()
        with pytest.raises(NoMessage):
            running.queue.receive(timeout=0)
        (lock,) = running.manager.locks(QUEUE)
        assert f"(pid {client.process.pid})" in lock.owner
        client.go_on()
        assert client.hear() == "done"
    assert list(running.queue.messages()) == []
    assert "taken back" not in running.server.log


@pytest.mark.parametrize("what", ["receiving", "transaction"])
def test_a_client_that_hangs_loses_what_it_has_and_hears_of_it(running: Running, what: str) -> None:
    running.queue.send(postroad.Message("1", label="first"), transactional=True)
    with running.client(PROGRAMS[what]) as client:
        assert client.hear() == "holds first"
        client.signal(signal.SIGSTOP)
        with running.queue.receiving(timeout=PATIENCE_S) as message:
            assert message.label == "first"
            client.signal(signal.SIGCONT)
            client.go_on()
            told = client.hear()  # it could not end what is somebody else's now
            assert told.startswith("LeaseEnded: ")
            assert "its lease of 1 s ran out at 20" in told
    assert list(running.queue.messages()) == []


@pytest.mark.parametrize("what", ["receiving", "transaction"])
def test_a_restart_of_the_manager_puts_everything_back_and_clients_hear_of_it(tmp_path: Path, what: str) -> None:
    file = tmp_path / "alpha.toml"
    file.write_text(CONFIG, encoding="utf-8")
    with serving(file) as first:
        file.write_text(CONFIG.replace("api = 0", f"api = {first.api.rpartition(':')[2]}"), encoding="utf-8")
        with postroad.connect(first.api) as manager:
            manager.send(QUEUE, postroad.Message("1", label="first"), transactional=True)
        client = Client(first.api, PROGRAMS[what])
        try:
            assert client.hear() == "holds first"
            first.end(signal.SIGKILL)
            with serving(file) as second, postroad.connect(second.api) as manager:
                client.go_on()
                assert client.hear().startswith("TransactionSequence: ")
                assert manager.queue(QUEUE).receive(timeout=0).label == "first"
        finally:
            client.process.kill()
            client.process.communicate()


def test_an_operator_takes_messages_from_a_client_that_works(running: Running) -> None:
    running.queue.send(postroad.Message("1", label="first"), transactional=True)
    with running.client(HOLD_A_MESSAGE) as client:
        assert client.hear() == "holds first"
        (lock,) = running.manager.locks(QUEUE)
        assert running.queue.release_locks() == list(lock.lookup_ids)
        with running.queue.receiving(timeout=0):
            client.go_on()
            assert "LeaseEnded" in (told := client.hear())
            assert "it was released at" in told
    with running.client(HOLD_A_TRANSACTION) as client:
        running.queue.send(postroad.Message("2", label="second"), transactional=True)
        assert client.hear() == "holds second"
        (transaction,) = running.manager.transactions()
        running.manager.abort_transaction(transaction.id)
        client.go_on()
        assert "by an operator" in client.hear()
    for event in ("lock released", "transaction aborted"):
        assert any(event in line and "(pid " in line for line in running.server.log.splitlines())
    assert [message.label for message in running.queue.messages()] == ["second"]
    assert list(running.other.messages()) == []


def test_many_locks_of_one_client_are_renewed_together(running: Running) -> None:
    running.queue.send([str(number) for number in range(3000)], transactional=True)
    locked = [message for _ in range(300) for message in running.queue.lock(10, timeout=0)]
    let_leases_run_out()
    running.queue.settle(locked, delete=True)
    assert running.queue.info().messages == 0


def test_a_lock_by_name_only_is_settled_as_before(running: Running) -> None:
    """Whoever locked a message may be another client: an administrator can settle it by lookup id."""
    running.queue.send("1", transactional=True)
    (message,) = running.queue.lock()
    with postroad.connect(running.server.api) as somebody:
        somebody.queue(QUEUE).settle([message.lookup_id], delete=True)
    with pytest.raises(TransactionSequence):
        running.queue.settle([message], delete=True)


def test_callers_without_our_client_renew_by_themselves(running: Running) -> None:
    connection = HTTPConnection(running.server.api.removeprefix("http://"), timeout=PATIENCE_S)

    def call(path: str, value: object = None) -> tuple[int, dict[str, str], object]:
        connection.request("POST", f"/api/v1{path}", json.dumps(value) if value is not None else None)
        answer = connection.getresponse()
        body = answer.read()
        headers = {name.lower(): text for name, text in answer.getheaders()}
        return answer.status, headers, json.loads(body) if body else None

    running.queue.send("1", transactional=True)
    _, headers, body = call("/queues/private$/orders/lock?timeout=0")
    assert headers["postroad-lease-seconds"] == "1"
    lease = headers["postroad-lease"]
    stranger = "00000000-0000-4000-8000-000000000001"
    for _ in range(10):
        time.sleep(LEASE_S / 3)
        assert call("/leases/renew", {"leases": [lease, stranger]})[2] == {"renewed": [lease], "gone": [stranger]}
    assert running.queue.info().locked == 1
    assert isinstance(body, dict)
    settlement = {"lookup_ids": [body["messages"][0]["lookup_id"]], "delete": True, "leases": [lease]}
    eventually(lambda: running.queue.info().locked == 0)
    status, _, problem = call("/queues/private$/orders/settle", settlement)
    assert status == 409
    assert isinstance(problem, dict)
    assert problem["error"] == LeaseEnded.__name__
    _, _, begun = call("/transactions")
    assert isinstance(begun, dict)
    assert begun["lease_s"] == LEASE_S
    assert call("/leases/renew", {"leases": [begun["id"]]})[2] == {"renewed": [begun["id"]], "gone": []}
    eventually(lambda: running.manager.transactions() == [])
    assert call(f"/transactions/{begun['id']}/commit")[0] == 409
    connection.close()


def test_an_embedded_manager_keeps_what_its_own_process_has() -> None:
    with postroad.open(":memory:") as manager:
        queue = manager.create_queue(QUEUE, transactional=True)
        queue.send(["1", "2"], transactional=True)
        with manager.transaction() as tx, queue.receiving(timeout=0):
            queue.receive(0, tx)
            held, mine = manager.locks(), manager.transactions()
        assert [each.owner for each in held] == ["this process"] * 2
        assert [each.owner for each in mine] == ["this process"]
        assert manager.locks() == []
