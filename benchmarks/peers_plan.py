"""What `make bench-peers` runs: contenders by name, and the rows that compare them. Aims and floors are for readers:
nothing fails if a figure misses one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks import peers_client, peers_managers, remote_read, soap
from benchmarks.peers_brokers import WINDOW, Brokers
from benchmarks.peers_client import Calls
from benchmarks.peers_figures import Figures, Row
from benchmarks.peers_managers import DEFAULT_WINDOW, Load
from benchmarks.peers_processes import cpu_s

SPECIFIED_WINDOW = 64
SEVERAL = 8
STORED_MESSAGES = 30_000  # enough that eight clients of remote read do not empty the queue
KINDS = ("recoverable", "express", "transactional")

# Names of contenders. A row of the table below compares two of them.
MANAGERS = {kind: f"Postroad, two managers, {kind}" for kind in KINDS}
STORED = {kind: f"{MANAGERS[kind]}, not consumed" for kind in KINDS}
SINGLE, CONCURRENT = "Postroad client, one at a time", "Postroad client, 1,000 at a time"
RABBITMQ = {kind: f"RabbitMQ, native, {kind}" for kind in ("recoverable", "express")}
RABBITMQ_TX = "RabbitMQ, pika, tx of 100"
NATS = "NATS JetStream, native, file, no sync"
PIKA_SINGLE, PIKA = "RabbitMQ, pika, one at a time", "RabbitMQ, pika, pipelined"
NATS_PY = "NATS JetStream, nats-py, file, no sync"
SOAP, SOAP_EMPTY = "Postroad, SOAP durable, 8 connections", "Postroad, empty POST, 8 connections"
READ, READ_EMPTY = "Postroad, remote read recoverable, 8 clients", "Postroad, empty calls, 8 clients"

MUST_SHOW = (
    Row("recoverable, beside RabbitMQ durable native", MANAGERS["recoverable"], RABBITMQ["recoverable"], 3.0, 2.0),
    Row("recoverable, beside NATS JetStream, no sync", MANAGERS["recoverable"], NATS, 1.2, 0.8),
    Row("express, beside RabbitMQ express native", MANAGERS["express"], RABBITMQ["express"], 3.0, 2.0),
    Row("transactional by 100, beside RabbitMQ tx", MANAGERS["transactional"], RABBITMQ_TX, 25, 15),
    Row("client, one at a time, beside pika", SINGLE, PIKA_SINGLE, 1.5, 1.0),
    Row("client, concurrent sends, beside pika pipelined", CONCURRENT, PIKA, 1.5, 1.0),
    Row("CPU a message, recoverable, sender + receiver", STORED["recoverable"], None, 20, 32),
    Row("SOAP durable, 8 connections, beside an empty POST", SOAP, SOAP_EMPTY, 0.5, 0.4),
    Row("remote read, 8 clients, beside empty calls", READ, READ_EMPTY, 0.4, 0.3),
    # From store to store, as `make bench-wire` measures it.
    Row("not consumed: recoverable, RabbitMQ durable", STORED["recoverable"], RABBITMQ["recoverable"], 3.0, 2.0),
    Row("not consumed: recoverable, NATS", STORED["recoverable"], NATS, 1.2, 0.8),
    Row("not consumed: express, RabbitMQ express", STORED["express"], RABBITMQ["express"], 3.0, 2.0),
    Row("not consumed: transactional, RabbitMQ tx", STORED["transactional"], RABBITMQ_TX, 25, 15),
)


@dataclass(frozen=True, slots=True)
class Contender:
    """`run` returns the figures of one round, for this contender and for any that ran with it."""

    name: str
    run: Callable[[], list[Figures]]


def must_show(brokers: Brokers | None, messages: int, window: int = DEFAULT_WINDOW) -> list[Contender]:
    """Every row of the main table, ours and the peers'."""
    fewer, singles = max(1, messages // 3), max(1, messages // 20)
    found = []
    for kind in KINDS:
        found.append(managers(MANAGERS[kind], Load(kind, messages, window)))
        if brokers is not None:
            found += peers_of(kind, brokers, messages)
        found.append(managers(STORED[kind], Load(kind, messages, window, consumed=False)))
    found.append(client(SINGLE, Calls(singles, concurrent=False)))
    if brokers is not None:
        found.append(pika(PIKA_SINGLE, brokers, singles, 1))
    found.append(client(CONCURRENT, Calls(fewer, concurrent=True)))
    if brokers is not None:
        found.append(pika(PIKA, brokers, fewer, WINDOW))
    found.append(Contender(SOAP, lambda: soap_figures(max(8, messages // 10))))
    found.append(
        Contender(READ, lambda: remote_read_figures(max(STORED_MESSAGES, messages), min(3.0, messages / 10_000)))
    )
    return found


def all_else(brokers: Brokers | None, messages: int, window: int = DEFAULT_WINDOW) -> list[Contender]:
    """Other windows, other clients, and several producers."""
    fewer, singles = max(SEVERAL, messages // 3), max(SEVERAL, messages // 20)
    found = []
    if window != SPECIFIED_WINDOW:
        for kind in KINDS:
            name = f"{MANAGERS[kind]}, window of {SPECIFIED_WINDOW}"
            found.append(managers(name, Load(kind, messages, SPECIFIED_WINDOW)))
    for kind in KINDS:
        found.append(managers(several(MANAGERS[kind]), Load(kind, messages, window, SEVERAL)))
        if brokers is not None and kind in RABBITMQ:
            found.append(native(several(RABBITMQ[kind]), brokers, "rabbitmq", messages, kind, SEVERAL))
    for name, sent, concurrent in ((SINGLE, singles, False), (CONCURRENT, fewer, True)):
        found.append(client(several(name), Calls(sent, concurrent, SEVERAL)))
    if brokers is not None:
        found.append(several_pika(several(PIKA_SINGLE), brokers, singles, 1))
        found.append(several_pika(several(PIKA), brokers, fewer, WINDOW // SEVERAL))
        found.append(scripted("RabbitMQ, aio-pika", brokers, "bench_rabbitmq.py", fewer, "--client", "aio-pika"))
        found.append(scripted(NATS_PY, brokers, "bench_nats.py", fewer))
        found.append(scripted("Redis streams, redis-py, synced", brokers, "bench_redis.py", fewer))
    return found


def several(name: str) -> str:
    return f"{name}, {SEVERAL} producers"


def managers(name: str, load: Load) -> Contender:
    return Contender(name, lambda: [peers_managers.measure(name, load).figures])


def client(name: str, calls: Calls) -> Contender:
    return Contender(name, lambda: [peers_client.measure(name, calls).figures])


def peers_of(kind: str, brokers: Brokers, messages: int) -> list[Contender]:
    if kind == "transactional":
        options = ("--client", "pika-tx", "--window", "100")
        return [scripted(RABBITMQ_TX, brokers, "bench_rabbitmq.py", max(100, messages // 4), *options)]
    found = [native(RABBITMQ[kind], brokers, "rabbitmq", messages, kind)]
    return found if kind == "express" else [*found, native(NATS, brokers, "nats", messages, kind)]


def native(name: str, brokers: Brokers, peer: str, messages: int, kind: str, producers: int = 1) -> Contender:
    durable = kind != "express"
    return Contender(name, lambda: [brokers.native(name, peer, messages, durable=durable, producers=producers)])


def scripted(name: str, brokers: Brokers, script: str, messages: int, *options: str) -> Contender:
    return Contender(name, lambda: [brokers.scripted(name, script, messages, *options)])


def pika(name: str, brokers: Brokers, messages: int, window: int) -> Contender:
    return scripted(name, brokers, "bench_rabbitmq.py", messages, "--client", "pika", "--window", str(window))


def several_pika(name: str, brokers: Brokers, messages: int, window: int) -> Contender:
    return Contender(name, lambda: [brokers.several(name, messages, window, SEVERAL)])


def soap_figures(messages: int) -> list[Figures]:
    """Sends durable messages and empty requests in turn to one server. CPU is the server's."""
    empty = [soap.request(b"", "text/xml")] * messages
    durable = soap.requests(1, messages, durable=True)
    found = []
    with soap.serving_manager() as (pid, port):
        for name, made, wanted in ((SOAP_EMPTY, empty, b"HTTP/1.1 400"), (SOAP, durable, b"HTTP/1.1 200")):
            before = cpu_s([pid])
            rate = asyncio.run(soap.rate(port, made, SEVERAL, wanted))
            found.append(Figures(name, messages, rate, {"broker": (cpu_s([pid]) - before) / messages * 1e6}))
    return found


def remote_read_figures(messages: int, seconds: float) -> list[Figures]:
    with remote_read.serving("recoverable", messages) as server:
        totals = remote_read.rates(server, SEVERAL, seconds, "ndr")
    return [
        Figures(name, total.done, total.per_s, {"broker": total.server_us, "clients": total.clients_us})
        for name, total in ((READ_EMPTY, totals["empty"]), (READ, totals["mqqp"]))
    ]
