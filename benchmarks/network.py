"""Two queue managers in two processes, from the sender's store to the receiver's store over TCP. `make bench-wire`.

With `--peers DIR`, it measures RabbitMQ and NATS with native clients on the same machine in the same minutes, and gives
the ratios; DIR has the scripts for that (`brokers.py`, `native_bench.py`). `--security` measures only signed and
encrypted messages. `--kind` and `--window` measure only plain messages of this kind and with this window.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from benchmarks.harness import print_table
from benchmarks.security import RECEIVER as RECEIVER_ID
from benchmarks.security import SENDER as SENDER_ID
from benchmarks.security import SID, Parties
from postroad.binary.service import BinaryService, Hop
from postroad.binary.session import BinarySettings
from postroad.binary.transport import BinaryTransport
from postroad.config import default_configuration
from postroad.directory.watch import DirectoryWatch
from postroad.manager import Manager, build_manager
from postroad.manager.keys import StoredKeys
from postroad.message import Composer, Message, Signature
from postroad.names import DirectName, FormatName, PrivateName
from postroad.queues.collection import FIRST_PRIVATE_NUMBER
from postroad.security.keys import DEFAULT_BITS, KeyRing
from postroad.security.signatures import signature_of
from postroad.store import open_store
from postroad.wire.view import MessageView

BODY = b"x" * 1024
BATCH = 100
ROUNDS = 3
SENDER, RECEIVER = "127.0.0.41", "127.0.0.42"
PORT = 11841
UNCONFIRMED = 1000  # messages that wait for the disk at a time: as many as the peers' clients have
WINDOWS = (64, 1024)  # the session window of the specification, and one that only Postroad uses
KINDS = ("express", "recoverable", "transactional")
SECURITY = ("plain", "signed", "encrypted", "signed and encrypted")
QUEUE = PrivateName(RECEIVER_ID, FIRST_PRIVATE_NUMBER)  # a direct name does not say whose key to use
KEYS, CERTIFICATE = "keys.pem", "certificate.der"  # what the receiver has in its directory
PEERS = (
    ("RabbitMQ classic, durable", ("rabbitmq", "--mode", "durable", "--variant", "classic"), "recoverable"),
    ("RabbitMQ classic, express", ("rabbitmq", "--mode", "express", "--variant", "classic"), "express"),
    ("NATS JetStream, file (no sync)", ("nats", "--mode", "durable", "--variant", "file"), "recoverable"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=30_000)
    parser.add_argument("--peers", type=Path, help="a directory with brokers.py and native_bench.py")
    parser.add_argument("--security", action="store_true", help="only signed and encrypted messages, and plain ones")
    parser.add_argument("--kind", choices=KINDS, action="append", help="only plain messages of this kind")
    parser.add_argument("--window", type=int, action="append", help="only this window")
    arguments = parser.parse_args()
    logging.getLogger("postroad").addHandler(logging.NullHandler())  # the receiver ends before the sender
    messages = arguments.messages
    if not arguments.security:
        compare_kinds(messages, arguments.peers, arguments.kind or KINDS, arguments.window or WINDOWS)
    if arguments.security or not (arguments.kind or arguments.window):
        compare_security(messages)


@dataclass(frozen=True, slots=True)
class Figures:
    """One run, or the best of several: messages per second, and processor time of both ends for each message."""

    rate: float = 0.0
    sender_us: float = math.inf
    receiver_us: float = math.inf

    def best(self, other: Figures) -> Figures:
        return Figures(
            max(self.rate, other.rate),
            min(self.sender_us, other.sender_us),
            min(self.receiver_us, other.receiver_us),
        )


def compare_kinds(messages: int, peers_at: Path | None, kinds: Sequence[str], windows: Sequence[int]) -> None:
    figures = {(kind, window): Figures() for kind in kinds for window in windows}
    peers: dict[str, float] = {}
    for _ in range(ROUNDS):  # in turn, so that other load on the machine affects all of them
        for (kind, window), best in figures.items():
            figures[kind, window] = best.best(measure(kind, messages, window))
        for name, options, _kind in PEERS if peers_at is not None else ():
            assert peers_at is not None
            peers[name] = max(peers.get(name, 0.0), measure_peer(peers_at, options, messages))
    compared = windows if peers else ()
    rows = [
        (
            f"Postroad, {kind}, window of {window}",
            f"{best.rate:,.0f}",
            f"{best.sender_us:.1f}",
            f"{best.receiver_us:.1f}",
            *("" for _ in compared),
        )
        for (kind, window), best in figures.items()
    ]
    for name, _options, kind in PEERS if peers else ():
        ours = (f"{figures[kind, window].rate / peers[name]:.2f}" if kind in kinds else "" for window in windows)
        rows.append((name, f"{peers[name]:,.0f}", "", "", *ours))
    print_table(
        "Sender's store to receiver's store over TCP, 1 KiB",
        (
            "",
            "messages/s",
            "sender us",
            "receiver us",
            *(f"Postroad of it, window of {window}" for window in compared),
        ),
        rows,
        f"best of {ROUNDS} rounds of {messages:,}, at most {UNCONFIRMED} waiting for the disk; us: processor time a "
        "message; a peer's figure is end to end through one broker",
    )


def compare_security(messages: int) -> None:
    """Measures what the managers do: the session key is made once, and the application signs in advance."""
    parties = Parties.make(DEFAULT_BITS)
    rates: dict[tuple[str, int], float] = {}
    for _ in range(ROUNDS):
        for security in SECURITY:
            for window in WINDOWS:
                rate = measure("recoverable", messages, window, parties, security).rate
                rates[security, window] = max(rates.get((security, window), 0.0), rate)
    rows = [
        (
            f"recoverable, {security}",
            *(f"{rates[security, window]:,.0f}" for window in WINDOWS),
            *(f"{rates[security, window] / rates['plain', window]:.2f}" for window in WINDOWS),
        )
        for security in SECURITY
    ]
    print_table(
        "Signed and encrypted: sender's store to receiver's store over TCP, 1 KiB",
        (
            "",
            *(f"messages/s, window of {window}" for window in WINDOWS),
            *(f"of plain, window of {window}" for window in WINDOWS),
        ),
        rows,
        f"best of {ROUNDS} rounds of {messages:,}; signature 2.0 with SHA-512, AES-256, RSA {DEFAULT_BITS}",
    )


def measure(kind: str, messages: int, window: int, parties: Parties | None = None, security: str = "plain") -> Figures:
    with tempfile.TemporaryDirectory() as directory:
        if parties is not None:
            Path(directory, KEYS).write_text(parties.ring.to_pem())
            Path(directory, CERTIFICATE).write_bytes(parties.certificate)
        command = [sys.executable, "-m", "benchmarks.network_receiver", kind, directory, str(messages), str(window)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as receiver:
            assert receiver.stdout is not None
            receiver.stdout.readline()  # it prints a line once it listens
            started, sender_s = asyncio.run(send(kind, directory, messages, window, parties, security))
            ended, receiver_s = json.loads(receiver.stdout.readline())
        return Figures(messages / (ended - started), sender_s / messages * 1e6, receiver_s / messages * 1e6)


async def open_manager(
    name: str, host: str, directory: str, window: int, identifier: UUID | None = None
) -> tuple[Manager, BinaryTransport]:
    identifier = identifier or (RECEIVER_ID if name == "receiver" else SENDER_ID)
    manager = build_manager(
        default_configuration(name),
        open_store(Path(directory, name)),
        identifier=identifier,
        hosts=(host,),
        **secured(Path(directory)),
    )
    await manager.start()
    transport = BinaryTransport(manager, host, PORT, lambda _: PORT)
    settings = BinarySettings(order_ack_ms=100, window_size=window)
    await transport.start(BinaryService(manager.core, settings, resolve, transport))
    return manager, transport


def secured(directory: Path) -> dict[str, Any]:
    """The receiver's keys and the user's certificate, where there are some. The sender uses no private key."""
    if not Path(directory, KEYS).exists():
        return {}
    ring = KeyRing.from_pem(Path(directory, KEYS).read_text())
    enterprise = Path(directory, "enterprise.toml")
    enterprise.write_text(
        f'[[site]]\nname = "bench"\n[[manager]]\nname = "receiver"\nid = "{RECEIVER_ID}"\nsites = ["bench"]\n'
        f'public_keys = "{ring.public_keys.hex()}"\n'
    )
    return {
        "keys": StoredKeys(ring, None),
        "certificates": {SID: (Path(directory, CERTIFICATE).read_bytes(),)},
        "watch": DirectoryWatch(enterprise, time.time()),
    }


def resolve(name: FormatName) -> list[Hop]:
    if isinstance(name, PrivateName):
        return [Hop(RECEIVER, name.guid)]
    return [Hop(name.host)] if isinstance(name, DirectName) else []


def compose(kind: str, parties: Parties | None, security: str) -> Message:
    message = Message(BODY, label="bench", recoverable=kind == "recoverable")
    if "signed" in security:
        assert parties is not None
        view = MessageView(Composer(SENDER_ID, QUEUE).compose(message, 1, 0))
        message.signature = Signature(signature_of(view, parties.key), parties.certificate, sender_id=SID)
    if "encrypted" in security:
        message.encrypt = ""
    return message


async def send(
    kind: str,
    directory: str,
    messages: int,
    window: int,
    parties: Parties | None = None,
    security: str = "plain",
    *,
    receiver: str = RECEIVER,
    identifier: UUID | None = None,
) -> tuple[float, float]:
    """Sends the messages. Returns when it began, by the clock that both processes share, and its processor time. A
    receiver that lives on takes messages of another round only from another sender's `identifier`."""
    manager, transport = await open_manager("sender", SENDER, directory, window, identifier)
    name = rf"DIRECT=TCP:{receiver}\private$\bench" if parties is None else str(QUEUE)
    batch = [compose(kind, parties, security)] * BATCH
    started, busy_s = time.time(), time.process_time()
    batches = iter(range(messages // BATCH))

    async def produce() -> None:
        for _ in batches:
            if kind == "transactional":
                await manager.send_transactional(name, batch)
            else:
                await manager.send(name, batch)

    await asyncio.gather(*(produce() for _ in range(UNCONFIRMED // BATCH)))
    queue = manager.core.queues.get(name)
    await _until(lambda: queue.count <= len(queue.positions))  # everything is on its way; the receiver reports the rest
    await asyncio.sleep(1.0)
    busy_s = time.process_time() - busy_s
    await transport.stop()
    await manager.stop()
    return started, busy_s


async def receive(kind: str, directory: str, messages: int, window: int) -> None:
    manager, transport = await open_manager("receiver", RECEIVER, directory, window)
    await manager.create_queue(r"private$\bench", transactional=kind == "transactional")
    print("listening", flush=True)
    busy_s = time.process_time()
    queue = manager.core.queues.get(r"private$\bench")
    await _until(lambda: queue.count >= messages)
    print(json.dumps((time.time(), time.process_time() - busy_s)), flush=True)
    await asyncio.sleep(2.0)
    await transport.stop()
    await manager.stop()


async def _until(happened: Callable[[], bool]) -> None:
    """Checks a condition from time to time, so that watching costs the manager little."""
    while not happened():  # noqa: ASYNC110
        await asyncio.sleep(0.005)


def measure_peer(directory: Path, options: tuple[str, ...], messages: int) -> float:
    peer = options[0]
    with tempfile.TemporaryDirectory() as scratch:
        environment = os.environ | {"BENCH_DIR": scratch}

        def run(script: str, *arguments: str) -> str:
            command = [sys.executable, str(directory / script), *arguments]
            return subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout

        run("brokers.py", "start", peer, *(["--express"] if "express" in options else []))
        try:
            lines = run("native_bench.py", *options, "-n", str(messages)).splitlines()
        finally:
            run("brokers.py", "stop", peer)
    (rate,) = [float(figures["rate"]) for figures in map(json.loads, lines) if figures["scenario"] == "e2e"]
    return rate


if __name__ == "__main__":
    main()
