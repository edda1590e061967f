"""A stuck message always has a visible reason, in words: real processes, and the commands that people use."""

from __future__ import annotations

import json
import os
import re
import signal
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import postroad as client
from tests.commands import PATIENCE_S, Outcome, ServerProcess, postroad

HOSTS = {"alpha": "127.0.0.51", "beta": "127.0.0.52", "late": "127.0.0.53"}
NOBODY = "127.0.0.54"
PORTS = {"alpha": 11851, "beta": 11852, "late": 11853}
PEERS = "".join(f'"{HOSTS[name]}" = {{ binary = {port} }}\n' for name, port in PORTS.items())
CONFIGURATION = r"""
[manager]
name = "{name}"
data = "data/{name}"
[listen]
host = "{host}"
binary = {port}
ping = false
http = false
rpc = false
api = 0
[binary]
retry_connect_s = 0.5
[peers]
{peers}
[[queue]]
path = 'private$\plain'
[[queue]]
path = 'private$\told'
journal = true
[[queue]]
path = 'private$\orders'
transactional = true
[[queue]]
path = 'private$\acks'
"""


class Scene:
    """Alpha and beta run, and late does once somebody starts it. Nobody is at NOBODY. Tests have queues of their
    own."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self._directory = directory
        self._stack = stack
        self.servers: dict[str, ServerProcess] = {}
        self.managers: dict[str, client.QueueManager] = {}
        for name in ("alpha", "beta"):
            self.start(name)

    def start(self, name: str) -> None:
        file = self._directory / f"{name}.toml"
        file.write_text(CONFIGURATION.format(name=name, host=HOSTS[name], port=PORTS[name], peers=PEERS))
        server = ServerProcess(file)
        self._stack.callback(server.close)
        self.servers[name] = server
        self.managers[name] = self._stack.enter_context(client.connect(server.api))

    def run(self, *arguments: str, at: str = "alpha") -> Outcome:
        return postroad(*arguments, api=self.servers[at].api)

    def kinds(self, identifier: str, at: str = "alpha") -> list[str]:
        return [each.kind for each in self.managers[at].trace(identifier).findings]

    def shown(self, queue: str) -> dict[str, Any]:
        (found,) = self.run("queue", "show", queue, "--json").objects
        return found

    def metrics(self, queue: str) -> dict[str, float]:
        """What Prometheus reads about one outgoing queue."""
        with urllib.request.urlopen(f"{self.servers['alpha'].api}/metrics", timeout=PATIENCE_S) as answer:
            text = answer.read().decode()
        label = f'{{queue="{queue}"'.replace("\\", "\\\\")
        lines = [line for line in text.splitlines() if label in line]
        return {line.partition("{")[0].removeprefix("postroad_"): float(line.rpartition(" ")[2]) for line in lines}


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with ExitStack() as stack:
        yield Scene(tmp_path_factory.mktemp("stuck"), stack)


def direct(name: str, queue: str) -> str:
    return rf"DIRECT=TCP:{HOSTS.get(name, name)}\private$\{queue}"


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_peer_that_is_down_and_comes_back(scene: Scene) -> None:
    queue = direct("late", "plain")
    alpha = scene.managers["alpha"]
    identifier, _, _ = alpha.send(queue, [client.Message("x", recoverable=True)] * 3)
    until(lambda: alpha.queue(queue).info().last_error is not None)
    shown = scene.shown(queue)
    refused = f"cannot connect to {HOSTS['late']}:{PORTS['late']}: Connection refused"
    assert shown["last_error"] == refused
    assert re.fullmatch(re.escape(refused) + r"; (next try in 0\.\d s|trying again now)", shown["why"])
    assert (shown["messages"], shown["unsent"], shown["in_flight"], shown["unacknowledged"]) == (3, 3, 0, 0)
    assert (shown["stuck"], shown["next_hops"]) == (True, [HOSTS["late"]])
    table = scene.run("queue", "show", queue).lines
    assert [line.split()[0] for line in table[1:3]] == ["path", "why"]
    assert refused in table[2]

    status = scene.run("status")
    warning = next(line for line in status.lines if line.startswith("! "))
    assert warning.startswith(f"! 3 messages wait for {queue}: {refused}")
    (told,) = scene.run("status", "--json").objects
    assert told["queues"][0]["path"] == queue  # what is stuck comes first
    measured = scene.metrics(queue)
    assert (measured["queue_messages"], measured["outgoing_unsent_messages"], measured["outgoing_stuck"]) == (3, 3, 1)
    assert measured["outgoing_failures_total"] >= 1
    assert measured["queue_oldest_message_age_seconds"] > 0

    (found,) = scene.run("trace", identifier, "--json").objects
    assert (found["state"], [hop["name"] for hop in found["hops"]]) == ("waiting", ["alpha", HOSTS["late"]])
    (sent, waits) = found["findings"]
    assert (sent["kind"], waits["kind"], waits["queue"]) == ("sent", "outgoing", queue)
    assert waits["why"].startswith(refused)

    scene.start("late")
    plain = scene.managers["late"].queue(r"private$\plain")
    assert [plain.receive(timeout=PATIENCE_S).text for _ in range(3)] == ["x"] * 3
    until(lambda: alpha.queue(queue).info().messages == 0)
    shown = scene.shown(queue)
    assert (shown["why"], shown["stuck"], shown["last_error"], shown["next_retry_s"]) == (None, False, None, None)
    measured = scene.metrics(queue)
    assert (measured["queue_messages"], measured["outgoing_stuck"]) == (0, 0)  # it is empty, and still there
    sessions = [line.split() for line in scene.run("status", "--all").lines if HOSTS["late"] in line and "open" in line]
    assert [HOSTS["late"], scene.servers["late"].ready["id"], "open"] in [line[1:4] for line in sessions]
    (session,) = [each for each in alpha.sessions() if each.address == HOSTS["late"]]
    assert (session.direction, session.messages_out, session.peer) == ("out", 3, scene.servers["late"].ready["id"])
    assert shown["failures"] > 1
    log = [line.partition("Z ")[2] for line in scene.servers["alpha"].log.splitlines() if HOSTS["late"] in line]
    assert log == [  # of all the tries, the first one that failed and the one that did not
        f'warning peer unreachable peer={HOSTS["late"]} reason="{refused}"',
        f"info peer reached again peer={HOSTS['late']}",
    ]


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="no process can be stopped here")
def test_a_peer_that_stops_answering(scene: Scene) -> None:
    queue = direct("beta", "plain")
    alpha = scene.managers["alpha"]
    alpha.send(queue, client.Message("first", recoverable=True))
    until(lambda: alpha.queue(queue).info().messages == 0)
    os.kill(scene.servers["beta"].pid, signal.SIGSTOP)
    try:
        identifier = alpha.send(queue, client.Message("a", recoverable=True))
        until(lambda: alpha.queue(queue).info().in_flight == 1)
        why = alpha.queue(queue).info().why or ""
        assert re.fullmatch(rf"sent to {HOSTS['beta']}, waiting for the peer's acknowledgment for \d+\.\d s", why)
        (finding,) = [each for each in alpha.trace(identifier).findings if each.kind == "outgoing"]
        assert finding.sentence.endswith("the next hop has not acknowledged it")
        alpha.send(queue, [client.Message(f"{number}", recoverable=True) for number in range(1100)])
        until(lambda: (alpha.queue(queue).info().why or "").startswith("the window is full: 1024 messages wait for"))
        info = alpha.queue(queue).info()
        assert (info.in_flight, info.unsent, info.messages) == (1024, 77, 1101)
    finally:
        os.kill(scene.servers["beta"].pid, signal.SIGCONT)
    until(lambda: alpha.queue(queue).info().messages == 0)
    assert alpha.queue(queue).info().why is None


def test_a_queue_on_hold_and_a_queue_without_a_way(scene: Scene) -> None:
    held = direct(NOBODY, "held")
    alpha = scene.managers["alpha"]
    alpha.send(held, client.Message("x"))
    assert scene.run("queue", "pause", held).code == 0
    shown = scene.shown(held)
    assert (shown["why"], shown["paused"], shown["stuck"]) == ("paused by an operator", True, True)
    lost = r"PRIVATE=00000000-0000-0000-0000-000000000099\8"
    alpha.send(lost, client.Message("x"))
    until(lambda: alpha.queue(lost).info().last_error is not None)
    own = scene.servers["alpha"].ready["id"]
    assert f"no route to {lost}: the queue manager {own} is not in the directory" in scene.shown(lost)["why"]
    status = scene.run("status").text
    assert f"! 1 message waits for {held}: paused by an operator\n" in status
    assert f"! 1 message waits for {lost}: no route to {lost}" in status


# Where a message went


def test_the_story_of_a_message_as_both_ends_tell_it(scene: Scene) -> None:
    beta = scene.servers["beta"].ready["id"]
    run = scene.run(
        *("send", direct("beta", "told"), "--label", "hello", "--recoverable", "--journal"),
        *("--ack", "reach-queue,receive", "--admin-queue", direct("alpha", "acks")),
    )
    (identifier,) = run.lines
    until(lambda: {"acknowledgment", "journal"} <= set(scene.kinds(identifier)))
    sent, *rest = scene.run("trace", identifier, "--json").objects[0]["findings"]
    assert sent["sentence"] == f"sent by alpha, this queue manager: 'hello', recoverable, to {direct('beta', 'told')}"
    assert {each["kind"]: each["queue"] for each in rest} == {
        "acknowledgment": r"private$\acks",
        "journal": ";journal",
    }
    until(lambda: scene.kinds(identifier, at="beta") == ["sent", "passed", "queued"])

    scene.managers["beta"].queue(r"private$\told").receive(timeout=PATIENCE_S)
    until(lambda: len(scene.kinds(identifier)) == 4)
    (found,) = scene.run("trace", identifier, "--json").objects
    assert (found["state"], found["findings"][-1]["class_name"]) == ("received", "ack-receive")
    lines = scene.run("trace", identifier).lines
    assert lines[:2] == ["received", ""]
    assert any(line.endswith(f"acknowledged by {beta}: it was received") for line in lines)
    times = [line.split()[0] for line in lines if line[:2] == "20"]
    assert times == sorted(times)
    until(lambda: scene.kinds(identifier, at="beta") == ["sent", "passed", "journal"])


def test_the_story_of_a_message_that_died(scene: Scene) -> None:
    (identifier,) = scene.run(
        *("send", direct(NOBODY, "late"), "--body", "x", "--recoverable", "--dead-letter", "--ttrq", "1")
    ).lines
    until(lambda: scene.kinds(identifier)[-1:] == ["dead-letter"])
    (found,) = scene.run("trace", identifier, "--json").objects
    assert (found["state"], found["reason"]) == ("died", "nack-reach-queue-timeout")
    dead = found["findings"][-1]
    assert (dead["queue"], dead["class_name"]) == (";deadletter", "nack-reach-queue-timeout")
    assert dead["sentence"] == "died: it did not reach its queue in time; a copy is in ;deadletter"
    (shown,) = scene.run("peek", ";deadletter", "--lookup", str(dead["lookup_id"]), "--json").objects
    assert shown["id"] == identifier


def test_the_story_of_a_transactional_message(scene: Scene) -> None:
    (identifier,) = scene.run("send", direct("beta", "orders"), "--transactional", "--journal", "--body", "x").lines
    until(lambda: scene.kinds(identifier)[-1:] == ["awaiting-final-ack"])
    assert scene.shown(direct("beta", "orders"))["awaiting_final_ack"] == 1
    scene.managers["beta"].queue(r"private$\orders").receive(timeout=PATIENCE_S)
    until(lambda: scene.kinds(identifier)[-1:] == ["journal"])


def test_an_unknown_message_is_one_line(scene: Scene) -> None:
    run = scene.run("trace", r"{00000000-0000-0000-0000-000000000099}\3", "--json")
    assert (run.code, run.output) == (1, b"")
    unknown = (
        r"postroad: nothing was found about \{00000000-0000-0000-0000-000000000099\}\\3: "
        r"(1 message was|\d+ messages were) searched\n"
    )
    assert re.fullmatch(unknown, run.errors)
    assert scene.run("trace", "hello").code == 2


def test_a_message_that_no_queue_takes_is_seen_where_it_was_refused(scene: Scene) -> None:
    alpha, beta = scene.managers["alpha"], scene.managers["beta"]
    queue = direct("beta", "mistyped")
    identifier = alpha.send(queue, client.Message("not lost", recoverable=True, dead_letter=True))
    until(lambda: beta.queue(";deadletter").info().messages == 1)
    dead = beta.trace(identifier).findings[-1]
    assert (dead.kind, "named an unknown queue" in dead.sentence) == ("dead-letter", True)
    (line,) = [
        each for each in scene.servers["beta"].log.splitlines() if "mistyped" in each and "message refused" in each
    ]
    assert f"warning message refused id={identifier} to={json.dumps(queue)} " in line
    assert line.endswith(' reason="it named an unknown queue" why=no-such-queue')
    with urllib.request.urlopen(f"{scene.servers['beta'].api}/metrics", timeout=PATIENCE_S) as answer:
        assert "postroad_session_messages_refused_total 1.0" in answer.read().decode().splitlines()
    assert beta.queue(";deadletter").receive().text == "not lost"
