"""A shovel of a real RabbitMQ into a queue of ours, and another back, while either is killed with kill -9. Every
message that RabbitMQ has confirmed arrives at the other end. With ack mode on-confirm, what had no answer may come
again after a kill of ours. After kill -9, RabbitMQ itself forgets acknowledgments that it has had.

    Proton -> RabbitMQ `out` -> shovel -> private$\\shoveled -> shovel -> RabbitMQ `back` -> Proton
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from proton import Message
from proton.utils import BlockingConnection

import postroad
from benchmarks.rabbitmq import RabbitMQ, missing
from postroad.errors import PostroadError
from tests.torture.amqp import free_port
from tests.torture.kill import Server

PATIENCE_S = 240
PREFETCH = 50
CONFIGURATION = """
[manager]
name = "victim"
data = "data"
[listen]
host = "127.0.0.1"
binary = false
ping = false
http = false
rpc = false
api = {port}
amqp = AMQP
[[queue]]
path = 'private$\\shoveled'
"""


def dial(broker: RabbitMQ) -> BlockingConnection:
    return BlockingConnection(
        f"127.0.0.1:{broker.port}",
        timeout=30,
        allowed_mechs="PLAIN",
        user="guest",
        password="guest",
        allow_insecure_mechs=True,
    )


class Collector:
    """What came back: numbers, and how often each."""

    def __init__(self, broker: RabbitMQ) -> None:
        self.broker = broker
        self.found: Counter[int] = Counter()

    def collect(self, enough: int, deadline: float) -> None:
        """Takes what is there, until there are so many numbers."""
        while len(self.found) < enough and time.monotonic() < deadline:
            try:
                connection = dial(self.broker)
                receiver = connection.create_receiver("/amq/queue/back", credit=100)
                while len(self.found) < enough:
                    message = receiver.receive(timeout=5)
                    self.found[int(bytes(message.body))] += 1
                    receiver.accept()
                connection.close()
            except Exception as error:  # Proton's time-out, or a broker that starts
                print(f"  {len(self.found)} are back; {type(error).__name__}", flush=True)
                time.sleep(0.5)


def shovels(broker: RabbitMQ, port: int) -> None:
    """Docs: how-to/bridge-rabbitmq.md."""
    ours = f"amqp://anonymous:none@127.0.0.1:{port}?sasl=anon"
    broker.shovel(
        "to-postroad",
        src_protocol="amqp091",
        src_uri=broker.url,
        src_queue="out",
        src_prefetch_count=PREFETCH,
        dest_protocol="amqp10",
        dest_uri=ours,
        dest_address="private$/shoveled",
        ack_mode="on-confirm",
        reconnect_delay=1,
    )
    broker.shovel(
        "from-postroad",
        src_protocol="amqp10",
        src_uri=ours,
        src_address="private$/shoveled",
        src_prefetch_count=PREFETCH,
        dest_protocol="amqp091",
        dest_uri=broker.url,
        dest_queue="back",
        dest_publish_properties={"delivery_mode": 2},  # else what comes back is lost with RabbitMQ
        ack_mode="on-confirm",
        reconnect_delay=1,
    )


def run(messages: int, kills: int, ours: bool) -> tuple[Counter[int], int, int]:
    """What came back, how many were confirmed, and how many were left in our queue."""
    with tempfile.TemporaryDirectory() as directory:
        port = free_port()
        server = Server(Path(directory), CONFIGURATION.replace("AMQP", str(port)))
        broker = RabbitMQ(Path(directory, "rabbitmq"), free_port(), free_port(), free_port())
        try:
            for queue in ("out", "back"):
                broker.declare(queue)
            connection = dial(broker)
            sender = connection.create_sender("/amq/queue/out")
            for number in range(messages):
                sender.send(Message(body=b"%d" % number, durable=True, inferred=True))
            connection.close()
            collector = Collector(broker)
            shovels(broker, port)
            deadline = time.monotonic() + PATIENCE_S
            for number in range(kills):
                collector.collect(messages * (number + 1) // (kills + 1), deadline)
                victim: Server | RabbitMQ = server if ours else broker
                victim.kill()
                victim.start()
                print(f"kill {number + 1}: {type(victim).__name__}", flush=True)
            collector.collect(messages, deadline)
            left = 0
            with postroad.connect(server.url) as manager:
                try:
                    left = manager.queue(r"private$\shoveled").info().messages
                except PostroadError as error:
                    print(error)
            if len(collector.found) < messages:
                print(broker.control("eval", "rabbit_shovel_status:status()."))
            server.stop()
            return collector.found, messages, left
        finally:
            broker.end()
            server.process.kill()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=5000)
    parser.add_argument("--kills", type=int, default=4)
    arguments = parser.parse_args()
    if why := missing():
        print(f"no shovel: {why}")
        return 0
    good = True
    for ours in (True, False):
        found, sent, left = run(arguments.messages, arguments.kills, ours)
        lost, again = sent - len(found), sum(found.values()) - len(found)
        # A kill leaves at most the windows of both shovels unanswered.
        most = 2 * PREFETCH * arguments.kills if ours else sent * arguments.kills
        good &= not lost and again <= most
        print(
            f"{sent} messages through both shovels, {arguments.kills} kills of {'Postroad' if ours else 'RabbitMQ'}: "
            f"lost {lost}, again {again} (at most {most}), left {left}; load of the machine {os.getloadavg()[0]:.1f}",
            flush=True,
        )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
