"""AMQP 1.0 with one client, Proton for Python, beside RabbitMQ with its AMQP 1.0 plugin and beside our own Python
client, in one run. `python -m benchmarks.amqp`.

Durable messages of 1 KiB, from producers to consumers at the same time. All of one round use the machine in turn, so
that other load on it affects all of them.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proton import Message
from proton.handlers import MessagingHandler
from proton.reactor import Container

import postroad
from benchmarks.harness import print_table, process_cpu_s
from benchmarks.rabbitmq import RabbitMQ, missing

ROUNDS = 3
SIZE = 1024
WINDOW = 1000  # messages that a producer has without an answer, and the credit of a consumer
BATCH = 100  # messages in a call of our own client, and what its consumer fetches ahead
PORT, RABBIT_PORT = 35672, 35673
CONFIG = f"""
[manager]
name = "alpha"
data = "data"
[listen]
host = "127.0.0.1"
api = 0
amqp = {PORT}
binary = false
ping = false
http = false
rpc = false
epm = false
[[queue]]
path = 'private$\\benchmark'
"""


class Producer(MessagingHandler):  # type: ignore[misc]
    def __init__(self, url: str, address: str, messages: int) -> None:
        super().__init__(auto_settle=True)
        self.url, self.address, self.left, self.waiting, self.to_send = url, address, messages, 0, messages
        self.message = Message(body=b"x" * SIZE, durable=True, inferred=True)

    def on_start(self, event: Any) -> None:
        self.connection = event.container.connect(self.url, reconnect=False, **_login(self.url))
        self.sender = event.container.create_sender(self.connection, self.address)

    def on_sendable(self, event: Any) -> None:
        while self.to_send and self.waiting < WINDOW and self.sender.credit:
            self.sender.send(self.message)
            self.to_send -= 1
            self.waiting += 1

    def on_accepted(self, event: Any) -> None:
        self.waiting -= 1
        self.left -= 1
        if not self.left:
            self.connection.close()
        elif self.waiting < WINDOW // 2:
            self.on_sendable(event)


class Consumer(MessagingHandler):  # type: ignore[misc]
    def __init__(self, url: str, address: str, messages: int) -> None:
        super().__init__(prefetch=0)
        self.url, self.address, self.left, self.to_ask = url, address, messages, messages

    def on_start(self, event: Any) -> None:
        self.connection = event.container.connect(self.url, reconnect=False, **_login(self.url))
        self.receiver = event.container.create_receiver(self.connection, self.address)
        self._ask(WINDOW)

    def _ask(self, credit: int) -> None:
        """Never for more than its share, which would be missing elsewhere."""
        credit = min(credit, self.to_ask)
        self.to_ask -= credit
        self.receiver.flow(credit)

    def on_message(self, event: Any) -> None:
        self.left -= 1
        if self.to_ask and self.receiver.credit <= WINDOW // 2:
            self._ask(WINDOW // 2)
        if not self.left:
            event.container.schedule(0.2, self)  # after the last answer has left

    def on_timer_task(self, event: Any) -> None:
        self.connection.close()


def _login(url: str) -> dict[str, Any]:
    return {"allowed_mechs": "PLAIN" if "@" in url else "ANONYMOUS", "allow_insecure_mechs": True}


def send_by_api(url: str, address: str, messages: int) -> None:
    with postroad.connect(url) as manager:
        queue = manager.queue(address)
        batch = [postroad.Message(b"x" * SIZE, recoverable=True)] * BATCH
        for _ in range(messages // BATCH):
            queue.send(batch)


def consume_by_api(url: str, address: str, messages: int) -> None:
    with postroad.connect(url) as manager:
        for number, _ in enumerate(manager.queue(address).consume(prefetch=BATCH), 1):
            if number == messages:
                break  # what was fetched ahead goes back


CLIENTS: dict[str, Callable[[str, str, int], object]] = {
    "produce": lambda *given: Container(Producer(*given)).run(),
    "consume": lambda *given: Container(Consumer(*given)).run(),
    "api send": send_by_api,
    "api consume": consume_by_api,
}


@dataclass(frozen=True, slots=True)
class Figures:
    """Messages per second from the first send to the last receive, and microseconds of CPU a message."""

    rate: float
    producer: float
    manager: float
    consumer: float


def measure(url: str, address: str, pids: list[int], messages: int, pairs: int, roles: tuple[str, str]) -> Figures:
    """All share one queue. Each consumer takes its part of the messages."""
    share = messages // pairs
    running = [
        subprocess.Popen(
            [sys.executable, "-m", "benchmarks.amqp", "--client", role, url, address, str(share)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        for role in reversed(roles)
        for _ in range(pairs)
    ]
    for client in running:
        assert client.stdout is not None
        client.stdout.readline()
    used = sum(map(process_cpu_s, pids))
    for client in running:
        assert client.stdin is not None
        client.stdin.write("go\n")
    reports = [json.loads(client.communicate(timeout=300)[0]) for client in running]
    used = sum(map(process_cpu_s, pids)) - used
    total = share * pairs
    seconds = max(each["ended"] for each in reports) - min(each["began"] for each in reports[pairs:])
    cpu = [sum(each["cpu"] for each in some) / total * 1e6 for some in (reports[pairs:], reports[:pairs])]
    return Figures(total / seconds, cpu[0], used / total * 1e6, cpu[1])


def client(role: str, url: str, address: str, messages: int) -> None:
    print("ready", flush=True)
    sys.stdin.readline()
    began, cpu = time.time(), time.process_time()
    CLIENTS[role](url, address, messages)
    ended = time.time() - (0.2 if role == "consume" else 0.0)
    print(json.dumps({"began": began, "ended": ended, "cpu": time.process_time() - cpu}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--client", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.client:
        role, url, address, messages = arguments.client
        client(role, url, address, int(messages))
        return
    best: dict[tuple[str, int], Figures] = {}
    proton, api = ("produce", "consume"), ("api send", "api consume")
    why = missing()
    with tempfile.TemporaryDirectory() as directory:
        config = Path(directory, "alpha.toml")
        config.write_text(CONFIG)
        command = [sys.executable, "-m", "postroad", "serve", "-c", str(config)]
        rabbit = None if why else RabbitMQ(Path(directory, "rabbitmq"), RABBIT_PORT, RABBIT_PORT + 1, RABBIT_PORT + 2)
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as manager:
            try:
                assert manager.stdout is not None
                http = f"http://{json.loads(manager.stdout.readline())['listen']['api']}"
                ours, queue = f"amqp://127.0.0.1:{PORT}", r"private$\benchmark"
                if rabbit is not None:
                    rabbit.declare("bench")
                for _ in range(arguments.rounds):
                    for pairs in (1, 8):
                        count = arguments.messages
                        found = {"Postroad": measure(ours, queue, [manager.pid], count, pairs, proton)}
                        found["Postroad, own client"] = measure(http, queue, [manager.pid], count, pairs, api)
                        if rabbit is not None:
                            every = rabbit.pids()
                            found["RabbitMQ"] = measure(rabbit.url, "/amq/queue/bench", every, count, pairs, proton)
                        for name, figures in found.items():
                            known = best.get((name, pairs))
                            if known is None or figures.rate > known.rate:
                                best[name, pairs] = figures
            finally:
                manager.terminate()
                if rabbit is not None:
                    rabbit.end()
    rows = [
        (
            f"{name}, {pairs} producer{'s' * (pairs > 1)} and consumer{'s' * (pairs > 1)}",
            f"{figures.rate:,.0f}",
            f"{best['Postroad', pairs].rate / figures.rate:.2f}",
            *(f"{each:.0f}" for each in (figures.producer, figures.manager, figures.consumer)),
        )
        for (name, pairs), figures in sorted(best.items(), key=lambda each: each[0][1])
    ]
    print_table(
        "AMQP 1.0 with Proton for Python, durable, 1 KiB",
        ("", "messages/s", "ratio", "producer us", "manager us", "consumer us"),
        rows,
        f"best of {arguments.rounds} rounds; ratio: Postroad by AMQP to this; CPU per message; "
        f"load of the machine {os.getloadavg()[0]:.1f}" + (f"; no RabbitMQ: {why}" if why else ""),
    )


if __name__ == "__main__":
    main()
